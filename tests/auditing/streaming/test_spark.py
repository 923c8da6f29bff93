"""Spark's executors find what threads find, to the last bit; losing one costs time and nothing else.

One cluster of two executors, each a Java process with Python processes, serves all tests: this process is its driver,
and others reach it through Spark Connect.
"""

import json
import os
import re
import runpy
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import joblib
import pandas as pd
import psutil
import pytest
from sklearn.linear_model import LogisticRegression

from evenhand.auditing.streaming import audit_stream
from evenhand.auditing.streaming.engines import spark as spark_tables
from evenhand.auditing.streaming.engines.local import BatchWork
from evenhand.auditing.streaming.engines.spark import Landmarks
from evenhand.exceptions import DataFileError, InvalidInputError, StreamError

FINANCIAL = ["f0", "f1", "f2"]
FEATURES = [*FINANCIAL, "z0", "z1", "z2"]
ROLES = {"label": "y", "group": "sex", "financial_features": FINANCIAL, "features": FEATURES}

pytestmark = [
    pytest.mark.integration,
    pytest.mark.spark,
    pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning"),
    # Data go to and from Spark as Arrow, which has nothing to do with pandas.
    pytest.mark.filterwarnings("ignore:PySpark does not yet fully support pandas:FutureWarning"),
]


@pytest.fixture(scope="session")
def port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


@pytest.fixture(scope="session")
def home():
    """A private folder for Spark, which no different run of the tests removes."""
    with tempfile.TemporaryDirectory(prefix="evenhand-spark-") as folder:
        yield Path(folder)


@pytest.fixture(scope="session")
def spark(home, port):
    """A cluster of two executors that also serves Spark Connect."""
    if shutil.which("java") is None:
        pytest.skip("Java is not installed; install a runtime of Java 17")
    pyspark = pytest.importorskip("pyspark", reason="the extra `spark` is not installed")
    from pyspark.sql import SparkSession

    for path in Path(pyspark.__file__).parent.iterdir():
        (home / path.name).symlink_to(path)  # executors write their logs to a folder beside
    with pytest.MonkeyPatch.context() as patched:
        for name, value in {"HOME": str(home), "LOCAL_IP": "127.0.0.1"}.items():
            patched.setenv(f"SPARK_{name}", value)
        patched.setenv("PYSPARK_PYTHON", sys.executable)
        settings = {
            "driver.memory": "1g",
            "executor.memory": "512m",
            "ui.enabled": "false",
            "log.level": "OFF",
            "ui.showConsoleProgress": "false",
            "local.dir": str(home / "scratch"),
            "sql.shuffle.partitions": "2",
            "sql.warehouse.dir": str(home / "tables"),
            "plugins": "org.apache.spark.sql.connect.SparkConnectPlugin",
            "connect.grpc.binding.port": str(port),
        }
        builder = SparkSession.builder.master("local-cluster[2,1,1024]")
        for name, value in settings.items():
            builder = builder.config(f"spark.{name}", value)
        session = builder.getOrCreate()
        yield session
        session.stop()


@pytest.fixture
def unseen(monkeypatch):
    """Executors that find a different file under the path they are given, as on a machine with files of its own."""
    found = Landmarks.of
    monkeypatch.setattr(Landmarks, "of", lambda work, token: replace(found(work, token), content="different"))


def _same(first, second):
    assert repr(first.to_dict()) == repr(second.to_dict())
    mine, theirs = (pd.read_parquet(found.pairs_path) for found in (first, second))
    pd.testing.assert_frame_equal(mine, theirs, check_exact=True)


@pytest.fixture
def places(tmp_path):
    """Two folders, for an audit by Spark and one by threads."""
    for name in ("spark", "threads"):
        (tmp_path / name).mkdir()
    return tmp_path / "spark", tmp_path / "threads"


def _only_files_of_an_audit(folder):
    assert not [path.name for path in folder.rglob(".*") if not path.name.endswith(".crc")]


@pytest.mark.usefixtures("spark")
def test_executors_find_what_threads_find_to_the_last_bit(places, people, network, streamed, monkeypatch):
    """Also where paths are relative; and executors read and write themselves, as nothing here could."""
    model = network().float()
    monkeypatch.chdir(places[0].parent)
    local = streamed(model, people, Path("threads"))
    with monkeypatch.context() as patched:
        for name in ("rows", "keep"):
            patched.setattr(BatchWork, name, None)
        found = streamed(model, people, Path("spark"), engine="spark")
    _same(found, local)
    _only_files_of_an_audit(places[0])


@pytest.mark.usefixtures("spark", "unseen")
def test_executors_that_see_no_files_get_rows_and_send_back_what_batches_leave(places, people, network, streamed):
    model, settings = network().float(), {"evidence": False}
    _same(
        streamed(model, people, places[0], engine="spark", **settings), streamed(model, people, places[1], **settings)
    )
    _only_files_of_an_audit(places[0])


def _command(process):
    try:
        return process.cmdline()
    except psutil.Error:  # gone in the meantime
        return []


def _processes(kind, ancestor=None):
    """Processes of a cluster: those of executors in Java, or those in Python that audit."""
    found = psutil.Process(ancestor).children(recursive=True)
    if kind == "java":
        return [process for process in found if "CoarseGrainedExecutorBackend" in " ".join(_command(process))]
    daemons = [process for process in found if "pyspark.daemon" in _command(process)]
    return [process for process in daemons if process.ppid() in {daemon.pid for daemon in daemons}]


@contextmanager
def _losing(folder, **after):
    """Kills a process of a kind once so many batches of the audit in the folder are finished."""
    killed = []

    def kill():
        for kind, n_finished in after.items():
            while len(list((folder / "audit" / "batches").glob("??????.npz"))) < n_finished:
                time.sleep(0.01)
            victim = _processes(kind)[0]
            victim.kill()
            killed.append(victim)

    watcher = threading.Thread(target=kill)
    watcher.start()
    yield
    watcher.join()
    assert len(killed) == len(after)


@pytest.mark.usefixtures("spark")
def test_processes_killed_on_the_way_cost_time_and_nothing_else(places, model, applicants, streamed):
    """Also after an audit that sent a file to executors, which new ones ask for."""
    table, settings = applicants(2000), {"batch_rows": 100, "evidence": False}
    with _losing(places[0], python=1, java=4):
        found = streamed(model, table, places[0], engine="spark", **settings)
    _same(found, streamed(model, table, places[1], **settings))


@pytest.mark.usefixtures("spark")
def test_a_batch_that_is_refused_by_an_executor_is_refused_here(tmp_path, model, people, streamed):
    table = people.copy()
    table.loc[700, "z1"] = float("nan")
    told = r"people\.parquet' \(batch 7\).*'z1': 1[^\n]*\. \d of 9 batches are finished and kept in [^\n]*$"
    with pytest.raises(InvalidInputError, match=told):
        streamed(model, table, tmp_path, reference=people, engine="spark", evidence=False)
    _only_files_of_an_audit(tmp_path)


@pytest.mark.usefixtures("spark")
def test_batches_that_are_missing_are_audited_and_no_others(places, model, people, streamed):
    whole = streamed(model, people, places[1], evidence=False)
    shutil.copytree(places[1] / "audit", places[0] / "audit")
    batches = places[0] / "audit" / "batches"
    for number in (2, 5):
        (batches / f"00000{number}.npz").unlink()
    before = (batches / "000001.npz").stat().st_mtime_ns
    _same(streamed(model, people, places[0], engine="spark", resume=True, evidence=False), whole)
    assert (batches / "000001.npz").stat().st_mtime_ns == before
    assert json.loads((places[0] / "audit" / "engine.json").read_text()) == {"batches": 2, "engine": "Spark"}


def _table(spark, folder, table):
    """A table in which Spark has the people out of order, with amounts as decimals and a column nobody needs."""
    table.to_parquet(folder / "people.parquet")
    frame = spark.read.parquet((folder / "people.parquet").as_uri())
    return frame.selectExpr("*", "cast(branch as decimal(9, 2)) as `loan.amount`", "array(f0) as further").orderBy("z0")


def test_a_table_of_spark_is_numbered_by_ids_and_audited_as_files_are(tmp_path, spark, model, applicants):
    people = applicants(400)
    people["number"] = [f"N{place:04d}" for place in range(len(people))]
    frame = _table(spark, tmp_path, people)
    settings = ROLES | {"batch_rows": 130, "ids": "number", "by": ["loan.amount"]}
    found = audit_stream(model, frame, out=tmp_path / "spark", engine="spark", **settings)
    _same(found, audit_stream(model, tmp_path / "spark" / "rows", out=tmp_path / "threads", **settings))
    written = pd.read_parquet(tmp_path / "spark" / "rows")
    pd.testing.assert_frame_equal(written[FEATURES], people[FEATURES])
    assert found.pairs["person_id"].equals(people["number"].iloc[found.pairs["person"]].reset_index(drop=True))


def test_an_audit_of_a_table_goes_on_with_the_rows_it_was_begun_with(tmp_path, spark, model, people):
    frame = _table(spark, tmp_path, people)
    arguments = ROLES | {"out": tmp_path / "audit", "batch_rows": 130, "evidence": False, "engine": "spark"}
    whole = audit_stream(model, frame, **arguments).to_dict()
    (tmp_path / "audit" / "batches" / "000003.npz").unlink()
    resumed = audit_stream(model, frame.limit(10), resume=True, **arguments).to_dict()
    assert repr(resumed) == repr(whole)
    with pytest.raises(InvalidInputError, match=r"`out` already holds an audit.*; pass `resume=True`"):
        audit_stream(model, frame, **arguments)
    with pytest.raises(
        InvalidInputError, match=r"`out` already holds an audit, .*, of a table with different columns or ids"
    ):
        audit_stream(model, frame, resume=True, ids="branch", **arguments)


def test_a_folder_that_is_not_that_of_the_executors_is_told(tmp_path, spark, model, people, monkeypatch):
    monkeypatch.setattr(spark_tables, "_address", lambda _folder: (tmp_path / "elsewhere").as_uri())
    told = r"Spark wrote 900 rows to '.*rows', but this process sees 0: `out` \(--out\) must be"
    with pytest.raises(StreamError, match=told):
        audit_stream(model, _table(spark, tmp_path, people), out=tmp_path / "audit", engine="spark", **ROLES)


@pytest.mark.usefixtures("spark")
def test_a_table_that_spark_does_not_find(tmp_path, model):
    with pytest.raises(DataFileError, match=r"There is no file and no Spark table 'lending\.loans' \(\[TABLE_OR_VIEW"):
        audit_stream(model, "lending.loans", out=tmp_path / "audit", engine="spark", **ROLES)


def test_an_engine_of_this_machine_reads_a_table_of_spark_as_arrow(tmp_path, spark, model, people):
    people.to_parquet(tmp_path / "people.parquet")
    frame = spark.read.parquet((tmp_path / "people.parquet").as_uri())
    found = audit_stream(model, frame, out=tmp_path / "audit", evidence=False, **ROLES)
    assert found.provenance.n_people == len(people)


def _wait_for_a_batch(process, folder):
    while process.poll() is None and not list((folder / "batches").glob("??????.npz")):
        time.sleep(0.01)


def test_a_command_through_spark_connect_killed_and_resumed(tmp_path, spark, people, port):
    """A table by its name, a model in a file, and a session of a process that has no Java."""
    people.insert(0, "number", range(len(people)))
    _table(spark, tmp_path, people).drop("further").write.saveAsTable("applicants")
    model = LogisticRegression().fit(people[FEATURES], people["y"])
    joblib.dump(model, tmp_path / "model.joblib")
    out = tmp_path / "out"
    words = [sys.executable, "-W", "ignore", "-m", "evenhand", "audit", "applicants", "--stream", "--engine", "spark"]
    words += ["--scheduler", f"sc://127.0.0.1:{port}", "--model", tmp_path / "model.joblib", "--trust-pickle"]
    words += ["--label", "y", "--group", "sex", "--financial", ",".join(FINANCIAL), "--id", "number"]
    words += ["--batch-rows", "90", "--no-evidence", "--favorable", "high", "--out", out]
    environment = {**os.environ, "PATH": "", "JAVA_HOME": "/nowhere"}
    with (tmp_path / "told").open("w") as told:
        process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=told)
    _wait_for_a_batch(process, out)
    process.kill()
    assert process.wait() == -signal.SIGKILL, (tmp_path / "told").read_text()
    done = subprocess.run([*words, "--resume", "--pack"], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert (out / "pack.zip").is_file()
    _only_files_of_an_audit(out)
    audit_stream(
        model,
        out / "rows",
        out=tmp_path / "threads",
        batch_rows=90,
        evidence=False,
        favorable="high",
        ids="number",
        **ROLES | {"features": None},
    )
    found = json.loads((out / "audit.json").read_text())
    wanted = json.loads((tmp_path / "threads" / "audit.json").read_text())
    for summary in (found, wanted):
        del summary["created"], summary["data"]["files"]  # only a command knows the name of the model's file
    assert found == wanted


@pytest.mark.slow  # as it starts a second Spark
@pytest.mark.usefixtures("spark")  # which says whether Spark can run
def test_a_session_is_started_where_none_is_and_outlives_a_process_that_is_killed(tmp_path, applicants):
    """Spark on one machine gives up on a batch at the first failure; the audit does not."""
    script = Path(__file__).parent / "stream_once.py"
    source = tmp_path / "people.parquet"
    applicants(1200).to_parquet(source)
    told = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    runpy.run_path(str(script))["main"](source, tmp_path / "threads")
    words = [sys.executable, "-W", "ignore", script, source]
    with (tmp_path / "told").open("w") as errors:
        process = subprocess.Popen([*words, tmp_path / "spark", "spark"], env=told, stderr=errors)
    _wait_for_a_batch(process, tmp_path / "spark")
    _processes("python", process.pid)[0].kill()
    assert process.wait() == 0, (tmp_path / "told").read_text()
    summaries = [json.loads((tmp_path / name / "audit.json").read_text()) for name in ("spark", "threads")]
    for summary in summaries:
        del summary["created"]
    assert summaries[0] == summaries[1]


def test_the_cells_for_databricks_run(tmp_path, spark, people, monkeypatch, request):
    """With a folder for the volume, the catalog of this cluster, and a registry that knows one model."""
    mlflow = pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    request.addfinalizer(partial(mlflow.set_tracking_uri, mlflow.get_tracking_uri()))
    mlflow.set_tracking_uri((tmp_path / "runs").as_uri())
    with mlflow.start_run() as run:
        model = LogisticRegression().fit(people[FEATURES].to_numpy(), people["y"])
    version = SimpleNamespace(run_id=run.info.run_id)
    monkeypatch.setattr(mlflow, "set_registry_uri", lambda _address: None)
    monkeypatch.setattr(mlflow, "sklearn", SimpleNamespace(load_model=lambda _name: model))
    monkeypatch.setattr(mlflow.MlflowClient, "get_model_version_by_alias", lambda _client, _name, _alias: version)
    names = dict(zip(FINANCIAL, ("income", "debt", "savings"), strict=True)) | {"y": "repaid"}
    table = people[[*FEATURES, "y", "sex"]].rename(columns=names).assign(loan_id=range(len(people)))
    table.to_parquet(tmp_path / "loans.parquet")
    spark.read.parquet((tmp_path / "loans.parquet").as_uri()).createOrReplaceTempView("loans")
    shown = []
    known = {"spark": spark, "displayHTML": shown.append}
    page = (Path(__file__).parents[3] / "docs" / "how-to" / "databricks.md").read_text(encoding="utf-8")
    cells = re.findall(r"^```py\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    assert len(cells) == 4
    for cell in cells:
        here = cell.replace("/Volumes/main/lending/audits", str(tmp_path)).replace("main.lending.loans", "loans")
        exec(here, known)
    assert shown[0].lstrip().startswith("<!doctype html>")
    logged = mlflow.get_run(run.info.run_id).data
    assert logged.metrics["evenhand.n_people"] == len(people)
