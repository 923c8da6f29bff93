"""Audit one batch of people: match, explain, score and compare them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.arrays import Bools, Floats, Ints
from evenhand.attribution import Explanation
from evenhand.auditing.fitted import Fitted, own_score
from evenhand.auditing.identity import people_prints, person_buckets
from evenhand.auditing.reasons import BatchReasons
from evenhand.auditing.triples import BatchEvidence, EvidenceSums, compare_batch
from evenhand.inputs.people import People
from evenhand.matching import MatchSums, Pairs
from evenhand.metrics.cec import REGIMES, assign_regimes
from evenhand.metrics.estimate import RowWeights
from evenhand.metrics.reason_codes import DeclinedPeople, ReasonCounts
from evenhand.models.explaining import Explainer
from evenhand.models.protocol import AuditedModel
from evenhand.models.scoring import score_pairs

_METRICS = ("cec", "input_gap", "reasoning_gap")


@dataclass(frozen=True)
class ScoredPairs:
    """Metrics of every pair, NaN if it could not be scored."""

    cec: Floats
    input_gap: Floats
    reasoning_gap: Floats
    is_negligible: Bools
    contributions: NDArray[np.float32]
    match_score: Floats
    match_attributions: NDArray[np.float32]

    @property
    def is_scored(self) -> Bools:
        """Whether a pair has a score."""
        return ~np.isnan(self.cec)


def score_batch_pairs(
    explainer: Explainer, own: Explanation, people: People, pool: People, pairs: Pairs
) -> ScoredPairs:
    """Scores of every pair whose person has a baseline and a match."""
    usable = np.flatnonzero((pairs.match >= 0) & explainer.has_baseline(people.cells)[pairs.person])
    person = pairs.person[usable]
    matches = explainer.see(pool.x, pairs.match[usable], people.cells[person])
    shape = (len(pairs.person), len(people.table.columns))
    scored = ScoredPairs(
        **{name: np.full(shape[0], np.nan) for name in (*_METRICS, "match_score")},
        is_negligible=np.zeros(shape[0], dtype=bool),
        contributions=np.zeros(shape, dtype=np.float32),
        match_attributions=np.full(shape, np.nan, dtype=np.float32),
    )
    scored.match_score[usable] = explainer.model.probability(matches.logit).cpu().numpy()
    for block, part in score_pairs(explainer, own, person, matches):
        rows = usable[block]
        for name in (*_METRICS, "is_negligible", "contributions"):
            getattr(scored, name)[rows] = getattr(part, name).cpu().numpy()
        scored.match_attributions[rows] = part.other.cpu().numpy()
    return scored


_MEANS = ("cec", "input_gap", "reasoning_gap")
_MOST_VALUES = 50  # a column with more values is not treated as a category that could reveal the group
_MOST_SCORES = 1 << 20
_STEPS_PER_LOGIT = 1 << 14
_LARGEST_LOGIT = 40.0  # beyond it, a probability is 0 or 1 in double precision


def text_codes(values: NDArray[np.str_]) -> tuple[tuple[str, ...], Ints]:
    """Distinct texts in order, and the place of each value among them.

    Examples
    --------
    >>> text_codes(np.array(["b", "a", "b"]))
    (('a', 'b'), array([1, 0, 1]))
    """
    names, codes = np.unique(values, return_inverse=True)
    return tuple(str(name) for name in names), codes.astype(np.int64)


@dataclass(frozen=True, eq=False)
class ScoreCounts:
    """How many people have each score, label, group and decision, and their weights; sorted by score.

    With more than about a million distinct rows, scores are rounded to 1/16,384 of a logit. The decisions are not
    affected; a score changes by less than 0.00001, and the area under the ROC curve by less than half the share of
    pairs with different labels that the rounding ties.
    """

    score: Floats
    group: Ints
    label: Ints
    decision: Ints
    count: Ints
    weight: Floats
    square: Floats

    @property
    def weights(self) -> RowWeights:
        """The weights of the rows."""
        return RowWeights(self.count, self.weight, self.square)

    @classmethod
    def of_people(cls, score: Floats, group: Ints, label: Ints, decision: Ints, weight: Floats) -> ScoreCounts:
        """Count people; those with a weight of 0 are not counted."""
        rows = np.flatnonzero(weight > 0)
        counted = weight[rows]
        # Equal scores may differ in their last digits between batches.
        columns = (np.round(score[rows], 12), group[rows], label[rows], decision[rows])
        return cls.of(*columns, np.ones(len(rows), dtype=np.int64), counted, counted**2)

    @classmethod
    def of(
        cls, score: Floats, group: Ints, label: Ints, decision: Ints, count: Ints, weight: Floats, square: Floats
    ) -> ScoreCounts:
        """Join rows with the same score, group, label and decision."""
        order = _by_score(score, (group * 2 + label) * 2 + decision)
        rows = [values[order] for values in (score, group, label, decision)]
        is_new = np.ones(len(order), dtype=bool)
        if len(order):
            is_new[1:] = np.logical_or.reduce([values[1:] != values[:-1] for values in rows])
        first = np.flatnonzero(is_new)

        def total(values: NDArray[Any]) -> NDArray[Any]:
            return np.add.reduceat(values[order], first) if len(first) else values[:0]

        kept = order[first]
        found = cls(score[kept], group[kept], label[kept], decision[kept], total(count), total(weight), total(square))
        return found if len(first) <= _MOST_SCORES else found._rounded()

    def __add__(self, other: ScoreCounts) -> ScoreCounts:
        joined = [np.concatenate([getattr(self, f.name), getattr(other, f.name)]) for f in fields(self)]
        return ScoreCounts.of(*joined)

    def _rounded(self) -> ScoreCounts:
        with np.errstate(divide="ignore"):
            logit = np.clip(np.log(self.score) - np.log1p(-self.score), -_LARGEST_LOGIT, _LARGEST_LOGIT)
        logit = np.round(logit * _STEPS_PER_LOGIT) / _STEPS_PER_LOGIT
        score = 1 / (1 + np.exp(-logit))
        if (score == self.score).all():
            return self
        return ScoreCounts.of(score, self.group, self.label, self.decision, self.count, self.weight, self.square)


def _by_score(score: Floats, code: Ints) -> Ints:
    """The order by score, then by code; fast if the scores consist of a few ordered parts."""
    by_score = np.argsort(score, kind="stable")
    ordered = score[by_score]
    place = np.zeros(len(score), dtype=np.int64)
    place[1:] = np.cumsum(ordered[1:] != ordered[:-1])
    order: Ints = by_score[np.argsort(place * (code.max(initial=0) + 1) + code[by_score], kind="stable")]
    return order


@dataclass(frozen=True, eq=False)
class ClusteredPeople(ScoreCounts):
    """Counted people one by one, kept where clusters are given, because a cluster may have people in several batches.

    Attributes
    ----------
    cluster
        The hash of each person's cluster; once all batches are together (`joined`), its number, and 0 for a person who
        is alone.
    reasons
        Principal reasons of the declined, of shape (n, k).
    by
        Values of each column to split by.
    """

    cluster: NDArray[np.uint64] | Ints
    reasons: Ints
    by: Mapping[str, NDArray[np.str_]]

    @property
    def weights(self) -> RowWeights:
        """The weights and clusters of the people."""
        return replace(super().weights, clusters=self.cluster.astype(np.int64))

    @property
    def declined(self) -> DeclinedPeople:
        """The declined, with their reasons."""
        rows = self.decision == 0
        return DeclinedPeople(self.reasons[rows], self.group[rows], self.weights.rows(rows))

    def __add__(self, other: ScoreCounts) -> ClusteredPeople:
        assert isinstance(other, ClusteredPeople)
        plain = {f.name: np.concatenate([getattr(self, f.name), getattr(other, f.name)]) for f in fields(self)[:-1]}
        by = {name: np.concatenate([values, other.by[name]]) for name, values in self.by.items()}
        return ClusteredPeople(**plain, by=by)

    def joined(self) -> ClusteredPeople | None:
        """The people of all batches, in an order that does not depend on the batches; None if everyone is alone."""
        hashes, code, size = np.unique(self.cluster, return_inverse=True, return_counts=True)
        shared = (size > 1) & (hashes != 0)
        if not shared.any():
            return None
        number = np.where(shared, np.cumsum(shared), 0)[code]
        keys = (*self.by.values(), *self.reasons.T, self.weight, self.decision, self.label, self.group)
        order = np.lexsort((*keys, self.cluster, self.score))
        plain = {f.name: getattr(self, f.name)[order] for f in fields(self)[:-1]}
        by = {name: values[order] for name, values in self.by.items()}
        return replace(ClusteredPeople(**plain, by=by), cluster=number[order])


@dataclass(frozen=True, eq=False)
class AuditSums:
    """Counts and sums over people and pairs; those of parts of the people can be added.

    Attributes
    ----------
    n_people
        Number of people of each group, of shape (G,).
    n_without_baseline
        People whose label and group have no one in the reference.
    scores
        How many people have each score.
    approvals
        For each column to split by and each of its values, people of each group by decision: their number, and the sums
        of their weights and squared weights, of shape (G, 2, 3).
    weights
        For each group, the people who are counted, and sums of their weights and squared weights, of shape (G, 3).
    n_scored, scored, pair_means
        Counted scored pairs of each group, the sum of their weights, and weighted sums of their cec, input gap and
        reasoning gap, of shape (G, 3).
    regimes
        Weight of the pairs of each group and regime, of shape (G, 4).
    n_negligible, contributions
        Pairs with an attribution too short to have a direction; weighted sum of each feature's part of the scores.
    attributions
        Weighted sums over people, by group and feature.
    completeness_gap, moved
        Sums over people of the completeness gap of attributions, and of the distance of the logit from the baseline's.
    error_squares, value_squares
        Sums of squared standard errors of attributions, if they are sampled, and of squared attributions.
    values_by_group
        For each column with few values, the groups in which each value occurs, as text; None for other columns.
    matching, evidence
        Sums over matches and triples.
    attribution_method
        How attributions were computed.
    prints
        Prints that show whether two audits are of the same people: see `auditing.identities.people_prints`.
    reasons
        Sums over declined people.
    people
        The people one by one, if clusters are given.
    """

    n_people: Ints
    n_without_baseline: int
    scores: ScoreCounts
    approvals: Mapping[str, Mapping[str, Floats]]
    weights: Floats
    n_scored: Ints
    scored: Floats
    pair_means: Floats
    regimes: Floats
    n_negligible: int
    contributions: Floats
    attributions: Floats
    completeness_gap: float
    moved: float
    error_squares: float | None
    value_squares: float
    values_by_group: Mapping[str, Mapping[str, tuple[int, ...]] | None]
    matching: MatchSums
    evidence: EvidenceSums | None
    attribution_method: str
    prints: NDArray[np.uint64]
    reasons: ReasonCounts
    people: ClusteredPeople | None = None

    @cached_property
    def clustered(self) -> ClusteredPeople | None:
        """The people of all batches, if some are of the same cluster."""
        return None if self.people is None else self.people.joined()

    @property
    def rows(self) -> ScoreCounts:
        """People by score, label, group and decision, or one by one if some are of the same cluster."""
        return self.clustered or self.scores

    @classmethod
    def of(
        cls,
        reference: Fitted,
        people: People,
        own: Explanation,
        score: Floats,
        decision: Ints,
        pairs: Pairs,
        points: Floats,
        scored: ScoredPairs,
        regime: NDArray[np.object_],
        attributions: NDArray[np.float32],
        evidence: BatchEvidence | None,
        reasons: BatchReasons,
    ) -> AuditSums:
        """The sums of a batch."""
        codes, n_groups = people.groups.codes, len(people.groups.names)
        done = scored.is_scored
        weight, group = people.weight, codes[pairs.person[done]]
        of_pair = weight[pairs.person[done]]
        place = pd.Index(REGIMES).get_indexer(pd.Index(regime[done]))
        error = own.standard_error
        return cls(
            n_people=np.bincount(codes, minlength=n_groups),
            n_without_baseline=int((~reference.explainer.has_baseline(people.cells)).sum()),
            scores=ScoreCounts.of_people(score, codes, people.labels, decision, weight),
            approvals={
                name: _approvals(values, codes, decision, weight, n_groups) for name, values in people.by.items()
            },
            weights=_weights(codes, weight, n_groups),
            n_scored=np.bincount(group[of_pair > 0], minlength=n_groups),
            scored=_sums(group, of_pair, n_groups),
            pair_means=np.column_stack(
                [_sums(group, of_pair * getattr(scored, name)[done], n_groups) for name in _MEANS]
            ),
            regimes=_sums(group * 4 + place, of_pair, 4 * n_groups).reshape(n_groups, 4),
            n_negligible=int(scored.is_negligible.sum()),
            contributions=_weighted_sum(scored.contributions, people.sample_weight, pairs.person),
            attributions=np.stack(
                [
                    _weighted_sum(attributions[rows], people.sample_weight, rows)
                    for rows in (np.flatnonzero(codes == code) for code in range(n_groups))
                ]
            ),
            completeness_gap=float(own.completeness_gap.double().sum()),
            moved=float((own.logit - own.baseline_logit).abs().double().sum()),
            error_squares=None if error is None else float(error.double().square().sum()),
            value_squares=float(own.values.double().square().sum()),
            values_by_group=_values_by_group(people),
            matching=MatchSums.of(pairs, points, reference.matcher.points, people.sample_weight),
            evidence=None if evidence is None else evidence.sums,
            attribution_method=own.method,
            prints=people_prints(people),
            reasons=reasons.counts(people.groups, pairs.person),
            people=_clustered(people, score, decision, reasons),
        )

    def __add__(self, other: AuditSums) -> AuditSums:
        def added(name: str) -> Any:
            first, second = getattr(self, name), getattr(other, name)
            return None if first is None or second is None else first + second

        special: dict[str, Any] = {
            "approvals": {
                name: _joined_approvals(values, other.approvals[name]) for name, values in self.approvals.items()
            },
            "values_by_group": {
                name: _joined_values(values, other.values_by_group[name])
                for name, values in self.values_by_group.items()
            },
            "attribution_method": self.attribution_method,
        }
        return AuditSums(**{f.name: added(f.name) for f in fields(self) if f.name not in special}, **special)


def _clustered(people: People, score: Floats, decision: Ints, reasons: BatchReasons) -> ClusteredPeople | None:
    if people.clusters is None:
        return None
    rows = np.flatnonzero(people.weight > 0)
    weight = people.weight[rows]
    return ClusteredPeople(
        score=score[rows],
        group=people.groups.codes[rows],
        label=people.labels[rows],
        decision=decision[rows],
        count=np.ones(len(rows), dtype=np.int64),
        weight=weight,
        square=weight**2,
        cluster=people.clusters[rows],
        reasons=reasons.people.codes[rows],
        by={name: values[rows] for name, values in people.by.items()},
    )


def _weights(codes: Ints, weight: Floats, n_codes: int) -> Floats:
    """Counted people of each code, and sums of their weights and squared weights, of shape (n_codes, 3)."""
    return np.column_stack([_sums(codes, values, n_codes) for values in (weight > 0, weight, weight**2)])


def _sums(codes: Ints, values: NDArray[Any], n_codes: int) -> Floats:
    return np.bincount(codes, values, minlength=n_codes).astype(np.float64)


def _weighted_sum(rows: NDArray[np.float32], sample_weight: Floats | None, person: Ints) -> Floats:
    """The sum of the rows, each multiplied by 1 or by its person's weight."""
    found: Floats = (
        rows.sum(axis=0, dtype=np.float64)
        if sample_weight is None
        else np.einsum("i,ij->j", sample_weight[person], rows, dtype=np.float64)
    )
    return found


def _approvals(
    values: NDArray[np.str_], codes: Ints, decision: Ints, weight: Floats, n_groups: int
) -> dict[str, Floats]:
    names, place = text_codes(values)
    found = _weights((place * n_groups + codes) * 2 + decision, weight, len(names) * n_groups * 2)
    return dict(zip(names, found.reshape(-1, n_groups, 2, 3), strict=True))


def _joined_approvals(first: Mapping[str, Floats], second: Mapping[str, Floats]) -> dict[str, Floats]:
    return {
        name: sum((counts[name] for counts in (first, second) if name in counts), np.zeros((1, 1, 1)))
        for name in sorted({*first, *second})
    }


def _values_by_group(people: People) -> dict[str, dict[str, tuple[int, ...]] | None]:
    """Values of each discrete column, and the groups that have them."""
    found: dict[str, dict[str, tuple[int, ...]] | None] = {}
    for column in people.table.columns:
        codes, values = pd.factorize(people.table[column], use_na_sentinel=False)
        if len(values) > _MOST_VALUES:
            found[str(column)] = None
            continue
        distinct = pd.Series(values)
        text = distinct.astype(object).where(distinct.notna(), None).map(str).to_numpy(dtype=str)
        names, place = text_codes(text)
        occurs = np.zeros((len(names), len(people.groups.names)), dtype=bool)
        occurs[place[codes], people.groups.codes] = True
        found[str(column)] = {
            name: tuple(np.flatnonzero(row).tolist()) for name, row in zip(names, occurs, strict=True)
        }
    return found


def _joined_values(
    first: Mapping[str, tuple[int, ...]] | None, second: Mapping[str, tuple[int, ...]] | None
) -> dict[str, tuple[int, ...]] | None:
    if first is None or second is None:
        return None
    names = sorted({*first, *second})
    if len(names) > _MOST_VALUES:
        return None
    return {name: tuple(sorted({*first.get(name, ()), *second.get(name, ())})) for name in names}


BATCH_STEPS = 4
"""Number of steps that `audit_batch` reports."""


@dataclass(frozen=True, eq=False)
class BatchFindings:
    """What was found about a batch of people.

    Attributes
    ----------
    people, own, score, decision
        The batch, its attributions, probabilities of the favorable outcome and decisions.
    pairs, scored, match_decision, regime
        Its pairs, their scores, the match's decisions and regimes; None for a pair without a score.
    attributions
        Attributions of the people, by feature.
    evidence
        Its triples; None if no evidence is wanted.
    sums
        The sums from which the metrics are computed.
    fitted
        What was fitted before the batches.
    reasons
        Principal reasons of the people, and how much pairs have in common.
    """

    people: People
    own: Explanation
    score: Floats
    decision: Ints
    pairs: Pairs
    scored: ScoredPairs
    match_decision: Ints
    regime: NDArray[np.object_]
    attributions: NDArray[np.float32]
    evidence: BatchEvidence | None
    sums: AuditSums
    fitted: Fitted
    reasons: BatchReasons

    def pair_table(self) -> pd.DataFrame:
        """The table of pairs: see `AuditResult`. People are numbered from 0, and q-values are not known yet.

        What cannot be known from what was given is missing.
        """
        pairs, scored, people, scope = self.pairs, self.scored, self.people, self.fitted.scope
        settings, match_ids = self.fitted.settings, self.fitted.pool.ids
        favorable, lost = settings.favorable or "high", scope.not_possible
        names = np.asarray(people.groups.names, dtype=object)
        placebo = None if self.evidence is None else self.evidence.placebo_cec[pairs.person, pairs.other_group]
        further: dict[str, NDArray[Any]] = {}
        if people.ids is not None:
            further["person_id"] = people.ids[pairs.person]
        if match_ids is not None:
            further["match_id"] = match_ids[pairs.match]
            further["match_id"][pairs.match < 0] = None
        if people.sample_weight is not None:
            further["sample_weight"] = people.sample_weight[pairs.person]

        def known(values: Any, is_known: bool, missing: Any = np.nan) -> Any:
            return values if is_known and values is not None else missing

        has_scores, is_weighed, nobody = scope.outcome != "decision", "weighing" not in lost, pd.NA
        match_decision = pd.Series(self.match_decision, dtype="Int64").mask(~scored.is_scored)
        table = pd.DataFrame(
            {
                "person": pairs.person,
                "match": pairs.match,
                "distance": pairs.distance,
                "group": names[people.groups.codes[pairs.person]],
                "other_group": names[pairs.other_group],
                "label": known(people.labels[pairs.person], scope.labels, nobody),
                "score": known(own_score(self.score[pairs.person], favorable, settings.unit), has_scores),
                "match_score": known(own_score(scored.match_score, favorable, settings.unit), has_scores),
                "decision": known(self.decision[pairs.person], scope.decisions, nobody),
                "match_decision": known(match_decision, scope.decisions, nobody),
                "cec": known(scored.cec, scope.attributions),
                "placebo_cec": known(placebo, scope.attributions),
                "input_gap": known(scored.input_gap, is_weighed),
                "reasoning_gap": known(scored.reasoning_gap, is_weighed),
                "regime": known(self.regime, "regimes" not in lost, None),
                "shared_reasons": known(self.reasons.agreement[:, 0], scope.attributions),
                "q_value": np.nan,
                "is_negligible": known(scored.is_negligible, scope.attributions, False),
                **further,
            }
        )
        unknown = [*([] if scope.labels else ["label"]), *([] if scope.decisions else ["decision", "match_decision"])]
        return table.astype(dict.fromkeys(unknown, "Int64"))


def audit_batch(
    reference: Fitted,
    people: People,
    *,
    person_row: Ints | None = None,
    first_person: int = 0,
    compared: Ints | None = None,
    advance: Callable[[str], None] = lambda step: None,
) -> BatchFindings:
    """Match, explain, score and compare a batch of people.

    The results for a person do not depend on the other people of the batch.

    Parameters
    ----------
    reference
        What was fitted once, before the batches.
    people
        The batch, with the group codes of the reference.
    person_row
        The row of each person in the reference, -1 if not in it; None if no one is in it. May be omitted if the batch
        is the reference itself.
    first_person
        Number of the first person of the batch.
    compared
        Rows of the batch that need evidence; None for all.
    advance
        Called with a short text after each of the `BATCH_STEPS` steps.
    """
    pool, explainer, settings = reference.pool, reference.explainer, reference.settings
    if pool is people:
        person_row = np.arange(len(people))
    F = reference.model.financial_table(people.table, list(settings.financial_features))
    points = reference.matcher.points if pool is people else reference.matcher.space.transform(F)
    pairs = _matched(reference, people, F)
    advance("matched")
    own = explainer.explain(people.x, people.cells)
    advance("explained")
    scored = score_batch_pairs(explainer, own, people, pool, pairs)
    advance("scored")
    score: Floats = reference.model.probability(own.logit).cpu().numpy()
    decision = people.decided(score, reference.approval_threshold).astype(np.int64)
    match_decision = pool.decided(scored.match_score, reference.approval_threshold, pairs.match).astype(np.int64)
    regime = _regimes(decision[pairs.person], match_decision, scored, settings.consistency_threshold)
    attributions = _joined_attributions(reference.model, own)
    matches = np.where(scored.is_scored, pairs.match, -1)
    reasons = reference.reasons.of_batch(people, decision, pairs.person, matches, is_pool=pool is people)
    evidence = None
    if reference.evidence is not None:
        evidence = compare_batch(
            reference.evidence,
            people,
            pool,
            points,
            person_row=person_row,
            first_person=first_person,
            decision_threshold=reference.approval_threshold,
            max_distance=settings.max_distance,
            by={name: text_codes(values)[1] for name, values in people.by.items()},
            bucket=person_buckets(people, settings.financial_features),
            reasons=reasons,
            compared=compared,
        )
    advance("compared")
    sums = AuditSums.of(
        reference, people, own, score, decision, pairs, points, scored, regime, attributions, evidence, reasons
    )
    return BatchFindings(
        people,
        own,
        score,
        decision,
        pairs,
        scored,
        match_decision,
        regime,
        attributions,
        evidence,
        sums,
        reference,
        reasons,
    )


def _regimes(decision: Ints, match_decision: Ints, scored: ScoredPairs, threshold: float) -> NDArray[np.object_]:
    """The regime of each pair; None without a score."""
    done = scored.is_scored
    regime = np.full(len(done), None, dtype=object)
    regime[done] = assign_regimes(decision[done], match_decision[done], scored.cec[done], threshold)
    return regime


def _matched(reference: Fitted, people: People, F: pd.DataFrame) -> Pairs:
    limit = reference.settings.max_distance
    if reference.pool is people:
        return reference.matcher.match_members(limit)
    return reference.matcher.match(F, people.labels, np.asarray(people.groups.names)[people.groups.codes], limit)


def _joined_attributions(model: AuditedModel, own: Explanation) -> NDArray[np.float32]:
    join = model.join_matrix()
    joined: NDArray[np.float32] = (own.values if join is None else own.values @ join).float().cpu().numpy()
    return joined
