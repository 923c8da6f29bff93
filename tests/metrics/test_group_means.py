"""Thresholding, weighting and the group alone: what each gets right, and the sign of what it gets wrong."""

import numpy as np
import pytest
import statsmodels.api as sm
from scipy.special import expit

from evenhand.metrics.pooling import group_means

N = 200_000


def world(on_proxy, on_group, seed=0):
    """Probability, group and outcome of people, by how the outcome depends on the proxy and on the group."""
    rng = np.random.default_rng(seed)
    proxy = rng.normal(size=N)
    probability = expit(3 * proxy)
    group = (rng.random(N) < probability).astype(int)
    outcome = (on_proxy * proxy + on_group * group + rng.normal(size=N) > 0).astype(int)
    return probability, group, outcome


def means(probability, outcome):
    p = np.column_stack([1 - probability, probability])
    put = np.where(p.max(axis=1) >= 0.8, p.argmax(axis=1), -1)
    return group_means(outcome, p, put)


def differences(probability, outcome):
    return {name: mean[1] - mean[0] for name, mean in means(probability, outcome).items()}


def test_estimators_are_those_of_others():
    probability, _, outcome = (values[:500] for values in world(-0.5, -0.3))
    p = np.column_stack([1 - probability, probability])
    found = means(probability, outcome)
    (own, other), apart = found["weighting"][::-1], differences(probability, outcome)
    weighted = [sm.stats.DescrStatsW(outcome, weights).mean for weights in p.T]
    assert [other, own] == pytest.approx(weighted)
    assert apart["weighting"] == pytest.approx(weighted[1] - weighted[0])
    sure = p.max(axis=1) >= 0.8
    rates = [outcome[sure & (p.argmax(axis=1) == code)].mean() for code in (0, 1)]
    assert apart["thresholding"] == pytest.approx(rates[1] - rates[0])
    assert found["group_alone"] == pytest.approx(sm.OLS(outcome, p).fit().params)


def test_weighting_is_right_and_thresholding_too_large_where_the_proxy_is_all_that_counts():
    probability, group, outcome = world(-0.5, 0.0)
    truth = outcome[group == 1].mean() - outcome[group == 0].mean()
    found = differences(probability, outcome)
    assert found["weighting"] == pytest.approx(truth, abs=0.01)
    assert abs(found["thresholding"]) > abs(truth) + 0.05
    assert abs(found["group_alone"]) > abs(truth) + 0.05


def test_the_group_alone_is_right_and_weighting_too_small_where_the_group_is_all_that_counts():
    probability, group, outcome = world(0.0, -0.8)
    truth = outcome[group == 1].mean() - outcome[group == 0].mean()
    found = differences(probability, outcome)
    assert found["group_alone"] == pytest.approx(truth, abs=0.01)
    share = np.var(probability) / (probability.mean() * (1 - probability.mean()))
    assert found["weighting"] == pytest.approx(share * truth, abs=0.01)


def test_the_error_of_weighting_is_the_covariance_of_group_and_outcome_given_the_proxy():
    # A group that fares worse overall, and better among people with the same proxy: weighting overstates.
    for on_group, sign in ((-0.4, 1), (0.4, -1)):
        probability, group, outcome = world(-0.8, on_group)
        truth = outcome[group == 1].mean() - outcome[group == 0].mean()
        bins = np.searchsorted(np.quantile(probability, np.linspace(0, 1, 201)[1:-1]), probability)
        inside = [np.cov(group[bins == b], outcome[bins == b])[0, 1] for b in range(200)]
        share = group.mean()
        error = -np.mean(inside) / (share * (1 - share))
        found = differences(probability, outcome)["weighting"]
        assert found - truth == pytest.approx(error, abs=0.01)
        assert np.sign(found - truth) == sign


def test_no_one_surely_of_a_group_leaves_thresholding_without_a_number():
    found = group_means(np.array([0.0, 1.0]), np.full((2, 2), 0.5), np.array([-1, -1]))
    assert np.isnan(found["thresholding"]).all()
    assert np.isnan(found["group_alone"]).all()
    np.testing.assert_array_equal(found["weighting"], [0.5, 0.5])
