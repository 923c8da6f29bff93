"""Many damaged files, each opened in a copy of this process: ``python tests/fuzz/many.py --inputs 10000 --out FOLDER``.

What each of them ended in is a line of ``outcomes.jsonl``; the same command goes on where it was stopped. Files that
evenhand did not withstand are kept in ``found``.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import io
import json
import os
import shutil
import subprocess
import sys
import time
import warnings
from pathlib import Path
from typing import Any
from unittest.mock import patch

import numpy as np

sys.path.insert(0, str(Path(__file__).parent))

from copies import copied_processes
from damage import damaged
from hostile_tables import LAKES, TABLES, TEMPLATES, damaged_lake, damaged_table, unpacked
from judging import emptied, judge_command, judge_models, judge_table
from valid_files import people, table_for

import evenhand.cli
from evenhand.models.dispatch import as_audited_model
from evenhand.models.files.load import load_model

MODELS = [
    *("xgboost.json", "xgboost.ubj", "lightgbm.txt", "catboost.cbm", "catboost.json", "categories.cbm"),
    *(
        "categories.json",
        "linear.skops",
        "network.skops",
        "forest.skops",
        "histogram.skops",
        "boosting.skops",
        "linear.onnx",
        "network.onnx",
    ),
    *("forest.onnx", "logistic.pmml", "network.safetensors", "canary.pkl", "canary.joblib"),
]
DOCUMENTS = ["audit.toml", "first_audit.json", "audit_pack.zip", "settings_pack.zip"]
KINDS = [*MODELS, *DOCUMENTS, *TABLES, *LAKES, *TEMPLATES]
WITHSTOOD = ("refused", "accepted")
_LIBRARIES = (
    *("xgboost", "lightgbm", "catboost", "onnx", "onnxruntime", "skops.io", "sklearn_pmml_model.auto_detect", "torch"),
    *("numba", "evenhand.cli.jobs", "evenhand.auditing.history", "evenhand.auditing.pack", "evenhand.training"),
    *("evenhand.models.trees.libraries", "evenhand.report.history", "evenhand.report.memo", "docx", "openpyxl"),
    *(
        "deltalake",
        "pyiceberg.table",
        "pyiceberg.io.pyarrow",
        "pyiceberg.catalog.noop",
        "python_calamine",
        "pyreadstat",
    ),
    *("duckdb", "polars", "pyarrow.dataset", "pyarrow.feather", "lxml.etree"),
)
_TOGETHER = 10  # files that one copy opens
_WRITTEN = 10  # every so many, pages and workbooks are written, too


def main() -> None:
    """Damage, open, judge, and print what was found."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--inputs", type=int, default=10_000, help="in all")
    options.add_argument("--minutes", type=float, default=600, help="after which no further file is tried")
    options.add_argument("--out", type=Path, required=True, help="folder for outcomes and for what was not withstood")
    options.add_argument("--first", type=int, default=0, help="seed to begin with, for runs side by side")
    options.add_argument("--only", default="", help="kinds whose name holds this")
    chosen = options.parse_args()
    out = chosen.out.resolve()
    (out / "found").mkdir(parents=True, exist_ok=True)
    canary = out / "canary"
    canary.unlink(missing_ok=True)
    os.environ["EVENHAND_CANARY"] = str(canary)
    if not (out / "seeds" / "house.docx").exists():
        # Elsewhere: threads that libraries start here would be missing in the copies.
        subprocess.run([sys.executable, Path(__file__).with_name("valid_files.py"), emptied(out / "seeds")], check=True)
    kinds = [kind for kind in KINDS if chosen.only in kind]
    outcomes = out / "outcomes.jsonl"
    known = {(o["kind"], o["seed"]) for o in read(outcomes)}
    until = time.monotonic() + 60 * chosen.minutes
    prepare(out / "seeds")
    with copied_processes(), outcomes.open("a") as file:
        check_seeds(kinds, out, canary)
        end = chosen.first + -(-chosen.inputs // len(kinds))
        for first in range(chosen.first, end, _TOGETHER):
            for kind in kinds:
                seeds = [seed for seed in range(first, min(first + _TOGETHER, end)) if (kind, seed) not in known]
                if seeds and time.monotonic() < until:
                    file.writelines(json.dumps(outcome) + "\n" for outcome in tried(kind, seeds, out, canary))
                    file.flush()
    found = read(outcomes)
    print(table(found), flush=True)
    os._exit(any(outcome["verdict"] not in WITHSTOOD for outcome in found))  # without what libraries say as they end


def read(outcomes: Path) -> list[dict[str, Any]]:
    """What earlier runs found."""
    return [json.loads(line) for line in outcomes.read_text().splitlines()] if outcomes.exists() else []


def prepare(seeds: Path) -> None:
    """Make the imports, and compile, before copies are made."""
    for name in _LIBRARIES:
        importlib.import_module(name)
    with contextlib.suppress(SystemExit), contextlib.redirect_stdout(io.StringIO()), patch("sys.argv", ["", "version"]):
        evenhand.cli.main()  # what the parser imports
    with copied_processes(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in ("xgboost.json", "categories.cbm", "network.safetensors", "linear.skops"):
            X = table_for(name, people(16))
            audited = as_audited_model(load_model(seeds / name), table=X, n_permutations=4)
            x = audited.encode(audited.aligned(X)) if not name.startswith("categories") else None
            if x is not None:
                audited.attribute(x[:3], x[3:6], 2, "segments")
    gc.collect()
    gc.freeze()


def check_seeds(kinds: list[str], out: Path, canary: Path) -> None:
    """Stop where a file is refused that is not damaged: then damaged ones would be, too, for the same reason."""
    for kind in kinds:
        (found,) = tried(kind, [0], out, canary, is_damaged=False)
        if found["verdict"] != ("refused" if kind.startswith("canary") else "accepted"):
            sys.exit(f"{kind} without damage: {found['verdict']}, {found['why']}")


def tried(kind: str, seeds: list[int], out: Path, canary: Path, *, is_damaged: bool = True) -> list[dict[str, Any]]:
    """What becomes of the damaged files of some seeds; kept where evenhand did not withstand them."""
    emptied(out / "tried")
    rngs = [np.random.default_rng([seed, KINDS.index(kind)]) for seed in seeds]
    paths = [
        _written(kind, seed, rng, out, canary, is_damaged=is_damaged) for seed, rng in zip(seeds, rngs, strict=True)
    ]
    if kind in MODELS:
        found = judge_models(paths, canary)
    elif kind not in DOCUMENTS:
        found = []
        for path in paths:
            given = unpacked(kind, path.read_bytes(), out) if kind in LAKES else str(path)
            found.append(judge_table(kind, given, canary))
    else:
        found = [
            judge_command(*command_on(path, out / "seeds", rng), path.parent, canary, is_written=seed % _WRITTEN == 0)
            for path, rng, seed in zip(paths, rngs, seeds, strict=True)
        ]
    for seed, path, outcome in zip(seeds, paths, found, strict=True):
        if outcome["verdict"] not in WITHSTOOD:
            shutil.copy(path, out / "found" / f"{seed}-{kind}")
            canary.unlink(missing_ok=True)
            print(kind, seed, outcome["verdict"], outcome["why"].strip().splitlines()[-1:], file=sys.stderr, flush=True)
    return [{"kind": kind, "seed": seed, **outcome} for seed, outcome in zip(seeds, found, strict=True)]


def _written(kind: str, seed: int, rng: np.random.Generator, out: Path, canary: Path, *, is_damaged: bool) -> Path:
    """The damaged file of a seed."""
    valid = out / "seeds"
    others = [(valid / KINDS[int(k)]).read_bytes() for k in rng.integers(len(KINDS), size=2)]
    if not is_damaged:
        content = (valid / (kind + ".seed" if kind == "people.csv" else kind)).read_bytes()
    elif kind in LAKES:
        content = damaged_lake((valid / kind).read_bytes(), rng, str(canary))
    elif kind in (*TABLES, *TEMPLATES):
        content = damaged_table(kind, valid / kind, rng, str(canary))
    else:
        content = damaged(kind, (valid / kind).read_bytes(), others, rng, str(canary))
    ending = kind.rpartition(".")[2]
    if kind.startswith("canary"):  # under any name
        ending = str(rng.choice(["pkl", "joblib", "pt", "onnx", "skops", "json", "cbm", "safetensors"]))
    name = f"{seed}-{kind.rpartition('.')[0]}.{ending}"
    folder = out / "tried" if kind not in DOCUMENTS else emptied(out / "tried" / str(seed))
    (folder / name).write_bytes(content)
    return folder / name


def command_on(path: Path, seeds: Path, rng: np.random.Generator) -> tuple[list[str], tuple[int, ...]]:
    """A command that reads a damaged document, run in its folder, and the exit codes that it may end with."""
    folder = path.parent
    if path.suffix == ".toml":
        for name in ("network.safetensors", "linear.onnx", "canary.pkl", "people.csv"):
            shutil.copy(seeds / name, folder / name)
        return ["audit", "people.csv", "--config", path.name, "--out", str(folder / "out")], (0, 1, 2)
    if path.suffix == ".zip":
        with_inputs = ["--data", str(seeds / "people.csv"), "--model", str(seeds / "network.safetensors")]
        return ["verify", str(path), *(with_inputs if "settings" in path.name else ())], (0, 1, 2)
    page = ["--out", str(folder / "page.html")]
    if rng.random() < 0.3:
        shutil.copy(seeds / "second_audit.json", folder)
        return ["monitor", str(folder), *page], (0, 2)
    pair = [str(seeds / "second_audit.json"), str(path)]
    return ["compare", *(pair if rng.random() < 0.5 else pair[::-1]), "--allow-different-settings", *page], (0, 2)


def table(outcomes: list[dict[str, Any]]) -> str:
    """Counts by kind, as Markdown."""
    lines = ["| file | inputs | refused | accepted, right | not withstood | slowest, s | most memory, MB |"]
    lines.append("| --- | ---: | ---: | ---: | ---: | ---: | ---: |")
    for kind in [*dict.fromkeys(o["kind"] for o in outcomes), ""]:
        rows = [o for o in outcomes if kind in ("", o["kind"])]
        n = {verdict: sum(o["verdict"] == verdict for o in rows) for verdict in WITHSTOOD}
        slowest, most = (max((o[name] for o in rows), default=0) for name in ("seconds", "mb"))
        cells = [kind or "all", *(f"{k:,}" for k in (len(rows), *n.values(), len(rows) - sum(n.values())))]
        lines.append(f"| {' | '.join(cells)} | {slowest:.1f} | {most:,} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
