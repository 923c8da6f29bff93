"""Decisions, errors, scores and calibration of every group, next to a reference group.

Approvals alone, at several cutoffs of the score, and within segments, over which there is one odds ratio
(Cochran-Mantel-Haenszel) and whether it describes them all (Breslow-Day).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import special, stats
from statsmodels.genmod.families import Binomial
from statsmodels.genmod.generalized_linear_model import GLM
from statsmodels.stats.contingency_tables import StratifiedTable

from evenhand.arrays import Bools, Floats, Ints
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.checking import SMALL_GROUP
from evenhand.metrics.adjustment import holm
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
    row_weights,
)
from evenhand.metrics.intervals import (
    CONFIDENCE,
    Membership,
    cornfield,
    effective_counts,
    effective_counts_of_two,
    group_mean,
    group_rate,
    koopman,
    membership_of,
    newcombe,
    nobody_in,
    rate_estimate,
    reference_code_of,
    standard_error,
    weighted_mean,
)
from evenhand.metrics.outcomes import auc_interval, ks_distance

# --- approvals ---

Test: TypeAlias = Literal["auto", "fisher", "z"]

FOUR_FIFTHS = 0.8
"""Approval ratio below which a difference is flagged as large: a rule of thumb from US employment-selection guidance
(29 CFR 1607.4(D)); it was written for hiring, and using it for lending is the reader's choice."""

# Cochran's rule of thumb: below this expected count the normal approximation to a cell is poor.
_LEAST_EXPECTED = 5.0
_LEVEL = 0.05


@dataclass(frozen=True)
class GroupApproval(Plain):
    """Approvals of one group, alone and compared with the reference group.

    Attributes
    ----------
    n_people, n_approved
        Counts of people, whatever their weights; means over the draws of groups that are known as probabilities.
    n_effective
        The number of people with equal weights that would carry the same information: (Σw)² / Σw², with w the sampling
        weight, summed by cluster.
    approval_rate
        Share approved; Wilson interval.
    rate_difference_group_minus_reference_pp
        In percentage points; Newcombe's interval from the two Wilson intervals.
    approval_ratio_group_over_reference
        Adverse impact ratio: 1 means equal rates, below 1 the group is approved less often; Koopman's score interval.
    odds_ratio_group_over_reference
        1 means equal odds, below 1 the group is approved less often; score interval with fixed margins (Cornfield).
    p_value, p_value_holm
        Two-sided, for equal rates; unadjusted, and adjusted for the number of groups compared.
    test
        Which test `p_value` comes from.
    n_standard_deviations
        The difference in rates divided by its standard error under equal rates; negative if the group is approved less.
    shortfall
        Additional approvals with which the group's rate would reach the reference rate; 0 if it already does.
    is_statistically_significant
        Whether `p_value_holm` is below the table's `significance_level`; None if there is no p-value.
    is_below_practical_threshold
        Whether the approval ratio is below the table's `four_fifths_threshold`; None if there is no ratio.
    is_small_group
        Whether `n_effective` is below the table's `small_group`.
    """

    group: str
    is_reference: bool
    n_people: float
    n_approved: float
    n_effective: float
    approval_rate: Estimate
    rate_difference_group_minus_reference_pp: Estimate
    approval_ratio_group_over_reference: Estimate
    odds_ratio_group_over_reference: Estimate
    p_value: float
    p_value_holm: float
    test: str
    n_standard_deviations: float
    shortfall: float
    is_statistically_significant: bool | None
    is_below_practical_threshold: bool | None
    is_small_group: bool
    note: str = ""


@dataclass(frozen=True)
class ApprovalTable(Plain):
    """Approvals of every group compared with the reference, and the settings used."""

    reference: str
    confidence: float
    significance_level: float
    four_fifths_threshold: float
    small_group: int
    is_probabilistic: bool
    groups: tuple[GroupApproval, ...]
    note: str = ""


def approval_disparity(
    decision: ArrayLike,
    group: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    frequency: ArrayLike | RowWeights | None = None,
    reference: str | None = None,
    test: Test = "auto",
    confidence: float = 0.95,
) -> ApprovalTable:
    """Approvals by group, and how each differs from the reference group.

    Parameters
    ----------
    decision
        1 for approved, 0 otherwise, of shape (n,).
    group
        Integer codes of shape (n,).
    names
        A name for each code; by default the codes themselves.
    frequency
        How many people each row stands for, of shape (n,); by default one. Every function of this package gives the
        same metrics from distinct rows with frequencies as from single people. For sampling weights, pass
        `evenhand.metrics.estimate.RowWeights.of(weights)`: rates then refer to the population, and intervals and tests
        use the effective number of people. With `RowWeights.of(weights, clusters)`, people of one cluster count as one
        independent unit in every interval and test.
    reference
        Name of the group that the others are compared with; by default the largest.
    test
        "fisher" for the exact test, "z" for two proportions, or "auto": exact if an expected cell is below 5. With
        weights or clusters it is always "z".

    Examples
    --------
    >>> table = approval_disparity([1, 1, 1, 0, 1, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1], names=["a", "b"])
    >>> row = table.groups[1]
    >>> table.reference, row.group, row.test, row.shortfall
    ('a', 'b', 'Fisher exact', 2.0)
    >>> round(row.approval_ratio_group_over_reference.value, 3)
    0.333
    """
    approved = np.asarray(decision).astype(np.int64)
    members = membership_of(group, len(approved), names, frequency)
    at = reference_code_of(members, reference)
    everyone = np.ones(len(approved), dtype=bool)
    people, approvals = members.sums(everyone), members.sums(approved)
    counted, counted_approvals = members.counts(everyone), members.counts(approved)
    with np.errstate(divide="ignore", invalid="ignore"):  # a group without people has no shortfall
        shortfalls = np.maximum((people * (approvals[at] / people[at]) - approvals) * (counted / people), 0.0)
    contrasts = [
        no_contrast("this is the reference group")
        if code == at
        else contrast_groups(approved, members, code, at, test, confidence)
        for code in range(len(members.names))
    ]
    adjusted = holm([contrast.p_value for contrast in contrasts]).tolist()  # the reference group has none
    groups = []
    for code, (contrast, p_holm) in enumerate(zip(contrasts, adjusted, strict=True)):
        ratio, n_effective = contrast.ratio.value, members.n_effective(code)
        groups.append(
            GroupApproval(
                group=members.names[code],
                is_reference=code == at,
                n_people=int(counted[code]),
                n_approved=int(counted_approvals[code]),
                n_effective=n_effective,
                approval_rate=group_rate(members, code, approved, everyone, "no one", confidence),
                rate_difference_group_minus_reference_pp=contrast.difference.scaled(100.0),
                approval_ratio_group_over_reference=contrast.ratio,
                odds_ratio_group_over_reference=contrast.odds_ratio,
                p_value=contrast.p_value,
                p_value_holm=p_holm,
                test=contrast.test,
                n_standard_deviations=contrast.n_standard_deviations,
                shortfall=float(shortfalls[code]),
                is_statistically_significant=None if np.isnan(p_holm) else p_holm < _LEVEL,
                is_below_practical_threshold=None if np.isnan(ratio) else ratio < FOUR_FIFTHS,
                is_small_group=n_effective < SMALL_GROUP,
                note=contrast.note,
            )
        )
    return ApprovalTable(
        reference=members.names[at],
        confidence=confidence,
        significance_level=_LEVEL,
        four_fifths_threshold=FOUR_FIFTHS,
        small_group=SMALL_GROUP,
        is_probabilistic=False,
        groups=tuple(groups),
        note=members.note,
    )


@dataclass(frozen=True)
class CutoffApprovals(Plain):
    """Approvals of every group if everyone with a score of at least `cutoff` were approved."""

    quantile: float
    cutoff: float
    overall_approval_rate: float
    table: ApprovalTable


def approval_disparity_by_cutoff(
    score: ArrayLike,
    group: ArrayLike,
    *,
    quantiles: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    frequency: ArrayLike | RowWeights | None = None,
    **settings: Any,
) -> list[CutoffApprovals]:
    """Approvals by group at several cutoffs, each a quantile of everyone's scores; by default the deciles.

    With tied scores, several quantiles can give the same cutoff, and the overall approval rate need not be one minus
    the quantile; it is reported with each. p-values are adjusted over groups, not over cutoffs. `settings` are further
    arguments of `approval_disparity`.

    Examples
    --------
    >>> rows = approval_disparity_by_cutoff([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1], quantiles=[0.5])
    >>> rows[0].cutoff, rows[0].overall_approval_rate, rows[0].table.groups[1].n_approved
    (0.3, 0.5, 1)
    """
    scores = np.asarray(score, dtype=np.float64)
    times = row_weights(frequency, len(scores)).total
    order = np.argsort(scores, kind="stable")
    upto = np.cumsum(times[order])
    # The cutoff is an actual score: the first one above the quantile's share of people.
    places = np.minimum(np.ceil(np.asarray(quantiles) * upto[-1] - 1e-9), upto[-1] - 1)
    cutoffs = scores[order[np.searchsorted(upto, places, side="right")]]

    rows = []
    for quantile, cutoff in zip(quantiles, cutoffs.tolist(), strict=True):
        approved = scores >= cutoff
        table = approval_disparity(approved, group, frequency=frequency, **settings)
        rows.append(CutoffApprovals(float(quantile), cutoff, float(times @ approved / upto[-1]), table))
    return rows


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
    """One group compared with the reference, which has people."""
    x1, n1, x0, n0 = effective_counts_of_two(members.codes, code, reference, approved, members.weights)
    if n1 == 0 or n0 == 0:
        return no_contrast(nobody_in(members, code if n1 == 0 else reference))
    if members.weights.is_simple:
        return contrast_counts(x1, n1, x0, n0, test, confidence)
    contrast = contrast_counts(x1, n1, x0, n0, "z", confidence)
    how = "effective numbers" if members.weights.clusters is None else "robust to clusters"
    return replace(contrast, test=f"{contrast.test}, {how}")


def contrast_counts(x1: float, n1: float, x0: float, n0: float, test: Test, confidence: float) -> RateContrast:
    """x1 approved of n1 in the group compared with x0 of n0 in the reference; integers for an exact test."""
    approved, denied, total = x1 + x0, (n1 - x1) + (n0 - x0), n1 + n0
    error = np.sqrt(approved * denied / (n1 * n0 * total))
    z = math.nan if error == 0 else float((x1 / n1 - x0 / n0) / error)
    p_value, name = float(2 * special.ndtr(-abs(z))), "two-proportion z"
    least_expected = min(n1, n0) * min(approved, denied) / total
    if test == "fisher" or (test == "auto" and least_expected < _LEAST_EXPECTED):
        table = np.asarray([[x1, n1 - x1], [x0, n0 - x0]]).astype(np.int64)
        p_value, name = float(stats.fisher_exact(table).pvalue), "Fisher exact"
    return RateContrast(
        difference=newcombe(x1, n1, x0, n0, confidence),
        ratio=koopman(x1, n1, x0, n0, confidence),
        odds_ratio=cornfield(x1, n1, x0, n0, confidence),
        p_value=p_value,
        test=name,
        n_standard_deviations=z,
        note="" if error else "each group has only one decision, and both the same: no standard error",
    )


# --- segments ---

# A control column with more values is a measurement, which should be binned first.
_MOST_SEGMENTS = 200


@dataclass(frozen=True)
class SegmentApproval(Plain):
    """Approvals of a group and the reference within one segment."""

    segment: str
    n_people_group: int
    n_approved_group: int
    n_people_reference: int
    n_approved_reference: int
    approval_rate_group: Estimate
    approval_rate_reference: Estimate
    approval_ratio_group_over_reference: Estimate
    odds_ratio_group_over_reference: Estimate
    is_informative: bool
    note: str = ""


@dataclass(frozen=True)
class SegmentedApproval(Plain):
    """A group compared with the reference, with segments held fixed (Cochran-Mantel-Haenszel).

    Attributes
    ----------
    common_odds_ratio_group_over_reference
        Mantel-Haenszel estimate; Robins-Breslow-Greenland interval.
    chi_square
        One degree of freedom, without continuity correction.
    homogeneity_p_value
        Breslow-Day with Tarone's adjustment: small if one common odds ratio does not describe every segment.
    n_people_used, n_people_left_out
        People of the two groups in informative segments, and in the others.
    """

    group: str
    reference: str
    common_odds_ratio_group_over_reference: Estimate
    chi_square: float
    p_value: float
    p_value_holm: float
    homogeneity_p_value: float
    n_segments_used: int
    n_people_used: int
    n_people_left_out: int
    segments: tuple[SegmentApproval, ...]
    note: str = ""


def segmented_approvals(
    decision: ArrayLike,
    group: ArrayLike,
    segment: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    frequency: ArrayLike | RowWeights | None = None,
    reference: str | None = None,
) -> list[SegmentedApproval]:
    """Compare each group with the reference group within segments, and over all segments (Cochran-Mantel-Haenszel).

    A segment is informative if it has people of both groups and both decisions; the others are listed with the reason
    and left out of the common metrics. With sampling weights, tables hold effective counts: each segment's rates are
    weighted, and the common metrics weight segments by their information. With clusters, each segment has effective
    counts too; the common metrics are those of people, with chi-squares divided, and the variance of the odds ratio
    multiplied, by the design effect of the test, so that a cluster with people in several segments is one unit.

    Parameters
    ----------
    segment
        The control column, of shape (n,): product, state, a binned number; at most 200 values.

    Examples
    --------
    >>> rows = segmented_approvals([1, 0, 1, 0, 1, 1], [0, 0, 1, 1, 1, 0], ["x", "x", "x", "x", "y", "y"])
    >>> rows[0].n_segments_used, rows[0].common_odds_ratio_group_over_reference.value
    (1, 1.0)
    >>> rows[0].segments[1].note
    'not informative: everyone has the same decision'
    """
    approved = np.asarray(decision).astype(np.int64)
    members = membership_of(group, len(approved), names, frequency)
    segment_names, segments = _segments(segment)
    reference_code = reference_code_of(members, reference)
    n_groups = len(members.names)
    cell, n_cells = segments * n_groups + members.codes, len(segment_names) * n_groups
    counts = np.bincount(cell * 2 + approved, members.weights.count, minlength=2 * n_cells).round().astype(np.int64)
    counts = counts.reshape(-1, n_groups, 2)

    def effective(weights: RowWeights) -> Floats:
        ones, people = effective_counts(cell, n_cells, approved, weights)
        return np.stack([people - ones, ones], axis=1).reshape(-1, n_groups, 2)

    worth = effective(members.weights)
    apart = worth if members.weights.clusters is None else effective(replace(members.weights, clusters=None))
    rows = []
    for code in (code for code in range(n_groups) if code != reference_code):
        two = [code, reference_code]
        parts = zip(segment_names, counts[:, two], worth[:, two], strict=True)
        segment_rows = tuple(_segment_row(*part) for part in parts)
        names_of_two = members.names[code], members.names[reference_code]
        effect = 1.0
        if members.weights.clusters is not None:
            used = np.isin(members.codes, two) & np.asarray([row.is_informative for row in segment_rows])[segments]
            columns = approved[used], members.codes[used] == code, segments[used]
            effect = _design_effect(*columns, members.weights.rows(used))
        rows.append(_segmented(*names_of_two, segment_rows, apart[:, two], effect))
    adjusted = holm([row.p_value for row in rows]).tolist()
    return [replace(row, p_value_holm=p_holm) for row, p_holm in zip(rows, adjusted, strict=True)]


def _design_effect(approved: Ints, is_group: Bools, segments: Ints, weights: RowWeights) -> float:
    """Variance of the Cochran-Mantel-Haenszel sum by clusters, divided by that by people."""

    def centered(values: NDArray[Any]) -> Floats:
        people, sums = (np.bincount(segments, weights.total * of)[segments] for of in (np.ones(len(values)), values))
        apart: Floats = values - sums / people
        return apart

    influence = centered(is_group) * centered(approved)
    by_people = replace(weights, clusters=None).variance(influence)
    return weights.variance(influence) / by_people if by_people > 0 else 1.0


def _segments(segment: ArrayLike) -> tuple[list[str], Ints]:
    codes, values = pd.factorize(pd.Series(np.asarray(segment)), sort=True)
    if len(values) > _MOST_SEGMENTS:
        raise InvalidInputError(
            f"`segment` must have at most {_MOST_SEGMENTS} distinct values, got {len(values)}; bin it first."
        )
    return [str(value) for value in values], codes.astype(np.int64)


def _segmented(
    group: str,
    reference: str,
    rows: tuple[SegmentApproval, ...],
    worth: Floats,
    design_effect: float,
) -> SegmentedApproval:
    """The contrast over segments; `worth` are effective numbers by segment, side (group, reference) and decision."""
    used = np.asarray([row.is_informative for row in rows])
    n_people = np.asarray([row.n_people_group + row.n_people_reference for row in rows])
    n_left_out = int((~used).sum())
    note = f"{n_left_out} of {len(rows)} segments are not informative and left out" if n_left_out else ""
    chi_square = p_value = homogeneity = math.nan
    if used.any():
        tables = worth[used][:, :, ::-1].transpose(1, 2, 0)
        common = _mantel_haenszel(tables, design_effect)
        # One degree of freedom, without continuity correction.
        chi_square = float(StratifiedTable(tables).test_null_odds(correction=False).statistic) / design_effect
        p_value, homogeneity = float(stats.chi2.sf(chi_square, 1)), _breslow_day(tables, common.value, design_effect)
    else:
        note = "not estimable: no segment has both groups and both decisions"
        common = not_estimable(note)
    return SegmentedApproval(
        group=group,
        reference=reference,
        common_odds_ratio_group_over_reference=common,
        chi_square=chi_square,
        p_value=p_value,
        p_value_holm=math.nan,
        homogeneity_p_value=homogeneity,
        n_segments_used=int(used.sum()),
        n_people_used=int(n_people[used].sum()),
        n_people_left_out=int(n_people[~used].sum()),
        segments=rows,
        note=note,
    )


def _segment_row(name: str, counts: Ints, worth: Floats) -> SegmentApproval:
    """One segment, from numbers of people, and effective ones, by side (group, reference) and decision."""
    (denied1, x1), (denied0, x0) = worth.tolist()
    n1, n0 = denied1 + x1, denied0 + x0
    empty = [side for side, number in (("the group", n1), ("the reference", n0)) if number == 0]
    reason = f"not informative: no one in {' or '.join(empty)}" if empty else ""
    if not empty and (x1 + x0 == 0 or denied1 + denied0 == 0):
        reason = "not informative: everyone has the same decision"
    ratio = odds_ratio = not_estimable(reason)
    if not empty:
        ratio, odds_ratio = (interval(x1, n1, x0, n0) for interval in (koopman, cornfield))
    small = f"fewer than {SMALL_GROUP} people on a side" if min(n1, n0) < SMALL_GROUP and not reason else ""
    return SegmentApproval(
        segment=name,
        n_people_group=int(counts[0].sum()),
        n_approved_group=int(counts[0, 1]),
        n_people_reference=int(counts[1].sum()),
        n_approved_reference=int(counts[1, 1]),
        approval_rate_group=rate_estimate(x1, n1, absent=reason),
        approval_rate_reference=rate_estimate(x0, n0, absent=reason),
        approval_ratio_group_over_reference=ratio,
        odds_ratio_group_over_reference=odds_ratio,
        is_informative=not reason,
        note=reason or small,
    )


# --- tables of shape (2, 2, n_segments): the group and the reference, approved and denied ---


def _mantel_haenszel(tables: Floats, design_effect: float) -> Estimate:
    """Common odds ratio with the interval of Robins, Breslow and Greenland (1986)."""
    (a, b), (c, d) = tables
    if not (b * c).any():
        return not_estimable(
            "not estimable: infinite in the sample, no segment has the group denied and the reference approved"
        )
    if not (a * d).any():
        return Estimate(0.0, 0.0, note="no upper end: no segment has the group approved and the reference denied")
    pooled = StratifiedTable(tables)
    value, (low, high) = pooled.oddsratio_pooled, pooled.oddsratio_pooled_confint(alpha=1 - CONFIDENCE)
    if design_effect != 1:
        low, high = (value * (end / value) ** math.sqrt(design_effect) for end in (low, high))
    return Estimate(float(value), float(low), float(high))


def _breslow_day(tables: Floats, odds_ratio: float, design_effect: float) -> float:
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
    statistic = float((apart**2 / variance).sum() - apart.sum() ** 2 / variance.sum()) / design_effect
    return float(stats.chi2.sf(statistic, len(a) - 1))


# --- errors ---


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
            return group_rate(members, code, values, subset, absent)

        def calibration(values: Floats) -> Estimate:
            if not is_probability:
                return not_estimable("not estimable: scores are outside [0, 1], so they are not probabilities")
            return group_mean(members, code, values)

        return GroupErrorRates(
            group=members.names[code],
            n_people=int(people[code]),
            n_positive_label=int(favorable[code]),
            positive_rate=rate(approved, everyone, "no one"),
            true_positive_rate=rate(approved, labels == 1, "no one with the favorable label"),
            false_positive_rate=rate(approved, labels == 0, "no one with the unfavorable label"),
            false_discovery_rate=rate(1 - labels, approved == 1, "no one approved"),
            auc=_group_auc(members, code, labels, scores),
            mean_score_minus_observed_rate=calibration(scores - labels),
            brier_score=calibration((scores - labels) ** 2),
            is_small_group=members.n_effective(code) < SMALL_GROUP,
        )

    return [row(code) for code in range(len(members.names))]


def _group_auc(members: Membership, code: int, labels: Ints, scores: Floats) -> Estimate:
    chosen = members.codes == code
    found = auc_interval(labels[chosen], scores[chosen], members.weights.rows(chosen))
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
    drawn: dict[str, _DrawnRate] = {}
    absent: dict[str, str] = {}
    for rate, (subset, who) in cells.items():
        people = members.sums(subset.astype(np.float64))
        if people.all():
            drawn[rate] = _drawn_rate(approved, subset, members, n_draws, rng)
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
            else _gap(name, {rate: drawn[rate] for rate in rates}, members)
        )
    return gaps


class _DrawnRate(NamedTuple):
    """A rate of every group, how far apart every two are, with the error, and the largest distance of each draw.

    The distance is from what is true of the draw, in units of its error.
    """

    values: Floats
    apart: Floats
    error: Floats
    largest: Floats


def _drawn_rate(
    approved: Ints, subset: Bools, members: Membership, n_draws: int, rng: np.random.Generator
) -> _DrawnRate:
    first, second = np.triu_indices(len(members.names), k=1)

    def apart_and_error(values: Floats, variances: Floats, covariance: Floats | float) -> tuple[Floats, Floats]:
        spread = variances[..., first] + variances[..., second] - 2 * covariance
        return np.abs(values[..., first] - values[..., second]), np.sqrt(np.maximum(spread, 1e-24))

    between: Floats | float = 0.0
    if members.weights.clusters is not None:  # which may have people of both groups
        columns = [members.column(code) * subset for code in range(len(members.names))]
        influences = np.stack([weighted_mean(approved, one, members.times)[1] for one in columns], axis=1)
        between = members.weights.covariance(influences)[first, second]
    approvals, people = members.effective_counts(approved, subset)
    drawn = np.maximum(np.rint(people), 1).astype(np.int64)
    # Add half an approval and half a denial, so that a rate of 0 or 1 still varies.
    rates = (approvals + 0.5) / (people + 1)
    counts = rng.binomial(drawn, rates, size=(n_draws, len(drawn)))
    redrawn = (counts + 0.5) / (drawn + 1)
    distance, spread = apart_and_error(counts / drawn - rates, redrawn * (1 - redrawn) / drawn, 0.0)
    values = members.sums(subset * approved) / members.sums(subset)
    apart, error = apart_and_error(values, rates * (1 - rates) / people, between)
    return _DrawnRate(values, apart, error, (distance / spread).max(axis=1))


def _gap(name: str, drawn: dict[str, _DrawnRate], members: Membership) -> GapEstimate:
    largest = np.max([rate.largest for rate in drawn.values()], axis=0)
    # Near rates of 0 or 1, the draws barely vary: never narrower than the interval of a single difference.
    critical = max(float(np.quantile(largest, CONFIDENCE)), normal_quantile(CONFIDENCE))
    apart, error = (np.stack([getattr(rate, part) for rate in drawn.values()]) for part in ("apart", "error"))
    which, place = divmod(int(apart.argmax()), apart.shape[1])
    rate = list(drawn)[which]
    two = (int(codes[place]) for codes in np.triu_indices(len(members.names), k=1))
    low, high = sorted(two, key=lambda code: drawn[rate].values[code])
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
            difference = _standardized_difference(moments[code], moments[reference_code], members, code)
            distance = _kolmogorov_smirnov(scores, members, code, reference_code)
        n_effective = members.n_effective(code)
        return ScoreDisparity(
            group=members.names[code],
            is_reference=is_reference,
            n_people=int(people[code]),
            n_effective=n_effective,
            mean_score=group_mean(members, code, scores),
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


def _standardized_difference(group: _Moments, reference: _Moments, members: Membership, code: int) -> Estimate:
    variance = (group.variance + reference.variance) / 2
    if np.isnan(variance):
        return not_estimable(f"not estimable: fewer than two people in group {members.names[code]!r} or the reference")
    if variance <= 0:
        return not_estimable("not estimable: the scores of both groups are constant")
    value = (group.mean - reference.mean) / np.sqrt(variance)
    influence = (group.mean_influence - reference.mean_influence) / np.sqrt(variance) - value / (4 * variance) * (
        group.variance_influence + reference.variance_influence
    )
    return Estimate.from_error(float(value), standard_error(influence, members.weights))


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


# --- calibration ---

_PEOPLE_PER_BIN = 30
_DRAWS = 2_000
_STEEPEST = 100.0  # a larger slope means that the scores separate the labels


@dataclass(frozen=True)
class CalibrationBin(Plain):
    """People of one group with scores in one range.

    Attributes
    ----------
    lowest, highest
        Scores of the people in it.
    observed_rate
        Share with label 1; Wilson interval.
    """

    lowest: float
    highest: float
    n_people: int
    mean_score: float
    observed_rate: Estimate


@dataclass(frozen=True)
class GroupCalibration(Plain):
    """Predicted and observed rates of one group.

    Attributes
    ----------
    expected_calibration_error
        Mean distance between mean score and observed rate over bins, weighted by their people; the interval is
        conservative.
    error_by_chance
        Its average, for the same number of people, if the scores of every bin were right.
    intercept
        Calibration in the large: log-odds to add to everyone's score so that predicted and observed rates agree; below
        0, the scores predict more than was observed.
    slope
        Factor of the log-odds that fits the labels best, with a constant: 1 is right, below 1 scores are too extreme.
    bins
        Bins with equal numbers of people, as far as ties allow; empty ones are left out.
    """

    group: str
    n_people: int
    n_positive_label: int
    mean_score: float
    observed_rate: Estimate
    expected_calibration_error: Estimate
    error_by_chance: float
    intercept: Estimate
    slope: Estimate
    bins: tuple[CalibrationBin, ...]
    is_small_group: bool


@dataclass(frozen=True)
class CalibrationTable(Plain):
    """Calibration of every group.

    Attributes
    ----------
    outcome
        The outcome that the scores predict, which label 1 means here: the favorable outcome, or the unfavorable one for
        a risk model.
    groups
        Empty if scores are not probabilities.
    note
        Why it is empty.
    """

    outcome: str
    groups: tuple[GroupCalibration, ...]
    note: str = ""


def group_calibration(
    y: ArrayLike,
    score: ArrayLike,
    group: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    frequency: ArrayLike | RowWeights | None = None,
    n_bins: int = 10,
    confidence: float = 0.95,
    small_group: int = 30,
    random_state: int = 0,
) -> list[GroupCalibration]:
    """Calibration of each group: its scores next to what was observed.

    Bins hold equal numbers of people of the group, at least 30 if the group has that many: ten bins, or fewer for a
    small group. The reliability curve is scikit-learn's `calibration_curve` with quantile bins.

    Parameters
    ----------
    y, score
        Labels, and probabilities of label 1, of shape (n,).
    group
        Integer codes of shape (n,).
    names, frequency
        A name for each code, and how many people each row stands for, or `RowWeights` of equal weights with clusters:
        rates then have effective counts, and intercept and slope errors by cluster.
    n_bins
        Largest number of bins of a group.
    confidence
        Level of the intervals.
    small_group
        Groups with fewer people are flagged, but still shown.
    random_state
        Seed of the draws behind the interval of the calibration error.

    Raises
    ------
    InvalidInputError
        If scores are not within [0, 1], or people have different weights.

    Examples
    --------
    >>> found = group_calibration([0, 1, 1, 0, 1, 0], [0.2, 0.8, 0.6, 0.1, 0.4, 0.3], [0, 0, 0, 1, 1, 1])
    >>> [round(one.mean_score, 3) for one in found], found[0].observed_rate.value
    ([0.533, 0.267], 0.6666666666666666)
    """
    labels, scores = binary_values(y, "y"), finite_scores(score)
    check_same_length({"y": labels, "score": scores})
    members = membership_of(group, len(labels), names, frequency)
    check_open_fraction(confidence, "confidence")
    check_at_least(n_bins, 1, "n_bins")
    if not members.weights.is_equal:
        raise InvalidInputError("Calibration by group needs equal weights, got sampling weights; leave them out.")
    n_outside = int(((scores < 0) | (scores > 1)).sum())
    if n_outside:
        raise InvalidInputError(f"`score` must hold probabilities, got {n_outside} values outside [0, 1].")

    def row(code: int) -> GroupCalibration:
        chosen = np.flatnonzero(members.codes == code)
        chosen = chosen[np.argsort(scores[chosen], kind="stable")]
        if not len(chosen):
            nothing = not_estimable(nobody_in(members, code))
            return GroupCalibration(
                members.names[code], 0, 0, math.nan, nothing, nothing, math.nan, nothing, nothing, (), True
            )
        of_group = y_of, score_of, weights = labels[chosen], scores[chosen], members.weights.rows(chosen)
        n, n_positive = int(weights.count.sum()), int(weights.count @ y_of)
        ones, people = effective_counts(np.zeros(len(chosen), dtype=np.int64), 1, y_of, weights)
        bins, worth = _bins(*of_group, max(1, min(n_bins, n // _PEOPLE_PER_BIN)), confidence)
        error, by_chance = _calibration_error(bins, worth, confidence, random_state)
        intercept, slope = _recalibration(*of_group, confidence)
        return GroupCalibration(
            group=members.names[code],
            n_people=n,
            n_positive_label=n_positive,
            mean_score=float(weights.count @ score_of) / n,
            observed_rate=rate_estimate(float(ones[0]), float(people[0]), confidence),
            expected_calibration_error=error,
            error_by_chance=by_chance,
            intercept=intercept,
            slope=slope,
            bins=bins,
            is_small_group=n < small_group,
        )

    return [row(code) for code in range(len(members.names))]


def _bins(
    labels: Ints, scores: Floats, weights: RowWeights, n_bins: int, confidence: float
) -> tuple[tuple[CalibrationBin, ...], Ints]:
    """The bins, and the effective number of people of each."""
    edges = _quantiles(scores, weights.count, np.arange(1, n_bins) / n_bins)
    place = np.searchsorted(edges, scores)
    n_people = np.bincount(place, weights.count, minlength=n_bins).round().astype(np.int64)
    promised = np.bincount(place, weights.count * scores, minlength=n_bins)
    observed, people = effective_counts(place, n_bins, labels, weights)

    bins = []
    for number in np.flatnonzero(n_people):
        n, inside = int(n_people[number]), scores[place == number]
        rate = rate_estimate(float(observed[number]), float(people[number]), confidence)
        bins.append(CalibrationBin(float(inside[0]), float(inside[-1]), n, float(promised[number]) / n, rate))
    return tuple(bins), np.maximum(np.rint(people[n_people > 0]), 1).astype(np.int64)


def _quantiles(ordered: Floats, times: Ints, shares: Floats) -> Floats:
    """Quantiles of people, as in `np.quantile`, from ordered values and how many people have each."""
    upto = np.cumsum(times)
    position = shares * (upto[-1] - 1)
    below = np.floor(position)
    low, high = (
        ordered[np.searchsorted(upto, np.minimum(at, upto[-1] - 1), side="right")] for at in (below, below + 1)
    )
    part, gap = position - below, high - low
    # Interpolate like numpy: from the nearer end, so that a tie gives the value itself.
    return np.asarray(np.where(part < 0.5, low + gap * part, high - gap * (1 - part)), dtype=np.float64)


def _calibration_error(
    bins: Sequence[CalibrationBin], worth: Ints, confidence: float, random_state: int
) -> tuple[Estimate, float]:
    """The calibration error with its interval, and its mean if the scores were right; `worth` are effective people.

    Chance increases the error, so that bootstrap intervals miss the true one: for calibrated scores, in half of all
    cases. By the triangle inequality, chance changes it by no more than the mean distance between observed and true
    rates. The quantile of that distance among draws from the observed rates is the length of this interval on each
    side, which makes it conservative.
    """
    n = np.array([one.n_people for one in bins])
    promised = np.array([one.mean_score for one in bins])
    observed = np.array([one.observed_rate.value for one in bins])
    weights = n / n.sum()
    value = float(weights @ np.abs(promised - observed))
    drawn = np.random.default_rng(random_state).binomial(worth, observed, size=(_DRAWS, len(n))) / worth
    reach = float(np.quantile(np.abs(drawn - observed) @ weights, confidence))
    low, high = max(value - reach, 0.0), min(value + reach, 1.0)
    # The mean absolute deviation of a binomial (De Moivre 1730), exactly.
    above = np.floor(worth * promised) + 1
    deviation = 2 * above * (1 - promised) * stats.binom.pmf(above, worth, promised) / worth
    return Estimate(value, low, high), float(weights @ deviation)


def _recalibration(labels: Ints, scores: Floats, weights: RowWeights, confidence: float) -> tuple[Estimate, Estimate]:
    """Intercept at a slope of 1, and slope with an intercept, of log-odds: binomial regressions of statsmodels."""
    n_sure = int(weights.count[(scores <= 0) | (scores >= 1)].sum())
    reason = ""
    if n_sure:
        reason = f"{n_sure:,} people have a score of 0 or 1, whose log-odds are infinite"
    elif (labels == labels[0]).all():
        reason = "everyone has the same label"
    if reason:
        return not_estimable(f"not estimable: {reason}"), not_estimable(f"not estimable: {reason}")
    log_odds = special.logit(scores)
    constant = np.ones((len(labels), 1))
    intercept = _coefficient(labels, constant, weights, confidence, offset=log_odds)
    if np.ptp(log_odds) == 0:
        return intercept, not_estimable("not estimable: everyone has the same score")
    return intercept, _coefficient(labels, np.column_stack([constant, log_odds]), weights, confidence)


def _coefficient(
    labels: Ints, design: Floats, weights: RowWeights, confidence: float, offset: Floats | None = None
) -> Estimate:
    """The last coefficient of a binomial regression; with clusters, its error is that of the sandwich formula."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # separation is checked below
        fitted = GLM(labels, design, family=Binomial(), offset=offset, freq_weights=weights.count).fit()
        value = float(fitted.params[-1])
        low, high = fitted.conf_int(alpha=1 - confidence)[-1]
    if not math.isfinite(value) or abs(value) > _STEEPEST or not fitted.converged:
        return not_estimable("not estimable: the scores separate the labels perfectly")
    if weights.clusters is not None:
        influence = (fitted.resid_response[:, None] * design) @ fitted.normalized_cov_params[-1]
        half = normal_quantile(confidence) * math.sqrt(weights.variance(influence))
        low, high = value - half, value + half
    return Estimate(value, float(low), float(high))
