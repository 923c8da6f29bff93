"""The tables of the reasons for unfavorable decisions, from an audit's summary, for the page and the workbook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from evenhand.report.audit_tables import SIGNIFICANT, significance_flag
from evenhand.report.tables import FLAGGED, NOTE, Column, Highlight, Record, Table, estimate, flag, text

__all__ = ["NO_REASONS", "agreement_table", "declined_table", "rate_table"]

Summary = Mapping[str, Any]

NO_REASONS = "Not available: the audit has no reasons."
_PLACES = {"first": "first", "any": "among all"}


def _beside(key: str) -> Any:  # noqa: ANN401 - a function of the record
    """A value relative to the reference group, which has none itself."""
    return lambda record: "" if record["is_reference"] else record[key]


def rate_table(summary: Summary) -> Table:
    """How often each reason is given to the declined people of each group."""
    found = summary["reasons"]
    columns = (
        text("reason"),
        Column("given", "text", lambda r: _PLACES[r["place"]]),
        text("group"),
        Column("people", "whole", "n"),
        Column("declined", "whole", "n_people"),
        estimate("share of declined", "rate", "share"),
        estimate("difference, group minus reference", _beside("difference"), "share"),
        Column("p-value", "p", _beside("p_value")).detail(),
        Column("p-value, adjusted", "p", _beside("p_value_holm")),
        Column("test", "text").detail(),
        flag(lambda r: significance_flag(r["p_value_holm"], "adjusted p-value")),
        Column("note", "long text", lambda r: "" if r["is_reference"] else r["difference"]["note"]),
    )
    beside = f", compared with {found['reference']}" if found else ""
    caption = f"Reasons of declined people{beside}; finances are not held equal"
    highlights = [Highlight("p-value, adjusted", "at most", SIGNIFICANT, "evidence"), FLAGGED]
    return Table("Reason rates", caption, columns, found["rates"] if found else [], highlights, _if_empty(summary))


def agreement_table(summary: Summary) -> Table:
    """Overlap of the reasons of comparable declined people, minus that of placebo pairs."""
    columns = (
        Column("measure", "text", "words"),
        Column("pairs", "share", "compared"),
        Column("placebo pairs", "share", "placebo"),
        estimate("excess", lambda r: r["excess"] or "", "share"),
        Column("p-value, one-sided", "p", lambda r: "" if r["excess"] is None else r["excess"]["p_value"]),
        Column("people", "whole", lambda r: "" if r["excess"] is None else r["excess"]["n"]),
        Column("mean of all pairs", "share", "all"),
        Column("number of pairs", "whole", "n_pairs"),
        NOTE,
    )
    caption = "Reasons that two comparable declined people share; below 0, fewer than placebo pairs share"
    return Table("Reason agreement", caption, columns, _agreement_records(summary["reasons"]), (), _if_empty(summary))


def _agreement_records(found: Mapping[str, Any] | None) -> list[Record]:
    if found is None:
        return []
    words = {"shared": "share of reasons in common", "rank_overlap": "rank-biased overlap"}
    return [
        {
            "words": text_,
            "compared": found[f"compared_{key}"],
            "placebo": found[f"placebo_{key}"],
            "excess": found[f"{key}_excess"],
            "all": found[key],
            "n_pairs": found["n_pairs"],
            "note": "no placebo pairs" if found[f"{key}_excess"] is None else found[f"{key}_excess"]["note"],
        }
        for key, text_ in words.items()
    ]


def declined_table(summary: Summary) -> Table:
    """Declined people of each group, and those without a reason."""
    found = summary["reasons"]
    records: list[Record] = [
        {
            "group": group,
            "declined": n,
            "without": found["without_reason"][group],
            "shared": found["by_group"].get(group),
            "note": found["note"],
        }
        for group, n in (found["declined"].items() if found else ())
    ]
    columns = (
        text("group"),
        Column("declined", "whole"),
        Column("without a reason", "whole", "without"),
        Column("shared with a declined match", "share", "shared"),
        NOTE,
    )
    caption = "Declined people of each group"
    return Table("Declined", caption, columns, records, (), _if_empty(summary))


def _if_empty(summary: Summary) -> str:
    found = summary["reasons"]
    return NO_REASONS if found is None else f"Not available: {found['note'] or 'no one is given a reason'}."
