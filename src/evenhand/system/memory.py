"""What happens to memory that this process frees, and when Python collects garbage."""

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
    """Let this process keep freed memory, up to a bound, and reuse it.

    Dask starts its workers with glibc settings that return every large array to the system at once. An audit creates
    and frees such arrays all the time; mapping their pages again makes it three times as slow.
    """
    mallopt = _of_glibc("mallopt")
    if mallopt is not None:
        mallopt(_M_MMAP_THRESHOLD, _LARGEST_REUSED)
        mallopt(_M_TRIM_THRESHOLD, _MOST_KEPT)


def return_freed_memory() -> None:
    """Return freed memory to the system: the end of an audit needs different memory than its batches."""
    trim = _of_glibc("malloc_trim")
    if trim is not None:
        gc.collect()
        trim(0)


def available_memory() -> int | None:
    """Bytes that a process can use without swapping; None if the system is not Linux."""
    try:
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("MemAvailable:")), None)


@contextmanager
def quick_imports() -> Iterator[None]:
    """Turn garbage collection off while modules are imported in the block, and exempt their contents afterwards.

    Modules stay until the end, and scanning their two million objects repeatedly takes a fifth of the import time.
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
