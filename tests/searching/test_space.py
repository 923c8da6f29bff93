from __future__ import annotations

import pytest

from evenhand.exceptions import InvalidInputError
from evenhand.searching.space import candidates_of, default_space

SPACE = {"objective": ["reasoning_gap", "excess"], "cec_weight": [0.0, 1.0, 3.0], "epochs": [5, 10]}


def test_a_grid_has_every_combination_once_and_the_unconstrained_ones_first():
    found = candidates_of("network", SPACE, None, 0)
    # Of weight 0 the objective plays no part: 2 unconstrained, and 2 x 2 x 2 others.
    assert [c.is_unconstrained for c in found] == [True] * 2 + [False] * 8
    assert [c.number for c in found] == list(range(10))
    assert len({c.key for c in found}) == 10
    assert {(c.parameters["cec_weight"], c.parameters["epochs"]) for c in found[:2]} == {(0.0, 5), (0.0, 10)}


def test_a_draw_is_seeded_without_repetition_and_part_of_the_grid():
    grid = {c.key for c in candidates_of("network", None, None, 0)}
    first, again, other = (candidates_of("network", None, 40, seed) for seed in (1, 1, 2))
    assert [c.key for c in first] == [c.key for c in again] != [c.key for c in other]
    assert {c.key for c in first} <= grid
    assert sum(not c.is_unconstrained for c in first) == 40


def test_the_same_parameters_are_the_same_candidate_however_written():
    one = candidates_of("network", {"cec_weight": [1], "hidden": [(4, 2)]}, None, 0)
    other = candidates_of("network", {"cec_weight": [1.0], "hidden": [[4, 2]]}, None, 0)
    assert [c.key for c in one] == [c.key for c in other]


def test_words_tell_what_differs():
    found = candidates_of("network", SPACE, None, 0)
    assert found[0].words(found) == "unconstrained, epochs 5"
    assert found[-1].words(found) == "objective excess, cec_weight 3, epochs 10"
    trees = candidates_of("trees", {"drop": [(), ("age",)], "max_iter": [10]}, None, 0)
    assert [c.words(trees) for c in trees] == ["unconstrained, drop none", "drop age"]


@pytest.mark.parametrize(
    ("family", "space", "n", "message"),
    [
        ("forest", None, None, r"`family` must be one or more of \['network', .*\], each once, got 'forest'"),
        (("trees", "trees"), None, None, "each once, got"),
        (("trees", "logistic"), {"C": [1.0]}, None, "With several families, `space` must map each of them to a space"),
        (
            "trees",
            {"logistic": {"C": [1.0]}},
            None,
            r"`space` names the families \['logistic'\], but the search is over",
        ),
        ("xgboost", {"random_state": [1]}, None, "'random_state', which is not a parameter of a search over xgboost"),
        ("network", {"cec_wight": [1]}, None, r"not a parameter of a search over network. Did you mean 'cec_weight'\?"),
        ("network", {"cec_weight": 1.0}, None, r"`space\['cec_weight'\]` must be a list of values to try, got 1.0"),
        ("network", {"objective": "excess"}, None, "must be a list of values"),
        ("network", {}, None, "`space` must map parameters to the values to try"),
        ("network", None, 0, "`n_candidates` must be None or at least 1, got 0"),
        ("network", {"cec_weight": list(range(6000))}, None, "6,000 combinations, more than 5,000; set `n_candidates`"),
    ],
)
def test_a_space_that_cannot_be_searched_is_refused(family, space, n, message):
    with pytest.raises(InvalidInputError, match=message):
        candidates_of(family, space, n, 0)


def test_several_families_share_the_draws_and_keep_their_spaces():
    found = candidates_of(("trees", "logistic"), {"trees": {"max_iter": [5, 10], "drop": [(), ("a",), ("b",)]}}, 5, 0)
    assert [c.family for c in found if not c.is_unconstrained].count("logistic") <= 2
    assert all(c.parameters["max_iter"] in (5, 10) for c in found if c.family == "trees")
    assert [c.is_unconstrained for c in found] == sorted([c.is_unconstrained for c in found], reverse=True)
    assert {c.words(found).split(", ")[1] for c in found if c.is_unconstrained} == {"trees", "logistic"}


def test_any_parameter_of_the_class_may_be_searched():
    found = candidates_of("logistic", {"class_weight": [None, "balanced"]}, None, 0)
    assert {c.parameters["class_weight"] for c in found} == {None, "balanced"}


def test_both_families_have_a_space_of_their_own():
    assert "objective" in default_space("network")
    assert "max_leaf_nodes" in default_space("trees")
