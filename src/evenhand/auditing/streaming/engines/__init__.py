"""The engines that audit batches. An engine is a file here and a line in `engine_of`."""

from __future__ import annotations

from concurrent.futures import Executor
from functools import partial

from evenhand.auditing.options import StreamOptions
from evenhand.auditing.streaming.engines.dask import run_on_dask
from evenhand.auditing.streaming.engines.local import (
    BatchEngine,
    BatchWork,
    run_locally,
    run_on_executor,
    run_on_processes,
    run_on_threads,
)
from evenhand.auditing.streaming.engines.spark import run_on_spark
from evenhand.system.processes import Workers

__all__ = ["BatchEngine", "BatchWork", "engine_of"]


def engine_of(how: StreamOptions, pool: Workers) -> BatchEngine:
    """The engine that the options name; `pool` has the processes and the number of workers of a local one."""
    if isinstance(how.engine, Executor):
        return partial(run_on_executor, executor=how.engine)
    engines: dict[str, BatchEngine] = {
        "local": partial(run_locally, pool=pool),
        "threads": partial(run_on_threads, n_workers=pool.n_workers),
        "processes": partial(run_on_processes, pool=pool),
        "dask": partial(run_on_dask, scheduler=how.scheduler, n_workers=pool.n_workers),
        "spark": partial(run_on_spark, scheduler=how.scheduler),
    }
    return engines[how.engine]
