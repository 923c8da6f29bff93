"""Batches audited by the executors of a Spark cluster, classic or through Spark Connect."""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from evenhand._version import __version__
from evenhand.auditing.streaming.engines import BatchWork, Refusal
from evenhand.auditing.streaming.source import Batch
from evenhand.auditing.streaming.spark_sessions import reason
from evenhand.auditing.streaming.spark_tasks import (
    ANSWERS,
    SIGHTS,
    AuditTask,
    Parcel,
    SentRows,
    looking_for,
    unpacked_answers,
)
from evenhand.auditing.streaming.store import BatchFiles, writing
from evenhand.exceptions import InvalidInputError, StreamError, first_line
from evenhand.system.files import write_atomically
from evenhand.system.optional import optional_module

__all__ = ["remove_spark_files", "run_on_spark"]

_MOST_ROUNDS = 3
_MOST_JOBS = 64
_POLL_SECONDS = 0.5
_LOOKING_ROWS = 1024  # shared out over as many tasks as the cluster runs at the same time
_OURS = ".spark-"
_GO_ON = "go on with `resume=True` (--resume)"
# What Spark says of a process that is gone; a new one may do better.
_LOST = ("exited unexpectedly", "ExecutorLostFailure", "Executor heartbeat timed out", "Worker decommissioned")


def run_on_spark(
    work: BatchWork,
    batches: Sequence[Batch],
    advance: Callable[[], None],
    session: Any,  # noqa: ANN401 - a SparkSession
) -> None:
    """Audit batches on the executors of a Spark session; `advance` is called as each is kept.

    Executors that see the source and the folder of the audit get numbers of rows, read them, and keep what batches
    leave themselves: all batches are tasks of one job. For others the rows are read and files are written here: each
    batch is a job, and as many run as the cluster has cores. Nothing but DataFrames is asked of Spark.

    Raises
    ------
    InvalidInputError
        If executors do not have evenhand in the version of this process.
    StreamError
        If Spark is lost on the way, or a batch brings executors down.
    """
    work = work.with_absolute_paths()
    left = {batch.number: batch for batch in batches}
    with _meeting_place(work) as place:
        cluster = _look_around(session, work, place)
        with _shipped(session, work, is_seen=cluster.is_shared) as parcel:
            for _ in range(_MOST_ROUNDS):
                lost = _Run(session, work, parcel, place.with_suffix(".stop"), cluster).finish(left, advance)
                if not left:
                    return
    if lost is not None:
        raise StreamError(
            f"Spark lost the process that audited a batch {_MOST_ROUNDS} times ({reason(lost)}); give executors more "
            f"memory outside of Java, or lower `batch_rows` (--batch-rows), and {_GO_ON}."
        ) from lost
    raise StreamError(
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
    """A file with its name in it, by which executors know that the folder is the same one."""
    token = work.store.folder / f"{_OURS}{secrets.token_hex(8)}"
    with writing(work.store.folder, "nothing was sent to Spark yet"):
        token.write_text(token.name, encoding="utf-8")
    try:
        yield token
    finally:
        remove_spark_files(work.store.folder)


def remove_spark_files(folder: Path) -> None:
    """Remove what only serves while Spark runs; an audit that was killed leaves it behind."""
    for path in folder.glob(f"{_OURS}*"):
        path.unlink(missing_ok=True)


def _look_around(session: Any, work: BatchWork, token: Path) -> _Cluster:  # noqa: ANN401
    """Ask executors what they have and see.

    Raises
    ------
    InvalidInputError
        If they do not have evenhand in this version.
    StreamError
        If they do not answer.
    """
    files = {path: path.stat().st_size for path in (work.source.files[0], work.source.files[-1])}
    look = looking_for(token, token.name, files)
    try:
        found = session.range(0, _LOOKING_ROWS).mapInArrow(look, SIGHTS).collect()
    except Exception as error:  # of PySpark, Java and gRPC alike
        raise StreamError(f"Spark's executors do not run Python ({reason(error)}).") from error
    versions = sorted({row["version"] for row in found} - {__version__})
    if versions:
        raise InvalidInputError(
            f"Spark's executors must have evenhand {__version__}, as this process has, got {versions[0]}; install the "
            "same version for the Python of the cluster (PYSPARK_PYTHON)."
        )
    return _Cluster(len(found), all(row["sees"] for row in found))


@contextmanager
def _shipped(session: Any, work: BatchWork, *, is_seen: bool) -> Iterator[Parcel]:  # noqa: ANN401
    """What batches need, as a file: in the folder of the audit if executors see it, else sent by Spark."""
    cloudpickle = optional_module("pyspark.cloudpickle", "`engine='spark'`", "PySpark", "spark")
    try:
        content: bytes = cloudpickle.dumps(work)  # takes classes of a notebook along
    except Exception as error:  # whatever the model's library says
        raise StreamError(
            f"The model cannot be sent to Spark's executors ({type(error).__name__}: {first_line(error)}); audit it "
            'with `engine="local"` (--engine local).'
        ) from error
    digest = hashlib.sha256(content).hexdigest()
    with TemporaryDirectory() as elsewhere:
        folder = work.store.folder if is_seen else Path(elsewhere)
        path = folder / f"{_OURS}{digest}.pickle"
        with writing(folder, "nothing was sent to Spark yet"), write_atomically(path) as temporary:
            temporary.write_bytes(content)
        del content
        if not is_seen:
            session.addArtifacts(str(path), file=True)
        yield Parcel(str(path), digest, is_artifact=not is_seen)


@dataclass(frozen=True, eq=False)
class _Run:
    """Jobs of Spark for batches that are left.

    Attributes
    ----------
    session, work, parcel, cluster
        The session, what the batches need, the same for executors, and what those are.
    stop
        A file that tells executors to begin no further batch.
    """

    session: Any
    work: BatchWork
    parcel: Parcel
    stop: Path
    cluster: _Cluster

    def finish(self, left: dict[int, Batch], advance: Callable[[], None]) -> Exception | None:
        """Audit batches, strike out those that are kept, and return why Spark stopped if a process was lost."""
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
                if running:  # what is being audited is finished, and kept
                    self.stop.touch()
        return None

    def _strike_out(self, left: dict[int, Batch], advance: Callable[[], None]) -> None:
        for number in self.work.store.finished() & left.keys():
            del left[number]
            advance()

    def _job(self, batches: tuple[Batch, ...]) -> None:
        """Have batches audited, one a task, and keep what comes back."""
        rows = None if self.cluster.is_shared else SentRows.of(self.work, batches[0])
        task = AuditTask(self.parcel, batches, rows, self.stop)
        n = len(batches)
        try:
            found = self.session.range(0, n, 1, n).mapInArrow(task.answers, ANSWERS).collect()
        except Exception as error:  # of PySpark, Java and gRPC alike
            if any(words in str(error) for words in _LOST):
                raise _LostError(error) from error
            raise StreamError(f"Spark could not finish the batches ({reason(error)}); {_GO_ON}.") from error
        for answer in unpacked_answers([(row["number"], row["content"]) for row in found]):
            if isinstance(answer, Refusal):
                raise answer.kind(answer.message)
            if isinstance(answer, BatchFiles):
                self.work.keep(answer)


class _LostError(Exception):
    """A process of Spark's was lost."""

    def __init__(self, cause: Exception) -> None:
        super().__init__(str(cause))
        self.cause = cause
