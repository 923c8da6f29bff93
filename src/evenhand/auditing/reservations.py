"""What a careful reader must know before using the metrics of an audit."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping

import numpy as np
import pandas as pd

from evenhand.auditing.evidence import Evidence
from evenhand.auditing.reference import AuditReference
from evenhand.auditing.summary import Provenance
from evenhand.auditing.sums import AuditSums
from evenhand.exceptions import EvenhandWarning
from evenhand.inputs.validation import text_columns
from evenhand.matching import MatchDiagnostics
from evenhand.metrics.outcomes import Metric

__all__ = ["reservations_of"]

_SMALL_GROUP = 30
_LOW_COVERAGE = 0.9
_LARGE_GAP = 0.05  # completeness gap, as a share of the logit's distance from the baseline's
_LARGE_ERROR = 0.2  # standard error of sampled attributions, as a share of their size
_SURE, _MANY_SURE = 1e-15, 0.25
_MOST_TEXTS = 50
_PROTECTED_WORDS = frozenset(
    {"age", "sex", "gender", "race", "ethnicity", "religion", "marital", "nationality", "national", "color"}
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
    metrics: Mapping[str, Metric],
    evidence: Evidence | None,
    *,
    stacklevel: int = 3,
) -> list[str]:
    """What a careful reader must know before using the metrics; the grave ones are also Python warnings."""
    settings = reference.settings
    grave: list[str] = []
    other: list[str] = []
    if metrics["positive_rate"].note:
        grave.append(f"The model's {metrics['positive_rate'].note}.")
    n_sure = _n_beyond_logits(sums)
    if reference.model.output == "log-odds" and n_sure > _MANY_SURE * provenance.n_people:
        grave.append(
            f"The probability of {n_sure:,} of {provenance.n_people:,} people is 0 or 1 to the last digit, which makes "
            "their log-odds alike, so that decisions and AUC say little; a score in points is not log-odds until it is "
            "scaled to them."
        )
    singular = _singular_texts(reference.pool.table)
    if singular:
        grave.append(
            f"Text columns with a value of its own for most people, such as an identifier, a date or a number written "
            f"as text: {', '.join(singular)}; a model cannot learn from them. Leave them out, or turn them into "
            "numbers."
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
            f"{provenance.attribution_error:.1%} of their size; raise `n_permutations` (--n-permutations) for less."
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
        shown = ", ".join(f"{name} ({n})" for name, n in small.items())
        other.append(f"Groups with fewer than {_SMALL_GROUP} people, whose metrics are unstable: {shown}.")
    protected = [
        f for f in settings.financial_features if _PROTECTED_WORDS & set(f.lower().replace("-", "_").split("_"))
    ]
    if protected:
        other.append(f"Financial features that may be protected characteristics themselves: {', '.join(protected)}.")
    if diagnostics.constant_features:
        constant = list(diagnostics.constant_features)
        other.append(f"Financial features that are constant, and so play no part in matching: {', '.join(constant)}.")
    if evidence is not None:
        other += _on_evidence(evidence)
    for message in grave:
        warnings.warn(message, EvenhandWarning, stacklevel=stacklevel)
    return grave + other


def _on_evidence(evidence: Evidence) -> Iterator[str]:
    if evidence.cec.note:
        yield f"The excess: {evidence.cec.note}."
    if evidence.common_support < _LOW_COVERAGE:
        yield (
            f"Only {evidence.common_support:.1%} of people have a match and a placebo at the same distance; "
            "the excess describes those alone."
        )
    if evidence.depends_on:
        yield f"The excess depends on which triples count: it differs with {'; with '.join(evidence.depends_on)}."
