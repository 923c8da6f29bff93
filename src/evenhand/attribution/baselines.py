"""The rows that people are explained from: the mean of each (label, group) cell, with its most common categories."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike

from evenhand.arrays import Floats
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.validation import in_row_order


def label_group_baselines(
    X: ArrayLike,
    y: ArrayLike,
    group: ArrayLike,
    *,
    skip_missing: bool = False,
    categorical: Sequence[int] = (),
    sample_weight: ArrayLike | None = None,
) -> Floats:
    """Mean features of each (label, group) cell (the paper's Principle 1); for a category, the most common value.

    Both people of a pair are explained from the cell mean of the *person*, never of the match. A category has no mean,
    so its baseline is the most common category of the cell, and if several are equally common, the one with the lowest
    code.

    Parameters
    ----------
    X
        Features, of shape (n, d), as the model's input.
    y
        Labels 0 or 1, of shape (n,).
    group
        Group codes 0..G-1, of shape (n,).
    skip_missing
        Whether means use only known values, for models that accept missing values.
    categorical
        Columns of `X` that hold codes of categories. NaN and codes below 0 mean no known category, and are
        skipped.
    sample_weight
        How much each person counts, of shape (n,); by default all the same.

    Returns
    -------
    ndarray of shape (2, G, d); NaN if a cell has no one who counts, or no known value.

    Raises
    ------
    InvalidInputError
        If lengths differ, a label is not 0 or 1, a group code is negative, or `categorical` names an unknown column.

    Examples
    --------
    >>> label_group_baselines([[1.0], [3.0], [5.0], [7.0]], [0, 0, 1, 1], [0, 0, 0, 1])
    array([[[ 2.], [nan]],
           [[ 5.], [ 7.]]])
    >>> label_group_baselines([[1.0], [3.0], [3.0]], [1, 1, 1], [0, 0, 0], categorical=[0])[1]
    array([[3.]])
    >>> label_group_baselines([[1.0], [3.0]], [1, 1], [0, 0], sample_weight=[1, 3])[1]
    array([[2.5]])
    """
    values, labels = np.asarray(X, dtype=np.float64), np.asarray(in_row_order(y, X, "y"))
    codes = np.asarray(in_row_order(group, X, "group"))
    if values.ndim != 2 or not len(values) == len(labels) == len(codes):
        raise InvalidInputError(
            f"`X`, `y` and `group` must have the same number of rows, got X of shape {values.shape}, "
            f"{len(labels)} labels and {len(codes)} groups."
        )
    if not np.isin(labels, (0, 1)).all():
        raise InvalidInputError(f"`y` must be 0 or 1, got the values {np.unique(labels)[:5].tolist()}.")
    if codes.min(initial=0) < 0:
        raise InvalidInputError(f"`group` must hold codes 0..G-1, got {codes.min()}.")
    absent = [column for column in categorical if not 0 <= column < values.shape[1]]
    if absent:
        raise InvalidInputError(f"`categorical` must name columns 0..{values.shape[1] - 1} of `X`, got {absent}.")
    weights = np.ones(len(labels))
    if sample_weight is not None:
        weights = np.asarray(in_row_order(sample_weight, X, "sample_weight"), dtype=float)
    if weights.shape != (len(labels),):
        raise InvalidInputError(
            f"`sample_weight` has shape {weights.shape} for {len(labels)} rows; pass one weight per row."
        )
    n_groups = int(codes.max(initial=-1)) + 1
    cell = labels.astype(np.int64) * n_groups + codes
    baselines = np.full((2 * n_groups, values.shape[1]), np.nan)
    for index in np.unique(cell):
        inside = cell == index
        members, weight = values[inside], weights[inside]
        weighed = members * weight[:, None]
        total = np.nansum(weighed, axis=0) if skip_missing else weighed.sum(axis=0)
        size = weight @ ~np.isnan(members) if skip_missing else np.full(members.shape[1], weight.sum())
        np.divide(total, size, out=baselines[index], where=size > 0)
        for column in categorical:
            baselines[index, column] = _most_common(members[:, column], weight)
    return baselines.reshape(2, n_groups, -1)


def _most_common(codes: Floats, weight: Floats) -> float:
    """The most common code, the lowest if there are several; NaN without a known one."""
    known = (codes >= 0) & (weight > 0)
    values, place = np.unique(codes[known], return_inverse=True)
    return float(values[np.bincount(place, weight[known]).argmax()]) if len(values) else np.nan
