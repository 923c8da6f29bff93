"""Metrics of candidates are those of the audit with the training fold as reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import evenhand as eh
from evenhand.metrics.excess import excess
from evenhand.models.dispatch import as_audited_model
from evenhand.models.gradient import DifferentiableModel
from evenhand.searching.options import SearchSettings
from evenhand.searching.people import SearchPeople
from evenhand.searching.scoring import (
    adjusted_mean,
    column_effects,
    fold_outcome,
    gap_name,
    is_signed_gap,
    oriented_gaps,
    score_model,
    score_stack,
    score_weighted,
)
from evenhand.training import StackedNetwork


@pytest.fixture(scope="module")
def judged(planted):
    people, decided = planted
    settings = SearchSettings(folds=2, n_steps=8)
    searched = SearchPeople.of(people.X, decided, people.group, people.financial_features, 0.0, 0)
    return searched, searched.compared_folds(settings, has_training_triples=False)


def audited(model, searched, fold):
    names = np.asarray(searched.groups.names)[searched.groups.codes]
    parts = [(searched.table.iloc[rows].reset_index(drop=True), searched.labels[rows], names[rows]) for rows in fold]
    (X, y, group), reference = parts[1], parts[0]
    return eh.audit(
        model,
        X,
        y,
        sensitive_features=group,
        financial_features=list(searched.financial_features),
        reference=reference,
    )


def compare_with_audit(metrics, result, tolerance):
    found = result.to_dict()
    evidence = result.evidence
    for name in ("auc", "f1", "eo_gap", "sp_gap", "positive_rate"):
        assert metrics[name] == pytest.approx(found["outcome"][name], abs=1e-12)
    assert metrics["cec"] == pytest.approx(found["cec"]["mean"], abs=tolerance)
    assert metrics["reasoning_gap"] == pytest.approx(found["cec"]["reasoning_gap"], abs=tolerance)
    assert metrics["excess"] == pytest.approx(evidence.cec.value, abs=tolerance)
    assert metrics["reasoning_excess"] == pytest.approx(evidence.reasoning_gap.value, abs=tolerance)
    assert metrics["excess_regime_b"] == pytest.approx(evidence.regime_b.value, abs=tolerance)
    assert metrics["excess_balanced"] == pytest.approx(evidence.balanced.value, abs=tolerance)
    (gap,) = evidence.score_gaps
    code = sorted({gap.group, gap.reference}).index(gap.group)
    rounding = max(tolerance, 1e-6)  # the audit keeps what is compared in single precision
    for kind, of_audit in (
        ("score_gap", gap.total),
        ("probability_gap", gap.probability),
        ("decision_gap", gap.decision),
    ):
        assert metrics[gap_name(kind, code)] == pytest.approx(of_audit.value, abs=rounding)
    for part in gap.features:
        assert metrics[gap_name("score_gap", code, part.feature)] == pytest.approx(part.estimate.value, abs=rounding)


@pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")
@pytest.mark.usefixtures("near_triples_only")
def test_a_stack_of_networks_has_the_metrics_of_their_audits(judged):
    searched, compared = judged
    encoder = compared[1].encoder
    stack = StackedNetwork(6, hidden=(12, 8), seeds=(0, 1, 2))
    with torch.no_grad():
        stack.flat.mul_(1.5)
    fold = compared[1]
    metrics = score_stack(stack.flat.detach(), stack.layout, fold)
    for k in range(3):
        model = DifferentiableModel(stack.member(k), "network", encoder)
        compare_with_audit(metrics[k], audited(model, searched, (fold.train, fold.test)), tolerance=1e-6)
        alone = score_model(model, fold)
        assert alone == pytest.approx(metrics[k], abs=1e-6)


@pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")
@pytest.mark.usefixtures("near_triples_only")
def test_trees_have_the_metrics_of_their_audit(judged):
    from sklearn.ensemble import HistGradientBoostingClassifier

    searched, compared = judged
    fold = compared[0]
    train = searched.table.iloc[fold.train]
    model = HistGradientBoostingClassifier(max_iter=10, max_leaf_nodes=6).fit(train, fold.y_train)
    metrics = score_model(model, fold)
    compare_with_audit(metrics, audited(model, searched, (fold.train, fold.test)), tolerance=1e-12)


@pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")
@pytest.mark.usefixtures("near_triples_only")
def test_trees_that_split_on_categories_have_the_metrics_of_their_audit(planted):
    from sklearn.ensemble import HistGradientBoostingClassifier

    people, decided = planted
    financial = list(people.financial_features)
    # Categories that are nearly equally common, so that leaving a placebo out changes some baselines.
    halves = {c: (people.X[c] > people.X[c].median()).map({True: "high", False: "low"}) for c in people.X.columns}
    X = people.X.assign(**{c: v.astype("category") for c, v in halves.items() if c not in financial})
    settings = SearchSettings(folds=2, n_steps=8)
    searched = SearchPeople.of(X, decided, people.group, people.financial_features, 0.0, 0)
    compared = searched.compared_folds(settings, has_training_triples=False)
    fold = compared[0]
    model = HistGradientBoostingClassifier(max_iter=10, max_leaf_nodes=6).fit(X.iloc[fold.train], fold.y_train)
    metrics = score_model(model, fold)
    compare_with_audit(metrics, audited(model, searched, (fold.train, fold.test)), tolerance=1e-12)


def test_the_adjusted_mean_is_the_audits_estimate():
    rng = np.random.default_rng(0)
    person = np.sort(rng.integers(0, 60, 200))
    values, control = rng.normal(size=200), rng.normal(size=200) + 0.3
    values += 0.8 * control
    _, code, count = np.unique(person, return_inverse=True, return_counts=True)
    weight = 1 / (count[code] * len(count))
    nodes = np.column_stack([person, 100 + np.arange(200), 400 + np.arange(200)])
    expected = excess(values, np.zeros(200), nodes, control=control).value
    weights = torch.from_numpy(weight)[None]
    found = adjusted_mean(torch.from_numpy(values), weights, torch.from_numpy(control))
    assert found.tolist() == pytest.approx([expected], abs=1e-12)
    nothing = torch.zeros(200, dtype=torch.float64)
    plain = adjusted_mean(torch.from_numpy(values), weights, nothing)
    assert plain.tolist() == pytest.approx([float(weight @ values)])
    assert torch.isnan(adjusted_mean(torch.zeros(2, 0), torch.zeros(3, 0), torch.zeros(2, 0))).all()


def test_a_weight_of_two_is_a_person_who_is_there_twice(judged):
    """Weighted metrics against those of a fold in which people are repeated."""
    from sklearn.ensemble import HistGradientBoostingClassifier

    searched, compared = judged
    fold = compared[0]
    model = HistGradientBoostingClassifier(max_iter=10, max_leaf_nodes=6).fit(
        searched.table.iloc[fold.train], fold.y_train
    )
    times = np.random.default_rng(0).integers(1, 3, len(fold.test))
    weights = np.vstack([np.ones(len(times)), times])
    found = score_weighted(model, fold, weights)
    rows = np.repeat(np.arange(len(times)), times)
    pairs = compared[0].test_pairs
    again = np.concatenate([np.flatnonzero(pairs.person == row) for row in rows])
    place = np.repeat(np.arange(len(rows)), np.bincount(pairs.person, minlength=len(times))[rows])
    taken = ("other", "own", "other_distance", "own_distance", "other_group", "rank")
    repeated = replace(
        compared[0],
        **{name: getattr(fold, name)[rows] for name in ("test", "x_test", "y_test", "group_test", "match_test")},
        test_pairs=replace(
            pairs,
            person=place,
            **{name: getattr(pairs, name)[again] for name in taken},
            reason=pairs.reason[rows],
            person_unit=pairs.person_unit[rows],
        ),
        points_test=compared[0].points_test[rows],
    )
    expected = score_model(model, repeated)
    # More people have smaller leaves, whose gaps differ.
    alone = score_model(model, fold)
    for name, value in expected.items():
        assert "_gap|" in name or found[name][1] == pytest.approx(value, abs=1e-9), name
    assert {name: values[0] for name, values in found.items()} == pytest.approx(alone, abs=1e-12)
    assert expected["excess"] != pytest.approx(alone["excess"], abs=1e-4)


def test_the_adverse_impact_ratio_is_the_lowest_approval_rate_over_the_highest(judged):
    fold = judged[1][0]
    decision = (np.arange(len(fold.y_test)) % 3 == 0).astype(np.int64)
    rates = [decision[fold.group_test == g].mean() for g in range(2)]
    metrics = fold_outcome(fold, decision.astype(float), decision, np.ones(len(decision)))
    assert metrics["air"] == pytest.approx(min(rates) / max(rates))
    nobody = np.zeros_like(decision)
    assert np.isnan(fold_outcome(fold, nobody.astype(float), nobody, np.ones(len(nobody)))["air"])


FEATURES = ["age", "a|b [c]"]


def signed(rng, n_models=5, groups=(1, 2), n=4):
    names = [gap_name(kind, g) for kind in ("score_gap", "probability_gap", "decision_gap") for g in groups]
    names += [gap_name("score_gap", g, feature) for g in groups for feature in FEATURES]
    return {name: rng.normal(size=(n_models, n)) for name in names}


def test_sizes_of_gaps_are_the_largest_size_of_a_mean_over_groups():
    found = signed(np.random.default_rng(0))
    assert all(is_signed_gap(name) for name in found)
    means = {name: values.mean(1) for name, values in found.items()}
    sizes = oriented_gaps(found, means, FEATURES)
    for kind in ("score_gap", "probability_gap", "decision_gap"):
        expected = np.maximum(*(np.abs(means[gap_name(kind, g)]) for g in (1, 2)))
        assert sizes[kind].mean(1) == pytest.approx(expected)
    for feature in FEATURES:
        expected = np.maximum(*(np.abs(means[gap_name("score_gap", g, feature)]) for g in (1, 2)))
        assert sizes[f"score_gap[{feature}]"].mean(1) == pytest.approx(expected)
    parts = [sum(np.abs(means[gap_name("score_gap", g, feature)]) for feature in FEATURES) for g in (1, 2)]
    assert sizes["score_gap_parts"].mean(1) == pytest.approx(np.maximum(*parts))


def test_parts_that_cancel_both_count():
    found = {
        gap_name("score_gap", 1): np.zeros((1, 2)),
        gap_name("score_gap", 1, "age"): np.full((1, 2), 0.3),
        gap_name("score_gap", 1, "income"): np.full((1, 2), -0.3),
    }
    sizes = oriented_gaps(found, {name: values.mean(1) for name, values in found.items()}, ["age", "income"])
    assert sizes["score_gap"].tolist() == [[0, 0]]
    assert sizes["score_gap_parts"].tolist() == [[0.6, 0.6]]


def test_a_candidate_without_gaps_has_none():
    found = {gap_name("score_gap", g): np.full((2, 2), np.nan) for g in (1, 2)}
    found[gap_name("score_gap", 1)][0] = 0.1
    sizes = oriented_gaps(found, {name: values.mean(1) for name, values in found.items()}, [])
    assert sizes["score_gap"][0].tolist() == [0.1, 0.1]
    assert np.isnan(sizes["score_gap"][1]).all()


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"income": rng.normal(size=300), "debt": rng.integers(0, 5, 300), "up down": rng.random(300)})
    y = (table["income"] - table["debt"] + 4 * np.sin(6 * table["up down"]) + rng.normal(size=300) > -1).astype(int)
    return table, y


def test_a_linear_model_moves_by_its_coefficient_all_the_way(people):
    table, y = people
    model = LogisticRegression().fit(table, y)
    found = column_effects(as_audited_model(model, table=table), table, table[:50], "income", np.ones((1, 50)))
    low, high = np.quantile(table["income"], [0.02, 0.98], method="nearest")
    assert found["effect[income]"].tolist() == pytest.approx([model.coef_[0, 0] * (high - low)], rel=1e-5)
    assert found["falls[income]"].tolist() == [0.0]
    assert found["rises[income]"].tolist() == pytest.approx([1.0])
    falling = column_effects(as_audited_model(model, table=table), table, table[:50], "debt", np.ones((1, 50)))
    assert falling["falls[debt]"].tolist() == pytest.approx([1.0])
    assert falling["rises[debt]"].tolist() == [0.0]


def test_steps_against_a_sign_are_those_of_brute_force(people):
    table, y = people
    model = DecisionTreeClassifier(max_depth=6, random_state=0).fit(table, y)
    weights = np.random.default_rng(1).random((2, 60))
    test = table[:60]
    found = column_effects(as_audited_model(model, table=table), table, test, "up down", weights)
    values = np.unique(np.quantile(table["up down"], np.linspace(0.02, 0.98, 9), method="nearest"))
    scores = np.array([model.predict_proba(test.assign(**{"up down": value}))[:, 1] for value in values])
    falls = (np.diff(scores, axis=0) < -1e-5).mean(0)
    assert 0 < falls.mean() < 1
    expected = [np.average(falls, weights=weight) for weight in weights]
    assert found["falls[up down]"].tolist() == pytest.approx(expected)


def test_a_stack_has_the_effects_of_its_networks(people):
    table, _ = people
    columns = table.astype(np.float32)
    stack = StackedNetwork(3, hidden=(8,), seeds=(0, 1))
    whole = DifferentiableModel(stack.layout.networks(stack.flat.detach()), "networks")
    found = column_effects(whole, columns, columns[:40], "income", np.ones((1, 40)))
    for k in range(2):
        alone = DifferentiableModel(stack.member(k), "network")
        expected = column_effects(alone, columns, columns[:40], "income", np.ones((1, 40)))
        for name, values in expected.items():
            assert found[name][k].tolist() == pytest.approx(values.tolist(), abs=1e-6)


def test_a_column_of_one_value_does_nothing(people):
    table, y = people
    table = table.assign(debt=1.0)
    model = LogisticRegression().fit(table, y)
    found = column_effects(as_audited_model(model, table=table), table, table[:5], "debt", np.ones((1, 5)))
    assert [values.tolist() for values in found.values()] == [[0.0]] * 3
