"""LightGBM models as a `TreeEnsemble`, from the dictionary that `Booster.dump_model` documents."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np

from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.models.trees.ensemble import Tree, TreeEnsemble, flags_of, unrolled

__all__ = ["read_lightgbm", "sigmoid_of"]

# LightGBM treats a value this close to zero as zero, and splits zero from negative values at exactly this distance.
ZERO_REACH = float(np.float32(1e-35))

_MOST_WAYS = 10_000


def read_lightgbm(model: Any) -> TreeEnsemble:  # noqa: ANN401 - an estimator or a Booster
    """The ensemble of an `LGBMClassifier` or `Booster` with a binary objective, up to its best iteration.

    Raises
    ------
    InvalidTypeError
        If it is neither an estimator nor a Booster.
    InvalidInputError
        If it is not fitted, has several outputs, an objective that is not logistic, or linear models in its leaves.
    """
    import lightgbm

    name = type(model).__name__
    if isinstance(model, lightgbm.LGBMModel):
        if not model.__sklearn_is_fitted__():
            raise InvalidInputError(f"This {name} is not fitted: call its `fit` first.")
        booster = model.booster_
    elif isinstance(model, lightgbm.Booster):
        booster = model
    else:
        raise InvalidTypeError(
            f"For LightGBM, an estimator such as LGBMClassifier or a Booster is expected, got {name}."
        )
    return _read_dump(booster.dump_model(), name)


def _read_dump(dump: dict[str, Any], name: str) -> TreeEnsemble:
    if dump["num_tree_per_iteration"] > 1:
        raise InvalidInputError(
            f"This {name} has {dump['num_tree_per_iteration']} classes; tree models are explained for two, a decision "
            "and its opposite."
        )
    # LightGBM's probability is the logistic function of `sigmoid` times its raw score.
    scale = _sigmoid(dump.get("objective", "none"), name)
    if dump["average_output"]:
        scale /= len(dump["tree_info"])
    trees = [_tree(tree["tree_structure"], scale, name) for tree in dump["tree_info"]]
    names = dump["feature_names"]
    return TreeEnsemble.from_trees(
        trees,
        base_margin=0.0,
        n_features=dump["max_feature_idx"] + 1,
        input_dtype="float64",
        output="log-odds",
        source=f"LightGBM {name} ({len(trees)} trees)",
        feature_names=None if names == [f"Column_{j}" for j in range(len(names))] else names,
        categories=_categories(dump),
    )


def sigmoid_of(booster: Any) -> float:  # noqa: ANN401 - a Booster
    """The factor that converts LightGBM's raw score to log-odds."""
    return _sigmoid(booster.dump_model(num_iteration=1).get("objective", "none"), type(booster).__name__)


def _sigmoid(objective: str, name: str) -> float:
    kind, *settings = objective.split()
    if kind == "binary":
        return float(dict(setting.split(":") for setting in settings if ":" in setting).get("sigmoid", 1.0))
    if kind == "cross_entropy":
        return 1.0
    raise InvalidInputError(
        f"This {name} was fitted with the objective {kind!r}, whose raw score is not the log-odds of a decision; fit "
        "it with 'binary' or 'cross_entropy'."
    )


def _tree(root: dict[str, Any], scale: float, name: str) -> Tree:
    nodes, left, right = unrolled(root, "split_feature", ("left_child", "right_child"))
    if any("leaf_const" in node for node in nodes):
        raise InvalidInputError(
            f"This {name} has linear models in its leaves (`linear_tree`), which are not constant; fit it without."
        )
    asks_category = [node.get("decision_type") == "==" for node in nodes]
    numbers = zip(nodes, asks_category, strict=True)
    threshold = np.array([0.0 if category else node.get("threshold", 0.0) for node, category in numbers])
    missing = np.array([node.get("missing_type", "NaN") for node in nodes])
    stated = np.array([bool(node.get("default_left", False)) for node in nodes])
    return Tree(
        feature=np.array([node.get("split_feature", -1) for node in nodes]),
        threshold=np.where(threshold == -ZERO_REACH, np.nextafter(-ZERO_REACH, -1.0), threshold),
        left=left,
        right=right,
        # Without missing values in training, a missing value is treated as zero; in a set of categories, as not in it.
        missing_left=np.where(asks_category, False, np.where(missing == "None", threshold >= 0.0, stated)),
        value=scale * np.array([node.get("leaf_value", 0.0) for node in nodes]),
        left_categories={
            i: flags_of([int(code) for code in nodes[i]["threshold"].split("||")])
            for i in np.flatnonzero(asks_category).tolist()
        },
        zero_is_missing=(missing == "Zero") & ~np.array(asks_category),
    )


def _categories(dump: dict[str, Any]) -> dict[int, tuple[Any, ...]]:
    """Values of the categories by feature, which LightGBM stores if it was fitted on a pandas table.

    The values are in column order but without names, and nothing says whether columns that it found useless (constant,
    or with rare categories) were categories. An assignment is used if it is the only one that has a value for every
    code.
    """
    stored = [tuple(values) for values in dump.get("pandas_categorical") or []]
    names, infos = dump["feature_names"], dump["feature_infos"]
    codes = {j: infos[name]["values"] for j, name in enumerate(names) if infos.get(name, {}).get("values")}
    useless = [j for j, name in enumerate(names) if name not in infos]
    n_more = len(stored) - len(codes)
    if n_more < 0 or math.comb(len(useless), n_more) > _MOST_WAYS:
        return {}
    ways = [dict(zip(sorted([*codes, *more]), stored, strict=True)) for more in itertools.combinations(useless, n_more)]
    ways = [way for way in ways if all(max(seen) < len(way[j]) for j, seen in codes.items())]
    if not ways or any(way[j] != ways[0][j] for way in ways for j in codes):
        return {}
    return {j: values for j, values in ways[0].items() if all(way.get(j) == values for way in ways)}
