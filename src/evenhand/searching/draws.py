"""The candidates of a search as random draws: when to stop, and what further draws could still gain."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenhand.exceptions import InvalidInputError
from evenhand.searching.choosing import ChoiceRule, Metrics
from evenhand.searching.metrics import direction_of
from evenhand.searching.space import Candidate
from evenhand.searching.stopping import FIRST_DRAW, HORIZON, GainBound, gain_bounds

__all__ = ["FURTHER", "StopRule", "Stopping"]

FURTHER = (1, 10, 100)
"""Numbers of further draws whose gain is reported."""

_ROUND = 20  # draws between two looks at the bound


@dataclass(frozen=True)
class StopRule:
    """When a search may stop.

    Attributes
    ----------
    gain
        Stop once one further candidate gains at most this in expectation; None to try all.
    delta
        Probability that the bound on the gain is wrong at any moment.
    floor
        The best possible value of what is minimized; None for 0 (1 if more is better).
    """

    gain: float | None = None
    delta: float = 0.05
    floor: float | None = None

    def __post_init__(self) -> None:
        if self.gain is not None and not self.gain > 0:
            raise InvalidInputError(f"`stop_gain` must be above 0, got {self.gain!r}.")
        if not 0 < self.delta < 1:
            raise InvalidInputError(f"`stop_delta` must be between 0 and 1, got {self.delta!r}.")

    def rounds(self, candidates: Sequence[Candidate]) -> Iterator[tuple[Candidate, ...]]:
        """Candidates to try before the next look at the bound: all, or the unconstrained ones and a round more."""
        if self.gain is None:
            yield tuple(candidates)
            return
        n_plain = sum(candidate.is_unconstrained for candidate in candidates)
        yield tuple(candidates[:n_plain])
        for start in range(n_plain, len(candidates), _ROUND):
            yield tuple(candidates[start : start + _ROUND])

    def is_reached(self, stopping: Stopping) -> bool:
        """Whether the search may stop."""
        return self.gain is not None and bool(stopping.bounds) and stopping.bounds[-1].gain() <= self.gain


@dataclass(frozen=True)
class Stopping:
    """What is known about candidates that were not tried.

    Attributes
    ----------
    rule
        When the search may stop.
    bounds
        Bounds after some of the draws, from the tenth on; empty if there were fewer.
    n_draws, n_left
        Constrained candidates that were drawn, and those that were planned but not drawn.
    is_whole_space
        Whether these are the whole space.
    floor
        The least value of what is minimized, as the search counts it, that was assumed possible.
    """

    rule: StopRule
    bounds: tuple[GainBound, ...]
    n_draws: int
    n_left: int
    is_whole_space: bool
    floor: float

    @classmethod
    def of(cls, rule: StopRule, choice: ChoiceRule, metrics: Metrics, n_left: int, *, is_whole_space: bool) -> Stopping:
        """Bounds after candidates in the order in which they were drawn, the unconstrained ones first."""
        values, is_plain = choice.draws(metrics), choice.is_unconstrained
        incumbent = float(choice.goal(metrics[choice.minimize].mean(1))[choice.unconstrained(metrics)])
        incumbent = min(incumbent, *values[is_plain]) if np.isfinite(incumbent) else float(np.min(values[is_plain]))
        draws = values[~is_plain]
        floor = _floor(choice.minimize, rule.floor)
        lowest = min(incumbent, *draws) if len(draws) else incumbent
        if lowest < floor:
            raise InvalidInputError(
                f"`stop_floor` is {rule.floor:g}, the best possible {choice.minimize}, but a candidate has "
                f"{abs(lowest):.4g}."
            )
        moments = np.unique(np.geomspace(FIRST_DRAW, max(FIRST_DRAW, len(draws)), 60).round().astype(int)).tolist()
        bounds = gain_bounds(draws, incumbent=incumbent, floor=floor, delta=rule.delta, at=moments)
        return cls(rule, bounds, len(draws), n_left, is_whole_space, floor)

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
            f"{1 - self.rule.delta:g}.",
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "n_draws": self.n_draws,
            "n_left": self.n_left,
            "is_whole_space": self.is_whole_space,
            "stop_gain": self.rule.gain,
            "delta": self.rule.delta,
            "floor": abs(self.floor),
            "bounds": [_record(bound) for bound in self.bounds],
            "assumptions": list(self.assumptions),
        }


def _record(bound: GainBound) -> Mapping[str, Any]:
    gains = {f"gain_of_{n}": bound.gain(n) for n in FURTHER}
    return {"n_draws": bound.n_draws, "best": abs(bound.best), "share_better": bound.share, **gains}


def _floor(metric: str, given: float | None) -> float:
    """The best possible value of what is minimized, negated if more of the metric is better."""
    if direction_of(metric) > 0:
        return -1.0 if given is None else -given
    return 0.0 if given is None else given
