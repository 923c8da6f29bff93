"""Zip files: written so that the same content gives the same bytes, read so that a hostile one does no harm."""

from __future__ import annotations

import hashlib
import os
import zipfile
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from evenhand.exceptions import ArchiveError, first_line

__all__ = ["Archive", "open_archive", "write_archive"]

MOST_ENTRIES = 4096
MOST_BYTES = 4 << 30
"""Largest size of all entries together, uncompressed."""
MOST_IN_MEMORY = 256 << 20
"""Largest size of an entry that is read at once."""

_FIRST_DAY = (1980, 1, 1, 0, 0, 0)  # the earliest time in a zip file
_PLAIN_FILE = 0o100644 << 16
_CHUNK = 1 << 20
_ENCRYPTED = 0x1


def write_archive(target: str | os.PathLike[str] | IO[bytes], entries: Mapping[str, bytes | Path]) -> None:
    """Write a zip file whose bytes depend only on names and contents: entries sorted by name, with a fixed time.

    Examples
    --------
    >>> import io
    >>> first, second = io.BytesIO(), io.BytesIO()
    >>> write_archive(first, {"a.txt": b"1", "b.txt": b"2"})
    >>> write_archive(second, {"b.txt": b"2", "a.txt": b"1"})
    >>> first.getvalue() == second.getvalue()
    True
    """
    with zipfile.ZipFile(target, "w") as archive:
        for name in sorted(entries):
            info = zipfile.ZipInfo(name, _FIRST_DAY)
            info.compress_type, info.external_attr, info.create_system = zipfile.ZIP_DEFLATED, _PLAIN_FILE, 3
            content = entries[name]
            if isinstance(content, bytes):
                archive.writestr(info, content)
                continue
            info.file_size = content.stat().st_size
            with content.open("rb") as file, archive.open(info, "w") as entry:
                while chunk := file.read(_CHUNK):
                    entry.write(chunk)


@dataclass(frozen=True, eq=False)
class Archive:
    """An opened and checked zip file: no name leads out of it or occurs twice, and its size is bounded."""

    name: str
    file: zipfile.ZipFile

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the entries, in order."""
        return tuple(sorted(info.filename for info in self.file.infolist()))

    def read(self, name: str) -> bytes:
        """The content of an entry.

        Raises
        ------
        ArchiveError
            If there is no such entry, or it is too large or damaged.
        """
        try:
            size = self.file.getinfo(name).file_size
        except KeyError:
            raise ArchiveError(f"{self.name!r} has no {name!r}, so it is not complete.") from None
        if size > MOST_IN_MEMORY:
            raise ArchiveError(
                f"{name!r} in {self.name!r} is {size:,} bytes, more than the {MOST_IN_MEMORY:,} expected."
            )
        return b"".join(self._chunks(name))

    def sha256(self, name: str) -> str:
        """SHA-256 of an entry's content, read piece by piece."""
        digest = hashlib.sha256()
        for chunk in self._chunks(name):
            digest.update(chunk)
        return digest.hexdigest()

    def _chunks(self, name: str) -> Iterator[bytes]:
        try:
            with self.file.open(name) as entry:  # which reads no more than the checked size
                while chunk := entry.read(_CHUNK):
                    yield chunk
        except Exception as error:  # the kind of error depends on where the damage is
            raise ArchiveError(f"{name!r} in {self.name!r} is damaged: {first_line(error)}.") from None


@contextmanager
def open_archive(path: str | os.PathLike[str]) -> Iterator[Archive]:
    """Open a zip file after checking its list of entries; nothing is unpacked to disk.

    Raises
    ------
    ArchiveError
        If it is not a zip file; has too many or too large entries; has a repeated name, or one that leads out of the
        archive; or has an entry that is encrypted, a link, or compressed in an unusual way.
    FileNotFoundError
        If there is no such file.
    """
    shown = Path(path).name
    try:
        file = zipfile.ZipFile(path)
    except (FileNotFoundError, PermissionError):
        raise
    except Exception as error:  # `zipfile` raises several kinds of errors on damaged lists
        raise ArchiveError(f"{shown!r} is not a readable zip file: {first_line(error)}.") from None
    with file:
        _check(shown, file.infolist())
        yield Archive(shown, file)


def _check(shown: str, entries: list[zipfile.ZipInfo]) -> None:
    if len(entries) > MOST_ENTRIES:
        raise ArchiveError(f"{shown!r} has {len(entries):,} entries, more than the {MOST_ENTRIES:,} expected.")
    total = sum(entry.file_size for entry in entries)
    if total > MOST_BYTES:
        raise ArchiveError(f"{shown!r} would unpack to {total:,} bytes, more than the {MOST_BYTES:,} expected.")
    twice = [name for name, times in Counter(entry.filename for entry in entries).items() if times > 1]
    if twice:
        raise ArchiveError(f"{shown!r} has more than one entry named {twice[0]!r}, so it is ambiguous.")
    for entry in entries:
        if _leads_out(entry.filename):
            raise ArchiveError(f"{shown!r} has an entry named {entry.filename!r}, which leads out of the archive.")
        kind = entry.external_attr >> 28
        is_packed_as_usual = entry.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        if entry.flag_bits & _ENCRYPTED or not is_packed_as_usual or kind == 0o12:
            raise ArchiveError(
                f"{entry.filename!r} in {shown!r} is encrypted, a link, or compressed in an unusual way."
            )


def _leads_out(name: str) -> bool:
    is_absolute = name.startswith("/") or ":" in name or "\\" in name or "\0" in name
    return not name or is_absolute or ".." in name.split("/")
