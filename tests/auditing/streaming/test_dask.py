"""Dask workers find what threads find, to the last bit; losing one costs time and nothing else."""

import os
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from pathlib import Path

import pandas as pd
import pytest

from evenhand.auditing.streaming import audit_stream
from evenhand.auditing.streaming.engines.local import BatchWork
from evenhand.exceptions import DataFileError, InvalidInputError, StreamError

distributed = pytest.importorskip("distributed")

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning"),
]


@pytest.fixture(scope="module")
def cluster():
    with distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0") as running:
        yield running


@pytest.fixture
def started(cluster, monkeypatch):
    """A cluster of this machine has the workers of the cluster that runs already: starting others takes seconds."""
    monkeypatch.setattr(cluster, "close", lambda: None)
    monkeypatch.setattr(distributed, "LocalCluster", lambda **_settings: cluster)


def _same(first, second):
    assert repr(first.to_dict()) == repr(second.to_dict())
    mine, theirs = (pd.read_parquet(found.pairs_path) for found in (first, second))
    pd.testing.assert_frame_equal(mine, theirs, check_exact=True)


def test_a_cluster_finds_what_threads_find_to_the_last_bit(tmp_path, people, network, streamed, cluster):
    for place in ("threads", "cluster"):
        (tmp_path / place).mkdir()
    model = network().float()
    local = streamed(model, people, tmp_path / "threads")
    remote = streamed(model, people, tmp_path / "cluster", engine="dask", scheduler=cluster.scheduler_address)
    _same(remote, local)


@pytest.mark.slow  # starts a cluster of its own
def test_a_cluster_of_this_machine_is_the_default_and_finds_the_same(tmp_path, people, network, streamed, monkeypatch):
    """Also where the paths are relative and workers are in another folder than this process."""
    monkeypatch.chdir(tmp_path)
    for place in ("threads", "cluster"):
        Path(place).mkdir()
    model = network().float()
    shared = streamed(model, people, Path("cluster"), engine="dask", n_jobs=2)
    _same(shared, streamed(model, people, Path("threads")))


def test_workers_of_this_machine_do_the_reading_and_writing(tmp_path, model, people, streamed, started, monkeypatch):
    """What this process would need for it is broken once the reference is read; processes of Dask start afresh."""

    def refuse(*_arguments):
        raise AssertionError("not here")

    monkeypatch.setattr(BatchWork, "rows", refuse)
    monkeypatch.setattr(BatchWork, "keep", refuse)
    found = streamed(model, people, tmp_path, engine="dask", n_jobs=1, evidence=False)
    assert found.provenance.n_people == len(people)


@contextmanager
def _losing_a_worker(cluster, folder):
    """Kills a worker of the cluster once a first batch of the audit in the folder is finished."""
    killed = []

    def kill_one():
        while not list((folder / "audit" / "batches").glob("??????.npz")):
            time.sleep(0.01)
        with distributed.Client(cluster.scheduler_address, set_as_default=False) as client:
            victim = next(iter(client.run(os.getpid).values()))
        os.kill(victim, signal.SIGKILL)
        killed.append(victim)

    watcher = threading.Thread(target=kill_one)
    watcher.start()
    yield
    watcher.join()
    assert killed


@pytest.mark.slow
@pytest.mark.parametrize("is_local", [True, False])
def test_a_worker_killed_on_the_way_costs_time_and_nothing_else(
    tmp_path, model, applicants, streamed, cluster, started, is_local
):
    table = applicants(2000)
    for place in ("threads", "cluster"):
        (tmp_path / place).mkdir()
    where = {"n_jobs": 2} if is_local else {"scheduler": cluster.scheduler_address}
    with _losing_a_worker(cluster, tmp_path / "cluster"):
        remote = streamed(model, table, tmp_path / "cluster", batch_rows=100, engine="dask", **where)
    _same(remote, streamed(model, table, tmp_path / "threads", batch_rows=100))


@pytest.mark.parametrize("is_local", [True, False])
def test_a_file_that_a_worker_cannot_read_is_named_with_its_own_kind_of_error(
    tmp_path, model, people, cluster, started, is_local
):
    folder = tmp_path / "people"
    folder.mkdir()
    people.to_parquet(folder / "a.parquet", row_group_size=130)
    people.drop(columns="z1").to_parquet(folder / "b.parquet", row_group_size=130)
    where = {"n_jobs": 1} if is_local else {"scheduler": cluster.scheduler_address}
    with pytest.raises(DataFileError, match=r"b\.parquet' has different columns from .*a\.parquet': missing \['z1'\]"):
        audit_stream(
            model,
            folder,
            label="y",
            group="sex",
            financial_features=["f0", "f1", "f2"],
            features=["f0", "f1", "f2", "z0", "z1", "z2"],
            out=tmp_path / "audit",
            batch_rows=130,
            reference=people,
            engine="dask",
            **where,
        )


def test_a_full_disk_on_a_worker_keeps_what_was_finished_and_says_so(tmp_path, model, people, streamed, started):
    """A folder in the place of a file is as good as a full disk, and found by the process that writes."""
    (tmp_path / "audit" / "batches" / "000003.triples.npy" / "in the way").mkdir(parents=True)
    told = r"audit' cannot be written: Is a directory; free some space and continue.*\. [1-8] of 9 batches are finished"
    with pytest.raises(StreamError, match=told):
        streamed(model, people, tmp_path, engine="dask", n_jobs=1)


@pytest.mark.slow  # starts a cluster of its own
def test_the_only_worker_killed_on_the_way_is_replaced_and_gets_the_reference_again(
    tmp_path, model, applicants, streamed
):
    table = applicants(1500)
    for place in ("threads", "cluster"):
        (tmp_path / place).mkdir()
    settings = {"batch_rows": 100, "evidence": False}
    with (
        distributed.LocalCluster(n_workers=1, threads_per_worker=1, processes=True, dashboard_address=":0") as own,
        _losing_a_worker(own, tmp_path / "cluster"),
    ):
        remote = streamed(
            model, table, tmp_path / "cluster", engine="dask", scheduler=own.scheduler_address, **settings
        )
    _same(remote, streamed(model, table, tmp_path / "threads", **settings))


def test_a_batch_that_is_refused_on_a_worker_is_refused_here(tmp_path, model, people, streamed, cluster):
    table = people.copy()
    table.loc[700, "z1"] = float("nan")
    with pytest.raises(InvalidInputError, match=r"\(batch 7\).*'z1': 1.* batches are finished and kept in"):
        streamed(model, table, tmp_path, reference=people, engine="dask", scheduler=cluster.scheduler_address, n_jobs=1)


def test_no_scheduler_at_the_address(tmp_path, model, people, streamed, monkeypatch):
    monkeypatch.setattr("evenhand.auditing.streaming.engines.dask._CONNECT_SECONDS", "1s")
    with pytest.raises(InvalidInputError, match=r"No Dask scheduler answers at 'tcp://127\.0\.0\.1:1'"):
        streamed(model, people, tmp_path, engine="dask", scheduler="tcp://127.0.0.1:1")


@contextmanager
def _processes(port):
    """A scheduler and a worker, each a process of its own."""
    address = f"tcp://127.0.0.1:{port}"
    programs = (
        ["distributed.cli.dask_scheduler", "--port", str(port), "--host", "127.0.0.1", "--no-dashboard"],
        ["distributed.cli.dask_worker", address, "--nthreads", "1", "--nworkers", "1", "--no-dashboard"],
    )
    running = [
        subprocess.Popen([sys.executable, "-m", *program], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        for program in programs
    ]
    try:
        yield address, running[0]
    finally:
        for process in running:
            process.kill()
            process.wait()


@pytest.mark.slow  # starts a cluster of its own
def test_a_scheduler_that_dies_on_the_way(tmp_path, model, applicants, streamed):
    out = tmp_path / "audit"
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with _processes(port) as (address, scheduler):

        def kill():
            while not list((out / "batches").glob("??????.npz")):
                time.sleep(0.01)
            scheduler.kill()

        watcher = threading.Thread(target=kill)
        watcher.start()
        with pytest.raises(StreamError, match=r"Dask scheduler tcp.* broke .* of 20 batches are finished"):
            streamed(model, applicants(2000), tmp_path, batch_rows=100, engine="dask", scheduler=address)
        watcher.join()
    found = streamed(model, applicants(2000), tmp_path, batch_rows=100, resume=True)
    assert found.provenance.n_people == 2000


@pytest.mark.skipif(sys.platform != "linux", reason="only glibc is told to keep memory")
def test_workers_use_freed_memory_again_whatever_dask_told_their_allocator(tmp_path):
    script = """
import resource
import numpy as np
from evenhand.system.threads import keep_freed_memory

def pages():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(50):
        np.ones(1 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

first = pages()
keep_freed_memory()
print(first, pages())
"""
    # Huge pages, where the system has some to give, would hide the faults that are counted.
    told = {**os.environ, "MALLOC_TRIM_THRESHOLD_": "65536", "NUMPY_MADVISE_HUGEPAGE": "0"}
    done = subprocess.run([sys.executable, "-c", script], env=told, capture_output=True, text=True, check=True)
    before, after = map(int, done.stdout.split())
    assert before > 50 * 100
    assert after < before / 10


@pytest.mark.slow  # starts a cluster of its own
@pytest.mark.skipif(distributed.__version__ < "2026", reason="older versions of Dask restart the worker forever")
def test_a_script_without_a_guard_is_told_how_to_start_workers(tmp_path):
    script = tmp_path / "unguarded.py"
    script.write_text(
        """
from pathlib import Path

import torch

import evenhand as eh

folder = Path(__file__).parent
data = eh.load_dataset("synthetic", n=300)
data.X.assign(y=data.y, sex=data.group).to_parquet(folder / "people.parquet")
model = torch.nn.Linear(data.X.shape[1], 1)
eh.audit_stream(model, folder / "people.parquet", label="y", group="sex", evidence=False, engine="dask", n_jobs=1,
                favorable="high", financial_features=data.financial_features, out=folder / "audit")
""",
        encoding="utf-8",
    )
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, check=False, timeout=300)
    assert done.returncode == 1
    assert "StreamError: Dask could not start workers on this machine; a script" in done.stderr


def test_a_scheduler_without_its_engine_is_refused(tmp_path, model, people, streamed):
    with pytest.raises(
        InvalidInputError, match=r"'tcp://nowhere:1', is only used by Dask and Spark: pass `engine=\"dask\"`"
    ):
        streamed(model, people, tmp_path, scheduler="tcp://nowhere:1")
