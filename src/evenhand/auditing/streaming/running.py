"""Run the unfinished batches of a streamed audit, and report those that are finished."""

from __future__ import annotations

from evenhand.auditing.options import StreamOptions
from evenhand.auditing.streaming.batch_audit import BatchContext
from evenhand.auditing.streaming.engines import BatchWork, engine_of
from evenhand.auditing.streaming.source import Source
from evenhand.auditing.streaming.store import Store
from evenhand.exceptions import EvenhandError
from evenhand.system.progress import progress
from evenhand.system.threads import n_cores
from evenhand.system.workers import Workers

__all__ = ["n_workers", "run_batches"]


def n_workers(how: StreamOptions) -> int:
    """Batches audited at the same time on this machine."""
    return n_cores() if how.n_jobs is None else how.n_jobs


def run_batches(
    context: BatchContext, source: Source, store: Store, how: StreamOptions, is_shown: bool, pool: Workers
) -> None:
    """Audit the batches that are not finished yet, and record who did.

    Raises
    ------
    EvenhandError
        The error of an engine, extended by the number of batches that are kept.
    """
    left = [batch for batch in source.batches if not store.is_finished(batch.number)]
    if not left:
        return
    n = len(source.batches)
    engine = engine_of(how, pool)
    with progress("batches", n, is_shown=is_shown, done=n - len(left)) as advance:
        try:
            who = engine(BatchWork(context, source, store), left, lambda: advance(""))
        except EvenhandError as error:
            raise type(error)(f"{str(error).rstrip('.')}. {_kept(source, store)}") from error
        except KeyboardInterrupt as interrupt:
            if any(store.is_finished(batch.number) for batch in source.batches):
                interrupt.add_note(f"{_kept(source, store)} Continue with `resume=True` (--resume).")
            raise
    store.write_json("engine.json", {"batches": len(left), "engine": who})


def _kept(source: Source, store: Store) -> str:
    n_done = sum(store.is_finished(batch.number) for batch in source.batches)
    return f"{n_done} of {len(source.batches)} batches are finished and kept in {str(store.folder)!r}."
