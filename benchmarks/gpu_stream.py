"""A streamed audit with a GPU against the CPUs of the same machine: seconds, ratio and target.

``python benchmarks/gpu_stream.py`` audits 400,000 people; ``--people 1000000`` more. Networks of [128, 64] at 20
features, 6 of them financial.
"""

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

import torch
from bench_scale import audit, write_people

from evenhand.system.threads import n_cores


def timed(source: Path, folder: Path, **settings) -> tuple[float, dict]:
    """Seconds of an audit, and its metrics."""
    out = Path(tempfile.mkdtemp(dir=folder))
    start = time.perf_counter()
    metrics = audit(source, out, **settings).to_dict()["cec"]
    seconds = time.perf_counter() - start
    shutil.rmtree(out)
    return seconds, metrics


def run(people: int = 400_000) -> list[dict]:
    device = "cuda" if torch.cuda.is_available() else None
    name = torch.cuda.get_device_name() if device else "no GPU"
    folder = Path(tempfile.mkdtemp(prefix="evenhand-bench-"))
    found = []
    try:
        source, first = folder / "people.parquet", folder / "first.parquet"
        write_people(source, people)
        write_people(first, 20_000)
        timed(first, folder, device=device)  # warm up the device
        seconds, metrics = timed(source, folder, device=device)
        for words, n_jobs, target in ((f"its {n_cores()} cores", None, 6.0), ("two of its cores", 2, 8.0)):
            cpu, expected = timed(source, folder, n_jobs=n_jobs)
            apart = max(abs(metrics[metric] - expected[metric]) for metric in ("mean", "placebo", "excess"))
            found.append(
                {
                    "what": f"streamed audit of {people:,} people, {name} against {words}, metrics within {apart:.0e}",
                    "ours_s": seconds,
                    "theirs_s": cpu,
                    "ratio": cpu / seconds,
                    "target": target,
                }
            )
            print(found[-1], file=sys.stderr, flush=True)
    finally:
        shutil.rmtree(folder)
    return found


if __name__ == "__main__":
    from run import show

    parser = argparse.ArgumentParser()
    parser.add_argument("--people", type=int, default=400_000)
    show(run(parser.parse_args().people))
