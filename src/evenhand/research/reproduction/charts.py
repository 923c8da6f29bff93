"""The paper's charts, drawn with Altair; people with any color vision can distinguish the colors."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from evenhand.report.drawing import save, specification, svg_of
from evenhand.research.reproduction.protocol import GRID_WEIGHTS, ProtocolSettings, ResultRow
from evenhand.research.reproduction.tables import (
    DATASET_NAMES,
    METHOD_NAMES,
    METRIC_NAMES,
    Cells,
    by_method,
    by_variant,
    dataset_name,
    method_name,
    spread,
)

HEATMAP_METRICS = ("cec", "regime_b", "regime_a", "f1", "eo", "pfr")

FEW_FLIPS = 0.1
"""Flip rate up to which the paper calls decisions consistent: it puts methods with 90% of people in Regime B there."""

# Okabe and Ito's palette.
_METHOD_COLORS = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#CC79A7", "#D55E00", "#999999")
_SHAPES = ("circle", "square", "triangle-up", "diamond", "triangle-down", "cross", "triangle-right", "triangle-left")
_REGIME_COLORS = {"A": "#009E73", "B": "#D55E00", "C": "#56B4E9", "D": "#CC79A7"}
_REGIME_MEANINGS = {
    "A": "A: same decision, same reasoning",
    "B": "B: same decision, different reasoning",
    "C": "C: different decision, same reasoning",
    "D": "D: both differ",
}


def chart_pfr_cec(rows: Iterable[ResultRow], settings: ProtocolSettings) -> Any:
    """Each method by how often decisions differ and how far reasoning differs, one panel per dataset.

    Points are means over folds, bars one standard deviation each way. The lines are `consistency_threshold` and a flip
    rate of `FEW_FLIPS`; the letters name the quadrants as the paper does.
    """
    values: list[dict[str, Any]] = []
    for (dataset, method), found in by_method(rows, settings).items():
        point: dict[str, Any] = {"dataset": dataset_name(dataset), "method": method_name(method)}
        for name in ("pfr", "cec"):
            mean, std = _mean_std(found, name)
            point |= {name: mean, f"{name}_low": max(0.0, mean - std), f"{name}_high": mean + std}
        values.append(point)
    order = list(dict.fromkeys(value["method"] for value in values))
    right, top = (max(value[f"{name}_high"] for value in values) for name in ("pfr", "cec"))
    corners = [
        {"dataset": dataset, "quadrant": letter, "pfr": at[0], "cec": at[1]}
        for dataset in dict.fromkeys(value["dataset"] for value in values)
        for letter, at in {
            "A": (0.01, 0.02),
            "B": (0.01, 0.98 * top),
            "C": (right, 0.02),
            "D": (right, 0.98 * top),
        }.items()
    ]
    colors, shapes = ([marks[place] for place in _places(order)] for marks in (_METHOD_COLORS, _SHAPES))
    color = alt.Color("method:N", title="Method", sort=order, scale=alt.Scale(domain=order, range=colors))
    shape = alt.Shape("method:N", title="Method", sort=order, scale=alt.Scale(domain=order, range=shapes))
    everything = alt.Chart(alt.InlineData(values=[*values, *corners]))
    base = everything.transform_filter("isValid(datum.method)")
    x = alt.X("pfr:Q", title="Prediction flip rate", scale=alt.Scale(zero=True), axis=alt.Axis(format="%"))
    y = alt.Y("cec:Q", title="Mean CEC score", scale=alt.Scale(zero=True))
    line: dict[str, Any] = {"strokeDash": [4, 3], "color": "#666666"}
    layers = [
        base.transform_calculate(threshold=str(settings.consistency_threshold))
        .mark_rule(**line)
        .encode(y="threshold:Q"),
        base.transform_calculate(few=str(FEW_FLIPS)).mark_rule(**line).encode(x="few:Q"),
        everything.transform_filter("isValid(datum.quadrant)")
        .mark_text(fontSize=15, fontWeight="bold", color="#999999")
        .encode(x=x, y=y, text="quadrant:N"),
        base.mark_rule().encode(x=alt.X("pfr_low:Q", title="Prediction flip rate"), x2="pfr_high:Q", y=y, color=color),
        base.mark_rule().encode(x=x, y=alt.Y("cec_low:Q", title="Mean CEC score"), y2="cec_high:Q", color=color),
        base.mark_point(size=70, filled=True, opacity=0.85).encode(x=x, y=y, color=color, shape=shape),
    ]
    return _by_dataset(alt.layer(*layers).properties(width=230, height=200))


def chart_regimes(rows: Iterable[ResultRow], settings: ProtocolSettings) -> Any:
    """Share of pairs in each regime, a bar for each method and a panel for each dataset."""
    return _regime_bars(by_method(rows, settings))


def chart_ablation_regimes(rows: Iterable[ResultRow], settings: ProtocolSettings) -> Any:
    """Share of pairs in each regime, a bar for each part of the objective."""
    return _regime_bars(by_variant(rows, settings))


def chart_lambda_heatmaps(rows: Iterable[ResultRow]) -> Any:
    """Six metrics over the 6 x 6 lambda settings on German Credit, means over folds."""
    grid: dict[tuple[float | None, float | None], list[ResultRow]] = {}
    for row in rows:
        if row.dataset == "german" and {*row.weights} <= {*GRID_WEIGHTS}:
            grid.setdefault(row.weights, []).append(row)
    levels = [f"{weight:g}" for weight in GRID_WEIGHTS]
    panels = []
    for metric in HEATMAP_METRICS:
        values: list[dict[str, Any]] = []
        for (cec_weight, odds_weight), found in grid.items():
            mean = _mean_std(found, metric)[0]
            values.append({"cec": f"{cec_weight:g}", "odds": f"{odds_weight:g}", "value": mean})
        middle = (min(v["value"] for v in values) + max(v["value"] for v in values)) / 2 if values else 0.0
        base = alt.Chart(alt.InlineData(values=values), title=METRIC_NAMES[metric]).encode(
            x=alt.X("cec:O", title="λ CEC", sort=levels, axis=alt.Axis(labelAngle=0)),
            y=alt.Y("odds:O", title="λ EO", sort=levels[::-1]),
        )
        squares = base.mark_rect().encode(color=alt.Color("value:Q", scale=alt.Scale(scheme="viridis"), legend=None))
        text = base.mark_text(fontSize=9).encode(
            text=alt.Text("value:Q", format=".2f"),
            color=alt.condition(f"datum.value > {middle}", alt.value("black"), alt.value("white")),
        )
        panels.append((squares + text).properties(width=190, height=170))
    return _configured(alt.concat(*panels, columns=3).resolve_scale(color="independent"))


def to_svg(chart: Any) -> str:
    """The chart as SVG text."""
    return svg_of(specification(chart))


def save_chart(chart: Any, folder: Path, name: str) -> list[Path]:
    """Write the chart as SVG, PNG and PDF, without a browser or the network, and return the paths."""
    paths = [folder / f"{name}.{kind}" for kind in ("svg", "png", "pdf")]
    for path in paths:
        save(chart, path, palette=None, ppi=300)
    return paths


def _regime_bars(cells: Cells) -> Any:
    order = list(dict.fromkeys(method_name(method) for _, method in cells))
    values = [
        {
            "dataset": dataset_name(dataset),
            "method": method_name(method),
            "regime": _REGIME_MEANINGS[letter],
            "place": place,
            "share": _mean_std(found, f"regime_{letter.lower()}")[0],
        }
        for (dataset, method), found in cells.items()
        for place, letter in enumerate(_REGIME_COLORS)
    ]
    chart = (
        alt.Chart(alt.InlineData(values=values))
        .mark_bar()
        .encode(
            x=alt.X("share:Q", title="Share of pairs", axis=alt.Axis(format="%"), scale=alt.Scale(domain=[0, 1])),
            y=alt.Y("method:N", title=None, sort=order),
            color=alt.Color(
                "regime:N",
                title="Regime",
                scale=alt.Scale(domain=list(_REGIME_MEANINGS.values()), range=list(_REGIME_COLORS.values())),
                legend=alt.Legend(orient="bottom", columns=2, labelLimit=300),
            ),
            order=alt.Order("place:Q"),
        )
        .properties(width=260, height=alt.Step(20))
    )
    return _by_dataset(chart)


def _by_dataset(chart: Any) -> Any:
    header = alt.Header(title=None, labelFontSize=13, labelFontWeight="bold")
    return _configured(chart.facet(alt.Facet("dataset:N", header=header, sort=list(DATASET_NAMES.values())), columns=2))


def _configured(chart: Any) -> Any:
    return (
        chart.configure(font="Helvetica, Arial, sans-serif", background="white")
        .configure_axis(labelFontSize=11, titleFontSize=12, titleFontWeight="normal", gridColor="#e6e6e6")
        .configure_legend(labelFontSize=11, titleFontSize=12, symbolSize=90)
        .configure_title(fontSize=13)
        .configure_view(stroke="#bbbbbb")
    )


def _mean_std(rows: Sequence[ResultRow], metric: str) -> tuple[float, float]:
    values = np.asarray([row.metrics[metric] for row in rows], dtype=np.float64)
    return float(values.mean()), float(np.nan_to_num(spread(values)))


def _places(names: Sequence[str]) -> list[int]:
    """A method's position among the marks: the paper's seven always have the same, others share the last."""
    known = list(METHOD_NAMES.values())[: len(_SHAPES) - 1]
    return [known.index(name) if name in known else len(known) for name in names]
