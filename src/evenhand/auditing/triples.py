"""Triples of people with placebo pairs, from which the evidence of an audit is estimated."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.arrays import Array, Bools, Floats, Ints, Sums, as_numpy, double, gpu_of, in_blocks, like, namespace
from evenhand.auditing.reasons import BatchReasons, agreement_sums
from evenhand.inputs.people import People
from evenhand.matching.leaves import Leaves
from evenhand.matching.placebos import N_NEAR, N_NEIGHBORS, PlaceboPairs, PlaceboReference
from evenhand.metrics.cec import PairScores
from evenhand.metrics.score_gap import FinanceControls, LeafPeople
from evenhand.metrics.triples import Triples
from evenhand.models.explaining import Explainer, HalvedExplainer
from evenhand.models.scoring import mean_over_leaves, score_triples
from evenhand.system.threads import return_freed_memory

_MANY = 200_000  # triples: more than a batch of a streamed audit has


@dataclass(frozen=True)
class EvidenceSums(Sums):
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


def return_much_freed_memory(n_triples: int) -> None:
    """Return what the step before has freed, where so many triples make it much: the next step needs other memory."""
    if n_triples > _MANY:
        return_freed_memory()


_BLOCK = 16_384  # people whose deviation is summed at once


@dataclass(frozen=True, eq=False)
class BatchEvidence:
    """The result of comparing a batch of people.

    Attributes
    ----------
    triples, leaf_people, sums
        The basis of all estimates.
    placebo_cec, over_gap, placebo_over_gap
        For each (person, other group), of shape (n_people, n_groups), NaN without a triple: the mean CEC score of the
        placebo pairs; the scores of the pairs, and of the placebo pairs, above what unequal finances explain.
    """

    triples: Triples
    leaf_people: LeafPeople
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
    leaves, leaf_explainer, controls
        Leaves of people with alike finances, the explainer of everyone in them from one baseline, and what is held
        constant within them.
    is_financial
        Which encoded inputs belong to financial features, of shape (d,).
    deviation
        Standard deviation of each input, of shape (d,).
    n_neighbors, n_triples
        Number of candidates of each kind, and largest number of triples of a person with a group.
    """

    placebos: PlaceboReference
    explainer: HalvedExplainer
    leaves: Leaves
    leaf_explainer: Explainer
    controls: FinanceControls
    is_financial: Array
    deviation: Array
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
        n_people: int,
        *,
        n_neighbors: int = N_NEIGHBORS,
        n_triples: int = N_NEAR,
    ) -> EvidenceReference:
        """Index the pool by its standardized financial features, to compare `n_people`."""
        placebos = PlaceboReference.of(
            points, pool.labels, pool.groups.codes, random_state, identity=pool.identity, device=gpu_of(pool.x)
        )
        half = pool.identity.halves(pool.cells)
        halved = HalvedExplainer.of(explainer, pool.x, pool.labels, pool.groups.codes, half, pool.sample_weight)
        leaves = Leaves.of(points, pool.labels, pool.identity.content, n_people)
        no_one = np.zeros(len(pool), dtype=np.int64)
        baseline = Explainer.of(
            explainer.model,
            pool.x,
            no_one,
            no_one,
            explainer.n_steps,
            explainer.method,
            sample_weight=pool.sample_weight,
        )
        return cls(
            placebos,
            halved,
            leaves,
            baseline,
            FinanceControls.of(leaves.scale.transform(points)),
            like(is_financial, pool.x),
            _deviation(pool.x, pool.sample_weight),
            n_neighbors,
            n_triples,
        )


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
    means = {name: pairs.person_mean(within * values) for name, values in _by_person(scored).items()}
    usable = _is_usable(scored)
    units = people.identity.first_rows() + first_person
    alike = reasons.of_triples(pairs)
    triples = _triples(people, pairs, scored, alike, usable, units, first_person, by, bucket, within)
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
    chosen = np.arange(len(people)) if compared is None else compared
    in_leaves = _leaf_people(reference, people, pool, points, chosen, decision_threshold, max_distance, by, bucket)
    return BatchEvidence(triples, in_leaves, sums, means["placebo_cec"], means["over_gap"], means["placebo_over_gap"])


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

    The columns of `pair` and `placebo` are cec and input gap; the reasoning gap is that of the one minus the other.
    """

    pair: Floats
    placebo: Floats
    reasoning_gap: Floats
    gap: Floats
    placebo_gap: Floats
    stretch: Floats
    is_favorable: Bools
    is_same_decision: Bools
    is_same_placebo_decision: Bools
    contributions: NDArray[np.float32]
    weights: NDArray[np.float32]


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
    rows = (scored.pair, scored.placebo, scored.reasoning_gap[:, None], scored.contributions, scored.weights)
    usable: Bools = np.logical_and.reduce([np.isfinite(values).all(axis=1) for values in rows])
    return usable & np.isfinite(scored.gap) & np.isfinite(scored.placebo_gap)


def _triples(
    people: People,
    pairs: PlaceboPairs,
    scored: _Scores,
    alike: tuple[Floats, Floats],
    usable: Bools,
    units: Ints,
    first_person: int,
    by: Mapping[str, Ints],
    bucket: Ints,
    within: Floats,
) -> Triples:
    kept = slice(None) if usable.all() else np.flatnonzero(usable)
    person, other_group, rank = pairs.person[kept], pairs.other_group[kept], pairs.rank[kept]
    n_groups = pairs.reason.shape[1]
    cell = person * n_groups + other_group
    limits = [*range(1, N_NEAR + 1), np.inf]
    n_within = [np.bincount(person, rank <= limit, minlength=len(people)).astype(np.int16)[person] for limit in limits]
    agreement = alike[0][kept, 0] - alike[0][kept, 1]
    declined = np.bincount(person, ~np.isnan(agreement[:, 0]), minlength=len(people))[person]
    return Triples(
        person=person + first_person,
        unit=units[person],
        person_row=pairs.person_unit[person].astype(np.int32),
        bucket=bucket[person].astype(np.int16),
        other=pairs.unit[pairs.other[kept]].astype(np.int32),
        own=pairs.unit[pairs.own[kept]].astype(np.int32),
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
        reasoning_gap=scored.reasoning_gap[kept],
        agreement=agreement,
        agreement_control=alike[1][kept],
        n_declined=declined.astype(np.int16),
        is_same_decision=scored.is_same_decision[kept],
        is_same_placebo_decision=scored.is_same_placebo_decision[kept],
        contributions=scored.contributions[kept],
        weights=scored.weights[kept],
        weight=people.weight[person] * within[kept],
        by={name: codes[person] for name, codes in by.items()},
    )


def _weights_within(pool: People, pairs: PlaceboPairs) -> Floats:
    """Weights of triples within the same person and group, with a mean of 1.

    The neighbors of a person are not drawn with equal probability either. Matches and placebos count by their sampling
    weights, so that each person is compared with neighbors as they are in the population. A triple's weight is that of
    its match times that of its placebo, which treats the two alike.
    """
    if pool.sample_weight is None:
        return np.ones(len(pairs))
    cell = pairs.person * pairs.reason.shape[1] + pairs.other_group
    weight = pool.sample_weight[pairs.other] * pool.sample_weight[pairs.own]
    share: Floats = weight * np.bincount(cell)[cell] / np.bincount(cell, weight)[cell]
    return share


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
        group.decided(as_numpy(probability(who.logit)), decision_threshold, rows)
        for who, group, rows in (
            (seen.person, people, pairs.person),
            (seen.match, pool, pairs.other),
            (seen.placebo, pool, pairs.own),
        )
    )
    result = _Scores(
        pair=np.empty((n, 2)),
        placebo=np.empty((n, 2)),
        reasoning_gap=np.empty(n),
        gap=np.empty(n),
        placebo_gap=np.empty(n),
        stretch=np.empty(n),
        is_favorable=decided,
        is_same_decision=decided == match_decided,
        is_same_placebo_decision=decided == placebo_decided,
        contributions=np.empty((n, n_features), dtype=np.float32),
        weights=np.empty((n, n_features), dtype=np.float32),
    )
    for block, part in score_triples(reference.explainer, seen, people.x, pool.x, pairs, reference.is_financial):
        result.pair[block], result.placebo[block] = _columns(part.pair), _columns(part.placebo)
        result.reasoning_gap[block] = as_numpy(part.reasoning_gap)
        result.gap[block], result.placebo_gap[block] = as_numpy(part.gap), as_numpy(part.placebo_gap)
        result.stretch[block] = as_numpy(part.stretch)
        result.contributions[block] = as_numpy(part.pair.contributions - part.placebo.contributions)
        result.weights[block] = as_numpy(part.weight_difference(reference.deviation))
    return result


def _leaf_people(
    reference: EvidenceReference,
    people: People,
    pool: People,
    points: Floats,
    chosen: Ints,
    decision_threshold: float,
    max_distance: float | None,
    by: Mapping[str, Ints],
    bucket: Ints,
) -> LeafPeople:
    """The chosen people, explained with the finances of their leaf's middle; actual decisions are kept.

    Probabilities and decisions bend and jump with finances, so that those at the middle are not those of the leaf: they
    are means over the finances of some in it.
    """
    leaves = reference.leaves
    leaf = leaves.leaf(points[chosen], people.labels[chosen])
    kept = (leaf >= 0) & (people.weight[chosen] > 0)
    if max_distance is not None:
        pool_points = reference.placebos.pool.points
        kept &= np.linalg.norm(points[chosen] - pool_points[leaves.row[leaf]], axis=1) <= max_distance
    chosen, leaf = chosen[kept], leaf[kept]
    blocks = zip(in_blocks(chosen, _BLOCK), in_blocks(leaf, _BLOCK), strict=True)
    values = np.concatenate([_in_leaves(reference, people, pool, *block, decision_threshold) for block in blocks])
    return LeafPeople(
        leaf=leaf.astype(np.int32),
        group=people.groups.codes[chosen].astype(np.int16),
        label=people.labels[chosen].astype(np.int8),
        person=people.identity.person[chosen],
        weight=people.weight[chosen],
        bucket=bucket[chosen].astype(np.int16),
        finances=leaves.scale.transform(points[chosen]),
        values=values,
        by={name: codes[chosen].astype(np.int32) for name, codes in by.items()},
    )


def _in_leaves(
    reference: EvidenceReference, people: People, pool: People, chosen: Ints, leaf: Ints, decision_threshold: float
) -> NDArray[np.float32]:
    """Attributions of some people at the middle of their leaves, their sum, and what is averaged over the leaves."""
    leaves, explainer = reference.leaves, reference.leaf_explainer
    rows, middle = (like(v, pool.x) for v in (chosen, leaves.row[leaf]))
    xp = namespace(pool.x)
    moved = xp.where(reference.is_financial, pool.x[middle], people.x[rows])
    explained = explainer.explain(moved, np.zeros(len(chosen), dtype=np.int64))
    parts = double(explained.values)
    if explainer.join is not None:
        parts = parts @ explainer.join

    def approved(logit: Array) -> Array:
        probability = double(explainer.model.probability(logit))
        # Without a model, there is no decision about someone with other finances; controls hold the finances equal.
        decided = people.decided(as_numpy(probability), decision_threshold, chosen)
        return xp.stack([probability, like(decided, probability, dtype=probability.dtype)], axis=-1)

    means = mean_over_leaves(
        explainer.model, leaves.members[leaf], people.x[rows], pool.x, reference.is_financial, approved
    )
    values = as_numpy(xp.concat([parts, parts.sum(-1)[:, None], means], axis=-1))
    return values.astype(np.float32)


def _columns(scores: PairScores) -> Floats:
    return np.stack([as_numpy(scores.cec), as_numpy(scores.input_gap)], axis=1)


def _deviation(x: Array, sample_weight: Floats | None) -> Array:
    """Standard deviation of each input over its known values, of shape (d,)."""
    values = as_numpy(x)
    weight = np.ones(len(values)) if sample_weight is None else sample_weight
    blocks = list(zip(in_blocks(values, _BLOCK), in_blocks(weight[:, None], _BLOCK), strict=True))

    def total(of: Callable[[NDArray[np.floating]], NDArray[Any]]) -> Floats:
        sums: Floats = np.sum([np.nansum(w * of(part), axis=0, dtype=np.float64) for part, w in blocks], axis=0)
        return sums

    known = total(lambda part: ~np.isnan(part)).clip(min=np.finfo(np.float64).tiny)
    center = total(lambda part: part) / known
    return like(np.sqrt(total(lambda part: (part - center) ** 2) / known), x)
