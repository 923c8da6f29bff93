"""Estimates from one draw of the groups, by name, so that draws can be pooled."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenhand.auditing.batch import BatchFindings
from evenhand.auditing.evidence import Evidence
from evenhand.auditing.influences import gap_key, input_key
from evenhand.auditing.reference import AuditReference
from evenhand.inputs.validation import Groups
from evenhand.metrics.disparity import GroupApproval, approval_disparity, outcome_gaps
from evenhand.metrics.disparity.membership import weighted_mean
from evenhand.metrics.estimate import Estimate, normal_quantile
from evenhand.metrics.excess import ExcessEstimate, excess_columns
from evenhand.metrics.pooling import DrawnEstimate
from evenhand.metrics.regimes import REGIMES
from evenhand.metrics.score_gap import GapColumn

__all__ = ["EXCESSES", "SCORE_GAPS", "DrawKey", "Estimates", "draw_estimates"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_Z = normal_quantile(0.95)

EXCESSES = {
    "excess": ("cec", "excess"),
    "excess_balanced": ("balanced", "excess_balanced"),
    "weighing": ("reasoning_gap", "weighing"),
    "excess: input gap": ("input_gap", "excess: input gap"),
    "excess: regime B": ("regime_b", ""),
}
"""For each excess, its place in the evidence, and the name of its influences, if they are kept."""


@dataclass(frozen=True)
class DrawKey:
    """Key of a number in an audit: the metric, the group or groups, and the input."""

    metric: str
    group: str = ""
    reference: str = ""
    feature: str = ""


SCORE_GAPS = {
    "score_gap": ("total", ""),
    "score_gap_probability": ("probability", "probability"),
    "score_gap_decision": ("decision", "decision"),
}
"""For each score gap, its place in a `ScoreGap`, and the unit in the name of its influences."""

Estimates = dict[DrawKey, DrawnEstimate]


def draw_estimates(
    reference: AuditReference, found: BatchFindings, evidence: Evidence | None, reference_group: str
) -> Estimates:
    """Estimates from a draw: excesses, score gaps, regimes, approvals, and gaps in outcomes.

    Parameters
    ----------
    reference, found, evidence
        What was fitted on the draw, the results for its people, and the evidence, if any.
    reference_group
        The group that the others are compared with.
    """
    of_evidence = {} if evidence is None else {**_excesses(evidence), **_score_gaps(evidence)}
    return {**of_evidence, **_regimes(reference, found), **_outcomes(found, reference_group), **_widest_gaps(found)}


def _excesses(evidence: Evidence) -> Estimates:
    columns = {} if evidence.influences is None else evidence.influences.columns
    return {
        DrawKey(name): _plain(getattr(evidence, place), columns.get(influence))
        for name, (place, influence) in EXCESSES.items()
    }


def _score_gaps(evidence: Evidence) -> Estimates:
    columns = {} if evidence.influences is None else evidence.influences.columns
    estimates: Estimates = {}
    for gap in evidence.score_gaps:
        sides = (gap.group, gap.reference)
        for name, (place, unit) in SCORE_GAPS.items():
            estimates[DrawKey(name, *sides)] = _plain(getattr(gap, place), columns.get(gap_key(*sides, unit)))
        for row in gap.features:
            key = DrawKey("input", *sides, row.feature)
            estimates[key] = _plain(row.estimate, columns.get(input_key(row.feature, *sides)))
    return estimates


def _plain(found: ExcessEstimate | GapColumn, influence: NDArray[np.floating] | None) -> DrawnEstimate:
    is_tested = not math.isnan(found.p_value)
    return DrawnEstimate(found.value, found.ci_low, found.ci_high, found.standard_error, found.df, influence, is_tested)


def _regimes(reference: AuditReference, found: BatchFindings) -> Estimates:
    """Shares of pairs in each regime; someone counts as a person and as a match of other people."""
    done = found.scored.is_scored
    # Without a reference, people and matches are rows of one table.
    first = 0 if reference.pool is found.people else len(found.people)
    nodes = np.column_stack([found.pairs.person[done], found.pairs.match[done] + first])
    if not len(nodes):
        return {DrawKey(f"regime {name}"): _no_estimate() for name in REGIMES}
    is_in = np.column_stack([found.regime[done] == name for name in REGIMES]).astype(np.float64)
    shares = is_in.mean(axis=0)
    estimates: Estimates = {}
    errors = excess_columns(is_in, np.zeros_like(is_in), nodes)
    for name, share, column, error in zip(REGIMES, shares.tolist(), is_in.T, errors, strict=True):
        moved = np.repeat((column - share) / len(nodes), 2)
        influence = np.bincount(nodes.ravel(), moved, minlength=first + len(reference.pool)).astype(np.float64)
        half = _Z * error.standard_error
        estimates[DrawKey(f"regime {name}")] = DrawnEstimate(
            share, share - half, share + half, error.standard_error, influence=influence
        )
    return estimates


def _outcomes(found: BatchFindings, reference_group: str) -> Estimates:
    """Approvals of each group and compared with the reference group; differences in error rates and mean scores."""
    groups, decision, labels = found.people.groups, found.decision, found.people.labels
    table = approval_disparity(decision, groups.codes, names=groups.names, reference=reference_group)
    everyone = np.ones(len(labels), dtype=np.bool_)
    estimates: Estimates = {}
    approved = _Means.of(decision, groups, everyone)
    held_against = groups.names.index(reference_group)
    for code, row in enumerate(table.groups):
        estimates[DrawKey("approval_rate", row.group)] = _of_interval(row.approval_rate, approved.influences[code])
        if code != held_against:
            estimates |= _approvals(row, reference_group, approved, code, held_against)
            sides = (row.group, reference_group)
            for name, values, subset in (
                ("true_positive_rate_difference", decision, labels == 1),
                ("false_positive_rate_difference", decision, labels == 0),
                ("mean_score_difference", found.score, everyone),
            ):
                estimates[DrawKey(name, *sides)] = _Means.of(values, groups, subset).difference(code, held_against)
    return estimates


def _approvals(row: GroupApproval, reference: str, approved: _Means, code: int, held_against: int) -> Estimates:
    sides = (row.group, reference)
    own, other = approved.influences[code], approved.influences[held_against]
    rate, reference_rate = approved.means[code], approved.means[held_against]
    n, n_reference = approved.sizes[code], approved.sizes[held_against]
    apart = row.rate_difference_group_minus_reference_pp
    difference = Estimate(apart.value / 100, apart.low / 100, apart.high / 100)
    overall = (rate * n + reference_rate * n_reference) / (n + n_reference) if n and n_reference else math.nan
    null_error = math.sqrt(overall * (1 - overall) * (1 / n + 1 / n_reference)) if n and n_reference else math.nan
    with np.errstate(divide="ignore", invalid="ignore"):
        of_ratio = own / rate - other / reference_rate
        of_odds = own / (rate * (1 - rate)) - other / (reference_rate * (1 - reference_rate))
    return {
        DrawKey("approval_difference", *sides): _of_interval(difference, own - other),
        DrawKey("approval_test", *sides): DrawnEstimate(
            difference.value, difference.low, difference.high, null_error, influence=own - other
        ),
        DrawKey("approval_ratio", *sides): _of_interval(_logarithms(row.approval_ratio_group_over_reference), of_ratio),
        DrawKey("approval_odds_ratio", *sides): _of_interval(_logarithms(row.odds_ratio_group_over_reference), of_odds),
    }


def _widest_gaps(found: BatchFindings) -> Estimates:
    groups = found.people.groups
    gaps = outcome_gaps(found.people.labels, found.decision, groups.codes, names=groups.names)
    return {DrawKey(name): _of_interval(Estimate(gap.value, gap.low, gap.high), None) for name, gap in gaps.items()}


@dataclass(frozen=True, eq=False)
class _Means:
    """Means of a value in each group, and the influences of people on them."""

    sizes: list[float]
    means: list[float]
    influences: list[Floats]

    @classmethod
    def of(cls, values: Floats | Ints, groups: Groups, subset: NDArray[np.bool_]) -> _Means:
        found = cls([], [], [])
        for code in range(len(groups.names)):
            weights = (subset & (groups.codes == code)).astype(np.float64)
            found.sizes.append(float(weights.sum()))
            mean, influence = (
                weighted_mean(values, weights, np.ones(len(weights)))
                if weights.any()
                else (math.nan, np.full(len(weights), math.nan))
            )
            found.means.append(mean)
            found.influences.append(influence)
        return found

    def difference(self, code: int, reference: int) -> DrawnEstimate:
        influence = self.influences[code] - self.influences[reference]
        value, error = self.means[code] - self.means[reference], float(np.linalg.norm(influence))
        return DrawnEstimate(value, value - _Z * error, value + _Z * error, error, influence=influence)


def _of_interval(found: Estimate, influence: Floats | None) -> DrawnEstimate:
    """An estimate whose standard error is recovered from its interval."""
    return DrawnEstimate(found.value, found.low, found.high, (found.high - found.low) / (2 * _Z), influence=influence)


def _logarithms(found: Estimate) -> Estimate:
    value, low, high = (math.log(x) if x > 0 else math.nan for x in (found.value, found.low, found.high))
    return Estimate(value, low, high)


def _no_estimate() -> DrawnEstimate:
    return DrawnEstimate(*(math.nan,) * 4)
