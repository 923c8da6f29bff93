"""Damaged model files, plans and audits end in an answer or a sentence; no code in them runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("resource", reason="processes cannot be limited here")

SAMPLE = 220
PROGRAM = Path(__file__).with_name("many.py")


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is measured as Linux tells it")
def test_damaged_files(tmp_path):
    words = [sys.executable, PROGRAM, "--inputs", str(SAMPLE), "--out", str(tmp_path)]
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    done = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr + done.stdout
    *_, every = done.stdout.strip().splitlines()
    inputs, refused, accepted, failed = (int(cell.replace(",", "")) for cell in every.split("|")[2:6])
    assert inputs >= SAMPLE
    assert failed == 0
    assert min(refused, accepted) > 0.1 * inputs  # both ends are tried
