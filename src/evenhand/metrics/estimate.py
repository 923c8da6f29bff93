"""A metric with its confidence interval, or the reason why there is none."""

from __future__ import annotations

import math
from dataclasses import asdict, dataclass
from typing import Any

from scipy import special

__all__ = ["Estimate", "Plain", "normal_quantile", "not_estimable"]


@dataclass(frozen=True)
class Plain:
    """A result that can be had as plain data."""

    def to_dict(self) -> dict[str, Any]:
        """Plain fields, nested."""
        return asdict(self)


@dataclass(frozen=True)
class Estimate(Plain):
    """A metric with its confidence interval; NaN with the reason in `note` where there is none."""

    value: float
    low: float
    high: float
    note: str = ""


def not_estimable(reason: str) -> Estimate:
    """No metric, and why."""
    return Estimate(math.nan, math.nan, math.nan, reason)


def normal_quantile(confidence: float) -> float:
    """How many standard errors a two-sided interval reaches to either side."""
    return float(special.ndtri(0.5 + confidence / 2))
