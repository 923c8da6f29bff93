"""Pages on several audits, a comparison and a history: built from their dictionaries, in the style of the report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import altair as alt

from evenhand.report.drawing import (
    STEP,
    VARIABLES,
    chart_of,
    finished,
    group_color,
    group_shape,
    guide_y,
    lines_of,
    quantity,
    tooltips,
)
from evenhand.report.formatting import capital, decimal, interval, is_number, listed, p_value, percent, shortened
from evenhand.report.frame import Finding, KeyMetric, Panel, Section, panel_of, render
from evenhand.report.tables import Column, Record, Table, estimate, inside, name_in_code
from evenhand.system.files import json_ready

_VERDICTS = {
    "more than noise": VARIABLES.regimes[1],
    "not clearly more than noise": VARIABLES.floor,
    "within noise": VARIABLES.muted,
}
_MOST_LINES = 8
_MOST_FEATURES = 15
_QUESTIONS = {"score_gap": "Score gap", "inputs": "Inputs", "weighing": "Weighing", "excess": "Excess"}
_ANSWERS = {"yes": "more than noise", "no": "no change found", "open": "not known"}
_FILLED = "A filled point changed by more than noise."
_EACH_ROW = "its change and the 95% interval of the change."
_PARTS = {"inputs": "part of the score gap, ", "feature": "part of the excess, "}

_AUDIT_COLUMNS = (
    Column("audit", "text", "name"),
    Column("model", "text"),
    Column("people", "whole", "n_people"),
    Column("groups", "text", lambda r: ", ".join(f"{group} {n:,}" for group, n in r["groups"].items())),
    Column("made", "text", "created"),
    Column("evenhand", "text"),
)
_CHANGE_COLUMNS = (
    Column("metric", "text", lambda c: _PARTS.get(c["part"], "") + c["words"]),
    Column("audit", "text"),
    Column("from", "number", "base_value"),
    Column("to", "number", "value"),
    estimate("change", lambda c: {**c, "value": c["change"]}),
    Column("as a", "text", "scale"),
    Column("p-value", "p", "p_value"),
    Column("p-value, adjusted", "p", "p_adjusted"),
    Column("people", "text", lambda c: "the same" if c["is_paired"] else "independent"),
    Column("verdict", "text"),
    Column("note", "long text"),
)
# The first audit of a history has no past.
_TREND_COLUMNS = (
    Column("audit", "text"),
    estimate("value", lambda p: p),
    Column("expected", "number", lambda p: "" if p["expected"] is None else p["expected"]),
    Column("limits", "text", lambda p: interval(p["limit_low"], p["limit_high"])),
    Column("deviation", "number", lambda p: "" if p["z"] is None else p["z"], places=2),
    Column("change noticed in 80% of cases", "number", lambda p: "" if p["detectable"] is None else p["detectable"]),
    Column("CUSUM up", "number", "cusum_high", places=2),
    Column("CUSUM down", "number", "cusum_low", places=2),
)


def _by_audit(
    name: str, title: str, audits: Sequence[str], rows: Record, kind: Any = "number", places: int = 3
) -> Table:
    """One row for each name, with a number for each audit."""
    heading = "feature" if kind == "share" else "metric"
    columns = [Column(heading, "text", "name"), *(Column(a, kind, inside("numbers", a), places) for a in audits)]
    return Table(name, title, columns, [{"name": row, "numbers": numbers} for row, numbers in rows.items()])


# --- comparison ---


def comparison_page(comparison: Record) -> str:
    """The page of a comparison as text.

    Parameters
    ----------
    comparison
        Output of `Comparison.to_dict`.

    Examples
    --------
    >>> import evenhand as eh
    >>> def audited(seed):
    ...     planted = eh.make_planted_bias(80, random_state=seed)
    ...     people = planted.dataset
    ...     return eh.audit(planted.model, people.X, people.y, sensitive_features=people.group,
    ...                     financial_features=people.financial_features, evidence=False)
    >>> comparison = eh.compare_audits({"spring": audited(0), "summer": audited(1)})
    >>> "summer compared with spring" in comparison_page(comparison.to_dict())
    True
    """
    comparison = json_ready(comparison)
    base, findings = comparison["base"], comparison["findings"]
    others = [name for name in comparison["names"] if name != base]
    is_one = len(others) == 1
    sentences = [
        (_QUESTIONS[f["key"]] if is_one else f"{_QUESTIONS[f['key']]}, {f['audit']}", f["sentence"]) for f in findings
    ]
    # The four questions, strongest change first; with several audits, those of the last.
    where = "" if is_one else f"in {shortened(others[-1], 24)}; "
    key_changes = [_key_change(f, where) for f in findings if f["audit"] == others[-1]]
    audits = [{**a, "name": f"{base} (base)"} if a["name"] == base else a for a in comparison["audits"]]
    changes = [*comparison["metrics"], *comparison["inputs"], *comparison["features"]]
    panels = {}
    for name, (title, caption, none, axis, is_shown) in _CHANGE_PANELS.items():
        shown = [c for c in changes if is_shown(c)]
        shown = _largest(shown) if name in ("inputs", "drivers") else shown
        known = [c for c in shown if is_number(c["p_value"]) and is_number(c["change"])]
        table = Table("Changes", "Changes", _CHANGE_COLUMNS, shown)
        panels[name] = panel_of(name, title, caption, change_chart(known, axis) if known else none, table)
    finding = Finding(f"{comparison['headline']}.", sentences, key_changes, comparison["warnings"])
    pairings = [pairing["sentence"] for pairing in comparison["pairings"]]
    gaps, decisions = [panels["score-gap"], panels["inputs"]], [panels["decisions"], panels["ratios"]]
    drivers = [panels["drivers"], _share_panel(comparison["audits"])]
    sections = [
        Section("verdict", "Verdict", comparison["directions"], finding=finding),
        Section("compared", "What was compared", pairings, tables=[Table("Audits", "Audits", _AUDIT_COLUMNS, audits)]),
        Section("score-gaps", "Score gap and inputs", [_SCORE_GAP], panels=gaps, is_wide=True),
        Section("reasoning", "Weighing and excess", [_REASONING], panels=[panels["reasoning"]]),
        Section("decisions", "Decisions", [_DECISIONS], panels=decisions, is_wide=True),
        Section("drivers", "Feature drivers", ["Which features the change comes from."], panels=drivers, is_wide=True),
        Section("all", "All changes", tables=[Table("Changes", "Changes", _CHANGE_COLUMNS, changes)]),
        Section("reading", "How to read this", points=tuple(_READING.items())),
    ]
    title = f"{listed([shortened(name, 40) for name in others])} compared with {shortened(base, 40)}"
    return render("audit comparison", title, sections)


_SCORE_GAP = (
    "The difference in score between comparable people of two groups at equal finances, and the inputs through which "
    "it runs. The changes of the inputs add up to the change of the gap."
)
_REASONING = (
    "Weighing is how differently the same inputs count for comparable people of different groups. The excess is the "
    "CEC score of pairs across groups minus that of placebo pairs; 0 means no more difference than between any two "
    "people of the same group."
)
_DECISIONS = "What the model decides, by group, without matching."
# By name: title, caption, what is said if there is nothing to draw, the axis, and which changes.
_CHANGE_PANELS: dict[str, tuple[str, str, str, str, Callable[[Record], bool]]] = {
    "score-gap": (
        "Change in the score gap",
        f"Each row is a gap: {_EACH_ROW} {_FILLED}",
        "No audit has a score gap with a standard error.",
        "Change from the base",
        lambda c: c["part"] == "score_gap",
    ),
    "inputs": (
        "Change by input",
        "Change of each input's part of the score gap, largest first. An input that a model does not have has no part "
        "in its gap.",
        "The audits have no score gap by input in common.",
        "Change of the part of the score gap",
        lambda c: c["part"] == "inputs",
    ),
    "reasoning": (
        "Change in weighing and excess",
        f"Each row is a metric: {_EACH_ROW} {_FILLED}",
        "No audit has metrics of reasoning with a standard error.",
        "Change from the base",
        lambda c: c["part"] in ("weighing", "excess"),
    ),
    "decisions": (
        "Change in decisions and errors",
        f"Rates, signed gaps between groups, and the AUC. {_FILLED}",
        "No metric of decisions can be compared.",
        "Change from the base",
        lambda c: c["part"] == "outcome" and c["scale"] == "difference",
    ),
    "ratios": (
        "Change in approval ratios",
        "The approval ratio divided by that of the base: 1 means no change; below 1, the group lost ground.",
        "No approval ratio can be compared.",
        "Ratio to the base",
        lambda c: c["scale"] == "ratio",
    ),
    "drivers": (
        "Features that changed",
        f"Change of each feature's part of the excess, largest first. {_FILLED}",
        "The audits have no evidence by feature in common.",
        "Change of the part of the excess",
        lambda c: c["part"] == "feature",
    ),
}
_READING = {
    "Noise": "Every metric is an estimate from the people who happened to be audited. A change counts as more than "
    "noise if chance alone would give a change this large in at most 5% of comparisons in which nothing changed.",
    "Many metrics": "Among many metrics, some change by chance. Adjusted p-values (Holm) allow for that: the four "
    "questions of all audits on this page are adjusted together, the other metrics among themselves, and so are "
    "features.",
    "Gaps have a sign here": "A gap is shown as one group's rate minus that of the reference group. It is called "
    "reversed if both audits find a gap, with opposite signs, and moved if it passes through 0 otherwise.",
    "A change is not a cause": "Different people, different settings, a different model or a different month can each "
    "change a metric. The page says that it changed, not why.",
    "No change is not proof": "A change within noise may be real but too small to be seen with so few people. Its "
    "interval says how large it could be.",
}


def _key_change(finding: Record, where: str) -> KeyMetric:
    ends = interval(*finding["ci"])
    unit = f" {finding['unit']}" if finding["unit"] not in ("", "CEC score") else ""
    beside = f"{where}{_ANSWERS[finding['answer']]}{f'; {ends}{unit}' if ends else ''}"
    return KeyMetric(f"{_QUESTIONS[finding['key']]}, change", decimal(finding["estimate"]), beside)


def _largest(changes: Sequence[Record]) -> list[Record]:
    """Changes of the features that changed most in any audit, largest first."""
    known = [c for c in changes if is_number(c["p_value"])]
    by_size = sorted(known, key=lambda c: abs(c["change"]), reverse=True)
    largest = list(dict.fromkeys(c["words"] for c in by_size))[:_MOST_FEATURES]
    return sorted((c for c in known if c["words"] in largest), key=lambda c: largest.index(c["words"]))


def change_chart(changes: Sequence[Record], title: str) -> alt.Chart:
    """Changes with their intervals, one row per metric; a filled point changed by more than noise."""
    is_ratio = changes[0]["scale"] == "ratio"
    rows = [
        {
            **{key: c[key] for key in ("audit", "change", "low", "high", "verdict")},
            "metric": shortened(c["words"]),
            "from": decimal(c["base_value"]),
            "to": decimal(c["value"]),
            "interval": interval(c["low"], c["high"]),
            "p, adjusted": p_value(c["p_adjusted"]),
        }
        for c in changes
    ]
    audits, metrics, verdicts = (list(dict.fromkeys(r[key] for r in rows)) for key in ("audit", "metric", "verdict"))
    scale = alt.Scale(type="log", nice=False) if is_ratio else alt.Scale(zero=True, nice=True)
    colors = {verdict: color for verdict, color in _VERDICTS.items() if verdict in verdicts}
    colored = alt.Scale(domain=list(colors), range=list(colors.values()))
    shared: dict[str, Any] = {
        "y": lines_of(metrics, "metric"),
        "color": alt.Color("verdict:N", scale=colored, legend=alt.Legend()),
    }
    points: dict[str, Any] = {}
    if len(audits) > 1:
        shared["yOffset"] = alt.YOffset("audit:N", sort=audits)
        legend = alt.Legend(orient="bottom")
        points["shape"] = alt.Shape("audit:N", sort=audits, scale=alt.Scale(domain=audits), legend=legend)
    numbers = ("from", "to", ("change", ".3f"), "interval", "p, adjusted")
    points["tooltip"] = tooltips("metric", "audit", *numbers, "verdict")
    layers = [
        chart_of([{"at": int(is_ratio)}]).mark_rule(style="zero").encode(x=alt.X("at:Q", scale=scale)),
        chart_of(rows)
        .mark_rule(strokeWidth=2)
        .encode(x=alt.X("low:Q", title=title, scale=scale), x2=alt.X2("high:Q"), **shared),
    ]
    for is_filled in (False, True):
        of_mark = [row for row in rows if (row["verdict"] == "more than noise") == is_filled]
        if of_mark:  # a layer without rows has no extent
            style: dict[str, Any] = {"size": 110} if is_filled else {"strokeWidth": 2, "size": 70}
            marks = chart_of(of_mark).mark_point(filled=is_filled, **style)
            layers.append(marks.encode(x=alt.X("change:Q", title=title, scale=scale), **shared, **points))
    description = f"{title}, with intervals, of {len(metrics)} metrics; the vertical line means no change."
    return finished(alt.layer(*layers), description, STEP * len(metrics) * max(1.0, 0.72 * len(audits)))


def _share_panel(audits: Sequence[Record]) -> Panel:
    """Share of the CEC score by feature, one point per audit, connected by lines."""
    names = [audit["name"] for audit in audits]
    shares: dict[str, dict[str, float]] = {}
    for audit in audits:
        for feature, share in audit["shares"].items():
            if is_number(share):
                shares.setdefault(feature, {})[audit["name"]] = share
    features = sorted(shares, key=lambda name: max(shares[name].values()), reverse=True)[:_MOST_FEATURES]
    title = "Share of the CEC score"
    table = _by_audit("Shares", title, names, {feature: shares[feature] for feature in features}, "share")
    if not features:
        return panel_of("shares", title, "", "No audit has scored pairs.", table)
    rows = [
        {"feature": shortened(feature), "audit": audit, "share": share}
        for feature in features
        for audit, share in shares[feature].items()
    ]
    x = quantity(alt.X, "share", title, percent=True, zero=True)
    y = lines_of([shortened(feature) for feature in features], "feature")
    base = chart_of(rows)
    between = base.mark_line(style="guide", strokeDash=[1, 0]).encode(x=x, y=y, detail=alt.Detail("feature:N"))
    points = base.mark_point(size=90).encode(
        x=x,
        y=y,
        color=group_color(names, "audit"),
        shape=group_shape(names, "audit"),
        tooltip=tooltips("feature", "audit", ("share", ".1%")),
    )
    description = f"Share of the CEC score of {len(features)} features in {len(names)} audits."
    chart = finished(alt.layer(between, points), description, STEP * len(features))
    caption = "How much each feature adds to the CEC score in each audit; not tested."
    return panel_of("shares", title, caption, chart, table)


# --- monitoring ---

_MONITORED = (
    "Each point is an audit with its 95% interval. The dashed line is the expectation from the previous audits, and "
    "the gray band is the range of an unchanged model; a ring marks the audit that raised an alarm."
)
_SHARES = ("rate", "probability", "decisions")  # words of metrics that are shares of people


def monitoring_page(monitoring: Record) -> str:
    """The page of a history as text.

    Parameters
    ----------
    monitoring
        Output of `Monitoring.to_dict`.
    """
    monitoring = json_ready(monitoring)
    names = [audit["name"] for audit in monitoring["audits"]]
    trends, departures = monitoring["trends"], monitoring["departures"]
    monitored = [trend for trend in trends if trend["is_monitored"]]
    inputs = [trend for trend in monitored if trend["part"] == "inputs"]
    if len(names) < 2:
        headline = "A single audit has no past to depart from."
    elif departures:
        first = departures[0]["audit"]
        headline = (
            f"{len(departures)} of {len(monitored)} monitored metrics departed from their past, first at {first}."
        )
    else:
        headline = f"No monitored metric departed from its past in {len(names)} audits."
    last = [(t["words"], t["points"][-1]) for t in monitored if t not in inputs]
    key = [
        KeyMetric(capital(words), decimal(point["value"]), f"last audit; expected {decimal(point['expected'])}")
        for words, point in last
        if is_number(point["value"])
    ]
    shown = [trend for trend in monitored if trend not in inputs or trend["departure"] is not None]
    panels = [_trend_panel(trend, k) for k, trend in enumerate(shown)]
    if inputs:
        caption = "The inputs with the largest parts, with 95% intervals; all inputs are monitored."
        title = "Inputs of the score gap"
        panels.append(_lines_panel("inputs", title, caption, inputs, ("Inputs", "Part of the score gap"), ".2f"))
    by_title: dict[str, list[Record]] = {}
    for trend in trends:
        if not trend["is_monitored"]:
            by_title.setdefault(capital(trend["words"].partition(",")[0]), []).append(trend)
    others = []
    for title, of_kind in by_title.items():
        form = ".0%" if any(word in title for word in _SHARES) and "ratio" not in title else ".3~f"
        caption = "With 95% intervals; shown without limits."
        others.append(_lines_panel(f"other-{name_in_code(title)}", title, caption, of_kind, (title, title), form))
    sentences = [("", departure["sentence"]) for departure in departures]
    drift = Section("drift", "Drift", ["No two audits have the same metrics."])
    if monitored:
        text = "A change too small for any single audit shows in the sum over many."
        drift = Section("drift", "Drift", [text], panels=[_cusum_panel(monitored, monitoring["cusum_limit"])])
    audits = Table("Audits", "Audits, oldest first", _AUDIT_COLUMNS, monitoring["audits"])
    sections = [
        Section("verdict", "Verdict", finding=Finding(headline, sentences, key[:5], monitoring["warnings"])),
        Section("monitored", "Monitored metrics", [_MONITORED], panels=panels),
        drift,
        *([Section("others", "Other metrics", panels=others)] if others else []),
        Section("audits", "Audits", tables=[audits]),
        Section("reading", "How to read this", points=tuple(_rules(monitoring, len(monitored)).items())),
    ]
    title = f"{shortened(names[0], 40)} to {shortened(names[-1], 40)}" if len(names) > 1 else shortened(names[0], 60)
    return render("audit history", title, sections)


def _rules(monitoring: Record, n_monitored: int) -> dict[str, str]:
    return {
        "False alarms": "If nothing changed, the chance that a history of this length raises any alarm is at most "
        f"{percent(monitoring['false_alarm_rate'], 0)}. It is shared equally by the {n_monitored} monitored metrics "
        "and, for each, by the two rules.",
        "One audit alone": f"An alarm is raised by an audit more than {monitoring['single_limit']:.1f} standard errors "
        "from the mean of all previous audits (the gray band).",
        "Drift": "Small deviations on the same side are added up (CUSUM), minus half a standard error each time; an "
        f"alarm is raised when the sum exceeds {monitoring['cusum_limit']:.1f}.",
        "After an alarm": "The past of that metric is no longer updated, so that later audits are compared with the "
        "old level.",
        "Sampling noise only": "If applicants change from one audit to the next for other reasons, metrics change with "
        "them. An alarm says that something changed, not what, nor whether it is wrong.",
        "The same people": "If the audits are of the same people, deviations are smaller than the limits allow for, "
        "and alarms are rarer than stated.",
    }


def _trend_panel(trend: Record, place: int) -> Panel:
    """A metric over the audits with intervals, the expectation from the past, and the alarm limits."""
    is_share = trend["part"] == "outcome" and trend["key"] != "auc" and trend["scale"] == "difference"
    departure, title = trend["departure"], capital(trend["words"])
    keys = ("audit", "value", "low", "high", "expected", "limit_low", "limit_high")
    rows = [
        {
            **{key: p[key] for key in keys},
            "shown": decimal(p["value"]),
            "interval": interval(p["low"], p["high"]),
            "limits": interval(p["limit_low"], p["limit_high"]),
        }
        for p in trend["points"]
    ]
    x = _audits(trend)
    axis = alt.Axis(format=".0%") if is_share else alt.Axis()

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title=None, axis=axis, scale=alt.Scale(zero=False, nice=True))

    known = chart_of(rows).transform_filter("isValid(datum.value)")
    past = chart_of(rows).transform_filter("isValid(datum.limit_low)")
    tooltip = ["audit:N", alt.Tooltip("shown:N", title="value"), "interval:N", alt.Tooltip("limits:N", title="limits")]
    layers = [
        past.mark_area(style="band", line=False).encode(x=x, y=y("limit_low"), y2=alt.Y2("limit_high:Q")),
        past.mark_line(style="guide").encode(x=x, y=y("expected")),
        known.mark_line(strokeWidth=1.5, color=VARIABLES.accent, opacity=0.55).encode(x=x, y=y("value")),
        known.mark_rule(style="interval").encode(x=x, y=y("low"), y2=alt.Y2("high:Q")),
        known.mark_point(size=80).encode(x=x, y=y("value"), tooltip=tooltip),
    ]
    if departure is not None:
        ring = chart_of([row for row in rows if row["audit"] == departure["audit"]])
        ring = ring.mark_point(size=230, filled=False, strokeWidth=3, color=VARIABLES.regimes[1])
        layers.append(ring.encode(x=x, y=y("value"), tooltip=tooltip))
    description = f"{trend['words']} over {len(rows)} audits, with intervals and alarm limits."
    noticed = trend["points"][-1]["detectable"]
    caption = "Within its limits." if departure is None else departure["sentence"]
    if departure is None and is_number(noticed):
        size = "factor" if trend["scale"] == "ratio" else "change"
        caption += f" The last audit would have noticed a {size} of {decimal(noticed)} in 80% of cases."
    chart = finished(alt.layer(*layers), description, 220)
    return panel_of(f"trend-{place}", title, caption, chart, Table("Trend", title, _TREND_COLUMNS, trend["points"]))


def _lines_panel(
    name: str, title: str, caption: str, trends: Sequence[Record], titles: tuple[str, str], format_: str
) -> Panel:
    """Several metrics of one kind over the audits, with intervals; `titles` are those of the table and the axis."""
    numbers = {t["words"]: {p["audit"]: p["value"] for p in t["points"]} for t in trends}
    table = _by_audit("Trends", titles[0], [p["audit"] for p in trends[0]["points"]], numbers)
    if name == "inputs":
        trends = sorted(trends, key=lambda t: max(abs(p["value"] or 0.0) for p in t["points"]), reverse=True)
    trends = trends[:_MOST_LINES]
    words = [shortened(trend["words"]) for trend in trends]
    rows = [
        {
            **{key: p[key] for key in ("audit", "value", "low", "high")},
            "metric": metric,
            "interval": interval(p["low"], p["high"]),
        }
        for metric, t in zip(words, trends, strict=True)
        for p in t["points"]
    ]
    x = _audits(trends[0])
    color = alt.Color("metric:N", sort=None, scale=alt.Scale(domain=words), legend=alt.Legend(symbolOpacity=1))

    def y(field: str) -> alt.Y:
        scale = alt.Scale(zero=False, nice=True)
        return alt.Y(f"{field}:Q", title=titles[1], axis=alt.Axis(format=format_), scale=scale)

    base = chart_of(rows).transform_filter("isValid(datum.value)")
    tooltip = tooltips("metric", "audit", ("value", ".3f"), "interval")
    shape = group_shape(words, "metric")
    layers = [
        base.mark_area(opacity=0.12).encode(x=x, y=y("low"), y2=alt.Y2("high:Q"), color=color),
        base.mark_line().encode(x=x, y=y("value"), color=color),
        base.mark_point(size=60).encode(x=x, y=y("value"), color=color, shape=shape, tooltip=tooltip),
    ]
    description = f"{titles[1]} over {len(trends[0]['points'])} audits, with intervals."
    return panel_of(name, title, caption, finished(alt.layer(*layers), description, 240), table)


def _cusum_panel(trends: Sequence[Record], limit: float) -> Panel:
    """The sums of deviations upward and, mirrored, downward, with the alarm limit."""

    def larger(point: Record) -> float:
        return max(point["cusum_high"] or 0.0, point["cusum_low"] or 0.0)

    numbers = {t["words"]: {p["audit"]: "" if p["z"] is None else larger(p) for p in t["points"]} for t in trends}
    audits = [point["audit"] for point in trends[0]["points"]]
    table = _by_audit("Trends", "Larger of the two sums", audits, numbers, places=2)
    peaks = {trend["key"]: max(map(larger, trend["points"])) for trend in trends}
    nearest = sorted(peaks, key=lambda key: peaks[key], reverse=True)[:_MOST_LINES]
    drawn = [trend for trend in trends if trend["key"] in nearest]
    words = [shortened(trend["words"]) for trend in drawn]
    rows = [
        {
            "audit": p["audit"],
            "metric": metric,
            "side": f"{t['key']} {sign}",
            "sum": None if size is None else sign * size,
        }
        for metric, t in zip(words, drawn, strict=True)
        for p in t["points"]
        for sign, size in ((1, p["cusum_high"]), (-1, p["cusum_low"]))
    ]
    # After an alarm, a sum grows without bound and would hide the others.
    end = limit * min(max(1.25, 1.05 * peaks[nearest[0]] / limit), 2.5)
    shared: dict[str, Any] = {
        "x": _audits(drawn[0]),
        "y": quantity(alt.Y, "sum", "Sum of deviations, standard errors", domain=[-end, end], nice=False),
        "color": group_color(words, "metric"),
    }
    base = chart_of(rows).transform_filter("isValid(datum.sum)")
    tooltip = tooltips("metric", "audit", ("sum", ".2f"))
    layers = [
        chart_of([{"at": 0}]).mark_rule(style="zero").encode(y=alt.Y("at:Q")),
        *guide_y(limit, "alarm: upward drift", "floor"),
        *guide_y(-limit, "alarm: downward drift", "floor"),
        base.mark_line(strokeWidth=2, clip=True).encode(detail=alt.Detail("side:N"), **shared),
        base.mark_point(size=45, clip=True).encode(shape=group_shape(words, "metric"), tooltip=tooltip, **shared),
    ]
    description = f"CUSUM of {len(drawn)} metrics; an alarm is raised beyond {limit:.1f} standard errors."
    caption = (
        "Deviations on the same side, added up; downward ones are shown below 0. The sum returns to 0 when they stop."
    )
    return panel_of("cusum", "Sums of deviations", caption, finished(alt.layer(*layers), description, 280), table)


def _audits(trend: Record) -> alt.X:
    """The audits from left to right."""
    names = [point["audit"] for point in trend["points"]]
    is_crowded = sum(map(len, names)) > 48 or len(names) > 10
    axis = alt.Axis(labelAngle=-40 if is_crowded else 0, labelLimit=110, labelOverlap="greedy", grid=False)
    return alt.X("audit:O", title=None, sort=names, axis=axis)
