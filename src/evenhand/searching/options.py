"""The options of a search, defined once: Python, the command line and TOML files take names, defaults and help here.

This module imports nothing heavy, so that the command line shows its help at once.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import TYPE_CHECKING, Any

from evenhand.exceptions import InvalidInputError, did_you_mean
from evenhand.inputs.read_options import option

if TYPE_CHECKING:
    from evenhand.arrays import Floats, Ints
    from evenhand.inputs.encoding import Encoding


DEFAULT_KEEP = ("auc >= best - 0.01", "eo_gap <= unconstrained", "positive_rate within 0.05 of unconstrained")


@dataclass(frozen=True)
class Payoff:
    """What a decision earns; costs are negative. A good applicant is one with the favorable label.

    Attributes
    ----------
    approve_good, approve_bad, decline_good, decline_bad
        For each decision about each kind of applicant.
    """

    approve_good: float = 0.0
    approve_bad: float = 0.0
    decline_good: float = 0.0
    decline_bad: float = 0.0

    @classmethod
    def of(cls, given: Any) -> Payoff:
        """From a mapping, or from text as on the command line; what is not named is 0.

        Raises
        ------
        InvalidInputError
            If a name is unknown, a value is not a finite number, or all are 0.

        Examples
        --------
        >>> Payoff.of("approve_good=1, approve_bad=-5")
        Payoff(approve_good=1.0, approve_bad=-5.0, decline_good=0.0, decline_bad=0.0)
        """
        if isinstance(given, Payoff):
            return given
        known, values = [option.name for option in fields(cls)], given
        if isinstance(given, str):
            parts = [part.partition("=") for part in given.split(",") if part.strip()]
            if not all(equals for _, equals, _ in parts):
                raise InvalidInputError(f"`payoff` reads like 'approve_good=1,approve_bad=-5', got {given!r}.")
            values = {name.strip(): value.strip() for name, _, value in parts}
        if not isinstance(values, Mapping):
            raise InvalidInputError(f"`payoff` must map {known} to numbers, got {given!r}.")
        numbers: dict[str, float] = {}
        for name, value in values.items():
            if name not in known:
                raise InvalidInputError(
                    f"`payoff` names an unknown decision: {name!r}.{did_you_mean(str(name), known)}"
                )
            try:
                numbers[name] = float(value)
            except (TypeError, ValueError):
                numbers[name] = math.nan
            if not math.isfinite(numbers[name]):
                raise InvalidInputError(f"`payoff` must have a number for {name}, got {value!r}.")
        if not any(numbers.values()):
            raise InvalidInputError(f"`payoff` must have a value other than 0, got {given!r}.")
        return cls(**numbers)

    def profit(self, y: Ints, decision: Ints, weight: Floats) -> float:
        """Mean payoff of a person.

        Examples
        --------
        >>> import numpy as np
        >>> y, decision = np.array([1, 0, 1, 0]), np.array([1, 1, 0, 0])
        >>> Payoff(approve_good=1, approve_bad=-5).profit(y, decision, np.ones(4))
        -1.0
        """
        approved = self.approve_good * y + self.approve_bad * (1 - y)
        declined = self.decline_good * y + self.decline_bad * (1 - y)
        return float(weight @ (approved * decision + declined * (1 - decision))) / float(weight.sum())


@dataclass(frozen=True, kw_only=True)
class SearchOptions:
    """Options of a search that few people change; the `options=` argument of `search`.

    Attributes
    ----------
    folds
        Folds of the cross-validation, at least 2; an honest estimate needs 3.
    seeds
        Models trained per candidate and fold, whose metrics are averaged. A seed is not a candidate: its result in a
        fold says nothing about its result when the model is refitted.
    confirmation
        Share of the people to hold out of training and choosing, who confirm the choice or not; 0 for no one.
    alternatives
        How many of the candidates that meet the constraints are refitted and confirmed, best first. Intervals allow
        for their number.
    payoff
        What a decision about a person is worth: ``approve_good``, ``approve_bad``, ``decline_good`` and
        ``decline_bad``; costs are negative. `profit` is its mean over people.
    decision_threshold, consistency_threshold, max_distance
        As in `evenhand.audit`.
    n_compared
        The most test people of a fold whose reasoning is compared.
    stop_gain
        Stop early, once one further candidate is expected to gain at most this much of `minimize`. The result always
        has the bound on the gain, as `stopping`.
    stop_delta
        Probability that this bound is wrong at any moment of the search.
    stop_floor
        The best value of `minimize` that you consider possible; None for 0 (1 if more is better). A floor closer to
        the best value so far makes the bound tighter.
    encoding
        Of categories, for networks.
    device
        ``"auto"``, ``"cpu"`` or ``"cuda"``.
    n_jobs
        Candidates that are trained at once, each on one core; None for as many as there are cores. Networks are trained
        in stacks on all cores. The result does not depend on it.
    progress
        Whether to show progress.

    Examples
    --------
    >>> SearchOptions(folds=3, payoff="approve_good=1,approve_bad=-5").payoff.approve_bad
    -5.0
    >>> SearchOptions(folds=1)
    Traceback (most recent call last):
    ...
    evenhand.exceptions.InvalidInputError: `folds` must be a whole number of at least 2, got 1.
    """

    folds: int = option(5, "Folds of the cross-validation.", "Judging")
    seeds: int = option(1, "Models per candidate and fold.", "Judging")
    confirmation: float = option(
        0.2, "Share of the people kept out of training and choosing, to confirm the choice.", "Judging"
    )
    alternatives: int = option(1, "Candidates to confirm, best first; intervals allow for their number.", "Judging")
    payoff: Mapping[str, float] | str | Payoff | None = option(
        None,
        "What decisions are worth, for profit: 'approve_good=1,approve_bad=-5'; decline_good, decline_bad.",
        "Goal",
    )
    decision_threshold: float = option(0.5, "Decisions are favorable from this probability on.", "Judging")
    consistency_threshold: float = option(0.3, "CEC score above which reasoning differs.", "Judging")
    max_distance: float | None = option(
        None, "Largest distance between a person and their match, in standard deviations.", "Judging"
    )
    n_compared: int = option(1_000, "The most test people of a fold whose reasoning is compared.", "Judging")
    stop_gain: float | None = option(
        None, "Stop once one more candidate is expected to improve --minimize by at most this.", "Stopping"
    )
    stop_delta: float = option(0.05, "Probability that the bound on further gains is wrong.", "Stopping")
    stop_floor: float | None = option(
        None, "Best possible value of --minimize; by default 0, or 1 if more is better.", "Stopping"
    )
    encoding: Encoding = option("onehot", "Categories of networks as onehot columns or ordinal codes.", "Models")
    device: str = option("auto", "auto, cpu or cuda.", "Machine")
    n_jobs: int | None = option(
        None, "Candidates trained at once; by default one on each core. Networks use all.", "Machine"
    )
    progress: bool = False

    def __post_init__(self) -> None:
        least = {"folds": 2, "seeds": 1, "alternatives": 1, "n_compared": 1, "n_jobs": 1}
        for name, lowest in least.items():
            value = getattr(self, name)
            if (value is not None or name != "n_jobs") and (not isinstance(value, int) or value < lowest):
                raise InvalidInputError(f"`{name}` must be a whole number of at least {lowest}, got {value!r}.")
        for name in ("decision_threshold", "stop_delta"):
            if not 0 < getattr(self, name) < 1:
                raise InvalidInputError(f"`{name}` must be between 0 and 1, got {getattr(self, name)!r}.")
        if not 0 <= self.confirmation < 1:
            raise InvalidInputError(
                f"`confirmation` must be a share of at least 0 and below 1, got {self.confirmation!r}."
            )
        if self.stop_gain is not None and not self.stop_gain > 0:
            raise InvalidInputError(f"`stop_gain` must be above 0, got {self.stop_gain!r}.")
        if self.payoff is not None:
            object.__setattr__(self, "payoff", Payoff.of(self.payoff))


_OF_THE_RUN = {
    "confirmation", "alternatives", "stop_gain", "stop_delta", "stop_floor", "device", "n_jobs", "progress"
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class SearchSettings(SearchOptions):
    """The options of a search with what its other arguments add.

    Attributes
    ----------
    random_state
        Decides folds, draws and seeds.
    n_steps
        Segments of the path of integrated gradients.
    effects
        Columns whose effect on the score is measured.
    """

    payoff: Payoff | None = None
    random_state: int = 0
    n_steps: int = 4
    effects: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """What decides the metrics of a candidate, as plain data."""
        return {name: value for name, value in asdict(self).items() if name not in _OF_THE_RUN}
