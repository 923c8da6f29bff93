"""Boosted trees of LightGBM, on the table's own columns: its native file then needs nothing beside it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from evenhand.searching.families.columns import kept_columns, monotone_signs, with_categories
from evenhand.searching.families.family import EstimatorFamily, Parameters, class_options
from evenhand.searching.families.libraries import class_parameters, file_in, fitted, library_class
from evenhand.searching.families.repairs import Training
from evenhand.system.files import write_text

__all__ = ["LightgbmModels"]


class LightgbmModels(EstimatorFamily):
    """`LGBMClassifier`."""

    name = "lightgbm"
    words = "gradient-boosted trees of LightGBM"
    takes_monotone = True
    is_native = True
    fixed = EstimatorFamily.fixed | {
        "monotone_constraints",
        "objective",
        "verbosity",
        "deterministic",
        "force_col_wise",
    }
    usual: ClassVar[dict[str, Any]] = {
        "learning_rate": 0.1,
        "n_estimators": 100,
        "num_leaves": 31,
        "max_depth": -1,
        "min_child_samples": 20,
        "reg_lambda": 0.0,
        "max_bin": 255,
    }
    space: ClassVar[dict[str, Sequence[Any]]] = {
        "learning_rate": (0.03, 0.1),
        "n_estimators": (100, 200),
        "num_leaves": (4, 8, 16, 31),
        "min_child_samples": (20, 100),
        "max_bin": (16, 255),
    }

    def class_parameters(self) -> frozenset[str]:
        """Those of `LGBMClassifier`, which takes any of LightGBM's besides; the usual ones are known."""
        return class_parameters("lightgbm", "LGBMClassifier")

    def around(self, parameters: Parameters) -> dict[str, list[Any]]:
        """Half the learning rate, the trees or the leaves, larger leaves, coarser bins."""
        return {
            "learning_rate": [parameters["learning_rate"], parameters["learning_rate"] / 2],
            "n_estimators": [parameters["n_estimators"], max(1, parameters["n_estimators"] // 2)],
            "num_leaves": [parameters["num_leaves"], max(2, parameters["num_leaves"] // 2)],
            "min_child_samples": [parameters["min_child_samples"], 5 * parameters["min_child_samples"]],
            "max_bin": [parameters["max_bin"], 16],
        }

    def fit(self, parameters: Parameters, training: Training, random_state: int) -> Any:  # noqa: ANN401
        """An `LGBMClassifier` of the columns that are kept."""
        kind = library_class("lightgbm", "LGBMClassifier")
        X = with_categories(training.X[kept_columns(parameters, [str(column) for column in training.X.columns])])
        options = class_options(parameters)
        signs = monotone_signs(parameters, X)
        if any(signs):
            options["monotone_constraints"] = signs
        # Which way histograms are built is otherwise decided by a race, and the last digits with it.
        same_bits = {"deterministic": True, "force_col_wise": True}
        model = kind(**options, **same_bits, random_state=random_state, n_jobs=1, verbose=-1)
        return fitted(model, X, training)

    def save(self, model: Any, path: Path) -> Path:  # noqa: ANN401
        """Write LightGBM's own text file."""
        return write_text(file_in(path, ".txt"), model.booster_.model_to_string())
