"""Boosted trees of scikit-learn: `HistGradientBoostingClassifier` behind integer codes of categories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, OneHotEncoder, OrdinalEncoder, StandardScaler

from evenhand.models.encoders import flat_steps
from evenhand.models.sklearn import binned_columns, is_kind, is_scorecard, unwrapped
from evenhand.searching.families.family import (
    EstimatorFamily,
    Parameters,
    Reading,
    Training,
    class_options,
    fitted,
    given_parameters,
    kept_columns,
    last_step,
    monotone_signs,
    numbers_and_words,
    save_skops,
    signs_by_input,
)

_EARLY = frozenset({"early_stopping", "validation_fraction", "n_iter_no_change", "tol"})


class HistTrees(EstimatorFamily):
    """Boosted trees of scikit-learn."""

    name = "trees"
    words = "gradient-boosted trees of scikit-learn"
    takes_monotone = True
    fixed = EstimatorFamily.fixed | {"monotonic_cst", "categorical_features", "warm_start", "scoring", "loss"}
    usual: ClassVar[dict[str, Any]] = {
        "learning_rate": 0.1,
        "max_iter": 100,
        "max_leaf_nodes": 31,
        "max_depth": None,
        "min_samples_leaf": 20,
        "l2_regularization": 0.0,
        "max_bins": 255,
    }
    space: ClassVar[dict[str, Sequence[Any]]] = {
        "learning_rate": (0.03, 0.1),
        "max_iter": (50, 100, 200),
        "max_leaf_nodes": (4, 8, 16, 31),
        "min_samples_leaf": (20, 100),
        "max_bins": (16, 255),
    }

    def class_parameters(self) -> frozenset[str]:
        """The parameters of `HistGradientBoostingClassifier`."""
        return frozenset(HistGradientBoostingClassifier().get_params())

    def read(self, model: Any, text: str = "") -> Reading | None:
        """Read a `HistGradientBoostingClassifier`."""
        model = last_step(model)
        if not is_kind(model, "HistGradientBoostingClassifier"):
            return None
        parameters, notes = given_parameters(model, self.fixed | _EARLY)
        if model.n_iter_ < model.max_iter:
            notes += (f"Your model stopped early: its {model.n_iter_} rounds are kept.",)
        if model.is_categorical_ is not None:
            notes += ("Your model splits on categories; candidates split on their integer codes.",)
        return Reading({**parameters, "max_iter": int(model.n_iter_)}, signs_by_input(model.monotonic_cst), notes)

    def around(self, parameters: Parameters) -> dict[str, list[Any]]:
        """Half the learning rate, half the trees or leaves, larger leaves, coarser bins."""
        leaves = parameters["max_leaf_nodes"] or 31
        return {
            "learning_rate": [parameters["learning_rate"], parameters["learning_rate"] / 2],
            "max_iter": [parameters["max_iter"], max(1, parameters["max_iter"] // 2)],
            "max_leaf_nodes": [parameters["max_leaf_nodes"], max(2, leaves // 2)],
            "min_samples_leaf": [parameters["min_samples_leaf"], 5 * parameters["min_samples_leaf"]],
            "max_bins": [parameters["max_bins"], min(16, parameters["max_bins"])],
        }

    def fit(self, parameters: Parameters, training: Training, random_state: int) -> Any:
        """A Pipeline that codes categories and then fits trees."""
        columns = [str(column) for column in training.X.columns]
        numbers, words = numbers_and_words(training.X[kept_columns(parameters, columns)])
        codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-1)
        encode = ColumnTransformer([("numbers", "passthrough", numbers), ("words", codes, words)])
        signs = monotone_signs(parameters, training.X[[*numbers, *words]])
        options = class_options(parameters)
        trees = HistGradientBoostingClassifier(
            **{"early_stopping": False, **options}, monotonic_cst=signs or None, random_state=random_state
        )
        model = Pipeline([("encode", encode), ("trees", trees)])
        return fitted(model, training.X, training, "trees__sample_weight")

    def save(self, model: Any, path: Path) -> Path:
        """Write a skops file."""
        return save_skops(model, path)


class LogisticModels(EstimatorFamily):
    """`LogisticRegression` behind a `StandardScaler` and a `OneHotEncoder`."""

    name = "logistic"
    words = "logistic regressions of scikit-learn"
    fixed = EstimatorFamily.fixed | {"warm_start", "multi_class"}
    usual: ClassVar[dict[str, Any]] = {"C": 1.0}
    space: ClassVar[dict[str, Sequence[Any]]] = {"C": (0.001, 0.01, 0.1, 1.0, 10.0)}

    def class_parameters(self) -> frozenset[str]:
        """The parameters of `LogisticRegression`."""
        return frozenset(LogisticRegression().get_params())

    def read(self, model: Any, text: str = "") -> Reading | None:
        """Read a `LogisticRegression`, which may follow any steps except bins."""
        return None if bins_of(model) else regression_reading(model, self.fixed)

    def around(self, parameters: Parameters) -> dict[str, list[Any]]:
        """Less and more shrinkage."""
        return {"C": [parameters["C"], *(parameters["C"] * factor for factor in (0.001, 0.01, 0.1, 10.0))]}

    def fit(self, parameters: Parameters, training: Training, random_state: int) -> Any:
        """A Pipeline that fills and scales numbers, one-hot encodes categories, and fits the regression."""
        scale = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
        return regression_on(scale, parameters, training, random_state)

    def save(self, model: Any, path: Path) -> Path:
        """Write a skops file."""
        return save_skops(model, path)


def regression_on(numbers_step: Any, parameters: Parameters, training: Training, random_state: int) -> Any:
    """A logistic regression on the transformed numbers and on one column for each category."""
    columns = [str(column) for column in training.X.columns]
    numbers, words = numbers_and_words(training.X[kept_columns(parameters, columns)])
    one_hot = OneHotEncoder(handle_unknown="ignore", sparse_output=False)
    encode = ColumnTransformer([("numbers", numbers_step, numbers), ("words", one_hot, words)])
    options = {name: value for name, value in class_options(parameters).items() if name != "n_bins"}
    # Newton's method converges on any of these tables within a few steps.
    regression = LogisticRegression(**{"solver": "newton-cholesky", **options}, random_state=random_state)
    model = Pipeline([("encode", encode), ("regression", regression)])
    return fitted(model, training.X, training, "regression__sample_weight")


def bins_of(model: Any) -> list[Any]:
    """The steps of a pipeline that put numbers into bins, at any depth."""
    model = unwrapped(model)
    if is_kind(model, "Pipeline"):
        return [part for _, step in flat_steps(model) for part in bins_of(step)]
    if is_kind(model, "ColumnTransformer"):
        return [part for _, step, _ in model.transformers_ for part in bins_of(step)]
    if is_kind(model, "FeatureUnion"):
        return [part for _, step in model.transformer_list for part in bins_of(step)]
    return [model] if is_kind(model, "KBinsDiscretizer") or binned_columns(model) is not None else []


def regression_reading(model: Any, fixed: frozenset[str]) -> Reading | None:
    """How the regression at the end of a pipeline or scorecard was fitted; None if there is no regression."""
    last: Any = getattr(model, "estimator_", None) if is_scorecard(model) else last_step(model)
    if not is_kind(last, "LogisticRegression"):
        return None
    parameters, notes = given_parameters(last, fixed | {"cv", "Cs", "scoring", "refit", "use_legacy_attributes"})
    if is_kind(last, "LogisticRegressionCV"):
        parameters["C"] = float(np.ravel(last.C_)[0])
    return Reading(parameters, {}, notes)


class ScorecardModels(EstimatorFamily):
    """Quantile bins and a logistic regression, of scikit-learn."""

    name = "scorecard"
    words = "scorecards: a logistic regression on bins"
    fixed = LogisticModels.fixed
    usual: ClassVar[dict[str, Any]] = {"n_bins": 5, "C": 1.0}
    space: ClassVar[dict[str, Sequence[Any]]] = {"n_bins": (2, 3, 5, 8, 12), "C": (0.01, 0.1, 1.0)}

    def class_parameters(self) -> frozenset[str]:
        """The parameters of `LogisticRegression`."""
        return LogisticModels().class_parameters()

    def read(self, model: Any, text: str = "") -> Reading | None:
        """Read a regression after a `KBinsDiscretizer`, or a scorecard of optbinning."""
        bins = bins_of(model)
        reading = regression_reading(model, self.fixed) if bins else None
        if reading is None:
            return None
        told = "The bins of your scorecard are replaced by quantile bins."
        if is_kind(bins[0], "KBinsDiscretizer"):
            n_bins = int(np.max(bins[0].n_bins))
            notes = () if bins[0].strategy == "quantile" else (told,)
            return Reading({**reading.parameters, "n_bins": n_bins}, {}, (*reading.notes, *notes))
        return Reading(reading.parameters, {}, (*reading.notes, told))

    def around(self, parameters: Parameters) -> dict[str, list[Any]]:
        """Coarser bins, and more shrinkage."""
        bins = parameters["n_bins"]
        return {
            "n_bins": sorted({bins, max(2, bins // 2), max(2, bins - 1)}),
            "C": [parameters["C"], parameters["C"] * 0.1, parameters["C"] * 0.01],
        }

    def fit(self, parameters: Parameters, training: Training, random_state: int) -> Any:
        """A Pipeline that bins numbers at quantiles, with a bin for missing ones, and fits the regression."""
        bins = KBinsDiscretizer(
            n_bins=parameters["n_bins"],
            encode="onehot-dense",
            strategy="quantile",
            quantile_method="averaged_inverted_cdf",
            subsample=None,
        )
        binned = make_pipeline(SimpleImputer(strategy="median"), bins)
        step = FeatureUnion([("bins", binned), ("missing", MissingIndicator(error_on_new=False))])
        return regression_on(step, parameters, training, random_state)

    def save(self, model: Any, path: Path) -> Path:
        """Write a skops file."""
        return save_skops(model, path)
