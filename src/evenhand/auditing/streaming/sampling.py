"""Random people of a source that is too large for memory, the same whatever its batches."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from evenhand.auditing.streaming.source import Batch, Source
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.group_names import check_group_names
from evenhand.inputs.roles import Columns
from evenhand.system.hashing import person_hash
from evenhand.system.parallel import in_order
from evenhand.system.threads import n_cores

__all__ = ["SampledReference", "hash_limit", "lowest_rows", "read_rows", "sample_reference"]

Ints = NDArray[np.int64]

_LEAST_OF_CELL = 500
_ROWS_AT_ONCE = 1 << 20


@dataclass(frozen=True, eq=False)
class SampledReference:
    """People of a source who represent all of them.

    Attributes
    ----------
    rows
        Their rows in the source, ascending.
    how
        How they were chosen, in words.
    """

    rows: Ints
    how: str


def sample_reference(source: Source, columns: Columns, n_people: int, seed: int) -> SampledReference:
    """Choose the people whom all others are matched with and explained from.

    Everyone, if there are no more than `n_people`. Otherwise the people with the lowest hashes of their row numbers,
    and at least 500 of each label and group, or all if there are fewer.

    Raises
    ------
    InvalidInputError
        If only one group or one label is in the source, or `n_people` is below 2.
    """
    if n_people < 2:
        raise InvalidInputError(f"`reference_people` must be at least 2, got {n_people}.")
    only = Columns(columns.label, columns.group, (), (), columns.positive_label, columns.drop_missing)
    lowest = _Lowest(n_people)
    cells: dict[tuple[int, str], _Lowest] = {}
    counts: Counter[str] = Counter()
    n_usable = 0
    for batch in source.batches:
        rows = only.rows_of(source.read(batch, only.needed), source.where(batch))
        row = rows.kept + batch.first_row
        n_usable += len(row)
        hashes = person_hash(row, seed)
        lowest.add(hashes, row)
        if rows.groups is None:
            continue
        counts.update(rows.groups.counts)
        check_group_names(counts, " & ".join(columns.group))
        for label in (0, 1):
            for code, name in enumerate(rows.groups.names):
                chosen = (rows.labels == label) & (rows.groups.codes == code)
                if chosen.any():
                    cells.setdefault((label, name), _Lowest(_LEAST_OF_CELL)).add(hashes[chosen], row[chosen])
    _check_cells(cells, source, columns)
    if n_usable <= n_people:
        return SampledReference(np.sort(lowest.rows), "all people of the source")
    rows_found = np.unique(np.concatenate([lowest.rows, *(cell.rows for cell in cells.values())]))
    return SampledReference(
        rows_found,
        f"{len(rows_found):,} of {n_usable:,} people of the source, at random (seed {seed}): the {n_people:,} with the "
        f"lowest hashes of their row numbers, and at least {_LEAST_OF_CELL} of each label and group, if available",
    )


def lowest_rows(n_rows: int, n_wanted: int, seed: int) -> Ints:
    """Row numbers with the lowest hashes, ascending."""
    return np.sort(_lowest(n_rows, n_wanted, seed).rows)


def hash_limit(n_rows: int, n_wanted: int, seed: int) -> int | None:
    """The hash up to which people are taken to get the wanted number; None for all."""
    return None if n_wanted >= n_rows else int(_lowest(n_rows, n_wanted, seed).hashes.max())


def read_rows(source: Source, rows: Ints, columns: list[str]) -> pa.Table:
    """Some rows of a source, in order."""
    ends = [(batch.first_row, batch.first_row + batch.n_rows) for batch in source.batches]
    places = np.searchsorted(rows, ends).tolist()
    asked = [(batch, rows[slice(*place)]) for batch, place in zip(source.batches, places, strict=True)]

    def read(item: tuple[Batch, Ints]) -> pa.Table:
        batch, wanted = item
        return source.read(batch, columns).take(pa.array(wanted - batch.first_row))

    parts = list(in_order(read, [item for item in asked if len(item[1])], n_cores()))
    return pa.concat_tables(parts, promote_options="permissive").combine_chunks()


@dataclass(eq=False)
class _Lowest:
    """The rows with the lowest hashes so far."""

    n_wanted: int

    def __post_init__(self) -> None:
        self.hashes = np.zeros(0, dtype=np.uint64)
        self.rows = np.zeros(0, dtype=np.int64)

    def add(self, hashes: NDArray[np.uint64], rows: Ints) -> None:
        hashes, rows = np.concatenate([self.hashes, hashes]), np.concatenate([self.rows, rows])
        if len(rows) > self.n_wanted:
            chosen = np.argpartition(hashes, self.n_wanted - 1)[: self.n_wanted]
            hashes, rows = hashes[chosen], rows[chosen]
        self.hashes, self.rows = hashes, rows


def _lowest(n_rows: int, n_wanted: int, seed: int) -> _Lowest:
    found = _Lowest(n_wanted)
    for first in range(0, n_rows, _ROWS_AT_ONCE):
        rows = np.arange(first, min(n_rows, first + _ROWS_AT_ONCE))
        found.add(person_hash(rows, seed), rows)
    return found


def _check_cells(cells: dict[tuple[int, str], _Lowest], source: Source, columns: Columns) -> None:
    groups, labels = sorted({group for _, group in cells}), sorted({label for label, _ in cells})
    if len(groups) < 2:
        raise InvalidInputError(
            f"{source.name!r} holds only the group{'s' if not groups else ''} {groups}; at least two groups are "
            "needed to compare."
        )
    if labels == [0] and columns.positive_label is not None:
        raise InvalidInputError(
            f"--positive-label {columns.positive_label!r} is not a value of the label of {source.name!r}."
        )
    if len(labels) < 2:
        raise InvalidInputError(f"{source.name!r} holds only the label {labels[0]}; both 0 and 1 are needed.")
