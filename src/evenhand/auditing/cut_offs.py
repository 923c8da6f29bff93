"""Cutoffs that differ by segment, such as one for cards and one for loans.

This module imports nothing heavy, because the options of the command line depend on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import Any

from evenhand.exceptions import InvalidInputError

__all__ = ["SegmentThresholds"]

_NAME = "`decision_threshold`"


@dataclass(frozen=True)
class SegmentThresholds:
    """Cutoffs by the values of a column, for `decision_threshold=` of `audit` and `audit_stream`.

    Attributes
    ----------
    column
        An input of the model, or one of the columns of `by`.
    cut_offs
        For each value of the column, the probability from which on the decision is favorable, or with
        ``favorable="low"``, up to which it is.

    Examples
    --------
    >>> SegmentThresholds("product", {"card": 0.6, "loan": 0.8}).cut_offs["loan"]
    0.8
    >>> SegmentThresholds("product", {"card": 60})
    Traceback (most recent call last):
    ...
    evenhand.exceptions.InvalidInputError: `decision_threshold`: the cutoff of 'card' must be between 0 and 1, got 60.
    """

    column: str
    cut_offs: Mapping[str, float]

    def __post_init__(self) -> None:
        if not isinstance(self.column, str) or not isinstance(self.cut_offs, Mapping) or not self.cut_offs:
            raise InvalidInputError(
                f"{_NAME} by segment must name a column and map its values to cutoffs, such as "
                f"SegmentThresholds('product', {{'card': 0.6}}), got {self.column!r} and {self.cut_offs!r}."
            )
        for value, cut_off in self.cut_offs.items():
            is_number = isinstance(cut_off, Real) and not isinstance(cut_off, bool)
            if not is_number or not 0 <= cut_off <= 1:
                raise InvalidInputError(f"{_NAME}: the cutoff of {value!r} must be between 0 and 1, got {cut_off!r}.")
        object.__setattr__(self, "cut_offs", {str(value): float(c) for value, c in self.cut_offs.items()})

    @classmethod
    def of(cls, table: Mapping[str, Any]) -> SegmentThresholds:
        """Cutoffs from plain data, as in a TOML file.

        Raises
        ------
        InvalidInputError
            If there are keys besides column and cut_offs, or a cutoff is not a number in [0, 1].
        """
        if set(table) != {"column", "cut_offs"}:
            raise InvalidInputError(
                f"{_NAME} by segment must have the keys 'column' and 'cut_offs', got "
                f"{', '.join(map(repr, table)) or 'none'}."
            )
        return cls(table["column"], table["cut_offs"])
