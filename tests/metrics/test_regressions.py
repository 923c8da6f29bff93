"""Differences between groups at equal controls are those of statsmodels, and where there are none, they say why."""

import math

import numpy as np
import pytest
import statsmodels.api as sm

from evenhand.metrics.regressions import FEWEST_PEOPLE, Controls, group_effect, is_binary


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(3)
    n = 600
    is_group = rng.random(n) < 0.35
    X = np.column_stack([rng.normal(50_000, 9_000, n), rng.normal(size=n) - 0.5 * is_group, rng.random(n) < 0.3])
    eta = (X[:, 0] - 50_000) / 9_000 + 0.6 * X[:, 1] - 0.7 * is_group + 0.4 * X[:, 2]
    decision = (rng.random(n) < 1 / (1 + np.exp(-eta))).astype(float)
    price = 3 + 0.2 * eta + 0.3 * is_group + rng.normal(size=n) * (1 + X[:, 2])
    controls = Controls(("income", "debt", "owner"), X.astype(float))
    return is_group, controls, decision, price, rng.integers(0, 150, n)


def design(is_group, controls):
    values = controls.values
    standard = (values - values.mean(axis=0)) / np.where(values.std(axis=0) > 0, values.std(axis=0), 1)
    return sm.add_constant(np.column_stack([is_group.astype(float), standard]))


def errors(clusters):
    return {"cov_type": "HC1"} if clusters is None else {"cov_type": "cluster", "cov_kwds": {"groups": clusters}}


@pytest.mark.parametrize("is_clustered", [False, True])
def test_a_logit_is_that_of_statsmodels_with_its_marginal_effects(people, is_clustered):
    is_group, controls, decision, _, clusters = people
    clusters = clusters if is_clustered else None
    found = group_effect(decision, is_group, controls, method="logit", clusters=clusters)
    fitted = sm.Logit(decision, design(is_group, controls)).fit(disp=0, **errors(clusters))
    theirs = fitted.get_margeff(at="overall", dummy=True)
    assert found.value == pytest.approx(theirs.margeff[0], abs=1e-10)
    assert found.standard_error == pytest.approx(theirs.margeff_se[0], rel=1e-6)
    assert found.p_value == pytest.approx(theirs.pvalues[0], rel=1e-5)
    assert (found.low, found.high) == pytest.approx(tuple(theirs.conf_int()[0]), rel=1e-6)
    assert (found.n, found.n_group, found.n_controls) == (600, is_group.sum(), 3)
    odds = found.odds_ratio
    theirs = np.exp([fitted.params[1], *fitted.conf_int()[1]])
    assert (odds.value, odds.low, odds.high) == pytest.approx(tuple(theirs), rel=1e-6)


@pytest.mark.parametrize("is_clustered", [False, True])
def test_least_squares_are_those_of_statsmodels_on_controls_as_they_are(people, is_clustered):
    is_group, controls, _, price, clusters = people
    clusters = clusters if is_clustered else None
    found = group_effect(price, is_group, controls, method="ols", clusters=clusters)
    raw = sm.add_constant(np.column_stack([is_group.astype(float), controls.values]))
    theirs = sm.OLS(price, raw).fit(use_t=True, **errors(clusters))
    assert found.value == pytest.approx(theirs.params[1], rel=1e-8)
    assert found.standard_error == pytest.approx(theirs.bse[1], rel=1e-7)
    assert found.p_value == pytest.approx(theirs.pvalues[1], rel=1e-6)
    assert (found.low, found.high) == pytest.approx(tuple(theirs.conf_int()[1]), rel=1e-7)


def test_without_controls_they_are_differences_of_rates_and_means(people):
    is_group, _, decision, price, _ = people
    nothing = Controls.none(len(decision))
    rates = [decision[is_group].mean(), decision[~is_group].mean()]
    sizes = [is_group.sum(), (~is_group).sum()]
    found = group_effect(decision, is_group, nothing, method="logit")
    assert found.value == pytest.approx(rates[0] - rates[1])
    by_hand = math.sqrt(sum(p * (1 - p) / n for p, n in zip(rates, sizes, strict=True)))
    assert found.standard_error == pytest.approx(by_hand)
    found = group_effect(price, is_group, nothing, method="ols")
    assert found.value == pytest.approx(price[is_group].mean() - price[~is_group].mean())
    n = len(price)
    variances = [price[side].var() / side.sum() for side in (is_group, ~is_group)]
    assert found.standard_error == pytest.approx(math.sqrt(sum(variances) * n / (n - 2)))


def test_people_without_an_outcome_are_left_out(people):
    is_group, controls, _, price, _ = people
    known = np.arange(len(price)) % 3 > 0
    found = group_effect(np.where(known, price, np.nan), is_group, controls, method="ols")
    there = group_effect(price[known], is_group[known], controls.rows(known), method="ols")
    assert found == there
    assert found.n == known.sum()


def test_controls_that_repeat_others_are_left_out_and_named(people):
    is_group, controls, _, price, _ = people
    total = controls.values[:, 0] * 2 - 300 * controls.values[:, 1]
    constant = np.full(len(price), 7.3)
    more = Controls((*controls.names, "total", "constant"), np.column_stack([controls.values, total, constant]))
    found = group_effect(price, is_group, more, method="ols")
    plain = group_effect(price, is_group, controls, method="ols")
    assert found.value == pytest.approx(plain.value)
    assert found.standard_error == pytest.approx(plain.standard_error)
    assert found.note == "left out, because other controls determine them: total"
    assert found.n_controls == 3


def test_a_nearly_redundant_control_does_not_take_the_place_of_another(people):
    is_group, controls, _, price, _ = people
    first, second = controls.values[:, 0] / 1e4, controls.values[:, 1]
    nearly = first + 1e-8 * second
    found = group_effect(
        price, is_group, Controls(("a", "nearly", "b"), np.column_stack([first, nearly, second])), method="ols"
    )
    plain = group_effect(price, is_group, Controls(("a", "b"), np.column_stack([first, second])), method="ols")
    assert found.value == pytest.approx(plain.value)
    assert found.note.endswith("nearly")


def test_controls_that_determine_the_group_give_a_sentence(people):
    is_group, _, decision, price, _ = people
    x = np.random.default_rng(0).normal(size=len(price))
    telling = Controls(("x", "y"), np.column_stack([x, x + is_group]))
    for outcome, method in ((price, "ols"), (decision, "logit")):
        found = group_effect(outcome, is_group, telling, method=method, group="b")
        assert math.isnan(found.value)
        assert "the controls determine who is in 'b'" in found.note


def test_people_whose_decision_follows_from_a_category_are_left_out_and_counted(people):
    is_group, controls, decision, _, _ = people
    rare = np.zeros(len(decision))
    rare[np.flatnonzero(decision == 1)[:9]] = 1
    more = Controls((*controls.names, "job=cook"), np.column_stack([controls.values, rare]))
    found = group_effect(decision, is_group, more, method="logit")
    rest = rare == 0
    assert found.note == "9 people left out, whose decision follows from job=cook"
    plain = group_effect(decision[rest], is_group[rest], controls.rows(rest), method="logit")
    assert (found.value, found.standard_error) == pytest.approx((plain.value, plain.standard_error))


def test_perfect_separation_gives_a_sentence(people):
    is_group, controls, _, _, _ = people
    score = controls.values[:, 1] + controls.values[:, 0] / 1e4
    found = group_effect((score > np.median(score)).astype(float), is_group, controls, method="logit")
    assert math.isnan(found.value)
    assert found.note.startswith("not estimable: group and controls separate the decisions perfectly")


def test_a_group_that_decides_at_equal_controls_gives_a_sentence(people):
    is_group, _, _, _, _ = people
    rng = np.random.default_rng(1)
    n = len(is_group)
    x = rng.integers(0, 3, n)
    # Where x is 1, the group is denied and the reference approved; elsewhere all are approved, or denied.
    decision = np.select([x == 0, x == 2], [0.0, 1.0], (~is_group).astype(float))
    found = group_effect(decision, is_group, Controls(("x",), x[:, None].astype(float)), method="logit")
    assert math.isnan(found.value)
    assert found.note.startswith("not estimable")


@pytest.mark.parametrize("method", ["logit", "ols"])
def test_few_people_or_a_constant_outcome_give_a_sentence(people, method):
    is_group, _, decision, price, clusters = people
    outcome = decision if method == "logit" else price
    nothing = Controls.none(len(outcome))
    few = np.zeros(len(outcome), dtype=bool)
    few[: FEWEST_PEOPLE - 1] = True
    note = group_effect(outcome, few, nothing, method=method, group="b").note
    assert note == f"not estimable: {FEWEST_PEOPLE - 1} people in 'b', but at least {FEWEST_PEOPLE} are needed"
    constant = np.where(is_group, 1.0, outcome)
    note = group_effect(constant, is_group, nothing, method=method, group="b").note
    assert note == "not estimable: the outcome of everyone in 'b' is 1"
    nine = np.where(is_group, clusters % 9, 1000 + clusters)
    note = group_effect(outcome, is_group, nothing, method=method, group="b", clusters=nine).note
    assert note.startswith("not estimable: 9 people in 'b'")


def test_too_many_columns_for_the_people_give_a_sentence(people):
    is_group, _, decision, price, _ = people
    wide = np.random.default_rng(0).normal(size=(len(price), 60))
    controls = Controls(tuple(f"x{j}" for j in range(60)), wide)
    note = group_effect(price, is_group, controls, method="ols").note
    assert note.startswith("not estimable: 600 people for 62 columns")
    rarer = int(min(decision.sum(), (1 - decision).sum()))
    controls = controls.columns(range(35))
    note = group_effect(decision, is_group, controls, method="logit").note
    assert note.startswith(f"not estimable: {rarer} people with the rarer decision for 37 columns")


def test_an_outcome_that_inputs_and_group_determine_is_exact(people):
    is_group, controls, _, _, _ = people
    score = controls.values @ [1e-4, 0.5, 0.2]
    found = group_effect(score, is_group, controls, method="ols")
    assert (found.value, found.low, found.high, found.p_value) == (0.0, 0.0, 0.0, 1.0)
    found = group_effect(score - 0.25 * is_group, is_group, controls, method="ols")
    assert found.value == pytest.approx(-0.25)
    assert (found.standard_error, found.p_value) == (0.0, 0.0)
    assert found.note == "exact: group and controls determine the outcome"


def test_an_outcome_of_zeros_and_ones_is_a_decision():
    assert is_binary(np.array([0.0, 1.0, np.nan]))
    assert not is_binary(np.array([0.0, 0.5]))
