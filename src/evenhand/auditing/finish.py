"""Assemble the result of an audit from the output of its batches."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.arrays import Floats, quantiles_of_parts, weighted_quantiles_of_parts
from evenhand.auditing.batches import AuditSums, FinishedBatches, Merged
from evenhand.auditing.evidence import gather_evidence, write_q_values
from evenhand.auditing.fitted import Fitted
from evenhand.auditing.identity import fingerprint_of, shown_prints
from evenhand.auditing.reservations import reservations_of, reservations_on_reasons
from evenhand.auditing.result import AuditResult
from evenhand.auditing.sample import PairSource
from evenhand.auditing.sections import SECTIONS
from evenhand.auditing.sections.drawn import Weighting
from evenhand.auditing.sections.features import feature_table_of
from evenhand.auditing.sections.matching import Matching
from evenhand.auditing.sections.outcome import outcome_of
from evenhand.auditing.sections.pairs import PairMetrics
from evenhand.auditing.sections.proxies import screen_for_proxies
from evenhand.auditing.sections.reasons import reasons_of
from evenhand.auditing.summary import Provenance
from evenhand.matching import MatchDiagnostics, MatchSums
from evenhand.matching.diagnostics import QUANTILES
from evenhand.system.threads import one_thread_each

FINISHING_STEPS = 5
"""Number of steps that `assemble` reports."""


@one_thread_each()
def finish(
    reference: Fitted,
    batches: FinishedBatches,
    merged: Merged,
    source: PairSource,
    *,
    n_reference: int | None,
    hashes: Mapping[str, str],
    files: Mapping[str, str] | None = None,
    notes: Sequence[str] = (),
    stream: Mapping[str, Any] | None = None,
    folder: Path | None = None,
    advance: Callable[[str], None] = lambda step: None,
) -> AuditResult:
    """Assemble the result of an audit.

    Parameters
    ----------
    reference
        What was fitted once, before the batches.
    batches, merged
        The output of the batches, and their merged sums; q-values are added to their pair tables.
    source
        Where the pairs and their people are stored.
    n_reference
        Number of people in the reference; None if the audited people are the reference.
    hashes
        SHA-256 of what was read besides the audited people.
    files
        Names of the files that were read.
    notes
        Reservations about the data, which come last in the result.
    stream, folder
        Details of a streamed audit.
    advance
        Called with a short text after each of the `FINISHING_STEPS` steps.
    """
    sums, settings = merged.sums, reference.settings
    names = reference.pool.groups.names
    weighting = None if reference.pool.sample_weight is None else Weighting.of(sums, names)
    matching = _matching(reference, batches, merged)
    scope = reference.scope
    median, p90 = _pair_quantiles(reference, batches, merged, "cec", (0.5, 0.9))
    pairs = PairMetrics.of(sums, names, (median, p90), scope, is_weighted=weighting is not None)
    advance("quantiles")
    outcome = outcome_of(reference, sums)
    advance("outcomes")
    evidence = screen = None
    if sums.evidence is not None:
        write_q_values(batches, merged.numbers, len(names))
        advance("q-values")
        evidence = gather_evidence(reference, batches, merged, outcome.approvals.reference)
        advance("excess")
        screen = screen_for_proxies(batches, merged.numbers, names, settings.random_state)
        advance("proxies")
    columns = [str(column) for column in reference.pool.table.columns]
    prints = shown_prints(sums.prints, columns)
    provenance = _provenance(sums, reference, names, n_reference, merged.exclusions, prints, hashes, files or {})
    reservations = reservations_of(sums, provenance, reference, matching, pairs, outcome.metrics, evidence)
    reasons = reasons_of(reference, sums, outcome.approvals.reference, evidence)
    reservations += reservations_on_reasons(reasons, reference.reasons.reason_map, provenance.group_columns)
    parts = ((section.key, section.of(reference, sums)) for section in SECTIONS if section.is_possible(scope))
    return AuditResult(
        features=feature_table_of(reference, sums, evidence),
        outcome=outcome,
        matching=matching,
        evidence=evidence,
        proxies=screen,
        settings=settings.of_metrics,
        report=settings.report,
        provenance=provenance,
        warnings=(*reservations, *(weighting.reservations() if weighting else ()), *notes),
        pair_metrics=pairs,
        source=source,
        stream=stream,
        folder=folder,
        weighting=weighting,
        # Shares of reasons are not weighted.
        reason_codes=reasons if sums.scores.weights.is_equal and scope.attributions and scope.decisions else None,
        sections={key: part for key, part in parts if part is not None},
        scope=None if scope.is_whole else scope,
    )


def _matching(reference: Fitted, batches: FinishedBatches, merged: Merged) -> MatchDiagnostics:
    matcher = reference.matcher
    distances = _pair_quantiles(reference, batches, merged, "distance", QUANTILES)
    sums: MatchSums = merged.sums.sections[Matching.key]
    return sums.diagnostics(
        dict(zip(QUANTILES, distances, strict=True)),
        matcher.points,
        matcher.groups,
        matcher.group_names,
        matcher.space,
        reference.pool.sample_weight,
    )


def _pair_quantiles(
    reference: Fitted, batches: FinishedBatches, merged: Merged, column: str, shares: Sequence[float]
) -> list[float]:
    """Quantiles of a column of the pair table over pairs that have a value; weighted if people have weights."""
    if reference.pool.sample_weight is None:
        return quantiles_of_parts(lambda: (v[np.isfinite(v)] for (v,) in _columns(batches, merged, column)), shares)

    def counted() -> Iterator[tuple[Floats, Floats]]:
        for values, weight in _columns(batches, merged, column, "sample_weight"):
            kept = np.isfinite(values) & (weight > 0)
            yield values[kept], weight[kept]

    if merged.sums.scores.weights.is_equal:
        return quantiles_of_parts(lambda: (values for values, _ in counted()), shares)
    return weighted_quantiles_of_parts(counted, shares)


def _columns(batches: FinishedBatches, merged: Merged, *names: str) -> Iterator[list[NDArray[Any]]]:
    return batches.crew.in_order(lambda number: batches.pair_column(number, *names), merged.numbers)


def _provenance(
    sums: AuditSums,
    reference: Fitted,
    names: tuple[str, ...],
    n_reference: int | None,
    exclusions: Mapping[str, int],
    prints: Mapping[str, str],
    hashes: Mapping[str, str],
    files: Mapping[str, str],
) -> Provenance:
    """What was audited."""
    scope, n_people = reference.scope, int(sums.n_people.sum())
    is_bad = reference.settings.favorable == "low" and reference.settings.unit is None
    favorable = ["0" if is_bad else "1"] if scope.labels else []
    columns = {"label": [], "favorable label": favorable, **reference.pool.columns}
    return Provenance(
        model=reference.model.kind,
        n_people=n_people,
        n_reference=n_reference,
        n_features=len(reference.pool.table.columns),
        groups={name: int(n) for name, n in zip(names, sums.n_people, strict=True)},
        group_columns=_columns_that_reveal_the_group(sums, n_people),
        attribution_method=next(iter(sums.methods)) if scope.model else "as given" if scope.attributions else "none",
        completeness_gap=sums.completeness_gap / sums.moved if sums.moved > 0 else 0.0,
        attribution_error=_sampling_error(sums),
        integration_error=reference.integration_error,
        n_without_baseline=sums.n_without_baseline,
        exclusions=dict(exclusions),
        fingerprint=fingerprint_of(prints, n_people),
        column_prints=prints,
        hashes=dict(hashes),
        columns={role: names for role, names in columns.items() if names},
        files=dict(files),
    )


def _sampling_error(sums: AuditSums) -> float | None:
    """Standard error of attributions as a share of their size; None if nothing is sampled."""
    if sums.error_squares is None:
        return None
    return math.sqrt(sums.error_squares / sums.value_squares) if sums.value_squares > 0 else 0.0


def _columns_that_reveal_the_group(sums: AuditSums, n_people: int) -> list[str]:
    """Discrete columns in which each value occurs in only one group."""
    return [
        name
        for name, values in sums.values.items()
        if values.groups is not None
        and 1 < len(values.groups) <= n_people // 10
        and all(len(groups) == 1 for groups in values.groups.values())
    ]
