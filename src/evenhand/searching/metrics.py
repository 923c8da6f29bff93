"""The metrics that judge a candidate, and those of utility and outcome on the people of one test fold."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from evenhand.metrics.outcomes import GroupOutcome, group_outcomes, outcome_metrics
from evenhand.metrics.roc import ks_distance
from evenhand.metrics.weights import RowWeights
from evenhand.searching.utility import Payoff
from evenhand.training.folds import Fold

__all__ = [
    "ALIASES",
    "AXES",
    "DIRECTIONS",
    "OF_SOMETHING",
    "asked_of",
    "axis_of",
    "direction_of",
    "fold_outcome",
]

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

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

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
