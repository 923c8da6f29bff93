"""The summary of an audit as text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from evenhand.report.formatting import is_number
from evenhand.report.page import named_parts, summary_records
from evenhand.report.section import Section, Summary
from evenhand.system.terminal import printable


def plain(text: str, style: str = "") -> Text:
    """Remove from a text whatever a terminal, or rich, would interpret."""
    return Text(printable(text), style=style)


def terminal_summary(summary: Summary, sections: Sequence[Section]) -> RenderableType:
    """The summary of an audit for a terminal."""
    people = summary["data"]
    groups = ", ".join(f"{name} {count:,}" for name, count in people["groups"].items())
    metrics = Table("metric", "value", "95% interval", "", box=None, pad_edge=False)
    metrics.columns[1].justify = "right"
    for row in summary_records(summary, sections):
        value = f"{row['value']:.3f}" if is_number(row["value"]) else "n/a"
        interval = f"{row['low']:.3f} to {row['high']:.3f}" if is_number(row["low"]) else ""
        metrics.add_row(plain(row["metric"]), value, interval, plain(row["note"], style="dim"))
    drivers = Table("feature", "share of the CEC score", box=None, pad_edge=False)
    drivers.columns[1].justify = "right"
    for row in summary["features"][:5]:
        drivers.add_row(plain(row["feature"]), f"{row['share']:.1%}")
    parts: list[RenderableType] = [plain(f"{people['model']}, {people['n_people']:,} people ({groups})")]
    parts += [plain(f"{role}: {names}") for role, names in named_parts(summary)]
    parts += [plain(f"Left out {count:,} rows: {reason}.") for reason, count in people["exclusions"].items()]
    parts.append(Text())
    parts += [metrics, Text(), drivers] if summary["features"] else [metrics]
    found = summary["verdict"]
    direction = [plain(found["direction"])] if found.get("direction") else []
    parts = [plain(found["headline"], style="bold"), *direction, Text(), *parts, Text()]
    parts += [plain(f"{name}: {sentence}") for name, sentence in found["sentences"]]
    if summary["warnings"]:
        parts += [Text(), *(plain(f"! {warning}", style="yellow") for warning in summary["warnings"])]
    return Group(*parts)
