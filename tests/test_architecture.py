"""What the top of the package holds, and what starts quickly; who imports whom is import-linter's to check."""

import subprocess
import sys
import tomllib
from collections import Counter
from pathlib import Path

import joblib
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from evenhand import load_dataset

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "evenhand"
CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
LAYERS = [
    layer for contract in CONTRACTS for layer in contract.get("layers", ()) if (PACKAGE / layer.split()[0]).is_dir()
]


def test_the_top_of_the_package_has_at_most_fifteen_rooms():
    aside = {"__pycache__", "__main__.py", "_version.py", "py.typed"}
    assert len([path for path in PACKAGE.iterdir() if path.name not in aside]) <= 15


@pytest.mark.parametrize("layer", LAYERS)
def test_no_two_modules_of_a_layer_share_a_file_name(layer):
    modules = [path for room in layer.split(" | ") for path in (PACKAGE / room).rglob("*.py")]
    assert modules
    named = Counter(path.name for path in modules if path.name != "__init__.py")
    assert [name for name, times in named.items() if times > 1] == []


@pytest.mark.integration
def test_help_does_not_wait_for_torch():
    code = "import evenhand.cli, sys; assert 'torch' not in sys.modules and 'pandas' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


AUDIT = """
import sys
from evenhand.cli import main

sys.argv[0] = "evenhand"
try:
    main()
except SystemExit as ended:
    assert ended.code == 0, ended.code
asked = "numba torch._dynamo docx openpyxl xgboost lightgbm catboost onnxruntime skops matplotlib duckdb dask pyspark"
rooms = "evenhand.training evenhand.searching evenhand.research evenhand.auditing.streaming evenhand.auditing.history"
print("loaded:", [name for name in (asked + " " + rooms).split() if name in sys.modules])
"""


@pytest.mark.integration
def test_an_audit_of_a_linear_model_loads_nothing_that_it_does_not_use(tmp_path):
    data = load_dataset("synthetic", n=300)
    data.X.assign(repaid=data.y, sex=data.group).to_csv(tmp_path / "people.csv", index=False)
    joblib.dump(make_pipeline(StandardScaler(), LogisticRegression()).fit(data.X, data.y), tmp_path / "model.joblib")
    words = "audit people.csv --model model.joblib --trust-pickle --label repaid --group sex --financial"
    command = [sys.executable, "-c", AUDIT, *words.split(), ",".join(data.financial_features[:6])]
    done = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert done.stdout.endswith("loaded: []\n")
    assert (tmp_path / "audit" / "report.html").exists()


def test_every_public_name_is_there():
    import evenhand

    assert sorted(evenhand.__all__) == sorted({*evenhand._HOME, "__version__"})
    assert all(hasattr(evenhand, name) for name in evenhand.__all__)
    assert dir(evenhand) == sorted(evenhand.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        evenhand.nothing  # noqa: B018
