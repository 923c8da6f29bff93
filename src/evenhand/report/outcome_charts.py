"""Charts of what the model decides: approvals, error rates, cutoffs and scores of each group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from evenhand.report.drawing import (
    chart_of,
    check_any,
    estimate_row,
    finished,
    forest,
    guide_x,
    guide_y,
    label_of,
    line_of_each,
    quantity,
    tooltips,
)
from evenhand.report.formatting import is_number, shortened

__all__ = ["approvals", "cutoffs", "error_rates", "ratios", "score_distribution"]

Data = Mapping[str, Any]


def approvals(data: Data) -> alt.Chart:
    """Share of favorable decisions in each group, with 95% intervals."""
    rows = [estimate_row(g["group"], g["approval_rate"]) for g in data["outcome"]["approvals"]["groups"]]
    return forest(
        rows,
        "Share of favorable decisions",
        "Points with 95% intervals: share of favorable decisions by group.",
        zero=None,
        percent_axis=True,
    )


def ratios(data: Data) -> alt.Chart:
    """Approval rate of each group divided by that of the reference group, with 95% intervals."""
    table = data["outcome"]["approvals"]
    rows = [
        estimate_row(g["group"], g["approval_ratio_group_over_reference"])
        for g in table["groups"]
        if not g["is_reference"]
    ]
    limit = table["four_fifths_threshold"]
    return forest(
        rows,
        f"Approval rate divided by that of {shortened(table['reference'], 30)}",
        "Points with 95% intervals: approval ratio of each group to the reference group.",
        zero=1.0,
        guides=((limit, f"{limit:g}"),),
    )


def error_rates(data: Data) -> alt.Chart:
    """True and false positive rate of each group, with 95% intervals."""
    rows = [
        estimate_row(f"{words}: {g['group']}", g[name])
        for name, words in (("true_positive_rate", "TPR"), ("false_positive_rate", "FPR"))
        for g in data["outcome"]["error_rates"]
    ]
    return forest(
        rows,
        "Rate",
        "Points with 95% intervals: true and false positive rate of each group.",
        zero=None,
        percent_axis=True,
    )


def cutoffs(data: Data) -> alt.Chart:
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
    lines = chart_of(rows).mark_line(point={"size": 50})
    lines = lines.encode(
        x=quantity(alt.X, "rate", "Share of everyone approved at the cutoff", percent=True),
        y=quantity(alt.Y, "ratio", "Approval ratio", zero=False),
        **line_of_each(row["group"] for row in rows),
        tooltip=tooltips("group", ("rate", ".0%", "approved in total"), ("cutoff", ".3f"), ("ratio", ".3f")),
    )
    limit = data["outcome"]["approvals"]["four_fifths_threshold"]
    return finished(
        alt.layer(*guide_y(limit, f"{limit:g}", "guide"), *guide_y(1.0, "equal rates", "guide"), lines),
        "Lines: approval ratio of each group to the reference group as the cutoff moves.",
        height=240,
    )


def score_distribution(data: Data) -> alt.Chart:
    """Distribution of scores in each group."""
    found = data["distributions"]["score"]
    rows = [
        {"group": label_of(name), "score": edge, "share": n / sum(counts)}
        for name, counts in found["counts"].items()
        if sum(counts)
        for edge, n in zip(found["edges"], [*counts, 0], strict=True)
    ]
    check_any(rows, "no one has a score")
    lines = chart_of(rows).mark_line(interpolate="step-after", strokeWidth=2)
    lines = lines.encode(
        x=quantity(
            alt.X, "score", data["settings"].get("unit") or "Score", domain=[found["edges"][0], found["edges"][-1]]
        ),
        y=quantity(alt.Y, "share", "Share of the group", percent=True),
        **line_of_each(label_of(name) for name in found["counts"]),
        tooltip=tooltips("group", ("score", ".3f"), ("share", ".1%")),
    )
    return finished(
        alt.layer(*_threshold_guides(data["settings"]["decision_threshold"]), lines),
        "Lines: histogram of scores in each group, with the decision threshold.",
        height=220,
    )


def _threshold_guides(threshold: float | Mapping[str, Any] | None) -> list[alt.Chart]:
    """A line at the threshold, or at the cutoff of each segment; none if the outcome is a value."""
    if threshold is None:
        return []
    if not isinstance(threshold, Mapping):
        return guide_x(threshold, f"decision threshold {threshold:g}")
    cut_offs = threshold["cut_offs"]
    names = {at: ", ".join(name for name in cut_offs if cut_offs[name] == at) for at in cut_offs.values()}
    return [mark for at, name in names.items() for mark in guide_x(at, label_of(f"{name} {at:g}"))]
