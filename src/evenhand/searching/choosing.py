"""Which candidate is chosen, why the others are not, and an honest estimate of what the choice gains."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from evenhand.report.formatting import listed
from evenhand.searching.comparing import Difference, mean_interval, paired_difference
from evenhand.searching.constraints import Constraint, Judgement
from evenhand.searching.metrics import direction_of

__all__ = ["Choice", "ChoiceRule", "Metrics", "honest_differences", "reasons_of"]

Floats: TypeAlias = NDArray[np.float64]
Metrics: TypeAlias = Mapping[str, Floats]
"""Every metric by name, of shape (n_candidates, n_folds)."""


@dataclass(frozen=True)
class Choice:
    """The choice that a rule makes on some folds.

    Attributes
    ----------
    chosen
        Number of the candidate; None if no candidate meets the constraints.
    unconstrained
        Number of the most accurate unconstrained candidate.
    complaints
        For each candidate, the constraints it does not meet, in words.
    near
        For each candidate, the metrics that meet their constraint only within noise.
    ranked
        Candidates that meet all constraints, the chosen one first.
    """

    chosen: int | None
    unconstrained: int
    complaints: tuple[tuple[str, ...], ...]
    near: tuple[tuple[str, ...], ...]
    ranked: tuple[int, ...] = ()

    def alternatives(self, n: int) -> tuple[int, ...]:
        """Up to n candidates that are better than the unconstrained one, which is not among them, best first."""
        place = self.ranked.index(self.unconstrained) if self.unconstrained in self.ranked else len(self.ranked)
        return self.ranked[: min(n, place)]


@dataclass(frozen=True)
class ChoiceRule:
    """Of the candidates that meet all constraints, the one with the least of a metric.

    Attributes
    ----------
    constraints
        What must hold for the means over folds, within their noise.
    minimize
        The metric. A gap or excess below 0 counts as 0, since an estimate below 0 is noise. Ties go to the candidate
        with the highest AUC, and then to the first.
    is_unconstrained
        Which candidates were trained for accuracy alone.
    test_share
        Test people over training people in a fold.
    """

    constraints: tuple[Constraint, ...]
    minimize: str
    is_unconstrained: NDArray[np.bool_]
    test_share: float

    def choose(self, metrics: Metrics, folds: Sequence[int] | None = None) -> Choice:
        """Choose by the means over some folds, or all."""
        part = slice(None) if folds is None else list(folds)
        metrics = {name: values[:, part] for name, values in metrics.items()}
        unconstrained = self.unconstrained(metrics)
        judged = self._judged(metrics, np.ones_like(self.is_unconstrained))
        numbers = range(len(self.is_unconstrained))
        complaints = tuple(tuple(of.complaint(k) for of in judged if not of.is_met[k]) for k in numbers)
        near = tuple(tuple(of.constraint.metric for of in judged if of.is_near[k]) for k in numbers)
        means = metrics[self.minimize].mean(1)
        is_kept = np.array([not of_one for of_one in complaints]) & np.isfinite(means)
        if not is_kept.any():
            return Choice(None, unconstrained, complaints, near)
        accuracy = np.nan_to_num(metrics["auc"].mean(1))
        order = np.lexsort((-accuracy, np.where(is_kept, self.goal(means), np.inf)))  # the first of a tie
        ranked = tuple(order[is_kept[order]].tolist())
        return Choice(ranked[0], unconstrained, complaints, near, ranked)

    def unconstrained(self, metrics: Metrics) -> int:
        """Number of the most accurate unconstrained candidate."""
        return _best(np.where(self.is_unconstrained, metrics["auc"].mean(1), np.nan), 1)

    def draws(self, metrics: Metrics) -> Floats:
        """What is minimized, for each candidate; infinite for one that does not meet the constraints.

        Here ``best`` is the best unconstrained candidate, so that no candidate's value depends on the other draws.
        """
        judged = self._judged(metrics, self.is_unconstrained)
        means = metrics[self.minimize].mean(1)
        is_kept = np.isfinite(means)
        for of in judged:
            is_kept &= of.is_met
        return np.where(is_kept, self.goal(means), np.inf)

    def best(self, metrics: Metrics, name: str) -> int:
        """Number of the candidate with the best mean of a metric."""
        return _best(metrics[name].mean(1), direction_of(name))

    def _judged(self, metrics: Metrics, is_among: NDArray[np.bool_]) -> list[Judgement]:
        """Each constraint applied to the candidates, with ``best`` the best of some of them."""
        unconstrained = self.unconstrained(metrics)
        compared = {name: values[unconstrained] for name, values in metrics.items()}
        references = {
            "unconstrained": compared,
            "start": compared,  # the starting model, if there is one, is the unconstrained candidate
            "best": {
                name: values[_best(np.where(is_among, values.mean(1), np.nan), direction_of(name))]
                for name, values in metrics.items()
                if direction_of(name)
            },
        }
        return [c.judge(metrics[c.metric], references, self.test_share) for c in self.constraints]

    def goal(self, means: Floats) -> Floats:
        """What is minimized, from the means of the metric."""
        direction = direction_of(self.minimize)
        return np.maximum(means, 0.0) if direction < 0 else -means


def reasons_of(choice: Choice, metrics: Metrics, rule: ChoiceRule) -> tuple[str, ...]:
    """Why each candidate was chosen or passed over, in words."""
    metric = rule.minimize
    values = metrics[metric]
    reasons = []
    for k, complaints in enumerate(choice.complaints):
        if not np.isfinite(metrics["auc"][k]).all():
            reasons.append("could not be trained or scored")
        elif complaints:
            reasons.append("; ".join(complaints))
        elif k == choice.chosen:
            reasons.append(f"chosen: {_meets(choice, k)}, with the lowest {metric}, {values[k].mean():.4f}")
        else:
            assert choice.chosen is not None
            more = paired_difference(values[k], values[choice.chosen], rule.test_share)
            reasons.append(f"{_meets(choice, k)}; {_passed_over(metric, more, metrics, k, choice.chosen)}")
    return tuple(reasons)


def _meets(choice: Choice, k: int) -> str:
    near = list(choice.near[k])
    return f"meets every constraint, {listed(near)} within noise of the limit" if near else "meets every constraint"


def _passed_over(metric: str, more: Difference, metrics: Metrics, k: int, chosen: int) -> str:
    told = f"its {metric} differs from the chosen one's by {more.value:+.4f}"
    if not np.isfinite(more.ci_low):
        return told
    interval = f"{told} (95% interval {more.ci_low:+.4f} to {more.ci_high:+.4f})"
    if more.is_beyond_noise:
        return interval
    higher = "a lower" if metrics["auc"][k].mean() < metrics["auc"][chosen].mean() else "a higher"
    return f"{interval}, which is within noise; it has {higher} AUC, {metrics['auc'][k].mean():.4f}"


def honest_differences(metrics: Metrics, rule: ChoiceRule) -> dict[str, Difference]:
    """Chosen minus unconstrained by metric, where the choice for each fold did not see that fold.

    The best of many looks better than it is. So each fold's people judge a choice that was made on the other folds
    only. If no candidate meets the constraints there, the unconstrained one takes its place.
    """
    n_folds = metrics["auc"].shape[1]
    if n_folds < 3:
        return {name: Difference(float("nan"), float("nan"), float("nan")) for name in metrics}
    found = {name: np.zeros(n_folds) for name in metrics}
    for fold in range(n_folds):
        choice = rule.choose(metrics, [other for other in range(n_folds) if other != fold])
        chosen = choice.unconstrained if choice.chosen is None else choice.chosen
        for name, values in metrics.items():
            found[name][fold] = values[chosen, fold] - values[choice.unconstrained, fold]
    return {name: mean_interval(values, rule.test_share) for name, values in found.items()}


def _best(values: Floats, direction: int) -> int:
    """Position of the best value that is not missing: the first of a tie, 0 if all are missing."""
    return int(np.argmax(np.where(np.isfinite(values), direction * values, -np.inf)))
