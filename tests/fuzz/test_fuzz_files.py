"""Damaged model files, plans and audits end in an answer or a sentence; no code in them runs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("resource", reason="processes cannot be limited here")

IN_CI, IN_ALL = 220, 10_000
PROGRAM = Path(__file__).with_name("many.py")


def tried(n, out):
    """What the program says after so many files."""
    environment = os.environ | {"OMP_NUM_THREADS": "1"}
    words = [sys.executable, PROGRAM, "--inputs", str(n), "--out", str(out)]
    return subprocess.run(words, env=environment, capture_output=True, text=True, check=False)


@pytest.mark.integration
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is measured as Linux tells it")
def test_damaged_files(tmp_path):
    done = tried(IN_CI, tmp_path)
    assert done.returncode == 0, done.stderr + done.stdout
    *_, every = done.stdout.strip().splitlines()
    inputs, refused, accepted, failed = (int(cell.replace(",", "")) for cell in every.split("|")[2:6])
    assert inputs >= IN_CI
    assert failed == 0
    assert min(refused, accepted) > 0.1 * inputs  # both ends are tried


@pytest.mark.slow
def test_many_damaged_files(tmp_path):
    done = tried(IN_ALL, os.environ.get("EVENHAND_FUZZ", tmp_path))
    print(done.stdout)
    assert done.returncode == 0, done.stderr + done.stdout
