"""The same seed gives the same files: with any number of threads, by any engine, in one go or resumed."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys

import pytest

import evenhand as eh

pytestmark = pytest.mark.slow

ENGINES = ("local", "threads", "processes")
SCRIPT = """
import json, shutil, sys, warnings
from pathlib import Path
import pandas as pd
import evenhand as eh

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    folder, out = map(Path, sys.argv[1:])
    table, model = pd.read_parquet(folder / "people.parquet"), eh.load_model(folder / "model")
    roles = {"financial_features": ["financial_0", "financial_1"]}
    X = table.drop(columns=["repaid", "sex"])
    results = {"in memory": eh.audit(model, X, table["repaid"], sensitive_features=table["sex"], **roles)}
    roles |= {"label": "repaid", "group": "sex", "batch_rows": 150, "n_jobs": 2}
    for engine in json.loads(sys.stdin.read()):
        results[engine] = eh.audit_stream(model, folder / "people.parquet", out=out / engine, engine=engine, **roles)
    shutil.copytree(out / "local", out / "resumed")
    max((out / "resumed" / "batches").glob("[0-9]*[0-9].npz")).unlink()  # the mark of a finished batch
    results["resumed"] = eh.audit_stream(
        model, folder / "people.parquet", out=out / "resumed", engine="local", resume=True, **roles
    )
    for name, result in results.items():
        result.to_json(out / f"{name}.json")
        result.to_excel(out / f"{name}.xlsx")
"""


@pytest.fixture(scope="module")
def people(tmp_path_factory):
    """A file of applicants and a model of them."""
    folder = tmp_path_factory.mktemp("people")
    data = eh.load_dataset("synthetic", n=400)
    data.X.iloc[:, :6].assign(repaid=data.y, sex=data.group).to_parquet(folder / "people.parquet")
    model = eh.CECClassifier(financial_features=["financial_0", "financial_1"], epochs=2, random_state=0)
    model.fit(data.X.iloc[:, :6], data.y, sensitive_features=data.group).save(folder / "model")
    return folder


def audited(people, out, threads, engines):
    """Hashes of the JSON and the workbook of an audit in memory and by each engine."""
    out.mkdir(exist_ok=True)
    fixed = {"SOURCE_DATE_EPOCH": "1700000000", "OMP_NUM_THREADS": str(threads), "OPENBLAS_NUM_THREADS": str(threads)}
    (out / "audits.py").write_text(SCRIPT)
    command = [sys.executable, out / "audits.py", people, out]
    subprocess.run(command, env=os.environ | fixed, input=json.dumps(engines), text=True, check=True)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in out.glob("*.[jx][sl]*")}


def test_threads_engines_and_interruptions_change_no_byte(people, tmp_path):
    one, two = (audited(people, tmp_path / str(threads), threads, ENGINES) for threads in (1, 2))
    assert len(one) == 2 * (2 + len(ENGINES))
    assert one == two
    for ending in ("json", "xlsx"):
        assert len({one[f"{name}.{ending}"] for name in (*ENGINES, "resumed")}) == 1
