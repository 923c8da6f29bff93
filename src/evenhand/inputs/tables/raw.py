"""What every kind of file gives: names, types as they are written, and rows, piece by piece, as often as asked."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import pyarrow as pa

from evenhand.exceptions import DataFileError, EvenhandError, first_line

__all__ = ["RawTable", "check_names", "header_row", "named", "reading"]


class RawTable(Protocol):
    """A table as it is written in a file."""

    @property
    def name(self) -> str:
        """What users call it, without secrets."""

    @property
    def version(self) -> str:
        """Which version of a table was read, in words; empty where there are none."""

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns; a type is text wherever the file has none."""

    @property
    def is_declared(self) -> bool:
        """Whether the file says which type a column has, so that text is meant to be text."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out, in sentences; complete once all pieces were read."""

    @property
    def where(self) -> str:
        """The file, for messages."""

    def pieces(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Some columns of all rows, in order."""

    def fingerprint(self) -> str:
        """SHA-256 of the content, or of what a store says of its version."""


def check_names(names: Sequence[str], name: str) -> None:
    """Refuse a file in which two columns have one name, or a name cannot be written.

    Raises
    ------
    DataFileError
        If there is one.
    """
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise DataFileError(f"{name!r} has more than one column with the name {twice}; give each its own.")


def header_row(rows: Sequence[Sequence[str]]) -> int:
    """The first row that names columns: title lines, with nothing beyond their first cell, stand above it.

    Examples
    --------
    >>> header_row([["Loans of 2024", "", ""], [], ["income", "sex", "paid"], ["1", "f", "1"]])
    2
    >>> header_row([["only"], ["1"], ["2"]])
    0
    """
    for place, row in enumerate(rows):
        if any(cell.strip() for cell in row[1:]):
            return place
    return next((place for place, row in enumerate(rows) if any(cell.strip() for cell in row)), 0)


def named(header: Sequence[str]) -> list[str]:
    """Names of columns; one without a name is called by its place, as pandas does.

    Examples
    --------
    >>> named(["", "income"])
    ['Unnamed: 0', 'income']
    """
    return [name if name.strip() else f"Unnamed: {place}" for place, name in enumerate(header)]


@contextmanager
def reading(where: str) -> Iterator[None]:
    """Turn whatever a reader raises into a sentence with the file's name; what the system refuses passes as it is."""
    try:
        yield
    except EvenhandError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None and not isinstance(error, pa.ArrowException):
            raise
        raise DataFileError(f"{where} cannot be read: {first_line(error)}.") from error
