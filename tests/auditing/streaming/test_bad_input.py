"""Files that change on the way, cannot be read or cannot be written: a sentence, and what was finished is kept."""

import ctypes
import os
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import skops.io
from sklearn.linear_model import LogisticRegression

from evenhand.auditing.streaming import audit_stream
from evenhand.exceptions import DataFileError, InvalidInputError, InvalidTypeError, StreamError

FINANCIAL = ["f0", "f1", "f2"]
FEATURES = [*FINANCIAL, "z0", "z1", "z2"]

pytestmark = pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")


@pytest.fixture
def go(tmp_path, model, people):
    """An audit of a source in a folder, without evidence, matched in people of their own."""

    def audit(source, **settings):
        arguments = {
            "label": "y",
            "group": "sex",
            "financial_features": FINANCIAL,
            "features": FEATURES,
            "reference": people,
            "evidence": False,
            "n_jobs": 1,
            "out": tmp_path / "audit",
        }
        return audit_stream(settings.pop("model", model), source, **arguments | settings)

    return audit


@pytest.fixture
def folder(tmp_path, people):
    """A folder of three files of 300 people."""
    place = tmp_path / "people"
    place.mkdir()
    for k in range(3):
        people.iloc[300 * k : 300 * (k + 1)].to_parquet(place / f"part-{k}.parquet")
    return place


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda table: table.drop(columns="z1"), r"part-1\.parquet' has different columns from .*missing \['z1'\]"),
        (lambda table: table.assign(extra=1), r"part-1\.parquet' .*added \['extra'\]"),
        (lambda table: table.assign(z2="x"), r"different type 'z2' \(was number, is text\)"),
        (lambda table: table.assign(z2=True), r"different type 'z2' \(was number, is yes or no\)"),
        (lambda table: table.assign(z2=pd.Timestamp(0)), r"different type 'z2' \(was number, is timestamp"),
    ],
)
def test_columns_that_change_from_file_to_file(folder, people, go, change, message):
    change(people.iloc[300:600]).to_parquet(folder / "part-1.parquet")
    with pytest.raises(DataFileError, match=message) as caught:
        go(folder)
    assert "\n" not in str(caught.value)
    people.iloc[300:600].to_parquet(folder / "part-1.parquet")


def test_a_narrower_type_of_the_same_kind_is_no_change(folder, people, go):
    people.iloc[300:600].astype({"f0": "float32", "y": "int8"}).to_parquet(folder / "part-1.parquet")
    assert go(folder).provenance.n_people == 900


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_missing_and_infinite_values_are_named_with_their_batch(folder, people, go, value):
    table = people.iloc[600:].copy()
    table.iloc[5, table.columns.get_loc("z0")] = value
    table.to_parquet(folder / "part-2.parquet")
    with pytest.raises(InvalidInputError, match=r"part-2\.parquet' \(batch 2\): .*'z0': 1.* 2 of 3 batches"):
        go(folder)


@pytest.mark.parametrize(
    ("column", "value", "message"),
    [
        ("y", 2, r"\(batch 2\): `y` must be 0 or 1"),
        ("y", None, r"\(batch 2\): `y` has 1 missing labels"),
        ("sex", None, r"\(batch 2\): `sex` has 1 missing values"),
        ("sex", "other", r"\(batch 2\): The reference has no one of the groups \['other'\], only of \['a', 'b'\]"),
    ],
)
def test_labels_and_groups_are_checked_in_every_batch(folder, people, go, column, value, message):
    table = people.iloc[600:].copy()
    table[column] = table[column].astype(object)
    table.iloc[5, table.columns.get_loc(column)] = value
    table.to_parquet(folder / "part-2.parquet")
    with pytest.raises(InvalidInputError, match=message):
        go(folder)


def test_a_corrupt_row_group(tmp_path, people, go):
    source = tmp_path / "people.parquet"
    pq.write_table(pa.Table.from_pandas(people), source, row_group_size=300, compression="none", use_dictionary=False)
    column = pq.ParquetFile(source).metadata.row_group(1).column(2)
    content = bytearray(source.read_bytes())
    start = column.data_page_offset
    content[start : start + 40] = b"\xff" * 40
    source.write_bytes(content)
    with pytest.raises(DataFileError, match=r"\(batch 1\) cannot be read: .* [12] of 3 batches are finished and kept"):
        go(source, batch_rows=300)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"not parquet at all" * 50])
def test_a_file_that_is_no_parquet(tmp_path, go, content):
    source = tmp_path / "people.parquet"
    source.write_bytes(content)
    with pytest.raises(DataFileError, match=r"people\.parquet' cannot be read"):
        go(source)


def test_a_csv_that_changes_its_kind(tmp_path, people, go, monkeypatch):
    monkeypatch.setattr("evenhand.inputs.tables.csv_files._BLOCK", 20_000)
    table = people[[*FEATURES, "y", "sex"]].copy()
    table["z0"] = table["z0"].astype(object)
    table.iloc[800, table.columns.get_loc("z0")] = "plenty"
    table.to_csv(tmp_path / "people.csv", index=False)
    with pytest.raises(InvalidInputError, match=r"not numbers: \['z0'\] \(such as 'plenty' in 'z0'\)"):
        go(tmp_path / "people.csv")


def test_sources_that_are_none(tmp_path, go):
    with pytest.raises(DataFileError, match=r"There is no file .*absent\.parquet"):
        go(tmp_path / "absent.parquet")
    with pytest.raises(DataFileError, match=r"There is no file .*absent\.csv"):
        go(tmp_path / "absent.csv")
    (tmp_path / "empty").mkdir()
    with pytest.raises(DataFileError, match="has no Parquet files"):
        go(tmp_path / "empty")
    (tmp_path / "people.txt").write_bytes(b"")
    with pytest.raises(DataFileError, match=r"must be one of \.csv, .* or a folder of \.parquet files"):
        go(tmp_path / "people.txt")
    pd.DataFrame({name: [] for name in ["y", "sex", *FEATURES]}).to_parquet(tmp_path / "none.parquet")
    with pytest.raises(DataFileError, match="has no rows"):
        go(tmp_path / "none.parquet")


def test_a_source_of_one_group_or_label(tmp_path, people, go):
    source = tmp_path / "people.parquet"
    people.assign(sex="a").to_parquet(source)
    with pytest.raises(InvalidInputError, match=r"holds only the group \['a'\]; at least two"):
        go(source, reference=None)
    people.assign(y=1).to_parquet(source)
    with pytest.raises(InvalidInputError, match="holds only the label 1"):
        go(source, reference=None, out=tmp_path / "b")
    people.to_parquet(source)
    with pytest.raises(InvalidInputError, match="The reference holds only the label 1"):
        go(source, reference=people.assign(y=1), out=tmp_path / "c")
    people.assign(sex=None).to_parquet(source)
    with pytest.raises(StreamError, match="no row with both a label and a group"):
        go(source, drop_missing=True, out=tmp_path / "d")


@pytest.mark.parametrize(
    ("settings", "kind", "message"),
    [
        ({"label": "why"}, InvalidInputError, r"`label` \(--label\) names columns absent"),
        ({"group": ["sex", "race"]}, InvalidInputError, r"`group` \(--group\) names columns absent"),
        ({"financial_features": ["f9"]}, InvalidInputError, r"absent from the data: \['f9'\]"),
        ({"by": ["county"]}, InvalidInputError, r"`by` \(--by\) names columns absent"),
        ({"drop": ["f9"], "features": None}, InvalidInputError, r"`drop` \(--drop\) names columns absent"),
        (
            {"batch_rows": 0},
            InvalidInputError,
            r"`batch_rows` \(--batch-rows\) must be a whole number of at least 1, got 0",
        ),
        ({"n_jobs": 0}, InvalidInputError, r"`n_jobs` \(--n-jobs\) must be a whole number of at least 1"),
        (
            {"evidence_people": 0},
            InvalidInputError,
            r"`evidence_people` \(--evidence-people\) must be a whole number of at least 1",
        ),
        ({"reference": None, "reference_people": 1}, InvalidInputError, "`reference_people` must be at least 2"),
        ({"engine": "cloud"}, InvalidInputError, r"must be one of local, threads, processes.*, got 'cloud'"),
        (
            {"reference": 3},
            InvalidTypeError,
            "`reference` must be the path of a file, an address or a .* table, got int",
        ),
        ({"reference": pd.DataFrame({"f0": [1.0]})}, InvalidInputError, "The reference must have the columns"),
        ({"device": "cuda:7"}, InvalidInputError, "has no GPU that torch can use"),
        ({"device": "cpu", "model": lambda x: x[:, 0]}, InvalidInputError, "`device` only applies to torch modules"),
    ],
)
def test_arguments_are_checked_before_anything_is_audited(tmp_path, people, go, settings, kind, message):
    source = tmp_path / "people.parquet"
    people.to_parquet(source)
    with pytest.raises(kind, match=message):
        go(source, **settings)
    assert not (tmp_path / "audit" / "batches").exists()


def test_a_folder_that_cannot_be_written(tmp_path, people, go):
    source, out = tmp_path / "people.parquet", tmp_path / "file"
    people.to_parquet(source)
    out.write_text("")
    with pytest.raises(InvalidInputError, match="`out` must be a folder that can be written, got"):
        go(source, out=out)


def bound_by_permissions():
    """Before a process starts: take from root what lets it write where it may not; others lack it anyway."""
    if os.geteuid() != 0:
        return
    if sys.platform != "linux":
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
    elif ctypes.CDLL(None).prctl(24, 1, 0, 0, 0) != 0:  # PR_CAPBSET_DROP, CAP_DAC_OVERRIDE
        raise OSError("CAP_DAC_OVERRIDE cannot be dropped")


@pytest.mark.slow  # as a process without the rights of root
def test_a_folder_that_is_read_only(tmp_path, people):
    source, model, locked = tmp_path / "people.parquet", tmp_path / "model.skops", tmp_path / "locked"
    people.to_parquet(source)
    skops.io.dump(LogisticRegression().fit(people[FEATURES], people["y"]), model)
    locked.mkdir()
    locked.chmod(0o555)
    command = [
        sys.executable, "-m", "evenhand", "audit", str(source), "--stream", "--model", str(model), "--label", "y",
        "--group", "sex", "--financial", ",".join(FINANCIAL), "--out", str(locked),
    ]  # fmt: skip
    ended = subprocess.run(command, preexec_fn=bound_by_permissions, capture_output=True, text=True, check=False)
    assert ended.returncode == 2, ended.stderr
    told = " ".join(ended.stderr.split())
    assert f"`out` must be a folder that can be written, got '{locked}': Permission denied." in told
    assert "Traceback" not in told
    assert not list(locked.iterdir())


def test_a_full_disk_keeps_what_was_finished_and_says_so(tmp_path, applicants, full_disk):
    source, out = tmp_path / "people", tmp_path / "audit"
    source.mkdir()
    table = applicants(2000)
    # Ten small batches that fit, and one that does not.
    for k in range(10):
        table.iloc[20 * k : 20 * (k + 1)].to_parquet(source / f"part-{k}.parquet")
    table.iloc[200:].to_parquet(source / "whole.parquet")
    run = runpy.run_path(str(Path(__file__).parent / "stream_once.py"))["main"]
    with full_disk(120_000), pytest.raises(StreamError, match="cannot be written: File too large") as stopped:
        run(source, out)
    last = str(stopped.value)
    n_kept = len(list((out / "batches").glob("??????.npz")))
    assert n_kept >= 9
    assert "free some space and continue with `resume=True` (--resume)" in last
    assert f"{n_kept} of 19 batches are finished and kept in" in last
    run(source, out, "resume")
    assert (out / "audit.json").exists()


def test_the_model_comes_first(tmp_path):
    with pytest.raises(InvalidTypeError, match=r"takes the model first and the people second, audit_stream\(model, "):
        audit_stream(
            tmp_path / "people.parquet", lambda x: x, label="y", group="g", financial_features=["a"], out=tmp_path
        )
