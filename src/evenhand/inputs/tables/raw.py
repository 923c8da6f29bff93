"""What every kind of file provides: names, types, and rows, piece by piece, any number of times."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Self
from urllib.parse import parse_qsl, unquote, urlencode, urlsplit, urlunsplit

import pyarrow as pa

from evenhand.exceptions import DataFileError, EvenhandError, first_line
from evenhand.system.files import PrivateFolder


class RawTable:
    """A table as stored in a file.

    Attributes
    ----------
    name
        Name shown to users, without secrets.
    schema
        Names and types of the columns; text if the file has no types.
    version
        Description of the version that was read; empty if there are no versions.
    is_declared
        Whether the file has types, so that text is meant to be text.
    notes
        What was left out, in sentences; complete after all pieces were read.
    """

    name: str
    schema: pa.Schema
    version: str = ""
    is_declared: bool = True
    notes: tuple[str, ...] = ()

    @property
    def where(self) -> str:
        """Name of the table, for messages."""
        return repr(self.name)

    def pieces(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        """Some columns of all rows, in order."""
        raise NotImplementedError

    def fingerprint(self) -> str:
        """SHA-256 of the content, or of its version in a store."""
        raise NotImplementedError


class FirstRows(RawTable):
    """The first rows of a table."""

    def __init__(self, table: RawTable, n: int) -> None:
        self._table, self._n = table, n
        for name in ("name", "schema", "version", "is_declared"):
            setattr(self, name, getattr(table, name))

    @property
    def notes(self) -> tuple[str, ...]:  # type: ignore[override]
        return (*self._table.notes, f"{self.where}: at most {self._n:,} rows, the first, were read.")

    def pieces(self, columns: Sequence[str]) -> Iterator[pa.Table]:
        left = self._n
        for piece in self._table.pieces(columns):
            yield piece.slice(0, left)
            left -= len(piece)
            if left <= 0:
                return

    def fingerprint(self) -> str:
        return self._table.fingerprint()


class LocalTable(RawTable):
    """A table in one local file."""

    def __init__(self, file: LocalFile) -> None:
        self.file, self.name = file, file.name

    def fingerprint(self) -> str:
        return fingerprint_files([self.file])


def check_names(names: Sequence[str], name: str) -> None:
    """Reject a file with a repeated or invalid column name.

    Raises
    ------
    DataFileError
        If there is one.
    """
    twice = sorted(name for name, count in Counter(names).items() if count > 1)
    if twice:
        raise DataFileError(f"{name!r} has more than one column named {twice}; give each a unique name.")


def header_row(rows: Sequence[Sequence[str]]) -> int:
    """The first row that names columns; title lines above it have only one cell.

    Examples
    --------
    >>> header_row([["Loans of 2024", "", ""], [], ["income", "sex", "paid"], ["1", "f", "1"]])
    2
    >>> header_row([["only"], ["1"], ["2"]])
    0
    """
    for place, row in enumerate(rows):
        if any(cell.strip() for cell in row[1:]):
            return place
    return next((place for place, row in enumerate(rows) if any(cell.strip() for cell in row)), 0)


def named(header: Sequence[str]) -> list[str]:
    """Names of columns; one without a name is named by its place, as in pandas.

    Examples
    --------
    >>> named(["", "income"])
    ['Unnamed: 0', 'income']
    """
    return [name if name.strip() else f"Unnamed: {place}" for place, name in enumerate(header)]


@contextmanager
def reading(where: str) -> Iterator[None]:
    """Turn any error of a reader into a sentence with the file's name, unless the system names a file itself."""
    try:
        yield
    except EvenhandError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.filename is not None:
            raise
        why = "there is not enough memory for it" if isinstance(error, MemoryError) else first_line(error)
        raise DataFileError(f"{where} cannot be read: {why}.") from error


class DataFile:
    """A file whose bytes can be read in any order, here and in other processes.

    Attributes
    ----------
    name
        Name shown to users, without secrets.
    is_near
        Whether it is on a local disk, so that small reads are cheap.
    """

    name: str
    is_near: ClassVar[bool] = False

    def open(self) -> pa.NativeFile:
        """Open the file; the caller closes it."""
        raise NotImplementedError

    def absolute(self) -> Self:
        """The same file for a process in a different folder, on which an address does not depend."""
        return self

    def state(self) -> bytes:
        """What changes when the file does: its bytes, or its version in the store."""
        raise NotImplementedError


Seen = tuple[int, int, int]
"""Size of a file, and when its content and its status last changed, in nanoseconds."""


@dataclass(frozen=True)
class LocalFile(DataFile):
    """A local file, which stays as it was first seen: a different or a changed file at its path is an error.

    Attributes
    ----------
    path
        Path of the file.
    name
        Name shown to users: its path, or where it was copied from.
    seen
        What it was like at first; None for a file of our own.
    folder
        Folder of a copy, kept as long as the file is.
    """

    path: Path
    name: str
    seen: Seen | None = None
    folder: PrivateFolder | None = field(default=None, repr=False, compare=False)
    is_near = True

    @classmethod
    def at(cls, path: Path) -> LocalFile:
        """The file at a path."""
        return cls(path, str(path), _seen(path.stat()) if path.is_file() else None)

    @property
    def where(self) -> str:
        """Name of the file, for messages."""
        return repr(self.name)

    def stream(self) -> io.FileIO:
        """Open the file for reading from start to end; the caller closes it.

        Raises
        ------
        DataFileError
            If it is not the file that was first seen, or was written to since.
        """
        file = io.FileIO(self.path)
        if self.seen not in (None, _seen(os.fstat(file.fileno()))):
            file.close()
            raise DataFileError(f"{self.where} changed while it was read; start again.")
        return file

    def open(self) -> pa.NativeFile:
        if self.seen is None:
            return pa.memory_map(str(self.path))
        file = self.stream()  # not mapped: a process ends at once where a mapped file is cut short
        same = Path(f"/proc/self/fd/{file.fileno()}")
        if not same.exists():
            return pa.PythonFile(file, mode="r")
        with file:
            return pa.OSFile(str(same))

    def absolute(self) -> Self:
        return replace(self, path=self.path.absolute())

    def sha256(self) -> str:
        """SHA-256 of the bytes, if they are those of the file that was first seen.

        Raises
        ------
        DataFileError
            If they are not.
        """
        with self.stream() as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        self.stream().close()  # written to meanwhile
        return digest

    def state(self) -> bytes:
        return f"{self.path.name}:{self.path.stat().st_size}:{self.sha256()};".encode()

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalFile, (self.path, self.name, self.seen)  # a copy is removed by the process that made it


def _seen(status: os.stat_result) -> Seen:
    return status.st_size, status.st_mtime_ns, status.st_ctime_ns


def fingerprint_files(files: Sequence[DataFile]) -> str:
    """SHA-256 of a local file's bytes, or of the states of several files."""
    if len(files) == 1 and isinstance(files[0], LocalFile):
        return files[0].sha256()
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.state())
    return digest.hexdigest()


def on_full_disk(name: str, error: BaseException) -> str:
    """A sentence on a copy for which the disk has no space; empty for any other error."""
    if not isinstance(error, OSError) or error.errno != errno.ENOSPC:
        return ""
    return f"{name!r} cannot be copied: {error.strerror}; free some space, or set TMPDIR to a folder on a larger disk."


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")  # a single letter is a Windows drive
_OPEN_QUERY = ("endpoint_override", "region", "scheme")  # settings that are not secret
_ALIASES = {"s3a": "s3", "s3n": "s3"}  # Hadoop's names for the same store
_CONTAINER_FIRST = ("abfs", "abfss")  # container@account: the first part is a place, not a user


@dataclass(frozen=True)
class Address:
    """The location of a table outside the local folders.

    Attributes
    ----------
    text
        As typed; may contain a password, so never show it.
    scheme
        In lower case, such as "s3"; also for Hadoop's names of it.
    name
        The part that may be shown.
    """

    text: str = field(repr=False)
    scheme: str
    name: str

    @classmethod
    def of(cls, text: str) -> Address | None:
        """Parse an address; None for a path.

        Examples
        --------
        >>> Address.of("s3://KEY:SECRET@loans/2024.parquet?region=eu-west-1")
        Address(scheme='s3', name='s3://loans/2024.parquet?region=eu-west-1')
        >>> print(Address.of("loans/2024.parquet"))
        None
        """
        match = _SCHEME.match(text)
        if match is None:
            return None
        scheme = match[1].lower()
        return cls(text, _ALIASES.get(scheme, scheme), shown(text))

    @property
    def last_part(self) -> str:
        """The name of the file, or of the folder."""
        return unquote(urlsplit(self.text).path.rstrip("/").rpartition("/")[2]) or self.name

    def without_secrets(self, message: str) -> str:
        """Redact the secrets of the address in a library's message.

        Examples
        --------
        >>> Address.of("s3://KEY:SECRET@loans/x").without_secrets("no user 'KEY', key 'SECRET'")
        "no user '***', key '***'"
        """
        for secret in sorted(_secrets(self.text), key=len, reverse=True):
            message = message.replace(secret, "***")
        return message


def shown(text: str) -> str:
    """An address without user, password, and anything but settings in the query; a path unchanged.

    Examples
    --------
    >>> shown("https://ann:pw@bank.example/loans.csv?sv=2024&sig=abc")
    'https://bank.example/loans.csv?...'
    >>> shown("abfss://loans:key@bank.dfs.core.windows.net/2024")
    'abfss://loans@bank.dfs.core.windows.net/2024'
    """
    if _SCHEME.match(text) is None:
        return text
    parts = urlsplit(text)
    user, _, host = parts.netloc.rpartition("@")
    place = user.partition(":")[0] if parts.scheme.lower() in _CONTAINER_FIRST else ""
    query = parse_qsl(parts.query)
    kept = urlencode([(name, value) for name, value in query if name in _OPEN_QUERY], safe=":/")
    hidden = "..." if parts.query and any(name not in _OPEN_QUERY for name, _ in query or [("", "")]) else ""
    return urlunsplit(
        parts._replace(
            netloc=f"{place}@{host}" if place else host, query="&".join(filter(None, (kept, hidden))), fragment=""
        )
    )


def _secrets(text: str) -> set[str]:
    parts = urlsplit(text)
    user, _, password = parts.netloc.rpartition("@")[0].partition(":")
    names = () if parts.scheme.lower() in _CONTAINER_FIRST else (user,)
    query = [value for name, value in parse_qsl(parts.query) if name not in _OPEN_QUERY and len(value) > 3]
    hidden = {*names, password, *query, parts.query if query else ""}
    return {form for value in hidden if value for form in (value, unquote(value))}
