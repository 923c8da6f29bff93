"""Metrics of candidates are those of the audit with the training fold as reference."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

import evenhand as eh
from evenhand.metrics.excess import excess
from evenhand.models.gradient import DifferentiableModel
from evenhand.searching.metrics import fold_outcome
from evenhand.searching.people import EvaluationSettings, SearchPeople
from evenhand.searching.scoring import adjusted_mean, gap_name, score_model, score_stack, score_weighted
from evenhand.training import StackedNetwork


@pytest.fixture(scope="module")
def judged(planted):
    people, decided = planted
    settings = EvaluationSettings(folds=2, n_steps=8)
    searched = SearchPeople.of(people.X, decided, people.group, people.financial_features, 0.0, 0)
    return searched, settings, searched.compared_folds(settings, has_training_triples=False)


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
    searched, settings, compared = judged
    encoder = searched.encoder("onehot")
    stack = StackedNetwork(6, hidden=(12, 8), seeds=(0, 1, 2))
    with torch.no_grad():
        stack.flat.mul_(1.5)
    fold = compared[1].fold
    metrics = score_stack(stack.flat.detach(), stack.layout, encoder, searched, compared[1], settings)
    for k in range(3):
        model = DifferentiableModel(stack.member(k), "network", encoder)
        compare_with_audit(metrics[k], audited(model, searched, (fold.train, fold.test)), tolerance=1e-6)
        alone = score_model(model, searched, compared[1], settings)
        assert alone == pytest.approx(metrics[k], abs=1e-6)


@pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")
@pytest.mark.usefixtures("near_triples_only")
def test_trees_have_the_metrics_of_their_audit(judged):
    from sklearn.ensemble import HistGradientBoostingClassifier

    searched, settings, compared = judged
    fold = compared[0].fold
    train = searched.table.iloc[fold.train]
    model = HistGradientBoostingClassifier(max_iter=10, max_leaf_nodes=6).fit(train, fold.y_train)
    metrics = score_model(model, searched, compared[0], settings)
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
    settings = EvaluationSettings(folds=2, n_steps=8)
    searched = SearchPeople.of(X, decided, people.group, people.financial_features, 0.0, 0)
    compared = searched.compared_folds(settings, has_training_triples=False)
    fold = compared[0].fold
    model = HistGradientBoostingClassifier(max_iter=10, max_leaf_nodes=6).fit(X.iloc[fold.train], fold.y_train)
    metrics = score_model(model, searched, compared[0], settings)
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

    searched, settings, compared = judged
    fold = compared[0].fold
    model = HistGradientBoostingClassifier(max_iter=10, max_leaf_nodes=6).fit(
        searched.table.iloc[fold.train], fold.y_train
    )
    times = np.random.default_rng(0).integers(1, 3, len(fold.test))
    weights = np.vstack([np.ones(len(times)), times])
    found = score_weighted(model, searched, compared[0], settings, weights)
    rows = np.repeat(np.arange(len(times)), times)
    pairs = compared[0].test_pairs
    again = np.concatenate([np.flatnonzero(pairs.person == row) for row in rows])
    place = np.repeat(np.arange(len(rows)), np.bincount(pairs.person, minlength=len(times))[rows])
    taken = ("other", "own", "other_distance", "own_distance", "other_group", "rank")
    repeated = replace(
        compared[0],
        fold=replace(
            fold,
            **{name: getattr(fold, name)[rows] for name in ("test", "x_test", "y_test", "group_test", "match_test")},
        ),
        test_pairs=replace(
            pairs,
            person=place,
            **{name: getattr(pairs, name)[again] for name in taken},
            reason=pairs.reason[rows],
            person_unit=pairs.person_unit[rows],
        ),
        points_test=compared[0].points_test[rows],
    )
    expected = score_model(model, searched, repeated, settings)
    alone = score_model(model, searched, compared[0], settings)
    assert {name: values[1] for name, values in found.items()} == pytest.approx(expected, abs=1e-9)
    assert {name: values[0] for name, values in found.items()} == pytest.approx(alone, abs=1e-12)
    assert expected["score_gap|1"] != pytest.approx(alone["score_gap|1"], abs=1e-3)


def test_the_adverse_impact_ratio_is_the_lowest_approval_rate_over_the_highest(judged):
    fold = judged[2][0].fold
    decision = (np.arange(len(fold.y_test)) % 3 == 0).astype(np.int64)
    rates = [decision[fold.group_test == g].mean() for g in range(2)]
    metrics = fold_outcome(fold, decision.astype(float), decision)
    assert metrics["air"] == pytest.approx(min(rates) / max(rates))
    nobody = np.zeros_like(decision)
    assert np.isnan(fold_outcome(fold, nobody.astype(float), nobody)["air"])
