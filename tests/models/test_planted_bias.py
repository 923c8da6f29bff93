"""A planted difference in reasoning is found in trained models of every kind, and none where none was planted."""

import warnings

import numpy as np
import pytest
import torch
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import evenhand as eh

pytestmark = pytest.mark.integration  # models of every kind are trained

KINDS = {
    "trees": (lambda: HistGradientBoostingClassifier(max_iter=60, max_leaf_nodes=8), "tree_shap"),
    "network": (lambda: MLPClassifier((16,), alpha=0.1, max_iter=150, random_state=0), "integrated_gradients"),
    "pipeline": (
        lambda: make_pipeline(StandardScaler(), MLPClassifier((16,), alpha=0.1, max_iter=150, random_state=0)),
        "integrated_gradients",
    ),
}


def audit_of(kind, strength, *, drop=(), random_state=0, **settings):
    """Audit of a model trained on the decisions of the planted one."""
    planted = eh.make_planted_bias(1200, strength=strength, random_state=random_state)
    data = planted.dataset
    X = data.X.drop(columns=list(drop))
    with torch.no_grad():
        logits = planted.model(torch.tensor(data.X.to_numpy(), dtype=torch.float32)).numpy().ravel()
    decided = (np.random.default_rng([random_state, 1]).random(len(X)) < 1 / (1 + np.exp(-logits))).astype(int)
    model = KINDS[kind][0]()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        model.fit(X, decided)
    return eh.audit(
        model, X, data.y, sensitive_features=data.group, financial_features=data.financial_features, **settings
    )


@pytest.mark.parametrize("kind", ["trees", "network", pytest.param("pipeline", marks=pytest.mark.slow)])
def test_a_trained_model_shows_what_was_planted(kind):
    planted, even = audit_of(kind, 1.0), audit_of(kind, 0.0)
    assert planted.settings["attribution"] == KINDS[kind][1]
    assert planted.evidence.cec.p_value < 0.001
    assert planted.evidence.cec.value > 0.1
    assert planted.evidence.reasoning_gap.value > 0.02
    # Given the group's column a model picks up a little of it by chance.
    assert even.evidence.cec.value < planted.evidence.cec.value / 4


def test_shapley_values_of_a_black_box_show_it_too():
    found = audit_of("network", 1.0, attribution="sampled_shapley", options=eh.AuditOptions(n_permutations=4))
    assert found.evidence.cec.p_value < 0.001
    assert found.evidence.cec.value > 0.1


@pytest.mark.parametrize("kind", ["trees", pytest.param("network", marks=pytest.mark.slow)])
def test_a_model_that_cannot_see_the_group_shows_nothing(kind):
    p_values = [audit_of(kind, 0.0, drop=["group"], random_state=seed).evidence.cec.p_value for seed in range(3)]
    assert min(p_values) > 0.05 / 3


def test_an_additive_model_weighs_everyone_alike():
    planted = eh.make_planted_bias(400, strength=1.0)
    data = planted.dataset
    model = LogisticRegression().fit(data.X, data.y)
    result = eh.audit(model, data.X, data.y, sensitive_features=data.group, financial_features=data.financial_features)
    assert result.to_dict()["cec"]["reasoning_gap"] < 1e-12
    assert result.pairs["reasoning_gap"].max() < 1e-7
