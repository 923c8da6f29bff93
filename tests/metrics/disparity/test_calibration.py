"""Calibration by group: curves of scikit-learn, intercepts and slopes of statsmodels, intervals that hold."""

import math

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import special, stats
from sklearn.calibration import calibration_curve
from statsmodels.stats.proportion import proportion_confint

from evenhand.exceptions import InvalidInputError
from evenhand.metrics.disparity import group_calibration


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(2)
    n = 1500
    group = (rng.random(n) < 0.3).astype(int)
    score = np.round(special.expit(rng.normal(size=n)), 3)  # with ties
    y = (rng.random(n) < special.expit(0.6 * special.logit(score) - 0.3 * group)).astype(int)
    return y, score, group


def test_curves_are_those_of_scikit_learn(people):
    y, score, group = people
    for code, found in enumerate(group_calibration(y, score, group)):
        observed, promised = calibration_curve(y[group == code], score[group == code], n_bins=10, strategy="quantile")
        assert [part.observed_rate.value for part in found.bins] == pytest.approx(observed.tolist())
        assert [part.mean_score for part in found.bins] == pytest.approx(promised.tolist())
        assert sum(part.n_people for part in found.bins) == (group == code).sum()


def test_rates_have_wilson_intervals(people):
    y, score, group = people
    (part, *_) = group_calibration(y, score, group)[0].bins
    x = round(part.observed_rate.value * part.n_people)
    low, high = proportion_confint(x, part.n_people, method="wilson")
    assert (part.observed_rate.low, part.observed_rate.high) == pytest.approx((low, high))


def test_intercept_and_slope_are_those_of_logistic_regressions(people):
    y, score, group = people
    found = group_calibration(y, score, group)[1]
    labels, log_odds = y[group == 1], special.logit(score[group == 1])
    offset = sm.Logit(labels, np.ones((len(labels), 1)), offset=log_odds).fit(disp=0)
    theirs = (offset.params[0], *offset.conf_int()[0])
    assert (found.intercept.value, found.intercept.low, found.intercept.high) == pytest.approx(theirs, abs=1e-6)
    both = sm.Logit(labels, sm.add_constant(log_odds)).fit(disp=0)
    theirs = (both.params[1], *both.conf_int()[1])
    assert (found.slope.value, found.slope.low, found.slope.high) == pytest.approx(theirs, abs=1e-6)
    assert found.slope.high < 1  # scores are too extreme, as they were made


def test_distinct_rows_with_frequencies_give_the_same(people):
    y, score, group = people
    rows, times = np.unique(np.column_stack([score, y, group]), axis=0, return_counts=True)
    counted = group_calibration(rows[:, 1].astype(int), rows[:, 0], rows[:, 2].astype(int), frequency=times)
    for one, other in zip(group_calibration(y, score, group), counted, strict=True):
        assert len(one.bins) == len(other.bins)
        for part, same in zip(one.bins, other.bins, strict=True):
            assert (part.n_people, part.lowest, part.highest) == (same.n_people, same.lowest, same.highest)
            assert part.mean_score == pytest.approx(same.mean_score)
        assert one.expected_calibration_error.value == pytest.approx(other.expected_calibration_error.value)
        assert one.expected_calibration_error.low == pytest.approx(other.expected_calibration_error.low)
        assert one.slope.value == pytest.approx(other.slope.value)


def test_the_error_is_the_weighted_distance_of_the_curve(people):
    y, score, group = people
    found = group_calibration(y, score, group)[0]
    n = np.array([part.n_people for part in found.bins])
    apart = [abs(part.mean_score - part.observed_rate.value) for part in found.bins]
    assert found.expected_calibration_error.value == pytest.approx(float(n @ apart) / n.sum())


def test_the_error_by_chance_is_that_of_binomial_draws(people):
    y, score, group = people
    found = group_calibration(y, score, group)[1]
    n, promised = (np.array([getattr(part, key) for part in found.bins]) for key in ("n_people", "mean_score"))
    drawn = stats.binom.rvs(n, promised, size=(20_000, len(n)), random_state=0) / n
    assert found.error_by_chance == pytest.approx(float((np.abs(drawn - promised) @ n).mean() / n.sum()), rel=0.01)


@pytest.mark.parametrize("shift", [0.0, 0.05])
@pytest.mark.slow
def test_intervals_of_the_error_hold(shift):
    rng = np.random.default_rng(1)
    inside = 0
    for _ in range(200):
        score = rng.uniform(0.1, 0.9, 1000)
        y = (rng.random(1000) < score - shift).astype(int)
        error = group_calibration(y, score, np.arange(1000) % 2)[0].expected_calibration_error
        inside += error.low <= shift <= error.high
    assert inside >= 0.9 * 200  # 95% at least, give or take three standard errors


def test_small_groups_have_fewer_bins_and_are_flagged():
    rng = np.random.default_rng(0)
    group = np.repeat([0, 1, 2], [400, 65, 12])
    score = rng.uniform(0.1, 0.9, len(group))
    found = group_calibration((rng.random(len(group)) < score).astype(int), score, group)
    assert [len(one.bins) for one in found] == [10, 2, 1]
    assert [one.is_small_group for one in found] == [False, False, True]


def test_what_cannot_be_estimated_says_why():
    group = np.repeat([0, 1, 2], 40)
    score = np.tile(np.linspace(0.1, 0.9, 40), 3)
    y = (score > 0.5).astype(int)
    y[group == 1] = 1
    score[80] = 0.0
    separated, alike, sure, nobody = group_calibration(y, score, group, names=["a", "b", "c", "d"])
    assert "separate the labels perfectly" in separated.slope.note
    assert alike.slope.note == "not estimable: everyone has the same label"
    assert sure.intercept.note == "not estimable: 1 people have a score of 0 or 1, whose log-odds are infinite"
    assert math.isfinite(sure.expected_calibration_error.value)
    assert nobody.bins == ()
    assert nobody.observed_rate.note == "not estimable: no one in group 'd'"
    same = group_calibration(np.arange(80) % 2, np.full(80, 0.4), np.repeat([0, 1], 40))[0]
    assert len(same.bins) == 1
    assert same.slope.note == "not estimable: everyone has the same score"
    assert same.intercept.value == pytest.approx(special.logit(0.5) - special.logit(0.4))


def test_scores_that_are_not_probabilities_are_refused():
    with pytest.raises(InvalidInputError, match="must hold probabilities, got 1 values outside"):
        group_calibration([0, 1], [0.5, 1.5], [0, 1])
    with pytest.raises(InvalidInputError, match="must hold one code"):
        group_calibration([0, 1], [0.5, 0.5], [[0.5, 0.5], [0.5, 0.5]])
