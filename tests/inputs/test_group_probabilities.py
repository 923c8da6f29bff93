"""Probabilities of groups: what is refused, and draws that depend on the person alone."""

import numpy as np
import pandas as pd
import pytest

import evenhand as eh
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.group_probabilities import PersonProbabilities


def table(n=100):
    share = np.linspace(0.05, 0.95, n)
    return pd.DataFrame({"white": 1 - share, "black": share})


@pytest.mark.parametrize(
    ("spoiled", "match"),
    [
        (lambda t: t.assign(black=t["black"] + 0.01), r"sum to 1 within 0.001.*100 of 100 rows.*sums to 1\.01.*divide"),
        (lambda t: t.assign(black=t["black"] * np.where(t.index == 7, 3, 1)), r"1 of 100 rows.*row 7"),
        (lambda t: t.assign(white=t["white"] + 1.0, black=t["black"] - 1.0), r"at least 0.*100 of 100.*-0\.95"),
        (lambda t: t.assign(white=t["white"].where(t.index > 2)), r"missing in 3 of 100 rows.*--drop-missing"),
        (lambda t: t[["white"]], r"a column for every group, got only \['white'\]"),
        (lambda t: t.assign(other=0.0), r"Too few people are likely.*'other' \(0\.0\) of 100 people"),
        (lambda t: t.assign(white="most"), r"must be numbers.*\['white'\]"),
        (lambda t: t["white"], r"group probabilities"),
    ],
)
def test_what_is_refused(spoiled, match):
    with pytest.raises((InvalidInputError, eh.EvenhandError), match=match):
        eh.GroupProbabilities(spoiled(table()))


@pytest.mark.parametrize(
    ("options", "match"),
    [({"n_draws": 1}, "--draws"), ({"n_draws": 2.5}, "--draws"), ({"threshold": 0.4}, "--group-threshold")],
)
def test_options_out_of_range_are_refused(options, match):
    with pytest.raises(InvalidInputError, match=match):
        eh.GroupProbabilities(table(), **options)


def test_rounded_probabilities_are_rescaled_and_groups_are_in_order():
    found = eh.GroupProbabilities(table().round(3) + 0.0004)
    assert found.names == ("black", "white")
    np.testing.assert_allclose(found.probabilities.sum(axis=1), 1.0, rtol=0, atol=1e-15)


def people(n, seed=0):
    rng = np.random.default_rng(seed)
    values = rng.dirichlet([1.0, 2.0, 0.5], n)
    return PersonProbabilities(("a", "b", "c"), values, rng.integers(0, 2**63, n).astype(np.uint64), 5, 0.8)


def test_draws_have_the_probabilities():
    n = 60_000
    one = people(n)
    same = PersonProbabilities(one.names, np.tile([0.2, 0.5, 0.3], (n, 1)), one.keys, 5, 0.8)
    for number in (0, 1):
        shares = np.bincount(same.drawn(number, 3).codes) / n
        np.testing.assert_allclose(shares, [0.2, 0.5, 0.3], atol=4 * np.sqrt(0.25 / n))
    apart = np.mean(same.drawn(0, 3).codes == same.drawn(1, 3).codes)
    assert apart == pytest.approx(0.2**2 + 0.5**2 + 0.3**2, abs=0.01)  # draws are independent of each other


def test_a_draw_depends_on_the_person_and_the_seed_alone():
    found = people(500)
    order = np.random.default_rng(1).permutation(500)
    moved = PersonProbabilities(found.names, found.values[order], found.keys[order], 5, 0.8)
    np.testing.assert_array_equal(moved.drawn(3, 9).codes, found.drawn(3, 9).codes[order])
    assert (found.drawn(3, 8).codes != found.drawn(3, 9).codes).any()


def test_no_one_is_drawn_into_a_group_they_cannot_be_in():
    n = 3_000
    values = np.tile([0.7, 0.1 + 0.2, 0.0], (n, 1))  # sums to 1 but for rounding
    keys = np.arange(n, dtype=np.uint64)
    assert PersonProbabilities(("a", "b", "c"), values, keys, 5, 0.8).drawn(0, 0).codes.max() == 1


def test_thresholding_leaves_the_unsure_out():
    values = np.array([[0.8, 0.2], [0.79, 0.21], [0.1, 0.9]])
    found = PersonProbabilities(("a", "b"), values, np.arange(3, dtype=np.uint64), 5, 0.8)
    assert found.thresholded.tolist() == [0, -1, 1]
