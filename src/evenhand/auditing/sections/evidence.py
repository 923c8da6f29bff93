"""The excess over placebo pairs: in total, within parts of the people, and with different settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import altair as alt
import numpy as np

from evenhand.auditing.evidence import SplitExcess
from evenhand.metrics.names import METRICS
from evenhand.report.drawing import (
    NothingToDrawError,
    Row,
    chart_of,
    check_any,
    finished,
    forest,
    guide_x,
    quantity,
)
from evenhand.report.formatting import decimal, interval, is_number, listed, shortened
from evenhand.report.section import NO_EVIDENCE, AuditChart, AuditMetric, Section, Summary, SummaryRow, lacking, number
from evenhand.report.tables import (
    NOTE,
    Column,
    Record,
    Table,
    estimate,
    flag,
    histogram_table,
    significance_flag,
    text,
)

_MOST_ROWS = 40
_OVER_PLACEBO = "Excess over placebo pairs"


_EXCESS_WORDS = {
    "cec": "CEC score",
    "input_gap": "input gap",
    "reasoning_gap": "reasoning gap",
    "regime_b": "share in Regime B (a description, not a test)",
    "reason_overlap": "shared principal reasons of declined people (below 0: fewer shared)",
    "rank_overlap": "rank-biased overlap of their reasons (below 0: less alike)",
}


_EXCESS_NEEDS = {"input_gap": ("weighing",), "reasoning_gap": ("weighing",), "regime_b": ("regimes",)}


_CHOICES: dict[str, tuple[str, Callable[[Any], str]]] = {
    "max_distance": ("cec", lambda at: f"within a distance of {at:.2f}"),
    "n_matches": ("cec", lambda at: f"nearest {at} of each person"),
    "consistency_threshold": ("regime_b", lambda at: f"reasoning differs above {at:g}"),
}


def excess_columns(path: str = "") -> tuple[Column, ...]:
    """The columns of an estimate over pairs and placebo pairs, which is at `path` in each record."""
    key = f"{path}/" if path else ""
    return (
        estimate("excess", path or (lambda r: r)),
        Column("standard error", "number", f"{key}standard_error").detail(),
        Column("p-value, one-sided", "p", f"{key}p_value"),
        Column("people", "whole", f"{key}n"),
        Column("people, effective", "number", f"{key}n_effective").detail(),
        Column("degrees of freedom", "number", f"{key}df").detail(),
    )


def _excess_records(summary: Summary) -> list[Record]:
    found = summary["evidence"]
    if not found:
        return []
    records: list[Record] = [
        {**found[name], "metric": words, "choice": "as audited", "at": "", "by": ""}
        for name, words in _EXCESS_WORDS.items()
        if not lacking(summary, *_EXCESS_NEEDS.get(name, ()))
    ]
    for name, (metric, choice) in _CHOICES.items():
        records += [
            {**row, "metric": _EXCESS_WORDS[metric], "choice": choice(row[name]), "at": row[name], "by": name}
            for row in found["sensitivity"][name]
        ]
    return records


def excess_table(summary: Summary, *, with_choices: bool = False) -> Table:
    """The excess of each metric, as audited and, if requested, with different settings."""
    records = [r for r in _excess_records(summary) if with_choices or not r["by"]]
    columns = (
        text("metric"),
        text("choice").detail(),
        Column("at").detail(),
        *excess_columns(),
        flag(lambda r: significance_flag(r["p_value"], "p-value")),
        NOTE,
    )
    caption = "Excess over placebo pairs with 95% intervals"
    return Table("Excess", caption, columns, records, NO_EVIDENCE, needs=("excess",))


def sensitivity_table(summary: Summary) -> Table:
    """The excess of the CEC score with nearer or fewer matches."""
    records = [r for r in _excess_records(summary) if r["metric"] == _EXCESS_WORDS["cec"]]
    columns = (text("choice"), *excess_columns(), NOTE)
    return Table("Sensitivity", "Excess of the CEC score with different settings", columns, records, needs=("excess",))


def threshold_table(summary: Summary) -> Table:
    """The excess share in regime B at different thresholds."""
    records = [r for r in _excess_records(summary) if r["by"] == "consistency_threshold"]
    columns = (text("choice"), estimate("excess share", lambda r: r, "share"), NOTE)
    caption = "Excess share in regime B at different consistency thresholds"
    return Table("Thresholds", caption, columns, records, needs=("regimes",))


def split_table(summary: Summary) -> Table:
    """The excess within parts of the people."""
    columns = (
        text("column", "split"),
        text("value"),
        *excess_columns("estimate"),
        Column("p-value, adjusted", "p", "p_adjusted"),
        flag(lambda r: significance_flag(r["p_adjusted"], "adjusted p-value")),
        Column("note", "long text", "estimate/note"),
    )
    caption = "Excess of the CEC score within parts of the people; p-values adjusted (Holm) within a column"
    records = (summary["evidence"] or {"splits": []})["splits"]
    return Table("Splits", caption, columns, records, NO_EVIDENCE, needs=("excess",))


def evidence_of(data: Summary) -> Mapping[str, Any]:
    """The evidence, for charts that need it."""
    if data["evidence"] is None:
        raise NothingToDrawError("The audit was run without evidence: run `audit` with `evidence=True` for this chart.")
    found: Mapping[str, Any] = data["evidence"]
    return found


def cec_distribution(data: Summary) -> alt.Chart:
    """CEC scores of pairs, and of the placebo pairs of the same people."""
    x = quantity(alt.X, "cec", "CEC score", domain=[0, 1])
    y = quantity(alt.Y, "share", "Share of pairs", percent=True)
    pairs, placebo = (_histogram(data["distributions"][key]) for key in ("cec", "placebo_cec"))
    check_any(pairs, "no pair was scored")
    layers: list[Any] = [chart_of(pairs).mark_area(style="pairs", interpolate="step-after", line=True).encode(x=x, y=y)]
    if placebo:
        layers.append(chart_of(placebo).mark_line(style="floor", interpolate="step-after").encode(x=x, y=y))
    tau = data["settings"]["consistency_threshold"]
    return finished(
        alt.layer(*layers, *guide_x(tau, f"threshold {tau:g}")),
        "Histogram: CEC scores of pairs across groups (filled) and of placebo pairs (dashed line).",
        height=220,
    )


def _histogram(found: Mapping[str, Any]) -> list[Row]:
    """Share of everyone in each bin, at its left edge, and 0 at the end."""
    counts = np.sum(list(found["counts"].values()), axis=0) if found["counts"] else np.zeros(0)
    if not counts.sum():
        return []
    shares = [*(counts / counts.sum()).tolist(), 0.0]
    return [{"cec": edge, "share": share} for edge, share in zip(found["edges"], shares, strict=True)]


def excess(data: Summary) -> alt.Chart:
    """The excess over placebo pairs of each measure, with 95% intervals."""
    found = evidence_of(data)
    parts = (
        ("CEC score", "cec"),
        ("input gap", "input_gap"),
        ("reasoning gap", "reasoning_gap"),
        ("regime B share", "regime_b"),
        ("shared reasons", "reason_overlap"),
    )
    rows = [(label, found[name]) for label, name in parts]
    return forest(
        rows, _OVER_PLACEBO, "excess over placebo pairs of the CEC score, its two parts, regime B and shared reasons."
    )


def excess_by(data: Summary) -> alt.Chart:
    """The excess of the CEC score within each group, label, decision and additional column."""
    splits = evidence_of(data)["splits"]
    rows = [("everyone", data["evidence"]["cec"])]
    rows += [(f"{s['split']}: {s['value']}", s["estimate"]) for s in splits]
    among = "for everyone and within each group, label, decision and additional column."
    return forest(rows[:_MOST_ROWS], _OVER_PLACEBO, f"excess of the CEC score {among}")


def sensitivity(data: Summary) -> alt.Chart:
    """The excess with different matches, with 95% intervals."""
    found = evidence_of(data)["sensitivity"]
    rows = [("as audited", data["evidence"]["cec"])]
    rows += [(f"distance up to {e['max_distance']:.2f}", e) for e in found["max_distance"]]
    rows += [(f"nearest {e['n_matches']} each", e) for e in found["n_matches"]]
    return forest(rows, _OVER_PLACEBO, "excess of the CEC score with nearer or fewer matches.")


def thresholds(data: Summary) -> alt.Chart:
    """The excess share in regime B at different consistency thresholds, with 95% intervals."""
    found = evidence_of(data)["sensitivity"]["consistency_threshold"]
    rows = [(f"CEC above {e['consistency_threshold']:g}", e) for e in found]
    return forest(
        rows,
        "Excess share in regime B",
        "excess share in regime B at different consistency thresholds.",
        percent_axis=True,
    )


def _excess(data: Summary) -> str:
    found = data["evidence"]["cec"]
    return (
        f"The excess of the CEC score is {decimal(found['value'])} ({interval(found['low'], found['high'])}); "
        "0 means the same reasoning for both groups."
    )


def _excess_by(data: Summary) -> str:
    splits = [s for s in data["evidence"]["splits"] if is_number(s["estimate"]["value"])]
    called = [s for s in splits if is_number(s["p_adjusted"]) and s["p_adjusted"] <= 0.05]
    if not splits:
        return "No part of the people is large enough for a separate estimate."
    most = max(splits, key=lambda s: s["estimate"]["value"])
    place = f"largest for {shortened(most['split'], 40)}: {shortened(most['value'], 40)}"
    if not called:
        return f"No part of the people shows an excess after adjustment for the number of parts; {place}."
    return f"{len(called)} of {len(splits)} parts show an excess after adjustment for their number; {place}."


def _cec_distribution(data: Summary) -> str:
    if data["evidence"] is None:
        return "Filled: nearest matches. Without evidence, there are no placebo pairs to compare them with."
    return (
        "Filled: nearest matches. Dashed: placebo pairs, averaged for each person, at the same distance as all "
        "compared pairs; the test is the excess above, not this chart."
    )


def _sensitivity(data: Summary) -> str:
    depends_on = data["evidence"]["sensitivity"]["depends_on"]
    if not depends_on:
        return "With every setting shown, the excess differs by no more than chance."
    return f"The excess differs by more than chance with {listed(depends_on)}."


def _thresholds(data: Summary) -> str:
    return f"The audit used {data['settings']['consistency_threshold']:g}; these are descriptions, not tests."


_EXCESSES: dict[str, tuple[str, str, str]] = {
    "weighing": ("reasoning_gap", METRICS["reasoning_excess"].words, "weighing"),
    "excess": ("cec", METRICS["excess"].words, "excess"),
    "excess_balanced": ("balanced", METRICS["excess_balanced"].words, "excess"),
    "excess: input gap": ("input_gap", "excess, input gap", "excess"),
    "excess: regime B": ("regime_b", METRICS["excess_regime_b"].words, "excess"),
    "excess: shared reasons": ("reason_overlap", "excess, shared principal reasons", "excess"),
}


class Excess(Section):
    """How much farther apart the explanations of pairs are than those of placebo pairs."""

    key, title, needs, is_logged = "excess", "Weighing and excess", ("excess",), False
    answers, more = ("weighing", "excess"), "Parts of the people, and all CEC scores"
    parts = (SplitExcess,)
    charts = (
        AuditChart(excess, _OVER_PLACEBO, _excess, excess_table, is_wide=True),
        AuditChart(
            excess_by, "Excess within parts of the people", _excess_by, split_table, is_wide=True, is_detail=True
        ),
        AuditChart(
            cec_distribution,
            "CEC scores of pairs and placebo pairs",
            _cec_distribution,
            lambda s: histogram_table(s["distributions"]["cec"], "Pairs by CEC score and group", "excess"),
            is_wide=True,
            is_detail=True,
        ),
    )
    words: ClassVar = {
        "placebo pair": "A person and someone of the same group and label who is as far away as the match. It shows "
        "what the CEC score is when the group plays no role.",
        "excess": "The CEC score of pairs minus that of placebo pairs, adjusted for unequal finances: the evidence.",
        "weighing": "Whether the same inputs count alike for both groups: the reasoning gap of pairs minus that of "
        "placebo pairs.",
        "q-value": "Expected share of false alarms in a list of people that ends with this one.",
        "people, effective": "Number of equally used people who would be as informative as those compared.",
    }

    prose = (
        "Two people are never quite alike, so explanations differ even if the group plays no role. A placebo pair "
        "is a person and someone of the same group and label who is as far away as the match. The CEC score of "
        "pairs across groups minus that of placebo pairs is the excess: the evidence of this audit."
    )

    def sheets(self, summary: Summary) -> Sequence[Table]:
        return (excess_table(summary, with_choices=True), split_table(summary))

    def summary_rows(self, summary: Summary) -> Iterable[SummaryRow]:
        found = summary["evidence"]
        if not found:
            return
        p, overlap = found["cec"]["p_value"], found["reason_overlap"]
        words = "" if not is_number(p) else "one-sided p < 0.001" if p < 0.001 else f"one-sided p = {p:.3f}"
        note = ", ".join(x for x in ("minus placebo pairs", words, found["cec"]["note"]) if x)
        weighing = found["reasoning_gap"]
        shared = overlap["note"] or "of two declined people; below 0, fewer shared"
        yield "compared pairs, CEC mean", found["compared_mean"], "pairs that have a placebo pair", "excess"
        yield "placebo pairs, CEC mean", found["placebo_mean"], "within a group, at the same distance", "excess"
        yield "excess", found["cec"], note, "excess"
        yield "excess, groups weighted equally", found["balanced"], found["balanced"]["note"], "excess"
        yield "weighing", weighing, weighing["note"] or "excess of the reasoning gap", "weighing"
        yield METRICS["excess_regime_b"].words, found["regime_b"], found["regime_b"]["note"], "regimes"
        yield "excess, shared principal reasons", overlap, shared, "excess", "decisions"

    def metrics(self, summary: Summary, reference: str) -> Iterable[AuditMetric]:
        found = summary["evidence"]
        if found is None:
            return
        for key, (name, words, part) in _EXCESSES.items():
            finding = key if key in ("weighing", "excess") else None
            yield excess_metric(key, part, words, found[name], finding=finding, influence=key)
        for split in found["splits"]:
            if split["split"] in ("group", "groups compared"):
                key, words = f"excess: {split['split']} {split['value']}", f"excess, {split['value']}"
                yield excess_metric(key, "excess", words, split["estimate"])


def excess_metric(key: str, part: Any, words: str, of: Mapping[str, Any], **more: Any) -> AuditMetric:
    """A metric from an estimate over pairs and placebo pairs."""
    value, error, df = (number(of[name]) for name in ("value", "standard_error", "df"))
    return AuditMetric(key, part, words, value, error, df, note=of["note"], **more)


class Sensitivity(Section):
    """The excess with nearer or fewer matches, and at other thresholds; its numbers are in the sheet of the excess."""

    key, title, needs, under = "sensitivity", "The excess with other matches and thresholds", ("excess",), "matching"
    charts = (
        AuditChart(sensitivity, "Nearer or fewer matches", _sensitivity, sensitivity_table),
        AuditChart(thresholds, "Other consistency thresholds", _thresholds, threshold_table),
    )

    prose = (
        "The same question with different settings. A verdict that changes with an arbitrary setting is not reliable."
    )

    def sheets(self, summary: Summary) -> Sequence[Table]:
        return ()
