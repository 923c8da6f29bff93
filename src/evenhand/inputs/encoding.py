"""Encode a table of numbers and categories as a network's input, and map attributions back to the table's columns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.exceptions import InvalidInputError
from evenhand.inputs.validation import MISSING, as_texts, is_number_column

Encoding = Literal["onehot", "ordinal", "unscaled"]


@dataclass(frozen=True)
class NumberColumn:
    """A standardized number; missing values become the mean, flagged in an extra column if fit saw any."""

    name: str
    mean: float
    scale: float
    flags_missing: bool

    @classmethod
    def fit(cls, name: str, values: pd.Series[Any]) -> NumberColumn:
        numbers = _numbers(name, values)
        known = numbers[~np.isnan(numbers)]
        if len(known) == 0:
            raise InvalidInputError(f"Column {name!r} has no values; drop it.")
        scale = float(known.std())
        # A constant column carries no information: it is centered but not scaled.
        return cls(name, float(known.mean()), scale if scale > 0 else 1.0, len(known) < len(numbers))

    @property
    def encoded_names(self) -> list[str]:
        return [self.name, f"{self.name}={MISSING}"] if self.flags_missing else [self.name]

    def transform(self, values: pd.Series[Any]) -> NDArray[np.float64]:
        if not is_number_column(values):
            raise InvalidInputError(f"Column {self.name!r} held numbers at fit and now holds {values.dtype}.")
        numbers = _numbers(self.name, values)
        missing = np.isnan(numbers)
        standard = np.where(missing, 0.0, (numbers - self.mean) / self.scale)
        return np.column_stack([standard, missing]) if self.flags_missing else standard[:, None]


@dataclass(frozen=True)
class CategoryColumn:
    """A category: one column each, or its integer code, standardized or as it is.

    A missing value is a separate category if fit saw any. A category never seen at fit is all zeros: no category
    in one-hot columns, the mean code in ordinal ones, the first code in unscaled ones.
    """

    name: str
    categories: tuple[str, ...]
    encoding: Encoding
    mean: float
    scale: float

    @classmethod
    def fit(cls, name: str, values: pd.Series[Any], encoding: Encoding) -> CategoryColumn:
        keys = as_texts(values)
        seen = set(keys.unique())
        if isinstance(values.dtype, pd.CategoricalDtype):  # keep the order that the user gave
            ordered = [str(c) for c in values.dtype.categories]
        else:
            ordered = sorted(seen - {MISSING})
        categories = tuple(c for c in [*ordered, MISSING] if c in seen)
        if encoding == "unscaled":
            return cls(name, categories, encoding, 0.0, 1.0)
        codes = pd.Index(categories).get_indexer(pd.Index(keys)).astype(np.float64)
        scale = float(codes.std())
        return cls(name, categories, encoding, float(codes.mean()), scale if scale > 0 else 1.0)

    @property
    def encoded_names(self) -> list[str]:
        if self.encoding == "onehot":
            return [f"{self.name}={category}" for category in self.categories]
        return [self.name]

    def codes(self, values: pd.Series[Any]) -> NDArray[np.int64]:
        """Position of each value among the categories, -1 for one never seen."""
        return pd.Index(self.categories).get_indexer(pd.Index(as_texts(values))).astype(np.int64)

    def transform(self, values: pd.Series[Any]) -> NDArray[np.float64]:
        codes = self.codes(values)
        if self.encoding != "onehot":
            standard: NDArray[np.float64] = np.where(codes < 0, 0.0, (codes - self.mean) / self.scale)
            return standard[:, None]
        is_category: NDArray[np.bool_] = codes[:, None] == np.arange(len(self.categories))
        return is_category.astype(np.float64)


@dataclass(frozen=True)
class TableEncoder:
    """Encoder of mixed tables, fitted on one table and applied to others.

    Numbers are standardized; categories (strings, booleans, pandas categories) become one column each
    (``"onehot"``) or an integer code, standardized (``"ordinal"``) or as it is (``"unscaled"``). Columns are found by
    name.

    Attributes
    ----------
    columns
        One fitted column per input column, in order.
    encoding
        ``"onehot"``, ``"ordinal"`` or ``"unscaled"``.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"income": [1.0, 3.0], "job": ["clerk", "cook"]})
    >>> encoder = TableEncoder.fit(table)
    >>> encoder.encoded_names
    ['income', 'job=clerk', 'job=cook']
    >>> encoder.transform(table).tolist()
    [[-1.0, 1.0, 0.0], [1.0, 0.0, 1.0]]
    >>> encoder.join([[0.5, 0.25, -0.75]]).tolist()  # attributions, summed back to income and job
    [[0.5, -0.5]]
    """

    columns: tuple[NumberColumn | CategoryColumn, ...]
    encoding: Encoding

    @classmethod
    def fit(cls, X: pd.DataFrame, encoding: Encoding = "onehot") -> TableEncoder:
        """Learn means, scales and categories from `X`."""
        if encoding not in get_args(Encoding):
            raise InvalidInputError(f"`encoding` must be one of {list(get_args(Encoding))}, got {encoding!r}.")
        if X.shape[0] == 0 or X.shape[1] == 0:
            raise InvalidInputError(f"Cannot learn an encoding from a table of shape {X.shape}.")
        columns = (
            NumberColumn.fit(str(name), X[name])
            if is_number_column(X[name])
            else CategoryColumn.fit(str(name), X[name], encoding)
            for name in X.columns
        )
        return cls(tuple(columns), encoding)

    @property
    def names(self) -> list[str]:
        """Input columns, in order."""
        return [column.name for column in self.columns]

    @cached_property
    def encoded_names(self) -> list[str]:
        """Encoded columns, in order."""
        return [name for column in self.columns for name in column.encoded_names]

    @cached_property
    def join_matrix(self) -> NDArray[np.float64]:
        """0/1 matrix of shape (n_encoded, n_columns) that sums encoded columns into their input column."""
        widths = [len(column.encoded_names) for column in self.columns]
        source = np.repeat(np.arange(len(widths)), widths)
        is_source: NDArray[np.bool_] = source[:, None] == np.arange(len(widths))
        return is_source.astype(np.float64)

    def join(self, attributions: Any) -> NDArray[np.float64]:
        """Attributions of shape (n, n_encoded) summed to the input columns, of shape (n, n_columns)."""
        return np.asarray(attributions, dtype=np.float64) @ self.join_matrix

    def transform(self, X: pd.DataFrame) -> NDArray[np.float32]:
        """Encode a table with the columns seen at fit, in any order; additional columns are an error."""
        given, expected = [str(name) for name in X.columns], self.names
        absent, extra = [n for n in expected if n not in given], [n for n in given if n not in expected]
        if absent or extra:
            raise InvalidInputError(
                f"The table's columns differ from those learned at fit: missing {absent}, unexpected {extra}."
            )
        table = X.set_axis(given, axis=1)
        return np.concatenate(
            [column.transform(table[column.name]) for column in self.columns], axis=1, dtype=np.float32
        )

    def as_matched(self, table: pd.DataFrame) -> pd.DataFrame:
        """Some of the columns in the form for matching: unless they are one-hot, categories are integer codes."""
        if self.encoding == "onehot":
            return table
        categories = [column for column in self.columns if isinstance(column, CategoryColumn)]
        return table.assign(**{c.name: c.codes(table[c.name]) for c in categories if c.name in table.columns})

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON; `from_dict` reverses it."""
        kinds = ("number" if isinstance(column, NumberColumn) else "category" for column in self.columns)
        columns = [{"kind": kind, **vars(column)} for kind, column in zip(kinds, self.columns, strict=True)]
        return {"encoding": self.encoding, "columns": columns}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> TableEncoder:
        """Rebuild an encoder from `to_dict`'s data."""

        def column(kind: str, **fields: Any) -> NumberColumn | CategoryColumn:
            if kind == "number":
                return NumberColumn(**fields)
            return CategoryColumn(**{**fields, "categories": tuple(fields["categories"])})

        return cls(tuple(column(**one) for one in data["columns"]), data["encoding"])


def _numbers(name: str, values: pd.Series[Any]) -> NDArray[np.float64]:
    numbers = values.to_numpy(dtype=np.float64, na_value=np.nan)
    if np.isinf(numbers).any():
        raise InvalidInputError(f"Column {name!r} holds {int(np.isinf(numbers).sum())} infinite values.")
    return numbers
