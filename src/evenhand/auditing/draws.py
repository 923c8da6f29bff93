"""Audit each draw of groups known as probabilities, and pool the audits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from evenhand.auditing.batch import BatchFindings, audit_batch
from evenhand.auditing.compared import BatchEvidence
from evenhand.auditing.draw_estimates import Estimates, draw_estimates
from evenhand.auditing.drawn_groups import DrawnGroups
from evenhand.auditing.evidence import Evidence, excess_influences
from evenhand.auditing.identities import person_buckets
from evenhand.auditing.influences import Influences
from evenhand.auditing.people import People
from evenhand.auditing.pooled_parts import pooled_evidence, pooled_outcome, pooled_pairs
from evenhand.auditing.probable_groups import of_draw, of_threshold
from evenhand.auditing.questions import Design, main_questions, values_present
from evenhand.auditing.reference import AuditReference
from evenhand.auditing.result import AuditResult
from evenhand.auditing.score_gaps import estimate_score_gaps
from evenhand.auditing.summary import PairMetrics
from evenhand.auditing.triples import KeptTriples
from evenhand.metrics.clustering import estimate_excesses
from evenhand.metrics.pooling import pool
from evenhand.system.parallel import Threads

__all__ = ["pooled_over_draws"]


@dataclass(frozen=True, eq=False)
class _Draw:
    """The results from one draw of the groups."""

    evidence: Evidence | None
    pairs: PairMetrics
    estimates: Estimates


def pooled_over_draws(
    first: AuditResult, reference: AuditReference, found: BatchFindings, advance: Callable[[str], None]
) -> AuditResult:
    """The audit of the first draw, pooled with all other draws; the audit itself if groups are known.

    People are encoded once for all draws. Baselines, matches and explanations depend on the groups and are computed for
    each draw. What only the tables and charts of one draw need is computed for the first.

    Parameters
    ----------
    first, reference, found
        The audit of the first draw, what was fitted on it, and the results for its people.
    advance
        Called with a short text after each additional draw.
    """
    probable = found.people.probabilities
    if probable is None:
        return first
    against = first.outcome.approvals.reference
    draws = [_Draw(first.evidence, first.pair_metrics, draw_estimates(reference, found, first.evidence, against))]
    for number in range(1, probable.n_draws):
        drawn = of_draw(found.people, reference.pool, number, reference.settings.random_state)
        draws.append(_audited(reference, *drawn, against))
        advance(f"draw {number + 1} of {probable.n_draws}")
    estimates = [draw.estimates for draw in draws]
    pooled = {key: pool([draw[key] for draw in estimates]) for key in estimates[0]}
    sure = of_threshold(found.people, reference.pool)
    by_threshold = {} if sure is None else _audited(reference, *sure, against).estimates
    drawn_groups = DrawnGroups.of(found, pooled, by_threshold, against)
    evidence = [draw.evidence for draw in draws if draw.evidence is not None]
    return replace(
        first,
        outcome=pooled_outcome(first.outcome, pooled, drawn_groups.expected),
        evidence=pooled_evidence(evidence, estimates, pooled, reference.settings.random_state) if evidence else None,
        provenance=replace(first.provenance, groups={name: round(n) for name, n in drawn_groups.expected.items()}),
        warnings=(*drawn_groups.warnings, *first.warnings),
        pair_metrics=pooled_pairs(first.pair_metrics, [draw.pairs for draw in draws], pooled),
        drawn_groups=drawn_groups,
    )


def _audited(reference: AuditReference, people: People, pool_of_people: People, against: str) -> _Draw:
    """Audit the people in the groups of another draw, with score gaps relative to a given group."""
    fitted = AuditReference.of(reference.model, reference.settings, pool_of_people, len(people))
    found = audit_batch(fitted, people, {})
    evidence = None if found.evidence is None else _evidence(fitted, found.evidence, against)
    pairs = PairMetrics.of(found.sums, people.groups.names, (math.nan, math.nan), {})
    return _Draw(evidence, pairs, draw_estimates(fitted, found, evidence, against))


def _evidence(reference: AuditReference, found: BatchEvidence, against: str) -> Evidence:
    """The part of the evidence that is pooled; splits, weights and sensitivity come from the first draw only."""
    sums, settings = found.sums, reference.settings
    features = tuple(str(column) for column in reference.pool.table.columns)
    design = Design(features, reference.pool.groups.names, {}, settings.consistency_threshold)
    triples = KeptTriples(found.triples, len(reference.pool), sums.n_left_out)
    crew, present = Threads(torch.get_num_threads()), values_present(triples, len(design.groups))
    scores, _, *others = main_questions(design, present)
    main, (balanced,), (shared, overlap), (regime_b,) = estimate_excesses([scores, *others], triples, crew)
    buckets = person_buckets(reference.pool, settings.financial_features)
    gaps, of_gaps = estimate_score_gaps(reference, triples, features, against, buckets, present, crew)
    n = sums.compared or 1.0
    return Evidence(
        *(main[0], balanced, main[1], main[2], regime_b, shared, overlap),
        compared_mean=sums.compared_cec / n,
        placebo_mean=sums.placebo_cec / n,
        agreement=np.full((2, 2), np.nan),
        splits=(),
        features=(),
        weights=(),
        common_support=sums.n_supported / max(sums.n_asked, 1),
        without_support={},
        n_triples=sums.n_triples,
        by_distance=(),
        by_matches=(),
        regime_b_by_threshold=(),
        score_gaps=gaps,
        influences=Influences.of({**excess_influences(triples, design, present, buckets, crew), **of_gaps}),
    )
