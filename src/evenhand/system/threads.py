"""Number of threads: cores to use, and libraries kept from splitting single operations."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import cache
from threading import BoundedSemaphore
from typing import Any

from threadpoolctl import ThreadpoolController  # comes with scikit-learn

__all__ = [
    "MOST_THREADS",
    "device_turn",
    "n_cores",
    "on_this_core",
    "one_blas_thread",
    "one_thread_each",
    "one_torch_thread",
]

MOST_THREADS = 4
"""Cores that the threads of one process keep busy: they share an interpreter."""

_IS_ALONE: ContextVar[bool] = ContextVar("is_alone", default=False)
_DEVICE_TURNS = BoundedSemaphore(2)


def n_cores() -> int:
    """Cores that this process may use; one inside `on_this_core`."""
    if _IS_ALONE.get():
        return 1
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@contextmanager
def on_this_core() -> Iterator[None]:
    """Start no threads inside the block, which is one of several running in parallel."""
    before = _IS_ALONE.set(True)
    try:
        yield
    finally:
        _IS_ALONE.reset(before)


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Let torch use a single thread in each thread that calls it."""
    import torch  # not at the top: the process that opens model files also counts cores, and needs no torch

    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def one_blas_thread() -> AbstractContextManager[object]:
    """Keep every product of numpy and scipy on the calling core.

    BLAS threads inside our threads make products several times slower, and how a product is split affects its last
    digits. The limit applies to the whole process. Code that starts threads that set it again must set it around them,
    so that none of them lifts it for the others, or saves another's limit and restores it forever.
    """
    limit: AbstractContextManager[object] = _thread_pools().limit(limits=1, user_api="blas")
    return limit


@contextmanager
def one_thread_each() -> Iterator[None]:
    """Keep every operation of torch, numpy and scipy on the thread that calls it.

    How a sum is split among threads decides its last digits: inside, the number of threads does not matter.
    """
    with one_torch_thread(), one_blas_thread():
        yield


def device_turn(device_type: str) -> AbstractContextManager[object]:
    """Wait until few enough threads of this process use much of a GPU's memory; on a CPU no one waits.

    A GPU runs one operation after the other in any case. A second thread fills the pauses while the first one waits.
    """
    return nullcontext() if device_type == "cpu" else _DEVICE_TURNS


@cache
def _thread_pools() -> Any:  # noqa: ANN401 (threadpoolctl has no types)
    """The handle on BLAS threads; looked up once, because that takes milliseconds."""
    return ThreadpoolController()
