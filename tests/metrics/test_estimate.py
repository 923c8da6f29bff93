"""One two-sided p-value for every estimate, against scipy's own tests."""

import math

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.power import TTestPower

from evenhand.metrics.estimate import p_two_sided, size_found


def test_it_is_that_of_a_t_test(rng):
    values = rng.normal(0.2, 1, 30)
    found = p_two_sided(values.mean(), stats.sem(values), 29)
    assert found == pytest.approx(stats.ttest_1samp(values, 0).pvalue, rel=1e-12)
    assert p_two_sided(-values.mean(), stats.sem(values), 29) == found


def test_without_degrees_of_freedom_it_is_normal():
    assert p_two_sided(1.5, 0.7) == pytest.approx(2 * stats.norm.sf(1.5 / 0.7), rel=1e-12)
    assert p_two_sided(60.0, 2.0) > 0  # far out, the tail keeps its digits


@pytest.mark.parametrize("df", [1.0, 12.0, np.inf])
def test_an_exact_0_has_a_p_value_of_1_and_anything_else_without_error_has_0(df):
    assert (
        p_two_sided(0.0, 0.0, df)
        == p_two_sided(-0.0, 0.0, df)
        == p_two_sided(5e-17, 0.0, df)
        == p_two_sided(0.0, 0.3, df)
        == 1
    )
    assert p_two_sided(1e-3, 0.0, df) == 0


@pytest.mark.parametrize("missing", [(math.nan, 1, 3), (1, math.nan, 3), (1, 1, math.nan)])
def test_what_was_not_estimated_has_none(missing):
    assert math.isnan(p_two_sided(*missing))


@pytest.mark.parametrize("n", [14, 60])
@pytest.mark.parametrize(("sides", "alternative"), [(2, "two-sided"), (1, "larger")])
def test_the_size_that_is_found_has_the_power_that_statsmodels_gives_it(n, sides, alternative):
    size = size_found(1 / np.sqrt(n), n - 1, 0.0125, sides=sides)
    power = TTestPower().power(size, n, 0.0125, alternative=alternative)
    assert power == pytest.approx(0.8, abs=0.02)
    assert size_found(1.0, np.inf, 0.0125, sides=sides) == pytest.approx(size_found(1.0, 1e7, 0.0125, sides=sides))
