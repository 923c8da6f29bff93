"""A table of people as the matrix of numbers that a tree ensemble takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evenhand.exceptions import InvalidInputError
from evenhand.trees.ensemble import TreeEnsemble

if TYPE_CHECKING:
    import pandas as pd

__all__ = ["coded_matrix"]


def coded_matrix(ensemble: TreeEnsemble, table: pd.DataFrame) -> NDArray[np.float64]:
    """The columns of `table` in order, categories that the model knows by value as their codes.

    A category that the model does not know is NaN, as is a missing value.

    Raises
    ------
    InvalidInputError
        If the columns are not the ones the model was fitted with, in their order, or hold text it has no codes for.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.ensemble import HistGradientBoostingClassifier
    >>> from evenhand.trees import read_trees
    >>> table = pd.DataFrame({"age": [30, 50, 40], "home": pd.Categorical(["rent", "own", "rent"])})
    >>> ensemble = read_trees(HistGradientBoostingClassifier().fit(table, [0, 1, 1]))
    >>> coded_matrix(ensemble, table)
    array([[30.,  1.],
           [50.,  0.],
           [40.,  1.]])
    """
    _check_columns(ensemble, [str(name) for name in table.columns])
    matrix = np.empty(table.shape)
    for j in range(table.shape[1]):
        column = table.iloc[:, j]
        categories = ensemble.categories.get(j)
        matrix[:, j] = _numbers(column, ensemble.source) if categories is None else _codes(column, categories)
    return matrix


def _check_columns(ensemble: TreeEnsemble, names: list[str]) -> None:
    if len(names) != ensemble.n_features:
        raise InvalidInputError(
            f"The {ensemble.source} takes {ensemble.n_features} columns, the table has {len(names)}: {names}."
        )
    if ensemble.feature_names is None:
        return
    # LightGBM keeps a space in a name as an underscore.
    differing = [
        (fitted, name)
        for fitted, name in zip(ensemble.feature_names, names, strict=True)
        if fitted.replace(" ", "_") != name.replace(" ", "_")
    ]
    if differing:
        fitted, name = differing[0]
        raise InvalidInputError(
            f"The {ensemble.source} was fitted with the column {fitted!r} where the table has {name!r}; give the "
            f"columns in the order of training: {list(ensemble.feature_names)}."
        )


def _numbers(column: pd.Series[Any], source: str) -> NDArray[np.float64]:
    from pandas.api.types import is_bool_dtype, is_numeric_dtype

    if not (is_numeric_dtype(column.dtype) or is_bool_dtype(column.dtype)):
        raise InvalidInputError(
            f"The column {str(column.name)!r} holds no numbers (its type is {column.dtype}), and the {source} keeps no "
            "codes for its values; give it as it was coded in training."
        )
    return column.to_numpy(dtype=np.float64, na_value=np.nan)


def _codes(column: pd.Series[Any], categories: tuple[Any, ...]) -> NDArray[np.float64]:
    import pandas as pd

    codes: NDArray[np.float64] = (
        pd.Index(categories, dtype=object).get_indexer(column.astype(object)).astype(np.float64)
    )
    codes[codes < 0] = np.nan
    return codes
