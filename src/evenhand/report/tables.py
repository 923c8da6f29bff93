"""Tables of the report: text in cells, made from the plain data of an audit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from evenhand.metrics.regimes import REGIMES
from evenhand.report.formatting import (
    MISSING,
    count,
    decimal,
    estimate_interval,
    interval,
    is_number,
    p_value,
    percent,
)

__all__ = [
    "Table",
    "approval_table",
    "balance_table",
    "coverage_table",
    "cutoff_table",
    "density_table",
    "distance_table",
    "error_table",
    "excess_by_table",
    "excess_table",
    "feature_table",
    "gap_table",
    "histogram_table",
    "plane_table",
    "proxy_table",
    "regime_table",
    "score_table",
    "segment_tables",
    "sensitivity_table",
    "threshold_table",
    "weight_table",
]

Data = Mapping[str, Any]


@dataclass(frozen=True)
class Table:
    """A table of text.

    Attributes
    ----------
    columns
        Heads; those of numbers end up right-aligned.
    rows
        Cells, a tuple for each row.
    is_number
        Whether each column holds numbers.
    caption
        What the table shows.
    """

    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    is_number: tuple[bool, ...]
    caption: str = ""


def _table(caption: str, columns: Sequence[str], rows: Iterable[Sequence[str]], n_words: int = 1) -> Table:
    """A table whose first columns are words, the last is a note where it is called so, and the rest are numbers."""
    heads = tuple(columns)
    numbers = tuple(place >= n_words and head not in ("note", "test") for place, head in enumerate(heads))
    return Table(heads, tuple(tuple(row) for row in rows), numbers, caption)


def _estimate(estimate: Mapping[str, Any], places: int = 3) -> tuple[str, str]:
    """Value and interval."""
    return decimal(estimate["value"], places), estimate_interval(estimate, places)


def _share(estimate: Mapping[str, Any]) -> tuple[str, str]:
    return percent(estimate["value"]), estimate_interval(estimate, 1, 100)


def _excess(estimate: Mapping[str, Any]) -> tuple[str, ...]:
    return (*_estimate(estimate), p_value(estimate["p_value"]), count(estimate["n"]), str(estimate["note"]))


_EXCESS_HEADS = ("excess", "95 % interval", "p, one-sided", "people", "note")


def regime_table(data: Data) -> Table:
    """Pairs by group and regime."""
    by_group = data["distributions"]["regimes"]
    everyone = {r: sum(counts[r] for counts in by_group.values()) for r in REGIMES}
    rows = []
    for name, counts in {**by_group, "all pairs": everyone}.items():
        total = sum(counts.values())
        rows.append((name, *(percent(counts[r] / total) if total else MISSING for r in REGIMES), count(total)))
    return _table("Share of pairs in each regime", ("group", *REGIMES, "pairs"), rows)


def plane_table(data: Data) -> Table:
    """Flip rate, CEC score and shared reasons by group."""
    rows = []
    for name, counts in data["distributions"]["regimes"].items():
        total = sum(counts.values())
        flips = percent((counts["C"] + counts["D"]) / total) if total else MISSING
        shared = data["reasons"]["by_group"].get(name)
        rows.append((name, flips, decimal(data["cec"]["by_group"].get(name)), percent(shared), count(total)))
    everyone = ("all pairs", percent(data["outcome"]["pfr"]), decimal(data["cec"]["mean"]))
    rows.append((*everyone, percent(data["reasons"]["shared"]), count(data["cec"]["n_pairs"])))
    heads = ("group", "flip rate", "mean CEC score", "principal reasons shared", "pairs")
    return _table("Decisions and reasoning of pairs", heads, rows)


def histogram_table(found: Mapping[str, Any], caption: str, bins: int = 10) -> Table:
    """Counts of a histogram in a few wide bins, by group."""
    edges = found["edges"]
    step = max(1, (len(edges) - 1) // bins)
    starts = range(0, len(edges) - 1, step)
    rows = [
        (
            f"{edges[i]:g} to {edges[min(i + step, len(edges) - 1)]:g}",
            *(count(sum(counts[i : i + step])) for counts in found["counts"].values()),
        )
        for i in starts
    ]
    return _table(caption, ("from, to", *found["counts"]), rows)


def excess_table(data: Data) -> Table:
    """The excess of each measure."""
    found = data["evidence"]
    parts = (
        ("CEC score", "cec"),
        ("input gap", "input_gap"),
        ("reasoning gap", "reasoning_gap"),
        ("share in regime B (a description, not a test)", "regime_b"),
        ("principal reasons shared (below 0: fewer in common)", "reason_overlap"),
    )
    rows = [(words, *_excess(found[name])) for words, name in parts] if found else []
    return _table("Excess over placebo pairs", ("measure", *_EXCESS_HEADS), rows)


def excess_by_table(data: Data) -> Table:
    """The excess within parts of the people."""
    rows = [
        (s["split"], s["value"], *_excess(s["estimate"])[:3], p_value(s["p_adjusted"]), *_excess(s["estimate"])[3:])
        for s in (data["evidence"] or {"splits": []})["splits"]
    ]
    heads = ("split", "value", "excess", "95 % interval", "p, one-sided", "p, Holm", "people", "note")
    return _table("Excess of the CEC score within parts of the people", heads, rows, 2)


def feature_table(data: Data) -> Table:
    """Each feature's part of score and excess."""
    groups = list(data["data"]["groups"])
    rows = [
        (
            f["feature"],
            percent(f["share"]),
            decimal(f.get("excess"), 4),
            interval(f.get("excess_ci_low"), f.get("excess_ci_high"), 4),
            *(decimal(f.get(f"mean attribution: {name}"), 3) for name in groups),
        )
        for f in data["features"]
    ]
    heads = ("feature", "share of CEC", "part of excess", "95 % interval", *(f"mean attribution, {g}" for g in groups))
    return _table("Features", heads, rows)


def weight_table(data: Data) -> Table:
    """Differences of weights."""
    rows = [
        (w["feature"], w["group"], w["other_group"], *_estimate(w["estimate"], 4), p_two_sided(w["estimate"]))
        for w in (data["evidence"] or {"weights": []})["weights"]
    ]
    heads = ("feature", "group", "other group", "difference", "95 % interval", "p, two-sided")
    return _table("Weight in the group minus weight in the other group, over placebo pairs", heads, rows, 3)


def p_two_sided(estimate: Mapping[str, Any]) -> str:
    """Two-sided p-value of an estimate whose own is one-sided: a weight may differ either way.

    Examples
    --------
    >>> p_two_sided({"p_value": 0.99}), p_two_sided({"p_value": float("nan")})
    ('0.020', 'not estimated')
    """
    one = estimate["p_value"]
    return p_value(2 * min(one, 1 - one)) if is_number(one) else MISSING


def proxy_table(data: Data) -> Table:
    """How well features tell the group."""
    screen = data["proxies"]
    found = [] if screen is None else [screen["all_features"], *screen["features"]]
    rows = [
        (f["feature"], decimal(f["auc"]), interval(f["low"], f["high"]), count(f["n_missing"]), f["note"])
        for f in found
        if f is not None
    ]
    return _table("How well a feature predicts the group", ("feature", "AUC", "95 % interval", "missing", "note"), rows)


def coverage_table(data: Data) -> Table:
    """Who has a match."""
    rows = [
        (c["group"], c["other_group"], count(c["n_pairs"]), count(c["n_matched"]), percent(c["coverage"]))
        for c in data["matching"]["coverage_by_group"]
    ]
    heads = ("group", "matched in", "people", "with a match", "coverage")
    return _table("Coverage of the matching", heads, [(str(a), str(b), *rest) for a, b, *rest in rows], 2)


def distance_table(data: Data) -> Table:
    """Quantiles of the distance."""
    quantiles = data["matching"]["distance_quantiles"]
    rows = [(percent(float(q), 0), decimal(d)) for q, d in quantiles.items()]
    return _table("Distance to the match", ("share of pairs", "within a distance of"), rows)


def balance_table(data: Data) -> Table:
    """Standardized mean differences."""
    rows = [
        (b["feature"], str(b["group"]), str(b["other_group"]), decimal(b["before"]), decimal(b["after"]))
        for b in data["matching"]["balance"]
    ]
    heads = ("feature", "group", "other group", "before", "after")
    return _table("Standardized mean difference, group minus other group", heads, rows, 3)


def approval_table(data: Data) -> Table:
    """Approvals beside the reference group."""
    found = data["outcome"]["approvals"]
    rows = []
    for g in found["groups"]:
        alone = (count(g["n_people"]), *_share(g["approval_rate"]))
        if g["is_reference"]:
            rows.append((f"{g['group']} (reference)", *alone, *[""] * 7, g["note"]))
            continue
        ratio, odds = g["approval_ratio_group_over_reference"], g["odds_ratio_group_over_reference"]
        beside = (
            decimal(g["rate_difference_group_minus_reference_pp"]["value"], 1),
            *_estimate(ratio, 2),
            *_estimate(odds, 2),
            p_value(g["p_value_holm"]),
            decimal(g["n_standard_deviations"], 1),
        )
        rows.append((g["group"], *alone, *beside, "; ".join(x for x in (g["test"], g["note"]) if x)))
    heads = (
        "group", "people", "approved", "95 % interval", "difference, points", "ratio (AIR)", "95 % interval ",
        "odds ratio", "95 % interval  ", "p, Holm", "standard deviations", "note",
    )  # fmt: skip
    return _table("Favorable decisions by group", heads, rows)


def score_table(data: Data) -> Table:
    """Scores beside the reference group."""
    rows = [
        (
            f"{g['group']} (reference)" if g["is_reference"] else g["group"],
            count(g["n_people"]),
            *_estimate(g["mean_score"]),
            *(
                ("", "", "", "")
                if g["is_reference"]
                else (
                    *_estimate(g["standardized_mean_difference_group_minus_reference"], 2),
                    decimal(g["ks_distance"]),
                    p_value(g["ks_p_value"]),
                )
            ),
            g["note"],
        )
        for g in data["outcome"]["scores"]
    ]
    heads = ("group", "people", "mean score", "95 % interval", "SMD", "95 % interval ", "KS", "p of KS", "note")
    return _table("Scores by group", heads, rows)


def error_table(data: Data) -> Table:
    """Errors of each group."""
    rows = [
        (
            g["group"],
            *_share(g["true_positive_rate"]),
            *_share(g["false_positive_rate"]),
            *_estimate(g["auc"]),
            decimal(g["mean_score_minus_observed_rate"]["value"]),
            decimal(g["brier_score"]["value"]),
        )
        for g in data["outcome"]["error_rates"]
    ]
    heads = (
        "group", "true positives", "95 % interval", "false positives", "95 % interval ", "AUC", "95 % interval  ",
        "score minus rate", "Brier score",
    )  # fmt: skip
    return _table("Errors by group", heads, rows)


def gap_table(data: Data) -> Table:
    """Gaps and utility."""
    outcome = data["outcome"]
    names = (("auc", "AUC"), ("f1", "F1"), ("accuracy", "accuracy"), ("positive_rate", "share of favorable decisions"))
    rows = [(words, decimal(outcome[name]), "", "", outcome["notes"].get(name, "")) for name, words in names]
    words = {
        "sp_gap": "statistical parity gap",
        "eo_gap": "equalized odds gap",
        "tpr_gap": "gap in true positive rates",
        "fpr_gap": "gap in false positive rates",
    }
    rows += [
        (
            words.get(name, name),
            *_estimate(gap),
            f"{gap['group_low']} below {gap['group_high']}",
            gap["note"] or outcome["notes"].get(name, ""),
        )
        for name, gap in outcome["gaps"].items()
    ]
    table = _table("Utility and gaps", ("figure", "value", "95 % interval", "between", "note"), rows)
    return Table(table.columns, table.rows, (False, True, True, False, False), table.caption)


def cutoff_table(data: Data) -> Table:
    """Approvals at other cut-offs."""
    cuts = data["outcome"]["cutoffs"]
    others = [g["group"] for g in data["outcome"]["approvals"]["groups"] if not g["is_reference"]]
    rows = []
    for cut in cuts:
        ratio = {g["group"]: g["approval_ratio_group_over_reference"]["value"] for g in cut["table"]["groups"]}
        rows.append(
            (decimal(cut["cutoff"]), percent(cut["overall_approval_rate"]), *(decimal(ratio.get(g), 2) for g in others))
        )
    heads = ("cut-off", "approved in all", *(f"ratio, {name}" for name in others))
    return _table("Approvals if the cut-off were elsewhere", heads, rows, 0)


def segment_tables(data: Data) -> list[Table]:
    """For each column asked for, its common odds ratios and approvals within its values."""
    tables = []
    for column, found in data["outcome"]["segments"].items():
        rows = []
        for g in found:
            rows.append(
                (
                    g["group"],
                    "all, held fixed",
                    count(g["n_people_used"]),
                    "",
                    "",
                    *_estimate(g["common_odds_ratio_group_over_reference"], 2),
                    p_value(g["p_value_holm"]),
                    g["note"],
                )
            )
            rows += [
                (
                    g["group"],
                    s["segment"],
                    count(s["n_people_group"] + s["n_people_reference"]),
                    percent(s["approval_rate_group"]["value"]),
                    percent(s["approval_rate_reference"]["value"]),
                    *_estimate(s["odds_ratio_group_over_reference"], 2),
                    "",
                    s["note"],
                )
                for s in g["segments"]
            ]
        reference = found[0]["reference"] if found else "reference"
        heads = (
            "group", column, "people", "approved", f"approved, {reference}", "odds ratio", "95 % interval",
            "p, Holm", "note",
        )  # fmt: skip
        tables.append(_table(f"Approvals within values of {column}", heads, rows, 2))
    return tables


def sensitivity_table(data: Data) -> Table:
    """The excess under other choices."""
    found = data["evidence"]
    rows: list[tuple[str, ...]] = []
    if found is not None:
        rows = [("as audited", *_excess(found["cec"]))]
        variants = found["sensitivity"]
        rows += [(f"within a distance of {e['max_distance']:.2f}", *_excess(e)) for e in variants["max_distance"]]
        rows += [(f"nearest {e['n_matches']} of each person", *_excess(e)) for e in variants["n_matches"]]
    return _table("Excess of the CEC score under other choices", ("comparisons", *_EXCESS_HEADS), rows)


def threshold_table(data: Data) -> Table:
    """The excess share in regime B at other thresholds."""
    found = data["evidence"]
    rows = [
        (f"above {e['consistency_threshold']:g}", percent(e["value"]), estimate_interval(e, 1, 100), e["note"])
        for e in ([] if found is None else found["sensitivity"]["consistency_threshold"])
    ]
    heads = ("reasoning differs", "excess share", "95 % interval", "note")
    return _table("Excess share in regime B at other consistency thresholds", heads, rows)


def density_table(data: Data) -> Table:
    """Pairs by size of the score difference and CEC score."""
    found = data["distributions"]["plane"]
    middle = (np.asarray(found["difference_edges"][1:]) + np.asarray(found["difference_edges"][:-1])) / 2
    bands = ((0.0, 0.1), (0.1, 0.25), (0.25, 0.5), (0.5, 1.01))
    tau = data["settings"]["consistency_threshold"]
    low = np.asarray(found["cec_edges"][:-1])
    cells = np.asarray(found["cells"] or np.empty((0, 3)), dtype=int)
    rows = []
    for left, right in bands:
        size = np.abs(middle[cells[:, 0]])
        within = cells[(size >= left) & (size < right)]
        is_above = low[within[:, 1]] >= tau - 1e-9
        rows.append(
            (
                f"{left:g} to {min(right, 1):g}",
                count(int(within[~is_above, 2].sum())),
                count(int(within[is_above, 2].sum())),
            )
        )
    heads = ("scores apart by", f"CEC up to about {tau:g}", f"CEC above about {tau:g}")
    return _table("Pairs by difference of scores and CEC score", heads, rows)
