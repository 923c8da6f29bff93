"""How time and memory of an audit grow with people, features, groups, reference and trees; updates docs/growth.md.

``python benchmarks/bench_growth.py`` takes most of an hour on two idle cores; ``--people 10000 100000 10000000`` sets
different sizes, ``--only people groups`` runs some of the series, ``--quick`` a tenth of every size. Each audit is a
process on two cores, and as many run at once as the machine has pairs of cores. Exponents are slopes of log time on log
size, by least squares, after subtracting the time of an audit of 500 people; time is CPU time, which other work on the
machine changes least. Memory is the peak above the data.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from measured import ROOT, Row, renew, table, write_results

PAGE = ROOT / "docs" / "growth.md"
TINY = 500
FEWEST_SECONDS = 0.05  # above those of TINY, for a size to count in a slope
FINANCIAL = 6


@dataclass(frozen=True)
class Case:
    """An audit to measure."""

    people: int = 10_000
    features: int = 20
    groups: int = 2
    kind: str = "network"
    trees: int = 300
    evidence: bool = True
    reference: int | None = None  # people of the reference of a streamed audit; None for an audit in memory


@dataclass(frozen=True)
class Series:
    """Audits that differ in one size."""

    name: str
    size: str
    base: Case
    sizes: tuple[int, ...]

    def cases(self) -> list[Case]:
        """The audits, in the order of the sizes."""
        return [replace(self.base, **{self.size: size}) for size in self.sizes]


SERIES = (
    Series("people", "people", Case(), (10_000, 30_000, 100_000, 300_000, 1_000_000)),
    Series("people, without evidence", "people", Case(evidence=False), (10_000, 30_000, 100_000, 300_000, 1_000_000)),
    Series("people, streamed", "people", Case(reference=20_000), (30_000, 100_000, 300_000, 1_000_000)),
    Series("people, 300 trees", "people", Case(kind="trees"), (3_000, 10_000, 30_000)),
    Series("features", "features", Case(), (5, 20, 50, 100, 200, 500)),
    Series("groups", "groups", Case(), (2, 5, 10, 20, 50)),
    Series("reference", "reference", Case(people=100_000, reference=1), (10_000, 30_000, 100_000)),
    Series("trees", "trees", Case(people=3_000, kind="trees"), (50, 100, 200, 400)),
)
KINDS = {  # people of the audit from which "how long" is computed
    "linear": 30_000,
    "network": 30_000,
    "trees": 5_000,
    "black box": 300,
}


def made(case: Case):
    """People with rounded finances, and a model."""
    rng = np.random.default_rng(0)
    n, d = case.people, case.features
    X = rng.normal(size=(n, d)).astype(np.float32)
    k = min(FINANCIAL, d)
    X[:, :k] = np.round(X[:, :k] * 4) / 4
    y = (X[:, :k].sum(axis=1) + rng.normal(size=n) > 0).astype(np.int64)
    share = 0.5 ** np.arange(min(case.groups, 3))  # two large groups, and equal other ones
    shares = np.concatenate([share, np.full(max(0, case.groups - 3), 0.25)])
    group = rng.choice([f"g{j:02}" for j in range(case.groups)], n, p=shares / shares.sum())
    return model_of(case, X[:20_000], y[:20_000]), X, y, group, [f"x{j}" for j in range(k)]


def model_of(case: Case, X: np.ndarray, y: np.ndarray):
    if case.kind == "linear":
        from sklearn.linear_model import LogisticRegression

        return LogisticRegression().fit(X, y)
    if case.kind == "trees":
        from xgboost import XGBClassifier

        return XGBClassifier(n_estimators=case.trees, max_depth=6, n_jobs=2).fit(X, y)
    import torch
    from torch import nn

    torch.manual_seed(0)
    d = case.features
    network = nn.Sequential(nn.Linear(d, 128), nn.ReLU(), nn.Linear(128, 64), nn.ReLU(), nn.Linear(64, 1)).eval()
    if case.kind == "network":
        return network

    def black_box(rows: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return torch.sigmoid(network(torch.as_tensor(rows, dtype=torch.float32))).squeeze(1).numpy()

    return black_box


def audited(case: Case, given, folder: Path) -> None:
    import evenhand as eh

    model, X, y, group, financial = given
    if case.reference is None:
        eh.audit(model, X, y, sensitive_features=group, financial_features=financial, evidence=case.evidence)
        return
    eh.audit_stream(
        model,
        folder / "people.parquet",
        label="y",
        group="group",
        financial_features=financial,
        evidence=case.evidence,
        features=[f"x{j}" for j in range(case.features)],
        out=folder / "out",
        reference_people=case.reference,
    )


def measure(case: Case) -> dict[str, float]:
    """Run in a separate process: wall time, CPU time and peak memory above the data."""
    import warnings

    import pandas as pd

    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as made_folder:
        folder = Path(made_folder)
        warm = replace(case, people=TINY, reference=None)
        audited(warm, made(warm), folder)
        given = made(case)
        if case.reference is not None:
            model, X, y, group, financial = given
            frame = pd.DataFrame(X, columns=[f"x{j}" for j in range(case.features)]).assign(y=y, group=group)
            frame.to_parquet(folder / "people.parquet", row_group_size=25_000)
            given = model, None, None, None, financial
            del X, y, group, frame
        Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
        before = _memory_mb("VmRSS")
        begun, cpu = time.perf_counter(), time.process_time()
        audited(case, given, folder)
        found = {"seconds": time.perf_counter() - begun, "cpu_seconds": time.process_time() - cpu}
        return {**found, "peak_mb": max(0.0, _memory_mb("VmHWM") - before)}


def _memory_mb(field: str) -> float:
    """Memory of this process as Linux reports it: VmRSS now, VmHWM at its peak."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


def measured_apart(cases: Collection[Case]) -> dict[Case, dict[str, float]]:
    """Each audit in a process on two cores, the longest first, several at once on machines with more cores."""
    cores = sorted(os.sched_getaffinity(0))
    pairs: Queue[list[int]] = Queue()
    for place in range(0, len(cores) - len(cores) % 2 or 1, 2):
        pairs.put(cores[place : place + 2])

    def measured_one(case: Case) -> dict[str, float]:
        own = pairs.get()
        try:
            given = json.dumps({"case": asdict(case), "cores": own})
            done = subprocess.run(
                [sys.executable, __file__, "--measure", given],
                check=True,
                stdout=subprocess.PIPE,
                text=True,
                env={**os.environ, "OMP_NUM_THREADS": str(len(own))},
            )
        finally:
            pairs.put(own)
        found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        print(case, found, file=sys.stderr, flush=True)
        return found

    longest_first = sorted(cases, key=_about_as_long, reverse=True)
    with ThreadPoolExecutor(pairs.qsize()) as pool:
        return dict(zip(longest_first, pool.map(measured_one, longest_first), strict=True))


def _about_as_long(case: Case) -> float:
    """A number that grows with the time of an audit, to start with the longest."""
    each = {"black box": 2_000.0, "trees": case.trees / 10}.get(case.kind, case.features / 20)
    return case.people * each * (case.groups - 1) * (4.0 if case.evidence else 1.0)


def slope(sizes: Sequence[float], values: Sequence[float], overhead: float, least: float) -> float | None:
    """The exponent of growth above an overhead; None if too few sizes take clearly longer.

    Examples
    --------
    >>> round(slope([1, 10, 100], [1.5, 6.0, 51.0], 1.0, 0.1), 3)
    1.0
    """
    above = np.asarray(values) - overhead
    used = above > least
    if used.sum() < 2:
        return None
    return float(np.polyfit(np.log(np.asarray(sizes)[used]), np.log(above[used]), 1)[0])


def fitted(series: Series, found: list[dict[str, float]], tiny: dict[str, float]) -> tuple[list[Row], str]:
    """Exponents of a series, and its table."""
    # Everyone is compared with every other group.
    sizes = [size - 1 if series.size == "groups" else size for size in series.sizes]
    seconds = slope(sizes, [one["cpu_seconds"] for one in found], tiny["cpu_seconds"], FEWEST_SECONDS)
    memory = slope(sizes, [one["peak_mb"] for one in found], tiny["peak_mb"], 5.0)
    against = "groups to compare with" if series.size == "groups" else series.name
    is_bounded = series.size == "people" and series.base.reference is not None
    rows = [
        Row(f"time against {against}", value=seconds, unit="exponent", target=1.1, better="lower"),
        Row(
            f"memory against {against}",
            value=memory,
            unit="exponent",
            target=0.5 if is_bounded else 1.1,
            better="lower",
        ),
    ]
    lines = [f"| {series.name} | seconds | CPU seconds | peak memory (MB) |", "| --: | --: | --: | --: |"]
    lines += [
        f"| {size:,} | {one['seconds']:.1f} | {one['cpu_seconds']:.1f} | {one['peak_mb']:,.0f} |"
        for size, one in zip(series.sizes, found, strict=True)
    ]
    return rows, "\n".join(lines)


def cases_of_how_long(scale: float) -> list[tuple[Case, Case]]:
    """Two sizes of an audit for each kind of model, with and without evidence, for the cost of one more person."""
    larger = [
        Case(people=max(TINY // 2, int(n * scale)), kind=kind, evidence=evidence)
        for kind, n in KINDS.items()
        for evidence in (False, True)
    ]
    return [(replace(case, people=case.people // 3), case) for case in larger]


def how_long(cases: Sequence[tuple[Case, Case]], found: Mapping[Case, dict[str, float]]) -> str:
    """The table of "how long will mine take", from the cost of one more person."""
    sizes = (10_000, 100_000, 1_000_000, 10_000_000)
    lines = [f"| model | | {' | '.join(f'{n:,}' for n in sizes)} |", f"| --- | --- |{' --: |' * len(sizes)}"]
    for few, many in cases:
        seconds = found[many]["seconds"]
        each = max(seconds - found[few]["seconds"], 0.0) / (many.people - few.people)
        fixed = max(0.0, seconds - each * many.people)
        times = " | ".join(_in_words(fixed + each * size) for size in sizes)
        lines.append(f"| {many.kind} | {'with' if many.evidence else 'without'} placebo pairs | {times} |")
    return "\n".join(lines)


def _in_words(seconds: float) -> str:
    for limit, size, unit in ((100, 1, "s"), (6_000, 60, "min"), (172_800, 3600, "h")):
        if seconds < limit:
            return f"{seconds / size:.0f} {unit}" if seconds / size >= 9.5 else f"{seconds / size:.1f} {unit}"
    return f"{seconds / 86_400:.0f} days"


def run_series(series: Sequence[Series], scale: float, *, has_table: bool) -> tuple[list[Row], list[str]]:
    """Rows of exponents, and the tables of the page."""
    tiny = {one.name: replace(one.base, people=TINY, reference=None) for one in series}
    twice = cases_of_how_long(scale) if has_table else []
    found = measured_apart(
        {*tiny.values(), *(case for one in series for case in one.cases()), *(case for two in twice for case in two)}
    )
    rows, tables = [], []
    for one in series:
        more, lines = fitted(one, [found[case] for case in one.cases()], found[tiny[one.name]])
        rows, tables = [*rows, *more], [*tables, lines]
    long = [f"How long will mine take, on two cores of this machine:\n\n{how_long(twice, found)}"] if has_table else []
    return rows, [*long, table(rows), *tables]


def run() -> list[dict[str, Any]]:
    """Rows of everything; also writes the page."""
    rows, tables = run_series(SERIES, 1.0, has_table=True)
    write_results("growth", rows, tables=tables)
    renew(PAGE)
    return [asdict(row) for row in rows]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--people", type=int, nargs="+", help="sizes of the series over people")
    parser.add_argument("--only", nargs="+", choices=[one.name for one in SERIES], help="series to run")
    parser.add_argument("--no-table", action="store_true", help='leave out "how long will mine take"')
    parser.add_argument("--quick", action="store_true", help="a tenth of each number of people; nothing is written")
    given = parser.parse_args()
    if given.measure:
        one = json.loads(given.measure)
        os.sched_setaffinity(0, one["cores"])
        print(json.dumps(measure(Case(**one["case"]))))
        return
    scale = 0.1 if given.quick else 1.0
    chosen = [scaled(one, scale, given.people) for one in SERIES if given.only is None or one.name in given.only]
    rows, tables = run_series(chosen, scale, has_table=not given.no_table)
    print("\n\n".join(tables))
    if not given.quick:
        write_results("growth", rows, tables=tables)
        renew(PAGE)


def scaled(series: Series, scale: float, people: list[int] | None) -> Series:
    """The series in different sizes."""
    if series.size == "people" and people and series.base.kind == "network":
        series = replace(series, sizes=tuple(people))
    if scale == 1.0:
        return series
    base = replace(series.base, people=int(series.base.people * scale))
    sizes = series.sizes
    if series.size in {"people", "reference"}:
        sizes = tuple(int(size * scale) for size in sizes)
    if base.reference is not None:
        base = replace(base, reference=max(1_000, int(base.reference * scale)))
    return replace(series, base=base, sizes=sizes)


if __name__ == "__main__":
    main()
