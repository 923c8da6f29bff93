"""What every kind of file provides: names, types, and rows, piece by piece, any number of times."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Protocol

import pyarrow as pa

from evenhand.exceptions import DataFileError, EvenhandError, first_line

__all__ = ["RawTable", "check_names", "header_row", "named", "reading"]


class RawTable(Protocol):
    """A table as stored in a file."""

    @property
    def name(self) -> str:
        """Name shown to users, without secrets."""

    @property
    def version(self) -> str:
        """Description of the version that was read; empty if there are no versions."""

    @property
    def schema(self) -> pa.Schema:
        """Names and types of the columns; text if the file has no types."""

    @property
    def is_declared(self) -> bool:
        """Whether the file has types, so that text is meant to be text."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out, in sentences; complete after all pieces were read."""

    @property
    def where(self) -> str:
        """Name of the file, for messages."""

    def pieces(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Some columns of all rows, in order."""

    def fingerprint(self) -> str:
        """SHA-256 of the content, or of its version in a store."""


def check_names(names: Sequence[str], name: str) -> None:
    """Reject a file with a repeated or invalid column name.

    Raises
    ------
    DataFileError
        If there is one.
    """
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise DataFileError(f"{name!r} has more than one column named {twice}; give each a unique name.")


def header_row(rows: Sequence[Sequence[str]]) -> int:
    """The first row that names columns; title lines above it have only one cell.

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
    """Names of columns; one without a name is named by its place, as in pandas.

    Examples
    --------
    >>> named(["", "income"])
    ['Unnamed: 0', 'income']
    """
    return [name if name.strip() else f"Unnamed: {place}" for place, name in enumerate(header)]


@contextmanager
def reading(where: str) -> Iterator[None]:
    """Turn any error of a reader into a sentence with the file's name; operating system errors pass unchanged."""
    try:
        yield
    except EvenhandError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno is not None and not isinstance(error, pa.ArrowException):
            raise
        raise DataFileError(f"{where} cannot be read: {first_line(error)}.") from error
