"""Tables as an Excel workbook: one sheet each, with numbers as numbers."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import Any

import numpy as np
import pandas as pd

from evenhand.exceptions import InvalidInputError
from evenhand.report.formatting import shortened
from evenhand.report.page import (
    about_audit,
    audited_table,
    finding_table,
    glossary,
    scope_table,
    summary_table,
    title_of,
    verdict_table,
)
from evenhand.report.section import Section, Summary, sheets_of
from evenhand.report.tables import EVIDENCE, REGIME_COLORS, Highlight, Kind, Table, significance_flag, values_of
from evenhand.system.files import time_of_writing, write_atomically

MAX_PAIRS = 1_048_575
"""Number of rows of an Excel sheet below its heading."""

_LONGEST_TEXT = 32_767
_LARGEST_EXACT = 10**15  # Excel keeps fifteen digits
_FIRST_ROWS = 200  # rows inspected to choose the widths of columns
_LONG_TEXT, _LINE = 70, 15  # width of a column of sentences in characters, and height of a line in points
STARTS_A_FORMULA = ("=", "+", "-", "@", "\t", "\r")

# Light orange, dark orange and blue of Okabe and Ito's palette, tinted: distinct for every kind of color vision, and
# dark text stays readable on each. The flag says the same in words.
_TONES = {
    "notice": {"bg_color": "#FBE5B8", "font_color": "#4A3200"},
    "strong": {"bg_color": "#F3C3A5", "font_color": "#4A1800"},
    "evidence": {"bg_color": "#CFE5F5", "font_color": "#003A5C"},
}
_NUMBER_FORMATS = {"whole": "#,##0", "number": "0.0000", "share": "0.0%", "p": '[<0.0001]"< 0.0001";0.0000'}
_CRITERIA = {"equals": "=", "at most": "<=", "below": "<"}


@dataclass(frozen=True, eq=False)
class Sheet:
    """A sheet: the output of `sheet_of` for a table, or rows that are too many to be records.

    Attributes
    ----------
    about
        One sentence for the glossary.
    columns
        Heading and kind of each.
    rows
        Values in the order of `columns`; NaN and None are empty cells.
    highlights
        Which cells are colored, each with the heading of its column.
    """

    name: str
    about: str
    columns: Sequence[tuple[str, Kind]]
    rows: Iterable[Sequence[Any]]
    highlights: Sequence[tuple[str, Highlight]] = ()


def sheet_of(table: Table) -> Sheet:
    """Turn a table into a sheet: an estimate takes three columns, its value and the ends of its interval.

    Examples
    --------
    >>> from evenhand.report.tables import Column
    >>> table = Table("Gaps", "All.", (Column("gap", "text"), Column("size", is_estimate=True)),
    ...               ({"gap": "a", "size": {"value": 0.1, "low": 0.0, "high": 0.2}},))
    >>> sheet_of(table).columns, list(sheet_of(table).rows)
    ([('gap', 'text'), ('size', 'number'), ('lower', 'number'), ('upper', 'number')], [['a', 0.1, 0.0, 0.2]])
    """
    shown = [column for column in table.columns if column.where != "page"]
    has_one = sum(column.is_estimate for column in shown) == 1
    columns: list[tuple[str, Kind]] = []
    for column in shown:
        columns.append((column.heading, column.kind))
        if column.is_estimate:
            before = "" if has_one else f"{column.heading}, "
            columns += [(f"{before}lower", column.kind), (f"{before}upper", column.kind)]
    rows = [[value for column in shown for value in values_of(column, record)] for record in table.records]
    if not rows and table.if_empty:
        rows = [[table.if_empty, *(None for _ in columns[1:])]]
    highlights = [(column.heading, highlight) for column in shown for highlight in column.highlights]
    return Sheet(table.name, table.caption, columns, rows, highlights)


def write_workbook(
    summary: Summary,
    sections: Sequence[Section],
    path: str | os.PathLike[str],
    *,
    pairs: pd.DataFrame | None = None,
    n_left_out: int = 0,
    review: Table | None = None,
    cases: pd.DataFrame | None = None,
    reasons: pd.DataFrame | None = None,
) -> None:
    """Write an audit as an Excel workbook, completely or not at all.

    Every number is a number, a metric that could not be estimated is an empty cell with the reason in the note of its
    row, and no text can become a formula or a link. Memory does not grow with the number of pairs.

    Parameters
    ----------
    summary
        Output of `AuditResult.to_dict`, from which all sheets except pairs and cases are made.
    sections
        The sections of the audit, in order.
    path
        The file to write.
    pairs
        The sheet of pairs: all of them, or those with the strongest evidence if a sheet cannot hold all. None if the
        people are not known; the workbook says so.
    n_left_out
        How many pairs are not in `pairs`; the workbook says so.
    review
        The applicants to look at first; without records, there is no sheet of them.
    cases
        Output of `AuditResult.cases`; without it, there is no sheet of cases.
    reasons
        Output of `AuditResult.reasons`; without it, there is no sheet of reasons by person. If there are more people
        than a sheet has rows, the first are shown, and the workbook says so.

    Raises
    ------
    InvalidInputError
        If there are more pairs than a sheet has rows.
    """
    if pairs is not None and len(pairs) > MAX_PAIRS:
        raise InvalidInputError(
            f"`pairs` must have at most {MAX_PAIRS:,} rows, the limit of a sheet, got {len(pairs):,}."
        )
    left_out = _WITHOUT_PEOPLE if pairs is None else _left_out(len(pairs), n_left_out) if n_left_out else ""
    tables = [
        verdict_table(summary, left_out),
        finding_table(summary),
        *([scope_table(summary)] if "scope" in summary else []),
        summary_table(summary, sections),
        audited_table(summary),
        *sheets_of(summary, sections),
    ]
    sheets = [
        *map(sheet_of, tables),
        *([] if review is None or not review.records else [sheet_of(review)]),
        *([] if reasons is None else [_reasons(reasons)]),
        *([] if cases is None else [_cases(cases)]),
        *([] if pairs is None else [_pairs(pairs, left_out)]),
    ]
    title, subject = title_of(summary), about_audit(summary)[0]
    write_sheets([*sheets, _glossary(sheets, sections)], path, title=title, subject=subject)


_WITHOUT_PEOPLE = (
    "This workbook was made from the numbers of the audit, which hold no people: the sheets Review, Reasons, Cases and "
    "Pairs are in the workbook that the audit wrote itself."
)


_KINDS: dict[str, Kind] = {
    **dict.fromkeys(("person", "match", "label", "decision", "match_decision", "reason", "match_reason"), "whole"),
    **dict.fromkeys(("group", "other_group", "regime", "feature", "person_id", "match_id"), "text"),
    **dict.fromkeys(("value", "match_value", "is_negligible"), "any"),
    "shared_reasons": "share",
    "q_value": "p",
    "sample_weight": "number",
}
_OF_START: dict[str, Kind] = {"share": "share", "reason": "text"}  # of a column for each place, such as share_1
_STRONG = ("q value", EVIDENCE)


def _columns(table: pd.DataFrame, *more: tuple[str, Kind]) -> tuple[tuple[str, Kind], ...]:
    kinds = {str(name): _OF_START.get(str(name).partition("_")[0], "number") for name in table.columns}
    return (*((name.replace("_", " "), _KINDS.get(name, kind)) for name, kind in kinds.items()), *more)


def _cases(cases: pd.DataFrame) -> Sheet:
    flags = [significance_flag(q, "q-value") for q in cases.get("q_value", ())]
    rows = ((*row, flag) for row, flag in zip(cases.itertuples(index=False, name=None), flags, strict=True))
    about = (
        "The people with the strongest evidence next to their matches, feature by feature: cases to inspect, "
        "not findings."
    )
    return Sheet("Cases", about, _columns(cases, ("flag", "text")), rows, (_STRONG,))


def _reasons(reasons: pd.DataFrame) -> Sheet:
    about = "The principal reasons of each person with an unfavorable decision, the strongest first."
    if len(reasons) > MAX_PAIRS:
        about += f" Only the first {MAX_PAIRS:,} of {len(reasons):,} declined people are shown."
    rows = reasons.iloc[:MAX_PAIRS].itertuples(index=False, name=None)
    return Sheet("Reasons", about, _columns(reasons), rows)


def _pairs(pairs: pd.DataFrame, left_out: str) -> Sheet:
    names = [str(name) for name in pairs.columns]
    match, cec, regime, q = (names.index(name) for name in ("match", "cec", "regime", "q_value"))

    def rows() -> Iterator[tuple[Any, ...]]:
        note = left_out  # the first row carries it
        for row in pairs.itertuples(index=False, name=None):
            flags = (f"Regime {row[regime]}" if row[regime] in ("B", "D") else "", significance_flag(row[q], "q-value"))
            why = "" if row[cec] == row[cec] else "no match" if row[match] < 0 else "not scored"
            yield (*row, "; ".join(filter(None, flags)), "; ".join(filter(None, (note, why))))
            note = ""

    about = (
        "One row per person and other group; `person` and `match` are row numbers from 0; labels and decisions are 1 "
        "if they are favorable."
    )
    highlights = (*(("regime", regime) for regime in REGIME_COLORS), _STRONG)
    return Sheet("Pairs", about, _columns(pairs, ("flag", "text"), ("note", "long text")), rows(), highlights)


def _left_out(n_shown: int, n_left_out: int) -> str:
    return (
        f"The {n_shown:,} pairs with the strongest evidence are shown; {n_left_out:,} of {n_shown + n_left_out:,} "
        "were left out, and the Parquet file (result.to_parquet) has all."
    )


def _glossary(sheets: Sequence[Sheet], sections: Sequence[Section]) -> Sheet:
    rows = [("sheet", sheet.name, f"{sheet.about.rstrip('.')}.") for sheet in sheets]
    rows += [("word", word, meaning) for word, meaning in glossary(sections).items()]
    columns: tuple[tuple[str, Kind], ...] = (("kind", "text"), ("name", "text"), ("meaning", "long text"))
    return Sheet("Glossary", "The content of the sheets, and the meaning of the terms.", columns, rows)


# --- the file ---


def write_sheets(sheets: Iterable[Sheet], path: str | os.PathLike[str], *, title: str, subject: str = "") -> None:
    """Write sheets as an Excel workbook, completely or not at all; no text can become a formula or a link.

    Parameters
    ----------
    sheets
        The sheets, in order. Rows may be generated on demand.
    path
        The file to write.
    title, subject
        Properties of the file.

    Raises
    ------
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import pathlib, tempfile
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "limits.xlsx"
    >>> limits = Sheet("Limits", "What to know.", (("limit", "long text"),), [("=There are some.",)])
    >>> write_sheets([limits], file, title="example")
    >>> file.exists()
    True
    """
    import xlsxwriter

    options = {
        "constant_memory": True,
        "strings_to_formulas": False,
        "strings_to_urls": False,
        "strings_to_numbers": False,
        "nan_inf_to_errors": False,
        "default_format_properties": {"valign": "top"},
    }
    try:
        with write_atomically(path) as temporary, xlsxwriter.Workbook(str(temporary), options) as workbook:
            created = time_of_writing().replace(tzinfo=None)
            workbook.set_properties({"title": title, "subject": subject, "created": created})
            formats = _formats(workbook)
            for sheet in sheets:
                _write_sheet(workbook.add_worksheet(sheet.name), sheet, formats)
    except xlsxwriter.exceptions.FileCreateError as error:
        # The library wraps the system's error.
        cause = error.args[0] if error.args and isinstance(error.args[0], OSError) else error
        raise OSError(f"{os.fspath(path)!r} cannot be written: {error}.") from cause


def _formats(workbook: Any) -> dict[str, Any]:
    found = {kind: workbook.add_format({"num_format": code}) for kind, code in _NUMBER_FORMATS.items()}
    found["heading"] = workbook.add_format({"bold": True, "bg_color": "#E8ECEF", "bottom": 1, "text_wrap": True})
    found["long text"] = workbook.add_format({"text_wrap": True})
    # Excel then keeps the cell as text when someone edits it.
    found["quoted"] = workbook.add_format({"quote_prefix": True})
    return found | {tone: workbook.add_format(colors) for tone, colors in _TONES.items()}


def _write_sheet(worksheet: Any, sheet: Sheet, formats: dict[str, Any]) -> None:
    rows = iter(sheet.rows)
    first = list(islice(rows, _FIRST_ROWS))
    headings, kinds = zip(*sheet.columns, strict=True)
    for place, (heading, kind) in enumerate(sheet.columns):
        worksheet.set_column(place, place, _width(heading, kind, [row[place] for row in first]))
        worksheet.write_string(0, place, heading, formats["heading"])
    n_rows = 0
    for n_rows, row in enumerate(chain(first, rows), 1):
        texts = [str(value) for value, kind in zip(row, kinds, strict=True) if kind == "long text"]
        if (n_lines := max((-(-len(text) // _LONG_TEXT) for text in texts), default=1)) > 1:
            worksheet.set_row(n_rows, _LINE * n_lines)  # not every program fits rows to wrapped text
        for place, value in enumerate(row):
            _write_cell(worksheet, n_rows, place, value, kinds[place], formats)
    worksheet.set_landscape()
    worksheet.fit_to_pages(1, 0)  # printed, as wide as a page
    worksheet.repeat_rows(0)
    worksheet.freeze_panes(1, 0)
    worksheet.autofilter(0, 0, max(n_rows, 1), len(sheet.columns) - 1)
    for heading, highlight in sheet.highlights:
        place = headings.index(heading)
        worksheet.conditional_format(1, place, max(n_rows, 1), place, _condition(highlight, place, formats))


def _write_cell(worksheet: Any, row: int, place: int, value: Any, kind: str, formats: dict[str, Any]) -> None:
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        if math.isfinite(value):
            worksheet.write_number(row, place, value, formats[kind] if kind in _NUMBER_FORMATS else None)
    elif isinstance(value, bool):
        worksheet.write_boolean(row, place, value)
    elif isinstance(value, int) and abs(value) < _LARGEST_EXACT:
        worksheet.write_number(row, place, value, formats["share" if kind == "share" else "whole"])
    elif not _is_nothing(value):
        text = shortened(value, _LONGEST_TEXT)
        style = "quoted" if text.startswith(STARTS_A_FORMULA) else "long text" if kind == "long text" else None
        worksheet.write_string(row, place, text, formats[style] if style else None)


def _is_nothing(value: object) -> bool:
    """Whether a cell stays empty: None, pandas' missing values, and empty text."""
    return value is None or type(value).__name__ in ("NAType", "NaTType") or (isinstance(value, str) and not value)


def _condition(highlight: Highlight, place: int, formats: dict[str, Any]) -> dict[str, Any]:
    from xlsxwriter.utility import xl_col_to_name

    tone = formats[highlight.tone]
    if highlight.rule == "filled":
        return {"type": "no_blanks", "format": tone}
    # An empty cell would count as 0 in a comparison of numbers.
    cell = f"${xl_col_to_name(place)}2"
    value = f'"{highlight.value}"' if isinstance(highlight.value, str) else f"{highlight.value:g}"
    criteria = f'=AND({cell}<>"",{cell}{_CRITERIA[highlight.rule]}{value})'
    return {"type": "formula", "criteria": criteria, "format": tone}


def _width(heading: str, kind: str, values: Sequence[object]) -> float:
    """Width in characters, from the heading and the first rows; a long heading is wrapped."""
    if kind == "long text":
        return _LONG_TEXT
    longest_word = max(len(word) for word in heading.split()) + 3  # room for the filter's button
    shown = [12 if isinstance(v, float) else len(str(v)) for v in values if not _is_nothing(v)]
    return float(min(max([longest_word, len(heading) * 0.55, 9, *(n + 2 for n in shown)]), 44))
