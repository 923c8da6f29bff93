"""Leaves: people with the same label and alike finances, among whom group labels can be reshuffled.

Within each label, people are split at the median of the finance in which they differ most, until a leaf is small. Where
someone belongs depends on finances and label alone, never on the group, the score or the row.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenhand.arrays import Floats, Ints, Keys

LEAF_SIZE = 40
"""A leaf of this many people is split again."""

_FEWEST_OF_SAMPLE = 10  # people of a sample, of whom each stands for many: a leaf of this many is split again
_FEWEST_IN_LEAF = 5
_MEMBERS = 8
_TAILS = (0.05, 0.005, 0.0)  # shares of people on either side of the usual range; fewer, if the range has one value
_BEYOND = 3.0  # times the usual range that finances may lie outside it
_FARTHEST = 8.0  # standard deviations


@dataclass(frozen=True, eq=False)
class FinanceScale:
    """Finances on a scale that no outlier stretches: clipped to a few times the usual range, then standardized.

    Attributes
    ----------
    low, high
        The range of each finance.
    center, spread
        Mean and standard deviation in that range; a spread of 0 means that a finance is constant.

    Examples
    --------
    >>> scale = FinanceScale.of(np.r_[np.linspace(0, 1, 999), 99999.0][:, None])
    >>> scale.transform(np.array([[0.0], [99999.0]])).round(1).ravel()
    array([-1.6,  8. ], dtype=float32)
    """

    low: Floats
    high: Floats
    center: Floats
    spread: Floats

    @classmethod
    def of(cls, points: Floats) -> FinanceScale:
        """Measure the finances of some people, of shape (n, k)."""
        low, high = points[0], points[0]
        for tail in _TAILS:
            ends = np.quantile(points, [tail, 1 - tail], axis=0, method="inverted_cdf")
            low, high = np.where(low == high, ends, (low, high))
        reach = _BEYOND * (high - low)
        low, high = low - reach, high + reach
        clipped = np.clip(points, low, high)
        return cls(low, high, clipped.mean(axis=0), clipped.std(axis=0))

    def transform(self, points: Floats) -> NDArray[np.float32]:
        """Finances of people on the scale, of shape (n, k); a constant one is 0."""
        known = self.spread > 0
        scaled = (np.clip(points, self.low, self.high) - self.center) / np.where(known, self.spread, 1.0)
        return np.clip(np.where(known, scaled, 0.0), -_FARTHEST, _FARTHEST).astype(np.float32)


@dataclass(frozen=True, eq=False)
class Leaves:
    """A tree for each label that leads people to their leaf.

    Attributes
    ----------
    scale
        The scale of the finances.
    feature, threshold, child
        Of each node: the finance and the value it is split at, and the node of those up to the value, which the node of
        those above follows; a leaf has feature -1 and its own number in `child`.
    root
        The first node of each label, -1 for a label of no one.
    row
        The row of the sample that is nearest to the middle of each leaf: the finances that everyone in it is given.
    members
        Some rows of the sample in each leaf, of shape (n_leaves, 8), repeated if there are fewer.
    """

    scale: FinanceScale
    feature: Ints
    threshold: Floats
    child: Ints
    root: tuple[int, int]
    row: Ints
    members: Ints

    @classmethod
    def of(cls, points: Floats, labels: Ints, content: Keys, n_people: int) -> Leaves:
        """Grow the trees on a sample of the people.

        Parameters
        ----------
        points, labels
            Finances and labels of the sample, of shapes (n, k) and (n,).
        content
            A hash of each row, which decides among rows that are equally near to the middle of a leaf.
        n_people
            Number of people who will be led to leaves.

        Examples
        --------
        >>> points = np.arange(80.0)[:, None]
        >>> leaves = Leaves.of(points, np.zeros(80, dtype=np.int64), np.arange(80, dtype=np.uint64), 80)
        >>> np.bincount(leaves.leaf(points, np.zeros(80, dtype=np.int64))).tolist(), len(leaves.row)
        ([20, 20, 20, 20], 4)
        """
        scale = FinanceScale.of(points)
        at = scale.transform(points)
        # A sample of few people stands for many: its leaves may be small. One of many stands for few.
        size = max(_FEWEST_OF_SAMPLE, round(LEAF_SIZE * len(points) / max(n_people, 1)))
        nodes: list[list[float]] = []
        rows: list[int] = []
        kept: list[Ints] = []
        root = [-1, -1]
        for label in (0, 1):
            members = np.flatnonzero(labels == label)
            if not len(members):
                continue
            root[label] = len(nodes)
            nodes.append([])
            open_nodes = [(root[label], members)]
            while open_nodes:
                node, members = open_nodes.pop()
                split = next(_splits(at[members]), None) if len(members) >= size else None
                if split is None:
                    nodes[node] = [-1, 0.0, len(rows)]
                    rows.append(int(members[_middle(at[members], content[members])]))
                    inside = members[np.argsort(content[members], kind="stable")]
                    kept.append(np.resize(inside, _MEMBERS))
                    continue
                feature, threshold = split
                nodes[node] = [feature, threshold, len(nodes)]
                is_below = at[members, feature] <= threshold
                open_nodes += [(len(nodes) + 1, members[~is_below]), (len(nodes), members[is_below])]
                nodes += [[], []]
        feature, threshold, child = np.array(nodes).T
        return cls(
            scale,
            feature.astype(np.int64),
            threshold,
            child.astype(np.int64),
            (root[0], root[1]),
            np.array(rows, dtype=np.int64),
            np.array(kept),
        )

    def __len__(self) -> int:
        return len(self.row)

    def leaf(self, points: Floats, labels: Ints) -> Ints:
        """The leaf of each person, of shape (n,); -1 for a label that no one in the sample has."""
        at = self.scale.transform(points)
        node = np.array(self.root)[labels]
        moving = np.flatnonzero((node >= 0) & (self.feature[node] >= 0))
        while len(moving):
            here = node[moving]
            node[moving] = self.child[here] + (at[moving, self.feature[here]] > self.threshold[here])
            moving = moving[self.feature[node[moving]] >= 0]
        return np.where(node >= 0, self.child[node], -1)


def _splits(at: NDArray[np.float32]) -> Iterator[tuple[int, float]]:
    """Finances to split people at, those in which they differ most first, with the value nearest to halving them."""
    spread = at.std(axis=0, dtype=np.float64)
    for feature in np.argsort(-spread, kind="stable").tolist():
        if spread[feature] <= 0:
            return
        values = np.sort(at[:, feature])
        steps = np.flatnonzero(values[1:] > values[:-1]) + 1  # numbers of people below a possible split
        steps = steps[(steps >= _FEWEST_IN_LEAF) & (steps <= len(values) - _FEWEST_IN_LEAF)]
        if len(steps):
            n_below = steps[np.abs(2 * steps - len(values)).argmin()]
            yield feature, float(values[n_below - 1])


def _middle(at: NDArray[np.float32], content: Keys) -> int:
    """The place of the person nearest to the mean."""
    distance = np.square(at - np.median(at, axis=0)).sum(axis=1, dtype=np.float64)
    return int(np.lexsort((content, distance.round(9)))[0])
