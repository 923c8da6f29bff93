"""CSV files as columns of text, read strictly: every row must match the header, and every byte must be valid text.

pyarrow's parser reads the rows, and reports rows of uneven length by a callback. The standard library's parser reads
only the first lines, for separator and header, and, once a file is rejected, finds the lines to name; it reads no
values.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
from collections.abc import Iterator, Sequence
from itertools import chain, islice
from typing import IO, Any

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import csv as arrow_csv

from evenhand.exceptions import DataFileError
from evenhand.inputs.read_options import ReadOptions
from evenhand.inputs.tables.raw import LocalFile, LocalTable, check_names, header_row, named, reading

_SEPARATORS = ",;\t|"
_BLOCK = 32 << 20
_HEAD, _HEAD_ROWS = 1 << 20, 50
_SHOWN_LINES = 5
_END = "\0"  # a line that no file has, because NUL characters are rejected
_UTF16_MARKS = (b"\xff\xfe", b"\xfe\xff")


class CsvFile(LocalTable):
    """A CSV file, plain or gzip: a table of text.

    Parameters
    ----------
    file
        The local file.
    options
        Provides the encoding.

    Raises
    ------
    DataFileError
        If the header cannot be read, or a name is repeated.
    """

    is_declared = False

    def __init__(self, file: LocalFile, options: ReadOptions) -> None:
        super().__init__(file)
        # A byte order mark is not part of the first name.
        given = options.encoding
        self.encoding = "utf-8-sig" if given is None or codecs.lookup(given).name == "utf-8" else given
        with reading(self.where), self._open() as text:
            head = text.read(_HEAD).decode()
        self.separator, rows, lines = _sniffed(head, self.where)
        place = header_row(rows)
        header = rows[place]
        self._lines_before = lines[place]
        self._has_rows = len(rows) > place + 1 or len(rows) == _HEAD_ROWS or len(head) >= _HEAD
        self._width = len(header)
        self._n_unnamed = next((n for n, name in enumerate(reversed(header)) if name.strip()), len(header))
        names = named(header[: self._width - self._n_unnamed])
        check_names(names, file.name)
        self.schema = pa.schema([(name, pa.string()) for name in names])
        titles = (" ".join(filter(None, (cell.strip() for cell in row))) for row in rows[:place] if any(row))
        self.notes = tuple(f"{self.where}: the line {title!r} above the header was not read." for title in titles)
        self._n_titles = len(self.notes)
        self._whole: pa.Table | None = None  # of a small file, for repeated reads

    def pieces(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Some columns of all rows, as text.

        Raises
        ------
        DataFileError
            If a row has more or fewer cells than the header, a byte is not valid text, or a quotation mark is not
            closed.
        """
        if not self._has_rows:
            return
        if self._whole is not None:
            yield self._whole.select(list(columns))
            return
        n_empty = n_ragged = n_pieces = 0
        kept = None

        def skip_ragged(row: Any) -> str:
            nonlocal n_empty, n_ragged
            is_empty = not row.text.strip(f" \t\r\n{self.separator}")
            n_empty, n_ragged = n_empty + is_empty, n_ragged + (not is_empty)
            return "skip"

        with reading(self.where), self._open() as file:
            for piece in self._parsed(file, skip_ragged):
                kept = _without_empty_rows(piece)
                n_empty, n_pieces = n_empty + len(piece) - len(kept), n_pieces + 1
                self._check_unnamed(kept)
                yield kept.select(list(columns))
            has_open_quote = file.n_quotes % 2 == 1
        if has_open_quote:
            self._check_quotes()
        if n_ragged:
            raise DataFileError(self._on_ragged_rows(n_ragged))
        on_empty = (f"{self.where}: {n_empty:,} empty rows were not read.",) if n_empty else ()
        self.notes = (*self.notes[: self._n_titles], *on_empty)
        self._whole = kept if n_pieces == 1 else None

    def _open(self) -> _Utf8:
        """The file's text as UTF-8."""
        is_packed = self.file.path.name.lower().endswith(".gz")
        return _Utf8(io.BufferedReader(self.file.stream()), self.encoding, self.where, is_packed=is_packed)

    def _parsed(self, file: _Utf8, on_ragged: Any) -> Iterator[pa.Table]:
        places = [str(place) for place in range(self._width)]
        n_rows = 0
        try:
            reader = arrow_csv.open_csv(
                pa.PythonFile(io.BufferedReader(file, _HEAD), mode="r"),
                read_options=arrow_csv.ReadOptions(
                    block_size=_BLOCK, column_names=places, skip_rows=self._lines_before
                ),
                parse_options=arrow_csv.ParseOptions(
                    delimiter=self.separator, newlines_in_values=True, invalid_row_handler=on_ragged
                ),
                convert_options=arrow_csv.ConvertOptions(
                    column_types=dict.fromkeys(places, pa.string()), strings_can_be_null=False, null_values=[]
                ),
            )
            names = [*self.schema.names, *(f"\0{place}" for place in range(self._n_unnamed))]
            with reader:
                for batch in reader:
                    yield pa.Table.from_batches([batch]).rename_columns(names)
                    n_rows += len(batch)
        except pa.ArrowInvalid as error:
            # Cells are text, bytes are valid and uneven rows are reported: what remains is an unterminated row.
            raise DataFileError(
                f"{self.where} cannot be read after {n_rows:,} rows: the next one has more than {_BLOCK >> 20} MB, "
                "probably because a quotation mark is never closed."
            ) from error

    def _check_unnamed(self, piece: pa.Table) -> None:
        """Reject values under a header whose last columns have no name."""
        for place in range(self._n_unnamed):
            if not pc.all(_is_blank(piece.column(f"\0{place}")), min_count=0).as_py():
                raise DataFileError(
                    f"{self.where} has values in column {self._width - self._n_unnamed + place + 1}, which has no name "
                    "in the header; name it."
                )

    def _on_ragged_rows(self, n: int) -> str:
        """A sentence on the lines of rows that are too long or too short."""
        shown = [
            f"line {line} ({len(row)} cells)"
            for line, row in self._rows()
            if line > self._lines_before and any(cell.strip() for cell in row) and len(row) != self._width
        ]
        more = f" and {n - _SHOWN_LINES:,} more" if n > _SHOWN_LINES else ""
        return (
            f"{self.where} has {n:,} rows with more or fewer cells than the header, which has {self._width}: "
            f"{', '.join(shown[:_SHOWN_LINES])}{more}; correct them, and put cells that contain {self.separator!r} in "
            "quotation marks."
        )

    def _check_quotes(self) -> None:
        """Reject a file that ends within quotation marks, which may have swallowed rows."""
        line, row = 0, [_END]
        for line, row in self._rows("\n", _END):  # noqa: B007 - the last one is wanted
            pass
        if row != [_END]:
            raise DataFileError(
                f"{self.where} has a quotation mark that is never closed, after line {line - 1}; close it."
            )

    def _rows(self, *after: str) -> Iterator[tuple[int, list[str]]]:
        """Line number and cells of each row, slowly, and then of the remaining lines."""
        before = csv.field_size_limit(2 * _BLOCK)
        try:
            with self._open() as file, io.TextIOWrapper(io.BufferedReader(file), "utf-8", newline="") as text:
                reader = csv.reader(chain(text, after), delimiter=self.separator)
                line = 1
                for row in reader:
                    yield line, row
                    line = reader.line_num + 1
        finally:
            csv.field_size_limit(before)


class _Utf8(io.RawIOBase):
    """Convert a file in any encoding to UTF-8, reject invalid bytes, and count quotation marks."""

    def __init__(self, file: IO[bytes], encoding: str, where: str, *, is_packed: bool) -> None:
        self.n_quotes = 0
        self._where, self._encoding = where, encoding
        self._file, self._packed = gzip.GzipFile(fileobj=file) if is_packed else file, file
        self._decoder = codecs.getincrementaldecoder(encoding)()
        self._n_lines = 1
        self._left = b""
        self._is_first = True

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        while not self._left:
            chunk = self._file.read(len(buffer))
            if self._is_first and chunk.startswith(_UTF16_MARKS) and self._encoding == "utf-8-sig":
                raise DataFileError(self._on_encoding(1, "utf-16"))
            self._is_first = False
            self._left = self._decoded(chunk)
            if not chunk:
                break
        n = min(len(self._left), len(buffer))
        buffer[:n], self._left = self._left[:n], self._left[n:]
        return n

    def close(self) -> None:
        self._file.close()
        self._packed.close()
        super().close()

    def _decoded(self, chunk: bytes) -> bytes:
        try:
            text = self._decoder.decode(chunk, final=not chunk)
        except UnicodeError as error:
            before = error.object[: error.start] if isinstance(error, UnicodeDecodeError) else b""
            line = self._n_lines + before.decode(self._encoding, "ignore").count("\n")
            raise DataFileError(self._on_encoding(line, "cp1252")) from error
        if "\0" in text:
            line = self._n_lines + text[: text.index("\0")].count("\n")
            raise DataFileError(
                f"{self._where} contains a NUL character in line {line}, which is not text; the file is "
                "damaged, or in a different encoding, to be named with --encoding."
            )
        self._n_lines += text.count("\n")
        self.n_quotes += text.count('"')
        if self._encoding == "utf-8-sig" and len(text) == len(chunk) and text.isascii():
            return chunk
        return text.encode("utf-8", "surrogatepass")

    def _on_encoding(self, line: int, likely: str) -> str:
        if self._encoding == "utf-8-sig":
            return (
                f"{self._where} is not UTF-8 text (line {line}); save it as UTF-8 (in a spreadsheet: 'CSV "
                f"UTF-8'), or name its encoding, for example --encoding {likely}."
            )
        return f"{self._where} is not text in {self._encoding!r} (line {line}); name a different one with --encoding."


def _sniffed(head: str, where: str) -> tuple[str, list[list[str]], list[int]]:
    """The separator, the first rows, and the line at which each ends.

    The separator must occur in the header and make most rows as wide as the header. If several qualify, it is the one
    with the header higher up, then the most frequent one.
    """
    candidates = []
    for separator in _SEPARATORS:
        rows, lines = [], []
        reader = csv.reader(io.StringIO(head, newline=""), delimiter=separator)
        try:
            for row in islice(reader, _HEAD_ROWS):
                rows.append(row)
                lines.append(reader.line_num)
        except csv.Error:  # a cell too long to be one: not this separator
            continue
        place = header_row(rows)
        if any(cell.strip() for row in rows[place : place + 1] for cell in row):
            width, below = len(rows[place]), [row for row in rows[place + 1 :] if row]
            is_even = 2 * sum(len(row) == width for row in below) >= len(below)
            candidates.append(((width > 1, is_even, -place, width), (separator, rows, lines)))
    if not candidates:
        raise DataFileError(f"{where} is empty.")
    return max(candidates, key=lambda one: one[0])[1]


def _is_blank(column: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.equal(pc.ascii_trim_whitespace(column), "")


def _without_empty_rows(piece: pa.Table) -> pa.Table:
    """The rows that have any value."""
    is_empty = None
    for column in piece.columns:
        is_blank = _is_blank(column)
        is_empty = is_blank if is_empty is None else pc.and_(is_empty, is_blank)
        if not pc.any(is_empty, min_count=0).as_py():
            return piece
    return piece.filter(pc.invert(is_empty))
