"""The folder of a streamed audit: what each finished batch left, and the comparisons read back from it."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evenhand.clustering import smallest_row
from evenhand.comparisons import Comparisons
from evenhand.exceptions import InvalidInputError, StreamError
from evenhand.files import write_atomically
from evenhand.findings import AuditSums
from evenhand.scale import codec
from evenhand.scale.batches import BatchOutput, PairNulls

if TYPE_CHECKING:
    import pandas as pd
    import pyarrow as pa

__all__ = ["BatchRecord", "Store", "StoredComparisons", "writing"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_ROWS_IN_RANGE = 200_000
# How comparisons are kept on disk; read back, whole numbers have 64 bits again.
_TYPES = {
    "person": np.int64,
    "person_row": np.int32,
    "other": np.int32,
    "own": np.int32,
    "group": np.int16,
    "other_group": np.int16,
    "label": np.int8,
    "rank": np.int8,
    "n_within": np.int16,
    "n_between": np.int16,
}


@dataclass(frozen=True, eq=False)
class BatchRecord:
    """What is kept in one small file for each finished batch."""

    number: int
    exclusions: Mapping[str, int]
    sums: AuditSums | None
    distributions: dict[str, Any] | None
    n_outside: int


@contextmanager
def writing(folder: Path, kept: str) -> Iterator[None]:
    """Turn a write that fails into a sentence on what is kept.

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


@dataclass(frozen=True)
class Store:
    """The folder of a streamed audit."""

    folder: Path

    @property
    def pairs(self) -> Path:
        """Folder of the pair table, a Parquet file for each batch."""
        return self.folder / "pairs"

    def pairs_file(self, number: int) -> Path:
        """The pair table of one batch."""
        return self.pairs / f"part-{number:06d}.parquet"

    def _file(self, number: int, ending: str) -> Path:
        return self.folder / "batches" / f"{number:06d}.{ending}"

    def is_finished(self, number: int) -> bool:
        """Whether a batch left everything that it has to."""
        return self._file(number, "npz").exists()

    def write(self, output: BatchOutput) -> None:
        """Keep what a batch gave; the file that marks it as finished comes last."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        n_outside = 0
        if output.pairs is not None:
            with write_atomically(self.pairs_file(output.number)) as temporary:
                pq.write_table(pa.Table.from_pandas(output.pairs, _pair_schema(), preserve_index=False), temporary)
        if output.screened is not None and output.screened_groups is not None and len(output.screened):
            table = pa.Table.from_pandas(output.screened, preserve_index=False)
            table = table.append_column("", pa.array(output.screened_groups))
            with write_atomically(self._file(output.number, "screened.parquet")) as temporary:
                pq.write_table(table, temporary)
        if output.comparisons is not None and output.nulls is not None:
            ordered, n_outside = _by_smallest_row(output.comparisons)
            with write_atomically(self._file(output.number, "arrow")) as temporary:
                _write_comparisons(ordered, temporary)
            nulls = {f.name: getattr(output.nulls, f.name) for f in fields(PairNulls)}
            codec.save(self._file(output.number, "nulls.npz"), nulls)
        record = {
            "number": output.number,
            "exclusions": dict(output.exclusions),
            "sums": output.sums,
            "distributions": output.distributions,
            "n_outside": n_outside,
        }
        codec.save(self._file(output.number, "npz"), record)

    def record(self, number: int) -> BatchRecord:
        """What is kept of a batch."""
        return BatchRecord(**codec.load(self._file(number, "npz")))

    def nulls(self, number: int) -> PairNulls:
        """What the q-values of a batch's pairs are made from."""
        return PairNulls(**codec.load(self._file(number, "nulls.npz")))

    def screened(self, number: int) -> tuple[pd.DataFrame, Ints] | None:
        """Features and groups of the people of a batch who are screened for proxies."""
        import pandas as pd

        path = self._file(number, "screened.parquet")
        if not path.exists():
            return None
        table = pd.read_parquet(path)
        return table.drop(columns=""), table[""].to_numpy(dtype=np.int64)

    def pair_column(self, number: int, *columns: str) -> list[NDArray[Any]]:
        """Columns of the pair table of a batch."""
        import pyarrow.parquet as pq

        table = pq.read_table(self.pairs_file(number), columns=list(columns))
        return [table.column(name).to_numpy() for name in columns]

    def pair_table(self, number: int) -> pd.DataFrame:
        """The pair table of a batch."""
        import pandas as pd

        return pd.read_parquet(self.pairs_file(number))

    def write_q_values(self, number: int, q_value: Floats) -> None:
        """Put q-values into the pair table of a batch."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        path = self.pairs_file(number)
        table = pq.read_table(path)
        table = table.set_column(table.schema.get_field_index("q_value"), "q_value", pa.array(q_value))
        with write_atomically(path) as temporary:
            pq.write_table(table, temporary)

    def comparisons(self, number: int, codes: Mapping[str, Ints], rows: slice = slice(None)) -> Comparisons:
        """Comparisons of a batch; `codes` turns the batch's codes of the columns to split by into those of all."""
        table = _open_comparisons(self._file(number, "arrow"))
        start, stop, _ = rows.indices(len(table))
        table = table.slice(start, stop - start)
        near = self._file(number, "near.npy")
        found = _read_comparisons(table, codes)
        if near.exists():
            found = replace(found, n_near=np.load(near, mmap_mode="r")[start:stop].astype(np.int64))
        return found

    def write_near(self, number: int, n_near: Ints) -> None:
        """Keep the numbers of comparisons within the limits of distance."""
        with write_atomically(self._file(number, "near.npy")) as temporary, temporary.open("wb") as file:
            np.save(file, n_near.astype(np.int16))

    def distances(self, number: int) -> Floats:
        """Distances of the comparisons of a batch."""
        found: Floats = _column(_open_comparisons(self._file(number, "arrow")), "distance").astype(np.float64)
        return found

    def smallest_rows(self, number: int, n_outside: int) -> Ints:
        """The lower of the two rows of the reference in each comparison of someone outside it, ascending."""
        table = _open_comparisons(self._file(number, "arrow")).slice(0, n_outside)
        rows: Ints = np.minimum(_column(table, "other"), _column(table, "own")).astype(np.int64)
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
            raise StreamError(f"{str(path)!r} is damaged ({error}); begin again in another folder.") from error
        return found

    def check_writable(self) -> None:
        """Refuse a folder that cannot be written.

        Raises
        ------
        InvalidInputError
            If it is a file, or nothing can be written in it.
        """
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with write_atomically(self.folder / ".writable") as temporary:
                temporary.write_text("", encoding="utf-8")
            (self.folder / ".writable").unlink()
        except OSError as error:
            raise InvalidInputError(
                f"`out` must be a folder that can be written, got {str(self.folder)!r}: {error.strerror or error}."
            ) from error


@dataclass(frozen=True, eq=False)
class StoredComparisons:
    """The comparisons of all batches: a `clustering.Parts`.

    Attributes
    ----------
    store
        Where they are.
    n_outside
        By batch with comparisons, how many are of people outside the reference.
    codes
        By batch, what turns its codes of the columns to split by into those of all batches.
    """

    store: Store
    n_outside: Mapping[int, int]
    codes: Mapping[int, Mapping[str, Ints]]
    n_reference: int
    n_left_out: int

    def parts(self) -> Iterator[Comparisons]:
        """The comparisons of each batch."""
        for number in self.n_outside:
            yield self.store.comparisons(number, self.codes[number])

    def ranges(self) -> Iterator[tuple[Comparisons, int, int]]:
        """Comparisons by ranges of the reference."""
        for low, high in self._limits:
            pieces = [self._inside_between(low, high)]
            for number, n in self.n_outside.items():
                first, last = np.searchsorted(self.store.smallest_rows(number, n), [low, high])
                if first < last:
                    pieces.append(self.store.comparisons(number, self.codes[number], slice(int(first), int(last))))
            joined = [piece for piece in pieces if len(piece)]
            if joined:
                yield _joined(joined), low, high

    @cached_property
    def _limits(self) -> list[tuple[int, int]]:
        """Ranges of the reference with about as many comparisons each."""
        counts = np.zeros(self.n_reference, dtype=np.int64)
        for number, n in self.n_outside.items():
            counts += np.bincount(self.store.smallest_rows(number, n), minlength=self.n_reference)
        if len(self._inside):
            counts += np.bincount(smallest_row(self._inside), minlength=self.n_reference)
        place = np.cumsum(counts) // _ROWS_IN_RANGE
        cuts = [0, *(np.flatnonzero(np.diff(place)) + 1).tolist(), self.n_reference]
        return list(pairwise(cuts))

    @cached_property
    def _inside(self) -> Comparisons:
        """Comparisons of people of the reference, who are no more than it has."""
        pieces = [
            self.store.comparisons(number, self.codes[number], slice(n, None)) for number, n in self.n_outside.items()
        ]
        return _joined(pieces)

    def _inside_between(self, low: int, high: int) -> Comparisons:
        part = self._inside
        pairs = ((part.other, part.own), (part.person_row, part.other), (part.person_row, part.own))
        lower = [np.minimum(first, second) for first, second in pairs]
        return _taken(part, np.flatnonzero(np.logical_or.reduce([(low <= u) & (u < high) for u in lower])))


def _pair_schema() -> pa.Schema:
    import pyarrow as pa

    kinds = {
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
    return pa.schema(list(kinds.items()))


def _by_smallest_row(part: Comparisons) -> tuple[Comparisons, int]:
    """People outside the reference first, by the lower row of their couple; how many comparisons are theirs."""
    is_inside = part.person_row >= 0
    order = np.lexsort((np.arange(len(part)), smallest_row(part), is_inside))
    return _taken(part, order), int((~is_inside).sum())


def _taken(part: Comparisons, rows: Ints) -> Comparisons:
    plain = {f.name: getattr(part, f.name)[rows] for f in fields(part) if f.name != "by"}
    return Comparisons(**plain, by={name: codes[rows] for name, codes in part.by.items()})


def _joined(parts: Sequence[Comparisons]) -> Comparisons:
    plain = {
        f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Comparisons) if f.name != "by"
    }
    return Comparisons(**plain, by={name: np.concatenate([part.by[name] for part in parts]) for name in parts[0].by})


def _write_comparisons(part: Comparisons, path: os.PathLike[str]) -> None:
    import pyarrow as pa

    columns: dict[str, Any] = {}
    for field in fields(part):
        if field.name in ("by", "n_near"):
            continue
        values = getattr(part, field.name)
        kind = _TYPES.get(field.name)
        values = values.astype(np.uint8) if values.dtype == bool else values if kind is None else values.astype(kind)
        columns[field.name] = values
    columns |= {f"by {name}": codes.astype(np.int32) for name, codes in part.by.items()}
    arrays = {
        name: pa.array(values)
        if values.ndim == 1
        else pa.FixedSizeListArray.from_arrays(pa.array(np.ascontiguousarray(values).ravel()), values.shape[1])
        for name, values in columns.items()
    }
    table = pa.table(arrays)
    with pa.OSFile(os.fspath(path), "wb") as file, pa.ipc.new_file(file, table.schema) as writer:
        writer.write_table(table)


def _open_comparisons(path: Path) -> pa.Table:
    import pyarrow as pa

    try:
        with pa.memory_map(os.fspath(path)) as file:
            return pa.ipc.open_file(file).read_all()
    except (OSError, pa.ArrowException) as error:
        raise StreamError(
            f"{str(path)!r} cannot be read ({error}); remove the .npz file beside it to have its batch audited again."
        ) from error


def _column(table: pa.Table, name: str) -> NDArray[Any]:
    import pyarrow as pa

    column = table.column(name)
    column = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    if pa.types.is_fixed_size_list(column.type):
        width = column.type.list_size
        flat: NDArray[Any] = column.flatten().to_numpy(zero_copy_only=False)
        return flat.reshape(-1, width)
    values: NDArray[Any] = column.to_numpy(zero_copy_only=False)
    return values


def _read_comparisons(table: pa.Table, codes: Mapping[str, Ints]) -> Comparisons:
    found: dict[str, Any] = {}
    for field in fields(Comparisons):
        if field.name in ("by", "n_near"):
            continue
        values = _column(table, field.name)
        if field.name in _TYPES:
            values = values.astype(np.int64)
        elif values.dtype == np.uint8:
            values = values.astype(bool)
        found[field.name] = values
    by = {name: table_codes[_column(table, f"by {name}")] for name, table_codes in codes.items()}
    return Comparisons(**found, n_near=np.zeros((len(table), 0), dtype=np.int64), by=by)
