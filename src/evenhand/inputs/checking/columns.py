"""One column before an audit: its type as read, what it holds, and what is suspicious about it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from evenhand.inputs.checking.names import known_after
from evenhand.inputs.checking.signs import UNFIT, Distinct, Sign, signs_of
from evenhand.inputs.validation import is_number_column

__all__ = ["ColumnCheck", "check_column", "check_table"]

_EXAMPLES = 3
_LONGEST_EXAMPLE = 24


@dataclass(frozen=True)
class ColumnCheck:
    """A column of a table.

    Attributes
    ----------
    kind
        Its type as read: whole number, number, yes or no, date, text or category.
    n_rows, n_missing, n_distinct
        Rows, those without a value, and distinct values.
    holds
        The range of numbers, or the most common values.
    signs
        What is suspicious about it.
    """

    name: str
    kind: str
    n_rows: int
    n_missing: int
    n_distinct: int
    holds: str
    signs: tuple[Sign, ...] = ()

    @property
    def is_unfit(self) -> bool:
        """Whether it is an id, a date or a saved index, which are not inputs unless the user says so."""
        return any(sign.kind in UNFIT for sign in self.signs)

    def has(self, *kinds: str) -> bool:
        """Whether one of the signs is of one of these kinds."""
        return any(sign.kind in kinds for sign in self.signs)

    def with_signs(self, *signs: Sign) -> ColumnCheck:
        """The same column with additional signs."""
        return replace(self, signs=(*self.signs, *signs))


def check_table(table: pd.DataFrame) -> tuple[ColumnCheck, ...]:
    """Each column of a table, in order."""
    return tuple(check_column(table[name], str(name)) for name in table.columns)


def check_column(column: pd.Series[Any], name: str) -> ColumnCheck:
    """A column's type, its values, and what is suspicious about them and about its name.

    Examples
    --------
    >>> found = check_column(pd.Series(range(100)), "Unnamed: 0")
    >>> found.kind, found.holds, found.signs[0].kind
    ('whole number', '0 to 99', 'saved index')
    """
    values = _distinct(column, name)
    signs = list(signs_of(values))
    reason = known_after(name)
    if reason is not None and not any(sign.kind in UNFIT | {"constant"} for sign in signs):
        signs.append(Sign("known after the decision", f"by its name {reason}"))
    return ColumnCheck(
        name=name,
        kind=_kind(column, values),
        n_rows=len(column),
        n_missing=len(column) - values.n_known,
        n_distinct=len(values.values),
        holds=_holds(values),
        signs=tuple(signs),
    )


def _distinct(column: pd.Series[Any], name: str) -> Distinct:
    known = column[column.notna()]
    is_number = is_number_column(column)
    if not is_number and not pd.api.types.is_datetime64_any_dtype(column.dtype):
        is_category = isinstance(column.dtype, pd.CategoricalDtype)
        known = known.astype(str).astype("category") if is_category else known.astype(str)
    counts = known.value_counts(sort=False)
    counts = counts[counts > 0].sort_index()
    values = counts.index.to_numpy(dtype=float if is_number else object)
    return Distinct(name, len(column), values, counts.to_numpy().astype(np.int64), known, is_number)


def _kind(column: pd.Series[Any], values: Distinct) -> str:
    if not len(values.values):
        return "empty"
    if values.is_number:
        return "whole number" if values.is_whole else "number"
    if pd.api.types.is_bool_dtype(column.dtype):
        return "yes or no"
    if pd.api.types.is_datetime64_any_dtype(column.dtype):
        return "date"
    return "category" if isinstance(column.dtype, pd.CategoricalDtype) else "text"


def _holds(values: Distinct) -> str:
    if not len(values.values):
        return ""
    if values.is_number:
        first, last = (_number(float(value)) for value in (values.values[0], values.values[-1]))
        return first if first == last else f"{first} to {last}"
    common = np.argsort(-values.counts, kind="stable")[:_EXAMPLES]
    shown = [_shortened(str(values.values[place])) for place in common]
    return ", ".join(shown) + (", ..." if len(values.values) > _EXAMPLES else "")


def _number(value: float) -> str:
    return f"{value:,.0f}" if value == np.floor(value) and abs(value) < 1e15 else f"{value:,.4g}"


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_EXAMPLE else f"{text[: _LONGEST_EXAMPLE - 1]}…"
