"""XGBoost models as a `TreeEnsemble`, from the JSON that `Booster.save_raw` documents."""

from __future__ import annotations

import json
import math
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.models.trees.ensemble import Tree, TreeEnsemble, flags_of

__all__ = ["read_xgboost"]

# Objectives whose margin is log-odds.
LOGISTIC = ("binary:logistic", "reg:logistic", "binary:logitraw")


def read_xgboost(model: Any) -> TreeEnsemble:  # noqa: ANN401 - an estimator or a Booster
    """The ensemble of an `XGBClassifier` or `Booster` with a logistic objective.

    As in `predict`, an estimator stopped early uses its trees up to the best iteration, and a `Booster` all of them.

    Raises
    ------
    InvalidTypeError
        If it is neither an estimator nor a Booster.
    InvalidInputError
        If it is not fitted, is linear or empty, has several outputs, or an objective that is not logistic.
    """
    import xgboost

    missing, n_rounds = math.nan, None
    if isinstance(model, xgboost.XGBModel):
        if not model.__sklearn_is_fitted__():
            raise InvalidInputError(f"This {type(model).__name__} is not fitted: call its `fit` first.")
        booster = model.get_booster()
        missing = float(math.nan if model.missing is None else model.missing)
        if booster.attr("best_iteration") is not None:
            n_rounds = model.best_iteration + 1
    elif isinstance(model, xgboost.Booster):
        booster = model
    else:
        raise InvalidTypeError(
            f"For XGBoost, an estimator such as XGBClassifier or a Booster is expected, got {type(model).__name__}."
        )
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    return _read_learner(learner, type(model).__name__, missing, n_rounds)


def _read_learner(learner: dict[str, Any], name: str, missing: float, n_rounds: int | None) -> TreeEnsemble:
    _check_binary(learner, name)
    booster = learner["gradient_booster"]
    forest = booster["gbtree"]["model"] if booster["name"] == "dart" else booster["model"]
    if not forest["trees"]:
        raise InvalidInputError(f"This {name} has no trees: train it for at least one round.")
    starts = forest["iteration_indptr"]
    n_trees = starts[-1] if n_rounds is None else starts[min(n_rounds, len(starts) - 1)]
    weights = booster.get("weight_drop", [1.0] * len(forest["trees"]))
    trees = [_tree(t, weight) for t, weight in zip(forest["trees"][:n_trees], weights[:n_trees], strict=True)]
    return TreeEnsemble.from_trees(
        trees,
        base_margin=_base_margin(learner),
        n_features=int(learner["learner_model_param"]["num_feature"]),
        input_dtype="float32",
        output="log-odds",
        source=f"XGBoost {name} ({len(trees)} trees)",
        feature_names=learner["feature_names"] or None,
        missing_value=missing,
        categories=_categories(forest.get("cats", {})),
        takes_unknown=False,
    )


def _check_binary(learner: dict[str, Any], name: str) -> None:
    parameters, booster = learner["learner_model_param"], learner["gradient_booster"]["name"]
    if booster not in ("gbtree", "dart"):
        raise InvalidInputError(
            f"This {name} was fitted with booster={booster!r}, which has no trees; gbtree and dart can be read."
        )
    n_outputs = max(int(parameters["num_class"]), int(parameters.get("num_target", 1)))
    if n_outputs > 1:
        raise InvalidInputError(
            f"This {name} has {n_outputs} classes or outputs; tree models are explained for two classes, a decision "
            "and its opposite."
        )
    objective = learner["objective"]["name"]
    if objective not in LOGISTIC:
        raise InvalidInputError(
            f"This {name} was fitted with the objective {objective!r}, whose margin is not the log-odds of a decision; "
            f"fit it with one of {', '.join(LOGISTIC)}."
        )


def _base_margin(learner: dict[str, Any]) -> float:
    """The margin before any tree, from a probability (or a margin, if that is what the objective outputs)."""
    base_score = np.float32(learner["learner_model_param"]["base_score"].strip("[]"))  # "[5E-1]" from 3.1 on
    if learner["objective"]["name"] == "binary:logitraw":
        return float(base_score)
    one, reach = np.float32(1), np.float32(1e-6)  # the same steps as XGBoost, in its precision
    return float(-np.log(one / np.clip(base_score, reach, one - reach) - one))


def _tree(tree: dict[str, Any], weight: float) -> Tree:
    left, right = np.asarray(tree["left_children"]), np.asarray(tree["right_children"])
    condition = np.asarray(tree["split_conditions"], dtype=np.float32)
    missing_left = np.asarray(tree["default_left"], dtype=bool)
    is_leaf = left < 0
    # XGBoost sends the categories of a set to the right; `Tree` sends them to the left.
    sets = _category_sets(tree)
    turned = np.zeros(len(left), dtype=bool)
    turned[list(sets)] = True
    return Tree(
        feature=np.where(is_leaf, -1, tree["split_indices"]),
        threshold=np.nextafter(condition, np.float32(-np.inf)),
        left=np.where(turned, right, left),
        right=np.where(turned, left, right),
        missing_left=missing_left ^ turned,
        value=np.where(is_leaf, condition, np.float32(0)) * np.float32(weight),
        left_categories=sets,
    )


def _category_sets(tree: dict[str, Any]) -> dict[int, NDArray[np.bool_]]:
    """The codes in each categorical node's set, as one flag per code up to the largest."""
    parts = zip(tree["categories_nodes"], tree["categories_segments"], tree["categories_sizes"], strict=True)
    return {int(node): flags_of(tree["categories"][start : start + size]) for node, start, size in parts}


def _categories(stored: dict[str, Any]) -> dict[int, tuple[Any, ...]]:
    """Values of the categories by feature, which XGBoost stores from 3.1 on if it was fitted on a dataframe."""
    found: dict[int, tuple[Any, ...]] = {}
    for j, column in enumerate(stored.get("enc", [])):
        if "offsets" in column:
            text, ends = bytes(v % 256 for v in column["values"]), column["offsets"]
            values = tuple(text[a:b].decode() for a, b in pairwise(ends))
        else:
            values = tuple(column["values"])
        if values:
            found[j] = values
    return found
