"""The score gap at equal finances, in total and through each input."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import altair as alt

from evenhand.auditing.evidence import gap_key, input_key
from evenhand.metrics.score_gap import FEW_DEGREES
from evenhand.report.drawing import MOST_FEATURES, NothingToDrawError, estimate_row, forest, size_of
from evenhand.report.formatting import decimal, interval, shortened
from evenhand.report.section import NO_EVIDENCE, AuditChart, AuditMetric, Section, Summary, SummaryRow, lacking, number
from evenhand.report.tables import NOTE, Column, Record, Table, estimate, text


def largest_gap(summary: Summary) -> Mapping[str, Any]:
    """The score gap of the two groups that `summary["score_gap"]` names.

    Raises
    ------
    NothingToDrawError
        If the audit was run without evidence.
    """
    if summary["evidence"] is None:
        raise NothingToDrawError("There is no score gap: the audit was run without evidence.")
    named = summary["score_gap"]["group"], summary["score_gap"]["reference"]
    return next(gap for gap in summary["score_gaps"] if (gap["group"], gap["reference"]) == named)


def score_gap_table(summary: Summary) -> Table:
    """Score gaps of every two groups: in total, in probability, in decisions and through each input."""
    records: list[Record] = []
    for gap in summary.get("score_gaps", ()):
        named = {"group": gap["group"], "reference": gap["reference"]}
        parts = (
            ("all inputs together" if gap["features"] else "in total", "total", gap["unit"], gap["p_adjusted"], ""),
            ("in probability", "probability", "probability", None, "probability"),
            ("in favorable decisions", "decision", "share", None, "decisions"),
        )
        records += [
            {**gap[key], **named, "part": part, "unit": unit, "p_adjusted": p_adjusted}
            for part, key, unit, p_adjusted, need in parts
            if not lacking(summary, need)
        ]
        records += [{**row, **named, "part": row["feature"], "unit": gap["unit"]} for row in gap["features"]]
    columns = (
        text("group"),
        text("reference"),
        text("part"),
        estimate("gap", lambda r: r),
        text("unit"),
        Column("p-value, two-sided", "p", "p_value"),
        Column("p-value, adjusted", "p", "p_adjusted"),
        Column("smallest gap that a single test finds in 80% of cases", "number", "detectable", where="workbook"),
        NOTE,
    )
    caption = "Score gap at equal finances, group minus reference group, in total and by input, with 95% intervals."
    return Table("Score gap", caption, columns, records, if_empty=NO_EVIDENCE)


def score_gap(data: Summary) -> alt.Chart:
    """The score gap at equal finances and the part of each input, with 95% intervals; the largest ones."""
    gap = largest_gap(data)
    inputs = sorted(gap["features"], key=lambda f: -size_of(f["value"]))[:MOST_FEATURES]
    rows = [
        estimate_row("all inputs together" if inputs else "in total", gap["total"]),
        *(estimate_row(f["feature"], f) for f in inputs),
    ]
    group, reference = shortened(gap["group"], 16), shortened(gap["reference"], 16)
    return forest(
        rows,
        f"{group} minus {reference}, {gap['unit']}",
        "Points with 95% intervals: score gap at equal finances, in total and through each input.",
    )


def _score_gap(data: Summary) -> str:
    gap = largest_gap(data)
    total = gap["total"]
    label = "" if lacking(data, "labels") else " and label"
    parts = "" if lacking(data, "inputs") else "; the inputs below sum to it"
    side = "; below 0, the group is worse off" if lacking(data, "probability") else ""
    return (
        f"At equal finances{label}, {shortened(gap['group'], 40)} minus {shortened(gap['reference'], 40)} is "
        f"{decimal(total['value'])} {gap['unit']} ({interval(total['low'], total['high'])}){side}{parts}."
    )


def _unit_words(unit: str) -> str:
    return "favorable decisions" if unit == "decision" else unit


def _gap_numbers(estimate: Mapping[str, Any], sign: float) -> tuple[float, float, float]:
    """Value, standard error and degrees of freedom; no standard error if the audit did not test it."""
    value, error, df = (number(estimate[name]) for name in ("value", "standard_error", "df"))
    if error == 0:
        return value * sign, 0.0, math.inf
    return value * sign, error if df >= FEW_DEGREES else math.nan, df


class ScoreGap(Section):
    """Differences in score between comparable people of two groups."""

    key, title, is_pooled, is_logged = "score-gap", "Score gap at equal finances", True, False
    charts = (AuditChart(score_gap, "Score gap at equal finances", _score_gap, score_gap_table, is_wide=True),)
    words: ClassVar = {
        "score gap": "Difference in score between comparable people of two groups at equal finances and label, group "
        "minus reference group.",
        "log-odds": "The logarithm of the odds of the favorable outcome; near even odds, 0.1 is 2.5 points of "
        "probability.",
    }

    def paragraphs(self, summary: Summary) -> Sequence[str]:
        if lacking(summary, "inputs"):
            return (
                "Each person is compared with the nearest people of a different group. The remaining difference in "
                "finances between them is held equal by a regression; the rest is a difference between groups at equal "
                "finances.",
            )
        return (
            "Each person is given the finances of a comparable person of the other group, and the two scores are "
            "compared. What remains is a difference between groups at equal finances. It is the sum of the parts that "
            "run through each input. An input that predicts the group can carry the gap even if the model does not see "
            "the group.",
        )

    def summary_rows(self, summary: Summary) -> Iterable[SummaryRow]:
        if not summary["evidence"]:
            return
        gap, scope = summary["score_gap"], summary.get("scope")
        side = f"{gap['group']} minus {gap['reference']}, at equal finances"
        if "value" in gap and scope and scope["outcome"] == "value":
            worse = f"{side}; below 0, worse off"
            yield f"score gap, {scope['unit']}", gap["value"], gap["value"]["note"] or worse, "scores"
        for key, words, need in (
            ("logit", "log-odds", "probability"),
            ("probability", "probability", "probability"),
            ("decision", "favorable decisions", "decisions"),
        ):
            yield f"score gap, {words}", gap[key], gap[key]["note"] or side, need

    def metrics(self, summary: Summary, reference: str) -> Iterable[AuditMetric]:
        """Score gaps of every two groups, in total and by input, with the same sign in every audit."""
        gaps = summary.get("score_gaps", ())
        for gap in gaps:
            group, other = gap["group"], gap["reference"]
            # Relative to the reference group; other pairs in the order of their names.
            is_turned = group == reference or (other != reference and group < other)
            groups = (other, group) if is_turned else (group, other)
            sign = -1.0 if is_turned else 1.0
            of_groups = f", {groups[0]} minus {groups[1]}"
            for name, unit in (("total", ""), ("probability", "probability"), ("decision", "decision")):
                yield AuditMetric(
                    gap_key(*groups, unit),
                    "score_gap",
                    f"score gap in {_unit_words(unit or gap['unit'])}{of_groups}",
                    *_gap_numbers(gap[name], sign),
                    note=gap[name]["note"],
                    finding=None if unit else "score_gap",
                    unit=unit or gap["unit"],
                    groups=groups,
                    influence=gap_key(group, other, unit),
                    sign=sign,
                )
            for row in gap["features"]:
                yield AuditMetric(
                    input_key(row["feature"], *groups),
                    "inputs",
                    row["feature"] + (of_groups if len(gaps) > 1 else ""),
                    *_gap_numbers(row, sign),
                    note=row["note"],
                    finding="inputs",
                    unit=gap["unit"],
                    groups=groups,
                    influence=input_key(row["feature"], group, other),
                    sign=sign,
                )
