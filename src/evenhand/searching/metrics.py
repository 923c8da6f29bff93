"""The metrics that judge a candidate: what pages, tables, constraints and sentences know about them.

Words are those of an audit where it has the same metric. Every candidate is explained in log-odds, so score gaps of all
of them have the same unit, which their words name.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

from evenhand.arrays import Floats
from evenhand.exceptions import InvalidInputError, did_you_mean

Metrics: TypeAlias = Mapping[str, Floats]
"""Every metric by name, of shape (n_candidates, n_folds)."""


@dataclass(frozen=True)
class Metric:
    """What is known about a metric.

    Attributes
    ----------
    name, words
        As the user writes it, and as pages do. Words of a metric of one input, group or column have a place for it.
    direction
        1 if more is better, -1 if less is, 0 if neither is.
    axis
        One of `AXES`.
    kind
        How it is shown.
    of
        Which input, group or column it describes; empty for none.
    """

    name: str
    words: str
    direction: int
    axis: str
    kind: Literal["number", "share"] = "number"
    of: str = ""


AXES = ("utility", "outcome", "scores", "procedure")

METRICS = {
    metric.name: metric
    for metric in (
        Metric("auc", "AUC", 1, "utility"),
        Metric("ks", "KS distance", 1, "utility"),
        Metric("f1", "F1", 1, "utility"),
        Metric("profit", "profit", 1, "utility"),
        Metric("eo_gap", "equalized-odds gap", -1, "outcome"),
        Metric("air", "adverse impact ratio", 1, "outcome"),
        Metric("sp_gap", "statistical-parity gap", -1, "outcome"),
        Metric("positive_rate", "positive rate", 0, "outcome", "share"),
        Metric("score_gap", "score gap in log-odds", -1, "scores"),
        Metric("score_gap_parts", "sum of score-gap parts in log-odds", -1, "scores"),
        Metric("probability_gap", "score gap in probability", -1, "scores"),
        Metric("decision_gap", "score gap in favorable decisions", -1, "scores"),
        Metric("excess", "excess", -1, "procedure"),
        Metric("excess_balanced", "excess, groups weighted equally", -1, "procedure"),
        Metric("reasoning_gap", "reasoning gap", -1, "procedure"),
        Metric("reasoning_excess", "weighing", -1, "procedure"),
        Metric("excess_regime_b", "excess, share in Regime B", -1, "procedure"),
        Metric("cec", "CEC score, mean", -1, "procedure"),
    )
}
"""Metrics of a whole model, by name."""

METRICS_OF = {
    metric.name: metric
    for metric in (
        Metric("score_gap", "score gap in log-odds through {}", -1, "scores"),
        Metric("approval_rate", "approval rate of {}", 0, "outcome", "share"),
        Metric("effect", "effect of {} in log-odds", 0, "scores"),
        Metric("falls", "steps of {} at which the score falls", -1, "scores", "share"),
        Metric("rises", "steps of {} at which the score rises", -1, "scores", "share"),
    )
}
"""Metrics of one input, group or column, such as ``score_gap[income]``, by what is before the bracket."""

ALIASES = {"weighing": "reasoning_excess", "approval_rate": "positive_rate"}
"""Alternative names of metrics."""


def metric_of(name: str, whose: str = "A search") -> Metric:
    """What is known about a metric.

    Parameters
    ----------
    name
        Its name, or an alternative name.
    whose
        Where the name is from, for the message.

    Raises
    ------
    InvalidInputError
        If there is no such metric.

    Examples
    --------
    >>> metric_of("auc").words, metric_of("weighing").name
    ('AUC', 'reasoning_excess')
    >>> metric_of("score_gap[income]").words
    'score gap in log-odds through income'
    """
    text = str(name)
    if text in METRICS or text in ALIASES:
        return METRICS[ALIASES.get(text, text)]
    kind, of = match.groups() if (match := re.fullmatch(r"(\w+)\[(.+)\]", text, re.DOTALL)) else (text, "")
    if of and kind in METRICS_OF:
        return replace(METRICS_OF[kind], name=text, words=METRICS_OF[kind].words.format(of), of=of)
    hint = did_you_mean(kind, [*METRICS, *ALIASES, *METRICS_OF])
    raise InvalidInputError(f"{whose} names an unknown metric: {name!r}.{hint}")
