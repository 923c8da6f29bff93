"""The nearest points by brute force: a blocked matrix product screens them, exact distances decide, on any device."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evenhand.matching.ranking import TIE_TOLERANCE, Candidates
from evenhand.system.threads import device_turn

__all__ = ["product_search", "query_block"]

# Queries and points of one product, whose values stay in the processor's cache, or fill a GPU.
_BLOCK = {"cpu": 256, "cuda": 4096}
_TILE = {"cpu": 2048, "cuda": 32_768}
_LONGEST_STRIP = {"cpu": 64, "cuda": 32}
_MOST_CANDIDATES = {"cpu": 1 << 18, "cuda": 1 << 23}  # number of exact comparisons at once: bounds memory


def query_block(device: torch.device) -> int:
    """The best number of queries at once."""
    return _of(_BLOCK, device)


def product_search(candidates: Candidates, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Distances and rows of the k nearest people of each query, of shape (n, k), as in `Candidates.rank`.

    Parameters
    ----------
    candidates
        The points.
    queries
        Coordinates, of shape (n, n_coordinates), on the device of the candidates.
    k
        Number of people wanted.
    """
    strips = _Strips.of(candidates, k)
    with device_turn(queries.device.type):
        parts = [_searched(strips, asked, k) for asked in queries.split(query_block(queries.device))]
        distance, row = (torch.cat(values) for values in zip(*parts, strict=True))
    return distance, row


def _searched(strips: _Strips, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """A block of queries, in parts whose candidates fit in memory."""
    hit, limit = strips.screen(queries, k)
    effort = (hit.sum(1) * strips.length).cumsum(0) // _of(_MOST_CANDIDATES, queries.device)
    cuts = (effort.diff().nonzero().squeeze(1) + 1).cpu()
    parts = [
        _ranked(strips, asked, near, bound, k)
        for asked, near, bound in zip(
            queries.tensor_split(cuts), hit.tensor_split(cuts), limit.tensor_split(cuts), strict=True
        )
    ]
    distance, row = (torch.cat(values) for values in zip(*parts, strict=True))
    return distance, row


def _ranked(strips: _Strips, queries: Tensor, hit: Tensor, limit: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Compare exactly in the strips that were hit."""
    candidates = strips.candidates
    who, points = strips.members(hit)
    found = candidates.distances(queries, who, points)
    near = found * found <= (limit + _squared_norms(queries))[who]
    found, points = _rectangle(who[near], points[near], found[near], len(queries))
    # The few nearest are almost always sufficient, and ties are found column by column.
    width = min(found.shape[1], 2 * k + 16)
    nearest, order = found.topk(width, dim=1, largest=False)
    distance, row, suffices = candidates.rank(nearest, points.gather(1, order), k)
    rest = (~suffices).nonzero().squeeze(1) if width < found.shape[1] else suffices[:0]
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
    factors: Tensor
    length: int
    radius: Tensor

    @classmethod
    def of(cls, candidates: Candidates, k: int) -> _Strips:
        columns, n_points = candidates.columns, candidates.n_points
        length = max(1, min(_of(_LONGEST_STRIP, columns.device), n_points // (16 * k)))
        factors = columns.new_zeros((len(columns) + 1, -(-n_points // length) * length))
        factors[:-1, :n_points] = -2 * columns
        factors[-1] = torch.inf
        norms = columns.square().sum(0)
        factors[-1, :n_points] = norms
        return cls(candidates, factors, length, norms.max().sqrt())

    def screen(self, queries: Tensor, k: int) -> tuple[Tensor, Tensor]:
        """Which strips can hold one of the k nearest, and the value that none of those can exceed."""
        extended = torch.cat([queries, queries.new_ones((len(queries), 1))], dim=1)
        step = max(1, _of(_TILE, queries.device) // self.length) * self.length
        lowest = torch.cat(
            [(extended @ tile).unflatten(1, (-1, self.length)).amin(2) for tile in self.factors.split(step, dim=1)],
            dim=1,
        )
        if lowest.shape[1] < k:
            return torch.ones_like(lowest, dtype=torch.bool), lowest.new_full((len(queries),), torch.inf)
        limit = self._limit(queries, lowest.kthvalue(k, dim=1).values)
        return lowest <= limit.unsqueeze(1), limit

    def _limit(self, queries: Tensor, kth: Tensor) -> Tensor:
        """An upper bound of the squares of the k nearest distances minus the query's norm; `kth` up to rounding."""
        square = _squared_norms(queries)
        epsilon = torch.finfo(torch.float64).eps
        rounding = 8 * epsilon * (queries.shape[1] + 4) * (square.sqrt() + self.radius).square()
        return kth + 4 * TIE_TOLERANCE * (kth + square).clamp_min(0) + 2 * rounding

    def members(self, hit: Tensor) -> tuple[Tensor, Tensor]:
        """(query, point) for every point of every strip that was hit, in query order."""
        who, strip = hit.nonzero(as_tuple=True)
        within = torch.arange(self.length, device=hit.device)
        points = (strip.unsqueeze(1) * self.length + within).reshape(-1)
        who = who.repeat_interleave(self.length)
        if self.factors.shape[1] == self.candidates.n_points:
            return who, points
        real = points < self.candidates.n_points
        return who[real], points[real]


def _rectangle(who: Tensor, points: Tensor, distance: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Candidates, in query order, as rows of a rectangle padded with inf."""
    count = who.bincount(minlength=n)
    slot = torch.arange(len(who), device=who.device) - (count.cumsum(0) - count)[who]
    width = int(count.max())
    padded, point = distance.new_full((n, width), torch.inf), points.new_zeros((n, width))
    padded[who, slot], point[who, slot] = distance, points
    return padded, point


def _squared_norms(points: Tensor) -> Tensor:
    return points.square().sum(1)


def _of(sizes: dict[str, int], device: torch.device) -> int:
    return sizes.get(device.type, sizes["cpu"])
