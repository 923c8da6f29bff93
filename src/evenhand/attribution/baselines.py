"""The reference points of integrated gradients: the mean person of each (label, group) cell."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.exceptions import InvalidInputError

__all__ = ["label_group_baselines"]


def label_group_baselines(
    X: ArrayLike, y: ArrayLike, group: ArrayLike, *, skip_missing: bool = False
) -> NDArray[np.float64]:
    """Mean features of each (label, group) cell (the paper's Principle 1).

    Both people of a pair are explained from the cell mean of the *person*, never of the match.

    Parameters
    ----------
    X
        Features, of shape (n, d), as the model sees them.
    y
        Labels 0 or 1, of shape (n,).
    group
        Group codes 0..G-1, of shape (n,).
    skip_missing
        Whether means are of the known values alone, for models that take missing values.

    Returns
    -------
    ndarray of shape (2, G, d); NaN where a cell has no one in it, or no known value.

    Raises
    ------
    InvalidInputError
        If lengths differ, a label is not 0 or 1, or a group code is negative.

    Examples
    --------
    >>> label_group_baselines([[1.0], [3.0], [5.0], [7.0]], [0, 0, 1, 1], [0, 0, 0, 1])
    array([[[ 2.], [nan]],
           [[ 5.], [ 7.]]])
    """
    values = np.asarray(X, dtype=np.float64)
    labels, codes = np.asarray(y), np.asarray(group)
    if values.ndim != 2 or not len(values) == len(labels) == len(codes):
        raise InvalidInputError(
            f"`X`, `y` and `group` must have the same number of rows, got X of shape {values.shape}, "
            f"{len(labels)} labels and {len(codes)} groups."
        )
    if not np.isin(labels, (0, 1)).all():
        raise InvalidInputError(f"`y` must be 0 or 1, got the values {np.unique(labels)[:5].tolist()}.")
    if codes.min(initial=0) < 0:
        raise InvalidInputError(f"`group` must hold codes 0..G-1, got {codes.min()}.")
    n_groups = int(codes.max(initial=-1)) + 1
    cell = labels.astype(np.int64) * n_groups + codes
    counts = np.bincount(cell, minlength=2 * n_groups)
    sums = np.zeros((2 * n_groups, values.shape[1]))
    known = np.tile(counts[:, None], values.shape[1])
    for index in np.flatnonzero(counts):
        members = values[cell == index]
        sums[index] = np.nansum(members, axis=0) if skip_missing else members.sum(axis=0)
        known[index] -= np.isnan(members).sum(axis=0) if skip_missing else 0
    with np.errstate(invalid="ignore", divide="ignore"):
        means = np.where(known > 0, sums / known, np.nan)
    return means.reshape(2, n_groups, -1)
