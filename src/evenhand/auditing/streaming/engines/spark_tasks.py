"""What Spark's executors do: report what they see, audit batches, and answer in bytes."""

from __future__ import annotations

import pickle
import secrets
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import ipc

from evenhand.auditing.streaming.engines.executor import opened
from evenhand.auditing.streaming.engines.work import BatchWork, audited, on_worker
from evenhand.auditing.streaming.source import Batch
from evenhand.auditing.streaming.store import BatchFiles
from evenhand.inputs.tables.arrow_files import ParquetFile
from evenhand.system.optional import optional_module
from evenhand.system.parcels import Parcel

__all__ = ["ANSWERS", "SIGHTS", "Answer", "AuditTask", "Landmarks", "SentRows", "looking_for", "unpacked_answers"]

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
    def look(_rows: Any) -> Iterator[Any]:  # noqa: ANN401
        import pickle

        import pyarrow

        try:
            import evenhand.auditing.streaming.batch_audit  # noqa: F401 - with all that it needs
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
