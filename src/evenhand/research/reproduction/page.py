"""One self-contained page with every table and chart."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from markupsafe import Markup

from evenhand.report.frame import Finding, Panel, Section, render
from evenhand.report.tables import Column, Record, Table
from evenhand.research.reproduction.tables import PaperTable

__all__ = ["reproduction_page"]


def reproduction_page(
    title: str,
    tables: Sequence[PaperTable],
    charts: Sequence[tuple[str, str]],
    facts: Sequence[tuple[str, str]],
    warnings: Sequence[str] = (),
) -> str:
    """HTML text that needs no other file and no network; every text in it is escaped.

    Parameters
    ----------
    title
        Title of the page.
    tables
        In order.
    charts
        Title and SVG text of each.
    facts
        Name and value: settings, data, versions.
    warnings
        Sentences that a reader must see first.

    Examples
    --------
    >>> "&lt;b&gt;" in reproduction_page("<b>", [], [], [])
    True
    """
    finding = Finding("Our metrics next to the paper's", warnings=warnings)
    panels = [
        Panel(
            f"chart-{k}", name, description=name, svg=Markup(svg), is_wide=True
        )  # drawn by us, escaped by the converter
        for k, (name, svg) in enumerate(charts)
    ]
    sections = [
        Section("about", "About this page", finding=finding),
        *(Section(table.name, table.title, tables=[_shown(table)], notes=table.notes) for table in tables),
        Section("charts", "Charts", panels=panels),
        Section("made", "How these metrics were computed", facts=facts),
    ]
    return render("reproduction", title, sections)


def _shown(table: PaperTable) -> Table:
    columns = tuple(Column(head, "text", _cell(place)) for place, head in enumerate(table.header))
    return Table(table.name, table.title, columns, tuple({"cells": row} for row in table.body))


def _cell(place: int) -> Callable[[Record], str]:
    return lambda record: str(record["cells"][place])
