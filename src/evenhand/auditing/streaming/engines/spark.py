"""Batches audited by the executors of a Spark cluster, classic or through Spark Connect."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from evenhand._version import __version__
from evenhand.auditing.streaming.engines.executor import shipped
from evenhand.auditing.streaming.engines.spark_sessions import reason, spark_session
from evenhand.auditing.streaming.engines.spark_tasks import (
    ANSWERS,
    SIGHTS,
    AuditTask,
    Landmarks,
    SentRows,
    looking_for,
    unpacked_answers,
)
from evenhand.auditing.streaming.engines.work import BatchWork
from evenhand.auditing.streaming.source import Batch
from evenhand.auditing.streaming.store import BatchFiles, writing
from evenhand.exceptions import InvalidInputError, StreamError
from evenhand.system.files import PrivateFolder, temporary_path
from evenhand.system.parcels import Parcel

__all__ = ["run_on_spark"]

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


def _look_around(session: Any, landmarks: Landmarks) -> _Cluster:  # noqa: ANN401
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
def _shipped(session: Any, work: BatchWork, *, is_seen: bool) -> Iterator[Parcel]:  # noqa: ANN401
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
