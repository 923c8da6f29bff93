"""Exact nearest neighbors inside each (label, group) cell, the same for every engine and machine.

Two engines find the nearest points: a k-d tree in few dimensions, a blocked matrix product in many and on a GPU. Both
only propose candidates. Their distances are then computed with one formula in one order of summation, and one rule
orders ties, so that the answer never depends on the engine, the block size, the number of cores or the device: every
step is exact in float64 arithmetic, to the last bit the same on a CPU and on a GPU.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from evenhand.arrays import (
    Array,
    Floats,
    Ints,
    as_numpy,
    counts,
    device_of,
    gathered,
    gpu_of,
    in_blocks,
    kth_smallest,
    like,
    namespace,
    placed,
    running_max,
    smallest,
    taken,
)
from evenhand.exceptions import InvalidInputError
from evenhand.system.threads import device_turn, in_order, n_cores, one_blas_thread, one_torch_thread

TIE_TOLERANCE = 1e-9
"""Two distances that differ by less than this share of the smaller are the same distance."""

_NO_ROW = int(np.iinfo(np.int64).max)


@dataclass(frozen=True, eq=False)
class Candidates:
    """The distinct points of a cell and the people at each, on one device.

    Attributes
    ----------
    columns
        Coordinates, of shape (n_coordinates, n_points), in float64.
    offsets, people
        `people[offsets[p]:offsets[p + 1]]` are the reference rows at point p, ascending.
    sizes, lowest_row
        Number of people at each point, and the lowest row.
    """

    columns: Array
    offsets: Array
    people: Array
    sizes: Array
    lowest_row: Array

    @classmethod
    def of(cls, points: Array, offsets: Array, people: Array) -> Candidates:
        """Build it from points of shape (n_points, n_coordinates), where these are."""
        columns = (
            namespace(points).stack([points[:, c] for c in range(points.shape[1])]) if points.shape[1] else points.T
        )
        return cls(columns, offsets, people, offsets[1:] - offsets[:-1], people[offsets[:-1]])

    @property
    def n_points(self) -> int:
        """Number of distinct points."""
        return len(self.sizes)

    def distances(self, queries: Array, who: Array | slice, points: Array) -> Array:
        """Distances of points from the queries `who`, of the shape of `points`: (n,), or (n, width) for a slice."""
        total = namespace(queries).zeros(points.shape, dtype=queries.dtype, device=device_of(queries))
        for c in range(len(self.columns)):
            asked = queries[who, c]
            difference = taken(self.columns[c], points)
            difference -= asked if points.ndim == 1 else asked[:, None]
            difference *= difference
            total += difference
        return _rooted(total)

    def rank(self, distance: Array, points: Array, k: int) -> tuple[Array, Array, Array]:
        """Distances and rows of k people, and whether the candidates were sufficient.

        `distance` and `points` are of shape (n, width), padded with inf, and are sorted in place. Candidates are
        sufficient if every point that could tie with the last person returned is known to be among them.
        """
        xp = namespace(distance)
        if k == 1:
            nearest = xp.min(distance, axis=1, keepdims=True)
            tied = distance <= nearest * (1 + TIE_TOLERANCE)
            row = xp.min(xp.where(tied, taken(self.lowest_row, points), _NO_ROW), axis=1, keepdims=True)
            return nearest, row, ~xp.all(tied, axis=1)
        _sort_together(distance, points)
        tie = _tie_distances(distance)
        size = xp.where(xp.isfinite(tie), taken(self.sizes, points), 0)
        suffices = xp.sum(xp.where(tie < tie[:, -1:], size, 0), axis=1) >= k
        self._order_ties(tie, points, size)
        return *self._people(tie, points, size, k), suffices

    def _order_ties(self, tie: Array, points: Array, size: Array) -> None:
        """Sort tied points by their lowest rows, in place."""
        xp = namespace(tie)
        (tied,) = xp.nonzero(xp.any((tie[:, 1:] == tie[:, :-1]) & (size[:, 1:] > 0), axis=1))
        if not len(tied):
            return
        lowest = xp.where(size[tied] > 0, taken(self.lowest_row, points[tied]), _NO_ROW)
        order = xp.argsort(lowest, axis=1, stable=True)
        order = gathered(order, xp.argsort(gathered(tie[tied], order), axis=1, stable=True))
        points[tied] = gathered(points[tied], order)
        size[tied] = gathered(size[tied], order)

    def _people(self, tie: Array, points: Array, size: Array, k: int) -> tuple[Array, Array]:
        """The first k people of ranked points, with their distances; inf and -1 if there are fewer."""
        xp = namespace(tie)
        n, width = points.shape
        if width >= k and xp.all(size[:, :k] == 1):
            return tie[:, :k], taken(self.lowest_row, points[:, :k])
        upto = xp.cumulative_sum(size, axis=1)
        slot, first = (xp.arange(m, device=device_of(points)) for m in (k, n))
        # Place j of a person has passed as many points as have their last person before it.
        passed = counts(xp.reshape((k + 1) * first[:, None] + xp.clip(upto, max=k), (-1,)), n * (k + 1))
        place = xp.cumulative_sum(xp.reshape(passed, (n, k + 1))[:, :k], axis=1)
        is_someone = place < width
        place = xp.clip(place, max=width - 1)
        within = slot - gathered(upto - size, place)
        person = xp.where(is_someone, taken(self.offsets, gathered(points, place)) + within, 0)
        distance, row = gathered(tie, place), taken(self.people, person)
        return xp.where(is_someone, distance, xp.inf), xp.where(is_someone, row, -1)


def _rooted(squares: Array) -> Array:
    """Square roots, in place, rounded according to IEEE 754.

    NumPy and GPUs round this way; torch on a CPU uses a library that is off in the last bit once in a hundred.
    """
    if gpu_of(squares):
        return squares.sqrt_()
    np.sqrt(as_numpy(squares), out=as_numpy(squares))
    return squares


def _sort_together(distance: Array, points: Array) -> None:
    """Sort the few rows that are not in order, in place."""
    xp = namespace(distance)
    (unsorted,) = xp.nonzero(xp.any(distance[:, 1:] < distance[:, :-1], axis=1))
    if len(unsorted):
        order = xp.argsort(distance[unsorted], axis=1, stable=False)
        distance[unsorted] = gathered(distance[unsorted], order)
        points[unsorted] = gathered(points[unsorted], order)


def _tie_distances(distance: Array) -> Array:
    """Sorted distances with each replaced by the first of its tie."""
    xp = namespace(distance)
    is_first = distance[:, 1:] > distance[:, :-1] * (1 + TIE_TOLERANCE)
    if xp.all(is_first):
        return distance
    later = xp.where(is_first, distance[:, 1:], -xp.inf)
    tie = running_max(xp.concat([distance[:, :1], later], axis=1))
    # If each is tied with the previous one but not with the first, a new tie starts in between.
    (drifting,) = xp.nonzero(xp.any(distance > tie * (1 + TIE_TOLERANCE), axis=1))
    if len(drifting):
        tie[drifting] = _ties_of_drifting(distance[drifting])
    return tie


def _ties_of_drifting(distance: Array) -> Array:
    """The same, column by column."""
    xp = namespace(distance)
    columns = [distance[:, 0]]
    for place in range(1, distance.shape[1]):
        column, first = distance[:, place], columns[-1]
        columns.append(xp.where(column > first * (1 + TIE_TOLERANCE), column, first))
    return xp.stack(columns, axis=1)


# Queries and points of one product, whose values stay in the processor's cache, or fill a GPU.
_BLOCK = {"cpu": 256, "cuda": 4096}
_TILE = {"cpu": 2048, "cuda": 32_768}
_LONGEST_STRIP = {"cpu": 64, "cuda": 32}
_MOST_CANDIDATES = {"cpu": 1 << 18, "cuda": 1 << 23}  # number of exact comparisons at once: bounds memory


def query_blocks(queries: Array) -> list[Array]:
    """Queries in blocks of the best size."""
    return in_blocks(queries, _of(_BLOCK, queries))


def product_search(candidates: Candidates, queries: Array, k: int) -> tuple[Array, Array]:
    """Distances and rows of the k nearest people of each query, of shape (n, k), as in `Candidates.rank`.

    Parameters
    ----------
    candidates
        The points.
    queries
        Coordinates, of shape (n, n_coordinates), where the candidates are.
    k
        Number of people wanted.
    """
    strips = _Strips.of(candidates, k)
    with device_turn(gpu_of(queries)):
        return _joined([_searched(strips, asked, k) for asked in query_blocks(queries)])


def _searched(strips: _Strips, queries: Array, k: int) -> tuple[Array, Array]:
    """A block of queries, in parts whose candidates fit in memory."""
    xp = namespace(queries)
    hit, limit = strips.screen(queries, k)
    effort = xp.cumulative_sum(xp.sum(hit, axis=1) * strips.length) // _of(_MOST_CANDIDATES, queries)
    cuts = [0, *(xp.nonzero(effort[1:] != effort[:-1])[0] + 1).tolist(), len(queries)]
    parts = [slice(*bounds) for bounds in pairwise(cuts)]
    return _joined([_ranked(strips, queries[part], hit[part], limit[part], k) for part in parts])


def _joined(parts: Sequence[tuple[Array, Array]]) -> tuple[Array, Array]:
    """Distances and rows of consecutive queries."""
    distance, row = (namespace(*values).concat(values) for values in zip(*parts, strict=True))
    return distance, row


def _ranked(strips: _Strips, queries: Array, hit: Array, limit: Array, k: int) -> tuple[Array, Array]:
    """Compare exactly in the strips that were hit."""
    candidates = strips.candidates
    who, points = strips.members(hit)
    found = candidates.distances(queries, who, points)
    near = found * found <= (limit + _squared_norms(queries))[who]
    found, points = _rectangle(who[near], points[near], found[near], len(queries))
    # The few nearest are almost always sufficient, and ties are found column by column.
    width = min(found.shape[1], 2 * k + 16)
    nearest, order = smallest(found, width)
    distance, row, suffices = candidates.rank(nearest, gathered(points, order), k)
    rest = namespace(found).nonzero(~suffices)[0] if width < found.shape[1] else suffices[:0]
    if len(rest):
        distance[rest], row[rest], _ = candidates.rank(found[rest], points[rest], k)
    return distance, row


@dataclass(frozen=True, eq=False)
class _Strips:
    """Points in strips of equal length, with -2x and |x|² ready for one product with (q, 1).

    The product gives |x - q|² - |q|², up to rounding. Only the minimum of each strip is kept: the k-th lowest of the
    minima bounds the k-th nearest distance from above, so a strip whose minimum is beyond it (plus the rounding and the
    tie tolerance) has none of the k nearest.
    """

    candidates: Candidates
    factors: Array
    length: int
    radius: Array

    @classmethod
    def of(cls, candidates: Candidates, k: int) -> _Strips:
        columns, n_points = candidates.columns, candidates.n_points
        xp = namespace(columns)
        length = max(1, min(_of(_LONGEST_STRIP, columns), n_points // (16 * k)))
        n_padded = -(-n_points // length) * length
        factors = xp.zeros((len(columns) + 1, n_padded), dtype=columns.dtype, device=device_of(columns))
        factors[:-1, :n_points] = -2 * columns
        factors[-1, :] = xp.inf
        norms = xp.sum(columns * columns, axis=0)
        factors[-1, :n_points] = norms
        return cls(candidates, factors, length, xp.sqrt(xp.max(norms)))

    def screen(self, queries: Array, k: int) -> tuple[Array, Array]:
        """Which strips can hold one of the k nearest, and the value that none of those can exceed."""
        xp = namespace(queries)
        extended = xp.concat([queries, xp.ones_like(queries[:, :1])], axis=1)
        step = max(1, _of(_TILE, queries) // self.length) * self.length
        tiles = (self.factors[:, start : start + step] for start in range(0, self.factors.shape[1], step))
        lowest = xp.concat(
            [xp.min(xp.reshape(extended @ tile, (len(queries), -1, self.length)), axis=2) for tile in tiles], axis=1
        )
        if lowest.shape[1] < k:
            return xp.ones_like(lowest, dtype=xp.bool), xp.full_like(lowest[:, 0], xp.inf)
        limit = self._limit(queries, kth_smallest(lowest, k))
        return lowest <= limit[:, None], limit

    def _limit(self, queries: Array, kth: Array) -> Array:
        """An upper bound of the squares of the k nearest distances minus the query's norm; `kth` up to rounding."""
        xp = namespace(queries)
        square = _squared_norms(queries)
        epsilon = float(np.finfo(np.float64).eps)
        rounding = 8 * epsilon * (queries.shape[1] + 4) * (xp.sqrt(square) + self.radius) ** 2
        return kth + 4 * TIE_TOLERANCE * xp.clip(kth + square, min=0) + 2 * rounding

    def members(self, hit: Array) -> tuple[Array, Array]:
        """(query, point) for every point of every strip that was hit, in query order."""
        xp = namespace(hit)
        who, strip = xp.nonzero(hit)
        points = xp.reshape(strip[:, None] * self.length + xp.arange(self.length, device=device_of(hit)), (-1,))
        who = xp.repeat(who, self.length)
        if self.factors.shape[1] == self.candidates.n_points:
            return who, points
        real = points < self.candidates.n_points
        return who[real], points[real]


def _rectangle(who: Array, points: Array, distance: Array, n: int) -> tuple[Array, Array]:
    """Candidates, in query order, as rows of a rectangle padded with inf."""
    xp = namespace(distance)
    count = counts(who, n)
    slot = xp.arange(len(who), device=device_of(who)) - (xp.cumulative_sum(count) - count)[who]
    shape = (n, int(xp.max(count)))
    padded = xp.full(shape, xp.inf, dtype=distance.dtype, device=device_of(distance))
    point = xp.zeros(shape, dtype=points.dtype, device=device_of(points))
    padded[who, slot], point[who, slot] = distance, points
    return padded, point


def _squared_norms(points: Array) -> Array:
    return namespace(points).sum(points * points, axis=1)


def _of(sizes: dict[str, int], array: Array) -> int:
    return sizes["cuda" if gpu_of(array) else "cpu"]


MAX_TREE_DIMENSIONS = 12
"""Up to this many coordinates, the tree is faster (`benchmarks/bench_matching.py` measures it)."""

MIN_TREE_POINTS = 512
"""With fewer distinct points, the matrix product is faster in any dimension."""

_LEAF_SIZE = 24
_TREE_BLOCK = 4096
_MAX_CANDIDATES = 1 << 18


@dataclass(frozen=True, eq=False)
class Cell:
    """The people of one label and group, grouped by distinct point.

    Attributes
    ----------
    points
        The distinct points, with spatial neighbors close together.
    candidates
        The same points with the people at each, on the device where they are ranked.
    tree
        Tree of the points; None if products search them.
    """

    points: Floats
    candidates: Candidates
    tree: cKDTree | None

    @classmethod
    def build(cls, coordinates: Floats, rows: Ints, engine: str, device: str | None = None) -> Cell:
        """Group the people at `coordinates`, who are rows of the reference; see `NeighborIndex.build`."""
        order, starts = _distinct(coordinates)
        points, sizes = coordinates[order[starts]], np.diff(starts, append=len(order))
        # Spatial neighbors that are adjacent in memory make the tree about 1.7 times as fast, and strips of them are
        # more informative about where the nearest are.
        near = _spatial_order(points)
        offsets = np.concatenate([[0], np.cumsum(sizes[near])])
        people = order[np.repeat(starts[near] - offsets[:-1], sizes[near]) + np.arange(len(order))]
        points = np.ascontiguousarray(points[near])
        tree = _tree(points, is_compact=True) if _tree_fits(points, engine, device) else None
        arrays = (points, offsets, rows[people])
        candidates = Candidates.of(*(placed(array, device) for array in arrays))
        return cls(points, candidates, tree)

    @property
    def sizes(self) -> Ints:
        """Number of people at each point."""
        return as_numpy(self.candidates.sizes)

    @property
    def people(self) -> Ints:
        """Rows of the reference, point by point."""
        return as_numpy(self.candidates.people)

    def nearest(self, queries: Array, k: int) -> tuple[Array, Array]:
        """Distances and rows of the k nearest people, querying each distinct point once on a CPU."""
        if gpu_of(queries):
            return self.search(queries, k)
        order, starts = _distinct(as_numpy(queries))
        distance, row = self.search(queries[like(order[starts], queries)], k)
        which = np.empty(len(order), dtype=np.int64)
        which[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
        return distance[like(which, queries)], row[like(which, queries)]

    def search(self, queries: Array, k: int, *, is_ordered: bool = False) -> tuple[Array, Array]:
        """Distances and rows of the k nearest people; `is_ordered` says that queries are in spatial order."""
        if self.tree is None:
            return self._by_products(queries, k)
        order = np.arange(len(queries)) if is_ordered else _spatial_order(as_numpy(queries))
        return self._by_tree(self.tree, queries, order, k)

    def _by_products(self, queries: Array, k: int) -> tuple[Array, Array]:
        """Examine all points; on a CPU, blocks of queries are distributed over the cores."""
        if gpu_of(queries):
            return product_search(self.candidates, queries, k)
        with one_blas_thread():
            return _joined(in_parallel(lambda block: product_search(self.candidates, block, k), query_blocks(queries)))

    def _by_tree(self, tree: cKDTree, queries: Array, pending: Ints, k: int) -> tuple[Array, Array]:
        """Query the tree for a few points, and for twice as many whenever ties leave the answer open."""
        xp = namespace(queries)
        distance = xp.empty((len(queries), k), dtype=queries.dtype, device=device_of(queries))
        row = xp.empty((len(queries), k), dtype=xp.int64, device=device_of(queries))
        n_points = len(self.points)
        width = 1 + min(k, -(-2 * k * n_points // len(self.candidates.people)))
        while len(pending) and 8 * width < n_points:

            def search(block: Ints, width: int = width) -> Ints:
                here = like(block, queries)
                asked = queries[here]
                points = like(np.asarray(tree.query(as_numpy(asked), k=width)[1], dtype=np.int64), queries)
                found = self.candidates.distances(asked, slice(None), points)
                distance[here], row[here], suffices = self.candidates.rank(found, points, k)
                open_rows: Ints = block[~as_numpy(suffices)]
                return open_rows

            size = max(1, min(_TREE_BLOCK, _MAX_CANDIDATES // width))
            pending = np.concatenate(in_parallel(search, in_blocks(pending, size)))
            width *= 2
        if len(pending):
            # Ties with a large part of the cell: examining all of it once is cheaper than more queries.
            rest = like(pending, queries)
            distance[rest], row[rest] = self._by_products(queries[rest], k)
        return distance, row


def in_parallel(task: Callable[[Any], Any], blocks: Sequence[Any]) -> list[Any]:
    """The task's results for all blocks, in order, on all cores this process may use."""
    n_threads = min(n_cores(), len(blocks))
    with one_torch_thread():
        return list(in_order(task, blocks, n_threads) if n_threads > 1 else map(task, blocks))


def _tree_fits(points: Floats, engine: str, device: str | None) -> bool:
    """Whether to use the tree for these points."""
    if engine != "auto":
        return engine == "tree"
    is_here = device is None  # a GPU examines all points faster than cores walk a tree
    return is_here and len(points) >= MIN_TREE_POINTS and _effective_dimensions(points) <= MAX_TREE_DIMENSIONS


def _effective_dimensions(points: Floats) -> float:
    """Return how many dimensions the points effectively have for a tree.

    Constant coordinates do not count. A one-hot block, however long, is as hard to search as about two numbers
    (measured); in each row one of its two-valued coordinates is at its upper value.
    """
    lowest, highest = points.min(axis=0), points.max(axis=0)
    at_highest = points == highest
    is_two_valued = ((points == lowest) | at_highest).all(axis=0)
    is_block = is_two_valued & (lowest < highest)
    return float((~is_two_valued).sum() + 2 * at_highest[:, is_block].sum(axis=1).mean())


def _tree(points: Floats, *, is_compact: bool) -> cKDTree:
    """Return a k-d tree; sliding midpoints build faster than medians, compact nodes answer a fifth sooner."""
    return cKDTree(points, leafsize=_LEAF_SIZE, balanced_tree=False, compact_nodes=is_compact)


def _spatial_order(points: Floats) -> Ints:
    """Return an order of the points in which spatial neighbors are close together."""
    if len(points) < MIN_TREE_POINTS:
        return np.arange(len(points))
    return np.array(_tree(points, is_compact=False).indices, dtype=np.int64)


def _distinct(points: Floats) -> tuple[Ints, Ints]:
    """Return an order that groups equal rows, row numbers ascending, and where each distinct row starts."""
    code = _row_hash(points)
    order = np.argsort(code, kind="stable")
    change = np.diff(code[order]) != 0
    gathered = points[order]
    if (gathered[1:] != gathered[:-1]).any(axis=1)[~change].any():  # two rows share a hash
        order = np.lexsort(points.T)
        gathered = points[order]
        change = (gathered[1:] != gathered[:-1]).any(axis=1)
    return order, np.flatnonzero(np.concatenate([np.ones(min(1, len(points)), dtype=bool), change]))


def _row_hash(points: Floats) -> NDArray[np.uint64]:
    """Return a 64-bit hash of each row, equal for equal rows."""
    code = np.zeros(len(points), dtype=np.uint64)
    for column in points.T:
        code ^= (column + 0.0).view(np.uint64)  # -0.0 + 0.0 is 0.0
        code *= np.uint64(0x9E3779B97F4A7C15)
        code ^= code >> np.uint64(32)
    return code


@dataclass(frozen=True, eq=False)
class NeighborIndex:
    """Reference people, indexed by (label, group) cell for exact nearest-neighbor queries.

    Distances are Euclidean. Distances within a relative `TIE_TOLERANCE` of the smallest unranked one are a tie and are
    reported as equal; tied points are ordered by their lowest row, and people at one point by row.

    Memory in addition to the reference, a copy of its distinct points and the answer: one copy of the distinct
    query points of a cell, and about 20 MB per core.

    Attributes
    ----------
    coordinates
        The reference, of shape (n_reference, n_coordinates).
    cells
        The non-empty cells by (label, group).
    device
        Where neighbors are ranked; None for NumPy on the CPU.

    Examples
    --------
    >>> index = NeighborIndex.build([[0.0], [1.0], [5.0]], labels=[1, 1, 1], groups=[0, 0, 1])
    >>> distance, row = index.query([[0.8], [0.8]], labels=[1, 1], groups=[0, 1])
    >>> row.ravel().tolist()
    [1, 2]
    """

    coordinates: Floats
    cells: Mapping[tuple[int, int], Cell]
    device: str | None

    @classmethod
    def build(
        cls,
        points: ArrayLike,
        labels: ArrayLike,
        groups: ArrayLike,
        *,
        engine: Literal["auto", "tree", "product"] = "auto",
        device: str | None = None,
    ) -> NeighborIndex:
        """Return the index of reference people.

        Parameters
        ----------
        points
            Finite coordinates, of shape (n_reference, n_coordinates).
        labels, groups
            Integer codes, of shape (n_reference,).
        engine
            How neighbors are found. It affects the time, never the answer; `"auto"` uses the tree for up to 12 varying
            coordinates (a one-hot block counts as two) and the matrix product beyond, for a small cell, or on a
            device.
        device
            Where neighbors are found, such as ``"cuda"``; None for the CPU. It never affects the answer.

        Raises
        ------
        InvalidInputError
            If shapes disagree, a coordinate is not finite, or `engine` is unknown.
        """
        if engine not in ("auto", "tree", "product"):
            raise InvalidInputError(f"`engine` must be 'auto', 'tree' or 'product'; got {engine!r}.")
        coordinates = _as_points(points, "points")
        codes = _as_codes(labels, groups, len(coordinates))
        keys, rows_of = zip(*_rows_by_cell(codes), strict=True) if len(codes) else ((), ())
        built = in_parallel(lambda rows: Cell.build(coordinates[rows], rows, engine, device), rows_of)
        return cls(coordinates, dict(zip(keys, built, strict=True)), device)

    def query(
        self,
        points: ArrayLike,
        labels: ArrayLike,
        groups: ArrayLike,
        k: int = 1,
        exclude_self_rows: ArrayLike | None = None,
    ) -> tuple[Floats, Ints]:
        """Return the distances and reference rows of the `k` nearest people of a cell, nearest first.

        Parameters
        ----------
        points
            Finite coordinates, of shape (n, n_coordinates).
        labels, groups
            The cell in which each point searches for neighbors, of shape (n,): `groups` is the group of the
            neighbors, not of the person.
        k
            How many people to return. People at the same point each count.
        exclude_self_rows
            The reference row of each query, -1 if there is none, of shape (n,). A person is then never their own
            neighbor.

        Returns
        -------
        distance, row
            Both of shape (n, k); inf and -1 if the cell has fewer than `k` (other) people.

        Raises
        ------
        InvalidInputError
            If shapes disagree, a coordinate is not finite, `k` is below 1, or a row to exclude is not at the query
            point.
        """
        queries = _as_points(points, "points")
        if queries.shape[1] != self.coordinates.shape[1]:
            raise InvalidInputError(
                f"`points` has {queries.shape[1]} coordinates, but the reference has {self.coordinates.shape[1]}."
            )
        _check_k(k)
        codes = _as_codes(labels, groups, len(queries))
        own_rows = None if exclude_self_rows is None else self._own_rows(exclude_self_rows, queries)
        n_wanted = k if own_rows is None else k + 1
        found = self.nearest(placed(queries, self.device), codes, n_wanted)
        distance, row = (as_numpy(values) for values in found)
        return (distance, row) if own_rows is None else _without_own(distance, row, own_rows)

    def nearest(self, queries: Array, codes: Ints, k: int) -> tuple[Array, Array]:
        """The answer of `query` for checked points and cells, on the device of the index.

        Parameters
        ----------
        queries
            Points in float64, of shape (n, n_coordinates), on the device of the index.
        codes
            Label and group of the neighbors, of shape (n, 2).
        k
            How many people to return.
        """
        xp = namespace(queries)
        distance = xp.full((len(queries), k), xp.inf, dtype=queries.dtype, device=device_of(queries))
        row = xp.full((len(queries), k), -1, dtype=xp.int64, device=device_of(queries))
        for key, rows in _rows_by_cell(codes):
            if key in self.cells:
                asking = like(rows, queries)
                distance[asking], row[asking] = self.cells[key].nearest(queries[asking], k)
        return distance, row

    def query_members(self, group: int, k: int = 1, *, of: Collection[int] | None = None) -> tuple[Floats, Ints]:
        """Return distances and rows of every reference person's `k` nearest of the same label in one group.

        The answer equals that of `query` for the reference itself, where no one is their own neighbor. It is faster,
        because the reference is already sorted.

        Parameters
        ----------
        group
            The group of the neighbors.
        k
            How many people to return.
        of
            Groups of the people to answer for; None for all. Others get no neighbors.

        Returns
        -------
        distance, row
            Both of shape (n_reference, k), as from `query`.

        Raises
        ------
        InvalidInputError
            If `k` is below 1.

        Examples
        --------
        >>> index = NeighborIndex.build([[0.0], [1.0], [5.0]], labels=[1, 1, 1], groups=[0, 0, 1])
        >>> index.query_members(0)[1].ravel().tolist()
        [1, 0, 1]
        """
        _check_k(k)
        distance = np.full((len(self.coordinates), k), np.inf)
        row = np.full((len(self.coordinates), k), -1, dtype=np.int64)
        for (label, own), asking in self.cells.items():
            target = self.cells.get((label, group))
            if target is None or (of is not None and own not in of):
                continue
            points = placed(asking.points, self.device)
            found = target.search(points, k + (own == group), is_ordered=True)
            near, who = (np.repeat(as_numpy(values), asking.sizes, axis=0) for values in found)
            people = asking.people
            if own == group:
                near, who = _without_own(near, who, people)
            distance[people], row[people] = near, who
        return distance, row

    def _own_rows(self, rows: ArrayLike, queries: Floats) -> Ints:
        """Return the rows to exclude, checked to lie at the points that exclude them."""
        own = np.asarray(rows, dtype=np.int64)
        if own.shape != (len(queries),):
            raise InvalidInputError(
                f"`exclude_self_rows` must hold one row for each of the {len(queries)} points; got shape {own.shape}."
            )
        if own.size and (own.max() >= len(self.coordinates) or own.min() < -1):
            raise InvalidInputError(
                f"`exclude_self_rows` must lie between -1 and {len(self.coordinates) - 1}; "
                f"got {own.min()} to {own.max()}."
            )
        named = own >= 0
        n_elsewhere = int((self.coordinates[own[named]] != queries[named]).any(axis=1).sum())
        if n_elsewhere:
            raise InvalidInputError(
                f"`exclude_self_rows` names rows with different coordinates from the query point, {n_elsewhere} times."
            )
        return own


def _rows_by_cell(codes: Ints) -> Iterator[tuple[tuple[int, int], Ints]]:
    """Yield each (label, group) present with its rows, ascending."""
    order = np.lexsort((codes[:, 1], codes[:, 0]))
    changes = np.flatnonzero((np.diff(codes[order], axis=0) != 0).any(axis=1)) + 1
    for rows in np.split(order, changes):
        if len(rows):
            yield (int(codes[rows[0], 0]), int(codes[rows[0], 1])), rows


def _without_own(distance: Floats, row: Ints, own_rows: Ints) -> tuple[Floats, Ints]:
    """Return neighbors without the person, or without the last one if the person is not among them."""
    k = row.shape[1] - 1
    is_own = (row == own_rows[:, None]) & (row >= 0)
    struck = np.where(is_own.any(axis=1), is_own.argmax(axis=1), k)
    kept = np.arange(k) + (np.arange(k) >= struck[:, None])
    return np.take_along_axis(distance, kept, axis=1), np.take_along_axis(row, kept, axis=1)


def _as_points(points: ArrayLike, name: str) -> Floats:
    """Return finite coordinates of shape (n, n_coordinates)."""
    array = np.asarray(points, dtype=np.float64)
    if array.ndim != 2:
        raise InvalidInputError(f"`{name}` must be of shape (n, n_coordinates); got shape {array.shape}.")
    n_bad = int((~np.isfinite(array)).any(axis=1).sum())
    if n_bad:
        raise InvalidInputError(f"`{name}` has {n_bad} rows with a missing or infinite coordinate.")
    return array


def _check_k(k: int) -> None:
    if k < 1:
        raise InvalidInputError(f"`k` must be at least 1; got {k}.")


def _as_codes(labels: ArrayLike, groups: ArrayLike, n: int) -> Ints:
    """Return (label, group) for each of n rows, of shape (n, 2)."""
    pair = [np.asarray(labels, dtype=np.int64), np.asarray(groups, dtype=np.int64)]
    if any(codes.shape != (n,) for codes in pair):
        raise InvalidInputError(
            f"`labels` and `groups` must hold one code for each of the {n} points; "
            f"got shapes {pair[0].shape} and {pair[1].shape}."
        )
    return np.column_stack(pair)
