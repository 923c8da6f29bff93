"""The tables of a model's decisions, from an audit's summary, for the page and for the workbook."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import altair as alt

from evenhand.report.audit_tables import SIGNIFICANT, lacking, significance_flag
from evenhand.report.drawing import (
    NothingToDrawError,
    chart_of,
    check_any,
    finished,
    group_color,
    group_shape,
    label_of,
    lines_of,
    quantity,
    tooltips,
)
from evenhand.report.formatting import decimal, is_number, shortened
from evenhand.report.tables import FLAGGED, NOTE, Column, Highlight, Kind, Record, Table, estimate, flag, joined, text

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


_NOT_ASKED = "Not available: the audit was run without regressions (`regressions=True`, --regressions)."
_CONTROLS = {
    "none": "nothing",
    "financial features": "finances",
    "all inputs": "all inputs",
    "matched pairs": "matched pairs",
}
_METHODS = {"logit": "logit, average marginal effect", "ols": "least squares"}
_MOST_LINES = 12


def regression_table(summary: Summary, column: str | None = None) -> Table:
    """Regressions for everyone and within segments: all of them, or those of one column; "" for everyone."""
    found = summary.get("regressions") or {"outcomes": (), "rows": (), "reference": "the reference group"}
    described = {one["outcome"]: one for one in found["outcomes"]}
    records = [
        {**row, "of": described[row["outcome"]]} for row in found["rows"] if column is None or row["column"] == column
    ]
    columns = (
        text("column").detail(),
        text("segment") if column else text("segment").detail(),
        text("outcome"),
        text("group"),
        Column("held equal", "text", lambda r: _CONTROLS[r["controls"]]),
        estimate("group minus reference", "effect"),
        Column("unit", "text", "of/unit").detail(),
        Column("method", "text", _method).detail(),
        Column("standard error", "number", "effect/standard_error").detail(),
        Column("p-value, two-sided", "p", "effect/p_value").detail(),
        Column("p-value, adjusted", "p", lambda r: "" if r["controls"] == "matched pairs" else r["p_adjusted"]),
        Column("people", "whole", "effect/n_people"),
        Column("people, group", "whole", "effect/n_group").detail(),
        Column("columns held equal", "whole", "effect/n_controls").detail(),
        flag(lambda r: significance_flag(r["p_adjusted"], "adjusted p-value")),
        Column("note", "long text", lambda r: joined(r["effect"]["note"], _lacking(r))),
    )
    within = f" within values of {column}" if column else ""
    words = f"Outcomes of each group minus those of {found['reference']} by regression{within}"
    highlights = [Highlight("p-value, adjusted", "at most", SIGNIFICANT, "evidence"), FLAGGED]
    return Table("Regressions", words, columns, records, highlights, _NOT_ASKED)


def _method(record: Record) -> str:
    return "pairs" if record["controls"] == "matched pairs" else _METHODS[record["of"]["method"]]


def _lacking(record: Record) -> str:
    """How many people have no outcome, in the row for everyone without controls."""
    n = record["of"]["n_missing"]
    return f"{n:,} people without this outcome" if n and record["controls"] == "none" and not record["column"] else ""


def regression_notes(summary: Summary) -> tuple[str, ...]:
    """What is held equal, and what is not."""
    found = summary["regressions"]
    errors = {
        "robust": "robust to unequal variances (HC1; White's for logits)",
        "clustered": "clustered by applicant",
    }
    notes = [
        "A decision is regressed with a logit and shown as an average marginal effect, in shares of people; anything "
        "else with least squares, in its unit. "
        f"Standard errors are {errors[found['errors']]}. p-values are adjusted (Holm) over groups and outcomes, and "
        "over the segments of a column, with the same controls; the table of score gaps adjusts those of matched "
        "pairs.",
    ]
    finances = found["controls"].get("financial features", ())
    if finances:
        notes.append(f"Finances held equal: {', '.join(shortened(name, 40) for name in finances)}.")
    notes += [f"Not held equal: {shortened(name, 40)}, because {why}." for name, why in found["left_out"].items()]
    return (*notes, *(f"{note[:1].upper()}{note[1:]}." for note in found["notes"]))


def coefficients(data: Summary) -> alt.Chart:
    """The group's effect on every outcome as more is held equal, in standard deviations of the outcome."""
    found = data.get("regressions")
    if not found:
        raise NothingToDrawError("There are no regressions: run `audit` with `regressions=True` for this chart.")
    spread = {one["outcome"]: one["standard_deviation"] for one in found["outcomes"]}
    several = len({row["group"] for row in found["rows"]}) > 1
    rows = [_point(row, spread[row["outcome"]], several) for row in found["rows"] if not row["column"]]
    rows = [row for row in rows if is_number(row["value"])]
    check_any(rows, "no regression could be estimated")
    names = list(dict.fromkeys(row["label"] for row in rows))[:_MOST_LINES]
    rows = [row for row in rows if row["label"] in names]
    sets = [words for words in _CONTROLS.values() if any(row["controls"] == words for row in rows)]
    reference, group = shortened(found["reference"], 16), shortened(found["rows"][0]["group"], 16)
    title = f"{'Group' if several else group} minus {reference}, standard deviations"
    offset = alt.YOffset("controls:N", sort=None, scale=alt.Scale(domain=sets))
    base = chart_of(rows)
    tooltip = tooltips("label", "controls", "shown", ("people", ","))
    legend, scale = alt.Legend(title="held equal", columns=2), alt.Scale(domain=sets)
    color = alt.Color("controls:N", sort=None, scale=scale, legend=legend)
    shape = alt.Shape("controls:N", sort=None, scale=scale, legend=legend)
    x = quantity(alt.X, "low", title, zero=False)
    layers = (
        chart_of([{"at": 0}]).mark_rule(style="zero").encode(x=alt.X("at:Q")),
        base.mark_rule(strokeWidth=2).encode(
            x=x, x2=alt.X2("high:Q"), y=lines_of(names), yOffset=offset, color=color, tooltip=tooltip
        ),
        base.mark_point(size=60, filled=True, opacity=1).encode(
            x=alt.X("value:Q", title=title),
            y=lines_of(names),
            yOffset=offset,
            color=color,
            shape=shape,
            tooltip=tooltip,
        ),
    )
    description = "Points with 95% intervals: effect of the group on each outcome, as more is held equal."
    return finished(alt.layer(*layers), description, 18 * len(sets) * len(names) + 8 * len(names))


def _point(row: Record, spread: float, several: bool) -> dict[str, Any]:
    effect = row["effect"]
    scale = 1 / spread if spread else 0.0
    ends = {name: effect[name] * scale if is_number(effect[name]) else None for name in ("value", "low", "high")}
    label = f"{row['outcome']}: {shortened(row['group'], 30)}" if several else row["outcome"]
    return {
        "label": label_of(label),
        "controls": _CONTROLS[row["controls"]],
        "shown": f"{effect['value']:.4g} ({effect['low']:.4g} to {effect['high']:.4g})"
        if is_number(effect["low"])
        else "",
        "people": effect["n_people"],
        **ends,
    }


def regression_caption(data: Summary) -> str:
    """How many differences are beyond chance, with and without equal inputs."""
    found = data["regressions"]
    rows = [row for row in found["rows"] if not row["column"] and is_number(row["p_adjusted"])]
    parts = []
    for controls, words in (("none", "nothing"), ("all inputs", "all inputs")):
        among = [row for row in rows if row["controls"] == controls]
        clear = [row for row in among if row["p_adjusted"] <= SIGNIFICANT]
        if among:
            parts.append(f"{len(clear)} of {len(among)} with {words} held equal")
    said = ", ".join(parts) or "none could be tested"
    return (
        f"Differences beyond chance after adjustment: {said}. If a difference disappears as more is held equal, it "
        "runs through what is held equal."
    )


def calibration_table(summary: Summary) -> Table:
    """Calibration of each group in a few numbers."""
    found = summary["outcome"]["calibration"]
    parts = ("expected_calibration_error", "intercept", "slope")

    def note(record: Record) -> str:
        return joined(*(record[key]["note"] for key in parts))

    columns = (
        text("group"),
        Column("people", "whole", "n_people"),
        Column("mean score", "number", "mean_score"),
        estimate("observed rate", "observed_rate"),
        estimate("calibration error", "expected_calibration_error"),
        Column("calibration error by chance", "number", "error_by_chance"),
        estimate("intercept, log-odds", "intercept"),
        estimate("slope", "slope", places=2),
        flag(lambda r: "small group" if r["is_small_group"] else ""),
        Column("note", "long text", note),
    )
    caption = f"Predicted and observed rates of the {found['outcome']}, with 95% intervals"
    return Table("Calibration", caption, columns, found["groups"], [FLAGGED], found["note"])


def reliability_table(summary: Summary) -> Table:
    """The points of the reliability curves."""
    found = summary["outcome"]["calibration"]
    records = [{"group": group["group"], **part} for group in found["groups"] for part in group["bins"]]
    columns = (
        text("group"),
        Column("scores from", "number", "lowest").detail(),
        Column("to", "number", "highest").detail(),
        Column("people", "whole", "n_people"),
        Column("mean score", "number", "mean_score"),
        estimate("observed rate", "observed_rate"),
    )
    caption = f"Mean score and observed rate of the {found['outcome']} in bins with equal numbers of people of a group"
    return Table("Reliability", caption, columns, records, (), found["note"])


def reliability(data: Summary) -> alt.Chart:
    """Observed rate by mean score of each group, with 95% intervals."""
    found = data["outcome"]["calibration"]
    if not found["groups"]:
        raise NothingToDrawError(found["note"])
    names = [label_of(group["group"]) for group in found["groups"] if group["bins"]]
    rows = [
        {
            "group": label_of(group["group"]),
            "score": part["mean_score"],
            "rate": part["observed_rate"]["value"],
            "low": part["observed_rate"]["low"],
            "high": part["observed_rate"]["high"],
            "people": part["n_people"],
        }
        for group in found["groups"]
        for part in group["bins"]
        if is_number(part["observed_rate"]["value"])
    ]
    check_any(rows, "no observed rate could be estimated")
    x = quantity(alt.X, "score", "Mean score", domain=[0, 1])
    y = quantity(alt.Y, "rate", f"Observed rate of the {found['outcome']}", domain=[0, 1])
    color, shape = group_color(names), group_shape(names)
    tooltip = tooltips(
        "group", ("score", ".3f", "mean score"), ("rate", ".3f", "observed"), ("low", ".3f", "95% from"),
        ("high", ".3f", "to"), ("people", ","),
    )  # fmt: skip
    base = chart_of(rows)
    layers = (
        chart_of([{"score": 0, "rate": 0}, {"score": 1, "rate": 1}]).mark_line(style="guide").encode(x=x, y=y),
        base.mark_rule().encode(x=x, y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), color=color, tooltip=tooltip),
        base.mark_line(strokeWidth=1.5).encode(
            x=x, y=y, color=color, strokeDash=alt.StrokeDash("group:N", legend=None)
        ),
        base.mark_point(size=50, filled=True, opacity=1).encode(x=x, y=y, color=color, shape=shape, tooltip=tooltip),
    )
    description = (
        "Points with 95% intervals: observed rate by mean score for each group; calibrated scores lie on the diagonal."
    )
    return finished(alt.layer(*layers), description, 300)


def calibration_caption(data: Summary) -> str:
    """The group whose scores and outcomes are farthest apart."""
    known = [
        group
        for group in data["outcome"]["calibration"]["groups"]
        if is_number(group["expected_calibration_error"]["value"])
    ]
    worst = max(known, key=lambda group: group["expected_calibration_error"]["value"])
    return (
        "On the diagonal, predicted and observed rates are the same. Farthest from it on average: "
        f"{shortened(worst['group'], 40)}, by {decimal(worst['expected_calibration_error']['value'])}; chance alone "
        f"gives {decimal(worst['error_by_chance'])} for this number of people."
    )
