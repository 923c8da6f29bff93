"""What a command imports: a start takes as long as its imports, so each waits only for what it uses."""

import json
import os
import subprocess
import sys
import warnings

import joblib
import pytest
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.cli import main

HEAVY = {"altair", "numpy", "pandas", "pyarrow", "scipy", "sklearn", "statsmodels", "torch", "vl_convert"}
UNUSED = {  # by an audit of a linear model
    "catboost",
    "dask",
    "distributed",
    "docx",
    "duckdb",
    "evenhand.auditing.given",
    "evenhand.auditing.history",
    "evenhand.auditing.streaming",
    "evenhand.research",
    "evenhand.searching.run",
    "evenhand.training",
    "interpret",
    "lightgbm",
    "matplotlib",
    "mlflow",
    "numba",
    "onnx",
    "onnxruntime",
    "openpyxl",
    "pyspark",
    "shap",
    "skops",
    "torch",
    "xgboost",
}
RUN = """
import json, sys
sys.argv = ["evenhand", *sys.argv[1:]]
from evenhand.cli import main
try:
    main()
finally:
    print(json.dumps(list(sys.modules)), file=sys.stderr)
"""


def modules_after(*command, cwd=None):
    done = subprocess.run([sys.executable, *command], check=True, capture_output=True, text=True, cwd=cwd)
    return set(json.loads(done.stderr.splitlines()[-1]))


@pytest.mark.integration
def test_neither_the_import_nor_the_help_waits_for_a_heavy_library():
    imported = modules_after("-c", "import evenhand, json, sys; print(json.dumps(list(sys.modules)), file=sys.stderr)")
    assert not imported & HEAVY
    assert not modules_after("-c", RUN, "--help") & HEAVY


@pytest.mark.integration
def test_the_process_that_reads_the_model_starts_before_this_one_imports_heavy_libraries():
    code = (
        "import json, sys; from evenhand.cli.options import AuditPlan; AuditPlan();"
        "print(json.dumps(list(sys.modules)), file=sys.stderr)"
    )
    assert not modules_after("-c", code) & HEAVY


@pytest.mark.integration
def test_an_audit_of_a_linear_model_imports_nothing_that_it_does_not_use(tmp_path):
    data = eh.load_dataset("synthetic", n=300)
    data.X.assign(repaid=data.y, sex=data.group).to_csv(tmp_path / "people.csv", index=False)
    joblib.dump(LogisticRegression().fit(data.X, data.y), tmp_path / "model.joblib")
    financial = ",".join(data.financial_features[:3])
    words = f"audit people.csv --model model.joblib --trust-pickle --label repaid --group sex --financial {financial}"
    imported = modules_after("-c", RUN, *words.split(), cwd=tmp_path)
    assert (tmp_path / "audit" / "report.html").is_file()
    assert not imported & UNUSED


@pytest.mark.parametrize(("given", "expected"), [(None, "PASSIVE"), ("ACTIVE", "ACTIVE")])
def test_waiting_threads_sleep_unless_the_user_says_otherwise(given, expected, monkeypatch):
    monkeypatch.setenv("OMP_WAIT_POLICY", given or "")  # restored after the test, whatever `main` sets
    if given is None:
        monkeypatch.delenv("OMP_WAIT_POLICY")
    monkeypatch.setattr(sys, "argv", ["evenhand", "--help"])
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert os.environ["OMP_WAIT_POLICY"] == expected
