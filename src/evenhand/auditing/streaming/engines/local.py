"""Batches audited on this machine: in threads, and in processes if those are faster."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, wait

from evenhand.auditing.streaming.engines.executor import ShippingError, begin_in_processes, shipped
from evenhand.auditing.streaming.engines.processes import computes_here
from evenhand.auditing.streaming.engines.threads import begin_in_threads, run_on_threads, thread_pool
from evenhand.auditing.streaming.engines.work import BatchWork, collect
from evenhand.auditing.streaming.source import Batch
from evenhand.system.threads import MOST_THREADS
from evenhand.system.workers import Workers

__all__ = ["run_locally"]

_START_SECONDS = 8.0  # until processes have imported what they need


def run_locally(work: BatchWork, batches: Sequence[Batch], advance: Callable[[], None], pool: Workers) -> str:
    """Audit batches in threads, or in processes once a first batch shows that they are worthwhile.

    A `BatchEngine`, except for the processes. A model that cannot be sent to them stays here.
    """
    n_workers = pool.n_workers
    if n_workers <= MOST_THREADS or len(batches) <= MOST_THREADS or not computes_here(work.context.reference):
        return run_on_threads(work, batches, advance, n_workers)
    rest, note = batches[MOST_THREADS:], ""
    with thread_pool(n_workers) as threads:
        start = time.perf_counter()
        begun = begin_in_threads(threads, work, batches[:MOST_THREADS])
        wait(begun, return_when=FIRST_COMPLETED)
        if _repays(time.perf_counter() - start, len(rest), n_workers):
            try:
                with shipped(work) as sent:
                    there = begin_in_processes(pool, sent, rest)
                    collect(begun, advance)
                    begun = []
                    collect(there, advance)
                return f"{n_workers} processes"
            except ShippingError as error:
                note = f". {error}"
        collect([*begun, *begin_in_threads(threads, work, rest)], advance)
    return f"{n_workers} threads{note}"


def _repays(seconds: float, n_batches: int, n_workers: int) -> bool:
    """Whether processes would finish sooner than threads, given the batches left and the seconds for each.

    Examples
    --------
    >>> _repays(0.1, 100, 16), _repays(2.0, 100, 16)
    (False, True)
    """
    work = seconds * n_batches
    return work / MOST_THREADS > _START_SECONDS + work / n_workers
