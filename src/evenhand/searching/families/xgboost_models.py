"""Boosted trees of XGBoost, on the table's own columns: its native file then needs nothing beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from evenhand.exceptions import InvalidInputError
from evenhand.inputs.validation import text_columns
from evenhand.searching.families.columns import kept_columns, monotone_signs, with_categories
from evenhand.searching.families.family import EstimatorFamily, Parameters, class_options
from evenhand.searching.families.libraries import class_parameters, file_in, fitted, library_class
from evenhand.searching.families.repairs import Training
from evenhand.system.files import write_atomically

__all__ = ["XgboostModels"]


class XgboostModels(EstimatorFamily):
    """`XGBClassifier`."""

    name = "xgboost"
    words = "gradient-boosted trees of XGBoost"
    takes_monotone = True
    is_native = True
    fixed = EstimatorFamily.fixed | {
        "monotone_constraints",
        "enable_categorical",
        "feature_types",
        "objective",
        "callbacks",
        "device",
        "early_stopping_rounds",
        "verbosity",
        "missing",
    }
    usual: ClassVar[dict[str, Any]] = {
        "learning_rate": 0.3,
        "n_estimators": 100,
        "max_depth": 6,
        "min_child_weight": 1.0,
        "reg_lambda": 1.0,
        "subsample": 1.0,
        "colsample_bytree": 1.0,
        "max_bin": 256,
    }
    tuned: ClassVar[dict[str, Any]] = {"learning_rate": 0.1, "max_depth": 4}
    space: ClassVar[dict[str, Sequence[Any]]] = {
        "learning_rate": (0.03, 0.1),
        "n_estimators": (100, 200),
        "max_depth": (2, 3, 4, 6),
        "min_child_weight": (1.0, 20.0),
        "max_bin": (16, 256),
    }

    def class_parameters(self) -> frozenset[str]:
        """Those of `XGBClassifier`."""
        return class_parameters("xgboost", "XGBClassifier")

    def around(self, parameters: Parameters) -> dict[str, list[Any]]:
        """Half the learning rate or the trees, shallower trees, larger leaves, coarser bins."""
        depth = parameters["max_depth"] or 6
        return {
            "learning_rate": [parameters["learning_rate"], parameters["learning_rate"] / 2],
            "n_estimators": [parameters["n_estimators"], max(1, parameters["n_estimators"] // 2)],
            "max_depth": [parameters["max_depth"], max(1, depth - 2)],
            "min_child_weight": [parameters["min_child_weight"], 10 * max(1.0, parameters["min_child_weight"])],
            "max_bin": [parameters["max_bin"], 16],
        }

    def fit(self, parameters: Parameters, training: Training, random_state: int) -> Any:  # noqa: ANN401
        """An `XGBClassifier` of the columns that are kept."""
        kind = library_class("xgboost", "XGBClassifier")
        X = with_categories(training.X[kept_columns(parameters, [str(column) for column in training.X.columns])])
        options = class_options(parameters)
        signs = monotone_signs(parameters, X)
        if any(signs):
            options["monotone_constraints"] = tuple(signs)
        if text_columns(X):
            options["enable_categorical"] = True
        return fitted(kind(**options, random_state=random_state, n_jobs=1), X, training)

    def save(self, model: Any, path: Path) -> Path:  # noqa: ANN401
        """Write XGBoost's own file: JSON, or its binary form where the path ends in ``.ubj``.

        Raises
        ------
        InvalidInputError
            If the model has categories and this XGBoost does not write them down.
        """
        is_wordless = all(kind != "c" for kind in model.get_booster().feature_types or ())
        if not is_wordless and tuple(map(int, _version().split(".")[:2])) < (3, 1):
            raise InvalidInputError(
                f"XGBoost {_version()} does not write categories into its files: install xgboost>=3.1 to save a model "
                "of columns that are not numbers."
            )
        file = path if path.suffix == ".ubj" else file_in(path, ".json")
        with write_atomically(file) as temporary:
            model.save_model(temporary)
        return file


def _version() -> str:
    import xgboost

    return str(xgboost.__version__)
