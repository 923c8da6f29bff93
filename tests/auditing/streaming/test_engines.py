"""Whoever audits the batches, the result is the same to the last bit; whoever is lost, it is said and resumed."""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
import torch

from evenhand.auditing.sections import evidence
from evenhand.auditing.streaming import stream as finishing
from evenhand.auditing.streaming.engines import local
from evenhand.auditing.streaming.engines.local import ShippingError
from evenhand.exceptions import InvalidInputError, StreamError
from evenhand.system.processes import Processes

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning"),
]

SCRIPT = Path(__file__).parent / "stream_once.py"


def _written(folder):
    """Everything an audit left, but for the times and for who audited."""
    kept = {path.relative_to(folder): path for path in sorted(folder.rglob("*")) if path.is_file()}
    del kept[Path("engine.json")]
    found = {name: path.read_bytes() for name, path in kept.items() if path.suffix != ".json"}
    audit = json.loads((folder / "audit.json").read_text())
    del audit["created"]
    return found, audit


def _who(folder):
    return json.loads((folder / "audit" / "engine.json").read_text())["engine"]


@pytest.fixture(scope="module")
def audited(tmp_path_factory, applicants, network, streamed):
    """Audits the same people with an engine, in a folder to look at."""
    model, table = network().float(), applicants(600)

    def run(name, model=model, table=table, folder=None, **settings):
        folder = folder or tmp_path_factory.mktemp(name)
        streamed(model, table, folder, **{"by": ["state"]} | settings)
        return folder

    return run


@pytest.fixture(scope="module")
def expected(audited):
    return _written(audited("threads", engine="threads", n_jobs=1) / "audit")


@contextmanager
def _dask_executor():
    distributed = pytest.importorskip("distributed")
    with distributed.Client(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as client:
        yield client.get_executor()


EXECUTORS = {
    "threads": lambda: ThreadPoolExecutor(2),
    "spawn": lambda: ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")),
    "forkserver": lambda: ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("forkserver")),
    "dask": _dask_executor,
}


@pytest.mark.parametrize(
    "kind", ["threads", *(pytest.param(kind, marks=pytest.mark.slow) for kind in ("spawn", "forkserver", "dask"))]
)
def test_any_executor_finds_the_same_to_the_last_bit_and_is_left_running(audited, expected, kind):
    with EXECUTORS[kind]() as executor:
        folder = audited(kind, engine=executor)
        assert executor.submit(abs, -1).result() == 1
    assert _written(folder / "audit") == expected


def test_processes_find_the_same_to_the_last_bit_from_any_folder(audited, expected, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    folder = audited("processes", engine="processes", n_jobs=2)
    assert _who(folder) == "2 processes"
    assert _written(folder / "audit") == expected


@pytest.fixture
def crews(monkeypatch):
    """Processes finish any audit that they run, from two on; who finished."""
    found = []

    class Watched(Processes):
        def __init__(self, pool, folder):
            super().__init__(pool, folder)
            found.append(self)

    monkeypatch.setattr(finishing, "MOST_THREADS", 1)
    monkeypatch.setattr(finishing, "Processes", Watched)
    return found


@pytest.mark.parametrize(
    ("engine", "n_jobs"),
    [("threads", 2), ("threads", 5), *(pytest.param("processes", n, marks=pytest.mark.slow) for n in (2, 3))],
)
@pytest.mark.slow
def test_any_number_of_workers_finishes_to_the_same_bits(audited, expected, monkeypatch, crews, engine, n_jobs):
    monkeypatch.setattr("evenhand.auditing.streaming.store._FEWEST_IN_RANGE", 100)
    monkeypatch.setattr("evenhand.metrics.excess._MOST_SUMS", 10_000)
    monkeypatch.setattr("evenhand.metrics.excess._ESTIMATES_AT_ONCE", 1)
    folders = [audited("workers", engine=name, n_jobs=n) / "audit" for name, n in (("threads", 1), (engine, n_jobs))]
    assert [crew.pool.n_workers for crew in crews] == [n_jobs] * (engine == "processes")
    first, second = map(_written, folders)
    assert first == second
    # Ranges and passes only decide how sums are cut.
    assert first[0].keys() == expected[0].keys()


@pytest.mark.slow
def test_a_resumed_audit_of_many_people_is_finished_by_processes(audited, expected, monkeypatch, crews):
    monkeypatch.setattr(finishing, "_MANY_PEOPLE", 600)
    folder = audited("resumed", engine="threads", n_jobs=2)
    audited("resumed", folder=folder, n_jobs=2, resume=True)
    assert len(crews) == 1
    assert _written(folder / "audit") == expected


@pytest.mark.slow
def test_a_worker_lost_after_the_last_batch_is_told_of_and_the_audit_is_resumed(audited, expected, monkeypatch, crews):
    write_q_values = evidence.write_q_values

    def with_a_loss(batches, *rest):
        os.kill(batches.crew.pool.submit(os.getpid).result(), signal.SIGKILL)
        write_q_values(batches, *rest)

    folder = audited("lost", engine="threads", n_jobs=1)
    (folder / "audit" / "audit.json").unlink()
    monkeypatch.setattr(evidence, "write_q_values", with_a_loss)
    monkeypatch.setattr(finishing, "_MANY_PEOPLE", 600)
    with pytest.raises(
        StreamError, match=r"lost after the last batch \(BrokenExecutor: process .*all 6 batches are kept"
    ):
        audited("lost", folder=folder, n_jobs=2, resume=True)
    monkeypatch.setattr(evidence, "write_q_values", write_q_values)
    audited("lost", folder=folder, n_jobs=2, resume=True)
    assert _written(folder / "audit") == expected


@pytest.fixture
def eager(monkeypatch):
    """Processes repay at once, from two batches on."""
    monkeypatch.setattr(local, "MOST_THREADS", 1)
    monkeypatch.setattr(local, "_START_SECONDS", 0.0)


@pytest.mark.slow
def test_the_default_takes_processes_once_they_repay(audited, expected, eager):
    folder = audited("local", n_jobs=2)
    assert _who(folder) == "2 processes"
    assert _written(folder / "audit") == expected


def test_the_default_starts_no_process_for_a_small_audit(audited, expected, monkeypatch):
    monkeypatch.setattr(local, "MOST_THREADS", 1)
    folder = audited("small", n_jobs=2)
    assert _who(folder) == "2 threads"
    assert _written(folder / "audit") == expected


class _Locked(torch.nn.Module):
    """Cannot be pickled."""

    def __init__(self, network):
        super().__init__()
        self.network, self.lock = network, threading.Lock()

    def forward(self, x):
        return self.network(x)


def _only_in(process, network):
    assert os.getpid() == process, "at home only"
    return _Homebound(network)


class _Homebound(torch.nn.Module):
    """Cannot be unpickled in a different process."""

    def __init__(self, network):
        super().__init__()
        self.network = network

    def forward(self, x):
        return self.network(x)

    def __reduce__(self):
        return _only_in, (os.getpid(), self.network)


@pytest.mark.parametrize(
    ("kind", "told"),
    [
        (_Locked, r"TypeError: cannot pickle '_thread\.lock' object"),
        pytest.param(
            _Homebound, "(AssertionError: at home only|ModuleNotFoundError: No module named .*)", marks=pytest.mark.slow
        ),
    ],
)
def test_a_model_that_cannot_be_sent_stays_here_and_that_is_written_down(audited, network, eager, kind, told):
    model = kind(network().float())
    folder = audited("stays", model=model, n_jobs=2)
    assert _who(folder).startswith("2 threads. The model cannot be sent to other processes (")
    assert _written(folder / "audit") == _written(audited("here", model=model, engine="threads") / "audit")
    with pytest.raises(ShippingError, match=rf"{told}\); audit it with `engine=\"threads\"`.*0 of 6 batches"):
        audited("refused", model=model, engine="processes", n_jobs=2)


@pytest.mark.parametrize("kind", ["executor", pytest.param("processes", marks=pytest.mark.slow)])
def test_the_sentence_of_a_refused_batch_arrives_whole(audited, applicants, kind):
    table = applicants(600)
    table.loc[500, "z1"] = float("nan")
    told = r"people\.parquet' \(batch 5\).*'z1': 1.*\. [0-5] of 6 batches are finished and kept in"
    engine = ThreadPoolExecutor(1) if kind == "executor" else kind
    with pytest.raises(InvalidInputError, match=told):
        audited("refused", table=table, reference=applicants(600), engine=engine, n_jobs=2)


class _Elsewhere(Executor):
    """Its workers see other folders."""

    def submit(self, fn, /, audit, sent, batch):
        sent.path.unlink(missing_ok=True)
        done = Future()
        done.set_result(fn(audit, sent, batch))
        return done


def test_a_worker_that_does_not_see_the_folder_says_so(audited):
    with pytest.raises(StreamError, match="A worker does not see the folder of the audit"):
        audited("elsewhere", engine=_Elsewhere())


def test_an_engine_of_a_different_kind_is_refused(audited):
    with pytest.raises(InvalidInputError, match=r"must be one of local, threads, processes.*or in Python a .*got 4"):
        audited("four", engine=4)


@contextmanager
def _killing(victims, folder, number=signal.SIGKILL):
    """Ends the first of some processes once a first batch is kept."""
    killed = []

    def kill():
        while not list((folder / "audit" / "batches").glob("??????.npz")):
            time.sleep(0.01)
        killed.append(victims()[0])
        os.kill(killed[0], number)

    watcher = threading.Thread(target=kill)
    watcher.start()
    yield
    watcher.join()
    assert killed


def _workers():
    children = psutil.Process().children(recursive=True)
    return [child.pid for child in children if "evenhand.system.processes" in child.cmdline()]


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("kind", ["executor", "processes"])
def test_a_killed_worker_is_told_of_and_resumed_without_what_it_left(
    tmp_path, network, applicants, streamed, kind, number
):
    model, table = network(), applicants(3000)
    (tmp_path / "whole").mkdir()
    (tmp_path / "killed").mkdir()
    streamed(model, table, tmp_path / "whole", batch_rows=100)
    told = r"A worker was lost .*(Broken|ended with code -(9|15)).*--resume\)\. \d+ of 30 batches are finished and kept"
    with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn")) as executor:
        engine, victims = (
            (executor, lambda: list(executor._processes)) if kind == "executor" else ("processes", _workers)
        )
        with _killing(victims, tmp_path / "killed", number), pytest.raises(StreamError, match=told):
            streamed(model, table, tmp_path / "killed", batch_rows=100, engine=engine, n_jobs=2)
    assert len(list((tmp_path / "killed" / "audit" / "batches").glob("??????.npz"))) < 30
    # As if it had been killed while it wrote.
    dead = subprocess.run(
        [sys.executable, "-c", "from evenhand.system.files import temporary_path as t\nfrom pathlib import Path\n"
         "import sys\nt(Path(sys.argv[1])).touch()", tmp_path / "killed" / "audit" / "batches" / "000029.npz"],
        check=True,
    )  # fmt: skip
    assert dead.returncode == 0
    streamed(model, table, tmp_path / "killed", batch_rows=100, resume=True)
    assert _written(tmp_path / "killed" / "audit") == _written(tmp_path / "whole" / "audit")


@pytest.mark.slow
@pytest.mark.parametrize("n_kept", [0, 3])
def test_ctrl_c_ends_at_once_and_says_what_is_kept_where_something_is(tmp_path, applicants, n_kept):
    source, out = tmp_path / "people.parquet", tmp_path / "audit"
    applicants(8000).to_parquet(source)
    words = [sys.executable, "-W", "ignore", SCRIPT, source, out, "processes"]
    with subprocess.Popen(words, stderr=subprocess.PIPE, text=True) as process:
        while not list(out.glob(".parcel.*")) or len(list((out / "batches").glob("??????.npz"))) < n_kept:
            time.sleep(0.01)
        workers = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGINT)
        told = process.communicate(timeout=60)[1]
    assert process.returncode == -signal.SIGINT
    assert ("batches are finished and kept in" in told) == bool(n_kept), told
    psutil.wait_procs(workers, timeout=30)
    assert not list(out.glob(".parcel.*"))
