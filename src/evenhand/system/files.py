"""Files that are either complete or absent, and data that JSON can hold."""

from __future__ import annotations

import errno
import hashlib
import math
import os
import platform
import re
import secrets
import shutil
import tempfile
import time
import weakref
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

__all__ = [
    "PrivateFolder",
    "Room",
    "json_ready",
    "remove_stale",
    "temporary_path",
    "write_atomically",
    "write_text",
    "written_together",
]

_TEMPORARY = re.compile(r"\..*\.(?P<machine>[0-9a-f]{8})-(?P<process>[0-9]+)-[0-9a-f]{8}(\.[^.]*)?")
_STALE_SECONDS = 24 * 3600  # time without a change after which no one on a different machine is still writing a file

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)  # no space, none for this user, none in this file

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


@dataclass(frozen=True)
class Room:
    """How much may be written to a folder without filling its disk.

    Attributes
    ----------
    folder
        The folder.
    n_bytes
        The free space at the time of the check.
    """

    folder: Path
    n_bytes: int

    @classmethod
    def of(cls, folder: Path) -> Room:
        """The space in a folder: what is free, minus 256 MB."""
        return cls(folder, max(shutil.disk_usage(folder).free - _SPARE, 0))

    def check(self, needed: int) -> None:
        """Reject what is too large.

        Raises
        ------
        OSError
            If more bytes are needed than there is space for.
        """
        if needed > self.n_bytes:
            raise OSError(
                errno.ENOSPC,
                f"it needs at least {needed:,} bytes, but the disk of {str(self.folder)!r} has space for "
                f"{self.n_bytes:,}",
            )


@contextmanager
def write_atomically(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path next to `path`, renamed to it if the block succeeds and removed otherwise.

    What killed processes left half-written in the folder is removed, too. A full disk is an `OSError` that names
    `path`.

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
    target.parent.mkdir(parents=True, exist_ok=True)
    _remove_stale_once(target.parent.absolute())
    temporary = temporary_path(target)
    temporary.touch(exist_ok=False)  # with the permissions of any new file, unlike those of `tempfile`
    try:
        yield temporary
        temporary.replace(target)
    except OSError as error:
        if error.errno in _FULL and error.filename is None:
            raise OSError(error.errno, error.strerror, str(target)) from error
        raise
    finally:
        temporary.unlink(missing_ok=True)


@contextmanager
def written_together(folder: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary folder inside `folder`, whose files are moved there if the block succeeds: all of them, or none.

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
    target.mkdir(parents=True, exist_ok=True)
    _remove_stale_once(target.absolute())
    stage = temporary_path(target / "files")
    stage.mkdir()
    try:
        yield stage
        for file in sorted(stage.iterdir()):
            file.replace(target / file.name)
    finally:
        shutil.rmtree(stage, ignore_errors=True)


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
                is_here = named["machine"] == _machine() and os.name == "posix"
                if _runs(int(named["process"])) if is_here else not _is_old(path):
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


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (PermissionError, OverflowError):  # someone else's; not the number of a process
        return True
    return True


def _is_old(path: Path) -> bool:
    return time.time() - path.stat().st_mtime > _STALE_SECONDS


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write a UTF-8 text file, completely or not at all, and return its path."""
    with write_atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def json_ready(value: Any) -> Any:  # noqa: ANN401 - any plain data
    """Plain data in a form that JSON can hold: None for non-finite numbers, text for keys, no numpy scalars.

    Examples
    --------
    >>> json_ready({0.5: [np.float64("nan"), np.int64(3), (1.5, "x")]})
    {'0.5': [None, 3, [1.5, 'x']]}
    """
    if isinstance(value, Mapping):
        return {str(key): json_ready(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [json_ready(item) for item in value]
    if isinstance(value, np.generic):
        value = value.item()
    return None if isinstance(value, float) and not math.isfinite(value) else value
