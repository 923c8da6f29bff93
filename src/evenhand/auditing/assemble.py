"""Assemble the result of an audit from the output of its batches.

Remove from a result what could not be found with the given inputs.

The engine computes everything as usual. For scores without a model, some of it means nothing: a reasoning gap of 0 says
that attributions hold no weights, not that the model weighs alike. Such numbers are removed here, once, before anyone
sees the result, and each missing number says why it is missing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.arrays import Floats
from evenhand.auditing.batch import AuditSums, ScoreCounts
from evenhand.auditing.direction import own_score
from evenhand.auditing.evidence import Evidence, Influences, ScoreGap, gather_evidence, write_q_values
from evenhand.auditing.finished import FinishedBatches, Merged
from evenhand.auditing.fitted import Fitted
from evenhand.auditing.identity import fingerprint_of, shown_prints
from evenhand.auditing.reasons import BASELINE, NO_BASELINE, Reasons
from evenhand.auditing.reservations import reservations_of, reservations_on_reasons
from evenhand.auditing.result import AuditResult
from evenhand.auditing.sample import PairsInMemory, PairSource
from evenhand.auditing.scope import DECISION_UNIT, Scope
from evenhand.auditing.sections import SECTIONS
from evenhand.auditing.summary import (
    Outcome,
    PairMetrics,
    Provenance,
    Weighting,
    histogram_of,
    quantiles_of_parts,
    scaled_distributions,
    weighted_quantiles_of_parts,
)
from evenhand.matching import MatchDiagnostics
from evenhand.matching.diagnostics import QUANTILES
from evenhand.metrics.cec import REGIMES
from evenhand.metrics.disparity import (
    CalibrationTable,
    GapEstimate,
    approval_disparity,
    approval_disparity_by_cutoff,
    error_rates,
    group_calibration,
    outcome_gaps,
    score_disparity,
    segmented_approvals,
)
from evenhand.metrics.estimate import RowWeights, not_estimable
from evenhand.metrics.outcomes import GroupOutcome, group_outcomes, outcome_metrics
from evenhand.metrics.proxies import ProxyScreen, proxy_screen
from evenhand.report.section import lacking
from evenhand.system.hashing import person_hash
from evenhand.system.threads import one_thread_each

FINISHING_STEPS = 5
"""Number of steps that `assemble` reports."""

PROXY_PEOPLE = 5_000
"""Number of people in the proxy screen: a sample is enough for a screen."""

_PROXY_FOLDS, _PROXY_TREES = 3, 25


@one_thread_each()
def assemble(
    reference: Fitted,
    batches: FinishedBatches,
    merged: Merged,
    source: PairSource,
    *,
    n_reference: int | None,
    hashes: Mapping[str, str],
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
    median, p90 = _pair_quantiles(reference, batches, merged, "cec", (0.5, 0.9))
    advance("quantiles")
    outcome = _outcome(sums, reference)
    advance("outcomes")
    evidence = screen = None
    if sums.evidence is not None:
        write_q_values(batches, merged.numbers, len(names))
        advance("q-values")
        evidence = gather_evidence(reference, batches, merged, outcome.approvals.reference)
        advance("excess")
        screen = _screen_for_proxies(batches, merged.numbers, names, settings.random_state)
        advance("proxies")
    columns = [str(column) for column in reference.pool.table.columns]
    prints = shown_prints(sums.prints, columns)
    provenance = _provenance(sums, reference, names, n_reference, merged.exclusions, prints, hashes)
    reservations = reservations_of(sums, provenance, reference, matching, outcome.metrics, evidence)
    reasons = _reasons(reference, sums, outcome.approvals.reference, evidence)
    reservations += reservations_on_reasons(reasons, reference.reasons.reason_map, provenance.group_columns)
    return AuditResult(
        features=_feature_table(sums, columns, names, evidence),
        outcome=outcome,
        matching=matching,
        evidence=evidence,
        proxies=screen,
        settings=asdict(settings),
        provenance=provenance,
        warnings=(*reservations, *(weighting.reservations() if weighting else ()), *notes),
        pair_metrics=PairMetrics.of(sums, names, (median, p90), _distributions(merged, weighting)),
        source=source,
        stream=stream,
        folder=folder,
        weighting=weighting,
        reason_codes=reasons if sums.scores.weights.is_equal else None,  # shares of reasons are not weighted
        sections={s.key: part for s in SECTIONS if (part := s.of(reference, sums)) is not None},
    )


def _reasons(reference: Fitted, sums: AuditSums, reference_group: str, evidence: Evidence | None) -> Reasons:
    """The reasons of declined people."""
    given, groups = reference.reasons, reference.pool.groups.names
    found = Reasons.of(sums.reasons, given.reason_map.names, groups, reference_group, given.n_reasons, BASELINE)
    note = NO_BASELINE if given.explainer is None else found.note
    found = replace(found, of_features=given.reason_map.of_feature, note=note)
    if evidence is None:
        return found
    return found.with_placebos(evidence.agreement, evidence.reason_overlap, evidence.rank_overlap)


def _matching(reference: Fitted, batches: FinishedBatches, merged: Merged) -> MatchDiagnostics:
    matcher = reference.matcher
    distances = _pair_quantiles(reference, batches, merged, "distance", QUANTILES)
    return merged.sums.matching.diagnostics(
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


def _distributions(merged: Merged, weighting: Weighting | None) -> Mapping[str, Any]:
    """Histograms of the pairs; weights are scaled to a mean of 1."""
    if weighting is None:
        return merged.distributions
    return scaled_distributions(merged.distributions, weighting.n_counted / float(merged.sums.weights[:, 1].sum()))


def _outcome(sums: AuditSums, reference: Fitted) -> Outcome:
    """What the model decides, by group."""
    rows, settings, names = sums.scores, reference.settings, reference.pool.groups.names
    favorable = settings.favorable or "high"
    labels, decision, score, codes, times = rows.label, rows.decision, rows.score, rows.group, rows.weights
    outcomes = group_outcomes(labels, decision, score, codes, names, times)
    return Outcome(
        metrics=outcome_metrics(labels, decision, score, outcomes, times),
        groups=tuple(outcomes),
        gaps=outcome_gaps(labels, decision, codes, names=names, frequency=times, random_state=settings.random_state),
        approvals=approval_disparity(decision, codes, names=names, frequency=times),
        scores=tuple(score_disparity(own_score(score, favorable, settings.unit), codes, names=names, frequency=times)),
        error_rates=tuple(error_rates(labels, decision, score, codes, names=names, frequency=times)),
        cutoffs=tuple(
            replace(found, cutoff=own_score(found.cutoff, favorable, settings.unit))
            for found in approval_disparity_by_cutoff(score, codes, names=names, frequency=times)
        ),
        segments={column: _segments(counts, names) for column, counts in sums.approvals.items()},
        calibration=_calibration(rows, reference),
    )


def _calibration(rows: ScoreCounts, reference: Fitted) -> CalibrationTable:
    """Calibration of the model's scores. If low scores are good, they predict the unfavorable outcome."""
    favorable = reference.settings.favorable or "high"
    outcome = "unfavorable outcome" if favorable == "low" else "favorable outcome"
    why = reference.scope.not_possible.get("errors", "")
    if not reference.model.has_probabilities:
        why = f"The {reference.model.kind} returns a margin, not a probability: calibrate it to compare it with labels."
    elif not rows.weights.is_equal:
        why = why or "Calibration by group is not computed for people with sampling weights."
    if why:
        return CalibrationTable(outcome, (), why)
    found = group_calibration(
        1 - rows.label if favorable == "low" else rows.label,
        own_score(rows.score, favorable),
        rows.group,
        names=reference.pool.groups.names,
        frequency=rows.count,
        random_state=reference.settings.random_state,
    )
    return CalibrationTable(outcome, tuple(found))


def _segments(counts: Mapping[str, Floats], names: tuple[str, ...]) -> tuple[Any, ...]:
    cells = np.stack(list(counts.values()))
    place, group, decision = np.nonzero(cells[..., 0])
    count, total, squares = cells[place, group, decision].T
    segment = np.asarray(list(counts), dtype=object)[place]
    times = RowWeights(count.astype(np.int64), total, squares)
    return tuple(segmented_approvals(decision, group, segment, names=names, frequency=times))


def _provenance(
    sums: AuditSums,
    reference: Fitted,
    names: tuple[str, ...],
    n_reference: int | None,
    exclusions: Mapping[str, int],
    prints: Mapping[str, str],
    hashes: Mapping[str, str],
) -> Provenance:
    """What was audited."""
    n_people = int(sums.n_people.sum())
    return Provenance(
        model=reference.model.kind,
        n_people=n_people,
        n_reference=n_reference,
        n_features=sums.attributions.shape[1],
        groups={name: int(n) for name, n in zip(names, sums.n_people, strict=True)},
        group_columns=_columns_that_reveal_the_group(sums, n_people),
        attribution_method=sums.attribution_method,
        completeness_gap=sums.completeness_gap / sums.moved if sums.moved > 0 else 0.0,
        attribution_error=_sampling_error(sums),
        integration_error=reference.integration_error,
        n_without_baseline=sums.n_without_baseline,
        exclusions=dict(exclusions),
        fingerprint=fingerprint_of(prints, n_people),
        column_prints=prints,
        hashes=dict(hashes),
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
        for name, values in sums.values_by_group.items()
        if values is not None
        and 1 < len(values) <= n_people // 10
        and all(len(groups) == 1 for groups in values.values())
    ]


def _feature_table(
    sums: AuditSums, features: list[str], names: tuple[str, ...], evidence: Evidence | None
) -> pd.DataFrame:
    """For each feature: mean part of the CEC score, share, part of the excess, and mean attribution by group."""
    scored = float(sums.scored.sum())
    contribution = sums.contributions / scored if scored else np.full(len(features), np.nan)
    columns: dict[str, Any] = {
        "feature": features,
        "contribution": contribution,
        "share": contribution / contribution.sum() if contribution.sum() > 0 else np.nan,
    }
    if evidence is not None:
        estimates = [feature.estimate for feature in evidence.features]
        columns |= {
            "excess": [e.value for e in estimates],
            "excess_low": [e.low for e in estimates],
            "excess_high": [e.high for e in estimates],
        }
    for code, name in enumerate(names):
        weight = float(sums.weights[code, 1])
        columns[f"mean attribution: {name}"] = sums.attributions[code] / weight if weight else np.nan
    return pd.DataFrame(columns).sort_values("contribution", ascending=False, kind="stable", ignore_index=True)


def screened_people(person: NDArray[np.int64], random_state: int) -> NDArray[np.int64]:
    """Rows of the people who are screened for proxies: those with the lowest hashes, in row order."""
    if len(person) <= PROXY_PEOPLE:
        return np.arange(len(person))
    order = np.argsort(person_hash(person, random_state), kind="stable")[:PROXY_PEOPLE]
    return order[np.argsort(person[order])]


def _screen_for_proxies(
    batches: FinishedBatches, numbers: Sequence[int], names: tuple[str, ...], random_state: int
) -> ProxyScreen | None:
    """Screen some people for proxies; None where fewer than two groups have people enough to hold some out."""
    parts = [part for part in batches.crew.in_order(batches.screened, numbers) if part is not None]
    codes = np.concatenate([np.zeros(0, dtype=np.int64), *(part for _, part in parts)])
    if (np.bincount(codes, minlength=len(names)) >= 2 * _PROXY_FOLDS).sum() < 2:
        return None
    return proxy_screen(
        pd.concat([table for table, _ in parts], ignore_index=True),
        codes,
        names=names,
        n_folds=_PROXY_FOLDS,
        n_trees=_PROXY_TREES,
        max_people=PROXY_PEOPLE,
        random_state=random_state,
    )


_OF_EXPLANATIONS = ("cec", "placebo_cec", "input_gap", "reasoning_gap", "shared_reasons", "q_value")
_OF_WEIGHTS = ("input_gap", "reasoning_gap")


def limited(result: AuditResult, scope: Scope) -> AuditResult:
    """Remove what `scope` does not allow; the same result if everything can be found."""
    if scope.is_whole:
        return result
    source = result.source
    assert isinstance(source, PairsInMemory)
    source, given = _source(source, scope), {"scope": scope.to_dict()}
    return replace(
        result,
        features=_features(result.features, scope),
        outcome=_limited_outcome(result.outcome, scope),
        provenance=replace(result.provenance, attribution_method=_method(result, scope)),
        evidence=None if result.evidence is None else _evidence(result.evidence, scope),
        pair_metrics=_pair_metrics(result.pair_metrics, scope, source.pairs),
        source=source,
        reason_codes=result.reason_codes if scope.attributions and scope.decisions else None,
        sections={
            s.key: result.sections[s.key] for s in SECTIONS if s.key in result.sections and not lacking(given, *s.needs)
        },
        scope=scope,
    )


def _method(result: AuditResult, scope: Scope) -> str:
    """How the attributions were obtained."""
    if scope.model:
        return result.provenance.attribution_method
    return "as given" if scope.attributions else "none"


def _features(features: pd.DataFrame, scope: Scope) -> pd.DataFrame:
    return features if scope.attributions else features.iloc[:0]


def _source(source: PairsInMemory, scope: Scope) -> PairsInMemory:
    """Pairs without the columns that are not known."""
    pairs = source.pairs.copy()
    lost = scope.not_possible
    gone: list[str] = list(_OF_WEIGHTS if "weighing" in lost else ())
    if not scope.attributions:
        gone += _OF_EXPLANATIONS
        pairs["is_negligible"] = False
    if scope.outcome == "decision":
        gone += ["score", "match_score"]
    pairs[gone] = np.nan
    if "regimes" in lost:
        pairs["regime"] = None
    for column in (*(() if scope.decisions else ("decision", "match_decision")), *(() if scope.labels else ("label",))):
        pairs[column] = pd.array([pd.NA] * len(pairs), dtype="Int64")
    if scope.attributions:
        return replace(source, pairs=pairs)
    return replace(
        source,
        pairs=pairs,
        attributions=np.full_like(source.attributions, np.nan),
        match_attributions=np.full_like(source.match_attributions, np.nan),
    )


def _pair_metrics(metrics: PairMetrics, scope: Scope, pairs: pd.DataFrame) -> PairMetrics:
    nan, lost = math.nan, scope.not_possible
    changes: dict[str, Any] = {}
    if "weighing" in lost:
        changes |= {"input_gap": nan, "reasoning_gap": nan}
    if "regimes" in lost:
        changes["regimes"] = dict.fromkeys(REGIMES, nan)
    if not scope.decisions:
        changes["flips"] = nan
    if not scope.attributions:
        changes |= {"cec": nan, "cec_median": nan, "cec_p90": nan, "n_negligible": 0}
        changes["cec_by_group"] = {}
    return replace(metrics, **changes, distributions=_limited_distributions(metrics.distributions, scope, pairs))


def _limited_distributions(found: Mapping[str, Any], scope: Scope, pairs: pd.DataFrame) -> dict[str, Any]:
    """Histograms of what is known; for a value, the bins cover its whole range."""
    kept = dict(found)
    if not scope.attributions:
        kept |= {name: {**found[name], "counts": {}} for name in ("cec", "placebo_cec")}
    if not scope.attributions or scope.outcome != "score":
        kept["plane"] = {**found["plane"], "cells": []}
    if "regimes" in scope.not_possible:
        kept["regimes"] = {}
    if scope.outcome == "value":
        kept["score"] = histogram_of(pairs.drop_duplicates("person"), "score")
    elif scope.outcome == "decision":
        kept["score"] = {**found["score"], "counts": {}}
    return kept


def _evidence(evidence: Evidence, scope: Scope) -> Evidence:
    lost, nan = scope.not_possible, math.nan
    changes: dict[str, Any] = {"score_gaps": tuple(_score_gap(gap, scope) for gap in evidence.score_gaps)}
    gone = ["label"] if not scope.labels else []
    if "weighing" in lost:
        changes |= dict.fromkeys(_OF_WEIGHTS, not_estimable(_as_note(lost["weighing"]), n=0)) | {"weights": ()}
    if "regimes" in lost:
        changes |= {"regime_b": not_estimable(_as_note(lost["regimes"]), n=0), "regime_b_by_threshold": ()}
        gone += ["decision"]
    if not scope.attributions:
        nothing = not_estimable(_as_note(lost["excess"]), n=0)
        changes |= dict.fromkeys(("cec", "balanced", "reason_overlap", "rank_overlap"), nothing)
        changes |= {"compared_mean": nan, "placebo_mean": nan, "agreement": np.full((2, 2), nan)}
        changes |= dict.fromkeys(("splits", "features", "by_distance", "by_matches"), ())
    else:
        changes["splits"] = tuple(split for split in evidence.splits if split.split not in gone)
    if evidence.influences is not None:
        changes["influences"] = _influences(evidence.influences, scope)
    return replace(evidence, **changes)


def _influences(influences: Influences, scope: Scope) -> Influences:
    """Influences on what is known."""
    gone: tuple[str, ...] = ("weighing", "excess: input gap") if "weighing" in scope.not_possible else ()
    gone += () if scope.attributions else ("excess", "input: ")
    gone += () if scope.outcome == "score" else ("score_gap_probability",)
    gone += () if scope.decisions else ("score_gap_decision",)
    return replace(
        influences, columns={name: values for name, values in influences.columns.items() if not name.startswith(gone)}
    )


def _score_gap(gap: ScoreGap, scope: Scope) -> ScoreGap:
    changes: dict[str, Any] = {}
    if not scope.attributions:
        changes |= {"features": (), "smallest_p": math.nan}
    if scope.outcome != "score":
        changes["probability"] = not_estimable("the outcome is not a probability")
    if scope.outcome == "decision":
        changes |= {"total": gap.decision, "unit": DECISION_UNIT}
    if not scope.decisions:
        nothing = not_estimable("there are no decisions")
        changes |= {"decision": nothing, "n_favor_group": None, "n_favor_reference": None}
    return replace(gap, **changes)


def _limited_outcome(outcome: Outcome, scope: Scope) -> Outcome:
    """Outcomes without unknown rates of decisions or errors."""
    lost, changes = scope.not_possible, dict[str, Any]()
    why = {name: lost[key] for key, names in _LOST_METRICS.items() if key in lost for name in names}
    if scope.labels and scope.decisions and "errors" in lost:  # for a value, or for decisions, whose errors are known
        why = {"auc": lost["errors"]}
    changes["metrics"] = {
        name: not_estimable(_as_note(why[name])) if name in why else metric for name, metric in outcome.metrics.items()
    }
    changes["groups"] = tuple(_group(group, scope) for group in outcome.groups)
    changes["gaps"] = {name: _no_spread(gap, why) for name, gap in outcome.gaps.items()}
    if not scope.decisions:
        note = _as_note(lost["decisions"])
        changes |= {"approvals": replace(outcome.approvals, groups=(), note=note), "segments": {}}
    if not scope.decisions or scope.outcome != "score":
        changes["cutoffs"] = ()
    if not scope.decisions or not scope.labels:
        changes["error_rates"] = ()
    elif "errors" in lost:
        nothing = not_estimable(_as_note(lost["errors"]))
        changes["error_rates"] = tuple(
            replace(row, auc=nothing, mean_score_minus_observed_rate=nothing, brier_score=nothing)
            for row in outcome.error_rates
        )
    if scope.outcome == "decision":
        changes["scores"] = ()
    return replace(outcome, **changes)


_LOST_METRICS = {
    "errors": ("auc", "f1", "accuracy", "eo_gap", "tpr_gap", "fpr_gap"),
    "decisions": ("f1", "accuracy", "positive_rate", "eo_gap", "sp_gap", "tpr_gap", "fpr_gap"),
}


def _group(group: GroupOutcome, scope: Scope) -> GroupOutcome:
    changes: dict[str, Any] = {"auc": math.nan} if "errors" in scope.not_possible else {}
    if not scope.decisions:
        changes |= dict.fromkeys(("positive_rate", "true_positive_rate", "false_positive_rate"), math.nan)
    if not scope.labels:
        changes |= dict.fromkeys(("true_positive_rate", "false_positive_rate"), math.nan)
        changes["n_positive_label"] = None
    return replace(group, **changes)


def _no_spread(gap: GapEstimate, why: Mapping[str, str]) -> GapEstimate:
    return GapEstimate(math.nan, name=gap.name, note=_as_note(why[gap.name])) if gap.name in why else gap


def _as_note(sentence: str) -> str:
    """Turn a sentence into the note of a number."""
    return sentence[:1].lower() + sentence[1:].rstrip(".") if not sentence.startswith("AUC") else sentence.rstrip(".")
