"""People in files of every kind, read a batch at a time."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from evenhand.exceptions import DataFileError
from evenhand.inputs.tables import TypedFile
from evenhand.inputs.tables.arrow_files import ParquetFiles
from evenhand.inputs.tables.raw import reading
from evenhand.inputs.tables.typed_columns import TypedColumns
from evenhand.system.files import write_atomically

__all__ = ["Batch", "Source", "fingerprint", "open_source", "rows_in_batch"]

_HASH_CHUNK = 1 << 22
_BATCHES, _FEWEST_ROWS, _MOST_ROWS = 128, 5_000, 25_000  # many cores all have work until shortly before the end


@dataclass(frozen=True)
class Batch:
    """Consecutive rows of one file.

    Attributes
    ----------
    number, first_row, n_rows
        Place among the batches, and which rows of the source they are.
    file
        Place of the file among those of the source.
    row_groups
        Row groups of the file that hold them.
    skip
        Rows of those groups before the first.
    """

    number: int
    first_row: int
    n_rows: int
    file: int
    row_groups: tuple[int, ...]
    skip: int


@dataclass(frozen=True)
class Source:
    """Files of people with the same columns, and how they are cut into batches.

    Attributes
    ----------
    path
        What the user named.
    files
        Parquet files in the order of their names.
    columns
        How the columns of these files are read.
    batches
        The batches, in row order.
    """

    path: Path
    files: tuple[Path, ...]
    columns: TypedColumns
    batches: tuple[Batch, ...]

    @property
    def n_rows(self) -> int:
        """Number of people."""
        return sum(batch.n_rows for batch in self.batches)

    def where(self, batch: Batch) -> str:
        """The file that the user has, and the batch, for messages."""
        name = self.path if self.path.is_file() else self.files[batch.file]
        return f"{str(name)!r} (batch {batch.number})"

    def read(self, batch: Batch, columns: Sequence[str]) -> pa.Table:
        """Columns of a batch.

        Raises
        ------
        DataFileError
            If the rows cannot be read.
        """
        path = self.files[batch.file]
        with reading(self.where(batch)), pq.ParquetFile(path, memory_map=True) as file:
            if batch.skip == 0 and batch.n_rows == _n_rows(file, batch.row_groups):
                table = file.read_row_groups(list(batch.row_groups), columns=list(columns), use_threads=False)
            else:
                schema = pa.schema([file.schema_arrow.field(name) for name in columns])
                table = pa.Table.from_batches(list(_slice_of(file, batch, list(columns))), schema=schema)
            return self.columns.read(table, columns)


def open_source(file: TypedFile, batch_rows: int | None, spool: Path) -> Source:
    """The people of a file, or of a folder of files, cut into batches.

    Parameters
    ----------
    file
        Columns of the file.
    batch_rows
        Most rows of a batch; None for as many as suit their number: see `rows_in_batch`.
    spool
        Parquet file in which any other kind of file is written down, unless it was, so that each batch can be read by
        itself.

    Raises
    ------
    DataFileError
        If there is nothing to read.
    """
    if isinstance(file.raw, ParquetFiles):
        files, columns = file.raw.files, file.columns
    else:
        files, columns = (spool,), file.columns.written
        if not spool.exists():
            with write_atomically(spool) as temporary:
                _write(file, temporary, batch_rows or _MOST_ROWS)
    sizes: list[list[int]] = []
    for name in files:
        with reading(repr(str(name))), pq.ParquetFile(name) as parquet:
            sizes.append([parquet.metadata.row_group(k).num_rows for k in range(parquet.metadata.num_row_groups)])
    batches: list[Batch] = []
    first_row, most = 0, rows_in_batch(sum(map(sum, sizes)), batch_rows)
    for place, of_groups in enumerate(sizes):
        for groups, skip, n in _cuts(of_groups, most):
            batches.append(Batch(len(batches), first_row, n, place, groups, skip))
            first_row += n
    if not batches:
        raise DataFileError(f"{file.raw.where} has no rows.")
    return Source(file.raw.path, files, columns, tuple(batches))


def rows_in_batch(n_rows: int, asked: int | None) -> int:
    """Most rows of a batch: what was asked for, or else what suits the number of rows, on any machine.

    Examples
    --------
    >>> [rows_in_batch(n, None) for n in (1_000, 1_000_000, 10_000_000)], rows_in_batch(1_000, 100)
    ([5000, 7813, 25000], 100)
    """
    return asked or min(max(-(-n_rows // _BATCHES), _FEWEST_ROWS), _MOST_ROWS)


def fingerprint(path: str | Path) -> str:
    """SHA-256 of the content of a file, or of the names and contents of a folder's Parquet files."""
    given = Path(path)
    digest = hashlib.sha256()
    for name in ParquetFiles.at(given).files if given.is_dir() else (given,):
        digest.update(f"{name.name}:{name.stat().st_size}:".encode())
        with name.open("rb") as file:
            while chunk := file.read(_HASH_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()


def _write(file: TypedFile, out: Path, batch_rows: int) -> None:
    """Write typed rows as Parquet, in row groups of a batch."""
    schema = file.columns.schema
    with pq.ParquetWriter(out, schema) as writer:
        held: list[pa.Table] = []
        for piece in file.pieces():
            held.append(piece.cast(schema))
            if sum(map(len, held)) >= batch_rows:
                writer.write_table(pa.concat_tables(held), row_group_size=batch_rows)
                held = []
        if held:
            writer.write_table(pa.concat_tables(held), row_group_size=batch_rows)


def _cuts(sizes: list[int], batch_rows: int) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """Row groups, rows to skip and number of rows of each batch; small row groups are joined, large ones cut."""
    held: list[int] = []
    n_held = 0
    for group, size in enumerate(sizes):
        if held and n_held + size > batch_rows:
            yield tuple(held), 0, n_held
            held, n_held = [], 0
        if size > batch_rows:
            for skip in range(0, size, batch_rows):
                yield (group,), skip, min(batch_rows, size - skip)
        elif size:
            held.append(group)
            n_held += size
    if held:
        yield tuple(held), 0, n_held


def _slice_of(file: Any, batch: Batch, columns: list[str]) -> Iterator[Any]:  # noqa: ANN401
    """The rows of a batch that is a part of its row group; what comes before is decoded and dropped piece by piece."""
    first, last, seen = batch.skip, batch.skip + batch.n_rows, 0
    pieces = file.iter_batches(
        batch_size=min(batch.n_rows, 1 << 16), row_groups=list(batch.row_groups), columns=columns, use_threads=False
    )
    for piece in pieces:
        start, stop = max(first - seen, 0), min(last - seen, len(piece))
        if start < stop:
            yield piece.slice(start, stop - start)
        seen += len(piece)
        if seen >= last:
            return


def _n_rows(file: Any, groups: tuple[int, ...]) -> int:  # noqa: ANN401
    return sum(file.metadata.row_group(k).num_rows for k in groups)
