r"""When a search may stop: how much further candidates could still gain, bounded with high probability at every moment.

Candidates drawn at random are draws :math:`X_1, X_2, \dots` of what is minimized, from an unknown distribution
:math:`F`. After :math:`t` draws the least value so far is :math:`M_t`, and :math:`k` further draws gain

.. math:: \int_\text{floor}^{M_t} 1 - (1 - F(x))^k \, dx \le (M_t - \text{floor}) (1 - (1 - F(M_t^-))^k)

in expectation. No draw is below :math:`M_t`, so :math:`F` cannot be large there. The :math:`F(X_i)` of a continuous
distribution are uniform, whatever it is, and the least of :math:`t` uniform draws exceeds :math:`b` with probability
:math:`(1 - b)^t`; ties only make that less likely. A boundary :math:`b_t` that the least of uniform draws *ever*
exceeds with probability :math:`\delta` therefore bounds the share of better candidates at every moment at once: you may
look after each draw, and stop when you like what you see. The probability of crossing the boundary is computed exactly.

Draws without replacement from a finite space are covered: they miss a share of the space less often than draws with
replacement do.

An anytime-valid bound on what further retraining could gain is the idea of Hays, Laufer, Barocas and Raghavan
(Statistical Guarantees in the Search for Less Discriminatory Algorithms, 2025, arXiv:2512.23943).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from evenhand.exceptions import InvalidInputError

__all__ = ["FIRST_DRAW", "HORIZON", "GainBound", "crossing_probability", "gain_bounds", "uniform_boundary"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

FIRST_DRAW = 10
"""Draws before the first bound."""
HORIZON = 10_000
"""Draws up to which bounds hold at every moment; after more, the share stays at its value here."""

_STEP = 1.02  # between the moments at which the boundary falls


@dataclass(frozen=True)
class GainBound:
    """What further draws could still gain, after `n_draws`.

    Attributes
    ----------
    n_draws
        Candidates drawn so far.
    best
        Least value of what is minimized so far, among the draws that meet the limits and the model without a search.
    share
        Upper bound on the share of possible draws that are better than `best`.
    room
        How far `best` is above the least possible value.
    """

    n_draws: int
    best: float
    share: float
    room: float

    def gain(self, n_further: int = 1) -> float:
        """Upper bound on the expected gain of further draws.

        Examples
        --------
        >>> round(GainBound(200, best=0.05, share=0.03, room=0.05).gain(), 6)
        0.0015
        """
        return self.room * (1 - (1 - self.share) ** n_further)


def gain_bounds(
    values: Sequence[float] | Floats,
    *,
    incumbent: float,
    floor: float = 0.0,
    delta: float = 0.05,
    at: Sequence[int] | None = None,
) -> tuple[GainBound, ...]:
    """Bounds on what further draws could gain, after each draw or after some.

    With probability of at least 1 - `delta`, all of them hold at once.

    Parameters
    ----------
    values
        What is minimized, for each draw in order; infinite for a draw that does not meet the limits.
    incumbent
        The value of the model without a search.
    floor
        The least possible value.
    delta
        Probability that a bound is wrong at any moment.
    at
        Numbers of draws, at least `FIRST_DRAW`, after which to compute bounds; None for all.

    Raises
    ------
    InvalidInputError
        If `delta` is not between 0 and 1, or a value is NaN or below the floor.

    Examples
    --------
    >>> draws = np.random.default_rng(0).uniform(0.1, 0.2, 200)
    >>> (last,) = gain_bounds(draws, incumbent=0.2, at=[200])
    >>> round(last.best, 3), round(last.share, 3), round(last.gain(), 4)
    (0.1, 0.033, 0.0033)
    """
    draws = np.asarray(values, dtype=np.float64)
    if not 0 < delta < 1:
        raise InvalidInputError(f"`delta` must be between 0 and 1, got {delta!r}.")
    if np.isnan(draws).any() or (draws < floor).any() or not incumbent >= floor:
        raise InvalidInputError(f"Values of draws must be numbers not below the floor, {floor:g}.")
    moments = range(FIRST_DRAW, len(draws) + 1) if at is None else [t for t in at if FIRST_DRAW <= t <= len(draws)]
    starts, boundary = _boundary(delta)
    best = np.minimum(np.minimum.accumulate(draws), incumbent)
    shares = boundary[np.searchsorted(starts, moments, side="right") - 1]
    return tuple(
        GainBound(t, float(best[t - 1]), float(share), float(best[t - 1]) - floor)
        for t, share in zip(moments, shares, strict=True)
    )


def uniform_boundary(delta: float) -> tuple[Ints, Floats]:
    """Moments, and the boundary from each to the next, that the least of uniform draws ever exceeds with chance delta.

    Examples
    --------
    >>> moments, boundary = uniform_boundary(0.05)
    >>> round(crossing_probability(moments, boundary), 6)
    0.05
    """
    moments, boundary = _boundary(delta)
    return moments.copy(), boundary.copy()


def crossing_probability(moments: Ints, boundary: Floats) -> float:
    r"""Probability that the least of uniform draws exceeds a falling step boundary at any moment.

    The least value only falls, so it can exceed a step only when the step begins. Let :math:`G(x)` be the probability
    that it never did and is at most :math:`x`, and :math:`S` the probability that it never did. :math:`n` draws later,
    :math:`S - G(x)` is :math:`(1 - x)^n` times as large, and the new :math:`S` is :math:`G` at the new step.

    Examples
    --------
    >>> round(crossing_probability(np.array([10]), np.array([0.2])), 6) == round(0.8**10, 6)
    True
    """
    below = 1 - (1 - boundary) ** moments[0]
    safe = float(below[0])
    for k in range(1, len(moments)):
        below = safe - (safe - below) * (1 - boundary) ** int(moments[k] - moments[k - 1])
        safe = float(below[k])
    return 1 - safe


@cache
def _boundary(delta: float) -> tuple[Ints, Floats]:
    n = int(np.ceil(np.log(HORIZON / FIRST_DRAW) / np.log(_STEP)))
    moments = np.unique(np.minimum(np.round(FIRST_DRAW * _STEP ** np.arange(n + 1)), HORIZON).astype(np.int64))

    def boundary(level: float) -> Floats:
        # The least of t uniform draws, times t, fluctuates like the logarithm of the logarithm of t.
        height = level + 1.2 * np.log1p(np.log(moments / FIRST_DRAW))
        return np.asarray(np.minimum.accumulate(-np.expm1(-height / moments)))

    level = optimize.brentq(lambda level: crossing_probability(moments, boundary(level)) - delta, 1e-9, 100.0)
    return moments, boundary(float(level))
