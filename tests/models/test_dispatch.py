"""Which attribution a model gets, and what the user may ask for."""

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.exceptions import InvalidInputError
from evenhand.models.dispatch import ATTRIBUTIONS, as_audited_model


@pytest.fixture(scope="module")
def trees(numbers):
    return GradientBoostingClassifier(n_estimators=20, random_state=0).fit(numbers[0], numbers[1])


def test_attributions_and_outputs_are_named_in_the_message(numbers):
    with pytest.raises(InvalidInputError, match=r"`attribution` must be one of \['auto', .*\], got 'shap'"):
        as_audited_model(LogisticRegression(), attribution="shap")
    with pytest.raises(InvalidInputError, match=r"`output` must be one of \['log-odds', 'probability'\] or None"):
        as_audited_model(LogisticRegression(), output="score")


def test_each_model_takes_what_applies_to_it_and_refuses_the_rest(numbers, trees):
    X, y, _ = numbers
    models = {
        LogisticRegression().fit(X, y): {"linear", "integrated_gradients", "sampled_shapley"},
        trees: {"tree_shap", "sampled_shapley"},
        torch.nn.Linear(4, 1): {"integrated_gradients", "sampled_shapley"},
        (lambda x: np.full(len(x), 0.5)): {"sampled_shapley"},
    }
    for model, applicable in models.items():
        for name in set(ATTRIBUTIONS) - {"auto"}:
            if name in applicable:
                assert as_audited_model(model, attribution=name).attribution == name
            else:
                with pytest.raises(InvalidInputError, match=f'attribution="{name}" does not apply to a'):
                    as_audited_model(model, attribution=name)


def test_the_probability_of_an_exactly_explained_model_is_explained_by_sampling(trees):
    with pytest.raises(InvalidInputError, match='is explained by "tree_shap" in log-odds; to explain its probability'):
        as_audited_model(trees, output="probability")
    assert as_audited_model(trees, output="probability", attribution="sampled_shapley").output == "probability"


def test_a_model_already_prepared_is_taken_as_it_is(trees):
    audited = as_audited_model(trees)
    assert as_audited_model(audited) is audited
    linear = as_audited_model(LogisticRegression().fit([[0.0], [1.0]], [0, 1]))
    assert as_audited_model(linear) is linear


@pytest.mark.usefixtures("near_triples_only")
def test_trees_by_walks_and_by_sampling_tell_the_same(numbers, trees):
    X, y, group = numbers
    exact, sampled = (
        eh.audit(trees, X, y, sensitive_features=group, financial_features=["income"], attribution=name)
        for name in ("tree_shap", "sampled_shapley")
    )
    assert exact.provenance.attribution_method == "interventional TreeSHAP from one baseline row"
    assert sampled.provenance.attribution_method.startswith("Shapley values from 32 antithetic permutations")
    for name in ("mean", "excess", "p_value", "input_gap", "reasoning_gap"):
        assert sampled.to_dict()["cec"][name] == pytest.approx(exact.to_dict()["cec"][name], abs=1e-6)


def test_few_permutations_come_near(numbers, trees):
    X, y, group = numbers
    wide = X.assign(**{f"noise {j}": np.random.default_rng(j).normal(size=len(X)) for j in range(6)})
    model = GradientBoostingClassifier(n_estimators=20, random_state=0).fit(wide, y)
    exact, sampled = (
        eh.audit(
            model,
            wide,
            y,
            sensitive_features=group,
            financial_features=["income"],
            attribution=name,
            options=eh.AuditOptions(n_permutations=16),
            evidence=False,
        )
        for name in ("tree_shap", "sampled_shapley")
    )
    gap = np.abs(sampled.pairs["cec"] - exact.pairs["cec"])
    assert 0 < gap.mean() < 0.03


@pytest.mark.filterwarnings("ignore:Attributions are sampled")
def test_the_seed_of_the_audit_is_the_seed_of_the_orders(numbers):
    _, y, group = numbers
    wide = pd.DataFrame(np.random.default_rng(0).normal(size=(240, 10)), columns=list("abcdefghij"))

    def score(x):
        return 0.5 + 0.5 * np.tanh(x.prod(axis=1) + x.sum(axis=1))

    first, again, other = (
        eh.audit(
            score,
            wide,
            y,
            sensitive_features=group,
            financial_features=["a"],
            options=eh.AuditOptions(n_permutations=4),
            random_state=seed,
            evidence=False,
        ).attributions
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_columns_in_another_order_keep_their_names(numbers):
    X, y, group = numbers
    model = eh.CECClassifier(epochs=1).fit(X, y, sensitive_features=group)
    first, turned = (
        eh.audit(model, table, y, sensitive_features=group, financial_features=["income"], evidence=False)
        for table in (X, X[X.columns[::-1]])
    )
    pd.testing.assert_frame_equal(first.features, turned.features)


def test_the_error_of_sampled_attributions_is_reported_and_falls_with_more_orders(numbers):
    _, y, group = numbers
    wide = pd.DataFrame(np.random.default_rng(0).normal(size=(240, 10)), columns=list("abcdefghij"))

    def score(x):
        return 0.5 + 0.5 * np.tanh(3 * x[:, :3].prod(axis=1) + 3 * x[:, 3:6].prod(axis=1))

    def audited(n_permutations):
        people = {"sensitive_features": group, "financial_features": ["a"]}
        return eh.audit(
            score, wide, y, **people, options=eh.AuditOptions(n_permutations=n_permutations), evidence=False
        )

    with pytest.warns(eh.EvenhandWarning, match=r"sampled, with a standard error of \d+\.\d% of their size"):
        few = audited(4)
    many = audited(64)
    assert many.provenance.attribution_error < few.provenance.attribution_error / 2
    assert any("sampled" in warning for warning in many.warnings)
    linear = eh.audit(
        torch.nn.Linear(10, 1), wide, y, sensitive_features=group, financial_features=["a"], evidence=False
    )
    assert linear.provenance.attribution_error is None
