"""Whether the CEC scores of an audit are more than match noise: excess over placebo pairs, why, and who."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.attribution import Explanation
from evenhand.clustering import InMemory, Parts, Question, Selection, estimate_excesses
from evenhand.explaining import Explainer, People, Seen
from evenhand.inference import (
    ExcessEstimate,
    NullScores,
    holm,
    practical_significance,
    statistical_significance,
)
from evenhand.placebo import N_PAIRS, PlaceboPairs, PlaceboReference
from evenhand.scoring import cec_scores, reason_overlap, score_contributions

__all__ = [
    "DISTANCE_SHARES",
    "BatchEvidence",
    "Comparisons",
    "Design",
    "Evidence",
    "EvidenceReference",
    "EvidenceSums",
    "FeatureEvidence",
    "SplitExcess",
    "WeightDifference",
    "compare_batch",
    "estimate_evidence",
    "gather_evidence",
    "looked_up",
    "null_scores",
    "strata",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_LEVEL = 0.05
_THRESHOLDS = (0.1, 0.2, 0.3, 0.4, 0.5)
_BLOCK = 16_384  # comparisons scored at once
# Placebo scores that a person's are ranked among: all, until there are more than can be kept.
_MOST_NULL, _LEAST_NULL = 2_000_000, 10_000


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
        several encoded columns it has no sign and is their root mean square.
    """

    feature: str
    group: str
    other_group: str
    estimate: ExcessEstimate


@dataclass(frozen=True, eq=False)
class Evidence:
    """The evidence of an audit.

    Attributes
    ----------
    cec, input_gap, reasoning_gap, regime_b, reason_overlap
        Excess over placebo pairs of each figure. `regime_b` is of the share in Regime B, `reason_overlap` of the share
        of the four principal reasons that the two of a pair have in common (negative: less in common).
    compared_mean, placebo_mean
        Mean CEC score of compared people's pairs and placebo pairs; people weigh equally. The excess is their
        difference, adjusted for what neighbours' unlike finances explain.
    splits
        The excess overall by group, label, decision, groups compared and user columns.
    features, weights
        Each feature's contribution to the excess; weights that differ by group.
    common_support, without_support
        Share of (person, other group) with a comparison, and why others have none.
    placebo_cec, q_value
        For each (person, other group): mean CEC of the placebo pairs, and the false-discovery rate at which the
        person's own excess would be called; NaN without comparison. Of shape (n_people, n_groups).
    by_distance, by_matches, regime_b_by_threshold
        The excess with comparisons within growing distances, and with the nearest 1, 2, ... comparisons of each person;
        the excess share in Regime B at other consistency thresholds.
    """

    cec: ExcessEstimate
    input_gap: ExcessEstimate
    reasoning_gap: ExcessEstimate
    regime_b: ExcessEstimate
    reason_overlap: ExcessEstimate
    compared_mean: float
    placebo_mean: float
    placebo_overlap: float
    splits: tuple[SplitExcess, ...]
    features: tuple[FeatureEvidence, ...]
    weights: tuple[WeightDifference, ...]
    common_support: float
    without_support: dict[str, int]
    n_comparisons: int
    placebo_cec: Floats
    q_value: Floats
    by_distance: tuple[tuple[float, ExcessEstimate], ...]
    by_matches: tuple[tuple[int, ExcessEstimate], ...]
    regime_b_by_threshold: tuple[tuple[float, ExcessEstimate], ...]

    @property
    def worst_pair(self) -> SplitExcess | None:
        """Of more than two groups, the pair with the largest excess; None if none could be estimated."""
        known = [s for s in self.splits if s.split == "groups compared" and s.estimate.is_estimated]
        return max(known, key=lambda s: s.estimate.value, default=None)

    @property
    def hangs_on(self) -> tuple[str, ...]:
        """Choices of the audit under which the verdict on the excess, at the 5 % level, would be another."""
        if not self.cec.is_estimated:
            return ()
        variants = [
            *((f"comparisons within a distance of {d:.2f}", e) for d, e in self.by_distance),
            *((f"the nearest {k} comparisons of each person", e) for k, e in self.by_matches),
        ]
        verdict = self.cec.p_value <= _LEVEL
        return tuple(name for name, e in variants if e.is_estimated and (e.p_value <= _LEVEL) != verdict)

    @property
    def sentences(self) -> tuple[str, str]:
        """Statistical and practical significance, in words."""
        return statistical_significance(self.cec), practical_significance(self.cec)

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON, without the values of each person."""
        figures = ("cec", "input_gap", "reasoning_gap", "regime_b", "reason_overlap")
        return {
            **{name: asdict(getattr(self, name)) for name in figures},
            "compared_mean": self.compared_mean,
            "placebo_mean": self.placebo_mean,
            "placebo_reason_overlap": self.placebo_overlap,
            "n_comparisons": self.n_comparisons,
            "common_support": self.common_support,
            "without_support": self.without_support,
            "sentences": list(self.sentences),
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
                "hangs_on": list(self.hangs_on),
            },
        }


@dataclass(frozen=True, eq=False)
class Comparisons:
    """Comparisons that could be scored, with everything the evidence is estimated from.

    Every field has one row per comparison.

    Attributes
    ----------
    person, person_row
        The person, by number, and their row in the reference, -1 for someone outside it.
    other, own
        Rows in the reference of the one from the other group and of the placebo.
    group, other_group, label, is_favourable
        Of the person, but `other_group`; `is_favourable` is the decision.
    rank, n_within
        Place among the person's comparisons with the group, from 1 for the nearest; number of the person's
        comparisons with places up to 1, 2, ..., of shape (n, N_PAIRS).
    n_between
        Number of the person's comparisons with the group.
    distance
        Of the one from the other group.
    n_near
        Number of the person's comparisons within each limit of distance, of shape (n, n_limits).
    cec, placebo_cec, gap, placebo_gap
        CEC scores of pair and placebo pair, and what unlike finances alone would give.
    input_gap, reasoning_gap, shared_reasons
        Of the pair less those of the placebo pair.
    is_same_decision, is_same_placebo_decision
        Whether the two of the pair, and of the placebo pair, have the same decision.
    contributions, weights
        By feature, of pair less placebo pair, of shape (n, n_features).
    by
        Columns of the person to split by, as codes.
    """

    person: Ints
    person_row: Ints
    other: Ints
    own: Ints
    group: Ints
    other_group: Ints
    label: Ints
    is_favourable: Bools
    rank: Ints
    n_within: Ints
    n_between: Ints
    distance: Floats
    n_near: Ints
    cec: Floats
    placebo_cec: Floats
    gap: Floats
    placebo_gap: Floats
    input_gap: Floats
    reasoning_gap: Floats
    shared_reasons: Floats
    is_same_decision: Bools
    is_same_placebo_decision: Bools
    contributions: NDArray[np.float32]
    weights: NDArray[np.float32]
    by: Mapping[str, Ints]

    def __len__(self) -> int:
        return len(self.person)

    @property
    def control(self) -> Floats:
        """What unlike finances alone would make of pair less placebo pair."""
        return self.gap - self.placebo_gap

    def within(self, limits: Sequence[float]) -> Comparisons:
        """The same comparisons with the number of each person's within each limit of distance."""
        code = np.unique(self.person, return_inverse=True)[1]
        near = [np.bincount(code, self.distance <= limit)[code] for limit in limits]
        return replace(self, n_near=np.column_stack([*near, np.zeros((len(self), 0))]).astype(np.int64))


@dataclass(frozen=True)
class EvidenceSums:
    """Counts and sums over (person, other group); those of parts of the people add up."""

    n_comparisons: int
    n_left_out: int
    n_asked: int
    n_supported: int
    n_compared: int
    compared_cec: float
    placebo_cec: float
    placebo_reasons: float
    without_support: Mapping[str, int]

    def __add__(self, other: EvidenceSums) -> EvidenceSums:
        added = {
            f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self) if f.name != "without_support"
        }
        reasons = {name: n + other.without_support[name] for name, n in self.without_support.items()}
        return EvidenceSums(**added, without_support=reasons)


@dataclass(frozen=True, eq=False)
class BatchEvidence:
    """What comparing a batch of people gives.

    Attributes
    ----------
    comparisons, sums
        All that is estimated follows from these.
    placebo_cec, over_gap, placebo_over_gap
        For each (person, other group), of shape (n_people, n_groups), NaN without comparison: mean CEC score of the
        placebo pairs; what the scores of the pairs, and of the placebo pairs, have over what unlike finances give.
    """

    comparisons: Comparisons
    sums: EvidenceSums
    placebo_cec: Floats
    over_gap: Floats
    placebo_over_gap: Floats


@dataclass(frozen=True, eq=False)
class EvidenceReference:
    """What comparing needs of the reference, computed once.

    Attributes
    ----------
    placebos
        The reference, indexed for comparisons.
    is_financial
        Which encoded inputs belong to financial features, of shape (d,).
    deviation
        Standard deviation of each input, of shape (d,).
    """

    placebos: PlaceboReference
    is_financial: Tensor
    deviation: Tensor

    @classmethod
    def of(cls, pool: People, points: Floats, is_financial: NDArray[np.bool_], random_state: int) -> EvidenceReference:
        """Index the pool by its standardised financial features."""
        placebos = PlaceboReference.of(points, pool.labels, pool.groups.codes, random_state)
        device = pool.x.device
        return cls(placebos, torch.as_tensor(is_financial, device=device), _deviation(pool.x))


def compare_batch(
    reference: EvidenceReference,
    explainer: Explainer,
    own: Explanation,
    people: People,
    pool: People,
    points: Floats,
    *,
    person_row: Ints | None,
    first_person: int,
    decision_threshold: float,
    max_distance: float | None,
    by: Mapping[str, Ints],
    compared: Ints | None = None,
) -> BatchEvidence:
    """Compare a batch of people with the reference.

    Parameters
    ----------
    reference, pool
        The people to compare with.
    explainer, own
        Where attributions come from, and those of the batch.
    people, points
        The batch and its standardised financial features.
    person_row
        Row of the reference that each person is, -1 for none; None for people who are all outside it.
    first_person
        Number of the first person of the batch.
    decision_threshold, max_distance
        As in `evenhand.audit`.
    by
        Columns of the batch to split by, as codes.
    compared
        Rows of the batch to compare; None for all.
    """
    pairs = _compared_people(reference.placebos, people, points, person_row, compared, max_distance)
    pairs = _with_baseline(pairs, explainer, people)
    scored = _scored(reference, explainer, own, people, pool, pairs, decision_threshold)
    figures = {name: pairs.person_mean(values) for name, values in _by_person(scored).items()}
    usable = _is_usable(scored)
    comparisons = _comparisons(people, pairs, scored, usable, first_person, by)
    known = np.isfinite(figures["cec"])
    sums = EvidenceSums(
        n_comparisons=len(pairs),
        n_left_out=int((~usable).sum()),
        n_asked=pairs.n_asked,
        n_supported=int((pairs.reason == 0).sum()),
        n_compared=int(known.sum()),
        compared_cec=float(figures["cec"][known].sum()),
        placebo_cec=float(figures["placebo_cec"][known].sum()),
        placebo_reasons=float(figures["placebo_reasons"][known].sum()),
        without_support=pairs.without_support,
    )
    return BatchEvidence(comparisons, sums, figures["placebo_cec"], figures["over_gap"], figures["placebo_over_gap"])


def _compared_people(
    placebos: PlaceboReference,
    people: People,
    points: Floats,
    person_row: Ints | None,
    compared: Ints | None,
    max_distance: float | None,
) -> PlaceboPairs:
    """Comparisons of those of the batch who are compared, as rows of the batch."""
    labels, groups = people.labels, people.groups.codes
    if compared is None:
        return placebos.compare(points, labels, groups, person_row, max_distance=max_distance)
    rows = np.full(len(people), -1, dtype=np.int64) if person_row is None else person_row
    found = placebos.compare(
        points[compared], labels[compared], groups[compared], rows[compared], max_distance=max_distance
    )
    reason = np.full((len(people), found.reason.shape[1]), -1, dtype=np.int8)
    reason[compared] = found.reason
    return replace(found, person=compared[found.person], reason=reason, reference_row=rows)


@dataclass(frozen=True, eq=False)
class _Scores:
    """Figures of every comparison: pair, placebo pair, and what unlike finances alone would give.

    The columns of `pair` and `placebo` are cec, input gap, reasoning gap and shared reasons.
    """

    pair: Floats
    placebo: Floats
    gap: Floats
    placebo_gap: Floats
    is_favourable: Bools
    is_same_decision: Bools
    is_same_placebo_decision: Bools
    contributions: NDArray[np.float32]
    weights: NDArray[np.float32]


def _by_person(scored: _Scores) -> dict[str, Floats]:
    """What is averaged over each person's comparisons."""
    return {
        "cec": scored.pair[:, 0],
        "placebo_cec": scored.placebo[:, 0],
        "placebo_reasons": scored.placebo[:, 3],
        # What a pair's score has over its financial gap is compared with the same of placebo pairs of the cell.
        "over_gap": scored.pair[:, 0] - scored.gap,
        "placebo_over_gap": scored.placebo[:, 0] - scored.placebo_gap,
    }


def _is_usable(scored: _Scores) -> Bools:
    rows = (scored.pair, scored.placebo, scored.contributions, scored.weights)
    usable: Bools = np.logical_and.reduce([np.isfinite(values).all(axis=1) for values in rows])
    return usable & np.isfinite(scored.gap) & np.isfinite(scored.placebo_gap)


def _comparisons(
    people: People, pairs: PlaceboPairs, scored: _Scores, usable: Bools, first_person: int, by: Mapping[str, Ints]
) -> Comparisons:
    kept = slice(None) if usable.all() else np.flatnonzero(usable)
    person, other_group, rank = pairs.person[kept], pairs.other_group[kept], pairs.rank[kept]
    n_groups = pairs.reason.shape[1]
    cell = person * n_groups + other_group
    difference = scored.pair[kept] - scored.placebo[kept]
    within = [np.bincount(person, rank <= k, minlength=len(people))[person] for k in range(1, N_PAIRS + 1)]
    return Comparisons(
        person=person + first_person,
        person_row=pairs.reference_row[person],
        other=pairs.other[kept],
        own=pairs.own[kept],
        group=people.groups.codes[person],
        other_group=other_group,
        label=people.labels[person],
        is_favourable=scored.is_favourable[kept],
        rank=rank,
        n_within=np.column_stack(within).astype(np.int64),
        n_between=np.bincount(cell, minlength=len(people) * n_groups)[cell],
        distance=pairs.other_distance[kept],
        n_near=np.zeros((len(person), 0), dtype=np.int64),
        cec=scored.pair[kept, 0],
        placebo_cec=scored.placebo[kept, 0],
        gap=scored.gap[kept],
        placebo_gap=scored.placebo_gap[kept],
        input_gap=difference[:, 1],
        reasoning_gap=difference[:, 2],
        shared_reasons=difference[:, 3],
        is_same_decision=scored.is_same_decision[kept],
        is_same_placebo_decision=scored.is_same_placebo_decision[kept],
        contributions=scored.contributions[kept],
        weights=scored.weights[kept],
        by={name: codes[person] for name, codes in by.items()},
    )


@dataclass(frozen=True)
class _MainQuestion:
    """The excess of the scores, and each feature's part of it."""

    n_features: int

    @property
    def n_columns(self) -> int:
        return 4 + self.n_features

    def of(self, part: Comparisons) -> Selection:
        scores = np.column_stack([part.cec - part.placebo_cec, part.input_gap, part.reasoning_gap, part.shared_reasons])
        return Selection(None, _share(part.n_within[:, -1]), part.control, np.hstack([scores, part.contributions]))


@dataclass(frozen=True)
class _RegimeB:
    """The excess of the share in Regime B at a threshold."""

    threshold: float
    n_columns: int = 1

    def of(self, part: Comparisons) -> Selection:
        def share(is_same: Bools, score: Floats) -> Floats:
            return (is_same & (score > self.threshold)).astype(np.float64)

        same, same_placebo = part.is_same_decision, part.is_same_placebo_decision
        difference = share(same, part.cec) - share(same_placebo, part.placebo_cec)
        control = share(same, part.gap) - share(same_placebo, part.placebo_gap)
        return Selection(None, _share(part.n_within[:, -1]), control, difference[:, None])


@dataclass(frozen=True)
class _WithinPeople:
    """The excess among the people of one value of a column."""

    column: str
    code: int
    n_columns: int = 1

    def of(self, part: Comparisons) -> Selection:
        values = part.by[self.column] if self.column in part.by else _person_column(part, self.column)
        return _cec_of(part, values == self.code, part.n_within[:, -1])


@dataclass(frozen=True)
class _BetweenGroups:
    """The excess of comparisons between two groups."""

    first: int
    second: int
    n_columns: int = 1

    def of(self, part: Comparisons) -> Selection:
        return _cec_of(part, _is_between(part, self.first, self.second), part.n_between)


@dataclass(frozen=True)
class _WithinDistance:
    """The excess of comparisons within a distance."""

    place: int
    limit: float
    n_columns: int = 1

    def of(self, part: Comparisons) -> Selection:
        return _cec_of(part, part.distance <= self.limit, part.n_near[:, self.place])


@dataclass(frozen=True)
class _Nearest:
    """The excess of each person's nearest comparisons with a group."""

    n_nearest: int
    n_columns: int = 1

    def of(self, part: Comparisons) -> Selection:
        return _cec_of(part, part.rank <= self.n_nearest, part.n_within[:, self.n_nearest - 1])


@dataclass(frozen=True)
class _Weights:
    """Weights in one group less those in another, feature by feature."""

    first: int
    second: int
    n_columns: int

    def of(self, part: Comparisons) -> Selection:
        rows = np.flatnonzero(_is_between(part, self.first, self.second))
        # The difference is of the other's weight over the placebo's, who is of the person's own group.
        sign = np.where(part.group[rows] == self.second, 1.0, -1.0).astype(np.float32)
        return Selection(rows, _share(part.n_between[rows]), part.control[rows], sign[:, None] * part.weights[rows])


def _share(n: Ints) -> Floats:
    return 1 / n.astype(np.float64)


def _cec_of(part: Comparisons, is_in: Bools, n_of_person: Ints) -> Selection:
    rows = np.flatnonzero(is_in)
    difference = part.cec[rows] - part.placebo_cec[rows]
    return Selection(rows, _share(n_of_person[rows]), part.control[rows], difference[:, None])


def _person_column(part: Comparisons, name: str) -> Ints:
    return {"group": part.group, "label": part.label, "decision": part.is_favourable.astype(np.int64)}[name]


def _is_between(part: Comparisons, first: int, second: int) -> Bools:
    low, high = np.minimum(part.group, part.other_group), np.maximum(part.group, part.other_group)
    is_between: Bools = (low == first) & (high == second)
    return is_between


@dataclass(frozen=True)
class Design:
    """What the evidence is split by.

    Attributes
    ----------
    features, groups
        Their names.
    by
        Values of each column to split by, in the order of their codes.
    consistency_threshold
        As in `evenhand.audit`.
    """

    features: tuple[str, ...]
    groups: tuple[str, ...]
    by: Mapping[str, tuple[str, ...]]
    consistency_threshold: float


def estimate_evidence(
    parts: Parts[Comparisons],
    sums: EvidenceSums,
    design: Design,
    distance_limits: Sequence[float],
    *,
    placebo_cec: Floats | None = None,
    q_value: Floats | None = None,
) -> Evidence:
    """The evidence, from comparisons in one part or many.

    Parameters
    ----------
    parts
        The comparisons, with the numbers within `distance_limits`.
    sums
        Over all people.
    design
        What to split by.
    distance_limits
        Quarters of the distances: see `DISTANCE_SHARES`.
    placebo_cec, q_value
        For each (person, other group), where they are to be kept in the result.
    """
    n_groups = len(design.groups)
    between = [(a, b) for a in range(n_groups) for b in range(a + 1, n_groups)]
    present = _values_present(parts)
    splits = _split_questions(design, between, present)
    questions: list[Question[Comparisons]] = [
        _MainQuestion(len(design.features)),
        _RegimeB(design.consistency_threshold),
        *(_RegimeB(threshold) for threshold in _THRESHOLDS),
        *(_Weights(a, b, len(design.features)) for a, b in between),
        *(_WithinDistance(k, limit) for k, limit in enumerate(distance_limits)),
        *(_Nearest(k) for k in range(1, present.largest_rank + 1)),
        *(question for _, _, question in splits),
    ]
    answers = iter(estimate_excesses(questions, parts))
    cec, input_gap, reasoning_gap, overlap, *features = next(answers)
    regime_b = next(answers)[0]
    by_threshold = tuple((t, next(answers)[0]) for t in _THRESHOLDS)
    weights = tuple(
        WeightDifference(feature, design.groups[a], design.groups[b], estimate)
        for a, b in between
        for feature, estimate in zip(design.features, next(answers), strict=True)
    )
    by_distance = tuple((float(limit), next(answers)[0]) for limit in distance_limits)
    by_matches = tuple((k, next(answers)[0]) for k in range(1, present.largest_rank + 1))
    nothing = np.zeros((0, n_groups))
    return Evidence(
        cec=cec,
        input_gap=input_gap,
        reasoning_gap=reasoning_gap,
        regime_b=regime_b,
        reason_overlap=overlap,
        compared_mean=_ratio(sums.compared_cec, sums.n_compared),
        placebo_mean=_ratio(sums.placebo_cec, sums.n_compared),
        placebo_overlap=_ratio(sums.placebo_reasons, sums.n_compared),
        splits=_adjusted([(split, value, next(answers)[0]) for split, value, _ in splits]),
        features=tuple(FeatureEvidence(n, e) for n, e in zip(design.features, features, strict=True)),
        weights=weights,
        common_support=_ratio(sums.n_supported, sums.n_asked),
        without_support=dict(sums.without_support),
        n_comparisons=sums.n_comparisons,
        placebo_cec=nothing if placebo_cec is None else placebo_cec,
        q_value=nothing if q_value is None else q_value,
        by_distance=by_distance,
        by_matches=by_matches,
        regime_b_by_threshold=by_threshold,
    )


DISTANCE_SHARES = (0.25, 0.5, 0.75, 1.0)
"""Shares of the comparisons, nearest first, within which the excess is given."""


def gather_evidence(found: BatchEvidence, people: People, n_reference: int, design: Design) -> Evidence:
    """The evidence of people who were compared in a single batch."""
    comparisons = found.comparisons
    limits = np.quantile(comparisons.distance, DISTANCE_SHARES).tolist() if len(comparisons) else []
    return estimate_evidence(
        InMemory(comparisons.within(limits), n_reference, found.sums.n_left_out),
        found.sums,
        design,
        limits,
        placebo_cec=found.placebo_cec,
        q_value=_q_values(found, people),
    )


def strata(cells: Ints, n_groups: int) -> Ints:
    """The stratum of each (person, other group) in which excesses over placebo pairs are ranked, from the cells."""
    return cells[:, None] * n_groups + np.arange(n_groups)


def null_scores(score: Floats, stratum: Ints, person: Ints, n_groups: int) -> NullScores:
    """What placebo pairs' scores have over what unlike finances give, by stratum; a random sample of very many.

    Parameters
    ----------
    score, stratum, person
        Of each (person, other group), of shape (n,); the person by number.
    n_groups
        Number of groups.
    """
    most = max(_LEAST_NULL, _MOST_NULL // (2 * n_groups * (n_groups - 1)))
    return NullScores.of(score, stratum, person, 2 * n_groups * n_groups, most)


def _q_values(found: BatchEvidence, people: People) -> Floats:
    """False-discovery rate at which each person's excess over a placebo pair would be called."""
    n_groups = found.over_gap.shape[1]
    shape = found.over_gap.shape
    stratum = strata(people.cells, n_groups).ravel()
    person = np.repeat(np.arange(len(people)), n_groups)
    null = null_scores(found.placebo_over_gap.ravel(), stratum, person, n_groups)
    n_at_least = null.n_at_least(found.over_gap.ravel(), stratum)
    table = null.q_values(null.counts(n_at_least, stratum))
    return looked_up(table, n_at_least, stratum).reshape(shape)


def looked_up(table: Sequence[Floats], n_at_least: Ints, stratum: Ints) -> Floats:
    """q-values of scores from the table of `NullScores.q_values`; NaN where the number is -1."""
    found = np.full(len(n_at_least), np.nan)
    for code, values in enumerate(table):
        asked = (stratum == code) & (n_at_least >= 0)
        found[asked] = values[n_at_least[asked]]
    return found


@dataclass(frozen=True)
class _Present:
    """Which values occur among the comparisons."""

    groups: frozenset[int]
    labels: frozenset[int]
    decisions: frozenset[int]
    between: frozenset[tuple[int, int]]
    by: Mapping[str, frozenset[int]]
    largest_rank: int


def _values_present(parts: Parts[Comparisons]) -> _Present:
    seen: dict[str, set[int]] = {"group": set(), "label": set(), "decision": set()}
    by: dict[str, set[int]] = {}
    between: set[tuple[int, int]] = set()
    largest = 0
    for part in parts.parts():
        for name, codes in seen.items():
            codes.update(np.unique(_person_column(part, name)).tolist())
        for name, values in part.by.items():
            by.setdefault(name, set()).update(np.unique(values).tolist())
        low, high = np.minimum(part.group, part.other_group), np.maximum(part.group, part.other_group)
        between.update((int(a), int(b)) for a, b in np.unique(np.column_stack([low, high]), axis=0))
        largest = max(largest, int(part.rank.max(initial=0)))
    return _Present(
        groups=frozenset(seen["group"]),
        labels=frozenset(seen["label"]),
        decisions=frozenset(seen["decision"]),
        between=frozenset(between),
        by={name: frozenset(codes) for name, codes in by.items()},
        largest_rank=largest,
    )


def _split_questions(
    design: Design, between: list[tuple[int, int]], present: _Present
) -> list[tuple[str, str, Question[Comparisons]]]:
    """Split, value and question; every group is shown, those without a single comparison too."""
    found: list[tuple[str, str, Question[Comparisons]]] = []

    def add(split: str, names: Mapping[int, str], codes: Iterable[int]) -> None:
        ordered = sorted(codes, key=lambda code: names[code])
        found.extend((split, names[code], _WithinPeople(split, code)) for code in ordered)

    groups = dict(enumerate(design.groups))
    add("group", groups, present.groups)
    found += [("group", groups[c], _WithinPeople("group", c)) for c in groups if c not in present.groups]
    add("label", {0: "0", 1: "1"}, present.labels)
    add("decision", {1: "favourable", 0: "unfavourable"}, present.decisions)
    if len(groups) > 2:
        order = sorted(between, key=lambda sides: (sides not in present.between, _sides(design, sides)))
        found += [("groups compared", _sides(design, sides), _BetweenGroups(*sides)) for sides in order]
    for name, values in design.by.items():
        add(name, dict(enumerate(values)), present.by.get(name, frozenset()))
    return found


def _sides(design: Design, sides: tuple[int, int]) -> str:
    return f"{design.groups[sides[0]]} - {design.groups[sides[1]]}"


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


def _with_baseline(pairs: PlaceboPairs, explainer: Explainer, people: People) -> PlaceboPairs:
    """The comparisons of people whose cell has someone besides the placebo to take a mean of."""
    kept = explainer.cell_sizes[people.cells][pairs.person] > 1
    if kept.all():
        return pairs
    names = ("person", "other", "own", "other_distance", "own_distance", "other_group")
    return replace(pairs, **{name: getattr(pairs, name)[kept] for name in names})


def _scored(
    reference: EvidenceReference,
    explainer: Explainer,
    own: Explanation,
    people: People,
    pool: People,
    pairs: PlaceboPairs,
    decision_threshold: float,
) -> _Scores:
    """Score every comparison's pair and placebo pair, block by block."""
    n, n_features, device = len(pairs), len(people.table.columns), people.x.device
    cells = people.cells[pairs.person]
    other = explainer.see(pool, pairs.other, cells)
    # Among the same people a placebo is explained from their own cell already.
    placebo = (
        Seen(own, torch.as_tensor(pairs.own, device=device))
        if pool is people
        else explainer.see(pool, pairs.own, cells)
    )
    person, rows = torch.as_tensor(pairs.person, device=device), torch.as_tensor(pairs.other, device=device)
    placebo_rows, cell = torch.as_tensor(pairs.own, device=device), torch.as_tensor(cells, device=device)
    sizes = torch.as_tensor(explainer.cell_sizes[cells], device=device)
    join = explainer.model.join_matrix()
    join = None if join is None else join.double()
    is_financial, deviation = reference.is_financial, reference.deviation
    probability = explainer.model.probability
    decided = _decisions(probability(own.logit), decision_threshold)[pairs.person]
    result = _Scores(
        pair=np.empty((n, 4)),
        placebo=np.empty((n, 4)),
        gap=np.empty(n),
        placebo_gap=np.empty(n),
        is_favourable=decided,
        is_same_decision=decided == _decisions(probability(other.logit), decision_threshold),
        is_same_placebo_decision=decided == _decisions(probability(placebo.logit), decision_threshold),
        contributions=np.empty((n, n_features), dtype=np.float32),
        weights=np.empty((n, n_features), dtype=np.float32),
    )
    for start in range(0, n, _BLOCK):
        block = slice(start, start + _BLOCK)
        me, them, like_me = own.rows(person[block]), other[block], placebo[block]
        x, baseline = people.x[person[block]], explainer.baselines[cell[block]]
        with_theirs, with_placebos = (
            explainer.model.attribute(
                torch.where(is_financial, counterpart, x), baseline, explainer.n_steps, explainer.method
            ).rows(torch.arange(len(x), device=device))
            for counterpart in (pool.x[rows[block]], pool.x[placebo_rows[block]])
        )
        apart = [each.leaving_out(like_me, sizes[block]) for each in (me, like_me, with_placebos)]
        pair, result.pair[block], result.gap[block] = _compared(me, them, with_theirs, join)
        null, result.placebo[block], result.placebo_gap[block] = _compared(apart[0], apart[1], apart[2], join)
        result.contributions[block] = (pair - null).cpu()
        result.weights[block] = (
            _weights(them.per_deviation(deviation), join) - _weights(like_me.per_deviation(deviation), join)
        ).cpu()
    return result


def _compared(
    me: Explanation, them: Explanation, with_their_finances: Explanation, join: Tensor | None
) -> tuple[Tensor, Floats, Floats]:
    """Feature contributions, figures and financial gaps of pairs.

    The financial gap is the CEC score that a pair's unlike finances alone would give: that of a person and of the same
    person with the counterpart's financial features. Its difference between a pair and its placebo pair is no
    evidence of anything but unlike neighbours, and is the control that `inference.excess` takes out. For a model that
    sees financial features only, it is the CEC score itself.
    """
    own, other, moved = me.values, them.values, with_their_finances.values
    scores = score_contributions(own, other, me.with_inputs_of(them), them.with_inputs_of(me), join)
    overlap = reason_overlap(own, other, join)
    gap = cec_scores(own, moved) if join is None else cec_scores(own @ join, moved @ join)
    columns = torch.stack((scores.cec, scores.input_gap, scores.reasoning_gap, overlap), dim=1)
    return scores.contributions, columns.cpu().numpy(), gap.cpu().numpy()


def _deviation(x: Tensor) -> Tensor:
    """Standard deviation of each input over its known values, of shape (d,)."""
    known = ~x.isnan()
    n = known.sum(0).clamp_min(1)
    mean = torch.nansum(x, 0, dtype=torch.float64) / n
    squares = torch.stack([torch.nansum((part.double() - mean).square(), 0) for part in x.split(_BLOCK)]).sum(0)
    return (squares / n).sqrt()


def _weights(steps: Tensor, join: Tensor | None) -> Tensor:
    """Change of the logit for one standard deviation of each feature; a feature of several columns has no sign."""
    if join is None:
        return steps
    is_single = join.sum(0) == 1
    return torch.where(is_single, steps @ join, (steps.square() @ join).sqrt())


def _decisions(probability: Tensor, threshold: float) -> NDArray[np.bool_]:
    decided: NDArray[np.bool_] = (probability >= threshold).cpu().numpy()
    return decided


def _ratio(total: float, n: int) -> float:
    return total / n if n else float("nan")
