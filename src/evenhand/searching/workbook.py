"""The search as an Excel workbook: candidates with their reasons, cost and gain, every fold, settings and limits."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from evenhand.report.workbook import sheet_of, write_sheets
from evenhand.searching.tables import candidate_table, fold_table, gain_table, limit_table, setting_table

__all__ = ["write_workbook"]


def write_workbook(data: Mapping[str, Any], path: Path) -> None:
    """Write the workbook of what `SearchResult.to_dict` returns; no text can become a formula or a link."""
    gains = data["cost_and_gain"]
    tables = [
        candidate_table(data),
        *([gain_table(gains)] if gains else []),
        fold_table(data),
        setting_table(data),
        limit_table(data),
    ]
    write_sheets(map(sheet_of, tables), path, title="evenhand search")
