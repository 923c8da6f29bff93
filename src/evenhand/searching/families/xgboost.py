r"""Boosted trees of XGBoost, on the table's columns, so the native file needs no companion.

The learning rate and the penalty that XGBoost trained with, worked out from the JSON file of a model.

The file does not contain them. It does contain the sum of hessians :math:`H` of every node and, for a node that splits,
the weight :math:`w = -G / (H + \lambda)` that it would have as a leaf; a leaf has the value
:math:`v = -\eta G / (H + \lambda)`. The gradients :math:`G` of two leaves add up to those of the node above them, so

.. math:: v_l (H_l + \lambda) + v_r (H_r + \lambda) = \eta w (H_l + H_r + \lambda)

holds at every node above two leaves, except those that a monotone constraint has moved.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from evenhand.arrays import Floats
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.validation import text_columns
from evenhand.models.trees import TreeEnsemble
from evenhand.models.trees.libraries import tree_library
from evenhand.report.formatting import listed
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
    signs_in_trees,
    with_categories,
)
from evenhand.system.files import write_atomically

_FEWEST_NODES = 8
_EXACT = 1e-6  # of the largest term: values are written in float32
_LEAST_SHARE = 0.2  # of nodes that agree to six digits; by chance alone, three of them agree
_ROUNDS = 50


def learning_of(text: str) -> tuple[float, float] | None:
    """Learning rate and L2 penalty of a model, from its JSON; None if too few nodes agree on them.

    Parameters
    ----------
    text
        The file.
    """
    try:
        booster = json.loads(text)["learner"]["gradient_booster"]
        terms = np.concatenate([_terms(tree) for tree in booster["model"]["trees"]])
    except (ValueError, KeyError, TypeError, IndexError):
        return None
    scale = np.abs(terms).max(initial=0.0)
    if len(terms) < _FEWEST_NODES or scale == 0:
        return None
    off = np.ones(len(terms))
    for _ in range(_ROUNDS):  # least absolute deviations, which nodes that disagree do not sway
        root = np.sqrt(1 / np.maximum(off, _EXACT * scale))[:, None]
        known, *_ = np.linalg.lstsq(root * terms[:, :3], root[:, 0] * terms[:, 3], rcond=None)
        off = np.abs(terms[:, :3] @ known - terms[:, 3])
    agree = off <= _EXACT * scale
    if agree.sum() < max(_FEWEST_NODES, _LEAST_SHARE * len(terms)):
        return None
    penalty, rate, _ = np.linalg.lstsq(terms[agree, :3], terms[agree, 3], rcond=None)[0].tolist()
    return (_rounded(rate), _rounded(max(penalty, 0.0))) if 0 < rate <= 1 else None


def _terms(tree: dict[str, Any]) -> Floats:
    """Coefficients of the penalty, the rate and their product at each node above two leaves, and their sum."""
    left, right = np.asarray(tree["left_children"]), np.asarray(tree["right_children"])
    value, hessian, weight = (np.asarray(tree[name]) for name in ("split_conditions", "sum_hessian", "base_weights"))
    above = np.flatnonzero(left >= 0)
    above = above[(left[left[above]] < 0) & (left[right[above]] < 0)]
    a, b = left[above], right[above]
    together = value[a] * hessian[a] + value[b] * hessian[b]
    return np.stack([-(value[a] + value[b]), weight[above] * hessian[above], weight[above], together], axis=1)


def _rounded(value: float) -> float:
    """The number that someone wrote; of a small one, four digits after the decimal point are known."""
    return float(f"{round(value, 4):.4g}")


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
        """The parameters of `XGBClassifier`."""
        return class_parameters("xgboost", "XGBClassifier")

    def read(self, model: Any, text: str = "") -> Reading | None:
        """Read an `XGBClassifier`, a `Booster`, or the trees of a file, which does not say how they were grown."""
        model = last_step(model)
        if isinstance(model, TreeEnsemble):
            return _of_trees(model, text) if model.source.startswith("XGBoost") else None
        if tree_library(model) != "xgboost":
            return None
        if not hasattr(model, "get_booster"):
            return _of_booster(model)
        parameters, notes = given_parameters(model, self.fixed)
        signs = signs_by_input(model.get_params()["monotone_constraints"])
        if model.missing is not None and not math.isnan(model.missing):
            notes += (f"Your model treats {model.missing:g} as a missing value; candidates do not.",)
        if model.get_booster().attr("best_iteration") is not None:
            parameters["n_estimators"] = model.best_iteration + 1
            notes += (f"Your model stopped early: its {parameters['n_estimators']} rounds are kept.",)
        return Reading(parameters, signs, notes)

    def around(self, parameters: Parameters) -> dict[str, list[Any]]:
        """Half the learning rate or the trees, shallower trees, larger leaves, coarser bins."""
        depth = parameters["max_depth"] or 6
        return {
            "learning_rate": [parameters["learning_rate"], parameters["learning_rate"] / 2],
            "n_estimators": [parameters["n_estimators"], max(1, parameters["n_estimators"] // 2)],
            "max_depth": [parameters["max_depth"], max(1, depth - 2)],
            "min_child_weight": [parameters["min_child_weight"], 10 * max(1.0, parameters["min_child_weight"])],
            "max_bin": [parameters["max_bin"], min(16, parameters["max_bin"])],
        }

    def fit(self, parameters: Parameters, training: Training, random_state: int) -> Any:
        """An `XGBClassifier` on the columns that are kept."""
        kind = library_class("xgboost", "XGBClassifier")
        X = with_categories(training.X[kept_columns(parameters, [str(column) for column in training.X.columns])])
        options = class_options(parameters)
        signs = monotone_signs(parameters, X)
        if any(signs):
            options["monotone_constraints"] = tuple(signs)
        if text_columns(X):
            options["enable_categorical"] = True
        return fitted(kind(**options, random_state=random_state, n_jobs=1), X, training)

    def save(self, model: Any, path: Path) -> Path:
        """Write XGBoost's native file: JSON, or binary if the path ends in ``.ubj``.

        Raises
        ------
        InvalidInputError
            If the model has categories and this version of XGBoost does not write them.
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


def _of_booster(booster: Any) -> Reading:
    """What a `Booster` remembers about its training."""
    usual = {**XgboostModels.usual, "gamma": 0, "reg_alpha": 0, "max_leaves": 0, "grow_policy": "depthwise"}
    usual |= {"colsample_bylevel": 1, "colsample_bynode": 1, "max_delta_step": 0}
    learner = json.loads(booster.save_config())["learner"]
    trained = learner["gradient_booster"]["tree_train_param"]
    known = {name: plain_value(trained[name]) for name in usual if name in trained}
    parameters = {name: value for name, value in known.items() if value != usual[name]}
    parameters["n_estimators"] = booster.num_boosted_rounds()
    return Reading(parameters, signs_by_input(trained.get("monotone_constraints")))


def _of_trees(ensemble: TreeEnsemble, text: str) -> Reading:
    """What the trees of a file show: their number and depth, and what follows from their leaves."""
    signs = signs_in_trees(ensemble)
    parameters: dict[str, Any] = {"n_estimators": ensemble.n_trees, "max_depth": ensemble.max_depth}
    found = learning_of(text)
    if found is not None:
        parameters["learning_rate"], parameters["reg_lambda"] = found
    known = (
        "number and depth of trees"
        if found is None
        else f"number and depth of trees, the learning rate of {found[0]:g} and the L2 penalty of {found[1]:g}"
    )
    held = f" {listed([_name(ensemble, j) for j in signs])} stay monotone, as in all of its trees." if signs else ""
    told = (
        f"An XGBoost file does not say how its model was trained. The search takes the {known} from its trees.{held} "
        "All other parameters have XGBoost's defaults; to change them, pass the model itself or a `space`."
    )
    return Reading(parameters, signs, (told,))


def _name(ensemble: TreeEnsemble, place: str | int) -> str:
    names = ensemble.feature_names
    return f"column {place}" if names is None or isinstance(place, str) else names[place]


def _version() -> str:
    import xgboost

    return str(xgboost.__version__)
