"""Parquet files, folders of them, Arrow (Feather) files, and streams of record batches, stored as Parquet."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import ipc

from evenhand.exceptions import DataFileError, InvalidTypeError
from evenhand.inputs.identity import hash_rows
from evenhand.inputs.tables.columns import drift, usable_type
from evenhand.inputs.tables.raw import (
    DataFile,
    LocalFile,
    LocalTable,
    RawTable,
    check_names,
    fingerprint_files,
    reading,
)
from evenhand.system.files import PrivateFolder, write_atomically
from evenhand.system.threads import in_order

_WHOLE = re.compile(r"0|-?[1-9][0-9]{0,17}")


def partition_values(paths: Sequence[str], where: str) -> tuple[pa.Schema, tuple[Mapping[str, object], ...]]:
    """Names and types of the columns given by the names of folders, and the values of each file.

    A column has whole numbers if every value is one in the usual notation; otherwise, as with codes such as 01, it is
    text. Hive's mark for a missing value is recognized.

    Parameters
    ----------
    paths
        Paths of files, below the folder of the table, with forward slashes.
    where
        Name of the table, for messages.

    Raises
    ------
    DataFileError
        If the folders of two files name different columns.

    Examples
    --------
    >>> schema, values = partition_values(["year=2024/state=01/a.parquet", "year=2025/state=12/b.parquet"], "'loans'")
    >>> dict(zip(schema.names, map(str, schema.types), strict=True)), values[0]["year"], values[0]["state"]
    ({'year': 'int64', 'state': 'string'}, 2024, '01')
    """
    folders = [[part for part in path.split("/")[:-1] if "=" in part] for path in paths]
    names = [tuple(part.partition("=")[0] for part in parts) for parts in folders]
    other = next((place for place, columns in enumerate(names) if columns != names[0]), None)
    if other is not None:
        raise DataFileError(
            f"{where} has files in folders that name different columns: {paths[0]!r} {list(names[0])}, "
            f"{paths[other]!r} {list(names[other])}; all files must be in folders with the same names."
        )

    def values_as(kinds: Mapping[str, pa.DataType]) -> tuple[Mapping[str, object], ...]:
        hive = ds.HivePartitioning(pa.schema(list(kinds.items())))
        return tuple(ds.get_partition_keys(hive.parse("/".join([*parts, ""]))) for parts in folders)

    kinds = dict.fromkeys(names[0] if names else (), pa.string())
    texts = values_as(kinds)
    for name in kinds:
        given = [str(values[name]) for values in texts if values.get(name) is not None]
        if given and all(map(_WHOLE.fullmatch, given)):
            kinds[name] = pa.int64()
    return pa.schema(list(kinds.items())), values_as(kinds)


_ROWS = 1 << 17
_REQUESTS = 16  # simultaneous requests to a store, which mostly wait
_NOT_DATA = (".", "_")  # prefixes of names that writers leave next to the data


@dataclass(frozen=True)
class ParquetFile:
    """A Parquet file and the columns given by the names of its folders.

    Attributes
    ----------
    file
        The file.
    partition
        Names and types of the columns given by the names of folders.
    values
        Values of these columns.
    known_sizes
        Rows of each row group; None if they have not been read yet.
    """

    file: DataFile
    partition: pa.Schema = field(default_factory=lambda: pa.schema([]), repr=False)
    values: Mapping[str, object] = field(default_factory=dict)
    known_sizes: tuple[int, ...] | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """Name shown to users."""
        return self.file.name

    def absolute(self) -> ParquetFile:
        """The same file for a process in a different folder."""
        return replace(self, file=self.file.absolute())

    def footer(self) -> tuple[pa.Schema, tuple[int, ...]]:
        """Names and types of all columns, and the rows of each row group."""
        with reading(repr(self.name)), self.file.open() as source, pq.ParquetFile(source) as parquet:
            own, footer = parquet.schema_arrow, parquet.metadata
            sizes = tuple(footer.row_group(k).num_rows for k in range(footer.num_row_groups))
        return pa.schema([*own, *(column for column in self.partition if column.name not in own.names)]), sizes

    @property
    def row_group_sizes(self) -> tuple[int, ...]:
        """Rows of each row group."""
        return self.footer()[1] if self.known_sizes is None else self.known_sizes

    def read_groups(self, row_groups: Sequence[int], columns: Sequence[str]) -> pa.Table:
        """Some columns of whole row groups."""
        with self._opened(columns) as (parquet, own):
            return self._with_partition(
                parquet.read_row_groups(list(row_groups), columns=own, use_threads=False), columns
            )

    def pieces(
        self, columns: Sequence[str], row_groups: Sequence[int] | None = None, rows: int = _ROWS
    ) -> Iterator[pa.Table]:
        """Some columns of all rows, or of some row groups, in parts."""
        with self._opened(columns) as (parquet, own):
            groups = range(parquet.metadata.num_row_groups) if row_groups is None else row_groups
            for batch in parquet.iter_batches(rows, row_groups=list(groups), columns=own, use_threads=False):
                yield self._with_partition(pa.Table.from_batches([batch]), columns)

    @contextmanager
    def _opened(self, columns: Sequence[str]) -> Iterator[tuple[Any, list[str]]]:
        """The file, and which columns it holds itself; any one column, to count rows, if it holds none."""
        with self.file.open() as source, pq.ParquetFile(source, pre_buffer=not self.file.is_near) as parquet:
            names = parquet.schema_arrow.names
            yield parquet, [name for name in columns if name in names] or names[:1]

    def _with_partition(self, table: pa.Table, columns: Sequence[str]) -> pa.Table:
        """Columns of a part of the file; columns it does not hold come from the names of its folders."""

        def column(name: str) -> pa.ChunkedArray:
            if name in table.column_names:
                return table.column(name)
            value = pa.scalar(self.values.get(name), self.partition.field(name).type)
            return pa.chunked_array([pa.repeat(value, len(table))])

        return pa.table({name: column(name) for name in columns})


@dataclass(frozen=True)
class ParquetFiles(RawTable):
    """Parquet files with the same columns.

    Attributes
    ----------
    name
        The name given by the user.
    files
        The files, sorted by name.
    schema
        Schema of the first file.
    version
        Version of the table that was stored in them; empty for plain files.
    content
        SHA-256 of that table; empty if the files are the table.
    """

    name: str
    files: tuple[ParquetFile, ...]
    schema: pa.Schema
    version: str = ""
    content: str = ""

    @classmethod
    def of(cls, name: str, files: Sequence[DataFile], paths: Sequence[str]) -> ParquetFiles:
        """The table that consists of some files.

        Parameters
        ----------
        name
            Name of the table.
        files
            In order.
        paths
            Paths of the files, below the folder of the table: the names of folders may hold columns.

        Raises
        ------
        DataFileError
            If a file cannot be read, or its columns differ from those of the first.
        """
        partition, values = partition_values(paths, repr(name))
        parts = [ParquetFile(file, partition, of_file) for file, of_file in zip(files, values, strict=True)]
        n_threads = 1 if all(file.is_near for file in files) else _REQUESTS
        footers = list(in_order(ParquetFile.footer, parts, n_threads))
        expected = footers[0][0]
        for part, (schema, _) in zip(parts, footers, strict=True):
            check_names(schema.names, part.name)
            if differences := drift(expected, schema):
                raise DataFileError(
                    f"{part.name!r} has different columns from {parts[0].name!r}: {differences}; all files must have "
                    "the same columns."
                )
        sized = (replace(part, known_sizes=sizes) for part, (_, sizes) in zip(parts, footers, strict=True))
        return cls(name, tuple(sized), expected)

    @classmethod
    def at(cls, file: LocalFile) -> ParquetFiles:
        """Open a local file or folder.

        Raises
        ------
        DataFileError
            If there is no file, one cannot be read, or its columns differ from those of the first.
        """
        if not file.path.is_dir():
            return cls.of(file.name, [file], [file.path.name])
        below = (path.relative_to(file.path).as_posix() for path in file.path.rglob("*.parquet"))
        paths = parquet_below(below, file.name)
        return cls.of(file.name, [LocalFile.at(file.path / path) for path in paths], paths)

    def pieces(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        for file in self.files:
            with reading(repr(file.name)):
                yield from file.pieces(columns)

    def fingerprint(self) -> str:
        """SHA-256 of the table or of the files: of their bytes, or of their versions in the store."""
        return self.content or fingerprint_files([part.file for part in self.files])


class ArrowFile(LocalTable):
    """An Arrow file, also called Feather.

    Raises
    ------
    DataFileError
        If it cannot be read.
    """

    def __init__(self, file: LocalFile) -> None:
        super().__init__(file)
        with reading(self.where), file.open() as source:
            self.schema = ipc.open_file(source).schema
        check_names(self.schema.names, self.name)

    def pieces(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        with reading(self.where), self.file.open() as source:
            file = ipc.open_file(source)
            for place in range(file.num_record_batches):
                batch = file.get_batch(place)
                batch.validate(full=True)  # which reading leaves to whoever does not trust a file
                yield pa.Table.from_batches([batch]).select(list(columns))


def parquet_below(paths: Iterable[str], name: str) -> list[str]:
    """The data files below a folder, sorted by name.

    Raises
    ------
    DataFileError
        If there are none.
    """

    def is_data(path: str) -> bool:
        *folders, file = path.split("/")
        is_hidden = any(folder.startswith(_NOT_DATA) and "=" not in folder for folder in folders)
        return path.endswith(".parquet") and not is_hidden and not file.startswith(_NOT_DATA)

    kept = sorted(filter(is_data, paths), key=lambda path: path.split("/"))
    if not kept:
        raise DataFileError(f"The folder {name!r} has no Parquet files.")
    return kept


@dataclass(frozen=True)
class StreamedTable:
    """A table that is read from start to end.

    Attributes
    ----------
    name
        Name shown to users, without secrets.
    batches
        Opens it: returns a `pyarrow.RecordBatchReader`.
    version
        Description of the version; empty if there are no versions.
    identity
        Unique identifier of the version; empty if only the rows identify it.
    """

    name: str
    batches: Callable[[], Any]
    version: str = ""
    identity: str = ""


def streamed(source: Any) -> StreamedTable:
    """The table that an object provides: a reader of record batches, or anything with `__arrow_c_stream__`.

    Raises
    ------
    InvalidTypeError
        If the object does not provide Arrow data.

    Examples
    --------
    >>> streamed(pa.table({"income": [1, 2]})).name
    'the given Table'
    >>> streamed(7)
    Traceback (most recent call last):
    evenhand.exceptions.InvalidTypeError: A table must be a path, an address, or an object that provides Arrow data ...
    """
    if isinstance(source, StreamedTable):
        return source
    name = f"the given {type(source).__name__}"
    if isinstance(source, pd.DataFrame):  # the index is not a column
        return StreamedTable(name, lambda: pa.Table.from_pandas(source, preserve_index=False).to_reader(_ROWS))
    if not hasattr(source, "__arrow_c_stream__"):
        raise InvalidTypeError(
            "A table must be a path, an address, or an object that provides Arrow data (a RecordBatchReader, a DuckDB "
            f"relation, a pandas, polars or pyarrow table), got {type(source).__name__}."
        )
    return StreamedTable(name, lambda: pa.RecordBatchReader.from_stream(source))


def stored_rows(source: Any, folder: Path | None) -> ParquetFiles:
    """The table that an object provides, which is read once, or not at all if the folder holds this version of it."""
    table = streamed(source)
    return stored(table.name, folder, partial(rows_written, table))


def stored(name: str, folder: Path | None, write: Callable[[Path], tuple[Path, str, str]]) -> ParquetFiles:
    """A table that a function writes to a folder, or to a private one that is kept as long as the table is.

    The function returns the path of a Parquet file, the SHA-256 of its rows, and the version of the table.
    """
    private = PrivateFolder()
    path, content, version = write(private.path if folder is None else folder)
    file = LocalFile(path, name, folder=private if folder is None else None)
    return replace(ParquetFiles.of(name, [file], [path.name]), version=version, content=content)


def rows_written(table: StreamedTable, folder: Path) -> tuple[Path, str, str]:
    """Write a table to a Parquet file in a folder, unless the folder has this version; its path, SHA-256 and version.

    Raises
    ------
    DataFileError
        If the table cannot be read.
    """
    content = hashlib.sha256(table.identity.encode()).hexdigest() if table.identity else ""

    def path() -> Path:
        return folder / f"rows-{content[:16]}.parquet"

    if not content or not path().exists():
        unnamed = folder / "rows.parquet"
        with reading(repr(table.name)), write_atomically(unnamed) as temporary:
            digest = _write(table, temporary)
        content = content or digest
        unnamed.replace(path())
    return path(), content, table.version


def _write(table: StreamedTable, out: Path) -> str:
    """Write all rows to a Parquet file; return the SHA-256 of names and values, whatever the batches."""
    with table.batches() as reader:
        schema = reader.schema
        check_names(schema.names, table.name)
        usable = [field.name for field in schema if usable_type(field.type) is not None]
        digest = hashlib.sha256(repr(schema.names).encode())
        with pq.ParquetWriter(out, schema) as writer:
            for piece in _gathered(reader):
                digest.update(hash_rows(piece.select(usable).to_pandas(use_threads=False)).tobytes())
                writer.write_table(piece, row_group_size=_ROWS)
    return digest.hexdigest()


def _gathered(reader: Any) -> Iterator[pa.Table]:
    """The rows of a reader in parts of the usual size."""
    held: list[Any] = []
    n_held = 0
    for batch in reader:
        held.append(batch)
        n_held += len(batch)
        if n_held >= _ROWS:
            yield pa.Table.from_batches(held)
            held, n_held = [], 0
    if held:
        yield pa.Table.from_batches(held)
