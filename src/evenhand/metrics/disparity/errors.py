"""Decisions, errors, ranking and calibration of each group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from evenhand.arrays import Floats, Ints
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
    binary_values,
    check_at_least,
    check_open_fraction,
    check_same_length,
    finite_scores,
    normal_quantile,
    not_estimable,
)
from evenhand.metrics.roc import auc_interval, ks_distance


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
    small_group: int = 30,
) -> list[GroupErrorRates]:
    """Decisions, errors, ranking and calibration of each group.

    Rates have Wilson intervals, means Student's. Calibration is reported if scores are within [0, 1]. If membership is
    given as probabilities, the rates and means are weighted and AUC is NaN.

    Examples
    --------
    >>> rows = error_rates([0, 1, 0, 1], [0, 1, 1, 1], [0.2, 0.9, 0.6, 0.7], [0, 0, 1, 1])
    >>> rows[1].false_positive_rate.value, rows[1].false_discovery_rate.value
    (1.0, 0.5)
    """
    labels, approved, scores = binary_values(y, "y"), binary_values(decision, "decision"), finite_scores(score)
    check_same_length({"y": labels, "decision": approved, "score": scores})
    members = membership_of(group, len(labels), names, frequency)
    check_open_fraction(confidence, "confidence")
    everyone = np.ones(len(labels), dtype=bool)
    is_probability = bool(((scores >= 0) & (scores <= 1)).all())

    def calibration(values: Floats, code: int) -> Estimate:
        if not is_probability:
            return not_estimable("not estimable: scores are outside [0, 1], so they are not probabilities")
        return group_mean(members, code, values, confidence)

    people, favorable = members.counts(np.ones(len(labels))), members.counts(labels)

    def row(code: int) -> GroupErrorRates:
        return GroupErrorRates(
            group=members.names[code],
            n_people=members.count(people[code]),
            n_positive_label=members.count(favorable[code]),
            positive_rate=group_rate(members, code, approved, everyone, "no one", confidence),
            true_positive_rate=group_rate(members, code, approved, labels == 1, "no one with label 1", confidence),
            false_positive_rate=group_rate(members, code, approved, labels == 0, "no one with label 0", confidence),
            false_discovery_rate=group_rate(members, code, 1 - labels, approved == 1, "no one approved", confidence),
            auc=_group_auc(members, code, labels, scores, confidence),
            mean_score_minus_observed_rate=calibration(scores - labels, code),
            brier_score=calibration((scores - labels) ** 2, code),
            is_small_group=members.n_effective(code) < small_group,
        )

    return [row(code) for code in range(len(members.names))]


def _group_auc(members: Membership, code: int, labels: Ints, scores: Floats, confidence: float) -> Estimate:
    if members.codes is None:
        return not_estimable("not estimable: AUC by group needs known membership, not probabilities")
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
        return GapEstimate(math.nan, name=name, note=absent)
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
    return Estimate.from_error(float(value), standard_error(influence, members.squares), confidence=confidence)


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
