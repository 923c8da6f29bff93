"""The type in which each column of a file is read, decided on all of its rows, and the columns in these types.

Text is read as numbers only if every cell is a number. If a column can be read in two ways, such as 1,234 as 1234 or as
1.234, it is rejected unless a different column or the user decides.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from evenhand.exceptions import DataFileError
from evenhand.inputs.read_options import DECIMALS, THOUSANDS, ReadOptions
from evenhand.inputs.tables.raw import RawTable


def kind_of(of: pa.DataType) -> str:
    """What a column holds, in words.

    Examples
    --------
    >>> kind_of(pa.int8()), kind_of(pa.dictionary(pa.int8(), pa.string())), kind_of(pa.list_(pa.int8()))
    ('number', 'text', 'list<item: int8>')
    """
    inner = of.value_type if pa.types.is_dictionary(of) else of
    if pa.types.is_boolean(inner):
        return "yes or no"
    if is_numeric(inner):
        return "number"
    if is_text(inner):
        return "text"
    return str(inner)


def is_text(of: pa.DataType) -> bool:
    """Whether a column holds text, and is not a dictionary."""
    return bool(pa.types.is_string(of) or pa.types.is_large_string(of) or pa.types.is_string_view(of))


def is_numeric(of: pa.DataType) -> bool:
    """Whether a column holds numbers."""
    return bool(pa.types.is_integer(of) or pa.types.is_floating(of) or pa.types.is_decimal(of))


def texts_where(is_kept: pa.ChunkedArray, texts: pa.ChunkedArray) -> pa.ChunkedArray:
    """Texts, and null where they are not kept.

    The nulls are a column: with a single null and a slice of texts, `if_else` of Arrow 21 and 22 returns wrong texts.
    """
    return pc.if_else(is_kept, texts, pa.nulls(len(texts), texts.type))


def usable_type(of: pa.DataType) -> pa.DataType | None:
    """The type in which a column is read: decimals are numbers; None if an audit cannot use it.

    Examples
    --------
    >>> usable_type(pa.decimal128(9, 2)), usable_type(pa.binary())
    (DataType(double), None)
    """
    if pa.types.is_dictionary(of):
        inner = usable_type(of.value_type)
        return of if inner == of.value_type else inner
    if pa.types.is_decimal(of) or pa.types.is_float16(of):
        return pa.float64()
    if is_text(of):
        return pa.string()
    if pa.types.is_duration(of):
        return None
    is_plain = pa.types.is_primitive(of) or pa.types.is_boolean(of) or pa.types.is_null(of)
    return of if is_plain and not pa.types.is_interval(of) else None


def check_usable(schema: pa.Schema, columns: Sequence[str], where: str) -> None:
    """Reject columns of kinds that an audit cannot use, among those that it needs.

    Raises
    ------
    DataFileError
        If there is one.
    """
    bad = [f"{name!r} ({schema.field(name).type})" for name in columns if usable_type(schema.field(name).type) is None]
    if bad:
        raise DataFileError(
            f"{where} has columns that hold neither numbers, text, dates nor booleans: {', '.join(bad)}; leave them "
            "out (--drop), or save them as numbers or text."
        )


def drift(expected: pa.Schema, got: pa.Schema) -> str:
    """How columns differ from the expected ones, in words; empty if they do not.

    Examples
    --------
    >>> number, text = pa.int8(), pa.string()
    >>> drift(pa.schema({"a": number, "b": text}), pa.schema({"a": text, "c": text}))
    "missing ['b']; added ['c']; with a different type 'a' (was number, is text)"
    """
    before, now = ({field.name: kind_of(field.type) for field in schema} for schema in (expected, got))
    missing, added = [c for c in before if c not in now], [c for c in now if c not in before]
    changed = [f"{c!r} (was {before[c]}, is {now[c]})" for c in before if c in now and before[c] != now[c]]
    found = {f"missing {missing}": missing, f"added {added}": added}
    found[f"with a different type {', '.join(changed)}"] = changed
    return "; ".join(words for words, columns in found.items() if columns)


_CURRENCY = r"\p{Sc}|US\$|C\$|A\$|R\$|USD|EUR|GBP|CHF|CAD|AUD|JPY|INR|BRL|kr|zł"
_INFINITE = "(?i:inf(?:inity)?)"
_SPACE = r"\s\x{a0}\x{2009}\x{202f}"
_BODY = rf"0-9.,'\x{{2019}}{_SPACE}"
_PATTERN = (
    rf"^(?P<open>\()?(?P<sign>[-+\x{{2212}}])?(?P<before>{_CURRENCY})?[{_SPACE}]?(?P<inner>[-+\x{{2212}}])?"
    rf"(?P<body>[{_BODY}]*[0-9][{_BODY}]*?(?:[eE][-+]?[0-9]+)?|{_INFINITE})"
    rf"[{_SPACE}]?(?P<percent>%)?(?P<after>{_CURRENCY})?(?P<close>\))?$"
)
_FEW = 1000
_TRUE, _FALSE = ("true", "True", "TRUE"), ("false", "False", "FALSE")
_MARKS = {"": None, ",": ",", ".": r"\.", " ": f"[{_SPACE}]", "'": r"['\x{2019}]"}


@dataclass(frozen=True, order=True)
class Notation:
    """Marks of a number: before its fraction, and between thousands ("" for none)."""

    decimal: str
    thousands: str = ""

    @property
    def pattern(self) -> str:
        """What a number without sign and unit looks like."""
        mark = _MARKS[self.thousands]
        grouped = "" if mark is None else rf"|[1-9][0-9]{{0,2}}(?:{mark}[0-9]{{3}})+"
        fraction = _MARKS[self.decimal]
        finite = rf"(?:(?:[0-9]+{grouped})(?:{fraction}[0-9]*)?|{fraction}[0-9]+)(?:[eE][-+]?[0-9]+)?"
        return f"^(?:{finite}|{_INFINITE})$"


PLAIN = Notation(".")
"""The notation of programs."""

NOTATIONS = frozenset(Notation(d, t) for d in DECIMALS for t in ("", *THOUSANDS) if d != t)
"""Every supported notation."""

_ANY_NOTATION = "|".join(f"(?:{notation.pattern})" for notation in sorted(NOTATIONS))


@dataclass(frozen=True)
class NumberEvidence:
    """What the cells of a part of a column show; parts can be added.

    Attributes
    ----------
    n, n_numbers, n_percent
        Cells with a value, those that are numbers in some notation, and those of them with a percent sign.
    notations
        Notations in which every number can be read.
    currencies, is_money
        The currency signs; whether there are any, or brackets for negative amounts.
    has_marks
        Whether a number has a point or a comma, so that it matters which is the decimal mark.
    is_plain, is_whole
        Whether every number is in the usual notation of programs, and a whole number that fits in 64 bits.
    example, other
        A number in an unusual notation, else any number; and a cell that is not a number.
    is_logical
        Whether every cell is true or false.
    """

    n: int = 0
    n_numbers: int = 0
    n_percent: int = 0
    notations: frozenset[Notation] = NOTATIONS
    currencies: frozenset[str] = frozenset()
    is_money: bool = False
    has_marks: bool = False
    is_plain: bool = True
    is_whole: bool = True
    example: str = ""
    other: str | None = None
    is_logical: bool = True

    def __add__(self, more: NumberEvidence) -> NumberEvidence:
        first = self if self.example and (more.is_plain or not self.is_plain) else more
        return NumberEvidence(
            self.n + more.n,
            self.n_numbers + more.n_numbers,
            self.n_percent + more.n_percent,
            self.notations & more.notations,
            self.currencies | more.currencies,
            self.is_money or more.is_money,
            self.has_marks or more.has_marks,
            self.is_plain and more.is_plain,
            self.is_whole and more.is_whole,
            first.example or self.example,
            self.other if self.other is not None else more.other,
            self.is_logical and more.is_logical,
        )

    @property
    def are_numbers(self) -> bool:
        """Whether there are cells, and each is a number."""
        return 0 < self.n == self.n_numbers

    @property
    def decimals(self) -> set[str]:
        """Decimal marks with which every number can be read."""
        return {notation.decimal for notation in self.notations}


def number_evidence(cells: pa.ChunkedArray) -> NumberEvidence:
    """What cells show; cells are trimmed, and missing ones are null.

    Examples
    --------
    >>> found = number_evidence(pa.chunked_array([["$89,000", "(1,250.50)", None]]))
    >>> found.are_numbers, sorted(found.notations), sorted(found.currencies)
    (True, [Notation(decimal='.', thousands=',')], ['$'])
    """
    cells = cells.drop_null()
    if not len(cells):
        return NumberEvidence()
    if plain_numbers(cells) is not None:
        return plain_evidence(cells)
    counts = cells.value_counts()
    values, times = counts.field("values"), counts.field("counts")
    parts = _parts(values)
    is_number = pc.fill_null(pc.match_substring_regex(parts["body"], _ANY_NOTATION), False)
    numbers = {name: part.filter(is_number) for name, part in parts.items()}
    texts, others = values.filter(is_number), values.filter(pc.invert(is_number))
    is_plain = pc.fill_null(pc.match_substring_regex(texts, PLAIN.pattern.replace("^", "^[-+]?", 1)), False)
    decorated = texts.filter(pc.invert(is_plain))
    body = numbers["body"]
    currencies = frozenset(set(numbers["before"].to_pylist()) | set(numbers["after"].to_pylist())) - {"", None}
    return NumberEvidence(
        n=len(cells),
        n_numbers=pc.sum(times.filter(is_number)).as_py() or 0,
        n_percent=pc.sum(times.filter(pc.and_(is_number, _is_there(parts["percent"])))).as_py() or 0,
        notations=frozenset(
            notation for notation in NOTATIONS if _all(pc.match_substring_regex(body, notation.pattern))
        ),
        currencies=currencies,
        is_money=bool(currencies) or _any(_is_there(numbers["open"])),
        has_marks=_any(pc.match_substring_regex(body, "[.,]")),
        is_plain=not len(decorated),
        is_whole=_cast(texts, pa.int64()) is not None,
        example=_first(decorated) or _first(texts) or "",
        other=_first(others),
        is_logical=_all(pc.is_in(values, value_set=pa.array([*_TRUE, *_FALSE]))),
    )


def plain_numbers(cells: pa.ChunkedArray) -> pa.ChunkedArray | None:
    """Values of cells that are all numbers in the usual notation, else None: a fast check before a slow one."""
    numbers = _cast(cells, pa.float64())
    return None if numbers is None or numbers.null_count or _any(pc.is_nan(numbers)) else numbers


def plain_evidence(cells: pa.ChunkedArray) -> NumberEvidence:
    """What cells show if all are numbers in the usual notation."""
    is_whole = _cast(cells, pa.int64()) is not None
    fits = set(NOTATIONS if is_whole else (n for n in NOTATIONS if n.decimal == "."))
    # A few cells usually show that points are not thousands separators.
    if not is_whole and _have_thousands(cells[:_FEW]) and _have_thousands(cells):
        fits.add(Notation(",", "."))
    return NumberEvidence(
        n=len(cells),
        n_numbers=len(cells),
        notations=frozenset(fits),
        has_marks=not is_whole and any(_any(pc.match_substring(some, ".")) for some in (cells[:_FEW], cells)),
        is_whole=is_whole,
        example=_first(cells) or "",
        is_logical=not len(cells),
    )


def _have_thousands(cells: pa.ChunkedArray) -> bool:
    """Whether points in plain numbers could be thousands separators, as in 1.234."""
    unsigned = pc.utf8_ltrim(cells, characters="+-")
    return _all(pc.match_substring_regex(unsigned, Notation(",", ".").pattern))


def sure_decimal(columns: Iterable[NumberEvidence]) -> str | None:
    """The decimal mark of a file, if its numeric columns agree on one; None if they differ or do not show it."""
    sure = {
        next(iter(found.decimals))
        for found in columns
        if found.are_numbers and found.has_marks and len(found.decimals) == 1
    }
    return sure.pop() if len(sure) == 1 else None


def choose_notation(name: str, found: NumberEvidence, file_decimal: str | None, reading: ReadOptions) -> Notation:
    """The notation of a column whose cells are all numbers.

    Parameters
    ----------
    name
        Name of the column, for messages.
    found
        What its cells show.
    file_decimal
        See `sure_decimal`.
    reading
        The user's settings.

    Raises
    ------
    DataFileError
        If no notation fits every number, or two fit and give different values.

    Examples
    --------
    >>> cells = number_evidence(pa.chunked_array([["1,234", "5,678"]]))
    >>> choose_notation("income", cells, None, ReadOptions(thousands=","))
    Notation(decimal='.', thousands=',')
    >>> choose_notation("income", cells, ",", ReadOptions())
    Notation(decimal=',', thousands='')
    """
    allowed = [n for n in sorted(found.notations) if _is_allowed(n, reading)]
    if len(found.currencies) > 1:
        raise DataFileError(
            f"Column {name!r} has amounts in several currencies, {sorted(found.currencies)}; convert them to one, or "
            "leave the column out (--drop)."
        )
    if 0 < found.n_percent < found.n:
        raise DataFileError(
            f"Column {name!r} has {found.n_percent:,} values with a percent sign and {found.n - found.n_percent:,} "
            "without; write all the same way, or leave the column out (--drop)."
        )
    if not allowed:
        said = {name: mark for name in ("decimal", "thousands") if (mark := getattr(reading, name)) is not None}
        with_ = " and ".join(f"--{option} {mark!r}" for option, mark in said.items())
        raise DataFileError(
            f"Column {name!r} has numbers such as {found.example!r} that are not all written with "
            f"{with_ if said else 'the same marks'}; write all the same way, or leave the column out (--drop)."
        )
    decimals = {notation.decimal for notation in allowed}
    if len(decimals) == 2 and found.has_marks:
        decimals = {_likely_decimal(name, found, file_decimal)}
    # Fewest marks first: no thousands separator unless needed.
    return min((n for n in allowed if n.decimal in decimals), key=lambda n: (n.thousands != "", n.decimal != "."))


def _likely_decimal(name: str, found: NumberEvidence, file_decimal: str | None) -> str:
    """The decimal mark if the numbers of the column can be read with both."""
    if PLAIN in found.notations:  # such as 1.234
        if file_decimal == "." or (file_decimal is None and not found.is_money):
            return "."
    elif found.is_money:  # such as $1,234: money has no thousandths
        return "."
    elif file_decimal is not None:
        return file_decimal
    mark = "." if PLAIN in found.notations else ","
    raise DataFileError(
        f"Column {name!r} has numbers such as {found.example!r} that can be read in two ways, because {mark!r} may be "
        f"a decimal mark or a thousands separator: set --decimal {mark!r}, or --thousands {mark!r}."
    )


def _is_allowed(notation: Notation, reading: ReadOptions) -> bool:
    """Whether the user's settings allow a notation."""
    if reading.decimal is not None and notation.decimal != reading.decimal:
        return False
    if reading.thousands is None:
        return True
    return notation.thousands in ("", reading.thousands) and notation.decimal != reading.thousands


def numbers_of(cells: pa.ChunkedArray, notation: Notation) -> pa.ChunkedArray:
    """Values of cells that are numbers in a notation; null if a cell is null.

    Examples
    --------
    >>> numbers_of(pa.chunked_array([["1.234,5", "(7)", "12 %", None]]), Notation(",", ".")).to_pylist()
    [1234.5, -7.0, 12.0, None]
    """
    parts = _parts(cells)
    body = parts["body"]
    mark = _MARKS[notation.thousands]
    if mark is not None:
        body = pc.replace_substring_regex(body, mark, "")
    if notation.decimal != ".":
        body = pc.replace_substring(body, notation.decimal, ".")
    values = body.cast(pa.float64())
    is_negative = pc.or_(pc.or_(_is_minus(parts["sign"]), _is_minus(parts["inner"])), _is_there(parts["open"]))
    return pc.if_else(is_negative, pc.negate(values), values)


def _parts(cells: Any) -> dict[str, Any]:
    """The named parts of each cell, null if it is not a number."""
    found = pc.extract_regex(cells, _PATTERN)
    names = [found.type.field(k).name for k in range(found.type.num_fields)]
    parts = dict(zip(names, found.flatten(), strict=True))
    is_open, has_sign, has_inner = (_is_there(parts[name]) for name in ("open", "sign", "inner"))
    is_sound = pc.equal(is_open, _is_there(parts["close"]))  # brackets come in pairs, and replace a sign
    for first, second in ((is_open, has_sign), (is_open, has_inner), (has_sign, has_inner)):
        is_sound = pc.and_not(is_sound, pc.and_(first, second))
    return {name: texts_where(is_sound, part) for name, part in parts.items()}


def _is_there(part: Any) -> Any:
    return pc.fill_null(pc.not_equal(part, ""), False)


def _is_minus(part: Any) -> Any:
    return pc.fill_null(pc.is_in(part, value_set=pa.array(["-", "\u2212"])), False)


def _all(values: Any) -> bool:
    return bool(pc.all(values, min_count=0).as_py())


def _any(values: Any) -> bool:
    return bool(pc.any(values, min_count=0).as_py())


def _first(values: Any) -> str | None:
    return values[0].as_py() if len(values) else None


def _cast(values: Any, kind: pa.DataType) -> Any | None:
    """Values of a type, or None if one is not of that type.

    For most columns a few values decide: Arrow formats an error for each invalid cell, and raises the first.
    """
    try:
        values[:_FEW].cast(kind)
        return values.cast(kind)
    except pa.ArrowInvalid:
        return None


MISSING_WORDS = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null", ".", "NAN",
)  # fmt: skip
"""Cells without a value: those that pandas treats as missing, and the dot of SAS."""

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
    words
        Words and numbers that the user named as missing values.
    """

    kind: pa.DataType
    notation: Notation | None = None
    missing: tuple[str, ...] | None = None
    words: tuple[str, ...] = ()

    def of(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        """The values of a part of the column."""
        values = self._typed(column)
        if not self.words:
            return values
        if not pa.types.is_dictionary(values.type):
            return texts_where(pc.invert(_is_missing(values, self.words)), values)
        parts = []
        for chunk in values.chunks:  # the categories keep their order
            places = pc.if_else(_is_missing(chunk, self.words), pa.nulls(len(chunk), chunk.indices.type), chunk.indices)
            parts.append(pa.DictionaryArray.from_arrays(places, chunk.dictionary, ordered=values.type.ordered))
        return pa.chunked_array(parts, values.type)

    def _typed(self, column: pa.ChunkedArray) -> pa.ChunkedArray:
        if self.missing is None:
            kind = usable_type(column.type)
            return column if column.type.equals(kind) else column.cast(kind)
        texts = column.cast(pa.string())
        if self.notation is None and not is_text(self.kind) and not pa.types.is_boolean(self.kind):
            numbers = _cast(texts, self.kind) if pa.types.is_integer(self.kind) else plain_numbers(texts)
            if numbers is not None and not numbers.null_count:
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
        words = {name: reading.missing_in(name, raw.schema.names) for name in columns}
        found, n_missing = dict.fromkeys(texts, NumberEvidence()), dict.fromkeys(columns, 0)
        looked_at = [name for name in columns if name in found or words[name]]
        for piece in raw.pieces(looked_at) if looked_at else ():
            for name in looked_at:
                cells = piece.column(name)
                if name in found:
                    cells = cells.cast(pa.string())
                    plain = plain_numbers(cells)
                    if plain is None:
                        found[name] += number_evidence(_cells(cells, (*MISSING_WORDS, *words[name])))
                    else:
                        found[name] += plain_evidence(cells)
                        cells = plain
                n_missing[name] += pc.sum(_is_missing(cells, words[name])).as_py() or 0
        decimal = sure_decimal(found.values())
        readings, notes = {}, []
        for name in columns:
            if name in found:
                own, note = _text_reading(name, found[name], decimal, raw.is_declared, reading, words[name])
                notes += [note] if note else []
            else:
                own = ColumnReading(usable_type(raw.schema.field(name).type))
            readings[name] = replace(own, words=words[name])
            if n_missing[name]:
                shown = " or ".join(map(repr, words[name]))
                notes.append(f"{name}: {n_missing[name]:,} values were read as missing, as you set: {shown}.")
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


def _text_reading(
    name: str,
    numbers: NumberEvidence,
    file_decimal: str | None,
    is_declared: bool,
    reading: ReadOptions,
    words: tuple[str, ...],
) -> tuple[ColumnReading, str]:
    """How a text column is read, and notes on it."""
    missing = (*MISSING_WORDS, *words)
    as_text = ColumnReading(pa.string(), missing=words if is_declared else missing)
    if not numbers.n:  # nothing shows the type
        return (as_text if is_declared else ColumnReading(pa.float64(), missing=missing)), ""
    if not numbers.are_numbers:
        if numbers.is_logical and not is_declared:
            return ColumnReading(pa.bool_(), missing=missing), ""
        if numbers.n_numbers < _MANY_NUMBERS * numbers.n:
            return as_text, ""
        return as_text, (
            f"{name}: {numbers.n_numbers:,} of {numbers.n:,} values are numbers, but others, such as "
            f"{numbers.other!r}, are not, so all were read as text; name words for a missing value with --missing."
        )
    if numbers.is_plain and is_declared:
        return (
            as_text,
            f"{name}: read as text, as stored in the file, though every value is a number like {numbers.example!r}.",
        )
    notation = choose_notation(name, numbers, file_decimal, reading)
    if numbers.is_plain and (notation.decimal == "." or not numbers.has_marks):
        return ColumnReading(pa.int64() if numbers.is_whole else pa.float64(), missing=missing), ""
    value = numbers_of(pa.chunked_array([[numbers.example]]), notation)[0].as_py()
    note = f"{name}: {numbers.n:,} values like {numbers.example!r} were read as numbers, this one as {value:.15g}."
    return ColumnReading(pa.float64(), notation, missing), note


def _is_missing(values: Any, words: Sequence[str]) -> Any:
    """Whether texts or numbers are among the words for a missing one; False for any other kind."""
    kind = values.type.value_type if pa.types.is_dictionary(values.type) else values.type
    if is_text(kind):
        return pc.is_in(pc.utf8_trim_whitespace(values.cast(pa.string())), value_set=pa.array(words, pa.string()))
    codes = [code for word in words if (code := _number(word)) is not None] if is_numeric(kind) else []
    if not codes:
        return pc.and_(pc.is_null(values), False)
    return pc.is_in(values.cast(pa.float64(), safe=False), value_set=pa.array(codes, pa.float64()))


def _number(word: str) -> float | None:
    """The number that a word is; None if it is not a finite one."""
    try:
        return number if math.isfinite(number := float(word)) else None
    except ValueError:
        return None


def _cells(column: pa.ChunkedArray, missing: Sequence[str]) -> pa.ChunkedArray:
    """Text without outer spaces, null if there is no value."""
    cells = pc.utf8_trim_whitespace(column)
    return texts_where(pc.invert(pc.is_in(cells, value_set=pa.array(missing, pa.string()))), cells)
