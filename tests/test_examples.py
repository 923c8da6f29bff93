"""Every example runs, here with few people and epochs, and prints what it promises."""

import json
import os
import re
import runpy
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration

EXAMPLES = Path(__file__).parents[1] / "examples"
NOTEBOOK = EXAMPLES / "in_a_notebook.ipynb"

# Arguments that make an example quick, and something its output must hold.
RUNS = {
    "audit_your_torch_model.py": (["--people", "800", "--epochs", "2"], "least similar reasoning"),
    "compare_methods.py": (["--epochs", "2"], "compare the columns"),
    "lenders_file.py": (["--people", "300"], "300 accounts of each quarter"),
    "many_groups.py": (["--people", "600", "--epochs", "2"], "How many people each match serves"),
    "many_models_at_once.py": (["--epochs", "2", "--folds", "3", "--weights", "0", "1"], "6 models of 2 epochs"),
    "own_module_with_cec_loss.py": (["--epochs", "1", "--weights", "0", "0.3"], "by automatic differentiation"),
    "paper_in_60_lines.py": (["1"], "CEC(f; D) 0."),
    "train_and_audit.py": (["--epochs", "2", "--weights", "0", "0.3"], "gives the same scores: True"),
}


@pytest.mark.parametrize("name", RUNS)
def test_example_runs(name, tmp_path, monkeypatch, capsys):
    arguments, phrase = RUNS[name]
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", [name, *arguments])
    with warnings.catch_warnings():
        warnings.simplefilter("default")
        runpy.run_path(str(EXAMPLES / name), run_name="__main__")
    assert phrase in capsys.readouterr().out
    assert not list(tmp_path.iterdir()), "an example leaves nothing behind"


@pytest.mark.slow
def test_the_notebook_runs_and_shows_the_card_and_the_charts(tmp_path):
    """In a process of its own, so that warnings of the kernel's machinery are not this suite's."""
    work, executed = tmp_path / "work", tmp_path / "executed.ipynb"
    work.mkdir()
    done = subprocess.run(
        [sys.executable, "-c", "from nbclient.cli import main; main()", NOTEBOOK, "--output", executed.with_suffix("")],
        cwd=work,
        env={**os.environ, "IPYTHONDIR": str(tmp_path / "ipython"), "JUPYTER_PLATFORM_DIRS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    cells = json.loads(executed.read_text("utf-8"))["cells"]
    outputs = [output for cell in cells if cell["cell_type"] == "code" for output in cell["outputs"]]
    shown = [output["data"] for output in outputs if "data" in output]
    assert sum("image/svg+xml" in data for data in shown) == 5
    pages = ["".join(data["text/html"]) for data in shown if "text/html" in data]
    assert any("excess" in page for page in pages), "the card of the result"
    assert not any("://" in page for page in pages), "nothing is loaded from the network"
    assert "report.html" in "".join(text for output in outputs for text in output.get("text", ""))
    assert not list(work.iterdir()), "an example leaves nothing behind"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["scikit-learn", "xgboost", "scores-only", "group-probabilities", "search"])
def test_a_notebook_of_the_site_prints_what_was_saved_in_it(name, tmp_path):
    saved = EXAMPLES.parent / "docs" / "notebooks" / f"{name}.ipynb"
    done = subprocess.run(
        [sys.executable, "-c", "from nbclient.cli import main; main()", saved, "--output", tmp_path / "executed"],
        cwd=tmp_path,
        env={**os.environ, "IPYTHONDIR": str(tmp_path / "ipython"), "JUPYTER_PLATFORM_DIRS": "1"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    assert texts_in(tmp_path / "executed.ipynb") == texts_in(saved) != []


def texts_in(notebook):
    """What the cells of a notebook print, without numbers, which differ in their last digits between machines."""
    outputs = [out for cell in json.loads(notebook.read_text("utf-8"))["cells"] for out in cell.get("outputs", ())]
    texts = ["".join(out.get("data", {}).get("text/plain", out.get("text", ""))) for out in outputs]
    plain = [text for text in texts if not text.startswith("alt.") and "Renderer" not in text]
    return [re.sub(r"[-+−]?\d[\d.,]*|\s+", "", text) for text in plain if text]


def test_the_notebook_is_kept_without_outputs():
    cells = json.loads(NOTEBOOK.read_text("utf-8"))["cells"]
    code = [cell for cell in cells if cell["cell_type"] == "code"]
    assert code
    assert all(cell["outputs"] == [] and cell["execution_count"] is None for cell in code)


def test_every_example_is_run():
    written = {path.name for path in EXAMPLES.iterdir() if path.is_file()}
    assert written == {*RUNS, NOTEBOOK.name}
