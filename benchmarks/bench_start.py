"""From the command to the files: small audits of a linear model and of trees, and the demonstration, in new processes.

Imports take most of the first. The next row has the time that the libraries need by themselves, which we cannot
shorten. Python keeps what it compiles, as it does for an installed package. `breakdown` says where
the CPU time of the command goes.
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import skops.io
import xgboost
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import evenhand as eh

PEOPLE, RUNS = 3_000, 5
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
LIBRARIES = "sklearn.pipeline, sklearn.linear_model, pandas, pyarrow.parquet, scipy.stats, altair, statsmodels"
PARTS = """
import gc, json, sys, time
parts, before = [], 0.0

def mark(name):
    global before
    now = time.process_time()
    parts.append((name, now - before))
    before = now

def watched(owner, name):
    asked = getattr(owner, name)
    def ask(*given, **more):
        mark("before " + name)
        found = asked(*given, **more)
        mark(name)
        return found
    setattr(owner, name, ask)

gc.disable()
libraries = "numpy pandas scipy.stats sklearn.ensemble altair statsmodels.stats.proportion typer"
for library in libraries.split():
    __import__(library)
    mark("import " + library)
import evenhand.cli.app, evenhand.cli.audits, evenhand.cli.jobs, evenhand.auditing.audit
from evenhand.auditing.result import AuditResult
gc.freeze()
gc.enable()
mark("import evenhand, and the libraries that are small")
watched(evenhand.cli.jobs, "load_model")
watched(evenhand.auditing.audit, "finish")
for form in ("to_parquet", "to_json", "to_excel", "to_html"):
    watched(AuditResult, form)
sys.argv[0] = "evenhand"
try:
    evenhand.cli.main()
finally:
    mark("print")
    print(json.dumps(parts))
"""
DEMO = """
import sys, time
from evenhand.cli import main
import evenhand.cli.jobs, evenhand.training.classifier, evenhand.datasets
sys.argv = ["evenhand", "demo", "--no-open", "--out", sys.argv[1]]
begun = time.perf_counter()
try:
    main()
finally:
    print("own work", time.perf_counter() - begun)
"""


def prepared(folder: Path) -> list[str]:
    """A command that audits a logistic regression; beside its file is one of XGBoost."""
    data = eh.load_dataset("synthetic", n=PEOPLE)
    data.X.assign(repaid=data.y, sex=data.group).to_csv(folder / "people.csv", index=False)
    skops.io.dump(make_pipeline(StandardScaler(), LogisticRegression()).fit(data.X, data.y), folder / "model.skops")
    financial = ",".join(data.financial_features[:6])
    trees = xgboost.XGBClassifier(n_estimators=100, max_depth=4, n_jobs=1).fit(data.X, data.y)
    trees.save_model(folder / "model.json")
    words = f"audit people.csv --model model.skops --label repaid --group sex --financial {financial}"
    return [sys.executable, "-m", "evenhand", *words.split()]


def timed(command: list[str], folder: Path, runs: int = RUNS) -> tuple[float, float, float, str]:
    """Least and median wall time, the least CPU time, and the output of the last run."""
    wall, cpu, output = [], [], ""
    for _ in range(runs):
        before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
        done = subprocess.run(command, cwd=folder, check=True, capture_output=True, text=True, env=ENVIRONMENT)
        wall.append(time.perf_counter() - begun)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        output = done.stdout
    return min(wall), sorted(wall)[len(wall) // 2], min(cpu), output


def breakdown(command: list[str], folder: Path) -> list[tuple[str, float]]:
    """CPU seconds of each part of the command, the least of several runs, in order."""
    words = [sys.executable, "-c", PARTS, *command[3:]]
    runs = []
    for _ in range(RUNS):
        done = subprocess.run(words, cwd=folder, check=True, capture_output=True, text=True, env=ENVIRONMENT)
        runs.append(json.loads(done.stdout.splitlines()[-1]))
    return [(name, min(dict(run)[name] for run in runs)) for name, _ in runs[0]]


def row(what: str, seconds: tuple[float, float, float, str], target: float | None) -> dict:
    least, median, cpu, _ = seconds
    return {
        "what": f"{what} (least of {RUNS}; median {median:.2f} s, CPU time {cpu:.2f} s)",
        "ours_s": least,
        "target": target,
        "better": "lower",
    }


def run() -> list[dict]:
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        command = prepared(folder)
        timed(command, folder, runs=1)  # caches the charts' script, as any first audit does
        audits = timed(command, folder)
        of_trees = [word.replace("model.skops", "model.json") for word in command]
        timed(of_trees, folder, runs=1)  # compiles the trees' functions, as any first audit does
        tree_audits = timed(of_trees, folder)
        libraries = timed([sys.executable, "-c", f"import gc; gc.disable(); import {LIBRARIES}"], folder)
        helps = timed([sys.executable, "-m", "evenhand", "--help"], folder)
        demos = [timed([sys.executable, "-c", DEMO, "demo"], folder, runs=1) for _ in range(2)]
    own = min(float(output.split()[-1]) for *_, output in demos)
    return [
        row(
            f"`evenhand audit`, {PEOPLE:,} people, 20 inputs, a logistic regression in a skops file, all files",
            audits,
            2.5,
        ),
        row("the same with 100 trees of XGBoost in a JSON file", tree_audits, 2.5),
        row("of the first, importing scikit-learn, pandas, statsmodels and altair alone", libraries, None),
        row("`evenhand --help`", helps, 0.2),
        {
            "what": "`evenhand demo`, own work without imports (least of 2): 8,400 people trained on, 3,600 audited",
            "ours_s": own,
            "target": 10,
            "better": "lower",
        },
    ]


if __name__ == "__main__":
    from run import show

    if "--parts" in sys.argv:
        with tempfile.TemporaryDirectory() as made:
            for part, seconds in breakdown(prepared(Path(made)), Path(made)):
                print(f"{seconds:6.2f} s  {part}")
    else:
        show(run())
