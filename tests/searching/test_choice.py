"""Constraints, the choice among candidates, and the intervals by which they are compared."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

from evenhand.exceptions import InvalidInputError
from evenhand.metrics.names import SEARCHED
from evenhand.searching import parse_constraint
from evenhand.searching.choice import (
    ChoiceRule,
    effects_in,
    front,
    honest_metrics,
    mean_interval,
    reasons_of,
    worse_beyond_noise,
)
from evenhand.searching.people import SearchPeople

MEANS = {
    "best": {"auc": 0.8, "eo_gap": 0.01},
    "unconstrained": {
        "auc": 0.79,
        "eo_gap": 0.1,
        "positive_rate": 0.7,
        "reasoning_gap": 0.2,
        "profit": -0.5,
        "reasoning_excess": 0.03,
        "approval_rate[women, single]": 0.4,
    },
}
REFERENCES = {
    who: {name: np.array([mean - 0.01, mean + 0.01]) for name, mean in metrics.items()}
    for who, metrics in MEANS.items()
}


def judged(text, value, spread=0.0):
    """What a constraint makes of one candidate over two folds, whose distance from the references has this spread."""
    constraint = parse_constraint(text)
    limits = constraint.limits(
        REFERENCES[constraint.reference][constraint.metric] if constraint.reference else np.zeros(2)
    )
    values = value + limits - limits.mean() + np.array([-spread, spread])
    return constraint.judge(values[None, :], REFERENCES, test_share=1.0)


@pytest.mark.parametrize(
    ("text", "value", "holds"),
    [
        ("auc >= best - 0.01", 0.79, True),
        ("auc >= best - 0.01", 0.7899, False),
        ("auc>=best-.01", 0.795, True),
        ("eo_gap <= unconstrained", 0.1, True),
        ("eo_gap < unconstrained", 0.1, False),
        ("eo_gap <= unconstrained + 1e-2", 0.105, True),
        ("reasoning_gap <= unconstrained * 0.5", 0.1, True),
        ("reasoning_gap <= unconstrained * 0.5", 0.11, False),
        ("air >= 0.8", 0.8, True),
        ("excess <= -0.1", -0.2, True),
        ("positive_rate within 0.05 of unconstrained", 0.66, True),
        ("positive_rate within 0.05 of unconstrained", 0.76, False),
        ("positive_rate within 0.1 of 0.5", 0.6, True),
        ("auc >= 0.5", math.nan, False),
        ("auc >= unconstrained - 1%", 0.7822, True),
        ("auc >= unconstrained - 1%", 0.7820, False),
        ("eo_gap <= unconstrained + 10 %", 0.11, True),
        ("eo_gap <= unconstrained + 10 %", 0.1101, False),
        ("profit >= unconstrained - 10%", -0.54, True),
        ("profit >= unconstrained - 10%", -0.56, False),
        ("positive_rate within 10% of unconstrained", 0.77, True),
        ("positive_rate within 10% of unconstrained", 0.78, False),
        ("positive_rate within 10% of 0.5", 0.6, True),
        ("weighing <= unconstrained", 0.03, True),
        ("approval_rate >= 0.5", 0.5, True),
        ("approval_rate[women, single] >= unconstrained", 0.4, True),
        ("score_gap[income] <= 0.1", 0.1, True),
        ("income increasing", 0.0, True),
        ("income increasing", 0.01, False),
        ("net income decreasing within 0.05", 0.05, True),
        ("income positive", -0.1, False),
        ("income negative", -0.1, True),
    ],
)
def test_a_constraint_holds_where_its_words_say(text, value, holds):
    assert judged(text, value).is_met.tolist() == [holds]


@pytest.mark.parametrize(("value", "holds"), [(0.1005, True), (0.1008, True), (0.14, False), (0.05, True)])
def test_a_limit_is_judged_with_the_noise_of_the_distance_from_it(value, holds):
    """Two folds at -0.02 and +0.02 of the mean, test people as many as training people: a standard error of 0.0346."""
    found = judged("eo_gap <= unconstrained", value, spread=0.02)
    error = np.sqrt((1 / 2 + 1) * 2 * 0.02**2)
    assert (f"by more than a standard error of {error:.4f}" in found.complaints[0]) is not holds
    assert found.is_met.tolist() == [holds]
    assert found.is_near.tolist() == [holds and value > 0.1]


def test_what_a_column_does_to_the_score_is_judged_without_noise():
    assert not judged("income increasing", 0.01, spread=0.01).is_met
    assert judged("income increasing within 0.02", 0.01, spread=0.01).is_met


def test_complaints_name_the_figure_the_value_and_the_limit():
    told = judged("auc >= best - 0.01", 0.7).complaints[0]
    assert told == "auc is 0.7000, below the limit of 0.7900 (`auc >= best - 0.01`)"
    near = judged("positive_rate within 0.05 of unconstrained", 0.9).complaints[0]
    assert near == "positive_rate is 0.9000, more than 0.05 from 0.7000 (`positive_rate within 0.05 of unconstrained`)"
    noisy = judged("eo_gap <= unconstrained", 0.2, spread=0.02).complaints[0]
    assert "above the limit of 0.1000, by more than a standard error of 0.0346" in noisy
    assert "could not be estimated" in judged("air >= 0.8", math.nan).complaints[0]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("acu >= 0.7", r"names an unknown metric: 'acu'. Did you mean 'auc'\?"),
        ("auc >= bset - 0.01", r"compares with 'bset', .* Did you mean 'best'\?"),
        ("auc is good", "A constraint reads like 'auc >= best - 0.01'"),
        ("auc >= best - 0.01; drop", "A constraint reads like"),
        ("positive_rate >= best", "asks for the best positive_rate, but neither more nor less of it is better"),
        ("positive_rate within -1 of 0.5", "must allow a distance of 0 or more, got -1"),
        ("eo_gapp within 0.1 of 0.5", "names an unknown metric: 'eo_gapp'"),
        (3, "A constraint must be a text such as"),
        ("profitt >= unconstrained - 1%", r"names an unknown metric: 'profitt'. Did you mean 'profit'\?"),
        ("weighting <= 0.1", r"names an unknown metric: 'weighting'. Did you mean 'weighing'\?"),
        ("aproval_rate[b] >= 0.1", r"names an unknown metric: 'aproval_rate\[b\]'. Did you mean 'approval_rate'\?"),
        ("income increasing within 1.5", "may allow a share of at least 0 and below 1 of the steps"),
        ("income positive within 0.1", "may allow a share of at least 0 and below 1 of the steps"),
        ("approval_rate[b] >= best", "but neither more nor less of it is better"),
    ],
)
def test_a_constraint_that_cannot_be_read_is_refused_with_a_hint(text, message):
    with pytest.raises(InvalidInputError, match=message):
        parse_constraint(text)


@pytest.fixture(scope="module")
def people(planted):
    data, decided = planted
    return SearchPeople.of(data.X, decided, data.group, data.financial_features, 0.0, 0)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("score_gap[incme]", r"'score_gap\[incme\]' names an unknown column: 'incme'. Did you mean 'income'\?"),
        ("approval_rate[group 9]", r"names an unknown group: 'group 9'. Did you mean 'group [01]'\?"),
        ("falls[incme]", r"'falls\[incme\]' names an unknown column: 'incme'. Did you mean 'income'\?"),
        ("profit", "'profit' needs `payoff`"),
    ],
)
def test_metrics_of_what_is_not_there_are_refused(people, name, message):
    effects_in(["auc", "score_gap[income]", "approval_rate[group 1]", "effect[income]"], people, has_payoff=False)
    with pytest.raises(InvalidInputError, match=message):
        effects_in([name], people, has_payoff=False)


def test_the_effect_of_words_is_refused(people):
    words = replace(people, table=people.table.assign(income="high"))
    with pytest.raises(InvalidInputError, match="which way 'income' moves the score, but it does not contain numbers"):
        effects_in(["falls[income]"], words, has_payoff=False)


def figures(**means):
    """Figures of candidates with the given means over three folds; every other figure is 0."""
    n = len(next(iter(means.values())))
    around = np.array([-0.01, 0.0, 0.01])
    return {name: np.asarray(means.get(name, np.zeros(n)))[:, None] + around for name in SEARCHED}


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
        found = {name: np.zeros((41, 5)) for name in SEARCHED}
        found["auc"] += 0.8
        found["reasoning_gap"] += 0.5 + 0.1 * rng.normal(size=(41, 5))
        judge = ChoiceRule((), "reasoning_gap", np.arange(41) == 0, 0.25)
        chosen = judge.choose(found).chosen
        flattered.append((found["reasoning_gap"][chosen] - found["reasoning_gap"][0]).mean())
        honest.append(honest_metrics(found, judge)["reasoning_gap"][2].value)
    assert np.mean(flattered) < -0.08
    assert abs(np.mean(honest)) < 3 * np.std(honest) / np.sqrt(60)


def test_two_folds_are_too_few_for_an_honest_estimate():
    found = {name: values[:, :2] for name, values in figures(auc=[0.8, 0.8, 0.8]).items()}
    assert np.isnan(honest_metrics(found, rule())["auc"][2].value)


def test_the_unconstrained_candidate_stands_in_where_no_one_meets_the_constraints():
    found = figures(auc=[0.8, 0.7, 0.6], reasoning_gap=[0.2, 0.1, 0.1])
    assert honest_metrics(found, rule("auc >= 0.9"))["auc"][2].value == pytest.approx(0)


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


def test_without_overlap_the_interval_is_students():
    values = np.array([0.1, 0.4, 0.2, 0.35, 0.3])
    found = mean_interval(values, test_share=0.0)
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_the_correction_widens_the_interval_by_nadeau_and_bengios_factor():
    values = np.array([0.1, 0.4, 0.2, 0.35, 0.3])
    plain, corrected = (mean_interval(values, share) for share in (0.0, 0.25))
    ratio = (corrected.high - corrected.low) / (plain.high - plain.low)
    assert ratio == pytest.approx(np.sqrt((1 / 5 + 1 / 4) / (1 / 5)))


def test_a_figure_missing_in_a_fold_has_no_mean_and_one_fold_has_no_interval():
    assert np.isnan(mean_interval(np.array([0.1, np.nan]), 0.5).value)
    one = mean_interval(np.array([0.4]), 0.5)
    assert one.value == 0.4
    assert np.isnan(one.low)
    assert not one.excludes_zero


def slow_front(figures, test_share):
    """Pair by pair, from the definition."""
    n = len(next(iter(figures.values()))[0])
    kept = []
    for i in range(n):
        dominated = False
        for j in range(n):
            differences = {k: mean_interval(d * v[j] - d * v[i], test_share) for k, (v, d) in figures.items()}
            no_worse = all(found.value >= 0 for found in differences.values())
            beyond = any(found.low > 1e-12 for found in differences.values())
            dominated |= i != j and no_worse and beyond
        kept.append(not dominated)
    return kept


@pytest.mark.parametrize("seed", range(5))
def test_the_front_equals_the_definition_pair_by_pair(seed):
    rng = np.random.default_rng(seed)
    fold = rng.normal(size=(1, 5))
    figures = {
        "auc": (rng.normal(size=(12, 1)) + fold + 0.3 * rng.normal(size=(12, 5)), 1),
        "gap": (rng.normal(size=(12, 1)) + 0.3 * rng.normal(size=(12, 5)), -1),
    }
    found = front(figures, 0.25)
    assert found.tolist() == slow_front(figures, 0.25)
    assert 0 < found.sum() <= 12


def test_a_difference_within_noise_dominates_no_one():
    rng = np.random.default_rng(0)
    auc = 0.8 + 0.05 * rng.normal(size=(2, 5))
    gap = np.tile([[0.2]], (2, 5))
    assert front({"auc": (auc, 1), "gap": (gap, -1)}, 0.25).all()
    auc[1] = auc[0] - 0.01  # as much worse in every fold
    assert front({"auc": (auc, 1), "gap": (gap, -1)}, 0.25).tolist() == [True, False]


def test_a_candidate_without_figures_is_not_on_the_front_and_dominates_no_one():
    auc = np.array([[0.8, 0.8], [np.nan, np.nan]])
    assert front({"auc": (auc, 1)}, 1.0).tolist() == [True, False]
    assert not worse_beyond_noise(auc, 1, 1.0).any()
