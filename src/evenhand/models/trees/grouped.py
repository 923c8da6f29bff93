"""Contributions of many people at a time: people with the same baseline go down each tree together.

Worthwhile for trees of a few dozen leaves, as in boosting, where groups stay large.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from evenhand.models.trees.coded_trees import coded_trees
from evenhand.models.trees.ensemble import TreeEnsemble, in_parallel, kernel_module

__all__ = ["NumberedRows", "context_contributions", "margins", "shapley_values"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

GROUP = 1024  # people who go down the trees together
MAX_STEPS = 2**22  # codes times contexts whose steps are kept at a time: 32 MiB


@dataclass(frozen=True, eq=False)
class NumberedRows:
    """Rows by number: row i is `distinct[number[i]]`. Equal rows may have different numbers."""

    distinct: NDArray[Any]
    number: Ints

    @classmethod
    def of(cls, rows: NDArray[Any]) -> Self:
        """Rows with equal ones identified.

        Examples
        --------
        >>> NumberedRows.of(np.array([[1.0, 2.0], [0.0, 0.0], [1.0, 2.0]])).number
        array([0, 1, 0])
        """
        if len(rows) > 1 and rows.strides[0] == 0:  # one row for everyone
            return cls(np.asarray(rows[:1], np.float64), np.zeros(len(rows), np.int64))
        values = np.ascontiguousarray(rows, np.float64)
        first, number = kernel_module("group_kernel").distinct_rows(values.view(np.uint64))
        return cls(values[first], number)

    def merged(self) -> Self:
        """The same rows, with equal ones among those in use identified."""
        used, number = np.unique(self.number, return_inverse=True)
        found = type(self).of(self.distinct[used])
        return type(self)(found.distinct, found.number[number])

    def __len__(self) -> int:
        return len(self.number)


def margins(ensemble: TreeEnsemble, x: NDArray[Any], n_threads: int | None) -> Floats:
    """The margin of each row, identical to `ensemble.margin` to the last digit."""
    kernel, trees = kernel_module("group_kernel"), coded_trees(ensemble)
    out = np.full(len(x), ensemble.base_margin)

    def walk(part: slice) -> None:
        nodes, answers, roots, depth, _ = trees.walked
        kernel.add_margin(nodes, answers, roots, depth, trees.unit, _codes(ensemble, x[part]), out[part])

    in_parallel(walk, list(_parts(np.zeros(len(x), np.int64), GROUP)), n_threads)
    return out


def shapley_values(ensemble: TreeEnsemble, x: NDArray[Any], b: NumberedRows, n_threads: int | None) -> Floats:
    """Shapley values of the rows of `x`, each from its baseline; (n, n_features)."""
    kernel, trees = kernel_module("group_kernel"), coded_trees(ensemble)
    base, out = _codes(ensemble, b.distinct), np.empty((len(x), ensemble.n_features))
    order = np.lexsort((x[:, trees.main_feature], b.number))

    def walk(part: slice) -> None:
        rows = order[part]
        found = np.zeros((ensemble.n_features, len(rows)), np.int64)
        start = np.ascontiguousarray(base[:, b.number[rows[0]]])
        kernel.add_shapley_values(*trees.walked, _codes(ensemble, x[rows]), start, found)
        out[rows] = found.T * trees.unit

    in_parallel(walk, list(_parts(b.number[order], GROUP)), n_threads)
    return out


def context_contributions(
    ensemble: TreeEnsemble, z: NumberedRows, w: NumberedRows, b: NumberedRows, n_threads: int | None
) -> Floats:
    """What the inputs `z` contribute in the contexts `w`, from the baselines `b`; (n, n_features).

    The contribution of a value depends on the context and the baseline, but not on the other inputs. So each context is
    walked once, for all values of all features, and the results are looked up.
    """
    kernel, trees = kernel_module("group_kernel"), coded_trees(ensemble)
    base, inputs = (_codes(ensemble, rows.distinct, n_threads) for rows in (b, z))
    runs = trees.runs(has_missing=not (base.all() and inputs.all()))
    contexts = _Contexts.of(w, b, w.distinct[:, trees.main_feature])
    out = np.empty((len(z), ensemble.n_features))

    def walk(part: slice) -> None:
        start = np.ascontiguousarray(base[:, contexts.base[part.start]])
        rows = contexts.askers[contexts.ends[part.start] : contexts.ends[part.stop]]
        is_one = (z.number[rows] == z.number[rows[0]]).all()
        asked = np.ascontiguousarray(inputs[:, z.number[rows[0]]]) if is_one else inputs[:0, 0]
        steps = np.zeros((trees.n_codes, part.stop - part.start), np.int64)
        codes = _codes(ensemble, w.distinct[contexts.row[part]])
        kernel.add_steps(*trees.walked, codes, start, asked, runs, steps)
        found = np.empty((len(rows), ensemble.n_features))
        places = (z.number[rows], contexts.number[rows] - part.start)
        kernel.look_up(steps, trees.code_start, start, inputs, *places, trees.unit, found)
        out[rows] = found

    in_parallel(walk, list(_parts(contexts.base, max(1, min(GROUP, MAX_STEPS // trees.n_codes)))), n_threads)
    return out


@dataclass(frozen=True, eq=False)
class _Contexts:
    """Distinct contexts, each a row and a baseline, sorted by baseline and similarity.

    Attributes
    ----------
    base, row
        Of each context, by number.
    number
        The context of each of n requests.
    askers, ends
        Requests by context; where those of each context start, and where the last ones end.
    """

    base: Ints
    row: Ints
    number: Ints
    askers: Ints
    ends: Ints

    @classmethod
    def of(cls, w: NumberedRows, b: NumberedRows, likeness: NDArray[Any]) -> Self:
        rank = np.empty(len(likeness), np.int64)
        by_likeness = np.argsort(likeness, kind="stable")
        rank[by_likeness] = np.arange(len(likeness))
        found, number = np.unique(b.number * len(rank) + rank[w.number], return_inverse=True)
        askers = np.argsort(number, kind="stable")
        ends = np.searchsorted(number[askers], np.arange(len(found) + 1))
        return cls(found // max(1, len(rank)), by_likeness[found % max(1, len(rank))], number, askers, ends)


def _codes(ensemble: TreeEnsemble, rows: NDArray[Any], n_threads: int | None = 1) -> NDArray[np.uint32]:
    """Codes of rows, of shape (n_features, n)."""
    trees, codes = coded_trees(ensemble), np.empty((ensemble.n_features, len(rows)), np.uint32)

    def write(part: slice) -> None:
        trees.write_codes(ensemble.rounded(rows[part]), codes[:, part])

    in_parallel(write, list(_parts(np.zeros(len(rows), np.int64), GROUP)), n_threads)
    return codes


def _parts(values: Ints, size: int) -> Iterator[slice]:
    """Parts of sorted values, each with a single value and limited size, as equal in size as possible."""
    ends = [*np.flatnonzero(np.diff(values)) + 1, len(values)] if len(values) else []
    start = 0
    for end in ends:
        n_parts = -(-(end - start) // size)
        cuts = np.linspace(start, end, n_parts + 1).astype(np.int64)
        yield from (slice(int(a), int(b)) for a, b in pairwise(cuts))
        start = end
