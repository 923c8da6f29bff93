"""The tables of an audit, from its summary (`AuditResult.to_dict`): each for the page and for the workbook."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from evenhand.metrics.regimes import REGIMES
from evenhand.report.formatting import is_number
from evenhand.report.tables import Column, Highlight, Kind, Record, Table, estimate

__all__ = [
    "SIGNIFICANT",
    "approval_table",
    "audited_table",
    "balance_table",
    "cec_table",
    "coverage_table",
    "cutoff_table",
    "density_table",
    "distance_table",
    "error_table",
    "excess_table",
    "feature_table",
    "gap_table",
    "group_table",
    "matching_table",
    "plane_table",
    "proxy_table",
    "regime_table",
    "score_histogram",
    "score_table",
    "segment_table",
    "sensitivity_table",
    "significance_flag",
    "split_table",
    "summary_table",
    "threshold_table",
    "utility_table",
    "verdict_table",
    "weight_table",
]

Summary = Mapping[str, Any]

SIGNIFICANT = 0.05
_BALANCED = 0.1  # a standardized mean difference below this is commonly read as balanced
_NO_EVIDENCE = "Not there: the audit was made with evidence=False."
_FLAGGED = Highlight("flag", "filled")
_NOTE = Column("note", "long text")
_EVERYONE = "all pairs"

_REGIME_WORDS = {
    "A": "same decision, same reasoning",
    "B": "same decision, different reasoning",
    "C": "different decision, same reasoning",
    "D": "different decision, different reasoning",
}


def significance_flag(value: float | None, word: str) -> str:
    """What a flag says of a p-value or q-value: nothing, unless it is at most 0.05.

    Examples
    --------
    >>> significance_flag(0.01, "p-value"), significance_flag(float("nan"), "p-value")
    ('p-value at most 0.05', '')
    """
    return f"{word} at most {SIGNIFICANT:g}" if value is not None and value <= SIGNIFICANT else ""


def _table(
    name: str,
    caption: str,
    columns: Iterable[Column],
    records: Iterable[Record],
    highlights: Sequence[Highlight] = (),
    if_empty: str = "",
) -> Table:
    return Table(name, caption, tuple(columns), tuple(records), tuple(highlights), if_empty)


def _flag(flag_of: Callable[[Record], str]) -> Column:
    return Column("flag", "text", flag_of, where="workbook")


def _text(heading: str, value: str = "") -> Column:
    return Column(heading, "text", value)


def _joined(*notes: str) -> str:
    return "; ".join(dict.fromkeys(note for note in notes if note))


# --- what was audited, and the verdict ---


def summary_table(summary: Summary) -> Table:
    """The metrics of the audit: those that `AuditResult.summary` has."""
    columns = (_text("metric"), estimate("value", lambda r: r), _NOTE)
    return _table("Summary", "The metrics of the audit with 95 % intervals.", columns, _summary_records(summary))


def _summary_records(summary: Summary) -> list[Record]:
    cec, found, outcome = summary["cec"], summary["evidence"], summary["outcome"]
    tau = summary["settings"]["consistency_threshold"]
    rows: list[tuple[str, Any, str]] = [
        ("CEC score, mean", cec["mean"], "0 identical reasoning, 1 opposed"),
        ("input gap, mean", cec["input_gap"], "other inputs under the same weights"),
        ("reasoning gap, mean", cec["reasoning_gap"], "the same inputs under other weights"),
    ]
    if found:
        p = found["cec"]["p_value"]
        words = "" if not is_number(p) else "p < 0.001" if p < 0.001 else f"p = {p:.3f}"
        rows += [
            ("compared pairs, CEC mean", found["compared_mean"], "pairs that have a placebo pair"),
            ("placebo pairs, CEC mean", found["placebo_mean"], "within a group, at the same distance"),
            ("excess", found["cec"], ", ".join(x for x in ("over placebo pairs", words, found["cec"]["note"]) if x)),
            ("excess, reasoning gap", found["reasoning_gap"], found["reasoning_gap"]["note"]),
            ("excess, regime B share", found["regime_b"], found["regime_b"]["note"]),
            ("excess, shared principal reasons", found["reason_overlap"], found["reason_overlap"]["note"]),
        ]
    rows += [(f"regime {r}, share", summary["regimes"][r], _regime_meaning(r, tau)) for r in REGIMES]
    rows.append(("prediction flip rate", outcome["pfr"], "matched people who get different decisions"))
    for name, metric, note in (
        ("auc", "AUC", ""),
        ("f1", "F1", ""),
        ("accuracy", "accuracy", ""),
        ("positive_rate", "positive rate", "share of favorable decisions"),
        ("eo_gap", "equalized odds gap", "larger of the gaps in true and false positive rate"),
        ("sp_gap", "statistical parity gap", "gap in the positive rate"),
    ):
        found_gap = outcome["gaps"].get(name)
        value = outcome[name] if found_gap is None else {**found_gap, "value": outcome[name]}
        rows.append((metric, value, outcome["notes"].get(name, "") or note))
    rows.append(("coverage", summary["matching"]["coverage"], "people who have a match in another group"))
    return [{**_as_estimate(value), "metric": metric, "note": note} for metric, value, note in rows]


def _as_estimate(value: Any) -> Mapping[str, Any]:  # noqa: ANN401 - an estimate, or a number alone
    return value if isinstance(value, Mapping) else {"value": value}


def audited_table(summary: Summary) -> Table:
    """What was audited, every choice that moves a metric, and versions."""
    records: list[Record] = [{"part": "schema", "item": "schema", "value": summary["schema"]}]
    for part in ("data", "settings", "versions"):
        for item, value in summary[part].items():
            if isinstance(value, Mapping):
                records += [{"part": part, "item": f"{item}: {key}", "value": v} for key, v in value.items()]
            elif isinstance(value, (list, tuple)):
                records += [{"part": part, "item": item, "value": v} for v in value]
            else:
                records.append({"part": part, "item": item, "value": value})
    columns = (
        _text("part"),
        _text("item"),
        Column("value", "any"),
        Column("note", "long text", lambda r: "none" if r["value"] is None else ""),
    )
    return _table("Audited", "What was audited, every choice that moves a metric, and versions.", columns, records)


def verdict_table(summary: Summary, left_out: str = "") -> Table:
    """The evidence in words, what it hangs on, and reservations; `left_out` says which pairs are not shown."""
    evidence = summary["evidence"]
    sentences = [("verdict", s) for s in evidence["sentences"]] if evidence else [("verdict", _NO_EVIDENCE)]
    if evidence:
        hangs_on = evidence["sensitivity"]["hangs_on"]
        sentences += [("hangs on", f"The verdict would be another with {choice}.") for choice in hangs_on]
    sentences += [("warning", warning) for warning in summary["warnings"]]
    sentences += [("left out", left_out)] if left_out else []
    columns = (
        _flag(lambda r: "warning" if r["kind"] != "verdict" else ""),
        _text("kind"),
        Column("sentence", "long text"),
    )
    records = [{"kind": kind, "sentence": sentence} for kind, sentence in sentences]
    caption = "The evidence in words, what it hangs on, and reservations."
    return _table("Verdict and warnings", caption, columns, records, [_FLAGGED])


# --- reasoning ---


def _regime_meaning(regime: str, threshold: float) -> str:
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
            "meaning": _regime_meaning(regime, threshold),
        }
        for group, counts in _regime_counts(summary).items()
        for regime in REGIMES
    ]
    columns = (
        _text("group"),
        _text("regime"),
        Column("pairs", "whole"),
        Column("share", "share"),
        _flag(lambda r: "different reasoning" if r["regime"] in "BD" else ""),
        Column("meaning", "long text"),
    )
    highlights = [Highlight("regime", "equals", "B"), Highlight("regime", "equals", "D", "strong")]
    return _table("Regimes", "Share of pairs in each regime, by group of the person", columns, records, highlights)


def plane_table(summary: Summary) -> Table:
    """Flip rate, CEC score and shared reasons by group."""
    cec, reasons = summary["cec"], summary["reasons"]
    records = []
    for group, counts in _regime_counts(summary).items():
        total, is_all = sum(counts.values()), group == _EVERYONE
        records.append(
            {
                "group": group,
                "flips": summary["outcome"]["pfr"] if is_all else _share(counts["C"] + counts["D"], total),
                "cec": cec["mean"] if is_all else cec["by_group"].get(group),
                "shared": reasons["shared"] if is_all else reasons["by_group"].get(group),
                "pairs": total,
            }
        )
    columns = (
        _text("group"),
        Column("flip rate", "share", "flips"),
        Column("mean CEC score", "number", "cec"),
        Column("principal reasons shared", "share", "shared"),
        Column("pairs", "whole"),
    )
    return _table("Plane", "Decisions and reasoning of pairs", columns, records)


def density_table(summary: Summary) -> Table:
    """Pairs by size of the score difference and CEC score."""
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
        _text("scores apart by", "apart"),
        Column(f"CEC up to about {tau:g}", "whole", "low"),
        Column(f"CEC above about {tau:g}", "whole", "high"),
    )
    return _table("Density", "Pairs by difference of scores and CEC score", columns, records)


def cec_table(summary: Summary) -> Table:
    """Pairs by CEC score and group."""
    return _histogram(summary["distributions"]["cec"], "Pairs by CEC score and group")


def score_histogram(summary: Summary) -> Table:
    """People by score and group."""
    return _histogram(summary["distributions"]["score"], "People by score and group")


def _histogram(found: Mapping[str, Any], caption: str, bins: int = 10) -> Table:
    """Counts in a few wide bins, by group."""
    edges = found["edges"]
    step = max(1, (len(edges) - 1) // bins)
    records = [
        {
            "bin": f"{edges[i]:g} to {edges[min(i + step, len(edges) - 1)]:g}",
            "counts": {group: sum(counts[i : i + step]) for group, counts in found["counts"].items()},
        }
        for i in range(0, len(edges) - 1, step)
    ]
    columns = (
        _text("from, to", "bin"),
        *(Column(str(group), "whole", _in("counts", group)) for group in found["counts"]),
    )
    return _table("Histogram", caption, columns, records)


def _in(outer: str, inner: str) -> Callable[[Record], Any]:
    # Names of groups may hold the separator of paths.
    return lambda record: record[outer].get(inner)


_EXCESS_WORDS = {
    "cec": "CEC score",
    "input_gap": "input gap",
    "reasoning_gap": "reasoning gap",
    "regime_b": "share in Regime B (a description, not a test)",
    "reason_overlap": "shared principal reasons (below 0: fewer in common)",
}
_CHOICES: dict[str, tuple[str, Callable[[Any], str]]] = {
    "max_distance": ("cec", lambda at: f"within a distance of {at:.2f}"),
    "n_matches": ("cec", lambda at: f"nearest {at} of each person"),
    "consistency_threshold": ("regime_b", lambda at: f"reasoning differs above {at:g}"),
}


def _excess_columns(path: str = "", kind: Kind = "number") -> tuple[Column, ...]:
    key = f"{path}/" if path else ""
    return (
        estimate("excess", path or (lambda r: r), kind),
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
    ]
    for name, (metric, choice) in _CHOICES.items():
        records += [
            {**row, "metric": _EXCESS_WORDS[metric], "choice": choice(row[name]), "at": row[name], "by": name}
            for row in found["sensitivity"][name]
        ]
    return records


def excess_table(summary: Summary, *, with_choices: bool = False) -> Table:
    """The excess of each metric, as audited and, if asked for, with other choices."""
    records = [r for r in _excess_records(summary) if with_choices or not r["by"]]
    columns = (
        _text("metric"),
        _text("choice").detail(),
        Column("at").detail(),
        *_excess_columns(),
        _flag(lambda r: significance_flag(r["p_value"], "p-value")),
        _NOTE,
    )
    return _table("Excess", "Excess over placebo pairs with 95 % intervals", columns, records, [_FLAGGED], _NO_EVIDENCE)


def sensitivity_table(summary: Summary) -> Table:
    """The excess of the CEC score with nearer or fewer matches."""
    records = [r for r in _excess_records(summary) if r["metric"] == _EXCESS_WORDS["cec"]]
    columns = (_text("choice"), *_excess_columns(), _NOTE)
    return _table("Sensitivity", "Excess of the CEC score under other choices", columns, records)


def threshold_table(summary: Summary) -> Table:
    """The excess share in regime B at other thresholds."""
    records = [r for r in _excess_records(summary) if r["by"] == "consistency_threshold"]
    columns = (_text("choice"), estimate("excess share", lambda r: r, "share"), _NOTE)
    return _table("Thresholds", "Excess share in regime B at other consistency thresholds", columns, records)


def split_table(summary: Summary) -> Table:
    """The excess within parts of the people."""
    columns = (
        _text("column", "split"),
        _text("value"),
        *_excess_columns("estimate"),
        Column("p-value, adjusted", "p", "p_adjusted"),
        _flag(lambda r: significance_flag(r["p_adjusted"], "adjusted p-value")),
        Column("note", "long text", "estimate/note"),
    )
    caption = "Excess of the CEC score within parts of the people; p-values adjusted (Holm) within a column"
    records = (summary["evidence"] or {"splits": []})["splits"]
    return _table("Splits", caption, columns, records, [_FLAGGED], _NO_EVIDENCE)


def feature_table(summary: Summary) -> Table:
    """Each feature's part of score and excess."""
    found = {f["feature"]: f["estimate"] for f in (summary["evidence"] or {"features": []})["features"]}
    nothing = {"p_value": None, "note": "" if found else _NO_EVIDENCE}
    records = [{**row, **found.get(row["feature"], nothing), "row": row} for row in summary["features"]]

    def excess_of(record: Record) -> Mapping[str, Any]:
        row = record["row"]
        return {"value": row.get("excess"), "low": row.get("excess_ci_low"), "high": row.get("excess_ci_high")}

    def note(record: Record) -> str:
        return _joined(record["note"], "" if is_number(record["share"]) else "no score to share")

    columns = (
        _text("feature"),
        Column("contribution to CEC", "number", "contribution").detail(),
        Column("share of CEC", "share", "share"),
        estimate("contribution to excess", excess_of, places=4),
        Column("p-value, one-sided", "p", "p_value").detail(),
        *(
            Column(f"mean attribution: {group}", "number", _in("row", f"mean attribution: {group}"))
            for group in summary["data"]["groups"]
        ),
        _flag(lambda r: significance_flag(r["p_value"], "p-value, not adjusted,")),
        Column("note", "long text", note).detail(),
    )
    caption = "Each feature's part of the CEC score and of the excess, and its mean attribution in each group"
    return _table("Features", caption, columns, records, [_FLAGGED])


def weight_table(summary: Summary) -> Table:
    """Differences of weights."""
    effect, error, _, *rest = _excess_columns("estimate")
    columns = (
        _text("feature"),
        _text("group"),
        _text("other group", "other_group"),
        estimate("weight, group minus other", effect.value, places=4),
        error,
        Column("p-value, two-sided", "p", lambda r: _two_sided(r["estimate"]["p_value"])),
        *(column.detail() for column in rest),
        Column("note", "long text", "estimate/note").detail(),
    )
    evidence = summary["evidence"]
    caption = "How differently a feature is weighed in comparable people of two groups, over placebo pairs"
    missing = "No feature has a weight: the model takes all as categories." if evidence else _NO_EVIDENCE
    return _table("Weights", caption, columns, (evidence or {"weights": []})["weights"], (), missing)


def _two_sided(one_sided: float | None) -> float | None:
    """A weight may differ either way, but its p-value in the summary is one-sided."""
    return 2 * min(one_sided, 1 - one_sided) if one_sided is not None and is_number(one_sided) else None


def proxy_table(summary: Summary) -> Table:
    """How well features tell the group."""
    screen = summary["proxies"]
    records = [f for f in (screen["all_features"], *screen["features"]) if f is not None] if screen else []
    groups = list(records[0]["auc_by_group"]) if records else []
    columns = (
        _text("feature"),
        _text("kind").detail(),
        estimate("AUC for the group", lambda r: {**r, "value": r["auc"]}),
        *(Column(f"AUC: {group}", "number", _in("auc_by_group", group)).detail() for group in groups),
        Column("distinct values", "whole", "n_values").detail(),
        Column("people without a value", "whole", "n_missing"),
        Column("note", "long text", lambda r: _joined(r["note"], screen["note"])),
    )
    caption = "How well each feature, and all together, tell the group: 0.5 not at all, 1 entirely"
    missing = "Not there: the audit was made with evidence=False, or a group is too small to hold people out of."
    return _table("Proxies", caption, columns, records, (), missing)


# --- matching ---


def matching_table(summary: Summary) -> Table:
    """Who was matched, and how often a match serves."""
    found, evidence = summary["matching"], summary["evidence"]
    single = ("n_persons", "n_pairs", "n_matched", "coverage", "twin_share", "worst_balance")
    rows: list[tuple[str, Any, str]] = [(_words(name), found[name], "") for name in single]
    rows += [("unmatched", n, reason) for reason, n in found["unmatched"].items()]
    rows += [(f"reuse of matches: {_words(name)}", value, "") for name, value in found["reuse"].items()]
    rows += [("constant feature", "", name) for name in found["constant_features"]]
    if evidence:
        rows.append(("pairs with a placebo pair", evidence["n_triples"], ""))
        rows.append(("common support", evidence["common_support"], "people who have a placebo pair"))
        rows += [("without a placebo pair", n, reason) for reason, n in evidence["without_support"].items()]
    columns = (_text("metric"), Column("value", "any"), _NOTE)
    records = [{"metric": metric, "value": value, "note": note} for metric, value, note in rows]
    return _table("Matching", "Who was matched, and how often a match serves.", columns, records)


def _words(name: str) -> str:
    return f"number of {name[2:]}" if name.startswith("n_") else name.replace("_", " ")


def coverage_table(summary: Summary) -> Table:
    """Who has a match."""
    columns = (
        _text("group"),
        _text("matched in", "other_group"),
        Column("people", "whole", "n_pairs"),
        Column("with a match", "whole", "n_matched"),
        Column("coverage", "share"),
    )
    return _table("Coverage", "Coverage of the matching", columns, summary["matching"]["coverage_by_group"])


def distance_table(summary: Summary) -> Table:
    """Quantiles of the distance."""
    records = [{"share": float(q), "distance": d} for q, d in summary["matching"]["distance_quantiles"].items()]
    columns = (Column("share of pairs", "share", "share"), Column("within a distance of", "number", "distance"))
    return _table("Distances", "Distance to the match, in standard deviations", columns, records)


def balance_table(summary: Summary) -> Table:
    """Standardized mean differences."""

    def flag(record: Record) -> str:
        is_off = is_number(record["after"]) and abs(record["after"]) > _BALANCED
        return f"beyond {_BALANCED:g} after matching" if is_off else ""

    columns = (
        _text("feature"),
        _text("group"),
        _text("other group", "other_group"),
        Column("before matching", "number", "before"),
        Column("after matching", "number", "after"),
        _flag(flag),
        Column("note", "long text", lambda r: "" if is_number(r["after"]) else "not estimable").detail(),
    )
    caption = "Standardized mean difference of the financial features, group minus other group"
    return _table("Balance", caption, columns, summary["matching"]["balance"], [_FLAGGED])


# --- decisions ---


def group_table(summary: Summary) -> Table:
    """Decisions, errors and reasoning of each group."""

    def note(record: Record) -> str:
        n = {1: record["n_positive_label"], 0: record["n"] - record["n_positive_label"]}
        return _joined(*(f"no one with label {label}" for label in n if not n[label]))

    columns = (
        _text("group"),
        Column("people", "whole", "n"),
        Column("label 1", "whole", "n_positive_label"),
        Column("positive rate", "share", "positive_rate"),
        Column("true positive rate", "share", "true_positive_rate"),
        Column("false positive rate", "share", "false_positive_rate"),
        Column("AUC", "number", "auc"),
        Column("CEC score, mean", "number", lambda r: summary["cec"]["by_group"].get(r["group"])),
        Column("shared reasons, mean", "share", lambda r: summary["reasons"]["by_group"].get(r["group"])),
        Column("note", "long text", note),
    )
    caption = "Decisions, errors and reasoning of each group."
    return _table("Groups", caption, columns, summary["outcome"]["groups"])


def utility_table(summary: Summary) -> Table:
    """How well the model tells labels apart, of everyone."""
    outcome = summary["outcome"]
    names = {"auc": "AUC", "f1": "F1", "accuracy": "accuracy", "positive_rate": "share of favorable decisions"}
    records = [
        {"metric": words, "value": outcome[name], "note": outcome["notes"].get(name, "")}
        for name, words in names.items()
    ]
    return _table("Utility", "Utility", (_text("metric"), Column("value"), _NOTE), records)


def gap_table(summary: Summary) -> Table:
    """The widest spread of a rate over groups."""
    outcome = summary["outcome"]
    words = {
        "sp_gap": "statistical parity gap",
        "tpr_gap": "true positive rate gap",
        "fpr_gap": "false positive rate gap",
        "eo_gap": "equalized odds gap",
    }
    records = [
        {**gap, "words": words.get(name, name), "note": gap["note"] or outcome["notes"].get(name, "")}
        for name, gap in outcome["gaps"].items()
    ]
    columns = (
        _text("gap", "words"),
        estimate("value", lambda r: r),
        _text("rate"),
        _text("lowest in", "group_low"),
        _text("highest in", "group_high"),
        _NOTE,
    )
    return _table("Gaps", "The widest spread of a rate over groups", columns, records)


def _beside(key: str) -> Callable[[Record], Any]:
    """A value beside the reference group, which has none itself."""
    return lambda record: "" if record["is_reference"] else record[key]


def _approval_columns() -> tuple[Column, ...]:
    return (
        Column("is reference", "any", "is_reference"),
        Column("people", "whole", "n_people"),
        Column("approved", "whole", "n_approved").detail(),
        estimate("approval rate", "approval_rate", "share"),
        estimate("difference, percentage points", _beside("rate_difference_group_minus_reference_pp"), places=1),
        estimate("approval ratio", _beside("approval_ratio_group_over_reference"), places=2),
        estimate("odds ratio", _beside("odds_ratio_group_over_reference"), places=2),
        Column("p-value", "p", _beside("p_value")).detail(),
        Column("p-value, adjusted", "p", _beside("p_value_holm")),
        Column("test", "text", "test"),
        Column("standard deviations", "number", _beside("n_standard_deviations"), places=1),
        Column("shortfall of approvals", "number", "shortfall").detail(),
    )


def _approval_flags(record: Record, threshold: float) -> str:
    return _joined(
        f"ratio below {threshold:g}" if record["is_below_practical_threshold"] else "",
        significance_flag(record["p_value_holm"], "adjusted p-value"),
        "small group" if record["is_small_group"] else "",
    )


def _approval_highlights(threshold: float) -> list[Highlight]:
    return [
        Highlight("approval ratio", "below", threshold),
        Highlight("p-value, adjusted", "at most", SIGNIFICANT, "evidence"),
        _FLAGGED,
    ]


def approval_table(summary: Summary) -> Table:
    """Approvals beside the reference group."""
    found = summary["outcome"]["approvals"]
    threshold = found["four_fifths_threshold"]
    columns = (
        _text("group"),
        *_approval_columns(),
        _flag(lambda r: _approval_flags(r, threshold)),
        Column("note", "long text", lambda r: _joined(r["note"], found["note"])),
    )
    caption = f"Favorable decisions of each group beside the reference group, {found['reference']}"
    return _table("Approvals", caption, columns, found["groups"], _approval_highlights(threshold))


def score_table(summary: Summary) -> Table:
    """Scores beside the reference group."""
    difference = "standardized_mean_difference_group_minus_reference"
    columns = (
        _text("group"),
        Column("is reference", "any", "is_reference"),
        Column("people", "whole", "n_people"),
        estimate("mean score", "mean_score"),
        Column("standard deviation", "number", "standard_deviation").detail(),
        estimate("standardized difference", _beside(difference), places=2),
        Column("KS distance", "number", _beside("ks_distance")),
        Column("KS p-value", "p", _beside("ks_p_value")),
        _flag(_small_group),
        Column("note", "long text", lambda r: _joined(r["note"], r["mean_score"]["note"], r[difference]["note"])),
    )
    caption = "Scores of each group beside the reference group"
    return _table("Scores", caption, columns, summary["outcome"]["scores"], [_FLAGGED])


def _small_group(record: Record) -> str:
    return "small group" if record["is_small_group"] else ""


_ERROR_RATES: tuple[tuple[str, str, Kind, bool], ...] = (  # key, heading, kind, whether on the page
    ("positive_rate", "positive rate", "share", False),
    ("true_positive_rate", "true positive rate", "share", True),
    ("false_positive_rate", "false positive rate", "share", True),
    ("false_discovery_rate", "false discovery rate", "share", False),
    ("auc", "AUC", "number", True),
    ("mean_score_minus_observed_rate", "mean score minus observed rate", "number", True),
    ("brier_score", "Brier score", "number", True),
)


def error_table(summary: Summary) -> Table:
    """Errors of each group."""

    def note(record: Record) -> str:
        return _joined(*(f"{words}: {record[key]['note']}" for key, words, *_ in _ERROR_RATES if record[key]["note"]))

    rates = [(estimate(words, key, kind), is_shown) for key, words, kind, is_shown in _ERROR_RATES]
    columns = (
        _text("group"),
        Column("people", "whole", "n_people").detail(),
        Column("label 1", "whole", "n_positive_label").detail(),
        *(column if is_shown else column.detail() for column, is_shown in rates),
        _flag(_small_group),
        Column("note", "long text", note),
    )
    caption = "Decisions and errors of each group with 95 % intervals"
    return _table("Error rates", caption, columns, summary["outcome"]["error_rates"], [_FLAGGED])


def cutoff_table(summary: Summary) -> Table:
    """Approvals at other cut-offs."""
    threshold = summary["outcome"]["approvals"]["four_fifths_threshold"]
    records = [
        {**group, "cut": {key: value for key, value in cut.items() if key != "table"}}
        for cut in summary["outcome"]["cutoffs"]
        for group in cut["table"]["groups"]
    ]
    on_page = ("approval rate", "approval ratio")
    columns = (
        Column("quantile of scores", "share", "cut/quantile").detail(),
        Column("cut-off", "number", "cut/cutoff"),
        Column("overall approval rate", "share", "cut/overall_approval_rate"),
        _text("group"),
        *(column if column.heading in on_page else column.detail() for column in _approval_columns()),
        _flag(lambda r: _approval_flags(r, threshold)),
        _NOTE.detail(),
    )
    caption = "Approvals as they would be with the cut-off at each decile of the score; p-values not adjusted over rows"
    return _table("Cutoffs", caption, columns, records, _approval_highlights(threshold))


def segment_table(summary: Summary, column: str | None = None) -> Table:
    """Approvals within the values of a column, or of every column, after their common odds ratio."""
    records: list[Record] = []
    for name, wholes in summary["outcome"]["segments"].items():
        for whole in wholes if column in (None, name) else ():
            shared = {"column": name, "group": whole["group"], "reference": whole["reference"]}
            records.append(
                {
                    **dict.fromkeys(_OF_SEGMENTS, ""),
                    **shared,
                    "segment": "all, held fixed",
                    "people": whole["n_people_used"],
                    "odds_ratio_group_over_reference": whole["common_odds_ratio_group_over_reference"],
                    "p_adjusted": whole["p_value_holm"],
                    "homogeneity": whole["homogeneity_p_value"],
                    "note": whole["note"],
                }
            )
            records += [
                {
                    **part,
                    **shared,
                    "people": part["n_people_group"] + part["n_people_reference"],
                    "p_adjusted": "",
                    "homogeneity": "",
                }
                for part in whole["segments"]
            ]
    columns = (
        _text("column").detail(),
        _text("group"),
        _text("segment"),
        _text("reference").detail(),
        Column("people", "whole"),
        Column("people, group", "whole", "n_people_group").detail(),
        Column("approved, group", "whole", "n_approved_group").detail(),
        Column("people, reference", "whole", "n_people_reference").detail(),
        Column("approved, reference", "whole", "n_approved_reference").detail(),
        estimate("approval rate, group", "approval_rate_group", "share"),
        estimate("approval rate, reference", "approval_rate_reference", "share"),
        estimate("approval ratio", "approval_ratio_group_over_reference", places=2).detail(),
        estimate("odds ratio", "odds_ratio_group_over_reference", places=2),
        Column("p-value, adjusted", "p", "p_adjusted"),
        Column("p-value of homogeneity", "p", "homogeneity").detail(),
        Column("is informative", "any", "is_informative").detail(),
        _NOTE,
    )
    caption = f"Approvals within values of {column or 'each column of `by`'}, and their common odds ratio"
    highlights = [Highlight("p-value, adjusted", "at most", SIGNIFICANT, "evidence")]
    return _table("Segments", caption, columns, records, highlights, "Not there: no column was named in `by`.")


_OF_SEGMENTS = (
    "n_people_group",
    "n_approved_group",
    "n_people_reference",
    "n_approved_reference",
    "approval_rate_group",
    "approval_rate_reference",
    "approval_ratio_group_over_reference",
    "is_informative",
)
