"""Signals, no memory, and two audits in one folder: a sentence, and an exit code that the documentation lists."""

import signal
import subprocess
import sys
import time

import numpy as np
import pandas as pd
import pytest

from evenhand import cli
from evenhand.exceptions import InvalidInputError
from evenhand.system.files import only_one


def test_a_folder_in_use_is_refused_until_it_is_free(tmp_path):
    with only_one(tmp_path), pytest.raises(InvalidInputError, match="Another audit is writing to"), only_one(tmp_path):
        pass
    with only_one(tmp_path):
        assert not list(tmp_path.iterdir())


@pytest.mark.parametrize(
    "error", [MemoryError(), RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes")]
)
def test_too_little_memory_is_said(monkeypatch, capsys, error):
    def fail(*_arguments, **_options):
        raise error

    monkeypatch.setattr(sys.modules["evenhand.cli.app"], "app", fail)
    monkeypatch.setattr(sys, "argv", ["evenhand", "version"])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == 2
    assert "Error: There is not enough memory" in capsys.readouterr().err


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
@pytest.mark.parametrize("seconds", [2.0, 3.0, 5.0])
def test_a_signal_on_the_way_leaves_no_files_half_written(tmp_path, number, code, seconds):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"income": rng.normal(size=4000), "debt": rng.normal(size=4000), "sex": list("fm") * 2000})
    table["paid"] = (table["income"] > 0).astype(int)
    table.to_csv(tmp_path / "people.csv", index=False)
    words = [sys.executable, "-m", "evenhand", "audit", "people.csv", "--label", "paid", "--group", "sex"]
    process = subprocess.Popen(
        [*words, "--financial", "income,debt"],
        cwd=tmp_path,
        stderr=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        text=True,
    )
    time.sleep(seconds)
    process.send_signal(number)
    told = process.communicate()[1]
    assert process.returncode in (code, 0)
    assert process.returncode == 0 or "Interrupted." in told
    assert "Traceback" not in told
    files = {path.name for path in (tmp_path / "audit").glob("*")}
    assert not files or {"audit.json", "report.html"} <= files
