"""The people of one label and group, grouped by distinct point and searched by a tree or by products."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.spatial import cKDTree
from torch import Tensor

from evenhand.matching.ranking import Candidates
from evenhand.matching.screening import product_search, query_block
from evenhand.system.parallel import in_order
from evenhand.system.threads import n_cores, one_blas_thread, one_torch_thread

__all__ = ["Cell", "in_parallel"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

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
        candidates = Candidates.of(*(torch.as_tensor(array, device=device) for array in arrays))
        return cls(points, candidates, tree)

    @property
    def sizes(self) -> Ints:
        """Number of people at each point."""
        sizes: Ints = self.candidates.sizes.cpu().numpy()
        return sizes

    @property
    def people(self) -> Ints:
        """Rows of the reference, point by point."""
        rows: Ints = self.candidates.people.cpu().numpy()
        return rows

    def nearest(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Distances and rows of the k nearest people, querying each distinct point once on a CPU."""
        if queries.device.type != "cpu":
            return self.search(queries, k)
        order, starts = _distinct(queries.numpy())
        distance, row = self.search(queries[torch.from_numpy(order[starts])], k)
        which = torch.empty(len(queries), dtype=torch.int64)
        which[torch.from_numpy(order)] = torch.from_numpy(
            np.repeat(np.arange(len(starts)), np.diff(starts, append=len(order)))
        )
        return distance[which], row[which]

    def search(self, queries: Tensor, k: int, *, is_ordered: bool = False) -> tuple[Tensor, Tensor]:
        """Distances and rows of the k nearest people; `is_ordered` says that queries are in spatial order."""
        if self.tree is None:
            return self._by_products(queries, k)
        order = np.arange(len(queries)) if is_ordered else _spatial_order(queries.numpy())
        return self._by_tree(self.tree, queries, torch.from_numpy(order), k)

    def _by_products(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Examine all points; on a CPU, blocks of queries are distributed over the cores."""
        if queries.device.type != "cpu":
            return product_search(self.candidates, queries, k)
        with one_blas_thread():
            blocks = queries.split(query_block(queries.device))
            found = in_parallel(lambda block: product_search(self.candidates, block, k), blocks)
        distance, row = (torch.cat(values) for values in zip(*found, strict=True))
        return distance, row

    def _by_tree(self, tree: cKDTree, queries: Tensor, pending: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Query the tree for a few points, and for twice as many whenever ties leave the answer open."""
        distance = torch.empty((len(queries), k), dtype=torch.float64)
        row = torch.empty((len(queries), k), dtype=torch.int64)
        n_points = len(self.points)
        width = 1 + min(k, -(-2 * k * n_points // len(self.candidates.people)))
        while len(pending) and 8 * width < n_points:

            def search(block: Tensor, width: int = width) -> Tensor:
                asked = queries[block]
                points = torch.from_numpy(np.asarray(tree.query(asked.numpy(), k=width)[1], dtype=np.int64))
                found = self.candidates.distances(asked, slice(None), points)
                distance[block], row[block], suffices = self.candidates.rank(found, points, k)
                return block[~suffices]

            size = max(1, min(_TREE_BLOCK, _MAX_CANDIDATES // width))
            pending = torch.cat(in_parallel(search, pending.split(size)))
            width *= 2
        if len(pending):
            # Ties with a large part of the cell: examining all of it once is cheaper than more queries.
            distance[pending], row[pending] = self._by_products(queries[pending], k)
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
