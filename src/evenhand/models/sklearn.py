"""scikit-learn estimators: linear models and networks are read, pipelines taken apart, searches unwrapped."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from evenhand.arrays import Floats
from evenhand.exceptions import InvalidInputError
from evenhand.models.black_box import black_box_model, check_margin
from evenhand.models.encoders import NamedColumns, fitted_names
from evenhand.models.protocol import AuditedModel, EncodesTables, LinearModel, Output
from evenhand.system.libraries import optional_module

# Linear classifiers whose decision function is log-odds, and those for which it is only a margin.
_LOG_ODDS = ("LogisticRegression", "LogisticRegressionCV", "LinearDiscriminantAnalysis")
_MARGINS = ("LinearSVC", "RidgeClassifier", "RidgeClassifierCV", "Perceptron", "PassiveAggressiveClassifier")
# Wrappers of one fitted estimator that pass on its scores.
_WRAPPERS = {
    "BaseSearchCV": "best_estimator_",
    "BaseThresholdClassifier": "estimator_",
    "FrozenEstimator": "estimator",
}
_ACTIVATIONS = {"relu": "ReLU", "tanh": "Tanh", "logistic": "Sigmoid"}  # as torch names them


def is_kind(model: Any, *names: str, library: str = "sklearn") -> bool:
    """Whether `model` is an instance of a library's class with one of these names; nothing is imported to check.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> is_kind(LogisticRegression(), "LogisticRegression"), is_kind("text", "LogisticRegression")
    (True, False)
    """
    return any(kind.__name__ in names and kind.__module__.startswith(f"{library}.") for kind in type(model).__mro__)


def unwrapped(model: Any) -> Any:
    """The fitted estimator inside searches and threshold choosers; any other model unchanged.

    Raises
    ------
    InvalidInputError
        If there is none inside.
    """
    while (inner := inner_estimator(model)) is not None:
        model = inner
    return model


def inner_estimator(model: Any) -> Any:
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


def linear_model(model: Any, output: Output | None = None, encoder: EncodesTables | None = None) -> LinearModel | None:
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
    columns = encoder or _named_columns(model)
    return LinearModel(*coefficients(model), f"scikit-learn {name}", columns, has_probabilities=is_logistic)


def coefficients(model: Any) -> tuple[Floats, float]:
    """Weights of the inputs, and the intercept, of a fitted linear model with one outcome."""
    weights = model.coef_.toarray() if hasattr(model.coef_, "toarray") else model.coef_  # after `sparsify`
    return np.array(weights, dtype=np.float64).reshape(-1), float(np.ravel(model.intercept_)[0])


def network_model(model: Any, encoder: EncodesTables | None = None) -> AuditedModel | None:
    """A fitted `MLPClassifier` as one of our networks; None if the model is not one.

    Raises
    ------
    InvalidInputError
        If it is not fitted or does not have two classes.
    """
    if not is_kind(model, "MLPClassifier"):
        return None
    _check_binary(model, "coefs_")
    layers = [
        (np.asarray(weight, dtype=np.float64), np.asarray(bias, dtype=np.float64))
        for weight, bias in zip(model.coefs_, model.intercepts_, strict=True)
    ]
    kind, encoder = f"scikit-learn {type(model).__name__}", encoder or _named_columns(model)
    if model.activation == "identity":
        weight, bias = layers[0]
        for following, shift in layers[1:]:
            weight, bias = weight @ following, bias @ following + shift
        return LinearModel(weight[:, 0], float(bias[0]), kind, encoder)
    activations = [(_ACTIVATIONS[model.activation], None)] * (len(layers) - 1)
    found: AuditedModel = networks(f"A {kind}").chain_model(layers, activations, kind, encoder)
    return found


def networks(what: str) -> Any:
    """The module that differentiates networks, which needs torch; `what` starts the sentence that says so."""
    return optional_module("evenhand.models.gradient", what, "torch", "torch")


def _check_binary(model: Any, fitted_attribute: str) -> None:
    name = type(model).__name__
    if not hasattr(model, fitted_attribute):
        raise InvalidInputError(f"This {name} is not fitted: call its `fit` first.")
    n_classes = len(model.classes_)
    if n_classes != 2 or getattr(model, "n_outputs_", 1) > 1:  # several outputs, each of two classes, count as classes
        raise InvalidInputError(
            f"This {name} has {n_classes} classes or outputs; an audit needs one outcome with two, the favorable last."
        )


def _named_columns(model: Any) -> NamedColumns | None:
    names = fitted_names(model)
    return None if names is None else NamedColumns(names)


_LINEAR = ("LinearRegression", "Ridge", "RidgeCV", "Lasso", "LassoCV", "ElasticNet", "ElasticNetCV", "SGDRegressor")


def value_model(model: Any, attribution: str, table: pd.DataFrame | None, **sampling: Any) -> AuditedModel:
    """A regressor in the form of the audit: exact if it is linear, else with sampled Shapley values of its prediction.

    Raises
    ------
    InvalidInputError
        If the model is a classifier.

    Examples
    --------
    >>> from sklearn.linear_model import LinearRegression
    >>> price = LinearRegression().fit([[0.0], [1.0], [2.0]], [5.0, 6.0, 7.0])
    >>> value_model(price, "auto", None).output
    'value'
    """
    name = type(model).__name__
    if hasattr(model, "predict_proba") or hasattr(model, "classes_"):
        raise InvalidInputError(
            f"A {name} returns classes or probabilities, but `unit` (--unit) is for an outcome that is a value; leave "
            "it out."
        )
    is_linear = is_kind(model, *_LINEAR) and attribution != "sampled_shapley"
    if is_linear and np.size(model.intercept_) == 1 and np.ndim(model.coef_) == 1:
        return LinearModel(*coefficients(model), f"scikit-learn {name}", _named_columns(model), output="value")
    return black_box_model(model, table=table, **{**sampling, "output": "value"})


def is_scorecard(model: Any) -> bool:
    """Whether `model` is an optbinning Scorecard; nothing is imported to check.

    Examples
    --------
    >>> is_scorecard("text")
    False
    """
    return is_kind(model, "Scorecard", library="optbinning")


def binned_columns(model: Any) -> list[str] | None:
    """Columns that a Scorecard or a BinningProcess was fitted on; None for any other model.

    Examples
    --------
    >>> binned_columns("text") is None
    True
    """
    process: Any = getattr(model, "binning_process_", None) if is_scorecard(model) else model
    return list(process.variable_names) if is_kind(process, "BinningProcess", library="optbinning") else None


@dataclass(frozen=True, eq=False)
class ScorecardBins:
    """A scorecard's first half as a transformer: converts columns to the inputs of its estimator.

    Attributes
    ----------
    scorecard
        The fitted scorecard.

    Raises
    ------
    InvalidInputError
        If it is not fitted.
    """

    scorecard: Any

    def __post_init__(self) -> None:
        if getattr(self.scorecard, "binning_process_", None) is None:
            raise InvalidInputError("This Scorecard is not fitted: call its `fit` first.")

    @property
    def feature_names_in_(self) -> list[str]:
        """Columns that the scorecard was fitted on."""
        return list(self.scorecard.binning_process_.variable_names)

    @property
    def sources(self) -> list[int]:
        """Position of the column behind each number."""
        return [int(j) for j in self.scorecard.binning_process_.get_support(indices=True)]

    def transform(self, table: pd.DataFrame) -> Any:
        """Weights of evidence, or whatever else the scorecard passes to its estimator."""
        return self.scorecard.binning_process_.transform(
            table[self.feature_names_in_],
            metric_special=self.scorecard._metric_special,
            metric_missing=self.scorecard._metric_missing,
        )
