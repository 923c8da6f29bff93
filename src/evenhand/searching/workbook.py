"""The search as an Excel workbook: candidates with their reasons, cost and gain, every fold, settings and limits."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from evenhand.report.excel import write_sheets
from evenhand.report.sheets import Column, Highlight, Sheet

if TYPE_CHECKING:
    from evenhand.searching.result import SearchResult

__all__ = ["write_workbook"]

_TEXT = (
    "status",
    "axis",
    "figure",
    "objective",
    "method",
    "library",
    "drop",
    "monotone",
    "hidden",
    "reading",
    "honest_reading",
)
_LONG = ("reason", "limit")


def write_workbook(result: SearchResult, path: Path) -> None:
    """Write the workbook; numbers are numbers, and no text can become a formula or a link."""
    write_sheets(_sheets(result), path, title="evenhand search")


def _sheets(result: SearchResult) -> list[Sheet]:
    data = result.to_dict()
    # Fifty columns of figures would stand between a candidate and why it was passed over.
    first = ["candidate", "status", "is_on_front", "reason"]
    candidates = result.candidates[[*first, *(name for name in result.candidates.columns if name not in first)]]
    sheets = [_of_table("Candidates", "Every candidate tried, and why it was passed over.", candidates)]
    if data["cost_and_gain"]:
        about = "What the chosen candidate costs and gains against the unconstrained one."
        sheets.append(_of_table("Cost and gain", about, result.cost_and_gain))
    sheets.append(_folds(data))
    people = data["people"]
    settings: list[tuple[str, Any]] = [
        ("family", data["family"]),
        *((f"keep {k + 1}", text) for k, text in enumerate(data["keep"])),
        ("minimize", data["minimize"]),
        ("people searched on", people["searched"]),
        ("people held out", people["confirming"]),
        ("financial features", ", ".join(people["financial_features"])),
        *((f"people of group {name}", n) for name, n in people["groups"].items()),
        *((name, "none" if value is None else value) for name, value in data["settings"].items()),
    ]
    columns = (Column("setting", "text"), Column("value", "any"))
    sheets.append(Sheet("Settings", "How the search was made.", columns, settings))
    limits = [(limit,) for limit in data["limits"]]
    sheets.append(Sheet("Limits", "What to know before using it.", (Column("limit", "long text"),), limits))
    return sheets


def _of_table(name: str, about: str, table: pd.DataFrame) -> Sheet:
    columns = tuple(_column(str(heading)) for heading in table.columns)
    rows = list(table.itertuples(index=False, name=None))
    highlights = (Highlight("status", "equals", "chosen", "evidence"),) if "status" in table.columns else ()
    return Sheet(name, about, columns, rows, highlights)


def _column(heading: str) -> Column:
    if heading in _LONG:
        return Column(heading, "long text")
    return Column(heading, "any" if heading in (*_TEXT, "is_on_front", "candidate") else "number")


def _folds(data: dict[str, Any]) -> Sheet:
    columns = (Column("candidate", "any"), Column("figure", "text"), Column("fold", "any"), Column("value"))
    rows = [
        (candidate["candidate"], figure, fold, value)
        for candidate in data["candidates"]
        for figure, values in candidate["folds"].items()
        for fold, value in enumerate(values)
    ]
    return Sheet("Folds", "Every figure in every fold, means over seeds.", columns, rows)
