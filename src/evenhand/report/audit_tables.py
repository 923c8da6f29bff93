"""The tables of an audit, from its summary (`AuditResult.to_dict`), for the page and for the workbook."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from evenhand.metrics.regimes import REGIMES
from evenhand.report.formatting import is_number
from evenhand.report.scope import lacking
from evenhand.report.tables import FLAGGED, NOTE, Column, Highlight, Record, Table, estimate, flag, joined, text

__all__ = [
    "NO_EVIDENCE",
    "SIGNIFICANT",
    "audited_table",
    "balance_table",
    "cec_table",
    "coverage_table",
    "density_table",
    "distance_table",
    "excess_table",
    "feature_table",
    "matching_table",
    "plane_table",
    "proxy_table",
    "regime_meaning",
    "regime_table",
    "score_histogram",
    "sensitivity_table",
    "significance_flag",
    "split_table",
    "threshold_table",
    "verdict_table",
    "weight_table",
]

Summary = Mapping[str, Any]

SIGNIFICANT = 0.05
_BALANCED = 0.1  # a standardized mean difference below this is commonly read as balanced
NO_EVIDENCE = "Not available: the audit was run with evidence=False."
_EVERYONE = "all pairs"
_BINS = 10

_REGIME_WORDS = {
    "A": "same decision, same reasoning",
    "B": "same decision, different reasoning",
    "C": "different decision, same reasoning",
    "D": "different decision, different reasoning",
}


def significance_flag(value: float | None, word: str) -> str:
    """The flag of a p-value or q-value: empty, unless it is at most 0.05.

    Examples
    --------
    >>> significance_flag(0.01, "p-value"), significance_flag(float("nan"), "p-value")
    ('p-value at most 0.05', '')
    """
    return f"{word} at most {SIGNIFICANT:g}" if value is not None and value <= SIGNIFICANT else ""


# --- what was audited, and the verdict ---


def _flat(found: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Names and values; those of a nested mapping next to the rest."""
    for key, value in found.items():
        yield from _flat(value) if isinstance(value, Mapping) else [(key, value)]


def audited_table(summary: Summary) -> Table:
    """What was audited, all options that change a metric, and versions."""
    records: list[Record] = [{"part": "schema", "item": "schema", "value": summary["schema"]}]
    for part in ("data", "settings", "versions"):
        for item, value in summary[part].items():
            if isinstance(value, Mapping):
                records += [{"part": part, "item": f"{item}: {key}", "value": v} for key, v in _flat(value)]
            elif isinstance(value, (list, tuple)):
                records += [{"part": part, "item": item, "value": v} for v in value]
            else:
                records.append({"part": part, "item": item, "value": value})
    columns = (
        text("part"),
        text("item"),
        Column("value", "any"),
        Column("note", "long text", lambda r: "none" if r["value"] is None else ""),
    )
    return Table("Audited", "What was audited, all settings that change a metric, and versions.", columns, records)


def verdict_table(summary: Summary, left_out: str = "") -> Table:
    """The findings in words, and reservations; `left_out` says which pairs are not shown."""
    found = summary["verdict"]
    sentences = [("verdict", f"{name}: {sentence}") for name, sentence in found["sentences"]]
    sentences += [("verdict", found["limits"])]
    sentences += [("warning", warning) for warning in summary["warnings"]]
    sentences += [("left out", left_out)] if left_out else []
    columns = (
        flag(lambda r: "warning" if r["kind"] != "verdict" else ""),
        text("kind"),
        Column("sentence", "long text"),
    )
    records = [{"kind": kind, "sentence": sentence} for kind, sentence in sentences]
    caption = "The findings in words, and reservations."
    return Table("Verdict and warnings", caption, columns, records, [FLAGGED])


# --- reasoning ---


def regime_meaning(regime: str, threshold: float) -> str:
    """Describe a regime, given a consistency threshold."""
    return f"{_REGIME_WORDS[regime]} (CEC {'above' if regime in 'BD' else 'up to'} {threshold:g})"


def _regime_counts(summary: Summary) -> dict[str, Mapping[str, int]]:
    by_group = summary["distributions"]["regimes"]
    return {_EVERYONE: {r: sum(counts[r] for counts in by_group.values()) for r in REGIMES}, **by_group}


def _share(part: int, whole: int) -> float:
    return part / whole if whole else math.nan


def regime_table(summary: Summary) -> Table:
    """Pairs by group and regime."""
    threshold = summary["settings"]["consistency_threshold"]
    records = [
        {
            "group": group,
            "regime": regime,
            "pairs": counts[regime],
            "share": summary["regimes"][regime] if group == _EVERYONE else _share(counts[regime], sum(counts.values())),
            "meaning": regime_meaning(regime, threshold),
        }
        for group, counts in _regime_counts(summary).items()
        for regime in REGIMES
    ]
    columns = (
        text("group"),
        text("regime"),
        Column("pairs", "whole"),
        Column("share", "share"),
        flag(lambda r: "different reasoning" if r["regime"] in "BD" else ""),
        Column("meaning", "long text"),
    )
    highlights = [Highlight("regime", "equals", "B"), Highlight("regime", "equals", "D", "strong")]
    caption = "Share of pairs in each regime, by group of the person"
    return Table("Regimes", caption, columns, records, highlights, needs=("regimes",))


def plane_table(summary: Summary) -> Table:
    """Flip rate and CEC score by group."""
    cec = summary["cec"]
    records = []
    for group, counts in _regime_counts(summary).items():
        total, is_all = sum(counts.values()), group == _EVERYONE
        records.append(
            {
                "group": group,
                "flips": summary["outcome"]["pfr"] if is_all else _share(counts["C"] + counts["D"], total),
                "cec": cec["mean"] if is_all else cec["by_group"].get(group),
                "pairs": total,
            }
        )
    columns = (
        text("group"),
        Column("flip rate", "share", "flips"),
        Column("mean CEC score", "number", "cec"),
        Column("pairs", "whole"),
    )
    return Table("Plane", "Decisions and reasoning of pairs", columns, records, needs=("regimes",))


def density_table(summary: Summary) -> Table:
    """Pairs by size of the score difference and by CEC score."""
    found, tau = summary["distributions"]["plane"], summary["settings"]["consistency_threshold"]
    across, up = found["difference_edges"], found["cec_edges"]
    records = []
    for left, right in ((0.0, 0.1), (0.1, 0.25), (0.25, 0.5), (0.5, 1.01)):
        row = {"apart": f"{left:g} to {min(right, 1):g}", "low": 0, "high": 0}
        for i, j, n in found["cells"]:
            if left <= abs(across[i] + across[i + 1]) / 2 < right:
                row["high" if up[j] >= tau - 1e-9 else "low"] += n
        records.append(row)
    columns = (
        text("score difference", "apart"),
        Column(f"CEC up to about {tau:g}", "whole", "low"),
        Column(f"CEC above about {tau:g}", "whole", "high"),
    )
    caption = "Pairs by difference in scores and CEC score"
    return Table("Density", caption, columns, records, needs=("regimes", "probability"))


def cec_table(summary: Summary) -> Table:
    """Pairs by CEC score and group."""
    return _histogram(summary["distributions"]["cec"], "Pairs by CEC score and group", "excess")


def score_histogram(summary: Summary) -> Table:
    """People by score and group."""
    return _histogram(summary["distributions"]["score"], "People by score and group", "scores")


def _histogram(found: Mapping[str, Any], caption: str, need: str) -> Table:
    """Counts in a few wide bins, by group."""
    edges = found["edges"]
    step = max(1, (len(edges) - 1) // _BINS)
    records = [
        {
            "bin": f"{edges[i]:g} to {edges[min(i + step, len(edges) - 1)]:g}",
            "counts": {group: sum(counts[i : i + step]) for group, counts in found["counts"].items()},
        }
        for i in range(0, len(edges) - 1, step)
    ]
    columns = (
        text("from, to", "bin"),
        *(Column(str(group), "whole", _in("counts", group)) for group in found["counts"]),
    )
    return Table("Histogram", caption, columns, records, needs=(need,))


def _in(outer: str, inner: str) -> Callable[[Record], Any]:
    # Names of groups may contain the separator of paths.
    return lambda record: record[outer].get(inner)


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


def _excess_columns(path: str = "") -> tuple[Column, ...]:
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
        *_excess_columns(),
        flag(lambda r: significance_flag(r["p_value"], "p-value")),
        NOTE,
    )
    caption = "Excess over placebo pairs with 95% intervals"
    return Table("Excess", caption, columns, records, [FLAGGED], NO_EVIDENCE, needs=("excess",))


def sensitivity_table(summary: Summary) -> Table:
    """The excess of the CEC score with nearer or fewer matches."""
    records = [r for r in _excess_records(summary) if r["metric"] == _EXCESS_WORDS["cec"]]
    columns = (text("choice"), *_excess_columns(), NOTE)
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
        *_excess_columns("estimate"),
        Column("p-value, adjusted", "p", "p_adjusted"),
        flag(lambda r: significance_flag(r["p_adjusted"], "adjusted p-value")),
        Column("note", "long text", "estimate/note"),
    )
    caption = "Excess of the CEC score within parts of the people; p-values adjusted (Holm) within a column"
    records = (summary["evidence"] or {"splits": []})["splits"]
    return Table("Splits", caption, columns, records, [FLAGGED], NO_EVIDENCE, needs=("excess",))


def feature_table(summary: Summary) -> Table:
    """Each feature's part of score and excess."""
    found = {f["feature"]: f["estimate"] for f in (summary["evidence"] or {"features": []})["features"]}
    nothing = {"p_value": None, "note": "" if found else NO_EVIDENCE}
    records = [{**row, **found.get(row["feature"], nothing), "row": row} for row in summary["features"]]

    def excess_of(record: Record) -> Mapping[str, Any]:
        row = record["row"]
        return {"value": row.get("excess"), "low": row.get("excess_ci_low"), "high": row.get("excess_ci_high")}

    def note(record: Record) -> str:
        return joined(record["note"], "" if is_number(record["share"]) else "no score to share")

    columns = (
        text("feature"),
        Column("contribution to CEC", "number", "contribution").detail(),
        Column("share of CEC", "share", "share"),
        estimate("contribution to excess", excess_of, places=4),
        Column("p-value, one-sided", "p", "p_value").detail(),
        *(
            Column(f"mean attribution: {group}", "number", _in("row", f"mean attribution: {group}"))
            for group in summary["data"]["groups"]
        ),
        flag(lambda r: significance_flag(r["p_value"], "p-value, not adjusted,")),
        Column("note", "long text", note).detail(),
    )
    caption = "Each feature's part of the CEC score and of the excess, and its mean attribution in each group"
    return Table("Features", caption, columns, records, [FLAGGED], needs=("excess",))


def weight_table(summary: Summary) -> Table:
    """Differences in weights."""
    effect, error, _, *rest = _excess_columns("estimate")
    columns = (
        text("feature"),
        text("group"),
        text("other group", "other_group"),
        estimate("weight, group minus other", effect.value, places=4),
        error,
        Column("p-value, two-sided", "p", "estimate/p_value"),
        *(column.detail() for column in rest),
        Column("note", "long text", "estimate/note").detail(),
    )
    evidence = summary["evidence"]
    caption = "How differently the model weighs a feature for comparable people of two groups, minus placebo pairs"
    missing = "No feature has a weight: the model treats all as categories." if evidence else NO_EVIDENCE
    records = (evidence or {"weights": []})["weights"]
    return Table("Weights", caption, columns, records, (), missing, needs=("weighing",))


def proxy_table(summary: Summary) -> Table:
    """How well features predict the group."""
    screen = summary["proxies"]
    records = [f for f in (screen["all_features"], *screen["features"]) if f is not None] if screen else []
    groups = list(records[0]["auc_by_group"]) if records else []
    columns = (
        text("feature"),
        text("kind").detail(),
        estimate("AUC for the group", lambda r: {**r, "value": r["auc"]}),
        *(Column(f"AUC: {group}", "number", _in("auc_by_group", group)).detail() for group in groups),
        Column("distinct values", "whole", "n_values").detail(),
        Column("people without a value", "whole", "n_missing"),
        Column("note", "long text", lambda r: joined(r["note"], screen["note"])),
    )
    caption = "How well each feature, and all together, predict the group (AUC): 0.5 is guessing, 1 is perfect"
    missing = "Not available: the audit was run with evidence=False, or a group is too small to hold people out."
    return Table("Proxies", caption, columns, records, (), missing)


# --- matching ---


def matching_table(summary: Summary) -> Table:
    """Who was matched, and how often each match is used."""
    found, evidence = summary["matching"], summary["evidence"]
    single = ("n_persons", "n_pairs", "n_matched", "coverage", "twin_share", "worst_balance")
    rows: list[tuple[str, Any, str]] = [(_words(name), found[name], "") for name in single]
    rows += [("unmatched", n, reason) for reason, n in found["unmatched"].items()]
    rows += [(f"reuse of matches: {_words(name)}", value, "") for name, value in found["reuse"].items()]
    rows += [("constant feature", "", name) for name in found["constant_features"]]
    if evidence:
        rows.append(("pairs with a placebo pair", evidence["n_triples"], ""))
        rows.append(("overlap", evidence["common_support"], "people with a match and a placebo at the same distance"))
        rows += [("without a placebo pair", n, reason) for reason, n in evidence["without_support"].items()]
    columns = (text("metric"), Column("value", "any"), NOTE)
    records = [{"metric": metric, "value": value, "note": note} for metric, value, note in rows]
    return Table("Matching", "Who was matched, and how often each match is used.", columns, records)


def _words(name: str) -> str:
    return f"number of {name[2:]}" if name.startswith("n_") else name.replace("_", " ")


def coverage_table(summary: Summary) -> Table:
    """Who has a match."""
    columns = (
        text("group"),
        text("matched in", "other_group"),
        Column("people", "whole", "n_pairs"),
        Column("with a match", "whole", "n_matched"),
        Column("coverage", "share"),
    )
    return Table("Coverage", "Coverage of the matching", columns, summary["matching"]["coverage_by_group"])


def distance_table(summary: Summary) -> Table:
    """Quantiles of the distance."""
    records = [{"share": float(q), "distance": d} for q, d in summary["matching"]["distance_quantiles"].items()]
    columns = (Column("share of pairs", "share", "share"), Column("within a distance of", "number", "distance"))
    return Table("Distances", "Distance to the match, in standard deviations", columns, records)


def balance_table(summary: Summary) -> Table:
    """Standardized mean differences."""

    def off_balance(record: Record) -> str:
        is_off = is_number(record["after"]) and abs(record["after"]) > _BALANCED
        return f"beyond {_BALANCED:g} after matching" if is_off else ""

    columns = (
        text("feature"),
        text("group"),
        text("other group", "other_group"),
        Column("before matching", "number", "before"),
        Column("after matching", "number", "after"),
        flag(off_balance),
        Column("note", "long text", lambda r: "" if is_number(r["after"]) else "not estimable").detail(),
    )
    caption = "Standardized mean difference of the financial features, group minus other group"
    return Table("Balance", caption, columns, summary["matching"]["balance"], [FLAGGED])
