"""Convert a table of people to the numeric input of a tree ensemble."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pandas.api.types import is_bool_dtype, is_numeric_dtype

from evenhand.exceptions import InvalidInputError
from evenhand.models.trees.ensemble import TreeEnsemble


def coded_matrix(ensemble: TreeEnsemble, table: pd.DataFrame) -> NDArray[np.float64]:
    """The columns of `table` in order, with categories that the model knows by value as codes.

    An unknown category is NaN, like a missing value, if its library treats it as missing.

    Raises
    ------
    InvalidInputError
        If the columns are not those the model was fitted with, in order, or hold text without codes, or categories
        that its library rejects.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.ensemble import HistGradientBoostingClassifier
    >>> from evenhand.models.trees import read_trees
    >>> table = pd.DataFrame({"age": [30, 50, 40], "home": pd.Categorical(["rent", "own", "rent"])})
    >>> ensemble = read_trees(HistGradientBoostingClassifier().fit(table, [0, 1, 1]))
    >>> coded_matrix(ensemble, table)
    array([[30.,  1.],
           [50.,  0.],
           [40.,  1.]])
    """
    _check_columns(ensemble, [str(name) for name in table.columns])
    matrix = np.full(table.shape, np.nan)
    asked = set(ensemble.feature.tolist())
    for j in range(table.shape[1]):
        column = table.iloc[:, j]
        if j in ensemble.categories:
            matrix[:, j] = _codes(column, j, ensemble)
        elif j in asked or not _is_words(column):  # words that no tree tests need no codes
            matrix[:, j] = _numbers(column, ensemble.source)
    return matrix


def coded_values(ensemble: TreeEnsemble, values: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
    """A numeric matrix, of shape (n, n_features), with the numbers of categories replaced by their codes.

    Raises
    ------
    InvalidInputError
        If it holds categories that the model's library rejects.
    """
    matrix = np.array(values, dtype=np.float64)
    names = ensemble.feature_names or [f"x{j}" for j in range(ensemble.n_features)]
    for j in ensemble.categories:
        matrix[:, j] = _codes(pd.Series(matrix[:, j], name=names[j]), j, ensemble)
    return matrix


def _check_columns(ensemble: TreeEnsemble, names: list[str]) -> None:
    if len(names) != ensemble.n_features:
        raise InvalidInputError(
            f"The {ensemble.source} takes {ensemble.n_features} columns, but the table has {len(names)}: {names}."
        )
    if ensemble.feature_names is None:
        return
    # LightGBM stores a space in a name as an underscore.
    differing = [
        (fitted, name)
        for fitted, name in zip(ensemble.feature_names, names, strict=True)
        if fitted.replace(" ", "_") != name.replace(" ", "_")
    ]
    if differing:
        fitted, name = differing[0]
        raise InvalidInputError(
            f"The {ensemble.source} was fitted with the column {fitted!r} where the table has {name!r}; pass the "
            f"columns in the order of training: {list(ensemble.feature_names)}."
        )


def _is_words(column: pd.Series[Any]) -> bool:

    return not (is_numeric_dtype(column.dtype) or is_bool_dtype(column.dtype))


def _numbers(column: pd.Series[Any], source: str) -> NDArray[np.float64]:
    if _is_words(column):
        raise InvalidInputError(
            f"The column {str(column.name)!r} is not numeric (its type is {column.dtype}), and the {source} has no "
            "codes for its values; pass it as it was coded in training."
        )
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def _codes(column: pd.Series[Any], j: int, ensemble: TreeEnsemble) -> NDArray[np.float64]:
    """Place of each value among the categories of feature j; NaN if it is not one."""
    categories = ensemble.categories[j]
    which, met = pd.factorize(column)
    values = pd.Index(met).tolist()
    # A column of a file has no type of category: "1" may have been read as the number 1, and the reverse.
    if not isinstance(column.dtype, pd.CategoricalDtype):
        values = _alike(values, categories)
    place = pd.Index(categories, dtype=object).get_indexer(pd.Index(values, dtype=object))
    unknown = np.flatnonzero(place < 0)
    if len(unknown) and not ensemble.takes_unknown:
        n = int(np.isin(which, unknown).sum())
        raise InvalidInputError(
            f"The column {str(column.name)!r} has {n} values, such as {str(values[unknown[0]])!r}, that the "
            f"{ensemble.source} was not fitted on and cannot score; leave those people out, or give them one of "
            f"its categories: {[str(c) for c in categories[:10]]}{' and more' if len(categories) > 10 else ''}."
        )
    codes: NDArray[np.float64] = np.append(place, -1)[which].astype(np.float64)
    codes[codes < 0] = np.nan
    return codes


def _alike(values: list[Any], categories: tuple[Any, ...]) -> list[Any]:
    """Values as text if the categories are text, as numbers if they are numbers."""
    if all(isinstance(c, str) for c in categories):
        return [str(int(v)) if isinstance(v, float) and v.is_integer() else str(v) for v in values]
    if all(isinstance(c, (int, float)) for c in categories):
        numbers = pd.to_numeric(pd.Series(values, dtype=object), errors="coerce")
        return [v if n != n else n for v, n in zip(values, numbers, strict=True)]
    return values
