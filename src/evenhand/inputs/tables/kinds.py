"""The kinds of columns, and which of them an audit can use."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.compute as pc

from evenhand.exceptions import DataFileError

__all__ = ["check_usable", "drift", "is_text", "kind_of", "kinds_of", "texts_where", "usable_type"]


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
    if pa.types.is_integer(inner) or pa.types.is_floating(inner) or pa.types.is_decimal(inner):
        return "number"
    if is_text(inner):
        return "text"
    return str(inner)


def kinds_of(schema: pa.Schema) -> dict[str, str]:
    """The kind of each column, by name."""
    return {field.name: kind_of(field.type) for field in schema}


def is_text(of: pa.DataType) -> bool:
    """Whether a column holds text, and is not a dictionary."""
    return bool(pa.types.is_string(of) or pa.types.is_large_string(of) or pa.types.is_string_view(of))


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


def drift(expected: dict[str, str], got: dict[str, str]) -> str:
    """How columns differ from the expected ones, in words; empty if they do not.

    Examples
    --------
    >>> drift({"a": "number", "b": "text"}, {"a": "text", "c": "text"})
    "missing ['b']; added ['c']; with a different type 'a' (was number, is text)"
    """
    parts = []
    missing, added = [c for c in expected if c not in got], [c for c in got if c not in expected]
    changed = [f"{c!r} (was {expected[c]}, is {got[c]})" for c in expected if c in got and expected[c] != got[c]]
    if missing:
        parts.append(f"missing {missing}")
    if added:
        parts.append(f"added {added}")
    if changed:
        parts.append(f"with a different type {', '.join(changed)}")
    return "; ".join(parts)
