from __future__ import annotations

import numpy as np
import pytest

from evenhand.searching import parse_constraint
from evenhand.searching.choice import ChoiceRule, honest_differences, reasons_of
from evenhand.searching.metrics import DIRECTIONS


def figures(**means):
    """Figures of candidates with the given means over three folds; every other figure is 0."""
    n = len(next(iter(means.values())))
    around = np.array([-0.01, 0.0, 0.01])
    return {name: np.asarray(means.get(name, np.zeros(n)))[:, None] + around for name in DIRECTIONS}


def rule(*keep, minimize="reasoning_gap", unconstrained=(True, False, False)):
    return ChoiceRule(tuple(parse_constraint(text) for text in keep), minimize, np.array(unconstrained), 0.5)


def test_the_least_of_the_figure_among_those_that_meet_the_constraints_is_chosen():
    found = figures(auc=[0.80, 0.795, 0.70], reasoning_gap=[0.2, 0.1, 0.05])
    choice = rule("auc >= best - 0.01").choose(found)
    assert (choice.chosen, choice.unconstrained) == (1, 0)
    assert choice.complaints[2] == ("auc is 0.7000, below the limit of 0.7900 (`auc >= best - 0.01`)",)
    assert choice.near == ((), (), ())
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
    told = reasons_of(choice, found, rule("auc >= 0.9"))
    assert all("below the limit of 0.9000" in reason for reason in told)


def test_more_is_better_where_the_figure_says_so():
    found = figures(auc=[0.8, 0.8, 0.8], air=[0.7, 0.9, 0.8])
    assert rule(minimize="air").choose(found).chosen == 1


def test_reasons_tell_noise_from_difference():
    found = figures(auc=[0.80, 0.79, 0.79], reasoning_gap=[0.2, 0.1, 0.101])
    found["reasoning_gap"][2] = [0.12, 0.07, 0.113]
    choice = rule().choose(found)
    told = reasons_of(choice, found, rule())
    assert choice.chosen == 1
    assert told[1].startswith("chosen: meets every constraint, with the lowest reasoning_gap, 0.1000")
    assert "differs from the chosen one's by +0.1000" in told[0]
    assert "within noise" not in told[0]
    assert "within noise; it has" in told[2]
    found["auc"][0] = np.nan
    assert reasons_of(choice, found, rule())[0] == "could not be trained or scored"


def test_an_honest_difference_is_free_of_the_winners_curse():
    """Candidates that are all the same but for noise: the best looks better in the search, and not honestly."""
    rng = np.random.default_rng(0)
    flattered, honest = [], []
    for _ in range(60):
        found = {name: np.zeros((41, 5)) for name in DIRECTIONS}
        found["auc"] += 0.8
        found["reasoning_gap"] += 0.5 + 0.1 * rng.normal(size=(41, 5))
        judge = ChoiceRule((), "reasoning_gap", np.arange(41) == 0, 0.25)
        chosen = judge.choose(found).chosen
        flattered.append((found["reasoning_gap"][chosen] - found["reasoning_gap"][0]).mean())
        honest.append(honest_differences(found, judge)["reasoning_gap"].value)
    assert np.mean(flattered) < -0.08
    assert abs(np.mean(honest)) < 3 * np.std(honest) / np.sqrt(60)


def test_two_folds_are_too_few_for_an_honest_estimate():
    found = {name: values[:, :2] for name, values in figures(auc=[0.8, 0.8, 0.8]).items()}
    assert np.isnan(honest_differences(found, rule())["auc"].value)


def test_the_unconstrained_candidate_stands_in_where_no_one_meets_the_constraints():
    found = figures(auc=[0.8, 0.7, 0.6], reasoning_gap=[0.2, 0.1, 0.1])
    assert honest_differences(found, rule("auc >= 0.9"))["auc"].value == pytest.approx(0)


def test_a_limit_that_is_missed_by_less_than_its_noise_passes_no_one_over():
    found = figures(auc=[0.80, 0.80, 0.80], reasoning_gap=[0.2, 0.1, 0.05], eo_gap=[0.1002, 0.1008, 0.3])
    found["eo_gap"][1] += [-0.02, 0.02, 0.0]
    choice = rule("eo_gap <= unconstrained").choose(found)
    assert choice.chosen == 1
    assert choice.near[1] == ("eo_gap",)
    assert (
        "chosen: meets every constraint, eo_gap within noise of the limit"
        in reasons_of(choice, found, rule("eo_gap <= unconstrained"))[1]
    )
    assert choice.complaints[2]


def test_draws_are_judged_without_looking_at_each_other():
    found = figures(auc=[0.80, 0.90, 0.80], reasoning_gap=[0.2, 0.1, 0.05])
    judge = rule("auc >= best - 0.01")
    assert np.isfinite(judge.draws(found)).all()  # `best` is the unconstrained candidate's
    assert judge.choose(found).chosen == 1
    found["auc"][1] = np.nan
    assert np.isinf(judge.draws(found)[1])
