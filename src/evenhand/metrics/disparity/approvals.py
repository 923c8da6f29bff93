"""Approvals of each group next to the reference group, and at several cutoffs of the score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats

from evenhand.arrays import Ints
from evenhand.inputs.checking import SMALL_GROUP
from evenhand.metrics.adjustment import holm
from evenhand.metrics.disparity.intervals import (
    Membership,
    cornfield,
    effective_counts_of_two,
    group_rate,
    koopman,
    membership_of,
    newcombe,
    nobody_in,
    reference_code_of,
)
from evenhand.metrics.estimate import (
    Estimate,
    Plain,
    RowWeights,
    not_estimable,
    row_weights,
)

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
