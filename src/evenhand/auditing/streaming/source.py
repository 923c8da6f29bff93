"""People in files of every kind, read a batch at a time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from evenhand.exceptions import DataFileError
from evenhand.inputs.tables import TypedFile
from evenhand.inputs.tables.arrow_files import ParquetFile, ParquetFiles
from evenhand.inputs.tables.data_files import LocalFile
from evenhand.inputs.tables.raw import reading
from evenhand.inputs.tables.typed_columns import TypedColumns
from evenhand.system.files import write_atomically

__all__ = ["GPU_ROWS", "Batch", "Source", "open_source", "rows_in_batch"]

GPU_ROWS = 50_000
"""Rows of a batch on a GPU: each batch costs CPU time that does not shrink with its rows."""

_BATCHES, _FEWEST_ROWS, _MOST_ROWS = 128, 5_000, 25_000  # keeps many cores busy until shortly before the end


@dataclass(frozen=True)
class Batch:
    """Consecutive rows of one file.

    Attributes
    ----------
    number, first_row, n_rows
        Place among the batches, and which rows of the source they are.
    file
        Place of the file among the files of the source.
    row_groups
        Row groups of the file that hold them.
    skip
        Rows of those groups before the first.
    is_whole
        Whether they are all rows of those groups.
    """

    number: int
    first_row: int
    n_rows: int
    file: int
    row_groups: tuple[int, ...]
    skip: int
    is_whole: bool


@dataclass(frozen=True)
class Source:
    """Files of people with the same columns, and how they are split into batches.

    Attributes
    ----------
    name
        The name given by the user, without secrets.
    files
        Parquet files sorted by name.
    columns
        How the columns of these files are read.
    batches
        The batches, in row order.
    """

    name: str
    files: tuple[ParquetFile, ...]
    columns: TypedColumns
    batches: tuple[Batch, ...]

    @property
    def n_rows(self) -> int:
        """Number of people."""
        return sum(batch.n_rows for batch in self.batches)

    def where(self, batch: Batch) -> str:
        """The file that the user has, and the batch, for messages."""
        name = self.name if len(self.files) == 1 else self.files[batch.file].name
        return f"{name!r} (batch {batch.number})"

    def read(self, batch: Batch, columns: Sequence[str]) -> pa.Table:
        """Columns of a batch.

        Raises
        ------
        DataFileError
            If the rows cannot be read.
        """
        file = self.files[batch.file]
        with reading(self.where(batch)):
            if batch.is_whole:
                table = file.read_groups(batch.row_groups, columns)
            else:
                table = pa.concat_tables(_slice_of(file, batch, columns))
            return self.columns.read(table, columns)


def open_source(file: TypedFile, batch_rows: int | None, spool: Path) -> Source:
    """Split the people of a file, or of a folder of files, into batches.

    Parameters
    ----------
    file
        Columns of the file.
    batch_rows
        Largest number of rows in a batch; None to choose by their number: see `rows_in_batch`.
    spool
        Parquet file to which any other kind of file is converted once, so that each batch can be read
        separately.

    Raises
    ------
    DataFileError
        If there is nothing to read.
    """
    if isinstance(file.raw, ParquetFiles):
        files, columns = file.raw.files, file.columns
    else:
        files, columns = (ParquetFile(LocalFile(spool, file.raw.name)),), file.columns.written
        if not spool.exists():
            with write_atomically(spool) as temporary:
                _write(file, temporary, batch_rows or _MOST_ROWS)
    batches: list[Batch] = []
    first_row, most = 0, rows_in_batch(sum(sum(part.row_group_sizes) for part in files), batch_rows)
    for place, part in enumerate(files):
        sizes = part.row_group_sizes
        for groups, skip, n in _cuts(sizes, most):
            is_whole = skip == 0 and n == sum(sizes[group] for group in groups)
            batches.append(Batch(len(batches), first_row, n, place, groups, skip, is_whole))
            first_row += n
    if not batches:
        raise DataFileError(f"{file.raw.where} has no rows.")
    return Source(file.raw.name, files, columns, tuple(batches))


def rows_in_batch(n_rows: int, asked: int | None) -> int:
    """Largest number of rows in a batch: as requested, or else chosen by the number of rows, the same on any machine.

    Examples
    --------
    >>> [rows_in_batch(n, None) for n in (1_000, 1_000_000, 10_000_000)], rows_in_batch(1_000, 100)
    ([5000, 7813, 25000], 100)
    """
    return asked or min(max(-(-n_rows // _BATCHES), _FEWEST_ROWS), _MOST_ROWS)


def _write(file: TypedFile, out: Path, batch_rows: int) -> None:
    """Write typed rows as Parquet, with one row group per batch."""
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


def _cuts(sizes: Sequence[int], batch_rows: int) -> Iterator[tuple[tuple[int, ...], int, int]]:
    """Row groups, rows to skip and number of rows of each batch; small row groups are joined, large ones split."""
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


def _slice_of(file: ParquetFile, batch: Batch, columns: Sequence[str]) -> Iterator[pa.Table]:
    """The rows of a batch that is a part of its row group; preceding rows are decoded and dropped piece by piece."""
    first, last, seen = batch.skip, batch.skip + batch.n_rows, 0
    for piece in file.pieces(columns, batch.row_groups, min(batch.n_rows, 1 << 16)):
        start, stop = max(first - seen, 0), min(last - seen, len(piece))
        if start < stop:
            yield piece.slice(start, stop - start)
        seen += len(piece)
        if seen >= last:
            return
