"""What becomes of memory that this process frees: kept to be used again, or given back to the system (glibc only)."""

from __future__ import annotations

import ctypes
import gc
import sys
from functools import cache
from typing import Any

__all__ = ["keep_freed_memory", "return_freed_memory"]

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


def _of_glibc(name: str) -> Any:  # noqa: ANN401 - a C function, or None
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
