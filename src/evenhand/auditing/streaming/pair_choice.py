"""Pairs of a streamed audit to look at one by one, with everything about the two people."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.auditing.batch import audit_batch
from evenhand.auditing.people import people_of
from evenhand.auditing.reference import AuditReference
from evenhand.auditing.sample import MAX_PAIRS, PairSample, draw_pair_sample
from evenhand.auditing.streaming import codec
from evenhand.auditing.streaming.sampling import read_rows
from evenhand.auditing.streaming.source import Source
from evenhand.auditing.streaming.store import Store
from evenhand.inputs.roles import Columns
from evenhand.system.hashing import person_hash

if TYPE_CHECKING:
    from collections.abc import Sequence


__all__ = ["choose_pairs", "save_sample"]


def choose_pairs(
    store: Store, numbers: Sequence[int], source: Source, columns: Columns, reference: AuditReference, seed: int = 0
) -> PairSample:
    """A sample of scored pairs, as `AuditResult.pair_sample` draws it from the candidates of every batch.

    The candidates of a batch are its pairs with the strongest evidence and, of each regime and group, those of the
    people with the lowest hashes. Their attributions are computed once more.
    """
    kept: pd.DataFrame | None = None
    n_pairs = n_scored = 0
    for number in numbers:
        table = store.pair_table(number)
        n_pairs += len(table)
        table = table[table["cec"].notna()]
        n_scored += len(table)
        kept = _candidates(table if kept is None else pd.concat([kept, table]), seed)
    assert kept is not None
    kept = kept.sort_values(["person", "other_group"], ignore_index=True)
    rows = np.unique(kept["person"].to_numpy(dtype=np.int64))
    if not len(rows):
        people_table = reference.pool.table.iloc[:0]
        empty = np.zeros((0, people_table.shape[1]), dtype=np.float32)
        sample = draw_pair_sample(kept, people_table, reference.pool.table, empty, empty, random_state=seed)
        return replace(sample, n_pairs=n_pairs)
    where = f"{str(source.path)!r}"
    found_rows = columns.rows_of(read_rows(source, rows, columns.needed), where)
    people = people_of(found_rows, reference.model, reference.pool.groups.names, where)
    plain = replace(reference, evidence=None)
    found = audit_batch(plain, people, {})

    place = pd.Series(np.arange(len(found.pairs)), index=_keys(found.pairs.person, found.pairs.other_group))
    codes = {name: code for code, name in enumerate(reference.pool.groups.names)}
    local = np.searchsorted(rows, kept["person"].to_numpy(dtype=np.int64))
    which = place.loc[list(_keys(local, kept["other_group"].map(codes).to_numpy().astype(np.int64)))].to_numpy()
    sample = draw_pair_sample(
        kept.assign(person=local),
        people.table,
        reference.pool.table,
        found.attributions,
        found.scored.match_attributions[which],
        random_state=seed,
    )
    pairs = sample.pairs.assign(person=rows[sample.pairs["person"].to_numpy()])
    how = sample.how.replace(f"of {len(kept):,} scored", f"of {n_scored:,} scored")
    return replace(sample, pairs=pairs, n_pairs=n_pairs, n_scored=n_scored, how=how)


def _keys(person: NDArray[np.int64], other_group: NDArray[np.int64]) -> pd.MultiIndex:

    return pd.MultiIndex.from_arrays([person, other_group])


def _candidates(table: pd.DataFrame, seed: int) -> pd.DataFrame:
    """The pairs of a table that can be in the sample of a larger one."""
    if len(table) <= MAX_PAIRS:
        return table
    over = (table["cec"] - table["placebo_cec"].fillna(0)).to_numpy(dtype=float)
    person = table["person"].to_numpy(dtype=np.int64)
    order = np.lexsort((person, -over, table["q_value"].to_numpy(dtype=float)))
    is_kept = np.zeros(len(table), dtype=bool)
    is_kept[order[:MAX_PAIRS]] = True

    hashes = pd.Series(person_hash(person, seed), index=table.index)
    turn = hashes.groupby([table["regime"], table["group"]]).rank(method="first").to_numpy()
    return table[is_kept | (turn <= MAX_PAIRS)]


def save_sample(store: Store, sample: PairSample) -> None:
    """Keep a sample beside the pairs."""
    parts = {"pairs": sample.pairs, "values": sample.values, "match_values": sample.match_values}
    for name, table in parts.items():
        store.write_table(f"sample/{name}.parquet", table)
    rest = {
        "attributions": sample.attributions,
        "match_attributions": sample.match_attributions,
        "n_pairs": sample.n_pairs,
        "n_scored": sample.n_scored,
        "n_strongest": sample.n_strongest,
        "how": sample.how,
    }
    codec.save(store.folder / "sample" / "sample.npz", rest)
