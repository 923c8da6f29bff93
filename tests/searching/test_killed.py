"""A search that was killed goes on and ends with the same file as one that was not."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

pytestmark = pytest.mark.integration  # processes are started

SEARCH = """
import sys
import evenhand as eh
data = eh.load_dataset("synthetic", n=600)
space = {"xgboost": {"n_estimators": [10], "max_depth": [1, 2, 3, 4], "repair": ["none", "reweighing"]},
         "scorecard": {"n_bins": [2, 3]}}
found = eh.search(data.X, data.y, sensitive_features=data.group, financial_features=data.financial_features,
                  family=("xgboost", "scorecard"), space=space, folds=2, keep=[], checkpoint=sys.argv[1], n_jobs=2)
found.to_json(sys.argv[2])
"""


def started(folder, out):
    return subprocess.Popen([sys.executable, "-c", SEARCH, str(folder), str(out)], start_new_session=True)


def test_a_killed_search_ends_with_the_same_file(tmp_path):
    pytest.importorskip("xgboost")
    whole, again = tmp_path / "whole.json", tmp_path / "again.json"
    uninterrupted = started(tmp_path / "whole", whole)
    killed = started(tmp_path / "store", again)
    deadline = time.monotonic() + 120
    while len(list((tmp_path / "store").glob("search-*.json"))) < 3:
        assert killed.poll() is None, "it ended before it was killed"
        assert time.monotonic() < deadline
        time.sleep(0.02)
    os.kill(killed.pid, signal.SIGKILL)
    assert killed.wait() == -signal.SIGKILL
    kept = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "store").glob("search-*.json")}
    assert not again.exists()
    assert started(tmp_path / "store", again).wait() == 0
    assert uninterrupted.wait() == 0
    now = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "store").glob("search-*.json")}
    assert {name: now[name] for name in kept} == kept  # what was done is not done again
    assert len(now) > len(kept)
    assert again.read_bytes() == whole.read_bytes()
