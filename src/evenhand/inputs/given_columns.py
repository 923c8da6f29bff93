"""Columns of files with scores, attributions and reasons that replace a model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.exceptions import InvalidInputError
from evenhand.inputs.validation import as_ids, check_columns

__all__ = ["GivenColumns", "attribution_columns", "rows_by_id", "rows_in_order"]

_ATTRIBUTIONS = "`attributions` (--attributions)"


@dataclass(frozen=True)
class GivenColumns:
    """Columns of the applicants' file that replace a model.

    Attributes
    ----------
    scores, base_values
        Columns; None if there are none. A base value may also be a number.
    reason_codes
        Columns, first reason first.
    attributions
        The column of attributions of each feature, by feature; empty if they are in a different file or missing.
    """

    scores: str | None = None
    base_values: str | float | None = None
    reason_codes: tuple[str, ...] = ()
    attributions: Mapping[str, str] | None = None

    @classmethod
    def among(
        cls,
        available: Sequence[str],
        *,
        scores: str | None,
        base_values: str | None,
        reason_codes: Sequence[str],
        attributions: Sequence[str],
    ) -> GivenColumns:
        """Check names against the existing columns."""
        if scores is not None:
            (scores,) = check_columns([scores], available, "`scores` (--scores)")
        codes = check_columns(reason_codes, available, "`reason_codes` (--reason-codes)") if reason_codes else []
        return cls(
            scores,
            _base_value(base_values, available),
            tuple(codes),
            attribution_columns(attributions, available) if attributions else None,
        )

    @property
    def needed(self) -> list[str]:
        """Every column that is read, once; none of them is an input of the model."""
        single = [name for name in (self.scores, self.base_values) if isinstance(name, str)]
        return list(dict.fromkeys([*single, *self.reason_codes, *(self.attributions or {}).values()]))


def attribution_columns(named: Sequence[str], available: Sequence[str]) -> dict[str, str]:
    """The column of attributions of each feature, by feature.

    Parameters
    ----------
    named
        Patterns in which ``*`` is the feature, such as ``shap_*``; ``feature=column``; or columns with the same names
        as their features.
    available
        Columns of the file.

    Raises
    ------
    InvalidInputError
        If a name is missing, a pattern matches nothing, or a feature has two columns.

    Examples
    --------
    >>> attribution_columns(["shap_*"], ["income", "shap_income", "shap_debt"])
    {'income': 'shap_income', 'debt': 'shap_debt'}
    >>> attribution_columns(["income=phi_1", "debt"], ["phi_1", "debt"])
    {'income': 'phi_1', 'debt': 'debt'}
    """
    found: dict[str, str] = {}
    for name in named:
        for feature, column in _mapped(name.strip(), available).items():
            if found.setdefault(feature, column) != column:
                raise InvalidInputError(
                    f"{_ATTRIBUTIONS} gives {feature!r} two columns, {found[feature]!r} and {column!r}; name only one."
                )
    return found


def _mapped(name: str, available: Sequence[str]) -> dict[str, str]:
    if name.count("*") > 1:
        raise InvalidInputError(f"{_ATTRIBUTIONS} may have one * in a pattern, got {name!r}; write it like 'shap_*'.")
    if "*" in name:
        start, end = name.split("*")
        shortest = len(start) + len(end)
        fits = [c for c in available if c.startswith(start) and c.endswith(end) and len(c) > shortest]
        if not fits:
            raise InvalidInputError(
                f"{_ATTRIBUTIONS} matches no column: {name!r} is none of {list(available)[:8]}; correct the pattern."
            )
        return {column[len(start) : len(column) - len(end)]: column for column in fits}
    feature, is_pair, column = name.partition("=")
    if name in available or not is_pair:
        (column,) = check_columns([name], available, _ATTRIBUTIONS)
        return {column: column}
    (column,) = check_columns([column.strip()], available, _ATTRIBUTIONS)
    return {feature.strip(): column}


def _base_value(named: str | None, available: Sequence[str]) -> str | float | None:
    """A column, or else a number."""
    if named is None or named in available:
        return named
    try:
        return float(named)
    except ValueError:
        return check_columns([named], available, "`base_values` (--base-values)")[0]


def rows_by_id(frame: pd.DataFrame, ids: str, wanted: NDArray[np.object_], where: str) -> pd.DataFrame:
    """Rows of a different file in the order of people's ids.

    Parameters
    ----------
    frame
        The different file.
    ids
        Its column of ids.
    wanted
        Ids of the people.
    where
        Name of that file, for messages.

    Examples
    --------
    >>> found = pd.DataFrame({"id": [2, 1], "x": [0.5, 0.1]})
    >>> rows_by_id(found, "id", np.array(["1", "2"], dtype=object), "b.csv")["x"].tolist()
    [0.1, 0.5]
    """
    own = pd.Index(as_ids(frame[ids], len(frame), ids))  # rejects a repeated id
    place = own.get_indexer(pd.Index(wanted))
    n_absent = int((place < 0).sum())
    if n_absent:
        raise InvalidInputError(
            f"{where} has no row for {n_absent} of {len(wanted)} applicants, such as the id "
            f"{wanted[place < 0][0]!r}; pass attributions for everyone."
        )
    return frame.iloc[place].reset_index(drop=True)


def rows_in_order(frame: pd.DataFrame, n: int, kept: NDArray[np.int64], where: str) -> pd.DataFrame:
    """Rows of a different file that match, in order, the `n` rows of the applicants' file, some of which are kept."""
    if len(frame) != n:
        raise InvalidInputError(
            f"{where} has {len(frame)} rows for {n} rows of the applicants' file; pass one for each, or name a column "
            "of ids that both files have with --id."
        )
    return frame.iloc[kept].reset_index(drop=True)
