"""Audit one batch of people: match, explain, score and compare them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.attribution import Explanation
from evenhand.auditing.compared import BatchEvidence, compare_batch
from evenhand.auditing.direction import own_score
from evenhand.auditing.identities import person_buckets
from evenhand.auditing.options import Favorable
from evenhand.auditing.pairs import ScoredPairs, score_batch_pairs
from evenhand.auditing.people import People
from evenhand.auditing.reason_reference import BatchReasons
from evenhand.auditing.reference import AuditReference
from evenhand.auditing.sums import AuditSums, text_codes
from evenhand.matching import Pairs
from evenhand.metrics.regimes import assign_regimes
from evenhand.models.explaining import Explainer
from evenhand.models.protocol import AuditedModel

__all__ = ["BATCH_STEPS", "BatchFindings", "audit_batch", "explained_by_label"]

BATCH_STEPS = 4
"""Number of steps that `audit_batch` reports."""

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


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
    favorable
        Which of the model's scores are good; the table of pairs holds the model's scores.
    match_ids
        The user's ids of the people of the reference, if given.
    unit
        Unit of a score that is not a probability.
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
    favorable: Favorable
    match_ids: NDArray[np.object_] | None
    unit: str | None
    reasons: BatchReasons

    def pair_table(self) -> pd.DataFrame:
        """The table of pairs: see `AuditResult`. People are numbered from 0, and q-values are not known yet."""
        pairs, scored = self.pairs, self.scored
        cell = (pairs.person, pairs.other_group)
        names = np.asarray(self.people.groups.names, dtype=object)
        further: dict[str, NDArray[Any]] = {}
        if self.people.ids is not None:
            further["person_id"] = self.people.ids[pairs.person]
        if self.match_ids is not None:
            further["match_id"] = self.match_ids[pairs.match]
            further["match_id"][pairs.match < 0] = None
        if self.people.sample_weight is not None:
            further["sample_weight"] = self.people.sample_weight[pairs.person]
        return pd.DataFrame(
            {
                "person": pairs.person,
                "match": pairs.match,
                "distance": pairs.distance,
                "group": names[self.people.groups.codes[pairs.person]],
                "other_group": names[pairs.other_group],
                "label": self.people.labels[pairs.person],
                "score": own_score(self.score[pairs.person], self.favorable, self.unit),
                "match_score": own_score(scored.match_score, self.favorable, self.unit),
                "decision": self.decision[pairs.person],
                "match_decision": pd.Series(self.match_decision, dtype="Int64").mask(~scored.is_scored),
                "cec": scored.cec,
                "placebo_cec": np.nan if self.evidence is None else self.evidence.placebo_cec[cell],
                "input_gap": scored.input_gap,
                "reasoning_gap": scored.reasoning_gap,
                "regime": self.regime,
                "shared_reasons": self.reasons.agreement[:, 0],
                "q_value": np.nan,
                "is_negligible": scored.is_negligible,
                **further,
            }
        )


def audit_batch(
    reference: AuditReference,
    people: People,
    by: Mapping[str, NDArray[np.str_]],
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
    by
        Columns by which to split the metrics, as text.
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
            by={name: text_codes(values)[1] for name, values in by.items()},
            bucket=person_buckets(people, settings.financial_features),
            reasons=reasons,
            compared=compared,
        )
    advance("compared")
    sums = AuditSums.of(
        reference, people, own, score, decision, pairs, points, scored, regime, attributions, evidence, by, reasons
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
        settings.favorable or "high",
        pool.ids,
        settings.unit,
        reasons,
    )


def explained_by_label(reference: AuditReference, people: People) -> Callable[[], NDArray[np.float32]]:
    """Return a function that explains people from the mean of their label, whatever their group, by feature.

    The audit explains people from the mean of their group, which would reveal the group to anyone who compares the
    explanations of different people.
    """
    pool, explainer = reference.pool, reference.explainer
    one_group = np.zeros(len(pool), dtype=np.int64)
    by_label = Explainer.of(
        reference.model,
        pool.x,
        pool.labels,
        one_group,
        explainer.n_steps,
        explainer.method,
        sample_weight=pool.sample_weight,
    )
    return partial(_explained, by_label, people)


def _explained(explainer: Explainer, people: People) -> NDArray[np.float32]:
    return _joined_attributions(explainer.model, explainer.explain(people.x, people.labels))


def _regimes(decision: Ints, match_decision: Ints, scored: ScoredPairs, threshold: float) -> NDArray[np.object_]:
    """The regime of each pair; None without a score."""
    done = scored.is_scored
    regime = np.full(len(done), None, dtype=object)
    regime[done] = assign_regimes(decision[done], match_decision[done], scored.cec[done], threshold)
    return regime


def _matched(reference: AuditReference, people: People, F: pd.DataFrame) -> Pairs:
    limit = reference.settings.max_distance
    if reference.pool is people:
        return reference.matcher.match_members(limit)
    return reference.matcher.match(F, people.labels, np.asarray(people.groups.names)[people.groups.codes], limit)


def _joined_attributions(model: AuditedModel, own: Explanation) -> NDArray[np.float32]:
    join = model.join_matrix()
    joined: NDArray[np.float32] = (own.values if join is None else own.values @ join).float().cpu().numpy()
    return joined
