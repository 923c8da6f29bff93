"""A streamed audit with a GPU against the CPUs of the same machine: seconds, ratio and target.

``python benchmarks/gpu_stream.py`` audits 1,000,000 people; ``--people 400000`` fewer. Networks of [128, 64] at 20
features, 6 of them financial. Run with PYTHONPATH=src. The last lines say how far the audits of the two are apart.
"""

import argparse
import shutil
import tempfile
import time
from pathlib import Path

import torch
from bench_scale import audit, write_people

TARGET = 8.0


def timed(source: Path, folder: Path, **settings) -> tuple[float, dict]:
    """Seconds of an audit, and its metrics."""
    out = Path(tempfile.mkdtemp(dir=folder))
    start = time.perf_counter()
    metrics = audit(source, out, **settings).to_dict()["cec"]
    seconds = time.perf_counter() - start
    shutil.rmtree(out)
    return seconds, metrics


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--people", type=int, default=1_000_000)
    given = parser.parse_args()
    device = "cuda" if torch.cuda.is_available() else None
    name = torch.cuda.get_device_name() if device else "no GPU"
    folder = Path(tempfile.mkdtemp(prefix="evenhand-bench-"))
    try:
        source, first = folder / "people.parquet", folder / "first.parquet"
        write_people(source, given.people)
        write_people(first, 20_000)
        timed(first, folder, device=device)  # what a device needs once
        seconds, found = timed(source, folder, device=device)
        peak = f", {torch.cuda.max_memory_allocated() / 2**30:.1f} GB of its memory" if device else ""
        print(f"{given.people:,} people, {name}: {seconds:.1f} s{peak}", flush=True)
        for words, n_jobs in (("default number of threads", None), ("two threads", 2)):
            cpu, expected = timed(source, folder, n_jobs=n_jobs)
            print(f"CPU, {words}: {cpu:.1f} s, ratio {cpu / seconds:.1f}, target {TARGET:.0f}", flush=True)
        for metric in ("mean", "placebo", "excess"):
            print(f"{metric}: {found[metric]:.9f}, {abs(found[metric] - expected[metric]):.1e} from the CPU's")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
