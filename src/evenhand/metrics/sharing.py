"""The variance of an average over triples that share people, from sums over those who share."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["Gathered", "Overlap", "column_blocks", "deleted_squares", "effective_number", "row_codes"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Gathered:
    """Triples gathered by who is in them; a triple may be gathered several times.

    Attributes
    ----------
    code
        Who is shared: a person, a couple or three people.
    sign
        Whether their squared sums add to the variance or were counted too often.
    rows
        The triple of each code; None for all triples, as often as there are codes for them.
    """

    code: Ints
    sign: float = 1.0
    rows: Ints | None = None

    def sums(self, residual: Floats) -> Floats:
        """Sum of the residuals of each code's triples."""
        n_times = len(self.code) // max(len(residual), 1)
        values = residual[self.rows] if self.rows is not None else np.tile(residual, n_times)
        return np.bincount(self.code, values).astype(np.float64, copy=False)

    def squares(self, residual: Floats) -> float:
        """Signed sum of the squares of `sums`."""
        sums = self.sums(residual)
        return self.sign * float(sums @ sums)


@dataclass(frozen=True, eq=False)
class Overlap:
    """Who shares triples with whom, indexed once for every score that is averaged over them."""

    person: Gathered
    singles: Gathered
    larger: tuple[Gathered, ...]
    leverage: Floats

    @classmethod
    def of(cls, people: Ints, weight: Floats) -> Overlap:
        """Index the single people, the couples and the three of every triple, given as codes of shape (n, m)."""
        codes: Ints = np.unique(people, return_inverse=True)[1].reshape(people.shape).astype(np.int64)
        ordered = np.sort(codes, axis=1)
        n_codes = int(codes.max()) + 1
        larger = []
        for size, sign in ((2, -1.0), (3, 1.0)):
            subsets = list(combinations(range(ordered.shape[1]), size))
            if subsets:
                members = (ordered[:, list(column)].T.ravel() for column in zip(*subsets, strict=True))
                larger.append(Gathered(row_codes(n_codes, *members), sign))
        singles = Gathered(codes.T.ravel())
        return cls(Gathered(codes[:, 0]), singles, tuple(larger), singles.sums(weight))

    @property
    def n_effective(self) -> float:
        """Effective number of people, from how unevenly they are used."""
        return effective_number(float((self.leverage**2).sum()), float((self.leverage**4).sum()))

    def variance(self, residual: Floats) -> Floats:
        """Variance of the sum of each column of `residual`, of shape (n_columns,)."""
        return np.array([self._variance(column) for column in np.ascontiguousarray(residual.T)])

    def _variance(self, residual: Floats) -> float:
        total = deleted_squares(self.singles.sums(residual), self.leverage)
        for shared in self.larger:
            total += shared.squares(residual)
        return max(total, float((self.person.sums(residual) ** 2).sum()))


def row_codes(n: int, first: Ints, *others: Ints) -> Ints:
    """One code from 0 for each distinct row of columns of codes below `n`, in lexicographic order.

    Examples
    --------
    >>> row_codes(10, np.array([3, 1, 3]), np.array([0, 9, 0]))
    array([1, 0, 1])
    """
    code = first
    for column in others:  # one at a time: n cubed could overflow
        code = np.unique(code * n + column, return_inverse=True)[1]
    return code


def deleted_squares(sums: Floats, leverage: Floats | float) -> float:
    """Sum of squares of what the estimate changes by when each person is deleted.

    Parameters
    ----------
    sums
        Sum of the residuals of each person's triples.
    leverage
        Weight of each person's triples.
    """
    # A person in every triple cannot be deleted; the bound only keeps the division defined.
    change = sums / np.maximum(1 - leverage, 0.1)
    return float(change @ change)


def effective_number(squares: float, fourth_powers: float) -> float:
    """Number of equally used people that are worth as much, from sums of powers of their leverages."""
    return squares**2 / fourth_powers


def column_blocks(table: NDArray[np.floating], width: int) -> Iterator[Floats]:
    """The columns in double precision, a few at a time: bounds memory."""
    for first in range(0, table.shape[1], width):
        yield table[:, first : first + width].astype(np.float64)
