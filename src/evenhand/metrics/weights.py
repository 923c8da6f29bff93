"""Weights of rows: how many people each stands for, and how much information remains."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.exceptions import InvalidInputError

__all__ = ["RowWeights", "effective_number_of_people", "row_weights"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class RowWeights:
    """Rows that stand for one or more people of a sample, each with a weight.

    A mean uses `total` as weights. Its variance, for a sample drawn with unequal probabilities, is the sum over people
    of squared weights times squared residuals: over rows, of `squares` times the squared residual.

    Attributes
    ----------
    count
        People of each row, of shape (n,).
    total, squares
        Sums of their weights, and of the squares of their weights.
    """

    count: Ints
    total: Floats
    squares: Floats

    @classmethod
    def of(cls, sample_weight: ArrayLike) -> RowWeights:
        """One person per row, each with a sampling weight above 0.

        Examples
        --------
        >>> RowWeights.of([2.0, 4.0]).total
        array([0.5, 1. ])
        """
        weight = np.asarray(sample_weight, dtype=np.float64)
        if weight.ndim != 1 or not len(weight) or not (np.isfinite(weight) & (weight > 0)).all():
            raise InvalidInputError(
                f"Sampling weights must be finite and above 0, one per person, got shape {weight.shape}; leave out "
                "people with a weight of 0."
            )
        share = weight / weight.max()  # equal weights are exactly 1
        return cls(np.ones(len(share), dtype=np.int64), share, share**2)

    def rows(self, chosen: NDArray[np.bool_]) -> RowWeights:
        """Select some of the rows."""
        return RowWeights(self.count[chosen], self.total[chosen], self.squares[chosen])

    @cached_property
    def is_equal(self) -> bool:
        """Whether everyone has weight 1."""
        return bool((self.total == self.count).all() and (self.squares == self.count).all())

    @property
    def scaled(self) -> RowWeights:
        """The same with a mean weight of 1."""
        if self.is_equal:
            return self
        factor = float(self.count.sum()) / float(self.total.sum())
        return RowWeights(self.count, self.total * factor, self.squares * factor**2)


def row_weights(frequency: ArrayLike | RowWeights | None, n: int) -> RowWeights:
    """The weight of each of `n` rows, with a mean of 1; `frequency` is how many people it stands for, by default one.

    Raises
    ------
    InvalidInputError
        If there is not one weight per row, or a number of people is not an integer of at least 1.
    """
    if isinstance(frequency, RowWeights):
        if len(frequency.count) != n:
            raise InvalidInputError(f"`frequency` has {len(frequency.count)} weights for {n} rows; give one per row.")
        return frequency.scaled
    times = np.ones(n, dtype=np.int64) if frequency is None else np.asarray(frequency)
    if times.shape != (n,) or times.dtype.kind not in "iu" or times.min() < 1:
        raise InvalidInputError(
            f"`frequency` must be a whole number of at least 1 for each of {n} rows, got {times.dtype} of shape "
            f"{times.shape}; leave out rows of no one."
        )
    count = times.astype(np.int64)
    return RowWeights(count, count.astype(np.float64), count.astype(np.float64))


def effective_number_of_people(total: Floats, squares: Floats) -> Floats:
    """Number of equally weighted people with the same information (Kish 1965); 0 if all weights are 0.

    Examples
    --------
    >>> effective_number_of_people(np.array([4.0, 4.0]), np.array([4.0, 10.0]))
    array([4. , 1.6])
    """
    found = np.zeros(np.shape(total))
    np.divide(total**2, squares, out=found, where=squares > 0)
    return found
