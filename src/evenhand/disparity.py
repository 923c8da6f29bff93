"""Approvals, scores and errors of each group beside a reference group, with intervals and tests.

Group membership is either known (integer codes) or a matrix of probabilities with one row per person. Every comparison
carries its direction in its name, and a figure that cannot be estimated is NaN with the reason in its note.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize, special, stats

from evenhand.exceptions import InvalidInputError
from evenhand.inference import holm

__all__ = [
    "FOUR_FIFTHS",
    "ApprovalTable",
    "CutoffApprovals",
    "Estimate",
    "GapEstimate",
    "GroupApproval",
    "GroupErrorRates",
    "ScoreDisparity",
    "SegmentApproval",
    "SegmentedApproval",
    "approval_disparity",
    "approval_disparity_by_cutoff",
    "error_rates",
    "outcome_gaps",
    "score_disparity",
    "segmented_approvals",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Test = Literal["auto", "fisher", "z"]

FOUR_FIFTHS = 0.8
"""Approval ratio below which a difference is flagged as large: a rule of thumb from US employment-selection guidance
(29 CFR 1607.4(D)); it was written for hiring, and using it for lending is the reader's choice."""

# Cochran's rule of thumb: below this expected count the normal approximation to a cell is poor.
_LEAST_EXPECTED = 5.0
# A control column with more values than this is a measurement, to be binned first.
_MOST_SEGMENTS = 200
# The exact null distribution of the Kolmogorov-Smirnov distance costs the product of the sizes.
_MOST_EXACT_KS = 500
_NAN = float("nan")


@dataclass(frozen=True)
class Estimate:
    """A figure with its confidence interval; NaN with the reason in `note` where there is none."""

    value: float
    low: float
    high: float
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain fields."""
        return asdict(self)


@dataclass(frozen=True)
class GroupApproval:
    """Approvals of one group, alone and beside the reference group.

    Attributes
    ----------
    n_people, n_approved
        Counts; sums of probabilities where membership is given as probabilities.
    n_effective
        The number of people with known membership that would carry the same information: (Σp)² / Σp².
    approval_rate
        Share approved; Wilson interval.
    rate_difference_group_minus_reference_pp
        In percentage points; Newcombe's interval from the two Wilson intervals.
    approval_ratio_group_over_reference
        Adverse impact ratio: 1 equal rates, below 1 the group is approved less often; Koopman's score interval.
    odds_ratio_group_over_reference
        1 equal odds, below 1 the group is approved less often; score interval with both margins held (Cornfield).
    p_value, p_value_holm
        Two-sided, of equal rates; as it is, and adjusted for the number of groups compared.
    test
        Which test `p_value` comes from.
    n_standard_deviations
        The difference of rates over its standard error under equal rates; negative when the group is approved less.
    shortfall
        Further approvals with which the group's rate would reach the reference rate; 0 when it already does.
    is_statistically_significant
        Whether `p_value_holm` is below the table's `significance_level`; None where there is no p-value.
    is_below_practical_threshold
        Whether the approval ratio is below the table's `four_fifths_threshold`; None where there is no ratio.
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

    def to_dict(self) -> dict[str, Any]:
        """Plain fields, nested."""
        return asdict(self)


@dataclass(frozen=True)
class ApprovalTable:
    """Approvals of every group beside the reference, and the settings they were made with."""

    reference: str
    confidence: float
    significance_level: float
    four_fifths_threshold: float
    small_group: int
    is_probabilistic: bool
    groups: tuple[GroupApproval, ...]
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain fields, nested."""
        return asdict(self)


@dataclass(frozen=True)
class CutoffApprovals:
    """Approvals of every group if everyone with a score of at least `cutoff` were approved."""

    quantile: float
    cutoff: float
    overall_approval_rate: float
    table: ApprovalTable

    def to_dict(self) -> dict[str, Any]:
        """Plain fields, nested."""
        return asdict(self)


@dataclass(frozen=True)
class ScoreDisparity:
    """Scores of one group beside the reference group.

    Attributes
    ----------
    standardized_mean_difference_group_minus_reference
        Difference of mean scores over the root of the mean of the two variances; negative when the group scores lower.
    ks_distance
        Largest difference between the two cumulative score distributions: 0 the same, 1 disjoint.
    ks_p_value
        Of the same distribution; NaN where membership is given as probabilities.
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

    def to_dict(self) -> dict[str, Any]:
        """Plain fields, nested."""
        return asdict(self)


@dataclass(frozen=True)
class GroupErrorRates:
    """Decisions and errors of one group, each with an interval.

    Attributes
    ----------
    false_discovery_rate
        Among those approved, the share whose label is 0.
    auc
        DeLong's interval, on the logit scale.
    mean_score_minus_observed_rate
        Calibration in the large: above 0 the scores promise more favourable outcomes than were observed.
    brier_score
        Mean squared difference of score and label; 0 is perfect.
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

    def to_dict(self) -> dict[str, Any]:
        """Plain fields, nested."""
        return asdict(self)


@dataclass(frozen=True)
class GapEstimate:
    """The widest spread of a rate over groups, with an interval.

    Attributes
    ----------
    rate
        The rate that is furthest apart.
    group_low, group_high
        The groups between which it is.
    """

    name: str
    value: float
    low: float
    high: float
    rate: str
    group_low: str
    group_high: str
    note: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Plain fields."""
        return asdict(self)


@dataclass(frozen=True)
class SegmentApproval:
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

    def to_dict(self) -> dict[str, Any]:
        """Plain fields, nested."""
        return asdict(self)


@dataclass(frozen=True)
class SegmentedApproval:
    """A group beside the reference, segments held fixed (Cochran-Mantel-Haenszel).

    Attributes
    ----------
    common_odds_ratio_group_over_reference
        Mantel-Haenszel estimate; Robins-Breslow-Greenland interval.
    chi_square
        One degree of freedom, without continuity correction.
    homogeneity_p_value
        Breslow-Day with Tarone's adjustment: small when one common odds ratio does not describe every segment.
    n_people_used, n_people_left_out
        People of the two groups in segments that say something about the comparison, and in those that do not.
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

    def to_dict(self) -> dict[str, Any]:
        """Plain fields, nested."""
        return asdict(self)


def approval_disparity(
    decision: ArrayLike,
    group: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    frequency: ArrayLike | None = None,
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
        1 approved, 0 not, of shape (n,).
    group
        Integer codes of shape (n,), or probabilities of membership of shape (n, G) whose rows sum to 1. With
        probabilities every count is a sum of probabilities and every interval a normal approximation that accounts
        for one person counting in several groups. The probabilities stand in for membership only as far as decisions
        do not depend on membership beyond them.
    names
        A name for each code; by default the codes themselves.
    frequency
        How many people each row stands for, of shape (n,); by default one. Every function of this module gives the
        same figures from distinct rows and their frequencies as from people one by one.
    reference
        Name of the group that the others are compared with; by default the largest.
    test
        "fisher" exact, "z" for two proportions, or "auto": exact where an expected cell is below 5.
    four_fifths_threshold
        See `FOUR_FIFTHS`.
    small_group
        Groups of fewer (effective) people are flagged, and still shown.

    Raises
    ------
    InvalidInputError
        If an argument cannot be used, or an exact test is asked for with probabilities.

    Examples
    --------
    >>> table = approval_disparity([1, 1, 1, 0, 1, 0, 0, 0], [0, 0, 0, 0, 1, 1, 1, 1], names=["a", "b"])
    >>> row = table.groups[1]
    >>> table.reference, row.group, row.test, row.shortfall
    ('a', 'b', 'Fisher exact', 2.0)
    >>> round(row.approval_ratio_group_over_reference.value, 3)
    0.333
    """
    approved = _binary(decision, "decision")
    members = _membership(group, len(approved), names, frequency)
    if test not in ("auto", "fisher", "z"):
        raise InvalidInputError(f"`test` must be 'auto', 'fisher' or 'z', got {test!r}.")
    if test == "fisher" and members.is_soft:
        raise InvalidInputError(
            "`test='fisher'` needs known group membership, got probabilities: an exact test counts whole people; "
            "use `test='auto'`, or give group codes."
        )
    for value, name in (
        (confidence, "confidence"),
        (significance_level, "significance_level"),
        (four_fifths_threshold, "four_fifths_threshold"),
    ):
        _check_open_fraction(value, name)
    reference_code = _reference_code(members, reference)
    compare = _weighted_comparison if members.is_soft else _counted_comparison
    others = [code for code in range(len(members.names)) if code != reference_code]
    comparisons = {code: compare(approved, members, code, reference_code, test, confidence) for code in others}
    adjusted = dict(zip(others, holm([comparisons[code].p_value for code in others]), strict=True))
    comparisons[reference_code] = _no_comparison("this is the reference group")
    adjusted[reference_code] = _NAN

    people, approvals = members.sums(np.ones(len(approved))), members.sums(approved)
    reference_rate = _divided(approvals[reference_code], people[reference_code])

    def row(code: int) -> GroupApproval:
        found, p_holm = comparisons[code], float(adjusted[code])
        ratio = found.ratio.value
        n_effective = members.n_effective(code)
        lacking = people[code] * reference_rate - approvals[code]
        return GroupApproval(
            group=members.names[code],
            is_reference=code == reference_code,
            n_people=members.count(people[code]),
            n_approved=members.count(approvals[code]),
            n_effective=n_effective,
            approval_rate=_rate(members, code, approved, np.ones(len(approved), dtype=bool), "no one", confidence),
            rate_difference_group_minus_reference_pp=_scaled(found.difference, 100.0),
            approval_ratio_group_over_reference=found.ratio,
            odds_ratio_group_over_reference=found.odds_ratio,
            p_value=found.p_value,
            p_value_holm=p_holm,
            test=found.test,
            n_standard_deviations=found.n_standard_deviations,
            shortfall=_NAN if people[code] == 0 or np.isnan(lacking) else max(0.0, float(lacking)),
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
        note=_SOFT_NOTE if members.is_soft else "",
    )


def approval_disparity_by_cutoff(
    score: ArrayLike,
    group: ArrayLike,
    *,
    quantiles: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    names: Sequence[str] | None = None,
    frequency: ArrayLike | None = None,
    reference: str | None = None,
    test: Test = "auto",
    confidence: float = 0.95,
    significance_level: float = 0.05,
    four_fifths_threshold: float = FOUR_FIFTHS,
    small_group: int = 30,
) -> list[CutoffApprovals]:
    """Approvals by group at several cut-offs, each a quantile of everyone's scores; by default the deciles.

    With tied scores several quantiles can name the same cut-off, and the overall approval rate need not be one minus
    the quantile; it is given with each. p-values are adjusted over groups, not over cut-offs.

    Examples
    --------
    >>> rows = approval_disparity_by_cutoff([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1], quantiles=[0.5])
    >>> rows[0].cutoff, rows[0].overall_approval_rate, rows[0].table.groups[1].n_approved
    (0.3, 0.5, 1)
    """
    scores = _scores(score)
    if not quantiles or not all(0 < quantile < 1 for quantile in quantiles):
        raise InvalidInputError(f"`quantiles` must be numbers between 0 and 1, got {list(quantiles)}.")
    times = _frequency(frequency, len(scores))
    order = np.argsort(scores, kind="stable")
    upto = np.cumsum(times[order])
    # The cut-off is a score that someone has: the first one above the quantile's share of people.
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


def score_disparity(
    score: ArrayLike,
    group: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    frequency: ArrayLike | None = None,
    reference: str | None = None,
    confidence: float = 0.95,
    small_group: int = 30,
) -> list[ScoreDisparity]:
    r"""Scores by group, and how each group's distribution differs from the reference group's.

    The standardised mean difference is

    .. math:: (\bar s_g - \bar s_r) / \sqrt{(v_g + v_r) / 2}

    with v the variances; its interval is the delta method's, without assuming normal scores or equal variances.

    Examples
    --------
    >>> rows = score_disparity([0.2, 0.4, 0.6, 0.4, 0.6, 0.8], [1, 1, 1, 0, 0, 0])
    >>> round(rows[1].standardized_mean_difference_group_minus_reference.value, 6), round(rows[1].ks_distance, 3)
    (-1.0, 0.333)
    """
    scores = _scores(score)
    members = _membership(group, len(scores), names, frequency)
    _check_open_fraction(confidence, "confidence")
    reference_code = _reference_code(members, reference)
    moments = [_moments(scores, members, code) for code in range(len(members.names))]

    def row(code: int) -> ScoreDisparity:
        is_reference = code == reference_code
        difference = (
            _not_estimable("this is the reference group")
            if is_reference
            else _standardized_difference(moments[code], moments[reference_code], members, code, confidence)
        )
        distance, p_value, note = (
            (_NAN, _NAN, "") if is_reference else _kolmogorov_smirnov(scores, members, code, reference_code)
        )
        weights = members.column(code)
        return ScoreDisparity(
            group=members.names[code],
            is_reference=is_reference,
            n_people=members.count(float(members.times @ weights)),
            n_effective=members.n_effective(code),
            mean_score=_mean(scores, weights, members.times, _nobody(members, code), confidence),
            standard_deviation=float(np.sqrt(moments[code].variance)),
            standardized_mean_difference_group_minus_reference=difference,
            ks_distance=distance,
            ks_p_value=p_value,
            is_small_group=members.n_effective(code) < small_group,
            note=note,
        )

    return [row(code) for code in range(len(members.names))]


def error_rates(
    y: ArrayLike,
    decision: ArrayLike,
    score: ArrayLike,
    group: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    frequency: ArrayLike | None = None,
    confidence: float = 0.95,
    small_group: int = 30,
) -> list[GroupErrorRates]:
    """Decisions, errors, ranking and calibration of each group.

    Rates have Wilson intervals, means Student's. Calibration is given where scores are within [0, 1]. With membership
    given as probabilities the rates and means are weighted and AUC is NaN.

    Examples
    --------
    >>> rows = error_rates([0, 1, 0, 1], [0, 1, 1, 1], [0.2, 0.9, 0.6, 0.7], [0, 0, 1, 1])
    >>> rows[1].false_positive_rate.value, rows[1].false_discovery_rate.value
    (1.0, 0.5)
    """
    labels, approved, scores = _binary(y, "y"), _binary(decision, "decision"), _scores(score)
    _check_same_length({"y": labels, "decision": approved, "score": scores})
    members = _membership(group, len(labels), names, frequency)
    _check_open_fraction(confidence, "confidence")
    everyone = np.ones(len(labels), dtype=bool)
    is_probability = bool(((scores >= 0) & (scores <= 1)).all())

    def calibration(values: Floats, code: int) -> Estimate:
        if not is_probability:
            return _not_estimable("not estimable: scores are outside [0, 1], so they are not probabilities")
        return _mean(values, members.column(code), members.times, _nobody(members, code), confidence)

    def row(code: int) -> GroupErrorRates:
        weights = members.times * members.column(code)
        return GroupErrorRates(
            group=members.names[code],
            n_people=members.count(float(weights.sum())),
            n_positive_label=members.count(float(weights @ labels)),
            positive_rate=_rate(members, code, approved, everyone, "no one", confidence),
            true_positive_rate=_rate(members, code, approved, labels == 1, "no one with label 1", confidence),
            false_positive_rate=_rate(members, code, approved, labels == 0, "no one with label 0", confidence),
            false_discovery_rate=_rate(members, code, 1 - labels, approved == 1, "no one approved", confidence),
            auc=_auc(labels, scores, members, code, confidence),
            mean_score_minus_observed_rate=calibration(scores - labels, code),
            brier_score=calibration((scores - labels) ** 2, code),
            is_small_group=members.n_effective(code) < small_group,
        )

    return [row(code) for code in range(len(members.names))]


def outcome_gaps(
    y: ArrayLike,
    decision: ArrayLike,
    group: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    frequency: ArrayLike | None = None,
    confidence: float = 0.95,
    n_draws: int = 1000,
    random_state: int = 0,
) -> dict[str, GapEstimate]:
    """Widest spreads over groups, by name: sp_gap (approval), tpr_gap, fpr_gap, and eo_gap, the wider of those two.

    A gap is a maximum of absolute differences, so resampling it is biased away from 0 and a percentile interval never
    reaches 0. Instead the bootstrap (binomial draws within each cell) gives the critical value for all pairwise
    differences at once; if every difference lies within its own band, the gap lies between the largest lower end and
    the largest upper end. The interval holds for any true gap, 0 included, and is wider than needed rather than
    narrower when one pair stands out.

    Examples
    --------
    >>> gaps = outcome_gaps([0, 1, 0, 1], [0, 1, 1, 1], [0, 0, 1, 1], names=["a", "b"])
    >>> gaps["eo_gap"].value, gaps["eo_gap"].rate, gaps["eo_gap"].group_high
    (1.0, 'false positive rate', 'b')
    """
    labels, approved = _binary(y, "y"), _binary(decision, "decision")
    _check_same_length({"y": labels, "decision": approved})
    members = _membership(group, len(labels), names, frequency)
    _check_open_fraction(confidence, "confidence")
    if n_draws < 100:
        raise InvalidInputError(f"`n_draws` must be at least 100 for an interval, got {n_draws}.")
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


def segmented_approvals(
    decision: ArrayLike,
    group: ArrayLike,
    segment: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    frequency: ArrayLike | None = None,
    reference: str | None = None,
    confidence: float = 0.95,
    small_group: int = 30,
) -> list[SegmentedApproval]:
    """Each group beside the reference group within segments, and over them (Cochran-Mantel-Haenszel).

    A segment says something about the comparison when it holds people of both groups and both decisions; the others
    are listed with the reason and left out of the common figures.

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
    approved = _binary(decision, "decision")
    members = _membership(group, len(approved), names, frequency)
    if members.codes is None:
        raise InvalidInputError(
            "Segmented comparisons need known group membership, got probabilities: the Cochran-Mantel-Haenszel test "
            "counts whole people; give group codes, or compare within each segment with `approval_disparity`."
        )
    _check_open_fraction(confidence, "confidence")
    segment_names, segments = _segments(segment, len(approved))
    reference_code = _reference_code(members, reference)
    n_groups = len(members.names)
    cell = (segments * n_groups + members.codes) * 2 + approved
    counts = np.bincount(cell, members.times, minlength=len(segment_names) * n_groups * 2).round().astype(np.int64)
    counts = counts.reshape(-1, n_groups, 2)

    others = [code for code in range(n_groups) if code != reference_code]
    rows = [
        _segmented(counts[:, code], counts[:, reference_code], segment_names, confidence, small_group)
        for code in others
    ]
    adjusted = holm([row["p_value"] for row in rows])
    return [
        SegmentedApproval(
            group=members.names[code], reference=members.names[reference_code], p_value_holm=float(p_holm), **row
        )
        for code, row, p_holm in zip(others, rows, adjusted, strict=True)
    ]


# --- membership ---

_SOFT_NOTE = (
    "group membership is given as probabilities: counts are sums of probabilities, intervals are normal "
    "approximations, and differences are understated or overstated where decisions depend on membership beyond them"
)


@dataclass(frozen=True)
class _Membership:
    """Who is in which group: codes where known, else probabilities of shape (n, G), and how many people a row is."""

    names: tuple[str, ...]
    codes: Ints | None
    probabilities: Floats | None
    times: Floats

    @property
    def is_soft(self) -> bool:
        return self.codes is None

    def column(self, code: int) -> Floats:
        """Each person's weight in one group."""
        if self.probabilities is not None:
            return self.probabilities[:, code]
        assert self.codes is not None
        return np.asarray(self.codes == code, dtype=np.float64)

    def sums(self, values: NDArray[Any]) -> Floats:
        """Sum of `values` over each group, of shape (G,)."""
        if self.probabilities is not None:
            return np.asarray((self.times * values) @ self.probabilities, dtype=np.float64)
        assert self.codes is not None
        return np.bincount(self.codes, weights=self.times * values, minlength=len(self.names)).astype(np.float64)

    def n_effective(self, code: int) -> float:
        weights = self.column(code)
        return _divided(float(self.times @ weights) ** 2, float(self.times @ weights**2)) if weights.any() else 0.0

    def count(self, value: float) -> float:
        """A count of people: whole where membership is known."""
        return float(value) if self.is_soft else round(value)


def _frequency(frequency: ArrayLike | None, n: int) -> Floats:
    if frequency is None:
        return np.ones(n)
    times = np.asarray(frequency)
    if times.shape != (n,) or times.dtype.kind not in "iu" or (n and times.min() < 1):
        raise InvalidInputError(
            f"`frequency` must be a whole number of at least 1 for each of {n} rows, got {times.dtype} of shape "
            f"{times.shape}; leave rows of no one out."
        )
    return times.astype(np.float64)


def _membership(
    group: ArrayLike, n: int, names: Sequence[str] | None, frequency: ArrayLike | None = None
) -> _Membership:
    times = _frequency(frequency, n)
    values = np.asarray(group)
    if values.ndim not in (1, 2):
        raise InvalidInputError(
            f"`group` must be codes of shape (n,) or probabilities of shape (n, G), got shape {values.shape}."
        )
    if len(values) != n:
        raise InvalidInputError(f"`group` has {len(values)} values for {n} people; give one per person.")
    if values.ndim == 2:
        return _soft_membership(values, names, times)
    if values.dtype.kind not in "iub" or (n and values.min() < 0):
        raise InvalidInputError(
            f"`group` must hold integer codes from 0, got {values.dtype} values"
            f"{f' from {values.min()}' if values.dtype.kind == 'i' and n else ''}; "
            "turn names into codes first, for example with `evenhand.validation.as_groups`."
        )
    codes = values.astype(np.int64)
    n_codes = int(codes.max()) + 1
    readable = tuple(str(code) for code in range(n_codes)) if names is None else tuple(names)
    if len(readable) < n_codes:
        raise InvalidInputError(f"`names` has {len(readable)} names for {n_codes} group codes; give one per code.")
    _check_names(readable)
    return _Membership(readable, codes, None, times)


def _soft_membership(values: NDArray[Any], names: Sequence[str] | None, times: Floats) -> _Membership:
    probabilities = values.astype(np.float64)
    readable = tuple(str(code) for code in range(values.shape[1])) if names is None else tuple(names)
    if len(readable) != values.shape[1]:
        raise InvalidInputError(
            f"`names` has {len(readable)} names for {values.shape[1]} columns of probabilities; give one per column."
        )
    _check_names(readable)
    is_bad = ~((probabilities >= 0).all(axis=1) & (np.abs(probabilities.sum(axis=1) - 1) <= 1e-6))
    if is_bad.any():
        raise InvalidInputError(
            f"`group` probabilities must be at least 0 and sum to 1 for each person, got {int(is_bad.sum())} rows that "
            f"do not, the first at {int(is_bad.argmax())}; divide each row by its sum, or drop those people."
        )
    return _Membership(readable, None, probabilities, times)


def _check_names(names: tuple[str, ...]) -> None:
    if len(names) < 2:
        raise InvalidInputError(f"At least two groups are needed to compare, got {list(names)}; check `group`.")
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InvalidInputError(f"`names` must differ from each other, got {repeated} more than once.")


def _reference_code(members: _Membership, reference: str | None) -> int:
    sizes = members.sums(np.ones(_n_people(members)))
    if reference is None:
        return int(sizes.argmax())
    if reference not in members.names:
        raise InvalidInputError(f"`reference` must be one of the groups {list(members.names)}, got {reference!r}.")
    code = members.names.index(reference)
    if sizes[code] == 0:
        raise InvalidInputError(f"`reference` group {reference!r} has no one in it; choose a group with people.")
    return code


def _n_people(members: _Membership) -> int:
    return len(members.codes) if members.codes is not None else len(members.column(0))


def _nobody(members: _Membership, code: int) -> str:
    return f"not estimable: no one in group {members.names[code]!r}"


# --- two rates beside each other ---


@dataclass(frozen=True)
class _Comparison:
    difference: Estimate
    ratio: Estimate
    odds_ratio: Estimate
    p_value: float
    test: str
    n_standard_deviations: float
    note: str = ""


def _no_comparison(reason: str) -> _Comparison:
    nothing = _not_estimable(reason)
    return _Comparison(nothing, nothing, nothing, _NAN, "none", _NAN, reason)


def _counted_comparison(
    approved: Ints, members: _Membership, code: int, reference: int, test: Test, confidence: float
) -> _Comparison:
    people, approvals = members.sums(np.ones(len(approved))), members.sums(approved)
    empty = [members.names[c] for c in (code, reference) if people[c] == 0]
    if empty:
        return _no_comparison(f"not estimable: no one in group {empty[0]!r}")
    return _compare_counts(
        int(approvals[code]), int(people[code]), int(approvals[reference]), int(people[reference]), test, confidence
    )


def _compare_counts(x1: int, n1: int, x0: int, n0: int, test: Test, confidence: float) -> _Comparison:
    """x1 approved of n1 in the group beside x0 of n0 in the reference."""
    z = _quantile(confidence)
    p_value, name = _p_value(x1, n1, x0, n0, test)
    error = np.sqrt((x1 + x0) * (n1 + n0 - x1 - x0) / (n1 * n0 * (n1 + n0)))
    is_constant = error == 0
    return _Comparison(
        difference=_newcombe(x1, n1, x0, n0, z),
        ratio=_koopman(x1, n1, x0, n0, z),
        odds_ratio=_cornfield(x1, n1, x0, n0, z),
        p_value=p_value,
        test=name,
        n_standard_deviations=_NAN if is_constant else float((x1 / n1 - x0 / n0) / error),
        note="both groups have the same decision throughout: no standard error" if is_constant else "",
    )


def _p_value(x1: int, n1: int, x0: int, n0: int, test: Test) -> tuple[float, str]:
    approved, denied, total = x1 + x0, n1 + n0 - x1 - x0, n1 + n0
    least_expected = min(n1, n0) * min(approved, denied) / total
    if test == "fisher" or (test == "auto" and least_expected < _LEAST_EXPECTED):
        return float(stats.fisher_exact(np.asarray([[x1, n1 - x1], [x0, n0 - x0]])).pvalue), "Fisher exact"
    if approved == 0 or denied == 0:
        return _NAN, "two-proportion z"
    z = (x1 / n1 - x0 / n0) / np.sqrt(approved / total * denied / total * (1 / n1 + 1 / n0))
    return float(2 * special.ndtr(-abs(z))), "two-proportion z"


def _wilson(x: float, n: float, z: float) -> tuple[float, float]:
    centre = (x + z**2 / 2) / (n + z**2)
    half = z / (n + z**2) * np.sqrt(x * (n - x) / n + z**2 / 4)
    low, high = float(centre - half), float(centre + half)
    return (0.0 if x == 0 else low), (1.0 if x == n else high)


def _newcombe(x1: int, n1: int, x0: int, n0: int, z: float) -> Estimate:
    """Difference of rates with the hybrid score interval (Newcombe 1998, method 10)."""
    p1, p0 = x1 / n1, x0 / n0
    (low1, high1), (low0, high0) = _wilson(x1, n1, z), _wilson(x0, n0, z)
    below = np.hypot(p1 - low1, high0 - p0)
    above = np.hypot(high1 - p1, p0 - low0)
    return Estimate(p1 - p0, float(p1 - p0 - below), float(p1 - p0 + above))


def _koopman(x1: int, n1: int, x0: int, n0: int, z: float) -> Estimate:
    """Ratio of rates with the score interval (Koopman 1984): all ratios that a chi-square test does not reject."""
    if x0 == 0:
        return _not_estimable("not estimable: no one in the reference group is approved")

    def chi_square(log_ratio: float) -> float:
        ratio = np.exp(log_ratio)
        middle = ratio * (n1 + x0) + x1 + n0
        root = np.sqrt(max(middle**2 - 4 * ratio * (n1 + n0) * (x1 + x0), 0.0))
        # The smaller root, written without cancellation: the fitted rate of the group under this ratio.
        p1 = 2 * ratio * (x1 + x0) / (middle + root)
        p0 = p1 / ratio
        parts = [
            (x - n * p) ** 2 / (n * p * (1 - p)) if 0 < p < 1 else 0.0 if abs(x - n * p) < 1e-9 else np.inf
            for x, n, p in ((x1, n1, p1), (x0, n0, p0))
        ]
        return float(sum(parts))

    value = (x1 / n1) / (x0 / n0)
    centre = np.log(value) if x1 else -30.0
    low = 0.0 if x1 == 0 else float(np.exp(_crossing(chi_square, centre, -1, z**2)))
    return Estimate(value, low, float(np.exp(_crossing(chi_square, centre, 1, z**2))))


def _crossing(function: Callable[[float], float], start: float, direction: int, level: float) -> float:
    """Where a function that grows away from `start` reaches `level`."""
    step = 0.5
    while function(start + direction * step) < level:
        step *= 2
    near, far = start + direction * step / 2, start + direction * step
    if function(near) >= level:
        near = start
    return float(optimize.brentq(lambda place: min(function(place), 1e12) - level, near, far, xtol=1e-10))


def _cornfield(x1: int, n1: int, x0: int, n0: int, z: float) -> Estimate:
    """Odds ratio with the score interval, both margins held (Cornfield 1956, without continuity correction)."""
    approved = x1 + x0
    least, most = max(0, approved - n0), min(approved, n1)
    if least == most:
        return _not_estimable("not estimable: both groups have the same decision throughout")

    def odds_ratio(a: float) -> float:
        return a * (n0 - approved + a) / ((approved - a) * (n1 - a))

    def excess(a: float) -> float:
        return float((x1 - a) ** 2 * (1 / a + 1 / (approved - a) + 1 / (n1 - a) + 1 / (n0 - approved + a)) - z**2)

    # Within this distance of the border the statistic is beyond any level in use.
    edge = 1e-9 * (most - least)
    low = 0.0 if x1 == least else odds_ratio(float(optimize.brentq(excess, least + edge, x1 - edge)))
    if x1 == most:
        return Estimate(
            _NAN, low, _NAN, "infinite in the sample: a group has everyone or no one approved; `low` is a lower bound"
        )
    high = odds_ratio(float(optimize.brentq(excess, x1 + edge, most - edge)))
    return Estimate(odds_ratio(float(x1)), low, high)


def _weighted_comparison(
    approved: Ints, members: _Membership, code: int, reference: int, test: Test, confidence: float
) -> _Comparison:
    """Comparison under probabilities; linearised, so that a person who counts in both groups is counted once."""
    weights, reference_weights = members.column(code), members.column(reference)
    if not weights.any():
        return _no_comparison(_nobody(members, code))
    times = members.times
    rate, influence = _weighted_rate(approved, weights, times)
    reference_rate, reference_influence = _weighted_rate(approved, reference_weights, times)
    z = _quantile(confidence)

    def log_scale(name: str, slope: Callable[[float], float], transform: Callable[[float], float]) -> Estimate:
        if not (0 < rate < 1 and 0 < reference_rate < 1):
            return _not_estimable(f"not estimable: the {name} needs approvals and denials in both groups")
        value = transform(rate) / transform(reference_rate)
        error = _root_sum_square(influence * slope(rate) - reference_influence * slope(reference_rate), times)
        return Estimate(value, float(value * np.exp(-z * error)), float(value * np.exp(z * error)))

    difference = rate - reference_rate
    error = _root_sum_square(influence - reference_influence, times)
    if error == 0:
        return _no_comparison("not estimable: the weighted rates have no spread")
    return _Comparison(
        difference=Estimate(difference, max(-1.0, difference - z * error), min(1.0, difference + z * error)),
        ratio=log_scale("approval ratio", lambda p: 1 / p, lambda p: p),
        odds_ratio=log_scale("odds ratio", lambda p: 1 / (p * (1 - p)), lambda p: p / (1 - p)),
        p_value=float(2 * special.ndtr(-abs(difference / error))),
        test="z of weighted rates",
        n_standard_deviations=difference / error,
    )


def _weighted_rate(values: NDArray[Any], weights: Floats, times: Floats) -> tuple[float, Floats]:
    """Weighted mean, and each person's influence on it; the root of the influences' sum of squares is its error."""
    counted = times * weights
    total = float(counted.sum())
    mean = float(counted @ values) / total
    return mean, weights * (values - mean) / total


# --- one rate, one mean, one AUC ---


def _rate(
    members: _Membership, code: int, values: Ints, subset: NDArray[np.bool_], absent: str, confidence: float
) -> Estimate:
    """Share of 1s among the group's people in `subset`."""
    weights = members.column(code) * subset
    total = float(members.times @ weights)
    if total == 0:
        return _not_estimable(f"not estimable: {absent} in group {members.names[code]!r}")
    z = _quantile(confidence)
    rate, influence = _weighted_rate(values, weights, members.times)
    if not members.is_soft:
        return Estimate(rate, *_wilson(round(float((members.times * weights) @ values)), round(total), z))
    half = z * _root_sum_square(influence, members.times)
    return Estimate(rate, max(0.0, rate - half), min(1.0, rate + half))


def _mean(values: Floats, weights: Floats, times: Floats, nobody: str, confidence: float) -> Estimate:
    """Weighted mean with Student's interval on the effective number of people."""
    if not weights.any():
        return _not_estimable(nobody)
    mean, influence = _weighted_rate(values, weights, times)
    degrees = float(times @ weights) ** 2 / float(times @ weights**2) - 1
    if degrees <= 1e-9:
        return Estimate(mean, _NAN, _NAN, "no interval: one person")
    error = _root_sum_square(influence, times) * np.sqrt((degrees + 1) / degrees)
    half = float(special.stdtrit(degrees, 0.5 + confidence / 2) * error)
    return Estimate(mean, mean - half, mean + half)


def _auc(labels: Ints, scores: Floats, members: _Membership, code: int, confidence: float) -> Estimate:
    """Area under the ROC curve of one group with DeLong's interval, formed on the logit scale."""
    if members.codes is None:
        return _not_estimable("not estimable: AUC by group needs known membership, not probabilities")
    chosen = members.codes == code
    values, place = np.unique(scores[chosen], return_inverse=True)
    label, times = labels[chosen], members.times[chosen]
    favourable, unfavourable = (np.bincount(place, times * (label == y), minlength=len(values)) for y in (1, 0))
    n1, n0 = favourable.sum(), unfavourable.sum()
    if n1 == 0 or n0 == 0:
        absent = 1 if n1 == 0 else 0
        return _not_estimable(f"not estimable: no one with label {absent} in group {members.names[code]!r}")
    # What a person's score outranks among those of the other label, as a share; a tie is half.
    share1 = (np.cumsum(unfavourable) - unfavourable / 2) / n0
    share0 = 1 - (np.cumsum(favourable) - favourable / 2) / n1
    area = float(favourable @ share1 / n1)
    if n1 < 2 or n0 < 2:
        return Estimate(area, _NAN, _NAN, "no interval: one person with a label")
    spread1, spread0 = favourable @ (share1 - area) ** 2, unfavourable @ (share0 - area) ** 2
    error = float(np.sqrt(spread1 / (n1 - 1) / n1 + spread0 / (n0 - 1) / n0))
    if error == 0 or not 0 < area < 1:
        return Estimate(area, _NAN, _NAN, "no interval: the labels are separated without overlap")
    half = _quantile(confidence) * error / (area * (1 - area))
    logit = np.log(area / (1 - area))
    return Estimate(area, float(1 / (1 + np.exp(half - logit))), float(1 / (1 + np.exp(-half - logit))))


# --- score distributions ---


@dataclass(frozen=True)
class _Moments:
    mean: float
    variance: float
    mean_influence: Floats
    variance_influence: Floats


def _moments(scores: Floats, members: _Membership, code: int) -> _Moments:
    weights = members.column(code)
    n_effective = members.n_effective(code)
    if n_effective <= 1:
        nothing = np.full(len(scores), _NAN)
        return _Moments(_NAN, _NAN, nothing, nothing)
    mean, mean_influence = _weighted_rate(scores, weights, members.times)
    variance, variance_influence = _weighted_rate((scores - mean) ** 2, weights, members.times)
    unbiased = n_effective / (n_effective - 1)
    return _Moments(mean, variance * unbiased, mean_influence * np.sqrt(unbiased), variance_influence * unbiased)


def _standardized_difference(
    group: _Moments, reference: _Moments, members: _Membership, code: int, confidence: float
) -> Estimate:
    if np.isnan(group.variance) or np.isnan(reference.variance):
        return _not_estimable(f"not estimable: fewer than two people in group {members.names[code]!r} or the reference")
    variance = (group.variance + reference.variance) / 2
    if variance <= 0:
        return _not_estimable("not estimable: the scores of both groups are constant")
    value = (group.mean - reference.mean) / np.sqrt(variance)
    influence = (group.mean_influence - reference.mean_influence) / np.sqrt(variance) - value / (4 * variance) * (
        group.variance_influence + reference.variance_influence
    )
    half = _quantile(confidence) * _root_sum_square(influence, members.times)
    return Estimate(float(value), float(value - half), float(value + half))


def _kolmogorov_smirnov(scores: Floats, members: _Membership, code: int, reference: int) -> tuple[float, float, str]:
    """Distance, p-value and note."""
    weights, reference_weights = members.column(code), members.column(reference)
    if not weights.any():
        return _NAN, _NAN, _nobody(members, code)
    weights, reference_weights = members.times * weights, members.times * reference_weights
    values, place = np.unique(scores, return_inverse=True)
    counts, reference_counts = (np.bincount(place, w, minlength=len(values)) for w in (weights, reference_weights))
    steps = counts / counts.sum() - reference_counts / reference_counts.sum()
    distance = float(np.abs(np.cumsum(steps)).max())
    if members.codes is None:
        return distance, _NAN, "no p-value: the Kolmogorov-Smirnov test needs known membership"
    n, n_reference = counts.sum(), reference_counts.sum()
    if max(n, n_reference) <= _MOST_EXACT_KS:
        first, second = (np.repeat(values, c.astype(np.int64)) for c in (counts, reference_counts))
        found = stats.ks_2samp(first, second, method="exact")
        return float(found.statistic), float(found.pvalue), ""
    return distance, float(stats.kstwo.sf(distance, np.round(n * n_reference / (n + n_reference)))), ""


# --- gaps ---


@dataclass(frozen=True)
class _DrawnRates:
    """A rate of every group, its covariance over groups, and bootstrap draws.

    `deviations` are of shape (n_draws, G); `variances` are each draw's own, or one row for all draws.
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
    members: _Membership,
    n_draws: int,
    rng: np.random.Generator,
) -> _DrawnRates:
    people, approvals = members.sums(subset.astype(np.float64)), members.sums(subset * approved)
    if (people == 0).any():
        empty = [group for group, number in zip(members.names, people, strict=True) if number == 0]
        nothing = np.full(len(people), _NAN)
        return _DrawnRates(name, nothing, nothing, nothing, nothing, f"not estimable: no one{absent} in groups {empty}")
    values = approvals / people
    if members.is_soft:
        influences = np.stack(
            [_weighted_rate(approved, members.column(code) * subset, members.times)[1] for code in range(len(people))],
            axis=1,
        )
        covariance = (members.times[:, None] * influences).T @ influences
        deviations = rng.multivariate_normal(np.zeros(len(people)), covariance, size=n_draws, method="eigh")
        return _DrawnRates(name, values, covariance, deviations, np.diag(covariance)[None, :])
    # Half an approval and half a denial more, so that a rate of 0 or 1 still varies.
    rates = (approvals + 0.5) / (people + 1)
    counts = rng.binomial(people.astype(np.int64), rates, size=(n_draws, len(people)))
    redrawn = (counts + 0.5) / (people + 1)
    return _DrawnRates(
        name,
        values,
        covariance=np.diag(rates * (1 - rates) / people),
        deviations=counts / people - rates,
        variances=redrawn * (1 - redrawn) / people,
    )


def _gap(name: str, drawn: list[_DrawnRates], members: _Membership, confidence: float, n_draws: int) -> GapEstimate:
    absent = "; ".join(rates.absent for rates in drawn if rates.absent)
    if absent:
        return GapEstimate(name, _NAN, _NAN, _NAN, "", "", "", absent)
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
    # Near rates of 0 or 1 the draws barely vary: never narrower than the interval of a single difference.
    critical = max(float(np.quantile(largest, confidence)), _quantile(confidence))
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
        note=_SOFT_NOTE if members.is_soft else "",
    )


# --- segments ---


def _segments(segment: ArrayLike, n: int) -> tuple[list[str], Ints]:
    import pandas as pd

    codes, values = pd.factorize(pd.Series(np.asarray(segment)), sort=True)
    if len(codes) != n:
        raise InvalidInputError(f"`segment` has {len(codes)} values for {n} people; give one per person.")
    missing = int((codes < 0).sum())
    if missing:
        raise InvalidInputError(
            f"`segment` has {missing} missing values; drop those people, or give them a segment such as 'unknown'."
        )
    if len(values) > _MOST_SEGMENTS:
        raise InvalidInputError(
            f"`segment` must have at most {_MOST_SEGMENTS} distinct values, got {len(values)}; bin it first."
        )
    return [str(value) for value in values], codes.astype(np.int64)


def _segmented(
    group: Ints, reference: Ints, segment_names: list[str], confidence: float, small_group: int
) -> dict[str, Any]:
    """The comparison over segments from (denied, approved) counts of shape (n_segments, 2) for each side."""
    rows = tuple(
        _segment_row(name, one, other, confidence, small_group)
        for name, one, other in zip(segment_names, group, reference, strict=True)
    )
    used = np.asarray([row.is_informative for row in rows])
    n_people = (group + reference).sum(axis=1)
    found: dict[str, Any] = {
        "n_segments_used": int(used.sum()),
        "n_people_used": int(n_people[used].sum()),
        "n_people_left_out": int(n_people[~used].sum()),
        "segments": rows,
    }
    if not used.any():
        reason = "not estimable: no segment holds both groups and both decisions"
        nothing = {"chi_square": _NAN, "p_value": _NAN, "homogeneity_p_value": _NAN, "note": reason}
        return {"common_odds_ratio_group_over_reference": _not_estimable(reason), **nothing, **found}
    # Fourfold table of each segment: a, b the group approved and denied; c, d the reference.
    (b, a), (d, c) = group[used].T.astype(np.float64), reference[used].T.astype(np.float64)
    total = a + b + c + d
    n1, n0, approved, denied = a + b, c + d, a + c, b + d
    variance = n1 * n0 * approved * denied / (total**2 * (total - 1))
    chi_square = float((a - n1 * approved / total).sum() ** 2 / variance.sum())
    common = _mantel_haenszel(a, b, c, d, confidence)
    left_out = int((~used).sum())
    return {
        "common_odds_ratio_group_over_reference": common,
        "chi_square": chi_square,
        "p_value": float(stats.chi2.sf(chi_square, 1)),
        "homogeneity_p_value": _breslow_day(a, n1, n0, approved, common.value),
        "note": f"{left_out} of {len(rows)} segments are not informative and left out" if left_out else "",
        **found,
    }


def _segment_row(name: str, group: Ints, reference: Ints, confidence: float, small_group: int) -> SegmentApproval:
    (denied1, x1), (denied0, x0) = group.tolist(), reference.tolist()
    n1, n0 = denied1 + x1, denied0 + x0
    if n1 == 0 or n0 == 0:
        sides = [side for side, number in (("the group", n1), ("the reference", n0)) if number == 0]
        reason = f"not informative: no one of {' or '.join(sides)}"
    elif x1 + x0 == 0 or denied1 + denied0 == 0:
        reason = "not informative: everyone has the same decision"
    else:
        reason = ""
    found = _no_comparison(reason) if n1 == 0 or n0 == 0 else _compare_counts(x1, n1, x0, n0, "auto", confidence)
    z = _quantile(confidence)
    small = f"fewer than {small_group} people on a side" if min(n1, n0) < small_group and not reason else ""
    return SegmentApproval(
        segment=name,
        n_people_group=n1,
        n_approved_group=x1,
        n_people_reference=n0,
        n_approved_reference=x0,
        approval_rate_group=Estimate(x1 / n1, *_wilson(x1, n1, z)) if n1 else _not_estimable(reason),
        approval_rate_reference=Estimate(x0 / n0, *_wilson(x0, n0, z)) if n0 else _not_estimable(reason),
        approval_ratio_group_over_reference=found.ratio,
        odds_ratio_group_over_reference=found.odds_ratio,
        is_informative=not reason,
        note=reason or small,
    )


def _mantel_haenszel(a: Floats, b: Floats, c: Floats, d: Floats, confidence: float) -> Estimate:
    """Common odds ratio with the interval of Robins, Breslow and Greenland (1986)."""
    total = a + b + c + d
    for_group, for_reference = a * d / total, b * c / total
    sum1, sum0 = float(for_group.sum()), float(for_reference.sum())
    if sum0 == 0:
        return _not_estimable(
            "not estimable: infinite in the sample, no segment has the group denied and the reference approved"
        )
    if sum1 == 0:
        return Estimate(0.0, 0.0, _NAN, "no upper end: no segment has the group approved and the reference denied")
    agree, disagree = (a + d) / total, (b + c) / total
    variance = (
        (agree * for_group).sum() / (2 * sum1**2)
        + (agree * for_reference + disagree * for_group).sum() / (2 * sum1 * sum0)
        + (disagree * for_reference).sum() / (2 * sum0**2)
    )
    value, spread = sum1 / sum0, np.exp(_quantile(confidence) * np.sqrt(variance))
    return Estimate(value, float(value / spread), float(value * spread))


def _breslow_day(a: Floats, n1: Floats, n0: Floats, approved: Floats, odds_ratio: float) -> float:
    """p-value of one odds ratio for all segments, with Tarone's adjustment; NaN for a single segment."""
    if len(a) < 2 or not np.isfinite(odds_ratio) or odds_ratio == 0:
        return _NAN
    # Fitted count under the common odds ratio: the smaller root of its quadratic, written without cancellation.
    middle = n0 - approved + odds_ratio * (n1 + approved)
    root = np.sqrt(middle**2 + 4 * (1 - odds_ratio) * odds_ratio * n1 * approved)
    fitted = 2 * odds_ratio * n1 * approved / (middle + root)
    variance = 1 / (1 / fitted + 1 / (approved - fitted) + 1 / (n1 - fitted) + 1 / (n0 - approved + fitted))
    apart = a - fitted
    statistic = float((apart**2 / variance).sum() - apart.sum() ** 2 / variance.sum())
    return float(stats.chi2.sf(statistic, len(a) - 1))


# --- small things ---


def _not_estimable(reason: str) -> Estimate:
    return Estimate(_NAN, _NAN, _NAN, reason)


def _scaled(estimate: Estimate, factor: float) -> Estimate:
    return Estimate(estimate.value * factor, estimate.low * factor, estimate.high * factor, estimate.note)


def _divided(numerator: float, denominator: float) -> float:
    return float(numerator / denominator) if denominator else _NAN


def _root_sum_square(influence: Floats, times: Floats) -> float:
    return float(np.sqrt(times @ influence**2))


def _quantile(confidence: float) -> float:
    return float(special.ndtri(0.5 + confidence / 2))


def _binary(values: ArrayLike, name: str) -> Ints:
    array = np.asarray(values)
    if array.ndim != 1 or len(array) == 0:
        raise InvalidInputError(f"`{name}` must be one value per person, got shape {array.shape}.")
    if array.dtype.kind not in "iubf" or not np.isin(array, (0, 1)).all():
        raise InvalidInputError(
            f"`{name}` must be 0 or 1 (1 for the favourable outcome), got {np.unique(array.astype(str))[:5].tolist()}."
        )
    return array.astype(np.int64)


def _scores(values: ArrayLike) -> Floats:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) == 0:
        raise InvalidInputError(f"`score` must be one number per person, got shape {array.shape}.")
    n_bad = int((~np.isfinite(array)).sum())
    if n_bad:
        raise InvalidInputError(f"`score` must be finite, got {n_bad} missing or infinite values; drop those people.")
    return array


def _check_same_length(arrays: dict[str, NDArray[Any]]) -> None:
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidInputError(f"Arrays must have one value per person each, got lengths {lengths}.")


def _check_open_fraction(value: float, name: str) -> None:
    if not 0 < value < 1:
        raise InvalidInputError(f"`{name}` must be a number between 0 and 1, got {value!r}.")
