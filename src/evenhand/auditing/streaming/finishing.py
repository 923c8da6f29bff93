"""The figures of a streamed audit from what its batches left."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.auditing.assemble import (
    feature_table,
    outcome_of,
    provenance_of,
    reservations_of,
    screen_for_proxies,
)
from evenhand.auditing.distributions import merge_distributions
from evenhand.auditing.evidence import DISTANCE_SHARES, Design, Evidence, estimate_evidence, looked_up, null_scores
from evenhand.auditing.reference import AuditReference
from evenhand.auditing.streaming.pair_choice import choose_pairs
from evenhand.auditing.streaming.quantiles import quantiles_of_parts
from evenhand.auditing.streaming.result import StreamedAudit
from evenhand.auditing.streaming.source import Source
from evenhand.auditing.streaming.store import Store, StoredTriples
from evenhand.auditing.streaming.triple_files import read_triples
from evenhand.auditing.sums import AuditSums
from evenhand.exceptions import StreamError
from evenhand.inputs.roles import Columns
from evenhand.matching.diagnostics import QUANTILES
from evenhand.metrics.adjustment import NullScores
from evenhand.metrics.proxies import ProxyScreen
from evenhand.system.parallel import PairwiseSum, in_order

__all__ = ["finish"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]


def finish(
    store: Store,
    source: Source,
    columns: Columns,
    reference: AuditReference,
    settings: Mapping[str, Any],
    stream: Mapping[str, Any],
    *,
    is_separate: bool,
    fingerprint: str,
    hashes: dict[str, str],
    n_threads: int,
    advance: Callable[[str], None],
) -> StreamedAudit:
    """Merge the batches in their order, estimate what needs all of them, and put q-values into the pair table.

    Parameters
    ----------
    store, source, columns, reference
        The folder, the people, the parts that columns play, and what was fitted on the reference.
    settings, stream
        Every choice that moves a figure, and how the audit was cut; both are passed on to the result.
    is_separate
        Whether the reference is another file than the source.
    fingerprint, hashes
        SHA-256 of the source's content, and of the reference.
    n_threads
        Files read, and estimates made, at the same time; the figures are the same to the last bit for any number.
    advance
        Called with a few words after each step.
    """
    merged = _merged(store, source, n_threads)
    names, features = reference.pool.groups.names, [str(c) for c in reference.pool.table.columns]
    numbers, sums = merged.numbers, merged.sums

    def distances() -> Iterator[Floats]:
        for number in numbers:
            match, distance = store.pair_column(number, "match", "distance")
            yield distance[match >= 0]

    def scores() -> Iterator[Floats]:
        for number in numbers:
            (cec,) = store.pair_column(number, "cec")
            yield cec[~np.isnan(cec)]

    matcher = reference.matcher
    diagnostics = sums.matching.diagnostics(
        dict(zip(QUANTILES, quantiles_of_parts(distances, QUANTILES), strict=True)),
        matcher.points,
        matcher.groups,
        matcher.group_names,
        matcher.space,
    )
    median, p90 = quantiles_of_parts(scores, (0.5, 0.9))
    advance("quantiles")
    outcome = outcome_of(sums, names, reference.settings.random_state)
    advance("outcomes")
    evidence: Evidence | None = None
    screen: ProxyScreen | None = None
    if sums.evidence is not None:
        _write_q_values(store, numbers, len(names), n_threads)
        advance("q-values")
        evidence = _evidence(store, merged, reference, features, n_threads)
        advance("excess")
        screen = _screened(store, numbers, names, reference.settings.random_state)
        advance("proxies")
    n_reference = len(reference.pool) if is_separate or len(reference.pool) < int(sums.n_people.sum()) else None
    provenance = provenance_of(sums, reference.model.kind, names, n_reference, merged.exclusions)
    provenance = replace(provenance, fingerprint=fingerprint, hashes=hashes)
    warnings = reservations_of(sums, provenance, reference, diagnostics, outcome.figures, evidence, stacklevel=4)
    sample = choose_pairs(store, numbers, source, columns, reference)
    advance("sample of pairs")
    return StreamedAudit(
        folder=store.folder,
        sums=sums,
        pairs=sample.pairs,
        table=sample.values,
        features=feature_table(sums, features, names, evidence),
        outcome=outcome,
        matching=diagnostics,
        evidence=evidence,
        proxies=screen,
        settings=settings,
        provenance=provenance,
        warnings=tuple(warnings),
        cec_quantiles=(median, p90),
        distributions=merged.distributions,
        sample=sample,
        stream=stream,
    )


@dataclass(frozen=True, eq=False)
class _Merged:
    """The batches joined in their order."""

    numbers: tuple[int, ...]
    sums: AuditSums
    distributions: Mapping[str, Any]
    exclusions: Mapping[str, int]
    n_outside: Mapping[int, int]
    by_values: Mapping[int, Mapping[str, tuple[str, ...]]]


def _merged(store: Store, source: Source, n_threads: int) -> _Merged:
    all_sums: PairwiseSum[AuditSums] = PairwiseSum()
    distributions: Mapping[str, Any] | None = None
    exclusions: dict[str, int] = {}
    n_outside: dict[int, int] = {}
    by_values: dict[int, Mapping[str, tuple[str, ...]]] = {}
    records = in_order(lambda batch: store.record(batch.number), source.batches, n_threads)
    for batch, record in zip(source.batches, records, strict=True):
        for reason, n in record.exclusions.items():
            exclusions[reason] = exclusions.get(reason, 0) + n
        if record.sums is None or record.distributions is None:
            continue
        all_sums.add(record.sums)
        distributions = (
            record.distributions if distributions is None else merge_distributions(distributions, record.distributions)
        )
        n_outside[batch.number] = record.n_outside
        by_values[batch.number] = {name: tuple(values) for name, values in record.sums.approvals.items()}
    sums = all_sums.total()
    if sums is None or distributions is None:
        raise StreamError(f"{str(source.path)!r} has no row with a label and a group; no one can be audited.")
    return _Merged(tuple(n_outside), sums, distributions, exclusions, n_outside, by_values)


def _write_q_values(store: Store, numbers: Sequence[int], n_groups: int, n_threads: int) -> None:
    """Rank every pair's excess among placebo pairs of all batches."""

    def nulls_of(number: int) -> NullScores:
        part = store.nulls(number)
        return null_scores(part.placebo_over_gap, part.stratum, part.person, n_groups)

    all_nulls: PairwiseSum[NullScores] = PairwiseSum()
    for nulls in in_order(nulls_of, numbers, n_threads):
        all_nulls.add(nulls)
    pooled = all_nulls.total()
    assert pooled is not None

    def n_at_least(number: int) -> tuple[Ints, Ints]:
        part = store.nulls(number)
        return pooled.n_at_least(part.over_gap, part.stratum), part.stratum

    counts = [np.zeros(size + 1, dtype=np.int64) for size in pooled.sizes.tolist()]
    for found in in_order(lambda number: pooled.counts(*n_at_least(number)), numbers, n_threads):
        for total, more in zip(counts, found, strict=True):
            total += more
    table = pooled.q_values(tuple(counts))

    def write(number: int) -> None:
        store.write_q_values(number, looked_up(table, *n_at_least(number)))

    for _ in in_order(write, numbers, n_threads):
        pass


def _evidence(
    store: Store, merged: _Merged, reference: AuditReference, features: list[str], n_threads: int
) -> Evidence:
    assert merged.sums.evidence is not None
    values = {name: tuple(counts) for name, counts in merged.sums.approvals.items()}
    codes = {
        number: {
            name: np.array([values[name].index(value) for value in texts], dtype=np.int64) for name, texts in by.items()
        }
        for number, by in merged.by_values.items()
    }
    parts = StoredTriples(store, merged.n_outside, codes, len(reference.pool), merged.sums.evidence.n_left_out)
    limits: list[float] = []
    if any(len(store.distances(number)) for number in merged.numbers):
        limits = quantiles_of_parts(lambda: (store.distances(n) for n in merged.numbers), DISTANCE_SHARES)

    def write_near(number: int) -> None:
        store.write_near(number, read_triples([store.triples(number, codes[number])]).within(limits).n_near)

    for _ in in_order(write_near, merged.numbers, n_threads):
        pass
    design = Design(
        features=tuple(features),
        groups=reference.pool.groups.names,
        by=values,
        consistency_threshold=reference.settings.consistency_threshold,
        without_weight=tuple(reference.model.category_columns(features)),
    )
    return estimate_evidence(parts, merged.sums.evidence, design, limits, n_threads=n_threads)


def _screened(store: Store, numbers: Sequence[int], names: tuple[str, ...], random_state: int) -> ProxyScreen | None:

    parts = [part for part in map(store.screened, numbers) if part is not None]
    if not parts:
        return None
    table = pd.concat([table for table, _ in parts], ignore_index=True)
    return screen_for_proxies(table, np.concatenate([codes for _, codes in parts]), names, random_state)
