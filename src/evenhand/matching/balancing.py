"""Form triples from neighbors: equally distant candidates of the other group and of the same group, on any device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.matching.neighbors import NeighborIndex

__all__ = ["N_NEAR", "N_NEIGHBORS", "Asking", "IndexedRows", "Neighbors", "balanced_triples"]

Ints = NDArray[np.int64]

N_NEAR = 4
"""Largest number of near triples of a person with a group, and the default for all triples."""

N_NEIGHBORS = 16
"""Candidates of each kind for a near triple."""

_PEOPLE_AT_ONCE = 16_384


@dataclass(frozen=True, eq=False)
class Neighbors:
    """Distances and reference rows of neighbors, of shape (n, k); inf and -1 if there are none."""

    distance: Tensor
    row: Tensor

    @property
    def is_empty(self) -> Tensor:
        """Who has no neighbor."""
        return self.row[:, 0] < 0

    def with_few(self, few: Neighbors | None, part: slice, k: int) -> Neighbors:
        """Some people's k nearest neighbors merged with the k nearest of a few, each once."""
        own_distance, own_row = self.distance[part, :k], self.row[part, :k]
        if few is None:
            return Neighbors(own_distance, own_row)
        distance, row = few.distance[part, :k], few.row[part, :k]
        is_known = (row.unsqueeze(2) == own_row.unsqueeze(1)).any(2)
        return Neighbors(
            torch.cat([own_distance, distance.masked_fill(is_known, torch.inf)], dim=1),
            torch.cat([own_row, row.masked_fill(is_known, -1)], dim=1),
        )


@dataclass(frozen=True, eq=False)
class Asking:
    """People who search for neighbors with their label.

    Attributes
    ----------
    points
        Query points, of shape (n, n_coordinates), on the device of the index.
    labels
        Their labels, of shape (n,).
    units
        The row that represents each in the reference, -1 if there is none, on the device of the index.
    """

    points: Tensor
    labels: Ints
    units: Tensor

    def rows(self, chosen: Ints) -> Asking:
        """Some of them."""
        there = torch.as_tensor(chosen, device=self.points.device)
        return Asking(self.points[there], self.labels[chosen], self.units[there])


@dataclass(frozen=True, eq=False)
class IndexedRows:
    """Some rows of a reference, indexed.

    Attributes
    ----------
    index
        Their neighbors.
    rows, units
        Row of each in the reference, and the row that represents the same person, on the device of the index.
    """

    index: NeighborIndex
    rows: Tensor
    units: Tensor

    @classmethod
    def of(cls, index: NeighborIndex, rows: Ints, units: Ints) -> IndexedRows:
        """Place rows, and the rows that represent them, next to their index."""
        return cls(index, *(torch.as_tensor(codes, device=index.device) for codes in (rows, units)))

    def nearest(self, asking: Asking, group: int, k: int) -> Neighbors:
        """The k nearest people of `group`; no one is their own neighbor.

        One more neighbor than wanted is requested, and twice as many again for those who find themselves too often.
        """
        n, device = len(asking.labels), self.index.device
        distance = asking.points.new_full((n, k), torch.inf)
        row = torch.full((n, k), -1, dtype=torch.int64, device=device)
        waiting, n_asked = np.arange(n), k + 1
        while len(waiting):
            people = asking if len(waiting) == n else asking.rows(waiting)
            codes = np.column_stack([people.labels, np.full(len(waiting), group)])
            found, place = self.index.nearest(people.points, codes, n_asked)
            is_self = (place >= 0) & (self.units[place] == people.units.unsqueeze(1))
            rows = self.rows[place].where(place >= 0, -1)
            order = is_self.to(torch.uint8).argsort(dim=1, stable=True)[:, :k]
            is_done = ((~is_self).sum(1) >= k) | (rows[:, -1] < 0)
            who = torch.as_tensor(waiting, device=device)
            distance[who] = found.masked_fill(is_self, torch.inf).gather(1, order)
            row[who] = rows.masked_fill(is_self, -1).gather(1, order)
            waiting, n_asked = waiting[~is_done.cpu().numpy()], 2 * n_asked
        return Neighbors(distance, row)


def balanced_triples(
    other: tuple[Neighbors, Neighbors | None],
    own: tuple[Neighbors, Neighbors | None],
    *,
    n_neighbors: int,
    n_pairs: int,
    tolerance: float,
    slack: float,
    limit: float,
) -> Tensor:
    """Person, rank, other row and own row of triples with one group, of shape (n_triples, 4).

    Parameters
    ----------
    other, own
        Neighbors in the other group and in the person's group, each with those among a random few, if any.
    n_neighbors, n_pairs, tolerance
        As in `placebo_pairs`.
    slack, limit
        Allowance for the difference of the distances; largest distance.
    """
    n = len(other[0].row)
    found = []
    for part in _parts(n):
        near, *wide = (
            _balanced(other[0].with_few(other[1], part, k), own[0].with_few(own[1], part, k), tolerance, slack, limit)
            for k in sorted({min(n_neighbors, N_NEIGHBORS), n_neighbors})
        )
        triples = _ranked(near, wide[0] if wide else near, min(part.stop, n) - part.start, n_pairs)
        triples[:, 0] += part.start
        found.append(triples)
    return torch.cat(found) if found else other[0].row.new_zeros((0, 4))


def _ranked(near: Tensor, wide: Tensor, n_people: int, n_pairs: int) -> Tensor:
    """Person, rank, other row and own row of each triple: near ones, and as many of the rest as requested."""
    place = _place(near[:, 0], n_people)
    is_kept = place < min(N_NEAR, n_pairs)
    near, place = near[is_kept], place[is_kept]
    known = near.new_full((n_people, N_NEAR, 2), -1)
    known[near[:, 0], place] = near[:, 1:]
    rest = wide[~(known[wide[:, 0]] == wide[:, None, 1:]).all(2).any(1)]  # a near triple is found twice
    n_left = n_pairs - near[:, 0].bincount(minlength=n_people)
    further = _place(rest[:, 0], n_people)
    is_kept = further < n_left[rest[:, 0]]
    rest, further = rest[is_kept], further[is_kept]
    rank = torch.cat([1 + place, 1 + N_NEAR + further])
    who, other_row, own_row = torch.cat([near, rest]).T
    return torch.stack([who, rank, other_row, own_row], dim=1)


def _place(who: Tensor, n_people: int) -> Tensor:
    """Place of each row among those of its person, whose rows follow each other, from 0."""
    count = who.bincount(minlength=n_people)
    return torch.arange(len(who), device=who.device) - (count.cumsum(0) - count)[who]


def _balanced(other: Neighbors, own: Neighbors, tolerance: float, slack: float, limit: float) -> Tensor:
    """Person, other row and own row of each triple, nearest first, of shape (n_triples, 3).

    On the line of a person's sorted distances, a candidate of each kind that are nearest to each other are adjacent.
    """
    distance, order = torch.cat([other.distance, own.distance], dim=1).sort(dim=1, stable=True)
    row = torch.cat([other.row, own.row], dim=1).gather(1, order)
    is_other = order < other.row.shape[1]
    left, right = distance[:, :-1], distance[:, 1:]
    gap = right - left
    is_pair = (
        (is_other[:, :-1] != is_other[:, 1:])
        & (gap <= tolerance * right + slack)
        & (right <= limit)
        & (gap < _gap_before(distance, is_other)[:, :-1])
        & (gap <= _gap_after(distance, is_other)[:, 1:])
        & right.isfinite()
    )
    who, place = is_pair.nonzero(as_tuple=True)
    first, second, leads = row[who, place], row[who, place + 1], is_other[who, place]
    return torch.stack([who, first.where(leads, second), second.where(leads, first)], dim=1)


def _gap_before(distance: Tensor, is_other: Tensor) -> Tensor:
    """Distance back on the line to the last candidate of the other kind; inf if there is none."""
    last_other = distance.masked_fill(~is_other, -torch.inf).cummax(1).values
    last_own = distance.masked_fill(is_other, -torch.inf).cummax(1).values
    return distance - last_own.where(is_other, last_other)


def _gap_after(distance: Tensor, is_other: Tensor) -> Tensor:
    """Distance ahead on the line to the next candidate of the other kind; inf if there is none."""
    return _gap_before(-distance.flip(1), is_other.flip(1)).flip(1)


def _parts(n: int) -> Iterator[slice]:
    for first in range(0, n, _PEOPLE_AT_ONCE):
        yield slice(first, first + _PEOPLE_AT_ONCE)
