"""Exit codes say one thing each, whoever reads what a command prints."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

import evenhand as eh

pytestmark = pytest.mark.integration

WRITTEN = ["audit.json", "audit.xlsx", "pairs.parquet", "report.html"]


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """An audit of few people, but for its folder."""
    folder = tmp_path_factory.mktemp("people")
    data = eh.load_dataset("synthetic", n=120)
    data.X.iloc[:, :6].assign(repaid=data.y, sex=data.group).to_parquet(folder / "people.parquet")
    eh.CECClassifier(financial_features=data.financial_features[:3], epochs=1).fit(
        data.X.iloc[:, :6], data.y, sensitive_features=data.group
    ).save(folder / "model")
    words = f"audit {folder / 'people.parquet'} --model {folder / 'model'} --label repaid --group sex"
    return [sys.executable, "-m", "evenhand", *words.split(), "--financial", ",".join(data.financial_features[:3])]


def without_reader(words):
    """The exit code, and what else was said, of a command whose reader has left before the first line."""
    reading, writing = os.pipe()
    os.close(reading)
    try:
        done = subprocess.run(words, stdout=writing, stderr=subprocess.PIPE, text=True, check=False)
    finally:
        os.close(writing)
    return done.returncode, done.stderr


@pytest.mark.parametrize(
    ("gate", "code"), [pytest.param("cec.mean > 2", 0, marks=pytest.mark.slow), ("cec.mean > -1", 1)]
)
@pytest.mark.slow
def test_a_reader_that_leaves_changes_neither_files_nor_exit_code(command, gate, code, tmp_path):
    found, said = without_reader([*command, "--fail-on", gate, "--out", str(tmp_path / "out")])
    assert found == code, said
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == WRITTEN
    assert "Traceback" not in said
    assert "Broken" not in said


@pytest.mark.parametrize(("words", "unbuffered"), [(["--help"], "1"), (["data", "list"], "")])
def test_commands_without_files_end_well_without_a_reader(words, unbuffered, monkeypatch):
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    assert without_reader([sys.executable, "-m", "evenhand", *words]) == (0, "")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="there is no file that is always full")
@pytest.mark.slow
def test_an_output_that_is_full_is_not_a_crossed_gate(command, tmp_path):
    with Path("/dev/full").open("w") as full:
        words = [*command, "--out", str(tmp_path / "out")]
        done = subprocess.run(words, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert done.returncode == 2
    assert "Error: " in done.stderr
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == WRITTEN
