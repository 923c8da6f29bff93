"""The model's decisions: utility, and differences between groups in decisions and errors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.arrays import Floats, Ints
from evenhand.metrics.estimate import Estimate, RowWeights, not_estimable, row_weights
from evenhand.metrics.roc import auc

# Decisions more one-sided than this are reported as (almost) constant.
_CONSTANT_SHARE = 0.01


@dataclass(frozen=True)
class GroupOutcome:
    """Decisions and errors of one group; a rate over no one is NaN. Counts are people of the sample."""

    group: str
    n: int
    n_positive_label: int
    positive_rate: float
    true_positive_rate: float
    false_positive_rate: float
    auc: float


def f1(y: Ints, decision: Ints, frequency: ArrayLike | RowWeights | None = None) -> float:
    """Harmonic mean of precision and recall; NaN if no one is positive in label or decision.

    Examples
    --------
    >>> f1(np.array([0, 1, 1]), np.array([1, 1, 0]))
    0.5
    """
    times = row_weights(frequency, len(y)).total
    denominator = float(times @ y) + float(times @ decision)
    return 2 * float(times @ (y & decision)) / denominator if denominator else float("nan")


def group_outcomes(
    y: Ints,
    decision: Ints,
    score: NDArray[np.floating],
    group: Ints,
    names: tuple[str, ...],
    frequency: ArrayLike | RowWeights | None = None,
) -> list[GroupOutcome]:
    """Decisions and errors of each group, in the order of `names`; `frequency` is how many people a row stands for."""
    weights = row_weights(frequency, len(y))
    outcomes = []
    for code, name in enumerate(names):
        members = group == code
        labels, decisions, counts, times = (v[members] for v in (y, decision, weights.count, weights.total))
        rate, tpr, fpr = (_mean(decisions, t) for t in (times, times * (labels == 1), times * (labels == 0)))
        area = auc(labels, score[members], times)
        outcomes.append(GroupOutcome(name, int(counts.sum()), int(counts @ labels), rate, tpr, fpr, area))
    return outcomes


def equalized_odds_gap(outcomes: list[GroupOutcome]) -> Estimate:
    """The larger of the differences between groups in the true and the false positive rate.

    For two groups this is max(|TPR_0 - TPR_1|, |FPR_0 - FPR_1|).
    """
    absent = [
        f"no one with label {label} in group {o.group!r}"
        for o in outcomes
        for label, n in ((1, o.n_positive_label), (0, o.n - o.n_positive_label))
        if n == 0
    ]
    if absent:
        return not_estimable(f"not estimable: {'; '.join(absent)}")
    tpr = [o.true_positive_rate for o in outcomes]
    fpr = [o.false_positive_rate for o in outcomes]
    return Estimate(max(max(tpr) - min(tpr), max(fpr) - min(fpr)))


def statistical_parity_gap(outcomes: list[GroupOutcome]) -> Estimate:
    """Difference between groups in the share approved."""
    absent = [o.group for o in outcomes if o.n == 0]
    if absent:
        return not_estimable(f"not estimable: no one in {', '.join(absent)}")
    rates = [o.positive_rate for o in outcomes]
    return Estimate(max(rates) - min(rates))


def outcome_metrics(
    y: Ints,
    decision: Ints,
    score: NDArray[np.floating],
    outcomes: list[GroupOutcome],
    frequency: ArrayLike | RowWeights | None = None,
) -> dict[str, Estimate]:
    """Utility and group gaps by name: auc, f1, accuracy, positive_rate, eo_gap, sp_gap."""
    weights = row_weights(frequency, len(y))
    times = weights.total
    positive_rate = _mean(decision, times)
    constant = min(positive_rate, 1 - positive_rate) < _CONSTANT_SHARE
    note = "decisions are (almost) constant: gaps near 0 follow from that alone" if constant else ""
    return {
        "auc": Estimate(auc(y, score, times)),
        "f1": Estimate(f1(y, decision, weights), note=note),
        "accuracy": Estimate(_mean(y == decision, times)),
        "positive_rate": Estimate(positive_rate, note=note),
        "eo_gap": equalized_odds_gap(outcomes),
        "sp_gap": statistical_parity_gap(outcomes),
    }


def _mean(values: NDArray[np.int64] | NDArray[np.bool_], times: Floats) -> float:
    total = float(times.sum())
    return float(times @ values) / total if total else float("nan")
