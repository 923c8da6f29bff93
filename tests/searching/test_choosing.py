from __future__ import annotations

import numpy as np
import pytest

from evenhand.searching import parse_constraint
from evenhand.searching.choosing import ChoiceRule, honest_differences, reasons_of
from evenhand.searching.metrics import DIRECTIONS


def figures(**means):
    """Figures of candidates with the given means over three folds; every other figure is 0."""
    n = len(next(iter(means.values())))
    around = np.array([-0.01, 0.0, 0.01])
    return {name: np.asarray(means.get(name, np.zeros(n)))[:, None] + around for name in DIRECTIONS}


def rule(*keep, minimize="reasoning_gap", unconstrained=(True, False, False)):
    return ChoiceRule(tuple(parse_constraint(text) for text in keep), minimize, np.array(unconstrained))


def test_the_least_of_the_figure_among_those_that_meet_the_constraints_is_chosen():
    found = figures(auc=[0.80, 0.795, 0.70], reasoning_gap=[0.2, 0.1, 0.05])
    choice = rule("auc >= best - 0.01").choose(found)
    assert (choice.chosen, choice.unconstrained) == (1, 0)
    assert choice.complaints[2] == ("auc is 0.7000, below the limit of 0.7900 (`auc >= best - 0.01`)",)
    assert rule().choose(found).chosen == 2


def test_an_excess_below_zero_counts_as_zero_and_accuracy_decides_among_equals():
    found = figures(auc=[0.80, 0.79, 0.81], excess=[0.1, -0.3, -0.1])
    assert rule(minimize="excess").choose(found).chosen == 2


def test_the_unconstrained_candidate_is_the_most_accurate_of_its_kind():
    found = figures(auc=[0.78, 0.80, 0.82], reasoning_gap=[0.2, 0.2, 0.1])
    assert rule(unconstrained=(True, True, False)).choose(found).unconstrained == 1


def test_where_no_one_meets_the_constraints_no_one_is_chosen():
    found = figures(auc=[0.8, 0.7, 0.6], reasoning_gap=[0.2, 0.1, 0.1])
    choice = rule("auc >= 0.9").choose(found)
    assert choice.chosen is None
    told = reasons_of(choice, found, rule("auc >= 0.9"), 0.5)
    assert all("below the limit of 0.9000" in reason for reason in told)


def test_more_is_better_where_the_figure_says_so():
    found = figures(auc=[0.8, 0.8, 0.8], air=[0.7, 0.9, 0.8])
    assert rule(minimize="air").choose(found).chosen == 1


def test_reasons_tell_noise_from_difference():
    found = figures(auc=[0.80, 0.79, 0.79], reasoning_gap=[0.2, 0.1, 0.101])
    found["reasoning_gap"][2] = [0.12, 0.07, 0.113]
    choice = rule().choose(found)
    told = reasons_of(choice, found, rule(), 0.5)
    assert choice.chosen == 1
    assert told[1].startswith("chosen: meets every constraint, with the lowest reasoning_gap, 0.1000")
    assert "differs from the chosen one's by +0.1000" in told[0]
    assert "within noise" not in told[0]
    assert "within noise; it has" in told[2]
    found["auc"][0] = np.nan
    assert reasons_of(choice, found, rule(), 0.5)[0] == "could not be trained or scored"


def test_an_honest_difference_is_free_of_the_winners_curse():
    """Candidates that are all the same but for noise: the best looks better in the search, and not honestly."""
    rng = np.random.default_rng(0)
    flattered, honest = [], []
    for _ in range(60):
        found = {name: np.zeros((41, 5)) for name in DIRECTIONS}
        found["auc"] += 0.8
        found["reasoning_gap"] += 0.5 + 0.1 * rng.normal(size=(41, 5))
        judge = ChoiceRule((), "reasoning_gap", np.arange(41) == 0)
        chosen = judge.choose(found).chosen
        flattered.append((found["reasoning_gap"][chosen] - found["reasoning_gap"][0]).mean())
        honest.append(honest_differences(found, judge, 0.25)["reasoning_gap"].value)
    assert np.mean(flattered) < -0.08
    assert abs(np.mean(honest)) < 3 * np.std(honest) / np.sqrt(60)


def test_two_folds_are_too_few_for_an_honest_estimate():
    found = {name: values[:, :2] for name, values in figures(auc=[0.8, 0.8, 0.8]).items()}
    assert np.isnan(honest_differences(found, rule(), 1.0)["auc"].value)


def test_the_unconstrained_candidate_stands_in_where_no_one_meets_the_constraints():
    found = figures(auc=[0.8, 0.7, 0.6], reasoning_gap=[0.2, 0.1, 0.1])
    assert honest_differences(found, rule("auc >= 0.9"), 0.5)["auc"].value == pytest.approx(0)
