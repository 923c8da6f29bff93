"""People read from a file, with what a reader must know about how it was read."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from evenhand.exceptions import InvalidInputError
from evenhand.inputs.checking import without_unfit
from evenhand.inputs.people import Columns, People
from evenhand.inputs.read_options import ColumnOptions, ReadOptions
from evenhand.inputs.tables import open_table, typed


def read_people(
    source: Any,
    *,
    label: str,
    group: str | Sequence[str],
    financial: Sequence[str],
    roles: ColumnOptions,
    reading: ReadOptions,
    favorable: str | None = None,
    outcomes: Sequence[str] = (),
    probabilities: Sequence[str] = (),
    is_checked: bool = False,
) -> tuple[People, tuple[str, ...]]:
    """Read the people of a table into memory.

    Parameters
    ----------
    source
        A file, address or table that `evenhand.read_table` accepts.
    label, group, financial, favorable, outcomes, probabilities
        As in `inputs.people.Columns.among`.
    roles
        Further columns; its `features`, if there are any, are named by the model.
    reading
        What the file does not specify.
    is_checked
        Whether ids, dates and saved indexes among the inputs were looked for before.

    Returns
    -------
    The people, and notes on how cells were read and on columns that are not inputs.

    Raises
    ------
    InvalidInputError, DataFileError
        If the table cannot be read, or a value is missing or invalid.
    """
    raw = open_table(source, reading)
    columns = Columns.among(
        raw.schema.names,
        label,
        group,
        roles,
        financial=financial,
        favorable=favorable,
        outcomes=outcomes,
        probabilities=probabilities,
    )
    file = typed(raw, columns.needed, reading)
    notes = tuple(file.notes)
    if not is_checked:
        inputs = file.table.select(list(columns.features)).to_pandas()
        asked = (*financial, *roles.keep_inputs)
        columns, left_out = without_unfit(columns, inputs, asked=asked, is_named=roles.features is not None)
        notes += left_out
    if columns.label and columns.positive_label is not None:
        _check_occurs(columns, file.table)
    people = columns.people_of(file.table, raw.where, is_part=False)
    if not len(people):
        raise InvalidInputError(f"{raw.where} has no row with both a label and a group.")
    return people, notes


def _check_occurs(columns: Columns, table: pa.Table) -> None:
    """Reject a favorable value that the label does not have."""
    labels = table.column(columns.label).drop_null().unique().to_pandas()
    if not columns.is_favorable(labels).any():
        seen = sorted({str(value).strip() for value in labels})[:6]
        raise InvalidInputError(
            f"--positive-label {columns.positive_label!r} is not a value of the label, which has {seen}."
        )
