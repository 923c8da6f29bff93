"""Batches audited by local processes, which share one reference in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evenhand.auditing.reference import AuditReference
from evenhand.auditing.streaming.engines.executor import begin_in_processes, shipped
from evenhand.auditing.streaming.engines.work import BatchWork, collect
from evenhand.auditing.streaming.source import Batch
from evenhand.exceptions import InvalidInputError
from evenhand.system.workers import Workers

__all__ = ["computes_here", "run_on_processes"]


def run_on_processes(work: BatchWork, batches: Sequence[Batch], advance: Callable[[], None], pool: Workers) -> str:
    """Audit batches in processes: a `BatchEngine`, except for the pool.

    Raises
    ------
    InvalidInputError
        If the model runs on a GPU.
    ShippingError
        If the model cannot be sent to other processes.
    StreamError
        If a process is lost.
    """
    if not computes_here(work.context.reference):
        raise InvalidInputError(
            f"The model runs on {work.context.reference.model.device}, which is best used by one process: drop "
            '`engine="processes"` (--engine processes).'
        )
    with shipped(work) as sent:
        collect(begin_in_processes(pool, sent, batches), advance)
    return f"{pool.n_workers} processes"


def computes_here(reference: AuditReference) -> bool:
    """Whether a model runs on CPU cores, which processes share."""
    return reference.model.device.type == "cpu"
