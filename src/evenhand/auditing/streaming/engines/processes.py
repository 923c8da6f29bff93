"""Batches audited by processes of this machine, which share one reference in memory."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager

from joblib.externals.loky import ProcessPoolExecutor  # unlike Python's, its processes do not read the user's script

from evenhand.auditing.streaming.engines.executor import begin_in_processes, shipped
from evenhand.auditing.streaming.engines.work import BatchWork, collect
from evenhand.auditing.streaming.source import Batch
from evenhand.exceptions import InvalidInputError
from evenhand.system.processes import module_environment

__all__ = ["computes_here", "process_pool", "run_on_processes"]

_IDLE_SECONDS = 20  # after which a process ends whose batches are done, or whose parent was killed


def run_on_processes(work: BatchWork, batches: Sequence[Batch], advance: Callable[[], None], n_workers: int) -> str:
    """Audit batches in processes: a `BatchEngine`, but for their number.

    Raises
    ------
    InvalidInputError
        If the model computes on a GPU.
    ShippingError
        If the model cannot be taken to other processes.
    StreamError
        If a process is lost.
    """
    if not computes_here(work):
        raise InvalidInputError(
            f"The model computes on {work.context.reference.model.device}, which one process uses best: leave "
            '`engine="processes"` (--engine processes) out.'
        )
    with shipped(work) as sent, process_pool(min(n_workers, len(batches))) as pool:
        collect(begin_in_processes(pool, sent, batches), advance)
    return f"{n_workers} processes"


def computes_here(work: BatchWork) -> bool:
    """Whether a model computes on the cores that processes share."""
    return work.context.reference.model.device.type == "cpu"


@contextmanager
def process_pool(n_workers: int) -> Iterator[Executor]:
    """Processes that compute on one core each; where the block is left early they are ended at once."""
    pool = ProcessPoolExecutor(n_workers, timeout=_IDLE_SECONDS, initializer=_begin, env=module_environment())
    try:
        yield pool
    except BaseException:
        pool.shutdown(wait=True, kill_workers=True)
        raise
    pool.shutdown(wait=True)


def _begin() -> None:
    """On a worker: leave Ctrl-C to the process that started this one."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
