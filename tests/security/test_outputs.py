"""What is written is for its owner, and what was audited is what the hashes say."""

import os

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.exceptions import DataFileError
from evenhand.system.files import write_atomically, write_text, written_together

pytestmark = pytest.mark.skipif(os.name != "posix", reason="permissions of POSIX")


def mode(path):
    return oct(path.stat().st_mode)[-3:]


@pytest.fixture(autouse=True)
def generous():
    """Without further care, everyone could read new files."""
    before = os.umask(0)
    yield
    os.umask(before)


def test_new_files_and_folders_are_for_their_owner(tmp_path):
    write_text(tmp_path / "new" / "audit.json", "{}")
    with write_atomically(tmp_path / "pairs.parquet") as temporary:
        assert mode(temporary) == "600"
    with written_together(tmp_path / "report") as stage:
        (stage / "report.html").write_text("<html>")
        assert mode(stage) == "700"
    files = [tmp_path / "new" / "audit.json", tmp_path / "pairs.parquet", tmp_path / "report" / "report.html"]
    assert [mode(file) for file in files] == ["600"] * 3
    assert [mode(file.parent) for file in (files[0], files[2])] == ["700"] * 2


@pytest.fixture
def people(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame({"income": rng.normal(size=300), "debt": rng.normal(size=300), "sex": list("fm") * 150})
    table["paid"] = (table["income"] - table["debt"] + rng.normal(size=300) > 0).astype(int)
    table.to_parquet(tmp_path / "people.parquet")
    return table


def test_a_source_that_changes_while_it_is_streamed_is_refused(people, tmp_path, monkeypatch):
    from evenhand.auditing.streaming import stream

    file, run = tmp_path / "people.parquet", stream.run_batches

    def meanwhile(*given):
        run(*given)
        people.assign(income=0.0).to_parquet(file)

    monkeypatch.setattr(stream, "run_batches", meanwhile)
    model = LogisticRegression().fit(people[["income", "debt"]], people["paid"])
    roles = {"label": "paid", "group": "sex", "financial_features": ["income", "debt"], "evidence": False}
    with pytest.raises(DataFileError, match="changed while it was read"):
        eh.audit_stream(model, file, out=tmp_path / "out", **roles)
    kept = list((tmp_path / "out").rglob("*"))
    assert {mode(path) for path in kept if path.is_file()} == {"600"}
    assert {mode(path) for path in kept if path.is_dir()} == {"700"}
