"""The tables of an audit, from its summary (`AuditResult.to_dict`), for the page and for the workbook."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

from evenhand.metrics.cec import REGIMES
from evenhand.report.drawing import NothingToDrawError
from evenhand.report.formatting import is_number
from evenhand.report.tables import FLAGGED, NOTE, Column, Highlight, Record, Table, estimate, flag, joined, text

Summary = Mapping[str, Any]

WEIGHTING_PROSE = (
    "Each row stands for as many people of the population as its sampling weight says. Rates, means and gaps refer to "
    "the population; numbers of people and standard errors refer to the sample. Unequal weights carry "
    "less information than equal ones: the effective number of people says how much."
)

_EVERYBODY = "everyone"


def weighting_tables(summary: Summary) -> list[Table]:
    """The table of sampling weights; none for an audit without weights."""
    found = summary.get("weighting")
    if found is None:
        return []
    whole = {"group": _EVERYBODY, "share": 1.0, "share_of_sample": 1.0}
    records = [*found["groups"], {**{key: v for key, v in found.items() if key != "groups"}, **whole}]
    columns = (
        text("group"),
        Column("people", "whole", "n_people"),
        Column("counted", "whole", "n_counted"),
        Column("effective number", "number", "n_effective", 1),
        Column("share of the sample", "share", "share_of_sample"),
        Column("share of the population", "share", "share"),
        flag(_uneven),
    )
    caption = (
        "People of each group, and the number of equally weighted people who would carry the same information (Kish)."
    )
    return [Table("Sampling weights", caption, columns, records)]


def _uneven(row: Record) -> str:
    is_uneven = row["n_effective"] < row["n_counted"] / 2
    return "effective number below half of the people counted" if is_uneven else ""


DRAWN_PROSE = (
    "No one's group is known here: each person has a probability for every group. Groups were drawn from the "
    "probabilities repeatedly, each draw was audited, and the audits were pooled. The standard error "
    "within draws is "
    "what would remain if groups were known; the spread between draws is what not knowing them adds to one draw. "
    "Thresholding counts people in their most likely group and leaves out the uncertain; weighting counts everyone in "
    "every group by probability; the last column is correct if outcomes depend on the group alone."
)

OF_ONE_DRAW = "Groups are drawn: whatever is not in the table of pooled metrics comes from the first draw."

_METRICS = {
    "excess": "excess",
    "excess_balanced": "excess, groups weighted equally",
    "weighing": "weighing",
    "excess: input gap": "excess, input gap",
    "excess: shared reasons": "excess, shared principal reasons",
    "excess: regime B": "excess, regime B share",
    "score_gap": "score gap",
    "score_gap_probability": "score gap, probability",
    "score_gap_decision": "score gap, favorable decisions",
    "input": "score gap through",
    "approval_rate": "favorable decisions, share",
    "approval_difference": "favorable decisions, difference",
    "approval_ratio": "favorable decisions, ratio",
    "true_positive_rate_difference": "true positive rate, difference",
    "false_positive_rate_difference": "false positive rate, difference",
    "mean_score_difference": "mean score, difference",
    "sp_gap": "statistical parity gap",
    "tpr_gap": "true positive rate gap",
    "fpr_gap": "false positive rate gap",
    "eo_gap": "equalized odds gap",
}
_ONE_SIDED = tuple(name for name in _METRICS if name.startswith(("excess", "weighing")))


def drawn_tables(summary: Summary) -> tuple[Table, ...]:
    """People of each group and pooled metrics; empty if groups are known."""
    found = summary.get("drawn_groups")
    return () if found is None else (_people(found), _metrics(found))


def _metrics(found: Mapping[str, Any]) -> Table:
    """Pooled metrics, how much of their error is due to the draws, and the results of alternative methods."""
    columns = (
        Column("metric", "text", _metric_words),
        Column("groups", "text", _groups),
        estimate("pooled", lambda r: r),
        Column("p-value", "p", lambda r: r["p_value"] if r["reference"] or r["metric"] in _ONE_SIDED else ""),
        Column("within, sd", "number", "within_sd"),
        Column("between, sd", "number", "between_sd"),
        Column("missing information", "share", "missing_information"),
        Column("thresholding", "number", _beside("thresholding")),
        Column("weighting", "number", _beside("weighting")),
        Column("group alone", "number", _beside("group_alone")),
        Column("Rubin's rules, lower", "number", "rubin_low", where="workbook"),
        Column("Rubin's rules, upper", "number", "rubin_high", where="workbook"),
        Column("degrees of freedom", "number", "df", where="workbook"),
        NOTE,
    )
    caption = (
        "Metrics pooled over draws of the groups, with 95% intervals. Missing information is the share of Rubin's "
        "total variance that is between draws; the spread of a ratio is that of its logarithm. p-values are not "
        "adjusted; those of excesses and weighing are one-sided."
    )
    return Table("Drawn groups", caption, columns, found["metrics"])


def _people(found: Mapping[str, Any]) -> Table:
    """How many people are expected in each group, and assigned to it by thresholding."""
    records = [
        {"group": name, "expected": expected, "thresholded": found["thresholded"][name]}
        for name, expected in found["expected"].items()
    ]
    left_out = {"group": "left out", "expected": "", "thresholded": found["n_left_out"]}
    columns = (
        text("group"),
        Column("people expected", "number", "expected", places=1),
        Column("people by thresholding", "whole", "thresholded"),
    )
    caption = f"People of each group, by probabilities and by thresholding at {found['threshold']:g}."
    return Table("Probable groups", caption, columns, [*records, left_out])


def _metric_words(record: Record) -> str:
    metric = record["metric"]
    words = _METRICS.get(metric, f"{metric}, share of pairs")
    return f"{words} {record['feature']}" if record["feature"] else words


def _groups(record: Record) -> str:
    if not record["reference"]:
        return str(record["group"])
    return f"{record['group']} {'over' if record['is_ratio'] else 'minus'} {record['reference']}"


def _beside(name: str) -> Callable[[Record], Any]:
    """The value if the metric has one, else empty."""
    return lambda record: record[name] if is_number(record[name]) else ""


_NAMES = {
    "inputs": "Inputs",
    "weighing": "Weighing",
    "excess": "Excess",
    "regimes": "Regimes",
    "decisions": "Decisions",
    "errors": "AUC and error rates",
}


def lacking(summary: Summary, *needs: str) -> str:
    """Why the first unmet need is not met; empty if all are met.

    A need is a key of what may not be possible, ``"labels"``, ``"scores"``, or ``"probability"`` for scores that are
    probabilities.

    Examples
    --------
    >>> lacking({}, "weighing")
    ''
    >>> scope = {"outcome": "value", "has_labels": True, "not_possible": {"weighing": "There is no model."}}
    >>> lacking({"scope": scope}, "weighing"), lacking({"scope": scope}, "probability")
    ('There is no model.', 'The outcome is not a probability.')
    """
    scope = summary.get("scope")
    if not scope:
        return ""
    found = {
        **scope["not_possible"],
        **({} if scope["has_labels"] else {"labels": "There are no labels."}),
        **({"scores": "There are no scores."} if scope["outcome"] == "decision" else {}),
        **({} if scope["outcome"] == "score" else {"probability": "The outcome is not a probability."}),
    }
    return next((found[need] for need in needs if need in found), "")


def is_shown(summary: Summary, table: Table) -> bool:
    """Whether a table has what it needs."""
    return not lacking(summary, *table.needs)


def scope_table(summary: Summary) -> Table:
    """What could not be found, and why; empty if everything could."""
    scope = summary.get("scope") or {"given": (), "not_possible": {}}
    records = [{"what": _NAMES[key], "why": why} for key, why in scope["not_possible"].items()]
    columns = (text("not possible", "what"), Column("why", "long text", "why"))
    caption = f"What cannot be found with the given inputs: {', '.join(scope['given'])}"
    return Table("Not possible", caption, columns, records)


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
        return {"value": row.get("excess"), "low": row.get("excess_low"), "high": row.get("excess_high")}

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


_SIDES = {"score_gap": "two-sided", "inputs": "two-sided", "weighing": "one-sided", "excess": "one-sided"}


def largest_gap(summary: Summary) -> Mapping[str, Any]:
    """The score gap of the two groups that `summary["score_gap"]` names.

    Raises
    ------
    NothingToDrawError
        If the audit was run without evidence.
    """
    if summary["evidence"] is None:
        raise NothingToDrawError("There is no score gap: the audit was run without evidence.")
    named = summary["score_gap"]["group"], summary["score_gap"]["reference"]
    return next(gap for gap in summary["score_gaps"] if (gap["group"], gap["reference"]) == named)


def finding_table(summary: Summary) -> Table:
    """The four questions, strongest finding first."""
    limits = (
        Column("limit", "number", lambda r: "" if r["limit"] is None else r["limit"]),
        Column("within the limit", "text", lambda r: r["within_limit"] or ""),
    )
    columns = (
        text("question"),
        text("answer"),
        estimate("estimate", lambda r: {"value": r["estimate"], "low": r["ci"][0], "high": r["ci"][1]}),
        text("unit"),
        Column("p-value", "p", "p_value"),
        Column("p-value, adjusted", "p", "p_adjusted"),
        Column("test", "text", lambda r: _SIDES[r["key"]]),
        *(limits if summary["settings"]["limits"] else ()),
        Column("sentence", "long text", where="workbook"),
    )
    asked = [one for one in summary["findings"] if one["answer"] != "not possible"]
    is_whole = len(asked) == len(summary["findings"])
    what, tested = (
        ("Four questions about the model", "the four") if is_whole else ("What could be asked", "those asked")
    )
    caption = f"{what}, with 95% intervals; p-values are adjusted over {tested} (Holm)."
    return Table("Findings", caption, columns, asked, if_empty=NO_EVIDENCE)


def score_gap_table(summary: Summary) -> Table:
    """Score gaps of every two groups: in total, in probability, in decisions and through each input."""
    records: list[Record] = []
    for gap in summary.get("score_gaps", ()):
        named = {"group": gap["group"], "reference": gap["reference"]}
        parts = (
            ("all inputs together" if gap["features"] else "in total", "total", gap["unit"], gap["p_adjusted"], ""),
            ("in probability", "probability", "probability", None, "probability"),
            ("in favorable decisions", "decision", "share", None, "decisions"),
        )
        records += [
            {**gap[key], **named, "part": part, "unit": unit, "p_adjusted": p_adjusted}
            for part, key, unit, p_adjusted, need in parts
            if not lacking(summary, need)
        ]
        records += [{**row, **named, "part": row["feature"], "unit": gap["unit"]} for row in gap["features"]]
    columns = (
        text("group"),
        text("reference"),
        text("part"),
        estimate("gap", lambda r: r),
        text("unit"),
        Column("p-value, two-sided", "p", "p_value"),
        Column("p-value, adjusted", "p", "p_adjusted"),
        Column("smallest gap that a single test finds in 80% of cases", "number", "detectable", where="workbook"),
        NOTE,
    )
    caption = "Score gap at equal finances, group minus reference group, in total and by input, with 95% intervals."
    return Table("Score gap", caption, columns, records, if_empty=NO_EVIDENCE)


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


def _as_estimate(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {"value": value}


NO_REASONS = "Not available: the audit has no reasons."
_PLACES = {"first": "first", "any": "among all"}


def _beside_reference(key: str) -> Any:
    """A value relative to the reference group, which has none itself."""
    return lambda record: "" if record["is_reference"] else record[key]


def rate_table(summary: Summary) -> Table:
    """How often each reason is given to the declined people of each group."""
    found = summary["reasons"]
    columns = (
        text("reason"),
        Column("given", "text", lambda r: _PLACES[r["place"]]),
        text("group"),
        Column("people", "whole", "n"),
        Column("declined", "whole", "n_people"),
        estimate("share of declined", "rate", "share"),
        estimate("difference, group minus reference", _beside_reference("difference"), "share"),
        Column("p-value", "p", _beside_reference("p_value")).detail(),
        Column("p-value, adjusted", "p", _beside_reference("p_value_holm")),
        Column("test", "text").detail(),
        flag(lambda r: significance_flag(r["p_value_holm"], "adjusted p-value")),
        Column("note", "long text", lambda r: "" if r["is_reference"] else r["difference"]["note"]),
    )
    beside = f", compared with {found['reference']}" if found else ""
    caption = f"Reasons of declined people{beside}; finances are not held equal"
    highlights = [Highlight("p-value, adjusted", "at most", SIGNIFICANT, "evidence"), FLAGGED]
    return Table("Reason rates", caption, columns, found["rates"] if found else [], highlights, _if_empty(summary))


def agreement_table(summary: Summary) -> Table:
    """Overlap of the reasons of comparable declined people, minus that of placebo pairs."""
    columns = (
        Column("measure", "text", "words"),
        Column("pairs", "share", "compared"),
        Column("placebo pairs", "share", "placebo"),
        estimate("excess", lambda r: r["excess"] or "", "share"),
        Column("p-value, one-sided", "p", lambda r: "" if r["excess"] is None else r["excess"]["p_value"]),
        Column("people", "whole", lambda r: "" if r["excess"] is None else r["excess"]["n"]),
        Column("mean of all pairs", "share", "all"),
        Column("number of pairs", "whole", "n_pairs"),
        NOTE,
    )
    caption = "Reasons that two comparable declined people share; below 0, fewer than placebo pairs share"
    return Table("Reason agreement", caption, columns, _agreement_records(summary["reasons"]), (), _if_empty(summary))


def _agreement_records(found: Mapping[str, Any] | None) -> list[Record]:
    if found is None:
        return []
    words = {"shared": "share of reasons in common", "rank_overlap": "rank-biased overlap"}
    return [
        {
            "words": text_,
            "compared": found[f"compared_{key}"],
            "placebo": found[f"placebo_{key}"],
            "excess": found[f"{key}_excess"],
            "all": found[key],
            "n_pairs": found["n_pairs"],
            "note": "no placebo pairs" if found[f"{key}_excess"] is None else found[f"{key}_excess"]["note"],
        }
        for key, text_ in words.items()
    ]


def declined_table(summary: Summary) -> Table:
    """Declined people of each group, and those without a reason."""
    found = summary["reasons"]
    records: list[Record] = [
        {
            "group": group,
            "declined": n,
            "without": found["without_reason"][group],
            "shared": found["by_group"].get(group),
            "note": found["note"],
        }
        for group, n in (found["declined"].items() if found else ())
    ]
    columns = (
        text("group"),
        Column("declined", "whole"),
        Column("without a reason", "whole", "without"),
        Column("shared with a declined match", "share", "shared"),
        NOTE,
    )
    caption = "Declined people of each group"
    return Table("Declined", caption, columns, records, (), _if_empty(summary))


def _if_empty(summary: Summary) -> str:
    found = summary["reasons"]
    return NO_REASONS if found is None else f"Not available: {found['note'] or 'no one is given a reason'}."
