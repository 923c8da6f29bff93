"""Files that are either whole or absent, and data that JSON can hold."""

from __future__ import annotations

import errno
import math
import os
import secrets
import shutil
import tempfile
import weakref
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

__all__ = ["PrivateFolder", "Room", "json_ready", "write_atomically", "write_text"]

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
    """What may be written to a folder without filling its disk.

    Attributes
    ----------
    folder
        Where.
    n_bytes
        How much, when it was asked.
    """

    folder: Path
    n_bytes: int

    @classmethod
    def of(cls, folder: Path) -> Room:
        """The room in a folder: what is free, less 256 MB."""
        return cls(folder, max(shutil.disk_usage(folder).free - _SPARE, 0))

    def check(self, needed: int) -> None:
        """Refuse what is too large.

        Raises
        ------
        OSError
            If more bytes are needed than there is room for.
        """
        if needed > self.n_bytes:
            raise OSError(
                errno.ENOSPC,
                f"it has {needed:,} bytes or more, and the disk of {str(self.folder)!r} has room for {self.n_bytes:,}",
            )


@contextmanager
def write_atomically(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path beside `path`, renamed to it when the block ends well and removed when it does not.

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
    temporary = target.with_name(f".{target.stem}.{secrets.token_hex(8)}{target.suffix}")
    temporary.touch(exist_ok=False)  # with the permissions of any new file, unlike those of `tempfile`
    try:
        yield temporary
        temporary.replace(target)
    finally:
        temporary.unlink(missing_ok=True)


def write_text(path: str | os.PathLike[str], text: str) -> Path:
    """Write a file of UTF-8 text, whole or not at all, and return its path."""
    with write_atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8")
    return Path(path)


def json_ready(value: Any) -> Any:  # noqa: ANN401 - any plain data
    """Plain data as JSON can hold it: None for what is not finite, text for keys, no scalars of numpy.

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
