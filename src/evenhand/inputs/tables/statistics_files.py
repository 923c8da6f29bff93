"""SAS, Stata and SPSS files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, ClassVar

import pyarrow as pa
import pyarrow.compute as pc

from evenhand.inputs.tables.data_files import LocalFile, fingerprint_files
from evenhand.inputs.tables.kinds import is_text, texts_where
from evenhand.inputs.tables.raw import check_names, reading
from evenhand.system.optional import optional_module

__all__ = ["READERS", "StatisticsFile"]

READERS = {
    ".sas7bdat": "read_sas7bdat",
    ".xpt": "read_xport",
    ".dta": "read_dta",
    ".sav": "read_sav",
    ".zsav": "read_sav",
}
"""The function of pyreadstat that reads a file, by its extension."""

_ROWS = 1 << 17


class StatisticsFile:
    """A SAS, Stata or SPSS file: a `RawTable`. Values are codes, not labels; an empty text is missing.

    Parameters
    ----------
    file
        The local file.

    Raises
    ------
    DataFileError
        If it cannot be read.
    """

    is_declared = True
    version = ""
    notes: ClassVar[tuple[str, ...]] = ()

    def __init__(self, file: LocalFile) -> None:
        self.file = file
        pyreadstat = optional_module("pyreadstat", f"A {file.path.suffix} file", "pyreadstat", "readers")
        self._reader = getattr(pyreadstat, READERS[file.path.suffix.lower()])
        self.schema = self._read(0, 1).schema
        check_names(self.schema.names, file.name)

    @property
    def where(self) -> str:
        """Name of the file, for messages."""
        return self.file.where

    @property
    def name(self) -> str:
        """Name shown to users."""
        return self.file.name

    def fingerprint(self) -> str:
        """SHA-256 of the file."""
        return fingerprint_files([self.file])

    def pieces(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Some columns of all rows."""
        first, piece = 0, self._read(0, _ROWS, columns)
        while len(piece):
            yield piece
            first += len(piece)
            if len(piece) < _ROWS:
                return
            piece = self._read(first, _ROWS, columns)

    def _read(self, first: int, n: int, columns: Sequence[str] | None = None) -> pa.Table:
        with reading(self.where):
            frame, _ = self._reader(
                str(self.file.path), row_offset=first, row_limit=n, usecols=None if columns is None else list(columns)
            )
            table = pa.Table.from_pandas(frame, preserve_index=False)
            table = table if columns is None else table.select(list(columns))
            return pa.table({name: _without_blanks(table.column(name)) for name in table.column_names})


def _without_blanks(column: Any) -> Any:  # noqa: ANN401 - a chunked array
    return texts_where(pc.not_equal(column, ""), column) if is_text(column.type) else column
