"""The tables of a model's decisions, from an audit's summary, for the page and for the workbook."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from evenhand.report.audit_tables import SIGNIFICANT, significance_flag
from evenhand.report.scope import lacking
from evenhand.report.tables import FLAGGED, NOTE, Column, Highlight, Kind, Record, Table, estimate, flag, joined, text

__all__ = [
    "approval_table",
    "cutoff_table",
    "error_table",
    "gap_table",
    "group_table",
    "score_table",
    "segment_table",
    "utility_table",
]

Summary = Mapping[str, Any]


def group_table(summary: Summary) -> Table:
    """Decisions, errors and reasoning of each group."""

    def note(record: Record) -> str:
        if record["n_positive_label"] is None:
            return lacking(summary, "labels")
        n = {1: record["n_positive_label"], 0: record["n"] - record["n_positive_label"]}
        return joined(*(f"no one with label {label}" for label in n if not n[label]))

    columns = (
        text("group"),
        Column("people", "whole", "n"),
        Column("label 1", "whole", "n_positive_label"),
        Column("positive rate", "share", "positive_rate"),
        Column("true positive rate", "share", "true_positive_rate"),
        Column("false positive rate", "share", "false_positive_rate"),
        Column("AUC", "number", "auc"),
        Column("CEC score, mean", "number", lambda r: summary["cec"]["by_group"].get(r["group"])),
        Column("note", "long text", note),
    )
    caption = "Decisions, errors and reasoning of each group."
    return Table("Groups", caption, columns, summary["outcome"]["groups"])


def utility_table(summary: Summary) -> Table:
    """How well the model separates labels, over everyone."""
    outcome = summary["outcome"]
    names = {"auc": "AUC", "f1": "F1", "accuracy": "accuracy", "positive_rate": "share of favorable decisions"}
    records = [
        {"metric": words, "value": outcome[name], "note": outcome["notes"].get(name, "")}
        for name, words in names.items()
    ]
    columns = (text("metric"), Column("value"), NOTE)
    return Table("Utility", "Utility", columns, records, needs=("labels", "decisions"))


def gap_table(summary: Summary) -> Table:
    """The largest difference in a rate between groups."""
    outcome = summary["outcome"]
    words = {
        "sp_gap": "statistical parity gap",
        "tpr_gap": "true positive rate gap",
        "fpr_gap": "false positive rate gap",
        "eo_gap": "equalized odds gap",
    }
    records = [
        {**gap, "words": words.get(name, name), "note": gap["note"] or outcome["notes"].get(name, "")}
        for name, gap in outcome["gaps"].items()
    ]
    columns = (
        text("gap", "words"),
        estimate("value", lambda r: r),
        text("rate"),
        text("lowest in", "group_low"),
        text("highest in", "group_high"),
        NOTE,
    )
    return Table("Gaps", "The largest difference in a rate between groups", columns, records, needs=("decisions",))


def _beside(key: str) -> Callable[[Record], Any]:
    """A value relative to the reference group, which has none itself."""
    return lambda record: "" if record["is_reference"] else record[key]


def _approval_columns() -> tuple[Column, ...]:
    return (
        Column("is reference", "any", "is_reference"),
        Column("people", "whole", "n_people"),
        Column("approved", "whole", "n_approved").detail(),
        estimate("approval rate", "approval_rate", "share"),
        estimate("difference, percentage points", _beside("rate_difference_group_minus_reference_pp"), places=1),
        estimate("approval ratio", _beside("approval_ratio_group_over_reference"), places=2),
        estimate("odds ratio", _beside("odds_ratio_group_over_reference"), places=2),
        Column("p-value", "p", _beside("p_value")).detail(),
        Column("p-value, adjusted", "p", _beside("p_value_holm")),
        Column("test", "text", "test"),
        Column("standard deviations", "number", _beside("n_standard_deviations"), places=1),
        Column("shortfall of approvals", "number", "shortfall").detail(),
    )


def _approval_flags(record: Record, threshold: float) -> str:
    return joined(
        f"ratio below {threshold:g}" if record["is_below_practical_threshold"] else "",
        significance_flag(record["p_value_holm"], "adjusted p-value"),
        "small group" if record["is_small_group"] else "",
    )


def _approval_highlights(threshold: float) -> list[Highlight]:
    return [
        Highlight("approval ratio", "below", threshold),
        Highlight("p-value, adjusted", "at most", SIGNIFICANT, "evidence"),
        FLAGGED,
    ]


def approval_table(summary: Summary) -> Table:
    """Approvals compared with the reference group."""
    found = summary["outcome"]["approvals"]
    threshold = found["four_fifths_threshold"]
    columns = (
        text("group"),
        *_approval_columns(),
        flag(lambda r: _approval_flags(r, threshold)),
        Column("note", "long text", lambda r: joined(r["note"], found["note"])),
    )
    caption = f"Favorable decisions of each group compared with the reference group, {found['reference']}"
    highlights = _approval_highlights(threshold)
    return Table("Approvals", caption, columns, found["groups"], highlights, needs=("decisions",))


def score_table(summary: Summary) -> Table:
    """Scores compared with the reference group."""
    difference = "standardized_mean_difference_group_minus_reference"
    columns = (
        text("group"),
        Column("is reference", "any", "is_reference"),
        Column("people", "whole", "n_people"),
        estimate("mean score", "mean_score"),
        Column("standard deviation", "number", "standard_deviation").detail(),
        estimate("standardized difference", _beside(difference), places=2),
        Column("KS distance", "number", _beside("ks_distance")),
        Column("KS p-value", "p", _beside("ks_p_value")),
        flag(_small_group),
        Column("note", "long text", lambda r: joined(r["note"], r["mean_score"]["note"], r[difference]["note"])),
    )
    caption = "Scores of each group compared with the reference group"
    return Table("Scores", caption, columns, summary["outcome"]["scores"], [FLAGGED], needs=("scores",))


def _small_group(record: Record) -> str:
    return "small group" if record["is_small_group"] else ""


_ERROR_RATES: tuple[tuple[str, str, Kind, bool], ...] = (  # key, heading, kind, whether on the page
    ("positive_rate", "positive rate", "share", False),
    ("true_positive_rate", "true positive rate", "share", True),
    ("false_positive_rate", "false positive rate", "share", True),
    ("false_discovery_rate", "false discovery rate", "share", False),
    ("auc", "AUC", "number", True),
    ("mean_score_minus_observed_rate", "mean score minus observed rate", "number", True),
    ("brier_score", "Brier score", "number", True),
)


def error_table(summary: Summary) -> Table:
    """Errors of each group."""

    def note(record: Record) -> str:
        return joined(*(f"{words}: {record[key]['note']}" for key, words, *_ in _ERROR_RATES if record[key]["note"]))

    rates = [(estimate(words, key, kind), is_shown) for key, words, kind, is_shown in _ERROR_RATES]
    columns = (
        text("group"),
        Column("people", "whole", "n_people").detail(),
        Column("label 1", "whole", "n_positive_label").detail(),
        *(column if is_shown else column.detail() for column, is_shown in rates),
        flag(_small_group),
        Column("note", "long text", note),
    )
    caption = "Decisions and errors of each group with 95% intervals"
    records = summary["outcome"]["error_rates"]
    return Table("Error rates", caption, columns, records, [FLAGGED], needs=("labels", "decisions"))


def cutoff_table(summary: Summary) -> Table:
    """Approvals at different cutoffs."""
    threshold = summary["outcome"]["approvals"]["four_fifths_threshold"]
    records = [
        {**group, "cut": {key: value for key, value in cut.items() if key != "table"}}
        for cut in summary["outcome"]["cutoffs"]
        for group in cut["table"]["groups"]
    ]
    on_page = ("approval rate", "approval ratio")
    columns = (
        Column("quantile of scores", "share", "cut/quantile").detail(),
        Column("cutoff", "number", "cut/cutoff"),
        Column("overall approval rate", "share", "cut/overall_approval_rate"),
        text("group"),
        *(column if column.heading in on_page else column.detail() for column in _approval_columns()),
        flag(lambda r: _approval_flags(r, threshold)),
        NOTE.detail(),
    )
    caption = "Approvals if the cutoff were at each decile of the score; p-values not adjusted over rows"
    highlights = _approval_highlights(threshold)
    return Table("Cutoffs", caption, columns, records, highlights, needs=("decisions", "probability"))


def segment_table(summary: Summary, column: str | None = None) -> Table:
    """Approvals within the values of a column, or of every column, after their common odds ratio."""
    records: list[Record] = []
    for name, wholes in summary["outcome"]["segments"].items():
        for whole in wholes if column in (None, name) else ():
            shared = {"column": name, "group": whole["group"], "reference": whole["reference"]}
            records.append(
                {
                    **dict.fromkeys(_OF_SEGMENTS, ""),
                    **shared,
                    "segment": "all, held fixed",
                    "people": whole["n_people_used"],
                    "odds_ratio_group_over_reference": whole["common_odds_ratio_group_over_reference"],
                    "p_adjusted": whole["p_value_holm"],
                    "homogeneity": whole["homogeneity_p_value"],
                    "note": whole["note"],
                }
            )
            records += [
                {
                    **part,
                    **shared,
                    "people": part["n_people_group"] + part["n_people_reference"],
                    "p_adjusted": "",
                    "homogeneity": "",
                }
                for part in whole["segments"]
            ]
    columns = (
        text("column").detail(),
        text("group"),
        text("segment"),
        text("reference").detail(),
        Column("people", "whole"),
        Column("people, group", "whole", "n_people_group").detail(),
        Column("approved, group", "whole", "n_approved_group").detail(),
        Column("people, reference", "whole", "n_people_reference").detail(),
        Column("approved, reference", "whole", "n_approved_reference").detail(),
        estimate("approval rate, group", "approval_rate_group", "share"),
        estimate("approval rate, reference", "approval_rate_reference", "share"),
        estimate("approval ratio", "approval_ratio_group_over_reference", places=2).detail(),
        estimate("odds ratio", "odds_ratio_group_over_reference", places=2),
        Column("p-value, adjusted", "p", "p_adjusted"),
        Column("p-value of homogeneity", "p", "homogeneity").detail(),
        Column("is informative", "any", "is_informative").detail(),
        NOTE,
    )
    caption = f"Approvals within values of {column or 'each column of `by`'}, and their common odds ratio"
    highlights = [Highlight("p-value, adjusted", "at most", SIGNIFICANT, "evidence")]
    missing = "Not available: no column was named in `by`."
    return Table("Segments", caption, columns, records, highlights, missing, needs=("decisions",))


_OF_SEGMENTS = (
    "n_people_group",
    "n_approved_group",
    "n_people_reference",
    "n_approved_reference",
    "approval_rate_group",
    "approval_rate_reference",
    "approval_ratio_group_over_reference",
    "is_informative",
)
