"""A table before an audit: what each column is, and what is suspicious about its name and its values."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.inputs.names import is_index_name, known_after, protected_characteristic, suggests
from evenhand.inputs.validation import MOST_GROUPS, alike_names, is_number_column

Severity: TypeAlias = Literal["refuse", "warn", "note"]

UNFIT = frozenset({"saved index", "id", "repeated id", "date"})
"""What is not an input of a model unless the user says so."""

_NOTED = ("constant", "almost constant", "mostly missing")

ADVICE: dict[str, str] = {
    "saved index": "it is not an input; leave it out",
    "id": "it is not an input; leave it out",
    "repeated id": "it is not an input; name it as `clusters` (--clusters), so that an applicant counts once",
    "date": "leave it out, or turn it into a number such as an age in months",
    "text number": "turn the values into numbers",
    "sentinel": "if so, name it in `missing` (--missing)",
    "free text": "a model cannot learn from it; leave it out",
    "place": "its numbers are not amounts; leave it out, or save it as text",
    "extreme value": "check whether it is an error",
    "protected characteristic": "ask whether a model may use it, whichever group is audited",
    "constant": "it carries no information",
    "almost constant": "it carries little information",
    "mostly missing": "check why",
    "known after the decision": "a model cannot have it when it decides; leave it out",
    "leaks the label": "check when it is recorded",
    "predicts the group": "a model can infer the group from it",
}
"""The kinds of signs, and what to do about each."""

MATCHED_ON_DECISION = (
    "is, by its name, the lender's decision and not what happened after it: people are compared only with people of "
    "the same decision, so a difference that the decision made looks smaller than it is. Use repayment if it is known."
)
"""What follows the name of a label that is a decision."""

_FEW_ROWS = 20  # with fewer rows, distinct values mean nothing
_NEARLY_ALL = 0.95
_ALMOST_CONSTANT = 0.995
_MOST_TEXTS = 50
_LOOKED_AT = 2_000  # distinct texts
_EXTREME = 50  # standard deviations
_OUTER_HUNDREDTHS = 4.653  # standard deviations of a normal distribution between its 0.01 and 0.99 quantiles
_MOST_ROWS_PER_ID = 5

_MONTHS = "jan|feb|m[aä]r|apr|may|mai|jun|jul|aug|sep|o[ck]t|nov|de[cz]"
_CLOCK = r"([T ]\s*\d{1,2}:\d{2}.*)?"
_DATE_TEXT = re.compile(
    rf"\d{{4}}[-/.]\d{{1,2}}([-/.]\d{{1,2}})?{_CLOCK}"
    rf"|\d{{1,2}}([-/.])\d{{1,2}}\3(\d{{2}}|\d{{4}}){_CLOCK}"
    rf"|(\d{{1,2}}[-. ]+)?({_MONTHS})[a-z]*[-., ]+(\d{{1,2}},? +)?\d{{2,4}}{_CLOCK}"
    r"|\d{4}[- ]?q[1-4]",
    re.IGNORECASE,
)
_NUMBER_TEXT = re.compile(
    r"\(?[-+−]?\s*([$€£¥]|[A-Z]{3} )?\s*[-+−]?(\d[\d.,' \u00a0\u202f]*|\.\d+)(e[-+]?\d+)?\s*([%$€£¥]|[km])?\)?",
    re.IGNORECASE,
)
_CODE = re.compile(r"0\d+")  # a postal code, say: text on purpose
_TOKEN = re.compile(r"\S*\d\S*|\S+@\S+")

# Survey and bureau codes for "no value": one repeated digit, or nines that end in 6, 7 or 8.
_NO_VALUE = re.compile(r"77|88|(\d)\1{2,}|9+[6789]")
_NINES = re.compile(r"-9{3,}|9{5,}")  # a code even if it occurs once


@dataclass(frozen=True)
class Sign:
    """Something suspicious: its kind, a clause to follow the name of the column, and values that may mean missing."""

    kind: str
    clause: str
    missing: tuple[str, ...] = ()

    @property
    def severity(self) -> Severity:
        """What an audit does about it: leave the column out or reject it, warn, or mention it."""
        return "refuse" if self.kind in UNFIT else "note" if self.kind in _NOTED else "warn"

    def sentence(self, name: str) -> str:
        """A sentence on the sign of a column, with what to do about it."""
        return f"{name!r} {self.clause}: {ADVICE[self.kind]}."


@dataclass(frozen=True, eq=False)
class Distinct:
    """The values of a column.

    Attributes
    ----------
    values, counts
        Distinct values in ascending order, without missing ones, and how many rows have each.
    ordered
        The values of all rows that have one, in row order.
    """

    name: str
    n_rows: int
    values: NDArray[Any]
    counts: NDArray[np.int64]
    ordered: pd.Series[Any]
    is_number: bool

    @property
    def n_known(self) -> int:
        """Rows with a value."""
        return len(self.ordered)

    @property
    def is_unique(self) -> bool:
        """Whether all rows but a few have a unique value."""
        return self.n_known >= _FEW_ROWS and len(self.values) >= _NEARLY_ALL * self.n_known

    @property
    def is_whole(self) -> bool:
        """Whether all values are whole numbers."""
        return self.is_number and bool(np.isfinite(self.values).all() and (self.values == np.floor(self.values)).all())

    @property
    def looked_at(self) -> tuple[NDArray[Any], NDArray[np.int64]]:
        """Distinct values and counts; if there are very many, an evenly spaced selection."""
        step = slice(None, None, 1 + len(self.values) // _LOOKED_AT)
        return self.values[step], self.counts[step]


def signs_of(column: Distinct) -> Iterator[Sign]:
    """Everything that is suspicious about the values of a column."""
    n_missing = column.n_rows - column.n_known
    if len(column.values) <= 1:
        yield Sign("constant", "has no value" if not len(column.values) else "has only one value")
        return
    unfit = _unfit(column)
    if unfit is not None:
        yield unfit
        return
    top = int(column.counts.max())
    if column.n_known >= 1 / (1 - _ALMOST_CONSTANT) and top >= _ALMOST_CONSTANT * column.n_known:
        yield Sign("almost constant", f"has one value in all but {column.n_known - top:,} of {column.n_known:,} rows")
    if n_missing > column.n_rows / 2:
        yield Sign("mostly missing", f"has no value in {n_missing:,} of {column.n_rows:,} rows")
    if not column.is_number:
        yield from _text_signs(column)
    elif column.is_whole and len(column.values) >= _FEW_ROWS and suggests(column.name, "place"):
        yield Sign("place", "holds codes of places as numbers, by its name")
    else:
        yield from _number_signs(column)


def _number_signs(column: Distinct) -> Iterator[Sign]:
    values = column.values.astype(np.float64)
    codes = sentinels(values, column.counts)
    if codes:
        shown = ", ".join(f"{value:.0f} in {n:,} row{'s' if n > 1 else ''}" for value, n in codes.items())
        clause = f"has {shown}, far from all other values, which may be a code rather than an amount"
        yield Sign("sentinel", clause, tuple(f"{value:.15g}" for value in codes))
    is_amount = np.isfinite(values) & ~np.isin(values, list(codes))
    values, counts = values[is_amount], column.counts[is_amount]
    if not len(values):
        return
    far = _distance(values, values, counts)
    if far.max() > _EXTREME:
        n, most = int(counts[far > _EXTREME].sum()), values[np.argmax(far)]
        clause = f"has {n:,} value{'s' if n > 1 else ''} more than {_EXTREME} standard deviations from the middle"
        yield Sign("extreme value", f"{clause}, such as {most:,.6g}")


def _distance(of: NDArray[np.float64], values: NDArray[np.float64], counts: NDArray[np.int64]) -> NDArray[np.float64]:
    """Standard deviations between numbers and the middle of ascending values with their counts."""
    # The spread of all but the outer hundredths: a long tail is not extreme, and no single value changes it.
    shares = (np.cumsum(counts) - counts / 2) / counts.sum()
    low, middle, high = np.interp([0.01, 0.5, 0.99], shares, values)
    with np.errstate(over="ignore", invalid="ignore"):
        distance: NDArray[np.float64] = np.abs(of - middle) / ((high - low) / _OUTER_HUNDREDTHS or np.inf)
    return distance


def extreme_end(column: pd.Series[Any], low: float, high: float) -> Sign | None:
    """The sign that people with values from `low` to `high` reach far beyond the values of a column of numbers.

    Examples
    --------
    >>> extreme_end(pd.Series(range(100)), -3.0, 99999.0).clause
    'reaches 99,999 among the audited people, more than 50 standard deviations from the middle of the reference'
    """
    numbers = column.to_numpy(np.float64, na_value=np.nan)
    values, counts = np.unique(numbers[np.isfinite(numbers)], return_counts=True)
    if not len(values) or values[0] <= low <= high <= values[-1]:
        return None
    ends = np.array([low, high])
    far = _distance(ends, values, counts)
    if far.max() <= _EXTREME:
        return None
    reached = f"reaches {ends[far.argmax()]:,.6g} among the audited people"
    return Sign(
        "extreme value", f"{reached}, more than {_EXTREME} standard deviations from the middle of the reference"
    )


def sentinels(values: NDArray[np.float64], counts: NDArray[np.int64]) -> dict[float, int]:
    """Repeated values far outside all others that look like codes, with their numbers of rows.

    They are removed one by one from both ends, so -999 and 9999999 in one column are both found. Zero never counts.

    Examples
    --------
    >>> sentinels(np.array([-999.0, 310, 540, 700, 810, 850]), np.array([12, 3, 5, 8, 4, 1]))
    {-999.0: 12}
    """
    codes: dict[float, int] = {}
    keep = np.isfinite(values)
    values, counts = values[keep], counts[keep]
    least = max(3, int(0.0005 * counts.sum()))
    while len(values) > 3:
        for end, rest in ((0, slice(1, None)), (-1, slice(None, -1))):
            needed = 1 if _NINES.fullmatch(f"{values[end]:.15g}") else least
            if counts[end] >= needed and _is_apart(float(values[end]), int(counts[end]), values[rest], counts[rest]):
                codes[float(values[end])] = int(counts[end])
                values, counts = values[rest], counts[rest]
                break
        else:
            break
    # Nines below a few larger values, more than three times as frequent as any other of the largest twentieth.
    is_top = np.cumsum(counts[::-1])[::-1] <= 0.05 * counts.sum()
    for value, n in zip(values[is_top], counts[is_top], strict=True):
        if n >= least and _NINES.fullmatch(f"{value:.15g}") and (counts[is_top] >= n / 3).sum() == 1:
            codes[float(value)] = int(n)
    return codes


def _is_apart(value: float, n: int, others: NDArray[np.float64], counts: NDArray[np.int64]) -> bool:
    """Whether an end value is separate from the others, ascending with their counts."""
    gap = float(min(abs(value - others[0]), abs(value - others[-1])))
    spread = float(others[-1] - others[0])
    is_code = value == int(value) and _NO_VALUE.fullmatch(str(abs(int(value)))) is not None
    if value < 0 and others[0] >= 0:  # a negative value among amounts that cannot be negative
        is_short = value in (-1, -7, -8, -9) and len(others) >= _FEW_ROWS
        return is_short or is_code
    if is_code and gap > 0.5 * spread:
        return True
    if is_code and len(str(abs(int(value)))) > 2 and value > 0:
        cumulative = np.cumsum(counts) / counts.sum()
        middle, high = others[np.searchsorted(cumulative, 0.5)], others[np.searchsorted(cumulative, 0.99)]
        return bool(high > middle and value > high + 3 * (high - middle))
    return value not in (0, 1) and len(others) >= 5 and n >= max(5, 0.001 * counts.sum()) and gap > 2 * spread


def _unfit(column: Distinct) -> Sign | None:
    """The sign that a column is not an input: it counts rows, identifies cases, or gives a time."""
    if pd.api.types.is_datetime64_any_dtype(column.ordered.dtype):
        return Sign("date", "holds dates")
    if column.is_number:
        return _unfit_numbers(column) if column.is_whole else None
    texts, counts = column.looked_at
    is_date = _matches(_DATE_TEXT, texts)
    if counts[is_date].sum() >= _NEARLY_ALL * counts.sum():
        return Sign("date", f"holds dates as text, such as {texts[is_date][0]!r}")
    if not column.is_unique:
        return None if any(" " in text for text in texts[:20]) else _repeated_id(column)
    is_code = _matches(_TOKEN, texts).mean() >= _NEARLY_ALL and _matches(_NUMBER_TEXT, texts).mean() < 0.5
    if is_code or (suggests(column.name, "id") and not any(" " in text for text in texts[:20])):
        return Sign("id", f"has a different code in {_nearly_all(column)}, such as {texts[0]!r}")
    return None


def _unfit_numbers(column: Distinct) -> Sign | None:
    values = column.values.astype(np.float64)
    if column.is_unique and is_index_name(column.name):
        return Sign("saved index", f"numbers the rows from {values[0]:.0f} to {values[-1]:.0f}")
    if column.is_unique and suggests(column.name, "id"):
        return Sign("id", f"has a different number in {_nearly_all(column)}")
    if column.n_known >= _FEW_ROWS and len(values) == column.n_known == column.n_rows:
        is_dense = values[-1] - values[0] == len(values) - 1
        if is_dense and column.ordered.is_monotonic_increasing:
            return Sign("saved index", f"numbers the rows from {values[0]:.0f} to {values[-1]:.0f}")
        if is_dense:
            return Sign("id", f"has every whole number from {values[0]:.0f} to {values[-1]:.0f} once")
    if _are_dates(values, column.name):
        return Sign("date", f"holds dates as numbers, such as {values[0]:.0f}")
    return _repeated_id(column)


def _repeated_id(column: Distinct) -> Sign | None:
    """The sign that a column identifies applicants, some of whom have several rows."""
    n = len(column.values)
    if not suggests(column.name, "person") or not _FEW_ROWS <= n < column.n_known <= _MOST_ROWS_PER_ID * n:
        return None
    return Sign("repeated id", f"identifies {n:,} applicants in {column.n_known:,} rows")


def _are_dates(values: NDArray[np.float64], name: str) -> bool:
    """Whether whole numbers are days written as 20240131, or serial numbers of days in a column named as a date."""
    if values[0] >= 19_000_101 and values[-1] <= 21_001_231:
        month, day = values // 100 % 100, values % 100
        is_day = (month >= 1) & (month <= 12) & (day >= 1) & (day <= 31)
        return bool(is_day.mean() >= 0.99) and (len(values) >= 10 or suggests(name, "date"))
    is_serial = values[0] >= 10_000 and values[-1] <= 80_000
    is_month = values[0] >= 190_001 and values[-1] <= 210_012
    is_epoch = values[0] >= 1e8 and values[-1] <= 5e12
    return suggests(name, "date") and (is_serial or is_month or is_epoch)


def _text_signs(column: Distinct) -> Iterator[Sign]:
    texts, counts = column.looked_at
    is_number = _matches(_NUMBER_TEXT, texts)
    n_numbers = int(is_number.sum())
    share = counts[is_number].sum() / counts.sum()
    is_category = isinstance(column.ordered.dtype, pd.CategoricalDtype)
    if share >= 0.7 and n_numbers >= 10 and not is_category and not _matches(_CODE, texts).any():
        others = texts[~is_number]
        mixed = f" next to texts such as {others[0]!r}" if len(others) else ""
        yield Sign("text number", f"holds numbers as text, such as {texts[is_number][-1]!r}{mixed}")
    elif len(column.values) > max(_MOST_TEXTS, column.n_known / 2):
        yield Sign("free text", f"has {len(column.values):,} texts in {column.n_known:,} rows")


def _matches(pattern: re.Pattern[str], texts: NDArray[Any]) -> NDArray[np.bool_]:
    return np.fromiter((pattern.fullmatch(text.strip()) is not None for text in texts), dtype=bool, count=len(texts))


def _nearly_all(column: Distinct) -> str:
    return "every row" if len(column.values) == column.n_known else f"{len(column.values):,} of {column.n_known:,} rows"


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


def check_table(table: pd.DataFrame) -> tuple[ColumnCheck, ...]:
    """Each column of a table, in order."""
    return tuple(check_column(table[name], str(name)) for name in table.columns)


_CLOSING = re.compile(
    r"((grand|sub)[ -]?)?totals?\b.*|sum|average|mean|(source|note|footnote|remark)s?\s*:.*|[*©].+", re.IGNORECASE
)
_MOST_CLOSING = 5


def closing_rows(table: pd.DataFrame) -> tuple[str, ...]:
    """Texts of the last rows that are totals, sources or notes rather than people; no other row has such a text.

    Examples
    --------
    >>> closing_rows(pd.DataFrame({"name": ["ann", "bob", "TOTAL", "Source: the bank"], "income": [1, 2, 3, None]}))
    ('TOTAL', 'Source: the bank')
    """
    texts: list[str] = []
    columns = [table[name].astype(object) for name in table.columns if not is_number_column(table[name])]
    for row in range(len(table) - 1, max(0, len(table) - _MOST_CLOSING) - 1, -1):
        cells = ((column, column.iloc[row]) for column in columns)
        closing = next(
            (
                cell.strip()
                for column, cell in cells
                if isinstance(cell, str) and _CLOSING.fullmatch(cell.strip()) and not (column.iloc[:row] == cell).any()
            ),
            None,
        )
        if closing is None:
            break
        texts.insert(0, closing)
    return tuple(texts)


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
    if not any(sign.kind in UNFIT | {"constant"} for sign in signs):
        if (reason := known_after(name)) is not None:
            signs.append(Sign("known after the decision", f"by its name {reason}"))
        if (characteristic := protected_characteristic(name)) is not None:
            signs.append(Sign("protected characteristic", f"states the {characteristic}, by its name"))
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
        ends = (float(value) for value in (values.values[0], values.values[-1]))
        shown = [f"{v:,.0f}" if v == np.floor(v) and abs(v) < 1e15 else f"{v:,.4g}" for v in ends]
        return " to ".join(dict.fromkeys(shown))
    common = np.argsort(-values.counts, kind="stable")[:_EXAMPLES]
    texts = [str(values.values[place]) for place in common]
    shown = [text if len(text) <= _LONGEST_EXAMPLE else f"{text[: _LONGEST_EXAMPLE - 1]}…" for text in texts]
    return ", ".join(shown) + (", ..." if len(values.values) > _EXAMPLES else "")


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
    def small(self) -> dict[str, int]:
        """Groups with too few people."""
        return {name: n for name, n in self.counts.items() if n < SMALL_GROUP}

    def sentences(self) -> Iterator[tuple[str, str]]:
        """What is suspicious: a kind and a sentence each."""
        if len(self.counts) < 2:
            yield "one group", f"{self.name!r} has fewer than two groups, but at least two are needed to compare."
        if len(self.counts) > MOST_GROUPS:
            yield (
                "many groups",
                f"{self.name!r} has {len(self.counts):,} values, too many for groups; combine them, or cut a number "
                "such as an age into bands.",
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
    for kind, of_column in by_kind.items():
        names = [repr(name) for name in of_column]
        more = f" and {len(names) - _MOST_NAMES} more" if len(names) > _MOST_NAMES else ""
        if len(names) <= _MOST_OF_A_KIND:
            sentences += of_column.values()
        else:
            sentences.append(f"{len(names)} columns, {kind}: {', '.join(names[:_MOST_NAMES])}{more}.")
    return sentences
