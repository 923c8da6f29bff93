"""What can be said of Spark without one: what is sent, what comes back, and what is refused."""

import threading
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenhand.auditing.options import StreamOptions
from evenhand.auditing.streaming.engines import spark
from evenhand.auditing.streaming.engines.local import from_data
from evenhand.auditing.streaming.engines.spark import AuditTask, Landmarks, at_rest, looking_for
from evenhand.auditing.streaming.store import Store
from evenhand.exceptions import EvenhandError, InvalidInputError, MissingExtraError, StreamError
from evenhand.inputs.tables.arrow import ParquetFile
from evenhand.inputs.tables.raw import LocalFile
from evenhand.system import __version__
from evenhand.system.processes import parcel

PLACES = pa.RecordBatch.from_pydict({"id": [0]})


@dataclass
class _Rows:
    """A session, or a DataFrame of it, that runs what it is given right here, or fails."""

    error: Exception | None = None
    function: object = None

    def range(self, *_numbers):
        return self

    def mapInArrow(self, function, _schema):  # noqa: N802
        return _Rows(self.error, function)

    def toArrow(self):  # noqa: N802
        if self.error is not None:
            raise self.error
        return pa.Table.from_batches(list(self.function(iter([PLACES]))))


def _landmarks(folder):
    pq.write_table(pa.table({"x": [1, 2, 3]}), folder / "people.parquet")
    (folder / "token").write_text("token")
    source = SimpleNamespace(files=(ParquetFile(LocalFile.at(folder / "people.parquet")),))
    return Landmarks.of(SimpleNamespace(source=source), folder / "token")


def _error(task):
    content = b"".join(row.to_pylist()[0]["content"] for row in task.answers(iter([PLACES])))
    if not content:
        return None
    with pytest.raises((EvenhandError, OSError, RuntimeError)) as told:
        from_data(content)
    return told.value


@pytest.mark.parametrize(
    ("spoil", "sees"),
    [
        (lambda _folder: None, True),
        (lambda folder: (folder / "token").write_text("different"), False),
        (lambda folder: (folder / "token").unlink(), False),
        (lambda folder: pq.write_table(pa.table({"y": range(99)}), folder / "people.parquet"), False),
        (lambda folder: (folder / "people.parquet").unlink(), False),
    ],
)
def test_executors_see_the_folder_only_if_they_see_the_same_files(tmp_path, spoil, sees):
    look = looking_for(_landmarks(tmp_path))
    spoil(tmp_path)
    (found,) = look(iter([]))
    assert found.to_pylist() == [{"version": __version__, "sees": sees}]
    assert {path.name for path in tmp_path.iterdir()} <= {"token", "people.parquet"}


def test_executors_with_a_different_version_or_without_the_package_are_refused(tmp_path):
    for version in ("0.0.1", "none (No module named 'torch')"):
        session = _Rows()
        session.mapInArrow = lambda _function, _schema, v=version: SimpleNamespace(
            toArrow=lambda: pa.Table.from_pylist([{"version": v, "sees": True}])
        )
        with pytest.raises(InvalidInputError) as told:
            spark._look_around(session, _landmarks(tmp_path))
        assert f"must have evenhand {__version__}, like this process, got {version}; install" in str(told.value)


def test_executors_without_python_are_told_in_one_line(tmp_path):
    error = RuntimeError("[PYTHON_VERSION_MISMATCH] Python in worker has a different version: 3.10.\n\tat java.A.b")
    with pytest.raises(
        StreamError, match=r"executors do not run Python \(\[PYTHON_VERSION_MISMATCH\] [^\n]*3\.10\)\.$"
    ):
        spark._look_around(_Rows(error), _landmarks(tmp_path))


def test_a_parcel_that_was_changed_or_removed_is_told_and_stops_the_others(tmp_path):
    stop = tmp_path / "stop"
    with parcel("anything", tmp_path) as sent:
        task = AuditTask(sent, (SimpleNamespace(number=4),), stop)
        content = sent.path.read_bytes()
        sent.path.write_bytes(content[:-1] + b"?")
        refused = _error(task)
        assert isinstance(refused, StreamError)
        assert "was changed after it was written" in str(refused)
        assert _error(task) is None  # as the first one left word to stop
        stop.unlink()
    refused = _error(task)
    assert "does not see the folder of the audit" in str(refused)


@dataclass
class _Waiting(_Rows):
    """A job whose first batch is finished, and which ends when it is told to stop."""

    folder: Path = None

    def mapInArrow(self, _function, _schema):  # noqa: N802
        return self

    def toArrow(self):  # noqa: N802
        (self.folder / "batches").mkdir()
        (self.folder / "batches" / "000000.npz").touch()
        begun = threading.Event()
        while not (self.folder / "stop").exists():
            begun.wait(0.01)
        return pa.table({})


def test_an_interrupted_audit_tells_executors_to_begin_no_further_batch(tmp_path, monkeypatch):
    monkeypatch.setattr(spark, "_POLL_SECONDS", 0.01)
    left = {number: SimpleNamespace(number=number) for number in range(3)}
    work = SimpleNamespace(store=Store(tmp_path))
    run = spark._Run(_Waiting(folder=tmp_path), work, None, tmp_path / "stop", None)

    def interrupt():
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):  # and the job has ended, or this would not
        run.finish(left, interrupt)
    assert sorted(left) == [1, 2]


def test_answers_of_any_length_come_back_whole(monkeypatch):
    monkeypatch.setattr("evenhand.auditing.streaming.engines.spark._MOST_BYTES", 7)
    task = AuditTask(None, (SimpleNamespace(number=9),), None)
    refusal = InvalidInputError("A sentence that is longer than a message.")
    monkeypatch.setattr(AuditTask, "_answer", lambda _task, _batch: refusal)
    assert len(list(task.answers(iter([PLACES])))) > 5
    answer = _error(task)
    assert (type(answer), str(answer)) == (InvalidInputError, str(refusal))


def test_rows_travel_whole_and_what_comes_back_is_kept(tmp_path, monkeypatch):
    table = pa.table({"income": [1.5, None], "state": ["NY", "TX"]})
    kept, seen = [], []
    source = SimpleNamespace(where=lambda _batch: "'people' (batch 0)")
    work = SimpleNamespace(rows=lambda _batch: table, source=source, keep=lambda _batch, files: kept.append(files))

    class _There:
        def audited(self, batch, rows, where):
            seen.append((batch.number, rows, where))
            return {"batches/000000.npz": b"all of it"}

    monkeypatch.setattr(spark, "_MOST_BYTES", 7)
    monkeypatch.setattr(spark, "opened", lambda _sent: _There())
    files = SimpleNamespace(SparkFiles=SimpleNamespace(get=lambda name: name))
    monkeypatch.setattr(spark, "optional_module", lambda *_words: files)
    with parcel("anything", tmp_path) as sent:
        run = spark._Run(_Rows(), work, sent, tmp_path / "stop", 2)
        assert run.job((SimpleNamespace(number=0),)) is None
    assert kept == [{"batches/000000.npz": b"all of it"}]
    ((number, rows, where),) = seen
    assert rows.equals(table)
    assert (number, where) == (0, "'people' (batch 0)")


@pytest.mark.parametrize(
    "error", ["Python worker exited unexpectedly (crashed)", "ExecutorLostFailure (executor 1 exited)"]
)
def test_lost_processes_are_worth_another_round(tmp_path, error):
    run = spark._Run(_Rows(RuntimeError(error)), None, None, tmp_path / "stop", None)
    assert str(run.job((SimpleNamespace(number=0),))) == error


def test_any_other_error_of_spark_is_told_in_one_line(tmp_path):
    error = RuntimeError("Traceback:\n  x\nKeyError: 'income'\n\tat java.A")
    run = spark._Run(_Rows(error), None, None, tmp_path / "stop", None)
    with pytest.raises(StreamError, match=r"finish the batches \(KeyError: 'income'\); continue with"):
        run.job((SimpleNamespace(number=0),))


def test_without_pyspark_the_extra_is_named(tmp_path, monkeypatch, model, people, streamed):
    monkeypatch.setitem(spark.sys.modules, "pyspark.sql", None)
    with pytest.raises(MissingExtraError, match=r"`engine='spark'` needs PySpark.*evenhand\[spark\]"):
        streamed(model, people, tmp_path, engine="spark")


def test_no_server_at_the_address(monkeypatch):
    unused = SimpleNamespace(getActiveSession=lambda: None, builder=None)
    monkeypatch.setattr(spark, "optional_module", lambda *_words: SimpleNamespace(SparkSession=unused))
    with pytest.raises(
        InvalidInputError, match=r"No Spark Connect server answers at 'sc://127\.0\.0\.1:1' \(.*refused"
    ):
        spark.spark_session("sc://127.0.0.1:1")


def test_a_session_that_cannot_be_started_says_what_spark_needs(monkeypatch):
    def refuse():
        raise RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.")

    builder = SimpleNamespace(getOrCreate=refuse)
    builder.master = lambda _address: builder
    session = SimpleNamespace(getActiveSession=lambda: None, builder=builder)
    monkeypatch.setattr(spark, "optional_module", lambda *_words: SimpleNamespace(SparkSession=session))
    monkeypatch.setenv("PYSPARK_PYTHON", "python")
    with pytest.raises(InvalidInputError, match=r"at 'local\[2\]' \(\[JAVA_GATEWAY_EXITED\].*needs Java 17"):
        spark.spark_session("local[2]")


def test_a_session_of_an_old_spark_is_refused(monkeypatch):
    active = SimpleNamespace(getActiveSession=lambda: SimpleNamespace(version="3.5.1"), builder=None)
    monkeypatch.setattr(spark, "optional_module", lambda *_words: SimpleNamespace(SparkSession=active))
    with pytest.raises(InvalidInputError, match=r"needs Spark 4 or newer, got 3\.5\.1"):
        spark.spark_session(None)


@pytest.mark.parametrize("engine", ["local", "spark"])
@pytest.mark.parametrize("source", ["people.parquet", "s3://bank/people.parquet", "delta:loans", PLACES])
def test_what_is_not_a_table_of_spark_is_left_as_it_is(tmp_path, monkeypatch, engine, source):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "people.parquet").touch()
    assert at_rest(source, StreamOptions(engine=engine), Store(tmp_path), None) is source


class _Lost(_Rows):
    """A cluster that loses whatever process audits."""

    n_jobs = 0

    def mapInArrow(self, function, schema):  # noqa: N802
        if schema != spark.ANSWERS:
            return _Rows(function=function)
        self.n_jobs += 1
        return _Rows(RuntimeError("ExecutorLostFailure (executor 1 exited)"))


def test_a_batch_that_brings_every_process_down_is_told(tmp_path, model, people, streamed, monkeypatch):
    session = _Lost()
    monkeypatch.setattr(spark, "spark_session", lambda _scheduler: session)
    told = r"lost the process that audited a batch 3 times \(ExecutorLostFailure.*0 of 9 batches are finished"
    with pytest.raises(StreamError, match=told):
        streamed(model, people, tmp_path, engine="spark", evidence=False)
    assert session.n_jobs == 3
    assert not list((tmp_path / "audit").glob(".*"))
