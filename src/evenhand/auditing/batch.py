"""The audit of one batch of people: matched, explained, scored and compared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.attribution import Explanation
from evenhand.auditing.pairs import ScoredPairs, score_batch_pairs
from evenhand.auditing.people import People
from evenhand.auditing.reference import AuditReference
from evenhand.auditing.sums import AuditSums, text_codes
from evenhand.auditing.triples import BatchEvidence, compare_batch
from evenhand.matching import Pairs
from evenhand.metrics.regimes import assign_regimes
from evenhand.models.protocol import AuditedModel

__all__ = ["BatchFindings", "audit_batch"]

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
        Of the people, by feature.
    evidence
        Its triples; None where no evidence is wanted.
    sums
        What the metrics are made from.
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

    def pair_table(self) -> pd.DataFrame:
        """The table of pairs: see `AuditResult`. People are numbered from 0, and q-values are not known yet."""
        pairs, scored = self.pairs, self.scored
        cell = (pairs.person, pairs.other_group)
        names = np.asarray(self.people.groups.names, dtype=object)
        return pd.DataFrame(
            {
                "person": pairs.person,
                "match": pairs.match,
                "distance": pairs.distance,
                "group": names[self.people.groups.codes[pairs.person]],
                "other_group": names[pairs.other_group],
                "label": self.people.labels[pairs.person],
                "score": self.score[pairs.person],
                "match_score": scored.match_score,
                "decision": self.decision[pairs.person],
                "match_decision": pd.Series(self.match_decision, dtype="Int64").mask(~scored.is_scored),
                "cec": scored.cec,
                "placebo_cec": np.nan if self.evidence is None else self.evidence.placebo_cec[cell],
                "input_gap": scored.input_gap,
                "reasoning_gap": scored.reasoning_gap,
                "regime": self.regime,
                "shared_reasons": scored.shared_reasons,
                "q_value": np.nan,
                "is_negligible": scored.is_negligible,
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
) -> BatchFindings:
    """Match, explain, score and compare a batch of people.

    What is found about a person does not depend on the others of the batch.

    Parameters
    ----------
    reference
        What was fitted once.
    people
        The batch, its groups in the codes of the reference.
    by
        Columns of the batch to split metrics by, as text.
    person_row
        Row of the reference that each person is, -1 for none; None for people who are all outside it. It may be left
        out where the batch is the reference itself.
    first_person
        Number of the first person of the batch.
    compared
        Rows of the batch for whom evidence is wanted; None for all.
    """
    pool, explainer, settings = reference.pool, reference.explainer, reference.settings
    if pool is people:
        person_row = np.arange(len(people))
    F = reference.model.financial_table(people.table, list(settings.financial_features))
    points = reference.matcher.points if pool is people else reference.matcher.space.transform(F)
    pairs = _matched(reference, people, F)
    own = explainer.explain(people.x, people.cells)
    scored = score_batch_pairs(explainer, own, people, pool, pairs)
    score: Floats = reference.model.probability(own.logit).cpu().numpy()
    decision = (score >= reference.decision_threshold).astype(np.int64)
    regime = np.full(len(pairs), None, dtype=object)
    done = scored.is_scored
    match_decision = (scored.match_score >= reference.decision_threshold).astype(np.int64)
    regime[done] = assign_regimes(
        decision[pairs.person[done]],
        match_decision[done],
        scored.cec[done],
        settings.consistency_threshold,
    )
    attributions = _joined_attributions(reference.model, own)
    evidence = None
    if reference.evidence is not None:
        evidence = compare_batch(
            reference.evidence,
            explainer,
            own,
            people,
            pool,
            points,
            person_row=person_row,
            first_person=first_person,
            decision_threshold=reference.decision_threshold,
            max_distance=settings.max_distance,
            by={name: text_codes(values)[1] for name, values in by.items()},
            compared=compared,
        )
    sums = AuditSums.of(
        reference, people, own, score, decision, pairs, points, scored, regime, attributions, evidence, by
    )
    return BatchFindings(
        people, own, score, decision, pairs, scored, match_decision, regime, attributions, evidence, sums
    )


def _matched(reference: AuditReference, people: People, F: pd.DataFrame) -> Pairs:
    limit = reference.settings.max_distance
    if reference.pool is people:
        return reference.matcher.match_members(limit)
    return reference.matcher.match(F, people.labels, np.asarray(people.groups.names)[people.groups.codes], limit)


def _joined_attributions(model: AuditedModel, own: Explanation) -> NDArray[np.float32]:
    join = model.join_matrix()
    joined: NDArray[np.float32] = (own.values if join is None else own.values @ join).float().cpu().numpy()
    return joined
