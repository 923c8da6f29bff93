import numpy as np
import pytest
from scipy import stats

from evenhand.metrics.disparity import error_rates


def test_auc_interval_has_the_variance_of_delong_written_out(draw, numbers):
    y, decision, score, _ = draw(4, n=80)
    group = np.append(np.zeros(len(y), dtype=np.int64), [1])
    found = error_rates(np.append(y, 1), np.append(decision, 1), np.append(score, 1.0), group)[0].auc
    pos, neg = score[y == 1], score[y == 0]
    kernel = (pos[:, None] > neg[None, :]) + 0.5 * (pos[:, None] == neg[None, :])
    error = np.sqrt(kernel.mean(1).var(ddof=1) / len(pos) + kernel.mean(0).var(ddof=1) / len(neg))
    area = kernel.mean()
    half = stats.norm.ppf(0.975) * error / (area * (1 - area))
    logit = np.log(area / (1 - area))
    expected = [area, 1 / (1 + np.exp(half - logit)), 1 / (1 + np.exp(-half - logit))]
    assert numbers(found) == pytest.approx(expected)


def test_separated_labels_have_an_auc_without_interval():
    row = error_rates([0, 0, 1, 1, 1], [0, 0, 1, 1, 1], [0.1, 0.2, 0.8, 0.9, 0.9], [0, 0, 0, 0, 1])[0]
    assert row.auc.value == 1
    assert np.isnan(row.auc.low)
    assert "separated" in row.auc.note
