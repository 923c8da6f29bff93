"""Streamed audits on 1, 2, 4, ... workers: people per second with processes, with threads and with the default.

Every worker has the same number of people, so all runs take about as long. ``python benchmarks/bench_cores.py`` takes
a minute per run; with ``--people 5000`` each worker audits fewer people.
"""

import os
import shutil
import sys
import tempfile
import time
from functools import partial
from pathlib import Path

from bench_scale import audit, write_people

PEOPLE, REFERENCE, BATCH_ROWS = 60_000, 50_000, 5_000
TARGET = {2: 1.8, 16: 10}


def workers_here() -> list[int]:
    n_cores = len(os.sched_getaffinity(0))
    return [k for k in (1, 2, 4, 8, 16) if k <= n_cores]


def measured(n_people: int, n_workers: int, engine: str) -> dict[str, float]:
    """Seconds of the batches, from the last batch to the result, and of the whole audit."""
    from evenhand.auditing.streaming import stream

    seconds = {}
    stages = {"batches": "run_batches", "after": "_finished"}
    functions = {stage: getattr(stream, name) for stage, name in stages.items()}

    def timed(stage: str, *arguments):
        start = time.perf_counter()
        result = functions[stage](*arguments)
        seconds[stage] = time.perf_counter() - start
        return result

    folder = Path(tempfile.mkdtemp(prefix="evenhand-bench-"))
    for stage, name in stages.items():
        setattr(stream, name, partial(timed, stage))
    try:
        write_people(folder / "people.parquet", n_people)
        start = time.perf_counter()
        audit(
            folder / "people.parquet",
            folder / "out",
            n_jobs=n_workers,
            engine=engine,
            batch_rows=BATCH_ROWS,
            reference_people=REFERENCE,
        )
        return {**seconds, "audit": time.perf_counter() - start}
    finally:
        for stage, name in stages.items():
            setattr(stream, name, functions[stage])
        shutil.rmtree(folder)


def rows(people: int, engines=("processes", "threads", "local"), workers=None) -> list[dict]:
    found = []
    one = measured(people, 1, "threads")
    for n_workers in workers or workers_here()[1:]:
        for engine in engines:
            many = measured(people * n_workers, n_workers, engine)
            gain = {part: n_workers * one[part] / many[part] for part in one}
            found.append(
                {
                    "what": f"batches of {people * n_workers:,} people, {n_workers} workers ({engine}) against one "
                    f"worker at as many people each; after the last batch {many['after']:.1f} s, {gain['after']:.1f}x; "
                    f"the whole audit {gain['audit']:.1f}x",
                    "ours_s": many["batches"],
                    "theirs_s": n_workers * one["batches"],
                    "ratio": gain["batches"],
                    "target": TARGET.get(n_workers) if engine != "threads" else None,
                }
            )
            print(found[-1]["what"], one, many, file=sys.stderr, flush=True)
    return found


def run() -> list[dict]:
    return rows(PEOPLE)


if __name__ == "__main__":
    import argparse

    from run import show

    parser = argparse.ArgumentParser()
    parser.add_argument("--people", type=int, default=PEOPLE)
    parser.add_argument("--engines", nargs="*", default=["processes", "threads", "local"])
    parser.add_argument("--workers", nargs="*", type=int)
    given = parser.parse_args()
    show(rows(given.people, given.engines, given.workers))
