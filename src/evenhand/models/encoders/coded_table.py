"""A table of numbers, text and categories as a matrix, and back again, for models that take tables.

Numbers are unchanged. Every other value is represented by a number, so that a person's values and a baseline's can be
mixed; before the model is called, the numbers are converted back to the values.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

import numpy as np
import pandas as pd

from evenhand.arrays import Floats
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.validation import is_number_column, text_columns
from evenhand.models.encoders.pipelines import OneToOne

# What pandas finds in a column of objects.
_NUMBERS = ("integer", "floating", "mixed-integer-float", "decimal")
_CATEGORIES = ("string", "boolean", "bytes", "empty")
_MIXTURES = ("mixed", "mixed-integer")
_PLAIN = (str, bytes, bool, int, float, np.generic)

_MEETING = Lock()


@dataclass(frozen=True, eq=False)
class ValueCodes:
    """The values of a column in the order of their codes.

    A value that was not seen before, in a later batch or in a reference, gets the next code. Codes have no meaning
    beyond their values, so no metric depends on which value was seen first.

    Attributes
    ----------
    dtype
        Type of the column.
    values, places
        The values, and the code of each.
    """

    dtype: Any
    values: list[Any] = field(default_factory=list)
    places: dict[Any, int] = field(default_factory=dict)

    @classmethod
    def of(cls, column: pd.Series[Any]) -> ValueCodes:
        """The codes of a column: in the order of a pandas category's values, otherwise sorted."""
        found = cls(column.dtype)
        if isinstance(column.dtype, pd.CategoricalDtype):
            found.meet(column.dtype.categories.tolist())
        else:
            found.codes(column)
        return found

    def meet(self, values: Sequence[Any]) -> None:
        """Assign codes to values that have none."""
        with _MEETING:
            for value in values:
                if value not in self.places:
                    self.places[value] = len(self.values)
                    self.values.append(value)

    def codes(self, column: pd.Series[Any]) -> Floats:
        """The code of each value; NaN for a missing one."""
        which, met = pd.factorize(column)
        found = pd.Index(met).tolist()
        self.meet(sorted(found, key=lambda value: (type(value).__name__, value)))
        return np.asarray([*(self.places[value] for value in found), np.nan])[which]

    def decoded(self, codes: Floats) -> Any:
        """The values of codes, as an array of the column's type."""
        is_missing = ~(codes < len(self.values))  # even if a column has no values
        place = np.where(is_missing, -1, codes).astype(np.int64)
        if isinstance(self.dtype, pd.CategoricalDtype):
            return pd.Categorical.from_codes(place, categories=self._categories(), ordered=self.dtype.ordered)
        if not isinstance(self.dtype, np.dtype):
            return pd.Series(list(self.values), dtype=self.dtype).array.take(place, allow_fill=True)
        stored = np.asarray([*self.values, np.nan], dtype=object)
        # numpy's integers and booleans cannot be missing.
        return pd.Series(stored[place], dtype=object if is_missing.any() else self.dtype)

    def _categories(self) -> pd.Index[Any]:

        known: pd.Index[Any] = self.dtype.categories
        return known if len(known) == len(self.values) else pd.Index(list(self.values))


@dataclass(frozen=True, eq=False)
class CodedTable(OneToOne):
    """Columns of a table as numbers: a reversible encoding.

    Attributes
    ----------
    names
        Columns of the table.
    columns
        Codes of the values of each column; None for a column of numbers.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"income": [1.5, 2.0], "home": ["rent", "own"]})
    >>> coded = CodedTable.of(table)
    >>> coded.transform(table)
    array([[1.5, 1. ],
           [2. , 0. ]])
    >>> coded.decoded(np.array([[1.75, 1.0]]))
       income  home
    0    1.75  rent
    """

    names: list[str]
    columns: tuple[ValueCodes | None, ...]

    @classmethod
    def of(cls, table: pd.DataFrame, categorical: Sequence[str] = ()) -> CodedTable:
        """Learn the columns of a table.

        Parameters
        ----------
        table
            The people.
        categorical
            Columns that are categories even if they hold numbers.

        Raises
        ------
        InvalidInputError
            If a column holds neither numbers nor categories.
        """
        names = [str(name) for name in table.columns]
        kinds = {name: "category" if name in categorical else _kind(table[name]) for name in names}
        strange = {name: str(table[name].dtype) for name, kind in kinds.items() if kind == "other"}
        if strange:
            raise InvalidInputError(
                f"The table has columns that are neither numbers nor categories (column: type): {strange}; turn them "
                "into numbers, such as days since a date, or into text."
            )
        return cls(names, tuple(ValueCodes.of(table[n]) if kinds[n] == "category" else None for n in names))

    @property
    def categorical(self) -> tuple[int, ...]:
        """Positions of the columns that are categories."""
        return tuple(j for j, codes in enumerate(self.columns) if codes is not None)

    def transform(self, table: pd.DataFrame) -> Floats:
        """Numbers, and codes of all other values; NaN for what is missing.

        Raises
        ------
        InvalidInputError
            If a column that held numbers holds something else.
        """
        matrix = np.empty((len(table), len(self.names)))
        for j, (name, codes) in enumerate(zip(self.names, self.columns, strict=True)):
            column = table[name]
            if codes is None and _kind(column) != "number":
                raise InvalidInputError(
                    f"The column {name!r} holds numbers for the audited people, but values of type {column.dtype} "
                    "here; give it the same type."
                )
            matrix[:, j] = column.astype("float64").to_numpy(na_value=np.nan) if codes is None else codes.codes(column)
        return matrix

    def decoded(self, matrix: Floats) -> pd.DataFrame:
        """Convert a matrix back to a table; numbers are float64, because a baseline holds means."""
        columns = zip(self.names, self.columns, matrix.T, strict=True)
        return pd.DataFrame(
            {name: values if codes is None else codes.decoded(values) for name, codes, values in columns}
        )


def has_categories(table: pd.DataFrame) -> bool:
    """Whether a table has columns that are not numbers; booleans count as the numbers 1 and 0."""
    return bool(text_columns(table))


def _kind(column: pd.Series[Any]) -> str:
    """Whether a column holds a "number", a "category" or something "other"."""
    if is_number_column(column):
        return "other" if column.dtype.kind == "c" else "number"
    if column.dtype == object:
        inferred = pd.api.types.infer_dtype(column, skipna=True)
        is_category = inferred in _CATEGORIES or (inferred in _MIXTURES and _is_plain(column))
        return "number" if inferred in _NUMBERS else "category" if is_category else "other"
    is_category = isinstance(column.dtype, pd.CategoricalDtype)
    is_text = pd.api.types.is_string_dtype(column.dtype) or pd.api.types.is_bool_dtype(column.dtype)
    return "category" if is_category or is_text else "other"


def _is_plain(column: pd.Series[Any]) -> bool:
    """Whether a column of objects holds only text, numbers or booleans."""
    try:
        return all(isinstance(value, _PLAIN) for value in column.dropna().unique())
    except TypeError:  # lists and the like are not hashable
        return False
