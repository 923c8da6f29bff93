"""What can be said of Spark without one: what is sent, what comes back, and what is refused."""

import pickle
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from evenhand._version import __version__
from evenhand.auditing.streaming import audit_stream, spark_engine, spark_sessions, spark_tables
from evenhand.auditing.streaming.engines import Refusal
from evenhand.auditing.streaming.spark_tasks import AuditTask, Parcel, SentRows, looking_for, unpacked_answers
from evenhand.exceptions import InvalidInputError, InvalidTypeError, MissingExtraError, StreamError

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

    def collect(self):
        if self.error is not None:
            raise self.error
        return pa.Table.from_batches(list(self.function(iter([PLACES])))).to_pylist()


def _work(folder):
    """A batch of three rows and a folder, with no model: what auditing it would need is not there."""
    pq.write_table(pa.table({"x": [1, 2, 3]}), folder / "people.parquet")
    source = SimpleNamespace(files=(folder / "people.parquet",))
    return SimpleNamespace(store=SimpleNamespace(folder=folder), source=source)


def _parcel(folder, value):
    content = pickle.dumps(value)
    path = folder / "parcel"
    path.write_bytes(content)
    return Parcel(str(path), spark_engine.hashlib.sha256(content).hexdigest(), is_artifact=False)


@pytest.mark.parametrize(
    ("content", "size", "sees"), [("token", 3, True), ("another", 3, False), ("token", 4, False), (None, 3, False)]
)
def test_executors_see_the_folder_only_if_they_see_the_same_files(tmp_path, content, size, sees):
    token, file = tmp_path / "token", tmp_path / "file"
    file.write_text("abc")
    if content is not None:
        token.write_text(content)
    (found,) = looking_for(token, "token", {file: size})(iter([]))
    assert found.to_pylist() == [{"version": __version__, "sees": sees}]
    assert {path.name for path in tmp_path.iterdir()} <= {"token", "file"}


def test_executors_with_a_different_version_or_without_the_package_are_refused(tmp_path):
    for version in ("0.0.1", "none (No module named 'torch')"):
        session = _Rows()
        session.mapInArrow = lambda _function, _schema, v=version: SimpleNamespace(
            collect=lambda: [{"version": v, "sees": True}]
        )
        with pytest.raises(InvalidInputError) as told:
            spark_engine._look_around(session, _work(tmp_path), tmp_path / "token")
        assert f"must have evenhand {__version__}, as this process has, got {version}; install" in str(told.value)


def test_executors_without_python_are_told_in_one_line(tmp_path):
    error = RuntimeError("[PYTHON_VERSION_MISMATCH] Python in worker has a different version: 3.10.\n\tat java.A.b")
    with pytest.raises(
        StreamError, match=r"executors do not run Python \(\[PYTHON_VERSION_MISMATCH\] [^\n]*3\.10\)\.$"
    ):
        spark_engine._look_around(_Rows(error), _work(tmp_path), tmp_path / "token")


def test_a_parcel_that_was_changed_or_removed_is_a_refusal_and_stops_the_others(tmp_path):
    parcel = _parcel(tmp_path, "anything")
    batch, stop = SimpleNamespace(number=4), tmp_path / "stop"
    task = AuditTask(parcel, (batch,), None, stop)

    def answer():
        return next(unpacked_answers([tuple(row.to_pylist()[0].values()) for row in task.answers(iter([PLACES]))]))

    Path(parcel.path).write_bytes(b"something else")
    refused = answer()
    assert refused.kind is StreamError
    assert "has changed since it was written" in refused.message
    assert answer() is None  # as the first one left word to stop
    stop.unlink()
    Path(parcel.path).unlink()
    assert "cannot read" in answer().message


def test_answers_of_any_length_come_back_whole(monkeypatch):
    monkeypatch.setattr("evenhand.auditing.streaming.spark_tasks._MOST_BYTES", 7)
    task = AuditTask(None, (SimpleNamespace(number=9),), None, None)
    refusal = Refusal(InvalidInputError, "A sentence that is longer than a message.")
    monkeypatch.setattr(AuditTask, "_answer", lambda _task, _batch: refusal)
    rows = [tuple(row.to_pylist()[0].values()) for row in task.answers(iter([PLACES]))]
    assert len(rows) > 10
    assert list(unpacked_answers(rows)) == [refusal]


def test_rows_travel_whole():
    table = pa.table({"income": [1.5, None], "state": ["NY", "TX"]})
    work = SimpleNamespace(rows=lambda _batch: table, source=SimpleNamespace(where=lambda _batch: "'people' (batch 0)"))
    sent = SentRows.of(work, None)
    assert sent.table.equals(table)
    assert sent.where == "'people' (batch 0)"


@pytest.mark.parametrize(
    ("error", "is_lost"),
    [
        ("Python worker exited unexpectedly (crashed)", True),
        ("Traceback:\n  x\nKeyError: 'income'\n\tat java.A", False),
    ],
)
def test_only_lost_processes_are_worth_another_round(tmp_path, error, is_lost):
    cluster = spark_engine._Cluster(n_tasks=1, is_shared=True)
    run = spark_engine._Run(_Rows(RuntimeError(error)), _work(tmp_path), None, tmp_path / "stop", cluster)
    kind = spark_engine._LostError if is_lost else StreamError
    with pytest.raises(kind, match="exited" if is_lost else r"finish the batches \(KeyError: 'income'\); go on with"):
        run._job((SimpleNamespace(number=0),))


def test_without_pyspark_the_extra_is_named(tmp_path, monkeypatch, model, people, streamed):
    monkeypatch.setitem(spark_sessions.sys.modules, "pyspark.sql", None)
    with pytest.raises(MissingExtraError, match=r"`engine='spark'` needs PySpark.*evenhand\[spark\]"):
        streamed(model, people, tmp_path, engine="spark")


def test_no_server_at_the_address(monkeypatch):
    unused = SimpleNamespace(getActiveSession=lambda: None, builder=None)
    monkeypatch.setattr(spark_sessions, "optional_module", lambda *_words: SimpleNamespace(SparkSession=unused))
    with pytest.raises(
        InvalidInputError, match=r"No Spark Connect server answers at 'sc://127\.0\.0\.1:1' \(.*refused"
    ):
        spark_sessions.spark_session("people.parquet", "sc://127.0.0.1:1")


def test_a_session_that_cannot_be_started_says_what_spark_needs(monkeypatch):
    def refuse():
        raise RuntimeError("[JAVA_GATEWAY_EXITED] Java gateway process exited before sending its port number.")

    builder = SimpleNamespace(getOrCreate=refuse)
    builder.master = lambda _address: builder
    session = SimpleNamespace(getActiveSession=lambda: None, builder=builder)
    monkeypatch.setattr(spark_sessions, "optional_module", lambda *_words: SimpleNamespace(SparkSession=session))
    monkeypatch.setenv("PYSPARK_PYTHON", "python")
    with pytest.raises(InvalidInputError, match=r"at 'local\[2\]' \(\[JAVA_GATEWAY_EXITED\].*needs Java 17"):
        spark_sessions.spark_session("people.parquet", "local[2]")


def test_a_session_of_an_old_spark_is_refused(monkeypatch):
    active = SimpleNamespace(getActiveSession=lambda: SimpleNamespace(version="3.5.1"), builder=None)
    monkeypatch.setattr(spark_sessions, "optional_module", lambda *_words: SimpleNamespace(SparkSession=active))
    with pytest.raises(InvalidInputError, match=r"needs Spark 4 or newer, got 3\.5\.1"):
        spark_sessions.spark_session("people.parquet", None)


def test_a_model_that_cannot_be_sent_is_told(tmp_path, monkeypatch):
    def refuse(_value):
        raise TypeError("cannot pickle a lock")

    monkeypatch.setattr(spark_engine, "optional_module", lambda *_words: SimpleNamespace(dumps=refuse))
    told = r"cannot be sent to Spark's executors \(TypeError: cannot pickle a lock\)"
    with pytest.raises(StreamError, match=told), spark_engine._shipped(None, _work(tmp_path), is_seen=True):
        pass


def test_files_of_a_killed_audit_are_removed(tmp_path):
    for name in (".spark-0123", ".spark-4567.pickle", "audit.json"):
        (tmp_path / name).touch()
    spark_engine.remove_spark_files(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["audit.json"]


def test_a_source_of_an_unknown_kind_is_refused(tmp_path, model, people):
    with pytest.raises(InvalidTypeError, match=r"`source` must be the path of a file or folder.*got DataFrame"):
        audit_stream(model, people, label="y", group="sex", financial_features=["f0"], out=tmp_path / "audit")


def test_files_are_files_whatever_the_engine(tmp_path):
    assert spark_tables.spark_frame(tmp_path, SimpleNamespace()) is None
    assert spark_tables.spark_frame("absent.csv", None) is None
