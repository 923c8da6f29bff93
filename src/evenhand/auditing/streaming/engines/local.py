"""Batches audited on this machine: in threads, and in processes if those are faster."""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Protocol, TypeVar

import numpy as np
import pyarrow as pa

from evenhand.arrays import Ints
from evenhand.auditing.batch import audit_batch
from evenhand.auditing.finished import BatchOutput, BatchRecord
from evenhand.auditing.fitted import Fitted, as_seen_by, in_units
from evenhand.auditing.streaming.source import Batch, Source
from evenhand.auditing.streaming.store import BatchFiles, Store, encode_batch, writing
from evenhand.exceptions import EvenhandError, InvalidInputError, InvalidTypeError, StreamError, first_line
from evenhand.inputs.people import Columns
from evenhand.system.hashing import person_hash
from evenhand.system.processes import Parcel, Workers, parcel
from evenhand.system.processes import opened as opened_parcel
from evenhand.system.threads import MOST_THREADS, keep_freed_memory, on_this_core, one_thread_each


@dataclass(frozen=True, eq=False)
class BatchContext:
    """What every batch needs, sent to each machine once.

    Attributes
    ----------
    reference
        What was fitted on the reference.
    columns
        The roles of the columns.
    reference_rows
        Rows of the source that are in the reference, ascending; None if the reference is a different file.
    screened
        Rows of the source whose people are screened for proxies.
    evidence_seed, evidence_below
        Evidence is gathered for people whose hash is at most the limit; None for everyone.
    unit_of_weight
        Unit of the weights: see `auditing.fitted.unit_of_weight`.
    """

    reference: Fitted
    columns: Columns
    reference_rows: Ints | None
    screened: Ints
    evidence_seed: int = 0
    evidence_below: int | None = None
    unit_of_weight: float = 1.0


def run_batch(context: BatchContext, number: int, first_row: int, table: pa.Table, where: str) -> BatchOutput:
    """Audit the rows of a batch.

    Parameters
    ----------
    context
        What every batch needs.
    number, first_row
        Number of the batch, and number of its first row in the source.
    table
        Its rows.
    where
        The file and the batch, for messages.
    """
    fitted = context.reference
    people = context.columns.people_of(table, where)
    if not len(people):
        return BatchOutput(BatchRecord(number, people.exclusions))
    try:
        people = as_seen_by(fitted.model, people, fitted.settings, pool=fitted.pool, where=where)
    except (InvalidInputError, InvalidTypeError) as error:
        raise type(error)(f"{where}: {error}") from None
    people = in_units(people, context.unit_of_weight)
    row = people.kept + first_row
    batch = audit_batch(
        fitted,
        people,
        person_row=_places(context.reference_rows, row),
        first_person=first_row,
        compared=_compared(context, row),
    )
    return BatchOutput.of(
        batch,
        screened=np.flatnonzero(np.isin(row, context.screened)),
        number=number,
        row=row,
        first_person=first_row,
        exclusions=people.exclusions,
    )


def _places(reference_rows: Ints | None, row: Ints) -> Ints | None:
    """The row of each person in the reference, -1 if not in it."""
    if reference_rows is None:
        return None
    place = np.minimum(np.searchsorted(reference_rows, row), len(reference_rows) - 1)
    return np.where(reference_rows[place] == row, place, -1)


def _compared(context: BatchContext, row: Ints) -> Ints | None:
    if context.evidence_below is None:
        return None
    return np.flatnonzero(person_hash(row, context.evidence_seed) <= np.uint64(context.evidence_below))


T = TypeVar("T")

_SECONDS_DEAF = 1.0  # Ctrl-C at the start of a wait is handled when it ends


@dataclass(frozen=True, eq=False)
class BatchWork:
    """What any batch of an audit needs: the reference, the rows, and the folder for its output."""

    context: BatchContext
    source: Source
    store: Store

    def rows(self, batch: Batch) -> pa.Table:
        """The rows of a batch."""
        return self.source.read(batch, self.context.columns.needed)

    def keep(self, files: BatchFiles) -> None:
        """Write the output of a batch.

        Raises
        ------
        StreamError
            If it cannot be written.
        """
        with writing(self.store.folder, "free some space and continue with `resume=True` (--resume)"):
            self.store.write(files)

    def audit(self, batch: Batch) -> None:
        """Read a batch, audit it and keep its output."""
        self.keep(audited(self.context, batch, self.rows(batch), self.source.where(batch)))

    def with_absolute_paths(self) -> BatchWork:
        """The same for a process that may be in a different folder."""
        source = replace(self.source, files=tuple(path.absolute() for path in self.source.files), batches=())
        return replace(self, source=source, store=Store(self.store.folder.absolute()))


class BatchEngine(Protocol):
    """What audits batches."""

    def __call__(self, work: BatchWork, batches: Sequence[Batch], advance: Callable[[], None]) -> str:
        """Audit batches in any order, call `advance` as each is kept, and return a description of who audited them.

        `BatchWork.audit` does everything for one batch, wherever source and folder are visible; the result is the same
        to the last bit. The first `EvenhandError` of a batch is raised unchanged; an engine that loses its workers
        raises a `StreamError`. Batches that have not started by then are not started.
        """
        ...


def audited(context: BatchContext, batch: Batch, table: pa.Table, where: str) -> BatchFiles:
    """The output of a batch, from its rows; `where` they come from is for messages."""
    with on_this_core():
        return encode_batch(run_batch(context, batch.number, batch.first_row, table, where))


def attempt(work: Callable[[], T]) -> T | Exception:
    """The result of a piece of work, or the error that ended it.

    An error that is returned rather than raised arrives unchanged; whatever an executor raises is about the executor.
    """
    try:
        return work()
    except EvenhandError as error:
        return error
    except Exception as error:
        error.add_note(traceback.format_exc())  # which cannot be sent between processes
        return error


def on_worker(work: Callable[[], T]) -> T | Exception:
    """The same in a process that audits batches for a different one."""
    keep_freed_memory()
    with one_thread_each():
        return attempt(work)


def collect(futures: Sequence[Future[Exception | None]], advance: Callable[[], None]) -> None:
    """Wait until batches are kept; if one fails, cancel those that have not started.

    Raises
    ------
    EvenhandError
        If a batch is rejected.
    StreamError
        If a worker is lost.
    """
    left = set(futures)
    try:
        while left:
            done, left = wait(left, timeout=_SECONDS_DEAF, return_when=FIRST_COMPLETED)
            for future in done:
                if (error := _error_of(future)) is not None:
                    raise error
                advance()
    finally:
        for future in futures:
            future.cancel()


def _error_of(future: Future[Exception | None]) -> Exception | None:
    try:
        return future.result()
    except Exception as lost:
        found = StreamError(
            f"A worker was lost before its batch was kept ({type(lost).__name__}: {first_line(lost)}); it may have "
            "run out of memory: use fewer workers, and continue with `resume=True` (--resume)."
        )
        found.__cause__ = lost
        return found


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


def computes_here(reference: Fitted) -> bool:
    """Whether a model runs on CPU cores, which processes share."""
    return reference.model.device.type == "cpu"


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
