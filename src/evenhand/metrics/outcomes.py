"""The model's decisions: utility, and differences between groups in decisions and errors."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.arrays import Floats, Ints
from evenhand.metrics.estimate import Estimate, RowWeights, normal_quantile, not_estimable, row_weights

Weights: TypeAlias = NDArray[np.int64] | NDArray[np.float64] | NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class _Counts:
    """How many people with each label have each distinct score, ascending, and the place of everyone's score."""

    place: NDArray[np.intp]
    favorable: Floats
    unfavorable: Floats

    @classmethod
    def of(cls, score: NDArray[np.floating], favorable: Weights, unfavorable: Weights) -> _Counts:
        place = np.unique(score, return_inverse=True)[1]
        first, second = (np.bincount(place, w).astype(np.float64, copy=False) for w in (favorable, unfavorable))
        return cls(place, first, second)

    @property
    def totals(self) -> tuple[float, float]:
        return float(self.favorable.sum()), float(self.unfavorable.sum())


def auc(y: NDArray[Any], score: NDArray[np.floating], weight: Weights | None = None) -> float:
    """Area under the ROC curve: how often a favorable label outranks an unfavorable one, ties counting half.

    NaN if a label does not occur. `weight` is how much each row counts, such as how many people it stands for; by
    default one.

    Examples
    --------
    >>> auc(np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8]))
    0.75
    >>> auc(np.array([0, 1]), np.array([0.2, 0.2]), np.array([5, 3]))
    0.5
    """
    # Equal to scikit-learn's `roc_auc_score` to 1e-14, without its warning if a label is absent, and faster: 0.5 ms
    # against 3.5 for 10,000 people, 0.12 s against 0.33 for a million.
    counts = _counts_of_labels(y, score, weight)
    n1, n0 = counts.totals
    if n1 * n0 == 0:
        return math.nan
    return float(counts.favorable @ _outranked(counts.unfavorable)) / (n1 * n0)


def auc_interval(
    y: NDArray[Any], score: NDArray[np.floating], weight: Weights | RowWeights | None = None, confidence: float = 0.95
) -> Estimate:
    """Area under the ROC curve with DeLong's interval, formed on the logit scale.

    `weight` is how many people each row stands for. With sampling weights, the squares of people's influences are
    weighted by the squares of their weights; influences of people of the same cluster are added first (Obuchowski
    1997).

    Examples
    --------
    >>> found = auc_interval(np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8]))
    >>> found.value, round(found.low, 3), round(found.high, 3)
    (0.75, 0.069, 0.992)
    """
    times, squared = (weight.total, weight.squares) if isinstance(weight, RowWeights) else (weight, weight)
    counts, squares = _counts_of_labels(y, score, times), _counts_of_labels(y, score, squared)
    n1, n0 = counts.totals
    if n1 == 0 or n0 == 0:
        return not_estimable(f"not estimable: no one with the {'' if n1 == 0 else 'un'}favorable label")
    area, share1, share0 = _placements(counts)
    worth1, worth0 = n1**2 / squares.totals[0], n0**2 / squares.totals[1]
    if worth1 < 2 or worth0 < 2:
        return Estimate(area, note="no interval: one person with a label")
    if isinstance(weight, RowWeights) and weight.clusters is not None:
        is_favorable = y == 1
        worth1, worth0 = n1**2 / weight.variance(is_favorable * 1.0), n0**2 / weight.variance(~is_favorable * 1.0)
        if worth1 <= 1 or worth0 <= 1:
            return Estimate(area, note="no interval: one cluster with a label")
        share = np.where(is_favorable, share1[counts.place], share0[counts.place])
        factor = np.where(is_favorable, math.sqrt(worth1 / (worth1 - 1)) / n1, math.sqrt(worth0 / (worth0 - 1)) / n0)
        error = math.sqrt(weight.variance((share - area) * factor))
    else:
        spread1, spread0 = squares.favorable @ (share1 - area) ** 2, squares.unfavorable @ (share0 - area) ** 2
        variance1, variance0 = spread1 / n1**2 * worth1 / (worth1 - 1), spread0 / n0**2 * worth0 / (worth0 - 1)
        error = float(np.sqrt(variance1 + variance0))
    if error == 0 or not 0 < area < 1:
        return Estimate(area, note="no interval: the labels are separated without overlap")
    half = normal_quantile(confidence) * error / (area * (1 - area))
    logit = np.log(area / (1 - area))
    low, high = (float(1 / (1 + np.exp(end - logit))) for end in (half, -half))
    return Estimate(area, low, high, error)


def auc_influence(y: NDArray[Any], score: NDArray[np.floating]) -> Floats:
    """Each person's influence on the area under the ROC curve, whose squares add up to DeLong's variance.

    NaN with fewer than two people with a label.

    Examples
    --------
    >>> influence = auc_influence(np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8]))
    >>> round(float((influence**2).sum()), 4)
    0.125
    """
    counts = _counts_of_labels(y, score, None)
    n1, n0 = counts.totals
    if n1 < 2 or n0 < 2:
        return np.full(len(y), math.nan)
    area, share1, share0 = _placements(counts)
    share = np.where(y == 1, share1[counts.place], share0[counts.place])
    # The divisor n - 1 of a variance, distributed over people.
    return (share - area) / np.where(y == 1, math.sqrt(n1 * (n1 - 1)), math.sqrt(n0 * (n0 - 1)))


def hanley_mcneil(area: float, n_favorable: float, n_unfavorable: float) -> float:
    """Standard error of an area under the ROC curve, from the numbers of people alone (Hanley and McNeil 1982).

    NaN with fewer than two people with a label.

    Examples
    --------
    >>> round(hanley_mcneil(0.75, 50, 50), 4)
    0.0488
    """
    if not math.isfinite(area) or n_favorable < 2 or n_unfavorable < 2:
        return math.nan
    both_above, both_below = area / (2 - area), 2 * area**2 / (1 + area)
    variance = (
        area * (1 - area) + (n_favorable - 1) * (both_above - area**2) + (n_unfavorable - 1) * (both_below - area**2)
    ) / (n_favorable * n_unfavorable)
    return math.sqrt(max(variance, 0.0))


def ks_distance(score: NDArray[np.floating], first: Weights, second: Weights) -> float:
    """Largest difference between the cumulative score distributions of two kinds of people.

    NaN if there is no one of a kind. `first` and `second` are how much each row counts on each side; to compare
    labels, use ``y == 1`` and ``y == 0``.

    Examples
    --------
    >>> y, score = np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8])
    >>> ks_distance(score, y == 1, y == 0)
    0.5
    """
    # Not scipy's `ks_2samp`: it does not support weights, and takes three times as long for 10,000 people.
    counts = _Counts.of(score, first, second)
    n1, n0 = counts.totals
    if n1 * n0 == 0:
        return math.nan
    return float(np.abs(np.cumsum(counts.favorable) / n1 - np.cumsum(counts.unfavorable) / n0).max())


def _counts_of_labels(y: NDArray[Any], score: NDArray[np.floating], weight: Weights | None) -> _Counts:
    times = np.ones(len(y)) if weight is None else weight
    return _Counts.of(score, times * (y == 1), times * (y == 0))


def _outranked(counts: Floats) -> Floats:
    """How many are below each distinct score, including half of those at it."""
    below: Floats = np.cumsum(counts) - counts / 2
    return below


def _placements(counts: _Counts) -> tuple[float, Floats, Floats]:
    """The area, and at each score the share of the other label that is ranked correctly."""
    n1, n0 = counts.totals
    share1, share0 = _outranked(counts.unfavorable) / n0, 1 - _outranked(counts.favorable) / n1
    return float(counts.favorable @ share1 / n1), share1, share0


# Decisions more one-sided than this are reported as (almost) constant.
_CONSTANT_SHARE = 0.01


@dataclass(frozen=True)
class GroupOutcome:
    """Decisions and errors of one group; a rate over no one is NaN. Counts are people of the sample."""

    group: str
    n: int
    n_positive_label: int | None
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
        f"no one with the {label} label in group {o.group!r}"
        for o in outcomes
        for n_favorable in (o.n_positive_label or 0,)
        for label, n in (("favorable", n_favorable), ("unfavorable", o.n - n_favorable))
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
