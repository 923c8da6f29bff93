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
from typing import Any

import numpy as np
from scipy import optimize

from evenhand.arrays import Floats, Ints
from evenhand.exceptions import InvalidInputError
from evenhand.metrics.names import metric_of
from evenhand.searching.choice import ChoiceRule
from evenhand.searching.options import SearchOptions
from evenhand.searching.scoring import Metrics

FIRST_DRAW = 10
"""Draws before the first bound."""
HORIZON = 10_000
"""Draws up to which bounds hold at every moment; after more, the share stays at its value here."""

FURTHER = (1, 10, 100)
"""Numbers of further draws whose gain is reported."""

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

    Examples
    --------
    >>> draws = np.random.default_rng(0).uniform(0.1, 0.2, 200)
    >>> (last,) = gain_bounds(draws, incumbent=0.2, at=[200])
    >>> round(last.best, 3), round(last.share, 3), round(last.gain(), 4)
    (0.1, 0.033, 0.0033)
    """
    draws = np.asarray(values, dtype=np.float64)
    moments = range(FIRST_DRAW, len(draws) + 1) if at is None else [t for t in at if FIRST_DRAW <= t <= len(draws)]
    starts, boundary = uniform_boundary(delta)
    best = np.minimum(np.minimum.accumulate(draws), incumbent)
    shares = boundary[np.searchsorted(starts, moments, side="right") - 1]
    return tuple(
        GainBound(t, float(best[t - 1]), float(share), float(best[t - 1]) - floor)
        for t, share in zip(moments, shares, strict=True)
    )


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
def uniform_boundary(delta: float) -> tuple[Ints, Floats]:
    """Moments, and the boundary from each to the next, that the least of uniform draws ever exceeds with chance delta.

    Examples
    --------
    >>> moments, boundary = uniform_boundary(0.05)
    >>> round(crossing_probability(moments, boundary), 6)
    0.05
    """
    n = int(np.ceil(np.log(HORIZON / FIRST_DRAW) / np.log(_STEP)))
    moments = np.unique(np.minimum(np.round(FIRST_DRAW * _STEP ** np.arange(n + 1)), HORIZON).astype(np.int64))

    def boundary(level: float) -> Floats:
        # The least of t uniform draws, times t, fluctuates like the logarithm of the logarithm of t.
        height = level + 1.2 * np.log1p(np.log(moments / FIRST_DRAW))
        return np.asarray(np.minimum.accumulate(-np.expm1(-height / moments)))

    level = optimize.brentq(lambda level: crossing_probability(moments, boundary(level)) - delta, 1e-9, 100.0)
    return moments, boundary(float(level))


@dataclass(frozen=True)
class Stopping:
    """What is known about candidates that were not tried.

    Attributes
    ----------
    stop_gain, delta
        When the search may stop, and the probability that a bound is wrong; see `SearchOptions`.
    bounds
        Bounds after some of the draws, from the tenth on; empty if there were fewer.
    n_draws, n_left
        Constrained candidates that were drawn, and those that were planned but not drawn.
    is_whole_space
        Whether these are the whole space.
    floor
        The least value of what is minimized, as the search counts it, that was assumed possible.
    """

    stop_gain: float | None
    delta: float
    bounds: tuple[GainBound, ...]
    n_draws: int
    n_left: int
    is_whole_space: bool
    floor: float

    @classmethod
    def of(
        cls, options: SearchOptions, choice: ChoiceRule, metrics: Metrics, n_left: int, *, is_whole_space: bool
    ) -> Stopping:
        """Bounds after candidates in the order in which they were drawn, the unconstrained ones first."""
        values, is_plain = choice.draws(metrics), choice.is_unconstrained
        incumbent = float(choice.goal(metrics[choice.minimize].mean(1))[choice.unconstrained(metrics)])
        incumbent = min(incumbent, *values[is_plain]) if np.isfinite(incumbent) else float(np.min(values[is_plain]))
        draws = values[~is_plain]
        # What is minimized is the negative of a metric of which more is better.
        is_negated = metric_of(choice.minimize).direction > 0
        best_possible = float(is_negated) if options.stop_floor is None else options.stop_floor
        floor = -best_possible if is_negated else best_possible
        lowest = min(incumbent, *draws) if len(draws) else incumbent
        if lowest < floor:
            raise InvalidInputError(
                f"`stop_floor` is {options.stop_floor:g}, the best possible {choice.minimize}, but a candidate has "
                f"{abs(lowest):.4g}."
            )
        moments = np.unique(np.geomspace(FIRST_DRAW, max(FIRST_DRAW, len(draws)), 60).round().astype(int)).tolist()
        bounds = gain_bounds(draws, incumbent=incumbent, floor=floor, delta=options.stop_delta, at=moments)
        return cls(options.stop_gain, options.stop_delta, bounds, len(draws), n_left, is_whole_space, floor)

    @property
    def is_enough(self) -> bool:
        """Whether the search may stop."""
        return self.stop_gain is not None and bool(self.bounds) and self.bounds[-1].gain() <= self.stop_gain

    @property
    def assumptions(self) -> tuple[str, ...]:
        """What the bound assumes, in words."""
        return (
            "Candidates are drawn at random from the space of this search. The bound does not cover a wider space or a "
            "different kind of model.",
            "The gain is in the metric as measured on the people of this search.",
            "A draw that does not meet the constraints gains nothing. In constraints, `best` here means the best "
            "unconstrained candidate.",
            f"No candidate can have a value better than {abs(self.floor):g}.",
            f"The bound holds after every draw up to {HORIZON:,} at once, with a probability of at least "
            f"{1 - self.delta:g}.",
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            **vars(self),
            "floor": abs(self.floor),
            "bounds": [
                {
                    "n_draws": bound.n_draws,
                    "best": abs(bound.best),
                    "share_better": bound.share,
                    **{f"gain_of_{n}": bound.gain(n) for n in FURTHER},
                }
                for bound in self.bounds
            ],
            "assumptions": list(self.assumptions),
        }
