r"""Weights under which label and group are independent (Kamiran & Calders, 2012).

A person with label y in group g weighs

.. math:: w \frac{P(g) P(y)}{P(g, y)},

the expected number of such people if label and group were independent, over the actual number.
The group is needed to train, not to decide.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.exceptions import InvalidInputError

__all__ = ["reweighing"]

Floats: TypeAlias = NDArray[np.float64]


def reweighing(labels: ArrayLike, groups: ArrayLike, weights: ArrayLike | None = None) -> Floats:
    """Training weights that make label and group independent, and keep the size of each group and label.

    Parameters
    ----------
    labels, groups
        Of each person, any values that can be sorted, of shape (n,).
    weights
        Initial weights, which the result multiplies; shares are then shares of weight. None for 1 each.

    Returns
    -------
    Weights of shape (n,) that sum to what the given weights sum to.

    Raises
    ------
    InvalidInputError
        If lengths disagree, a weight is negative or not finite, or a group lacks a label, so that no weights make them
        independent.

    Examples
    --------
    >>> reweighing([1, 1, 1, 0, 1, 0, 0, 0], ["a", "a", "a", "a", "b", "b", "b", "b"]).round(3).tolist()
    [0.667, 0.667, 0.667, 2.0, 2.0, 0.667, 0.667, 0.667]
    """
    label_names, label = np.unique(np.asarray(labels), return_inverse=True)
    group_names, group = np.unique(np.asarray(groups), return_inverse=True)
    own = np.ones(len(label)) if weights is None else np.asarray(weights, dtype=np.float64)
    if not label.shape == group.shape == own.shape or own.ndim != 1 or not len(own):
        raise InvalidInputError(
            f"Reweighing needs a label, a group and a weight for each person, got {len(label)} labels, {len(group)} "
            f"groups and weights of shape {own.shape}; pass columns of one length."
        )
    if not (np.isfinite(own) & (own >= 0)).all():
        n_bad = int((~(np.isfinite(own) & (own >= 0))).sum())
        raise InvalidInputError(
            f"Weights must be finite and at least 0, got {n_bad} of {len(own)} that are not; leave those people out."
        )
    cells = np.bincount(group * len(label_names) + label, own, len(group_names) * len(label_names))
    observed = cells.reshape(len(group_names), len(label_names))
    if not (observed > 0).all():
        empty = [f"{group_names[g]} with label {label_names[y]}" for g, y in np.argwhere(observed <= 0)]
        raise InvalidInputError(
            "Reweighing needs people of every label in every group, but there is no one (with a weight) of "
            f"{', '.join(empty)}; merge groups, or leave reweighing out."
        )
    expected = observed.sum(1, keepdims=True) * observed.sum(0) / observed.sum()
    found: Floats = own * (expected / observed)[group, label]
    return found
