"""Audit each draw of groups known as probabilities, and pool the audits."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch

from evenhand.auditing.batch import BatchFindings, audit_batch
from evenhand.auditing.drawn_groups import (
    DrawnGroups,
    Estimates,
    draw_estimates,
    pooled_evidence,
    pooled_outcome,
    pooled_pairs,
)
from evenhand.auditing.evidence import Evidence, Influences, estimate_score_gaps, excess_influences
from evenhand.auditing.fitted import Fitted
from evenhand.auditing.identity import person_buckets
from evenhand.auditing.result import AuditResult
from evenhand.auditing.summary import PairMetrics
from evenhand.auditing.triples import BatchEvidence
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.group_probabilities import FEWEST_EXPECTED
from evenhand.inputs.people import People
from evenhand.inputs.validation import Groups
from evenhand.metrics.excess import estimate_excesses
from evenhand.metrics.pooling import pool
from evenhand.metrics.triples import Design, KeptTriples, main_questions, values_present
from evenhand.system.threads import Threads


def with_first_draw(people: People, pool: People, random_state: int) -> tuple[People, People]:
    """The audited people and their pool in the groups of the first draw, if groups are known as probabilities.

    Raises
    ------
    InvalidInputError
        If only one of the two has probabilities, or their groups differ.
    """
    own, other = people.probabilities, pool.probabilities
    if own is None and other is None:
        return people, pool
    if own is None or other is None or own.names != other.names:
        raise InvalidInputError(
            "The audited people and the reference must both have `GroupProbabilities` with the same columns, or both "
            f"have groups, got {_known(people)} and {_known(pool)}; give probabilities for both."
        )
    if people.sample_weight is not None:
        raise InvalidInputError(
            "Groups known as probabilities cannot be audited with sampling weights yet: drop `sample_weight` "
            "(--sample-weight), or give groups."
        )
    return of_draw(people, pool, 0, random_state)


def of_draw(people: People, pool: People, number: int, random_state: int) -> tuple[People, People]:
    """The audited people and their pool, who may be the same, in the groups of a draw."""
    drawn = _drawn(people, number, random_state)
    return drawn, drawn if pool is people else _drawn(pool, number, random_state)


def of_threshold(people: People, pool: People) -> tuple[People, People] | None:
    """People who are likely enough to belong to a group, as members of it; None if too few are left in a group."""
    sure = _sure(people)
    sure_pool = sure if pool is people else _sure(pool)
    if min(*sure.groups.counts.values(), *sure_pool.groups.counts.values()) < FEWEST_EXPECTED:
        return None
    return sure, sure_pool


def _sure(people: People) -> People:
    assert people.probabilities is not None
    put = people.probabilities.thresholded
    rows = np.flatnonzero(put >= 0)
    known = replace(people, given_probabilities=None, probabilities=None).rows(rows)
    return replace(known, groups=Groups(put[rows], people.probabilities.names))


def _drawn(people: People, number: int, random_state: int) -> People:
    assert people.probabilities is not None
    return replace(people, groups=people.probabilities.drawn(number, random_state))


def _known(people: People) -> str:
    how = "groups" if people.probabilities is None else "probabilities of"
    return f"{how} {list(people.groups.names)}"


@dataclass(frozen=True, eq=False)
class _Draw:
    """The results from one draw of the groups."""

    evidence: Evidence | None
    pairs: PairMetrics
    estimates: Estimates


def pooled_over_draws(
    first: AuditResult, reference: Fitted, found: BatchFindings, advance: Callable[[str], None]
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


def _audited(reference: Fitted, people: People, pool_of_people: People, against: str) -> _Draw:
    """Audit the people in the groups of another draw, with score gaps relative to a given group."""
    is_pool = pool_of_people is people
    people = replace(people, by={})
    fitted = Fitted.of(reference.model, reference.settings, people if is_pool else pool_of_people, len(people))
    found = audit_batch(fitted, people)
    evidence = None if found.evidence is None else _evidence(fitted, found.evidence, against)
    pairs = PairMetrics.of(found.sums, people.groups.names, (math.nan, math.nan), {}, fitted.scope)
    return _Draw(evidence, pairs, draw_estimates(fitted, found, evidence, against))


def _evidence(reference: Fitted, found: BatchEvidence, against: str) -> Evidence:
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
