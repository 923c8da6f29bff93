"""People in files of every kind, read a batch at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from evenhand.arrays import Ints, person_hash
from evenhand.exceptions import DataFileError, InvalidInputError
from evenhand.inputs.people import Columns
from evenhand.inputs.tables import TypedFile
from evenhand.inputs.tables.arrow import ParquetFile, ParquetFiles
from evenhand.inputs.tables.columns import TypedColumns
from evenhand.inputs.tables.raw import LocalFile, reading
from evenhand.inputs.validation import check_group_names
from evenhand.system.files import write_atomically
from evenhand.system.threads import in_order, n_cores

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
    """

    number: int
    first_row: int
    n_rows: int
    file: int
    row_groups: tuple[int, ...]
    skip: int


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
    batches, batch_rows
        The batches, in row order, and their largest number of rows.
    """

    name: str
    files: tuple[ParquetFile, ...]
    columns: TypedColumns
    batches: tuple[Batch, ...]
    batch_rows: int

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
            if batch.n_rows == sum(file.row_group_sizes[group] for group in batch.row_groups):
                return self.columns.read(file.read_groups(batch.row_groups, columns), columns)
            # A part of a row group: preceding rows are decoded and dropped piece by piece.
            kept: list[pa.Table] = []
            seen, last = 0, batch.skip + batch.n_rows
            for piece in file.pieces(columns, batch.row_groups, min(batch.n_rows, 1 << 16)):
                start, stop = max(batch.skip - seen, 0), min(last - seen, len(piece))
                if start < stop:
                    kept.append(piece.slice(start, stop - start))
                seen += len(piece)
                if seen >= last:
                    break
            return self.columns.read(pa.concat_tables(kept), columns)


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
        if not spool.exists():
            with write_atomically(spool) as temporary:
                _write(file, temporary, batch_rows or _MOST_ROWS)
        whole = ParquetFile(LocalFile(spool, file.raw.name))
        files, columns = (replace(whole, known_sizes=whole.row_group_sizes),), file.columns.written
    batches: list[Batch] = []
    first_row, most = 0, rows_in_batch(sum(sum(part.row_group_sizes) for part in files), batch_rows)
    for place, part in enumerate(files):
        for groups, skip, n in _cuts(part.row_group_sizes, most):
            batches.append(Batch(len(batches), first_row, n, place, groups, skip))
            first_row += n
    if not batches:
        raise DataFileError(f"{file.raw.where} has no rows.")
    return Source(file.raw.name, files, columns, tuple(batches), most)


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


_LEAST_OF_CELL = 500
_ROWS_AT_ONCE = 1 << 20


def sample_reference(source: Source, columns: Columns, n_people: int, seed: int) -> tuple[Ints, str]:
    """Choose the people whom all others are matched with and explained from: their rows, ascending, and how, in words.

    Everyone, if there are no more than `n_people`. Otherwise the people with the lowest hashes of their row numbers,
    and at least 500 of each label and group, or all if there are fewer.

    Raises
    ------
    InvalidInputError
        If only one group or one label is in the source, or `n_people` is below 2.
    """
    if n_people < 2:
        raise InvalidInputError(f"`reference_people` must be at least 2, got {n_people}.")
    roles = ("label", "group", "positive_label", "drop_missing", "groups", "bands")
    only = Columns(features=(), **{role: getattr(columns, role) for role in roles})
    lowest = np.zeros(0, dtype=np.int64)
    cells: dict[tuple[int, str], Ints] = {}
    counts: Counter[str] = Counter()
    n_usable = 0
    for batch in source.batches:
        people = only.people_of(source.read(batch, only.needed), source.where(batch))
        row = people.kept + batch.first_row
        n_usable += len(row)
        lowest = _lowest(np.concatenate([lowest, row]), n_people, seed)
        if not len(people):
            continue
        counts.update(people.groups.counts)
        check_group_names(counts, " & ".join(columns.group))
        for label in (0, 1):
            for code, name in enumerate(people.groups.names):
                chosen = (people.labels == label) & (people.groups.codes == code)
                if chosen.any():
                    both = np.concatenate([cells.get((label, name), row[:0]), row[chosen]])
                    cells[label, name] = _lowest(both, _LEAST_OF_CELL, seed)
    groups, labels = sorted({group for _, group in cells}), sorted({label for label, _ in cells})
    if len(groups) < 2:
        raise InvalidInputError(
            f"{source.name!r} holds only the group{'s' if not groups else ''} {groups}; at least two groups are "
            "needed to compare."
        )
    if labels == [0] and columns.positive_label is not None:
        raise InvalidInputError(
            f"--positive-label {columns.positive_label!r} is not a value of the label of {source.name!r}."
        )
    if columns.label and len(labels) < 2:
        raise InvalidInputError(f"{source.name!r} holds only the label {labels[0]}; both 0 and 1 are needed.")
    if n_usable <= n_people:
        return np.sort(lowest), "all people of the source"
    rows = np.unique(np.concatenate([lowest, *cells.values()]))
    return rows, (
        f"{len(rows):,} of {n_usable:,} people of the source, at random (seed {seed}): the {n_people:,} with the "
        f"lowest hashes of their row numbers, and at least {_LEAST_OF_CELL} of each label and group, if available"
    )


def lowest_rows(n_rows: int, n_wanted: int, seed: int) -> Ints:
    """Row numbers with the lowest hashes, ascending."""
    lowest = np.zeros(0, dtype=np.int64)
    for first in range(0, n_rows, _ROWS_AT_ONCE):
        rows = np.arange(first, min(n_rows, first + _ROWS_AT_ONCE))
        lowest = _lowest(np.concatenate([lowest, rows]), n_wanted, seed)
    return np.sort(lowest)


def hash_limit(n_rows: int, n_wanted: int, seed: int) -> int | None:
    """The hash up to which people are taken to get the wanted number; None for all."""
    return None if n_wanted >= n_rows else int(person_hash(lowest_rows(n_rows, n_wanted, seed), seed).max())


def read_rows(source: Source, rows: Ints, columns: list[str]) -> pa.Table:
    """Some rows of a source, in order."""
    ends = [(batch.first_row, batch.first_row + batch.n_rows) for batch in source.batches]
    places = np.searchsorted(rows, ends).tolist()
    asked = [(batch, rows[slice(*place)]) for batch, place in zip(source.batches, places, strict=True)]

    def read(item: tuple[Batch, Ints]) -> pa.Table:
        batch, wanted = item
        return source.read(batch, columns).take(pa.array(wanted - batch.first_row))

    parts = list(in_order(read, [item for item in asked if len(item[1])], n_cores()))
    return pa.concat_tables(parts, promote_options="permissive").combine_chunks()


def _lowest(rows: Ints, n_wanted: int, seed: int) -> Ints:
    """The rows with the lowest hashes, in any order."""
    if len(rows) <= n_wanted:
        return rows
    return rows[np.argpartition(person_hash(rows, seed), n_wanted - 1)[:n_wanted]]
