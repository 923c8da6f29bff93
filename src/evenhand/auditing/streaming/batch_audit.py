"""The audit of one batch: the same function on one machine and on many."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from evenhand.auditing.batch import audit_batch
from evenhand.auditing.finished import BatchOutput, BatchRecord
from evenhand.auditing.people import people_of, with_cut_offs
from evenhand.auditing.reference import AuditReference
from evenhand.inputs.roles import Columns
from evenhand.system.hashing import person_hash

__all__ = ["BatchContext", "run_batch"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class BatchContext:
    """What every batch needs, sent to each machine once.

    Attributes
    ----------
    reference
        What was fitted on the reference.
    columns
        The roles of the columns.
    reference_rows
        Rows of the source that are in the reference, ascending; None if the reference is a different file.
    screened
        Rows of the source whose people are screened for proxies.
    evidence_seed, evidence_below
        Evidence is gathered for people whose hash is at most the limit; None for everyone.
    unit_of_weight
        Unit of the weights: see `auditing.people.weight_unit`.
    """

    reference: AuditReference
    columns: Columns
    reference_rows: Ints | None
    screened: Ints
    evidence_seed: int = 0
    evidence_below: int | None = None
    unit_of_weight: float = 1.0


def run_batch(context: BatchContext, number: int, first_row: int, table: pa.Table, where: str) -> BatchOutput:
    """Audit the rows of a batch.

    Parameters
    ----------
    context
        What every batch needs.
    number, first_row
        Number of the batch, and number of its first row in the source.
    table
        Its rows.
    where
        The file and the batch, for messages.
    """
    reference = context.reference
    rows = context.columns.rows_of(table, where)
    if rows.table is None:
        return BatchOutput(BatchRecord(number, rows.exclusions))
    people = people_of(rows, reference.model, reference.pool.groups.names, where, context.unit_of_weight)
    people = with_cut_offs(people, reference.settings, rows.by, where)
    row = rows.kept + first_row
    found = audit_batch(
        reference,
        people,
        rows.by,
        person_row=_places(context.reference_rows, row),
        first_person=first_row,
        compared=_compared(context, row),
    )
    return BatchOutput.of(
        found,
        screened=np.flatnonzero(np.isin(row, context.screened)),
        number=number,
        row=row,
        first_person=first_row,
        exclusions=rows.exclusions,
    )


def _places(reference_rows: Ints | None, row: Ints) -> Ints | None:
    """The row of each person in the reference, -1 if not in it."""
    if reference_rows is None:
        return None
    place = np.minimum(np.searchsorted(reference_rows, row), len(reference_rows) - 1)
    return np.where(reference_rows[place] == row, place, -1)


def _compared(context: BatchContext, row: Ints) -> Ints | None:
    if context.evidence_below is None:
        return None
    return np.flatnonzero(person_hash(row, context.evidence_seed) <= np.uint64(context.evidence_below))
