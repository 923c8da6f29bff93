"""What becomes of memory that this process frees, and when Python looks for what it could free."""

from __future__ import annotations

import ctypes
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

__all__ = ["available_memory", "keep_freed_memory", "quick_imports", "return_freed_memory"]

_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # as in malloc.h
_LARGEST_REUSED, _MOST_KEPT = 32 << 20, 256 << 20


@cache
def keep_freed_memory() -> None:
    """Let this process keep memory that it frees, up to a bound, and use it again.

    Dask starts its workers with settings of glibc by which every larger array is returned to the system at once. An
    audit makes and frees such arrays all the time; fetching their pages anew makes it three times as slow.
    """
    mallopt = _of_glibc("mallopt")
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_REUSED)
        mallopt(_M_TRIM_THRESHOLD, _MOST_KEPT)


def return_freed_memory() -> None:
    """Give back to the system what this process has freed: the end of an audit needs other memory than its batches."""
    trim = _of_glibc("malloc_trim")
    if trim is not None:
        gc.collect()
        trim(0)


def available_memory() -> int | None:
    """Bytes that a process can take without pushing others out; None where the system is not Linux, which says it."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


@contextmanager
def quick_imports() -> Iterator[None]:
    """Look for nothing to free while modules are imported inside the block, nor at their contents afterwards.

    Modules stay until the end, and looking over their two million objects again and again takes a fifth of the time of
    importing them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        gc.freeze()
        if was_enabled:
            gc.enable()


def _of_glibc(name: str) -> Any:  # noqa: ANN401 - a C function, or None
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
