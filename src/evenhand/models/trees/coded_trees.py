"""A tree ensemble on codes of values: cells between the numbers at which any answer changes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from math import comb
from typing import Any, Self
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from evenhand.models.trees.ensemble import (
    CATEGORY_SET,
    THRESHOLD,
    THRESHOLD_BUT_ZERO_IS_MISSING,
    ZERO_REACH,
    TreeEnsemble,
    kernel_module,
)

__all__ = ["CodedTrees", "coded_trees", "order_shares"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

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

    def write_codes(self, rows: Floats, codes: NDArray[np.uint32]) -> None:
        """Write the codes of rows that the ensemble has rounded to `codes`, of shape (n_features, n)."""
        kernel_module("group_kernel").code_rows(self.cuts, self.cut_start, rows, codes)


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
