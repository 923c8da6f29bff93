"""The summary of an audit as text for a terminal."""

from __future__ import annotations

import io
from collections.abc import Sequence

from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from evenhand.report.formatting import capital, is_number
from evenhand.report.page import about_audit, front_of, named_parts, summary_records, title_of
from evenhand.report.section import Section, Summary
from evenhand.system.terminal import printable


def plain(text: str, style: str = "") -> Text:
    """Remove from a text whatever a terminal, or rich, would interpret."""
    return Text(printable(text), style=style)


def as_text(shown: RenderableType) -> str:
    """What a terminal of 120 columns would show, without colors."""
    console = Console(file=io.StringIO(), width=120, record=True)
    console.print(shown)
    return console.export_text().rstrip()


def terminal_summary(summary: Summary, sections: Sequence[Section]) -> RenderableType:
    """The summary of an audit for a terminal."""
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
    front = front_of(summary)
    about = plain(" · ".join(about_audit(summary)))
    parts: list[RenderableType] = [plain(title_of(summary)), about, Text()] if "report" in summary else []
    parts += [plain(front.headline, style="bold"), Text()]
    for card in front.metrics:
        parts.append(plain(f"{card.name} {capital(card.answer)}".rstrip(), style="bold"))
        parts += [plain(f"  {line}") for line in card.texts]
    parts += [Text(), *(plain(f"{name}: {sentence}") for name, sentence in front.sentences)]
    parts += [plain(f"! {warning}", style="yellow") for warning in front.warnings]
    parts += [plain(front.limits), Text(), *([] if "report" in summary else [about])]
    parts += [plain(f"{role}: {names}") for role, names in named_parts(summary)]
    parts += [plain(f"Left out {count:,} rows: {reason}.") for reason, count in summary["data"]["exclusions"].items()]
    parts += [Text(), metrics]
    if summary["features"]:
        parts += [Text(), drivers]
    return Group(*parts)
