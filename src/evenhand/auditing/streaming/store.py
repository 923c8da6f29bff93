"""The folder of a streamed audit: the output of each finished batch, and how it is read."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from io import BytesIO
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray

from evenhand._version import __version__
from evenhand.arrays import Floats, Ints
from evenhand.auditing.batch import AuditSums, ScoreCounts
from evenhand.auditing.finished import BatchOutput, BatchRecord, PairNulls
from evenhand.auditing.fitted import Fitted
from evenhand.auditing.triples import EvidenceSums
from evenhand.exceptions import InvalidInputError, StreamError
from evenhand.matching.diagnostics import MatchSums, Moments
from evenhand.metrics.reason_codes import ReasonCounts
from evenhand.metrics.triples import Triples, smallest_row
from evenhand.models.protocol import AuditedModel
from evenhand.system.files import remove_stale, write_atomically

_KNOWN = {
    kind.__name__: kind
    for kind in (
        AuditSums,
        BatchRecord,
        EvidenceSums,
        MatchSums,
        Moments,
        PairNulls,
        ReasonCounts,
        ScoreCounts,
    )
}


def encode(value: Any) -> bytes:
    """The content of a file of sums, arrays and plain data."""
    arrays: list[np.ndarray[Any, Any]] = []
    text = json.dumps(_plain(value, arrays))
    named: dict[str, Any] = {f"a{k}": array for k, array in enumerate(arrays)}
    file = BytesIO()
    np.savez(file, header=np.frombuffer(text.encode(), dtype=np.uint8), **named)
    return file.getvalue()


def save(path: str | os.PathLike[str], value: Any) -> None:
    """Write such a file, completely or not at all."""
    with write_atomically(path) as temporary:
        temporary.write_bytes(encode(value))


def load(path: str | os.PathLike[str]) -> Any:
    """Read what `save` wrote.

    Raises
    ------
    StreamError
        If the file is damaged.
    """
    try:
        with Path(path).open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            header = json.loads(file["header"].tobytes().decode())
            return _restored(header, {name: file[name] for name in file.files if name != "header"})
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
        raise StreamError(
            f"{os.fspath(path)!r} cannot be read ({error}); remove it to have its batch audited again."
        ) from error


def _plain(value: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if is_dataclass(value) and not isinstance(value, type):
        return {"kind": type(value).__name__, "fields": [_plain(getattr(value, f.name), arrays) for f in fields(value)]}
    if isinstance(value, dict):
        return {"items": [[_plain(k, arrays), _plain(v, arrays)] for k, v in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [_plain(item, arrays) for item in value]}
    if isinstance(value, list):
        return [_plain(item, arrays) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return value


def _restored(value: Any, arrays: dict[str, np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, list):
        return [_restored(item, arrays) for item in value]
    if not isinstance(value, dict):
        return value
    if "array" in value:
        return arrays[f"a{value['array']}"]
    if "tuple" in value:
        return tuple(_restored(item, arrays) for item in value["tuple"])
    if "items" in value:
        return {_restored(k, arrays): _restored(v, arrays) for k, v in value["items"]}
    kind: Any = _KNOWN[value["kind"]]
    return kind(*(_restored(item, arrays) for item in value["fields"]))


_ROWS_AT_ONCE = 4096  # rows that are split into columns while they are in the processor's cache
# Integers are stored in as few bytes as possible on disk, and converted to wider types in memory for calculation.
_ON_DISK = {
    "person": np.int64,
    "unit": np.int64,
    "person_row": np.int32,
    "bucket": np.int16,
    "other": np.int32,
    "own": np.int32,
    "match": np.int32,
    "group": np.int16,
    "other_group": np.int16,
    "label": np.int8,
    "rank": np.int8,
    "n_within": np.int16,
    "n_between": np.int16,
    "n_declined": np.int16,
}
_IN_MEMORY = dict.fromkeys(("group", "other_group"), np.int32)
_NO_LIMITS = np.dtype((np.int16, (0,)))
_KEPT = tuple(f.name for f in fields(Triples) if f.name not in ("by", "n_near"))


@dataclass(frozen=True)
class RowFile:
    """A `.npy` file whose rows are read a few at a time.

    Attributes
    ----------
    kind
        Type of a row.
    n_rows
        Number of rows.
    offset
        Where the first row starts, in bytes.
    """

    path: Path
    kind: np.dtype[Any]
    n_rows: int
    offset: int

    @classmethod
    def open(cls, path: Path) -> RowFile:
        """Read the header of the file.

        Raises
        ------
        StreamError
            If the file is damaged.

        Examples
        --------
        >>> import tempfile
        >>> path = Path(tempfile.mkdtemp()) / "rows.npy"
        >>> np.save(path, np.arange(6).reshape(3, 2))
        >>> RowFile.open(path).rows(1, 3)
        array([[2, 3],
               [4, 5]])
        """
        try:
            with path.open("rb") as file:
                version = npy.read_magic(file)
                read = npy.read_array_header_1_0 if version == (1, 0) else npy.read_array_header_2_0
                shape, is_fortran, dtype = read(file)
                offset = file.tell()
            kind = np.dtype((dtype, shape[1:]))
            if dtype.hasobject or is_fortran or path.stat().st_size != offset + shape[0] * kind.itemsize:
                raise ValueError("it is not as long as its header says")
        except (OSError, ValueError, IndexError) as error:
            raise StreamError(
                f"{str(path)!r} cannot be read ({error}); remove the .npz file next to it to have its batch audited "
                "again."
            ) from error
        return cls(path, kind, int(shape[0]), offset)

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """Rows from `start` to before `stop`."""
        found: NDArray[Any] = np.fromfile(
            self.path, self.kind, count=stop - start, offset=self.offset + start * self.kind.itemsize
        )
        return found


@dataclass(frozen=True)
class Slice:
    """Rows of a file of triples.

    Attributes
    ----------
    file, near
        The triples, and their numbers within the distance limits, once these are known.
    start, stop
        The first row, and the one after the last.
    codes
        Converts the file's codes of each column to split by to those of all files.
    """

    file: RowFile
    near: RowFile | None
    start: int
    stop: int
    codes: Mapping[str, Ints]

    def __len__(self) -> int:
        return self.stop - self.start


def by_smallest_row(part: Triples) -> tuple[Ints, int]:
    """The order with people outside the reference first, sorted by their lower row; and the number of their triples."""
    is_inside = part.person_row >= 0
    lowest = smallest_row(part)
    order = np.argsort(lowest + is_inside * (lowest.max(initial=0) + 1), kind="stable")
    return order, int((~is_inside).sum())


def encode_index(part: Triples, order: Ints) -> NDArray[np.uint8]:
    """The distance and the lower row of each triple, which are searched in all files."""
    return _npy({"distance": part.distance, "smallest_row": smallest_row(part).astype(np.int32)}, order)


def encode_triples(part: Triples, order: Ints) -> NDArray[np.uint8]:
    """The content of the file of triples; columns to split by are stored in order, without names."""
    columns = {name: getattr(part, name) for name in _KEPT}
    columns |= {_by_name(place): codes for place, codes in enumerate(part.by.values())}
    return _npy({n: v.astype(_ON_DISK.get(n, _plain_kind(n, v)), copy=False) for n, v in columns.items()}, order)


def read_triples(slices: Sequence[Slice], before: Triples | None = None) -> Triples:
    """The triples of several slices, one after the other, after those of `before`.

    Parameters
    ----------
    slices
        At least one, all with the same columns.
    before
        Triples that are already in memory.
    """
    first = 0 if before is None else len(before)
    n = first + sum(len(part) for part in slices)
    kind = slices[0].file.kind
    columns: dict[str, NDArray[Any]] = {}
    for name in _KEPT:
        base, shape = (kind[name].base, kind[name].shape)
        columns[name] = np.empty((n, *shape), dtype=_IN_MEMORY.get(name, base))
    near_kind = _NO_LIMITS if slices[0].near is None else slices[0].near.kind
    n_near: NDArray[Any] = np.empty((n, *near_kind.shape), near_kind.base)
    by = {name: np.empty(n, dtype=np.int64) for name in slices[0].codes}
    if before is not None:
        for name, values in columns.items():
            values[:first] = getattr(before, name)
        n_near[:first] = before.n_near
        for name, codes in by.items():
            codes[:first] = before.by[name]
    for part in slices:
        for start in range(part.start, part.stop, _ROWS_AT_ONCE):
            stop = min(start + _ROWS_AT_ONCE, part.stop)
            place = slice(first, first + stop - start)
            records = part.file.rows(start, stop)
            for name, values in columns.items():
                values[place] = records[name]
            if part.near is not None:
                n_near[place] = part.near.rows(start, stop)
            for k, (name, codes) in enumerate(part.codes.items()):
                by[name][place] = codes[records[_by_name(k)]]
            first = place.stop
    return Triples(**columns, n_near=n_near, by=by)


def _npy(columns: Mapping[str, NDArray[Any]], order: Ints) -> NDArray[np.uint8]:
    """A `.npy` file of records with the columns' values in a given order, assembled in place."""
    kind = np.dtype([(name, values.dtype, values.shape[1:]) for name, values in columns.items()])
    header = BytesIO()
    npy.write_array_header_1_0(
        header, {"descr": npy.dtype_to_descr(kind), "fortran_order": False, "shape": (len(order),)}
    )
    content = np.empty(header.tell() + len(order) * kind.itemsize, dtype=np.uint8)
    content[: header.tell()] = np.frombuffer(header.getvalue(), dtype=np.uint8)
    records = content[header.tell() :].view(kind)
    # Torch releases the interpreter lock while it takes rows; NumPy does not.
    rows = torch.from_numpy(order)
    ordered = {name: torch.from_numpy(values).index_select(0, rows).numpy() for name, values in columns.items()}
    for first in range(0, len(order), _ROWS_AT_ONCE):
        place = slice(first, first + _ROWS_AT_ONCE)
        for name, values in ordered.items():
            records[name][place] = values[place]
    return content


def _by_name(place: int) -> str:
    return f"by {place}"


def _plain_kind(name: str, values: NDArray[Any]) -> np.dtype[Any]:
    return np.dtype(np.int32) if name.startswith("by ") else values.dtype


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
        contents["nulls.npz"] = pa.py_buffer(encode(output.nulls))
    contents["npz"] = pa.py_buffer(encode(record))
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
        found: BatchRecord = load(self._file(number, "npz"))
        return found

    def nulls(self, number: int) -> PairNulls:
        """The values from which the q-values of a batch's pairs are computed."""
        found: PairNulls = load(self._file(number, "nulls.npz"))
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


_NAME = "manifest.json"
_FORM = "evenhand.stream/3"
_PROBE_PEOPLE = 64
_SAME = 1e-4  # scores of the same model agree better than this on any machine


def model_probe(model: AuditedModel, reference: Fitted) -> dict[str, Any]:
    """A description of a model and its scores of a few people, to recognize a different model."""
    n = len(reference.pool)
    rows = torch.as_tensor(np.linspace(0, n - 1, min(n, _PROBE_PEOPLE)).astype(np.int64), device=model.device)
    with torch.no_grad():
        scores = model.margin(reference.pool.x[rows]).double().cpu().numpy()
    return {"kind": model.kind, "scores": scores.tolist()}


def is_begun(store: Store) -> bool:
    """Whether a folder holds an audit."""
    return store.read_json(_NAME) is not None


def check_resumable(
    store: Store,
    *,
    resume: bool,
    source: str,
    reference: str,
    model: Mapping[str, Any],
    settings: Mapping[str, Any],
) -> None:
    """Write the manifest of a new audit, or compare it with that of the audit to resume.

    Raises
    ------
    InvalidInputError
        If the folder holds an audit and `resume` is False, or holds a different audit.
    """
    now = json.loads(
        json.dumps(
            {
                "form": _FORM,
                "evenhand": __version__,
                "source": source,
                "reference": reference,
                "model": dict(model),
                "settings": dict(settings),
            }
        )
    )
    before = store.read_json(_NAME)
    if before is None:
        store.write_json(_NAME, now)
        return
    if not resume:
        raise InvalidInputError(
            f"`out` already holds an audit, {str(store.folder)!r}; pass `resume=True` (--resume) to continue it, or "
            "choose a different folder."
        )
    changed = _changes(before, now)
    if changed:
        raise InvalidInputError(
            f"The audit in {str(store.folder)!r} cannot be resumed because {'; '.join(changed)}. Start again in "
            "a different folder, or restore what it was started with."
        )


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs, in words."""
    found = []
    if before.get("form") != now["form"] or before.get("evenhand") != now["evenhand"]:
        found.append(f"it was started with evenhand {before.get('evenhand')} and this is {now['evenhand']}")
    if before.get("source") != now["source"]:
        found.append("the source has changed")
    is_same_reference = before.get("reference") == now["reference"]
    # The scores of different people say nothing about the model.
    if is_same_reference and not _is_same_model(before.get("model", {}), now["model"]):
        found.append("the model has changed")
    old, new = before.get("settings", {}), now["settings"]
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    found += [f"{name} was {old.get(name)!r} and is {new.get(name)!r}" for name in names]
    if not found and not is_same_reference:
        found.append("the reference has changed")
    return found


def _is_same_model(before: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    first, second = before.get("scores", []), now["scores"]
    if before.get("kind") != now["kind"] or len(first) != len(second):
        return False
    return bool(np.allclose(first, second, rtol=_SAME, atol=_SAME))
