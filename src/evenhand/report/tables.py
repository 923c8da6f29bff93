"""Tables: each is defined once, by columns that say where their values are, and shown on pages and in workbooks."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import pandas as pd

from evenhand.report.formatting import count, decimal, estimate_interval, is_number, p_value, percent

Kind: TypeAlias = Literal["text", "long text", "whole", "number", "share", "p", "any"]
Tone: TypeAlias = Literal["notice", "strong", "evidence"]
Rule: TypeAlias = Literal["equals", "at most", "below", "filled"]
Record: TypeAlias = Mapping[str, Any]

_NUMBERS = ("whole", "number", "share", "p")


@dataclass(frozen=True)
class Highlight:
    """Which cells of a column a workbook colors; the column "flag" says the same in words."""

    rule: Rule
    value: float | str = ""
    tone: Tone = "notice"


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
    highlights
        Which of its cells are colored in a workbook.
    """

    heading: str
    kind: Kind = "number"
    value: str | Callable[[Record], Any] = ""
    places: int = 3
    where: Literal["both", "page", "workbook"] = "both"
    is_estimate: bool = False
    highlights: tuple[Highlight, ...] = ()

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
    """A workbook column with words for what colors show; every flag has a color, too."""
    return Column("flag", "text", flag_of, where="workbook", highlights=(Highlight("filled"),))


def p_adjusted(value: str | Callable[[Record], Any]) -> Column:
    """A column of adjusted p-values, of which the small ones are colored."""
    return Column("p-value, adjusted", "p", value, highlights=(EVIDENCE,))


SIGNIFICANT = 0.05

EVIDENCE = Highlight("at most", SIGNIFICANT, "evidence")
"""Colors what is unlikely by chance."""

REGIME_COLORS = (Highlight("equals", "B"), Highlight("equals", "D", "strong"))

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


def significance_flag(value: float | None, word: str) -> str:
    """The flag of a p-value or q-value: empty, unless it is at most 0.05.

    Examples
    --------
    >>> significance_flag(0.01, "p-value"), significance_flag(float("nan"), "p-value")
    ('p-value at most 0.05', '')
    """
    return f"{word} at most {SIGNIFICANT:g}" if value is not None and value <= SIGNIFICANT else ""


def inside(outer: str, inner: str) -> Callable[[Record], Any]:
    """A value in a mapping whose keys may contain the separator of paths, such as names of groups."""
    return lambda record: record[outer].get(inner)


def beside_reference(key: str) -> Callable[[Record], Any]:
    """A value relative to the reference group, which has none itself."""
    return lambda record: "" if record["is_reference"] else record[key]


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
    if_empty
        Text of a workbook sheet without records.
    needs
        Inputs without which the table has no meaning: see `report.section.lacking`.
    key
        Key in `AuditResult.tables`; by default the name in lower case.
    """

    name: str
    caption: str
    columns: Sequence[Column]
    records: Sequence[Record]
    if_empty: str = ""
    needs: Sequence[str] = ()
    key: str = ""


@dataclass(frozen=True)
class ShownTable:
    """A table as text: heads, rows of cells, whether each column holds numbers, the caption, and long columns.

    The interval of an estimate is in the column after it, whose heading is `INTERVAL`.
    """

    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    is_number: Sequence[bool]
    caption: str = ""
    is_long: Sequence[bool] = ()


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
    heads = [
        (head, column.is_number, column.kind == "long text")
        for column in columns
        for head in ((column.heading, INTERVAL) if column.is_estimate else (column.heading,))
    ]
    rows = [[cell for column in columns for cell in _cells(column, record)] for record in table.records]
    # A column without content, such as notes when there is nothing to note, takes room for nothing.
    kept = [place for place in range(len(heads)) if place == 0 or any(row[place] for row in rows)]
    names, numbers, long = zip(*(heads[place] for place in kept), strict=True)
    return ShownTable(names, tuple(tuple(row[place] for place in kept) for row in rows), numbers, table.caption, long)


def values_of(column: Column, record: Record) -> Sequence[Any]:
    """The value of a column in a record; of an estimate, its value and the ends of its interval."""
    value = value_of(column, record)
    if not column.is_estimate:
        return (value,)
    return ("", "", "") if value == "" else (value["value"], value.get("low"), value.get("high"))


def frame_of(table: Table) -> pd.DataFrame:
    """The raw values of a table; an estimate takes three columns, such as rate, rate_low and rate_high.

    Examples
    --------
    >>> columns = (Column("group", "text"), estimate("approval rate", "rate", "share"))
    >>> record = {"group": "a", "rate": {"value": 0.5, "low": 0.25, "high": 0.75}}
    >>> frame_of(Table("Rates", "Rates by group", columns, (record,))).to_dict("records")
    [{'group': 'a', 'approval_rate': 0.5, 'approval_rate_low': 0.25, 'approval_rate_high': 0.75}]
    """
    columns = [column for column in table.columns if column.where != "page"]
    names = [name_in_code(column.heading) for column in columns]
    found: dict[str, Any] = {}
    for name, column in zip(names, columns, strict=True):
        # Headings with names of groups may differ only in their punctuation.
        head = name if names.count(name) == 1 else column.heading
        values = [values_of(column, record) for record in table.records]
        for place, end in enumerate(("", "_low", "_high") if column.is_estimate else ("",)):
            cells = pd.Series([value[place] for value in values], dtype=object)
            found[head + end] = pd.to_numeric(cells.where(cells != "", None)) if column.is_number else cells
    return pd.DataFrame(found)


def name_in_code(words: str) -> str:
    """Words as a name.

    Examples
    --------
    >>> name_in_code("p-value, adjusted")
    'p_value_adjusted'
    """
    return re.sub(r"\W+", "_", words.lower()).strip("_")


_BINS = 10


def histogram_table(histogram: Mapping[str, Any], caption: str, need: str) -> Table:
    """Counts by group in a few wide bins."""
    edges, by_group = histogram["edges"], histogram["counts"]
    step = max(1, (len(edges) - 1) // _BINS)
    records = [
        {
            "bin": f"{edges[i]:g} to {edges[min(i + step, len(edges) - 1)]:g}",
            "counts": {group: sum(counts[i : i + step]) for group, counts in by_group.items()},
        }
        for i in range(0, len(edges) - 1, step)
    ]
    columns = (text("from, to", "bin"), *(Column(str(group), "whole", inside("counts", group)) for group in by_group))
    return Table("Histogram", caption, columns, records, needs=(need,))


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
