"""Streamed audits on 1, 2, 4, ... workers: people a second, as processes, as threads and as chosen by default.

Every worker has the same number of people, so that each run takes about as long. ``python benchmarks/bench_cores.py``
takes a minute a run; ``--people 5000`` has each worker audit fewer.
"""

import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from bench_scale import audit, write_people

PEOPLE, REFERENCE, BATCH_ROWS = 60_000, 50_000, 5_000
TARGET = {2: 1.8, 16: 10}


def workers_here() -> list[int]:
    n_cores = len(os.sched_getaffinity(0))
    return [k for k in (1, 2, 4, 8, 16) if k <= n_cores]


def measured(n_people: int, n_workers: int, engine: str) -> dict[str, float]:
    """Seconds of the batches, and of the whole audit."""
    from evenhand.auditing.streaming import stream

    of_batches = 0.0
    run_batches = stream.run_batches

    def timed(*arguments) -> None:
        nonlocal of_batches
        start = time.perf_counter()
        run_batches(*arguments)
        of_batches = time.perf_counter() - start

    folder = Path(tempfile.mkdtemp(prefix="evenhand-bench-"))
    stream.run_batches = timed
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
        return {"batches": of_batches, "audit": time.perf_counter() - start}
    finally:
        stream.run_batches = run_batches
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
                    f"worker at as many people each; the whole audit {gain['audit']:.1f}x",
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
