"""Changes to the training people before a model learns from them, so that the model never needs the group to decide.

A repair is one value of the parameter ``repair``. It sees the labels and groups of the training people only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits  # comes with scikit-learn

from evenhand.exceptions import InvalidInputError
from evenhand.inputs.validation import did_you_mean, is_number_column
from evenhand.models.dispatch import as_audited_model
from evenhand.models.protocol import AuditedModel
from evenhand.training import fairshap
from evenhand.training.reweighing import reweighing

__all__ = ["QUICK_REPAIRS", "REPAIRS", "Training", "repaired"]

Ints = NDArray[np.int64]
Floats = NDArray[np.float64]

_TREES = 50  # of the model whose explanations FairSHAP uses


@dataclass(frozen=True, eq=False)
class Training:
    """People that a model learns from.

    Attributes
    ----------
    X, y
        Their table and labels.
    group
        Codes of their groups; no model sees them.
    financial
        Columns on which people are matched.
    weight
        The weight of each person; None for equal weights.
    """

    X: pd.DataFrame
    y: Ints
    group: Ints
    financial: tuple[str, ...] = ()
    weight: Floats | None = None


def _reweighed(training: Training, columns: Sequence[str]) -> Training:
    return replace(training, weight=reweighing(training.y, training.group, training.weight))


def _by_fairshap(training: Training, columns: Sequence[str]) -> Training:
    """People with the values that, to boosted trees, set them apart from their matches replaced by the matches'."""
    seen = training.X[list(columns)]
    coded = np.column_stack([_coded(seen[name]) for name in columns])
    found = fairshap.repaired(
        coded,
        training.y,
        training.group,
        fit=_fit_trees,
        finances=training.X[list(training.financial)],
        is_financial=np.isin(list(columns), training.financial),
    )
    changed = {name: _decoded(seen[name], found.features[:, j]) for j, name in enumerate(columns)}
    return replace(training, X=training.X.assign(**changed))


def _fit_trees(rows: NDArray[np.floating], labels: Ints) -> AuditedModel:
    with threadpool_limits(1, user_api="openmp"):
        return as_audited_model(HistGradientBoostingClassifier(max_iter=_TREES, random_state=0).fit(rows, labels))


def _coded(column: pd.Series[Any]) -> Floats:
    """A column as numbers: categories by their position, missing values as NaN."""
    if is_number_column(column) or column.dtype == bool:
        return column.to_numpy(dtype=np.float64, na_value=np.nan)
    codes = column.astype("category").cat.codes.to_numpy(dtype=np.float64)
    return np.where(codes < 0, np.nan, codes)


def _decoded(column: pd.Series[Any], values: NDArray[np.floating]) -> pd.Series[Any]:
    """Numbers of `_coded` as a column of the same kind."""
    if is_number_column(column):
        return pd.Series(values, index=column.index)
    if column.dtype == bool:
        return pd.Series(values == 1, index=column.index)
    codes = np.where(np.isnan(values), -1, values).astype(np.int64)
    kind: Any = column.astype("category").dtype
    return pd.Series(pd.Categorical.from_codes(codes, dtype=kind), index=column.index)


_REPAIRS: dict[str, Callable[[Training, Sequence[str]], Training]] = {
    "none": lambda training, columns: training,
    "reweighing": _reweighed,
    "fairshap": _by_fairshap,
}
REPAIRS = tuple(_REPAIRS)
"""Names of repairs: none; weights under which label and group are independent (Kamiran and Calders, 2012); values
replaced by those of a match in a different group (`training.fairshap`)."""
QUICK_REPAIRS = ("none", "reweighing")
"""The fast repairs, which are tried if no space is given."""


def repaired(name: str, training: Training, columns: Sequence[str]) -> Training:
    """The training people after a repair.

    Parameters
    ----------
    name
        One of `REPAIRS`.
    training, columns
        The people, and the columns that the model will see.

    Raises
    ------
    InvalidInputError
        If the repair is unknown, or cannot be made on these people.

    Examples
    --------
    >>> people = Training(pd.DataFrame({"x": range(4)}), np.array([1, 1, 0, 1]), np.array([0, 0, 0, 1]))
    >>> repaired("none", people, ["x"]) is people
    True
    """
    if name not in _REPAIRS:
        raise InvalidInputError(f"`repair` must be one of {list(REPAIRS)}, got {name!r}.{did_you_mean(name, REPAIRS)}")
    return _REPAIRS[name](training, columns)
