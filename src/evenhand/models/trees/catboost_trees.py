"""CatBoost models of numeric features as a `TreeEnsemble`, from the JSON that `save_model(format="json")` documents."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.models.trees.ensemble import Tree, TreeEnsemble, unrolled

__all__ = ["check_loss", "read_catboost", "takes_words", "word_features"]

# Losses whose raw formula value is log-odds.
LOGISTIC = ("Logloss", "CrossEntropy")


def read_catboost(model: Any) -> TreeEnsemble:  # noqa: ANN401
    """The ensemble of a `CatBoostClassifier`, or a `CatBoost` with a logistic loss, with numeric features.

    Raises
    ------
    InvalidTypeError
        If it is not a CatBoost model.
    InvalidInputError
        If it is not fitted, has features that are not numeric, or a loss that is not logistic.
    """
    import catboost

    name = type(model).__name__
    if not isinstance(model, catboost.CatBoost):
        raise InvalidTypeError(f"For CatBoost, a fitted model such as CatBoostClassifier is expected, got {name}.")
    if not model.is_fitted():
        raise InvalidInputError(f"This {name} is not fitted: call its `fit` first.")
    _check_numeric(model, name)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.json"
        model.save_model(str(path), format="json")
        stored = json.loads(path.read_text("utf-8"))
    names = [str(feature) for feature in model.feature_names_]
    return _read_stored(stored, name, names)


def _read_stored(stored: dict[str, Any], name: str, names: list[str]) -> TreeEnsemble:
    check_loss(stored["model_info"].get("params", {}).get("loss_function", {}).get("type", "unknown"), name)
    features = stored["features_info"]["float_features"]
    column = {feature["feature_index"]: feature["flat_feature_index"] for feature in features}
    if len(set(column.values())) < len(features):
        raise InvalidInputError(f"The file of this {name} was altered: it gives two features the same place or number.")
    # A missing value fails `x > border`, unless the feature's missing values count as larger than any number.
    missing_left = {j: feature["nan_value_treatment"] != "AsTrue" for j, feature in zip(column, features, strict=True)}
    scale, (bias,) = stored["scale_and_bias"]
    if "oblivious_trees" in stored:
        trees = [_oblivious_tree(tree, column, missing_left, scale) for tree in stored["oblivious_trees"]]
    else:
        trees = [_tree(tree, column, missing_left, scale) for tree in stored["trees"]]
    return TreeEnsemble.from_trees(
        trees,
        base_margin=float(bias),
        n_features=len(names),
        input_dtype="float32",
        output="log-odds",
        source=f"CatBoost {name} ({len(trees)} trees)",
        feature_names=None if names == [str(j) for j in range(len(names))] else names,
    )


def word_features(model: Any) -> list[int]:  # noqa: ANN401 - a fitted CatBoost model
    """Positions of the features that are categories or texts."""
    return [*model.get_cat_feature_indices(), *model.get_text_feature_indices()]


def takes_words(model: Any) -> bool:  # noqa: ANN401 - a fitted CatBoost model
    """Whether a model can be audited, but not by its trees.

    CatBoost turns categories and texts into statistics of the training data that do not belong to a single input, so
    its trees cannot be walked input by input.
    """
    return bool(word_features(model)) and not model.get_embedding_feature_indices()


def _check_numeric(model: Any, name: str) -> None:  # noqa: ANN401
    kinds = {
        "categorical": model.get_cat_feature_indices(),
        "text": model.get_text_feature_indices(),
        "embedding": model.get_embedding_feature_indices(),
    }
    for word, features in kinds.items():
        if features:
            raise InvalidInputError(
                f"This {name} has {len(features)} {word} feature{'s' if len(features) > 1 else ''}, which CatBoost "
                "turns into statistics of the training data that belong to no single input; audit the model itself, "
                'with its table and attribution="sampled_shapley", or fit it on encoded, numeric features.'
            )


def check_loss(loss: str, name: str) -> None:
    """Reject a model whose raw value is not log-odds."""
    if loss not in LOGISTIC:
        raise InvalidInputError(
            f"This {name} was fitted with the loss {loss!r}, whose raw value is not the log-odds of a decision; fit it "
            f"with one of {', '.join(LOGISTIC)}."
        )


def _oblivious_tree(tree: dict[str, Any], column: dict[int, int], missing_left: dict[int, bool], scale: float) -> Tree:
    """A tree that asks the same question at each level, with a node for each place where it is asked."""
    splits = tree["splits"] or []
    depth = len(splits)
    # Nodes in heap order, the last split at the root: the leaves are then in the order of `leaf_values`.
    question = np.repeat(np.arange(depth)[::-1], 2 ** np.arange(depth))
    n_inner, n_leaves = len(question), 2**depth
    asked = [split["float_feature_index"] for split in splits]

    def by_node(values: list[Any], at_leaf: float) -> Any:  # noqa: ANN401 - as the values
        return np.concatenate([np.asarray(values)[question] if depth else [], np.full(n_leaves, at_leaf)])

    inner = np.arange(n_inner)
    no_child = np.full(n_leaves, -1)
    return Tree(
        feature=by_node([column[j] for j in asked], -1).astype(np.int64),
        threshold=by_node([np.float32(split["border"]) for split in splits], 0.0),
        left=np.concatenate([2 * inner + 1, no_child]),
        right=np.concatenate([2 * inner + 2, no_child]),
        missing_left=by_node([missing_left[j] for j in asked], 0).astype(bool),
        value=np.concatenate([np.zeros(n_inner), scale * np.asarray(tree["leaf_values"])]),
    )


def _tree(root: dict[str, Any], column: dict[int, int], missing_left: dict[int, bool], scale: float) -> Tree:
    nodes, left, right = unrolled(root, "split", ("left", "right"))
    splits = [node.get("split") for node in nodes]
    return Tree(
        feature=np.array([-1 if split is None else column[split["float_feature_index"]] for split in splits]),
        threshold=np.array([0.0 if split is None else np.float32(split["border"]) for split in splits]),
        left=left,
        right=right,
        missing_left=np.array([split is not None and missing_left[split["float_feature_index"]] for split in splits]),
        value=scale * np.array([0.0 if "split" in node else node["value"] for node in nodes]),
    )
