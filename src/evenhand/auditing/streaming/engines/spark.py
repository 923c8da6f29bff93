"""Batches audited by the executors of a Spark cluster, classic or through Spark Connect."""

from __future__ import annotations

import os
import pickle
import re
import secrets
import socket
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc

from evenhand._version import __version__
from evenhand.auditing.options import StreamOptions
from evenhand.auditing.streaming.engines.local import BatchWork, audited, on_worker, opened, shipped
from evenhand.auditing.streaming.source import Batch, rows_in_batch
from evenhand.auditing.streaming.store import BatchFiles, Store, is_begun, writing
from evenhand.exceptions import DataFileError, InvalidInputError, StreamError, first_line
from evenhand.inputs.tables.arrow import ParquetFile, ParquetFiles
from evenhand.inputs.tables.open import is_near
from evenhand.inputs.tables.raw import LocalFile
from evenhand.system.files import PrivateFolder, temporary_path
from evenhand.system.libraries import optional_module
from evenhand.system.processes import Parcel

_LEAST_VERSION = 4  # earlier classic sessions had no artifacts
_CONNECT_PORT = 15002
_CONNECT_SECONDS = 10.0
_CALLED = re.compile(r"^An error occurred while calling .+\n: (.+)$", re.MULTILINE)  # of a bridge to Java
# The last line of a Python traceback, in which Spark may quote a Java one.
_RAISED = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit): .+$", re.MULTILINE)


def is_spark_frame(source: object) -> bool:
    """Whether a source is a DataFrame of Spark, classic or Connect."""
    kinds = type(source).__mro__
    return any(kind.__module__.startswith("pyspark.sql") and kind.__name__ == "DataFrame" for kind in kinds)


def spark_session(address: str | None) -> Any:
    """The active session, or else a new one.

    Parameters
    ----------
    address
        Where to start a new session: ``sc://host:port`` of a Spark Connect server, or a master such as ``local[4]``;
        None for Spark's configuration, which is this machine by default.

    Raises
    ------
    MissingExtraError
        If PySpark is not installed.
    InvalidInputError
        If no session can be started, or its Spark is too old.
    """
    sql = optional_module("pyspark.sql", "`engine='spark'`", "PySpark", "spark")
    session = sql.SparkSession.getActiveSession()
    return _checked(_started(sql.SparkSession.builder, address) if session is None else session)


def _checked(session: Any) -> Any:
    if int(session.version.split(".")[0]) < _LEAST_VERSION:
        raise InvalidInputError(
            f"`engine='spark'` needs Spark {_LEAST_VERSION} or newer, got {session.version}; audit files with "
            '`engine="local"`, or use a newer cluster.'
        )
    return session


def _started(builder: Any, address: str | None) -> Any:
    if address is not None and address.startswith("sc://"):
        _check_answers(address)
        builder = builder.remote(address)
    elif address is not None:
        builder = builder.master(address)
    # The executors must use this process's Python; Spark would take the first one on the path.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        return builder.getOrCreate()
    except Exception as error:  # of PySpark, Java and gRPC alike
        where = "" if address is None else f" at {address!r}"
        raise InvalidInputError(
            f"No Spark session could be started{where} ({reason(error)}); Spark needs Java 17 or newer on this "
            "machine, or set `scheduler` (--scheduler) to the address of a server, sc://host:port, or of a master."
        ) from error


def reason(error: BaseException) -> str:
    r"""The error in one line; for an error on an executor, what was raised there.

    Examples
    --------
    >>> reason(RuntimeError("Job aborted.\nTraceback (most recent):\n  ...\nOSError: no space\n\tat java.A.b"))
    'OSError: no space'
    >>> reason(RuntimeError("An error occurred while calling o1.collect.\n: java.A: Job aborted.\n\tat java.A.b"))
    'java.A: Job aborted'
    >>> reason(RuntimeError("[CANNOT_PARSE] The name is empty. SQLSTATE: 42000\nmore"))
    '[CANNOT_PARSE] The name is empty. SQLSTATE: 42000'
    """
    found = _RAISED.findall(str(error)) or _CALLED.findall(str(error))
    return found[-1].rstrip(".") if found else first_line(error)


def _check_answers(address: str) -> None:
    """Reject an address where nothing listens, because Spark would wait for minutes.

    Raises
    ------
    InvalidInputError
        If nothing listens.
    """
    parts = urlsplit(address)
    try:
        socket.create_connection((parts.hostname or "", parts.port or _CONNECT_PORT), _CONNECT_SECONDS).close()
    except (OSError, ValueError) as error:
        raise InvalidInputError(
            f"No Spark Connect server answers at {address!r} ({first_line(error)}); start one, or drop `scheduler` "
            "(--scheduler) to use this machine."
        ) from error


Answer = int | BatchFiles | Exception | None
"""A batch that an executor has kept, its output, why it was rejected, or None if it was not started."""

ANSWERS = "number long, content binary"
SIGHTS = "version string, sees boolean"
"""Columns of the two DataFrames, in Spark's notation."""

_MOST_BYTES = 1 << 22  # of a row: messages of Spark Connect have a limited size


@dataclass(frozen=True)
class Landmarks:
    """How an executor recognizes the folder of an audit and its source.

    Attributes
    ----------
    token, content
        A file in the folder of the audit, and its content.
    files
        Files of the source and their sizes in bytes.
    """

    token: Path
    content: str
    files: tuple[tuple[ParquetFile, int], ...]

    @classmethod
    def of(cls, work: BatchWork, token: Path) -> Landmarks:
        """The first and the last file of the source, and the token."""
        files = (work.source.files[0], work.source.files[-1])
        return cls(token, token.read_text(encoding="utf-8"), tuple((file, _size(file)) for file in files))

    def are_seen(self) -> bool:
        """Whether this process reads the same files, and can write next to the token."""
        try:
            if self.token.read_text(encoding="utf-8") != self.content:
                return False
            own = self.token.with_name(f"{self.token.name}.{secrets.token_hex(8)}")
            own.touch()
            own.unlink()
            return all(_size(file) == size for file, size in self.files)
        except Exception:  # any error of a store without credentials
            return False


def _size(file: ParquetFile) -> int:
    with file.file.open() as content:
        return int(content.size())


def looking_for(landmarks: Landmarks) -> Callable[[Any], Iterator[Any]]:
    """A function that reports an executor's version of evenhand, and whether it sees the landmarks."""
    sent = pickle.dumps(landmarks)

    # Spark sends a nested function completely: an executor can report that it does not have evenhand.
    def look(_rows: Any) -> Iterator[Any]:
        import pickle

        import pyarrow

        try:
            import evenhand.auditing.streaming.engines.local  # noqa: F401 - with all that it needs
            from evenhand._version import __version__ as version
        except ImportError as error:
            version, sees = f"none ({error})", False
        else:
            sees = pickle.loads(sent).are_seen()
        yield pyarrow.RecordBatch.from_pydict({"version": [version], "sees": [sees]})

    return look


@dataclass(frozen=True)
class SentRows:
    """The rows of a batch in transit, and their origin, for messages."""

    content: bytes
    where: str

    @classmethod
    def of(cls, work: BatchWork, batch: Batch) -> SentRows:
        """The rows of a batch, read here."""
        table, sink = work.rows(batch), pa.BufferOutputStream()
        with ipc.new_stream(sink, table.schema, options=ipc.IpcWriteOptions(compression="lz4")) as stream:
            stream.write_table(table)
        return cls(sink.getvalue().to_pybytes(), work.source.where(batch))

    @property
    def table(self) -> pa.Table:
        """The rows."""
        with ipc.open_stream(self.content) as stream:
            return stream.read_all()


@dataclass(frozen=True)
class AuditTask:
    """Batches for executors.

    Attributes
    ----------
    sent
        What every batch needs: in the folder of the audit, or next to the rows that Spark sends.
    batches
        The batches; a Spark row is the place of one of them.
    rows
        The rows of the only batch, if executors do not see the source; they then return its output.
    stop
        A file whose presence means that no more batches may start.
    """

    sent: Parcel
    batches: tuple[Batch, ...]
    rows: SentRows | None
    stop: Path

    def answers(self, pieces: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The answers to rows, in the form of Spark's `mapInArrow`."""
        for piece in pieces:
            for place in piece.column(0).to_pylist():
                batch = self.batches[place]
                yield from _packed(batch.number, self._answer(batch))

    def _answer(self, batch: Batch) -> Answer:
        if self.rows is not None:
            return on_worker(partial(self._audited, batch, self.rows))
        if self.stop.exists():
            return None
        found = on_worker(partial(self._kept, batch))
        if isinstance(found, Exception):
            self.stop.touch()
        return found

    def _kept(self, batch: Batch) -> int:
        opened(self.sent).audit(batch)
        return batch.number

    def _audited(self, batch: Batch, rows: SentRows) -> BatchFiles:
        files = optional_module("pyspark", "`engine='spark'`", "PySpark", "spark").SparkFiles
        sent = replace(self.sent, path=Path(files.get(self.sent.path.name)))
        return audited(opened(sent).context, batch, rows.table, rows.where)


def _packed(number: int, answer: Answer) -> Iterator[pa.RecordBatch]:
    content = pickle.dumps(answer, protocol=5)
    for first in range(0, len(content), _MOST_BYTES):
        yield pa.RecordBatch.from_pydict({"number": [number], "content": [content[first : first + _MOST_BYTES]]})


def unpacked_answers(rows: list[tuple[int, bytes]]) -> Iterator[Answer]:
    """The answers in Spark rows, which keep those of one batch in order."""
    parts: dict[int, list[bytes]] = {}
    for number, content in rows:
        parts.setdefault(number, []).append(bytes(content))
    for pieces in parts.values():
        yield pickle.loads(b"".join(pieces))  # from our executors, like everything that PySpark collects


_MOST_IDLE_ROUNDS = 3
_MOST_JOBS = 64
_POLL_SECONDS = 0.5
_LOOKING_ROWS = 1024  # spread over as many tasks as the cluster runs at the same time
_GO_ON = "continue with `resume=True` (--resume)"
# A session fetches its artifacts for each executor that joins, so they are removed when this process ends.
_SERVED: list[PrivateFolder] = []
# Messages of Spark about a lost process; a new one may succeed.
_LOST = ("exited unexpectedly", "ExecutorLostFailure", "Executor heartbeat timed out", "Worker decommissioned")


def run_on_spark(work: BatchWork, batches: Sequence[Batch], advance: Callable[[], None], scheduler: str | None) -> str:
    """Audit batches on the executors of the active Spark session: a `BatchEngine`, except for the scheduler.

    Executors that see the source and the folder of the audit get row numbers, read the rows, and write the output of
    batches themselves: all batches are tasks of one job. For other executors, rows are read and files are written here:
    each batch is a job, and as many run as the cluster has cores. Spark is used only through DataFrames.

    Parameters
    ----------
    work, batches, advance
        As for every engine.
    scheduler
        Where to start a session if none is active: see `spark_session`.

    Raises
    ------
    MissingExtraError
        If PySpark is not installed.
    InvalidInputError
        If no session can be started, or executors do not have the same version of evenhand.
    StreamError
        If Spark is lost, or a batch crashes executors.
    """
    session = spark_session(scheduler)
    work = work.with_absolute_paths()
    left = {batch.number: batch for batch in batches}
    n_idle = 0
    with _meeting_place(work) as place:
        cluster = _look_around(session, Landmarks.of(work, place))
        with _shipped(session, work, is_seen=cluster.is_shared) as sent:
            run = _Run(session, work, sent, place.with_name(f"{place.name}.stop"), cluster)
            while left:
                n_before = len(left)
                lost = run.finish(left, advance)
                n_idle = 0 if len(left) < n_before else n_idle + 1
                if n_idle >= _MOST_IDLE_ROUNDS:
                    raise _unfinished(work, left, lost) from lost
    return "Spark"


def _unfinished(work: BatchWork, left: dict[int, Batch], lost: Exception | None) -> StreamError:
    if lost is not None:
        return StreamError(
            f"Spark lost the process that audited a batch {_MOST_IDLE_ROUNDS} times ({reason(lost)}); give executors "
            f"more memory outside of Java, or lower `batch_rows` (--batch-rows), and {_GO_ON}."
        )
    return StreamError(
        f"Spark finished, but {len(left)} batches are not in {str(work.store.folder)!r}, such as number {min(left)}; "
        f"{_GO_ON}."
    )


@dataclass(frozen=True)
class _Cluster:
    """How many tasks run at the same time, and whether executors see the source and the folder of the audit."""

    n_tasks: int
    is_shared: bool


@contextmanager
def _meeting_place(work: BatchWork) -> Iterator[Path]:
    """A file that contains its name, by which executors recognize the folder."""
    token = temporary_path(work.store.folder / "spark")
    with writing(work.store.folder, "nothing was sent to Spark yet"):
        token.write_text(token.name, encoding="utf-8")
    try:
        yield token
    finally:
        for path in token.parent.glob(f"{token.name}*"):
            path.unlink(missing_ok=True)


def _look_around(session: Any, landmarks: Landmarks) -> _Cluster:
    """Ask executors which version they have and what they see.

    Raises
    ------
    InvalidInputError
        If they do not have this version of evenhand.
    StreamError
        If they do not answer.
    """
    try:
        found = session.range(0, _LOOKING_ROWS).mapInArrow(looking_for(landmarks), SIGHTS).collect()
    except Exception as error:  # of PySpark, Java and gRPC alike
        raise StreamError(f"Spark's executors do not run Python ({reason(error)}).") from error
    versions = sorted({row["version"] for row in found} - {__version__})
    if versions:
        raise InvalidInputError(
            f"Spark's executors must have evenhand {__version__}, like this process, got {versions[0]}; install the "
            "same version for the Python of the cluster (PYSPARK_PYTHON)."
        )
    return _Cluster(len(found), all(row["sees"] for row in found))


@contextmanager
def _shipped(session: Any, work: BatchWork, *, is_seen: bool) -> Iterator[Parcel]:
    """Write what batches need to a file: in the folder of the audit if executors see it, else sent by Spark."""
    if is_seen:
        with shipped(work) as sent:
            yield sent
        return
    away = PrivateFolder()
    _SERVED.append(away)
    with shipped(work, away.path) as sent:
        kept = sent.path.rename(away.path / sent.path.name.lstrip("."))
        session.addArtifacts(str(kept), file=True)
        yield replace(sent, path=kept)


@dataclass(frozen=True, eq=False)
class _Run:
    """Spark jobs for the remaining batches.

    Attributes
    ----------
    session, work, sent, cluster
        The session, what the batches need, the same for executors, and what is known about those.
    stop
        A file that tells executors to start no more batches.
    """

    session: Any
    work: BatchWork
    sent: Parcel
    stop: Path
    cluster: _Cluster

    def finish(self, left: dict[int, Batch], advance: Callable[[], None]) -> Exception | None:
        """Audit batches, cross off those that are kept, and return why Spark stopped if a process was lost."""
        is_shared = self.cluster.is_shared
        jobs = [tuple(left.values())] if is_shared else [(batch,) for batch in left.values()]
        with ThreadPoolExecutor(1 if is_shared else min(self.cluster.n_tasks, _MOST_JOBS)) as pool:
            running: set[Future[None]] = {pool.submit(self._job, batches) for batches in jobs}
            try:
                while running:
                    done, running = wait(running, _POLL_SECONDS, FIRST_COMPLETED)
                    self._strike_out(left, advance)
                    for future in done:
                        future.result()
            except _LostError as error:
                return error.cause
            finally:
                for future in running:
                    future.cancel()
                if running and is_shared:  # batches in progress are finished and kept
                    self.stop.touch()
        return None

    def _strike_out(self, left: dict[int, Batch], advance: Callable[[], None]) -> None:
        for number in self.work.store.finished() & left.keys():
            del left[number]
            advance()

    def _job(self, batches: tuple[Batch, ...]) -> None:
        """Audit batches, one per task, and keep what comes back."""
        rows = None if self.cluster.is_shared else SentRows.of(self.work, batches[0])
        task = AuditTask(self.sent, batches, rows, self.stop)
        n = len(batches)
        try:
            found = self.session.range(0, n, 1, n).mapInArrow(task.answers, ANSWERS).collect()
        except Exception as error:  # of PySpark, Java and gRPC alike
            if any(words in str(error) for words in _LOST):
                raise _LostError(error) from error
            raise StreamError(f"Spark could not finish the batches ({reason(error)}); {_GO_ON}.") from error
        for answer in unpacked_answers([(row["number"], row["content"]) for row in found]):
            if isinstance(answer, Exception):
                raise answer
            if isinstance(answer, BatchFiles):
                self.work.keep(answer)


class _LostError(Exception):
    """A Spark process was lost."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause


ROWS = "rows"
"""Folder of the rows of a Spark table, inside that of the audit."""

_NOTE = "rows.json"


def at_rest(
    source: Any,
    how: StreamOptions,
    store: Store,
    ids: str | None,
) -> Any:
    """Return a Spark table as files that Spark wrote to the folder of the audit, and any other source unchanged.

    They are written once. A resumed audit uses the rows that it was started with. Rows are in the order of the
    ids, if there are any, else in the order in which Spark returns them.

    Raises
    ------
    DataFileError
        If there is neither a file nor a table with this name, or the table has no rows.
    InvalidInputError
        If the folder holds an audit with different columns.
    StreamError
        If Spark cannot write, or the folder is not the same one for Spark and for this process.
    """
    frame = _frame(source, how.scheduler) if how.engine == "spark" else None
    if frame is None:
        return source
    folder = store.folder.absolute() / ROWS
    asked = {"columns": [list(column) for column in frame.dtypes], "ids": ids}
    if not is_begun(store):
        n_rows = _write(frame, ids, folder, rows_in_batch(sys.maxsize, how.batch_rows))
        _check_written(n_rows, folder)
        store.write_json(_NOTE, asked)
    elif store.read_json(_NOTE) != asked:
        raise InvalidInputError(
            f"`out` already holds an audit, {str(store.folder)!r}, of a table with different columns or ids; choose a "
            "different folder."
        )
    return ParquetFiles.at(LocalFile.at(folder))


def _frame(source: Any, scheduler: str | None) -> Any:
    """The Spark DataFrame that a source is or names; None if it is something else."""
    if is_spark_frame(source):
        return source
    is_name = isinstance(source, (str, os.PathLike)) and is_near(source) and not Path(source).exists()
    if not is_name:
        return None
    session = spark_session(scheduler)
    try:
        frame = session.table(os.fspath(source))
        frame.schema  # noqa: B018 - asks the server, which is told nothing before
    except Exception as error:  # of PySpark, Java and gRPC alike
        raise DataFileError(f"There is no file and no Spark table {os.fspath(source)!r} ({reason(error)}).") from error
    return frame


def _check_written(n_rows: int, folder: Path) -> None:
    """Reject a table without rows, and rows that this process cannot see."""
    n_seen = sum(pq.read_metadata(file).num_rows for file in folder.rglob("*.parquet"))
    if n_seen != n_rows:
        raise StreamError(
            f"Spark wrote {n_rows:,} rows to {str(folder)!r}, but this process sees {n_seen:,}: `out` "
            "(--out) must be a folder on storage that this process and all executors share, such as /Volumes or a "
            "network drive."
        )
    if not n_rows:
        raise DataFileError("The Spark table has no rows.")


def _write(frame: Any, ids: str | None, folder: Path, rows_in_file: int) -> int:
    """Write a table, and return the number of rows as Spark counts them."""
    sql = optional_module("pyspark.sql", "`engine='spark'`", "PySpark", "spark")
    functions = optional_module("pyspark.sql.functions", "`engine='spark'`", "PySpark", "spark")
    counted = sql.Observation()
    rows = frame if ids is None else frame.orderBy(functions.col(_quoted(ids)))
    rows = rows.observe(counted, functions.count(functions.lit(1)).alias("n"))
    try:
        rows.write.mode("overwrite").option("maxRecordsPerFile", rows_in_file).parquet(_address(folder))
        return int(counted.get["n"])
    except Exception as error:  # of PySpark, Java and gRPC alike
        raise StreamError(f"Spark could not write the rows to {str(folder)!r} ({reason(error)}).") from error


def _quoted(name: str) -> str:
    """Quote the name of a column, so that a dot does not separate parts.

    Examples
    --------
    >>> _quoted("loan.amount")
    '`loan.amount`'
    """
    return f"`{name.replace('`', '``')}`"


def _address(folder: Path) -> str:
    """A folder in Spark's notation: Databricks has volumes and its file system under paths, others have local files.

    Examples
    --------
    >>> _address(Path("/Volumes/main/lending/audits")), _address(Path("/dbfs/audits")), _address(Path("/mnt/audits"))
    ('/Volumes/main/lending/audits', 'dbfs:/audits', 'file:///mnt/audits')
    """
    if folder.parts[1:2] == ("Volumes",):
        return folder.as_posix()
    if folder.parts[1:2] == ("dbfs",):
        return f"dbfs:/{folder.relative_to('/dbfs').as_posix()}"
    return folder.as_uri()
