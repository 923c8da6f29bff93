"""Batches audited in threads of this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

from evenhand.auditing.streaming.engines.work import BatchWork, attempt, collect
from evenhand.auditing.streaming.source import Batch
from evenhand.system.threads import one_thread_each

__all__ = ["begin_in_threads", "run_on_threads", "thread_pool"]


def run_on_threads(work: BatchWork, batches: Sequence[Batch], advance: Callable[[], None], n_workers: int) -> str:
    """Audit batches in threads: a `BatchEngine`, except for the number of threads."""
    with thread_pool(n_workers) as pool:
        collect(begin_in_threads(pool, work, batches), advance)
    return f"{n_workers} threads"


@contextmanager
def thread_pool(n_workers: int) -> Iterator[ThreadPoolExecutor]:
    """Threads that compute on one core each.

    One thread per batch, with one thread inside it, is faster than many threads on one batch after another; and the
    result of a batch is the same to the last bit wherever it runs.
    """
    with one_thread_each(), ThreadPoolExecutor(n_workers) as pool:
        yield pool


def begin_in_threads(pool: Executor, work: BatchWork, batches: Sequence[Batch]) -> list[Future[Exception | None]]:
    """Audit batches with the threads of a pool."""
    return [pool.submit(attempt, partial(work.audit, batch)) for batch in batches]
