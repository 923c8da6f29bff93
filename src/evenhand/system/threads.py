"""Cores and threads: how many to use, work that they share in order, and the memory of this process."""

from __future__ import annotations

import ctypes
import gc
import os
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from functools import cache
from itertools import islice
from pathlib import Path
from threading import BoundedSemaphore
from typing import Any, Generic, Protocol, TypeVar

from threadpoolctl import ThreadpoolController

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
    """Let torch, if it is loaded, use a single thread in each thread that calls it."""
    torch = sys.modules.get("torch")
    if torch is None:
        yield
        return
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


def device_turn(device: str | None) -> AbstractContextManager[object]:
    """Wait until few enough threads of this process use much of a GPU's memory; on a CPU no one waits.

    A GPU runs one operation after the other in any case. A second thread fills the pauses while the first one waits.
    """
    return nullcontext() if device in (None, "cpu") else _DEVICE_TURNS


@cache
def _thread_pools() -> Any:
    """The handle on BLAS threads; looked up once, because that takes milliseconds."""
    return ThreadpoolController()


class _Adds(Protocol):
    def __add__(self, other: Any, /) -> Any: ...


T = TypeVar("T")
A = TypeVar("A", bound=_Adds)
R = TypeVar("R")

_WAITING_PER_THREAD = 2
_ADDED_AT_ONCE = 8  # items; a power of 2, as the order of additions is then that of `pairwise_sum`


def in_order(function: Callable[[T], R], items: Iterable[T], n_threads: int) -> Iterator[R]:
    """Results of a function in the order of the items, computed in threads; only a few wait to be consumed.

    One thread is the caller's own: starting another takes longer than most work on few people.

    Not joblib's `Parallel(return_as="generator")`: it limits what is started but not what is done, so that all results
    wait in memory for a slow consumer, and it warns if the consumer stops early.

    Examples
    --------
    >>> list(in_order(abs, [-3, 1, -2], n_threads=2))
    [3, 1, 2]
    """
    if n_threads == 1:
        yield from map(function, items)
        return
    with ThreadPoolExecutor(n_threads) as pool:
        yield from consumed_in_order(lambda item: pool.submit(function, item), items, _WAITING_PER_THREAD * n_threads)


def consumed_in_order(submit: Callable[[T], Future[R]], items: Iterable[T], most: int) -> Iterator[R]:
    """Results of items in order, of which no more than so many are begun before they are consumed."""
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            if len(waiting) == most:
                yield waiting.popleft().result()
            waiting.append(submit(item))
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


@dataclass(frozen=True, eq=False)
class Later(Generic[T]):
    """Items that are loaded where they are needed: by whoever iterates over them, or in each thread or process.

    Examples
    --------
    >>> list(Later(abs, [-3, 1]))
    [3, 1]
    """

    load: Callable[[Any], T]
    keys: Sequence[Any]

    def __iter__(self) -> Iterator[T]:
        return map(self.load, self.keys)

    def then(self, function: Callable[[T], R]) -> Callable[[Any], R]:
        """What a function returns of the item of a key."""
        return lambda key: function(self.load(key))


class Crew(Protocol):
    """Threads or processes that work through items."""

    def in_order(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Results of a function in the order of the items; only a few wait to be consumed."""


@dataclass(frozen=True)
class Threads:
    """Threads of this process.

    Examples
    --------
    >>> list(Threads(2).in_order(str, Later(abs, [-3, 1, -2])))
    ['3', '1', '2']
    """

    n: int = 1

    def in_order(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Results of a function in the order of the items; only a few wait to be consumed."""
        if isinstance(items, Later):
            return in_order(items.then(function), items.keys, self.n)
        return in_order(function, items, self.n)


ONE_THREAD = Threads()


def pairwise_sum(items: Iterable[A]) -> A | None:
    """The sum of items in order, in which each is added a number of times that hardly grows with their number.

    Adding to one growing total would take time proportional to its size, every time. None without items.

    Examples
    --------
    >>> pairwise_sum("abcde")
    'abcde'
    """
    sums: list[A | None] = []  # of 1, 2, 4, ... items, the later ones first
    for item in items:
        for k, before in enumerate(sums):
            if before is None:
                sums[k] = item
                break
            item, sums[k] = before + item, None
        else:
            sums.append(item)
    total: A | None = None
    for part in sums:
        if part is not None:
            total = part if total is None else part + total
    return total


def sum_in_order(function: Callable[[T], A], items: Iterable[T], crew: Crew) -> A | None:
    """The sum of a function's results over the items, added by a crew as `pairwise_sum` does; None without items.

    Examples
    --------
    >>> sum_in_order(str, range(12), Threads(2))
    '01234567891011'
    """

    def added(some: Sequence[T]) -> A:
        total = pairwise_sum(map(function, some))
        assert total is not None
        return total

    left = iter(items)
    blocks = iter(lambda: list(islice(left, _ADDED_AT_ONCE)), [])
    return pairwise_sum(crew.in_order(added, blocks))


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


def _of_glibc(name: str) -> Any:
    return getattr(ctypes.CDLL(None), name, None) if sys.platform == "linux" else None
