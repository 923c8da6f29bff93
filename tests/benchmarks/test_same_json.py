import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "same_json.py"


@pytest.mark.slow
@pytest.mark.integration
def test_every_way_gives_the_same_json():
    command = [sys.executable, SCRIPT, "--people", "5000", "--print"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    ways = [line.split("|")[1].strip() for line in done.stdout.splitlines() if line.count("|") == 4][2:]
    assert {"local", "dask", "local, killed twice and resumed", "in memory, without placebo pairs"} <= set(ways)
    assert "missed" not in done.stdout
