"""How to read the cells of a file if the file does not say.

This module imports nothing heavy, so that the command line shows its help at once.
"""

from __future__ import annotations

import codecs
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from numbers import Integral, Real
from typing import Any

from evenhand.exceptions import InvalidInputError

DECIMALS = (".", ",")
"""Marks between a number and its fraction."""

THOUSANDS = (",", ".", " ", "'")
"""Marks between thousands."""


def option(default: Any, text: str, panel: str) -> Any:
    """A field of a dataclass of options, with its help and its heading on the command line."""
    return field(default=default, metadata={"help": text, "panel": panel})


column_option, read_option, model_option, people_option, evidence_option, output_option, batch_option = (
    partial(option, panel=panel)
    for panel in ("Columns", "Reading", "Model", "People", "Evidence", "Output", "Large data")
)


def table_option(table: str) -> Any:
    """A field of a dataclass of options that a TOML file has in a table, and the command line has not."""
    return field(default=None, metadata={"table": table})


_MOST = 2**31 - 1  # numpy accepts twice as much; folds and draws add to the seed


def check_seed(value: object, name: str = "`random_state` (--random-state)") -> int:
    """A seed that every generator accepts.

    Examples
    --------
    >>> check_seed(-1)
    Traceback (most recent call last):
    ...
    evenhand.exceptions.InvalidInputError: `random_state` (--random-state) must be a whole number from 0 to
    2147483647, got -1.
    """
    if not isinstance(value, Integral) or isinstance(value, bool) or not 0 <= int(value) <= _MOST:
        raise InvalidInputError(f"{name} must be a whole number from 0 to {_MOST}, got {value!r}.")
    return int(value)


@dataclass(frozen=True, kw_only=True)
class ReadOptions:
    """What a file does not specify.

    Attributes
    ----------
    encoding
        Encoding of a CSV file; None for UTF-8.
    decimal, thousands
        Marks in numbers written as text; None to infer them from the file.
    missing
        Values that mean a missing one, in addition to the usual words: ``"unknown"`` or ``-999`` in any column,
        ``"income=-999"`` in one.
    sheet
        Sheet of an Excel workbook; None for the only one with cells.
    rows
        Read only this many rows, the first; None for all.

    Examples
    --------
    >>> ReadOptions(decimal=",", thousands=",")
    Traceback (most recent call last):
    ...
    evenhand.exceptions.InvalidInputError: `decimal` (--decimal) and `thousands` (--thousands) cannot both be ','.
    """

    encoding: str | None = read_option(None, "Encoding of a CSV file, such as cp1252 or utf-16; UTF-8 by default.")
    decimal: str | None = read_option(
        None, "Decimal mark of numbers written as text, . or ,; by default inferred from the file."
    )
    thousands: str | None = read_option(None, "Thousands separator of numbers written as text: , . ' or a space.")
    missing: tuple[str, ...] = read_option(
        (),
        "Values that mean a missing one, in addition to NA, #N/A, a dot and the like: unknown,-999; or in one column: "
        "income=-999.",
    )
    sheet: str | None = read_option(None, "Sheet of an Excel file, if several have cells.")
    rows: int | None = read_option(None, "Read only the first rows, at most this many; the report says so.")

    def __post_init__(self) -> None:
        object.__setattr__(self, "missing", tuple(map(str, self.missing)))
        for name, known in (("decimal", DECIMALS), ("thousands", THOUSANDS)):
            value = getattr(self, name)
            if value is not None and value not in known:
                raise InvalidInputError(f"`{name}` (--{name}) must be one of {list(known)}, got {value!r}.")
        if self.decimal is not None and self.decimal == self.thousands:
            raise InvalidInputError(
                f"`decimal` (--decimal) and `thousands` (--thousands) cannot both be {self.decimal!r}."
            )
        if self.rows is not None and (type(self.rows) is not int or self.rows < 1):
            raise InvalidInputError(f"`rows` (--rows) must be a whole number of at least 1, got {self.rows!r}.")
        if self.encoding is not None:
            try:
                is_text = codecs.lookup(self.encoding)._is_text_encoding
            except (LookupError, ValueError):
                is_text = False
            if not is_text:
                raise InvalidInputError(
                    f"`encoding` (--encoding) must be the name of a text encoding, such as utf-8 or cp1252, got "
                    f"{self.encoding!r}."
                )

    def missing_in(self, column: str, columns: Sequence[str]) -> tuple[str, ...]:
        """The user's words for a missing value in one of a table's columns.

        Examples
        --------
        >>> ReadOptions(missing=("unknown", "income=-999", "a=b")).missing_in("income", ["income", "debt"])
        ('unknown', '-999', 'a=b')
        """
        own = {word: name for word in self.missing for name in columns if word.startswith(f"{name}=")}
        return tuple(
            word.removeprefix(f"{column}=") if word in own else word
            for word in self.missing
            if own.get(word, column) == column
        )


@dataclass(frozen=True, kw_only=True)
class ColumnOptions:
    """The roles of a table's columns: `columns=` of `audit_stream`.

    Attributes
    ----------
    features
        Inputs of the model: by default those that the model names, or all columns except those with another role, those
        of `drop` and, without `keep_group`, those of the group.
    drop, keep_group
        Columns that are not inputs, and whether the group is one.
    keep_inputs
        Columns to keep as inputs even if they look like an id, a date or a saved index. Such columns are otherwise left
        out, or rejected if the model names them.
    positive_label
        Value of the label that is the favorable outcome, whatever `favorable` is; required if the label is not 0 or 1.
    decisions, ids
        Columns of the actual decisions, 1 for a favorable one, and of your ids of the people.
    clusters
        Column that identifies the rows of the same applicant or household. For people outside the reference of a
        streamed audit, only rows of the same batch are recognized.
    sample_weight
        Column with the number of people of the population that each row stands for.
    drop_missing
        Leave out rows without a label or a group, and count them; otherwise they are an error.
    by
        Columns for whose values the excess is reported separately.
    groups
        Other spellings of groups, each with the name to read it as, such as ``{"female ": "Female"}``.
    bands
        Where to cut numbers of `group` and `by` into ranges: ``{"age": (25, 62)}`` for under 25, 25 to under 62, and 62
        and over. As an input of the model, the column keeps its numbers.
    """

    features: tuple[str, ...] | None = None  # on the command line, the model names them
    drop: tuple[str, ...] = column_option((), "Columns to drop: a,b.")
    keep_inputs: tuple[str, ...] = column_option(
        (), "Columns to keep as inputs even if they look like an id, a date or a saved index: a,b."
    )
    positive_label: str | None = column_option(None, "Value of the label that is the favorable outcome.")
    clusters: str | None = column_option(None, "Column that identifies the rows of the same applicant or household.")
    keep_group: bool = column_option(False, "Also give the group to the model as an input.")
    decisions: str | None = column_option(
        None, "Column of the actual decisions, 1 for favorable, used instead of scores at a threshold."
    )
    ids: str | None = column_option(None, "Column of ids to show in the report; not an input.")
    drop_missing: bool = column_option(False, "Leave out rows without a label or group; the report counts them.")
    sample_weight: str | None = column_option(
        None, "Column of sampling weights: how many people of the population a row stands for."
    )
    by: tuple[str, ...] = column_option((), "Also report the excess separately for each value of these columns: a,b.")
    groups: Mapping[str, str] | None = table_option("clean")
    bands: Mapping[str, Sequence[float]] | None = table_option("clean")

    def __post_init__(self) -> None:
        for spelling, name in (self.groups or {}).items():
            if not isinstance(name, str) or not name.strip():
                raise InvalidInputError(
                    f"`groups` of [clean] must give each spelling the name to read it as, such as {{'female ': "
                    f"'Female'}}, got {name!r} for {spelling!r}."
                )
        for column, edges in (self.bands or {}).items():
            is_list = isinstance(edges, (list, tuple)) and len(edges) > 0
            if (
                not is_list
                or not all(isinstance(e, Real) and not isinstance(e, bool) and math.isfinite(e) for e in edges)
                or any(low >= high for low, high in pairwise(edges))
            ):
                raise InvalidInputError(
                    f"`bands` of [clean] must give each column ascending numbers, such as {{'age': [25, 62]}}, got "
                    f"{edges!r} for {column!r}."
                )
