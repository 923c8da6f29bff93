"""Results of the finished batches of a streamed audit, read from its folder."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from evenhand.auditing.finished import Merged
from evenhand.auditing.streaming.store import Store
from evenhand.auditing.streaming.triple_files import Slice, read_triples
from evenhand.auditing.triples import Triples, range_limits, triples_by_range
from evenhand.metrics.clustering import Parts, smallest_row
from evenhand.system.parallel import Crew, Later

__all__ = ["StoredBatches", "StoredTriples"]

Ints = NDArray[np.int64]

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

    def triples(self, merged: Merged, limits: Sequence[float], n_reference: int) -> Parts[Triples]:
        """The triples of all batches, with each person's number within limits of distance."""
        assert merged.sums.evidence is not None
        values = {name: tuple(counts) for name, counts in merged.sums.approvals.items()}
        codes = {
            number: {
                name: np.array([values[name].index(value) for value in texts], dtype=np.int64)
                for name, texts in by.items()
            }
            for number, by in merged.by_values.items()
        }

        def write_near(number: int) -> None:
            found = read_triples([self.slice_of(number, codes[number])])
            self.write_near(number, found.within(limits).n_near)

        for _ in self.crew.in_order(write_near, merged.numbers):
            pass
        return StoredTriples(self, merged.n_outside, codes, n_reference, merged.sums.evidence.n_left_out)


@dataclass(frozen=True, eq=False)
class StoredTriples:
    """The triples of all batches: a `clustering.Parts`.

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
            number: np.searchsorted(self.store.smallest_rows(number, n), limits).tolist()
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
            counts += np.bincount(self.store.smallest_rows(number, n), minlength=self.n_reference)
        if len(self._inside):
            counts += np.bincount(smallest_row(self._inside), minlength=self.n_reference)
        return range_limits(counts, min(max(counts.sum() // _RANGES, _FEWEST_IN_RANGE), _MOST_IN_RANGE))

    @cached_property
    def _inside(self) -> Triples:
        """Triples of people in the reference, whose number does not exceed its size."""
        return read_triples([replace(self._files[number], start=n) for number, n in self.n_outside.items()])
