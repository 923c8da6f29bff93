"""Charts of comparisons and histories: plain rows in, an Altair chart out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from evenhand.report.drawing import (
    STEP,
    chart_of,
    finished,
    group_color,
    group_shape,
    guide_y,
    lines_of,
    quantity,
    tooltips,
)
from evenhand.report.formatting import decimal, interval, is_number, p_value, shortened
from evenhand.report.tables import Record
from evenhand.report.theme import VARIABLES

__all__ = ["change_chart", "cusum_chart", "rate_chart", "share_chart", "trend_chart"]

Row = dict[str, Any]

_VERDICTS = {
    "more than noise": VARIABLES.regimes[1],
    "not clearly more than noise": VARIABLES.floor,
    "within noise": VARIABLES.muted,
}
_MOST_LINES = 8


def change_chart(changes: Sequence[Record], title: str) -> alt.Chart:
    """Changes with their intervals, one row per metric; a filled point changed by more than noise."""
    is_ratio = changes[0]["scale"] == "ratio"
    audits = list(dict.fromkeys(change["audit"] for change in changes))
    metrics = list(dict.fromkeys(_label(change["words"]) for change in changes))
    rows = [
        {
            "metric": _label(c["words"]),
            "audit": c["audit"],
            "change": c["change"],
            "low": _plain(c["ci_low"]),
            "high": _plain(c["ci_high"]),
            "verdict": c["verdict"],
            "from": decimal(c["base_value"]),
            "to": decimal(c["value"]),
            "interval": interval(c["ci_low"], c["ci_high"]),
            "p, adjusted": p_value(c["p_adjusted"]),
        }
        for c in changes
    ]
    scale = alt.Scale(type="log", nice=False) if is_ratio else alt.Scale(zero=True, nice=True)
    x = alt.X("change:Q", title=title, scale=scale)
    present = [verdict for verdict in _VERDICTS if any(c["verdict"] == verdict for c in changes)]
    color = alt.Color(
        "verdict:N",
        scale=alt.Scale(domain=present, range=[_VERDICTS[verdict] for verdict in present]),
        legend=alt.Legend(),
    )
    shared: dict[str, Any] = {"y": lines_of(metrics, "metric"), "color": color}
    points: dict[str, Any] = {}
    if len(audits) > 1:
        shared["yOffset"] = alt.YOffset("audit:N", sort=audits)
        legend = alt.Legend(orient="bottom")
        points["shape"] = alt.Shape("audit:N", sort=audits, scale=alt.Scale(domain=audits), legend=legend)
    numbers = ("from", "to", ("change", ".3f"), "interval", "p, adjusted")
    tooltip = tooltips("metric", "audit", *numbers, "verdict")
    nothing = chart_of([{"at": 1 if is_ratio else 0}]).mark_rule(style="zero").encode(x=alt.X("at:Q", scale=scale))
    lines = chart_of(rows).mark_rule(strokeWidth=2)
    lines = lines.encode(x=alt.X("low:Q", title=title, scale=scale), x2=alt.X2("high:Q"), **shared)
    hollow = [row for row in rows if row["verdict"] != "more than noise"]
    full = [row for row in rows if row["verdict"] == "more than noise"]
    # A layer without rows has no extent.
    marks = [chart_of(hollow).mark_point(filled=False, strokeWidth=2, size=70)] if hollow else []
    marks += [chart_of(full).mark_point(filled=True, size=110)] if full else []
    layers = [mark.encode(x=x, tooltip=tooltip, **shared, **points) for mark in marks]
    description = f"{title}, with intervals, of {len(metrics)} metrics; the vertical line means no change."
    height = STEP * len(metrics) * max(1.0, 0.72 * len(audits))
    return finished(alt.layer(nothing, lines, *layers), description, height)


def share_chart(shares: Sequence[Row], audits: Sequence[str], features: Sequence[str]) -> alt.Chart:
    """Share of the CEC score by feature, one point per audit, connected by lines."""
    names = [_label(name) for name in features]
    rows = [{**row, "feature": _label(row["feature"])} for row in shares]
    x = quantity(alt.X, "share", "Share of the CEC score", percent=True, zero=True)
    y = lines_of(names, "feature")
    base = chart_of(rows)
    between = base.mark_line(style="guide", strokeDash=[1, 0]).encode(x=x, y=y, detail=alt.Detail("feature:N"))
    points = base.mark_point(size=90).encode(
        x=x,
        y=y,
        color=group_color(audits, "audit"),
        shape=group_shape(audits, "audit"),
        tooltip=tooltips("feature", "audit", ("share", ".1%")),
    )
    description = f"Share of the CEC score of {len(names)} features in {len(audits)} audits."
    return finished(alt.layer(between, points), description, STEP * len(names))


def trend_chart(trend: Record, is_share: bool) -> alt.Chart:
    """A metric over the audits with intervals, the expectation from the past, and the alarm limits."""
    names = [point["audit"] for point in trend["points"]]
    left = trend["departure"]["audit"] if trend["departure"] is not None else None
    rows = [
        {
            "audit": p["audit"],
            "value": _plain(p["value"]),
            "low": _plain(p["ci_low"]),
            "high": _plain(p["ci_high"]),
            "expected": _plain(p["expected"]),
            "limit_low": _plain(p["limit_low"]) if trend["is_monitored"] else None,
            "limit_high": _plain(p["limit_high"]) if trend["is_monitored"] else None,
            "shown": decimal(p["value"]),
            "interval": interval(p["ci_low"], p["ci_high"]),
            "limits": interval(p["limit_low"], p["limit_high"]),
            "left": p["audit"] == left,
        }
        for p in trend["points"]
    ]
    axis = alt.Axis(format=".0%") if is_share else alt.Axis()
    scale = alt.Scale(zero=False, nice=True)
    x = _audits(names)

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title=None, axis=axis, scale=scale)

    base = chart_of(rows)
    known = base.transform_filter("isValid(datum.value)")
    past = base.transform_filter("isValid(datum.limit_low)")
    tooltip = ["audit:N", alt.Tooltip("shown:N", title="value"), "interval:N"]
    tooltip += [alt.Tooltip("limits:N", title="limits")] if trend["is_monitored"] else []
    layers = [
        past.mark_area(style="band", line=False).encode(x=x, y=y("limit_low"), y2=alt.Y2("limit_high:Q")),
        past.mark_line(style="guide").encode(x=x, y=y("expected")),
        known.mark_line(strokeWidth=1.5, color=VARIABLES.accent, opacity=0.55).encode(x=x, y=y("value")),
        known.mark_rule(style="interval").encode(x=x, y=y("low"), y2=alt.Y2("high:Q")),
        known.mark_point(size=80).encode(x=x, y=y("value"), tooltip=tooltip),
    ]
    if left is not None:
        ring = chart_of([row for row in rows if row["left"]])
        ring = ring.mark_point(size=230, filled=False, strokeWidth=3, color=VARIABLES.regimes[1])
        layers.append(ring.encode(x=x, y=y("value"), tooltip=tooltip))
    description = f"{trend['words']} over {len(names)} audits, with intervals and alarm limits."
    return finished(alt.layer(*layers), description, 220)


def cusum_chart(trends: Sequence[Record], limit: float) -> alt.Chart:
    """The sums of deviations upward and, mirrored, downward, with the alarm limit."""
    nearest = sorted(trends, key=_peak, reverse=True)[:_MOST_LINES]
    shown = [trend for trend in trends if trend in nearest]
    names = [point["audit"] for point in shown[0]["points"]]
    words = [_label(trend["words"]) for trend in shown]
    rows = [
        {
            "audit": p["audit"],
            "metric": _label(t["words"]),
            "side": f"{t['key']} {sign}",
            "sum": sign * size if is_number(size) else None,
        }
        for t in shown
        for p in t["points"]
        for sign, size in ((1, p["cusum_high"]), (-1, p["cusum_low"]))
    ]
    # After an alarm, a sum grows without bound and would hide the others.
    end = limit * min(max(1.25, 1.05 * max(map(_peak, shown)) / limit), 2.5)
    x = _audits(names)
    y = quantity(alt.Y, "sum", "Sum of deviations, standard errors", domain=[-end, end], nice=False)
    color = group_color(words, "metric")
    base = chart_of(rows).transform_filter("isValid(datum.sum)")
    lines = base.mark_line(strokeWidth=2, clip=True).encode(x=x, y=y, color=color, detail=alt.Detail("side:N"))
    points = base.mark_point(size=45, clip=True).encode(
        x=x,
        y=y,
        color=color,
        shape=group_shape(words, "metric"),
        tooltip=tooltips("metric", "audit", ("sum", ".2f")),
    )
    limits = guide_y(limit, "alarm: upward drift", "floor") + guide_y(-limit, "alarm: downward drift", "floor")
    zero = chart_of([{"at": 0}]).mark_rule(style="zero").encode(y=alt.Y("at:Q"))
    description = f"CUSUM of {len(shown)} metrics; an alarm is raised beyond {limit:.1f} standard errors."
    return finished(alt.layer(zero, *limits, lines, points), description, 280)


def rate_chart(trends: Sequence[Record], title: str, format_: str = ".0%") -> alt.Chart:
    """Several metrics of one kind over the audits, with intervals."""
    names = [point["audit"] for point in trends[0]["points"]]
    words = [_label(trend["words"]) for trend in trends]
    rows = [
        {
            "audit": p["audit"],
            "metric": _label(t["words"]),
            "value": _plain(p["value"]),
            "low": _plain(p["ci_low"]),
            "high": _plain(p["ci_high"]),
            "interval": interval(p["ci_low"], p["ci_high"]),
        }
        for t in trends
        for p in t["points"]
    ]
    x = _audits(names)
    scale = alt.Scale(zero=False, nice=True)
    axis = alt.Axis(format=format_)
    color = alt.Color("metric:N", sort=None, scale=alt.Scale(domain=words), legend=alt.Legend(symbolOpacity=1))
    base = chart_of(rows).transform_filter("isValid(datum.value)")
    tooltip = tooltips("metric", "audit", ("value", ".3f"), "interval")
    value = alt.Y("value:Q", title=title, axis=axis, scale=scale)
    low = alt.Y("low:Q", title=title, axis=axis, scale=scale)
    band = base.mark_area(opacity=0.12).encode(x=x, y=low, y2=alt.Y2("high:Q"), color=color)
    lines = base.mark_line().encode(x=x, y=value, color=color)
    points = base.mark_point(size=60).encode(
        x=x, y=value, color=color, shape=group_shape(words, "metric"), tooltip=tooltip
    )
    return finished(alt.layer(band, lines, points), f"{title} over {len(names)} audits, with intervals.", 240)


def _peak(trend: Record) -> float:
    sizes = [max(p["cusum_high"], p["cusum_low"]) for p in trend["points"] if is_number(p["cusum_high"])]
    return max(sizes, default=0.0)


def _audits(names: Sequence[str]) -> alt.X:
    """The audits from left to right."""
    is_crowded = sum(map(len, names)) > 48 or len(names) > 10
    axis = alt.Axis(labelAngle=-40 if is_crowded else 0, labelLimit=110, labelOverlap="greedy", grid=False)
    return alt.X("audit:O", title=None, sort=list(names), axis=axis)


def _plain(value: float | None) -> float | None:
    return value if is_number(value) else None


def _label(words: str) -> str:
    return shortened(words, 60)
