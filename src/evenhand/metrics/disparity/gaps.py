"""The largest difference in a rate between groups, with an interval that is valid for any true gap, including 0."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.metrics.checks import binary_values, check_at_least, check_open_fraction, check_same_length
from evenhand.metrics.disparity.membership import Membership, membership_of, weighted_mean
from evenhand.metrics.estimate import Plain, normal_quantile
from evenhand.metrics.weights import RowWeights

__all__ = ["GapEstimate", "outcome_gaps"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class GapEstimate(Plain):
    """The largest difference in a rate between groups, with an interval.

    Attributes
    ----------
    rate
        The rate with the largest difference.
    group_low, group_high
        The groups with the lowest and the highest rate.
    """

    name: str
    value: float
    low: float
    high: float
    rate: str
    group_low: str
    group_high: str
    note: str = ""


def outcome_gaps(
    y: ArrayLike,
    decision: ArrayLike,
    group: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    frequency: ArrayLike | RowWeights | None = None,
    confidence: float = 0.95,
    n_draws: int = 1000,
    random_state: int = 0,
) -> dict[str, GapEstimate]:
    """Largest differences between groups: sp_gap (approval), tpr_gap, fpr_gap, and eo_gap, the larger of the last two.

    A gap is a maximum of absolute differences, so resampling it is biased away from 0 and a percentile interval never
    reaches 0. Instead, the bootstrap (binomial draws within each cell) gives the critical value for all pairwise
    differences at once; if every difference lies within its band, the gap lies between the largest lower end and the
    largest upper end. The interval is valid for any true gap, including 0, and is too wide rather than too narrow if
    one pair stands out.

    Examples
    --------
    >>> gaps = outcome_gaps([0, 1, 0, 1], [0, 1, 1, 1], [0, 0, 1, 1], names=["a", "b"])
    >>> gaps["eo_gap"].value, gaps["eo_gap"].rate, gaps["eo_gap"].group_high
    (1.0, 'false positive rate', 'b')
    """
    labels, approved = binary_values(y, "y"), binary_values(decision, "decision")
    check_same_length({"y": labels, "decision": approved})
    members = membership_of(group, len(labels), names, frequency)
    check_open_fraction(confidence, "confidence")
    check_at_least(n_draws, 100, "n_draws", "for an interval")
    rng = np.random.default_rng(random_state)
    cells = {
        "approval rate": (np.ones(len(labels), dtype=bool), ""),
        "true positive rate": (labels == 1, " with label 1"),
        "false positive rate": (labels == 0, " with label 0"),
    }
    drawn = {
        rate: _drawn_rates(rate, absent, approved, subset, members, n_draws, rng)
        for rate, (subset, absent) in cells.items()
    }
    wanted = {
        "sp_gap": ["approval rate"],
        "tpr_gap": ["true positive rate"],
        "fpr_gap": ["false positive rate"],
        "eo_gap": ["true positive rate", "false positive rate"],
    }
    return {
        name: _gap(name, [drawn[rate] for rate in rates], members, confidence, n_draws)
        for name, rates in wanted.items()
    }


@dataclass(frozen=True)
class _DrawnRates:
    """A rate of every group, its covariance over groups, and bootstrap draws.

    `deviations` are of shape (n_draws, G); `variances` are those of each draw, or one row for all draws.
    """

    name: str
    values: Floats
    covariance: Floats
    deviations: Floats
    variances: Floats
    absent: str = ""


def _drawn_rates(
    name: str,
    absent: str,
    approved: Ints,
    subset: NDArray[np.bool_],
    members: Membership,
    n_draws: int,
    rng: np.random.Generator,
) -> _DrawnRates:
    people, approvals = members.sums(subset.astype(np.float64)), members.sums(subset * approved)
    if (people == 0).any():
        empty = [group for group, number in zip(members.names, people, strict=True) if number == 0]
        nothing = np.full(len(people), math.nan)
        return _DrawnRates(
            name, nothing, nothing, nothing, nothing, f"not estimable: no one{absent} in {', '.join(empty)}"
        )
    values = approvals / people
    if members.is_soft:
        influences = np.stack(
            [weighted_mean(approved, members.column(code) * subset, members.times)[1] for code in range(len(people))],
            axis=1,
        )
        covariance = (members.squares[:, None] * influences).T @ influences
        deviations = rng.multivariate_normal(np.zeros(len(people)), covariance, size=n_draws, method="eigh")
        return _DrawnRates(name, values, covariance, deviations, np.diag(covariance)[None, :])
    approvals, people = members.effective_counts(approved, subset)
    drawn = np.maximum(np.rint(people), 1).astype(np.int64)
    # Add half an approval and half a denial, so that a rate of 0 or 1 still varies.
    rates = (approvals + 0.5) / (people + 1)
    counts = rng.binomial(drawn, rates, size=(n_draws, len(people)))
    redrawn = (counts + 0.5) / (drawn + 1)
    return _DrawnRates(
        name,
        values,
        covariance=np.diag(rates * (1 - rates) / people),
        deviations=counts / drawn - rates,
        variances=redrawn * (1 - redrawn) / drawn,
    )


def _gap(name: str, drawn: list[_DrawnRates], members: Membership, confidence: float, n_draws: int) -> GapEstimate:
    absent = "; ".join(rates.absent for rates in drawn if rates.absent)
    if absent:
        return GapEstimate(name, math.nan, math.nan, math.nan, "", "", "", absent)
    first, second = np.triu_indices(len(members.names), k=1)
    differences, errors = [], []
    largest = np.zeros(n_draws)
    for rates in drawn:
        variance = np.diag(rates.covariance)
        error = np.sqrt(np.maximum(variance[first] + variance[second] - 2 * rates.covariance[first, second], 1e-24))
        for one, other in zip(first, second, strict=True):
            apart = rates.deviations[:, one] - rates.deviations[:, other]
            spread = rates.variances[:, one] + rates.variances[:, other] - 2 * rates.covariance[one, other]
            np.maximum(largest, np.abs(apart) / np.sqrt(np.maximum(spread, 1e-24)), out=largest)
        differences.append(rates.values[first] - rates.values[second])
        errors.append(error)
    # Near rates of 0 or 1, the draws barely vary: never narrower than the interval of a single difference.
    critical = max(float(np.quantile(largest, confidence)), normal_quantile(confidence))
    apart, error = np.abs(np.stack(differences)), np.stack(errors)
    which, place = divmod(int(apart.argmax()), len(first))
    ends = (int(first[place]), int(second[place]))
    low, high = sorted(ends, key=lambda code: drawn[which].values[code])
    return GapEstimate(
        name=name,
        value=float(apart.max()),
        low=float(np.maximum(apart - critical * error, 0).max()),
        high=float(np.minimum(apart + critical * error, 1).max()),
        rate=drawn[which].name,
        group_low=members.names[low],
        group_high=members.names[high],
        note=members.note,
    )
