"""What every engine does: audit batches wherever it can, and report when each is kept."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, replace
from typing import Protocol, TypeVar

import pyarrow as pa

from evenhand.auditing.streaming.batch_audit import BatchContext, run_batch
from evenhand.auditing.streaming.source import Batch, Source
from evenhand.auditing.streaming.store import BatchFiles, Store, encode_batch, writing
from evenhand.exceptions import EvenhandError, StreamError, first_line
from evenhand.system.memory import keep_freed_memory
from evenhand.system.threads import on_this_core, one_thread_each

__all__ = ["BatchEngine", "BatchWork", "attempt", "audited", "collect", "on_worker"]

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
