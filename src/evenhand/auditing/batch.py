"""Audit one batch of people: match, explain, score and compare them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.arrays import Bools, Floats, Ints, as_numpy, like, text_codes
from evenhand.attribution.explanation import Explanation
from evenhand.auditing.fitted import Fitted, own_score
from evenhand.auditing.identity import person_buckets
from evenhand.auditing.reasons import BatchReasons
from evenhand.auditing.triples import BatchEvidence, compare_batch
from evenhand.inputs.people import People
from evenhand.matching.pairs import Pairs
from evenhand.metrics.cec import assign_regimes
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
    scored.match_score[usable] = as_numpy(explainer.model.probability(matches.logit))
    for block, part in score_pairs(explainer, own, person, matches):
        rows = usable[block]
        for name in (*_METRICS, "is_negligible", "contributions"):
            getattr(scored, name)[rows] = as_numpy(getattr(part, name))
        scored.match_attributions[rows] = as_numpy(part.other)
    return scored


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
    points
        Its standardized financial features.
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
    points: Floats
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
    score: Floats = as_numpy(reference.model.probability(own.logit))
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
        points,
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
    values = own.values if join is None else own.values @ like(join, own.values)
    return as_numpy(values).astype(np.float32, copy=False)
