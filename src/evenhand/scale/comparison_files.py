"""Comparisons of a batch as an Arrow file: written once, read back in slices through the page cache."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from evenhand.clustering import smallest_row
from evenhand.comparisons import Comparisons
from evenhand.exceptions import StreamError

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["by_smallest_row", "column", "encode_comparisons", "joined", "open_comparisons", "read_comparisons", "taken"]

Ints = NDArray[np.int64]

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


def by_smallest_row(part: Comparisons) -> tuple[Comparisons, int]:
    """People outside the reference first, by the lower row of their couple; how many comparisons are theirs."""
    is_inside = part.person_row >= 0
    order = np.lexsort((np.arange(len(part)), smallest_row(part), is_inside))
    return taken(part, order), int((~is_inside).sum())


def taken(part: Comparisons, rows: Ints) -> Comparisons:
    """Some of the comparisons."""
    plain = {f.name: getattr(part, f.name)[rows] for f in fields(part) if f.name != "by"}
    return Comparisons(**plain, by={name: codes[rows] for name, codes in part.by.items()})


def joined(parts: Sequence[Comparisons]) -> Comparisons:
    """The comparisons of several parts, one after the other."""
    plain = {
        f.name: np.concatenate([getattr(part, f.name) for part in parts]) for f in fields(Comparisons) if f.name != "by"
    }
    return Comparisons(**plain, by={name: np.concatenate([part.by[name] for part in parts]) for name in parts[0].by})


def encode_comparisons(part: Comparisons) -> pa.Buffer:
    """The content of the file; whole numbers are kept as short as they can be."""
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
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as writer:
        writer.write_table(table)
    return sink.getvalue()


def open_comparisons(path: Path) -> pa.Table:
    """The table in a file, mapped into memory.

    Raises
    ------
    StreamError
        If the file is damaged.
    """
    import pyarrow as pa

    try:
        with pa.memory_map(os.fspath(path)) as file:
            return pa.ipc.open_file(file).read_all()
    except (OSError, pa.ArrowException) as error:
        raise StreamError(
            f"{str(path)!r} cannot be read ({error}); remove the .npz file beside it to have its batch audited again."
        ) from error


def column(table: pa.Table, name: str) -> NDArray[Any]:
    """A column of the table as it is kept."""
    import pyarrow as pa

    chunks = table.column(name)
    chunk = chunks.chunk(0) if chunks.num_chunks == 1 else chunks.combine_chunks()
    if pa.types.is_fixed_size_list(chunk.type):
        flat: NDArray[Any] = chunk.flatten().to_numpy(zero_copy_only=False)
        return flat.reshape(-1, chunk.type.list_size)
    values: NDArray[Any] = chunk.to_numpy(zero_copy_only=False)
    return values


def read_comparisons(table: pa.Table, codes: Mapping[str, Ints]) -> Comparisons:
    """The comparisons of a table; whole numbers have 64 bits again."""
    found: dict[str, Any] = {}
    for field in fields(Comparisons):
        if field.name in ("by", "n_near"):
            continue
        values = column(table, field.name)
        if field.name in _TYPES:
            values = values.astype(np.int64)
        elif values.dtype == np.uint8:
            values = values.astype(bool)
        found[field.name] = values
    by = {name: table_codes[column(table, f"by {name}")] for name, table_codes in codes.items()}
    return Comparisons(**found, n_near=np.zeros((len(table), 0), dtype=np.int64), by=by)
