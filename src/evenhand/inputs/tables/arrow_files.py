"""Parquet files, folders of them, and Arrow (Feather) files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc

from evenhand.exceptions import DataFileError
from evenhand.inputs.tables.kinds import drift, kinds_of
from evenhand.inputs.tables.raw import check_names, reading

__all__ = ["ArrowFile", "ParquetFiles"]

_ROWS = 1 << 17


@dataclass(frozen=True)
class ParquetFiles:
    """Parquet files with the same columns: a `RawTable`.

    Attributes
    ----------
    path
        What the user named.
    files
        In the order of their names.
    schema
        Of the first.
    """

    path: Path
    files: tuple[Path, ...]
    schema: pa.Schema
    is_declared = True
    notes: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def at(cls, path: Path) -> ParquetFiles:
        """The file at a path, or those of a folder.

        Raises
        ------
        DataFileError
            If there is none, one cannot be read, or its columns are not those of the first.
        """
        files: tuple[Path, ...] = (path,)
        if path.is_dir():
            files = tuple(sorted(p for p in path.rglob("*.parquet") if not p.name.startswith((".", "_"))))
            if not files:
                raise DataFileError(f"The folder {str(path)!r} has no Parquet files.")
        schemas = []
        for file in files:
            with reading(repr(str(file))):
                schemas.append(pq.read_schema(file))
            check_names(schemas[-1].names, file)
            differences = drift(kinds_of(schemas[0]), kinds_of(schemas[-1]))
            if differences:
                raise DataFileError(
                    f"{str(file)!r} has other columns than {str(files[0])!r}: {differences}; every file must have "
                    "the same."
                )
        return cls(path, files, schemas[0])

    @property
    def where(self) -> str:
        """The file, for messages."""
        return repr(str(self.path))

    def pieces(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Some columns of all rows."""
        for path in self.files:
            with reading(repr(str(path))), pq.ParquetFile(path) as file:
                for batch in file.iter_batches(_ROWS, columns=list(columns), use_threads=False):
                    yield pa.Table.from_batches([batch]).select(list(columns))


@dataclass(frozen=True)
class ArrowFile:
    """An Arrow file, also called Feather: a `RawTable`."""

    path: Path
    schema: pa.Schema
    is_declared = True
    notes: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def at(cls, path: Path) -> ArrowFile:
        """The file at a path.

        Raises
        ------
        DataFileError
            If it cannot be read.
        """
        with reading(repr(str(path))), pa.memory_map(str(path)) as source:
            schema = ipc.open_file(source).schema
        check_names(schema.names, path)
        return cls(path, schema)

    @property
    def where(self) -> str:
        """The file, for messages."""
        return repr(str(self.path))

    def pieces(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Some columns of all rows."""
        with reading(self.where), pa.memory_map(str(self.path)) as source:
            file = ipc.open_file(source)
            for place in range(file.num_record_batches):
                yield pa.Table.from_batches([file.get_batch(place)]).select(list(columns))
