"""Batches audited on this machine, in threads or in processes if those are faster, or by any executor."""

from __future__ import annotations

import json
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Executor, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import numpy as np
import pyarrow as pa
from pyarrow import ipc

from evenhand.arrays import Ints, person_hash
from evenhand.auditing.batch import audit_batch
from evenhand.auditing.batches import AuditSums, BatchOutput, Merged
from evenhand.auditing.fitted import Fitted, as_seen_by, in_units
from evenhand.auditing.options import Engine
from evenhand.auditing.sections import SECTIONS
from evenhand.auditing.streaming.source import Batch, Source
from evenhand.auditing.streaming.store import BatchFiles, Store, encode_batch, writing
from evenhand.exceptions import EvenhandError, InvalidInputError, InvalidTypeError, StreamError, first_line
from evenhand.inputs.people import Columns
from evenhand.system.processes import Parcel, Workers, described, error_of, parcel
from evenhand.system.processes import opened as opened_parcel
from evenhand.system.threads import MOST_THREADS, keep_freed_memory, on_this_core, one_thread_each

P = ParamSpec("P")
T = TypeVar("T")

_SECONDS_DEAF = 1.0  # Ctrl-C at the start of a wait is handled when it ends
_START_SECONDS = 8.0  # until processes have imported what they need
_FREE_SPACE = "free some space and continue with `resume=True` (--resume)"


@dataclass(frozen=True, eq=False)
class BatchWork:
    """What every batch of an audit needs, sent to each machine once.

    Attributes
    ----------
    fitted
        What was fitted on the reference.
    columns
        The roles of the columns.
    source, store
        The rows, and the folder for the output of batches.
    reference_rows
        Rows of the source that are in the reference, ascending; None if the reference is a different file.
    screened
        Rows of the source whose people are screened for proxies.
    evidence_seed, evidence_below
        Evidence is gathered for people whose hash is at most the limit; None for everyone.
    unit_of_weight
        Unit of the weights: see `auditing.fitted.unit_of_weight`.
    """

    fitted: Fitted
    columns: Columns
    source: Source
    store: Store
    reference_rows: Ints | None
    screened: Ints
    evidence_seed: int
    evidence_below: int | None
    unit_of_weight: float

    def rows(self, batch: Batch) -> pa.Table:
        """The rows of a batch."""
        return self.source.read(batch, self.columns.needed)

    def keep(self, batch: Batch, files: Mapping[str, pa.Buffer | bytes]) -> None:
        """Write the output of a batch.

        Raises
        ------
        StreamError
            If it cannot be written, or is not the output of this batch.
        """
        with writing(self.store.folder, _FREE_SPACE):
            self.store.write(batch.number, files)

    def audit(self, batch: Batch) -> None:
        """Read a batch, audit it and keep its output."""
        self.keep(batch, self.audited(batch, self.rows(batch), self.source.where(batch)))

    def audited(self, batch: Batch, table: pa.Table, where: str) -> BatchFiles:
        """The output of a batch, from its rows; `where` they come from is for messages."""
        with on_this_core():
            return encode_batch(self._output(batch, table, where))

    def _output(self, batch: Batch, table: pa.Table, where: str) -> BatchOutput:
        fitted, first_row = self.fitted, batch.first_row
        people = self.columns.people_of(table, where)
        if not len(people):
            return BatchOutput(batch.number, Merged(people.exclusions))
        try:
            people = as_seen_by(fitted.model, people, fitted.settings, pool=fitted.pool, where=where)
        except (InvalidInputError, InvalidTypeError) as error:
            raise type(error)(f"{where}: {error}") from None
        people = in_units(people, self.unit_of_weight)
        row = people.kept + first_row
        person_row = compared = None
        if self.reference_rows is not None:
            place = np.minimum(np.searchsorted(self.reference_rows, row), len(self.reference_rows) - 1)
            person_row = np.where(self.reference_rows[place] == row, place, -1)
        if self.evidence_below is not None:
            compared = np.flatnonzero(person_hash(row, self.evidence_seed) <= np.uint64(self.evidence_below))
        found = audit_batch(fitted, people, person_row=person_row, first_person=first_row, compared=compared)
        return BatchOutput.of(
            found,
            AuditSums.of(found, SECTIONS),
            screened=np.flatnonzero(np.isin(row, self.screened)),
            number=batch.number,
            row=row,
            first_person=first_row,
            exclusions=people.exclusions,
        )

    def with_absolute_paths(self) -> BatchWork:
        """The same for a process that may be in a different folder."""
        source = replace(self.source, files=tuple(path.absolute() for path in self.source.files), batches=())
        return replace(self, source=source, store=Store(self.store.folder.absolute()))


def attempt(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | Exception:
    """What a function returns, or the error that ended it.

    An error that is returned rather than raised arrives unchanged; whatever an executor raises is about the executor.
    """
    try:
        return function(*args, **kwargs)
    except Exception as error:
        if not isinstance(error, EvenhandError):
            error.add_note(traceback.format_exc())  # which cannot be sent between processes
        return error


def on_worker(function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T | Exception:
    """The same in a process that audits batches for a different one."""
    keep_freed_memory()
    with one_thread_each():
        return attempt(function, *args, **kwargs)


_CONTENT = pa.schema([("name", pa.string()), ("content", pa.large_binary())])
_ERROR = ""  # in place of the name of a file


def as_data(answer: BatchFiles | Exception | None) -> bytes:
    """The files of a batch, or an error, as bytes that no one has to unpickle; None is a batch without files."""
    files: Mapping[str, pa.Buffer | bytes] = answer if isinstance(answer, Mapping) else {}
    if isinstance(answer, Exception):
        files = {_ERROR: json.dumps(described(answer)).encode()}
    sink = pa.BufferOutputStream()
    with ipc.new_stream(sink, _CONTENT) as stream:
        for name, content in files.items():
            stream.write_batch(pa.record_batch([[name], [bytes(content)]], schema=_CONTENT))
    return bytes(sink.getvalue())


def from_data(answer: Any) -> dict[str, pa.Buffer]:
    """The files that another process or machine sent.

    Raises
    ------
    EvenhandError, OSError, RuntimeError
        The error that it sent instead.
    StreamError
        If it sent something else.
    """
    try:
        with ipc.open_stream(answer) as stream:
            rows = [(batch[0][0].as_py(), batch[1][0].as_buffer()) for batch in stream if stream.schema == _CONTENT]
        files = dict(rows)
        error = error_of(json.loads(files[_ERROR].to_pybytes())) if _ERROR in files else None
    except Exception as damage:  # of Arrow and JSON
        raise StreamError("A worker answered with something other than data; nothing of it was kept.") from damage
    if error is not None:
        raise error
    return files


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
                try:
                    error = future.result()
                except Exception as lost:
                    raise StreamError(
                        f"A worker was lost before its batch was kept ({type(lost).__name__}: {first_line(lost)}); it "
                        "may have run out of memory: use fewer workers, and continue with `resume=True` (--resume)."
                    ) from lost
                if error is not None:
                    raise error
                advance()
    finally:
        for future in futures:
            future.cancel()


class ShippingError(StreamError):
    """The model, or something derived from it, cannot be sent to a different process."""

    @classmethod
    def of(cls, error: Exception) -> ShippingError:
        """The error of the model's library, and what to do."""
        return cls(
            f"The model cannot be sent to other processes ({type(error).__name__}: {first_line(error)}); audit it with "
            '`engine="threads"` (--engine threads).'
        )


@contextmanager
def shipped(work: BatchWork, folder: Path | None = None) -> Iterator[Parcel]:
    """Write what batches need to a file for other processes: in the folder of the audit, unless another is given.

    Raises
    ------
    ShippingError
        If something in it cannot be pickled.
    """
    with ExitStack() as stack:
        with writing(work.store.folder, _FREE_SPACE):
            try:
                sent = stack.enter_context(parcel(work.with_absolute_paths(), folder or work.store.folder))
            except (OSError, MemoryError):
                raise
            except Exception as error:  # any error of the model's library
                raise ShippingError.of(error) from error
        yield sent


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
        raise ShippingError.of(error) from error
    return work


def audit_sent(sent: Parcel, batch: Batch) -> None:
    """On a worker: audit a batch and keep its output."""
    opened(sent).audit(batch)


@contextmanager
def begun(work: BatchWork, batches: Sequence[Batch], executor: Executor) -> Iterator[list[Future[Exception | None]]]:
    """Let an executor audit batches.

    Processes must see the source and the folder of the audit under the same paths. They get the work as a file in that
    folder, which each opens once; a batch is sent as a few numbers.
    """
    if isinstance(executor, ThreadPoolExecutor):
        with one_thread_each():
            yield [executor.submit(attempt, work.audit, batch) for batch in batches]
    else:
        with shipped(work) as sent:
            yield [executor.submit(on_worker, audit_sent, sent, batch) for batch in batches]


def run_on_executor(work: BatchWork, batches: Sequence[Batch], advance: Callable[[], None], executor: Executor) -> str:
    """Audit batches on an executor, which is left running.

    Raises
    ------
    ShippingError
        If the model cannot be sent to the workers.
    StreamError
        If a worker is lost.
    """
    with begun(work, batches, executor) as futures:
        collect(futures, advance)
    return type(executor).__name__


def run_locally(
    work: BatchWork, batches: Sequence[Batch], advance: Callable[[], None], engine: Engine, pool: Workers
) -> str:
    """Audit batches in "threads", in "processes", or ("local") in processes if those would finish sooner.

    One thread per batch, with one thread inside it, is faster than many threads on one batch after another; and the
    result of a batch is the same to the last bit wherever it runs.

    Raises
    ------
    InvalidInputError
        If processes are to run a model that is on a GPU.
    ShippingError
        If the model cannot be sent to processes, unless it may stay here.
    StreamError
        If a process is lost.
    """
    n_workers, is_on_cpu = pool.n_workers, work.fitted.model.device is None
    if engine == "processes":
        if not is_on_cpu:
            raise InvalidInputError(
                f"The model runs on {work.fitted.model.device}, which is best used by one process: drop "
                '`engine="processes"` (--engine processes).'
            )
        run_on_executor(work, batches, advance, pool)
        return f"{n_workers} processes"
    is_small = n_workers <= MOST_THREADS or len(batches) <= MOST_THREADS
    with one_thread_each(), ThreadPoolExecutor(n_workers) as threads:
        if engine == "threads" or is_small or not is_on_cpu:
            run_on_executor(work, batches, advance, threads)
            return f"{n_workers} threads"
        rest, note = batches[MOST_THREADS:], ""
        start = time.perf_counter()
        with begun(work, batches[:MOST_THREADS], threads) as here:
            wait(here, return_when=FIRST_COMPLETED)
            seconds = (time.perf_counter() - start) * len(rest)
            if seconds / MOST_THREADS > _START_SECONDS + seconds / n_workers:
                try:
                    with begun(work, rest, pool) as there:
                        collect(here, advance)
                        here = []
                        collect(there, advance)
                    return f"{n_workers} processes"
                except ShippingError as error:
                    note = f". {error}"
            with begun(work, rest, threads) as more:
                collect([*here, *more], advance)
    return f"{n_workers} threads{note}"
