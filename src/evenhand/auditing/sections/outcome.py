"""What the model decides, by group: approvals, errors, scores, cutoffs, calibration and segments."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, ClassVar

import altair as alt
import numpy as np
from scipy import special

from evenhand.arrays import Floats
from evenhand.auditing.batches import ClusteredPeople, ScoreCounts
from evenhand.auditing.fitted import Fitted, own_score
from evenhand.auditing.scope import Scope
from evenhand.auditing.totals import Totals
from evenhand.metrics import disparity
from evenhand.metrics.disparity import (
    FOUR_FIFTHS,
    ApprovalTable,
    CalibrationTable,
    CutoffApprovals,
    GapEstimate,
    GroupErrorRates,
    ScoreDisparity,
    SegmentApproval,
    SegmentedApproval,
    approval_disparity,
    approval_disparity_by_cutoff,
    group_calibration,
    outcome_gaps,
    score_disparity,
    segmented_approvals,
)
from evenhand.metrics.estimate import Estimate, RowWeights, not_estimable
from evenhand.metrics.names import METRICS
from evenhand.metrics.outcomes import GroupOutcome, group_outcomes, hanley_mcneil, outcome_metrics
from evenhand.report.drawing import (
    NothingToDrawError,
    chart_of,
    check_any,
    finished,
    forest,
    group_color,
    group_shape,
    guide_x,
    guide_y,
    label_of,
    lines_by_group,
    quantity,
    tooltips,
)
from evenhand.report.formatting import decimal, estimate_interval, is_number, shortened
from evenhand.report.section import AuditMetric, Drawing, Section, Summary, SummaryRow, chart, lacking, number
from evenhand.report.tables import (
    NOTE,
    Column,
    Highlight,
    Kind,
    Record,
    Table,
    beside_reference,
    estimate,
    flag,
    histogram_table,
    joined,
    p_adjusted,
    significance_flag,
    text,
)


@dataclass(frozen=True)
class Outcomes:
    """What the model decides, by group.

    Attributes
    ----------
    metrics
        Utility and gaps by name, each a number or NaN with the reason.
    groups
        Decisions and errors of each group.
    gaps
        The gaps with intervals.
    approvals, scores, error_rates
        Tables of a fair-lending file: approvals and scores next to a reference group, error rates of each group.
    cutoffs
        Approvals if the cutoff were at each decile of the score.
    segments
        For each requested column, approvals within its values and their common odds ratio.
    attributes
        If groups cross several attributes, approvals by the values of each.
    calibration
        The model's scores next to what was observed, by group.
    """

    metrics: Mapping[str, Estimate]
    groups: tuple[GroupOutcome, ...]
    gaps: Mapping[str, GapEstimate]
    approvals: ApprovalTable
    scores: tuple[ScoreDisparity, ...]
    error_rates: tuple[GroupErrorRates, ...]
    cutoffs: tuple[CutoffApprovals, ...]
    segments: Mapping[str, tuple[SegmentedApproval, ...]]
    calibration: CalibrationTable
    attributes: Mapping[str, ApprovalTable] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain data: metrics by name, and the tables."""
        data = asdict(self)
        metrics = data.pop("metrics")
        notes = {name: metric["note"] for name, metric in metrics.items() if metric["note"]}
        data["segments"] = {name: list(rows) for name, rows in data["segments"].items()}
        parts = {name: list(part) if isinstance(part, tuple) else part for name, part in data.items()}
        return {**{name: metric["value"] for name, metric in metrics.items()}, "notes": notes, **parts}


def with_one_interval(gaps: Mapping[str, GapEstimate], approvals: ApprovalTable) -> dict[str, GapEstimate]:
    """Gaps in outcomes, in which that of two groups' approvals has the interval of their difference."""
    if len(approvals.groups) != 2:
        return dict(gaps)
    apart = next(row for row in approvals.groups if not row.is_reference).rate_difference_group_minus_reference_pp
    apart = apart.scaled(math.copysign(0.01, apart.value))
    return {**gaps, "sp_gap": replace(gaps["sp_gap"], low=max(apart.low, 0.0), high=apart.high)}


_LOST = {
    "errors": ("auc", "f1", "accuracy", "eo_gap", "tpr_gap", "fpr_gap"),
    "decisions": ("f1", "accuracy", "positive_rate", "eo_gap", "sp_gap", "tpr_gap", "fpr_gap"),
}


def _known(group: GroupOutcome, scope: Scope) -> GroupOutcome:
    """Rates of a group, NaN where they need labels, decisions or scores that were not given."""
    nan = math.nan
    unknown: dict[str, Any] = {"auc": nan} if "errors" in scope.not_possible else {}
    if not scope.decisions:
        unknown |= dict.fromkeys(("positive_rate", "true_positive_rate", "false_positive_rate"), nan)
    if not scope.labels:
        unknown |= {"true_positive_rate": nan, "false_positive_rate": nan, "n_positive_label": None}
    return replace(group, **unknown)


def _calibration(rows: ScoreCounts, fitted: Fitted) -> CalibrationTable:
    """Calibration of the model's scores. If low scores are good, they predict the unfavorable outcome."""
    favorable = fitted.settings.favorable or "high"
    outcome = "unfavorable outcome" if favorable == "low" else "favorable outcome"
    why = fitted.scope.not_possible.get("errors", "")
    if not fitted.model.has_probabilities:
        why = f"The {fitted.model.kind} returns a margin, not a probability: calibrate it to compare it with labels."
    elif not rows.weights.is_equal:
        why = why or "Calibration by group is not computed for people with sampling weights."
    if why:
        return CalibrationTable(outcome, (), why)
    found = group_calibration(
        1 - rows.label if favorable == "low" else rows.label,
        own_score(rows.score, favorable),
        rows.group,
        names=fitted.pool.groups.names,
        frequency=rows.weights,
        random_state=fitted.settings.random_state,
    )
    return CalibrationTable(outcome, tuple(found))


def _segments(
    column: str, counts: Mapping[str, Floats], clustered: ClusteredPeople | None, compared: Mapping[str, Any]
) -> tuple[SegmentedApproval, ...]:
    if clustered is not None:
        columns: tuple[Any, ...] = clustered.decision, clustered.group, clustered.by[column]
        times = clustered.weights
    else:
        counts = dict(sorted(counts.items()))
        cells = np.stack(list(counts.values()))
        place, group, decision = np.nonzero(cells[..., 0])
        count, total, squares = cells[place, group, decision].T
        columns = decision, group, np.asarray(list(counts), dtype=object)[place]
        times = RowWeights(count.astype(np.int64), total, squares)
    return tuple(segmented_approvals(*columns, **{**compared, "frequency": times}))


def group_table(summary: Summary) -> Table:
    """Decisions, errors and reasoning of each group."""

    def note(record: Record) -> str:
        if record["n_positive_label"] is None:
            return lacking(summary, "labels")
        n = {"favorable": record["n_positive_label"], "unfavorable": record["n"] - record["n_positive_label"]}
        return joined(*(f"no one with the {label} label" for label in n if not n[label]))

    columns = (
        text("group"),
        Column("people", "whole", "n"),
        Column("with the favorable label", "whole", "n_positive_label"),
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
    records = [
        {"metric": METRICS[name].words, "value": outcome[name], "note": outcome["notes"].get(name, "")}
        for name in ("auc", "f1", "accuracy", "positive_rate")
    ]
    columns = (text("metric"), Column("value"), NOTE)
    return Table("Utility", "Utility", columns, records, needs=("labels", "decisions"))


def gap_table(summary: Summary) -> Table:
    """The largest difference in a rate between groups."""
    outcome = summary["outcome"]
    records = [
        {**gap, "words": METRICS[name].words, "note": gap["note"] or outcome["notes"].get(name, "")}
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


def _approval_flags(record: Record) -> str:
    return joined(
        f"ratio below {FOUR_FIFTHS:g}" if record["is_below_practical_threshold"] else "",
        significance_flag(record["p_value_holm"], "adjusted p-value"),
        _small_group(record),
    )


def _small_group(record: Record) -> str:
    return "small group" if record["is_small_group"] else ""


_RATIO = estimate("approval ratio", beside_reference("approval_ratio_group_over_reference"), places=2)
_APPROVAL_COLUMNS = (
    Column("is reference", "any", "is_reference").detail(),
    Column("people", "whole", "n_people"),
    Column("approved", "whole", "n_approved").detail(),
    estimate("approval rate", "approval_rate", "share"),
    estimate("difference, percentage points", beside_reference("rate_difference_group_minus_reference_pp"), places=1),
    replace(_RATIO, highlights=(Highlight("below", FOUR_FIFTHS),)),
    estimate("odds ratio", beside_reference("odds_ratio_group_over_reference"), places=2),
    Column("p-value", "p", beside_reference("p_value")).detail(),
    p_adjusted(beside_reference("p_value_holm")),
    Column("test", "text", "test").detail(),
    Column("standard deviations", "number", beside_reference("n_standard_deviations"), places=1).detail(),
    Column("shortfall of approvals", "number", beside_reference("shortfall"), places=0),
    flag(_approval_flags),
)


def attribute_table(summary: Summary) -> Table:
    """Approvals by the values of each of several attributes."""
    attributes = summary["outcome"].get("attributes", {})
    columns = (
        text("attribute"),
        text("group"),
        *_APPROVAL_COLUMNS,
        Column("note", "long text", lambda r: joined(r["note"], attributes[r["attribute"]]["note"])),
    )
    records = [{"attribute": column, **row} for column, found in attributes.items() for row in found["groups"]]
    caption = "Favorable decisions by the values of each attribute alone; p-values are adjusted within it"
    return Table("Attributes", caption, columns, records, needs=("decisions",))


def approval_table(summary: Summary) -> Table:
    """Approvals compared with the reference group."""
    found = summary["outcome"]["approvals"]
    columns = (
        text("group"),
        *_APPROVAL_COLUMNS,
        Column("note", "long text", lambda r: joined(r["note"], found["note"])),
    )
    caption = f"Favorable decisions of each group compared with the reference group, {found['reference']}"
    return Table("Approvals", caption, columns, found["groups"], needs=("decisions",))


def score_table(summary: Summary) -> Table:
    """Scores compared with the reference group."""
    difference = "standardized_mean_difference_group_minus_reference"
    columns = (
        text("group"),
        Column("is reference", "any", "is_reference"),
        Column("people", "whole", "n_people"),
        estimate("mean score", "mean_score"),
        Column("standard deviation", "number", "standard_deviation").detail(),
        estimate("standardized difference", beside_reference(difference), places=2),
        Column("KS distance", "number", beside_reference("ks_distance")),
        Column("KS p-value", "p", beside_reference("ks_p_value")),
        flag(_small_group),
        Column("note", "long text", lambda r: joined(r["note"], r["mean_score"]["note"], r[difference]["note"])),
    )
    is_risk = summary["settings"]["favorable"] == "low" and not lacking(summary, "probability")
    caption = f"Scores of each group compared with the reference group{'; a high score is a high risk' * is_risk}"
    return Table("Scores", caption, columns, summary["outcome"]["scores"], needs=("scores",))


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
        Column("with the favorable label", "whole", "n_positive_label").detail(),
        *(column if is_shown else column.detail() for column, is_shown in rates),
        flag(_small_group),
        Column("note", "long text", note),
    )
    caption = "Decisions and errors of each group with 95% intervals"
    records = summary["outcome"]["error_rates"]
    return Table("Error rates", caption, columns, records, needs=("labels", "decisions"), key="errors")


def cutoff_table(summary: Summary) -> Table:
    """Approvals at different cutoffs."""
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
        *(column if column.heading in on_page else column.detail() for column in _APPROVAL_COLUMNS),
        NOTE.detail(),
    )
    caption = "Approvals if the cutoff were at each decile of the score; p-values not adjusted over rows"
    return Table("Cutoffs", caption, columns, records, needs=("decisions", "probability"))


def segment_table(summary: Summary, column: str | None = None) -> Table:
    """Approvals within the values of a column, or of every column, after their common odds ratio."""
    records: list[Record] = []
    for name, wholes in summary["outcome"]["segments"].items():
        for whole in wholes if column in (None, name) else ():
            shared = {"column": name, "group": whole["group"], "reference": whole["reference"]}
            records.append(
                {
                    **dict.fromkeys(SegmentApproval.__dataclass_fields__, ""),
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
        p_adjusted("p_adjusted"),
        Column("p-value of homogeneity", "p", "homogeneity").detail(),
        Column("is informative", "any", "is_informative").detail(),
        NOTE,
    )
    caption = f"Approvals within values of {column or 'each column of `by`'}, and their common odds ratio"
    missing = "Not available: no column was named in `by`."
    return Table("Segments", caption, columns, records, missing, needs=("decisions",))


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
        flag(_small_group),
        Column("note", "long text", note),
    )
    caption = f"Predicted and observed rates of the {found['outcome']}, with 95% intervals"
    return Table("Calibration", caption, columns, found["groups"], found["note"])


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
    return Table("Reliability", caption, columns, records, found["note"])


@chart("Favorable decisions", approval_table, is_detail=True)
def approvals(data: Summary) -> Drawing:
    """Share of favorable decisions in each group, with 95% intervals."""
    rows = [(g["group"], g["approval_rate"]) for g in data["outcome"]["approvals"]["groups"]]
    description = "share of favorable decisions by group."
    points = forest(rows, "Share of favorable decisions", description, zero=None, percent_axis=True)
    gap = data["outcome"]["gaps"]["sp_gap"]
    if not is_number(gap["value"]):
        return points, f"The gap between groups was not estimated: {gap['note']}."
    return points, (
        f"Approved most often: {shortened(gap['group_high'], 40)}; least often: {shortened(gap['group_low'], 40)}. "
        f"The gap is {decimal(100 * gap['value'], 1)} points ({estimate_interval(gap, 1, 100)})."
    )


@chart("Approval ratios", approval_table, is_wide=True)
def ratios(data: Summary) -> Drawing:
    """Approval rate of each group divided by that of the reference group, with 95% intervals."""
    table = data["outcome"]["approvals"]
    rows = [(g["group"], g["approval_ratio_group_over_reference"]) for g in table["groups"] if not g["is_reference"]]
    title = f"Approval rate divided by that of {shortened(table['reference'], 30)}"
    description, guides = "approval ratio of each group to the reference group.", ((FOUR_FIFTHS, f"{FOUR_FIFTHS:g}"),)
    caption = "1 means equal rates. 0.8 is a rule of thumb from US employment selection, not a limit of credit law."
    return forest(rows, title, description, zero=1.0, guides=guides), caption


@chart("Error rates", error_table, is_detail=True)
def error_rates(data: Summary) -> Drawing:
    """True and false positive rate of each group, with 95% intervals."""
    rows = [
        (f"{words}: {g['group']}", g[name])
        for name, words in (("true_positive_rate", "TPR"), ("false_positive_rate", "FPR"))
        for g in data["outcome"]["error_rates"]
    ]
    gap = data["outcome"]["gaps"]["eo_gap"]
    return forest(rows, "Rate", "true and false positive rate of each group.", zero=None, percent_axis=True), (
        f"True (TPR) and false positive rate (FPR): the larger gap, {decimal(gap['value'])}, is in the {gap['rate']}."
    )


@chart("Other cutoffs", cutoff_table, is_wide=True, is_detail=True)
def cutoffs(data: Summary) -> Drawing:
    """Approval ratio of each group if the cutoff were at each decile of the score."""
    rows = [
        {
            "group": label_of(g["group"]),
            "rate": cut["overall_approval_rate"],
            "ratio": g["approval_ratio_group_over_reference"]["value"],
            "cutoff": cut["cutoff"],
        }
        for cut in data["outcome"]["cutoffs"]
        for g in cut["table"]["groups"]
        if not g["is_reference"] and is_number(g["approval_ratio_group_over_reference"]["value"])
    ]
    check_any(rows, "no approval ratio could be estimated at any cutoff")
    lines = lines_by_group(
        rows,
        quantity(alt.X, "rate", "Share of everyone approved at the cutoff", percent=True),
        quantity(alt.Y, "ratio", "Approval ratio", zero=False),
        (("rate", ".0%", "approved in total"), ("cutoff", ".3f"), ("ratio", ".3f")),
        "Lines: approval ratio of each group to the reference group as the cutoff moves.",
        guides=[*guide_y(FOUR_FIFTHS, f"{FOUR_FIFTHS:g}", "guide"), *guide_y(1.0, "equal rates", "guide")],
        point={"size": 50},
    )
    return lines, "If the ratio changes a lot, the finding on outcomes depends on the choice of the cutoff."


@chart(
    "Scores",
    lambda summary: histogram_table(summary["distributions"]["score"], "People by score and group", "scores"),
    is_detail=True,
)
def score_distribution(data: Summary) -> Drawing:
    """Distribution of scores in each group."""
    found = data["distributions"]["score"]
    rows = [
        {"group": label_of(name), "score": edge, "share": n / sum(counts)}
        for name, counts in found["counts"].items()
        if sum(counts)
        for edge, n in zip(found["edges"], [*counts, 0], strict=True)
    ]
    check_any(rows, "no one has a score")
    # A line at the threshold, or at the cutoff of each segment; none if the outcome is a value.
    threshold, guides = data["settings"]["decision_threshold"], []
    if isinstance(threshold, Mapping):
        cut_offs = threshold["cut_offs"]
        for at in dict.fromkeys(cut_offs.values()):
            names = ", ".join(name for name in cut_offs if cut_offs[name] == at)
            guides += guide_x(at, label_of(f"{names} {at:g}"))
    elif threshold is not None:
        guides = guide_x(threshold, f"decision threshold {threshold:g}")
    ends = [found["edges"][0], found["edges"][-1]]
    lines = lines_by_group(
        rows,
        quantity(alt.X, "score", data["settings"].get("unit") or "Score", domain=ends),
        quantity(alt.Y, "share", "Share of the group", percent=True),
        (("score", ".3f"), ("share", ".1%")),
        "Lines: histogram of scores in each group, with the decision threshold.",
        height=220,
        guides=guides,
        names=map(label_of, found["counts"]),
        interpolate="step-after",
        strokeWidth=2,
    )
    if lacking(data, "probability"):
        return lines, f"Everyone audited, in {data['scope']['unit']}."
    side = "left" if data["settings"]["favorable"] == "low" else "right"
    return lines, f"Scores of everyone audited, in bins of 0.025; people to the {side} of the threshold are approved."


@chart("Calibration by group", reliability_table, is_wide=True, is_detail=True)
def reliability(data: Summary) -> Drawing:
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
    key = "expected_calibration_error"
    worst = max((g for g in found["groups"] if is_number(g[key]["value"])), key=lambda g: g[key]["value"])
    return finished(alt.layer(*layers), description, 300), (
        "On the diagonal, predicted and observed rates are the same. Farthest from it on average: "
        f"{shortened(worst['group'], 40)}, by {decimal(worst[key]['value'])}; chance alone gives "
        f"{decimal(worst['error_by_chance'])} for this number of people."
    )


class Outcome(Section):
    """Decisions, errors and scores of each group, without matching."""

    key, title, more = "outcome", "Outcomes", "Scores, errors, calibration and other cutoffs"
    parts = (
        *(GroupOutcome, GapEstimate, ApprovalTable, ScoreDisparity, GroupErrorRates),
        *(CutoffApprovals, SegmentedApproval, CalibrationTable),
    )
    charts = (approvals, ratios, score_distribution, error_rates, cutoffs, reliability)
    words: ClassVar = {
        "positive rate, approval rate": "Share of people whose decision is favorable.",
        "true positive rate": "Share of favorable decisions among people with the favorable label.",
        "false positive rate": "Share of favorable decisions among people with the unfavorable label.",
        "false discovery rate": "Share of the unfavorable label among people with a favorable decision.",
        "statistical parity gap": "Largest difference in approval rates between groups.",
        "equalized odds gap": "Largest difference between groups in the true or the false positive rate.",
        "approval ratio": "The group's approval rate divided by that of the reference group (adverse impact ratio). A "
        "ratio below 0.8 is flagged: a rule of thumb from US employment guidance, not a rule for lending.",
        "odds ratio": "Odds of approval in the group divided by those in the reference group; 1 means equal odds.",
        "shortfall of approvals": "Additional approvals with which the group's rate would reach that of the reference "
        "group.",
        "AUC": "How often the score rates a person with the favorable label better than one with the unfavorable "
        "label: 0.5 is chance, 1 is always.",
        "F1": "Harmonic mean of two shares: of the favorable label among those approved, and of those approved among "
        "people with the favorable label.",
        "Brier score": "Mean squared difference between score and label; 0 is perfect.",
        "calibration error": "Mean distance between score and observed rate over bins of the score. Chance alone makes "
        "it positive, by the amount in the next column.",
        "intercept": "Log-odds to add to everyone's score so that predicted and observed rates agree; below 0, the "
        "score predicts too much.",
        "slope": "Factor of the log-odds that fits the labels best; below 1, scores are too extreme.",
        "KS distance": "Largest difference between two cumulative score distributions: 0 identical, 1 disjoint.",
    }

    prose = (
        "The model's decisions by group, without matching: the tables of a fair-lending file. Differences in "
        "outcomes can have many reasons. They say nothing about reasoning, and reasoning says nothing about them."
    )

    def of(self, totals: Totals) -> Outcomes:
        """What the model decides, by group: as much of it as can be found from what was given."""
        fitted, sums = totals.fitted, totals.sums
        rows, settings, names, scope = sums.rows, fitted.settings, fitted.pool.groups.names, fitted.scope
        favorable, lost, times = settings.favorable or "high", scope.not_possible, rows.weights
        labels, decision, score, codes = rows.label, rows.decision, rows.score, rows.group
        of_groups: dict[str, Any] = {"names": names, "frequency": times}
        compared = {**of_groups, "reference": settings.reference_group}
        outcomes = group_outcomes(labels, decision, score, codes, names, times)
        why = {name: scope.note(key) for key, of_key in _LOST.items() if key in lost for name in of_key}
        if scope.labels and scope.decisions and "errors" in lost:  # of a value, or of decisions, whose errors are known
            why = {"auc": scope.note("errors")}
        approvals = approval_disparity(decision, codes, **compared)
        gaps = outcome_gaps(labels, decision, codes, **of_groups, random_state=settings.random_state)
        errors: Iterable[GroupErrorRates] = ()
        if scope.decisions and scope.labels:
            errors = disparity.error_rates(labels, decision, score, codes, **of_groups)
        if "errors" in lost:
            no = not_estimable(scope.note("errors"))
            errors = [replace(row, auc=no, mean_score_minus_observed_rate=no, brier_score=no) for row in errors]
        cutoffs: Iterable[CutoffApprovals] = ()
        if scope.decisions and scope.outcome == "score":
            cutoffs = approval_disparity_by_cutoff(score, codes, **compared)
        scores: Iterable[ScoreDisparity] = ()
        if scope.outcome != "decision":
            scores = score_disparity(own_score(score, favorable, settings.unit), codes, **compared)
        return Outcomes(
            metrics={
                name: not_estimable(why[name]) if name in why else metric
                for name, metric in outcome_metrics(labels, decision, score, outcomes, times).items()
            },
            groups=tuple(_known(group, scope) for group in outcomes),
            gaps={
                name: GapEstimate(math.nan, name=name, note=why[name]) if name in why else gap
                for name, gap in with_one_interval(gaps, approvals).items()
            },
            approvals=approvals if scope.decisions else replace(approvals, groups=(), note=scope.note("decisions")),
            scores=tuple(scores),
            error_rates=tuple(errors),
            cutoffs=tuple(replace(row, cutoff=own_score(row.cutoff, favorable, settings.unit)) for row in cutoffs),
            segments={
                column: _segments(column, counts, sums.clustered, compared)
                for column, counts in sums.approvals.items()
                if scope.decisions
            },
            calibration=_calibration(rows, fitted),
            attributes={
                column: approval_disparity(
                    decision,
                    values.codes[codes],
                    names=values.names,
                    frequency=times,
                    reference=values.names[values.codes[names.index(approvals.reference)]],
                )
                for column, values in fitted.pool.attributes.items()
                if scope.decisions
            },
        )

    def tables(self, summary: Summary) -> Sequence[Table]:
        return (approval_table(summary), *([attribute_table(summary)] if summary["outcome"].get("attributes") else []))

    def details(self, summary: Summary) -> Sequence[Table]:
        tables = (score_table, error_table, utility_table, gap_table, calibration_table)
        segments = (segment_table(summary, column) for column in summary["outcome"]["segments"])
        return (*(table(summary) for table in tables), *segments)

    def sheets(self, summary: Summary) -> Sequence[Table]:
        of_groups = (group_table, gap_table, approval_table, score_table, error_table, cutoff_table, segment_table)
        more = [attribute_table] if summary["outcome"].get("attributes") else []
        return [table(summary) for table in (*of_groups, *more, calibration_table, reliability_table)]

    def summary_rows(self, summary: Summary) -> Iterable[SummaryRow]:
        outcome = summary["outcome"]
        for name, note, *needs in (
            ("auc", "", "labels", "probability"),
            ("f1", "", "labels", "decisions"),
            ("accuracy", "", "labels", "decisions"),
            ("positive_rate", "share of favorable decisions", "decisions"),
            ("eo_gap", "larger of the gaps in true and false positive rate", "labels", "decisions"),
            ("sp_gap", "gap in the positive rate", "decisions"),
        ):
            gap = outcome["gaps"].get(name)
            value = outcome[name] if gap is None else {**gap, "value": outcome[name]}
            yield METRICS[name].words, value, outcome["notes"].get(name, "") or note, *needs

    def metrics(self, summary: Summary, reference: str) -> Iterable[AuditMetric]:
        """Shares of counted people, signed gaps and ratios to the reference group, and areas under the ROC curve.

        The standard error of a share is that of n + 2 people, one more of whom was approved and one more declined, so
        that a rate of 0 or 1 still varies. Gaps are signed: their size is not smooth near 0.
        """
        outcome = summary["outcome"]
        # Effective numbers, with weights and clusters; approvals of drawn groups have numbers of people over all draws.
        rows = outcome["scores"] or (() if outcome["approvals"]["is_probabilistic"] else outcome["approvals"]["groups"])
        worth = {row["group"]: row["n_effective"] / row["n_people"] for row in rows if is_number(row["n_effective"])}
        groups = {}
        for row in outcome["groups"]:
            # Without labels, the number of favorable ones is unknown.
            n, n_positive = ((row[name] or 0) * worth.get(row["group"], 1.0) for name in ("n", "n_positive_label"))
            groups[row["group"]] = {**row, "n": n, "of_label": (n, n_positive, n - n_positive)}
        n, n_positive, n_negative = np.sum([row["of_label"] for row in groups.values()], axis=0).tolist()
        area, accuracy, rate = (number(outcome[name]) for name in ("auc", "accuracy", "positive_rate"))
        yield AuditMetric("auc", "outcome", "AUC", area, hanley_mcneil(area, n_positive, n_negative))
        yield AuditMetric("accuracy", "outcome", "accuracy", accuracy, _share_error(accuracy, n))
        yield AuditMetric("positive rate", "outcome", "positive rate", rate, _share_error(rate, n))
        rates = {}
        for place, name in enumerate(("positive rate", "true positive rate", "false positive rate")):
            for group, row in groups.items():
                value = number(row[name.replace(" ", "_")])
                rates[name, group] = value, _share_error(value, row["of_label"][place])
                yield AuditMetric(f"{name}: {group}", "outcome", f"{name}, {group}", *rates[name, group])
        for (name, group), (value, error) in rates.items():
            if group != reference:
                base, base_error = rates[name, reference]
                words = f"{name}, {group} minus {reference}"
                yield AuditMetric(f"gap: {words}", "outcome", words, value - base, math.hypot(error, base_error))
        base, base_error = _log_rate(groups[reference])
        for group, row in groups.items():
            if group != reference:
                value, error = _log_rate(row)
                words = f"approval ratio, {group} over {reference}"
                note = "half an approval added: no one was approved" if not row["positive_rate"] else ""
                ratio, error = math.exp(value - base), math.hypot(error, base_error)
                yield AuditMetric(f"ratio: {words}", "outcome", words, ratio, error, scale="ratio", note=note)
        z = float(special.ndtri((1 + outcome["approvals"]["confidence"]) / 2))
        for row in outcome["error_rates"]:
            area, low, high = (number(row["auc"][end]) for end in ("value", "low", "high"))
            # DeLong's interval is formed on the logit scale.
            error = float(special.logit(high) - special.logit(low)) / 2 / z * area * (1 - area)
            group = row["group"]
            yield AuditMetric(f"auc: {group}", "outcome", f"AUC, {group}", area, error, note=row["auc"]["note"])

    def logged(self, summary: Summary) -> Iterable[tuple[str, Any]]:
        outcome = summary["outcome"]
        for name in ("auc", "f1", "accuracy", "positive_rate", "eo_gap", "sp_gap"):
            yield METRICS[name].path, METRICS[name].value(summary)
        yield from ((f"positive_rate.{row['group']}", row["positive_rate"]) for row in outcome["groups"])


def _share_error(value: float, n: float) -> float:
    """Standard error of a share, as if there were one more success and one more failure among n + 2."""
    if not math.isfinite(value) or n <= 0:
        return math.nan
    share = (value * n + 1) / (n + 2)
    return math.sqrt(share * (1 - share) / (n + 2))


def _log_rate(row: Mapping[str, Any]) -> tuple[float, float]:
    """Logarithm of the positive rate, and its standard error; half an approval is added if there are none."""
    n, rate = float(row["n"]), number(row["positive_rate"])
    if n == 0 or not math.isfinite(rate):
        return math.nan, math.nan
    approved = max(rate * n, 0.5)
    return math.log(approved / n), math.sqrt(max(1 / (approved + 0.5) - 1 / (n + 0.5), 0.0))
