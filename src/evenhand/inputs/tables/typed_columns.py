"""The type in which each column of a file is read, decided on all of its rows, and the columns in these types."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from evenhand.inputs.read_options import ReadOptions
from evenhand.inputs.tables.kinds import check_usable, is_text, texts_where, usable_type
from evenhand.inputs.tables.numbers import (
    Notation,
    NumberEvidence,
    choose_notation,
    number_evidence,
    numbers_of,
    plain_evidence,
    plain_numbers,
    sure_decimal,
    whole_numbers,
)
from evenhand.inputs.tables.raw import RawTable

__all__ = ["MISSING_WORDS", "ColumnReading", "TypedColumns"]

MISSING_WORDS = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null", ".", "NAN",
)  # fmt: skip
"""Cells without a value: those that pandas treats as missing, and the dot of SAS."""

_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_MANY_NUMBERS = 0.5


@dataclass(frozen=True)
class ColumnReading:
    """How a column is read.

    Attributes
    ----------
    kind
        Type of the values.
    notation
        Notation of text that is read as numbers; None for other columns, and for the usual notation of programs.
    missing
        Words of a text column that mean a missing value; None for columns that are not stored as text.
    """

    kind: pa.DataType
    notation: Notation | None = None
    missing: tuple[str, ...] | None = None

    def of(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """The values of a part of the column."""
        if self.missing is None:
            kind = usable_type(column.type)
            return column if column.type.equals(kind) else column.cast(kind)
        texts = column.cast(pa.string())
        if self.notation is None and not is_text(self.kind) and not pa.types.is_boolean(self.kind):
            numbers = (whole_numbers if pa.types.is_integer(self.kind) else plain_numbers)(texts)
            if numbers is not None:
                return numbers
        cells = _cells(texts, self.missing)
        if self.notation is not None:
            return numbers_of(cells, self.notation)
        if is_text(self.kind):  # spaces around a text are part of it
            return texts_where(pc.is_valid(cells), texts)
        if pa.types.is_boolean(self.kind):
            return pc.if_else(pc.is_valid(cells), pc.is_in(cells, value_set=pa.array(_TRUE)), None)
        return cells.cast(self.kind)


@dataclass(frozen=True)
class TypedColumns:
    """How the columns of a file are read.

    Attributes
    ----------
    readings
        By column name, in order.
    notes
        What a careful reader of the results must know about it, in sentences.
    """

    readings: Mapping[str, ColumnReading]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, raw: RawTable, columns: Sequence[str], reading: ReadOptions) -> TypedColumns:
        """Decide the types on all rows of a file.

        Raises
        ------
        DataFileError
            If a column has an unusable type, or ambiguous numbers.
        """
        check_usable(raw.schema, columns, raw.where)
        texts = [name for name in columns if is_text(raw.schema.field(name).type)]
        missing = (*MISSING_WORDS, *reading.missing)
        found = _evidence(raw, texts, missing)
        decimal = sure_decimal(evidence.numbers for evidence in found.values())
        readings, notes = {}, []
        for name in columns:
            if name in found:
                readings[name], note = _text_reading(name, found[name], decimal, raw.is_declared, reading)
                notes += [note] if note else []
            else:
                readings[name] = ColumnReading(usable_type(raw.schema.field(name).type))
        return cls(readings, (*raw.notes, *notes))

    @property
    def schema(self) -> pa.Schema:
        """Types of the columns."""
        return pa.schema([pa.field(name, reading.kind) for name, reading in self.readings.items()])

    @property
    def written(self) -> TypedColumns:
        """How columns are read that were stored in the types decided here."""
        return replace(self, readings={name: ColumnReading(reading.kind) for name, reading in self.readings.items()})

    def read(self, table: pa.Table, columns: Sequence[str] | None = None) -> pa.Table:
        """Some columns of a part of the file, all by default, in the decided types."""
        names = list(self.readings) if columns is None else list(columns)
        return pa.table({name: self.readings[name].of(table.column(name)) for name in names})


@dataclass(frozen=True)
class _TextEvidence:
    """What the cells of a text column show: numbers, and whether each is true or false."""

    numbers: NumberEvidence = field(default_factory=NumberEvidence)
    is_logical: bool = True

    def __add__(self, more: _TextEvidence) -> _TextEvidence:
        return _TextEvidence(self.numbers + more.numbers, self.is_logical and more.is_logical)


def _evidence(raw: RawTable, texts: Sequence[str], missing: tuple[str, ...]) -> dict[str, _TextEvidence]:
    """What every row of text columns shows."""
    found = {name: _TextEvidence() for name in texts}
    if not texts:
        return found
    for piece in raw.pieces(texts):
        for name in texts:
            written = piece.column(name).cast(pa.string())
            if plain_numbers(written) is not None:
                found[name] += _TextEvidence(plain_evidence(written), is_logical=not len(written))
                continue
            cells = _cells(written, missing)
            is_logical = found[name].is_logical and bool(
                pc.all(pc.is_in(cells.drop_null(), value_set=pa.array([*_TRUE, *_FALSE])), min_count=0).as_py()
            )
            found[name] += _TextEvidence(number_evidence(cells), is_logical)
    return found


def _text_reading(
    name: str, found: _TextEvidence, file_decimal: str | None, is_declared: bool, reading: ReadOptions
) -> tuple[ColumnReading, str]:
    """How a text column is read, and notes on it."""
    numbers, missing = found.numbers, (*MISSING_WORDS, *reading.missing)
    as_text = ColumnReading(pa.string(), missing=reading.missing if is_declared else missing)
    if not numbers.n:  # nothing shows the type
        return (as_text if is_declared else ColumnReading(pa.float64(), missing=missing)), ""
    if not numbers.are_numbers:
        if found.is_logical and not is_declared:
            return ColumnReading(pa.bool_(), missing=missing), ""
        is_odd = numbers.n_numbers >= _MANY_NUMBERS * numbers.n
        return as_text, _on_other_cells(name, numbers) if is_odd else ""
    if numbers.is_plain and is_declared:
        return (
            as_text,
            f"{name}: read as text, as stored in the file, though every value is a number like {numbers.example!r}.",
        )
    notation = choose_notation(name, numbers, file_decimal, reading)
    if numbers.is_plain and (notation.decimal == "." or not numbers.has_marks):
        return ColumnReading(pa.int64() if numbers.is_whole else pa.float64(), missing=missing), ""
    return ColumnReading(pa.float64(), notation, missing), _on_conversion(name, numbers, notation)


def _on_conversion(name: str, found: NumberEvidence, notation: Notation) -> str:
    value = numbers_of(pa.chunked_array([[found.example]]), notation)[0].as_py()
    return f"{name}: {found.n:,} values like {found.example!r} were read as numbers, this one as {value:.15g}."


def _on_other_cells(name: str, found: NumberEvidence) -> str:
    return (
        f"{name}: {found.n_numbers:,} of {found.n:,} values are numbers, but others, such as {found.other!r}, are "
        "not, so all were read as text; name words for a missing value with --missing."
    )


def _cells(column: pa.ChunkedArray, missing: Sequence[str]) -> pa.ChunkedArray:
    """Text without outer spaces, null if there is no value."""
    cells = pc.utf8_trim_whitespace(column)
    return texts_where(pc.invert(pc.is_in(cells, value_set=pa.array(missing, pa.string()))), cells)
