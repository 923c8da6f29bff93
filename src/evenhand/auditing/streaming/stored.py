"""Results of the finished batches of a streamed audit, read from its folder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import pandas as pd

from evenhand.arrays import Ints
from evenhand.auditing.batch import audit_batch
from evenhand.auditing.finished import Merged
from evenhand.auditing.fitted import Fitted, as_seen_by
from evenhand.auditing.sample import ExplainedPairs, PairSample
from evenhand.auditing.streaming import store as codec
from evenhand.auditing.streaming.source import Source, read_rows
from evenhand.auditing.streaming.store import Slice, Store, read_triples
from evenhand.inputs.people import Columns
from evenhand.metrics.triples import Parts, Triples, range_limits, smallest_row, triples_by_range
from evenhand.system.threads import MOST_THREADS, Crew, Later, in_order, n_cores

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

    def triples(self, merged: Merged, limits: Sequence[float], n_reference: int) -> Parts:
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


@dataclass(frozen=True, eq=False)
class StoredPairs:
    """The pair tables of a folder: a `PairSource`.

    Attributes
    ----------
    store, numbers
        The folder, and its batches that have people.
    people, columns, reference
        The audited people, the roles of columns, and what was fitted on the reference.
    """

    store: Store
    numbers: Sequence[int]
    people: Source
    columns: Columns
    reference: Fitted

    def parts(self) -> Iterator[pd.DataFrame]:
        """The pair table of each batch."""
        return in_order(self.store.pair_table, self.numbers, min(n_cores(), MOST_THREADS))

    def of_person(self, person: int) -> pd.DataFrame:
        """The pairs of one person."""
        for batch in self.people.batches:
            if batch.number in self.numbers and batch.first_row <= person < batch.first_row + batch.n_rows:
                table = self.store.pair_table(batch.number)
                return table[table["person"] == person]
        return self.store.pair_table(self.numbers[0]).iloc[:0]

    def explained(self, pairs: pd.DataFrame) -> ExplainedPairs:
        """Values and attributions of some pairs, whose people are read and explained again."""
        match_values = self.reference.pool.table.iloc[pairs["match"].to_numpy()].reset_index(drop=True)
        if not len(pairs):
            nothing = np.zeros((0, match_values.shape[1]), dtype=np.float32)
            none = np.zeros((0, self.reference.settings.n_reasons), dtype=np.int64)
            return ExplainedPairs(match_values, match_values, nothing, nothing, none, none)
        rows = np.unique(pairs["person"].to_numpy(dtype=np.int64))
        where, names = repr(self.people.name), self.reference.pool.groups.names
        fitted = replace(self.reference, evidence=None)
        people = self.columns.people_of(read_rows(self.people, rows, self.columns.needed), where)
        people = as_seen_by(fitted.model, people, fitted.settings, pool=fitted.pool, where=where)
        found = audit_batch(fitted, people)
        person = np.searchsorted(rows, pairs["person"].to_numpy(dtype=np.int64))
        other_group = pairs["other_group"].map({name: code for code, name in enumerate(names)}).to_numpy(dtype=np.int64)
        place = pd.Series(np.arange(len(found.pairs)), index=[found.pairs.person, found.pairs.other_group])
        which = place.loc[list(zip(person, other_group, strict=True))].to_numpy()
        return ExplainedPairs(
            values=people.table.iloc[person].reset_index(drop=True),
            match_values=match_values,
            attributions=found.attributions[person],
            match_attributions=found.scored.match_attributions[which],
            reasons=found.reasons.people.codes[person],
            match_reasons=found.reasons.source.pool.codes[pairs["match"].to_numpy()],
        )

    def reason_parts(self) -> Iterator[pd.DataFrame]:
        """The table of reasons of each batch."""
        return map(self.store.reason_table, self.numbers)


def save_sample(store: Store, sample: PairSample) -> None:
    """Keep a sample beside the pairs."""
    parts = ("pairs", "values", "match_values")
    for name in parts:
        store.write_table(f"sample/{name}.parquet", getattr(sample, name))
    rest = {name: value for name, value in sample.to_dict().items() if name not in parts}
    codec.save(store.folder / "sample" / "sample.npz", rest)
