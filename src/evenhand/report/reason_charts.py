"""The chart of the reasons for unfavorable decisions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt

from evenhand.report.drawing import (
    STEP,
    chart_of,
    check_any,
    finished,
    group_color,
    group_shape,
    labels_of,
    lines_of,
    quantity,
    tooltips,
)
from evenhand.report.formatting import is_number

__all__ = ["reason_rates"]

_MOST_REASONS = 12


def reason_rates(data: Mapping[str, Any]) -> alt.Chart:
    """How often each reason is given to declined people of each group, with 95% intervals; the most frequent first."""
    found = data["reasons"]
    rates = [
        row for row in (found["rates"] if found else ()) if row["place"] == "any" and is_number(row["rate"]["value"])
    ]
    check_any(rates, (found and found["note"]) or "no one is given a reason")
    shown = list(dict.fromkeys(row["reason"] for row in rates))[:_MOST_REASONS]
    reason_label = dict(zip(shown, labels_of(shown), strict=True))
    groups = list(dict.fromkeys(row["group"] for row in rates))
    group_label = dict(zip(groups, labels_of(groups), strict=True))
    rows = [
        {
            "label": reason_label[row["reason"]],
            "group": group_label[row["group"]],
            "share": row["rate"]["value"],
            "low": row["rate"]["low"],
            "high": row["rate"]["high"],
            "people": row["n"],
        }
        for row in rates
        if row["reason"] in reason_label
    ]
    names = list(group_label.values())
    lines = lines_of(list(reason_label.values()))
    beside = alt.YOffset("group:N", scale=alt.Scale(domain=names))
    top = min(1.0, 1.05 * max(row["high"] for row in rows))
    tooltip = tooltips(
        "label", "group", ("share", ".1%"), ("low", ".1%", "95% from"), ("high", ".1%", "to"), ("people", ",")
    )
    base = chart_of(rows)
    x = quantity(alt.X, "low", "Share of declined people with the reason", percent=True, domain=[0, top])
    layers = [
        base.mark_rule(style="interval").encode(
            x=x, x2=alt.X2("high:Q"), y=lines, yOffset=beside, color=group_color(names), tooltip=tooltip
        ),
        base.mark_point().encode(
            x=alt.X("share:Q"),
            y=lines,
            yOffset=beside,
            color=group_color(names),
            shape=group_shape(names),
            tooltip=tooltip,
        ),
    ]
    height = max(STEP, 14 * len(names)) * len(reason_label)
    return finished(
        alt.layer(*layers),
        "Points with 95% intervals: share of declined people of each group who are given each reason, the most "
        "frequent reasons first.",
        height,
    )
