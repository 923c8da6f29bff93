"""Whether the CEC scores of an audit are more than match noise: excess over placebo pairs, why, and who."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from evenhand.auditing.between_groups import excesses_by_groups
from evenhand.auditing.finished import FinishedBatches, Merged
from evenhand.auditing.identities import person_buckets
from evenhand.auditing.influences import Influences
from evenhand.auditing.quantiles import quantiles_of_parts
from evenhand.auditing.reason_codes import fewer_in_common
from evenhand.auditing.reason_evidence import SharedReasons
from evenhand.auditing.reference import AuditReference
from evenhand.auditing.score_gaps import ScoreGap, estimate_score_gaps
from evenhand.auditing.triples import EvidenceSums, Triples
from evenhand.matching.placebos import N_NEAR
from evenhand.metrics.adjustment import holm
from evenhand.metrics.clustering import Parts, Question, Selection
from evenhand.metrics.estimate import p_two_sided
from evenhand.metrics.excess import ExcessEstimate
from evenhand.metrics.influence import excess_influence

__all__ = [
    "DISTANCE_SHARES",
    "Design",
    "Evidence",
    "FeatureEvidence",
    "SplitExcess",
    "WeightDifference",
    "estimate_evidence",
    "excess_influences",
    "gather_evidence",
    "main_questions",
]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_LEVEL = 0.05
_NEAR = N_NEAR - 1  # the column of `Triples.n_within` that counts near triples
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
        Excess over placebo pairs of each metric. `regime_b` is of the share in Regime B, `reason_overlap` of the share
        of the principal reasons that two declined people have in common, `rank_overlap` of their rank-biased overlap.
        Of these two, negative is less in common, and the p-value is of no less in common than placebo pairs have.
    agreement
        Means of what the reasons of declined people have in common: see `EvidenceSums`.
    compared_mean, placebo_mean
        Mean CEC score of compared people's pairs and placebo pairs; people weigh equally. The excess is their
        difference, adjusted for what neighbors' unlike finances explain.
    splits
        The excess overall by group, label, decision, groups compared and user columns.
    features, weights
        Each feature's contribution to the excess; weights that differ by group.
    common_support, without_support
        Share of (person, other group) with a triple, and why others have none.
    by_distance, by_matches, regime_b_by_threshold
        The excess with triples within growing distances, and with the nearest 1, 2, ... triples of each person;
        the excess share in Regime B at other consistency thresholds.
    score_gaps
        Differences in score between comparable people of two groups at equal finances, for every two groups.
    influences
        Of people on the answers to the four questions, so that another audit of the same people can be compared.
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
        """Of all pairs of groups, the score gap with the smallest adjusted p-value."""
        return min(self.score_gaps, key=lambda gap: (np.nan_to_num(gap.p_adjusted, nan=2.0), gap.group, gap.reference))

    @property
    def worst_pair(self) -> SplitExcess | None:
        """Of more than two groups, the pair with the smallest adjusted p-value; None if none could be estimated.

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
        """Choices of the audit under which the excess differs by more than chance allows (5 %, Holm).

        Each variant uses a part of the triples, so its difference from the whole varies less than the variant itself;
        the standard error of the variant is taken, which errs on the side of no warning.
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


@dataclass(frozen=True)
class _MainQuestion:
    """The excess of the scores, and each feature's part of it."""

    n_features: int

    @property
    def n_columns(self) -> int:
        return 3 + self.n_features

    def of(self, part: Triples) -> Selection:
        scores = np.column_stack([part.cec - part.placebo_cec, part.input_gap, part.reasoning_gap])
        return _selected(part, None, part.n_within[:, -1], part.controls, np.hstack([scores, part.contributions]))


@dataclass(frozen=True)
class _Balanced:
    """The excess of the scores with groups weighing equally, whatever their number of people."""

    weights: Mapping[int, float]
    n_columns: int = 1

    def of(self, part: Triples) -> Selection:
        everyone = sum(self.weights.values())
        factor = np.zeros(max(self.weights, default=0) + 1)
        for group, weight in self.weights.items():
            factor[group] = everyone / (len(self.weights) * weight)
        difference = (part.cec - part.placebo_cec)[:, None]
        chosen = _selected(part, None, part.n_within[:, -1], part.controls, difference)
        return replace(chosen, share=chosen.share * factor[part.group])


@dataclass(frozen=True)
class _RegimeB:
    """The excess of the share in Regime B at a threshold."""

    threshold: float
    n_columns: int = 1

    def of(self, part: Triples) -> Selection:
        def share(is_same: Bools, score: Floats) -> Floats:
            return (is_same & (score > self.threshold)).astype(np.float64)

        same, same_placebo = part.is_same_decision, part.is_same_placebo_decision
        difference = share(same, part.cec) - share(same_placebo, part.placebo_cec)
        # What unlike finances alone would do to the regime, to the score, and to decisions.
        regime = share(same, part.gap) - share(same_placebo, part.placebo_gap)
        decision = same.astype(np.float64) - same_placebo
        control = np.column_stack([regime, part.controls, decision])
        rows = np.flatnonzero(_is_near(part))
        return _selected(part, rows, part.n_within[rows, _NEAR], control[rows], difference[rows, None])


@dataclass(frozen=True)
class _WithinPeople:
    """The excess among the people of one value of a column."""

    column: str
    code: int
    n_columns: int = 1

    def of(self, part: Triples) -> Selection:
        values = part.by[self.column] if self.column in part.by else _person_column(part, self.column)
        return _cec_of(part, _is_near(part) & (values == self.code), part.n_within[:, _NEAR])


@dataclass(frozen=True)
class _BetweenGroups:
    """The excess of triples between two groups."""

    first: int
    second: int
    n_columns: int = 1

    @property
    def sides(self) -> tuple[int, int]:
        return self.first, self.second

    def of(self, part: Triples) -> Selection:
        return _cec_of(part, _is_near(part) & _is_between(part, self.first, self.second), part.n_between)


@dataclass(frozen=True)
class _WithinDistance:
    """The excess of triples within a distance."""

    place: int
    limit: float
    n_columns: int = 1

    def of(self, part: Triples) -> Selection:
        return _cec_of(part, part.distance <= self.limit, part.n_near[:, self.place])


@dataclass(frozen=True)
class _Nearest:
    """The excess of each person's nearest near triples with a group."""

    n_nearest: int
    n_columns: int = 1

    def of(self, part: Triples) -> Selection:
        return _cec_of(part, part.rank <= self.n_nearest, part.n_within[:, self.n_nearest - 1])


@dataclass(frozen=True)
class _Weights:
    """Weights in one group less those in another, feature by feature."""

    first: int
    second: int
    features: tuple[int, ...]

    @property
    def n_columns(self) -> int:
        return len(self.features)

    @property
    def sides(self) -> tuple[int, int]:
        return self.first, self.second

    def of(self, part: Triples) -> Selection:
        rows = np.flatnonzero(_is_near(part) & _is_between(part, self.first, self.second))
        # The difference is of the other's weight over the placebo's, who is of the person's own group.
        sign = np.where(part.group[rows] == self.second, 1.0, -1.0).astype(np.float32)
        weights = part.weights[rows]
        if self.n_columns < weights.shape[1]:
            weights = weights[:, list(self.features)]
        return _selected(part, rows, part.n_between[rows], part.controls[rows], sign[:, None] * weights)


def _is_near(part: Triples) -> Bools:
    """Near triples: with farther ones the tests of splits, regimes and weights alarm too often."""
    is_near: Bools = part.rank <= N_NEAR
    return is_near


def _selected(
    part: Triples, rows: Ints | None, n_of_person: Ints, control: Floats, difference: NDArray[np.floating]
) -> Selection:
    """Some triples, each with its weight over the number of the person's."""
    weight, each = part.weight if rows is None else part.weight[rows], 1 / n_of_person.astype(np.float64)
    return Selection(rows, weight * each, control, difference, float(each.sum()))


def _cec_of(part: Triples, is_in: Bools, n_of_person: Ints) -> Selection:
    rows = np.flatnonzero(is_in)
    difference = part.cec[rows] - part.placebo_cec[rows]
    return _selected(part, rows, n_of_person[rows], part.controls[rows], difference[:, None])


def _person_column(part: Triples, name: str) -> Ints:
    return {"group": part.group, "label": part.label, "decision": part.is_favorable.astype(np.int64)}[name]


def _is_between(part: Triples, first: int, second: int) -> Bools:
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
    without_weight
        Features that the model takes as categories.
    """

    features: tuple[str, ...]
    groups: tuple[str, ...]
    by: Mapping[str, tuple[str, ...]]
    consistency_threshold: float
    without_weight: tuple[str, ...] = ()


def estimate_evidence(
    parts: Parts[Triples],
    sums: EvidenceSums,
    design: Design,
    distance_limits: Sequence[float],
    *,
    n_threads: int = 1,
) -> Evidence:
    """The evidence, from triples in one part or many.

    Parameters
    ----------
    parts
        The triples, with the numbers within `distance_limits`.
    sums
        Over all people.
    design
        What to split by.
    distance_limits
        Quarters of the distances: see `DISTANCE_SHARES`.
    n_threads
        Estimates that are made at the same time.
    """
    n_groups = len(design.groups)
    between = [(a, b) for a in range(n_groups) for b in range(a + 1, n_groups)]
    weighed = tuple(j for j, feature in enumerate(design.features) if feature not in design.without_weight)
    present = _values_present(parts, n_groups)
    splits = _split_questions(design, between, present)
    nearest = range(1, min(present.largest_rank, N_NEAR) + 1)
    questions: list[Question[Triples]] = [
        *main_questions(parts, design),
        *(_RegimeB(threshold) for threshold in _THRESHOLDS),
        *(_Weights(a, b, weighed) for a, b in between if weighed),
        *(_WithinDistance(k, limit) for k, limit in enumerate(distance_limits)),
        *(_Nearest(k) for k in nearest),
        *(question for _, _, question in splits),
    ]
    answers = iter(excesses_by_groups(questions, parts, n_groups, n_threads))
    cec, input_gap, reasoning_gap, *features = next(answers)
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


def main_questions(parts: Parts[Triples], design: Design) -> list[Question[Triples]]:
    """The excess of the scores and of each feature, the same with groups weighing equally, and that of Regime B."""
    return [
        _MainQuestion(len(design.features)),
        _Balanced(_values_present(parts, len(design.groups)).weights),
        SharedReasons(),
        _RegimeB(design.consistency_threshold),
    ]


DISTANCE_SHARES = (0.25, 0.5, 0.75, 1.0)
"""Shares of the triples, nearest first, within which the excess is given."""


def gather_evidence(
    reference: AuditReference, batches: FinishedBatches, merged: Merged, reference_group: str
) -> Evidence:
    """The evidence of everyone who was compared; score gaps are held against a reference group."""
    sums, numbers = merged.sums, merged.numbers
    assert sums.evidence is not None
    features = tuple(str(column) for column in reference.pool.table.columns)
    limits: list[float] = []
    if any(len(batches.distances(number)) for number in numbers):
        limits = quantiles_of_parts(lambda: (batches.distances(number) for number in numbers), DISTANCE_SHARES)
    design = Design(
        features=features,
        groups=reference.pool.groups.names,
        by={name: tuple(counts) for name, counts in sums.approvals.items()},
        consistency_threshold=reference.settings.consistency_threshold,
        without_weight=tuple(reference.model.category_columns(list(features))),
    )
    triples = batches.triples(merged, limits, len(reference.pool))
    evidence = estimate_evidence(triples, sums.evidence, design, limits, n_threads=batches.n_threads)
    buckets = person_buckets(reference.pool, reference.settings.financial_features)
    gaps, of_gaps = estimate_score_gaps(reference, triples, features, reference_group, buckets)
    influences = Influences.of({**excess_influences(triples, design, buckets), **of_gaps})
    return replace(evidence, score_gaps=gaps, influences=influences)


def excess_influences(triples: Parts[Triples], design: Design, buckets: Ints) -> dict[str, Floats]:
    """Influences of people on the excess and on weighing, by name."""
    main, balanced, reasons, _ = main_questions(triples, design)
    *found, of_reasons = excess_influence([(main, 3), (balanced, 1), (reasons, 1)], triples, buckets)
    names = ("excess", "excess: input gap", "weighing", "excess_balanced")
    both = np.hstack(found).T
    return {
        **(dict(zip(names, both, strict=True)) if len(both) else {}),
        **dict.fromkeys(("excess: shared reasons",) if of_reasons.size else (), of_reasons.ravel()),
    }


@dataclass(frozen=True)
class _Present:
    """Which values occur among the triples."""

    groups: frozenset[int]
    weights: Mapping[int, float]
    labels: frozenset[int]
    decisions: frozenset[int]
    between: frozenset[tuple[int, int]]
    by: Mapping[str, frozenset[int]]
    largest_rank: int


def _values_present(parts: Parts[Triples], n_groups: int) -> _Present:
    seen: dict[str, set[int]] = {"group": set(), "label": set(), "decision": set()}
    by: dict[str, set[int]] = {}
    between: set[tuple[int, int]] = set()
    largest = 0
    weights = np.zeros(n_groups)
    for part in parts.parts():
        weights += np.bincount(part.group, part.weight / part.n_within[:, -1], minlength=n_groups)
        for name, codes in seen.items():
            codes.update(np.unique(_person_column(part, name)).tolist())
        for name, values in part.by.items():
            by.setdefault(name, set()).update(np.unique(values).tolist())
        sides = np.unique(part.group * n_groups + part.other_group).tolist()
        between.update((min(divmod(code, n_groups)), max(divmod(code, n_groups))) for code in sides)
        largest = max(largest, int(part.rank.max(initial=0)))
    return _Present(
        groups=frozenset(seen["group"]),
        weights={code: float(weight) for code, weight in enumerate(weights) if weight > 0},
        labels=frozenset(seen["label"]),
        decisions=frozenset(seen["decision"]),
        between=frozenset(between),
        by={name: frozenset(codes) for name, codes in by.items()},
        largest_rank=largest,
    )


def _split_questions(
    design: Design, between: list[tuple[int, int]], present: _Present
) -> list[tuple[str, str, Question[Triples]]]:
    """Split, value and question; every group is shown, those without a single triple too."""
    found: list[tuple[str, str, Question[Triples]]] = []

    def add(split: str, names: Mapping[int, str], codes: Iterable[int]) -> None:
        ordered = sorted(codes, key=lambda code: names[code])
        found.extend((split, names[code], _WithinPeople(split, code)) for code in ordered)

    groups = dict(enumerate(design.groups))
    add("group", groups, present.groups)
    found += [("group", groups[c], _WithinPeople("group", c)) for c in groups if c not in present.groups]
    add("label", {0: "0", 1: "1"}, present.labels)
    add("decision", {1: "favorable", 0: "unfavorable"}, present.decisions)
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


def _ratio(total: float, n: float) -> float:
    return total / n if n else float("nan")
