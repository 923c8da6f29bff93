"""Sheets of Excel and OpenDocument workbooks, and files of SAS, Stata and SPSS."""

from __future__ import annotations

import datetime as dt
import io
import itertools
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import ipc

from evenhand.exceptions import DataFileError, LimitError, did_you_mean
from evenhand.inputs.read_options import ReadOptions
from evenhand.inputs.tables.arrow import ArrowFile
from evenhand.inputs.tables.columns import is_text, texts_where
from evenhand.inputs.tables.raw import LocalFile, LocalTable, Seen, check_names, header_row, named, reading
from evenhand.system.files import PrivateFolder
from evenhand.system.processes import run_limited

_EXACT = 2.0**53


class ConvertedFile(LocalTable):
    """A workbook, or a SAS, Stata or SPSS file, that a process with limits has read: their readers may crash or hang.

    Parameters
    ----------
    file
        The local file.
    options
        Provides the sheet.

    Raises
    ------
    DataFileError
        If it cannot be read.
    """

    def __init__(self, file: LocalFile, options: ReadOptions) -> None:
        super().__init__(file)
        folder = PrivateFolder()
        given = (str(file.path), file.name, file.seen, options.sheet, str(folder.path))
        try:
            facts = run_limited("evenhand.inputs.tables.spreadsheets:convert", *given, size=file.path.stat().st_size)
        except LimitError as error:
            raise DataFileError(f"{self.where} is damaged: its reader {error}.") from None
        self.is_declared, self.notes = facts["is_declared"], tuple(facts["notes"])
        self._parts = [
            ArrowFile(LocalFile(folder.path / f"{k}.arrow", file.name, folder=folder)) for k in range(facts["n_parts"])
        ]
        self.schema = self._parts[0].schema

    def pieces(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Some columns of all rows."""
        for part in self._parts[1:]:
            yield from part.pieces(columns)


def convert(path: str, name: str, seen: Seen | None, sheet: str | None, folder: str) -> dict[str, Any]:
    """In a process with limits: write the parts of a table to a folder as Arrow files; the first has no rows."""
    file = LocalFile(Path(path), name, None if seen is None else (seen[0], seen[1], seen[2]))
    is_declared = file.path.suffix.lower() in READERS
    parts, notes = (_of_statistics(file), []) if is_declared else _of_workbook(file, sheet)
    n_parts = 0
    for part in parts:
        with ipc.new_file(str(Path(folder) / f"{n_parts}.arrow"), part.schema) as writer:
            writer.write_table(part)
        n_parts += 1
    return {"is_declared": is_declared, "notes": notes, "n_parts": n_parts}


def _of_workbook(file: LocalFile, wanted: str | None) -> tuple[Iterable[pa.Table], list[str]]:
    """The cells of a sheet, after an empty table, and notes on what was left out.

    A column whose cells have several types is text, in which numbers are then recognized as in a CSV file.

    Raises
    ------
    DataFileError
        If the workbook cannot be read, or several sheets have cells and none is named.
    """
    from python_calamine import CalamineWorkbook

    with reading(file.where):
        with io.BufferedReader(file.stream()) as content:
            book = CalamineWorkbook.from_filelike(content)
        sheet, rows = _chosen_sheet(book, wanted, file.where)
    place = header_row([[_text(cell) for cell in row] for row in rows[:50]])
    body = [row for row in rows[place + 1 :] if any(cell != "" for cell in row)]
    width = max((k + 1 for row in (rows[place], *body) for k, cell in enumerate(row) if cell != ""), default=0)
    header = [_text(cell) for cell in rows[place][:width]]
    if header and not header[-1].strip():
        raise DataFileError(
            f"{file.where} has values in column {width} of the sheet {sheet!r}, which has no name in the header; name "
            "it."
        )
    names = named(header)
    check_names(names, file.name)
    columns = zip(*(row[:width] for row in body), strict=True) if body else [() for _ in names]
    with reading(file.where):
        table = pa.table([column_of_cells(cells) for cells in columns], names=names)
    titles = [" ".join(filter(None, map(_text, row))) for row in rows[:place] if any(cell != "" for cell in row)]
    n_empty = len(rows) - place - 1 - len(body)
    notes = [f"{file.where}: the row {title!r} above the header was not read." for title in titles]
    notes += [f"{file.where}: {n_empty:,} empty rows were not read."] * (n_empty > 0)
    return (table.slice(0, 0), table), notes


def _chosen_sheet(book: Any, wanted: str | None, where: str) -> tuple[str, list[list[Any]]]:
    """Name and rows of the sheet that the user named, or of the only one with cells."""
    names = list(book.sheet_names)
    if wanted is not None:
        if wanted not in names:
            raise DataFileError(f"{where} has no sheet {wanted!r}.{did_you_mean(wanted, names)}")
        names = [wanted]
    sheets = {name: book.get_sheet_by_name(name).to_python(skip_empty_area=False) for name in names}
    filled = {name: rows for name, rows in sheets.items() if any(cell != "" for row in rows for cell in row)}
    if not filled:
        raise DataFileError(f"{where} is empty.")
    if len(filled) > 1:
        raise DataFileError(f"{where} has cells in several sheets, {list(filled)}; name one with --sheet.")
    return next(iter(filled.items()))


def column_of_cells(cells: Sequence[Any]) -> pa.Array:
    """Cells of one column, "" if empty, in their common type; as text if there are several types.

    Examples
    --------
    >>> column_of_cells([1.0, "", 3.0]).type, column_of_cells([1.0, "$3"]).to_pylist()
    (DataType(int64), ['1', '$3'])
    """
    kinds = {type(cell) for cell in cells if cell != ""}
    values = [None if cell == "" else cell for cell in cells]
    if not kinds or str in kinds:
        return pa.array([None if value is None else _text(value) for value in values], pa.string())
    if kinds <= {int, float}:
        numbers = pa.array([None if value is None else float(value) for value in values], pa.float64())
        is_whole = pc.and_(pc.equal(pc.floor(numbers), numbers), pc.less(pc.abs(numbers), _EXACT))
        return numbers.cast(pa.int64()) if pc.all(is_whole, min_count=0).as_py() else numbers
    if kinds in ({bool}, {dt.date}):
        return pa.array(values)
    if kinds <= {dt.date, dt.datetime}:
        midnight = dt.time()
        moments = [dt.datetime.combine(v, midnight) if type(v) is dt.date else v for v in values]
        return pa.array(moments, pa.timestamp("us"))
    return pa.array([None if value is None else _text(value) for value in values], pa.string())


def _text(cell: Any) -> str:
    """A cell as displayed: whole numbers without a fraction."""
    if isinstance(cell, float) and cell.is_integer() and abs(cell) < _EXACT:
        return str(int(cell))
    return str(cell)


READERS = {
    ".sas7bdat": "read_sas7bdat",
    ".xpt": "read_xport",
    ".dta": "read_dta",
    ".sav": "read_sav",
    ".zsav": "read_sav",
}
"""The function of pyreadstat that reads a file, by its extension."""

_ROWS = 1 << 17


def _of_statistics(file: LocalFile) -> Iterator[pa.Table]:
    """The rows of a SAS, Stata or SPSS file, after an empty table. Values are codes; an empty text is missing.

    Raises
    ------
    DataFileError
        If it cannot be read.
    """
    import pyreadstat

    read = getattr(pyreadstat, READERS[file.path.suffix.lower()])

    def part(first: int, n: int) -> pa.Table:
        with reading(file.where), io.BufferedReader(file.stream()) as content:
            frame, _ = read(content, row_offset=first, row_limit=n)
            table = pa.Table.from_pandas(frame, preserve_index=False)
            return pa.table(
                {
                    name: texts_where(pc.not_equal(column, ""), column) if is_text(column.type) else column
                    for name, column in zip(table.column_names, table.columns, strict=True)
                }
            )

    start = part(0, 1)
    check_names(start.column_names, file.name)
    yield start.slice(0, 0)
    for first in itertools.count(0, _ROWS):
        piece = part(first, _ROWS)
        if len(piece):
            yield piece
        if len(piece) < _ROWS:
            return
