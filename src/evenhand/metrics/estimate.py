"""A metric with its confidence interval, or the reason why there is none."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from scipy import special

__all__ = ["Estimate", "Plain", "normal_quantile", "not_estimable", "p_two_sided", "size_found"]

_ROUNDING = 1e-12


@dataclass(frozen=True)
class Plain:
    """A result that can be converted to plain data."""

    def to_dict(self) -> dict[str, Any]:
        """Plain fields, nested."""
        return asdict(self)


@dataclass(frozen=True)
class Estimate(Plain):
    """A metric with its confidence interval; NaN with the reason in `note` if there is none."""

    value: float
    low: float
    high: float
    note: str = ""


def not_estimable(reason: str) -> Estimate:
    """No metric, with the reason."""
    return Estimate(math.nan, math.nan, math.nan, reason)


def normal_quantile(confidence: float) -> float:
    """How many standard errors a two-sided interval extends to each side."""
    return float(special.ndtri(0.5 + confidence / 2))


def p_two_sided(value: float, standard_error: float, df: float = math.inf) -> float:
    """Two-sided p-value of an estimate for the null of 0, by Student's t; NaN if a number is missing.

    For an estimate without error, the p-value is 1 if it is 0 up to rounding, and 0 otherwise.

    Examples
    --------
    >>> round(p_two_sided(-0.4, 0.2), 4), p_two_sided(0.0, 0.0), p_two_sided(0.1, 0.0)
    (0.0455, 1.0, 0.0)
    """
    if math.isnan(value) or math.isnan(standard_error) or math.isnan(df):
        return math.nan
    if standard_error == 0:
        return float(abs(value) <= _ROUNDING)
    size = abs(value) / standard_error
    return float(2 * (special.ndtr(-size) if math.isinf(df) else special.stdtr(df, -size)))


def size_found(standard_error: float, df: float, level: float, *, sides: int, power: float = 0.8) -> float:
    """The smallest size that a test finds in a given share of cases.

    Parameters
    ----------
    standard_error, df
        Of the estimate, by Student's t.
    level, sides
        The level of the test, divided by the number of tests it is adjusted for, and 1 or 2 sides.
    power
        The share of cases.

    Examples
    --------
    >>> round(size_found(0.1, math.inf, 0.05, sides=2), 3)
    0.28
    """
    if math.isinf(df):
        return float(special.ndtri(1 - level / sides) + special.ndtri(power)) * standard_error
    return float(special.stdtrit(df, 1 - level / sides) + special.stdtrit(df, power)) * standard_error
