"""Finished blocks on disk: a search that was killed goes on and ends with the same file as one that was not."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import time

import pytest

from evenhand.exceptions import DataFileError
from evenhand.searching.run import BlockStore, Scored


def test_a_block_comes_back_as_it_was_written(tmp_path):
    store = BlockStore(tmp_path, "run")
    rows = [Scored("a", 0, 1, {"auc": 0.1 + 0.2, "air": math.nan}), Scored("b", 1, 0, {}, "training diverged")]
    assert store.kept("first", lambda: rows) is rows
    found = BlockStore(tmp_path, "run").kept("first", list)
    assert found[0].metrics["auc"] == 0.1 + 0.2
    assert math.isnan(found[0].metrics["air"])
    assert found[1] == rows[1]


def test_blocks_of_other_runs_and_no_folder_are_left_alone(tmp_path):
    rows = [Scored("a", 0, 0, {})]
    BlockStore(tmp_path, "run").kept("first", list)
    assert BlockStore(tmp_path, "other").kept("first", lambda: rows) == rows
    nowhere = BlockStore(None, "run")
    assert nowhere.kept("first", list) == []
    assert nowhere.kept("first", lambda: rows) == rows


@pytest.mark.parametrize("content", ["", "{", '{"format": "other", "run": "run", "block": "first", "results": []}'])
def test_a_file_that_is_no_block_is_refused(tmp_path, content):
    store = BlockStore(tmp_path, "run")
    store.kept("first", list)
    next(tmp_path.iterdir()).write_text(content)
    with pytest.raises(DataFileError, match="is not a block of this search"):
        store.kept("first", list)


SEARCH = """
import sys
import evenhand as eh
data = eh.load_dataset("synthetic", n=600)
space = {"xgboost": {"n_estimators": [10], "max_depth": [1, 2, 3, 4], "repair": ["none", "reweighing"]},
         "scorecard": {"n_bins": [2, 3]}}
found = eh.search(data.X, data.y, sensitive_features=data.group, financial_features=data.financial_features,
                  family=("xgboost", "scorecard"), space=space, keep=[], checkpoint=sys.argv[1],
                  options=eh.SearchOptions(folds=2, n_jobs=2))
found.to_json(sys.argv[2])
"""


def started(folder, out):
    return subprocess.Popen([sys.executable, "-c", SEARCH, str(folder), str(out)], start_new_session=True)


@pytest.mark.slow  # three processes are started
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
