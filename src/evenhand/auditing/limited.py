"""Remove from a result what could not be found with the given inputs.

The engine computes everything as usual. For scores without a model, some of it means nothing: a reasoning gap of 0 says
that attributions hold no weights, not that the model weighs alike. Such numbers are removed here, once, before anyone
sees the result, and each missing number says why it is missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd

from evenhand.auditing.distributions import histogram_of
from evenhand.auditing.evidence import Evidence
from evenhand.auditing.influences import Influences
from evenhand.auditing.result import AuditResult
from evenhand.auditing.sample import PairsInMemory
from evenhand.auditing.scope import DECISION_UNIT, Scope
from evenhand.auditing.score_gaps import ScoreGap
from evenhand.auditing.summary import Outcome, PairMetrics
from evenhand.metrics.disparity import GapEstimate
from evenhand.metrics.estimate import not_estimable
from evenhand.metrics.excess import ExcessEstimate
from evenhand.metrics.outcomes import GroupOutcome, Metric
from evenhand.metrics.regimes import REGIMES
from evenhand.metrics.score_gap import GapColumn

__all__ = ["limited"]

_OF_EXPLANATIONS = ("cec", "placebo_cec", "input_gap", "reasoning_gap", "shared_reasons", "q_value")
_OF_WEIGHTS = ("input_gap", "reasoning_gap")


def limited(result: AuditResult, scope: Scope) -> AuditResult:
    """Remove what `scope` does not allow; the same result if everything can be found."""
    if scope.is_whole:
        return result
    source = result.source
    assert isinstance(source, PairsInMemory)
    source = _source(source, scope)
    return replace(
        result,
        features=_features(result.features, scope),
        outcome=_outcome(result.outcome, scope),
        provenance=replace(result.provenance, attribution_method=_method(result, scope)),
        evidence=None if result.evidence is None else _evidence(result.evidence, scope),
        pair_metrics=_pair_metrics(result.pair_metrics, scope, source.pairs),
        source=source,
        reason_codes=result.reason_codes if scope.attributions and scope.decisions else None,
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
        explain_by_label=None,
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
    return replace(metrics, **changes, distributions=_distributions(metrics.distributions, scope, pairs))


def _distributions(found: Mapping[str, Any], scope: Scope, pairs: pd.DataFrame) -> dict[str, Any]:
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
        changes |= dict.fromkeys(_OF_WEIGHTS, _no_excess(lost["weighing"])) | {"weights": ()}
    if "regimes" in lost:
        changes |= {"regime_b": _no_excess(lost["regimes"]), "regime_b_by_threshold": ()}
        gone += ["decision"]
    if not scope.attributions:
        nothing = _no_excess(lost["excess"])
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
        changes["probability"] = _no_gap("the outcome is not a probability")
    if scope.outcome == "decision":
        changes |= {"total": gap.decision, "unit": DECISION_UNIT}
    if not scope.decisions:
        changes |= {"decision": _no_gap("there are no decisions"), "n_favor_group": None, "n_favor_reference": None}
    return replace(gap, **changes)


def _outcome(outcome: Outcome, scope: Scope) -> Outcome:
    """Outcomes without unknown rates of decisions or errors."""
    lost, changes = scope.not_possible, dict[str, Any]()
    why = {name: lost[key] for key, names in _LOST_METRICS.items() if key in lost for name in names}
    if scope.labels and scope.decisions and "errors" in lost:  # for a value, or for decisions, whose errors are known
        why = {"auc": lost["errors"]}
    changes["metrics"] = {
        name: Metric(math.nan, _as_note(why[name])) if name in why else metric
        for name, metric in outcome.metrics.items()
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
    if gap.name not in why:
        return gap
    nan = math.nan
    return replace(
        gap, value=nan, low=nan, high=nan, rate="", group_low="", group_high="", note=_as_note(why[gap.name])
    )


def _no_excess(sentence: str) -> ExcessEstimate:
    nan = math.nan
    return ExcessEstimate(nan, nan, nan, nan, nan, 0, nan, nan, _as_note(sentence))


def _no_gap(note: str) -> GapColumn:
    nan = math.nan
    return GapColumn(nan, nan, nan, nan, nan, nan, nan, note)


def _as_note(sentence: str) -> str:
    """Turn a sentence into the note of a number."""
    return sentence[:1].lower() + sentence[1:].rstrip(".") if not sentence.startswith("AUC") else sentence.rstrip(".")
