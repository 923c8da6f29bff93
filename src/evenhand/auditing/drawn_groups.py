"""Groups that are known as probabilities: metrics pooled over draws, beside other uses of the probabilities."""

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
    """A metric pooled over draws, beside what other uses of the probabilities give.

    Attributes
    ----------
    key
        Which metric it is.
    pooled
        Over draws; of ratios, the logarithm.
    p_value
        Of no difference, two-sided, or of no excess, one-sided; NaN for metrics that are neither.
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
        """Plain data; a ratio as it is, and its spread as that of its logarithm."""
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
        How often.
    threshold
        Probability from which thresholding puts people into their most likely group.
    expected, thresholded
        People of each group: expected by the probabilities, and put into it by thresholding.
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
        """Pooled metrics of people, beside thresholding and weighting.

        Parameters
        ----------
        found
            About the people, in any draw.
        pooled
            Over draws.
        by_threshold
            What was estimated on those who are likely enough to be of a group; nothing where they are too few.
        reference_group
            The group that others are held against.
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
        """What a reader of any page of the audit must know."""
        return (
            f"Groups are known as probabilities and were drawn {self.n_draws} times: findings, score gaps, excesses, "
            "regimes, approvals and gaps in outcomes are pooled over the draws. Everything else, single pairs and "
            "charts of them among it, is of the first draw.",
            "Draws know of the group what the probabilities know. If people with the same probabilities fare "
            "differently by group, in the direction in which groups differ, every difference is understated.",
        )

    def sentences(self) -> Iterator[str]:
        """What the estimators of differences say of each other, and what the data cannot say."""
        yield (
            f"The most likely group has a probability of {percent(self.certainty)} on average. Thresholding at "
            f"{self.threshold:g} leaves out {count(self.n_left_out)} people."
        )
        for metric in self.metrics:
            if metric.key.metric == "approval_difference":
                yield from _on_bias(metric)
        yield (
            "Pooling and weighting are right where outcomes depend on the group only through what the probabilities "
            "were made from, such as surname and address. The data cannot tell: no one's group is known. If, among "
            "people with the same probabilities, the group that fares worse overall fares worse too, both understate "
            "the difference; if it fares better, they overstate it. The column for the group alone is right in the "
            "opposite case, in which outcomes depend on the group and not on surname or address beyond it."
        )


def _thresholded(by_threshold: Estimates, key: DrawKey) -> dict[str, float]:
    return {"thresholding": by_threshold[key].value} if key in by_threshold else {}


def _p_value(key: DrawKey, pooled: Mapping[DrawKey, Pooled]) -> float:
    """The p-value of a metric; that of approvals is of equal rates, as in the approval table."""
    if key.metric in EXCESSES:
        return p_one_sided(pooled[key])
    if key.metric in ("approval_difference", "approval_ratio"):
        return pooled[replace(key, metric="approval_test")].p_value
    return pooled[key].p_value if key.reference else math.nan


def _on_bias(metric: DrawnMetric) -> Iterator[str]:
    """What can be estimated of the error of each estimator of a difference in approvals."""
    key, value = metric.key, metric.pooled.value
    sides = f"{key.group} minus {key.reference}"
    if is_number(metric.thresholding) and is_number(value):
        apart = abs(metric.thresholding) - abs(value)
        verb = "overstates" if apart > 0 else "understates"
        if metric.thresholding * value < 0:
            verb = "turns around"
        yield (
            f"Favorable decisions, {sides}: pooled {_points(value)}, by thresholding {_points(metric.thresholding)}, "
            f"by weighting {_points(metric.weighting)} points. If pooling is right, thresholding {verb} the difference."
        )
    if is_number(metric.group_alone) and is_number(value):
        yield (
            f"If decisions depended on the group alone, the difference of {sides} would be "
            f"{_points(metric.group_alone)} points: pooling would err by {_points(value - metric.group_alone)}."
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
