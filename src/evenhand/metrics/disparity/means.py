"""A mean or a rate of one group, with its interval; membership known or probable."""

from __future__ import annotations

import math
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special

from evenhand.metrics.disparity.intervals import wilson
from evenhand.metrics.disparity.membership import Membership, nobody_in
from evenhand.metrics.estimate import Estimate, normal_quantile, not_estimable

__all__ = ["group_mean", "group_rate", "standard_error", "weighted_mean"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]


def weighted_mean(values: NDArray[Any], weights: Floats, times: Floats) -> tuple[float, Floats]:
    """Weighted mean, and each person's influence on it; the root of the influences' sum of squares is its error."""
    counted = times * weights
    total = float(counted.sum())
    mean = float(counted @ values) / total
    return mean, weights * (values - mean) / total


def standard_error(influence: Floats, times: Floats) -> float:
    """Error of a metric from each person's influence on it."""
    return float(np.sqrt(times @ influence**2))


def group_mean(members: Membership, code: int, values: Floats, confidence: float) -> Estimate:
    """Weighted mean of the group with Student's interval on the effective number of people."""
    weights, times = members.column(code), members.times
    if not weights.any():
        return not_estimable(nobody_in(members, code))
    mean, influence = weighted_mean(values, weights, times)
    degrees = float(times @ weights) ** 2 / float(times @ weights**2) - 1
    if degrees <= 1e-9:
        return Estimate(mean, math.nan, math.nan, "no interval: one person")
    error = standard_error(influence, times) * np.sqrt((degrees + 1) / degrees)
    half = float(special.stdtrit(degrees, 0.5 + confidence / 2) * error)
    return Estimate(mean, mean - half, mean + half)


def group_rate(
    members: Membership, code: int, values: Ints, subset: NDArray[np.bool_], absent: str, confidence: float
) -> Estimate:
    """Share of 1s among the group's people in `subset`."""
    weights = members.column(code) * subset
    total = float(members.times @ weights)
    if total == 0:
        return not_estimable(f"not estimable: {absent} in group {members.names[code]!r}")
    rate, influence = weighted_mean(values, weights, members.times)
    if not members.is_soft:
        return Estimate(rate, *wilson(round(float((members.times * weights) @ values)), round(total), confidence))
    half = normal_quantile(confidence) * standard_error(influence, members.times)
    return Estimate(rate, max(0.0, rate - half), min(1.0, rate + half))
