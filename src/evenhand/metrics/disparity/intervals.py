"""Score intervals from counts: of a rate, and of the difference, ratio and odds ratio of two rates.

Counts are x1 approved of n1 in the group and x0 of n0 in the reference; effective counts need not be integers. The
intervals of the ratios are implemented here: those of statsmodels are NaN, complex or too narrow if a group has few
approvals or few denials.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
from scipy import optimize
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

from evenhand.metrics.estimate import Estimate, normal_quantile, not_estimable

__all__ = ["cornfield", "koopman", "newcombe", "wilson"]

_ROUNDING = 1e-12  # of effective counts, as a share of them


def wilson(x: float, n: float, confidence: float) -> tuple[float, float]:
    """Both ends of the interval of a rate of x in n (Wilson 1927)."""
    low, high = proportion_confint(x, n, alpha=1 - confidence, method="wilson")
    return (0.0 if x == 0 else float(low)), (1.0 if x == n else float(high))


def newcombe(x1: float, n1: float, x0: float, n0: float, confidence: float) -> Estimate:
    """Difference of rates with the hybrid score interval (Newcombe 1998, method 10)."""
    low, high = confint_proportions_2indep(x1, n1, x0, n0, method="newcomb", compare="diff", alpha=1 - confidence)
    return Estimate(x1 / n1 - x0 / n0, float(low), float(high))


def koopman(x1: float, n1: float, x0: float, n0: float, confidence: float) -> Estimate:
    """Ratio of rates with the score interval (Koopman 1984): all ratios that a chi-square test does not reject."""
    if x0 == 0:
        return not_estimable("not estimable: no one in the reference group is approved")

    def chi_square(log_ratio: float) -> float:
        ratio = np.exp(log_ratio)
        one, other = ratio * (n1 + x0), x1 + n0
        # The smaller root, written without cancellation: the fitted rate of the group under this ratio.
        root = np.sqrt((one - other) ** 2 + 4 * ratio * (n1 - x1) * (n0 - x0))
        p1 = min(2 * ratio * (x1 + x0) / (one + other + root), 1.0)
        p0 = min(p1 / ratio, 1.0)
        parts = [
            (x - n * p) ** 2 / (n * p * (1 - p)) if 0 < p < 1 else 0.0 if abs(x - n * p) < 1e-9 else np.inf
            for x, n, p in ((x1, n1, p1), (x0, n0, p0))
        ]
        return float(sum(parts))

    value = (x1 / n1) / (x0 / n0)
    center, level = np.log(value) if x1 else -30.0, normal_quantile(confidence) ** 2
    low = 0.0 if x1 == 0 else float(np.exp(_crossing(chi_square, center, -1, level)))
    return Estimate(value, low, float(np.exp(_crossing(chi_square, center, 1, level))))


def cornfield(x1: float, n1: float, x0: float, n0: float, confidence: float) -> Estimate:
    """Odds ratio with the score interval and fixed margins (Cornfield 1956, without continuity correction)."""
    approved = x1 + x0
    least, most = max(0, approved - n0), min(approved, n1)
    level = normal_quantile(confidence) ** 2
    if most - least <= _ROUNDING * approved:
        return not_estimable("not estimable: each group has only one decision, and both the same")

    def odds_ratio(a: float) -> float:
        return a * (n0 - approved + a) / ((approved - a) * (n1 - a))

    def excess(a: float) -> float:
        return float((x1 - a) ** 2 * (1 / a + 1 / (approved - a) + 1 / (n1 - a) + 1 / (n0 - approved + a)) - level)

    # Within this distance of the boundary, the statistic is beyond any usual level; never less than rounding.
    edge = max(1e-9 * (most - least), 4 * float(np.spacing(float(most))))
    low = 0.0 if x1 - least <= 2 * edge else odds_ratio(float(optimize.brentq(excess, least + edge, x1 - edge)))
    if most - x1 <= 2 * edge:
        return Estimate(
            math.nan,
            low,
            math.nan,
            "infinite in the sample: a group has everyone or no one approved; `low` is a lower bound",
        )
    high = odds_ratio(float(optimize.brentq(excess, x1 + edge, most - edge)))
    return Estimate(max(odds_ratio(float(x1)), low), low, high)


def _crossing(function: Callable[[float], float], start: float, direction: int, level: float) -> float:
    """Where a function that increases away from `start` reaches `level`."""
    step = 0.5
    while function(start + direction * step) < level:
        step *= 2
    near, far = start + direction * step / 2, start + direction * step
    if function(near) >= level:
        near = start
    return float(optimize.brentq(lambda place: min(function(place), 1e12) - level, near, far, xtol=1e-10))
