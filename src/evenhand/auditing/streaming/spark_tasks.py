"""What Spark's executors do: say what they see, audit batches, answer in bytes."""

from __future__ import annotations

import hashlib
import pickle
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import ipc

from evenhand.auditing.streaming.engines import BatchWork, Refusal, audited, on_worker
from evenhand.auditing.streaming.source import Batch
from evenhand.auditing.streaming.store import BatchFiles
from evenhand.exceptions import StreamError

__all__ = ["ANSWERS", "SIGHTS", "Answer", "AuditTask", "Parcel", "SentRows", "looking_for", "unpacked_answers"]

Answer = int | BatchFiles | Refusal | None
"""A batch that an executor has kept, what it leaves, why it was refused, or None for one that was not begun."""

ANSWERS = "number long, content binary"
SIGHTS = "version string, sees boolean"
"""Columns of the two DataFrames, in Spark's words."""

_MOST_BYTES = 1 << 22  # of a row: answers of Spark Connect come in messages of limited size


def looking_for(token: Path, content: str, files: Mapping[Path, int]) -> Callable[[Any], Iterator[Any]]:
    """A function that tells of an executor its version of evenhand, and whether it shares folder and files with us.

    Parameters
    ----------
    token, content
        A file in the folder of the audit, and what it holds.
    files
        Sizes of files of the source, by their paths.
    """

    # Spark sends a function within a function whole: an executor need not have evenhand to say that it has not.
    def look(_rows: Any) -> Iterator[Any]:  # noqa: ANN401
        import uuid

        import pyarrow

        try:
            import evenhand.auditing.streaming.batch_audit  # noqa: F401 - with all that it needs
            from evenhand._version import __version__ as version
        except ImportError as error:
            version = f"none ({error})"
        try:
            sees = token.read_text() == content and all(path.stat().st_size == size for path, size in files.items())
            if sees:
                own = token.with_name(f"{token.name}.{uuid.uuid4().hex}")
                own.touch()
                own.unlink()
        except OSError:
            sees = False
        yield pyarrow.RecordBatch.from_pydict({"version": [version], "sees": [sees]})

    return look


@dataclass(frozen=True)
class Parcel:
    """What batches need, in a file that is named by its content.

    Attributes
    ----------
    path
        The file, in the folder of the audit if executors see it.
    sha256
        Of the file, so that nothing is unpickled but what was written.
    is_artifact
        Whether the file is sent to executors by Spark.
    """

    path: str
    sha256: str
    is_artifact: bool

    def open(self) -> BatchWork:
        """What was packed.

        Raises
        ------
        StreamError
            If it cannot be read, or has changed.
        """
        path = Path(self.path)
        if self.is_artifact:
            from pyspark import SparkFiles

            path = Path(SparkFiles.get(path.name))
        try:
            content = path.read_bytes()
        except OSError as error:
            raise StreamError(f"An executor cannot read {str(path)!r}: {error.strerror or error}.") from error
        if hashlib.sha256(content).hexdigest() != self.sha256:
            raise StreamError(f"{str(path)!r} has changed since it was written; begin again with `resume=True`.")
        work: BatchWork = pickle.loads(content)  # of this audit, by its hash
        return work


@dataclass(frozen=True)
class SentRows:
    """The rows of a batch as they travel, and where they are from, for messages."""

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
    parcel
        What every batch needs.
    batches
        The batches; a row of Spark is the place of one of them.
    rows
        The rows of the only batch, where executors do not see the source; they then answer with what it leaves.
    stop
        A file whose presence says that no further batch shall be begun.
    """

    parcel: Parcel
    batches: tuple[Batch, ...]
    rows: SentRows | None
    stop: Path

    def answers(self, pieces: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The answers to rows, as Spark's `mapInArrow` takes them."""
        for piece in pieces:
            for place in piece.column(0).to_pylist():
                batch = self.batches[place]
                yield from _packed(batch.number, self._answer(batch))

    def _answer(self, batch: Batch) -> Answer:
        if self.rows is None and self.stop.exists():
            return None
        found = on_worker(lambda: self._audited(batch))
        if self.rows is None and isinstance(found, Refusal):
            self.stop.touch()
        return found

    def _audited(self, batch: Batch) -> int | BatchFiles:
        work = _opened(self.parcel)
        if self.rows is None:
            work.audit(batch)
            return batch.number
        return audited(work.context, batch, self.rows.table, self.rows.where)


@lru_cache(maxsize=1)
def _opened(parcel: Parcel) -> BatchWork:
    """What was packed, opened once in each process: Spark uses a process for many batches."""
    return parcel.open()


def _packed(number: int, answer: Answer) -> Iterator[pa.RecordBatch]:
    content = pickle.dumps(answer, protocol=5)
    for first in range(0, len(content), _MOST_BYTES):
        yield pa.RecordBatch.from_pydict({"number": [number], "content": [content[first : first + _MOST_BYTES]]})


def unpacked_answers(rows: list[tuple[int, bytes]]) -> Iterator[Answer]:
    """The answers in rows of Spark, which has those of one batch in order."""
    parts: dict[int, list[bytes]] = {}
    for number, content in rows:
        parts.setdefault(number, []).append(bytes(content))
    for pieces in parts.values():
        yield pickle.loads(b"".join(pieces))  # of our executors, as everything that PySpark collects
