"""The coordinates in which people are compared: every financial feature counts alike, whatever its unit."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, cast

import narwhals as nw
import numpy as np
import pandas as pd
from pandas import CategoricalDtype, factorize, to_numeric
from pandas.api import types

from evenhand.arrays import Floats
from evenhand.exceptions import InvalidInputError, InvalidTypeError

Level: TypeAlias = str | bool | int | float | None
Missing: TypeAlias = Literal["error", "indicator"]

_MOST_LEVELS = 50  # beyond this, a category with almost as many values as people is rejected
_FARTHEST = 1e150  # squares of larger coordinates would overflow


@dataclass(frozen=True)
class NumericColumn:
    """A number, z-scored with the reference's mean and population standard deviation.

    Attributes
    ----------
    name
        The column's name.
    mean, std
        Of the reference's non-missing values; `std` is 0 for a constant column, whose coordinate is 0.
    missing_share
        Share of the reference without a value. If it is positive, the column has a second coordinate that marks
        missing values, scaled like a category of two levels.
    """

    name: str
    mean: float
    std: float
    missing_share: float = 0.0

    @property
    def is_constant(self) -> bool:
        """Whether everyone in the reference has the same value."""
        return self.std == 0 and self.missing_share == 0

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        """One name for each coordinate."""
        return (self.name, f"{self.name} is missing") if self.missing_share > 0 else (self.name,)

    def coordinates(self, values: Floats) -> Floats:
        """Return the column's coordinates, of shape (n, 1) or, with an indicator, (n, 2)."""
        absent = np.isnan(values)
        with np.errstate(over="ignore"):
            z = (values - self.mean) / self.std if self.std > 0 else np.zeros(len(values))
        z = np.where(absent, 0.0, z)
        if self.missing_share == 0:
            return z[:, None]
        scale = 1 / np.sqrt(self.missing_share * (1 - self.missing_share))
        return np.column_stack([z, absent * scale])


@dataclass(frozen=True)
class CategoricalColumn:
    r"""A category, one-hot and scaled by :math:`1/\sqrt{\sum_c p_c(1-p_c)}`.

    With that scale, two people drawn from the reference differ by 2 in expected squared distance, as they do in a
    z-scored number. A level that the reference does not have is the zero vector.

    Attributes
    ----------
    name
        The column's name.
    levels
        The reference's levels; None means a missing value, if that is a level.
    shares
        Share of the reference at each level.
    """

    name: str
    levels: tuple[Level, ...]
    shares: tuple[float, ...]

    @property
    def is_constant(self) -> bool:
        """Whether everyone in the reference is at the same level."""
        return len(self.levels) == 1

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        """One name for each coordinate."""
        return tuple(f"{self.name}={'missing' if v is None else v}" for v in self.levels)

    @property
    def scale(self) -> float:
        """The value of the coordinate of a person's level; 0 for a constant column."""
        spread = sum(p * (1 - p) for p in self.shares)
        return 0.0 if self.is_constant else float(1 / np.sqrt(spread))

    def coordinates(self, values: pd.Categorical) -> Floats:
        """Return the column's coordinates, of shape (n, n_levels)."""
        place = {v: j for j, v in enumerate(self.levels)}
        columns = np.array([place.get(v, -1) for v in (*values.categories, None)])[values.codes]
        block = np.zeros((len(columns), len(self.levels)))
        known = np.flatnonzero(columns >= 0)
        block[known, columns[known]] = self.scale
        return block


_Column: TypeAlias = NumericColumn | CategoricalColumn
_Values: TypeAlias = Floats | pd.Categorical


@dataclass(frozen=True)
class MatchingSpace:
    """The coordinates in which people are compared, learned from a reference (Definition 2).

    Attributes
    ----------
    columns
        What was learned about each financial feature, in order.
    missing
        `"error"`: a missing value is rejected. `"indicator"`: a missing number is filled with the mean and marked in
        an extra coordinate, and a missing category is a level. A value that is missing only for people outside the
        reference is treated as average, as is a level that the reference does not have.
    is_named
        Whether the reference had column names, which later tables must then repeat in the same order.

    Examples
    --------
    >>> import numpy as np
    >>> space = MatchingSpace.fit(np.array([[1.0, 7.0], [3.0, 7.0]]))
    >>> space.transform(np.array([[5.0, 9.0]]))
    array([[3., 0.]])
    >>> space.constant
    ('column 1',)
    """

    columns: tuple[_Column, ...]
    missing: Missing = "error"
    is_named: bool = False

    @classmethod
    def fit(cls, F_ref: object, *, missing: Missing = "error") -> MatchingSpace:
        """Return the space of a reference.

        Parameters
        ----------
        F_ref
            Financial features of shape (n, k): a numeric array, or a table whose numeric columns are z-scored and
            whose text, categorical and boolean columns are one-hot encoded. Any frame that narwhals reads is accepted.
        missing
            How missing values are handled; see the class.

        Raises
        ------
        InvalidInputError
            If there are no rows or no columns, or values are missing (under `"error"`), infinite or too large.
        InvalidTypeError
            If a column is neither numbers nor categories.
        """
        if missing not in ("error", "indicator"):
            raise InvalidInputError(f"`missing` must be 'error' or 'indicator'; got {missing!r}.")
        names, values, is_named = _read(F_ref)
        n = len(values[0]) if values else 0
        if not n:
            raise InvalidInputError(
                f"The reference must have people and financial features; got {n} rows and {len(values)} columns."
            )
        _refuse_unusable(names, values, missing)
        columns = (_learn(name, column) for name, column in zip(names, values, strict=True))
        return cls(tuple(columns), missing, is_named)

    def transform(self, F: object) -> Floats:
        """Return people's coordinates, of shape (n, n_coordinates).

        Raises
        ------
        InvalidInputError
            If the columns are not the reference's, in its order, or a value cannot be used.
        InvalidTypeError
            If a column holds categories where the reference had numbers, or the reverse.
        """
        names, values, is_named = _read(F)
        self._check_columns(names, values, is_named)
        _refuse_unusable(names, values, self.missing)
        # _check_columns has ensured that each column gets values of its kind
        blocks = [column.coordinates(v) for column, v in zip(self.columns, cast(Any, values), strict=True)]
        coordinates = np.ascontiguousarray(np.hstack(blocks))
        for column, block in zip(self.columns, blocks, strict=True):
            n_far = int((~(np.abs(block) < _FARTHEST)).any(axis=1).sum())
            if n_far:
                raise InvalidInputError(
                    f"{column.name!r} has {n_far} values too far from the reference to compare: "
                    f"more than {_FARTHEST:g} standard deviations."
                )
        return coordinates

    @property
    def names(self) -> tuple[str, ...]:
        """The financial features, in order."""
        return tuple(column.name for column in self.columns)

    @property
    def coordinate_names(self) -> tuple[str, ...]:
        """One name for each coordinate: the column, or `column=level`."""
        return tuple(name for column in self.columns for name in column.coordinate_names)

    @property
    def constant(self) -> tuple[str, ...]:
        """The features on which everyone in the reference is equal, and which therefore have no effect."""
        return tuple(column.name for column in self.columns if column.is_constant)

    def _check_columns(self, names: Sequence[str], values: Sequence[_Values], is_named: bool) -> None:
        """Reject a table whose columns are not the reference's."""
        if self.is_named and is_named and tuple(names) != self.names:
            absent = [name for name in self.names if name not in names]
            extra = [name for name in names if name not in self.names]
            if absent or extra:
                raise InvalidInputError(
                    f"The financial features must be those of the reference, {list(self.names)}; "
                    f"absent: {absent}, unexpected: {extra}."
                )
            raise InvalidInputError(
                f"The financial features are in a different order than in the reference: "
                f"expected {list(self.names)}, got {list(names)}."
            )
        if len(values) != len(self.columns):
            raise InvalidInputError(
                f"The reference has {len(self.columns)} financial features, but this table has {len(values)}."
            )
        for column, v in zip(self.columns, values, strict=True):
            kinds, was = ("numbers", "categories"), isinstance(column, CategoricalColumn)
            if was != isinstance(v, pd.Categorical):
                raise InvalidTypeError(
                    f"{column.name!r} held {kinds[was]} in the reference, but holds {kinds[not was]} here."
                )


def _learn(name: str, values: _Values) -> _Column:
    """Return what the reference says about one column."""
    if isinstance(values, pd.Categorical):
        return _learn_categorical(name, values)
    present = values[~np.isnan(values)]
    if not len(present):
        raise InvalidInputError(f"{name!r} has no value in the reference: all {len(values)} are missing.")
    missing_share = 1 - len(present) / len(values)
    if present.min() == present.max():
        return NumericColumn(name, float(present[0]), 0.0, missing_share)
    with np.errstate(over="ignore", invalid="ignore"):
        mean = present.mean()
        deviation = np.abs(present - mean)
        largest = deviation.max()
        std = largest * np.sqrt(np.mean((deviation / largest) ** 2))  # neither over- nor underflows
    if not np.isfinite(std):
        raise InvalidInputError(f"{name!r} is too large to standardize: values reach {np.abs(present).max():g}.")
    return NumericColumn(name, float(mean), float(std), missing_share)


def _learn_categorical(name: str, values: pd.Categorical) -> CategoricalColumn:
    """Return the levels that occur, sorted, with their shares; a missing value comes last."""
    levels, n = values.categories.tolist(), len(values)
    counts = np.bincount(values.codes + 1, minlength=len(levels) + 1)
    if len(levels) > max(_MOST_LEVELS, n / 2):
        raise InvalidInputError(
            f"{name!r} is text with {len(levels):,} different values in {n:,} people (such as {levels[0]!r}), so "
            "hardly two are alike; turn it into numbers, or leave it out of the financial features."
        )
    by_level: dict[Level, int] = dict(zip((None, *levels), counts.tolist(), strict=True))
    present = [level for level, count in by_level.items() if count]
    present.sort(key=lambda v: (v is None, type(v).__name__, v if v is not None else 0))
    return CategoricalColumn(name, tuple(present), tuple(by_level[v] / n for v in present))


def _refuse_unusable(names: Sequence[str], values: Sequence[_Values], missing: Missing) -> None:
    """Reject infinite values, and missing ones unless they are to be marked."""
    infinite = {
        n: int(np.isinf(v).sum()) for n, v in zip(names, values, strict=True) if not isinstance(v, pd.Categorical)
    }
    if any(infinite.values()):
        raise InvalidInputError(f"Financial features have infinite values: {_counts(infinite)}.")
    absent = {n: int(pd.isna(v).sum()) for n, v in zip(names, values, strict=True)}
    if missing == "error" and any(absent.values()):
        raise InvalidInputError(
            f"Financial features have missing values: {_counts(absent)}. "
            f"Fill them, drop those people, or pass missing='indicator'."
        )


def _counts(by_name: Mapping[str, int]) -> str:
    """Return "'income' (3), 'age' (1)" for the columns with a count."""
    return ", ".join(f"{name!r} ({count})" for name, count in by_name.items() if count)


def _read(F: object) -> tuple[list[str], list[_Values], bool]:
    """Return the names and values of the columns, and whether the names are the user's."""
    frame = _as_pandas(F)
    if frame is None:
        array = _as_array(F)
        return [f"column {j}" for j in range(array.shape[1])], list(array.T), False
    names = [str(name) for name in frame.columns]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InvalidInputError(f"Financial features must have different names; these are repeated: {twice}.")
    return names, [_read_series(name, frame.iloc[:, j]) for j, name in enumerate(names)], True


def _as_pandas(F: object) -> pd.DataFrame | None:
    """Return a table as pandas, or None if it is not a table."""
    if isinstance(F, np.ndarray | list | tuple):
        return None
    if isinstance(F, pd.DataFrame):
        return F
    table = nw.from_native(cast(Any, F), eager_only=True, pass_through=True)
    return table.to_pandas() if isinstance(table, nw.DataFrame) else None


def _as_array(F: object) -> Floats:
    """Return a numeric array of shape (n, k)."""
    array = np.asarray(F)
    if array.ndim != 2:
        raise InvalidInputError(f"Financial features must be of shape (n, k); got shape {array.shape}.")
    if array.dtype.kind not in "biuf":
        raise InvalidTypeError(
            f"An array of financial features must hold numbers, but this one has dtype {array.dtype}. "
            f"Pass a DataFrame to match on categories."
        )
    return array.astype(np.float64, copy=False)


def _read_series(name: str, series: pd.Series[Any]) -> _Values:
    """Return a column's numbers, or its levels."""
    kind = types.infer_dtype(series, skipna=True) if series.dtype == object else ""
    if kind in ("integer", "floating", "mixed-integer-float", "decimal", "empty"):
        series, kind = to_numeric(series.astype("float64")), ""
    is_text = types.is_string_dtype(series.dtype) and series.dtype != object
    is_category = isinstance(series.dtype, CategoricalDtype)
    if is_category or is_text or types.is_bool_dtype(series.dtype) or kind in ("string", "boolean"):
        codes, levels = factorize(series)
        return pd.Categorical.from_codes(codes, pd.Index([_plain(v) for v in levels], dtype=object))
    if types.is_numeric_dtype(series.dtype) and not types.is_complex_dtype(series.dtype):
        return series.to_numpy(dtype=np.float64, na_value=np.nan)
    raise InvalidTypeError(
        f"{name!r} holds neither numbers nor categories (dtype {series.dtype}{f', {kind}' if kind else ''}). "
        f"Turn it into one of them before matching."
    )


def _plain(value: object) -> Level:
    """Return a level as a value that JSON preserves."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, str | bool | int | float) else str(value)
