import numpy as np
import pytest
from scipy import stats

from evenhand.metrics.disparity import score_disparity


def test_score_disparity_equals_its_formula_and_scipy(draw, numbers):
    _, _, score, group = draw(0)
    rows = score_disparity(score, group, reference="0")
    base = score[group == 0]
    for code in (1, 2):
        one = score[group == code]
        expected = (one.mean() - base.mean()) / np.sqrt((one.var(ddof=1) + base.var(ddof=1)) / 2)
        assert rows[code].standardized_mean_difference_group_minus_reference.value == pytest.approx(expected)
        found = stats.ks_2samp(one, base)
        assert (rows[code].ks_distance, rows[code].ks_p_value) == pytest.approx((found.statistic, found.pvalue))
        interval = stats.ttest_1samp(one, 0).confidence_interval()
        assert numbers(rows[code].mean_score) == pytest.approx([one.mean(), interval.low, interval.high])


def test_standardized_difference_has_the_textbook_error_for_normal_scores():
    rng = np.random.default_rng(0)
    n = 40_000
    score = np.concatenate([rng.normal(0, 1, n), rng.normal(-0.6, 1, n)])
    found = score_disparity(score, np.repeat([0, 1], n))[1].standardized_mean_difference_group_minus_reference
    expected = 1.96 * np.sqrt(2 / n + 0.6**2 / (4 * n))
    assert (found.high - found.low) / 2 == pytest.approx(expected, rel=0.02)
    assert found.low < -0.6 < found.high


def test_standardized_difference_covers_the_truth_for_skewed_scores():
    rng = np.random.default_rng(2)
    n, covered = 150, 0
    for _ in range(300):
        score = np.concatenate([rng.exponential(1, n), 0.5 + rng.exponential(1, n // 2)])
        found = score_disparity(score, np.repeat([0, 1], [n, n // 2]))[1]
        estimate = found.standardized_mean_difference_group_minus_reference
        covered += estimate.low < 0.5 < estimate.high
    assert 0.91 < covered / 300 < 0.985


def test_scores_that_cannot_be_compared_say_why():
    rows = score_disparity([0.1, 0.2, 0.3], [0, 0, 1], names=["a", "b", "c"])
    assert "fewer than two people" in rows[1].standardized_mean_difference_group_minus_reference.note
    assert "one person" in rows[1].mean_score.note
    assert "no one in group 'c'" in rows[2].mean_score.note
    assert "no one in group 'c'" in rows[2].note
    assert np.isnan(rows[2].ks_distance)
    constant = score_disparity([0.5] * 4, [0, 0, 1, 1])[1]
    assert "constant" in constant.standardized_mean_difference_group_minus_reference.note
    assert constant.to_dict()["ks_distance"] == 0
