"""Score intervals from counts: of a rate, and of the difference, ratio and odds ratio of two rates.

Counts are x1 approved of n1 in the group and x0 of n0 in the reference; z is the normal quantile of the confidence.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import optimize

from evenhand.metrics.estimate import Estimate, not_estimable

__all__ = ["cornfield", "koopman", "newcombe", "wilson"]


def wilson(x: float, n: float, z: float) -> tuple[float, float]:
    """Both ends of the interval of a rate of x in n (Wilson 1927)."""
    center = (x + z**2 / 2) / (n + z**2)
    half = z / (n + z**2) * np.sqrt(x * (n - x) / n + z**2 / 4)
    low, high = float(center - half), float(center + half)
    return (0.0 if x == 0 else low), (1.0 if x == n else high)


def newcombe(x1: int, n1: int, x0: int, n0: int, z: float) -> Estimate:
    """Difference of rates with the hybrid score interval (Newcombe 1998, method 10)."""
    p1, p0 = x1 / n1, x0 / n0
    (low1, high1), (low0, high0) = wilson(x1, n1, z), wilson(x0, n0, z)
    below = np.hypot(p1 - low1, high0 - p0)
    above = np.hypot(high1 - p1, p0 - low0)
    return Estimate(p1 - p0, float(p1 - p0 - below), float(p1 - p0 + above))


def koopman(x1: int, n1: int, x0: int, n0: int, z: float) -> Estimate:
    """Ratio of rates with the score interval (Koopman 1984): all ratios that a chi-square test does not reject."""
    if x0 == 0:
        return not_estimable("not estimable: no one in the reference group is approved")

    def chi_square(log_ratio: float) -> float:
        ratio = np.exp(log_ratio)
        middle = ratio * (n1 + x0) + x1 + n0
        root = np.sqrt(max(middle**2 - 4 * ratio * (n1 + n0) * (x1 + x0), 0.0))
        # The smaller root, written without cancellation: the fitted rate of the group under this ratio.
        p1 = 2 * ratio * (x1 + x0) / (middle + root)
        p0 = p1 / ratio
        parts = [
            (x - n * p) ** 2 / (n * p * (1 - p)) if 0 < p < 1 else 0.0 if abs(x - n * p) < 1e-9 else np.inf
            for x, n, p in ((x1, n1, p1), (x0, n0, p0))
        ]
        return float(sum(parts))

    value = (x1 / n1) / (x0 / n0)
    center = np.log(value) if x1 else -30.0
    low = 0.0 if x1 == 0 else float(np.exp(_crossing(chi_square, center, -1, z**2)))
    return Estimate(value, low, float(np.exp(_crossing(chi_square, center, 1, z**2))))


def cornfield(x1: int, n1: int, x0: int, n0: int, z: float) -> Estimate:
    """Odds ratio with the score interval, both margins held (Cornfield 1956, without continuity correction)."""
    approved = x1 + x0
    least, most = max(0, approved - n0), min(approved, n1)
    if least == most:
        return not_estimable("not estimable: both groups have the same decision throughout")

    def odds_ratio(a: float) -> float:
        return a * (n0 - approved + a) / ((approved - a) * (n1 - a))

    def excess(a: float) -> float:
        return float((x1 - a) ** 2 * (1 / a + 1 / (approved - a) + 1 / (n1 - a) + 1 / (n0 - approved + a)) - z**2)

    # Within this distance of the border the statistic is beyond any level in use.
    edge = 1e-9 * (most - least)
    low = 0.0 if x1 == least else odds_ratio(float(optimize.brentq(excess, least + edge, x1 - edge)))
    if x1 == most:
        return Estimate(
            math.nan,
            low,
            math.nan,
            "infinite in the sample: a group has everyone or no one approved; `low` is a lower bound",
        )
    high = odds_ratio(float(optimize.brentq(excess, x1 + edge, most - edge)))
    return Estimate(odds_ratio(float(x1)), low, high)


def _crossing(function: Callable[[float], float], start: float, direction: int, level: float) -> float:
    """Where a function that grows away from `start` reaches `level`."""
    step = 0.5
    while function(start + direction * step) < level:
        step *= 2
    near, far = start + direction * step / 2, start + direction * step
    if function(near) >= level:
        near = start
    return float(optimize.brentq(lambda place: min(function(place), 1e12) - level, near, far, xtol=1e-10))
