"""Exact nearest neighbors inside each (label, group) cell, the same whatever the engine and the machine.

Two engines find the nearest points: a k-d tree in few dimensions, a blocked matrix product in many. Both only
propose candidates; distances are then computed once more by one shared formula, and one shared rule orders
them, so that the answer never depends on the engine, on the block size or on the number of cores.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.spatial import cKDTree

from evenhand.exceptions import InvalidInputError
from evenhand.system.parallel import in_order
from evenhand.system.threads import n_cores, one_blas_thread

__all__ = ["TIE_TOLERANCE", "NeighborIndex"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

TIE_TOLERANCE = 1e-9
"""Two distances that differ by less than this share of the smaller are the same distance."""

MAX_TREE_DIMENSIONS = 12
"""Up to this many coordinates the tree is the faster engine (`benchmarks/bench_matching.py` measures it)."""

MAX_TREE_DIMENSIONS_BESIDE_A_DEVICE = 7
"""The same where products are taken on a GPU: one H200 against two cores was slower at 6, twice as fast at 9."""

MIN_TREE_POINTS = 512
"""With fewer distinct points than this the matrix product is faster in any dimension."""

_LEAF_SIZE = 24
_TREE_BLOCK = 4096
_PRODUCT_BLOCK = 256
_PRODUCT_TILE = 2048
_DEVICE_BLOCK = 4096
_DEVICE_TILE = 65_536
_MAX_CANDIDATES = 1 << 18
_NO_ROW = np.iinfo(np.int64).max


@dataclass(frozen=True, eq=False)
class NeighborIndex:
    """Reference people, indexed by (label, group) cell for exact nearest-neighbor queries.

    Distances are Euclidean. Distances within a relative `TIE_TOLERANCE` of the smallest not yet ranked are one
    tie and are reported as equal; tied points go by their lowest row, and people at one point in row order.

    Memory beyond the reference itself, a copy of its distinct points and the answer: one copy of the distinct
    query points of a cell, and some 20 MB for each core.

    Attributes
    ----------
    coordinates
        The reference, of shape (n_reference, n_coordinates).
    cells
        The non-empty cells by (label, group).

    Examples
    --------
    >>> index = NeighborIndex.build([[0.0], [1.0], [5.0]], labels=[1, 1, 1], groups=[0, 0, 1])
    >>> distance, row = index.query([[0.8], [0.8]], labels=[1, 1], groups=[0, 1])
    >>> row.ravel().tolist()
    [1, 2]
    """

    coordinates: Floats
    cells: Mapping[tuple[int, int], _Cell]

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
            How neighbors are found. It changes the time taken, never the answer; `"auto"` takes the tree
            for up to 12 coordinates that vary (a one-hot block counting as two) and the matrix product beyond, or
            for a small cell.
        device
            Where matrix products are taken, such as ``"cuda"``; None for the CPU. It never changes the answer either:
            candidates are ranked on the CPU.

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
        built = _in_parallel(lambda rows: _Cell.build(coordinates[rows], rows, engine, device), rows_of)
        return cls(coordinates, dict(zip(keys, built, strict=True)))

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
            The cell in which each point looks for neighbors, of shape (n,): `groups` is the group of the
            neighbors, not of the person asking.
        k
            How many people to return. People at the same point each count.
        exclude_self_rows
            The reference row that each query is, -1 for none, of shape (n,). A person is then never their
            own neighbor.

        Returns
        -------
        distance, row
            Both of shape (n, k); inf and -1 where the cell has fewer than `k` (other) people.

        Raises
        ------
        InvalidInputError
            If shapes disagree, a coordinate is not finite, `k` is below 1, or a row to exclude lies elsewhere
            than the point that asks.
        """
        queries = _as_points(points, "points")
        if queries.shape[1] != self.coordinates.shape[1]:
            raise InvalidInputError(
                f"`points` has {queries.shape[1]} coordinates and the reference has {self.coordinates.shape[1]}."
            )
        _check_k(k)
        codes = _as_codes(labels, groups, len(queries))
        own_rows = None if exclude_self_rows is None else self._own_rows(exclude_self_rows, queries)
        n_wanted = k if own_rows is None else k + 1
        distance = np.full((len(queries), n_wanted), np.inf)
        row = np.full((len(queries), n_wanted), -1, dtype=np.int64)
        for key, asking in _rows_by_cell(codes):
            if key in self.cells:
                distance[asking], row[asking] = self.cells[key].nearest(queries[asking], n_wanted)
        return (distance, row) if own_rows is None else _without_own(distance, row, own_rows)

    def query_members(self, group: int, k: int = 1, *, of: Collection[int] | None = None) -> tuple[Floats, Ints]:
        """Return distances and rows of every reference person's `k` nearest of the same label in one group.

        The answer is that of `query` for the reference itself, a person never being their own neighbor. It
        comes sooner, because the reference is already in order.

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
            near, who = target.search(asking.points, k + (own == group), is_ordered=True)
            near, who = np.repeat(near, asking.sizes, axis=0), np.repeat(who, asking.sizes, axis=0)
            if own == group:
                near, who = _without_own(near, who, asking.people)
            distance[asking.people], row[asking.people] = near, who
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
                f"`exclude_self_rows` names rows with other coordinates than the point that asks, {n_elsewhere} times."
            )
        return own


@dataclass(frozen=True, eq=False)
class _Cell:
    """The people of one label and group, gathered by distinct point.

    `people[offsets[p]:offsets[p + 1]]` are the reference rows at point p, ascending.
    """

    points: Floats
    offsets: Ints
    people: Ints
    tree: cKDTree | None
    device: str | None = None

    @classmethod
    def build(cls, coordinates: Floats, rows: Ints, engine: str, device: str | None = None) -> _Cell:
        order, starts = _distinct(coordinates)
        points, sizes = coordinates[order[starts]], np.diff(starts, append=len(order))
        # Neighbors in space that are neighbors in memory make the tree about 1.7 times as fast.
        near = _spatial_order(points)
        offsets = np.concatenate([[0], np.cumsum(sizes[near])])
        people = order[np.repeat(starts[near] - offsets[:-1], sizes[near]) + np.arange(len(order))]
        points = np.ascontiguousarray(points[near])
        tree = _tree(points, is_compact=True) if _tree_fits(points, engine, device) else None
        return cls(points, offsets, rows[people], tree, device)

    @property
    def sizes(self) -> Ints:
        return np.diff(self.offsets)

    @property
    def lowest_row(self) -> Ints:
        return self.people[self.offsets[:-1]]

    def nearest(self, queries: Floats, k: int) -> tuple[Floats, Ints]:
        """Return distances and rows of the k nearest people, asking once for each distinct query."""
        order, starts = _distinct(queries)
        distance, row = self.search(queries[order[starts]], k)
        which = np.empty(len(queries), dtype=np.int64)
        which[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
        return distance[which], row[which]

    def search(self, queries: Floats, k: int, *, is_ordered: bool = False) -> tuple[Floats, Ints]:
        """Return distances and rows of the k nearest people; `is_ordered` says that queries lie in spatial order."""
        if self.tree is None:
            return _product_search(_Candidates.of(self), queries, k)
        order = np.arange(len(queries)) if is_ordered else _spatial_order(queries)
        return _tree_search(_Candidates.of(self), self.tree, queries, order, k)


@dataclass(frozen=True, eq=False)
class _Candidates:
    """A cell with what ranking its points needs, unpacked once for each search."""

    cell: _Cell
    columns: Floats
    sizes: Ints
    lowest_row: Ints

    @classmethod
    def of(cls, cell: _Cell) -> _Candidates:
        return cls(cell, np.ascontiguousarray(cell.points.T), cell.sizes, cell.lowest_row)

    def distances(self, queries: Floats, who: Ints | slice, points: Ints) -> Floats:
        """Return the distances that are ranked: one formula, one order of summation, whatever the engine."""
        total = np.zeros(points.shape)
        for column, query in zip(self.columns, queries.T, strict=True):
            asked = query[who] if points.ndim == 1 else query[who, None]
            difference = column[points]
            difference -= asked
            difference *= difference
            total += difference
        return np.sqrt(total, out=total)

    def rank(self, distance: Floats, points: Ints, k: int) -> tuple[Floats, Ints, Bools]:
        """Return distances and rows of k people, and whether the candidates sufficed to know them.

        `distance` and `points` are of shape (n, width), padded with inf. Candidates suffice when every point
        that could tie with the last person returned is known to be among them.
        """
        if k == 1:
            nearest = distance.min(axis=1, keepdims=True)
            tied = distance <= nearest * (1 + TIE_TOLERANCE)
            row = np.where(tied, self.lowest_row[points], _NO_ROW).min(axis=1, keepdims=True)
            return nearest, row, ~tied.all(axis=1)
        order = np.argsort(distance, axis=1)
        points = np.take_along_axis(points, order, axis=1)
        tie = _tie_distances(np.take_along_axis(distance, order, axis=1))
        size = np.where(np.isfinite(tie), self.sizes[points], 0)
        suffices = np.where(tie < tie[:, -1:], size, 0).sum(axis=1) >= k
        self._order_ties(tie, points, size)
        return *self._people(tie, points, size, k), suffices

    def _order_ties(self, tie: Floats, points: Ints, size: Ints) -> None:
        """Put tied points in the order of their lowest rows, in place."""
        tied = np.flatnonzero(((tie[:, 1:] == tie[:, :-1]) & (size[:, 1:] > 0)).any(axis=1))
        if not tied.size:
            return
        lowest = np.where(size[tied] > 0, self.lowest_row[points[tied]], _NO_ROW)
        order = np.lexsort((lowest, tie[tied]), axis=-1)
        points[tied] = np.take_along_axis(points[tied], order, axis=1)
        size[tied] = np.take_along_axis(size[tied], order, axis=1)

    def _people(self, tie: Floats, points: Ints, size: Ints, k: int) -> tuple[Floats, Ints]:
        """Return the first k people of ranked points, with their distances."""
        n, width = points.shape
        upto = np.minimum(np.cumsum(size, axis=1), k)
        taken = np.diff(upto, axis=1, prepend=0).ravel()
        source = np.repeat(np.arange(n * width), taken)
        within = np.arange(len(source)) - np.repeat(np.cumsum(taken) - taken, taken)
        who = source // width
        slot = np.arange(len(source)) - np.repeat(np.cumsum(upto[:, -1]) - upto[:, -1], upto[:, -1])
        distance, row = np.full((n, k), np.inf), np.full((n, k), -1, dtype=np.int64)
        distance[who, slot] = tie.ravel()[source]
        row[who, slot] = self.cell.people[self.cell.offsets[points.ravel()[source]] + within]
        return distance, row


def _tie_distances(distance: Floats) -> Floats:
    """Return sorted distances with each replaced by the first of its tie."""
    tie = distance.copy()
    first = tie[:, 0]
    for j in range(1, tie.shape[1]):
        first = np.where(tie[:, j] > first * (1 + TIE_TOLERANCE), tie[:, j], first)
        tie[:, j] = first
    return tie


def _tree_search(candidates: _Candidates, tree: cKDTree, queries: Floats, pending: Ints, k: int) -> tuple[Floats, Ints]:
    """Ask the tree for a few points, and for twice as many wherever ties leave the answer open."""
    cell = candidates.cell
    distance, row = np.empty((len(queries), k)), np.empty((len(queries), k), dtype=np.int64)
    n_points = len(cell.points)
    width = 1 + min(k, -(-2 * k * n_points // len(cell.people)))
    while len(pending) and 8 * width < n_points:

        def search(block: Ints, width: int = width) -> Ints:
            asked = queries[block]
            points = np.asarray(tree.query(asked, k=width)[1], dtype=np.int64)
            found = candidates.distances(asked, slice(None), points)
            distance[block], row[block], suffices = candidates.rank(found, points, k)
            return block[~suffices]

        size = max(1, min(_TREE_BLOCK, _MAX_CANDIDATES // width))
        pending = np.concatenate(_in_parallel(search, _blocks(pending, size)))
        width *= 2
    if len(pending):
        # Ties with a good part of the cell: looking at all of it once is cheaper than asking on.
        distance[pending], row[pending] = _product_search(candidates, queries[pending], k)
    return distance, row


def _product_search(candidates: _Candidates, queries: Floats, k: int) -> tuple[Floats, Ints]:
    """Screen all points by a matrix product in strips, then compare exactly in the strips that matter."""
    distance, row = np.empty((len(queries), k)), np.empty((len(queries), k), dtype=np.int64)
    strips = _Strips.of(candidates.cell.points, k)
    device = candidates.cell.device
    screen = strips.screen if device is None else strips.screen_on(device)

    def search(block: Ints) -> None:
        asked = queries[block]
        hit, limit = screen(asked, k)
        effort = np.cumsum(hit.sum(axis=1) * strips.length) // _MAX_CANDIDATES
        for part in np.split(np.arange(len(block)), np.flatnonzero(np.diff(effort)) + 1):
            who, points = strips.members(hit[part])
            found = candidates.distances(asked[part], who, points)
            distance[block[part]], row[block[part]], _ = candidates.rank(
                *_rectangle(who, points, found, limit[part], len(part), _squared_norms(asked[part])), k
            )

    with one_blas_thread():
        size = _PRODUCT_BLOCK if device is None else _DEVICE_BLOCK
        _in_parallel(search, _blocks(np.arange(len(queries)), size))
    return distance, row


@dataclass(frozen=True, eq=False)
class _Strips:
    """Points in strips of equal length, with -2x and |x|² ready for one product with (q, 1).

    The product gives |x - q|² - |q|², up to rounding. The minimum of each strip is all that is kept of it:
    the k-th lowest of the minima bounds the k-th nearest distance from above, so every strip whose minimum
    lies beyond it (plus the rounding and the tie tolerance) holds none of the k nearest.
    """

    factors: Floats
    length: int
    n_points: int
    radius: float

    @classmethod
    def of(cls, points: Floats, k: int) -> _Strips:
        n_points, dimensions = points.shape
        length = max(1, min(64, n_points // (16 * k)))
        factors = np.zeros((dimensions + 1, -(-n_points // length) * length))
        factors[:-1, :n_points] = -2 * points.T
        factors[-1] = np.inf
        factors[-1, :n_points] = _squared_norms(points)
        return cls(factors, length, n_points, float(np.sqrt(factors[-1, :n_points].max())))

    def screen(self, queries: Floats, k: int) -> tuple[Bools, Floats]:
        """Return which strips can hold one of the k nearest, and the value that none of those can exceed."""
        extended = np.column_stack([queries, np.ones(len(queries))])
        lowest = np.empty((len(queries), self.factors.shape[1] // self.length))
        step = max(1, _PRODUCT_TILE // self.length)
        for first in range(0, lowest.shape[1], step):
            tile = extended @ self.factors[:, first * self.length : (first + step) * self.length]
            lowest[:, first : first + step] = tile.reshape(len(queries), -1, self.length).min(axis=2)
        if lowest.shape[1] < k:
            return np.ones(lowest.shape, dtype=bool), np.full(len(queries), np.inf)
        limit = self._limit(queries, np.partition(lowest, k - 1, axis=1)[:, k - 1])
        return lowest <= limit[:, None], limit

    def screen_on(self, device: str) -> Callable[[Floats, int], tuple[Bools, Floats]]:
        """Return `screen` with the products and minima taken on another device, in float64 like here."""
        factors = torch.from_numpy(self.factors).to(device)
        step = max(1, _DEVICE_TILE // self.length) * self.length

        def screen(queries: Floats, k: int) -> tuple[Bools, Floats]:
            extended = torch.from_numpy(np.column_stack([queries, np.ones(len(queries))])).to(device)
            tiles = [
                (extended @ factors[:, first : first + step]).unflatten(1, (-1, self.length)).amin(2)
                for first in range(0, factors.shape[1], step)
            ]
            lowest = torch.cat(tiles, dim=1)
            if lowest.shape[1] < k:
                return np.ones(tuple(lowest.shape), dtype=bool), np.full(len(queries), np.inf)
            limit = self._limit(queries, lowest.kthvalue(k, dim=1).values.cpu().numpy())
            hit: Bools = (lowest <= torch.from_numpy(limit).to(device).unsqueeze(1)).cpu().numpy()
            return hit, limit

        return screen

    def _limit(self, queries: Floats, kth: Floats) -> Floats:
        """Return what no square of the k nearest distances, less the query's norm, exceeds; `kth` up to rounding."""
        square = _squared_norms(queries)
        rounding = 8 * np.finfo(float).eps * (queries.shape[1] + 4) * (np.sqrt(square) + self.radius) ** 2
        limit: Floats = kth + 4 * TIE_TOLERANCE * np.maximum(kth + square, 0) + 2 * rounding
        return limit

    def members(self, hit: Bools) -> tuple[Ints, Ints]:
        """Return (query, point) for every point of every strip that was hit, in query order."""
        who, strip = np.nonzero(hit)
        points = (strip[:, None] * self.length + np.arange(self.length)).ravel()
        who = np.repeat(who, self.length)
        real = points < self.n_points
        return who[real], points[real]


def _squared_norms(points: Floats) -> Floats:
    norms: Floats = np.einsum("ij,ij->i", points, points)
    return norms


def _rectangle(who: Ints, points: Ints, distance: Floats, limit: Floats, n: int, offset: Floats) -> tuple[Floats, Ints]:
    """Return the candidates within their query's limit as rows of a rectangle padded with inf."""
    near = distance * distance <= (limit + offset)[who]
    who, points, distance = who[near], points[near], distance[near]
    count = np.bincount(who, minlength=n)
    slot = np.arange(len(who)) - np.repeat(np.cumsum(count) - count, count)
    padded, point = np.full((n, count.max()), np.inf), np.zeros((n, count.max()), dtype=np.int64)
    padded[who, slot], point[who, slot] = distance, points
    return padded, point


def _tree_fits(points: Floats, engine: str, device: str | None) -> bool:
    """Say whether the tree is to be used for these points."""
    if engine != "auto":
        return engine == "tree"
    most = MAX_TREE_DIMENSIONS if device is None else MAX_TREE_DIMENSIONS_BESIDE_A_DEVICE
    return len(points) >= MIN_TREE_POINTS and _effective_dimensions(points) <= most


def _effective_dimensions(points: Floats) -> float:
    """Return how many dimensions the points fill as far as a tree is concerned.

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
    """Return an order of the points in which neighbors in space stand close together."""
    if len(points) < MIN_TREE_POINTS:
        return np.arange(len(points))
    return np.asarray(_tree(points, is_compact=False).indices, dtype=np.int64)


def _distinct(points: Floats) -> tuple[Ints, Ints]:
    """Return an order that gathers equal rows, row numbers ascending, and where each distinct row starts."""
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


def _rows_by_cell(codes: Ints) -> Iterator[tuple[tuple[int, int], Ints]]:
    """Yield each (label, group) present with its rows, ascending."""
    order = np.lexsort((codes[:, 1], codes[:, 0]))
    changes = np.flatnonzero((np.diff(codes[order], axis=0) != 0).any(axis=1)) + 1
    for rows in np.split(order, changes):
        if len(rows):
            yield (int(codes[rows[0], 0]), int(codes[rows[0], 1])), rows


def _without_own(distance: Floats, row: Ints, own_rows: Ints) -> tuple[Floats, Ints]:
    """Return neighbors with the person struck out, or the last one where the person is not among them."""
    k = row.shape[1] - 1
    is_own = (row == own_rows[:, None]) & (row >= 0)
    struck = np.where(is_own.any(axis=1), is_own.argmax(axis=1), k)
    kept = np.arange(k) + (np.arange(k) >= struck[:, None])
    return np.take_along_axis(distance, kept, axis=1), np.take_along_axis(row, kept, axis=1)


def _blocks(rows: Ints, size: int) -> list[Ints]:
    """Return rows in blocks of at most `size`."""
    return [rows[first : first + size] for first in range(0, len(rows), size)]


def _in_parallel(task: Callable[[Ints], Any], blocks: Sequence[Ints]) -> list[Any]:
    """Return the task's results for all blocks, in order, on all cores this process may use."""
    n_threads = min(n_cores(), len(blocks))
    return list(in_order(task, blocks, n_threads) if n_threads > 1 else map(task, blocks))


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
