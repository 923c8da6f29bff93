"""What a careful reader must know before using the metrics of an audit."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from evenhand.auditing.batches import AuditSums
from evenhand.auditing.evidence import Evidence
from evenhand.auditing.fitted import Fitted, is_wrong_way_round
from evenhand.auditing.sections.evidence import Excess, Features
from evenhand.auditing.sections.matching import Matching, Weighting, Weights
from evenhand.auditing.sections.outcome import Outcome, Outcomes
from evenhand.auditing.sections.pairs import PairMetrics, Pairs
from evenhand.auditing.sections.reasons import Reasons
from evenhand.auditing.summary import Provenance
from evenhand.auditing.totals import Totals
from evenhand.exceptions import warn_caller
from evenhand.inputs.checking import SMALL_GROUP, ColumnCheck, Sign, check_table, extreme_end, few_sentences
from evenhand.inputs.names import protected_characteristic, suggests
from evenhand.inputs.people import People
from evenhand.inputs.validation import MOST_GROUPS
from evenhand.matching.diagnostics import MatchDiagnostics
from evenhand.metrics.estimate import Estimate
from evenhand.metrics.outcomes import auc_interval
from evenhand.metrics.proxies import PERFECT_PROXY, ProxyStrength, feature_strengths, predicted_group

_LEAK = 0.98  # area under the ROC curve from which a single column nearly determines the label
_MAY_BE_LEAK = 0.75  # and from which a column that is often set by the decision probably is
_PEOPLE, _FOLDS = 5_000, 3
_FEWEST_PEOPLE = 50


def with_associations(
    checks: Sequence[ColumnCheck],
    table: pd.DataFrame,
    favorable: pd.Series[float],
    groups: pd.Series[str] | None,
    parts: set[str],
) -> tuple[tuple[ColumnCheck, ...], dict[str, float]]:
    """Find columns that nearly determine the label or the group, and how well each column predicts the label.

    Parameters
    ----------
    favorable
        1 or 0 for each row; missing if unknown.
    groups
        The group of each row; None if there are no groups.
    parts
        Columns that are themselves the label or the group.
    """
    asked = [c.name for c in checks if c.name not in parts and not c.is_unfit and not c.has("constant", "free text")]
    of_label = {name: row.auc for name, row in _strengths(table[asked], favorable).items()}
    of_group = {} if groups is None or groups.nunique() > MOST_GROUPS else _strengths(table[asked], groups)
    signed = []
    for column in checks:
        label_area, of_one = of_label.get(column.name, 0.5), of_group.get(column.name)
        signs = []
        if label_area >= _LEAK:
            signs.append(Sign("leaks the label", f"alone predicts the label with AUC {label_area:.2f}"))
        elif label_area >= _MAY_BE_LEAK and suggests(column.name, "may be after"):
            clause = f"may be set by the decision, and predicts the label with AUC {label_area:.2f}"
            signs.append(Sign("known after the decision", clause))
        if of_one is not None and of_one.auc > PERFECT_PROXY:
            predicted = predicted_group(of_one.auc_by_group)
            signs.append(Sign("predicts the group", f"alone predicts {predicted} with AUC {of_one.auc:.2f}"))
        signed.append(replace(column, signs=(*column.signs, *signs)))
    return tuple(signed), of_label


def _strengths(table: pd.DataFrame, target: pd.Series[Any]) -> dict[str, ProxyStrength]:
    """How well each column alone predicts the target; empty if there are too few people."""
    known = target.notna().to_numpy()
    codes, values = pd.factorize(target[known], sort=True)
    counts = np.bincount(codes, minlength=len(values))
    if not table.shape[1] or known.sum() < _FEWEST_PEOPLE or (counts >= 2 * _FOLDS).sum() < 2:
        return {}
    names = [str(value) for value in values]
    rows = feature_strengths(table[known], codes.astype(np.int64), names=names, n_folds=_FOLDS, max_people=_PEOPLE)
    return {row.feature: row for row in rows}


_LOW_COVERAGE = 0.9
_LARGE_GAP = 0.05  # completeness gap, as a share of the logit's distance from the baseline's
_LARGE_ERROR = 0.2  # standard error of sampled attributions, as a share of their size
_MANY_NEGLIGIBLE = 0.05  # share of pairs with an attribution too short to have a direction
_SURE, _MANY_SURE = 1e-15, 0.25
_IMBALANCE = 0.25  # standardized mean difference after matching beyond which groups are not comparable (Rubin 2001)
_GRAVE_SIGNS = ("saved index", "id", "repeated id", "date", "free text", "text number", "leaks the label")
_PROTECTED = "protected characteristic"
_OTHER_SIGNS = ("extreme value", "place", "sentinel", "known after the decision")


def reservations_of(totals: Totals, provenance: Provenance) -> list[str]:
    """What a careful reader must know before using the metrics; the serious ones are also Python warnings."""
    sums, reference = totals.sums, totals.fitted
    diagnostics: MatchDiagnostics = totals.part(Matching)
    pairs: PairMetrics = totals.part(Pairs)
    outcome: Outcomes = totals.part(Outcome)
    evidence: Evidence | None = totals.part(Excess)
    weighting: Weighting | None = totals.part(Weights)
    pool, scope, financial = reference.pool, reference.scope, reference.settings.financial_features
    labels = pd.Series(pool.labels.astype(float), index=pool.table.index)
    checks, _ = with_associations(check_table(pool.table), pool.table, labels, None, set())
    signs = [(c.name, sign) for c in checks for sign in c.signs if sign.kind != _PROTECTED]
    remarks = [(name, sign.kind, f"The input {sign.sentence(name)}") for name, sign in signs]
    if scope.attributions:  # else it is not known which columns the model uses
        parts = sums.sections[Features.key].contributions  # people who differ in a used input are explained differently
        used = [c for c, part in zip(checks, parts, strict=True) if part > 0 or not parts.any()]
        of_use = [(c.name, sign) for c in used for sign in c.signs if sign.kind == _PROTECTED]
        asked = "ask whether it may, whichever group is audited"
        remarks += [(n, s.kind, f"The model uses {n!r}, which {s.clause}: {asked}.") for n, s in of_use]
    for name, seen in sums.values.items():  # of the audited people, who may not be in the reference
        if not np.isnan(seen.low) and (sign := extreme_end(pool.table[name], seen.low, seen.high)) is not None:
            remarks.append((name, sign.kind, f"The input {sign.sentence(name)}"))
    grave_of_inputs, other_of_inputs = (
        few_sentences(remark for remark in remarks if remark[1] in kinds)
        for kinds in (_GRAVE_SIGNS, (_PROTECTED, *_OTHER_SIGNS))
    )
    grave = [*_on_scores(sums, provenance, reference, outcome.metrics), *grave_of_inputs]
    other = [*_on_repeated_rows(sums, provenance, pool)]
    if diagnostics.coverage < _LOW_COVERAGE:
        grave.append(f"Only {diagnostics.coverage:.1%} of people have a match in a different group.")
    if provenance.completeness_gap > _LARGE_GAP:
        grave.append(
            f"Attributions miss {provenance.completeness_gap:.1%} of the change in the logit that they should sum to; "
            "raise `n_steps`."
        )
    if provenance.attribution_error is not None:
        (grave if provenance.attribution_error > _LARGE_ERROR else other).append(
            "Attributions are sampled, with a standard error of "
            f"{provenance.attribution_error:.1%} of their size; raise `n_permutations` (--n-permutations) to reduce it."
        )
    if pairs.n_negligible:
        share = pairs.n_negligible / max(1, pairs.n_pairs)
        (grave if share > _MANY_NEGLIGIBLE else other).append(
            f"{pairs.n_negligible} pairs ({share:.1%}) have an attribution too short to have a direction."
        )
    if provenance.n_without_baseline:
        other.append(
            f"{provenance.n_without_baseline} people are left out: the reference has no one of their label and group."
        )
    if scope.model and not scope.labels and scope.unit is None:
        other.append(
            "No outcome was given: people are matched on finances alone. Declined applicants have no repayment, so "
            "nothing here says who would have repaid."
        )
    small = [f"{name} ({n})" for name, n in provenance.groups.items() if n < SMALL_GROUP]
    if small:
        other.append(f"Groups with fewer than {SMALL_GROUP} people have unstable metrics: {', '.join(small)}.")
    protected = [name for name in financial if protected_characteristic(name) is not None]
    if protected:
        other.append(f"Financial features that may themselves be protected characteristics: {', '.join(protected)}.")
    if pool.decisions is not None and scope.outcome == "score":
        other.append(
            "The decisions are the actual ones; approvals at different cutoffs follow from the score. The score gap in "
            "decisions holds finances equal by regression alone: no one decided about a person with a match's finances."
        )
    other += [*_on_balance(diagnostics), *other_of_inputs]
    if evidence is not None:
        other += _on_evidence(evidence, has_excess=scope.attributions)
    for message in grave:
        warn_caller(message)
    of_weights = () if weighting is None else weighting.reservations()
    return [*grave, *other, *_on_reasons(totals, provenance.group_columns), *of_weights]


def _on_scores(
    sums: AuditSums, provenance: Provenance, reference: Fitted, metrics: Mapping[str, Estimate]
) -> Iterator[str]:
    """Warnings if scores rank people against their labels, or do not distinguish between them."""
    rows = sums.rows
    area = auc_interval(rows.label, rows.score, rows.weights)
    n_fewest = int(np.bincount(rows.label, rows.count, minlength=2).min())
    if reference.scope.outcome == "score" and is_wrong_way_round(area, n_fewest):
        yield (
            f"The score ranks people against their labels, with an AUC of {area.value:.3f}: if the score or the label "
            "is reversed, so are the results on decisions, reasons and gaps."
        )
    if reference.scope.decisions and metrics["positive_rate"].note:
        yield f"The model's {metrics['positive_rate'].note}."
    n_sure = int(rows.count[np.minimum(rows.score, 1 - rows.score) < _SURE].sum())
    if reference.model.output == "log-odds" and n_sure > _MANY_SURE * provenance.n_people:
        yield (
            f"The probability of {n_sure:,} of {provenance.n_people:,} people is 0 or 1 to the last digit, so their "
            "log-odds are equal and decisions and AUC say little. If the score is in points, convert it to "
            "log-odds first."
        )


def _on_repeated_rows(sums: AuditSums, provenance: Provenance, pool: People) -> Iterator[str]:
    """Rows that are the same applicant as a different row."""
    n_repeated = 0 if sums.evidence is None else sums.evidence.n_repeated
    if n_repeated:
        is_given = pool.clusters is not None
        yield (
            f"{n_repeated:,} of {provenance.n_people:,} rows ({n_repeated / provenance.n_people:.1%}) "
            + ("belong to an applicant with several rows" if is_given else "have the same inputs as a different row")
            + ". They are not compared with each other, and count as one applicant in "
            + (
                "every standard error."
                if is_given
                else "the standard errors of pairs and score gaps, but not in those of approvals and errors. Pass "
                "`clusters` (--clusters) to say which rows are the same applicant."
            )
        )


def _on_balance(diagnostics: MatchDiagnostics) -> Iterator[str]:
    """Financial features that are constant, and those in which matched people of large enough groups still differ."""
    if diagnostics.constant_features:
        constant = ", ".join(diagnostics.constant_features)
        yield f"Financial features that are constant, and so do not affect matching: {constant}."
    n_matched = {(row.group, row.other_group): row.n_matched for row in diagnostics.coverage_by_group}
    uneven = [
        row
        for row in diagnostics.balance
        if abs(row.after) > _IMBALANCE and n_matched[row.group, row.other_group] >= SMALL_GROUP
    ]
    if uneven:
        worst = max(uneven, key=lambda row: abs(row.after))
        names = list(dict.fromkeys(row.feature for row in uneven if row.feature != worst.feature))
        others = f", and in {', '.join(map(repr, names))} by less" if names else ""
        yield (
            f"After matching, people of {worst.group} and their matches in {worst.other_group} still differ in "
            f"{worst.feature!r} by {abs(worst.after):.2f} standard deviations{others}. More than {_IMBALANCE} is too "
            "much to call them comparable: set `max_distance`, or choose different financial features."
        )


def _on_evidence(evidence: Evidence, *, has_excess: bool) -> Iterator[str]:
    if has_excess and evidence.cec.note:
        yield f"The excess: {evidence.cec.note}."
    if evidence.common_support < _LOW_COVERAGE:
        yield (
            f"Overlap is small: only {evidence.common_support:.1%} of people have a match and a placebo at the same "
            f"distance; the {'excess' if has_excess else 'score gap'} describes only these people."
        )
    if has_excess and evidence.depends_on:
        yield (
            "The excess depends on which triples (person, match and placebo) are used: it differs with "
            f"{'; with '.join(evidence.depends_on)}."
        )


def _on_reasons(totals: Totals, group_columns: Sequence[str]) -> Iterator[str]:
    """Reasons of declined people that depend on what must not be a reason; those given most often come first."""
    given, reason_map = totals.sums.sections[Reasons.key].any.sum(axis=1), totals.fitted.reasons.reason_map
    reasons = [reason_map.names[code] for code in np.argsort(-given, kind="stable") if given[code]]
    named = [
        f"{feature!r}" if feature == reason else f"{feature!r} ({reason})"
        for reason in reasons
        for feature in reason_map.members(reason)
        if feature in group_columns or protected_characteristic(feature) is not None
    ]
    if named:
        yield (
            "Reasons of declined people depend on columns that reveal the group or may themselves be protected "
            f"characteristics: {', '.join(named)}."
        )
