"""The summary of an audit as rows, and as text for a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from evenhand.report.audit_tables import summary_table
from evenhand.system.terminal import printable


def plain(text: str, style: str = "") -> Text:
    """Remove from a text whatever a terminal, or rich, would interpret."""
    return Text(printable(text), style=style)


def summary_rows(summary: Mapping[str, Any]) -> list[tuple[str, float, float, float, str]]:
    """Metric, value, both ends of the interval and note of each metric of an audit's summary."""
    return [
        (row["metric"], _number(row["value"]), _number(row.get("low")), _number(row.get("high")), row["note"])
        for row in summary_table(summary).records
    ]


def _number(value: float | None) -> float:
    return math.nan if value is None else value


def terminal_summary(summary: Mapping[str, Any]) -> RenderableType:
    """The summary of an audit for a terminal."""
    people = summary["data"]
    groups = ", ".join(f"{name} {count:,}" for name, count in people["groups"].items())
    metrics = Table("metric", "value", "95% interval", "", box=None, pad_edge=False)
    metrics.columns[1].justify = "right"
    for name, value, low, high, note in summary_rows(summary):
        interval = "" if math.isnan(low) else f"{low:.3f} to {high:.3f}"
        metrics.add_row(plain(name), "n/a" if math.isnan(value) else f"{value:.3f}", interval, plain(note, style="dim"))
    drivers = Table("feature", "share of the CEC score", box=None, pad_edge=False)
    drivers.columns[1].justify = "right"
    for row in summary["features"][:5]:
        drivers.add_row(plain(row["feature"]), f"{row['share']:.1%}")
    parts: list[RenderableType] = [plain(f"{people['model']}, {people['n_people']:,} people ({groups})")]
    parts += [plain(f"Left out {count:,} rows: {reason}.") for reason, count in people["exclusions"].items()]
    parts.append(Text())
    parts += [metrics, Text(), drivers] if summary["features"] else [metrics]
    found = summary["verdict"]
    parts = [plain(found["headline"], style="bold"), Text(), *parts, Text()]
    parts += [plain(f"{name}: {sentence}") for name, sentence in found["sentences"]]
    if summary["warnings"]:
        parts += [Text(), *(plain(f"! {warning}", style="yellow") for warning in summary["warnings"])]
    return Group(*parts)
