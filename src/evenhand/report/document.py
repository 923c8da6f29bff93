"""The memo of an audit as a Word document, from the sections, tables and charts of its page."""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias

from evenhand._version import __version__
from evenhand.exceptions import InvalidInputError
from evenhand.report.drawing import png_of
from evenhand.report.formatting import count, listed, shortened
from evenhand.report.frame import Finding, Panel, Section
from evenhand.report.page import audit_sections
from evenhand.report.scope import lacking
from evenhand.report.tables import INTERVAL, ShownTable, Table, shown
from evenhand.report.theme import LIGHT, theme
from evenhand.report.word import BULLET, SUBTITLE, TEXT, TITLE, Grid, WordDocument, open_word
from evenhand.system.clock import time_of_writing

__all__ = ["write_memo"]

Summary = Mapping[str, Any]

MOST_ROWS = 60
"""Largest number of rows of a table in the memo; the workbook has all."""
_MOST_COLUMNS = 7  # for a table shown as on the page
_MOST_ACROSS = 4  # records side by side if there are too many columns for a page
_PPI = 200
_UNBROKEN = "\N{NO-BREAK SPACE}"

_METHOD, _FINDINGS, _REPRODUCIBILITY = "Method", "Findings", "Reproducibility"
_PART_OF = {"audited": "Data", "matching": _METHOD, "limitations": "Limits", "glossary": "Glossary"}
_DETAIL_OF = {"Settings": _METHOD}
_ONLY_ON_PAGES = ("explorer",)
_QUESTIONS = ("score_gap", "inputs", "weighing", "excess")
_TO_FILL_IN = ("Model owner", "Intended use", "Prepared by", "Reviewed by")

_PURPOSE = (
    "It describes the model on these people and draws no conclusion about any law, rule or policy: that is for those "
    "who sign it. Tables, charts and sentences are those of the report made at the same time; the text may be edited."
)
_PAIRED = "Each person is paired with the nearest person of every other group{label}, by the financial features below."
_LABEL = " who has the same label"
_EXPLAINED = (
    " Both scores are explained from the same starting point, the mean of the people with the person's label and group."
)
_FLOOR = (
    "Pairs are compared with placebo pairs: a person and someone of the same group and label who is as far away as "
    "the match. Intervals are 95% intervals; p-values of the questions are adjusted for their number (Holm)."
)
_NO_FLOOR = "The audit was run without evidence: nothing is compared with placebo pairs, and nothing is tested."
_REPRODUCING = (
    "The same people, model, settings and versions give the same numbers. The hashes below identify what was audited; "
    "evenhand verify compares an evidence pack of the audit with files and reports what differs."
)


def write_memo(
    summary: Summary, path: str | os.PathLike[str], *, template: str | os.PathLike[str] | None = None
) -> None:
    """Write an audit as a Word document, completely or not at all.

    It has the parts of a validation memo: purpose, data, method, findings, limits and reproducibility. A section of
    the page that belongs to no other part becomes a finding. The text of a template comes first, and its styles,
    headers and footers are kept.

    Parameters
    ----------
    summary
        Output of `AuditResult.to_dict`.
    path
        The file to write.
    template
        A Word file, .docx or .dotx, without macros.

    Raises
    ------
    InvalidInputError
        If the template is not a Word file or has macros, or the name does not end in .docx.
    MissingExtraError
        If python-docx is not installed.
    """
    if Path(path).suffix.lower() != ".docx":
        raise InvalidInputError(f"A memo is written as .docx, got {Path(path).name!r}; change the extension.")
    document, created = open_word(template), time_of_writing()
    model = shortened(summary["data"]["model"])
    title = f"Audit of {model}"
    document.paragraph(title, TITLE)
    document.paragraph(f"Memo of {created:%Y-%m-%d}, made with evenhand {__version__}", SUBTITLE)
    _write(document, _with_tables_of_charts(list(_blocks(summary))))
    document.save(path, title=title, subject=f"Memo on {model}", author="evenhand", created=created)


# --- what the memo says, in order ---


@dataclass(frozen=True)
class _Heading:
    text: str
    level: int


@dataclass(frozen=True)
class _Text:
    text: str
    style: str = TEXT
    lead: str = ""


@dataclass(frozen=True, eq=False)
class _Numbered:
    """A table with its caption; `key` is the name by which a chart refers to it."""

    key: tuple[str, str]
    caption: str
    grids: Sequence[Grid]
    note: str = ""


_Block: TypeAlias = _Heading | _Text | _Numbered | Panel


def _blocks(summary: Summary) -> Iterator[_Block]:
    sections = [section for section in audit_sections(summary, "") if section.id not in _ONLY_ON_PAGES]
    yield _Heading("Purpose", 1)
    yield from _purpose(summary)
    for part in ("Data", _METHOD, _FINDINGS, "Limits", _REPRODUCIBILITY, "Glossary"):
        yield _Heading(part, 1)
        yield from (_Text(sentence) for sentence in _opening(part, summary))
        for section in sections:
            for name, rows in section.details:
                if _DETAIL_OF.get(name, _REPRODUCIBILITY) == part:
                    yield _facts(name, rows)
        for section in sections:
            if _PART_OF.get(section.id, _FINDINGS) == part:
                yield from _section(section, is_titled=part in (_METHOD, _FINDINGS))


def _purpose(summary: Summary) -> Iterator[_Block]:
    data = summary["data"]
    groups = listed([f"{name} ({count(n)})" for name, n in data["groups"].items()], most=6)
    yield _Text(
        f"This memo records an audit of {shortened(data['model'])} on {count(data['n_people'])} people, by group: "
        f"{groups}. {_PURPOSE}"
    )
    places = {key: place for place, key in enumerate(_QUESTIONS)}
    asked = sorted(summary["findings"], key=lambda found: places.get(found["key"], len(places)))
    questions = [found["question"] for found in asked]
    if questions:
        yield _Text("The audit asks about comparable people of different groups:")
        yield from (_Text(question, BULLET) for question in questions)
    yield _Text(f"{summary['verdict']['headline']}.", lead="Strongest finding:")
    yield _facts("Who made and who reviewed this memo", [(name, "to be filled in") for name in _TO_FILL_IN])


def _opening(part: str, summary: Summary) -> Sequence[str]:
    if part == _REPRODUCIBILITY:
        return (_REPRODUCING,)
    if part == _METHOD:
        paired = _PAIRED.format(label="" if lacking(summary, "labels") else _LABEL)
        explained = "" if lacking(summary, "excess") else _EXPLAINED
        return (paired + explained, _NO_FLOOR if summary["evidence"] is None else _FLOOR)
    return ()


def _section(section: Section, *, is_titled: bool) -> Iterator[_Block]:
    """A section of the page, in the page's order; its collapsed parts are elsewhere in the memo."""
    if is_titled:
        yield _Heading(section.title, 2)
    yield from (_Text(text) for text in section.paragraphs)
    if section.finding is not None:
        yield from _finding(section.finding)
    if section.facts:
        yield _facts(section.title, section.facts)
    yield from section.panels
    yield from (_numbered(table) for table in section.tables)
    yield from (_Text(note) for note in section.notes)
    yield from (_Text(sentence, BULLET, f"{name}.") for name, sentence in section.points)
    if section.words:
        yield _facts("Glossary", section.words, ("word", "meaning"))
    yield from (_Text(line) for line in section.code.splitlines())


def _finding(found: Finding) -> Iterator[_Block]:
    yield _Text("", lead=f"{found.headline}.")
    yield from (_Text(sentence, lead=f"{name}." if name else "") for name, sentence in found.sentences)
    if found.warnings:
        yield _Text("", lead="Reservations")
        yield from (_Text(warning, BULLET) for warning in found.warnings)


def _facts(caption: str, rows: Sequence[tuple[str, str]], heads: tuple[str, str] = ("item", "value")) -> _Numbered:
    return _Numbered((caption, caption), caption, (Grid(heads, rows, (False, False)),))


def _numbered(table: Table) -> _Numbered:
    found = _without_empty_columns(shown(table))
    note = table.if_empty if not found.rows else ""
    if len(found.rows) > MOST_ROWS:
        note = f"The first {MOST_ROWS} of {count(len(found.rows))} rows; the workbook has all."
        found = replace(found, rows=found.rows[:MOST_ROWS])
    return _Numbered(_key(table), table.caption.rstrip("."), _grids(found) if found.rows else (), note)


def _without_empty_columns(found: ShownTable) -> ShownTable:
    """Whether a table has no content, such as notes when there is nothing to note."""
    kept = [place for place in range(len(found.columns)) if not found.rows or any(row[place] for row in found.rows)]
    columns = tuple(found.columns[place] for place in kept)
    rows = tuple(tuple(row[place] for place in kept) for row in found.rows)
    return ShownTable(columns, rows, tuple(found.is_number[place] for place in kept), found.caption)


def _key(table: Table) -> tuple[str, str]:
    return table.name, table.caption


def _grids(found: ShownTable) -> Sequence[Grid]:
    """A table in the form for printed pages.

    Up to seven columns are unchanged. With more, intervals go below their estimates; with still more, records are
    placed side by side, a few per table, with a row for each column.
    """
    if len(found.columns) <= _MOST_COLUMNS:
        return (Grid(found.columns, found.rows, found.is_number),)
    heads, *rows = (_joined(found.columns, row) for row in (found.columns, *found.rows))
    kept = [place for place, head in enumerate(found.columns) if head != INTERVAL]
    if len(heads) <= _MOST_COLUMNS + 1:
        return (Grid(heads, rows, [found.is_number[place] for place in kept]),)
    n_parts = math.ceil(len(rows) / _MOST_ACROSS)
    return [
        _on_its_side(heads, rows[k * len(rows) // n_parts : (k + 1) * len(rows) // n_parts]) for k in range(n_parts)
    ]


def _on_its_side(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Grid:
    """One column per record, and one row per column; the first column names the records."""
    sideways = [[head, *(row[place] for row in rows)] for place, head in enumerate(heads)]
    return Grid(sideways[0], sideways[1:], [False] * (len(rows) + 1))


def _joined(heads: Sequence[str], cells: Sequence[str]) -> list[str]:
    """Cells of a row, or its headings, with each interval below its estimate."""
    joined: list[str] = []
    for head, cell in zip(heads, cells, strict=True):
        if head != INTERVAL:
            joined.append(cell)
        elif cell:
            joined[-1] += f"\n({cell})".replace(" ", _UNBROKEN)
    return joined


def _with_tables_of_charts(blocks: list[_Block]) -> list[_Block]:
    """The blocks, and an appendix with the tables behind charts that are not among them."""
    known = {block.key for block in blocks if isinstance(block, _Numbered)}
    behind: dict[tuple[str, str], _Block] = {}
    for block in blocks:
        if isinstance(block, Panel) and block.table is not None and block.table.records:
            behind.setdefault(_key(block.table), _numbered(block.table))
    added = [block for key, block in behind.items() if key not in known]
    return [*blocks, _Heading("Appendix: tables behind the charts", 1), *added] if added else blocks


# --- how it is written ---


def _write(document: WordDocument, blocks: Sequence[_Block]) -> None:
    tables = [block for block in blocks if isinstance(block, _Numbered) and block.grids]
    numbers = {block.key: number for number, block in enumerate(tables, 1)}
    figures = itertools.count(1)
    for block in blocks:
        match block:
            case _Heading():
                document.heading(block.text, block.level)
            case _Text():
                document.paragraph(block.text, block.style, lead=block.lead)
            case _Numbered():
                _write_table(document, block, numbers.get(block.key))
            case Panel():
                _write_chart(document, block, figures, numbers)


def _write_table(document: WordDocument, table: _Numbered, number: int | None) -> None:
    if number is None:
        document.paragraph(f"{table.caption}: {table.note or 'nothing to show.'}")
        return
    document.caption(
        "Table", number, f"{table.caption}.", bookmark=_bookmark(number)
    ).paragraph_format.keep_with_next = True
    for grid in table.grids:
        document.table(grid, table.caption)
    if table.note:
        document.paragraph(table.note)


def _write_chart(
    document: WordDocument, panel: Panel, figures: Iterator[int], numbers: Mapping[tuple[str, str], int]
) -> None:
    if panel.specification is None:
        document.paragraph(panel.note, lead=f"{panel.title}.")
        return
    document.picture(png_of({**panel.specification, "config": theme(LIGHT)}, _PPI), _PPI, panel.description)
    number = None if panel.table is None else numbers.get(_key(panel.table))
    refers_to = "" if number is None else _bookmark(number)
    document.caption("Figure", next(figures), f"{panel.title}. {panel.caption}", refers_to=refers_to)


def _bookmark(number: int) -> str:
    return f"_Ref_Table_{number}"
