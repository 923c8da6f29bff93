import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import brier_score_loss, precision_score, roc_auc_score

from evenhand.metrics.disparity import error_rates


def test_error_rates_equal_scikit_learn_by_group(draw):
    y, decision, score, group = draw(3)
    for code, row in enumerate(error_rates(y, decision, score, group)):
        members = group == code
        labels, decided, scores = y[members], decision[members], score[members]
        assert row.true_positive_rate.value == pytest.approx(decided[labels == 1].mean())
        assert row.false_positive_rate.value == pytest.approx(decided[labels == 0].mean())
        assert row.false_discovery_rate.value == pytest.approx(1 - precision_score(labels, decided))
        assert row.positive_rate.value == pytest.approx(decided.mean())
        assert row.auc.value == pytest.approx(roc_auc_score(labels, scores))
        assert row.brier_score.value == pytest.approx(brier_score_loss(labels, scores))
        assert row.mean_score_minus_observed_rate.value == pytest.approx(scores.mean() - labels.mean())
        assert row.n_positive_label == labels.sum()
        expected = stats.binomtest(int(decided[labels == 1].sum()), int(labels.sum())).proportion_ci(method="wilson")
        assert row.true_positive_rate.high == pytest.approx(expected.high)


def test_auc_and_calibration_intervals_cover_the_truth():
    rng = np.random.default_rng(5)
    covered = []
    for _ in range(200):
        chance = rng.beta(2, 2, 240)
        y = (rng.random(240) < chance).astype(np.int64)
        shifted = np.clip(chance, 0, 1)
        row = error_rates(y, y, shifted, np.repeat([0, 1], [160, 80]))[0]
        calibration, auc = row.mean_score_minus_observed_rate, row.auc
        covered.append([calibration.low < 0 < calibration.high, auc.low < 0.7571 < auc.high])
    assert (np.abs(np.mean(covered, axis=0) - 0.95) < 0.045).all()


def test_rates_over_no_one_are_nan_with_the_reason():
    rows = error_rates([1, 1, 0, 1, 1], [0, 0, 1, 1, 0], [0.1, 0.2, 0.3, 0.9, 0.2], [0, 0, 1, 1, 1], names="abc")
    assert "no one with the unfavorable label in group 'a'" in rows[0].false_positive_rate.note
    assert "no one with the unfavorable label in group 'a'" in rows[0].auc.note
    assert "no one approved in group 'a'" in rows[0].false_discovery_rate.note
    assert "one person with a label" in rows[1].auc.note
    assert "no one in group 'c'" in rows[2].brier_score.note
    assert np.isnan(rows[2].positive_rate.value)
    only_zero = error_rates([0, 0, 1], [0, 0, 1], [0.1, 0.2, 0.3], [0, 0, 1])[0]
    assert "no one with the favorable label in group '0'" in only_zero.auc.note


def test_scores_that_are_not_probabilities_have_no_calibration():
    row = error_rates([0, 1, 0, 1], [0, 1, 0, 1], [300.0, 700.0, 500.0, 600.0], [0, 0, 1, 1])[0]
    assert "outside [0, 1]" in row.brier_score.note
    assert "outside [0, 1]" in row.to_dict()["mean_score_minus_observed_rate"]["note"]
