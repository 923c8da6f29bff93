"""One odds ratio for all segments (Cochran-Mantel-Haenszel), and whether one describes them all (Breslow-Day).

Every segment is a fourfold table: a, b the group approved and denied; c, d the reference.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from evenhand.metrics.estimate import Estimate, normal_quantile, not_estimable

__all__ = ["breslow_day", "cochran_chi_square", "mantel_haenszel"]

Floats: TypeAlias = NDArray[np.float64]


def mantel_haenszel(a: Floats, b: Floats, c: Floats, d: Floats, confidence: float) -> Estimate:
    """Common odds ratio with the interval of Robins, Breslow and Greenland (1986)."""
    total = a + b + c + d
    for_group, for_reference = a * d / total, b * c / total
    sum1, sum0 = float(for_group.sum()), float(for_reference.sum())
    if sum0 == 0:
        return not_estimable(
            "not estimable: infinite in the sample, no segment has the group denied and the reference approved"
        )
    if sum1 == 0:
        return Estimate(0.0, 0.0, math.nan, "no upper end: no segment has the group approved and the reference denied")
    agree, disagree = (a + d) / total, (b + c) / total
    variance = (
        (agree * for_group).sum() / (2 * sum1**2)
        + (agree * for_reference + disagree * for_group).sum() / (2 * sum1 * sum0)
        + (disagree * for_reference).sum() / (2 * sum0**2)
    )
    value, spread = sum1 / sum0, np.exp(normal_quantile(confidence) * np.sqrt(variance))
    return Estimate(value, float(value / spread), float(value * spread))


def cochran_chi_square(a: Floats, b: Floats, c: Floats, d: Floats) -> float:
    """Statistic of equal rates within every segment: one degree of freedom, without continuity correction."""
    total = a + b + c + d
    n1, n0, approved, denied = a + b, c + d, a + c, b + d
    variance = n1 * n0 * approved * denied / (total**2 * (total - 1))
    return float((a - n1 * approved / total).sum() ** 2 / variance.sum())


def breslow_day(a: Floats, b: Floats, c: Floats, d: Floats, odds_ratio: float) -> float:
    """p-value of one odds ratio for all segments, with Tarone's adjustment; NaN for a single segment."""
    if len(a) < 2 or not np.isfinite(odds_ratio) or odds_ratio == 0:
        return math.nan
    n1, n0, approved = a + b, c + d, a + c
    # Fitted count under the common odds ratio: the smaller root of its quadratic, written without cancellation.
    middle = n0 - approved + odds_ratio * (n1 + approved)
    root = np.sqrt(middle**2 + 4 * (1 - odds_ratio) * odds_ratio * n1 * approved)
    fitted = 2 * odds_ratio * n1 * approved / (middle + root)
    variance = 1 / (1 / fitted + 1 / (approved - fitted) + 1 / (n1 - fitted) + 1 / (n0 - approved + fitted))
    apart = a - fitted
    statistic = float((apart**2 / variance).sum() - apart.sum() ** 2 / variance.sum())
    return float(stats.chi2.sf(statistic, len(a) - 1))
