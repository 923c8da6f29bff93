"""Columns that a candidate sees: which it drops, which are monotone, and categories in the form that libraries take."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from evenhand.exceptions import InvalidInputError
from evenhand.inputs.validation import check_columns, is_number_column, text_columns
from evenhand.searching.families.family import Parameters

__all__ = ["kept_columns", "monotone_signs", "numbers_and_words", "spelled_as", "with_categories"]


def kept_columns(parameters: Parameters, columns: Sequence[str]) -> list[str]:
    """The columns of a table that are left after a candidate drops its own.

    Raises
    ------
    InvalidInputError
        If the table does not have a dropped column, or no column is left.

    Examples
    --------
    >>> kept_columns({"drop": ["age"]}, ["income", "age"])
    ['income']
    """
    given = parameters["drop"]
    dropped = check_columns(given, columns, "`drop`") if len(given) else []
    kept = [column for column in columns if column not in dropped]
    if not kept:
        raise InvalidInputError("`drop` leaves no column to train on.")
    return kept


def monotone_signs(parameters: Parameters, table: pd.DataFrame) -> list[int]:
    """The direction of each column of a table: 1, -1 or 0; empty if no column has one.

    Columns that the table no longer has are skipped.

    Raises
    ------
    InvalidInputError
        If the directions do not map columns to 1, -1 or 0, or one belongs to a category.

    Examples
    --------
    >>> monotone_signs({"monotone": {"income": 1}}, pd.DataFrame({"debt": [1.0], "income": [2.0]}))
    [0, 1]
    """
    given: Any = parameters["monotone"]
    if not given:
        return []
    if not isinstance(given, Mapping) or not set(given.values()) <= {-1, 0, 1}:
        raise InvalidInputError(f"`monotone` must map columns to 1, -1 or 0, got {given!r}.")
    numbers, _ = numbers_and_words(table)
    words = [name for name, sign in given.items() if sign and name in table.columns and name not in numbers]
    if words:
        raise InvalidInputError(f"`monotone` names {words}, which contain categories; only numbers have a direction.")
    return [int(given.get(str(column), 0)) for column in table.columns]


def numbers_and_words(table: pd.DataFrame) -> tuple[list[str], list[str]]:
    """Columns of numbers, and all others."""
    numbers = [str(column) for column in table.columns if is_number_column(table[column])]
    return numbers, [str(column) for column in table.columns if column not in numbers]


def with_categories(table: pd.DataFrame) -> pd.DataFrame:
    """The table with text as pandas categories, which XGBoost and LightGBM accept.

    Examples
    --------
    >>> with_categories(pd.DataFrame({"home": ["rent", "own"]}))["home"].cat.categories.tolist()
    ['own', 'rent']
    """
    words = [c for c in text_columns(table) if not isinstance(table[c].dtype, pd.CategoricalDtype)]
    return table.astype(dict.fromkeys(words, "category")) if words else table


def spelled_as(columns: Sequence[str], names: Sequence[str]) -> list[str]:
    """Names of a model's inputs as a table spells them: LightGBM replaces a space in a name by an underscore.

    Examples
    --------
    >>> spelled_as(["late payments", "income"], ["income", "late_payments"])
    ['income', 'late payments']
    """
    spelled = {column.replace(" ", "_"): column for column in columns}
    return [name if name in columns else spelled.get(name, name) for name in names]
