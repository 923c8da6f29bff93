"""The list of metrics: their names, their words, which direction is better, and where an audit's summary has them.

Tables, pages, gates, MLflow and searches take names and words from here.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from evenhand.exceptions import InvalidInputError, did_you_mean


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
    path
        Its place in the summary of an audit; empty if only a search has it.
    only
        "audit" if a search does not measure it.
    of
        Which input, group or column it describes; empty for none.
    """

    name: str
    words: str
    direction: int
    axis: str
    kind: Literal["number", "share"] = "number"
    path: str = ""
    only: Literal["", "audit"] = ""
    of: str = ""

    def value(self, summary: Mapping[str, Any]) -> float | None:
        """Its value in the summary of an audit, NaN if it could not be estimated; None if the summary has none.

        Of a gap in scores, its size.
        """
        found: Any = summary
        for key in self.path.split("."):
            if not isinstance(found, Mapping) or key not in found:
                return None
            found = found[key]
        value = math.nan if found is None else float(found)
        return abs(value) if self.axis == "scores" else value


AXES = ("utility", "outcome", "scores", "procedure")

METRICS = {
    metric.name: metric
    for metric in (
        Metric("auc", "AUC", 1, "utility", path="outcome.auc"),
        Metric("ks", "KS distance", 1, "utility"),
        Metric("f1", "F1", 1, "utility", path="outcome.f1"),
        Metric("accuracy", "accuracy", 1, "utility", path="outcome.accuracy", only="audit"),
        Metric("profit", "profit", 1, "utility"),
        Metric("eo_gap", "equalized odds gap", -1, "outcome", path="outcome.eo_gap"),
        Metric("tpr_gap", "true positive rate gap", -1, "outcome", path="outcome.gaps.tpr_gap.value", only="audit"),
        Metric("fpr_gap", "false positive rate gap", -1, "outcome", path="outcome.gaps.fpr_gap.value", only="audit"),
        Metric("air", "adverse impact ratio", 1, "outcome"),
        Metric("sp_gap", "statistical parity gap", -1, "outcome", path="outcome.sp_gap"),
        Metric("positive_rate", "positive rate", 0, "outcome", "share", path="outcome.positive_rate"),
        Metric("pfr", "prediction flip rate", -1, "outcome", "share", path="outcome.pfr", only="audit"),
        Metric("score_gap", "score gap in log-odds", -1, "scores", path="score_gap.logit.value"),
        Metric("score_gap_parts", "sum of score-gap parts in log-odds", -1, "scores"),
        Metric("probability_gap", "score gap in probability", -1, "scores", path="score_gap.probability.value"),
        Metric("decision_gap", "score gap in favorable decisions", -1, "scores", path="score_gap.decision.value"),
        Metric("excess", "excess", -1, "procedure", path="cec.excess"),
        Metric("excess_balanced", "excess, groups weighted equally", -1, "procedure", path="cec.excess_balanced"),
        Metric("reasoning_gap", "reasoning gap", -1, "procedure", path="cec.reasoning_gap"),
        Metric("reasoning_excess", "weighing", -1, "procedure", path="cec.weighing_excess"),
        Metric("excess_regime_b", "excess, share in Regime B", -1, "procedure", path="cec.regime_b_excess"),
        Metric("cec", "CEC score, mean", -1, "procedure", path="cec.mean"),
    )
}
"""Metrics of a whole model, by name."""

SEARCHED = tuple(metric.name for metric in METRICS.values() if not metric.only)
"""Names of those that a search measures."""

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
