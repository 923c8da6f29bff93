"""Calibration by group: its tables, and the chart of reliability curves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from evenhand.report.drawing import (
    NothingToDrawError,
    chart_of,
    check_any,
    finished,
    group_color,
    group_shape,
    label_of,
    quantity,
    tooltips,
)
from evenhand.report.formatting import decimal, is_number, shortened
from evenhand.report.tables import FLAGGED, Column, Record, Table, estimate, flag, joined, text

__all__ = ["calibration_table", "caption", "reliability", "reliability_table"]

Summary = Mapping[str, Any]


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


def caption(data: Summary) -> str:
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
