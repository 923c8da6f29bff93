from __future__ import annotations

import math

import pytest

from evenhand.exceptions import DataFileError
from evenhand.searching.store import BlockStore, Scored


def test_a_block_comes_back_as_it_was_written(tmp_path):
    store = BlockStore(tmp_path, "run")
    rows = [Scored("a", 0, 1, {"auc": 0.1 + 0.2, "air": math.nan}), Scored("b", 1, 0, {}, "training diverged")]
    store.write("first", rows)
    found = BlockStore(tmp_path, "run").read("first")
    assert found[0].metrics["auc"] == 0.1 + 0.2
    assert math.isnan(found[0].metrics["air"])
    assert found[1] == rows[1]


def test_blocks_of_other_runs_and_no_folder_are_left_alone(tmp_path):
    BlockStore(tmp_path, "run").write("first", [])
    assert BlockStore(tmp_path, "other").read("first") is None
    nowhere = BlockStore(None, "run")
    nowhere.write("first", [])
    assert nowhere.read("first") is None


@pytest.mark.parametrize("content", ["", "{", '{"format": "other", "run": "run", "block": "first", "results": []}'])
def test_a_file_that_is_no_block_is_refused(tmp_path, content):
    store = BlockStore(tmp_path, "run")
    store.write("first", [])
    next(tmp_path.iterdir()).write_text(content)
    with pytest.raises(DataFileError, match="is not a block of this search"):
        store.read("first")
