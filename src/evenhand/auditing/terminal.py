"""The summary of an audit as rows, and as text for a terminal."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from evenhand.metrics.regimes import REGIMES

__all__ = ["summary_rows", "terminal_summary"]

Row = tuple[str, float, float, float, str]

_REGIME_WORDS = {
    "A": "same decision, same reasoning",
    "B": "same decision, different reasoning",
    "C": "different decision, same reasoning",
    "D": "different decision, different reasoning",
}
_OUTCOMES = (
    ("auc", "AUC", ""),
    ("f1", "F1", ""),
    ("accuracy", "accuracy", ""),
    ("positive_rate", "positive rate", "share of favorable decisions"),
    ("eo_gap", "equalized odds gap", "larger of the gaps in true and false positive rate"),
    ("sp_gap", "statistical parity gap", "gap in the positive rate"),
)
_EXCESSES = (
    ("excess, reasoning gap", "reasoning_gap"),
    ("excess, regime B share", "regime_b"),
    ("excess, shared principal reasons", "reason_overlap"),
)


def summary_rows(summary: Mapping[str, Any]) -> list[Row]:
    """Metric, value, both ends of the interval and note of each metric of an audit's summary."""
    cec, nan = summary["cec"], math.nan
    threshold = summary["settings"]["consistency_threshold"]
    return [
        ("CEC score, mean", cec["mean"], nan, nan, "0 identical reasoning, 1 opposed"),
        ("input gap, mean", cec["input_gap"], nan, nan, "other inputs under the same weights"),
        ("reasoning gap, mean", cec["reasoning_gap"], nan, nan, "the same inputs under other weights"),
        *_evidence_rows(summary["evidence"]),
        *((f"regime {r}, share", summary["regimes"][r], nan, nan, _regime_note(r, threshold)) for r in REGIMES),
        ("prediction flip rate", summary["outcome"]["pfr"], nan, nan, "matched people who get different decisions"),
        *_outcome_rows(summary["outcome"]),
        ("coverage", summary["matching"]["coverage"], nan, nan, "people who have a match in another group"),
    ]


def _evidence_rows(evidence: Mapping[str, Any] | None) -> list[Row]:
    if evidence is None:
        return []
    nan = math.nan
    p = evidence["cec"]["p_value"]
    shown = "" if math.isnan(p) else "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
    note = ", ".join(part for part in ("over placebo pairs", shown, evidence["cec"]["note"]) if part)
    return [
        ("compared pairs, CEC mean", evidence["compared_mean"], nan, nan, "pairs that have a placebo pair"),
        ("placebo pairs, CEC mean", evidence["placebo_mean"], nan, nan, "within a group, at the same distance"),
        _estimate_row("excess", evidence["cec"], note),
        *(_estimate_row(name, evidence[key], evidence[key]["note"]) for name, key in _EXCESSES),
    ]


def _estimate_row(name: str, estimate: Mapping[str, Any], note: str) -> Row:
    return name, estimate["value"], estimate["ci_low"], estimate["ci_high"], note


def _outcome_rows(outcome: Mapping[str, Any]) -> list[Row]:
    rows = []
    for key, name, note in _OUTCOMES:
        gap = outcome["gaps"].get(key, {"low": math.nan, "high": math.nan})
        rows.append((name, outcome[key], gap["low"], gap["high"], outcome["notes"].get(key, note)))
    return rows


def _regime_note(regime: str, threshold: float) -> str:
    return f"{_REGIME_WORDS[regime]} (CEC {'above' if regime in 'BD' else 'up to'} {threshold:g})"


def terminal_summary(summary: Mapping[str, Any]) -> RenderableType:
    """The summary of an audit for a terminal."""
    people = summary["data"]
    groups = ", ".join(f"{name} {count:,}" for name, count in people["groups"].items())
    metrics = Table("metric", "value", "95 % interval", "", box=None, pad_edge=False)
    metrics.columns[1].justify = "right"
    for name, value, low, high, note in summary_rows(summary):
        interval = "" if math.isnan(low) else f"{low:.3f} to {high:.3f}"
        metrics.add_row(Text(name), "n/a" if math.isnan(value) else f"{value:.3f}", interval, Text(note, style="dim"))
    drivers = Table("feature", "share of the CEC score", box=None, pad_edge=False)
    drivers.columns[1].justify = "right"
    for row in summary["features"][:5]:
        drivers.add_row(Text(row["feature"]), f"{row['share']:.1%}")
    parts: list[RenderableType] = [Text(f"{people['model']}, {people['n_people']:,} people ({groups})"), Text()]
    parts += [metrics, Text(), drivers]
    if summary["evidence"] is not None:
        parts += [Text(), *(Text(sentence) for sentence in summary["evidence"]["sentences"])]
    if summary["warnings"]:
        parts += [Text(), *(Text(f"! {warning}", style="yellow") for warning in summary["warnings"])]
    return Group(*parts)
