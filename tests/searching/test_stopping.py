from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from evenhand.exceptions import InvalidInputError
from evenhand.searching import run
from evenhand.searching.stopping import HORIZON, GainBound, crossing_probability, gain_bounds, uniform_boundary

from .conftest import QUICK, search

N_RUNS, N_DRAWS = 300, 1_000


@pytest.mark.parametrize("delta", [0.01, 0.05, 0.2])
def test_the_least_of_uniform_draws_crosses_the_boundary_as_often_as_was_asked(delta):
    """Simulated over the whole horizon, against the exact recursion."""
    moments, boundary = uniform_boundary(delta)
    assert crossing_probability(moments, boundary) == pytest.approx(delta, rel=1e-6)
    rng = np.random.default_rng(7)
    # The least of n further uniform draws is 1 - U^(1/n); only the moments matter, since the boundary falls in steps.
    gaps = np.diff(moments, prepend=0)
    least = np.minimum.accumulate(1 - rng.random((20_000, len(moments))) ** (1 / gaps), axis=1)
    crossed = float((least > boundary).any(1).mean())
    assert abs(crossed - delta) < 4 * np.sqrt(delta * (1 - delta) / 20_000)


DISTRIBUTIONS = {
    "uniform": stats.uniform(0.1, 0.1),
    "normal": stats.truncnorm(-4, 4, loc=0.1, scale=0.02),
    "right-skewed": stats.beta(2, 5, scale=0.3),
    "long lower tail": stats.beta(5, 1, scale=0.3),
    "rare and much better": None,
    "a few values": stats.randint(1, 12),
}


def drawn(name, rng):
    """Draws, and the distribution function just below a value."""
    if name == "rare and much better":  # one model in 250 has no gap at all: the worst case
        values = np.where(rng.random(N_DRAWS) < 0.004, 0.0, rng.uniform(0.1, 0.2, N_DRAWS))
        return values, lambda x: 0.004 * (x > 0) + 0.996 * np.clip((x - 0.1) / 0.1, 0, 1)
    known = DISTRIBUTIONS[name]
    values = known.rvs(N_DRAWS, random_state=rng) * (0.01 if name == "a few values" else 1)
    if name == "a few values":
        return values, lambda x: known.cdf(np.ceil(np.round(x / 0.01, 6)) - 1)
    return values, known.cdf


@pytest.mark.parametrize("name", DISTRIBUTIONS)
def test_the_bound_holds_at_every_moment_at_once_and_is_not_vacuous(name):
    rng = np.random.default_rng(1)
    at = np.unique(np.geomspace(10, N_DRAWS, 40).round().astype(int)).tolist()
    n_wrong = 0
    for _ in range(N_RUNS):
        values, below = drawn(name, rng)
        bounds = gain_bounds(values, incumbent=0.5, at=at)
        best = np.array([bound.best for bound in bounds])
        n_wrong += bool((below(best) > [bound.share for bound in bounds]).any())
    assert n_wrong / (N_RUNS) <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / (N_RUNS))
    after_200 = next(bound for bound in bounds if bound.n_draws >= 200)
    assert after_200.share < 0.034
    assert after_200.gain() < 0.04 * after_200.best


def test_the_bound_on_the_gain_covers_the_exact_gain():
    """Uniform draws above 0.1: the gain of k further draws is an integral that can be written down."""
    draws = np.random.default_rng(0).uniform(0.1, 0.2, 300)
    for bound in gain_bounds(draws, incumbent=0.2):
        reach = (bound.best - 0.1) / 0.1
        for k in (1, 10):
            exact = 0.1 * (reach - (1 - (1 - reach) ** (k + 1)) / (k + 1))
            assert bound.gain(k) >= exact


def test_draws_without_replacement_from_a_finite_space_are_covered():
    rng = np.random.default_rng(3)
    n_wrong = 0
    for _ in range(400):
        space = rng.permutation(300) / 300 + 0.01
        for bound in gain_bounds(space[:150], incumbent=2.0, at=[10, 20, 40, 80, 120, 150]):
            left = space[bound.n_draws :]
            if np.mean(left < bound.best) > bound.share:
                n_wrong += 1
                break
    assert n_wrong / 400 < 0.05


def test_the_incumbent_counts_and_infinite_draws_gain_nothing():
    (bound,) = gain_bounds(np.full(50, np.inf), incumbent=0.3, at=[50])
    assert (bound.best, bound.room) == (0.3, 0.3)
    assert gain_bounds([0.1] * 9, incumbent=0.3) == ()
    (at_floor,) = gain_bounds([0.0] * 20, incumbent=0.3, at=[20])
    assert at_floor.gain(1_000) == 0
    assert gain_bounds(np.ones(HORIZON + 10), incumbent=1.0, at=[HORIZON + 10])[0].share == pytest.approx(
        gain_bounds(np.ones(HORIZON), incumbent=1.0, at=[HORIZON])[0].share
    )
    assert GainBound(10, 0.1, 0.5, 0.1).gain(2) == pytest.approx(0.075)


def test_a_search_stops_once_little_is_left_to_gain(given, tmp_path, monkeypatch):
    monkeypatch.setattr(run, "_ROUND", 12)
    asked = {**given, "folds": 2, "space": {**QUICK, "cec_weight": np.geomspace(0.1, 10, 16).tolist()}, "keep": []}
    whole = search(**asked)
    assert whole.stopping.n_left == 0
    assert whole.stopping.n_draws == len(whole.tried) - sum(c.is_unconstrained for c in whole.tried)
    gain = whole.stopping.bounds[-1].gain() * 2
    stopped = search(**asked, stop_gain=gain, checkpoint=tmp_path)
    assert stopped.stopping.n_left > 0
    assert len(stopped.tried) + stopped.stopping.n_left == len(whole.tried)
    assert stopped.stopping.bounds[-1].gain() <= gain
    assert [c.key for c in stopped.tried] == [c.key for c in whole.tried[: len(stopped.tried)]]
    told = stopped.to_dict()["stopping"]
    assert told["stop_gain"] == gain
    assert told["bounds"][-1]["gain_of_1"] <= gain
    best = stopped.metrics["reasoning_gap"].mean(1).min()
    assert told["bounds"][-1]["best"] == pytest.approx(max(best, 0))


def test_a_floor_above_what_was_seen_is_refused(given):
    with pytest.raises(InvalidInputError, match=r"`stop_floor` is 0\.9, the best possible reasoning_gap, but a candid"):
        search(**given, space=QUICK, keep=[], stop_floor=0.9)
