"""Names from files cannot steer the terminal."""

from __future__ import annotations

import re
import sys

import pandas as pd
import pytest

import evenhand as eh
from evenhand.cli import main

ESCAPES = "\x1b[2J\x1b]0;owned\x07"
# What rich and the progress bar may write themselves: nothing, where the output is not a terminal.
OBEYED = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]")


@pytest.fixture
def hostile(tmp_path):
    data = eh.load_dataset("synthetic", n=300)
    table = data.X.rename(columns={data.X.columns[-1]: f"x{ESCAPES}"})
    table["repaid"], table["sex"] = data.y, pd.Series(data.group).map(lambda name: f"{name}\u202e{ESCAPES}").to_numpy()
    table.to_parquet(tmp_path / "people.parquet")
    return tmp_path, [name for name in data.financial_features if name in table][:3]


@pytest.mark.parametrize("command", ["audit", "check"])
def test_nothing_that_a_terminal_obeys_is_printed(hostile, command, monkeypatch, capsys):
    folder, financial = hostile
    options = ["--label", "repaid", "--group", "sex", "--financial", ",".join(financial), "--out", str(folder / "out")]
    monkeypatch.setattr(sys, "argv", ["evenhand", command, str(folder / "people.parquet"), *options])
    with pytest.raises(SystemExit) as done:
        main()
    said = capsys.readouterr()
    assert done.value.code == 0, said.err
    assert "\\x1b[2J" in said.out
    assert not OBEYED.search(said.out + said.err)


def test_an_error_is_as_harmless(hostile, monkeypatch, capsys):
    folder, _ = hostile
    words = ["--label", f"no{ESCAPES}", "--group", "sex", "--financial", "x"]
    monkeypatch.setattr(sys, "argv", ["evenhand", "audit", str(folder / "people.parquet"), *words])
    with pytest.raises(SystemExit) as done:
        main()
    assert done.value.code == 2
    assert not OBEYED.search(capsys.readouterr().err)
