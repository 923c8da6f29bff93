"""Tables: each is defined once, by columns that say where their values are, and shown on pages and in workbooks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from evenhand.report.formatting import count, decimal, estimate_interval, is_number, p_value, percent

Kind: TypeAlias = Literal["text", "long text", "whole", "number", "share", "p", "any"]
Tone: TypeAlias = Literal["notice", "strong", "evidence"]
Rule: TypeAlias = Literal["equals", "at most", "below", "filled"]
Record: TypeAlias = Mapping[str, Any]

_NUMBERS = ("whole", "number", "share", "p")


@dataclass(frozen=True)
class Column:
    """A column of a table.

    Attributes
    ----------
    heading
        The heading.
    kind
        How its values are shown; "any" shows each value by its type.
    value
        Where the value is in a record: keys separated by slashes, or a function of the record. An empty text is an
        empty cell; None and NaN are numbers that could not be estimated.
    places
        Decimals on a page; a workbook keeps all digits.
    where
        "workbook" for details that would crowd a page, "page" for what a workbook shows differently.
    is_estimate
        Whether the value is a mapping with a value and the ends of its interval, which are shown next to it.
    """

    heading: str
    kind: Kind = "number"
    value: str | Callable[[Record], Any] = ""
    places: int = 3
    where: Literal["both", "page", "workbook"] = "both"
    is_estimate: bool = False

    @property
    def is_number(self) -> bool:
        """Whether cells are aligned as numbers."""
        return self.kind in _NUMBERS

    def detail(self) -> Column:
        """The same column, in workbooks only."""
        return replace(self, where="workbook")


def estimate(heading: str, value: str | Callable[[Record], Any], kind: Kind = "number", *, places: int = 3) -> Column:
    """A column of estimates with their 95% intervals."""
    return Column(heading, kind, value, places, is_estimate=True)


def text(heading: str, key: str = "") -> Column:
    """A column of words; by default their key is the heading."""
    return Column(heading, "text", key)


def flag(flag_of: Callable[[Record], str]) -> Column:
    """A workbook column with words for what colors show."""
    return Column("flag", "text", flag_of, where="workbook")


INTERVAL = "95% interval"
"""Heading of the interval of an estimate, next to it."""

NOTE = Column("note", "long text")
"""Why a number is missing, or a remark."""


def joined(*notes: str) -> str:
    """The distinct notes, in one cell.

    Examples
    --------
    >>> joined("few people", "", "few people", "one label")
    'few people; one label'
    """
    return "; ".join(dict.fromkeys(note for note in notes if note))


@dataclass(frozen=True)
class Highlight:
    """Cells of one column that a workbook colors; the column "flag" says the same in words."""

    heading: str
    rule: Rule
    value: float | str = ""
    tone: Tone = "notice"


FLAGGED = Highlight("flag", "filled")
"""Color every flag."""


@dataclass(frozen=True, eq=False)
class Table:
    """A table of records.

    Attributes
    ----------
    name
        A short name, used for its sheet.
    caption
        What it shows.
    columns
        In order.
    records
        A mapping for each row.
    highlights
        Cells to color in a workbook.
    if_empty
        Text of a workbook sheet without records.
    needs
        Inputs without which the table has no meaning: see `report.scope.lacking`.
    """

    name: str
    caption: str
    columns: Sequence[Column]
    records: Sequence[Record]
    highlights: Sequence[Highlight] = ()
    if_empty: str = ""
    needs: Sequence[str] = ()


@dataclass(frozen=True)
class ShownTable:
    """A table as text: heads, rows of cells, whether each column holds numbers, and the caption."""

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    is_number: tuple[bool, ...]
    caption: str = ""


def value_of(column: Column, record: Record) -> Any:
    """The value of a column in a record."""
    if callable(column.value):
        return column.value(record)
    found: Any = record
    for key in (column.value or column.heading).split("/"):
        found = found[key]
    return found


def shown(table: Table) -> ShownTable:
    """A table in the form of a page.

    Examples
    --------
    >>> columns = (Column("group", "text"), estimate("rate", "rate", "share"), Column("people", "whole"))
    >>> record = {"group": "a", "rate": {"value": 0.5, "low": 0.25, "high": 0.75}, "people": 1200}
    >>> shown(Table("Rates", "Rates by group", columns, (record,))).rows
    (('a', '50.0%', '25.0 to 75.0', '1,200'),)
    """
    columns = [column for column in table.columns if column.where != "workbook"]
    heads = [head for c in columns for head in ((c.heading, INTERVAL) if c.is_estimate else (c.heading,))]
    numbers = [c.is_number for c in columns for _ in range(2 if c.is_estimate else 1)]
    rows = tuple(tuple(cell for column in columns for cell in _cells(column, record)) for record in table.records)
    return ShownTable(tuple(heads), rows, tuple(numbers), table.caption)


def _cells(column: Column, record: Record) -> Iterable[str]:
    value = value_of(column, record)
    if not column.is_estimate:
        return (_text(column, value),)
    if value == "":
        return "", ""
    places, scale = (1, 100) if column.kind == "share" else (column.places, 1)
    return _text(column, value["value"]), estimate_interval(value, places, scale)


def _text(column: Column, value: Any) -> str:
    if isinstance(value, str):
        return value
    kind = column.kind
    if kind == "any":
        if isinstance(value, bool) or value is None:
            return {True: "yes", False: "no", None: ""}[value]
        kind = "whole" if isinstance(value, int) else "number" if is_number(value) else "text"
    if kind == "number":
        return decimal(value, column.places)
    shows: dict[str, Callable[[Any], str]] = {"whole": count, "share": percent, "p": p_value}
    return shows[kind](value) if kind in shows else "" if value is None else str(value)
