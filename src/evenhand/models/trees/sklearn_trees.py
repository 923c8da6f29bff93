"""scikit-learn's tree classifiers as a `TreeEnsemble`, from the arrays of their fitted trees."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.dummy import DummyClassifier
from sklearn.exceptions import NotFittedError
from sklearn.tree import DecisionTreeClassifier
from sklearn.utils.validation import check_is_fitted

from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.models.encoders.named_columns import fitted_names
from evenhand.models.trees.ensemble import Tree, TreeEnsemble

__all__ = ["read_sklearn"]


def read_sklearn(model: Any) -> TreeEnsemble:  # noqa: ANN401 - any estimator
    """The ensemble of a fitted tree, forest or gradient boosting classifier with two classes.

    Boosted trees add log-odds. A forest averages probabilities, so its margin is the probability of the second class
    and its `output` is "probability".

    Raises
    ------
    InvalidTypeError
        If it is a different kind of estimator.
    InvalidInputError
        If it is not fitted, does not have two classes, has several outputs, or starts from a model that is not a
        constant.
    """
    from sklearn.ensemble import (
        ExtraTreesClassifier,
        GradientBoostingClassifier,
        HistGradientBoostingClassifier,
        RandomForestClassifier,
    )

    kinds = {
        DecisionTreeClassifier: _read_averaged,
        RandomForestClassifier: _read_averaged,
        ExtraTreesClassifier: _read_averaged,
        GradientBoostingClassifier: _read_gradient_boosting,
        HistGradientBoostingClassifier: _read_hist_gradient_boosting,
    }
    reader = next((reader for kind, reader in kinds.items() if isinstance(model, kind)), None)
    if reader is None:
        names = ", ".join(kind.__name__ for kind in kinds)
        raise InvalidTypeError(
            f"scikit-learn's {type(model).__name__} is not among the tree classifiers that can be read: {names}."
        )
    _check_two_classes(model)
    return reader(model)


def _check_two_classes(model: Any) -> None:  # noqa: ANN401

    name = type(model).__name__
    try:
        check_is_fitted(model)
    except NotFittedError:
        raise InvalidInputError(f"This {name} is not fitted: call its `fit` first.") from None
    if getattr(model, "n_outputs_", 1) > 1:
        raise InvalidInputError(
            f"This {name} predicts {model.n_outputs_} outputs at once; fit a binary classifier for the one to explain."
        )
    if len(model.classes_) != 2:
        raise InvalidInputError(
            f"This {name} has {len(model.classes_)} classes; tree models are explained for two, a decision and its "
            "opposite."
        )


def _read_averaged(model: Any) -> TreeEnsemble:  # noqa: ANN401
    members = getattr(model, "estimators_", [model])
    trees = [_tree(member.tree_, member.tree_.value[:, 0, 1] / len(members)) for member in members]
    words = f"scikit-learn {type(model).__name__} ({len(trees)} {'trees' if len(trees) > 1 else 'tree'})"
    return TreeEnsemble.from_trees(
        trees,
        base_margin=0.0,
        n_features=model.n_features_in_,
        input_dtype="float32",
        output="probability",
        source=words,
        feature_names=fitted_names(model),
    )


def _read_gradient_boosting(model: Any) -> TreeEnsemble:  # noqa: ANN401
    # Exponential loss fits half the log-odds: its probability is the logistic function of twice the raw score.
    scale = 2.0 if model.loss == "exponential" else 1.0
    members = model.estimators_[:, 0]
    trees = [_tree(m.tree_, scale * model.learning_rate * m.tree_.value[:, 0, 0]) for m in members]
    return TreeEnsemble.from_trees(
        trees,
        base_margin=scale * _initial_score(model),
        n_features=model.n_features_in_,
        input_dtype="float32",
        output="log-odds",
        source=f"scikit-learn GradientBoostingClassifier ({len(trees)} trees)",
        feature_names=fitted_names(model),
    )


def _initial_score(model: Any) -> float:  # noqa: ANN401
    """The raw score before any tree, the same for everyone."""
    if isinstance(model.init_, str):  # "zero"
        return 0.0
    if not isinstance(model.init_, DummyClassifier) or model.init_.strategy != "prior":
        raise InvalidInputError(
            f"This GradientBoostingClassifier starts from a {type(model.init_).__name__} (`init`), which is not part "
            "of its trees; fit it with `init=None` or `init='zero'`."
        )
    eps = np.finfo(np.float64).eps
    share = np.clip(model.init_.class_prior_[1], eps, 1 - eps)
    return float(np.log(share / (1 - share))) / (2.0 if model.loss == "exponential" else 1.0)


def _tree(tree: Any, value: NDArray[np.float64]) -> Tree:  # noqa: ANN401
    return Tree(
        feature=np.where(tree.children_left < 0, -1, tree.feature),
        threshold=tree.threshold,
        left=tree.children_left,
        right=tree.children_right,
        missing_left=tree.missing_go_to_left,
        value=value,
    )


def _read_hist_gradient_boosting(model: Any) -> TreeEnsemble:  # noqa: ANN401
    columns, categories = _columns_and_categories(model)
    trees = [_hist_tree(predictor, columns, categories) for (predictor,) in model._predictors]
    return TreeEnsemble.from_trees(
        trees,
        base_margin=float(np.ravel(model._baseline_prediction)[0]),
        n_features=model.n_features_in_,
        input_dtype="float64",
        output="log-odds",
        source=f"scikit-learn HistGradientBoostingClassifier ({len(trees)} trees)",
        feature_names=fitted_names(model),
        categories=categories,
    )


def _columns_and_categories(model: Any) -> tuple[NDArray[np.intp], dict[int, tuple[Any, ...]]]:  # noqa: ANN401
    """The table's column behind each column of the trees, which see categories first; and the categories by column."""
    if model.is_categorical_ is None:
        return np.arange(model.n_features_in_), {}
    is_categorical = np.asarray(model.is_categorical_)
    columns = np.concatenate([np.flatnonzero(is_categorical), np.flatnonzero(~is_categorical)])
    encoder = model._preprocessor.named_transformers_["encoder"]
    known = zip(np.flatnonzero(is_categorical), encoder.categories_, strict=True)
    return columns, {int(j): tuple(v for v in values.tolist() if v == v and v is not None) for j, values in known}


def _hist_tree(predictor: Any, columns: NDArray[np.intp], categories: dict[int, tuple[Any, ...]]) -> Tree:  # noqa: ANN401
    nodes = predictor.nodes
    is_leaf = nodes["is_leaf"].astype(bool)
    feature = np.where(is_leaf, -1, columns[np.where(is_leaf, 0, nodes["feature_idx"])])
    asking = np.flatnonzero(nodes["is_categorical"].astype(bool) & ~is_leaf)
    words = predictor.raw_left_cat_bitsets[nodes["bitset_idx"][asking]].astype("<u4")
    bits = np.unpackbits(words.view(np.uint8).reshape(len(asking), 32), axis=1, bitorder="little").astype(bool)
    return Tree(
        feature=feature,
        threshold=nodes["num_threshold"],
        left=nodes["left"].astype(np.int64),
        right=nodes["right"].astype(np.int64),
        missing_left=nodes["missing_go_to_left"],
        value=nodes["value"],
        left_categories={
            int(node): codes[: len(categories[int(feature[node])])] for node, codes in zip(asking, bits, strict=True)
        },
        other_left=nodes["missing_go_to_left"].astype(bool),
    )
