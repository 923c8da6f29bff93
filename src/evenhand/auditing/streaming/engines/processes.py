"""Batches audited by processes of this machine, which share one reference in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from evenhand.auditing.streaming.engines.executor import begin_in_processes, shipped
from evenhand.auditing.streaming.engines.work import BatchWork, collect
from evenhand.auditing.streaming.source import Batch
from evenhand.exceptions import InvalidInputError
from evenhand.system.workers import Workers

__all__ = ["computes_here", "run_on_processes"]


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
    with shipped(work) as sent, Workers(n_workers) as pool:
        collect(begin_in_processes(pool, sent, batches), advance)
    return f"{n_workers} processes"


def computes_here(work: BatchWork) -> bool:
    """Whether a model computes on the cores that processes share."""
    return work.context.reference.model.device.type == "cpu"
