"""The pairs of a streamed audit: read from its folder, and explained again when someone looks at them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd

from evenhand.auditing.batch import audit_batch
from evenhand.auditing.people import people_of
from evenhand.auditing.reference import AuditReference
from evenhand.auditing.sample import ExplainedPairs, PairSample
from evenhand.auditing.streaming import codec
from evenhand.auditing.streaming.sampling import read_rows
from evenhand.auditing.streaming.source import Source
from evenhand.auditing.streaming.store import Store
from evenhand.inputs.roles import Columns
from evenhand.system.parallel import in_order
from evenhand.system.threads import MOST_THREADS, n_cores

__all__ = ["StoredPairs", "save_sample"]


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
    reference: AuditReference

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
        found_rows = self.columns.rows_of(read_rows(self.people, rows, self.columns.needed), where)
        people = people_of(found_rows, self.reference.model, names, where)
        found = audit_batch(replace(self.reference, evidence=None), people, {})
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
            match_reasons=found.reasons.pool.codes[pairs["match"].to_numpy()],
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
