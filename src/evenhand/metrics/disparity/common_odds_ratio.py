"""One odds ratio for all segments (Cochran-Mantel-Haenszel), and whether one describes them all (Breslow-Day).

Tables have shape (2, 2, n_segments): the group and the reference, approved and denied.
"""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from statsmodels.stats.contingency_tables import StratifiedTable

from evenhand.metrics.estimate import Estimate, not_estimable

__all__ = ["breslow_day", "cochran_chi_square", "mantel_haenszel"]

Floats: TypeAlias = NDArray[np.float64]


def mantel_haenszel(tables: Floats, confidence: float) -> Estimate:
    """Common odds ratio with the interval of Robins, Breslow and Greenland (1986)."""
    (a, b), (c, d) = tables
    if not (b * c).any():
        return not_estimable(
            "not estimable: infinite in the sample, no segment has the group denied and the reference approved"
        )
    if not (a * d).any():
        return Estimate(0.0, 0.0, math.nan, "no upper end: no segment has the group approved and the reference denied")
    pooled = StratifiedTable(tables)
    low, high = pooled.oddsratio_pooled_confint(alpha=1 - confidence)
    return Estimate(float(pooled.oddsratio_pooled), float(low), float(high))


def cochran_chi_square(tables: Floats) -> float:
    """Statistic of equal rates within every segment: one degree of freedom, without continuity correction."""
    return float(StratifiedTable(tables).test_null_odds(correction=False).statistic)


def breslow_day(tables: Floats, odds_ratio: float) -> float:
    """p-value of one odds ratio for all segments, with Tarone's adjustment; NaN for a single segment."""
    # Not statsmodels' `test_equal_odds`: it divides by zero at an odds ratio of 1, and is 0 for p below 1e-16.
    (a, b), (c, d) = tables
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
