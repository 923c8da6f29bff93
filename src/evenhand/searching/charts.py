"""Charts of a search: candidates by utility and procedure, and what the choice gains, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import altair as alt

from evenhand.report.drawing import WIDTH, chart_of
from evenhand.report.theme import VARIABLES

__all__ = ["frontier_chart", "gain_chart", "stopping_chart"]

Row = dict[str, Any]

# Status, color, shape and size; later ones are drawn on top.
_STATUSES = (
    ("does not meet the constraints", VARIABLES.muted, "circle", 50),
    ("failed", VARIABLES.muted, "cross", 50),
    ("meets the constraints", VARIABLES.regimes[2], "circle", 70),
    ("unconstrained", VARIABLES.floor, "square", 90),
    ("your model", VARIABLES.floor, "square", 90),
    ("chosen", VARIABLES.regimes[1], "diamond", 260),
)
_READINGS = {
    "gain": VARIABLES.regimes[0],
    "cost": VARIABLES.regimes[1],
    "within noise": VARIABLES.muted,
}
_HEIGHT, _STEP = 320, 28


def frontier_chart(rows: Sequence[Row], words: tuple[str, str]) -> alt.LayerChart:
    """Utility against what is minimized, a point for each candidate, with the frontier and its intervals.

    Parameters
    ----------
    rows
        With ``utility``, ``metric``, ``status``, ``is_on_front``, and ``candidate``, ``parameters`` and ``front`` to
        show. Those with ``has_interval`` also have ``utility_low``, ``utility_high``, ``metric_low`` and
        ``metric_high``; those with a ``place`` are on the frontier, in that order.
    words
        Of the utility and of the metric.
    """
    of_utility, of_metric = (words[:1].upper() + words[1:] for words in words)
    order = [name for name, *_ in _STATUSES]
    size = {name: size for name, _, _, size in _STATUSES}
    looks = [look for look in _STATUSES if any(row["status"] == look[0] for row in rows)]
    present = [name for name, *_ in looks]
    colors = alt.Scale(domain=present, range=[color for _, color, _, _ in looks])
    shapes = alt.Scale(domain=present, range=[shape for _, _, shape, _ in looks])
    x = alt.X("utility:Q", title=of_utility, scale=alt.Scale(zero=False))
    y = alt.Y("metric:Q", title=of_metric, scale=alt.Scale(zero=False))
    color = alt.Color("status:N", scale=colors, legend=alt.Legend())
    shared: dict[str, Any] = {
        "x": x,
        "y": y,
        "color": color,
        "shape": alt.Shape("status:N", scale=shapes, legend=alt.Legend()),
        "size": alt.Size("size:Q", scale=None, legend=None),
        "tooltip": [
            "candidate:N",
            "parameters:N",
            alt.Tooltip("utility:Q", title=words[0], format=".3f"),
            alt.Tooltip("metric:Q", title=words[1], format=".3f"),
            "status:N",
            "front:N",
        ],
    }
    drawn = [row | {"size": size[row["status"]]} for row in sorted(rows, key=lambda row: order.index(row["status"]))]
    layers = [
        chart_of(part).mark_point(filled=is_full, strokeWidth=1.5).encode(**shared)
        for is_full in (False, True)
        if (part := [row for row in drawn if row["is_on_front"] is is_full])  # a layer without rows has no extent
    ]
    description = f"{of_utility} and {words[1]} of {len(rows)} candidates, with intervals of those on the frontier."
    return _finished(alt.layer(*_frontier_layers(rows, (of_utility, of_metric), color), *layers), description, _HEIGHT)


def _frontier_layers(rows: Sequence[Row], titles: tuple[str, str], color: alt.Color) -> list[alt.Chart]:
    """A line along the frontier, and intervals both ways."""
    x, y = alt.X("utility:Q", title=titles[0]), alt.Y("metric:Q", title=titles[1])
    known = [row for row in rows if row.get("has_interval")]
    on_line = sorted((row for row in rows if "place" in row), key=lambda row: row["place"])
    layers = []
    if len(on_line) > 1:
        line = chart_of(on_line).mark_line(strokeWidth=1.5, strokeDash=[4, 3], color=VARIABLES.muted)
        layers.append(line.encode(x=x, y=y, order=alt.Order("place:Q")))
    if known:
        bars = chart_of(known).mark_rule(strokeWidth=1)
        layers += [
            bars.encode(x=alt.X("utility_low:Q", title=titles[0]), x2=alt.X2("utility_high:Q"), y=y, color=color),
            bars.encode(y=alt.Y("metric_low:Q", title=titles[1]), y2=alt.Y2("metric_high:Q"), x=x, color=color),
        ]
    return layers


def gain_chart(rows: Sequence[Row], axis: str) -> alt.LayerChart:
    """Gains with intervals, a row for each metric; right of the line the chosen candidate is better.

    Parameters
    ----------
    rows
        With ``metric``, ``gain``, ``low``, ``high``, ``reading``, and ``difference`` and ``interval`` to show.
    axis
        What the metrics have in common.
    """
    present = [reading for reading in _READINGS if any(row["reading"] == reading for row in rows)]
    color = alt.Color(
        "reading:N",
        scale=alt.Scale(domain=present, range=[_READINGS[reading] for reading in present]),
        legend=alt.Legend(),
    )
    y = alt.Y("metric:N", title=None, sort=[row["metric"] for row in rows])
    title = "Better by"
    base = chart_of(rows)
    zero = chart_of([{"at": 0}]).mark_rule(style="zero").encode(x=alt.X("at:Q", title=title))
    line = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=title), x2=alt.X2("high:Q"), y=y, color=color)
    point = base.mark_point(size=90, filled=True).encode(
        x=alt.X("gain:Q", title=title),
        y=y,
        color=color,
        tooltip=["metric:N", "difference:N", "interval:N", "reading:N"],
    )
    description = f"How much better the chosen candidate is in {len(rows)} metrics of {axis}, with intervals."
    return _finished(alt.layer(zero, line, point), description, _STEP * len(rows))


def stopping_chart(rows: Sequence[Row], words: str) -> alt.LayerChart:
    """The best value found, and what one further candidate gains at most, against the number of draws.

    Parameters
    ----------
    rows
        With ``n_draws``, ``value``, and ``line``, which says which of the two it is.
    words
        Of the metric.
    """
    names = list(dict.fromkeys(row["line"] for row in rows))
    colors = alt.Scale(domain=names, range=[VARIABLES.regimes[2], VARIABLES.regimes[1]])
    line = (
        chart_of(rows)
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(
            x=alt.X("n_draws:Q", title="Candidates drawn", scale=alt.Scale(type="log", nice=False)),
            y=alt.Y("value:Q", title=words[:1].upper() + words[1:]),
            color=alt.Color("line:N", scale=colors, legend=alt.Legend()),
            strokeDash=alt.StrokeDash("line:N", scale=alt.Scale(domain=names), legend=alt.Legend()),
            tooltip=[
                alt.Tooltip("n_draws:Q", title="candidates drawn"),
                "line:N",
                alt.Tooltip("value:Q", title=words, format=".4f"),
            ],
        )
    )
    description = f"Best {words} found so far, and the most that one further candidate gains, by candidates drawn."
    return _finished(alt.layer(line), description, _HEIGHT)


def _finished(chart: alt.LayerChart | alt.FacetChart, description: str, height: float) -> alt.LayerChart:
    return cast("alt.LayerChart", chart.properties(width=WIDTH, height=height, description=description))
