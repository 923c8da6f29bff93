"""Scores of each group next to the reference group: standardized mean difference and Kolmogorov-Smirnov distance."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from evenhand.metrics.checks import check_open_fraction, finite_scores
from evenhand.metrics.disparity.membership import (
    Membership,
    group_mean,
    membership_of,
    nobody_in,
    reference_code_of,
    standard_error,
    weighted_mean,
)
from evenhand.metrics.estimate import Estimate, Plain, normal_quantile, not_estimable
from evenhand.metrics.roc import ks_distance
from evenhand.metrics.weights import RowWeights

__all__ = ["ScoreDisparity", "score_disparity"]

Floats: TypeAlias = NDArray[np.float64]

# The exact null distribution of the Kolmogorov-Smirnov distance costs the product of the sizes.
_MOST_EXACT_KS = 500


@dataclass(frozen=True)
class ScoreDisparity(Plain):
    """Scores of one group compared with the reference group.

    Attributes
    ----------
    standardized_mean_difference_group_minus_reference
        Difference in mean scores divided by the root of the mean of the two variances; negative if the group scores
        lower.
    ks_distance
        Largest difference between the two cumulative score distributions: 0 identical, 1 disjoint.
    ks_p_value
        For identical distributions, using the effective numbers of people if weights differ; NaN if membership is given
        as probabilities.
    """

    group: str
    is_reference: bool
    n_people: float
    n_effective: float
    mean_score: Estimate
    standard_deviation: float
    standardized_mean_difference_group_minus_reference: Estimate
    ks_distance: float
    ks_p_value: float
    is_small_group: bool
    note: str = ""


def score_disparity(
    score: ArrayLike,
    group: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    frequency: ArrayLike | RowWeights | None = None,
    reference: str | None = None,
    confidence: float = 0.95,
    small_group: int = 30,
) -> list[ScoreDisparity]:
    r"""Scores by group, and how each group's distribution differs from the reference group's.

    The standardized mean difference is

    .. math:: (\bar s_g - \bar s_r) / \sqrt{(v_g + v_r) / 2}

    with v the variances; its interval uses the delta method, without assuming normal scores or equal variances.

    Examples
    --------
    >>> rows = score_disparity([0.2, 0.4, 0.6, 0.4, 0.6, 0.8], [1, 1, 1, 0, 0, 0])
    >>> round(rows[1].standardized_mean_difference_group_minus_reference.value, 6), round(rows[1].ks_distance, 3)
    (-1.0, 0.333)
    """
    scores = finite_scores(score)
    members = membership_of(group, len(scores), names, frequency)
    check_open_fraction(confidence, "confidence")
    reference_code = reference_code_of(members, reference)
    moments = [_moments(scores, members, code) for code in range(len(members.names))]

    people = members.counts(np.ones(len(scores)))

    def row(code: int) -> ScoreDisparity:
        is_reference = code == reference_code
        difference = (
            not_estimable("this is the reference group")
            if is_reference
            else _standardized_difference(moments[code], moments[reference_code], members, code, confidence)
        )
        distance, p_value, note = (
            (math.nan, math.nan, "") if is_reference else _kolmogorov_smirnov(scores, members, code, reference_code)
        )
        return ScoreDisparity(
            group=members.names[code],
            is_reference=is_reference,
            n_people=members.count(people[code]),
            n_effective=members.n_effective(code),
            mean_score=group_mean(members, code, scores, confidence),
            standard_deviation=float(np.sqrt(moments[code].variance)),
            standardized_mean_difference_group_minus_reference=difference,
            ks_distance=distance,
            ks_p_value=p_value,
            is_small_group=members.n_effective(code) < small_group,
            note=note,
        )

    return [row(code) for code in range(len(members.names))]


@dataclass(frozen=True)
class _Moments:
    mean: float
    variance: float
    mean_influence: Floats
    variance_influence: Floats


def _moments(scores: Floats, members: Membership, code: int) -> _Moments:
    weights = members.column(code)
    n_effective = members.n_effective(code)
    if n_effective <= 1:
        nothing = np.full(len(scores), math.nan)
        return _Moments(math.nan, math.nan, nothing, nothing)
    mean, mean_influence = weighted_mean(scores, weights, members.times)
    variance, variance_influence = weighted_mean((scores - mean) ** 2, weights, members.times)
    unbiased = n_effective / (n_effective - 1)
    return _Moments(mean, variance * unbiased, mean_influence * np.sqrt(unbiased), variance_influence * unbiased)


def _standardized_difference(
    group: _Moments, reference: _Moments, members: Membership, code: int, confidence: float
) -> Estimate:
    if np.isnan(group.variance) or np.isnan(reference.variance):
        return not_estimable(f"not estimable: fewer than two people in group {members.names[code]!r} or the reference")
    variance = (group.variance + reference.variance) / 2
    if variance <= 0:
        return not_estimable("not estimable: the scores of both groups are constant")
    value = (group.mean - reference.mean) / np.sqrt(variance)
    influence = (group.mean_influence - reference.mean_influence) / np.sqrt(variance) - value / (4 * variance) * (
        group.variance_influence + reference.variance_influence
    )
    half = normal_quantile(confidence) * standard_error(influence, members.squares)
    return Estimate(float(value), float(value - half), float(value + half))


def _kolmogorov_smirnov(scores: Floats, members: Membership, code: int, reference: int) -> tuple[float, float, str]:
    """Distance, p-value and note."""
    weights, reference_weights = members.column(code), members.column(reference)
    if not weights.any():
        return math.nan, math.nan, nobody_in(members, code)
    weights, reference_weights = members.times * weights, members.times * reference_weights
    distance = ks_distance(scores, weights, reference_weights)
    if members.codes is None:
        return distance, math.nan, "no p-value: the Kolmogorov-Smirnov test needs known membership"
    n, n_reference = members.n_effective(code), members.n_effective(reference)
    if not members.is_weighted and max(n, n_reference) <= _MOST_EXACT_KS:
        first, second = (np.repeat(scores, w.astype(np.int64)) for w in (weights, reference_weights))
        found = stats.ks_2samp(first, second, method="exact")
        return float(found.statistic), float(found.pvalue), ""
    return distance, float(stats.kstwo.sf(distance, np.round(n * n_reference / (n + n_reference)))), ""
