"""The reason of each feature, or the meaning of each code in a lender's file, from a mapping, a table or a file."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.arrays import Ints
from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.inputs.tables import read_table
from evenhand.inputs.validation import as_table, category_text, check_columns
from evenhand.system.files import read_toml

REST = "*"
"""Matches every feature or code that a map does not name."""

_WHAT = "`reason_map` (--reason-map)"
_MOST_NAMED = 12


@dataclass(frozen=True)
class ReasonMap:
    """The reasons of features.

    Attributes
    ----------
    features
        Columns of the data, in their order.
    names
        The reasons, in the order of the map.
    of_feature
        Place of each feature's reason among `names`.
    """

    features: tuple[str, ...]
    names: tuple[str, ...]
    of_feature: tuple[int, ...]

    @classmethod
    def of(cls, given: Any, features: Sequence[str]) -> ReasonMap:
        """A map of all features; without one, each feature is its own reason.

        Raises
        ------
        InvalidInputError
            If it names an unknown column, omits a feature, or names one twice.

        Examples
        --------
        >>> found = ReasonMap.of({"Debt": ["owed", "limit"], "*": "Other"}, ["age", "limit", "owed"])
        >>> found.names, found.of_feature
        (('Debt', 'Other'), (1, 0, 0))
        """
        plain = read_reason_map(given)
        if plain is None:
            return cls(tuple(features), tuple(features), tuple(range(len(features))))
        rest = plain.pop(REST, None)
        columns = check_columns(plain, features, _WHAT) if plain else []
        reason_of = dict(zip(columns, plain.values(), strict=True))
        left = [feature for feature in features if feature not in reason_of]
        if left and rest is None:
            raise InvalidInputError(
                f"{_WHAT} has no reason for {len(left)} of {len(features)} features: {_few(left)}. Give each of them "
                f"one, or use '{REST}' for all that are not named."
            )
        names = tuple(dict.fromkeys([*reason_of.values(), *([rest] if left and rest is not None else [])]))
        return cls(tuple(features), names, tuple(names.index(reason_of.get(f, rest or "")) for f in features))

    def to_dict(self) -> dict[str, str]:
        """The reason of each feature."""
        return {feature: self.names[code] for feature, code in zip(self.features, self.of_feature, strict=True)}

    def members(self, reason: str) -> list[str]:
        """The features with a given reason."""
        code = self.names.index(reason)
        return [feature for feature, own in zip(self.features, self.of_feature, strict=True) if own == code]

    def summed(self, attributions: NDArray[np.floating]) -> NDArray[np.float64]:
        """Attributions of features, of shape (n, n_features), added up by reason, of shape (n, n_reasons)."""
        sums = np.zeros((len(attributions), len(self.names)))
        for feature, reason in enumerate(self.of_feature):
            sums[:, reason] += attributions[:, feature]
        return sums


def read_reason_map(given: Any) -> dict[str, str] | None:
    """The meaning of features or codes, by name and in order; None without a map.

    Parameters
    ----------
    given
        A mapping of features to reasons, or of reasons to lists of features; a table whose first column has features
        and whose second has reasons; or a path of such a table, or of a TOML file with a table ``[reasons]``.
        ``"*"`` matches all features that are not named.

    Raises
    ------
    InvalidInputError, InvalidTypeError
        If it is none of these, names something twice, or has an empty name.

    Examples
    --------
    >>> read_reason_map({"Debt": ["owed", "limit"], "age": "Age"})
    {'owed': 'Debt', 'limit': 'Debt', 'age': 'Age'}
    """
    if given is None:
        return None
    if isinstance(given, (str, os.PathLike)):
        given = table_in(Path(given), _WHAT, "reasons", '"Debt" = ["owed", "limit"]')
    if isinstance(given, Mapping):
        return _from_mapping(given)
    if isinstance(given, (bool, int, float)):
        raise InvalidTypeError(
            f"{_WHAT} must be a path, a mapping or a table of two columns, got {type(given).__name__}."
        )
    return _from_table(as_table(given, "reason_map"))


def table_in(path: Path, what: str, key: str, example: str) -> Any:
    """The content of a file that maps names: the table of that key of a TOML file, or the columns of any other."""
    if path.suffix.lower() != ".toml":
        return read_table(path)
    found = read_toml(path, what)
    if not isinstance(found.get(key), dict):
        raise InvalidInputError(
            f"{what}: {str(path)!r} must have a table [{key}] with lines like {example}, got the keys {sorted(found)}."
        )
    return found[key]


def _from_mapping(given: Mapping[Any, Any]) -> dict[str, str]:
    lines: list[tuple[str, str]] = []
    for key, value in given.items():
        if isinstance(value, str):
            lines.append((str(key), value))
        elif isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value):
            lines += [(item, str(key)) for item in value]
        else:
            raise InvalidTypeError(
                f"{_WHAT} must map a feature to the text of its reason, or a reason to a list of features, got "
                f"{value!r} for {str(key)!r}."
            )
    return _checked(lines)


def _from_table(table: pd.DataFrame) -> dict[str, str]:
    if table.shape[1] != 2:
        raise InvalidInputError(
            f"{_WHAT} as a table must have two columns, features and their reasons, got {list(table.columns)}."
        )
    n_missing = int(table.isna().any(axis=1).sum())
    if n_missing:
        raise InvalidInputError(f"{_WHAT} has {n_missing} rows without a feature or a reason; fill or remove them.")
    columns = [table.iloc[:, place].astype(object).map(category_text) for place in (0, 1)]
    return _checked(list(zip(*columns, strict=True)))


def _checked(lines: list[tuple[str, str]]) -> dict[str, str]:
    named = [(item.strip(), reason.strip()) for item, reason in lines]
    if not named or not all(item and reason for item, reason in named):
        raise InvalidInputError(f"{_WHAT} must name features and reasons, got {'an empty name' if named else 'none'}.")
    items = [item for item, _ in named]
    repeated = sorted({item for item in items if items.count(item) > 1})
    if repeated:
        raise InvalidInputError(f"{_WHAT} gives more than one reason to {_few(repeated)}; keep only one.")
    return dict(named)


def given_reasons(values: Any, reason_map: Any = None) -> tuple[tuple[str, ...], Ints]:
    """Reasons and their codes from columns of a lender's file, the first reason in the first column.

    Parameters
    ----------
    values
        One column per rank, such as r1 to r4; a missing or empty cell has no reason.
    reason_map
        The meaning of the codes, in the form of `read_reason_map`; None if the codes are the reasons.

    Returns
    -------
    The reasons, in the order of the map or else alphabetical, and codes of shape (n, k), -1 for none.

    Raises
    ------
    InvalidInputError
        If a code is not in the map.

    Examples
    --------
    >>> given_reasons(pd.DataFrame({"r1": ["AA02", "AA01"], "r2": ["AA01", None]}))
    (('AA01', 'AA02'), array([[ 1,  0],
           [ 0, -1]]))
    """
    table = as_table(values, "reason codes")
    text = table.astype(object).map(lambda cell: "" if pd.isna(cell) else category_text(cell).strip())
    cells = text.to_numpy(dtype=str)
    found, place = np.unique(cells, return_inverse=True)
    plain = read_reason_map(reason_map)
    if plain is None:
        names = tuple(str(code) for code in found if code)
        reason_of = dict(zip(names, names, strict=True))
    else:
        rest = plain.get(REST)
        reason_of = {str(code): plain.get(str(code), rest or "") for code in found if code}
        unknown = {code: int((cells == code).sum()) for code, reason in reason_of.items() if not reason}
        if unknown:
            shown = ", ".join(f"{code!r} ({n:,})" for code, n in list(unknown.items())[:_MOST_NAMED])
            raise InvalidInputError(
                f"{_WHAT} has no entry for {len(unknown)} codes that occur (code, times): {shown}. Add them, or "
                f"use '{REST}' for all that are not named."
            )
        names = tuple(dict.fromkeys(plain.values()))
    codes = np.array([names.index(reason_of[str(code)]) if code else -1 for code in found], dtype=np.int64)
    return names, codes[place.reshape(cells.shape)]


def _few(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_MOST_NAMED])
    return f"{shown} and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else shown
