"""Decisions, errors, ranking and calibration of each group."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.metrics.checks import binary_values, check_open_fraction, check_same_length, finite_scores
from evenhand.metrics.disparity.membership import Membership, group_mean, group_rate, membership_of
from evenhand.metrics.estimate import Estimate, Plain, not_estimable
from evenhand.metrics.roc import auc_interval
from evenhand.metrics.weights import RowWeights

__all__ = ["GroupErrorRates", "error_rates"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]


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
