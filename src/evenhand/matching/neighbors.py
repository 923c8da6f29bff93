"""Exact nearest neighbors inside each (label, group) cell, the same for every engine and machine.

Two engines find the nearest points: a k-d tree in few dimensions, a blocked matrix product in many and on a GPU. Both
only propose candidates; distances are then recomputed with one formula, and one rule orders them, so that the answer
never depends on the engine, the block size, the number of cores or the device.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from evenhand.exceptions import InvalidInputError
from evenhand.matching.cells import Cell, in_parallel

__all__ = ["NeighborIndex"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]


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
        Where neighbors are ranked.

    Examples
    --------
    >>> index = NeighborIndex.build([[0.0], [1.0], [5.0]], labels=[1, 1, 1], groups=[0, 0, 1])
    >>> distance, row = index.query([[0.8], [0.8]], labels=[1, 1], groups=[0, 1])
    >>> row.ravel().tolist()
    [1, 2]
    """

    coordinates: Floats
    cells: Mapping[tuple[int, int], Cell]
    device: torch.device

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
        return cls(coordinates, dict(zip(keys, built, strict=True)), torch.device("cpu" if device is None else device))

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
        found = self.nearest(torch.as_tensor(queries, device=self.device), codes, n_wanted)
        distance, row = (values.cpu().numpy() for values in found)
        return (distance, row) if own_rows is None else _without_own(distance, row, own_rows)

    def nearest(self, queries: Tensor, codes: Ints, k: int) -> tuple[Tensor, Tensor]:
        """The answer of `query` for checked points and cells, as tensors on the device of the index.

        Parameters
        ----------
        queries
            Points in float64, of shape (n, n_coordinates), on the device of the index.
        codes
            Label and group of the neighbors, of shape (n, 2).
        k
            How many people to return.
        """
        distance = queries.new_full((len(queries), k), torch.inf)
        row = torch.full((len(queries), k), -1, dtype=torch.int64, device=self.device)
        for key, rows in _rows_by_cell(codes):
            if key in self.cells:
                asking = torch.as_tensor(rows, device=self.device)
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
            points = torch.as_tensor(asking.points, device=self.device)
            found = target.search(points, k + (own == group), is_ordered=True)
            near, who = (np.repeat(values.cpu().numpy(), asking.sizes, axis=0) for values in found)
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
