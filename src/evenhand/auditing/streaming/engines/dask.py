"""Batches audited by the workers of a Dask cluster."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import islice
from typing import Any

from evenhand.auditing.streaming.engines.local import BatchWork, on_worker
from evenhand.auditing.streaming.source import Batch
from evenhand.exceptions import EvenhandError, InvalidInputError, StreamError, first_line
from evenhand.system.libraries import optional_module

_IN_FLIGHT_PER_THREAD = 2
_CONNECT_SECONDS = "10s"
_WORKER_SECONDS = 60
_MOST_IDLE_ROUNDS = 3


def run_on_dask(
    work: BatchWork, batches: Sequence[Batch], advance: Callable[[], None], scheduler: str | None, n_workers: int
) -> str:
    """Audit batches on the workers of a Dask cluster.

    Parameters
    ----------
    work, batches, advance
        As for every engine. The reference is sent to every worker once. Workers on this machine read rows and write the
        output of batches themselves. Workers of a remote scheduler may see neither the source nor the folder of the
        audit, so rows are read and files are written here.
    scheduler
        Address of a scheduler; None for a cluster of processes on this machine.
    n_workers
        Number of those processes.

    Raises
    ------
    MissingExtraError
        If Dask is not installed.
    InvalidInputError
        If no scheduler answers at the address.
    StreamError
        If the scheduler is lost, or a batch crashes its workers.
    """
    left = {batch.number: batch for batch in batches}
    n_idle = 0
    with _dask_client(scheduler, n_workers) as (distributed, client):
        lost = (distributed.CancelledError, distributed.comm.CommClosedError, OSError, TimeoutError)
        while left:
            n_before = len(left)
            try:
                for batch in _kept(distributed, client, work, list(left.values()), is_local=scheduler is None):
                    del left[batch.number]
                    advance()
            except distributed.KilledWorker as error:
                raise StreamError(
                    f"A batch crashed several Dask workers in a row ({error.last_worker}); give the "
                    "workers more memory, or lower `batch_rows` (--batch-rows)."
                ) from error
            except lost as error:
                if isinstance(error, EvenhandError):
                    raise
                # If the last worker with the reference is lost, the reference is sent again.
                n_idle = 0 if len(left) < n_before else n_idle + 1
                if n_idle >= _MOST_IDLE_ROUNDS or not _has_workers(client):
                    raise StreamError(
                        f"The connection to the Dask scheduler {scheduler or 'of this machine'} broke "
                        f"({type(error).__name__}); continue with `resume=True` (--resume) once it is back."
                    ) from error
    return "Dask"


def _kept(
    distributed: Any, client: Any, work: BatchWork, batches: Sequence[Batch], *, is_local: bool
) -> Iterator[Batch]:
    """Send the reference to every worker, then batches as workers become free; those that are kept."""
    sent = work.with_absolute_paths() if is_local else replace(work, source=replace(work.source, files=(), batches=()))
    shared = client.scatter(sent, broadcast=True, hash=False)
    n_threads = sum(worker["nthreads"] for worker in client.scheduler_info(n_workers=-1)["workers"].values())
    waiting, batch_of = iter(batches), dict[str, Batch]()
    running = distributed.as_completed()

    def submit(n: int) -> None:
        for batch in islice(waiting, n):
            with warnings.catch_warnings():
                # Rows travel with the task, so that a task can be sent again if its worker is lost.
                warnings.filterwarnings("ignore", "Sending large graph")
                if is_local:
                    future = client.submit(on_worker, BatchWork.audit, shared, batch, pure=False)
                else:
                    rows = work.rows(batch), work.source.where(batch)
                    future = client.submit(on_worker, BatchWork.audited, shared, batch, *rows, pure=False)
            batch_of[future.key] = batch
            running.add(future)

    submit(_IN_FLIGHT_PER_THREAD * max(1, n_threads))
    for future in running:
        files = future.result()
        future.release()
        if isinstance(files, Exception):
            raise files
        batch = batch_of.pop(future.key)
        if files is not None:
            work.keep(batch, files)
        yield batch
        submit(1)


def _has_workers(client: Any) -> bool:
    """Whether the scheduler still answers and has a worker, or will soon have one again."""
    if client.status != "running":
        return False
    try:
        client.wait_for_workers(1, timeout=_WORKER_SECONDS)
    except (OSError, TimeoutError):
        return False
    return bool(client.status == "running")


@contextmanager
def _dask_client(scheduler: str | None, n_workers: int) -> Iterator[tuple[Any, Any]]:
    distributed = optional_module("distributed", "`engine='dask'`", "Dask", "dask")
    cluster = None
    try:
        if scheduler is None:
            cluster = distributed.LocalCluster(
                n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=":0"
            )
        client = distributed.Client(cluster or scheduler, timeout=_CONNECT_SECONDS)
    except RuntimeError as error:
        raise StreamError(
            "Dask could not start workers on this machine; a script that uses them must do so under "
            '`if __name__ == "__main__":`, because each worker reads the script first.'
        ) from error
    except (OSError, TimeoutError, ValueError) as error:
        raise InvalidInputError(
            f"No Dask scheduler answers at {scheduler!r} ({first_line(error)}); start one, or drop `scheduler` "
            "(--scheduler) to use this machine."
        ) from error
    try:
        yield distributed, client
    finally:
        client.close()
        if cluster is not None:
            cluster.close()
