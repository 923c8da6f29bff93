"""Batches audited by the workers of a Dask cluster."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import replace
from itertools import islice
from pickle import UnpicklingError
from traceback import walk_stack
from typing import Any

from evenhand.auditing.streaming.engines.local import BatchWork, as_data, from_data, on_worker
from evenhand.auditing.streaming.source import Batch
from evenhand.exceptions import EvenhandError, InvalidInputError, StreamError, first_line
from evenhand.system.libraries import optional_module

_IN_FLIGHT_PER_THREAD = 2
_CONNECT_SECONDS = "10s"
_WORKER_SECONDS = 60
_MOST_IDLE_ROUNDS = 3
_POLL_SECONDS = 0.02


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
    distributed = optional_module("distributed", "`engine='dask'`", "Dask", "dask")
    with _only_data(distributed, scheduler), _dask_client(distributed, scheduler, n_workers) as client:
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
            except UnpicklingError as error:
                raise StreamError(
                    f"The Dask cluster at {scheduler} answered with something other than data ({error}), which was not "
                    "kept; use a cluster that you trust."
                ) from error
            except EvenhandError:  # of a batch
                raise
            except lost as error:
                # If the last worker with the reference is lost, the reference is sent again.
                n_idle = 0 if len(left) < n_before else n_idle + 1
                if n_idle >= _MOST_IDLE_ROUNDS or not _has_workers(client):
                    raise StreamError(
                        f"The connection to the Dask scheduler {scheduler or 'of this machine'} broke "
                        f"({type(error).__name__}); continue with `resume=True` (--resume) once it is back."
                    ) from error
            except Exception as error:  # raised on a worker, outside of the audit of a batch
                raise StreamError(
                    f"A Dask worker failed ({type(error).__name__}: {first_line(error)}); continue with `resume=True` "
                    "(--resume)."
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
                    future = client.submit(_answer, BatchWork.audit, shared, batch, pure=False)
                else:
                    rows = work.rows(batch), work.source.where(batch)
                    future = client.submit(_answer, BatchWork.audited, shared, batch, *rows, pure=False)
            batch_of[future.key] = batch
            running.add(future)

    submit(_IN_FLIGHT_PER_THREAD * max(1, n_threads))
    while running.count():
        done = running.next_batch(block=False)
        if _refused:  # an answer, or something else that Dask would have unpickled: then there may be no answer
            raise UnpicklingError(_refused[0])
        if not done:
            time.sleep(_POLL_SECONDS)
        for future in done:
            files = from_data(future.result())
            future.release()
            batch = batch_of.pop(future.key)
            if not is_local:
                work.keep(batch, files)
            yield batch
            submit(1)


def _answer(function: Callable[..., Any], *given: Any) -> bytes:
    """On a worker: the output of a batch, or its error, as data."""
    return as_data(on_worker(function, *given))


# Plain types, and what an error with its traceback is made of.
_PLAIN = {
    *(f"builtins.{name}" for name in ("bytes", "bytearray", "str", "int", "float", "complex", "bool")),
    *(f"builtins.{name}" for name in ("list", "tuple", "dict", "set", "frozenset")),
    *(f"tblib.{name}" for name in ("Code", "Frame", "Traceback")),
    *(f"tblib.pickling_support.unpickle_{what}" for what in ("traceback", "exception", "exception_with_attrs")),
}
_guarded = 0
_is_watching = False
_refused: list[str] = []


@contextmanager
def _only_data(distributed: Any, scheduler: str | None) -> Iterator[None]:
    """Let Dask unpickle plain types and errors only, whatever a cluster sends that this process did not start.

    Dask's protocol has pickles in many places: results, errors, warnings, messages of the scheduler. All of them name
    what they call, and Python tells of each name before it is looked up.
    """
    global _guarded, _is_watching
    is_ours = scheduler is None or any(getattr(distributed.Scheduler, "_instances", ()))
    if not _is_watching and not is_ours:
        sys.addaudithook(_refuse_objects)  # for good: a hook cannot be removed
        _is_watching = True
    _guarded += not is_ours
    _refused.clear()
    try:
        yield
    finally:
        _guarded -= not is_ours


def _refuse_objects(event: str, names: tuple[Any, ...]) -> None:
    if event != "pickle.find_class" or not _guarded:
        return
    module, name = names
    known = getattr(sys.modules.get(module), name, None)
    is_error = isinstance(known, type) and issubclass(known, BaseException)
    # Other threads of this process may unpickle meanwhile.
    callers = (str(frame.f_globals.get("__name__")) for frame, _ in walk_stack(sys._getframe()))
    if is_error or f"{module}.{name}" in _PLAIN or not any(caller.startswith("distributed.") for caller in callers):
        return
    _refused.append(f"{module}.{name} is neither plain data nor an error")
    raise UnpicklingError(_refused[-1])


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
def _dask_client(distributed: Any, scheduler: str | None, n_workers: int) -> Iterator[Any]:
    with ExitStack() as stack:
        try:
            place: Any = scheduler
            if scheduler is None:
                place = distributed.LocalCluster(
                    n_workers=n_workers, threads_per_worker=1, processes=True, dashboard_address=":0"
                )
                stack.callback(place.close)
            client = stack.enter_context(closing(distributed.Client(place, timeout=_CONNECT_SECONDS)))
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
        yield client
