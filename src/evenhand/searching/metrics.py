"""The metrics that judge a candidate, and those of utility and outcome on the people of one test fold."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.arrays import Floats, Ints
from evenhand.exceptions import InvalidInputError, did_you_mean
from evenhand.metrics.estimate import RowWeights
from evenhand.metrics.outcomes import GroupOutcome, group_outcomes, outcome_metrics
from evenhand.metrics.roc import ks_distance
from evenhand.training.folds import Fold


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
    def of(cls, given: Mapping[str, Any] | str) -> Payoff:
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
        values = _named(given) if isinstance(given, str) else given
        if not isinstance(values, Mapping):
            raise InvalidInputError(
                f"`payoff` must map {[field.name for field in fields(cls)]} to numbers, got {given!r}."
            )
        known = [field.name for field in fields(cls)]
        found = {}
        for name, value in values.items():
            if name not in known:
                raise InvalidInputError(
                    f"`payoff` names an unknown decision: {name!r}.{did_you_mean(str(name), known)}"
                )
            found[name] = _number(name, value)
        if not any(found.values()):
            raise InvalidInputError(f"`payoff` must have a value other than 0, got {given!r}.")
        return cls(**found)

    def profit(self, y: NDArray[np.int64], decision: NDArray[np.int64], weight: NDArray[np.float64]) -> float:
        """Mean payoff of a person.

        Examples
        --------
        >>> y, decision = np.array([1, 0, 1, 0]), np.array([1, 1, 0, 0])
        >>> Payoff(approve_good=1, approve_bad=-5).profit(y, decision, np.ones(4))
        -1.0
        """
        table = np.array([[self.decline_bad, self.approve_bad], [self.decline_good, self.approve_good]])
        return float(weight @ table[y, decision]) / float(weight.sum())

    def to_dict(self) -> dict[str, float]:
        """Plain data."""
        return asdict(self)


def _named(text: str) -> dict[str, str]:
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals:
            raise InvalidInputError(f"`payoff` reads like 'approve_good=1,approve_bad=-5', got {text!r}.")
        found[name.strip()] = value.strip()
    return found


def _number(name: str, value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidInputError(f"`payoff` must have a number for {name}, got {value!r}.")
    return number


DIRECTIONS: Mapping[str, int] = {
    "auc": 1,
    "ks": 1,
    "f1": 1,
    "profit": 1,
    "eo_gap": -1,
    "air": 1,
    "sp_gap": -1,
    "positive_rate": 0,
    "score_gap": -1,
    "score_gap_parts": -1,
    "probability_gap": -1,
    "decision_gap": -1,
    "excess": -1,
    "excess_balanced": -1,
    "reasoning_gap": -1,
    "reasoning_excess": -1,
    "excess_regime_b": -1,
    "cec": -1,
}
"""Every metric, with 1 if more is better, -1 if less is, 0 if neither is."""

OF_SOMETHING: Mapping[str, int] = {"score_gap": -1, "approval_rate": 0, "effect": 0, "falls": -1, "rises": -1}
"""Metrics of one input, group or column, such as ``score_gap[income]``, with the same signs."""

ALIASES: Mapping[str, str] = {"weighing": "reasoning_excess", "approval_rate": "positive_rate"}
"""Alternative names of metrics."""

AXES: Mapping[str, tuple[str, ...]] = {
    "utility": ("auc", "ks", "f1", "profit"),
    "outcome": ("eo_gap", "air", "sp_gap", "positive_rate"),
    "scores": ("score_gap", "score_gap_parts", "probability_gap", "decision_gap"),
    "procedure": ("excess", "excess_balanced", "reasoning_gap", "reasoning_excess", "excess_regime_b", "cec"),
}


_OF = re.compile(r"(\w+)\[(.*)\]", re.DOTALL)


def asked_of(name: str) -> tuple[str, str]:
    """A metric and the input, group or column that it describes; an empty text if it describes none.

    Examples
    --------
    >>> asked_of("score_gap[income]"), asked_of("auc")
    (('score_gap', 'income'), ('auc', ''))
    """
    form = _OF.fullmatch(name)
    return (name, "") if form is None else (form[1], form[2])


def direction_of(name: str) -> int:
    """1 if more of a metric is better, -1 if less is, 0 if neither is.

    Examples
    --------
    >>> direction_of("auc"), direction_of("score_gap[income]"), direction_of("approval_rate[B]")
    (1, -1, 0)
    """
    kind, of = asked_of(name)
    return OF_SOMETHING[kind] if of else DIRECTIONS[name]


def axis_of(name: str) -> str:
    """The axis of a metric.

    Examples
    --------
    >>> axis_of("ks"), axis_of("score_gap[income]"), axis_of("approval_rate[B]"), axis_of("falls[income]")
    ('utility', 'scores', 'outcome', 'scores')
    """
    kind, of = asked_of(name)
    if of:
        return "outcome" if kind == "approval_rate" else "scores"
    return next(axis for axis, names in AXES.items() if name in names)


def fold_outcome(
    fold: Fold,
    score: NDArray[np.floating],
    decision: Ints,
    *,
    names: Sequence[str] | None = None,
    weight: Floats | None = None,
    payoff: Payoff | None = None,
) -> dict[str, float]:
    """Metrics of utility and outcome on a fold's test people.

    Parameters
    ----------
    fold
        The fold.
    score, decision
        Of each test person.
    names
        Names of the groups; None for their codes.
    weight
        The weight of each person; None for 1.
    payoff
        What decisions are worth; without it there is no profit.
    """
    y, times = fold.y_test, np.ones(len(fold.y_test)) if weight is None else weight
    groups = tuple(str(g) for g in range(fold.n_groups)) if names is None else tuple(names)
    rows = RowWeights(np.ones(len(y), dtype=np.int64), times, times**2)
    outcomes = group_outcomes(y, decision, score, fold.group_test, groups, rows)
    found = {name: metric.value for name, metric in outcome_metrics(y, decision, score, outcomes, rows).items()}
    kept = ("auc", "f1", "eo_gap", "sp_gap", "positive_rate")
    return {
        **{n: found[n] for n in kept},
        "ks": ks_distance(score, times * (y == 1), times * (y == 0)),
        "air": _adverse_impact_ratio(outcomes),
        **({} if payoff is None else {"profit": payoff.profit(y, decision, times)}),
        **{f"approval_rate[{outcome.group}]": outcome.positive_rate for outcome in outcomes},
    }


def _adverse_impact_ratio(outcomes: list[GroupOutcome]) -> float:
    """Lowest approval rate of a group over the highest; NaN if no one is approved."""
    rates = [outcome.positive_rate for outcome in outcomes]
    return min(rates) / max(rates) if max(rates) > 0 else float("nan")


_METRIC_WORDS = {
    "auc": "AUC",
    "ks": "KS distance",
    "f1": "F1",
    "profit": "profit",
    "eo_gap": "equalized-odds gap",
    "air": "adverse impact ratio",
    "sp_gap": "statistical-parity gap",
    "positive_rate": "positive rate",
    "score_gap": "score gap",
    "score_gap_parts": "sum of score-gap parts",
    "probability_gap": "probability gap",
    "decision_gap": "decision gap",
    "excess": "excess",
    "excess_balanced": "excess, groups weighing equally",
    "reasoning_gap": "reasoning gap",
    "reasoning_excess": "reasoning excess",
    "excess_regime_b": "excess Regime B",
    "cec": "CEC score",
}
_OF_SOMETHING = {
    "score_gap": "score gap through {}",
    "approval_rate": "approval rate of {}",
    "effect": "effect of {}",
    "falls": "steps of {} at which the score falls",
    "rises": "steps of {} at which the score rises",
}


def metric_words(name: str) -> str:
    """A metric in words.

    Examples
    --------
    >>> metric_words("auc"), metric_words("score_gap[income]")
    ('AUC', 'score gap through income')
    """
    kind, of = asked_of(name)
    return _OF_SOMETHING[kind].format(of) if of else _METRIC_WORDS[name]


def capital(words: str) -> str:
    """The words with a capital first letter."""
    return words[:1].upper() + words[1:]
