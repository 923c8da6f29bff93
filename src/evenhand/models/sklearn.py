"""scikit-learn estimators: linear models and networks are read, pipelines taken apart, searches unwrapped."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import nn

from evenhand.attribution import FeedForward
from evenhand.attribution.feed_forward import ACTIVATIONS
from evenhand.exceptions import InvalidInputError
from evenhand.models.black_box import check_margin
from evenhand.models.encoders.named_columns import NamedColumns, fitted_names
from evenhand.models.gradient import DifferentiableModel
from evenhand.models.linear import LinearModel
from evenhand.models.protocol import AuditedModel, EncodesTables, Output

__all__ = ["inner_estimator", "is_kind", "linear_model", "network_model", "unwrapped"]

# Linear classifiers whose decision function is log-odds, and those for which it is only a margin.
_LOG_ODDS = ("LogisticRegression", "LogisticRegressionCV", "LinearDiscriminantAnalysis")
_MARGINS = ("LinearSVC", "RidgeClassifier", "RidgeClassifierCV", "Perceptron", "PassiveAggressiveClassifier")
# Wrappers of one fitted estimator that pass on its scores.
_WRAPPERS = {
    "GridSearchCV": "best_estimator_",
    "RandomizedSearchCV": "best_estimator_",
    "HalvingGridSearchCV": "best_estimator_",
    "HalvingRandomSearchCV": "best_estimator_",
    "FixedThresholdClassifier": "estimator_",
    "TunedThresholdClassifierCV": "estimator_",
    "FrozenEstimator": "estimator",
}
_ACTIVATIONS: dict[str, type[nn.Module]] = {"relu": nn.ReLU, "tanh": nn.Tanh, "logistic": nn.Sigmoid}


def is_kind(model: Any, *names: str) -> bool:  # noqa: ANN401 - any object
    """Whether `model` is an instance of a scikit-learn class with one of these names; nothing is imported to check.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> is_kind(LogisticRegression(), "LogisticRegression"), is_kind("text", "LogisticRegression")
    (True, False)
    """
    return any(kind.__name__ in names and kind.__module__.startswith("sklearn.") for kind in type(model).__mro__)


def unwrapped(model: Any) -> Any:  # noqa: ANN401
    """The fitted estimator inside searches and threshold choosers; any other model unchanged.

    Raises
    ------
    InvalidInputError
        If there is none inside.
    """
    inner = inner_estimator(model)
    while inner is not None:
        model, inner = inner, inner_estimator(inner)
    return model


def inner_estimator(model: Any) -> Any:  # noqa: ANN401
    """The fitted estimator directly inside a search or a threshold chooser; None for any other model.

    Raises
    ------
    InvalidInputError
        If there is none inside.
    """
    if not is_kind(model, *_WRAPPERS):
        return None
    attribute = next(inner for name, inner in _WRAPPERS.items() if is_kind(model, name))
    # A `FixedThresholdClassifier` around a fitted model need not be fitted itself.
    otherwise = model.estimator if is_kind(model, "FixedThresholdClassifier") else None
    inner = getattr(model, attribute, otherwise)
    if inner is None:
        raise InvalidInputError(
            f"This {type(model).__name__} has no fitted model (`{attribute}`): fit it first, with refit=True."
        )
    return inner


def linear_model(
    model: Any,  # noqa: ANN401 - any estimator
    output: Output | None = None,
    encoder: EncodesTables | None = None,
) -> LinearModel | None:
    """A fitted linear classifier of scikit-learn in the form of the audit; None if it is not one.

    Raises
    ------
    InvalidInputError
        If it is not fitted, does not have two classes, or returns a margin that `output` does not explain.
    """
    is_logistic = is_kind(model, *_LOG_ODDS) or (is_kind(model, "SGDClassifier") and model.loss == "log_loss")
    if not is_logistic and not is_kind(model, *_MARGINS, "SGDClassifier"):
        return None
    name = type(model).__name__
    if not is_logistic:
        check_margin(name, output)
    _check_binary(model, "coef_")
    weights = torch.as_tensor(np.array(_densified(model.coef_), dtype=np.float64).reshape(-1))
    intercept = float(np.ravel(model.intercept_)[0])
    columns = encoder or _named_columns(model)
    return LinearModel(weights, intercept, f"scikit-learn {name}", columns, has_probabilities=is_logistic)


def network_model(model: Any, encoder: EncodesTables | None = None) -> AuditedModel | None:  # noqa: ANN401
    """A fitted `MLPClassifier` as one of our networks; None if the model is not one.

    Raises
    ------
    InvalidInputError
        If it is not fitted or does not have two classes.
    """
    if not is_kind(model, "MLPClassifier"):
        return None
    _check_binary(model, "coefs_")
    weights = [torch.as_tensor(np.array(w, dtype=np.float64)) for w in model.coefs_]
    biases = [torch.as_tensor(np.array(b, dtype=np.float64)) for b in model.intercepts_]
    kind, encoder = f"scikit-learn {type(model).__name__}", encoder or _named_columns(model)
    if model.activation == "identity":
        weight, bias = weights[0], biases[0]
        for following, shift in zip(weights[1:], biases[1:], strict=True):
            weight, bias = weight @ following, bias @ following + shift
        return LinearModel(weight.squeeze(-1), float(bias), kind, encoder)
    layer = _ACTIVATIONS[model.activation]
    activation = ACTIVATIONS[layer](layer())
    network = FeedForward(tuple(weights), tuple(biases), (activation,) * (len(weights) - 1))
    return DifferentiableModel(network, kind, encoder)


def _check_binary(model: Any, fitted_attribute: str) -> None:  # noqa: ANN401
    name = type(model).__name__
    if not hasattr(model, fitted_attribute):
        raise InvalidInputError(f"This {name} is not fitted: call its `fit` first.")
    n_classes = len(model.classes_)
    if n_classes != 2 or getattr(model, "n_outputs_", 1) > 1:  # several outputs, each of two classes, count as classes
        raise InvalidInputError(
            f"This {name} has {n_classes} classes or outputs; an audit needs one outcome with two, the favorable last."
        )


def _named_columns(model: Any) -> NamedColumns | None:  # noqa: ANN401
    names = fitted_names(model)
    return None if names is None else NamedColumns(names)


def _densified(coefficients: Any) -> Any:  # noqa: ANN401
    """Coefficients as an array; `sparsify` produces a sparse matrix."""
    return coefficients.toarray() if hasattr(coefficients, "toarray") else coefficients
