"""Interventional Shapley values of a tree ensemble, with a separate baseline row for each person.

In trees of a few dozen leaves, as in boosting, people with the same baseline go down each tree together. In deeper
trees, each would soon be alone, and goes down alone from the start.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import comb
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.arrays import Floats, Ints
from evenhand.attribution.shapley import Contributions
from evenhand.exceptions import InvalidInputError
from evenhand.models.trees.ensemble import (
    CATEGORY_SET,
    THRESHOLD,
    THRESHOLD_BUT_ZERO_IS_MISSING,
    ZERO_REACH,
    TreeEnsemble,
    checked_rows,
    in_blocks,
    in_parallel,
    kernel_module,
)
from evenhand.system.threads import n_cores

# A threshold sends left the codes c with c - shift <= bound, as unsigned numbers: code 0, a missing value, goes left
# with a shift of 0 and right with a shift of 1. Every other question has its answers listed, starting at `answers`.
CODED_NODE = np.dtype(
    [
        ("value", np.float64),
        ("feature", np.int32),
        ("left", np.int32),
        ("right", np.int32),
        ("bound", np.uint32),
        ("shift", np.uint32),
        ("answers", np.int32),
    ],
    align=True,
)

_KNOWN: WeakKeyDictionary[TreeEnsemble, CodedTrees] = WeakKeyDictionary()


@dataclass(frozen=True, eq=False)
class CodedTrees:
    """An ensemble on codes.

    Attributes
    ----------
    cuts, cut_start
        Numbers at which answers change, feature by feature, and where those of each feature start.
    code_start
        Number of codes of all features before each, of shape (n_features + 1,). A feature has the code 0 for a missing
        value, 1 for values up to its first cut, 2 up to the second, and so on.
    nodes, answers
        Nodes of all trees, with values in units; listed answers.
    roots, parent, max_depth
        First node of each tree; parent of each node, -1 for a root; number of splits on the longest path.
    unit
        Contributions are summed as integer multiples of it. Such sums do not depend on the order, so work that people
        share can be done once for all of them without changing a digit.
    """

    cuts: Floats
    cut_start: Ints
    code_start: Ints
    nodes: NDArray[Any]
    answers: NDArray[np.bool_]
    roots: NDArray[np.int32]
    parent: NDArray[np.int32]
    max_depth: int
    unit: float

    @classmethod
    def of(cls, ensemble: TreeEnsemble) -> Self:
        """The codes of an ensemble, computed once."""
        cuts = _cuts(ensemble)
        n_cuts = np.asarray([len(each) for each in cuts], dtype=np.int64)
        nodes, answers = _coded_nodes(ensemble, cuts)
        asks = np.flatnonzero(ensemble.feature >= 0)
        parent = np.full(len(nodes), -1, np.int32)
        parent[ensemble.left[asks]] = parent[ensemble.right[asks]] = asks
        return cls(
            cuts=np.concatenate([*cuts, np.zeros(0)]),
            cut_start=_starts(n_cuts),
            code_start=_starts(n_cuts + 2),
            nodes=nodes,
            answers=answers,
            roots=ensemble.roots,
            parent=parent,
            max_depth=ensemble.max_depth,
            unit=_unit(ensemble),
        )

    @property
    def n_codes(self) -> int:
        """Codes of all features."""
        return int(self.code_start[-1])

    @cached_property
    def main_feature(self) -> int:
        """The feature tested for the most people, if half of them go each way; 0 if there is none."""
        visits, level, share = np.zeros(len(self.cut_start) - 1), self.roots, 1.0
        while len(level):
            level = level[self.nodes["feature"][level] >= 0]
            visits += share * np.bincount(self.nodes["feature"][level], minlength=len(visits))
            level, share = np.concatenate([self.nodes["left"][level], self.nodes["right"][level]]), share / 2
        return int(visits.argmax())

    @cached_property
    def walked(self) -> tuple[NDArray[Any], NDArray[np.bool_], NDArray[np.int32], int, Floats]:
        """Nodes, listed answers, roots, depth and shares of orders, in the form of the compiled walks."""
        shares = order_shares(min(self.max_depth, len(self.cut_start) - 1))
        return self.nodes, self.answers, self.roots, self.max_depth, shares

    def runs(self, *, has_missing: bool) -> tuple[Ints, NDArray[np.int32]]:
        """Where the steps of each node start, and the steps: see `group_kernel.runs_of_codes`."""
        return self._runs[int(not has_missing)]

    @cached_property
    def _runs(self) -> tuple[tuple[Ints, NDArray[np.int32]], ...]:
        """Runs from the code of a missing value on, and from the first code of a known value on."""
        kernel = kernel_module("group_kernel")
        found = [
            kernel.runs_of_codes(self.nodes, self.answers, self.parent, self.code_start, first) for first in (0, 1)
        ]
        return tuple((_starts(sizes), steps) for sizes, steps in found)


def order_shares(n: int) -> Floats:
    """Share (u - 1)! v! / (u + v)! of the orders of u + v players with one of the u after all v and before the rest.

    Of shape (n + 2, n + 1), for u and v up to n + 1 and n; 0 for u = 0.

    Examples
    --------
    >>> order_shares(1)
    array([[0.        , 0.        ],
           [1.        , 0.5       ],
           [0.5       , 0.16666667]])
    """
    players = range(n + 1)
    return np.array([np.zeros(n + 1), *([1 / ((u + v + 1) * comb(u + v, u)) for v in players] for u in players)])


def coded_trees(ensemble: TreeEnsemble) -> CodedTrees:
    """The ensemble on codes, computed once for as long as the ensemble is in use."""
    found = _KNOWN.get(ensemble)
    if found is None:
        found = _KNOWN[ensemble] = CodedTrees.of(ensemble)
    return found


def _cuts(ensemble: TreeEnsemble) -> list[Floats]:
    """For each feature, numbers x such that a node's answer may differ between x and values just above x."""
    plain = np.flatnonzero((ensemble.feature >= 0) & (ensemble.rule != CATEGORY_SET))
    order = plain[np.argsort(ensemble.feature[plain], kind="stable")]
    ends = np.searchsorted(ensemble.feature[order], np.arange(ensemble.n_features + 1))
    cuts = [ensemble.threshold[order[start:end]] for start, end in pairwise(ends)]
    for j in np.unique(ensemble.feature[ensemble.rule == THRESHOLD_BUT_ZERO_IS_MISSING]):
        cuts[j] = np.append(cuts[j], [np.nextafter(-ZERO_REACH, -1.0), ZERO_REACH])
    for j in np.unique(ensemble.feature[ensemble.rule == CATEGORY_SET]):
        size = ensemble.set_size[ensemble.feature == j].max()
        cuts[j] = np.concatenate([cuts[j], [-1.0], np.nextafter(np.arange(1.0, size + 1), 0.0)])
    return [np.unique(each[~np.isnan(each)]) for each in cuts]


def _coded_nodes(ensemble: TreeEnsemble, cuts: list[Floats]) -> tuple[NDArray[Any], NDArray[np.bool_]]:
    """The nodes on codes, and the answers of those that test more than a threshold."""
    nodes = np.zeros(len(ensemble.feature), CODED_NODE)
    for name in ("feature", "left", "right"):
        nodes[name] = getattr(ensemble, name)
    nodes["value"] = ensemble.value / _unit(ensemble)
    nodes["shift"] = ~ensemble.missing_left
    nodes["answers"] = -1
    asks = ensemble.feature >= 0
    order = np.flatnonzero(asks & (ensemble.rule == THRESHOLD))
    order = order[np.argsort(ensemble.feature[order], kind="stable")]
    ends = np.searchsorted(ensemble.feature[order], np.arange(ensemble.n_features + 1))
    for j, each in enumerate(cuts):
        here = order[ends[j] : ends[j + 1]]
        below = np.searchsorted(each, ensemble.threshold[here], side="left") + 1
        below[np.isnan(ensemble.threshold[here])] = 0  # only a missing value goes left
        nodes["bound"][here] = np.maximum(below - nodes["shift"][here].astype(np.int64), 0)
    kernel, answers, n_answers = kernel_module(), [np.zeros(0, np.bool_)], 0
    for node in np.flatnonzero(asks & (ensemble.rule != THRESHOLD)):
        values = np.concatenate([[np.nan], cuts[ensemble.feature[node]], [np.inf]])
        nodes["answers"][node] = n_answers
        answers.append(kernel.answers(ensemble.nodes, ensemble.in_set, node, values))
        n_answers += len(values)
    return nodes, np.concatenate(answers)


def _unit(ensemble: TreeEnsemble) -> float:
    """A power of two with no contribution at 2^62 of it: none is more than twice the sum of the largest leaves."""
    is_leaf = ensemble.feature < 0
    if not is_leaf.any() or not ensemble.n_trees:
        return 1.0
    # Roots are in node order.
    largest = np.maximum.reduceat(np.where(is_leaf, np.abs(ensemble.value), 0.0), np.sort(ensemble.roots)).sum()
    return float(2.0 ** (np.frexp(largest)[1] - 60)) if largest > 0 else 1.0


def _starts(sizes: Ints) -> Ints:
    """Start of each of the parts of given sizes, and the end of the last."""
    return np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)


Rows = NDArray[np.floating[Any]]

GROUP = 1024, 8192  # people who go down the trees together: more take less time each, if every core has some
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

    in_parallel(walk, list(_parts(np.zeros(len(x), np.int64), _group(len(x), n_threads))), n_threads)
    return out


def shapley_values(ensemble: TreeEnsemble, x: Rows, baseline: Rows, n_threads: int | None = None) -> Contributions:
    """Shapley values of the rows of `x`, of shape (n, n_features), each from its baseline.

    People who go down the trees together get their margins from the same walk, equal to `ensemble.margin` to the last
    digit.
    """
    if not is_grouped(ensemble):
        return Contributions(_one_by_one(ensemble, x, x, baseline, n_threads))
    kernel, trees, b = kernel_module("group_kernel"), coded_trees(ensemble), NumberedRows.of(baseline)
    base, out, margin = _codes(ensemble, b.distinct), np.empty((len(x), ensemble.n_features)), np.empty(len(x))
    order = np.lexsort((x[:, trees.main_feature], b.number))

    def walk(part: slice) -> None:
        rows = order[part]
        found, reached = np.zeros((ensemble.n_features, len(rows)), np.int64), np.full(len(rows), ensemble.base_margin)
        start = np.ascontiguousarray(base[:, b.number[rows[0]]])
        kernel.add_shapley_values(*trees.walked, _codes(ensemble, x[rows]), start, trees.unit, found, reached)
        out[rows], margin[rows] = found.T * trees.unit, reached

    in_parallel(walk, list(_parts(b.number[order], _group(len(x), n_threads))), n_threads)
    return Contributions(out, margin=margin)


def context_contributions(
    ensemble: TreeEnsemble, z: NumberedRows, w: NumberedRows, b: NumberedRows, n_threads: int | None
) -> Floats:
    """What the inputs `z` contribute in the contexts `w`, from the baselines `b`; (n, n_features).

    The contribution of a value depends on the context and the baseline, but not on the other inputs. So a context of
    many requests is walked once, for all values of all features, and the results are looked up.
    """
    kernel, trees = kernel_module("group_kernel"), coded_trees(ensemble)
    contexts = _Contexts.of(w, b, w.distinct[:, trees.main_feature])
    if len(z) < _ASKED_OFTEN * len(contexts.row):
        return _values_beside(ensemble, z, w, b, contexts.askers, n_threads)[1]
    base, inputs = (_codes(ensemble, rows.distinct, n_threads) for rows in (b, z))
    runs = trees.runs(has_missing=not (base.all() and inputs.all()))
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

    in_parallel(walk, list(_parts(contexts.base, max(1, min(GROUP[0], MAX_STEPS // trees.n_codes)))), n_threads)
    return out


def values_beside(
    ensemble: TreeEnsemble, z: Rows, w: Rows, baseline: Rows, n_threads: int | None = None
) -> tuple[Floats, Floats]:
    """Shapley values of the rows of `w`, and what the inputs `z` contribute in these contexts."""
    if not is_grouped(ensemble):
        own, moved = (_one_by_one(ensemble, inputs, w, baseline, n_threads) for inputs in (w, z))
        return own, moved
    b, everyone = NumberedRows.of(baseline), np.arange(len(w))
    order = np.lexsort((w[:, coded_trees(ensemble).main_feature], b.number))
    return _values_beside(ensemble, NumberedRows(z, everyone), NumberedRows(w, everyone), b, order, n_threads)


def _values_beside(
    ensemble: TreeEnsemble, z: NumberedRows, w: NumberedRows, b: NumberedRows, order: Ints, n_threads: int | None
) -> tuple[Floats, Floats]:
    """The same for people in an `order` in which those with the same baseline follow each other."""
    kernel, trees = kernel_module("group_kernel"), coded_trees(ensemble)
    base = _codes(ensemble, b.distinct)
    own, moved = (np.empty((len(z), ensemble.n_features)) for _ in range(2))

    def walk(part: slice) -> None:
        rows = order[part]
        found = np.zeros((2, ensemble.n_features, len(rows)), np.int64)
        start = np.ascontiguousarray(base[:, b.number[rows[0]]])
        codes, inputs = (_codes(ensemble, side.distinct[side.number[rows]]) for side in (w, z))
        is_moved = (codes != inputs).any(axis=1)
        kernel.add_values_beside(*trees.walked, codes, start, inputs, is_moved, *found)
        own[rows], moved[rows] = (each.T * trees.unit for each in found)

    in_parallel(walk, list(_parts(b.number[order], _group(len(z), n_threads))), n_threads)
    return own, moved


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
    kernel, trees = kernel_module("group_kernel"), coded_trees(ensemble)
    codes = np.empty((ensemble.n_features, len(rows)), np.uint32)

    def write(part: slice) -> None:
        kernel.code_rows(trees.cuts, trees.cut_start, ensemble.rounded(rows[part]), codes[:, part])

    in_parallel(write, list(_parts(np.zeros(len(rows), np.int64), GROUP[0])), n_threads)
    return codes


def _group(n: int, n_threads: int | None) -> int:
    """How many of n people go down the trees together."""
    fewest, most = GROUP
    return min(most, max(fewest, n // (_GROUPS_PER_CORE * (n_threads or n_cores()))))


def _parts(values: Ints, size: int) -> Iterator[slice]:
    """Parts of sorted values, each with a single value and limited size, as equal in size as possible."""
    ends = [*np.flatnonzero(np.diff(values)) + 1, len(values)] if len(values) else []
    start = 0
    for end in ends:
        n_parts = -(-(end - start) // size)
        cuts = np.linspace(start, end, n_parts + 1).astype(np.int64)
        yield from (slice(int(a), int(b)) for a, b in pairwise(cuts))
        start = end


_GROUPS_PER_CORE = 4  # so that none waits long for another
_ASKED_OFTEN = 2  # requests of a context, from which on it is walked for all values
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
    if z_rows is w_rows or np.array_equal(z_rows, w_rows, equal_nan=True):
        return shapley_values(ensemble, z_rows, b_rows, n_threads).values
    inputs, context, baseline = map(NumberedRows.of, (z_rows, w_rows, b_rows))
    return context_contributions(ensemble, inputs, context, baseline, n_threads)


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
