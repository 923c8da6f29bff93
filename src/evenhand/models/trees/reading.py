"""The library of a model's trees, and the reader for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from evenhand.exceptions import InvalidTypeError
from evenhand.models.trees.catboost_trees import read_catboost
from evenhand.models.trees.ensemble import TreeEnsemble
from evenhand.models.trees.lightgbm_trees import read_lightgbm
from evenhand.models.trees.sklearn_trees import read_sklearn
from evenhand.models.trees.xgboost_trees import read_xgboost

__all__ = ["read_trees", "tree_library"]

READERS: dict[str, Callable[[Any], TreeEnsemble]] = {
    "xgboost": read_xgboost,
    "lightgbm": read_lightgbm,
    "catboost": read_catboost,
    "sklearn": read_sklearn,
}
# scikit-learn also has other models; its trees are here.
SKLEARN_TREES = ("sklearn.tree", "sklearn.ensemble._forest", "sklearn.ensemble._gb", "sklearn.ensemble._hist")


def tree_library(model: Any) -> str | None:  # noqa: ANN401 - any object
    """The library of `model`'s trees, None if it is not a tree model; nothing is imported to check.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> tree_library(DecisionTreeClassifier()), tree_library(LogisticRegression())
    ('sklearn', None)
    """
    modules = [kind.__module__ for kind in type(model).__mro__]
    for library in ("xgboost", "lightgbm", "catboost", "_catboost"):
        if any(module.split(".")[0] == library for module in modules):
            return library.removeprefix("_")
    return "sklearn" if any(module.startswith(SKLEARN_TREES) for module in modules) else None


def read_trees(model: Any) -> TreeEnsemble:  # noqa: ANN401 - any object
    """The trees of a fitted binary classifier of XGBoost, LightGBM, CatBoost or scikit-learn.

    Raises
    ------
    InvalidTypeError
        If it is not a tree model of these libraries.
    InvalidInputError
        If it is not fitted, not binary, or holds something that is not a tree.

    Examples
    --------
    >>> from sklearn.ensemble import GradientBoostingClassifier
    >>> X, y = [[0.0], [1.0], [2.0], [3.0]], [0, 0, 1, 1]
    >>> model = GradientBoostingClassifier(n_estimators=5).fit(X, y)
    >>> ensemble = read_trees(model)
    >>> ensemble.source, ensemble.output
    ('scikit-learn GradientBoostingClassifier (5 trees)', 'log-odds')
    >>> bool(abs(ensemble.margin(X) - model.decision_function(X)).max() < 1e-12)
    True
    """
    library = tree_library(model)
    if library is None:
        raise InvalidTypeError(
            f"A tree model of XGBoost, LightGBM, CatBoost or scikit-learn is expected, got {type(model).__name__}."
        )
    return READERS[library](model)
