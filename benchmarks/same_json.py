"""Whether audits of the same people in every possible way give the same JSON.

``python benchmarks/same_json.py`` takes 1,000,000 people, a [128, 64] network and 20 features; everyone is the
reference, and a fiftieth of them are compared with placebo pairs. Streamed audits must agree to the last bit: on
threads, on processes, on Dask, on Spark, and killed twice and resumed. An audit in memory compares everyone or no one
with placebo pairs, so it is compared with a streamed audit without them; with a network in single precision, the two
agree to a few digits.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from bench_scale import FINANCIAL, D, network, write_people
from measured import RESULTS, ROOT, Row, renew, table, write_results

ENGINES = ("local", "threads", "processes", "dask", "spark")
PEOPLE, PART_COMPARED, CLOSE = 1_000_000, 50, 1e-4
FINANCES = [f"x{j}" for j in range(FINANCIAL)]
KILLED = "local, killed twice and resumed"


def rows_in_batch(n: int) -> int:
    return max(250, n // 40)


def streamed(source: Path, out: Path, n: int, **settings: Any) -> dict[str, Any]:
    from evenhand.auditing.streaming import audit_stream

    how = {"reference_people": n, "batch_rows": rows_in_batch(n), "n_jobs": 2, **settings}
    audit_stream(network(), source, label="y", group="group", financial_features=FINANCES, out=out, **how)
    return json.loads((out / "audit.json").read_text(encoding="utf-8"))


def in_memory(source: Path, out: Path) -> dict[str, Any]:
    import pyarrow.parquet as pq

    import evenhand as eh

    everyone = pq.read_table(source).to_pandas()
    X = everyone[[f"x{j}" for j in range(D)]]
    given = {"sensitive_features": everyone["group"], "financial_features": FINANCES, "evidence": False}
    eh.audit(network(), X, everyone["y"], **given).to_json(out)
    return json.loads(out.read_text(encoding="utf-8"))


def digest(found: dict[str, Any]) -> str:
    """A hash of everything except the time of writing."""
    plain = json.dumps({key: value for key, value in found.items() if key != "created"}, sort_keys=True)
    return hashlib.sha256(plain.encode()).hexdigest()[:16]


def numbers(found: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a summary by its path."""
    if isinstance(found, dict):
        for key, value in found.items():
            yield from numbers(value, f"{path}/{key}")
    elif isinstance(found, list):
        for place, value in enumerate(found):
            yield from numbers(value, f"{path}/{place}")
    elif isinstance(found, (int, float)) and not isinstance(found, bool):
        yield path, float(found)


def apart(one: dict[str, Any], other: dict[str, Any]) -> float:
    """The largest difference between two summaries, as a share of the number, or of 0.01 if that is larger."""
    parts = ("cec", "regimes", "outcome", "matching", "features")
    mine, theirs = ({**dict(numbers({p: found.get(p) for p in parts}))} for found in (one, other))
    if mine.keys() != theirs.keys():
        return math.inf
    shares = (abs(mine[p] - theirs[p]) / max(abs(mine[p]), abs(theirs[p]), 0.01) for p in mine)
    return max((share for share in shares if not math.isnan(share)), default=math.inf)


def engines_here() -> list[str]:
    """Engines that this version has and whose libraries are installed."""
    from importlib.util import find_spec

    from evenhand.auditing.options import StreamOptions
    from evenhand.exceptions import EvenhandError

    libraries = {"dask": "distributed", "spark": "pyspark"}
    found = []
    for name in ENGINES:
        try:
            StreamOptions(engine=name)
        except EvenhandError:
            continue
        if name not in libraries or find_spec(libraries[name]):
            found.append(name)
    return found


def killed_and_resumed(source: Path, out: Path, n: int) -> dict[str, Any]:
    """An audit in a process that is killed when a quarter and a half of its batches are finished."""
    command = [sys.executable, "-W", "ignore", __file__, "--resume", str(source), str(out), str(n)]
    n_kills, n_batches = 0, math.ceil(n / rows_in_batch(n))
    for share in (0.25, 0.5):
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=dict(os.environ))
        while process.poll() is None and n_finished(out) < share * n_batches:
            time.sleep(0.01)
        process.kill()
        n_kills += process.wait() == -signal.SIGKILL
    if n_kills < 2:
        raise RuntimeError("The process ended before it was killed: use more people.")
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return json.loads((out / "audit.json").read_text(encoding="utf-8"))


def n_finished(out: Path) -> int:
    return len(list((out / "batches").glob("??????.npz")))


def compared(n: int, folder: Path) -> tuple[list[Row], str]:
    """Rows with 1 for the same and 0 for different, and a table of the hashes."""
    source = folder / "people.parquet"
    write_people(source, n)
    sample = {"evidence_people": max(1_000, n // PART_COMPARED)}
    ways: dict[str, dict[str, Any]] = {}
    seconds: dict[str, float] = {}

    def run(way: str, job) -> None:
        begun = time.perf_counter()
        ways[way] = job()
        seconds[way] = time.perf_counter() - begun
        print(way, f"{seconds[way]:.1f} s", digest(ways[way]), file=sys.stderr, flush=True)

    for engine in engines_here():
        run(engine, lambda engine=engine: streamed(source, folder / engine, n, engine=engine, **sample))
    run(KILLED, lambda: killed_and_resumed(source, folder / "killed", n))
    run("local, without placebo pairs", lambda: streamed(source, folder / "plain", n, evidence=False))
    run("in memory, without placebo pairs", lambda: in_memory(source, folder / "in_memory.json"))
    plain, memory = list(ways)[-2:]
    first = next(iter(ways))
    hashes = {way: digest(found) for way, found in ways.items()}
    rows = [
        Row(f"{n:,} people: {way} gives the JSON of {first}", seconds[way], None, float(same), "", 1)
        for way in list(ways)[1:-2]
        for same in (hashes[way] == hashes[first],)
    ]
    difference = apart(ways[memory], ways[plain])
    rows.append(
        Row(f"{n:,} people: {memory}, largest difference", seconds[memory], None, difference, "", CLOSE, "lower")
    )
    lines = ["| way | seconds | hash of the JSON |", "| --- | --: | --- |"]
    lines += [f"| {way} | {seconds[way]:.1f} | `{hashes[way]}` |" for way in ways]
    return rows, "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--people", type=int, default=PEOPLE)
    parser.add_argument("--resume", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--print", action="store_true", help="write nothing")
    given = parser.parse_args()
    warnings.simplefilter("ignore")
    if given.resume:
        source, out, n = Path(given.resume[0]), Path(given.resume[1]), int(given.resume[2])
        streamed(source, out, n, resume=True, engine="local", evidence_people=max(1_000, n // PART_COMPARED))
        return 0
    with tempfile.TemporaryDirectory() as folder:
        rows, hashes = compared(given.people, Path(folder))
    print(f"{hashes}\n\n{table(rows)}")
    if not given.print:
        write_results("same_json", rows, RESULTS, tables=[hashes, table(rows)])
        renew(ROOT / "docs" / "benchmarks.md")
    return 0 if all(row.is_met for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
