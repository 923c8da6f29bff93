"""Rank a cell's points by distance, and list the people there: one formula and one rule, on any device.

A search proposes candidates. Their distances are computed with one formula in one order of summation, and one rule
orders ties, so that the answer depends neither on how they were found nor on where it was computed: every step is exact
in float64 arithmetic, to the last bit the same on a CPU and on a GPU.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

__all__ = ["TIE_TOLERANCE", "Candidates"]

TIE_TOLERANCE = 1e-9
"""Two distances that differ by less than this share of the smaller are the same distance."""

_NO_ROW = torch.iinfo(torch.int64).max


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

    columns: Tensor
    offsets: Tensor
    people: Tensor
    sizes: Tensor
    lowest_row: Tensor

    @classmethod
    def of(cls, points: Tensor, offsets: Tensor, people: Tensor) -> Candidates:
        """Build it from points of shape (n_points, n_coordinates), on the device of the tensors."""
        return cls(points.T.contiguous(), offsets, people, offsets.diff(), people[offsets[:-1]])

    @property
    def n_points(self) -> int:
        """Number of distinct points."""
        return len(self.sizes)

    @property
    def device(self) -> torch.device:
        """The device on which points are ranked."""
        return self.columns.device

    def distances(self, queries: Tensor, who: Tensor | slice, points: Tensor) -> Tensor:
        """Distances of points from the queries `who`, of the shape of `points`: (n,), or (n, width) for a slice."""
        total = torch.zeros(points.shape, dtype=torch.float64, device=self.device)
        flat = points.reshape(-1)
        for column, query in zip(self.columns, queries.T, strict=True):
            asked = query[who] if points.dim() == 1 else query[who].unsqueeze(1)
            difference = column.index_select(0, flat).reshape(points.shape)
            difference -= asked
            difference *= difference
            total += difference
        return _rooted(total)

    def rank(self, distance: Tensor, points: Tensor, k: int) -> tuple[Tensor, Tensor, Tensor]:
        """Distances and rows of k people, and whether the candidates were sufficient.

        `distance` and `points` are of shape (n, width), padded with inf. Candidates are sufficient if every point that
        could tie with the last person returned is known to be among them.
        """
        if k == 1:
            nearest = distance.amin(1, keepdim=True)
            tied = distance <= nearest * (1 + TIE_TOLERANCE)
            row = torch.where(tied, self.lowest_row[points], _NO_ROW).amin(1, keepdim=True)
            return nearest, row, ~tied.all(1)
        distance, order = distance.sort(dim=1)
        points, tie = points.gather(1, order), _tie_distances(distance)
        size = torch.where(tie.isfinite(), self.sizes[points], 0)
        suffices = torch.where(tie < tie[:, -1:], size, 0).sum(1) >= k
        self._order_ties(tie, points, size)
        return *self._people(tie, points, size, k), suffices

    def _order_ties(self, tie: Tensor, points: Tensor, size: Tensor) -> None:
        """Sort tied points by their lowest rows, in place."""
        tied = ((tie[:, 1:] == tie[:, :-1]) & (size[:, 1:] > 0)).any(1).nonzero().squeeze(1)
        if not len(tied):
            return
        lowest = torch.where(size[tied] > 0, self.lowest_row[points[tied]], _NO_ROW)
        order = lowest.argsort(dim=1, stable=True)
        order = order.gather(1, tie[tied].gather(1, order).argsort(dim=1, stable=True))
        points[tied] = points[tied].gather(1, order)
        size[tied] = size[tied].gather(1, order)

    def _people(self, tie: Tensor, points: Tensor, size: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """The first k people of ranked points, with their distances; inf and -1 if there are fewer."""
        upto = size.cumsum(1)
        slot = torch.arange(k, device=self.device).expand(len(points), k).contiguous()
        place = torch.searchsorted(upto, slot, right=True)
        is_someone = place < points.shape[1]
        place = place.clamp_max(points.shape[1] - 1)
        within = slot - (upto - size).gather(1, place)
        person = (self.offsets[points.gather(1, place)] + within).where(is_someone, 0)
        return tie.gather(1, place).where(is_someone, torch.inf), self.people[person].where(is_someone, -1)


def _rooted(squares: Tensor) -> Tensor:
    """Square roots, in place, rounded according to IEEE 754.

    NumPy and GPUs round this way; torch on a CPU uses a library that is off in the last bit once in a hundred.
    """
    if squares.device.type != "cpu":
        return squares.sqrt_()
    np.sqrt(squares.numpy(), out=squares.numpy())
    return squares


def _tie_distances(distance: Tensor) -> Tensor:
    """Sorted distances with each replaced by the first of its tie."""
    is_first = torch.ones_like(distance, dtype=torch.bool)
    is_first[:, 1:] = distance[:, 1:] > distance[:, :-1] * (1 + TIE_TOLERANCE)
    tie = distance.masked_fill(~is_first, -torch.inf).cummax(1).values
    # If each is tied with the previous one but not with the first, a new tie starts in between.
    drifting = (distance > tie * (1 + TIE_TOLERANCE)).any(1).nonzero().squeeze(1)
    if len(drifting):
        tie[drifting] = _ties_of_drifting(distance[drifting])
    return tie


def _ties_of_drifting(distance: Tensor) -> Tensor:
    """The same, column by column."""
    first = distance[:, 0]
    columns = [first]
    for column in distance.unbind(1)[1:]:
        first = torch.where(column > first * (1 + TIE_TOLERANCE), column, first)
        columns.append(first)
    return torch.stack(columns, dim=1)
