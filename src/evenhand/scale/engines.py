"""Who audits the batches: threads of this process, or the workers of a Dask cluster."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import torch

from evenhand.exceptions import EvenhandError, InvalidInputError, StreamError
from evenhand.scale.batch_files import BatchFiles, encode_batch
from evenhand.scale.batches import BatchContext, run_batch
from evenhand.scale.freed_memory import keep_freed_memory
from evenhand.scale.source import Batch, Source

__all__ = ["n_cores", "one_torch_thread", "run_on_dask", "run_on_threads"]

_IN_FLIGHT_PER_WORKER = 2
_CONNECT_SECONDS = "10s"
_WORKER_SECONDS = 60
_MOST_IDLE_ROUNDS = 3


def n_cores() -> int:
    """Cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def run_on_threads(
    context: BatchContext,
    source: Source,
    batches: Sequence[Batch],
    keep: Callable[[BatchFiles], None],
    n_workers: int,
) -> None:
    """Audit batches in threads of this process and keep each as it is done."""

    def work(batch: Batch) -> BatchFiles:
        return _one(context, source, batch)

    # One thread for each batch, and one thread inside it, is faster than many threads on one batch after another; and
    # a batch comes out the same to the last bit wherever it is run.
    with one_torch_thread(), ThreadPoolExecutor(n_workers) as pool:
        waiting = iter(batches)
        running: set[Future[BatchFiles]] = set()
        try:
            while True:
                while len(running) < n_workers and (batch := next(waiting, None)) is not None:
                    running.add(pool.submit(work, batch))
                if not running:
                    return
                done, running = wait(running, return_when=FIRST_COMPLETED)
                for future in done:
                    keep(future.result())
        finally:
            for future in running:
                future.cancel()


def run_on_dask(
    context: BatchContext,
    source: Source,
    batches: Sequence[Batch],
    keep: Callable[[BatchFiles], None],
    scheduler: str | None,
    n_workers: int,
) -> None:
    """Audit batches on the workers of a Dask cluster and keep each as it arrives.

    Parameters
    ----------
    context, source, batches, keep
        As in `run_on_threads`. The reference is sent to every worker once; rows are read here and sent along, so
        workers need neither the source nor the folder of the audit.
    scheduler
        Address of a scheduler; None for a cluster of processes on this machine.
    n_workers
        Number of those processes.

    Raises
    ------
    InvalidInputError
        If Dask is not installed, or no scheduler answers at the address.
    StreamError
        If the scheduler is lost on the way, or a batch brings its workers down.
    """
    left = {batch.number: batch for batch in batches}
    n_idle = 0
    with _dask_client(scheduler, n_workers) as (distributed, client):
        lost = (distributed.CancelledError, distributed.comm.CommClosedError, OSError, TimeoutError)
        while left:
            n_before = len(left)
            try:
                _dask_round(distributed, client, context, source, left, keep)
            except distributed.KilledWorker as error:
                raise StreamError(
                    f"A batch brought down several Dask workers one after the other ({error.last_worker}); give "
                    "workers more memory, or lower `batch_rows`."
                ) from error
            except lost as error:
                if isinstance(error, EvenhandError):
                    raise
                # With the last worker that held the reference the reference is lost, and sent again.
                n_idle = 0 if len(left) < n_before else n_idle + 1
                if n_idle >= _MOST_IDLE_ROUNDS or not _has_workers(client):
                    raise StreamError(
                        f"The connection to the Dask scheduler {scheduler or 'of this machine'} broke "
                        f"({type(error).__name__}); go on with `resume=True` (--resume) once it is back."
                    ) from error


def _dask_round(
    distributed: Any,  # noqa: ANN401
    client: Any,  # noqa: ANN401
    context: BatchContext,
    source: Source,
    left: dict[int, Batch],
    keep: Callable[[BatchFiles], None],
) -> None:
    """Send the reference to every worker, then batches as workers are free, and strike out those that are kept."""
    shared = client.scatter(context, broadcast=True, hash=False)
    waiting = iter(list(left.values()))
    running = distributed.as_completed()

    def submit() -> bool:
        batch = next(waiting, None)
        if batch is None:
            return False
        table = source.read(batch, context.columns.needed)
        arguments = (shared, batch.number, batch.first_row, table, where_of(source, batch))
        with warnings.catch_warnings():
            # Rows travel with the task, so that a task whose worker is lost can be sent again.
            warnings.filterwarnings("ignore", "Sending large graph")
            running.add(client.submit(_on_worker, *arguments, pure=False))
        return True

    n_at_once = _IN_FLIGHT_PER_WORKER * max(1, len(client.scheduler_info(n_workers=-1)["workers"]))
    for _ in range(n_at_once):
        if not submit():
            break
    for future in running:
        output = _result(future)
        future.release()
        keep(output)
        del left[output.number]
        submit()


def _has_workers(client: Any) -> bool:  # noqa: ANN401
    """Whether the scheduler still answers and has, or soon has again, a worker."""
    if client.status != "running":
        return False
    try:
        client.wait_for_workers(1, timeout=_WORKER_SECONDS)
    except (OSError, TimeoutError):
        return False
    return bool(client.status == "running")


def where_of(source: Source, batch: Batch) -> str:
    """The file and the batch, for messages."""
    return f"{str(source.files[batch.file])!r} (batch {batch.number})"


def _one(context: BatchContext, source: Source, batch: Batch) -> BatchFiles:
    table = source.read(batch, context.columns.needed)
    return encode_batch(run_batch(context, batch.number, batch.first_row, table, where_of(source, batch)))


def _on_worker(context: BatchContext, number: int, first_row: int, table: Any, where: str) -> BatchFiles | str:  # noqa: ANN401
    """A batch on a worker; a refusal comes back as its sentence, as errors lose their type on the way."""
    keep_freed_memory()
    with one_torch_thread():
        try:
            return encode_batch(run_batch(context, number, first_row, table, where))
        except EvenhandError as error:
            return str(error)


def _result(future: Any) -> BatchFiles:  # noqa: ANN401
    found = future.result()
    if isinstance(found, str):
        raise InvalidInputError(found)
    assert isinstance(found, BatchFiles)
    return found


@contextmanager
def _dask_client(scheduler: str | None, n_workers: int) -> Iterator[tuple[Any, Any]]:
    try:
        distributed: Any = import_module("distributed")
    except ImportError:
        raise InvalidInputError(
            "`engine='dask'` needs Dask, which is not installed; install it with pip install 'evenhand[dask]'."
        ) from None
    cluster = None
    try:
        if scheduler is None:
            cluster = distributed.LocalCluster(
                n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=":0"
            )
        client = distributed.Client(cluster or scheduler, timeout=_CONNECT_SECONDS)
    except RuntimeError as error:
        raise StreamError(
            "Dask could not start workers on this machine; a script that asks for them must do so under "
            '`if __name__ == "__main__":`, as each worker reads the script first.'
        ) from error
    except (OSError, TimeoutError, ValueError) as error:
        reason = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise InvalidInputError(
            f"No Dask scheduler answers at {scheduler!r} ({reason}); start one, or leave `scheduler` out to use this "
            "machine."
        ) from error
    try:
        yield distributed, client
    finally:
        client.close()
        if cluster is not None:
            cluster.close()


@contextmanager
def one_torch_thread() -> Iterator[None]:
    """Let torch use a single thread of each that calls it."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
