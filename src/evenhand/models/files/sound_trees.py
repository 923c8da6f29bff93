"""scikit-learn's fitted trees, checked before anything walks them.

scikit-learn follows a tree's nodes and looks up their columns without checking either: an altered file could make it
read memory outside its arrays, or loop forever.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.ensemble._gb import BaseGradientBoosting
from sklearn.ensemble._hist_gradient_boosting.common import PREDICTOR_RECORD_DTYPE
from sklearn.ensemble._hist_gradient_boosting.gradient_boosting import BaseHistGradientBoosting
from sklearn.ensemble._hist_gradient_boosting.predictor import TreePredictor
from sklearn.tree import BaseDecisionTree
from sklearn.tree._tree import Tree

from evenhand.exceptions import InvalidInputError
from evenhand.models.trees.ensemble import levels

__all__ = ["check_trees", "held_by"]


def check_trees(model: object) -> None:
    """Refuse a model in which a tree of scikit-learn is damaged, or is where it cannot be checked.

    Parameters
    ----------
    model
        Any estimator, with all its parts.

    Raises
    ------
    InvalidInputError
        If nodes do not form a tree, split on columns that the model does not have or on categories, or do not belong
        to a model; or if a method of a tree model was replaced.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> tree = DecisionTreeClassifier().fit([[0.0], [1.0]], [0, 1])
    >>> check_trees(tree)
    >>> tree.n_features_in_ = 0
    >>> check_trees(tree)
    Traceback (most recent call last):
    ...
    evenhand.exceptions.InvalidInputError: The trees of the DecisionTreeClassifier are damaged: ...
    """
    trees: list[Any] = []
    checked: set[int] = set()
    for part in _parts(model):
        if isinstance(part, Tree | TreePredictor):
            trees.append(part)
            continue
        if isinstance(part, BaseDecisionTree):
            members, is_sound = [getattr(part, "tree_", None)], _is_sound_tree(part)
        elif isinstance(part, BaseHistGradientBoosting):
            members = [p for stage in getattr(part, "_predictors", []) for p in stage]
            is_sound = _is_sound_histogram_model(part, members)
        elif isinstance(part, BaseGradientBoosting):
            members, is_sound = [], _is_sound_boosting(part)
        else:
            continue
        if not is_sound or _has_replaced_methods(part) or any(_has_replaced_methods(member) for member in members):
            raise InvalidInputError(
                f"The trees of the {type(part).__name__} are damaged: their nodes do not form trees of numbers on its "
                "columns."
            )
        checked |= {id(member) for member in members}
    stray = sum(id(tree) not in checked for tree in trees)
    if stray:
        raise InvalidInputError(
            f"{stray} of the model's {len(trees)} trees do not belong to a scikit-learn model and cannot be checked."
        )


def _parts(model: object) -> Iterator[object]:
    """The model and all objects in it, each once."""
    seen: set[int] = set()
    waiting = [model]
    while waiting:
        part = waiting.pop()
        if id(part) in seen or isinstance(part, type | str | bytes | int | float | None):
            continue
        seen.add(id(part))
        yield part
        waiting.extend(held_by(part))


def held_by(part: object) -> Iterable[object]:
    """The contents of an object: entries of containers, or attributes."""
    if isinstance(part, np.ndarray):
        return part.ravel().tolist() if part.dtype == object else ()
    if isinstance(part, dict):
        return part.values()
    if isinstance(part, list | tuple | set):
        return part
    attributes = getattr(part, "__dict__", None)
    return attributes.values() if isinstance(attributes, dict) else ()


def _has_replaced_methods(part: object) -> bool:
    """Whether an attribute replaces a method, which may be the one that checks the columns."""
    return any(callable(getattr(type(part), name, None)) for name in getattr(part, "__dict__", ()))


def _n_columns(model: Any) -> int:  # noqa: ANN401 - a tree model of scikit-learn
    found = vars(model).get("n_features_in_")
    return int(found) if isinstance(found, int | np.integer) else 0


def _is_sound_tree(model: Any) -> bool:  # noqa: ANN401 - a decision tree

    tree = getattr(model, "tree_", None)
    if tree is None:  # not fitted
        return True
    if type(tree) is not Tree or not 1 <= tree.node_count <= tree.capacity or 0 in tree.value.shape:
        return False
    is_leaf = tree.children_left == -1
    if not _is_tree(tree.children_left, tree.children_right, tree.feature, is_leaf, _n_columns(model)):
        return False
    depth = sum(1 for _ in levels(np.zeros(1, dtype=np.int64), tree.children_left, tree.children_right, is_leaf)) - 1
    return bool(tree.max_depth >= depth)


def _is_sound_histogram_model(model: Any, predictors: list[Any]) -> bool:  # noqa: ANN401
    if getattr(model, "_preprocessor", None) is not None or getattr(model, "_in_fit", False):
        return not predictors
    return all(_is_sound_predictor(predictor, _n_columns(model)) for predictor in predictors)


def _is_sound_predictor(predictor: Any, n_columns: int) -> bool:  # noqa: ANN401

    nodes = getattr(predictor, "nodes", None)
    if type(predictor) is not TreePredictor or type(nodes) is not np.ndarray:
        return False
    if nodes.dtype != PREDICTOR_RECORD_DTYPE or nodes.ndim != 1:
        return False
    is_leaf = nodes["is_leaf"] != 0
    left, right, feature = (nodes[name].astype(np.int64) for name in ("left", "right", "feature_idx"))
    return not nodes["is_categorical"][~is_leaf].any() and _is_tree(left, right, feature, is_leaf, n_columns)


def _is_sound_boosting(model: Any) -> bool:  # noqa: ANN401 - gradient boosting, whose members are checked as trees

    members = getattr(model, "estimators_", None)
    if members is None:  # not fitted
        return True
    return (
        type(members) is np.ndarray
        and members.ndim == 2
        and members.shape[1] == 1  # one score per person, as two classes have
        and vars(model).get("n_trees_per_iteration_", 1) == 1
        and not getattr(getattr(model, "_loss", None), "is_multiclass", False)
        and all(isinstance(m, BaseDecisionTree) and _n_columns(m) == _n_columns(model) for m in members.flat)
    )


def _is_tree(
    left: NDArray[np.integer[Any]],
    right: NDArray[np.integer[Any]],
    feature: NDArray[np.integer[Any]],
    is_leaf: NDArray[np.bool_],
    n_columns: int,
) -> bool:
    """Whether every child comes after its only parent, as scikit-learn numbers them."""
    asking = np.flatnonzero(~is_leaf)
    children = np.concatenate([left[asking], right[asking]])
    return bool(
        len(left) > 0
        and (children > np.concatenate([asking, asking])).all()
        and (children < len(left)).all()
        and len(np.unique(children)) == len(children)
        and ((feature[asking] >= 0) & (feature[asking] < n_columns)).all()
    )
