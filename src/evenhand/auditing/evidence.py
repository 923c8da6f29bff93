"""Evidence that CEC scores are more than match noise: the excess over placebo pairs, its sources, and for whom."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from scipy import stats

from evenhand.auditing.between_groups import excesses_by_groups
from evenhand.auditing.finished import FinishedBatches, Merged
from evenhand.auditing.identities import person_buckets
from evenhand.auditing.influences import Influences
from evenhand.auditing.quantiles import quantiles_of_parts
from evenhand.auditing.questions import (
    Design,
    Nearest,
    Present,
    RegimeB,
    Weights,
    WithinDistance,
    main_questions,
    split_questions,
    values_present,
)
from evenhand.auditing.reason_codes import fewer_in_common
from evenhand.auditing.reference import AuditReference
from evenhand.auditing.score_gaps import ScoreGap, estimate_score_gaps
from evenhand.auditing.triples import EvidenceSums, Triples
from evenhand.matching.placebos import N_NEAR
from evenhand.metrics.adjustment import holm
from evenhand.metrics.clustering import Parts, Question
from evenhand.metrics.estimate import p_two_sided
from evenhand.metrics.excess import ExcessEstimate
from evenhand.metrics.influence import excess_influence
from evenhand.system.parallel import ONE_THREAD, Crew

__all__ = [
    "DISTANCE_SHARES",
    "Evidence",
    "FeatureEvidence",
    "SplitExcess",
    "WeightDifference",
    "estimate_evidence",
    "excess_influences",
    "gather_evidence",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_LEVEL = 0.05
_THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5)


@dataclass(frozen=True)
class SplitExcess:
    """Excess within one value of a column.

    Attributes
    ----------
    split, value
        The column (group, label, decision, groups compared, or one the user gave) and its value.
    p_adjusted
        Holm's adjustment over the values of the split.
    """

    split: str
    value: str
    estimate: ExcessEstimate
    p_adjusted: float


@dataclass(frozen=True)
class FeatureEvidence:
    """A feature's contribution to the excess; over all features they sum to the excess."""

    feature: str
    estimate: ExcessEstimate


@dataclass(frozen=True)
class WeightDifference:
    """How differently the model weighs a feature in comparable people of two groups.

    Attributes
    ----------
    estimate
        Weight in `group` minus weight in `other_group`, over the same difference among placebo pairs. A weight is the
        change of the logit for one standard deviation of the feature, along the person's path; for a feature of
        several encoded columns it has no sign and is their root mean square. A feature that the model takes as a
        category has no standard deviation, and no weight. Its p-value is two-sided: a weight may differ either way.
    """

    feature: str
    group: str
    other_group: str
    estimate: ExcessEstimate

    @classmethod
    def of(cls, feature: str, group: str, other_group: str, found: ExcessEstimate) -> WeightDifference:
        """The difference with a two-sided p-value, from an estimate with a one-sided one."""
        p_value = p_two_sided(found.value, found.standard_error, found.df)
        return cls(feature, group, other_group, replace(found, p_value=p_value))


@dataclass(frozen=True, eq=False)
class Evidence:
    """The evidence of an audit.

    Attributes
    ----------
    cec, balanced, input_gap, reasoning_gap, regime_b, reason_overlap, rank_overlap
        Excess over placebo pairs of each metric. `regime_b` is for the share in Regime B, `reason_overlap` for the
        share of principal reasons that two declined people have in common, `rank_overlap` for their rank-biased
        overlap. In these two, negative means less in common, and the p-value is for having as much in common as placebo
        pairs.
    agreement
        Mean overlap of the reasons of declined people; see `EvidenceSums`.
    compared_mean, placebo_mean
        Mean CEC score of compared people's pairs and placebo pairs, with equal weights for people. The excess is their
        difference, adjusted for differences in finances.
    splits
        The excess overall by group, label, decision, groups compared and user columns.
    features, weights
        Each feature's contribution to the excess; weights that differ by group.
    common_support, without_support
        Share of (person, other group) with a triple, and why the rest have none.
    by_distance, by_matches, regime_b_by_threshold
        The excess with triples within growing distances, and with the nearest 1, 2, ... triples of each person;
        the excess share in Regime B at different consistency thresholds.
    score_gaps
        Differences in score between comparable people of two groups at equal finances, for every two groups.
    influences
        Of people on the answers to the four questions, for comparison with a different audit of the same people.
    """

    cec: ExcessEstimate
    balanced: ExcessEstimate
    input_gap: ExcessEstimate
    reasoning_gap: ExcessEstimate
    regime_b: ExcessEstimate
    reason_overlap: ExcessEstimate
    rank_overlap: ExcessEstimate
    compared_mean: float
    placebo_mean: float
    agreement: Floats
    splits: tuple[SplitExcess, ...]
    features: tuple[FeatureEvidence, ...]
    weights: tuple[WeightDifference, ...]
    common_support: float
    without_support: dict[str, int]
    n_triples: int
    by_distance: tuple[tuple[float, ExcessEstimate], ...]
    by_matches: tuple[tuple[int, ExcessEstimate], ...]
    regime_b_by_threshold: tuple[tuple[float, ExcessEstimate], ...]
    score_gaps: tuple[ScoreGap, ...] = ()
    influences: Influences | None = None

    @property
    def largest_score_gap(self) -> ScoreGap:
        """The score gap with the smallest adjusted p-value of all pairs of groups."""
        return min(self.score_gaps, key=lambda gap: (np.nan_to_num(gap.p_adjusted, nan=2.0), gap.group, gap.reference))

    @property
    def worst_pair(self) -> SplitExcess | None:
        """With more than two groups, the pair with the smallest adjusted p-value; None if there is no estimate.

        Its interval allows for the number of pairs that it was chosen from (Bonferroni).
        """
        known = [s for s in self.splits if s.split == "groups compared" and s.estimate.is_estimated]
        if not known:
            return None
        worst = min(known, key=lambda s: (s.p_adjusted, s.estimate.p_value))
        found = worst.estimate
        half = float(stats.t.ppf(1 - 0.025 / len(known), found.df)) * found.standard_error
        return replace(worst, estimate=replace(found, ci_low=found.value - half, ci_high=found.value + half))

    @property
    def depends_on(self) -> tuple[str, ...]:
        """Choices of the audit under which the excess differs by more than chance allows (5%, Holm).

        Each variant uses a part of the triples, so its difference from the whole varies less than the variant itself;
        we use the standard error of the variant, which errs on the side of no warning.
        """
        if not self.cec.is_estimated:
            return ()
        variants = [
            *((f"triples within a distance of {d:.2f}", e) for d, e in self.by_distance),
            *((f"the nearest {k} triples of each person", e) for k, e in self.by_matches),
        ]
        known = [(name, e) for name, e in variants if e.is_estimated and e.standard_error > 0]
        p = [2 * float(stats.t.sf(abs(e.value - self.cec.value) / e.standard_error, e.df)) for _, e in known]
        return tuple(name for (name, _), adjusted in zip(known, holm(p), strict=True) if adjusted <= _LEVEL)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        metrics = ("cec", "balanced", "input_gap", "reasoning_gap", "regime_b", "reason_overlap", "rank_overlap")
        return {
            **{name: asdict(getattr(self, name)) for name in metrics},
            "compared_mean": self.compared_mean,
            "placebo_mean": self.placebo_mean,
            "n_triples": self.n_triples,
            "common_support": self.common_support,
            "without_support": self.without_support,
            "splits": [asdict(split) for split in self.splits],
            "worst_pair": None if self.worst_pair is None else asdict(self.worst_pair),
            "features": [asdict(feature) for feature in self.features],
            "weights": [asdict(weight) for weight in self.weights],
            "sensitivity": {
                "max_distance": [{"max_distance": d, **asdict(e)} for d, e in self.by_distance],
                "n_matches": [{"n_matches": k, **asdict(e)} for k, e in self.by_matches],
                "consistency_threshold": [
                    {"consistency_threshold": t, **asdict(e)} for t, e in self.regime_b_by_threshold
                ],
                "depends_on": list(self.depends_on),
            },
        }


def estimate_evidence(
    parts: Parts[Triples],
    sums: EvidenceSums,
    design: Design,
    present: Present,
    distance_limits: Sequence[float],
    *,
    crew: Crew = ONE_THREAD,
    device: torch.device | None = None,
) -> Evidence:
    """The evidence, from triples in one part or many.

    Parameters
    ----------
    parts
        The triples, with the numbers within `distance_limits`.
    sums
        Over all people.
    design, present
        Columns to split by, and the values that occur.
    distance_limits
        Quarters of the distances: see `DISTANCE_SHARES`.
    crew
        Workers that process parts at the same time.
    device
        Where sums are computed; None for the CPU.
    """
    n_groups = len(design.groups)
    between = [(a, b) for a in range(n_groups) for b in range(a + 1, n_groups)]
    weighed = tuple(j for j, feature in enumerate(design.features) if feature not in design.without_weight)
    splits = split_questions(design, between, present)
    nearest = range(1, min(present.largest_rank, N_NEAR) + 1)
    questions: list[Question[Triples]] = [
        *main_questions(design, present),
        *(RegimeB(threshold) for threshold in _THRESHOLDS),
        *(Weights(a, b, weighed) for a, b in between if weighed),
        *(WithinDistance(k, limit) for k, limit in enumerate(distance_limits)),
        *(Nearest(k) for k in nearest),
        *(question for _, _, question in splits),
    ]
    answers = iter(excesses_by_groups(questions, parts, n_groups, crew, device))
    cec, input_gap, reasoning_gap = next(answers)
    features = next(answers)
    balanced = next(answers)[0]
    reason_overlap, rank_overlap = map(fewer_in_common, next(answers))
    regime_b = next(answers)[0]
    by_threshold = tuple((t, next(answers)[0]) for t in _THRESHOLDS)
    weights = tuple(
        WeightDifference.of(design.features[j], design.groups[a], design.groups[b], estimate)
        for a, b in between
        if weighed
        for j, estimate in zip(weighed, next(answers), strict=True)
    )
    by_distance = tuple((float(limit), next(answers)[0]) for limit in distance_limits)
    by_matches = tuple((k, next(answers)[0]) for k in nearest)
    return Evidence(
        cec=cec,
        balanced=balanced,
        input_gap=input_gap,
        reasoning_gap=reasoning_gap,
        regime_b=regime_b,
        reason_overlap=reason_overlap,
        rank_overlap=rank_overlap,
        compared_mean=_ratio(sums.compared_cec, sums.compared),
        placebo_mean=_ratio(sums.placebo_cec, sums.compared),
        agreement=sums.agreement / sums.n_agreement if sums.n_agreement else np.full((2, 2), np.nan),
        splits=_adjusted([(split, value, next(answers)[0]) for split, value, _ in splits]),
        features=tuple(FeatureEvidence(n, e) for n, e in zip(design.features, features, strict=True)),
        weights=weights,
        common_support=_ratio(sums.n_supported, sums.n_asked),
        without_support=dict(sums.without_support),
        n_triples=sums.n_triples,
        by_distance=by_distance,
        by_matches=by_matches,
        regime_b_by_threshold=by_threshold,
    )


DISTANCE_SHARES = (0.25, 0.5, 0.75, 1.0)
"""Shares of the triples, nearest first, for which the excess is reported."""


def gather_evidence(
    reference: AuditReference, batches: FinishedBatches, merged: Merged, reference_group: str
) -> Evidence:
    """The evidence of everyone who was compared; score gaps are relative to a reference group."""
    sums, numbers, crew = merged.sums, merged.numbers, batches.crew
    assert sums.evidence is not None
    features = tuple(str(column) for column in reference.pool.table.columns)
    limits = quantiles_of_parts(lambda: crew.in_order(batches.distances, numbers), DISTANCE_SHARES)
    limits = [limit for limit in limits if np.isfinite(limit)]
    design = Design(
        features=features,
        groups=reference.pool.groups.names,
        by={name: tuple(counts) for name, counts in sums.approvals.items()},
        consistency_threshold=reference.settings.consistency_threshold,
        without_weight=tuple(reference.model.category_columns(list(features))),
    )
    triples = batches.triples(merged, limits, len(reference.pool))
    device, present = reference.pool.x.device, values_present(triples, len(design.groups), crew)
    evidence = estimate_evidence(triples, sums.evidence, design, present, limits, crew=crew, device=device)
    buckets = person_buckets(reference.pool, reference.settings.financial_features)
    gaps, of_gaps = estimate_score_gaps(reference, triples, features, reference_group, buckets, present, crew)
    of_excess = excess_influences(triples, design, present, buckets, crew, device)
    influences = Influences.of({**of_excess, **of_gaps})
    return replace(evidence, score_gaps=gaps, influences=influences)


def excess_influences(
    triples: Parts[Triples],
    design: Design,
    present: Present,
    buckets: Ints,
    crew: Crew,
    device: torch.device | None = None,
) -> dict[str, Floats]:
    """Influences of people on the excess and on weighing, by name."""
    scores, _, balanced, reasons, _ = main_questions(design, present)
    wanted = [(scores, 3), (balanced, 1), (reasons, 1)]
    *found, of_reasons = excess_influence(wanted, triples, buckets, device, crew)
    names = ("excess", "excess: input gap", "weighing", "excess_balanced")
    both = np.hstack(found).T
    return {
        **(dict(zip(names, both, strict=True)) if len(both) else {}),
        **dict.fromkeys(("excess: shared reasons",) if of_reasons.size else (), of_reasons.ravel()),
    }


def _adjusted(found: list[tuple[str, str, ExcessEstimate]]) -> tuple[SplitExcess, ...]:
    """Splits with p-values adjusted over the values of each."""
    rows: list[SplitExcess] = []
    for split in dict.fromkeys(name for name, _, _ in found):
        inside = [(value, estimate) for name, value, estimate in found if name == split]
        adjusted = holm([estimate.p_value for _, estimate in inside])
        rows += [
            SplitExcess(split, value, estimate, float(p)) for (value, estimate), p in zip(inside, adjusted, strict=True)
        ]
    return tuple(rows)


def _ratio(total: float, n: float) -> float:
    return total / n if n else float("nan")
