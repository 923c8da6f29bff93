"""Align columns with the rows of a table by their pandas index."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from evenhand.exceptions import InvalidInputError

__all__ = ["in_row_order"]


def in_row_order(values: Any, X: Any, name: str) -> Any:  # noqa: ANN401 - any column or table
    """Put the values of people in the row order of `X`.

    Only pandas knows which row a value belongs to. If both have an index and the indexes differ in order, values are
    put in the order of `X`; if they are not of the same people, they are rejected.

    Parameters
    ----------
    values
        A column or table, one row per person, or columns by name; anything without an index is returned unchanged.
    X
        The table.
    name
        Name of `values`, for messages.

    Raises
    ------
    InvalidInputError
        If the indexes are of different people, or a repeated label makes the order ambiguous.

    Examples
    --------
    >>> X = pd.DataFrame({"income": [1, 2]}, index=["ann", "bob"])
    >>> in_row_order(pd.Series([0, 1], index=["bob", "ann"]), X, "y").tolist()
    [1, 0]
    """
    if isinstance(values, Mapping):
        return {key: in_row_order(column, X, name) for key, column in values.items()}
    if not isinstance(X, (pd.DataFrame, pd.Series)) or not isinstance(values, (pd.DataFrame, pd.Series)):
        return values
    rows, given = X.index, values.index
    if len(rows) != len(given) or rows.equals(given):  # a different length is reported elsewhere
        return values
    what, remedy = f"`{name}` and `X` have different indexes", f"if its values are in order, pass `{name}.to_numpy()`"
    if not rows.is_unique or not given.is_unique:
        raise InvalidInputError(f"{what}, and some labels in it are repeated, so the order is ambiguous; {remedy}.")
    absent = ~rows.isin(given)
    if absent.any():
        raise InvalidInputError(
            f"{what}: {int(absent.sum()):,} of {len(rows):,} rows of `X` are not in it, such as {rows[absent][0]!r}; "
            f"{remedy}."
        )
    return values.reindex(rows)
