"""The options of a search: what decisions are worth, and keywords that moved into them."""

from __future__ import annotations

import numpy as np
import pytest

import evenhand as eh
from evenhand.exceptions import InvalidInputError
from evenhand.searching.options import Payoff

from .conftest import QUICK


def test_profit_is_the_confusion_matrix_times_the_payoffs():
    from sklearn.metrics import confusion_matrix

    rng = np.random.default_rng(0)
    y, decision = rng.integers(0, 2, (2, 200))
    weight = rng.random(200)
    payoff = Payoff(approve_good=1.0, approve_bad=-5.0, decline_good=-0.2, decline_bad=0.1)
    cells = confusion_matrix(y, decision, sample_weight=weight, normalize="all")
    expected = (cells * [[0.1, -5.0], [-0.2, 1.0]]).sum()
    assert payoff.profit(y, decision, weight) == pytest.approx(expected)


@pytest.mark.parametrize(
    "given",
    ["approve_good=1,approve_bad=-5", {"approve_good": 1, "approve_bad": -5.0}, " approve_bad = -5 ,approve_good=1,"],
)
def test_payoffs_are_read_from_words_and_mappings(given):
    assert Payoff.of(given) == Payoff(approve_good=1.0, approve_bad=-5.0)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"aprove_good": 1}, r"`payoff` names an unknown decision: 'aprove_good'. Did you mean 'approve_good'\?"),
        ("approve_good", "`payoff` reads like 'approve_good=1,approve_bad=-5', got 'approve_good'"),
        ("approve_good=much", "`payoff` must have a number for approve_good, got 'much'"),
        ({"approve_good": float("inf")}, "`payoff` must have a number for approve_good, got inf"),
        ({"approve_good": 0}, "`payoff` must have a value other than 0"),
        ([[1, 0], [0, 1]], "`payoff` must map"),
    ],
)
def test_payoffs_that_cannot_be_read_are_refused(given, message):
    with pytest.raises(InvalidInputError, match=message):
        Payoff.of(given)


def test_old_keywords_give_the_same_search_and_say_where_they_moved(given, quick):
    with pytest.warns(FutureWarning, match=r"`eh.search\(.*folds=.*\)` is now `options=SearchOptions\(") as warned:
        result = eh.search(**given, space=QUICK, keep=[])
    assert len(warned) == 1
    np.testing.assert_array_equal(result.metrics["auc"], quick.metrics["auc"])
    assert result.settings == quick.settings
    with pytest.raises(TypeError, match=r"eh\.search has no parameter 'minimise'. Did you mean 'minimize'"):
        eh.search(**given, minimise="auc")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"n_jobs": 0}, "`n_jobs` must be a whole number of at least 1, got 0"),
        ({"folds": 2.5}, "`folds` must be a whole number of at least 2, got 2.5"),
        ({"payoff": "approve_good"}, "`payoff` reads like"),
        ({"stop_gain": 0.0}, "`stop_gain` must be above 0"),
        ({"stop_delta": 1.5}, "`stop_delta` must be between 0 and 1"),
    ],
)
def test_options_that_make_no_sense_are_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        eh.SearchOptions(**options)
