"""Files that tables are read from: local, in a store, or on a web server."""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa

from evenhand.system.files import PrivateFolder

__all__ = ["DataFile", "LocalFile", "fingerprint_files", "on_full_disk"]

_CHUNK = 1 << 22


class DataFile(Protocol):
    """A file whose bytes can be read in any order, here and in other processes."""

    @property
    def name(self) -> str:
        """Name shown to users, without secrets."""

    @property
    def is_near(self) -> bool:
        """Whether it is on a local disk, so that small reads are cheap."""

    def open(self) -> pa.NativeFile:
        """Open the file; the caller closes it."""

    def absolute(self) -> DataFile:
        """The same file for a process in a different folder."""

    def state(self) -> Iterable[bytes]:
        """What changes when the file does: its bytes, or its version in the store."""


@dataclass(frozen=True)
class LocalFile:
    """A local file.

    Attributes
    ----------
    path
        Path of the file.
    name
        Name shown to users: its path, or where it was copied from.
    folder
        Folder of a copy, kept as long as the file is.
    """

    path: Path
    name: str
    folder: PrivateFolder | None = field(default=None, repr=False, compare=False)
    is_near = True

    @classmethod
    def at(cls, path: Path) -> LocalFile:
        """The file at a path."""
        return cls(path, str(path))

    @property
    def where(self) -> str:
        """Name of the file, for messages."""
        return repr(self.name)

    def open(self) -> pa.NativeFile:
        """The bytes, mapped into memory."""
        return pa.memory_map(str(self.path))

    def absolute(self) -> LocalFile:
        """The same file for a process in a different folder."""
        return LocalFile(self.path.absolute(), self.name, self.folder)

    def state(self) -> Iterable[bytes]:
        """Name, size and bytes."""
        yield f"{self.path.name}:{self.path.stat().st_size}:".encode()
        with self.path.open("rb") as file:
            while chunk := file.read(_CHUNK):
                yield chunk

    def __reduce__(self) -> tuple[Any, ...]:
        return LocalFile, (self.path, self.name)  # a copy is removed by the process that made it


def fingerprint_files(files: Iterable[DataFile]) -> str:
    """SHA-256 of the states of files."""
    digest = hashlib.sha256()
    for file in files:
        for part in file.state():
            digest.update(part)
    return digest.hexdigest()


def on_full_disk(name: str, error: BaseException) -> str:
    """A sentence on a copy for which the disk has no space; empty for any other error."""
    if not isinstance(error, OSError) or error.errno != errno.ENOSPC:
        return ""
    return f"{name!r} cannot be copied: {error.strerror}; free some space, or set TMPDIR to a folder on a larger disk."
