"""Approvals of each group next to the reference group, and at several cutoffs of the score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.exceptions import InvalidInputError
from evenhand.metrics.adjustment import holm
from evenhand.metrics.checks import binary_values, check_open_fraction, finite_scores
from evenhand.metrics.disparity.contrast import RateContrast, Test, contrast_groups, no_contrast
from evenhand.metrics.disparity.membership import Membership, group_rate, membership_of, reference_code_of
from evenhand.metrics.estimate import Estimate, Plain
from evenhand.metrics.weights import RowWeights, row_weights

__all__ = [
    "FOUR_FIFTHS",
    "ApprovalTable",
    "CutoffApprovals",
    "GroupApproval",
    "approval_disparity",
    "approval_disparity_by_cutoff",
]

Ints = NDArray[np.int64]

FOUR_FIFTHS = 0.8
"""Approval ratio below which a difference is flagged as large: a rule of thumb from US employment-selection guidance
(29 CFR 1607.4(D)); it was written for hiring, and using it for lending is the reader's choice."""


@dataclass(frozen=True)
class GroupApproval(Plain):
    """Approvals of one group, alone and compared with the reference group.

    Attributes
    ----------
    n_people, n_approved
        Counts of people, whatever their weights; sums of probabilities if membership is given as probabilities.
    n_effective
        The number of people with known membership and equal weights that would carry the same information:
        (Σp)² / Σp², with p the probability times the sampling weight.
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
    significance_level: float = 0.05,
    four_fifths_threshold: float = FOUR_FIFTHS,
    small_group: int = 30,
) -> ApprovalTable:
    """Approvals by group, and how each differs from the reference group.

    Parameters
    ----------
    decision
        1 for approved, 0 otherwise, of shape (n,).
    group
        Integer codes of shape (n,), or probabilities of membership of shape (n, G) whose rows sum to 1. With
        probabilities, every count is a sum of probabilities and every interval a normal approximation that accounts for
        one person counting in several groups. The probabilities replace membership only as far as decisions do not
        depend on membership beyond them.
    names
        A name for each code; by default the codes themselves.
    frequency
        How many people each row stands for, of shape (n,); by default one. Every function of this package gives the
        same metrics from distinct rows with frequencies as from single people. For sampling weights, pass
        `evenhand.metrics.weights.RowWeights.of(weights)`: rates then refer to the population, and intervals and tests
        use the effective number of people.
    reference
        Name of the group that the others are compared with; by default the largest.
    test
        "fisher" for the exact test, "z" for two proportions, or "auto": exact if an expected cell is below 5.
    four_fifths_threshold
        See `FOUR_FIFTHS`.
    small_group
        Groups with fewer (effective) people are flagged, but still shown.

    Raises
    ------
    InvalidInputError
        If an argument is invalid, or an exact test is requested with probabilities.

    Examples
    --------
    >>> table = approval_disparity([1, 1, 1, 0, 1, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1], names=["a", "b"])
    >>> row = table.groups[1]
    >>> table.reference, row.group, row.test, row.shortfall
    ('a', 'b', 'Fisher exact', 2.0)
    >>> round(row.approval_ratio_group_over_reference.value, 3)
    0.333
    """
    approved = binary_values(decision, "decision")
    members = membership_of(group, len(approved), names, frequency)
    _check_test(test, members)
    for value, name in (
        (confidence, "confidence"),
        (significance_level, "significance_level"),
        (four_fifths_threshold, "four_fifths_threshold"),
    ):
        check_open_fraction(value, name)
    reference_code = reference_code_of(members, reference)
    everyone = np.ones(len(approved), dtype=bool)
    counted, counted_approvals = members.counts(np.ones(len(approved))), members.counts(approved)
    shortfalls = _shortfalls(approved, members, reference_code)
    contrasts = _adjusted_contrasts(approved, members, reference_code, test, confidence)

    def row(code: int) -> GroupApproval:
        found, p_holm = contrasts[code]
        ratio = found.ratio.value
        n_effective = members.n_effective(code)
        return GroupApproval(
            group=members.names[code],
            is_reference=code == reference_code,
            n_people=members.count(counted[code]),
            n_approved=members.count(counted_approvals[code]),
            n_effective=n_effective,
            approval_rate=group_rate(members, code, approved, everyone, "no one", confidence),
            rate_difference_group_minus_reference_pp=_in_percentage_points(found.difference),
            approval_ratio_group_over_reference=found.ratio,
            odds_ratio_group_over_reference=found.odds_ratio,
            p_value=found.p_value,
            p_value_holm=p_holm,
            test=found.test,
            n_standard_deviations=found.n_standard_deviations,
            shortfall=shortfalls[code],
            is_statistically_significant=None if np.isnan(p_holm) else p_holm < significance_level,
            is_below_practical_threshold=None if np.isnan(ratio) else ratio < four_fifths_threshold,
            is_small_group=n_effective < small_group,
            note=found.note,
        )

    return ApprovalTable(
        reference=members.names[reference_code],
        confidence=confidence,
        significance_level=significance_level,
        four_fifths_threshold=four_fifths_threshold,
        small_group=small_group,
        is_probabilistic=members.is_soft,
        groups=tuple(row(code) for code in range(len(members.names))),
        note=members.note,
    )


def _check_test(test: Test, members: Membership) -> None:
    if test not in ("auto", "fisher", "z"):
        raise InvalidInputError(f"`test` must be 'auto', 'fisher' or 'z', got {test!r}.")
    if test == "fisher" and (members.is_soft or members.is_weighted):
        came = "probabilities" if members.is_soft else "sampling weights"
        raise InvalidInputError(
            f"`test='fisher'` needs known group membership and equal weights, got {came}: an exact test counts whole "
            "people; use `test='auto'`, or pass group codes without weights."
        )


def _adjusted_contrasts(
    approved: Ints, members: Membership, reference_code: int, test: Test, confidence: float
) -> list[tuple[RateContrast, float]]:
    """Each group next to the reference group, and its p-value adjusted for the number of groups compared."""
    others = [code for code in range(len(members.names)) if code != reference_code]
    found = [contrast_groups(approved, members, code, reference_code, test, confidence) for code in others]
    adjusted = holm([contrast.p_value for contrast in found])
    rows = [(contrast, float(p_holm)) for contrast, p_holm in zip(found, adjusted, strict=True)]
    rows.insert(reference_code, (no_contrast("this is the reference group"), math.nan))
    return rows


def _shortfalls(approved: Ints, members: Membership, reference_code: int) -> list[float]:
    """Additional approvals of people, whatever their weights, with which each group would reach the reference rate."""
    everyone = np.ones(len(approved))
    people, approvals, counted = members.sums(everyone), members.sums(approved), members.counts(everyone)
    reference_rate = approvals[reference_code] / people[reference_code]

    def of(code: int) -> float:
        if not people[code] > 0:
            return math.nan
        lacking = float((people[code] * reference_rate - approvals[code]) * (counted[code] / people[code]))
        return lacking if math.isnan(lacking) else max(0.0, lacking)

    return [of(code) for code in range(len(members.names))]


def _in_percentage_points(share: Estimate) -> Estimate:
    return Estimate(share.value * 100.0, share.low * 100.0, share.high * 100.0, share.note)


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
    names: Sequence[str] | None = None,
    frequency: ArrayLike | RowWeights | None = None,
    reference: str | None = None,
    test: Test = "auto",
    confidence: float = 0.95,
    significance_level: float = 0.05,
    four_fifths_threshold: float = FOUR_FIFTHS,
    small_group: int = 30,
) -> list[CutoffApprovals]:
    """Approvals by group at several cutoffs, each a quantile of everyone's scores; by default the deciles.

    With tied scores, several quantiles can give the same cutoff, and the overall approval rate need not be one minus
    the quantile; it is reported with each. p-values are adjusted over groups, not over cutoffs.

    Examples
    --------
    >>> rows = approval_disparity_by_cutoff([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1], quantiles=[0.5])
    >>> rows[0].cutoff, rows[0].overall_approval_rate, rows[0].table.groups[1].n_approved
    (0.3, 0.5, 1)
    """
    scores = finite_scores(score)
    if not quantiles or not all(0 < quantile < 1 for quantile in quantiles):
        raise InvalidInputError(f"`quantiles` must be numbers between 0 and 1, got {list(quantiles)}.")
    times = row_weights(frequency, len(scores)).total
    order = np.argsort(scores, kind="stable")
    upto = np.cumsum(times[order])
    # The cutoff is an actual score: the first one above the quantile's share of people.
    places = np.minimum(np.ceil(np.asarray(quantiles) * upto[-1] - 1e-9), upto[-1] - 1)
    cutoffs = scores[order[np.searchsorted(upto, places, side="right")]]

    def at(quantile: float, cutoff: float) -> CutoffApprovals:
        approved = scores >= cutoff
        table = approval_disparity(
            approved,
            group,
            names=names,
            frequency=frequency,
            reference=reference,
            test=test,
            confidence=confidence,
            significance_level=significance_level,
            four_fifths_threshold=four_fifths_threshold,
            small_group=small_group,
        )
        return CutoffApprovals(float(quantile), cutoff, float(times @ approved / upto[-1]), table)

    return [at(quantile, float(cutoff)) for quantile, cutoff in zip(quantiles, cutoffs, strict=True)]
