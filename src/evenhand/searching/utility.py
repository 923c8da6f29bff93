"""What decisions are worth to the lender: a payoff for each decision about each kind of applicant."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.exceptions import InvalidInputError
from evenhand.inputs.validation import did_you_mean

__all__ = ["Payoff"]


@dataclass(frozen=True)
class Payoff:
    """What a decision earns; costs are negative. A good applicant is one with the favorable label.

    Attributes
    ----------
    approve_good, approve_bad, decline_good, decline_bad
        For each decision about each kind of applicant.
    """

    approve_good: float = 0.0
    approve_bad: float = 0.0
    decline_good: float = 0.0
    decline_bad: float = 0.0

    @classmethod
    def of(cls, given: Mapping[str, Any] | str) -> Payoff:
        """From a mapping, or from text as on the command line; what is not named is 0.

        Raises
        ------
        InvalidInputError
            If a name is unknown, a value is not a finite number, or all are 0.

        Examples
        --------
        >>> Payoff.of("approve_good=1, approve_bad=-5")
        Payoff(approve_good=1.0, approve_bad=-5.0, decline_good=0.0, decline_bad=0.0)
        """
        values = _named(given) if isinstance(given, str) else given
        if not isinstance(values, Mapping):
            raise InvalidInputError(
                f"`payoff` must map {[field.name for field in fields(cls)]} to numbers, got {given!r}."
            )
        known = [field.name for field in fields(cls)]
        found = {}
        for name, value in values.items():
            if name not in known:
                raise InvalidInputError(
                    f"`payoff` names an unknown decision: {name!r}.{did_you_mean(str(name), known)}"
                )
            found[name] = _number(name, value)
        if not any(found.values()):
            raise InvalidInputError(f"`payoff` must have a value other than 0, got {given!r}.")
        return cls(**found)

    def profit(self, y: NDArray[np.int64], decision: NDArray[np.int64], weight: NDArray[np.float64]) -> float:
        """Mean payoff of a person.

        Examples
        --------
        >>> y, decision = np.array([1, 0, 1, 0]), np.array([1, 1, 0, 0])
        >>> Payoff(approve_good=1, approve_bad=-5).profit(y, decision, np.ones(4))
        -1.0
        """
        table = np.array([[self.decline_bad, self.approve_bad], [self.decline_good, self.approve_good]])
        return float(weight @ table[y, decision]) / float(weight.sum())

    def to_dict(self) -> dict[str, float]:
        """Plain data."""
        return asdict(self)


def _named(text: str) -> dict[str, str]:
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, equals, value = part.partition("=")
        if not equals:
            raise InvalidInputError(f"`payoff` reads like 'approve_good=1,approve_bad=-5', got {text!r}.")
        found[name.strip()] = value.strip()
    return found


def _number(name: str, value: object) -> float:
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidInputError(f"`payoff` must have a number for {name}, got {value!r}.")
    return number
