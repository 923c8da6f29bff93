"""Batches audited by any `concurrent.futures.Executor`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path

from evenhand.auditing.streaming.engines.threads import begin_in_threads
from evenhand.auditing.streaming.engines.work import BatchWork, collect, on_worker
from evenhand.auditing.streaming.source import Batch
from evenhand.auditing.streaming.store import writing
from evenhand.exceptions import StreamError, first_line
from evenhand.system.parcels import Parcel, parcel
from evenhand.system.parcels import opened as opened_parcel
from evenhand.system.threads import one_thread_each

__all__ = ["ShippingError", "begin_in_processes", "opened", "run_on_executor", "shipped"]


class ShippingError(StreamError):
    """The model, or something derived from it, cannot be sent to a different process."""


def run_on_executor(work: BatchWork, batches: Sequence[Batch], advance: Callable[[], None], executor: Executor) -> str:
    """Audit batches on an executor, which is left running: a `BatchEngine`, except for the executor.

    Its workers must see the source and the folder of the audit under the same paths. They get the reference as a file
    in that folder, which each worker opens once; a batch is sent as a few numbers.

    Raises
    ------
    ShippingError
        If the model cannot be sent to the workers.
    StreamError
        If a worker is lost.
    """
    with ExitStack() as stack:
        if isinstance(executor, ThreadPoolExecutor):
            stack.enter_context(one_thread_each())
            futures = begin_in_threads(executor, work, batches)
        else:
            futures = begin_in_processes(executor, stack.enter_context(shipped(work)), batches)
        collect(futures, advance)
    return type(executor).__name__


@contextmanager
def shipped(work: BatchWork, folder: Path | None = None) -> Iterator[Parcel]:
    """Write what batches need to a file for other processes: in the folder of the audit, unless another is given.

    Raises
    ------
    ShippingError
        If something in it cannot be pickled.
    """
    with ExitStack() as stack:
        with writing(work.store.folder, "free some space and continue with `resume=True` (--resume)"):
            try:
                sent = stack.enter_context(parcel(work.with_absolute_paths(), folder or work.store.folder))
            except (OSError, MemoryError):
                raise
            except Exception as error:  # any error of the model's library
                raise _unshippable(error) from error
        yield sent


def begin_in_processes(pool: Executor, sent: Parcel, batches: Sequence[Batch]) -> list[Future[Exception | None]]:
    """Let the processes of a pool audit batches."""
    return [pool.submit(_audit, sent, batch) for batch in batches]


def _audit(sent: Parcel, batch: Batch) -> Exception | None:
    """On a worker: audit a batch and keep its output."""
    return on_worker(partial(_open_and_audit, sent, batch))


def _open_and_audit(sent: Parcel, batch: Batch) -> None:
    opened(sent).audit(batch)


def opened(sent: Parcel) -> BatchWork:
    """On a worker: open what was sent, once.

    Raises
    ------
    ShippingError
        If something in it cannot be unpickled here.
    StreamError
        If the file is not there.
    """
    try:
        work: BatchWork = opened_parcel(sent)
    except FileNotFoundError:
        raise StreamError(
            f"A worker does not see the folder of the audit, {str(sent.path.parent)!r}: it must have the folder and "
            'the source under the same paths; Dask workers (`engine="dask"`) need neither.'
        ) from None
    except Exception as error:  # any error of the model's library
        raise _unshippable(error) from error
    return work


def _unshippable(error: Exception) -> ShippingError:
    return ShippingError(
        f"The model cannot be sent to other processes ({type(error).__name__}: {first_line(error)}); audit it with "
        '`engine="threads"` (--engine threads).'
    )
