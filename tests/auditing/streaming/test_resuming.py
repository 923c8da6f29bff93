"""An audit that was stopped goes on, and ends with the same digits; what cannot go on is refused with the reason."""

import json
import runpy
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch
from threadpoolctl import threadpool_info, threadpool_limits

from evenhand.auditing.streaming import audit_stream
from evenhand.exceptions import InvalidInputError, StreamError

FINANCIAL = ["f0", "f1", "f2"]
FEATURES = [*FINANCIAL, "z0", "z1", "z2"]
SCRIPT = Path(__file__).parent / "stream_once.py"

pytestmark = pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")


def without_time(path):
    """The text of an audit but for the time at which it was written."""
    return [line for line in path.read_text().splitlines() if '"created"' not in line]


@pytest.mark.slow  # workers that are killed, and batches that are lost, are also tested elsewhere
def test_killed_at_any_moment_it_goes_on_to_the_same_digits(tmp_path, applicants):
    source, whole, out = (tmp_path / name for name in ("people.parquet", "whole", "killed"))
    applicants(4000).to_parquet(source)
    run_here = runpy.run_path(str(SCRIPT))["main"]
    run_here(source, whole)
    n_kills = 0
    for seconds in np.random.default_rng(1).uniform(0, 0.3, size=3):
        # From the first new batch on: killed while the process still starts up, nothing is tested.
        finished = len(list((out / "batches").glob("??????.npz")))
        process = subprocess.Popen(
            [sys.executable, "-W", "ignore", SCRIPT, source, out, "resume"], stderr=subprocess.DEVNULL
        )
        while process.poll() is None and finished == len(list((out / "batches").glob("??????.npz"))):
            time.sleep(0.01)
        time.sleep(float(seconds))
        process.kill()
        n_kills += process.wait() == -signal.SIGKILL
    assert n_kills >= 2
    run_here(source, out, "resume")
    assert without_time(out / "audit.json") == without_time(whole / "audit.json")
    parts = sorted((whole / "pairs").glob("*.parquet"))
    assert parts
    for part in parts:
        assert pq.read_table(part).equals(pq.read_table(out / "pairs" / part.name))


@pytest.fixture
def begun(tmp_path, model, people):
    """An audit of which one batch is lost."""
    source, out = tmp_path / "people.parquet", tmp_path / "audit"
    people.to_parquet(source)

    def go(model=model, **settings):
        arguments = {"label": "y", "group": "sex", "financial_features": FINANCIAL, "features": FEATURES}
        return audit_stream(model, source, out=out, **arguments | {"batch_rows": 250} | settings)

    first = go()
    (out / "batches" / "000001.npz").unlink()
    return source, out, go, first


def test_only_what_is_missing_is_done_again(begun):
    _, out, go, first = begun
    before = (out / "batches" / "000000.npz").stat().st_mtime_ns
    again = go(resume=True)
    assert (out / "batches" / "000000.npz").stat().st_mtime_ns == before
    assert repr(again.to_dict()) == repr(first.to_dict())


def test_what_changed_is_named(begun, network):
    source, _, go, _ = begun
    with pytest.raises(InvalidInputError, match="already holds an audit"):
        go()
    with pytest.raises(InvalidInputError, match=r"consistency_threshold was 0\.3 and is 0\.4"):
        go(resume=True, consistency_threshold=0.4)
    with pytest.raises(InvalidInputError, match="batch_rows was 250 and is 100"):
        go(resume=True, batch_rows=100)
    with pytest.raises(InvalidInputError, match="the model has changed"):
        go(model=network(seed=5), resume=True)
    with pytest.raises(InvalidInputError, match="the model has changed"):
        go(model=torch.nn.Linear(6, 1), resume=True)
    with pytest.raises(InvalidInputError, match="reference_people was 200000 and is None"):
        go(resume=True, reference=pd.read_parquet(source))
    table = pd.read_parquet(source)
    table.loc[3, "z0"] += 1
    table.to_parquet(source)
    with pytest.raises(InvalidInputError, match="the source has changed"):
        go(resume=True)


def test_another_reference_is_another_audit(tmp_path, model, people, applicants, streamed):
    streamed(model, people, tmp_path, reference=applicants(300, seed=1))
    with pytest.raises(InvalidInputError, match="the reference has changed"):
        streamed(model, people, tmp_path, reference=applicants(300, seed=2), resume=True)


def test_another_version_of_evenhand_does_not_go_on(begun):
    _, out, go, _ = begun
    manifest = json.loads((out / "manifest.json").read_text())
    (out / "manifest.json").write_text(json.dumps({**manifest, "evenhand": "0.0.1"}))
    with pytest.raises(InvalidInputError, match=r"started with evenhand 0\.0\.1 and this is"):
        go(resume=True)
    (out / "manifest.json").write_text("{")
    with pytest.raises(StreamError, match="is damaged"):
        go(resume=True)


def test_damaged_files_of_a_batch_are_named(begun):
    _, out, go, first = begun
    (out / "batches" / "000000.npz").write_bytes(b"PK")
    with pytest.raises(StreamError, match=r"000000\.npz' cannot be read .* have its batch audited again"):
        go(resume=True)
    (out / "batches" / "000000.npz").unlink()
    (out / "batches" / "000002.triples.npy").write_bytes(b"\x93NUMPY")
    with pytest.raises(StreamError, match=r"000002\.triples\.npy' cannot be read"):
        go(resume=True)
    (out / "batches" / "000002.npz").unlink()
    assert repr(go(resume=True).to_dict()) == repr(first.to_dict())


def blas_threads():
    return {pool["filepath"]: pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}


@pytest.mark.slow
def test_the_digits_do_not_depend_on_how_many_threads_blas_has(tmp_path, model, applicants, streamed):
    """And BLAS has as many of them afterwards as before."""
    table = applicants(2000)
    found = {}
    for n in (1, 4):
        (tmp_path / str(n)).mkdir()
        with threadpool_limits(limits=n, user_api="blas"):
            before = blas_threads()
            found[n] = streamed(model, table, tmp_path / str(n), batch_rows=500, by=["state"])
            assert n in before.values()
            assert blas_threads() == before
    assert repr(found[4].to_dict()) == repr(found[1].to_dict())
