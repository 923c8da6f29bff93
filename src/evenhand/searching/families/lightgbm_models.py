"""Boosted trees of LightGBM, on the table's columns, so the native file needs no companion."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from evenhand.models.trees import TreeEnsemble
from evenhand.models.trees.libraries import tree_library
from evenhand.searching.families.family import (
    EstimatorFamily,
    Parameters,
    Reading,
    Training,
    class_options,
    class_parameters,
    file_in,
    fitted,
    given_parameters,
    kept_columns,
    last_step,
    library_class,
    monotone_signs,
    plain_value,
    signs_by_input,
    with_categories,
)
from evenhand.system.files import write_text

# Names of parameters in LightGBM's files, and in its classifier.
_ALIASES = {
    "num_iterations": "n_estimators",
    "min_data_in_leaf": "min_child_samples",
    "min_sum_hessian_in_leaf": "min_child_weight",
    "lambda_l1": "reg_alpha",
    "lambda_l2": "reg_lambda",
    "min_gain_to_split": "min_split_gain",
    "bagging_fraction": "subsample",
    "bagging_freq": "subsample_freq",
    "feature_fraction": "colsample_bytree",
    "scale_pos_weight": "scale_pos_weight",
}
_USUAL = {
    "min_child_weight": 0.001,
    "reg_alpha": 0,
    "min_split_gain": 0,
    "subsample": 1,
    "subsample_freq": 0,
    "colsample_bytree": 1,
    "scale_pos_weight": 1,
}


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
        """The parameters of `LGBMClassifier`, and the usual ones of LightGBM itself, all of which it accepts."""
        return class_parameters("lightgbm", "LGBMClassifier")

    def read(self, model: Any, text: str = "") -> Reading | None:
        """Read an `LGBMClassifier`, a `Booster`, or the trees of a file and its text."""
        model = last_step(model)
        if isinstance(model, TreeEnsemble):
            return _of_text(text, model.n_trees) if model.source.startswith("LightGBM") else None
        if tree_library(model) != "lightgbm":
            return None
        if not hasattr(model, "booster_"):
            return _of_text(model.model_to_string(), model.current_iteration())
        given, notes = given_parameters(model, self.fixed)
        parameters = {_ALIASES.get(name, name): value for name, value in given.items()}
        signs = signs_by_input(model.get_params().get("monotone_constraints"))
        if model.best_iteration_:
            parameters["n_estimators"] = model.best_iteration_
            notes += (f"Your model stopped early: its {model.best_iteration_} rounds are kept.",)
        return Reading(parameters, signs, notes)

    def around(self, parameters: Parameters) -> dict[str, list[Any]]:
        """Half the learning rate, the trees or the leaves, larger leaves, coarser bins."""
        return {
            "learning_rate": [parameters["learning_rate"], parameters["learning_rate"] / 2],
            "n_estimators": [parameters["n_estimators"], max(1, parameters["n_estimators"] // 2)],
            "num_leaves": [parameters["num_leaves"], max(2, parameters["num_leaves"] // 2)],
            "min_child_samples": [parameters["min_child_samples"], 5 * parameters["min_child_samples"]],
            "max_bin": [parameters["max_bin"], min(16, parameters["max_bin"])],
        }

    def fit(self, parameters: Parameters, training: Training, random_state: int) -> Any:
        """An `LGBMClassifier` on the columns that are kept."""
        kind = library_class("lightgbm", "LGBMClassifier")
        X = with_categories(training.X[kept_columns(parameters, [str(column) for column in training.X.columns])])
        options = class_options(parameters)
        signs = monotone_signs(parameters, X)
        if any(signs):
            options["monotone_constraints"] = signs
        # Otherwise LightGBM times two ways to build histograms and takes the faster, which changes the last digits.
        same_bits = {"deterministic": True, "force_col_wise": True}
        model = kind(**options, **same_bits, random_state=random_state, n_jobs=1, verbose=-1)
        return fitted(model, X, training)

    def save(self, model: Any, path: Path) -> Path:
        """Write LightGBM's native text file."""
        return write_text(file_in(path, ".txt"), model.booster_.model_to_string())


def _of_text(text: str, n_trees: int) -> Reading:
    """The parameters that LightGBM writes after its trees."""
    written = dict(re.findall(r"^\[(\w+): (.*)\]$", text, re.MULTILINE))
    kept = {name: plain_value(written[alias]) for alias, name in _ALIASES.items() if alias in written}
    kept |= {name: plain_value(written[name]) for name in LightgbmModels.usual if name in written}
    parameters = {name: value for name, value in kept.items() if value != _USUAL.get(name)}
    parameters["n_estimators"] = n_trees
    return Reading(parameters, signs_by_input(written.get("monotone_constraints")))
