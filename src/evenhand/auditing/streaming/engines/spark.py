"""Batches audited by the executors of a Spark cluster, classic or through Spark Connect."""

from __future__ import annotations

import os
import pickle
import re
import secrets
import socket
import sys
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import ipc

from evenhand.auditing.options import StreamOptions
from evenhand.auditing.streaming.engines.local import (
    BatchWork,
    as_data,
    audit_sent,
    from_data,
    on_worker,
    opened,
    shipped,
)
from evenhand.auditing.streaming.source import Batch, rows_in_batch
from evenhand.auditing.streaming.store import MANIFEST, BatchFiles, Store, writing
from evenhand.exceptions import DataFileError, InvalidInputError, StreamError, first_line
from evenhand.inputs.tables.arrow import ParquetFile, ParquetFiles
from evenhand.inputs.tables.open import is_near
from evenhand.inputs.tables.raw import LocalFile
from evenhand.system import __version__
from evenhand.system.files import PrivateFolder, temporary_path
from evenhand.system.libraries import optional_module
from evenhand.system.processes import Parcel

ROWS = "rows"
"""Folder of the rows of a Spark table, inside that of the audit."""

ANSWERS = "number long, content binary"
SIGHTS = "version string, sees boolean"
"""Columns of the two DataFrames, in Spark's notation."""

_LEAST_VERSION = 4  # earlier classic sessions had no artifacts
_CONNECT_PORT = 15002
_CONNECT_SECONDS = 10.0
_CALLED = re.compile(r"^An error occurred while calling .+\n: (.+)$", re.MULTILINE)  # of a bridge to Java
# The last line of a Python traceback, in which Spark may quote a Java one.
_RAISED = re.compile(r"^(?:[A-Za-z_]\w*\.)*[A-Z]\w*(?:Error|Exception|Interrupt|Exit): .+$", re.MULTILINE)
_MOST_BYTES = 1 << 22  # of a row: messages of Spark Connect have a limited size
_MOST_IDLE_ROUNDS = 3
_MOST_JOBS = 64
_POLL_SECONDS = 0.5
_LOOKING_ROWS = 1024  # spread over as many tasks as the cluster runs at the same time
_GO_ON = "continue with `resume=True` (--resume)"
# A session fetches its artifacts for each executor that joins, so they are removed when this process ends.
_SERVED: list[PrivateFolder] = []
# Messages of Spark about a lost process; a new one may succeed.
_LOST = ("exited unexpectedly", "ExecutorLostFailure", "Executor heartbeat timed out", "Worker decommissioned")
_ROWS_NOTE = "rows.json"


def _pyspark(module: str) -> Any:
    return optional_module(module, "`engine='spark'`", "PySpark", "spark")


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
    kind = _pyspark("pyspark.sql").SparkSession
    session = kind.getActiveSession()
    if session is None:
        session = _started(kind.builder, address)
    if int(session.version.split(".")[0]) < _LEAST_VERSION:
        raise InvalidInputError(
            f"`engine='spark'` needs Spark {_LEAST_VERSION} or newer, got {session.version}; audit files with "
            '`engine="local"`, or use a newer cluster.'
        )
    return session


def destination(scheduler: str | None) -> str:
    """Where the active session, or else a new one, sends rows; empty if that is this machine."""
    session = spark_session(scheduler)
    server = getattr(session, "_client", None)  # of Spark Connect
    place = str(server.host if server is not None else session.sparkContext.master)
    return "" if place.startswith("local") or place == "127.0.0.1" else place


def _started(builder: Any, address: str | None) -> Any:
    if address is not None and address.startswith("sc://"):
        parts, server = urlsplit(address), address.partition(";")[0]  # a token may follow
        try:  # where nothing listens, Spark would wait for minutes
            socket.create_connection((parts.hostname or "", parts.port or _CONNECT_PORT), _CONNECT_SECONDS).close()
        except (OSError, ValueError) as error:
            raise InvalidInputError(
                f"No Spark Connect server answers at {server!r} ({first_line(error)}); start one, or drop "
                "`scheduler` (--scheduler) to use this machine."
            ) from error
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
    quoted = _RAISED.findall(str(error)) or _CALLED.findall(str(error))
    return quoted[-1].rstrip(".") if quoted else first_line(error)


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
            from evenhand.system import __version__ as version
        except ImportError as error:
            version, sees = f"none ({error})", False
        else:
            sees = pickle.loads(sent).are_seen()
        yield pyarrow.RecordBatch.from_pydict({"version": [version], "sees": [sees]})

    return look


@dataclass(frozen=True)
class AuditTask:
    """Batches for executors.

    Attributes
    ----------
    sent
        What every batch needs: in the folder of the audit, or next to the rows that Spark sends.
    batches
        The batches; a Spark row is the place of one of them.
    stop
        A file whose presence means that no more batches may start.
    rows, where
        The rows of the only batch, if executors do not see the source, and their origin, for messages. Executors then
        return its output.
    """

    sent: Parcel
    batches: tuple[Batch, ...]
    stop: Path
    rows: bytes | None = None
    where: str = ""

    def answers(self, pieces: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The answers to rows, in the form of Spark's `mapInArrow`: long ones take several rows."""
        for piece in pieces:
            for place in piece.column(0).to_pylist():
                batch = self.batches[place]
                answer = self._answer(batch)
                content = b"" if answer is None else as_data(answer)
                for first in range(0, len(content), _MOST_BYTES):
                    part = content[first : first + _MOST_BYTES]
                    yield pa.RecordBatch.from_pydict({"number": [batch.number], "content": [part]})

    def _answer(self, batch: Batch) -> BatchFiles | Exception | None:
        """The output of a batch, why it was rejected, or None if it was kept, or not started."""
        if self.rows is not None:
            return on_worker(self._audited, batch, self.rows)
        if self.stop.exists():
            return None
        error = on_worker(audit_sent, self.sent, batch)
        if error is not None:
            self.stop.touch()
        return error

    def _audited(self, batch: Batch, rows: bytes) -> BatchFiles:
        sent = replace(self.sent, path=Path(_pyspark("pyspark").SparkFiles.get(self.sent.path.name)))
        with ipc.open_stream(rows) as stream:
            return opened(sent).audited(batch, stream.read_all(), self.where)


def run_on_spark(work: BatchWork, batches: Sequence[Batch], advance: Callable[[], None], scheduler: str | None) -> str:
    """Audit batches on the executors of the active Spark session.

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
    folder, left = work.store.folder, {batch.number: batch for batch in batches}
    n_idle = 0
    # A file that contains its name, by which executors recognize the folder.
    token = temporary_path(folder / "spark")
    with writing(folder, "nothing was sent to Spark yet"):
        token.write_text(token.name, encoding="utf-8")
    with ExitStack() as stack:
        stack.callback(_remove, token)
        n_tasks, is_shared = _look_around(session, Landmarks.of(work, token))
        if is_shared:
            sent = stack.enter_context(shipped(work))
        else:
            away = PrivateFolder()
            _SERVED.append(away)
            sent = stack.enter_context(shipped(work, away.path))
            sent = replace(sent, path=sent.path.rename(away.path / sent.path.name.lstrip(".")))
            session.addArtifacts(str(sent.path), file=True)
        run = _Run(session, work, sent, token.with_name(f"{token.name}.stop"), None if is_shared else n_tasks)
        while left:
            n_before = len(left)
            lost = run.finish(left, advance)
            n_idle = 0 if len(left) < n_before else n_idle + 1
            if n_idle < _MOST_IDLE_ROUNDS:
                continue
            if lost is None:
                raise StreamError(
                    f"Spark finished, but {len(left)} batches are not in {str(folder)!r}, such as number {min(left)}; "
                    f"{_GO_ON}."
                )
            raise StreamError(
                f"Spark lost the process that audited a batch {n_idle} times ({reason(lost)}); give executors more "
                f"memory outside of Java, or lower `batch_rows` (--batch-rows), and {_GO_ON}."
            ) from lost
    return "Spark"


def _remove(token: Path) -> None:
    for path in token.parent.glob(f"{token.name}*"):
        path.unlink(missing_ok=True)


def _look_around(session: Any, landmarks: Landmarks) -> tuple[int, bool]:
    """Ask executors how many tasks run at the same time, and whether they see the source and the folder.

    Raises
    ------
    InvalidInputError
        If they do not have this version of evenhand.
    StreamError
        If they do not answer.
    """
    try:
        sights = session.range(0, _LOOKING_ROWS).mapInArrow(looking_for(landmarks), SIGHTS).toArrow().to_pylist()
    except Exception as error:  # of PySpark, Java and gRPC alike
        raise StreamError(f"Spark's executors do not run Python ({reason(error)}).") from error
    versions = sorted({row["version"] for row in sights} - {__version__})
    if versions:
        raise InvalidInputError(
            f"Spark's executors must have evenhand {__version__}, like this process, got {versions[0]}; install the "
            "same version for the Python of the cluster (PYSPARK_PYTHON)."
        )
    return len(sights), all(row["sees"] for row in sights)


@dataclass(frozen=True, eq=False)
class _Run:
    """Spark jobs for the remaining batches.

    Attributes
    ----------
    session, work, sent
        The session, what the batches need, and the same for executors.
    stop
        A file that tells executors to start no more batches.
    n_jobs
        Jobs at the same time, of one batch each, whose rows are sent; None for a single job, if executors see the
        files.
    """

    session: Any
    work: BatchWork
    sent: Parcel
    stop: Path
    n_jobs: int | None

    def finish(self, left: dict[int, Batch], advance: Callable[[], None]) -> Exception | None:
        """Audit batches, cross off those that are kept, and return why Spark stopped if a process was lost."""
        jobs = [tuple(left.values())] if self.n_jobs is None else [(batch,) for batch in left.values()]
        with ThreadPoolExecutor(min(self.n_jobs or 1, _MOST_JOBS)) as pool:
            running: set[Future[Exception | None]] = {pool.submit(self.job, batches) for batches in jobs}
            try:
                while running:
                    done, running = wait(running, _POLL_SECONDS, FIRST_COMPLETED)
                    for number in self.work.store.finished() & left.keys():
                        del left[number]
                        advance()
                    for future in done:
                        if (lost := future.result()) is not None:
                            return lost
            finally:
                for future in running:
                    future.cancel()
                if running and self.n_jobs is None:  # batches in progress are finished and kept
                    self.stop.touch()
        return None

    def job(self, batches: tuple[Batch, ...]) -> Exception | None:
        """Audit batches, one per task, keep what comes back, and return the error if a process was lost."""
        task, n = AuditTask(self.sent, batches, self.stop), len(batches)
        if self.n_jobs is not None:
            table, sink = self.work.rows(batches[0]), pa.BufferOutputStream()
            with ipc.new_stream(sink, table.schema, options=ipc.IpcWriteOptions(compression="lz4")) as stream:
                stream.write_table(table)
            task = replace(task, rows=sink.getvalue().to_pybytes(), where=self.work.source.where(batches[0]))
        try:
            rows = self.session.range(0, n, 1, n).mapInArrow(task.answers, ANSWERS).toArrow().to_pylist()
        except Exception as error:  # of PySpark, Java and gRPC alike
            if any(words in str(error) for words in _LOST):
                return error
            raise StreamError(f"Spark could not finish the batches ({reason(error)}); {_GO_ON}.") from error
        answers = defaultdict[int, list[bytes]](list)
        for row in rows:  # those of one batch are in order
            answers[row["number"]].append(row["content"])
        for batch in batches:
            if batch.number in answers:
                self.work.keep(batch, from_data(b"".join(answers[batch.number])))
        return None


def at_rest(source: Any, how: StreamOptions, store: Store, ids: str | None) -> Any:
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
    if store.read_json(MANIFEST) is None:
        n_rows = _write(frame, ids, folder, rows_in_batch(sys.maxsize, how.batch_rows))
        n_seen = sum(pq.read_metadata(file).num_rows for file in folder.rglob("*.parquet"))
        if n_seen != n_rows:
            raise StreamError(
                f"Spark wrote {n_rows:,} rows to {str(folder)!r}, but this process sees {n_seen:,}: `out` "
                "(--out) must be a folder on storage that this process and all executors share, such as /Volumes or a "
                "network drive."
            )
        if not n_rows:
            raise DataFileError("The Spark table has no rows.")
        store.write_json(_ROWS_NOTE, asked)
    elif store.read_json(_ROWS_NOTE) != asked:
        raise InvalidInputError(
            f"`out` already holds an audit, {str(store.folder)!r}, of a table with different columns or ids; choose a "
            "different folder."
        )
    return ParquetFiles.at(LocalFile.at(folder))


def _frame(source: Any, scheduler: str | None) -> Any:
    """The Spark DataFrame, classic or Connect, that a source is or names; None if it is something else."""
    kinds = type(source).__mro__
    if any(kind.__module__.startswith("pyspark.sql") and kind.__name__ == "DataFrame" for kind in kinds):
        return source
    if not isinstance(source, (str, os.PathLike)) or not is_near(source) or Path(source).exists():
        return None
    session = spark_session(scheduler)
    try:
        frame = session.table(os.fspath(source))
        frame.schema  # noqa: B018 - asks the server, which is told nothing before
    except Exception as error:  # of PySpark, Java and gRPC alike
        raise DataFileError(f"There is no file and no Spark table {os.fspath(source)!r} ({reason(error)}).") from error
    return frame


def _write(frame: Any, ids: str | None, folder: Path, rows_in_file: int) -> int:
    """Write a table, and return the number of rows as Spark counts them."""
    functions = _pyspark("pyspark.sql.functions")
    counted = _pyspark("pyspark.sql").Observation()
    if ids is not None:  # quoted, so that a dot does not separate parts
        frame = frame.orderBy(functions.col(f"`{ids.replace('`', '``')}`"))
    rows = frame.observe(counted, functions.count(functions.lit(1)).alias("n"))
    try:
        rows.write.mode("overwrite").option("maxRecordsPerFile", rows_in_file).parquet(_address(folder))
        return int(counted.get["n"])
    except Exception as error:  # of PySpark, Java and gRPC alike
        raise StreamError(f"Spark could not write the rows to {str(folder)!r} ({reason(error)}).") from error


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
