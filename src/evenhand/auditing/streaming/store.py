"""The folder of a streamed audit: the output of each finished batch, and how it is read back."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import cached_property, partial
from io import BytesIO
from pathlib import Path
from typing import Any, TypeVar
from zipfile import BadZipFile

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from evenhand.arrays import Floats, Ints, as_numpy, double, like
from evenhand.auditing.batches import BatchOutput, Merged, PairNulls
from evenhand.auditing.fitted import Fitted
from evenhand.exceptions import InvalidInputError, StreamError
from evenhand.metrics.score_gap import LeafPeople
from evenhand.metrics.triples import Parts, Triples, range_limits, smallest_row, triples_by_range
from evenhand.system import __version__
from evenhand.system.files import remove_stale, write_atomically, write_text
from evenhand.system.threads import Crew, Later

T = TypeVar("T")


def encode(value: Any) -> bytes:
    """The content of a file of sums, arrays and plain data."""
    arrays: list[np.ndarray[Any, Any]] = []
    text = json.dumps(_plain(value, arrays))
    named: dict[str, Any] = {f"a{k}": array for k, array in enumerate(arrays)}
    file = BytesIO()
    np.savez(file, header=np.frombuffer(text.encode(), dtype=np.uint8), **named)
    return file.getvalue()


def load(path: Path, kind: type[T]) -> T:
    """Read a file of what `encode` returned for a value of some kind.

    Raises
    ------
    StreamError
        If the file is damaged.
    """
    try:
        with path.open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            value = json.loads(file["header"].tobytes(), object_hook=partial(_restored, file))
        if not isinstance(value, kind):
            raise TypeError(f"it holds no {kind.__name__}")
    except (OSError, ValueError, KeyError, TypeError, EOFError, BadZipFile) as error:
        raise StreamError(
            f"{str(path)!r} cannot be read ({error}); remove it to have its batch audited again."
        ) from error
    return value


def _plain(value: Any, arrays: list[np.ndarray[Any, Any]]) -> Any:
    if isinstance(value, np.ndarray):
        arrays.append(value)
        return {"array": len(arrays) - 1}
    if is_dataclass(value) and not isinstance(value, type):
        kind = f"{type(value).__module__}:{type(value).__name__}"
        return {"kind": kind, "fields": [_plain(getattr(value, f.name), arrays) for f in fields(value)]}
    if isinstance(value, dict):
        return {"items": [[_plain(k, arrays), _plain(v, arrays)] for k, v in value.items()]}
    if isinstance(value, tuple):
        return {"tuple": [_plain(item, arrays) for item in value]}
    if isinstance(value, list):
        return [_plain(item, arrays) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return value


def _restored(arrays: Mapping[str, np.ndarray[Any, Any]], value: dict[str, Any]) -> Any:
    """What an object of the header stands for; those inside it are restored before it."""
    if "array" in value:
        return arrays[f"a{value['array']}"]
    if "tuple" in value:
        return tuple(value["tuple"])
    if "items" in value:
        return dict(value["items"])
    module, _, name = value["kind"].partition(":")
    kind: Any = getattr(sys.modules.get(module), name, None)
    if not module.startswith("evenhand.") or not isinstance(kind, type) or not is_dataclass(kind):
        raise ValueError(f"{value['kind']!r} is not a kind of sums")
    return kind(*value["fields"])


_ROWS_AT_ONCE = 4096  # rows that are split into columns while they are in the processor's cache
# Integers are stored in as few bytes as possible on disk, and converted to wider types in memory for calculation.
_ON_DISK = {
    **dict.fromkeys(("person", "unit"), np.int64),
    **dict.fromkeys(("person_row", "other", "own"), np.int32),
    **dict.fromkeys(("bucket", "group", "other_group", "n_within", "n_between", "n_declined"), np.int16),
    **dict.fromkeys(("label", "rank"), np.int8),
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
            rows = np.load(path, mmap_mode="r")
            if path.stat().st_size != rows.offset + rows.nbytes:
                raise ValueError("it is not as long as its header says")
        except (OSError, ValueError, EOFError) as error:
            raise StreamError(
                f"{str(path)!r} cannot be read ({error}); remove the .npz file next to it to have its batch audited "
                "again."
            ) from error
        return cls(path, np.dtype((rows.dtype, rows.shape[1:])), len(rows), rows.offset)

    def rows(self, start: int, stop: int) -> NDArray[Any]:
        """Rows from `start` to before `stop`."""
        start_byte = self.offset + start * self.kind.itemsize
        rows: NDArray[Any] = np.fromfile(self.path, self.kind, count=stop - start, offset=start_byte)
        return rows


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
    n = first + sum(map(len, slices))
    kind, near = slices[0].file.kind, slices[0].near
    near_kind = _NO_LIMITS if near is None else near.kind
    columns: dict[str, NDArray[Any]] = {
        name: np.empty((n, *kind[name].shape), dtype=_IN_MEMORY.get(name, kind[name].base)) for name in _KEPT
    }
    columns["n_near"] = np.empty((n, *near_kind.shape), dtype=near_kind.base)
    by = {name: np.empty(n, dtype=np.int64) for name in slices[0].codes}
    if before is not None:
        for name, values in columns.items():
            values[:first] = getattr(before, name)
        for name, codes in by.items():
            codes[:first] = before.by[name]
    for part in slices:
        for start in range(part.start, part.stop, _ROWS_AT_ONCE):
            stop = min(start + _ROWS_AT_ONCE, part.stop)
            place = slice(first, first + stop - start)
            records = part.file.rows(start, stop)
            for name in _KEPT:
                columns[name][place] = records[name]
            if part.near is not None:
                columns["n_near"][place] = part.near.rows(start, stop)
            for k, (name, codes) in enumerate(part.codes.items()):
                by[name][place] = codes[records[f"by {k}"]]
            first = place.stop
    return Triples(**columns, by=by)


def _npy(columns: Mapping[str, NDArray[Any]], order: Ints) -> pa.Buffer:
    """A `.npy` file of records with the columns' values in a given order."""
    records = np.empty(len(order), [(name, values.dtype, values.shape[1:]) for name, values in columns.items()])
    for name, values in columns.items():
        records[name] = values.take(order, axis=0)
    file = BytesIO()
    np.save(file, records)
    return pa.py_buffer(file.getbuffer())


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


BatchFiles = dict[str, pa.Buffer]
"""Files of a batch by their paths in the folder of the audit; the last one marks the batch as finished."""

# Types of the columns of pairs and reasons, the same for every batch, whatever its values; other columns are numbers.
_COLUMN_TYPES = {
    **dict.fromkeys(("person", "match", "label", "decision", "match_decision"), pa.int64()),
    **dict.fromkeys(("person_id", "match_id", "group", "other_group", "regime"), pa.string()),
    "is_negligible": pa.bool_(),
}


# A batch has some of these; the last one marks it as finished.
_ENDINGS = ("pairs", "reasons", "screened.parquet", "triples.npy", "index.npy", "nulls.npz", "leaves.npz", "npz")


def _name(number: int, ending: str) -> str:
    """Path of a file of a batch; the tables of pairs and of reasons have separate folders."""
    is_table = ending in ("pairs", "reasons")
    return f"{ending}/part-{number:06d}.parquet" if is_table else f"batches/{number:06d}.{ending}"


def encode_batch(output: BatchOutput) -> BatchFiles:
    """The files of a batch, created where it is audited."""
    record, contents = output.record, BatchFiles()
    if output.pairs is not None:
        contents["pairs"] = _parquet(
            output.pairs, {name: _COLUMN_TYPES.get(name, pa.float64()) for name in output.pairs}
        )
    if output.reasons is not None:
        names = map(str, output.reasons)
        kinds = {n: pa.float64() if n.startswith("share_") else _COLUMN_TYPES.get(n, pa.string()) for n in names}
        contents["reasons"] = _parquet(output.reasons, kinds)
    if output.screened is not None and len(output.screened):
        contents["screened.parquet"] = _parquet(output.screened)
    if (triples := output.triples) is not None:
        # People outside the reference come first, sorted by their lower row.
        is_inside, lowest = triples.person_row >= 0, smallest_row(triples)
        order = np.argsort(lowest + is_inside * (lowest.max(initial=0) + 1), kind="stable")
        record = replace(record, n_outside={output.number: int((~is_inside).sum())})
        stored = {name: getattr(triples, name) for name in _KEPT}
        stored = {name: v.astype(_ON_DISK.get(name, v.dtype), copy=False) for name, v in stored.items()}
        stored |= {f"by {k}": codes.astype(np.int32, copy=False) for k, codes in enumerate(triples.by.values())}
        contents["triples.npy"] = _npy(stored, order)
        contents["index.npy"] = _npy({"distance": triples.distance, "smallest_row": lowest.astype(np.int32)}, order)
        contents["nulls.npz"] = pa.py_buffer(encode(output.nulls))
        contents["leaves.npz"] = pa.py_buffer(encode(output.leaf_people))
    contents["npz"] = pa.py_buffer(encode(record))
    return {_name(output.number, ending): content for ending, content in contents.items()}


def _parquet(table: pd.DataFrame, kinds: Mapping[Any, pa.DataType] | None = None) -> pa.Buffer:
    sink = pa.BufferOutputStream()
    schema = None if kinds is None else pa.schema(dict(kinds))
    is_indexed = table.index.nlevels > 1
    pq.write_table(pa.Table.from_pandas(table, schema, preserve_index=is_indexed, nthreads=1), sink)
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
            folder.mkdir(0o700, parents=True, exist_ok=True)
            write_text(folder / ".writable", "").unlink()
            remove_stale([folder, *(path for path in folder.iterdir() if path.is_dir())])
        except OSError as error:
            raise InvalidInputError(
                f"`out` must be a folder that can be written, got {str(folder)!r}: {error.strerror or error}."
            ) from error
        return cls(folder)

    def _file(self, number: int, ending: str) -> Path:
        return self.folder / _name(number, ending)

    def finished(self) -> set[int]:
        """Numbers of the batches that have all their files."""
        return {int(path.stem) for path in (self.folder / "batches").glob("[0-9]*.npz") if path.stem.isdigit()}

    def write(self, number: int, files: Mapping[str, pa.Buffer | bytes]) -> None:
        """Keep the output of a batch; the file that marks it as finished comes last.

        Raises
        ------
        StreamError
            If these are not the files of the batch: they may come from a different machine.
        """
        names = [_name(number, ending) for ending in _ENDINGS]
        are_known = isinstance(files, Mapping) and names[-1] in files and files.keys() <= set(names)
        if not are_known or not all(isinstance(content, (pa.Buffer, bytes)) for content in files.values()):
            raise StreamError(
                f"A worker answered with something other than the files of batch {number}; nothing of it was kept."
            )
        for name, content in ((name, files[name]) for name in names if name in files):
            with write_atomically(self.folder / name) as temporary, temporary.open("wb") as file:
                file.write(content)

    def record(self, number: int) -> Merged:
        """The small results of a batch."""
        return load(self._file(number, "npz"), Merged)

    def nulls(self, number: int) -> PairNulls:
        """The values from which the q-values of a batch's pairs are computed."""
        return load(self._file(number, "nulls.npz"), PairNulls)

    def screened(self, number: int) -> pd.DataFrame | None:
        """The people of a batch who are screened for proxies."""
        path = self._file(number, "screened.parquet")
        return pd.read_parquet(path) if path.exists() else None

    def pair_column(self, number: int, *columns: str) -> list[NDArray[Any]]:
        """Columns of the pair table of a batch."""
        table = pq.read_table(self._file(number, "pairs"), columns=list(columns))
        return [table.column(name).to_numpy() for name in columns]

    def table(self, number: int, what: str) -> pd.DataFrame:
        """The table of a batch's "pairs" or "reasons"."""
        return pd.read_parquet(self._file(number, what))

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

    def index(self, number: int, n: int | None = None) -> NDArray[Any]:
        """The distance and the lower reference row of a batch's triples, or of the first `n`."""
        file = RowFile.open(self._file(number, "index.npy"))
        return file.rows(0, file.n_rows if n is None else n)

    def distances(self, number: int) -> Floats:
        """Distances of the triples of a batch."""
        distances: Floats = np.ascontiguousarray(self.index(number)["distance"])
        return distances

    def write_json(self, name: str, value: Mapping[str, Any]) -> None:
        """Write plain data."""
        write_text(self.folder / name, json.dumps(value, indent=2, sort_keys=True) + "\n")

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
            value: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        except ValueError as error:
            raise StreamError(f"{str(path)!r} is damaged ({error}); start again in a different folder.") from error
        return value


MANIFEST = "manifest.json"
_FORM = "evenhand.stream/6"
_PROBE_PEOPLE = 64
_SAME = 1e-4  # scores of the same model agree better than this on any machine


def check_resumable(
    store: Store, fitted: Fitted, *, resume: bool, source: str, reference: str, settings: Mapping[str, Any]
) -> None:
    """Write the manifest of a new audit, or compare it with that of the audit to resume.

    Raises
    ------
    InvalidInputError
        If the folder holds an audit and `resume` is False, or holds a different audit.
    """
    # The scores of a few people, by which a different model is recognized.
    model, n = fitted.model, len(fitted.pool)
    rows = np.linspace(0, n - 1, min(n, _PROBE_PEOPLE)).astype(np.int64)
    scores = as_numpy(double(model.margin(fitted.pool.x[like(rows, fitted.pool.x)])))
    manifest = {
        "form": _FORM,
        "evenhand": __version__,
        "source": source,
        "reference": reference,
        "model": {"kind": model.kind, "scores": scores.tolist()},
        "settings": settings,
    }
    before, now = store.read_json(MANIFEST), json.loads(json.dumps(manifest))
    if before is None:
        store.write_json(MANIFEST, now)
    elif not resume:
        raise InvalidInputError(
            f"`out` already holds an audit, {str(store.folder)!r}; pass `resume=True` (--resume) to continue it, or "
            "choose a different folder."
        )
    elif changes := _changes(before, now):
        raise InvalidInputError(
            f"The audit in {str(store.folder)!r} cannot be resumed because {'; '.join(changes)}. Start again in "
            "a different folder, or restore what it was started with."
        )


def _changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What differs, in words."""
    changes = []
    if before.get("form") != now["form"] or before.get("evenhand") != now["evenhand"]:
        changes.append(f"it was started with evenhand {before.get('evenhand')} and this is {now['evenhand']}")
    if before.get("source") != now["source"]:
        changes.append("the source has changed")
    is_same_reference = before.get("reference") == now["reference"]
    first, second = before.get("model", {}), now["model"]
    # The scores of different people say nothing about the model.
    if is_same_reference and not (
        first.get("kind") == second["kind"]
        and len(first["scores"]) == len(second["scores"])
        and np.allclose(first["scores"], second["scores"], rtol=_SAME, atol=_SAME)
    ):
        changes.append("the model has changed")
    old, new = before.get("settings", {}), now["settings"]
    names = sorted(name for name in {*old, *new} if old.get(name) != new.get(name))
    changes += [f"{name} was {old.get(name)!r} and is {new.get(name)!r}" for name in names]
    if not changes and not is_same_reference:
        changes.append("the reference has changed")
    return changes


def _codes_of_splits(merged: Merged) -> dict[int, dict[str, Ints]]:
    """For each batch, how its codes of the columns to split by map to those of all batches."""
    values = merged.sums.by
    return {
        number: {
            name: np.array([values[name].index(value) for value in texts], dtype=np.int64) for name, texts in by.items()
        }
        for number, by in merged.by_values.items()
    }


_RANGES, _FEWEST_IN_RANGE, _MOST_IN_RANGE = 64, 50_000, 200_000  # enough work for many cores


@dataclass(frozen=True, eq=False)
class StoredBatches(Store):
    """The finished batches of a folder: a `FinishedBatches`.

    Attributes
    ----------
    all_numbers
        Every batch, including those without people.
    crew
        Workers that read files at the same time; the metrics are the same to the last bit for any.
    """

    all_numbers: Sequence[int]
    crew: Crew

    def leaf_people(self, merged: Merged) -> Iterable[LeafPeople]:
        """The people of all batches in their leaves."""
        codes, file = _codes_of_splits(merged), self._file

        def read(number: int) -> LeafPeople:
            people = load(file(number, "leaves.npz"), LeafPeople)
            return replace(people, by={name: codes[number][name][values] for name, values in people.by.items()})

        return Later(read, merged.numbers)

    def triples(self, merged: Merged, limits: Sequence[float], n_reference: int) -> Parts:
        """The triples of all batches, with each person's number within limits of distance."""
        assert merged.sums.evidence is not None
        codes = _codes_of_splits(merged)

        def write_near(number: int) -> None:
            near = read_triples([self.slice_of(number, codes[number])]).within(limits).n_near
            with write_atomically(self._file(number, "near.npy")) as temporary, temporary.open("wb") as file:
                np.save(file, near.astype(np.int16))

        for _ in self.crew.in_order(write_near, merged.numbers):
            pass
        return StoredTriples(self, merged.n_outside, codes, n_reference, merged.sums.evidence.n_left_out)


@dataclass(frozen=True, eq=False)
class StoredTriples:
    """The triples of all batches: a `metrics.triples.Parts`.

    Attributes
    ----------
    store
        Where they are.
    n_outside
        For each batch with triples, how many belong to people outside the reference.
    codes
        For each batch, how its codes of the columns to split by map to those of all batches.
    """

    store: Store
    n_outside: Mapping[int, int]
    codes: Mapping[int, Mapping[str, Ints]]
    n_reference: int
    n_left_out: int

    @cached_property
    def _files(self) -> dict[int, Slice]:
        """All triples of each batch."""
        return {number: self.store.slice_of(number, self.codes[number]) for number in self.n_outside}

    def parts(self) -> Iterable[Triples]:
        """The triples of each batch."""
        return Later(lambda part: read_triples([part]), tuple(self._files.values()))

    def ranges(self) -> Iterable[tuple[Triples, int, int]]:
        """Triples by ranges of the reference."""
        limits, files, inside = self._limits, self._files, self._inside  # what is sent to processes
        places = {
            number: np.searchsorted(self.store.index(number, n)["smallest_row"], limits).tolist()
            for number, n in self.n_outside.items()
        }
        places_inside = triples_by_range(inside, limits)

        def read(k: int) -> tuple[Triples, int, int]:
            low, high = limits[k : k + 2]
            slices = [replace(files[number], start=place[k], stop=place[k + 1]) for number, place in places.items()]
            return read_triples(slices, inside.rows(places_inside[k])), low, high

        return Later(read, range(len(limits) - 1))

    @cached_property
    def _limits(self) -> list[int]:
        """Ends of ranges of the reference with about the same number of triples each."""
        counts = np.zeros(self.n_reference, dtype=np.int64)
        for number, n in self.n_outside.items():
            counts += np.bincount(self.store.index(number, n)["smallest_row"], minlength=self.n_reference)
        if len(self._inside):
            counts += np.bincount(smallest_row(self._inside), minlength=self.n_reference)
        return range_limits(counts, min(max(counts.sum() // _RANGES, _FEWEST_IN_RANGE), _MOST_IN_RANGE))

    @cached_property
    def _inside(self) -> Triples:
        """Triples of people in the reference, whose number does not exceed its size."""
        return read_triples([replace(self._files[number], start=n) for number, n in self.n_outside.items()])
