"""The audit as an Excel workbook: one sheet per table, numbers as numbers."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from importlib import import_module
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np

from evenhand.exceptions import InvalidInputError, MissingExtraError
from evenhand.report.sheets import Column, Highlight, Sheet, audit_sheets
from evenhand.system.files import write_atomically

if TYPE_CHECKING:
    from evenhand.auditing.result import AuditResult

__all__ = ["MAX_PAIRS", "write_sheets", "write_workbook"]

MAX_PAIRS = 1_048_575
"""Rows that an Excel sheet has below its heading."""

_LONGEST_TEXT = 32_767
_LARGEST_EXACT = 10**15  # Excel keeps fifteen digits
_FIRST_ROWS = 200  # looked at to choose the widths of columns
_STARTS_A_FORMULA = ("=", "+", "-", "@", "\t", "\r")

# Light orange, dark orange and blue of Okabe and Ito's palette, tinted: apart for every kind of color vision, and
# dark text stays readable on each. The flag says the same in words.
_TONES = {
    "notice": {"bg_color": "#FBE5B8", "font_color": "#4A3200"},
    "strong": {"bg_color": "#F3C3A5", "font_color": "#4A1800"},
    "evidence": {"bg_color": "#CFE5F5", "font_color": "#003A5C"},
}
_NUMBER_FORMATS = {"whole": "#,##0", "number": "0.0000", "share": "0.0%", "p": '[<0.0001]"< 0.0001";0.0000'}
_CRITERIA = {"equals": "==", "at most": "<=", "below": "<"}


def write_workbook(result: AuditResult, path: str | os.PathLike[str], *, max_pairs: int = MAX_PAIRS) -> None:
    """Write an audit as an Excel workbook, whole or not at all.

    Every number is a number, a figure that could not be estimated is an empty cell with the reason in the note of its
    row, and no text can become a formula or a link. Memory does not grow with the number of pairs.

    Parameters
    ----------
    result
        The audit.
    path
        The file to write.
    max_pairs
        Most rows of the sheet of pairs. Beyond, those with the strongest evidence are written, and a sentence says how
        many were left out.

    Raises
    ------
    InvalidInputError
        If `max_pairs` is not between 1 and the number of rows Excel has.
    MissingExtraError
        If xlsxwriter is not installed.

    Examples
    --------
    >>> import evenhand as eh, tempfile, pathlib
    >>> planted = eh.make_planted_bias(60, random_state=0)
    >>> people = planted.dataset
    >>> result = eh.audit(planted.model, people.X, people.y, sensitive_features=people.group,
    ...                   financial_features=people.financial_features, evidence=False)
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "audit.xlsx"
    >>> write_workbook(result, file)
    >>> file.stat().st_size > 10_000
    True
    """
    if not 1 <= max_pairs <= MAX_PAIRS:
        raise InvalidInputError(
            f"`max_pairs` must be between 1 and {MAX_PAIRS:,}, the rows of a sheet, got {max_pairs}."
        )
    write_sheets(audit_sheets(result, max_pairs), path, title="evenhand audit", subject=result.provenance.model)


def write_sheets(sheets: Iterable[Sheet], path: str | os.PathLike[str], *, title: str, subject: str = "") -> None:
    """Write sheets as an Excel workbook, whole or not at all; no text can become a formula or a link.

    Parameters
    ----------
    sheets
        In the order of the workbook. Rows may be made as they are asked for.
    path
        The file to write.
    title, subject
        What the file says of itself.

    Raises
    ------
    MissingExtraError
        If xlsxwriter is not installed.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "limits.xlsx"
    >>> limits = Sheet("Limits", "What to know.", (Column("limit", "long text"),), [("=There are some.",)])
    >>> write_sheets([limits], file, title="example")
    >>> file.exists()
    True
    """
    xlsxwriter = _xlsxwriter()
    options = {
        "constant_memory": True,
        "strings_to_formulas": False,
        "strings_to_urls": False,
        "strings_to_numbers": False,
        "nan_inf_to_errors": False,
    }
    try:
        with write_atomically(path) as temporary, xlsxwriter.Workbook(str(temporary), options) as workbook:
            workbook.set_properties({"title": title, "subject": subject})
            formats = _formats(workbook)
            for sheet in sheets:
                _write_sheet(workbook.add_worksheet(sheet.name), sheet, formats)
    except xlsxwriter.exceptions.FileCreateError as error:
        raise OSError(f"{os.fspath(path)!r} cannot be written: {error}.") from error


def _xlsxwriter() -> Any:  # noqa: ANN401 - ships no types
    try:
        return import_module("xlsxwriter")
    except ImportError as error:
        raise MissingExtraError(
            "The workbook needs xlsxwriter, which is not installed: pip install 'evenhand[excel]'."
        ) from error


def _formats(workbook: Any) -> dict[str, Any]:  # noqa: ANN401
    found = {kind: workbook.add_format({"num_format": code}) for kind, code in _NUMBER_FORMATS.items()}
    found["heading"] = workbook.add_format(
        {"bold": True, "bg_color": "#E8ECEF", "bottom": 1, "text_wrap": True, "valign": "top"}
    )
    found["long text"] = workbook.add_format({"text_wrap": True, "valign": "top"})
    # Excel then keeps the cell as text when somebody edits it.
    found["quoted"] = workbook.add_format({"quote_prefix": True})
    return found | {tone: workbook.add_format(colors) for tone, colors in _TONES.items()}


def _write_sheet(worksheet: Any, sheet: Sheet, formats: dict[str, Any]) -> None:  # noqa: ANN401
    rows = iter(sheet.rows)
    first = list(islice(rows, _FIRST_ROWS))
    for place, column in enumerate(sheet.columns):
        worksheet.set_column(place, place, _width(column, [row[place] for row in first]))
        worksheet.write_string(0, place, column.heading, formats["heading"])
    kinds = [column.kind for column in sheet.columns]
    n_rows = 0
    for part in (first, rows):
        for row in part:
            n_rows += 1
            for place, value in enumerate(row):
                _write_cell(worksheet, n_rows, place, value, kinds[place], formats)
    worksheet.freeze_panes(1, 0)
    worksheet.autofilter(0, 0, max(n_rows, 1), len(sheet.columns) - 1)
    headings = [column.heading for column in sheet.columns]
    for highlight in sheet.highlights:
        place = headings.index(highlight.heading)
        worksheet.conditional_format(1, place, max(n_rows, 1), place, _condition(highlight, place, formats))


def _write_cell(worksheet: Any, row: int, place: int, value: Any, kind: str, formats: dict[str, Any]) -> None:  # noqa: ANN401
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        if math.isfinite(value):
            worksheet.write_number(row, place, value, formats[kind] if kind in _NUMBER_FORMATS else None)
    elif isinstance(value, bool):
        worksheet.write_boolean(row, place, value)
    elif isinstance(value, int) and abs(value) < _LARGEST_EXACT:
        is_share = kind == "share"
        worksheet.write_number(row, place, value, formats["share" if is_share else "whole"])
    elif not _is_nothing(value):
        text = str(value)
        text = text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 1] + "…"
        style = "quoted" if text.startswith(_STARTS_A_FORMULA) else "long text" if kind == "long text" else None
        worksheet.write_string(row, place, text, formats[style] if style else None)


def _is_nothing(value: object) -> bool:
    """Whether a cell stays empty: None, pandas' missing values, and text of no length."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, str) and not value)


def _condition(highlight: Highlight, place: int, formats: dict[str, Any]) -> dict[str, Any]:
    tone = formats[highlight.tone]
    if highlight.rule == "filled":
        return {"type": "no_blanks", "format": tone}
    # An empty cell would count as 0 in a comparison of numbers.
    cell = f"${_letters(place)}2"
    value = f'"{highlight.value}"' if isinstance(highlight.value, str) else f"{highlight.value:g}"
    criteria = f'=AND({cell}<>"",{cell}{_CRITERIA[highlight.rule].replace("==", "=")}{value})'
    return {"type": "formula", "criteria": criteria, "format": tone}


def _letters(place: int) -> str:
    name = ""
    place += 1
    while place:
        place, rest = divmod(place - 1, 26)
        name = chr(65 + rest) + name
    return name


def _width(column: Column, values: Sequence[object]) -> float:
    """Width in characters, from the heading and the first rows; a long heading is wrapped."""
    if column.kind == "long text":
        return 70
    longest_word = max(len(word) for word in column.heading.split()) + 3  # room for the filter's button
    shown = [12 if isinstance(v, float) else len(str(v)) for v in values if not _is_nothing(v)]
    return float(min(max([longest_word, len(column.heading) * 0.55, 9, *(n + 2 for n in shown)]), 44))
