"""How accurate the estimated time of an audit is, and what the estimate costs.

Each ratio is the larger of estimated and actual time over the smaller, so 1 is exact. ``--cpu`` compares CPU time, for
machines that are busy with different work.
"""

import sys
import tempfile
import time
import warnings
from pathlib import Path
from types import SimpleNamespace

import numpy as np
from bench_audit import FINANCIAL, people

import evenhand as eh
from evenhand.auditing import progress as estimating
from evenhand.auditing import progress as sampling_progress
from evenhand.models import explaining as sampling_plan

FINANCES = [f"x{j}" for j in range(FINANCIAL)]


def cases(scale: float = 1.0):
    """Name, model, number of people, and whether they are streamed."""
    from sklearn.svm import SVC
    from xgboost import XGBClassifier

    network, X, y, _ = people(20_000)
    trees = XGBClassifier(n_estimators=300, max_depth=6, n_jobs=2).fit(X, y)
    margin = SVC().fit(X[:500], y[:500]).decision_function

    def rough(rows):  # a black box, whose attributions are sampled
        return 1 / (1 + np.exp(-margin(rows)))

    yield "network", network, int(100_000 * scale), False
    yield "trees", trees, int(20_000 * scale), False
    yield "black box", rough, int(300 * scale), False
    yield "network, streamed", network, int(100_000 * scale), True
    yield "trees, streamed", trees, int(20_000 * scale), True


def audited(model, n: int, is_streamed: bool, folder: Path, n_jobs: int) -> None:
    _, X, y, group = people(n)
    if not is_streamed:
        eh.audit(model, X, y, sensitive_features=group, financial_features=FINANCES, progress=True)
        return
    import pandas as pd

    table = pd.DataFrame(X, columns=[f"x{j}" for j in range(X.shape[1])]).assign(y=y, group=group)
    table.to_parquet(folder / "people.parquet", row_group_size=5_000)
    eh.audit_stream(
        model,
        folder / "people.parquet",
        label="y",
        group="group",
        financial_features=FINANCES,
        features=list(table.columns[: X.shape[1]]),
        out=folder / "out",
        reference_people=n // 5,
        batch_rows=max(1_000, n // 20),
        n_jobs=n_jobs,
        progress=True,
    )


def compared(name: str, model, n: int, is_streamed: bool, clock) -> list[dict]:
    said = {}

    def watching(asked):
        def ask(*given):
            begun = clock()
            said["seconds"] = asked(*given)
            said["at"] = clock()
            said["cost"] = said["at"] - begun
            return said["seconds"]

        return ask

    kept = estimating.seconds_of, sampling_progress.sampling_seconds, estimating._WORTH_SAYING
    estimating.seconds_of, sampling_progress.sampling_seconds = watching(kept[0]), watching(kept[1])
    estimating._WORTH_SAYING = 0.0  # estimate short runs, too
    try:
        with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            audited(model, n, is_streamed, Path(folder), 1 if clock is time.process_time else 2)
            taken = clock() - said["at"]
    finally:
        estimating.seconds_of, sampling_progress.sampling_seconds, estimating._WORTH_SAYING = kept
    apart = max(said["seconds"] / taken, taken / said["seconds"])
    what = f"{name}, {n:,} people: estimated {said['seconds']:.1f} s"
    return [
        {"what": what, "ours_s": taken, "value": apart, "unit": "x", "target": 1.5, "better": "lower"},
        {
            "what": f"{name}, {n:,} people: cost of the estimate beyond 0.5 s",
            "ours_s": said["cost"],
            "value": 100 * max(0.0, said["cost"] - 0.5) / taken,
            "unit": "%",
            "target": 2,
            "better": "lower",
        },
    ]


def run(scale: float = 1.0, clock=time.perf_counter) -> list[dict]:
    np.seterr(all="ignore")
    rows = []
    for case in cases(scale):
        rows += compared(*case, clock)
        print(rows[-2], file=sys.stderr, flush=True)
    return rows


if __name__ == "__main__":
    from run import show

    if "--cpu" in sys.argv:
        watch = SimpleNamespace(perf_counter=time.process_time)
        estimating.time = sampling_plan.time = watch
        estimating.n_cores = lambda: 1  # threads do not save CPU time
        show(run(0.5, time.process_time))
    else:
        show(run())
