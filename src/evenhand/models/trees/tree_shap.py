"""Interventional Shapley values of a tree ensemble, with a separate baseline row for each person."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.exceptions import InvalidInputError
from evenhand.models.trees.coded_trees import order_shares
from evenhand.models.trees.ensemble import TreeEnsemble, checked_rows, in_blocks, kernel_module
from evenhand.models.trees.grouped import NumberedRows, context_contributions, margins, shapley_values

__all__ = ["contributions"]

Rows = NDArray[np.floating[Any]]

_BLOCK = 16_384  # people whose rows are copied at a time
GROUPED_NODES = 255  # average number of nodes of a tree, up to which people go down together


def contributions(
    ensemble: TreeEnsemble, z: ArrayLike, w: ArrayLike, b: ArrayLike, n_threads: int | None = None
) -> NDArray[np.float64]:
    r"""The contribution of each input to the margin, in a given context and from a given baseline.

    For one person and feature j of d, over the sets S of other features,

    .. math::

        \phi_j = \sum_S \frac{|S|!\,(d - 1 - |S|)!}{d!}
            \left[f(z_j, w_S, b_{rest}) - f(b_j, w_S, b_{rest})\right].

    If `z` and `w` are the same rows, these are the Shapley values of a game whose absent players take their values from
    the baseline (interventional TreeSHAP with one background row): they sum to the margin of the row minus that of its
    baseline. Otherwise they are what inputs `z` would contribute next to the inputs `w` of someone else, and have no
    such sum. The values are exact, not sampled.

    Parameters
    ----------
    ensemble
        The model.
    z, w, b
        Inputs, context and baseline of each person, of shape (n, n_features) each. A baseline of shape (n_features,)
        applies to everyone. NaN is a missing value.
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
    z_rows, w_rows = checked_rows(ensemble, z, "z"), checked_rows(ensemble, w, "w")
    b_rows = np.asarray(b)
    if b_rows.ndim == 1:
        b_rows = np.broadcast_to(b_rows, (len(z_rows), len(b_rows)))
    b_rows = checked_rows(ensemble, b_rows, "b")
    if not len(z_rows) == len(w_rows) == len(b_rows):
        raise InvalidInputError(
            f"`z`, `w` and `b` must have one row per person, got {len(z_rows)}, {len(w_rows)} and {len(b_rows)} rows."
        )
    if not is_grouped(ensemble):
        return _one_by_one(ensemble, z_rows, w_rows, b_rows, n_threads)
    baseline = NumberedRows.of(b_rows)
    if z_rows is w_rows or np.array_equal(z_rows, w_rows, equal_nan=True):
        return shapley_values(ensemble, z_rows, baseline, n_threads)
    return context_contributions(ensemble, NumberedRows.of(z_rows), NumberedRows.of(w_rows), baseline, n_threads)


def distinct_margins(ensemble: TreeEnsemble, x: ArrayLike, n_threads: int | None = None) -> NDArray[np.float64]:
    """`ensemble.margin`, computed once for equal rows."""
    rows = NumberedRows.of(checked_rows(ensemble, x, "X"))
    if is_grouped(ensemble):
        return margins(ensemble, rows.distinct, n_threads)[rows.number]
    return ensemble.margin(rows.distinct, n_threads)[rows.number]


def numbered_contributions(
    ensemble: TreeEnsemble, z: NumberedRows, w: NumberedRows, b: NumberedRows, n_threads: int | None = None
) -> NDArray[np.float64]:
    """`contributions` of rows by number, in blocks of people if each goes down the trees alone."""
    if is_grouped(ensemble):
        return context_contributions(ensemble, z.merged(), w.merged(), b.merged(), n_threads)
    out = np.empty((len(z), ensemble.n_features))
    for start in range(0, len(z), _BLOCK):
        rows = slice(start, start + _BLOCK)
        inputs, context, baseline = (each.distinct[each.number[rows]] for each in (z, w, b))
        out[rows] = _one_by_one(ensemble, inputs, context, baseline, n_threads)
    return out


def is_grouped(ensemble: TreeEnsemble) -> bool:
    """Whether people go down the trees together: in deep trees, each would soon be alone."""
    return ensemble.n_trees > 0 and len(ensemble.feature) <= GROUPED_NODES * ensemble.n_trees


def _one_by_one(ensemble: TreeEnsemble, z: Rows, w: Rows, b: Rows, n_threads: int | None) -> NDArray[np.float64]:
    """Contributions of people who go down the trees one by one."""
    kernel = kernel_module()
    shares = order_shares(min(ensemble.max_depth, ensemble.n_features))
    model = (ensemble.nodes, ensemble.in_set, ensemble.roots, shares)
    out = np.zeros((len(z), ensemble.n_features))

    def walk(rows: slice) -> None:
        inputs, context, baseline = (ensemble.rounded(values[rows]) for values in (z, w, b))
        if np.array_equal(inputs, context, equal_nan=True):
            kernel.add_contributions(*model, inputs, baseline, out[rows])
        else:
            kernel.add_input_contributions(*model, inputs, context, baseline, out[rows])

    in_blocks(walk, len(out), n_threads)
    return out
