"""How to read the cells of a file if the file does not say.

This module imports nothing heavy, so that the command line shows its help at once.
"""

from __future__ import annotations

import codecs
from dataclasses import dataclass, field

from evenhand.exceptions import InvalidInputError

DECIMALS = (".", ",")
"""Marks between a number and its fraction."""

THOUSANDS = (",", ".", " ", "'")
"""Marks between thousands."""


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
        Words for a missing value, in addition to the usual ones.
    sheet
        Sheet of an Excel workbook; None for the only one with cells.

    Examples
    --------
    >>> ReadOptions(decimal=",", thousands=",")
    Traceback (most recent call last):
    ...
    evenhand.exceptions.InvalidInputError: `decimal` (--decimal) and `thousands` (--thousands) cannot both be ','.
    """

    encoding: str | None = field(
        default=None, metadata={"help": "Encoding of a CSV file, such as cp1252 or utf-16; UTF-8 by default."}
    )
    decimal: str | None = field(
        default=None,
        metadata={"help": "Decimal mark of numbers written as text, . or ,; by default inferred from the file."},
    )
    thousands: str | None = field(
        default=None, metadata={"help": "Thousands separator of numbers written as text: , . ' or a space."}
    )
    missing: tuple[str, ...] = field(
        default=(), metadata={"help": "Words for a missing value, in addition to NA, #N/A, a dot and the like: a,b."}
    )
    sheet: str | None = field(default=None, metadata={"help": "Sheet of an Excel file, if several have cells."})

    def __post_init__(self) -> None:
        for name, known in (("decimal", DECIMALS), ("thousands", THOUSANDS)):
            value = getattr(self, name)
            if value is not None and value not in known:
                raise InvalidInputError(f"`{name}` (--{name}) must be one of {list(known)}, got {value!r}.")
        if self.decimal is not None and self.decimal == self.thousands:
            raise InvalidInputError(
                f"`decimal` (--decimal) and `thousands` (--thousands) cannot both be {self.decimal!r}."
            )
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
