"""What a CSV file means: one reading of it for every part that reads CSV."""

from __future__ import annotations

import csv
import gzip
from pathlib import Path

from evenhand.exceptions import DataFileError

__all__ = ["MISSING_WORDS", "check_columns_differ", "not_utf8", "separator_of"]

MISSING_WORDS = (
    "", "#N/A", "#N/A N/A", "#NA", "-1.#IND", "-1.#QNAN", "-NaN", "-nan", "1.#IND", "1.#QNAN", "<NA>", "N/A", "NA",
    "NULL", "NaN", "None", "n/a", "nan", "null",
)  # fmt: skip
"""Cells that hold no value."""

_SEPARATORS = ",;\t|"
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


def separator_of(path: Path) -> str:
    r"""What separates the columns: the comma, semicolon, tab or bar that the header has most of.

    Raises
    ------
    DataFileError
        If the file cannot be read, the header is no UTF-8, or a column name comes twice.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "people.csv"
    >>> _ = file.write_text("income;debt;paid\n1;2;1\n")
    >>> separator_of(file)
    ';'
    """
    opener = gzip.open if path.name.lower().endswith(".gz") else open
    try:
        with opener(path, "rb") as file:
            first = file.readline()
    except (OSError, EOFError) as error:
        raise DataFileError(f"{str(path)!r} cannot be read: {error}.") from error
    if first.startswith(_UTF16_MARKS):
        raise DataFileError(not_utf8(path))
    try:
        header = first.decode("utf-8-sig").rstrip("\r\n")
    except UnicodeDecodeError as error:
        raise DataFileError(not_utf8(path)) from error
    unquoted = "".join(header.split('"')[::2])
    separator = max(_SEPARATORS, key=unquoted.count)
    check_columns_differ(next(csv.reader([header], delimiter=separator), []), path)
    return separator


def check_columns_differ(names: list[str], path: Path) -> None:
    """Refuse a file in which two columns have one name.

    Raises
    ------
    DataFileError
        If a name comes twice.
    """
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise DataFileError(f"{str(path)!r} has more than one column with the name {twice}; give each its own.")


def not_utf8(path: Path, column: str | None = None) -> str:
    """What to say of a file in another encoding."""
    where = "" if column is None else f" in the column {column!r}"
    return f"{str(path)!r} is not UTF-8 text{where}; save it as UTF-8 (in a spreadsheet: 'CSV UTF-8')."
