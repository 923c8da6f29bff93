"""Audits of 1 and 10 million people straight from Parquet: time per person and peak memory; two workers against one.

``python benchmarks/bench_scale.py`` runs everything and takes hours on two cores; ``--people 1000000`` one size,
``--dask 4000000`` the two clusters, ``--quick`` a hundredth of each.
"""

import json
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import numpy as np
import torch
from torch import nn

D, FINANCIAL, REFERENCE = 20, 6, 200_000
SIZES = (1_000_000, 10_000_000)
DASK_PEOPLE = 4_000_000
_CHUNK = 100_000
MICRO = {"unit": "µs a person"}
MEMORY = {"unit": "MB", "target": 2_000, "better": "lower"}
GROWTH = {"unit": "x", "target": 1.2, "better": "lower"}


def write_people(path: Path, n: int) -> None:
    """Applicants with rounded, tie-heavy financial features, written as they are drawn."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    writer = None
    for first in range(0, n, _CHUNK):
        rng = np.random.default_rng([0, first])
        m = min(_CHUNK, n - first)
        X = rng.normal(size=(m, D)).astype(np.float32)
        X[:, :FINANCIAL] = np.round(X[:, :FINANCIAL] * 4) / 4
        y = (X[:, :FINANCIAL].sum(1) + rng.normal(size=m) > 0).astype(np.int8)
        group = np.where(rng.random(m) < 0.3, "b", "a")
        table = pa.table({**{f"x{j}": X[:, j] for j in range(D)}, "y": y, "group": group})
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()


def network() -> nn.Module:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(D, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1)).eval()
    with torch.no_grad():
        model[-1].weight *= 10
    return model


def audit(source: Path, out: Path, **settings):
    from evenhand.auditing.streaming import audit_stream

    return audit_stream(
        network(),
        source,
        label="y",
        group="group",
        financial_features=[f"x{j}" for j in range(FINANCIAL)],
        out=out,
        **{"reference_people": REFERENCE} | settings,
    )


def measured(n: int, **settings) -> dict:
    """Seconds and peak memory of one audit, in a separate process."""
    folder = Path(tempfile.mkdtemp(prefix="evenhand-bench-"))
    try:
        source = folder / "people.parquet"
        write_people(source, n)
        command = [sys.executable, __file__, "--measure", str(source), str(folder / "out"), json.dumps(settings)]
        done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True)
        return json.loads(done.stdout.strip().splitlines()[-1])
    finally:
        shutil.rmtree(folder)


def measure(source: Path, out: Path, settings: dict) -> dict:
    """Run here: time, and memory above that of a process that has only loaded the reference."""
    import psutil
    import pyarrow.parquet as pq

    import evenhand.auditing.streaming  # noqa: F401 - the library itself is not measured

    own = psutil.Process()
    held = pq.ParquetFile(source).read_row_group(0)  # as many columns as the reference, to set up reading
    before = own.memory_info().rss + REFERENCE * held.nbytes // max(1, len(held))
    del held
    peak, is_done = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not is_done.wait(0.2):
            peak = max(peak, own.memory_info().rss)

    watcher = threading.Thread(target=watch)
    watcher.start()
    start = time.perf_counter()
    audit(source, out, **settings)
    seconds = time.perf_counter() - start
    is_done.set()
    watcher.join()
    used = own.cpu_times()
    cpu = used.user + used.system + used.children_user + used.children_system
    return {"seconds": seconds, "cpu_seconds": cpu, "peak_mb": (peak - before) / 2**20}


def people_rows(sizes, **settings) -> list[dict]:
    found = {}
    for n in sizes:
        found[n] = measured(n, **settings)
        print(n, found[n], file=sys.stderr, flush=True)
    smallest = min(found)
    rows = []
    for n, result in found.items():
        each, cpu = (1e6 * result[key] / n for key in ("seconds", "cpu_seconds"))
        what = f"audit of {n:,} x {D} from Parquet"
        rows += [
            {"what": f"{what} ({cpu:.0f} µs of CPU time a person)", "ours_s": result["seconds"], "value": each} | MICRO,
            {"what": f"{what}: peak memory above the reference", "value": result["peak_mb"]} | MEMORY,
        ]
        if n != smallest:
            ratio = each / (1e6 * found[smallest]["seconds"] / smallest)
            rows.append({"what": f"{what}: time a person, of that of {smallest:,}", "value": ratio} | GROWTH)
    return rows


def dask_rows(n: int, **settings) -> list[dict]:
    one, two = (measured(n, engine="dask", n_jobs=k, **settings)["seconds"] for k in (1, 2))
    return [
        {
            "what": f"{n:,} people on two Dask workers of one thread, against one",
            "ours_s": two,
            "theirs_s": one,
            "ratio": one / two,
            "target": 1.7,
        }
    ]


def run() -> list[dict]:
    return [*people_rows(SIZES), *dask_rows(DASK_PEOPLE)]


if __name__ == "__main__":
    import argparse

    parser = argparse.ArgumentParser()
    parser.add_argument("--measure", nargs=3)
    parser.add_argument("--people", type=int, nargs="*")
    parser.add_argument("--dask", type=int)
    parser.add_argument("--evidence-people", type=int)
    parser.add_argument("--no-evidence", action="store_true")
    parser.add_argument("--quick", action="store_true")
    given = parser.parse_args()
    if given.measure:
        source, out, settings = given.measure
        print(json.dumps(measure(Path(source), Path(out), json.loads(settings))))
    else:
        from run import show

        options = {"evidence_people": given.evidence_people} if given.evidence_people else {}
        options |= {"evidence": False} if given.no_evidence else {}
        if given.people:
            show(people_rows(given.people, **options))
        if given.dask:
            show(dask_rows(given.dask, **options))
        if given.quick:
            show([*people_rows([n // 100 for n in SIZES]), *dask_rows(DASK_PEOPLE // 100)])
        if not (given.people or given.dask or given.quick):
            show(run())
