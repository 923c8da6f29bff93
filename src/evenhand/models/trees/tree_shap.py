"""Interventional Shapley values of a tree ensemble, each person with a baseline row of their own."""

from __future__ import annotations

from math import comb

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.exceptions import InvalidInputError
from evenhand.models.trees.ensemble import TreeEnsemble, checked_rows, in_blocks, kernel_module

__all__ = ["contributions"]


def contributions(
    ensemble: TreeEnsemble, z: ArrayLike, w: ArrayLike, b: ArrayLike, n_threads: int | None = None
) -> NDArray[np.float64]:
    r"""What each input contributes to the margin, in a given context and from a given baseline.

    For one person and feature j of d, over the sets S of other features,

    .. math::

        \phi_j = \sum_S \frac{|S|!\,(d - 1 - |S|)!}{d!}
            \left[f(z_j, w_S, b_{rest}) - f(b_j, w_S, b_{rest})\right].

    With `z` and `w` the same rows these are the Shapley values of a game whose absent players take their values from
    the baseline (interventional TreeSHAP with one background row): they sum to the margin of the row less that of its
    baseline. Otherwise they are what inputs `z` would contribute beside the inputs `w` of somebody else, and have no
    such sum. The values are exact, not sampled.

    Parameters
    ----------
    ensemble
        The model.
    z, w, b
        Inputs, context and baseline of each person, of shape (n, n_features) each. A baseline of shape (n_features,)
        serves everyone. NaN is a missing value.
    n_threads
        Threads to share the people; None for as many as there are cores.

    Returns
    -------
    ndarray of shape (n, n_features)
        In the units that `ensemble.output` names.

    Raises
    ------
    InvalidInputError
        If the shapes differ.
    MissingExtraError
        If numba is not installed.

    Examples
    --------
    >>> from sklearn.tree import DecisionTreeClassifier
    >>> from evenhand.models.trees import read_trees
    >>> X, y = np.array([[0.0, 0.0], [0.0, 1.0], [1.0, 0.0], [1.0, 1.0]]), np.array([0, 0, 0, 1])
    >>> model = read_trees(DecisionTreeClassifier(random_state=0).fit(X, y))
    >>> contributions(model, X[3:], X[3:], X[:1])
    array([[0.5, 0.5]])
    >>> contributions(model, X[3:], X[1:2], X[:1])
    array([[0.5, 0. ]])
    """
    kernel = kernel_module()
    z_rows, w_rows = checked_rows(ensemble, z, "z"), checked_rows(ensemble, w, "w")
    b_rows = np.asarray(b)
    if b_rows.ndim == 1:
        b_rows = np.broadcast_to(b_rows, (len(z_rows), len(b_rows)))
    b_rows = checked_rows(ensemble, b_rows, "b")
    if not len(z_rows) == len(w_rows) == len(b_rows):
        raise InvalidInputError(
            "`z`, `w` and `b` must have a row for each person, "
            f"got {len(z_rows)}, {len(w_rows)} and {len(b_rows)} rows."
        )
    weights = leaf_weights(min(ensemble.max_depth, ensemble.n_features))
    model = (ensemble.nodes, ensemble.in_set, ensemble.roots, weights)
    out = np.zeros((len(z_rows), ensemble.n_features))

    def walk(rows: slice) -> None:
        inputs, context, baseline = (ensemble.rounded(values[rows]) for values in (z_rows, w_rows, b_rows))
        if np.array_equal(inputs, context, equal_nan=True):
            kernel.add_contributions(*model, inputs, baseline, out[rows])
        else:
            kernel.add_input_contributions(*model, inputs, context, baseline, out[rows])

    in_blocks(walk, len(out), n_threads)
    return out


def leaf_weights(n: int) -> NDArray[np.float64]:
    """Share u! v! / (u + v + 1)! of orders in which u players come before a given one and v after, u and v up to n.

    Examples
    --------
    >>> leaf_weights(1)
    array([[1.        , 0.5       ],
           [0.5       , 0.16666667]])
    """
    numbers = range(n + 1)
    return np.array([[1 / ((u + v + 1) * comb(u + v, u)) for v in numbers] for u in numbers])
