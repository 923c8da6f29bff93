"""Groups known as probabilities: metrics pooled over draws, next to alternative uses of the probabilities."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from evenhand.auditing.batch import BatchFindings
from evenhand.auditing.draw_estimates import EXCESSES, DrawKey, Estimates
from evenhand.inputs.group_probabilities import PersonProbabilities
from evenhand.metrics.group_contrasts import group_contrasts
from evenhand.metrics.pooling import Pooled, p_one_sided
from evenhand.report.formatting import count, decimal, is_number, percent

__all__ = ["DrawnGroups", "DrawnMetric"]

_RATIOS = ("approval_ratio", "approval_odds_ratio")
_NOT_SHOWN = ("approval_test", "approval_odds_ratio")
_ESTIMATORS = ("thresholding", "weighting", "group_alone")


@dataclass(frozen=True)
class DrawnMetric:
    """A metric pooled over draws, next to the results of alternative uses of the probabilities.

    Attributes
    ----------
    key
        Key of the metric.
    pooled
        Estimate pooled over draws; for ratios, the logarithm.
    p_value
        For no difference, two-sided, or for no excess, one-sided; NaN for other metrics.
    thresholding, weighting, group_alone
        See `metrics.group_contrasts`; the last two are NaN for metrics that are not differences of means.
    """

    key: DrawKey
    pooled: Pooled
    p_value: float
    thresholding: float = math.nan
    weighting: float = math.nan
    group_alone: float = math.nan

    def to_dict(self) -> dict[str, Any]:
        """Plain data; ratios are converted back, but their spread remains that of the logarithm."""
        found = self.pooled.to_dict()
        is_ratio = self.key.metric in _RATIOS
        if is_ratio:
            found |= {name: math.exp(found[name]) for name in ("value", "low", "high", "rubin_low", "rubin_high")}
        others = {name: getattr(self, name) for name in ("p_value", *_ESTIMATORS)}
        return {**asdict(self.key), **found, **others, "is_ratio": is_ratio}


@dataclass(frozen=True)
class DrawnGroups:
    """Groups that were drawn from probabilities.

    Attributes
    ----------
    n_draws
        Number of draws.
    threshold
        Probability from which thresholding assigns people to their most likely group.
    expected, thresholded
        Number of people of each group: expected from the probabilities, and assigned by thresholding.
    n_left_out
        People whom thresholding leaves out.
    certainty
        Mean probability of people's most likely group.
    metrics
        Pooled over the draws.
    """

    n_draws: int
    threshold: float
    expected: Mapping[str, float]
    thresholded: Mapping[str, int]
    n_left_out: int
    certainty: float
    metrics: tuple[DrawnMetric, ...]

    @classmethod
    def of(
        cls, found: BatchFindings, pooled: Mapping[DrawKey, Pooled], by_threshold: Estimates, reference_group: str
    ) -> DrawnGroups:
        """Metrics of people pooled over draws, next to thresholding and weighting.

        Parameters
        ----------
        found
            Results for the people, in any draw.
        pooled
            Estimates pooled over draws.
        by_threshold
            Estimates from those who are likely enough to belong to a group; empty if they are too few.
        reference_group
            The group that the others are compared with.
        """
        probable = found.people.probabilities
        assert probable is not None
        others = _other_uses(found, probable, reference_group)
        put = probable.thresholded
        numbers = np.bincount(put[put >= 0], minlength=len(probable.names))
        return cls(
            n_draws=probable.n_draws,
            threshold=probable.threshold,
            expected=dict(zip(probable.names, probable.values.sum(axis=0).tolist(), strict=True)),
            thresholded=dict(zip(probable.names, numbers.tolist(), strict=True)),
            n_left_out=int((put < 0).sum()),
            certainty=float(probable.values.max(axis=1).mean()),
            metrics=tuple(
                DrawnMetric(key, metric, _p_value(key, pooled), **(others.get(key) or _thresholded(by_threshold, key)))
                for key, metric in pooled.items()
                if key.metric not in _NOT_SHOWN
            ),
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the summary."""
        plain = {name: value for name, value in vars(self).items() if name != "metrics"}
        return {**plain, "metrics": [metric.to_dict() for metric in self.metrics], "sentences": list(self.sentences())}

    @property
    def warnings(self) -> tuple[str, ...]:
        """What every reader of the audit must know."""
        return (
            f"Groups are known as probabilities and were drawn {self.n_draws} times. Findings, score gaps, excesses, "
            "regimes, approvals and gaps in outcomes are pooled over the draws. Everything else, including single "
            "pairs and their charts, comes from the first draw.",
            "The draws know only what the probabilities know about the group. If people with the same probabilities "
            "fare differently by group, in the same direction as the groups overall, every difference is understated.",
        )

    def sentences(self) -> Iterator[str]:
        """How the estimators of a difference compare, and what the data cannot show."""
        yield (
            f"The most likely group has a probability of {percent(self.certainty)} on average. Thresholding at "
            f"{self.threshold:g} leaves out {count(self.n_left_out)} people."
        )
        for metric in self.metrics:
            if metric.key.metric == "approval_difference":
                yield from _on_bias(metric)
        yield (
            "Pooling and weighting are right if outcomes depend on the group only through what the probabilities "
            "were made from, such as surname and address. The data cannot show this: no one's group is known. If, "
            "among people with the same probabilities, the group that fares worse overall also fares worse, both "
            "understate the difference; if it fares better, they overstate it. The column for the group alone is right "
            "in the opposite case, in which outcomes depend on the group but not on surname or address beyond it."
        )


def _thresholded(by_threshold: Estimates, key: DrawKey) -> dict[str, float]:
    return {"thresholding": by_threshold[key].value} if key in by_threshold else {}


def _p_value(key: DrawKey, pooled: Mapping[DrawKey, Pooled]) -> float:
    """The p-value of a metric; for approvals, that of equal rates, as in the approval table."""
    if key.metric in EXCESSES:
        return p_one_sided(pooled[key])
    if key.metric in ("approval_difference", "approval_ratio"):
        return pooled[replace(key, metric="approval_test")].p_value
    return pooled[key].p_value if key.reference else math.nan


def _on_bias(metric: DrawnMetric) -> Iterator[str]:
    """Sentences on the possible error of each estimator of a difference in approvals."""
    key, value = metric.key, metric.pooled.value
    sides = f"{key.group} minus {key.reference}"
    if is_number(metric.thresholding) and is_number(value):
        apart = abs(metric.thresholding) - abs(value)
        verb = "overstates" if apart > 0 else "understates"
        if metric.thresholding * value < 0:
            verb = "reverses"
        yield (
            f"Favorable decisions, {sides}: pooled {_points(value)}, by thresholding {_points(metric.thresholding)}, "
            f"by weighting {_points(metric.weighting)} points. If pooling is right, thresholding {verb} the difference."
        )
    if is_number(metric.group_alone) and is_number(value):
        yield (
            f"If decisions depended on the group alone, the difference of {sides} would be "
            f"{_points(metric.group_alone)} points: pooling would be off by {_points(value - metric.group_alone)}."
        )


def _points(share: float) -> str:
    return decimal(100 * share, 1)


def _other_uses(
    found: BatchFindings, probable: PersonProbabilities, reference_group: str
) -> dict[DrawKey, dict[str, float]]:
    """Thresholding, weighting and the group alone, for every difference and ratio of means."""
    labels, everyone = found.people.labels, np.ones(len(found.people), dtype=np.bool_)
    estimates: dict[DrawKey, dict[str, float]] = {}
    for name, values, subset in (
        ("approval_difference", found.decision, everyone),
        ("approval_ratio", found.decision, everyone),
        ("true_positive_rate_difference", found.decision, labels == 1),
        ("false_positive_rate_difference", found.decision, labels == 0),
        ("mean_score_difference", found.score, everyone),
    ):
        held_against = probable.names.index(reference_group)
        contrasts = group_contrasts(values[subset], probable.values[subset], probable.thresholded[subset], held_against)
        for code, contrast in contrasts.items():
            key = DrawKey(name, probable.names[code], reference_group)
            estimates[key] = contrast.ratios if name in _RATIOS else contrast.differences
    return estimates
