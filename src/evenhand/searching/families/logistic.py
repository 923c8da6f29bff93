"""Logistic regression of scikit-learn, on scaled numbers and one column for each category."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from evenhand.models.encoders.steps import flat_steps
from evenhand.models.optbinning import binned_columns, is_scorecard
from evenhand.models.sklearn import is_kind, unwrapped
from evenhand.searching.families.columns import kept_columns, numbers_and_words
from evenhand.searching.families.family import EstimatorFamily, Parameters, class_options
from evenhand.searching.families.libraries import fitted, save_skops
from evenhand.searching.families.repairs import Training
from evenhand.searching.families.starting import Reading, given_parameters, last_step

__all__ = ["LogisticModels", "bins_of", "regression_on", "regression_reading"]


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

    def read(self, model: Any, text: str = "") -> Reading | None:  # noqa: ANN401
        """Read a `LogisticRegression`, which may follow any steps except bins."""
        return None if bins_of(model) else regression_reading(model, self.fixed)

    def around(self, parameters: Parameters) -> dict[str, list[Any]]:
        """Less and more shrinkage."""
        return {"C": [parameters["C"], *(parameters["C"] * factor for factor in (0.001, 0.01, 0.1, 10.0))]}

    def fit(self, parameters: Parameters, training: Training, random_state: int) -> Any:  # noqa: ANN401
        """A Pipeline that fills and scales numbers, one-hot encodes categories, and fits the regression."""
        scale = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
        return regression_on(scale, parameters, training, random_state)

    def save(self, model: Any, path: Path) -> Path:  # noqa: ANN401
        """Write a skops file."""
        return save_skops(model, path)


def regression_on(numbers_step: Any, parameters: Parameters, training: Training, random_state: int) -> Any:  # noqa: ANN401
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


def bins_of(model: Any) -> list[Any]:  # noqa: ANN401 - any model
    """The steps of a pipeline that put numbers into bins, at any depth."""
    model = unwrapped(model)
    if is_kind(model, "Pipeline"):
        return [part for _, step in flat_steps(model) for part in bins_of(step)]
    if is_kind(model, "ColumnTransformer"):
        return [part for _, step, _ in model.transformers_ for part in bins_of(step)]
    if is_kind(model, "FeatureUnion"):
        return [part for _, step in model.transformer_list for part in bins_of(step)]
    return [model] if is_kind(model, "KBinsDiscretizer") or binned_columns(model) is not None else []


def regression_reading(model: Any, fixed: frozenset[str]) -> Reading | None:  # noqa: ANN401
    """How the regression at the end of a pipeline or scorecard was fitted; None if there is no regression."""
    last: Any = getattr(model, "estimator_", None) if is_scorecard(model) else last_step(model)
    if not is_kind(last, "LogisticRegression"):
        return None
    parameters, notes = given_parameters(last, fixed | {"cv", "Cs", "scoring", "refit", "use_legacy_attributes"})
    if is_kind(last, "LogisticRegressionCV"):
        parameters["C"] = float(np.ravel(last.C_)[0])
    return Reading(parameters, {}, notes)
