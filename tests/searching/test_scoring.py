"""Metrics of candidates are those of the audit with the training fold as reference."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import evenhand as eh
from evenhand.metrics.excess import excess
from evenhand.models.gradient import DifferentiableModel
from evenhand.searching.metrics import adjusted_mean, fold_outcome
from evenhand.searching.people import EvaluationSettings, SearchPeople
from evenhand.searching.scoring import score_model, score_stack
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
    found = adjusted_mean(*(torch.from_numpy(v) for v in (values, weight, control)))
    assert float(found) == pytest.approx(expected, abs=1e-12)
    nothing = torch.zeros(200, dtype=torch.float64)
    plain = adjusted_mean(torch.from_numpy(values), torch.from_numpy(weight), nothing)
    assert float(plain) == pytest.approx(float(weight @ values))
    assert torch.isnan(adjusted_mean(torch.zeros(2, 0), torch.zeros(0), torch.zeros(2, 0))).all()


def test_the_adverse_impact_ratio_is_the_lowest_approval_rate_over_the_highest(judged):
    fold = judged[2][0].fold
    decision = (np.arange(len(fold.y_test)) % 3 == 0).astype(np.int64)
    rates = [decision[fold.group_test == g].mean() for g in range(2)]
    metrics = fold_outcome(fold, decision.astype(float), decision)
    assert metrics["air"] == pytest.approx(min(rates) / max(rates))
    nobody = np.zeros_like(decision)
    assert np.isnan(fold_outcome(fold, nobody.astype(float), nobody)["air"])
