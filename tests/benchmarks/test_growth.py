"""Exponents of growth: those of known laws, with fixed costs taken off."""

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(scope="module")
def growth():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(BENCHMARKS))
        yield importlib.import_module("bench_growth")
    for name in ("bench_growth", "measured"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("exponent", [0.5, 1.0, 1.1, 2.0])
def test_the_exponent_of_a_power_above_a_fixed_cost_is_found(growth, exponent):
    sizes = np.array([1e4, 3e4, 1e5, 1e6])
    values = 2.0 + 1e-5 * sizes**exponent
    assert growth.slope(sizes, values, 2.0, 0.0) == pytest.approx(exponent)


def test_sizes_that_do_not_stand_out_from_the_fixed_cost_are_left_out(growth):
    assert growth.slope([10, 100, 1000, 10_000], [2.0, 2.01, 3.0, 12.0], 2.0, 0.05) == pytest.approx(1.0)
    assert growth.slope([10, 100], [2.0, 2.01], 2.0, 0.05) is None


def test_groups_count_by_those_to_compare_with(growth):
    series = next(one for one in growth.SERIES if one.name == "groups")
    tiny = {"seconds": 1.0, "cpu_seconds": 1.0, "peak_mb": 10.0}
    found = [{"seconds": 1 + g, "cpu_seconds": 1.0 + 3 * (g - 1), "peak_mb": 10.0 + 50 * (g - 1)} for g in series.sizes]
    (time, memory), table = growth.fitted(series, found, tiny)
    assert time.value == pytest.approx(1.0)
    assert memory.value == pytest.approx(1.0)
    assert time.is_met
    assert table.count("\n") == 1 + len(series.sizes)


def test_other_sizes_of_people_can_be_named(growth):
    people = growth.SERIES[0]
    assert growth.scaled(people, 1.0, [10, 20]).sizes == (10, 20)
    assert growth.scaled(people, 0.1, None).sizes[0] == people.sizes[0] // 10
    trees = next(one for one in growth.SERIES if one.name == "trees")
    assert growth.scaled(trees, 1.0, [10, 20]).sizes == trees.sizes
