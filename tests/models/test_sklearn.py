"""scikit-learn's linear models and networks read off: scores are scikit-learn's own, explanations agree."""

import warnings
from inspect import signature

import numpy as np
import pytest
from scipy.special import expit
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.exceptions import ConvergenceWarning
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import (
    LogisticRegression,
    LogisticRegressionCV,
    Perceptron,
    RidgeClassifier,
    SGDClassifier,
)
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV
from sklearn.neural_network import MLPClassifier
from sklearn.svm import LinearSVC

from evenhand.exceptions import InvalidInputError
from evenhand.models.dispatch import as_audited_model
from evenhand.models.gradient import DifferentiableModel
from evenhand.models.protocol import LinearModel
from evenhand.models.sklearn import unwrapped

# scikit-learn 1.8 asks for a choice that earlier versions do not know.
QUIET = (
    {"l1_ratios": (0,), "use_legacy_attributes": False}
    if "use_legacy_attributes" in signature(LogisticRegressionCV).parameters
    else {}
)

LINEAR = [
    LogisticRegression(),
    LogisticRegressionCV(cv=3, scoring="neg_log_loss", **QUIET),
    LinearDiscriminantAnalysis(),
    SGDClassifier(loss="log_loss", random_state=0),
]
MARGINS = [LinearSVC(), RidgeClassifier(), Perceptron(), SGDClassifier(loss="hinge", random_state=0)]
ACTIVATIONS = ["relu", "tanh", "logistic", "identity"]


def network(activation, hidden=(8, 5)):
    return MLPClassifier(hidden, activation=activation, max_iter=60, random_state=0)


def fitted(model, numbers):
    X, y, _ = numbers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        return model.fit(X, y)


def explained(audited, X):
    """Attributions of everyone from the mean row, and the probability."""
    x = audited.encode(X)
    baseline = np.broadcast_to(x.mean(0), x.shape)
    return audited.attribute(x, baseline, 8, "segments")


@pytest.mark.parametrize("model", LINEAR, ids=lambda m: type(m).__name__)
def test_a_linear_classifier_has_scikit_learns_probability_and_exact_attributions(model, numbers):
    model = fitted(model, numbers)
    audited = as_audited_model(model)
    found = explained(audited, numbers[0])
    assert isinstance(audited, LinearModel)
    assert (audited.attribution, audited.output, found.method) == ("linear", "log-odds", "exact")
    np.testing.assert_allclose(audited.probability(found.logit), model.predict_proba(numbers[0])[:, 1], atol=1e-12)
    assert found.completeness_gap.max() < 1e-12
    expected = (numbers[0] - numbers[0].mean()).to_numpy() * model.coef_[0]
    np.testing.assert_allclose(found.values, expected, atol=1e-12)


def test_exact_gradients_and_shapley_values_agree_on_a_linear_model(numbers):
    model = fitted(LogisticRegression(), numbers)
    linear, gradients, shapley = (
        explained(as_audited_model(model, attribution=name), numbers[0])
        for name in ("linear", "integrated_gradients", "sampled_shapley")
    )
    np.testing.assert_allclose(gradients.values, linear.values, atol=1e-10)
    np.testing.assert_allclose(shapley.values, linear.values, atol=1e-10)
    for context in (linear, gradients, shapley):
        moved = context.rows(np.arange(0, 100)).with_inputs_of(context.rows(np.arange(100, 200)))
        np.testing.assert_allclose(moved, linear.values[100:200], atol=1e-10)


@pytest.mark.parametrize("model", MARGINS, ids=lambda m: type(m).__name__)
def test_a_margin_is_taken_for_log_odds_only_where_the_user_says_so(model, numbers):
    model = fitted(model, numbers)
    with pytest.raises(InvalidInputError, match="returns a margin with its decision at 0, not log-odds"):
        as_audited_model(model)
    with pytest.raises(InvalidInputError, match="has no probabilities to explain"):
        as_audited_model(model, output="probability")
    audited = as_audited_model(model, output="log-odds")
    found = explained(audited, numbers[0])
    np.testing.assert_allclose(found.logit, model.decision_function(numbers[0]), atol=1e-10)
    decided = audited.probability(found.logit) > 0.5
    np.testing.assert_array_equal(decided, model.predict(numbers[0]) == 1)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_a_network_has_scikit_learns_probability_and_is_complete(activation, numbers):
    model = fitted(network(activation), numbers)
    audited = as_audited_model(model)
    found = explained(audited, numbers[0])
    assert isinstance(audited, LinearModel if activation == "identity" else DifferentiableModel)
    np.testing.assert_allclose(audited.probability(found.logit), model.predict_proba(numbers[0])[:, 1], atol=1e-12)
    assert found.completeness_gap.max() < 1e-9
    np.testing.assert_allclose(audited.margin(audited.encode(numbers[0])), found.logit, atol=1e-12)


def test_shapley_values_of_a_network_are_of_its_logit_or_of_its_probability(numbers):
    model = fitted(network("relu"), numbers)
    probability = model.predict_proba(numbers[0])[:, 1]
    logit = as_audited_model(model, attribution="sampled_shapley")
    assert (logit.output, logit.attribution) == ("log-odds", "sampled_shapley")
    found = explained(logit, numbers[0])
    np.testing.assert_allclose(expit(found.logit), probability, atol=1e-12)
    assert found.completeness_gap.max() < 1e-12
    other = as_audited_model(model, attribution="sampled_shapley", output="probability")
    found = explained(other, numbers[0])
    np.testing.assert_allclose(found.logit, probability, atol=1e-12)
    assert found.completeness_gap.max() < 1e-12


def test_columns_are_found_by_name_in_any_order(numbers):
    X = numbers[0]
    audited = as_audited_model(fitted(LogisticRegression(), numbers))
    turned = audited.aligned(X[["assets", "debt", "income", "years"]])
    assert list(turned.columns) == list(X.columns)
    np.testing.assert_array_equal(audited.encode(turned), audited.encode(X))
    with pytest.raises(InvalidInputError, match=r"missing \['debt'\], unexpected \['age'\]"):
        audited.aligned(X.rename(columns={"debt": "age"}))


def test_holes_are_refused_with_the_columns_name(numbers):
    X = numbers[0].copy()
    X.loc[[3, 5], "debt"] = np.nan
    audited = as_audited_model(fitted(LogisticRegression(), numbers))
    with pytest.raises(InvalidInputError, match=r"missing or infinite values \(column: count\): {'debt': 2}"):
        audited.encode(X)


def test_searches_and_threshold_choosers_are_unwrapped(numbers):
    search = GridSearchCV(LogisticRegression(), {"C": [0.1, 1.0]}, cv=3)
    fitted(search, numbers)
    assert unwrapped(search) is search.best_estimator_
    chooser = FixedThresholdClassifier(FrozenEstimator(search.best_estimator_), threshold=0.3)
    fitted(chooser, numbers)
    assert as_audited_model(chooser).kind == "scikit-learn LogisticRegression"
    with pytest.raises(InvalidInputError, match=r"has no fitted model \(`best_estimator_`\)"):
        as_audited_model(GridSearchCV(LogisticRegression(), {}))


@pytest.mark.parametrize("model", [LogisticRegression(), network("relu")], ids=["linear", "network"])
def test_models_must_be_fitted_on_two_classes(model, numbers, rng):
    with pytest.raises(InvalidInputError, match="is not fitted: call its `fit` first"):
        as_audited_model(type(model)())
    three = fitted(model, (numbers[0], rng.integers(3, size=240), None))
    with pytest.raises(InvalidInputError, match="has 3 classes or outputs; an audit needs one outcome with two"):
        as_audited_model(three)


def test_a_network_of_several_outputs_is_refused(numbers, rng):
    model = fitted(network("relu"), (numbers[0], rng.integers(2, size=(240, 2)), None))
    with pytest.raises(InvalidInputError, match="has 2 classes or outputs"):
        as_audited_model(model)


def test_a_sparse_linear_model_is_read(numbers):
    model = fitted(LogisticRegression(), numbers)
    expected = model.predict_proba(numbers[0])[:, 1]
    audited = as_audited_model(model.sparsify())
    np.testing.assert_allclose(audited.probability(audited.margin(audited.encode(numbers[0]))), expected, atol=1e-12)


def test_a_linear_model_refuses_other_numbers_of_inputs():
    model = LinearModel(np.ones(3), 0.0, "scorecard")
    x = np.zeros((2, 4))
    with pytest.raises(InvalidInputError, match="The scorecard takes 3 inputs, got 4"):
        model.attribute(x, x, 1, "segments")
