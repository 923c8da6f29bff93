"""Compare two approval rates: difference, ratio, odds ratio and a test of equal rates."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from evenhand.metrics.disparity.intervals import cornfield, koopman, newcombe
from evenhand.metrics.disparity.membership import Membership, nobody_in, standard_error, weighted_mean
from evenhand.metrics.estimate import Estimate, normal_quantile, not_estimable, p_two_sided

__all__ = ["RateContrast", "Test", "contrast_counts", "contrast_groups", "no_contrast"]

Ints: TypeAlias = NDArray[np.int64]
Test: TypeAlias = Literal["auto", "fisher", "z"]

# Cochran's rule of thumb: below this expected count the normal approximation to a cell is poor.
_LEAST_EXPECTED = 5.0


@dataclass(frozen=True)
class RateContrast:
    """A group compared with the reference group."""

    difference: Estimate
    ratio: Estimate
    odds_ratio: Estimate
    p_value: float
    test: str
    n_standard_deviations: float
    note: str = ""


def no_contrast(reason: str) -> RateContrast:
    """No contrast, with the reason."""
    nothing = not_estimable(reason)
    return RateContrast(nothing, nothing, nothing, math.nan, "none", math.nan, reason)


def contrast_groups(
    approved: Ints, members: Membership, code: int, reference: int, test: Test, confidence: float
) -> RateContrast:
    """One group compared with the reference, which has people; membership is known or probable."""
    if members.is_soft:
        return _contrast_weighted(approved, members, code, reference, confidence)
    approvals, people = members.effective_counts(approved, np.ones(len(approved), dtype=np.bool_))
    if people[code] == 0:
        return no_contrast(nobody_in(members, code))
    found = contrast_counts(
        float(approvals[code]),
        float(people[code]),
        float(approvals[reference]),
        float(people[reference]),
        "z" if members.is_weighted else test,
        confidence,
    )
    return replace(found, test=f"{found.test}, effective numbers") if members.is_weighted else found


def contrast_counts(x1: float, n1: float, x0: float, n0: float, test: Test, confidence: float) -> RateContrast:
    """x1 approved of n1 in the group compared with x0 of n0 in the reference; integers for an exact test."""
    p_value, name = _p_value(x1, n1, x0, n0, test)
    error = np.sqrt((x1 + x0) * (n1 + n0 - x1 - x0) / (n1 * n0 * (n1 + n0)))
    is_constant = error == 0
    return RateContrast(
        difference=newcombe(x1, n1, x0, n0, confidence),
        ratio=koopman(x1, n1, x0, n0, confidence),
        odds_ratio=cornfield(x1, n1, x0, n0, confidence),
        p_value=p_value,
        test=name,
        n_standard_deviations=math.nan if is_constant else float((x1 / n1 - x0 / n0) / error),
        note="each group has only one decision, and both the same: no standard error" if is_constant else "",
    )


def _p_value(x1: float, n1: float, x0: float, n0: float, test: Test) -> tuple[float, str]:
    approved, denied, total = x1 + x0, n1 + n0 - x1 - x0, n1 + n0
    least_expected = min(n1, n0) * min(approved, denied) / total
    if test == "fisher" or (test == "auto" and least_expected < _LEAST_EXPECTED):
        table = np.asarray([[x1, n1 - x1], [x0, n0 - x0]]).astype(np.int64)
        return float(stats.fisher_exact(table).pvalue), "Fisher exact"
    if approved == 0 or denied == 0:
        return math.nan, "two-proportion z"
    z = (x1 / n1 - x0 / n0) / np.sqrt(approved / total * denied / total * (1 / n1 + 1 / n0))
    return float(2 * special.ndtr(-abs(z))), "two-proportion z"


def _contrast_weighted(
    approved: Ints, members: Membership, code: int, reference: int, confidence: float
) -> RateContrast:
    """Contrast under probabilities; linearized, so that a person who counts in both groups is counted once."""
    weights, reference_weights = members.column(code), members.column(reference)
    if not weights.any():
        return no_contrast(nobody_in(members, code))
    times, squares = members.times, members.squares
    rate, influence = weighted_mean(approved, weights, times)
    reference_rate, reference_influence = weighted_mean(approved, reference_weights, times)
    z = normal_quantile(confidence)

    def log_scale(name: str, slope: Callable[[float], float], transform: Callable[[float], float]) -> Estimate:
        if not (0 < rate < 1 and 0 < reference_rate < 1):
            return not_estimable(f"not estimable: the {name} needs approvals and denials in both groups")
        value = transform(rate) / transform(reference_rate)
        error = standard_error(influence * slope(rate) - reference_influence * slope(reference_rate), squares)
        return Estimate(value, float(value * np.exp(-z * error)), float(value * np.exp(z * error)))

    difference = rate - reference_rate
    error = standard_error(influence - reference_influence, squares)
    if error == 0:
        return no_contrast("not estimable: the weighted rates have no spread")
    return RateContrast(
        difference=Estimate(difference, max(-1.0, difference - z * error), min(1.0, difference + z * error)),
        ratio=log_scale("approval ratio", lambda p: 1 / p, lambda p: p),
        odds_ratio=log_scale("odds ratio", lambda p: 1 / (p * (1 - p)), lambda p: p / (1 - p)),
        p_value=p_two_sided(difference, error),
        test="z of weighted rates",
        n_standard_deviations=difference / error,
    )
