import numpy as np
import pytest
from scipy import stats

from evenhand.metrics.disparity import approval_disparity


@pytest.mark.parametrize("counts", [(30, 60, 45, 70), (12, 90, 80, 300), (200, 210, 700, 900)])
def test_intervals_end_at_one_exactly_when_the_z_test_is_at_its_level(compared, counts):
    p_value = compared(*counts, test="z").p_value
    row = compared(*counts, test="z", confidence=1 - p_value)
    for estimate in (row.approval_ratio_group_over_reference, row.odds_ratio_group_over_reference):
        assert min(abs(estimate.low - 1), abs(estimate.high - 1)) < 1e-6


@pytest.mark.parametrize("counts", [(30, 60, 45, 70), (120, 900, 80, 300)])
def test_z_squared_is_the_chi_square_of_scipy(compared, counts):
    row = compared(*counts)
    x1, n1, x0, n0 = counts
    expected = stats.chi2_contingency([[x1, n1 - x1], [x0, n0 - x0]], correction=False)
    assert row.test == "two-proportion z"
    assert row.n_standard_deviations**2 == pytest.approx(expected.statistic)
    assert row.n_standard_deviations * (x1 / n1 - x0 / n0) > 0
    assert row.p_value == pytest.approx(expected.pvalue)


def test_small_cells_get_the_exact_test(compared):
    row = compared(1, 8, 9, 11)
    assert row.test == "Fisher exact"
    assert row.p_value == pytest.approx(stats.fisher_exact([[1, 7], [9, 2]]).pvalue)
    assert compared(30, 60, 45, 70, test="fisher").test == "Fisher exact"
    assert compared(1, 8, 9, 11, test="z").test == "two-proportion z"


def test_weighted_intervals_cover_when_decisions_depend_on_the_probabilities_alone():
    rng = np.random.default_rng(10)
    n, covered = 400, []
    for _ in range(200):
        p = rng.beta(1, 1, n)
        decision = (rng.random(n) < 0.3 + 0.4 * p).astype(np.int64)
        row = approval_disparity(decision, np.column_stack([1 - p, p]), reference="0").groups[1]
        # E[p (0.3 + 0.4 p)] / E[p] with p uniform, and likewise for 1 - p.
        rate, reference = 0.3 + 0.4 * 2 / 3, 0.3 + 0.4 / 3
        truth = [100 * (rate - reference), rate / reference]
        found = [row.rate_difference_group_minus_reference_pp, row.approval_ratio_group_over_reference]
        covered.append([e.low < t < e.high for e, t in zip(found, truth, strict=True)])
        assert row.n_effective < n
    assert (np.abs(np.mean(covered, axis=0) - 0.95) < 0.04).all()


def test_a_weighted_rate_of_one_has_no_odds_ratio_and_says_why():
    soft = np.array([[1.0, 0.0], [0.5, 0.5], [0.0, 1.0]])
    row = approval_disparity([1, 1, 0], soft, reference="1").groups[0]
    assert "odds ratio needs approvals and denials" in row.odds_ratio_group_over_reference.note
    assert not np.isnan(row.p_value)
