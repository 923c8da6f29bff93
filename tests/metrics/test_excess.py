"""Excesses: variances against brute force, error rates, words, and every refusal."""

import numpy as np
import pytest
from scipy import stats

from evenhand.exceptions import InvalidInputError
from evenhand.metrics.excess import (
    excess,
    excess_by,
    excess_columns,
)


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def _triples(rng, n_people=40, n_each=3, n_matches=8):
    """People with several triples each, matches that serve often, and a score that depends on all three."""
    person = np.repeat(np.arange(n_people), n_each)
    match = n_people + rng.integers(n_matches, size=len(person))
    placebo = (person + rng.integers(1, n_people, size=len(person))) % n_people
    effect = rng.standard_normal(n_people + n_matches)
    noise = 0.1 * rng.standard_normal(len(person))
    delta = 0.4 + 0.05 * (effect[person] + effect[match]) + noise
    placebo_delta = 0.3 + 0.05 * (effect[person] + effect[placebo])
    return delta, placebo_delta, np.column_stack([person, match, placebo])


def _brute_force_variance(residual, nodes, weight):
    """The formula of `excess`, comparing every two triples."""
    shared = sum(
        residual[a] * residual[b]
        for a in range(len(nodes))
        for b in range(len(nodes))
        if set(nodes[a].tolist()) & set(nodes[b].tolist())
    )
    inflation = 0.0
    for v in np.unique(nodes):
        inside = (nodes == v).any(axis=1)
        inflation += residual[inside].sum() ** 2 * ((1 - weight[inside].sum()) ** -2 - 1)
    return shared + inflation


@pytest.mark.parametrize("n_columns", [1, 2, 3])
@pytest.mark.parametrize("has_control", [False, True])
def test_standard_error_equals_the_sum_over_every_two_triples_that_share_a_person(rng, n_columns, has_control):
    delta, placebo_delta, nodes = _triples(rng)
    nodes = nodes[:, :n_columns]
    control = rng.standard_normal(len(delta)) if has_control else None
    found = excess(delta, placebo_delta, nodes, control=control)
    difference = delta - placebo_delta
    design = np.column_stack([np.ones(len(delta)), np.zeros(len(delta)) if control is None else control])
    beta = np.linalg.lstsq(design, difference, rcond=None)[0]
    weight = np.full(len(delta), 1 / len(delta))
    linear = np.linalg.pinv(design)[0]
    residual = linear * (difference - design @ beta)
    assert found.value == pytest.approx(beta[0])
    assert found.standard_error**2 == pytest.approx(_brute_force_variance(residual, nodes, weight))


def test_standard_error_of_independent_people_is_the_delete_one_jackknife(rng):
    difference = rng.exponential(size=25)
    found = excess(difference, np.zeros(25), np.arange(25))
    without = np.array([np.delete(difference, i).mean() for i in range(25)])
    assert found.standard_error**2 == pytest.approx(((without - difference.mean()) ** 2).sum())
    assert found.n_effective == pytest.approx(25)
    assert found.df == pytest.approx(24)


def test_standard_error_is_never_below_that_of_independent_people(rng):
    # Triples that share people and have opposite residuals would make the sum over couples negative.
    nodes = np.column_stack([np.arange(20), np.repeat(np.arange(20, 30), 2)])
    difference = np.tile([0.1, -0.1], 10)
    found = excess(difference, np.zeros(20), nodes)
    assert found.standard_error >= 0.999 * np.sqrt((difference**2).sum()) / 20


def test_people_weigh_equally_whatever_their_number_of_triples():
    person = np.repeat(np.arange(20), np.tile([1, 4], 10))
    found = excess(np.where(person % 2 == 0, 1.0, 0.0), np.zeros(50), person)
    assert found.value == pytest.approx(0.5)
    assert found.n == 20


def test_excess_ignores_what_pair_and_placebo_have_in_common(rng):
    delta, placebo_delta, nodes = _triples(rng)
    first, second = excess(delta, placebo_delta, nodes), excess(delta + 5, placebo_delta + 5, nodes)
    assert (second.value, second.p_value) == pytest.approx((first.value, first.p_value))


def test_contributions_add_up_to_the_excess_of_the_whole_with_a_control_too(rng):
    delta, placebo_delta, nodes = _triples(rng)
    shares = rng.dirichlet(np.ones(4), size=len(delta))
    control = rng.standard_normal(len(delta))
    parts = excess_columns(shares * delta[:, None], shares * placebo_delta[:, None], nodes, control=control)
    assert sum(p.value for p in parts) == pytest.approx(excess(delta, placebo_delta, nodes, control=control).value)


def test_a_control_that_explains_everything_leaves_exactly_nothing(rng):
    delta, placebo_delta, nodes = _triples(rng)
    found = excess(delta, placebo_delta, nodes, control=delta - placebo_delta)
    assert (found.value, found.standard_error, found.p_value) == (0.0, 0.0, 1.0)
    assert "rounding" in found.note


def test_a_constant_difference_is_certain():
    up, down = (
        excess(np.full(20, 0.5), np.zeros(20), np.arange(20)),
        excess(np.zeros(20), np.full(20, 0.5), np.arange(20)),
    )
    assert up.p_value < 1e-9
    assert down.p_value > 1 - 1e-9


def test_p_values_are_uniform_and_intervals_cover_when_people_are_shared(rng):
    covered, p = [], []
    for _ in range(400):
        delta, placebo_delta, nodes = _triples(rng, n_people=60, n_each=2, n_matches=30)
        found = excess(delta, placebo_delta, nodes)
        covered.append(found.low <= 0.1 <= found.high)
        p.append(stats.t.sf((found.value - 0.1) / found.standard_error, found.df))
    assert 0.92 <= np.mean(covered) <= 0.98
    assert stats.kstest(p, "uniform").pvalue > 0.01


def test_missing_scores_are_left_out_and_counted(rng):
    delta, placebo_delta, nodes = _triples(rng)
    delta[:5] = np.nan
    found = excess(delta, placebo_delta, nodes)
    assert found.value == pytest.approx(excess(delta[5:], placebo_delta[5:], nodes[5:]).value)
    assert "5 triples without a score left out" in found.note


def test_too_few_people_give_nan_and_the_reason():
    found = excess(np.ones(9), np.zeros(9), np.arange(9))
    assert np.isnan([found.value, found.low, found.p_value, found.standard_error]).all()
    assert found.note == "not estimated: 9 people with a triple, at least 10 needed"
    assert not found.is_estimated
    assert not found.is_weak
    assert np.isnan(excess([], [], np.zeros((0, 3), dtype=int)).value)


def test_few_independent_people_are_said_to_be_few(rng):
    nodes = np.column_stack([np.arange(500), 500 + np.arange(500) % 5])
    found = excess(rng.random(500), rng.random(500), nodes)
    assert found.is_weak
    assert "few independent people: 500 compared" in found.note


def test_excess_by_agrees_with_each_part_alone_and_keeps_small_parts(rng):
    delta, placebo_delta, nodes = _triples(rng)
    by = np.where(nodes[:, 0] < 3, "small", "large")
    control = rng.standard_normal(len(delta))
    found = excess_by(by, delta, placebo_delta, nodes, control=control)
    inside = by == "large"
    assert found["large"] == excess(delta[inside], placebo_delta[inside], nodes[inside], control=control[inside])
    assert np.isnan(found["small"].value)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: excess([0.1], [0.1, 0.2], [0]), "one row per triple"),
        (lambda: excess([0.1, 0.1], [0.1, 0.2], [0]), "one row per triple"),
        (lambda: excess([0.1], [0.1], [0], control=[0.1, 0.2]), "one row per triple"),
        (lambda: excess([[0.1]], [0.1], [0]), "`delta` must be one-dimensional"),
        (lambda: excess([0.1], [0.1], [[0, 1, 2, 3]]), "one to three columns"),
        (lambda: excess([0.1], [0.1], [-1]), "one to three columns of non-negative"),
        (lambda: excess([0.1], [0.1], [0.5]), "got float64"),
        (lambda: excess([0.1], [0.1], [[3, 3]]), "one person twice"),
        (lambda: excess([0.1], [0.1], [0], confidence=1.0), "`confidence` must be a number between 0 and 1"),
        (lambda: excess_by([0], [0.1, 0.2], [0.1, 0.2], [0, 1]), "one value per triple"),
    ],
)
def test_refusals(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()
