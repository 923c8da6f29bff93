"""Approvals of each group next to the reference group within segments, and over all segments.

Over all segments: one odds ratio (Cochran-Mantel-Haenszel), and whether it describes them all (Breslow-Day).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from statsmodels.stats.contingency_tables import StratifiedTable

from evenhand.arrays import Bools, Floats, Ints
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.checking import SMALL_GROUP
from evenhand.metrics.adjustment import holm
from evenhand.metrics.disparity.intervals import (
    cornfield,
    effective_counts,
    koopman,
    membership_of,
    rate_estimate,
    reference_code_of,
)
from evenhand.metrics.estimate import Estimate, Plain, RowWeights, not_estimable

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
    confidence: float = 0.95,
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
    segment_names, segments = _segments(segment, len(approved))
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
        segment_rows = tuple(_segment_row(*part, confidence) for part in parts)
        names_of_two = members.names[code], members.names[reference_code]
        effect = 1.0
        if members.weights.clusters is not None:
            used = np.isin(members.codes, two) & np.asarray([row.is_informative for row in segment_rows])[segments]
            columns = approved[used], members.codes[used] == code, segments[used]
            effect = _design_effect(*columns, members.weights.rows(used))
        rows.append(_segmented(*names_of_two, segment_rows, apart[:, two], confidence, effect))
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


def _segments(segment: ArrayLike, n: int) -> tuple[list[str], Ints]:
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
    group: str,
    reference: str,
    rows: tuple[SegmentApproval, ...],
    worth: Floats,
    confidence: float,
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
        common = _mantel_haenszel(tables, confidence, design_effect)
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


def _segment_row(name: str, counts: Ints, worth: Floats, confidence: float) -> SegmentApproval:
    """One segment, from numbers of people, and effective ones, by side (group, reference) and decision."""
    (denied1, x1), (denied0, x0) = worth.tolist()
    n1, n0 = denied1 + x1, denied0 + x0
    empty = [side for side, number in (("the group", n1), ("the reference", n0)) if number == 0]
    reason = f"not informative: no one in {' or '.join(empty)}" if empty else ""
    if not empty and (x1 + x0 == 0 or denied1 + denied0 == 0):
        reason = "not informative: everyone has the same decision"
    ratio = odds_ratio = not_estimable(reason)
    if not empty:
        ratio, odds_ratio = (interval(x1, n1, x0, n0, confidence) for interval in (koopman, cornfield))
    small = f"fewer than {SMALL_GROUP} people on a side" if min(n1, n0) < SMALL_GROUP and not reason else ""
    return SegmentApproval(
        segment=name,
        n_people_group=int(counts[0].sum()),
        n_approved_group=int(counts[0, 1]),
        n_people_reference=int(counts[1].sum()),
        n_approved_reference=int(counts[1, 1]),
        approval_rate_group=rate_estimate(x1, n1, confidence, reason),
        approval_rate_reference=rate_estimate(x0, n0, confidence, reason),
        approval_ratio_group_over_reference=ratio,
        odds_ratio_group_over_reference=odds_ratio,
        is_informative=not reason,
        note=reason or small,
    )


# --- tables of shape (2, 2, n_segments): the group and the reference, approved and denied ---


def _mantel_haenszel(tables: Floats, confidence: float, design_effect: float) -> Estimate:
    """Common odds ratio with the interval of Robins, Breslow and Greenland (1986)."""
    (a, b), (c, d) = tables
    if not (b * c).any():
        return not_estimable(
            "not estimable: infinite in the sample, no segment has the group denied and the reference approved"
        )
    if not (a * d).any():
        return Estimate(0.0, 0.0, note="no upper end: no segment has the group approved and the reference denied")
    pooled = StratifiedTable(tables)
    value, (low, high) = pooled.oddsratio_pooled, pooled.oddsratio_pooled_confint(alpha=1 - confidence)
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
