"""The metrics of an audit in one table, for `AuditResult.summary`, the terminal and the workbook."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from evenhand.metrics.regimes import REGIMES
from evenhand.report.audit_tables import regime_meaning
from evenhand.report.formatting import is_number
from evenhand.report.scope import lacking
from evenhand.report.tables import NOTE, Record, Table, estimate, text

__all__ = ["summary_table"]

Summary = Mapping[str, Any]


def summary_table(summary: Summary) -> Table:
    """The metrics of the audit, as in `AuditResult.summary`."""
    columns = (text("metric"), estimate("value", lambda r: r), NOTE)
    return Table("Summary", "The metrics of the audit with 95% intervals.", columns, _summary_records(summary))


def _summary_records(summary: Summary) -> list[Record]:
    rows = [*_reasoning_rows(summary), *_evidence_rows(summary), *_outcome_rows(summary)]
    return [
        {**_as_estimate(value), "metric": metric, "note": note}
        for metric, value, note, *needs in rows
        if not lacking(summary, *needs)
    ]


_Row: TypeAlias = "tuple[Any, ...]"  # metric, value, note, and what it needs


def _reasoning_rows(summary: Summary) -> list[_Row]:
    cec = summary["cec"]
    return [
        ("CEC score, mean", cec["mean"], "0 identical reasoning, 1 opposed", "excess"),
        ("input gap, mean", cec["input_gap"], "different inputs under the same weights", "weighing"),
        ("reasoning gap, mean", cec["reasoning_gap"], "the same inputs under different weights", "weighing"),
    ]


def _evidence_rows(summary: Summary) -> list[_Row]:
    found = summary["evidence"]
    if not found:
        return []
    gap = summary["score_gap"]
    side = f"{gap['group']} minus {gap['reference']}, at equal finances"
    p = found["cec"]["p_value"]
    words = "" if not is_number(p) else "one-sided p < 0.001" if p < 0.001 else f"one-sided p = {p:.3f}"
    excess = ", ".join(x for x in ("minus placebo pairs", words, found["cec"]["note"]) if x)
    return [
        *_gap_in_unit(summary, side),
        ("score gap, log-odds", gap["logit"], gap["logit"]["note"] or side, "probability"),
        ("score gap, probability", gap["probability"], gap["probability"]["note"] or side, "probability"),
        ("score gap, favorable decisions", gap["decision"], gap["decision"]["note"] or side, "decisions"),
        ("compared pairs, CEC mean", found["compared_mean"], "pairs that have a placebo pair", "excess"),
        ("placebo pairs, CEC mean", found["placebo_mean"], "within a group, at the same distance", "excess"),
        ("excess", found["cec"], excess, "excess"),
        ("excess, groups weighted equally", found["balanced"], found["balanced"]["note"], "excess"),
        (
            "weighing",
            found["reasoning_gap"],
            found["reasoning_gap"]["note"] or "excess of the reasoning gap",
            "weighing",
        ),
        ("excess, regime B share", found["regime_b"], found["regime_b"]["note"], "regimes"),
        (
            "excess, shared principal reasons",
            found["reason_overlap"],
            found["reason_overlap"]["note"] or "of two declined people; below 0, fewer shared",
            "excess",
            "decisions",
        ),
    ]


def _gap_in_unit(summary: Summary, side: str) -> list[_Row]:
    """The gap of an outcome that is a value."""
    gap, scope = summary["score_gap"], summary.get("scope")
    if "value" not in gap or not scope or scope["outcome"] != "value":
        return []
    worse = f"{side}; below 0, worse off"
    return [(f"score gap, {scope['unit']}", gap["value"], gap["value"]["note"] or worse, "scores")]


def _outcome_rows(summary: Summary) -> list[_Row]:
    outcome, tau = summary["outcome"], summary["settings"]["consistency_threshold"]
    rows: list[_Row] = [
        (f"regime {r}, share", summary["regimes"][r], regime_meaning(r, tau), "regimes") for r in REGIMES
    ]
    rows.append(("prediction flip rate", outcome["pfr"], "matched people who get different decisions", "decisions"))
    for name, metric, note, *needs in (
        ("auc", "AUC", "", "labels", "probability"),
        ("f1", "F1", "", "labels", "decisions"),
        ("accuracy", "accuracy", "", "labels", "decisions"),
        ("positive_rate", "positive rate", "share of favorable decisions", "decisions"),
        ("eo_gap", "equalized odds gap", "larger of the gaps in true and false positive rate", "labels", "decisions"),
        ("sp_gap", "statistical parity gap", "gap in the positive rate", "decisions"),
    ):
        found_gap = outcome["gaps"].get(name)
        value = outcome[name] if found_gap is None else {**found_gap, "value": outcome[name]}
        rows.append((metric, value, outcome["notes"].get(name, "") or note, *needs))
    rows.append(("coverage", summary["matching"]["coverage"], "people who have a match in a different group"))
    return rows


def _as_estimate(value: Any) -> Mapping[str, Any]:  # noqa: ANN401 - an estimate, or a number alone
    return value if isinstance(value, Mapping) else {"value": value}
