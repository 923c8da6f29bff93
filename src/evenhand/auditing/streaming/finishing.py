"""Who computes what follows the last batch: threads of this process, or the processes that audited the batches."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import BrokenExecutor
from contextlib import contextmanager

from evenhand.auditing.options import StreamOptions
from evenhand.auditing.reference import AuditReference
from evenhand.auditing.streaming.engines.processes import computes_here
from evenhand.auditing.streaming.source import Source
from evenhand.auditing.streaming.store import Store
from evenhand.exceptions import StreamError, first_line
from evenhand.system.crews import Processes
from evenhand.system.parallel import Crew, Threads
from evenhand.system.threads import MOST_THREADS
from evenhand.system.workers import Workers

__all__ = ["finishing"]

_MANY_PEOPLE = 500_000  # whose evidence is worth starting processes for, if they do not run yet


@contextmanager
def finishing(
    how: StreamOptions, pool: Workers, people: Source, reference: AuditReference, store: Store
) -> Iterator[Crew]:
    """Who works on batches, each of which is read where it is worked on; processes that are not needed are ended.

    Raises
    ------
    StreamError
        If a process is lost.
    """
    is_many = min(pool.n_workers, len(people.batches)) > MOST_THREADS
    is_local = how.engine in ("local", "processes") and computes_here(reference)
    repays = pool.is_started or (reference.evidence is not None and people.n_rows >= _MANY_PEOPLE)
    try:
        if is_many and is_local and repays:
            yield Processes(pool, store.folder)
        else:
            pool.end()
            yield Threads(min(pool.n_workers, MOST_THREADS))
    except BrokenExecutor as lost:
        raise StreamError(
            f"A worker was lost after the last batch ({type(lost).__name__}: {first_line(lost)}); it may have run out "
            f"of memory: all {len(people.batches)} batches are kept, so use fewer workers, and continue with "
            "`resume=True` (--resume)."
        ) from lost
