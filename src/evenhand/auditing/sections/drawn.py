"""Groups that are known only as probabilities, and are drawn from them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from evenhand.metrics.names import METRICS
from evenhand.report.formatting import is_number
from evenhand.report.section import Section, Summary
from evenhand.report.tables import NOTE, Column, Record, Table, estimate, text

_METRICS = {
    **{name: METRICS[name].words for name in ("excess", "excess_balanced")},
    "weighing": METRICS["reasoning_excess"].words,
    "excess: input gap": "excess, input gap",
    "excess: regime B": METRICS["excess_regime_b"].words,
    "score_gap": "score gap",
    "score_gap_probability": "score gap, probability",
    "score_gap_decision": "score gap, favorable decisions",
    "input": "score gap through",
    "approval_rate": "favorable decisions, share",
    "approval_difference": "favorable decisions, difference",
    "approval_ratio": "favorable decisions, ratio",
    "true_positive_rate_difference": "true positive rate, difference",
    "false_positive_rate_difference": "false positive rate, difference",
    "mean_score_difference": "mean score, difference",
    **{name: METRICS[name].words for name in ("sp_gap", "tpr_gap", "fpr_gap", "eo_gap")},
}
_ONE_SIDED = tuple(name for name in _METRICS if name.startswith(("excess", "weighing")))


def _metric_words(record: Record) -> str:
    metric = record["metric"]
    words = _METRICS.get(metric, f"{metric}, share of pairs")
    return f"{words} {record['feature']}" if record["feature"] else words


def _groups(record: Record) -> str:
    if not record["reference"]:
        return str(record["group"])
    return f"{record['group']} {'over' if record['is_ratio'] else 'minus'} {record['reference']}"


def _beside(name: str) -> Callable[[Record], Any]:
    """The value if the metric has one, else empty."""
    return lambda record: record[name] if is_number(record[name]) else ""


class DrawnGroups(Section):
    """Metrics pooled over draws of the groups, and what not knowing the groups adds to their errors."""

    key, title, reads, is_pooled = "drawn-groups", "Groups known as probabilities", "drawn_groups", True

    prose = (
        "No one's group is known here: each person has a probability for every group. Groups were drawn from the "
        "probabilities repeatedly, each draw was audited, and the audits were pooled. The standard error within draws "
        "is what would remain if groups were known; the spread between draws is what not knowing them adds to one "
        "draw. Thresholding counts people in their most likely group and leaves out the uncertain; weighting counts "
        "everyone in every group by probability; the last column is correct if outcomes depend on the group alone."
    )

    def summary(self, part: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"drawn_groups": part}

    def paragraphs(self, summary: Summary) -> Sequence[str]:
        return (self.prose, *summary["drawn_groups"]["sentences"])

    def tables(self, summary: Summary) -> Sequence[Table]:
        found = summary["drawn_groups"]
        records = [
            {"group": name, "expected": expected, "thresholded": found["thresholded"][name]}
            for name, expected in found["expected"].items()
        ]
        left_out = {"group": "left out", "expected": "", "thresholded": found["n_left_out"]}
        of_people = (
            text("group"),
            Column("people expected", "number", "expected", places=1),
            Column("people by thresholding", "whole", "thresholded"),
        )
        of_metrics = (
            Column("metric", "text", _metric_words),
            Column("groups", "text", _groups),
            estimate("pooled", lambda r: r),
            Column("p-value", "p", lambda r: r["p_value"] if r["reference"] or r["metric"] in _ONE_SIDED else ""),
            Column("within, sd", "number", "within_sd"),
            Column("between, sd", "number", "between_sd"),
            Column("missing information", "share", "missing_information"),
            Column("thresholding", "number", _beside("thresholding")),
            Column("weighting", "number", _beside("weighting")),
            Column("group alone", "number", _beside("group_alone")),
            Column("Rubin's rules, lower", "number", "rubin_low").detail(),
            Column("Rubin's rules, upper", "number", "rubin_high").detail(),
            Column("degrees of freedom", "number", "df").detail(),
            NOTE,
        )
        people = f"People of each group, by probabilities and by thresholding at {found['threshold']:g}."
        metrics = (
            "Metrics pooled over draws of the groups, with 95% intervals. Missing information is the share of Rubin's "
            "total variance that is between draws; the spread of a ratio is that of its logarithm. p-values are not "
            "adjusted; those of excesses and weighing are one-sided."
        )
        return (
            Table("Probable groups", people, of_people, [*records, left_out]),
            Table("Drawn groups", metrics, of_metrics, found["metrics"]),
        )
