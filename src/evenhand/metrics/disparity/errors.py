"""Decisions, errors, ranking and calibration of each group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from evenhand.arrays import Bools, Floats, Ints
from evenhand.inputs.checking import SMALL_GROUP
from evenhand.metrics.disparity.intervals import (
    Membership,
    group_mean,
    group_rate,
    membership_of,
    nobody_in,
    reference_code_of,
    standard_error,
    weighted_mean,
)
from evenhand.metrics.estimate import (
    Estimate,
    Plain,
    RowWeights,
    normal_quantile,
    not_estimable,
)
from evenhand.metrics.outcomes import auc_interval, ks_distance


@dataclass(frozen=True)
class GroupErrorRates(Plain):
    """Decisions and errors of one group, each with an interval.

    Attributes
    ----------
    false_discovery_rate
        Among those approved, the share whose label is 0.
    auc
        DeLong's interval, on the logit scale.
    mean_score_minus_observed_rate
        Calibration in the large: above 0, the scores predict more favorable outcomes than were observed.
    brier_score
        Mean squared difference between score and label; 0 is perfect.
    """

    group: str
    n_people: float
    n_positive_label: float
    positive_rate: Estimate
    true_positive_rate: Estimate
    false_positive_rate: Estimate
    false_discovery_rate: Estimate
    auc: Estimate
    mean_score_minus_observed_rate: Estimate
    brier_score: Estimate
    is_small_group: bool


def error_rates(
    y: ArrayLike,
    decision: ArrayLike,
    score: ArrayLike,
    group: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    frequency: ArrayLike | RowWeights | None = None,
    confidence: float = 0.95,
) -> list[GroupErrorRates]:
    """Decisions, errors, ranking and calibration of each group.

    Rates have Wilson intervals, means Student's; both use the effective number of people, so that people of one cluster
    (see `approval_disparity`) count as one. Calibration is reported if scores are within [0, 1].

    Examples
    --------
    >>> rows = error_rates([0, 1, 0, 1], [0, 1, 1, 1], [0.2, 0.9, 0.6, 0.7], [0, 0, 1, 1])
    >>> rows[1].false_positive_rate.value, rows[1].false_discovery_rate.value
    (1.0, 0.5)
    """
    labels, approved = (np.asarray(values).astype(np.int64) for values in (y, decision))
    scores, members = np.asarray(score, dtype=np.float64), membership_of(group, len(labels), names, frequency)
    everyone = np.ones(len(labels), dtype=bool)
    is_probability = bool(((scores >= 0) & (scores <= 1)).all())
    people, favorable = members.counts(np.ones(len(labels))), members.counts(labels)

    def row(code: int) -> GroupErrorRates:
        def rate(values: Ints, subset: Bools, absent: str) -> Estimate:
            return group_rate(members, code, values, subset, absent, confidence)

        def calibration(values: Floats) -> Estimate:
            if not is_probability:
                return not_estimable("not estimable: scores are outside [0, 1], so they are not probabilities")
            return group_mean(members, code, values, confidence)

        return GroupErrorRates(
            group=members.names[code],
            n_people=int(people[code]),
            n_positive_label=int(favorable[code]),
            positive_rate=rate(approved, everyone, "no one"),
            true_positive_rate=rate(approved, labels == 1, "no one with the favorable label"),
            false_positive_rate=rate(approved, labels == 0, "no one with the unfavorable label"),
            false_discovery_rate=rate(1 - labels, approved == 1, "no one approved"),
            auc=_group_auc(members, code, labels, scores, confidence),
            mean_score_minus_observed_rate=calibration(scores - labels),
            brier_score=calibration((scores - labels) ** 2),
            is_small_group=members.n_effective(code) < SMALL_GROUP,
        )

    return [row(code) for code in range(len(members.names))]


def _group_auc(members: Membership, code: int, labels: Ints, scores: Floats, confidence: float) -> Estimate:
    chosen = members.codes == code
    found = auc_interval(labels[chosen], scores[chosen], members.weights.rows(chosen), confidence)
    return replace(found, note=f"{found.note} in group {members.names[code]!r}") if math.isnan(found.value) else found


@dataclass(frozen=True)
class GapEstimate(Estimate):
    """The largest difference in a rate between groups.

    Attributes
    ----------
    name
        Of the gap, such as ``"eo_gap"``.
    rate
        The rate with the largest difference.
    group_low, group_high
        The groups with the lowest and the highest rate.
    """

    name: str = ""
    rate: str = ""
    group_low: str = ""
    group_high: str = ""


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
    labels, approved = (np.asarray(values).astype(np.int64) for values in (y, decision))
    members = membership_of(group, len(labels), names, frequency)
    rng = np.random.default_rng(random_state)
    cells = {
        "approval rate": (np.ones(len(labels), dtype=bool), ""),
        "true positive rate": (labels == 1, " with the favorable label"),
        "false positive rate": (labels == 0, " with the unfavorable label"),
    }
    drawn: dict[str, _DrawnRates] = {}
    absent: dict[str, str] = {}
    for rate, (subset, who) in cells.items():
        people = members.sums(subset.astype(np.float64))
        if people.all():
            drawn[rate] = _DrawnRates.of(approved, subset, members, n_draws, rng)
        else:
            empty = [members.names[code] for code in np.flatnonzero(people == 0)]
            absent[rate] = f"not estimable: no one{who} in {', '.join(empty)}"
    wanted = {
        "sp_gap": ["approval rate"],
        "tpr_gap": ["true positive rate"],
        "fpr_gap": ["false positive rate"],
        "eo_gap": ["true positive rate", "false positive rate"],
    }
    gaps = {}
    for name, rates in wanted.items():
        missing = "; ".join(absent[rate] for rate in rates if rate in absent)
        gaps[name] = (
            GapEstimate(math.nan, name=name, note=missing)
            if missing
            else _gap(name, {rate: drawn[rate] for rate in rates}, members, confidence)
        )
    return gaps


@dataclass(frozen=True)
class _DrawnRates:
    """A rate of every group, its covariance over groups, and bootstrap draws.

    `deviations` and `variances` are of shape (n_draws, G).
    """

    values: Floats
    covariance: Floats
    deviations: Floats
    variances: Floats

    @classmethod
    def of(
        cls, approved: Ints, subset: Bools, members: Membership, n_draws: int, rng: np.random.Generator
    ) -> _DrawnRates:
        values = members.sums(subset * approved) / members.sums(subset)
        n_groups = len(values)
        between = np.zeros((n_groups, n_groups))
        if members.weights.clusters is not None:
            columns = [members.column(code) * subset for code in range(n_groups)]
            influences = np.stack([weighted_mean(approved, one, members.times)[1] for one in columns], axis=1)
            between = members.weights.covariance(influences)
        approvals, people = members.effective_counts(approved, subset)
        drawn = np.maximum(np.rint(people), 1).astype(np.int64)
        # Add half an approval and half a denial, so that a rate of 0 or 1 still varies.
        rates = (approvals + 0.5) / (people + 1)
        counts = rng.binomial(drawn, rates, size=(n_draws, n_groups))
        redrawn = (counts + 0.5) / (drawn + 1)
        independent = np.diag(rates * (1 - rates) / people)
        covariance = np.where(np.eye(n_groups, dtype=bool), independent, between)  # clusters may have people of both
        return cls(values, covariance, counts / drawn - rates, redrawn * (1 - redrawn) / drawn)


def _gap(name: str, drawn: dict[str, _DrawnRates], members: Membership, confidence: float) -> GapEstimate:
    first, second = np.triu_indices(len(members.names), k=1)

    def apart_and_error(values: Floats, variances: Floats, covariance: Floats | float) -> tuple[Floats, Floats]:
        spread = variances[..., first] + variances[..., second] - 2 * covariance
        return np.abs(values[..., first] - values[..., second]), np.sqrt(np.maximum(spread, 1e-24))

    largest, pairs = [], []
    for rates in drawn.values():
        distance, spread = apart_and_error(rates.deviations, rates.variances, 0.0)
        largest.append((distance / spread).max(axis=1))
        pairs.append(apart_and_error(rates.values, np.diag(rates.covariance), rates.covariance[first, second]))
    # Near rates of 0 or 1, the draws barely vary: never narrower than the interval of a single difference.
    critical = max(float(np.quantile(np.max(largest, axis=0), confidence)), normal_quantile(confidence))
    apart, error = (np.stack(parts) for parts in zip(*pairs, strict=True))
    which, place = divmod(int(apart.argmax()), len(first))
    rate = list(drawn)[which]
    low, high = sorted((int(first[place]), int(second[place])), key=lambda code: drawn[rate].values[code])
    return GapEstimate(
        name=name,
        value=float(apart.max()),
        low=float(np.maximum(apart - critical * error, 0).max()),
        high=float(np.minimum(apart + critical * error, 1).max()),
        rate=rate,
        group_low=members.names[low],
        group_high=members.names[high],
        note=members.note,
    )


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
        For identical distributions, using the effective numbers of people if weights differ or there are clusters.
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
    scores = np.asarray(score, dtype=np.float64)
    members = membership_of(group, len(scores), names, frequency)
    reference_code = reference_code_of(members, reference)
    moments = [_moments(scores, members, code) for code in range(len(members.names))]

    people = members.counts(np.ones(len(scores)))

    def row(code: int) -> ScoreDisparity:
        is_reference = code == reference_code
        difference, distance = not_estimable("this is the reference group"), Estimate(math.nan)
        if not is_reference:
            difference = _standardized_difference(moments[code], moments[reference_code], members, code, confidence)
            distance = _kolmogorov_smirnov(scores, members, code, reference_code)
        n_effective = members.n_effective(code)
        return ScoreDisparity(
            group=members.names[code],
            is_reference=is_reference,
            n_people=int(people[code]),
            n_effective=n_effective,
            mean_score=group_mean(members, code, scores, confidence),
            standard_deviation=float(np.sqrt(moments[code].variance)),
            standardized_mean_difference_group_minus_reference=difference,
            ks_distance=distance.value,
            ks_p_value=distance.p_value,
            is_small_group=n_effective < SMALL_GROUP,
            note=distance.note,
        )

    return [row(code) for code in range(len(members.names))]


class _Moments(NamedTuple):
    mean: float
    variance: float
    mean_influence: Floats
    variance_influence: Floats


def _moments(scores: Floats, members: Membership, code: int) -> _Moments:
    weights, n_effective = members.column(code), members.n_effective(code)
    if n_effective <= 1:
        return _Moments(math.nan, math.nan, weights, weights)
    mean, mean_influence = weighted_mean(scores, weights, members.times)
    variance, variance_influence = weighted_mean((scores - mean) ** 2, weights, members.times)
    unbiased = n_effective / (n_effective - 1)
    return _Moments(mean, variance * unbiased, mean_influence * np.sqrt(unbiased), variance_influence * unbiased)


def _standardized_difference(
    group: _Moments, reference: _Moments, members: Membership, code: int, confidence: float
) -> Estimate:
    variance = (group.variance + reference.variance) / 2
    if np.isnan(variance):
        return not_estimable(f"not estimable: fewer than two people in group {members.names[code]!r} or the reference")
    if variance <= 0:
        return not_estimable("not estimable: the scores of both groups are constant")
    value = (group.mean - reference.mean) / np.sqrt(variance)
    influence = (group.mean_influence - reference.mean_influence) / np.sqrt(variance) - value / (4 * variance) * (
        group.variance_influence + reference.variance_influence
    )
    return Estimate.from_error(float(value), standard_error(influence, members.weights), confidence=confidence)


def _kolmogorov_smirnov(scores: Floats, members: Membership, code: int, reference: int) -> Estimate:
    """Distance of the two distributions of scores."""
    weights, reference_weights = (members.times * members.column(one) for one in (code, reference))
    if not weights.any():
        return not_estimable(nobody_in(members, code))
    distance = ks_distance(scores, weights, reference_weights)
    n, n_reference = members.n_effective(code), members.n_effective(reference)
    if members.weights.is_simple and max(n, n_reference) <= _MOST_EXACT_KS:
        first, second = (np.repeat(scores, w.astype(np.int64)) for w in (weights, reference_weights))
        exact = stats.ks_2samp(first, second, method="exact")
        return Estimate(float(exact.statistic), p_value=float(exact.pvalue))
    p_value = float(stats.kstwo.sf(distance, np.round(n * n_reference / (n + n_reference))))
    return Estimate(distance, p_value=p_value)
