"""Figures, tables and reservations of an audit from the sums of its batches."""

from __future__ import annotations

import math
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from evenhand.auditing.evidence import Evidence
from evenhand.auditing.figures import Outcome, Provenance
from evenhand.auditing.reference import AuditReference
from evenhand.auditing.sums import AuditSums
from evenhand.exceptions import EvenhandWarning
from evenhand.inputs.validation import text_columns
from evenhand.matching import MatchDiagnostics
from evenhand.metrics.disparity import (
    approval_disparity,
    approval_disparity_by_cutoff,
    error_rates,
    outcome_gaps,
    score_disparity,
    segmented_approvals,
)
from evenhand.metrics.outcomes import Metric, group_outcomes, outcome_metrics
from evenhand.metrics.proxies import ProxyScreen, proxy_screen
from evenhand.system.hashing import person_hash

if TYPE_CHECKING:
    from numpy.typing import NDArray

__all__ = [
    "PROXY_PEOPLE",
    "feature_table",
    "outcome_of",
    "provenance_of",
    "reservations_of",
    "screen_for_proxies",
    "screened_people",
]

PROXY_PEOPLE = 5_000
"""The screen for proxies is a screen: a sample will do."""

_SMALL_GROUP = 30
_PROXY_FOLDS, _PROXY_TREES = 3, 25
_LOW_COVERAGE = 0.9
_LARGE_GAP = 0.05  # completeness gap, as a share of the logit's distance from the baseline's
_LARGE_ERROR = 0.2  # standard error of sampled attributions, as a share of their size
_SURE, _MANY_SURE = 1e-15, 0.25
_MOST_TEXTS = 50
_PROTECTED_WORDS = frozenset(
    {"age", "sex", "gender", "race", "ethnicity", "religion", "marital", "nationality", "national", "color"}
)


def outcome_of(sums: AuditSums, names: tuple[str, ...], random_state: int) -> Outcome:
    """What the model decides, by group."""
    rows = sums.scores
    labels, decision, score, codes, times = rows.label, rows.decision, rows.score, rows.group, rows.count
    outcomes = group_outcomes(labels, decision, score, codes, names, times)
    return Outcome(
        figures=outcome_metrics(labels, decision, score, outcomes, times),
        groups=tuple(outcomes),
        gaps=outcome_gaps(labels, decision, codes, names=names, frequency=times, random_state=random_state),
        approvals=approval_disparity(decision, codes, names=names, frequency=times),
        scores=tuple(score_disparity(score, codes, names=names, frequency=times)),
        error_rates=tuple(error_rates(labels, decision, score, codes, names=names, frequency=times)),
        cutoffs=tuple(approval_disparity_by_cutoff(score, codes, names=names, frequency=times)),
        segments={column: _segments(counts, names) for column, counts in sums.approvals.items()},
    )


def _segments(counts: Mapping[str, NDArray[np.int64]], names: tuple[str, ...]) -> tuple[Any, ...]:
    values = list(counts)
    place, group, decision = np.nonzero(np.stack([counts[value] for value in values]))
    times = np.stack([counts[value] for value in values])[place, group, decision]
    segment = np.asarray(values, dtype=object)[place]
    return tuple(segmented_approvals(decision, group, segment, names=names, frequency=times))


def provenance_of(
    sums: AuditSums,
    model: str,
    names: tuple[str, ...],
    n_reference: int | None,
    exclusions: Mapping[str, int] | None = None,
) -> Provenance:
    """What was audited."""
    n_people = int(sums.n_people.sum())
    return Provenance(
        model=model,
        n_people=n_people,
        n_reference=n_reference,
        n_features=sums.attributions.shape[1],
        groups={name: int(n) for name, n in zip(names, sums.n_people, strict=True)},
        group_columns=_columns_that_tell_the_group(sums, n_people),
        attribution_method=sums.attribution_method,
        completeness_gap=sums.completeness_gap / sums.moved if sums.moved > 0 else 0.0,
        attribution_error=_sampling_error(sums),
        n_without_baseline=sums.n_without_baseline,
        exclusions=dict(exclusions or {}),
    )


def _sampling_error(sums: AuditSums) -> float | None:
    """Standard error of attributions as a share of their size; None where nothing is sampled."""
    if sums.error_squares is None:
        return None
    return math.sqrt(sums.error_squares / sums.value_squares) if sums.value_squares > 0 else 0.0


def _columns_that_tell_the_group(sums: AuditSums, n_people: int) -> list[str]:
    """Discrete columns of which each value occurs in one group only."""
    return [
        name
        for name, values in sums.values_by_group.items()
        if values is not None
        and 1 < len(values) <= n_people // 10
        and all(len(groups) == 1 for groups in values.values())
    ]


def feature_table(
    sums: AuditSums, features: list[str], names: tuple[str, ...], evidence: Evidence | None
) -> pd.DataFrame:
    """Each feature's mean part of the CEC score, its share, its part of the excess, its mean attribution by group."""
    n_scored = int(sums.n_scored.sum())
    contribution = sums.contributions / n_scored if n_scored else np.full(len(features), np.nan)
    columns: dict[str, Any] = {
        "feature": features,
        "contribution": contribution,
        "share": contribution / contribution.sum() if contribution.sum() > 0 else np.nan,
    }
    if evidence is not None:
        estimates = [feature.estimate for feature in evidence.features]
        columns |= {
            "excess": [e.value for e in estimates],
            "excess_ci_low": [e.ci_low for e in estimates],
            "excess_ci_high": [e.ci_high for e in estimates],
        }
    for code, name in enumerate(names):
        n = int(sums.n_people[code])
        columns[f"mean attribution: {name}"] = sums.attributions[code] / n if n else np.nan
    return pd.DataFrame(columns).sort_values("contribution", ascending=False, kind="stable", ignore_index=True)


def screened_people(person: NDArray[np.int64], random_state: int) -> NDArray[np.int64]:
    """Rows of the people who are screened for proxies: those with the lowest hashes, in order of their numbers."""
    if len(person) <= PROXY_PEOPLE:
        return np.arange(len(person))
    order = np.argsort(person_hash(person, random_state), kind="stable")[:PROXY_PEOPLE]
    return order[np.argsort(person[order])]


def screen_for_proxies(
    table: pd.DataFrame, codes: NDArray[np.int64], names: tuple[str, ...], random_state: int
) -> ProxyScreen | None:
    """Screen some people for proxies; None where fewer than two groups have people enough to hold some out."""
    if (np.bincount(codes, minlength=len(names)) >= 2 * _PROXY_FOLDS).sum() < 2:
        return None
    return proxy_screen(
        table,
        codes,
        names=names,
        n_folds=_PROXY_FOLDS,
        n_trees=_PROXY_TREES,
        max_people=PROXY_PEOPLE,
        random_state=random_state,
    )


def _n_beyond_logits(sums: AuditSums) -> int:
    """People whose probability is 0 or 1 but for rounding."""
    rows = sums.scores
    return int(rows.count[np.minimum(rows.score, 1 - rows.score) < _SURE].sum())


def _singular_texts(table: pd.DataFrame) -> list[str]:
    """Text columns in which most people have a value that is only theirs."""
    return [str(c) for c in text_columns(table) if table[c].nunique() > max(_MOST_TEXTS, len(table) / 2)]


def reservations_of(
    sums: AuditSums,
    provenance: Provenance,
    reference: AuditReference,
    diagnostics: MatchDiagnostics,
    figures: Mapping[str, Metric],
    evidence: Evidence | None,
    *,
    stacklevel: int = 3,
) -> list[str]:
    """What a careful reader must know before using the figures; the grave ones are also Python warnings."""
    settings = reference.settings
    grave: list[str] = []
    other: list[str] = []
    if figures["positive_rate"].note:
        grave.append(f"The model's {figures['positive_rate'].note}.")
    n_sure = _n_beyond_logits(sums)
    if reference.model.output == "log-odds" and n_sure > _MANY_SURE * provenance.n_people:
        grave.append(
            f"The probability of {n_sure:,} of {provenance.n_people:,} people is 0 or 1 to the last digit, which makes "
            "their log-odds alike, so that decisions and AUC say little; a score in points is no log-odds until it is "
            "scaled to them."
        )
    singular = _singular_texts(reference.pool.table)
    if singular:
        grave.append(
            f"Text columns with a value of its own for most people, such as an identifier, a date or a number written "
            f"as text: {singular}; a model cannot learn from them. Leave them out, or turn them into numbers."
        )
    if diagnostics.coverage < _LOW_COVERAGE:
        grave.append(f"Only {diagnostics.coverage:.1%} of people have a match in another group.")
    if provenance.completeness_gap > _LARGE_GAP:
        grave.append(
            f"Attributions miss {provenance.completeness_gap:.1%} of the change in the logit they should sum to; "
            "raise `n_steps`."
        )
    if provenance.attribution_error is not None:
        message = (
            "Attributions are sampled, with standard errors of "
            f"{provenance.attribution_error:.1%} of their size; raise `n_permutations` for less."
        )
        (grave if provenance.attribution_error > _LARGE_ERROR else other).append(message)
    if sums.n_negligible:
        share = sums.n_negligible / max(1, int(sums.n_scored.sum()))
        message = f"{sums.n_negligible} pairs ({share:.1%}) have an attribution too short to have a direction."
        (grave if share > 0.05 else other).append(message)
    if provenance.n_without_baseline:
        other.append(
            f"{provenance.n_without_baseline} people are left out: no one of their label and group to explain from."
        )
    small = {name: n for name, n in provenance.groups.items() if n < _SMALL_GROUP}
    if small:
        other.append(f"Groups with fewer than {_SMALL_GROUP} people, whose figures are unstable: {small}.")
    protected = [
        f for f in settings.financial_features if _PROTECTED_WORDS & set(f.lower().replace("-", "_").split("_"))
    ]
    if protected:
        other.append(f"Financial features that may be protected characteristics themselves: {protected}.")
    if diagnostics.constant_features:
        constant = list(diagnostics.constant_features)
        other.append(f"Financial features that are constant, and so play no part in matching: {constant}.")
    if evidence is not None and evidence.cec.note:
        other.append(f"The excess: {evidence.cec.note}.")
    if evidence is not None and evidence.common_support < _LOW_COVERAGE:
        other.append(
            f"Only {evidence.common_support:.1%} of people have a match and a placebo at the same distance; "
            "the excess describes those alone."
        )
    if evidence is not None and evidence.hangs_on:
        other.append(f"The verdict on the excess would be another with {'; with '.join(evidence.hangs_on)}.")
    for message in grave:
        warnings.warn(message, EvenhandWarning, stacklevel=stacklevel)
    return grave + other
