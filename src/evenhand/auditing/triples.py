"""Triples of people with placebo pairs, from which the evidence of an audit is estimated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.arrays import Bools, Floats, Ints
from evenhand.auditing.reasons import BatchReasons, agreement_sums
from evenhand.inputs.people import People
from evenhand.matching.placebos import N_NEAR, N_NEIGHBORS, PlaceboPairs, PlaceboReference
from evenhand.metrics.cec import PairScores
from evenhand.metrics.excess import InMemory, Part, Parts, Question, Selection, smallest_row
from evenhand.models.explaining import Explainer, HalvedExplainer
from evenhand.models.scoring import TripleScores, score_triples
from evenhand.system.threads import ONE_THREAD, Crew, Later, return_freed_memory

_MANY = 200_000  # triples: more than a batch of a streamed audit has
_ROWS_AT_ONCE = 16_384  # of triples in memory that are worked on together


@dataclass(frozen=True, eq=False)
class Triples:
    """Triples that could be scored, with everything from which the evidence is estimated.

    Every field has one row per triple. Small numbers are kept in few bytes: there may be millions of triples.

    Attributes
    ----------
    person, unit
        The person's number, and the first number of the same person in the batch.
    bucket
        Where the person's influences are added up: see `auditing.identities.person_buckets`.
    person_row, other, own
        Rows of the reference that represent the person (-1 if outside it), the match and the placebo. If a person has
        several rows, one of them represents all.
    match
        Row of the match in the reference.
    group, other_group, label, is_favorable
        Of the person, except `other_group`; `is_favorable` is the decision.
    rank, n_within
        Rank among the person's triples with the group: near ones from 1, the rest from N_NEAR + 1; number of the
        person's triples with ranks up to 1, 2, ..., N_NEAR, and of all, of shape (n, N_NEAR + 1).
    n_between
        Number of the person's near triples with the group.
    distance
        Distance of the match.
    n_near
        Number of the person's triples within each limit of distance, of shape (n, n_limits).
    cec, placebo_cec, gap, placebo_gap
        CEC scores of pair and placebo pair, and what unequal finances alone would give.
    stretch
        How much longer unequal finances alone make the explanation: see `TripleScores`.
    input_gap, reasoning_gap
        Of the pair minus those of the placebo pair.
    agreement, agreement_control, n_declined
        Overlap of the pair's reasons minus that of the placebo pair's, and the effect of unequal finances alone on it,
        of shape (n, 2), NaN unless all three are declined; number of the person's triples for which they are known.
    is_same_decision, is_same_placebo_decision
        Whether the two people of the pair, and of the placebo pair, have the same decision.
    contributions, weights
        By feature, for the pair minus the placebo pair, of shape (n, n_features).
    finances
        Standardized finances of the person, of shape (n, k).
    score_gaps
        The score of the person with the match's finances minus that of the match: by feature, in total, in probability
        and in decisions, of shape (n, n_features + 3).
    weight, pair_weight
        Sampling weight of the person, times the weight of the triple, or of its pair alone, among those of the person
        with the group; see `_weights_within`. All are 1 if no weights are given.
    by
        Columns of the person to split by, as codes.
    """

    person: Ints
    unit: Ints
    person_row: NDArray[np.signedinteger]
    bucket: NDArray[np.signedinteger]
    other: NDArray[np.signedinteger]
    own: NDArray[np.signedinteger]
    match: NDArray[np.signedinteger]
    group: NDArray[np.signedinteger]
    other_group: NDArray[np.signedinteger]
    label: NDArray[np.signedinteger]
    is_favorable: Bools
    rank: NDArray[np.signedinteger]
    n_within: NDArray[np.signedinteger]
    n_between: NDArray[np.signedinteger]
    distance: Floats
    n_near: NDArray[np.signedinteger]
    cec: Floats
    placebo_cec: Floats
    gap: Floats
    placebo_gap: Floats
    stretch: Floats
    input_gap: Floats
    reasoning_gap: Floats
    agreement: Floats
    agreement_control: Floats
    n_declined: NDArray[np.signedinteger]
    is_same_decision: Bools
    is_same_placebo_decision: Bools
    contributions: NDArray[np.float32]
    weights: NDArray[np.float32]
    finances: NDArray[np.float32]
    score_gaps: NDArray[np.float32]
    weight: Floats
    pair_weight: Floats
    by: Mapping[str, Ints]

    def __len__(self) -> int:
        return len(self.person)

    @cached_property
    def controls(self) -> Floats:
        """The effect of unequal finances alone on score and length, pair minus placebo pair, of shape (n, 2)."""
        return np.column_stack([self.gap - self.placebo_gap, self.stretch])

    def rows(self, index: slice | Ints) -> Self:
        """Some of the triples."""
        plain = {f.name: getattr(self, f.name)[index] for f in fields(self) if f.name != "by"}
        return type(self)(**plain, by={name: codes[index] for name, codes in self.by.items()})

    def within(self, limits: Sequence[float]) -> Triples:
        """The same triples with the number of each person's within each limit of distance."""
        code = np.unique(self.person, return_inverse=True)[1]
        near = [np.bincount(code, self.distance <= limit).astype(np.int16)[code] for limit in limits]
        return replace(self, n_near=np.column_stack(near) if near else np.zeros((len(self), 0), dtype=np.int16))


@dataclass(frozen=True)
class EvidenceSums:
    """Counts and sums over (person, other group); those of parts of the people can be added.

    Attributes
    ----------
    n_repeated
        Rows of a person who has another row, in the batch or in the reference.
    compared, compared_cec, placebo_cec
        Sum of the weights of those compared, and weighted sums of their means over triples.
    n_agreement, agreement
        People with a triple of three declined people, and the sum over them of the overlap of reasons: for pairs, then
        for placebo pairs, of shape (2, 2).
    """

    n_triples: int
    n_left_out: int
    n_asked: int
    n_supported: int
    n_repeated: int
    compared: float
    compared_cec: float
    placebo_cec: float
    n_agreement: int
    agreement: Floats
    without_support: Mapping[str, int]

    def __add__(self, other: EvidenceSums) -> EvidenceSums:
        added = {
            f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self) if f.name != "without_support"
        }
        reasons = {name: n + other.without_support[name] for name, n in self.without_support.items()}
        return EvidenceSums(**added, without_support=reasons)


@dataclass(frozen=True, eq=False)
class KeptTriples(InMemory[Triples]):
    """Triples kept in memory, sorted by person.

    They are processed a few at a time, so that intermediate results take little extra memory.
    """

    def parts(self) -> Iterable[Triples]:
        """Yield the triples part by part; all at once if a person has several rows."""
        person = self.part.person
        if len(person) <= _ROWS_AT_ONCE or not np.array_equal(self.part.unit, person):
            yield self.part
            return
        ends = np.searchsorted(person, person[_ROWS_AT_ONCE - 1 :: _ROWS_AT_ONCE], side="right").tolist()
        for start, stop in pairwise(sorted({0, *ends, len(person)})):
            yield self.part.rows(slice(start, stop))

    def ranges(self) -> Iterable[tuple[Triples, int, int]]:
        """Triples by ranges of the reference."""
        limits = range_limits(np.bincount(smallest_row(self.part), minlength=self.n_reference), _ROWS_AT_ONCE)
        if len(limits) == 2:
            return super().ranges()
        part, places = self.part, triples_by_range(self.part, limits)
        return Later(lambda k: (part.rows(places[k]), limits[k], limits[k + 1]), range(len(places)))


def return_much_freed_memory(n_triples: int) -> None:
    """Return what the step before has freed, where so many triples make it much: the next step needs other memory."""
    if n_triples > _MANY:
        return_freed_memory()


def range_limits(counts: Ints, rows_at_once: int) -> list[int]:
    """Ends of ranges of rows, which have about as many triples each.

    Examples
    --------
    >>> range_limits(np.array([3, 1, 2, 2]), 4)
    [0, 1, 3, 4]
    """
    place = np.cumsum(counts) // rows_at_once
    return [0, *(np.flatnonzero(np.diff(place)) + 1).tolist(), len(counts)]


def triples_by_range(part: Part, limits: Sequence[int]) -> list[Ints]:
    """Triples in which a couple of the reference has its lower row in a range, in order, for each range."""
    lower = np.sort(np.stack([part.person_row, part.other, part.own]), axis=0)[:2]  # of the three couples
    code = np.searchsorted(limits, lower, side="right") - 1  # -1 for a couple with someone outside the reference
    code[0, code[0] == code[1]] = -1  # a triple is in each range once
    order = np.argsort(code, axis=None, kind="stable")
    ends = np.searchsorted(code.ravel()[order], np.arange(len(limits)))
    return [np.sort(order[start:stop] % code.shape[1]) for start, stop in pairwise(ends.tolist())]


_BLOCK = 16_384  # people whose deviation is summed at once


@dataclass(frozen=True, eq=False)
class BatchEvidence:
    """The result of comparing a batch of people.

    Attributes
    ----------
    triples, sums
        The basis of all estimates.
    placebo_cec, over_gap, placebo_over_gap
        For each (person, other group), of shape (n_people, n_groups), NaN without a triple: the mean CEC score of the
        placebo pairs; the scores of the pairs, and of the placebo pairs, above what unequal finances explain.
    """

    triples: Triples
    sums: EvidenceSums
    placebo_cec: Floats
    over_gap: Floats
    placebo_over_gap: Floats


@dataclass(frozen=True, eq=False)
class EvidenceReference:
    """What a comparison needs from the reference, computed once.

    Attributes
    ----------
    placebos
        The reference, indexed for triples.
    explainer
        The explainer of the triples.
    is_financial
        Which encoded inputs belong to financial features, of shape (d,).
    deviation
        Standard deviation of each input, of shape (d,).
    n_neighbors, n_triples
        Number of candidates of each kind, and largest number of triples of a person with a group.
    """

    placebos: PlaceboReference
    explainer: HalvedExplainer
    is_financial: Tensor
    deviation: Tensor
    n_neighbors: int = N_NEIGHBORS
    n_triples: int = N_NEAR

    @classmethod
    def of(
        cls,
        pool: People,
        explainer: Explainer,
        points: Floats,
        is_financial: NDArray[np.bool_],
        random_state: int,
        *,
        n_neighbors: int = N_NEIGHBORS,
        n_triples: int = N_NEAR,
    ) -> EvidenceReference:
        """Index the pool by its standardized financial features."""
        device = pool.x.device
        away = None if device.type == "cpu" else str(device)
        placebos = PlaceboReference.of(
            points, pool.labels, pool.groups.codes, random_state, identity=pool.identity, device=away
        )
        half = pool.identity.halves(pool.cells)
        halved = HalvedExplainer.of(explainer, pool.x, pool.labels, pool.groups.codes, half, pool.sample_weight)
        deviation = _deviation(pool.x, pool.sample_weight)
        financial = torch.as_tensor(is_financial, device=device)
        return cls(placebos, halved, financial, deviation, n_neighbors, n_triples)


def compare_batch(
    reference: EvidenceReference,
    people: People,
    pool: People,
    points: Floats,
    *,
    person_row: Ints | None,
    first_person: int,
    decision_threshold: float,
    max_distance: float | None,
    by: Mapping[str, Ints],
    bucket: Ints,
    reasons: BatchReasons,
    compared: Ints | None = None,
) -> BatchEvidence:
    """Compare a batch of people with the reference.

    Parameters
    ----------
    reference, pool
        The people to compare with.
    people, points
        The batch and its standardized financial features.
    person_row
        The row of each person in the reference, -1 if not in it; None if no one is in it.
    first_person
        Number of the first person of the batch.
    decision_threshold, max_distance
        As in `evenhand.audit`.
    by
        Columns of the batch to split by, as codes.
    bucket
        Bucket of each person of the batch.
    reasons
        Principal reasons of the batch and of the pool.
    compared
        Rows of the batch to compare; None for all.
    """
    pairs = compared_people(reference, people, points, person_row, compared, max_distance)
    pairs = pairs.where(reference.explainer.has_baseline(people.cells[pairs.person], pairs.own))
    if people.sample_weight is not None:
        weighs = (people.weight[pairs.person] > 0) & (pool.weight[pairs.other] > 0) & (pool.weight[pairs.own] > 0)
        pairs = pairs.where(weighs)  # a triple whose three people are all counted
    return_much_freed_memory(len(pairs))
    scored = _scored(reference, people, pool, pairs, decision_threshold)
    within = _weights_within(pool, pairs)
    means = {name: pairs.person_mean(within[0] * values) for name, values in _by_person(scored).items()}
    usable = _is_usable(scored)
    units = people.identity.first_rows() + first_person
    alike = reasons.of_triples(pairs)
    triples = _triples(people, points, pairs, scored, alike, usable, units, first_person, by, bucket, within)
    n_agreement, agreement = agreement_sums(alike[0][usable], pairs.person[usable])
    known = np.isfinite(means["cec"])
    weight = np.broadcast_to(people.weight[:, None], known.shape)[known]
    sums = EvidenceSums(
        n_triples=len(pairs),
        n_left_out=int((~usable).sum()),
        n_asked=pairs.n_asked,
        n_supported=int((pairs.reason == 0).sum()),
        n_repeated=_n_repeated(people, pairs, person_row),
        compared=float(weight.sum()),
        compared_cec=float((weight * means["cec"][known]).sum()),
        placebo_cec=float((weight * means["placebo_cec"][known]).sum()),
        n_agreement=n_agreement,
        agreement=agreement,
        without_support=pairs.without_support,
    )
    return BatchEvidence(triples, sums, means["placebo_cec"], means["over_gap"], means["placebo_over_gap"])


def compared_people(
    reference: EvidenceReference,
    people: People,
    points: Floats,
    person_row: Ints | None,
    compared: Ints | None,
    max_distance: float | None,
) -> PlaceboPairs:
    """Triples of the compared people, as rows of the batch."""
    chosen = np.arange(len(people)) if compared is None else compared
    found = reference.placebos.compare(
        points[chosen],
        people.labels[chosen],
        people.groups.codes[chosen],
        None if person_row is None else person_row[chosen],
        identity=people.identity.rows(chosen),
        n_neighbors=reference.n_neighbors,
        n_pairs=reference.n_triples,
        max_distance=max_distance,
    )
    if compared is None:
        return found
    reason = np.full((len(people), found.reason.shape[1]), -1, dtype=np.int8)
    reason[compared] = found.reason
    person_unit = np.full(len(people), -1, dtype=np.int64)
    person_unit[compared] = found.person_unit
    return replace(found, person=compared[found.person], reason=reason, person_unit=person_unit)


@dataclass(frozen=True, eq=False)
class _Scores:
    """Metrics of every triple: of the pair, of the placebo pair, and what unequal finances alone would give.

    The columns of `pair` and `placebo` are cec, input gap and reasoning gap.
    """

    pair: Floats
    placebo: Floats
    gap: Floats
    placebo_gap: Floats
    stretch: Floats
    is_favorable: Bools
    is_same_decision: Bools
    is_same_placebo_decision: Bools
    contributions: NDArray[np.float32]
    weights: NDArray[np.float32]
    score_gaps: NDArray[np.float32]


def _by_person(scored: _Scores) -> dict[str, Floats]:
    """Averages over each person's triples."""
    return {
        "cec": scored.pair[:, 0],
        "placebo_cec": scored.placebo[:, 0],
        # Compare a pair's score above its financial gap with the same for placebo pairs of the cell.
        "over_gap": scored.pair[:, 0] - scored.gap,
        "placebo_over_gap": scored.placebo[:, 0] - scored.placebo_gap,
    }


def _is_usable(scored: _Scores) -> Bools:
    rows = (scored.pair, scored.placebo, scored.contributions, scored.weights, scored.score_gaps)
    usable: Bools = np.logical_and.reduce([np.isfinite(values).all(axis=1) for values in rows])
    return usable & np.isfinite(scored.gap) & np.isfinite(scored.placebo_gap)


def _triples(
    people: People,
    points: Floats,
    pairs: PlaceboPairs,
    scored: _Scores,
    alike: tuple[Floats, Floats],
    usable: Bools,
    units: Ints,
    first_person: int,
    by: Mapping[str, Ints],
    bucket: Ints,
    within: tuple[Floats, Floats],
) -> Triples:
    kept = slice(None) if usable.all() else np.flatnonzero(usable)
    person, other_group, rank = pairs.person[kept], pairs.other_group[kept], pairs.rank[kept]
    n_groups = pairs.reason.shape[1]
    cell = person * n_groups + other_group
    limits = [*range(1, N_NEAR + 1), np.inf]
    n_within = [np.bincount(person, rank <= limit, minlength=len(people)).astype(np.int16)[person] for limit in limits]
    of_triple = people.weight[person] * within[0][kept]
    of_pair = of_triple if within[1] is within[0] else people.weight[person] * within[1][kept]
    agreement = alike[0][kept, 0] - alike[0][kept, 1]
    declined = np.bincount(person, ~np.isnan(agreement[:, 0]), minlength=len(people))[person]
    return Triples(
        person=person + first_person,
        unit=units[person],
        person_row=pairs.person_unit[person].astype(np.int32),
        bucket=bucket[person].astype(np.int16),
        other=pairs.unit[pairs.other[kept]].astype(np.int32),
        own=pairs.unit[pairs.own[kept]].astype(np.int32),
        match=pairs.other[kept].astype(np.int32),
        group=people.groups.codes[person].astype(np.int32),
        other_group=other_group.astype(np.int32),
        label=people.labels[person].astype(np.int8),
        is_favorable=scored.is_favorable[kept],
        rank=rank.astype(np.int8),
        n_within=np.column_stack(n_within),
        n_between=np.bincount(cell, rank <= N_NEAR, minlength=len(people) * n_groups)[cell].astype(np.int16),
        distance=pairs.other_distance[kept],
        n_near=np.zeros((len(person), 0), dtype=np.int16),
        cec=scored.pair[kept, 0].copy(),
        placebo_cec=scored.placebo[kept, 0].copy(),
        gap=scored.gap[kept],
        placebo_gap=scored.placebo_gap[kept],
        stretch=scored.stretch[kept],
        input_gap=scored.pair[kept, 1] - scored.placebo[kept, 1],
        reasoning_gap=scored.pair[kept, 2] - scored.placebo[kept, 2],
        agreement=agreement,
        agreement_control=alike[1][kept],
        n_declined=declined.astype(np.int16),
        is_same_decision=scored.is_same_decision[kept],
        is_same_placebo_decision=scored.is_same_placebo_decision[kept],
        contributions=scored.contributions[kept],
        weights=scored.weights[kept],
        finances=points[person].astype(np.float32),
        score_gaps=scored.score_gaps[kept],
        weight=of_triple,
        pair_weight=of_pair,
        by={name: codes[person] for name, codes in by.items()},
    )


def _weights_within(pool: People, pairs: PlaceboPairs) -> tuple[Floats, Floats]:
    """Weights of triples, and of their pairs alone, within the same person and group, with a mean of 1.

    The neighbors of a person are not drawn with equal probability either. Matches and placebos count by their sampling
    weights, so that each person is compared with neighbors as they are in the population. A triple's weight is that of
    its match times that of its placebo, which treats the two alike.
    """
    if pool.sample_weight is None:
        ones = np.ones(len(pairs))
        return ones, ones
    cell, match = pairs.person * pairs.reason.shape[1] + pairs.other_group, pool.sample_weight[pairs.other]

    def relative(weight: Floats) -> Floats:
        share: Floats = weight * np.bincount(cell)[cell] / np.bincount(cell, weight)[cell]
        return share

    return relative(match * pool.sample_weight[pairs.own]), relative(match)


def _n_repeated(people: People, pairs: PlaceboPairs, person_row: Ints | None) -> int:
    """Rows of the batch whose person has another row, in the batch or in the reference."""
    first = people.identity.first_rows()
    in_batch = np.bincount(first, minlength=len(first))[first] > 1
    is_known = pairs.person_unit >= 0
    copies = np.bincount(pairs.unit, minlength=len(pairs.unit))[pairs.person_unit]
    # A person in the reference is one of the copies.
    is_member = np.zeros(len(first), dtype=np.bool_) if person_row is None else person_row >= 0
    return int((in_batch | (is_known & (copies > is_member))).sum())


def _scored(
    reference: EvidenceReference, people: People, pool: People, pairs: PlaceboPairs, decision_threshold: float
) -> _Scores:
    """Score every triple's pair and placebo pair."""
    n, n_features = len(pairs), len(people.table.columns)
    seen = reference.explainer.see(people.x, people.cells, pool.x, pairs.person, pairs.other, pairs.own)
    probability = reference.explainer.explainer.model.probability
    decided, match_decided, placebo_decided = (
        group.decided(probability(who.logit).cpu().numpy(), decision_threshold, rows)
        for who, group, rows in (
            (seen.person, people, pairs.person),
            (seen.match, pool, pairs.other),
            (seen.placebo, pool, pairs.own),
        )
    )
    result = _Scores(
        pair=np.empty((n, 3)),
        placebo=np.empty((n, 3)),
        gap=np.empty(n),
        placebo_gap=np.empty(n),
        stretch=np.empty(n),
        is_favorable=decided,
        is_same_decision=decided == match_decided,
        is_same_placebo_decision=decided == placebo_decided,
        contributions=np.empty((n, n_features), dtype=np.float32),
        weights=np.empty((n, n_features), dtype=np.float32),
        score_gaps=np.empty((n, n_features + 3), dtype=np.float32),
    )
    for block, part in score_triples(reference.explainer, seen, people.x, pool.x, pairs, reference.is_financial):
        result.pair[block], result.placebo[block] = _columns(part.pair), _columns(part.placebo)
        result.gap[block], result.placebo_gap[block] = part.gap.cpu().numpy(), part.placebo_gap.cpu().numpy()
        result.stretch[block] = part.stretch.cpu().numpy()
        result.contributions[block] = (part.pair.contributions - part.placebo.contributions).cpu()
        result.weights[block] = part.weight_difference(reference.deviation).cpu()
        thresholds = (
            people.cut_off(decision_threshold, pairs.person[block]),
            pool.cut_off(decision_threshold, pairs.other[block]),
        )
        result.score_gaps[block] = _score_gaps(part, probability, thresholds)
    if people.decisions is not None:
        # There is no decision about the person with the match's finances; the regression holds the finances equal.
        result.score_gaps[:, -1] = decided.astype(np.float32) - match_decided
    return result


def _score_gaps(
    part: TripleScores, probability: Callable[[Tensor], Tensor], thresholds: tuple[float | Floats, float | Floats]
) -> NDArray[np.float32]:
    """Gaps by feature, their sum, and the gaps in probability and in decisions, given the thresholds of both people."""
    by_feature = part.score_gaps
    moved, match = probability(part.moved.logit), probability(part.match.logit)
    of_person, of_match = (torch.as_tensor(threshold).to(moved) for threshold in thresholds)
    decided = (moved >= of_person).to(by_feature) - (match >= of_match).to(by_feature)
    gaps = (by_feature, by_feature.sum(-1, keepdim=True), (moved - match)[:, None].to(by_feature), decided[:, None])
    found: NDArray[np.float32] = torch.cat(gaps, dim=-1).float().cpu().numpy()
    return found


def _columns(scores: PairScores) -> Floats:
    found = (scores.cec, scores.input_gap, scores.reasoning_gap)
    columns: Floats = torch.stack(found, dim=1).cpu().numpy()
    return columns


def _deviation(x: Tensor, sample_weight: Floats | None) -> Tensor:
    """Standard deviation of each input over its known values, of shape (d,)."""
    known = ~x.isnan()
    if sample_weight is not None:
        weight = torch.as_tensor(sample_weight, device=x.device)[:, None]
        total = (weight * known).sum(0).clamp_min(torch.finfo(torch.float64).tiny)
        center = torch.nansum(weight * x, 0) / total
        return (torch.nansum(weight * (x - center).square(), 0) / total).sqrt()
    n = known.sum(0).clamp_min(1)
    mean = torch.nansum(x, 0, dtype=torch.float64) / n
    squares = torch.stack([torch.nansum((part.double() - mean).square(), 0) for part in x.split(_BLOCK)]).sum(0)
    return (squares / n).sqrt()


@dataclass(frozen=True)
class SharedReasons:
    """The excess of what the reasons of declined people have in common: share, and rank-biased overlap."""

    n_columns: int = 2

    def of(self, part: Triples) -> Selection:
        """Triples of three declined people."""
        rows = np.flatnonzero(~np.isnan(part.agreement[:, 0]))
        each = 1 / part.n_declined[rows]
        share = part.weight[rows] * each
        return Selection(rows, share, part.agreement_control[rows], part.agreement[rows], float(each.sum()))


_NEAR = N_NEAR - 1  # the column of `Triples.n_within` that counts near triples


@dataclass(frozen=True)
class _ScoreExcess:
    """The excess of the CEC score, of the input gap and of the reasoning gap."""

    n_columns: int = 3

    def of(self, part: Triples) -> Selection:
        scores = np.column_stack([part.cec - part.placebo_cec, part.input_gap, part.reasoning_gap])
        return _selected(part, None, part.n_within[:, -1], part.controls, scores)


@dataclass(frozen=True)
class _Features:
    """Each feature's part of the excess; separate from the scores, because joining the two would copy all parts."""

    n_columns: int

    def of(self, part: Triples) -> Selection:
        return _selected(part, None, part.n_within[:, -1], part.controls, part.contributions)


@dataclass(frozen=True)
class _Balanced:
    """The excess of the scores with equal weight for each group, whatever its size."""

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
class RegimeB:
    """The excess of the share in Regime B at a threshold."""

    threshold: float
    n_columns: int = 1

    def of(self, part: Triples) -> Selection:
        """Near triples, with the effect of unequal finances alone as controls."""

        def share(is_same: Bools, score: Floats) -> Floats:
            return (is_same & (score > self.threshold)).astype(np.float64)

        same, same_placebo = part.is_same_decision, part.is_same_placebo_decision
        difference = share(same, part.cec) - share(same_placebo, part.placebo_cec)
        # The effect of unequal finances alone on the regime, on the score, and on decisions.
        regime = share(same, part.gap) - share(same_placebo, part.placebo_gap)
        decision = same.astype(np.float64) - same_placebo
        control = np.column_stack([regime, part.controls, decision])
        rows, at = _chosen(_is_near(part))
        return _selected(part, rows, part.n_within[at, _NEAR], control[at], difference[at, None])


@dataclass(frozen=True)
class _WithinPeople:
    """The excess among people with one value of a column."""

    column: str
    code: int
    n_columns: int = 1

    def of(self, part: Triples) -> Selection:
        values = part.by[self.column] if self.column in part.by else _person_column(part, self.column)
        return _cec_of(part, _is_near(part) & (values == self.code), part.n_within[:, _NEAR])


@dataclass(frozen=True)
class BetweenGroups:
    """The excess of triples between two groups."""

    first: int
    second: int
    n_columns: int = 1

    @property
    def sides(self) -> tuple[int, int]:
        """The two groups whose triples this question is about."""
        return self.first, self.second

    def of(self, part: Triples) -> Selection:
        """Near triples between the two."""
        return _cec_of(part, _is_near(part) & _is_between(part, self.first, self.second), part.n_between)


@dataclass(frozen=True)
class WithinDistance:
    """The excess of triples within a distance."""

    place: int
    limit: float
    n_columns: int = 1

    def of(self, part: Triples) -> Selection:
        """Triples within the limit."""
        return _cec_of(part, part.distance <= self.limit, part.n_near[:, self.place])


@dataclass(frozen=True)
class Nearest:
    """The excess of each person's nearest near triples with a group."""

    n_nearest: int
    n_columns: int = 1

    def of(self, part: Triples) -> Selection:
        """Triples up to the rank."""
        return _cec_of(part, part.rank <= self.n_nearest, part.n_within[:, self.n_nearest - 1])


@dataclass(frozen=True)
class Weights:
    """Weights in one group minus those in another, feature by feature."""

    first: int
    second: int
    features: tuple[int, ...]

    @property
    def n_columns(self) -> int:
        """One for each feature."""
        return len(self.features)

    @property
    def sides(self) -> tuple[int, int]:
        """The two groups whose triples this question is about."""
        return self.first, self.second

    def of(self, part: Triples) -> Selection:
        """Near triples between the two groups."""
        rows, at = _chosen(_is_near(part) & _is_between(part, self.first, self.second))
        # The difference is of the other's weight over the placebo's, who is of the person's own group.
        sign = np.where(part.group[at] == self.second, 1.0, -1.0).astype(np.float32)
        weights = part.weights[at]
        if self.n_columns < weights.shape[1]:
            weights = weights[:, list(self.features)]
        return _selected(part, rows, part.n_between[at], part.controls[at], sign[:, None] * weights)


def _is_near(part: Triples) -> Bools:
    """Near triples: with farther ones, the tests of splits, regimes and weights raise too many false alarms."""
    is_near: Bools = part.rank <= N_NEAR
    return is_near


def _selected(
    part: Triples, rows: Ints | None, n_of_person: Ints, control: Floats, difference: NDArray[np.floating]
) -> Selection:
    """Some triples, each weighted by one over the number of the person's triples."""
    weight, each = part.weight if rows is None else part.weight[rows], 1 / n_of_person.astype(np.float64)
    return Selection(rows, weight * each, control, difference, float(each.sum()))


def _cec_of(part: Triples, is_in: Bools, n_of_person: Ints) -> Selection:
    rows, at = _chosen(is_in)
    difference = part.cec[at] - part.placebo_cec[at]
    return _selected(part, rows, n_of_person[at], part.controls[at], difference[:, None])


def _chosen(is_in: Bools) -> tuple[Ints | None, Ints | slice]:
    """The rows of a selection, None for all; and what takes them from an array."""
    rows = np.flatnonzero(is_in)
    return (None, slice(None)) if len(rows) == len(is_in) else (rows, rows)


def _person_column(part: Triples, name: str) -> Ints:
    return {"group": part.group, "label": part.label, "decision": part.is_favorable.astype(np.int64)}[name]


def _is_between(part: Triples, first: int, second: int) -> Bools:
    low, high = np.minimum(part.group, part.other_group), np.maximum(part.group, part.other_group)
    is_between: Bools = (low == first) & (high == second)
    return is_between


@dataclass(frozen=True)
class Design:
    """How the evidence is split.

    Attributes
    ----------
    features, groups
        Their names.
    by
        Values of each column to split by, in code order.
    consistency_threshold
        As in `evenhand.audit`.
    without_weight
        Features that the model treats as categories.
    """

    features: tuple[str, ...]
    groups: tuple[str, ...]
    by: Mapping[str, tuple[str, ...]]
    consistency_threshold: float
    without_weight: tuple[str, ...] = ()


def main_questions(design: Design, present: Present) -> list[Question[Triples]]:
    """The excess of the scores and of each feature, the same with groups weighing equally, and that of Regime B."""
    return [
        _ScoreExcess(),
        _Features(len(design.features)),
        _Balanced(present.weights),
        SharedReasons(),
        RegimeB(design.consistency_threshold),
    ]


@dataclass(frozen=True)
class Present:
    """Which values occur among some triples, and what each group weighs; those of parts can be added.

    Attributes
    ----------
    differing
        Pairs with different decisions by the person's group, the match's, and whether the person's is the favorable
        one, of shape (n_groups, n_groups, 2).
    """

    groups: frozenset[int]
    weights: Mapping[int, float]
    labels: frozenset[int]
    decisions: frozenset[int]
    between: frozenset[tuple[int, int]]
    by: Mapping[str, frozenset[int]]
    largest_rank: int
    differing: Ints

    def __add__(self, other: Present) -> Present:
        weights, by = dict(self.weights), dict(self.by)
        for code, weight in other.weights.items():
            weights[code] = weights.get(code, 0.0) + weight
        for name, codes in other.by.items():
            by[name] = by.get(name, frozenset()) | codes
        return Present(
            groups=self.groups | other.groups,
            weights=dict(sorted(weights.items())),
            labels=self.labels | other.labels,
            decisions=self.decisions | other.decisions,
            between=self.between | other.between,
            by=by,
            largest_rank=max(self.largest_rank, other.largest_rank),
            differing=self.differing + other.differing,
        )


def values_present(parts: Parts[Triples], n_groups: int, crew: Crew = ONE_THREAD) -> Present:
    """Scan the triples for the values that occur and the weight of each group."""
    none = frozenset[int]()
    found = Present(none, {}, none, none, frozenset(), {}, 0, np.zeros((n_groups, n_groups, 2), dtype=np.int64))
    for more in crew.in_order(lambda part: _present(part, n_groups), parts.parts()):
        found += more
    return found


def _present(part: Triples, n_groups: int) -> Present:
    sides = part.group * n_groups + part.other_group
    differing = np.bincount((2 * sides + part.is_favorable)[~part.is_same_decision], minlength=2 * n_groups**2)
    weights = np.bincount(part.group, part.weight / part.n_within[:, -1], minlength=n_groups)
    return Present(
        groups=_occurring(part.group),
        weights={code: float(weight) for code, weight in enumerate(weights) if weight > 0},
        labels=_occurring(part.label),
        decisions=_occurring(part.is_favorable.astype(np.int64)),
        between=frozenset((min(two), max(two)) for two in (divmod(code, n_groups) for code in _occurring(sides))),
        by={name: _occurring(codes) for name, codes in part.by.items()},
        largest_rank=int(part.rank.max(initial=0)),
        differing=differing.reshape(n_groups, n_groups, 2),
    )


def _occurring(codes: NDArray[np.signedinteger]) -> frozenset[int]:
    """Which of few codes occur."""
    return frozenset(np.flatnonzero(np.bincount(codes)).tolist())


def split_questions(
    design: Design, between: list[tuple[int, int]], present: Present
) -> list[tuple[str, str, Question[Triples]]]:
    """Split, value and question; every group is shown, even one without triples."""
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
        found += [("groups compared", _sides(design, sides), BetweenGroups(*sides)) for sides in order]
    for name, values in design.by.items():
        add(name, dict(enumerate(values)), present.by.get(name, frozenset()))
    return found


def _sides(design: Design, sides: tuple[int, int]) -> str:
    return f"{design.groups[sides[0]]} - {design.groups[sides[1]]}"
