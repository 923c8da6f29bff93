"""Columns that the user did not name and that are not inputs: left out with a sentence, or rejected."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

import pandas as pd

from evenhand.exceptions import InvalidInputError, warn_caller
from evenhand.inputs.checking.columns import check_table
from evenhand.inputs.roles import Columns
from evenhand.inputs.validation import check_columns

__all__ = ["CHECKED_ROWS", "unasked", "without_unfit"]

CHECKED_ROWS = 10_000
"""Number of rows that show whether a column is an id, a date or a saved index; the same in memory and streamed."""


def unasked(columns: Columns, asked: Iterable[str]) -> list[str]:
    """Features that the user did not name."""
    kept = {name.strip() for name in asked}
    return [name for name in columns.features if name.strip() not in kept]


def without_unfit(
    columns: Columns, rows: pd.DataFrame, *, asked: Iterable[str], is_named: bool
) -> tuple[Columns, tuple[str, ...]]:
    """Remove ids, dates and saved indexes from the features, and return a sentence on what was left out.

    Parameters
    ----------
    columns
        The roles of the columns.
    rows
        The features not named by the user, for everyone or for the first `CHECKED_ROWS` people.
    asked
        Features that the user named, which are always kept.
    is_named
        Whether the model names the features, so that it needs each of them.

    Raises
    ------
    InvalidInputError
        If the model needs an id, a date or a saved index that the user did not name.
    """
    looked_at = rows[unasked(columns, asked)]
    unfit = {c.name: c.signs[0] for c in check_table(looked_at[:CHECKED_ROWS]) if c.is_unfit}
    if not unfit:
        return columns, ()
    shown = ", ".join(f"{name!r} ({sign.kind}: {sign.clause})" for name, sign in unfit.items())
    if is_named:
        raise InvalidInputError(
            f"The model uses {shown}, from which no model should learn; audit a model without it, or name "
            f"{'it' if len(unfit) == 1 else 'them'} in `keep_inputs` (--keep-inputs) to audit this one as it is."
        )
    sentence = (
        f"Left out of the inputs: {shown}. If the model uses one of them, name it in `keep_inputs` (--keep-inputs), "
        "and the rest in `drop` (--drop)."
    )
    warn_caller(sentence)
    features = check_columns([name for name in columns.features if name not in unfit], columns.features, "The model")
    return replace(columns, features=tuple(features)), (sentence,)
