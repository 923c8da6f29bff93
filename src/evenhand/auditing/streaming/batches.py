"""The audit of one batch: the same function on one machine and on many."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
from numpy.typing import NDArray

from evenhand.auditing.batch import audit_batch
from evenhand.auditing.distributions import pair_distributions
from evenhand.auditing.evidence import strata
from evenhand.auditing.people import people_of
from evenhand.auditing.reference import AuditReference
from evenhand.auditing.sums import AuditSums
from evenhand.auditing.triples import Triples
from evenhand.inputs.roles import Columns
from evenhand.system.hashing import person_hash

__all__ = ["BatchContext", "BatchOutput", "PairNulls", "run_batch"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class BatchContext:
    """What every batch needs, sent to each machine once.

    Attributes
    ----------
    reference
        What was fitted on the reference.
    columns
        Which columns play which part.
    reference_rows
        Rows of the source that the people of the reference are, ascending; None where the reference is another file.
    screened
        Rows of the source whose people are screened for proxies.
    evidence_seed, evidence_below
        Evidence is gathered on people whose hash is at most the limit; None for everyone.
    """

    reference: AuditReference
    columns: Columns
    reference_rows: Ints | None
    screened: Ints
    evidence_seed: int = 0
    evidence_below: int | None = None


@dataclass(frozen=True, eq=False)
class PairNulls:
    """What q-values are made from, one value per pair: person, stratum, and scores over what unlike finances give."""

    person: Ints
    stratum: Ints
    over_gap: Floats
    placebo_over_gap: Floats


@dataclass(frozen=True, eq=False)
class BatchOutput:
    """What auditing a batch gives; `sums` is None where every row was left out.

    Attributes
    ----------
    exclusions
        Rows left out, by reason.
    sums
        What the figures are made from.
    pairs
        The pair table; people are rows of the source, and q-values are not known yet.
    distributions
        Histograms of the pairs.
    triples, nulls
        Of the evidence; None without.
    screened, screened_groups
        Features and groups of the people who are screened for proxies.
    """

    number: int
    exclusions: Mapping[str, int]
    sums: AuditSums | None
    pairs: pd.DataFrame | None
    distributions: dict[str, Any] | None
    triples: Triples | None
    nulls: PairNulls | None
    screened: pd.DataFrame | None
    screened_groups: Ints | None


def run_batch(context: BatchContext, number: int, first_row: int, table: pa.Table, where: str) -> BatchOutput:
    """Audit the rows of a batch.

    Parameters
    ----------
    context
        What every batch needs.
    number, first_row
        Of the batch, and of its first row in the source.
    table
        Its rows.
    where
        The file and the batch, for messages.
    """
    reference = context.reference
    rows = context.columns.rows_of(table, where)
    if rows.table is None:
        return BatchOutput(number, rows.exclusions, None, None, None, None, None, None, None)
    names = reference.pool.groups.names
    people = people_of(rows, reference.model, names, where)
    row = rows.kept + first_row
    found = audit_batch(
        reference,
        people,
        rows.by,
        person_row=_places(context.reference_rows, row),
        first_person=first_row,
        compared=_compared(context, row),
    )
    pairs = found.pair_table(reference.settings.decision_threshold)
    pairs["person"] = row[found.pairs.person]
    nulls = None
    if found.evidence is not None:
        cell = (found.pairs.person, found.pairs.other_group)
        nulls = PairNulls(
            person=found.pairs.person + first_row,
            stratum=strata(people.cells, len(names))[cell],
            over_gap=found.evidence.over_gap[cell],
            placebo_over_gap=found.evidence.placebo_over_gap[cell],
        )
    screened = np.flatnonzero(np.isin(row, context.screened))
    return BatchOutput(
        number=number,
        exclusions=rows.exclusions,
        sums=found.sums,
        pairs=pairs,
        distributions=pair_distributions(pairs),
        triples=None if found.evidence is None else found.evidence.triples,
        nulls=nulls,
        screened=people.table.iloc[screened],
        screened_groups=people.groups.codes[screened],
    )


def _places(reference_rows: Ints | None, row: Ints) -> Ints | None:
    """The row of the reference that each person is, -1 for none."""
    if reference_rows is None:
        return None
    place = np.minimum(np.searchsorted(reference_rows, row), len(reference_rows) - 1)
    return np.where(reference_rows[place] == row, place, -1)


def _compared(context: BatchContext, row: Ints) -> Ints | None:
    if context.evidence_below is None:
        return None
    return np.flatnonzero(person_hash(row, context.evidence_seed) <= np.uint64(context.evidence_below))
