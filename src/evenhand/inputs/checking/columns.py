"""One column before an audit: its type as read, what it holds, and what is suspicious about it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd

from evenhand.exceptions import InvalidInputError, warn_caller
from evenhand.inputs.checking.signs import UNFIT, Distinct, Sign, known_after, signs_of
from evenhand.inputs.people import Columns
from evenhand.inputs.validation import MOST_GROUPS, alike_names, check_columns, is_number_column

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


SMALL_GROUP = 30
"""Metrics of groups with fewer people are unstable."""


@dataclass(frozen=True)
class GroupCheck:
    """The groups of people.

    Attributes
    ----------
    name
        The column, or columns.
    counts
        People of each group, the largest first.
    n_missing
        People without a group.
    alike
        Names that differ only in typing, grouped.
    """

    name: str
    counts: Mapping[str, int]
    n_missing: int
    alike: tuple[tuple[str, ...], ...]

    @property
    def are_many(self) -> bool:
        """Whether there are more groups than an audit can compare."""
        return len(self.counts) > MOST_GROUPS

    @property
    def small(self) -> dict[str, int]:
        """Groups with too few people."""
        return {name: n for name, n in self.counts.items() if n < SMALL_GROUP}

    def sentences(self) -> Iterator[tuple[str, str]]:
        """What is suspicious: a kind and a sentence each."""
        if len(self.counts) < 2:
            yield "one group", f"{self.name!r} has fewer than two groups, but at least two are needed to compare."
        if self.are_many:
            yield (
                "many groups",
                f"{self.name!r} has {len(self.counts):,} values, too many for groups; combine them, or turn a "
                "number such as an age into a few ranges.",
            )
            return
        for names in self.alike:
            shown = ", ".join(f"{name!r} ({self.counts[name]:,})" for name in names)
            yield (
                "alike groups",
                f"{self.name!r} has groups whose names differ only in typing: {shown}; combine them.",
            )
        if self.small:
            shown = ", ".join(f"{name!r} ({n:,})" for name, n in self.small.items())
            yield (
                "small groups",
                f"{self.name!r} has groups with fewer than {SMALL_GROUP} people, whose metrics are unstable: {shown}; "
                "combine them, or leave them out.",
            )
        if self.n_missing:
            yield (
                "missing group",
                f"{self.n_missing:,} people have no group; `drop_missing` leaves them out and counts them.",
            )


def check_groups(groups: pd.Series[str], name: str) -> GroupCheck:
    """The groups of people by name, missing if someone has none.

    Examples
    --------
    >>> check_groups(pd.Series(["f", "m", "F", "m", None]), "sex").alike
    (('f', 'F'),)
    """
    counts = groups.value_counts()
    sizes = {str(group): int(n) for group, n in counts.items()}
    return GroupCheck(name, sizes, int(groups.isna().sum()), tuple(alike_names(sorted(sizes, reverse=True))))


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


_MOST_OF_A_KIND = 3
_MOST_NAMES = 6


def few_sentences(remarks: Iterable[tuple[str, str, str]]) -> list[str]:
    """A sentence for each remark (column, kind and sentence), or one for a kind that many columns share.

    Examples
    --------
    >>> few_sentences([("when", "date", "'when' holds dates.")])
    ["'when' holds dates."]
    >>> few_sentences([(name, "date", "") for name in "abcd"])
    ["4 columns, date: 'a', 'b', 'c', 'd'."]
    """
    by_kind: dict[str, dict[str, str]] = {}
    for column, kind, sentence in remarks:
        by_kind.setdefault(kind, {})[column] = sentence
    sentences: list[str] = []
    for kind, found in by_kind.items():
        names = [repr(name) for name in found]
        if len(names) <= _MOST_OF_A_KIND:
            sentences += found.values()
        elif len(names) <= _MOST_NAMES:
            sentences.append(f"{len(names)} columns, {kind}: {', '.join(names)}.")
        else:
            shown = ", ".join(names[:_MOST_NAMES])
            sentences.append(f"{len(names)} columns, {kind}: {shown} and {len(names) - _MOST_NAMES} more.")
    return sentences
