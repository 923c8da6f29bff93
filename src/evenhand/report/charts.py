"""Charts of an audit: plain data in, an Altair chart out.

Every function takes the summary of an audit (`AuditResult.to_dict`) and returns a chart with a description for screen
readers. Each chart is a single view, so that a page can give it any width. `report.registry` lists them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import altair as alt
import numpy as np

from evenhand.metrics.cec import REGIMES
from evenhand.report.audit_tables import largest_gap
from evenhand.report.drawing import (
    STEP,
    NothingToDrawError,
    chart_of,
    check_any,
    estimate_row,
    finished,
    forest,
    group_color,
    group_shape,
    guide_x,
    guide_y,
    label_of,
    labels_of,
    line_of_each,
    lines_of,
    quantity,
    tooltips,
)
from evenhand.report.formatting import decimal, is_number, shortened

Data = Mapping[str, Any]
Row = dict[str, Any]

MOST_FEATURES = 15
_MOST_ROWS = 40
_EVERYONE = "all pairs"
_REGIME_WORDS = {
    "A": "A: same decision, same reasoning",
    "B": "B: same decision, different reasoning",
    "C": "C: different decision, same reasoning",
    "D": "D: decision and reasoning differ",
}


def regimes(data: Data) -> alt.Chart:
    """Share of pairs in each regime, for everyone and by group of the person."""
    counts = _regime_counts(data)
    rows = [
        {"group": name, "regime": _REGIME_WORDS[r], "share": n[r] / sum(n.values()), "pairs": n[r], "place": place}
        for name, n in counts.items()
        if sum(n.values())
        for place, r in enumerate(REGIMES)
    ]
    check_any(rows, "no pair was scored")
    colors = alt.Scale(domain=list(_REGIME_WORDS.values()), range="ordinal")
    bars = chart_of(rows).mark_bar(height={"band": 0.7})
    chart = bars.encode(
        x=quantity(alt.X, "share", "Share of pairs", percent=True, domain=[0, 1]),
        y=lines_of(list(counts), "group"),
        color=alt.Color("regime:N", scale=colors, legend=alt.Legend(columns=2, labelLimit=260)),
        order=alt.Order("place:Q"),
        tooltip=tooltips("group", "regime", ("share", ".1%"), ("pairs", ",")),
    )
    return finished(
        chart, "Stacked bars: share of pairs in the regimes A to D, for all pairs and by group.", 30 * len(counts)
    )


def plane(data: Data) -> alt.Chart:
    """Each group by how often decisions differ and how far reasoning differs, and the level of placebo pairs."""
    counts, means = _regime_counts(data), data["cec"]["by_group"]
    rows = [
        {
            "group": name,
            "pfr": (n["C"] + n["D"]) / sum(n.values()),
            "cec": data["cec"]["mean"] if name == _EVERYONE else means.get(name),
            "pairs": sum(n.values()),
        }
        for name, n in counts.items()
        if sum(n.values())
    ]
    rows = [row for row in rows if is_number(row["cec"])]
    check_any(rows, "no pair was scored")
    tau = data["settings"]["consistency_threshold"]
    top = min(1.0, max(0.2, 1.25 * max(row["pfr"] for row in rows)))
    x = quantity(alt.X, "pfr", "Prediction flip rate", percent=True, domain=[0, top])
    y = quantity(alt.Y, "cec", "Mean CEC score", domain=[0, 1])
    corners = [
        {
            "letter": letter,
            "pfr": top * (0.06 if letter in "AB" else 0.94),
            "cec": tau / 2 if letter in "AC" else (3 + tau) / 4,
        }
        for letter in REGIMES
    ]
    points = chart_of(rows).mark_point(size=150)
    points = points.encode(
        x=x,
        y=y,
        color=group_color(list(counts)),
        shape=group_shape(list(counts)),
        tooltip=tooltips("group", ("pfr", ".1%", "flip rate"), ("cec", ".3f", "mean CEC"), ("pairs", ",")),
    )
    layers: list[Any] = [
        chart_of(corners).mark_text(style="corner").encode(x=x, y=y, text=alt.Text("letter:N")),
        *guide_y(tau, f"consistency threshold {tau:g}", "guide"),
    ]
    found = data["evidence"]
    if found is not None and is_number(found["placebo_mean"]):
        lines = {"placebo": ("floor", found["placebo_mean"]), "compared": ("compared", found["compared_mean"])}
        highest = max(lines, key=lambda name: lines[name][1])
        for name, (style, value) in lines.items():
            words = f"{name} pairs {decimal(value)}"
            layers += guide_y(value, words, style, side="left", is_above=name == highest)
    return finished(
        alt.layer(*layers, points),
        "Points: prediction flip rate and mean CEC score of all pairs and of each group, with the consistency "
        "threshold, compared pairs and placebo pairs as horizontal lines.",
        height=300,
    )


def density(data: Data) -> alt.Chart:
    """Number of pairs by difference in scores and CEC score."""
    found = data["distributions"]["plane"]
    across, up = found["difference_edges"], found["cec_edges"]
    rows = [
        {"left": across[i], "right": across[i + 1], "low": up[j], "high": up[j + 1], "pairs": n}
        for i, j, n in found["cells"]
    ]
    check_any(rows, "no pair was scored")
    tau = data["settings"]["consistency_threshold"]
    shades = alt.Scale(type="sqrt", domain=[0, max(r["pairs"] for r in rows)], range=[0.05, 1])
    cells = chart_of(rows).mark_rect(style="heat")
    cells = cells.encode(
        x=quantity(alt.X, "left", "Score of the match minus score of the person", domain=[-1, 1]),
        x2=alt.X2("right:Q"),
        y=quantity(alt.Y, "low", "CEC score", domain=[0, 1]),
        y2=alt.Y2("high:Q"),
        fillOpacity=alt.FillOpacity("pairs:Q", scale=shades, legend=None),
        tooltip=tooltips(
            ("left", "", "difference from"),
            ("right", "", "to"),
            ("low", "", "CEC from"),
            ("high", "", "to"),
            ("pairs", ","),
        ),
    )
    return finished(
        alt.layer(cells, *guide_y(tau, f"consistency threshold {tau:g}", "guide")),
        "Heat map: number of pairs by difference in scores and CEC score; darker means more pairs.",
        height=300,
    )


def cec_distribution(data: Data) -> alt.Chart:
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


def excess(data: Data) -> alt.Chart:
    """The excess over placebo pairs of each measure, with 95% intervals."""
    found = _evidence(data)
    parts = (
        ("CEC score", "cec"),
        ("input gap", "input_gap"),
        ("reasoning gap", "reasoning_gap"),
        ("regime B share", "regime_b"),
        ("shared reasons", "reason_overlap"),
    )
    rows = [estimate_row(label, found[name]) for label, name in parts]
    return _excesses(rows, "excess over placebo pairs of the CEC score, its two parts, regime B and shared reasons.")


def excess_by(data: Data) -> alt.Chart:
    """The excess of the CEC score within each group, label, decision and additional column."""
    splits = _evidence(data)["splits"]
    rows = [estimate_row("everyone", data["evidence"]["cec"])]
    rows += [estimate_row(f"{s['split']}: {s['value']}", s["estimate"]) for s in splits]
    among = "for everyone and within each group, label, decision and additional column."
    return _excesses(rows[:_MOST_ROWS], f"excess of the CEC score {among}")


def score_gap(data: Data) -> alt.Chart:
    """The score gap at equal finances and the part of each input, with 95% intervals; the largest ones."""
    gap = largest_gap(data)
    inputs = sorted(gap["features"], key=lambda f: -_size(f["value"]))[:MOST_FEATURES]
    rows = [
        estimate_row("all inputs together" if inputs else "in total", gap["total"]),
        *(estimate_row(f["feature"], f) for f in inputs),
    ]
    group, reference = shortened(gap["group"], 16), shortened(gap["reference"], 16)
    return forest(
        rows,
        f"{group} minus {reference}, {gap['unit']}",
        "Points with 95% intervals: score gap at equal finances, in total and through each input.",
    )


def drivers(data: Data) -> alt.Chart:
    """Each feature's contribution to the excess, with 95% intervals; the largest ones."""
    found = sorted(_evidence(data)["features"], key=lambda f: -_size(f["estimate"]["value"]))
    rows = [estimate_row(f["feature"], f["estimate"]) for f in found[:MOST_FEATURES]]
    return forest(
        rows, "Contribution to the excess", "Points with 95% intervals: contribution of each feature to the excess."
    )


def shares(data: Data) -> alt.Chart:
    """Each feature's share of the CEC score; the largest first."""
    found = [f for f in data["features"] if is_number(f["share"])][:MOST_FEATURES]
    check_any(found, "no pair was scored")
    names = labels_of([f["feature"] for f in found])
    rows = [{"label": name, "share": f["share"]} for name, f in zip(names, found, strict=True)]
    bars = chart_of(rows).mark_bar(height={"band": 0.65})
    x = quantity(alt.X, "share", "Share of the mean CEC score", percent=True)
    chart = bars.encode(x=x, y=lines_of(names), tooltip=tooltips("label", ("share", ".1%")))
    return finished(chart, "Bars: share of each feature in the mean CEC score, largest first.", STEP * len(rows))


def weights(data: Data) -> alt.Chart:
    """How differently the model weighs features for comparable people of two groups; the clearest differences."""
    found = [w for w in _evidence(data)["weights"] if is_number(w["estimate"]["value"])]
    found.sort(key=lambda w: -abs(w["estimate"]["value"]) / max(w["estimate"]["standard_error"] or 0.0, 1e-9))
    several = len({(w["group"], w["other_group"]) for w in found}) > 1
    rows = [
        estimate_row(f"{w['feature']}: {w['group']} − {w['other_group']}" if several else w["feature"], w["estimate"])
        for w in found[:MOST_FEATURES]
    ]
    title = "Difference in weights, minus placebo pairs"
    if found and not several:
        title = f"Weight, {shortened(found[0]['group'], 16)} minus {shortened(found[0]['other_group'], 16)}"
    return forest(
        rows, title, "Points with 95% intervals: difference between two groups in the weight of each feature."
    )


def proxies(data: Data) -> alt.Chart:
    """How well each feature alone predicts the group; 0.5 is guessing."""
    screen = data["proxies"]
    if screen is None:
        raise NothingToDrawError(
            "There is no proxy screen: groups were too small, or the audit was run without evidence."
        )
    known = sorted((f for f in screen["features"] if is_number(f["auc"])), key=lambda f: -f["auc"])
    rows = [
        {"label": f["feature"], "value": f["auc"], "low": f["low"], "high": f["high"]}
        for f in [screen["all_features"], *known[:MOST_FEATURES]]
        if f is not None and is_number(f["auc"])
    ]
    return forest(
        rows,
        "AUC of predicting the group",
        "Points with 95% intervals: how well each feature predicts the group; 0.5 is guessing, 1 is perfect.",
        zero=0.5,
    )


def distances(data: Data) -> alt.Chart:
    """Share of pairs within each distance, by group of the person."""
    found = data["distributions"]["distance"]
    total = np.sum(list(found["counts"].values()), axis=0) if found["counts"] else np.zeros(1)
    if not total.sum():
        raise NothingToDrawError("There is no distance to draw: no pair was scored.")
    last = int(np.searchsorted(np.cumsum(total) / total.sum(), 0.995)) + 1
    rows = []
    for name, counts in found["counts"].items():
        if sum(counts):
            share = np.cumsum([0, *counts[:last]]) / sum(counts)
            rows += [
                {"group": label_of(name), "distance": d, "share": s}
                for d, s in zip(found["edges"][: last + 1], share.tolist(), strict=True)
            ]
    chart = chart_of(rows).mark_line()
    chart = chart.encode(
        x=quantity(alt.X, "distance", "Distance to the match, in standard deviations"),
        y=quantity(alt.Y, "share", "Share within this distance", percent=True, domain=[0, 1]),
        **line_of_each(label_of(name) for name in found["counts"]),
        tooltip=tooltips("group", ("distance", ".2f"), ("share", ".1%", "share within")),
    )
    return finished(chart, "Lines: share of pairs whose match is within each distance, by group.", height=240)


def balance(data: Data) -> alt.Chart:
    """Love plot: standardized mean difference of each financial feature before and after matching."""
    found: dict[str, list[Row]] = {}
    for row in data["matching"]["balance"]:
        if is_number(row["before"]) or is_number(row["after"]):
            found.setdefault(row["feature"], []).append(row)
    check_any(found, "no difference between groups could be estimated")
    order = sorted(found, key=lambda name: -max(_size(r["before"]) for r in found[name]))[: MOST_FEATURES + 5]
    names = dict(zip(order, labels_of(order), strict=True))
    kinds = {"after": "after matching", "before": "before matching"}
    rows = [
        {
            "label": names[name],
            "difference": abs(row[key]),
            "when": words,
            "groups": f"{shortened(row['group'], 40)} and {shortened(row['other_group'], 40)}",
        }
        for name in order
        for row in found[name]
        for key, words in kinds.items()
        if is_number(row[key])
    ]
    when = list(kinds.values())
    points = chart_of(rows).mark_point(size=70, strokeWidth=2)
    points = points.encode(
        x=quantity(alt.X, "difference", "Absolute standardized mean difference", zero=True),
        y=lines_of(list(names.values())),
        color=group_color(when, "when"),
        shape=group_shape(when, "when"),
        tooltip=tooltips("label", "when", "groups", ("difference", ".3f")),
    )
    return finished(
        alt.layer(*guide_x(0.1, "0.1"), points),
        "Love plot: standardized mean difference of each financial feature between groups before and after matching.",
        STEP * len(order),
    )


def sensitivity(data: Data) -> alt.Chart:
    """The excess with different matches, with 95% intervals."""
    found = _evidence(data)["sensitivity"]
    rows = [estimate_row("as audited", data["evidence"]["cec"])]
    rows += [estimate_row(f"distance up to {e['max_distance']:.2f}", e) for e in found["max_distance"]]
    rows += [estimate_row(f"nearest {e['n_matches']} each", e) for e in found["n_matches"]]
    return _excesses(rows, "excess of the CEC score with nearer or fewer matches.")


def thresholds(data: Data) -> alt.Chart:
    """The excess share in regime B at different consistency thresholds, with 95% intervals."""
    found = _evidence(data)["sensitivity"]["consistency_threshold"]
    rows = [estimate_row(f"CEC above {e['consistency_threshold']:g}", e) for e in found]
    return forest(
        rows,
        "Excess share in regime B",
        "Points with 95% intervals: excess share in regime B at different consistency thresholds.",
        percent_axis=True,
    )


def pair(sample: Data, row: int) -> alt.Chart:
    """Attributions of the two people of a sampled pair side by side, as parts of unit vectors."""
    chosen = sample["pairs"].iloc[row]
    sides = {
        f"person {chosen['person']}, {label_of(chosen['group'])}": (
            sample["attributions"][row],
            sample["values"].iloc[row],
        ),
        f"match {chosen['match']}, {label_of(chosen['other_group'])}": (
            sample["match_attributions"][row],
            sample["match_values"].iloc[row],
        ),
    }
    units = [attributions / max(float(np.linalg.norm(attributions)), 1e-30) for attributions, _ in sides.values()]
    order = np.argsort(-np.maximum(*map(np.abs, units)), kind="stable")[:MOST_FEATURES]
    names = labels_of([str(sample["values"].columns[j]) for j in order])
    rows = [
        {"label": name, "who": who, "part": float(unit[j]), "value": shortened(values.iloc[j], 40)}
        for name, j in zip(names, order, strict=True)
        for (who, (_, values)), unit in zip(sides.items(), units, strict=True)
    ]
    chart = chart_of(rows).mark_bar()
    chart = chart.encode(
        x=quantity(alt.X, "part", "Attribution, as part of the whole explanation"),
        y=lines_of(names),
        yOffset=alt.YOffset("who:N", sort=None, scale=alt.Scale(domain=list(sides))),
        color=group_color(list(sides), "who"),
        tooltip=tooltips("label", "who", "value", ("part", ".3f")),
    )
    return finished(
        chart,
        f"Grouped bars: attributions of person {chosen['person']} and match {chosen['match']}, CEC score "
        f"{decimal(float(chosen['cec']))}.",
        30 * len(names),
    )


def _excesses(rows: list[Row], shown: str) -> alt.Chart:
    return forest(rows, "Excess over placebo pairs", f"Points with 95% intervals: {shown}")


def _histogram(found: Mapping[str, Any]) -> list[Row]:
    """Share of everyone in each bin, at its left edge, and 0 at the end."""
    counts = np.sum(list(found["counts"].values()), axis=0) if found["counts"] else np.zeros(0)
    if not counts.sum():
        return []
    shares = [*(counts / counts.sum()).tolist(), 0.0]
    return [{"cec": edge, "share": share} for edge, share in zip(found["edges"], shares, strict=True)]


def _evidence(data: Data) -> Mapping[str, Any]:
    if data["evidence"] is None:
        raise NothingToDrawError("The audit was run without evidence: run `audit` with `evidence=True` for this chart.")
    found: Mapping[str, Any] = data["evidence"]
    return found


def _regime_counts(data: Data) -> dict[str, dict[str, int]]:
    """Pairs by regime, for everyone and for each group."""
    by_group = {label_of(name): counts for name, counts in data["distributions"]["regimes"].items()}
    everyone = {r: sum(counts[r] for counts in by_group.values()) for r in REGIMES}
    return {**by_group, _EVERYONE: everyone}


def _size(value: object) -> float:
    return abs(value) if is_number(value) else -1.0  # type: ignore[arg-type]


_MOST_REASONS = 12


def reason_rates(data: Mapping[str, Any]) -> alt.Chart:
    """How often each reason is given to declined people of each group, with 95% intervals; the most frequent first."""
    found = data["reasons"]
    rates = [
        row for row in (found["rates"] if found else ()) if row["place"] == "any" and is_number(row["rate"]["value"])
    ]
    check_any(rates, (found and found["note"]) or "no one is given a reason")
    shown = list(dict.fromkeys(row["reason"] for row in rates))[:_MOST_REASONS]
    reason_label = dict(zip(shown, labels_of(shown), strict=True))
    groups = list(dict.fromkeys(row["group"] for row in rates))
    group_label = dict(zip(groups, labels_of(groups), strict=True))
    rows = [
        {
            "label": reason_label[row["reason"]],
            "group": group_label[row["group"]],
            "share": row["rate"]["value"],
            "low": row["rate"]["low"],
            "high": row["rate"]["high"],
            "people": row["n"],
        }
        for row in rates
        if row["reason"] in reason_label
    ]
    names = list(group_label.values())
    lines = lines_of(list(reason_label.values()))
    beside = alt.YOffset("group:N", scale=alt.Scale(domain=names))
    top = min(1.0, 1.05 * max(row["high"] for row in rows))
    tooltip = tooltips(
        "label", "group", ("share", ".1%"), ("low", ".1%", "95% from"), ("high", ".1%", "to"), ("people", ",")
    )
    base = chart_of(rows)
    x = quantity(alt.X, "low", "Share of declined people with the reason", percent=True, domain=[0, top])
    layers = [
        base.mark_rule(style="interval").encode(
            x=x, x2=alt.X2("high:Q"), y=lines, yOffset=beside, color=group_color(names), tooltip=tooltip
        ),
        base.mark_point().encode(
            x=alt.X("share:Q"),
            y=lines,
            yOffset=beside,
            color=group_color(names),
            shape=group_shape(names),
            tooltip=tooltip,
        ),
    ]
    height = max(STEP, 14 * len(names)) * len(reason_label)
    return finished(
        alt.layer(*layers),
        "Points with 95% intervals: share of declined people of each group who are given each reason, the most "
        "frequent reasons first.",
        height,
    )


def approvals(data: Data) -> alt.Chart:
    """Share of favorable decisions in each group, with 95% intervals."""
    rows = [estimate_row(g["group"], g["approval_rate"]) for g in data["outcome"]["approvals"]["groups"]]
    return forest(
        rows,
        "Share of favorable decisions",
        "Points with 95% intervals: share of favorable decisions by group.",
        zero=None,
        percent_axis=True,
    )


def ratios(data: Data) -> alt.Chart:
    """Approval rate of each group divided by that of the reference group, with 95% intervals."""
    table = data["outcome"]["approvals"]
    rows = [
        estimate_row(g["group"], g["approval_ratio_group_over_reference"])
        for g in table["groups"]
        if not g["is_reference"]
    ]
    limit = table["four_fifths_threshold"]
    return forest(
        rows,
        f"Approval rate divided by that of {shortened(table['reference'], 30)}",
        "Points with 95% intervals: approval ratio of each group to the reference group.",
        zero=1.0,
        guides=((limit, f"{limit:g}"),),
    )


def error_rates(data: Data) -> alt.Chart:
    """True and false positive rate of each group, with 95% intervals."""
    rows = [
        estimate_row(f"{words}: {g['group']}", g[name])
        for name, words in (("true_positive_rate", "TPR"), ("false_positive_rate", "FPR"))
        for g in data["outcome"]["error_rates"]
    ]
    return forest(
        rows,
        "Rate",
        "Points with 95% intervals: true and false positive rate of each group.",
        zero=None,
        percent_axis=True,
    )


def cutoffs(data: Data) -> alt.Chart:
    """Approval ratio of each group if the cutoff were at each decile of the score."""
    rows = [
        {
            "group": label_of(g["group"]),
            "rate": cut["overall_approval_rate"],
            "ratio": g["approval_ratio_group_over_reference"]["value"],
            "cutoff": cut["cutoff"],
        }
        for cut in data["outcome"]["cutoffs"]
        for g in cut["table"]["groups"]
        if not g["is_reference"] and is_number(g["approval_ratio_group_over_reference"]["value"])
    ]
    check_any(rows, "no approval ratio could be estimated at any cutoff")
    lines = chart_of(rows).mark_line(point={"size": 50})
    lines = lines.encode(
        x=quantity(alt.X, "rate", "Share of everyone approved at the cutoff", percent=True),
        y=quantity(alt.Y, "ratio", "Approval ratio", zero=False),
        **line_of_each(row["group"] for row in rows),
        tooltip=tooltips("group", ("rate", ".0%", "approved in total"), ("cutoff", ".3f"), ("ratio", ".3f")),
    )
    limit = data["outcome"]["approvals"]["four_fifths_threshold"]
    return finished(
        alt.layer(*guide_y(limit, f"{limit:g}", "guide"), *guide_y(1.0, "equal rates", "guide"), lines),
        "Lines: approval ratio of each group to the reference group as the cutoff moves.",
        height=240,
    )


def score_distribution(data: Data) -> alt.Chart:
    """Distribution of scores in each group."""
    found = data["distributions"]["score"]
    rows = [
        {"group": label_of(name), "score": edge, "share": n / sum(counts)}
        for name, counts in found["counts"].items()
        if sum(counts)
        for edge, n in zip(found["edges"], [*counts, 0], strict=True)
    ]
    check_any(rows, "no one has a score")
    lines = chart_of(rows).mark_line(interpolate="step-after", strokeWidth=2)
    lines = lines.encode(
        x=quantity(
            alt.X, "score", data["settings"].get("unit") or "Score", domain=[found["edges"][0], found["edges"][-1]]
        ),
        y=quantity(alt.Y, "share", "Share of the group", percent=True),
        **line_of_each(label_of(name) for name in found["counts"]),
        tooltip=tooltips("group", ("score", ".3f"), ("share", ".1%")),
    )
    return finished(
        alt.layer(*_threshold_guides(data["settings"]["decision_threshold"]), lines),
        "Lines: histogram of scores in each group, with the decision threshold.",
        height=220,
    )


def _threshold_guides(threshold: float | Mapping[str, Any] | None) -> list[alt.Chart]:
    """A line at the threshold, or at the cutoff of each segment; none if the outcome is a value."""
    if threshold is None:
        return []
    if not isinstance(threshold, Mapping):
        return guide_x(threshold, f"decision threshold {threshold:g}")
    cut_offs = threshold["cut_offs"]
    names = {at: ", ".join(name for name in cut_offs if cut_offs[name] == at) for at in cut_offs.values()}
    return [mark for at, name in names.items() for mark in guide_x(at, label_of(f"{name} {at:g}"))]
