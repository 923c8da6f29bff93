"""Files that are complete or absent, zip files, and what is written into files: JSON, TOML and times."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import os
import platform
import re
import secrets
import shutil
import tempfile
import time
import tomllib
import weakref
import zipfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import IO, Any

import numpy as np

from evenhand.exceptions import ArchiveError, InvalidInputError, InvalidTypeError, first_line

_TEMPORARY = re.compile(r"\..*\.(?P<machine>[0-9a-f]{8})-(?P<process>[0-9]+)-[0-9a-f]{8}(\.[^.]*)?")
_STALE_SECONDS = 24 * 3600  # time without a change after which no one on a different machine is still writing a file

FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Numbers of errors: no space, none for this user, none in this file."""

_OWN_FILE, _OWN_FOLDER = 0o600, 0o700  # what is written holds values of people

_MOVING_SECONDS, _POLL_SECONDS = 5.0, 0.01  # how long to wait for a process that moves its files to the same folder

_SPARE = 1 << 28  # bytes that are left free for whatever else the system does


class PrivateFolder:
    """A folder that only this user can read, removed with the object, at the latest when Python ends.

    Examples
    --------
    >>> folder = PrivateFolder()
    >>> path = folder.path
    >>> path.is_dir(), oct(path.stat().st_mode)[-3:]
    (True, '700')
    >>> del folder
    >>> path.exists()
    False
    """

    def __init__(self) -> None:
        self.path = Path(tempfile.mkdtemp(prefix="evenhand-"))
        weakref.finalize(self, shutil.rmtree, self.path, ignore_errors=True)


def space_in(folder: Path) -> Callable[[int], None]:
    """A check of whether so many bytes fit in a folder: what is free now, minus 256 MB.

    It raises an `OSError` if more bytes are needed than there is space for.
    """
    free = max(shutil.disk_usage(folder).free - _SPARE, 0)

    def check(needed: int) -> None:
        if needed > free:
            raise OSError(
                errno.ENOSPC,
                f"it needs at least {needed:,} bytes, but the disk of {str(folder)!r} has space for {free:,}",
            )

    return check


@contextmanager
def write_atomically(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path next to `path`, renamed to it if the block succeeds and removed otherwise.

    Only its owner can read the file, and the folder if it is new. What killed processes left half-written in the folder
    is removed, too. A full disk is an `OSError` that names `path`.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with write_atomically(folder / "score.txt") as temporary:
    ...     _ = temporary.write_text("0.3")
    >>> [p.name for p in folder.iterdir()]
    ['score.txt']
    """
    target = Path(path)
    target.parent.mkdir(_OWN_FOLDER, parents=True, exist_ok=True)
    _remove_stale_once(target.parent.absolute())
    temporary = temporary_path(target)
    temporary.touch(_OWN_FILE, exist_ok=False)
    try:
        yield temporary
        temporary.replace(target)
    except OSError as error:
        if error.errno in FULL and error.filename is None:
            raise OSError(error.errno, error.strerror, str(target)) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def written_together(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary folder inside `folder`, whose files are moved there if the block succeeds: all of them, or none.

    Only their owner can read them, and the folder if it is new. What two processes write there at a time is moved one
    after the other.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with written_together(folder) as stage:
    ...     _ = (stage / "score.txt").write_text("0.3")
    >>> [p.name for p in folder.iterdir()]
    ['score.txt']
    """
    target = Path(folder)
    target.mkdir(_OWN_FOLDER, parents=True, exist_ok=True)
    _remove_stale_once(target.absolute())
    stage = temporary_path(target / "files")
    spare = [os.open(os.devnull, os.O_RDONLY) for _ in range(2)]  # to remove the stage where nothing more can be opened
    try:
        stage.mkdir(_OWN_FOLDER)
        yield stage
        for file in stage.iterdir():
            file.chmod(_OWN_FOLDER if file.is_dir() else _OWN_FILE)
            if (target / file.name).is_dir() and not file.is_dir():
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(target / file.name))
        with only_one(target, seconds=_MOVING_SECONDS):
            _move(stage, target)
    finally:
        for descriptor in spare:
            os.close(descriptor)
        shutil.rmtree(stage, ignore_errors=True)


def _move(stage: Path, target: Path) -> None:
    """Move all files, also where Ctrl-C comes in between."""
    try:
        for file in sorted(stage.iterdir()):
            file.replace(target / file.name)
    except KeyboardInterrupt:
        _move(stage, target)
        raise


@contextmanager
def only_one(folder: Path, seconds: float = 0.0) -> Iterator[None]:
    """Hold a folder that exists: a second audit of this machine that asks for it meanwhile waits, then is refused.

    Raises
    ------
    InvalidInputError
        If another audit holds it for longer. Systems without such locks hold nothing.
    """
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    held, until = os.open(folder, os.O_RDONLY), time.monotonic() + seconds
    try:
        while True:
            try:
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= until:
                    raise InvalidInputError(
                        f"Another audit is writing to {str(folder)!r}: wait until it ends, or choose a different "
                        "folder."
                    ) from None
                time.sleep(_POLL_SECONDS)
                continue
            except OSError:  # a file system without locks
                pass
            break
        yield
    finally:
        os.close(held)


def temporary_path(path: Path) -> Path:
    """A unique hidden name next to `path` that identifies the process and machine it belongs to."""
    return path.with_name(f".{path.stem}.{_machine()}-{os.getpid()}-{secrets.token_hex(4)}{path.suffix}")


def remove_stale(folders: Iterable[Path]) -> None:
    """Remove temporary files and folders whose process was killed; those of processes that run stay.

    Whether a process on a different machine is running cannot be checked: its files are removed once no one has written
    to them for a day.

    Examples
    --------
    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with write_atomically(folder / "score.txt") as temporary:
    ...     remove_stale([folder])
    ...     temporary.exists()
    True
    """
    for folder in folders:
        for path in folder.glob(".*"):
            named = _TEMPORARY.fullmatch(path.name)
            if named is None:
                continue
            with suppress(OSError):  # already gone, or not ours to remove
                if named["machine"] == _machine() and os.name == "posix":
                    is_used = process_runs(int(named["process"]))
                else:
                    is_used = time.time() - path.stat().st_mtime <= _STALE_SECONDS
                if is_used:
                    continue
                if path.is_dir() and not path.is_symlink():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink()


@cache
def _remove_stale_once(folder: Path) -> None:
    """Remove what killed processes left in a folder, the first time that this process writes there."""
    remove_stale([folder])


@cache
def _machine() -> str:
    """Where process numbers have the same meaning: the machine, and on Linux the container."""
    try:
        space = Path("/proc/self/ns/pid").stat().st_ino
    except OSError:
        space = 0
    return hashlib.sha256(f"{platform.node()} {space}".encode()).hexdigest()[:8]


def process_runs(process: int) -> bool:
    """Whether a process of this machine, which must not be Windows, runs."""
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # someone else's; not the number of a process
        pass
    return True


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write a UTF-8 text file, completely or not at all, and return its path."""
    with write_atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def json_ready(value: Any) -> Any:
    """Plain data in a form that JSON can hold: None for non-finite numbers, text for keys, no numpy scalars.

    Examples
    --------
    >>> json_ready({0.5: [np.float64("nan"), np.int64(3), (1.5, "x")]})
    {'0.5': [None, 3, [1.5, 'x']]}
    """
    if isinstance(value, Mapping):
        return {str(key): json_ready(item) for key, item in value.items()}
    if isinstance(value, (list, tuple, np.ndarray)):
        return [json_ready(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
        name = entry.filename
        is_absolute = name.startswith("/") or any(mark in name for mark in ":\\\0")
        if not name or is_absolute or ".." in name.split("/"):
            raise ArchiveError(f"{shown!r} has an entry named {name!r}, which leads out of the archive.")
        kind = entry.external_attr >> 28
        is_packed_as_usual = entry.compress_type in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
        if entry.flag_bits & _ENCRYPTED or not is_packed_as_usual or kind == 0o12:
            raise ArchiveError(f"{name!r} in {shown!r} is encrypted, a link, or compressed in an unusual way.")


_VARIABLE = "SOURCE_DATE_EPOCH"


def time_of_writing() -> datetime:
    """Now, or the time in `SOURCE_DATE_EPOCH` (seconds since 1970), with which a file can be reproduced exactly.

    Raises
    ------
    InvalidInputError
        If the variable is not a number of seconds.

    Examples
    --------
    >>> time_of_writing().tzinfo is UTC
    True
    """
    given = os.environ.get(_VARIABLE)
    if not given:
        return datetime.now(UTC).replace(microsecond=0)
    try:
        return datetime.fromtimestamp(int(given), UTC)
    except (ValueError, OverflowError, OSError):
        raise InvalidInputError(
            f"{_VARIABLE} must be a whole number of seconds since 1970, got {given!r}; correct or unset it."
        ) from None


def read_toml(path: Path, what: str = "") -> dict[str, Any]:
    """The content of a TOML file; `what` is the option that names it.

    Raises
    ------
    InvalidInputError
        If there is no such file, or it is not TOML.
    """
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InvalidInputError(f"{f'{what}: t' if what else 'T'}here is no file {str(path)!r}.") from None
    except (ValueError, RecursionError) as error:  # a number of too many digits is no TOMLDecodeError
        raise InvalidInputError(
            f"{f'{what}: ' if what else ''}{str(path)!r} is not valid TOML: {first_line(error)}."
        ) from None


def toml_text(values: Mapping[str, object]) -> str:
    r"""One line per key; None, which TOML does not have, is left out.

    Examples
    --------
    >>> toml_text({"label": "paid", "group": ("sex", "age"), "limits": {"excess": 0.05}, "model": None})
    'label = "paid"\ngroup = ["sex", "age"]\nlimits = {"excess" = 0.05}\n'
    """
    return "".join(f"{key} = {toml_value(value)}\n" for key, value in values.items() if value is not None)


def toml_value(value: object) -> str:
    """A value as TOML, whose basic strings use JSON's escapes.

    Raises
    ------
    InvalidTypeError
        If TOML has no such type.
    """
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, (int, float)):
        return repr(value)
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{toml_value(str(key))} = {toml_value(item)}' for key, item in value.items())}}}"
    if isinstance(value, Iterable):
        return f"[{', '.join(toml_value(item) for item in value)}]"
    raise InvalidTypeError(
        f"A TOML file can contain strings, numbers, lists and tables, got {type(value).__name__}: {value!r}."
    )
