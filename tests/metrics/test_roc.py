"""Areas and distances against scikit-learn, scipy, brute force and a bootstrap."""

import math

import numpy as np
import pytest
from scipy import stats
from sklearn.metrics import roc_auc_score

from evenhand.metrics.outcomes import auc, auc_influence, auc_interval, hanley_mcneil, ks_distance

ONE_LABEL = np.array([1, 1, 1]), np.array([0.1, 0.2, 0.3])


@pytest.fixture
def rng():
    return np.random.default_rng(0)


@pytest.fixture
def people(rng):
    """Labels and tied scores."""
    y = (rng.random(400) < 0.4).astype(np.int64)
    return y, np.round(rng.normal(size=400) + y, 1)


def test_auc_equals_scikit_learns_with_ties_weights_and_frequencies(people, rng):
    y, score = people
    for weight in (None, rng.random(400), rng.integers(1, 5, 400)):
        expected = roc_auc_score(y, score, sample_weight=weight)
        assert auc(y, score, weight) == pytest.approx(expected, rel=1e-12)


def test_interval_has_the_variance_of_delong_written_out(people):
    y, score = people
    above, below = score[y == 1], score[y == 0]
    kernel = (above[:, None] > below[None, :]) + 0.5 * (above[:, None] == below[None, :])
    error = np.sqrt(kernel.mean(1).var(ddof=1) / len(above) + kernel.mean(0).var(ddof=1) / len(below))
    area = kernel.mean()
    half, logit = stats.norm.ppf(0.95) * error / (area * (1 - area)), np.log(area / (1 - area))
    found = auc_interval(y, score, confidence=0.9)
    expected = [area, 1 / (1 + np.exp(half - logit)), 1 / (1 + np.exp(-half - logit))]
    assert [found.value, found.low, found.high] == pytest.approx(expected)
    assert math.sqrt((auc_influence(y, score) ** 2).sum()) == pytest.approx(error)
    assert hanley_mcneil(area, len(above), len(below)) == pytest.approx(error, rel=0.1)


def test_influences_of_two_scores_give_the_error_of_their_difference(people, rng):
    y, score = people
    other = score + rng.normal(size=400)
    error = math.sqrt(((auc_influence(y, other) - auc_influence(y, score)) ** 2).sum())
    rows = rng.integers(0, 400, size=(600, 400))
    draws = [auc(y[r], other[r]) - auc(y[r], score[r]) for r in rows]
    assert error == pytest.approx(np.std(draws), rel=0.1)


def test_separated_labels_have_an_area_without_interval():
    found = auc_interval(np.array([0, 0, 1, 1]), np.array([0.1, 0.2, 0.8, 0.9]))
    assert found.value == 1
    assert np.isnan(found.low)
    assert "separated" in found.note


def test_ks_distance_equals_scipys(people, rng):
    y, score = people
    expected = stats.ks_2samp(score[y == 1], score[y == 0]).statistic
    assert ks_distance(score, y == 1, y == 0) == pytest.approx(expected, rel=1e-12)
    times = rng.integers(1, 4, 400)
    people_of = [np.repeat(score[y == label], times[y == label]) for label in (1, 0)]
    weighted = ks_distance(score, times * (y == 1), times * (y == 0))
    assert weighted == pytest.approx(stats.ks_2samp(*people_of).statistic, rel=1e-12)


def test_an_absent_label_gives_nan_and_a_single_person_no_error():
    y, score = ONE_LABEL
    assert np.isnan(auc(y, score))
    assert np.isnan(ks_distance(score, y == 1, y == 0))
    assert auc_interval(y, score).note == "not estimable: no one with the unfavorable label"
    single = np.array([0, 1, 1])
    assert np.isnan(auc_influence(single, score)).all()
    assert np.isnan(auc_interval(single, score).low)
    assert np.isnan(hanley_mcneil(0.8, 2, 1))
    assert np.isnan(hanley_mcneil(math.nan, 20, 10))
