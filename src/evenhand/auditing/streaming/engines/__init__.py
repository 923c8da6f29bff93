"""The engines that audit batches. An engine is a file here and a line in `engine_of`."""

from __future__ import annotations

from concurrent.futures import Executor
from functools import partial

from evenhand.auditing.options import StreamOptions
from evenhand.auditing.streaming.engines.dask import run_on_dask
from evenhand.auditing.streaming.engines.executor import run_on_executor
from evenhand.auditing.streaming.engines.local import run_locally
from evenhand.auditing.streaming.engines.processes import run_on_processes
from evenhand.auditing.streaming.engines.spark import run_on_spark
from evenhand.auditing.streaming.engines.threads import run_on_threads
from evenhand.auditing.streaming.engines.work import BatchEngine, BatchWork

__all__ = ["BatchEngine", "BatchWork", "engine_of"]


def engine_of(how: StreamOptions, n_workers: int) -> BatchEngine:
    """The engine that the options name."""
    if isinstance(how.engine, Executor):
        return partial(run_on_executor, executor=how.engine)
    engines: dict[str, BatchEngine] = {
        "local": partial(run_locally, n_workers=n_workers),
        "threads": partial(run_on_threads, n_workers=n_workers),
        "processes": partial(run_on_processes, n_workers=n_workers),
        "dask": partial(run_on_dask, scheduler=how.scheduler, n_workers=n_workers),
        "spark": partial(run_on_spark, scheduler=how.scheduler),
    }
    return engines[how.engine]
