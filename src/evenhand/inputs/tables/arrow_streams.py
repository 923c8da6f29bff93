"""Tables that arrive as Arrow record batches, once and in order: stored as Parquet, then read like any file."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from evenhand.exceptions import InvalidTypeError
from evenhand.inputs.fingerprints import hash_rows
from evenhand.inputs.tables.arrow_files import ParquetFiles
from evenhand.inputs.tables.data_files import LocalFile
from evenhand.inputs.tables.kinds import usable_type
from evenhand.inputs.tables.raw import check_names, reading
from evenhand.system.files import PrivateFolder, write_atomically

__all__ = ["StreamedTable", "streamed", "written_down"]

_ROWS = 1 << 17


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


def streamed(source: Any) -> StreamedTable:  # noqa: ANN401 - anything that gives Arrow data
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
    name = f"the given {type(source).__name__}"
    if isinstance(source, pd.DataFrame):  # the index is not a column
        return StreamedTable(name, lambda: pa.Table.from_pandas(source, preserve_index=False).to_reader(_ROWS))
    if not hasattr(source, "__arrow_c_stream__"):
        raise InvalidTypeError(
            "A table must be a path, an address, or an object that provides Arrow data (a RecordBatchReader, a DuckDB "
            f"relation, a pandas, polars or pyarrow table), got {type(source).__name__}."
        )
    return StreamedTable(name, lambda: pa.RecordBatchReader.from_stream(source))


def written_down(table: StreamedTable, folder: Path | None = None) -> ParquetFiles:
    """Store a table of record batches as a Parquet file, in parts.

    Parameters
    ----------
    table
        The table, which is read once, or not at all if the folder already holds this version.
    folder
        Where to keep the file; None for a private folder, removed when the table is no longer used.

    Raises
    ------
    DataFileError
        If the table cannot be read.
    """
    private = PrivateFolder()
    place = private.path if folder is None else folder
    content = hashlib.sha256(table.identity.encode()).hexdigest() if table.identity else ""
    if not content or not _file_in(place, content).exists():
        unnamed = place / "rows.parquet"
        with reading(repr(table.name)), write_atomically(unnamed) as temporary:
            found = _write(table, temporary)
        content = content or found
        unnamed.replace(_file_in(place, content))
    file = LocalFile(_file_in(place, content), table.name, private if folder is None else None)
    return replace(ParquetFiles.of(table.name, [file], [file.path.name]), version=table.version, content=content)


def _file_in(folder: Path, content: str) -> Path:
    return folder / f"rows-{content[:16]}.parquet"


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


def _gathered(reader: Any) -> Iterator[pa.Table]:  # noqa: ANN401 - a `RecordBatchReader`
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
