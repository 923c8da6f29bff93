"""Triples of a batch as a file of rows, written once and read in slices without mapping it into memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray

from evenhand.auditing.triples import Triples
from evenhand.exceptions import StreamError
from evenhand.metrics.clustering import smallest_row

__all__ = ["RowFile", "Slice", "by_smallest_row", "encode_index", "encode_triples", "read_triples"]

Ints = NDArray[np.int64]

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
