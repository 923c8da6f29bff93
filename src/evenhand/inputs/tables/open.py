"""Tables of applicants from all kinds of files, read in the same way in memory and in batches."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
from pyarrow.fs import FileSystem

from evenhand.exceptions import DataFileError, warn_caller
from evenhand.inputs.identity import fingerprint_file
from evenhand.inputs.read_options import ReadOptions
from evenhand.inputs.tables.arrow import ArrowFile, ParquetFiles, parquet_below, stored_rows
from evenhand.inputs.tables.columns import TypedColumns
from evenhand.inputs.tables.csv_files import CsvFile
from evenhand.inputs.tables.lakes import LakeName, lake_table
from evenhand.inputs.tables.raw import Address, FirstRows, LocalFile, RawTable, shown
from evenhand.inputs.tables.remote import Store, WebFile, downloaded
from evenhand.inputs.tables.spreadsheets import READERS, ConvertedFile

_OPENERS: dict[str, Callable[[LocalFile, ReadOptions], RawTable]] = {
    **dict.fromkeys((".csv", ".csv.gz"), CsvFile),
    ".parquet": lambda file, _: ParquetFiles.at(file),
    **dict.fromkeys((".arrow", ".feather"), lambda file, _: ArrowFile(file)),
    **dict.fromkeys((".xlsx", ".xlsm", ".xlsb", ".xls", ".ods", *READERS), ConvertedFile),
}

ENDINGS = tuple(_OPENERS)
"""File extensions that can be read."""

_WEB = ("http", "https")


@dataclass(frozen=True)
class TypedFile:
    """Columns of a file, each with one type for all rows.

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


def open_table(source: Any, reading: ReadOptions | None = None, *, folder: Path | None = None) -> RawTable:
    """A table as stored: its columns are known, but its rows have not been read, or were stored once.

    Parameters
    ----------
    source
        As in `read_table`; or an open table.
    reading
        What the file does not specify.
    folder
        Where to store rows that can be read only once; None for a private folder.

    Raises
    ------
    DataFileError
        If it is missing, of an unknown kind, or its columns cannot be read.
    MissingExtraError
        If a required library is not installed.
    """
    if isinstance(source, RawTable):
        return source
    if not isinstance(source, (str, os.PathLike)):
        return stored_rows(source, folder)
    options = reading or ReadOptions()
    table = _named_table(os.fspath(source), options, folder)
    return table if options.rows is None else FirstRows(table, options.rows)


def _named_table(text: str, options: ReadOptions, folder: Path | None) -> RawTable:
    """The table at a path or an address."""
    place = _place(text)
    if isinstance(place, LakeName):
        return lake_table(place, folder)
    if isinstance(place, Address):
        return _from_web(place, options) if place.scheme in _WEB else _from_store(Store.at(place), options)
    file = LocalFile.at(place)
    if place.is_dir():
        return ParquetFiles.at(file)
    if not place.is_file():
        raise DataFileError(f"There is no file {file.where}.")
    return _opener(place.name, file.name)(file, options)


def is_folder(source: str | os.PathLike[str]) -> bool:
    """Whether a path or an address is a folder of files, and not a Delta table.

    Raises
    ------
    DataFileError
        If nothing is at an address.
    """
    place = _place(os.fspath(source))
    if isinstance(place, Address):
        return place.scheme not in _WEB and Store.at(place).is_folder
    return isinstance(place, Path) and place.is_dir()


def is_near(source: str | os.PathLike[str]) -> bool:
    """Whether a text is the path of local files that can be read directly.

    Examples
    --------
    >>> is_near("loans.csv"), is_near("s3://bank/loans.csv"), is_near("delta:loans")
    (True, False, False)
    """
    text = os.fspath(source)
    return Address.of(text) is None and isinstance(_place(text), Path)


def _place(text: str) -> LakeName | Address | Path:
    """What a text names: a Delta or Iceberg table, an address, or a local path, possibly given as file://.

    The folder of a Delta table is that table. Its files alone are not: they include deleted rows.
    """
    address = Address.of(text)
    if address is None and Path(text, "_delta_log").is_dir():
        return LakeName("delta", text)
    other = LakeName.of(text) or address or Path(text)
    return Path(FileSystem.from_uri(text)[1]) if isinstance(other, Address) and other.scheme == "file" else other


def _from_store(store: Store, options: ReadOptions) -> RawTable:
    """A table in a store: Parquet is read in place, everything else is copied."""
    name = store.address.name
    if store.is_folder:
        files = {file.below: file for file in store.files()}
        if any(path.startswith("_delta_log/") for path in files):
            raise DataFileError(f"{name!r} is a Delta table, not a folder of files: write delta:{name}.")
        paths = parquet_below(files, name)
        return ParquetFiles.of(name, [files[path] for path in paths], paths)
    opener = _opener(store.path, name)
    if store.path.lower().endswith(".parquet"):
        return ParquetFiles.of(name, [store], [store.path.rpartition("/")[2]])
    return opener(store.copied(), options)


def _from_web(address: Address, options: ReadOptions) -> RawTable:
    """A file on a web server: Parquet is read in place if the server supports ranges, everything else is downloaded."""
    opener = _opener(address.last_part, address.name)
    file = WebFile.at(address) if address.last_part.lower().endswith(".parquet") else None
    if file is not None:
        return ParquetFiles.of(address.name, [file], [address.last_part])
    return opener(downloaded(address), options)


def _opener(file: str, name: str) -> Callable[[LocalFile, ReadOptions], RawTable]:
    """The function that opens a file, by its extension."""
    ending = next((ending for ending in ENDINGS if file.lower().endswith(ending)), None)
    if ending is None:
        raise DataFileError(
            f"{name!r} must be one of {', '.join(ENDINGS)}, or a folder of .parquet files; the extension says how to "
            "read it."
        )
    return _OPENERS[ending]


def typed(raw: RawTable, columns: Sequence[str], reading: ReadOptions | None = None) -> TypedFile:
    """Columns of a file in types that fit all rows.

    Raises
    ------
    DataFileError
        If the rows cannot be read, or a column is invalid or ambiguous.
    """
    return TypedFile(raw, TypedColumns.of(raw, columns, reading or ReadOptions()))


def read_table(path: Any, reading: ReadOptions | None = None) -> pd.DataFrame:
    r"""Read a table from a file, a store, a web server, or any object that provides Arrow data.

    Parameters
    ----------
    path
        A CSV (plain or gzip), Parquet, Arrow, Excel, OpenDocument, SAS, Stata or SPSS file; or a folder of Parquet
        files, with columns in the names of its folders (``year=2024``). It is local or at an address (``s3://``,
        ``gs://``, ``abfss://``, ``https://``, ``file://``). Or a Delta table (``delta:loans@12``), an Iceberg table
        (``iceberg:lending/bank.loans``), a pyarrow `RecordBatchReader`, or any object with `__arrow_c_stream__`, such
        as a DuckDB relation.
    reading
        What the file does not specify.

    Raises
    ------
    DataFileError
        If the file is missing, of an unknown kind, unreadable or empty.
    MissingExtraError
        If a required library is not installed.

    Warns
    -----
    EvenhandWarning
        What was converted, such as '$89,000' to a number, and what was left out.

    Examples
    --------
    >>> import tempfile
    >>> file = Path(tempfile.mkdtemp()) / "people.csv"
    >>> _ = file.write_text("income;rate;sex\n1.234,5;3,5;f\n.;4,0;m\n")
    >>> import warnings
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
        warn_caller(note)
    return table


def fingerprint_input(given: Any) -> str:
    """SHA-256 of a table or a model that was read: of its bytes if it is local, otherwise of rows or versions."""
    if isinstance(given, (str, os.PathLike)) and is_near(given):
        path = Path(given)
        if not path.is_dir() or not any(path.rglob("*.parquet")):
            return fingerprint_file(path)
    return open_table(given).fingerprint()


def name_of_input(given: Any) -> str:
    """The last part of the path or address of a table.

    Examples
    --------
    >>> name_of_input("s3://KEY:SECRET@bank/loans/2024.parquet?region=eu-west-1"), name_of_input("loans/2024.csv")
    ('2024.parquet', '2024.csv')
    """
    name: str = os.fspath(given) if isinstance(given, (str, os.PathLike)) else given.name
    if is_near(name):
        last = Path(name).name
        return last if last not in ("", "..") else Path(name).resolve().name
    name = shown(name)
    return name.partition("?")[0].rstrip("/").rpartition("/")[2] or name
