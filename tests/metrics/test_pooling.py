"""Pooling over draws: Rubin's rules against statsmodels and by hand, and the variance of a mean over draws."""

import math

import numpy as np
import pytest
import statsmodels.api as sm
from scipy import stats
from statsmodels.imputation.bayes_mi import MI

from evenhand.metrics.estimate import Estimate, not_estimable
from evenhand.metrics.intervals import weighted_mean
from evenhand.metrics.pooling import DrawnEstimate, pool, pooled_influence, rubin


class Imputed:
    """Data sets one after the other, as statsmodels asks for them."""

    def __init__(self, tables):
        self._tables = iter(tables)

    def update(self):
        self.data = next(self._tables)


def test_rubins_rules_are_those_of_statsmodels():
    rng = np.random.default_rng(0)
    n, n_draws = 80, 7
    x = rng.normal(size=n)
    tables = [np.column_stack([x, x + rng.normal(size=n)]) for _ in range(n_draws)]
    of_draws = MI(Imputed(tables), sm.OLS, lambda t: (t[:, 1], sm.add_constant(t[:, 0])), burn=0, skip=0, nrep=n_draws)
    expected = of_draws.fit()
    fits = [sm.OLS(t[:, 1], sm.add_constant(t[:, 0])).fit() for t in tables]
    for k in (0, 1):
        found = rubin([fit.params[k] for fit in fits], [fit.bse[k] ** 2 for fit in fits], n - 2)
        assert found.value == pytest.approx(expected.params[k])
        assert found.standard_error**2 == pytest.approx(expected.cov_params()[k, k])
        assert found.missing_information == pytest.approx(expected.fmi[k])


def test_degrees_of_freedom_are_those_of_barnard_and_rubin():
    # By hand: estimates 1, 2, 3 with variance 2 each; B = 1, T = 2 + 4/3, lambda = 0.4.
    found = rubin([1.0, 2.0, 3.0], [2.0, 2.0, 2.0], 50.0)
    assert (found.within_sd**2, found.between_sd**2, found.standard_error**2) == pytest.approx((2.0, 1.0, 10 / 3))
    assert found.missing_information == pytest.approx(0.4)
    of_draws, observed = 2 / 0.4**2, 51 / 53 * 50 * 0.6
    assert found.df == pytest.approx(of_draws * observed / (of_draws + observed))
    assert rubin([1.0, 2.0, 3.0], [2.0, 2.0, 2.0]).df == pytest.approx(of_draws)
    assert rubin([1.0, 1.0], [2.0, 2.0], 50.0).df == 50.0


def difference(values, codes):
    parts = [weighted_mean(values, (codes == code).astype(float), np.ones(len(values))) for code in (0, 1)]
    influence = parts[1][1] - parts[0][1]
    value, error = parts[1][0] - parts[0][0], float(np.linalg.norm(influence))
    return DrawnEstimate(Estimate.from_error(value, error), influence)


def test_the_variance_over_many_draws_is_that_of_weighting():
    rng = np.random.default_rng(1)
    n = 500
    probability = rng.beta(0.6, 0.9, n)
    values = (rng.random(n) < 0.3 + 0.4 * probability).astype(int)
    draws = [difference(values, (rng.random(n) < probability).astype(int)) for _ in range(2_000)]
    found = pool(draws)
    parts = [weighted_mean(values, weights, np.ones(n)) for weights in (1 - probability, probability)]
    assert found.value == pytest.approx(parts[1][0] - parts[0][0], abs=0.002)
    assert found.standard_error == pytest.approx(np.linalg.norm(parts[1][1] - parts[0][1]), rel=0.01)
    # Within variance less that between draws, and not more by it, as Rubin's rules have it.
    assert found.standard_error**2 == pytest.approx(found.within_sd**2 - found.between_sd**2, rel=0.05)
    assert found.rubin_high - found.rubin_low > 1.5 * (found.high - found.low)


def test_draws_that_are_alike_give_the_interval_of_one():
    one = DrawnEstimate(Estimate(0.1, -0.2, 0.7, 0.2, df=12.0), np.array([0.3, 0.1, -0.4], dtype=np.float16))
    found = pool([one] * 5)
    assert (found.value, found.low, found.high) == pytest.approx((0.1, -0.2, 0.7), abs=1e-12)
    assert (found.standard_error, found.df) == pytest.approx((0.2, 12.0))
    assert (found.between_sd, found.missing_information) == (0.0, 0.0)


def test_without_influences_the_interval_is_rubins():
    half = 0.1 * stats.t.ppf(0.975, 30.0)
    draws = [DrawnEstimate(Estimate(v, v - half, v + half, 0.1, df=30.0)) for v in (0.1, 0.2, 0.4)]
    found = pool(draws)
    assert pooled_influence(draws) is None
    assert (found.low, found.high) == pytest.approx((found.rubin_low, found.rubin_high), rel=1e-9)
    expected = rubin([0.1, 0.2, 0.4], [0.01] * 3, 30.0)
    half = stats.t.ppf(0.975, expected.df) * expected.standard_error
    assert found.rubin_high == pytest.approx(expected.value + half)


def test_a_draw_without_an_estimate_leaves_none_and_is_counted():
    known = DrawnEstimate(Estimate.from_error(0.1, 0.05))
    found = pool([known, DrawnEstimate(not_estimable("no one")), known])
    assert math.isnan(found.value)
    assert found.note == "not estimable in 1 of 3 draws"
