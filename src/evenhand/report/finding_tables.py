"""Tables of the four findings and of the score gap at equal finances."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evenhand.report.audit_tables import NO_EVIDENCE
from evenhand.report.drawing import NothingToDrawError
from evenhand.report.scope import lacking
from evenhand.report.tables import NOTE, Column, Record, Table, estimate, text

__all__ = ["finding_table", "largest_gap", "score_gap_table"]

Summary = Mapping[str, Any]

_SIDES = {"score_gap": "two-sided", "inputs": "two-sided", "weighing": "one-sided", "excess": "one-sided"}


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


def finding_table(summary: Summary) -> Table:
    """The four questions, strongest finding first."""
    limits = (
        Column("limit", "number", lambda r: "" if r["limit"] is None else r["limit"]),
        Column("within the limit", "text", lambda r: r["within_limit"] or ""),
    )
    columns = (
        text("question"),
        text("answer"),
        estimate("estimate", lambda r: {"value": r["estimate"], "low": r["ci"][0], "high": r["ci"][1]}),
        text("unit"),
        Column("p-value", "p", "p_value"),
        Column("p-value, adjusted", "p", "p_adjusted"),
        Column("test", "text", lambda r: _SIDES[r["key"]]),
        *(limits if summary["settings"]["limits"] else ()),
        Column("sentence", "long text", where="workbook"),
    )
    asked = [one for one in summary["findings"] if one["answer"] != "not possible"]
    is_whole = len(asked) == len(summary["findings"])
    what, tested = (
        ("Four questions about the model", "the four") if is_whole else ("What could be asked", "those asked")
    )
    caption = f"{what}, with 95% intervals; p-values are adjusted over {tested} (Holm)."
    return Table("Findings", caption, columns, asked, if_empty=NO_EVIDENCE)


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
