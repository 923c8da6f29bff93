"""Every example runs, here with few people and epochs, and prints what it promises."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[1] / "examples"

# Arguments that make an example quick, and something its output must hold.
RUNS = {
    "audit_your_torch_model.py": (["--people", "800", "--epochs", "2"], "least similar reasoning"),
    "many_groups.py": (["--people", "1200", "--epochs", "1"], "How many people each match serves"),
    "many_models_at_once.py": (["--epochs", "2", "--folds", "3", "--weights", "0", "1"], "6 models of 2 epochs"),
    "own_module_with_cec_loss.py": (["--epochs", "1", "--weights", "0", "0.3"], "by automatic differentiation"),
    "train_and_audit.py": (["--epochs", "2", "--weights", "0", "0.3"], "gives the same scores: True"),
}


@pytest.mark.parametrize("name", RUNS)
def test_example_runs(name, tmp_path):
    arguments, phrase = RUNS[name]
    done = subprocess.run(
        [sys.executable, EXAMPLES / name, *arguments], cwd=tmp_path, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert phrase in done.stdout
    assert not list(tmp_path.iterdir()), "an example leaves nothing behind"


def test_every_example_is_run():
    assert {path.name for path in EXAMPLES.glob("*.py")} == set(RUNS)
