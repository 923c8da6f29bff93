"""Tables of applicants from files of every kind: one reading, in memory and in batches."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pandas as pd
import pyarrow as pa

from evenhand.exceptions import DataFileError, EvenhandWarning
from evenhand.inputs.read_options import ReadOptions
from evenhand.inputs.tables.arrow_files import ArrowFile, ParquetFiles
from evenhand.inputs.tables.csv_files import CsvFile
from evenhand.inputs.tables.raw import RawTable
from evenhand.inputs.tables.statistics_files import READERS, StatisticsFile
from evenhand.inputs.tables.typed_columns import TypedColumns
from evenhand.inputs.tables.workbooks import Workbook

__all__ = ["ENDINGS", "TypedFile", "open_table", "read_table", "typed"]

_OPENERS: dict[str, Callable[[Path, ReadOptions], RawTable]] = {
    ".csv": CsvFile,
    ".csv.gz": CsvFile,
    ".parquet": lambda path, _: ParquetFiles.at(path),
    ".arrow": lambda path, _: ArrowFile.at(path),
    ".feather": lambda path, _: ArrowFile.at(path),
    **dict.fromkeys((".xlsx", ".xlsm", ".xlsb", ".xls", ".ods"), Workbook),
    **dict.fromkeys(READERS, lambda path, _: StatisticsFile(path)),
}

ENDINGS = tuple(_OPENERS)
"""Of files that are read."""


@dataclass(frozen=True)
class TypedFile:
    """Columns of a file, each in one type for all rows.

    Attributes
    ----------
    raw
        The file as it is written.
    columns
        How its columns are read.
    """

    raw: RawTable
    columns: TypedColumns

    @property
    def notes(self) -> tuple[str, ...]:
        """What was converted and left out, in sentences."""
        return self.columns.notes

    def pieces(self) -> Iterator[pa.Table]:
        """All rows, in order."""
        return map(self.columns.read, self.raw.pieces(list(self.columns.readings)))

    @cached_property
    def table(self) -> pa.Table:
        """All rows.

        Raises
        ------
        DataFileError
            If there are none.
        """
        table = pa.concat_tables([self.columns.schema.empty_table(), *self.pieces()], promote_options="permissive")
        if not len(table):
            raise DataFileError(f"{self.raw.where} has no rows.")
        return table.combine_chunks()


def open_table(path: str | os.PathLike[str], reading: ReadOptions | None = None) -> RawTable:
    """A file, or a folder of Parquet files, as it is written: its columns are named, its rows not read yet.

    Raises
    ------
    DataFileError
        If it is absent, of another kind, or its columns cannot be read.
    MissingExtraError
        If a library that reads it is not installed.
    """
    file = Path(path)
    if file.is_dir():
        return ParquetFiles.at(file)
    if not file.is_file():
        raise DataFileError(f"There is no file {str(file)!r}.")
    name = file.name.lower()
    ending = next((ending for ending in ENDINGS if name.endswith(ending)), None)
    if ending is None:
        raise DataFileError(
            f"{str(file)!r} must be one of {', '.join(ENDINGS)}, or a folder of .parquet files; the ending tells how "
            "to read it."
        )
    return _OPENERS[ending](file, reading or ReadOptions())


def typed(raw: RawTable, columns: Sequence[str], reading: ReadOptions | None = None) -> TypedFile:
    """Columns of a file in the types that all its rows allow.

    Raises
    ------
    DataFileError
        If the rows cannot be read, or a column cannot be used or can be read in two ways.
    """
    return TypedFile(raw, TypedColumns.of(raw, columns, reading or ReadOptions()))


def read_table(path: str | os.PathLike[str], reading: ReadOptions | None = None) -> pd.DataFrame:
    r"""Read a table from a file.

    Parameters
    ----------
    path
        A file of CSV (plain or gzip), Parquet, Arrow, Excel, OpenDocument, SAS, Stata or SPSS; or a folder of Parquet.
    reading
        What the file does not say of itself.

    Raises
    ------
    DataFileError
        If the file is absent, of another kind, unreadable or empty.
    MissingExtraError
        If a library that reads it is not installed.

    Warns
    -----
    EvenhandWarning
        What was converted, such as '$89,000' to a number, and what was left out.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "people.csv"
    >>> _ = file.write_text("income;rate;sex\n1.234,5;3,5;f\n.;4,0;m\n")
    >>> with warnings.catch_warnings(record=True) as said:
    ...     warnings.simplefilter("always")
    ...     print(read_table(file)["income"].tolist())
    [1234.5, nan]
    >>> print(said[0].message)
    income: 1 values like '1.234,5' were read as numbers, this one as 1234.5.
    """
    raw = open_table(path, reading)
    file = typed(raw, raw.schema.names, reading)
    table: pd.DataFrame = file.table.to_pandas()
    for note in file.notes:
        warnings.warn(note, EvenhandWarning, stacklevel=2)
    return table
