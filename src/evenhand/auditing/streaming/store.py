"""The folder of a streamed audit: the output of each finished batch, and how it is read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from evenhand.auditing.finished import BatchOutput, BatchRecord, PairNulls
from evenhand.auditing.streaming import codec
from evenhand.auditing.streaming.triple_files import RowFile, Slice, by_smallest_row, encode_index, encode_triples
from evenhand.exceptions import InvalidInputError, StreamError
from evenhand.system.files import remove_stale, write_atomically

__all__ = ["BatchFiles", "Store", "encode_batch", "writing"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@contextmanager
def writing(folder: Path, kept: str) -> Iterator[None]:
    """Turn a failed write into a sentence on what is kept.

    Raises
    ------
    StreamError
        If a file cannot be written.
    """
    try:
        yield
    except (OSError, MemoryError) as error:
        if isinstance(error, StreamError):
            raise
        number = getattr(error, "errno", None)
        reason = os.strerror(number) if number else str(error) or type(error).__name__
        raise StreamError(f"{str(folder)!r} cannot be written: {reason}; {kept}.") from error


@dataclass(frozen=True, eq=False)
class BatchFiles:
    """Files of a batch by their paths in the folder of the audit; the last one marks the batch as finished."""

    number: int
    contents: Mapping[str, pa.Buffer]


_PAIR_SCHEMA = pa.schema(
    {
        **dict.fromkeys(("person", "match"), pa.int64()),
        "distance": pa.float64(),
        **dict.fromkeys(("group", "other_group"), pa.string()),
        "label": pa.int64(),
        **dict.fromkeys(("score", "match_score"), pa.float64()),
        **dict.fromkeys(("decision", "match_decision"), pa.int64()),
        **dict.fromkeys(("cec", "placebo_cec", "input_gap", "reasoning_gap"), pa.float64()),
        "regime": pa.string(),
        **dict.fromkeys(("shared_reasons", "q_value"), pa.float64()),
        "is_negligible": pa.bool_(),
    }
)


def _name(number: int, ending: str) -> str:
    """Path of a file of a batch; the tables of pairs and of reasons have separate folders."""
    is_table = ending in ("pairs", "reasons")
    return f"{ending}/part-{number:06d}.parquet" if is_table else f"batches/{number:06d}.{ending}"


def encode_batch(output: BatchOutput) -> BatchFiles:
    """The files of a batch, created where it is audited."""
    record, contents = output.record, dict[str, pa.Buffer]()
    if output.pairs is not None:
        contents["pairs"] = _parquet(output.pairs, _schema_of(output.pairs))
    if output.reasons is not None:
        contents["reasons"] = _parquet(output.reasons, _schema_of_reasons(output.reasons))
    if output.screened is not None and len(output.screened):
        contents["screened.parquet"] = _parquet(output.screened.assign(**{"": output.screened_groups}))
    if output.triples is not None:
        order, n_outside = by_smallest_row(output.triples)
        record = replace(record, n_outside=n_outside)
        contents["triples.npy"] = pa.py_buffer(encode_triples(output.triples, order))
        contents["index.npy"] = pa.py_buffer(encode_index(output.triples, order))
        contents["nulls.npz"] = pa.py_buffer(codec.encode(output.nulls))
    contents["npz"] = pa.py_buffer(codec.encode(record))
    return BatchFiles(record.number, {_name(record.number, ending): content for ending, content in contents.items()})


def _schema_of(pairs: pd.DataFrame) -> pa.Schema:
    """Types of the pair table's columns; the same for every batch, whatever its values."""
    further = {"person_id": pa.string(), "match_id": pa.string(), "sample_weight": pa.float64()}
    return pa.schema(
        [*_PAIR_SCHEMA, *(pa.field(name, kind) for name, kind in further.items() if name in pairs.columns)]
    )


def _schema_of_reasons(reasons: pd.DataFrame) -> pa.Schema:
    """Types of the columns of reasons, even if no one in a batch is declined or has that many."""
    kinds = {"person": pa.int64(), "decision": pa.int64()}
    return pa.schema(
        {
            name: pa.float64() if name.startswith("share_") else kinds.get(name, pa.string())
            for name in map(str, reasons.columns)
        }
    )


def _parquet(table: pd.DataFrame, schema: pa.Schema | None = None) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.Table.from_pandas(table, schema, preserve_index=False, nthreads=1), sink)
    return sink.getvalue()


@dataclass(frozen=True)
class Store:
    """The folder of a streamed audit."""

    folder: Path

    @classmethod
    def prepared(cls, folder: Path) -> Store:
        """A writable folder, without the partial files of killed processes.

        Raises
        ------
        InvalidInputError
            If it is a file, or not writable.
        """
        try:
            folder.mkdir(parents=True, exist_ok=True)
            with write_atomically(folder / ".writable") as temporary:
                temporary.write_text("", encoding="utf-8")
            (folder / ".writable").unlink()
            remove_stale([folder, *(path for path in folder.iterdir() if path.is_dir())])
        except OSError as error:
            raise InvalidInputError(
                f"`out` must be a folder that can be written, got {str(folder)!r}: {error.strerror or error}."
            ) from error
        return cls(folder)

    def _file(self, number: int, ending: str) -> Path:
        return self.folder / _name(number, ending)

    def is_finished(self, number: int) -> bool:
        """Whether a batch has all its files."""
        return self._file(number, "npz").exists()

    def finished(self) -> set[int]:
        """Numbers of the batches that have all their files."""
        return {int(path.stem) for path in (self.folder / "batches").glob("[0-9]*.npz") if path.stem.isdigit()}

    def write(self, files: BatchFiles) -> None:
        """Keep the output of a batch; the file that marks it as finished comes last."""
        for name, content in files.contents.items():
            with write_atomically(self.folder / name) as temporary, temporary.open("wb") as file:
                file.write(content)

    def record(self, number: int) -> BatchRecord:
        """The stored output of a batch."""
        found: BatchRecord = codec.load(self._file(number, "npz"))
        return found

    def nulls(self, number: int) -> PairNulls:
        """The values from which the q-values of a batch's pairs are computed."""
        found: PairNulls = codec.load(self._file(number, "nulls.npz"))
        return found

    def screened(self, number: int) -> tuple[pd.DataFrame, Ints] | None:
        """Features and groups of the people of a batch who are screened for proxies."""
        path = self._file(number, "screened.parquet")
        if not path.exists():
            return None
        table = pd.read_parquet(path)
        return table.drop(columns=""), table[""].to_numpy(dtype=np.int64)

    def pair_column(self, number: int, *columns: str) -> list[NDArray[Any]]:
        """Columns of the pair table of a batch."""
        table = pq.read_table(self._file(number, "pairs"), columns=list(columns))
        return [table.column(name).to_numpy() for name in columns]

    def pair_table(self, number: int) -> pd.DataFrame:
        """The pair table of a batch."""
        return pd.read_parquet(self._file(number, "pairs"))

    def reason_table(self, number: int) -> pd.DataFrame:
        """The table of reasons of a batch."""
        return pd.read_parquet(self._file(number, "reasons"))

    def write_q_values(self, number: int, q_value: Floats) -> None:
        """Add q-values to the pair table of a batch."""
        path = self._file(number, "pairs")
        table = pq.read_table(path)
        table = table.set_column(table.schema.get_field_index("q_value"), "q_value", pa.array(q_value))
        with write_atomically(path) as temporary:
            pq.write_table(table, temporary)

    def slice_of(self, number: int, codes: Mapping[str, Ints]) -> Slice:
        """All triples of a batch; `codes` converts its codes of the columns to split by to those of all batches."""
        near = self._file(number, "near.npy")
        file = RowFile.open(self._file(number, "triples.npy"))
        return Slice(file, RowFile.open(near) if near.exists() else None, 0, file.n_rows, codes)

    def write_near(self, number: int, n_near: Ints) -> None:
        """Store the numbers of triples within the distance limits."""
        with write_atomically(self._file(number, "near.npy")) as temporary, temporary.open("wb") as file:
            np.save(file, n_near.astype(np.int16))

    def distances(self, number: int) -> Floats:
        """Distances of the triples of a batch."""
        file = RowFile.open(self._file(number, "index.npy"))
        found: Floats = np.ascontiguousarray(file.rows(0, file.n_rows)["distance"])
        return found

    def smallest_rows(self, number: int, n_outside: int) -> Ints:
        """The lower of the two reference rows in each triple of someone outside the reference, ascending."""
        file = RowFile.open(self._file(number, "index.npy"))
        rows: Ints = file.rows(0, n_outside)["smallest_row"].astype(np.int64)
        return rows

    def write_table(self, name: str, table: pd.DataFrame) -> None:
        """Write a table as Parquet."""
        with write_atomically(self.folder / name) as temporary:
            table.to_parquet(temporary, index=False)

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Write plain data."""
        with write_atomically(self.folder / name) as temporary:
            temporary.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n", encoding="utf-8")

    def read_json(self, name: str) -> dict[str, Any] | None:
        """Plain data, or None if there is no such file.

        Raises
        ------
        StreamError
            If the file is damaged.
        """
        path = self.folder / name
        if not path.exists():
            return None
        try:
            found: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise StreamError(f"{str(path)!r} is damaged ({error}); start again in a different folder.") from error
        return found
