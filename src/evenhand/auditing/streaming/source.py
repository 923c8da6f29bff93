"""People in files: Parquet, folders of Parquet and CSV, read a batch at a time."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import csv

from evenhand.exceptions import DataFileError
from evenhand.inputs.csv_files import MISSING_WORDS, check_columns_differ, not_utf8, separator_of
from evenhand.system.files import write_atomically

__all__ = ["Batch", "Source", "fingerprint", "open_source"]

_CSV_ENDINGS = (".csv", ".csv.gz")
_CSV_BLOCK = 32 << 20
_HASH_CHUNK = 1 << 22


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
    kinds
        Kind of each column in the first file: number, text, yes or no, or another.
    batches
        The batches, in row order.
    """

    path: Path
    files: tuple[Path, ...]
    kinds: dict[str, str]
    batches: tuple[Batch, ...]

    @property
    def n_rows(self) -> int:
        """Number of people."""
        return sum(batch.n_rows for batch in self.batches)

    def where(self, batch: Batch) -> str:
        """The file and the batch, for messages."""
        return f"{str(self.files[batch.file])!r} (batch {batch.number})"

    def read(self, batch: Batch, columns: Sequence[str]) -> pa.Table:
        """Columns of a batch, checked against those of the first.

        Raises
        ------
        DataFileError
            If a column is missing, added or of another kind than in the first file, or the rows cannot be read.
        """
        path = self.files[batch.file]
        where = self.where(batch)
        with _reading(where), pq.ParquetFile(path, memory_map=True) as file:
            drift = _drift(self.kinds, _kinds(file.schema_arrow))
            if drift:
                raise DataFileError(
                    f"{where} has other columns than {str(self.files[0])!r}: {drift}; every file must have the same."
                )
            if batch.skip == 0 and batch.n_rows == _n_rows(file, batch.row_groups):
                return file.read_row_groups(list(batch.row_groups), columns=list(columns), use_threads=False)
            schema = pa.schema([file.schema_arrow.field(name) for name in columns])
            return pa.Table.from_batches(list(_slice_of(file, batch, list(columns))), schema=schema)


def open_source(path: str | Path, batch_rows: int, spool: Path) -> Source:
    """The source at a path, cut into batches.

    Parameters
    ----------
    path
        A Parquet file, a folder of Parquet files, or a CSV file (plain or gzip).
    batch_rows
        Most rows of a batch.
    spool
        File to which CSV is rewritten as Parquet, unless it was, so that any batch of it can be read by itself.

    Raises
    ------
    DataFileError
        If there is nothing to read.
    """
    given = Path(path)
    files = (_spooled(given, spool, batch_rows),) if _is_csv(given) else _parquet_files(given)
    batches: list[Batch] = []
    kinds: dict[str, str] | None = None
    first_row = 0
    for place, name in enumerate(files):
        with _reading(repr(str(name))), pq.ParquetFile(name) as file:
            check_columns_differ(file.schema_arrow.names, name)
            kinds = _kinds(file.schema_arrow) if kinds is None else kinds
            sizes = [file.metadata.row_group(k).num_rows for k in range(file.metadata.num_row_groups)]
        for groups, skip, n in _cuts(sizes, batch_rows):
            batches.append(Batch(len(batches), first_row, n, place, groups, skip))
            first_row += n
    if not batches or kinds is None:
        raise DataFileError(f"{str(given)!r} has no rows.")
    return Source(given, files, kinds, tuple(batches))


def fingerprint(path: str | Path) -> str:
    """SHA-256 of the content of a file, or of the names and contents of a folder's Parquet files."""
    given = Path(path)
    digest = hashlib.sha256()
    if _is_csv(given) and not given.is_file():
        raise DataFileError(f"There is no file {str(given)!r}.")
    for name in (given,) if _is_csv(given) else _parquet_files(given):
        digest.update(f"{name.name}:{name.stat().st_size}:".encode())
        with name.open("rb") as file:
            while chunk := file.read(_HASH_CHUNK):
                digest.update(chunk)
    return digest.hexdigest()


def _is_csv(path: Path) -> bool:
    return path.name.lower().endswith(_CSV_ENDINGS)


def _parquet_files(path: Path) -> tuple[Path, ...]:
    if path.is_dir():
        files = tuple(sorted(p for p in path.rglob("*.parquet") if not p.name.startswith((".", "_"))))
        if not files:
            raise DataFileError(f"The folder {str(path)!r} has no Parquet files.")
        return files
    if not path.is_file():
        raise DataFileError(f"There is no file {str(path)!r}.")
    if path.suffix.lower() != ".parquet":
        raise DataFileError(
            f"{str(path)!r} must be a .parquet file, a folder of such files, or a .csv or .csv.gz file; the ending "
            "decides how it is read."
        )
    return (path,)


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


def _kinds(schema: pa.Schema) -> dict[str, str]:

    def kind(of: pa.DataType) -> str:
        inner = of.value_type if pa.types.is_dictionary(of) else of
        if pa.types.is_boolean(inner):
            return "yes or no"
        if pa.types.is_integer(inner) or pa.types.is_floating(inner) or pa.types.is_decimal(inner):
            return "number"
        if pa.types.is_string(inner) or pa.types.is_large_string(inner):
            return "text"
        return str(inner)

    return {field.name: kind(field.type) for field in schema}


def _drift(expected: dict[str, str], got: dict[str, str]) -> str:
    """How columns differ from those expected, in words; empty if they do not."""
    parts = []
    missing, added = [c for c in expected if c not in got], [c for c in got if c not in expected]
    changed = [f"{c!r} (was {expected[c]}, is {got[c]})" for c in expected if c in got and expected[c] != got[c]]
    if missing:
        parts.append(f"missing {missing}")
    if added:
        parts.append(f"added {added}")
    if changed:
        parts.append(f"of another kind {', '.join(changed)}")
    return "; ".join(parts)


def _spooled(path: Path, spool: Path, batch_rows: int) -> Path:
    """A CSV file as Parquet.

    The kind of a column is taken from the first rows. Where later ones do not fit, the file is read again with a kind
    that has room for both.
    """
    if not path.is_file():
        raise DataFileError(f"There is no file {str(path)!r}.")
    if spool.exists():
        return spool
    separator, kinds = separator_of(path), dict[str, Any]()
    with _reading(repr(str(path))):
        while True:
            try:
                with write_atomically(spool) as temporary:
                    _rewrite_csv(path, separator, kinds, temporary, batch_rows)
                return spool
            except pa.ArrowInvalid as error:
                wider = _wider_kind(str(error), kinds)
                if wider is None:
                    raise
                kinds |= wider


def _rewrite_csv(path: Path, separator: str, kinds: dict[str, Any], out: Path, batch_rows: int) -> None:
    """Write a CSV file as Parquet, and the kinds of its columns into `kinds`."""
    reader = csv.open_csv(
        path,
        read_options=csv.ReadOptions(block_size=_CSV_BLOCK),
        parse_options=csv.ParseOptions(delimiter=separator),
        convert_options=csv.ConvertOptions(
            strings_can_be_null=True, null_values=list(MISSING_WORDS), column_types=kinds
        ),
    )
    kinds |= {field.name: field.type for field in reader.schema}
    unreadable = [name for name, kind in kinds.items() if pa.types.is_binary(kind)]
    if unreadable:
        raise DataFileError(not_utf8(path, unreadable[0]))
    with reader, pq.ParquetWriter(out, reader.schema) as writer:
        held: list[Any] = []
        for piece in reader:
            held.append(piece)
            if sum(len(p) for p in held) >= batch_rows:
                writer.write_table(pa.Table.from_batches(held), row_group_size=batch_rows)
                held = []
        if held:
            writer.write_table(pa.Table.from_batches(held), row_group_size=batch_rows)


def _wider_kind(message: str, kinds: dict[str, Any]) -> dict[str, Any] | None:
    """The column whose values did not fit, with a kind that takes them; None where there is none."""
    found = re.search(r"In CSV column #(\d+): (?:Row #\d+: )?CSV conversion error", message)
    if found is None:
        return None
    name = list(kinds)[int(found[1])]
    if pa.types.is_null(kinds[name]) or pa.types.is_integer(kinds[name]):
        return {name: pa.float64()}
    return None if pa.types.is_string(kinds[name]) else {name: pa.string()}


@contextmanager
def _reading(where: str) -> Iterator[None]:
    """Turn whatever a reader raises into a sentence with the file's name; what fails in writing passes."""
    try:
        yield
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, DataFileError) or (isinstance(error, OSError) and error.errno is not None):
            raise
        reason = str(error).strip().split("\n")[0]
        raise DataFileError(f"{where} cannot be read: {reason.rstrip('.') or type(error).__name__}.") from error
