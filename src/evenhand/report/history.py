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
from evenhand.report.formatting import decimal, interval, is_number, listed, p_value, percent, shortened
from evenhand.report.frame import Finding, KeyMetric, Panel, Section, panel_of, render
from evenhand.report.tables import Column, Record, Table, estimate

Row = dict[str, Any]

_VERDICTS = {
    "more than noise": VARIABLES.regimes[1],
    "not clearly more than noise": VARIABLES.floor,
    "within noise": VARIABLES.muted,
}
_MOST_LINES = 8


def change_chart(changes: Sequence[Record], title: str) -> alt.Chart:
    """Changes with their intervals, one row per metric; a filled point changed by more than noise."""
    is_ratio = changes[0]["scale"] == "ratio"
    audits = list(dict.fromkeys(change["audit"] for change in changes))
    metrics = list(dict.fromkeys(_label(change["words"]) for change in changes))
    rows = [
        {
            "metric": _label(c["words"]),
            "audit": c["audit"],
            "change": c["change"],
            "low": _plain(c["low"]),
            "high": _plain(c["high"]),
            "verdict": c["verdict"],
            "from": decimal(c["base_value"]),
            "to": decimal(c["value"]),
            "interval": interval(c["low"], c["high"]),
            "p, adjusted": p_value(c["p_adjusted"]),
        }
        for c in changes
    ]
    scale = alt.Scale(type="log", nice=False) if is_ratio else alt.Scale(zero=True, nice=True)
    x = alt.X("change:Q", title=title, scale=scale)
    present = [verdict for verdict in _VERDICTS if any(c["verdict"] == verdict for c in changes)]
    color = alt.Color(
        "verdict:N",
        scale=alt.Scale(domain=present, range=[_VERDICTS[verdict] for verdict in present]),
        legend=alt.Legend(),
    )
    shared: dict[str, Any] = {"y": lines_of(metrics, "metric"), "color": color}
    points: dict[str, Any] = {}
    if len(audits) > 1:
        shared["yOffset"] = alt.YOffset("audit:N", sort=audits)
        legend = alt.Legend(orient="bottom")
        points["shape"] = alt.Shape("audit:N", sort=audits, scale=alt.Scale(domain=audits), legend=legend)
    numbers = ("from", "to", ("change", ".3f"), "interval", "p, adjusted")
    tooltip = tooltips("metric", "audit", *numbers, "verdict")
    nothing = chart_of([{"at": 1 if is_ratio else 0}]).mark_rule(style="zero").encode(x=alt.X("at:Q", scale=scale))
    lines = chart_of(rows).mark_rule(strokeWidth=2)
    lines = lines.encode(x=alt.X("low:Q", title=title, scale=scale), x2=alt.X2("high:Q"), **shared)
    hollow = [row for row in rows if row["verdict"] != "more than noise"]
    full = [row for row in rows if row["verdict"] == "more than noise"]
    # A layer without rows has no extent.
    marks = [chart_of(hollow).mark_point(filled=False, strokeWidth=2, size=70)] if hollow else []
    marks += [chart_of(full).mark_point(filled=True, size=110)] if full else []
    layers = [mark.encode(x=x, tooltip=tooltip, **shared, **points) for mark in marks]
    description = f"{title}, with intervals, of {len(metrics)} metrics; the vertical line means no change."
    height = STEP * len(metrics) * max(1.0, 0.72 * len(audits))
    return finished(alt.layer(nothing, lines, *layers), description, height)


def share_chart(shares: Sequence[Row], audits: Sequence[str], features: Sequence[str]) -> alt.Chart:
    """Share of the CEC score by feature, one point per audit, connected by lines."""
    names = [_label(name) for name in features]
    rows = [{**row, "feature": _label(row["feature"])} for row in shares]
    x = quantity(alt.X, "share", "Share of the CEC score", percent=True, zero=True)
    y = lines_of(names, "feature")
    base = chart_of(rows)
    between = base.mark_line(style="guide", strokeDash=[1, 0]).encode(x=x, y=y, detail=alt.Detail("feature:N"))
    points = base.mark_point(size=90).encode(
        x=x,
        y=y,
        color=group_color(audits, "audit"),
        shape=group_shape(audits, "audit"),
        tooltip=tooltips("feature", "audit", ("share", ".1%")),
    )
    description = f"Share of the CEC score of {len(names)} features in {len(audits)} audits."
    return finished(alt.layer(between, points), description, STEP * len(names))


def trend_chart(trend: Record, is_share: bool) -> alt.Chart:
    """A metric over the audits with intervals, the expectation from the past, and the alarm limits."""
    names = [point["audit"] for point in trend["points"]]
    left = trend["departure"]["audit"] if trend["departure"] is not None else None
    rows = [
        {
            "audit": p["audit"],
            "value": _plain(p["value"]),
            "low": _plain(p["low"]),
            "high": _plain(p["high"]),
            "expected": _plain(p["expected"]),
            "limit_low": _plain(p["limit_low"]) if trend["is_monitored"] else None,
            "limit_high": _plain(p["limit_high"]) if trend["is_monitored"] else None,
            "shown": decimal(p["value"]),
            "interval": interval(p["low"], p["high"]),
            "limits": interval(p["limit_low"], p["limit_high"]),
            "left": p["audit"] == left,
        }
        for p in trend["points"]
    ]
    axis = alt.Axis(format=".0%") if is_share else alt.Axis()
    scale = alt.Scale(zero=False, nice=True)
    x = _audits(names)

    def y(field: str) -> alt.Y:
        return alt.Y(f"{field}:Q", title=None, axis=axis, scale=scale)

    base = chart_of(rows)
    known = base.transform_filter("isValid(datum.value)")
    past = base.transform_filter("isValid(datum.limit_low)")
    tooltip = ["audit:N", alt.Tooltip("shown:N", title="value"), "interval:N"]
    tooltip += [alt.Tooltip("limits:N", title="limits")] if trend["is_monitored"] else []
    layers = [
        past.mark_area(style="band", line=False).encode(x=x, y=y("limit_low"), y2=alt.Y2("limit_high:Q")),
        past.mark_line(style="guide").encode(x=x, y=y("expected")),
        known.mark_line(strokeWidth=1.5, color=VARIABLES.accent, opacity=0.55).encode(x=x, y=y("value")),
        known.mark_rule(style="interval").encode(x=x, y=y("low"), y2=alt.Y2("high:Q")),
        known.mark_point(size=80).encode(x=x, y=y("value"), tooltip=tooltip),
    ]
    if left is not None:
        ring = chart_of([row for row in rows if row["left"]])
        ring = ring.mark_point(size=230, filled=False, strokeWidth=3, color=VARIABLES.regimes[1])
        layers.append(ring.encode(x=x, y=y("value"), tooltip=tooltip))
    description = f"{trend['words']} over {len(names)} audits, with intervals and alarm limits."
    return finished(alt.layer(*layers), description, 220)


def cusum_chart(trends: Sequence[Record], limit: float) -> alt.Chart:
    """The sums of deviations upward and, mirrored, downward, with the alarm limit."""
    nearest = sorted(trends, key=_peak, reverse=True)[:_MOST_LINES]
    shown = [trend for trend in trends if trend in nearest]
    names = [point["audit"] for point in shown[0]["points"]]
    words = [_label(trend["words"]) for trend in shown]
    rows = [
        {
            "audit": p["audit"],
            "metric": _label(t["words"]),
            "side": f"{t['key']} {sign}",
            "sum": sign * size if is_number(size) else None,
        }
        for t in shown
        for p in t["points"]
        for sign, size in ((1, p["cusum_high"]), (-1, p["cusum_low"]))
    ]
    # After an alarm, a sum grows without bound and would hide the others.
    end = limit * min(max(1.25, 1.05 * max(map(_peak, shown)) / limit), 2.5)
    x = _audits(names)
    y = quantity(alt.Y, "sum", "Sum of deviations, standard errors", domain=[-end, end], nice=False)
    color = group_color(words, "metric")
    base = chart_of(rows).transform_filter("isValid(datum.sum)")
    lines = base.mark_line(strokeWidth=2, clip=True).encode(x=x, y=y, color=color, detail=alt.Detail("side:N"))
    points = base.mark_point(size=45, clip=True).encode(
        x=x,
        y=y,
        color=color,
        shape=group_shape(words, "metric"),
        tooltip=tooltips("metric", "audit", ("sum", ".2f")),
    )
    limits = guide_y(limit, "alarm: upward drift", "floor") + guide_y(-limit, "alarm: downward drift", "floor")
    zero = chart_of([{"at": 0}]).mark_rule(style="zero").encode(y=alt.Y("at:Q"))
    description = f"CUSUM of {len(shown)} metrics; an alarm is raised beyond {limit:.1f} standard errors."
    return finished(alt.layer(zero, *limits, lines, points), description, 280)


def rate_chart(trends: Sequence[Record], title: str, format_: str = ".0%") -> alt.Chart:
    """Several metrics of one kind over the audits, with intervals."""
    names = [point["audit"] for point in trends[0]["points"]]
    words = [_label(trend["words"]) for trend in trends]
    rows = [
        {
            "audit": p["audit"],
            "metric": _label(t["words"]),
            "value": _plain(p["value"]),
            "low": _plain(p["low"]),
            "high": _plain(p["high"]),
            "interval": interval(p["low"], p["high"]),
        }
        for t in trends
        for p in t["points"]
    ]
    x = _audits(names)
    scale = alt.Scale(zero=False, nice=True)
    axis = alt.Axis(format=format_)
    color = alt.Color("metric:N", sort=None, scale=alt.Scale(domain=words), legend=alt.Legend(symbolOpacity=1))
    base = chart_of(rows).transform_filter("isValid(datum.value)")
    tooltip = tooltips("metric", "audit", ("value", ".3f"), "interval")
    value = alt.Y("value:Q", title=title, axis=axis, scale=scale)
    low = alt.Y("low:Q", title=title, axis=axis, scale=scale)
    band = base.mark_area(opacity=0.12).encode(x=x, y=low, y2=alt.Y2("high:Q"), color=color)
    lines = base.mark_line().encode(x=x, y=value, color=color)
    points = base.mark_point(size=60).encode(
        x=x, y=value, color=color, shape=group_shape(words, "metric"), tooltip=tooltip
    )
    return finished(alt.layer(band, lines, points), f"{title} over {len(names)} audits, with intervals.", 240)


def _peak(trend: Record) -> float:
    sizes = [max(p["cusum_high"], p["cusum_low"]) for p in trend["points"] if is_number(p["cusum_high"])]
    return max(sizes, default=0.0)


def _audits(names: Sequence[str]) -> alt.X:
    """The audits from left to right."""
    is_crowded = sum(map(len, names)) > 48 or len(names) > 10
    axis = alt.Axis(labelAngle=-40 if is_crowded else 0, labelLimit=110, labelOverlap="greedy", grid=False)
    return alt.X("audit:O", title=None, sort=list(names), axis=axis)


def _plain(value: float | None) -> float | None:
    return value if is_number(value) else None


def _label(words: str) -> str:
    return shortened(words, 60)


_MOST_FEATURES = 15
_QUESTIONS = {"score_gap": "Score gap", "inputs": "Inputs", "weighing": "Weighing", "excess": "Excess"}


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
    >>> found = eh.compare_audits({"spring": audited(0), "summer": audited(1)})
    >>> "summer compared with spring" in comparison_page(found.to_dict())
    True
    """
    base, metrics = comparison["base"], comparison["metrics"]
    others = [name for name in comparison["names"] if name != base]
    findings = comparison["findings"]
    sentences = [
        (_QUESTIONS[f["key"]] if len(others) == 1 else f"{_QUESTIONS[f['key']]}, {f['audit']}", f["sentence"])
        for f in findings
    ]
    finding = Finding(f"{comparison['headline']}.", sentences, _key_changes(comparison), comparison["warnings"])
    sections = [
        Section("verdict", "Verdict", finding=finding),
        _what_was_compared(comparison),
        _score_gap(comparison),
        _reasoning(metrics),
        _decisions(metrics),
        _drivers(comparison),
        Section(
            "all",
            "All changes",
            tables=[_change_table([*metrics, *comparison["inputs"], *comparison["features"]])],
        ),
        Section("reading", "How to read this", points=tuple(_READING.items())),
    ]
    title = f"{listed([shortened(name, 40) for name in others])} compared with {shortened(base, 40)}"
    return render("audit comparison", title, sections)


_READING = {
    "Noise": (
        "Every metric is an estimate from the people who happened to be audited. A change counts as more than "
        "noise if chance alone would give a change this large in at most 5% of comparisons in which nothing "
        "changed."
    ),
    "Many metrics": (
        "Among many metrics, some change by chance. Adjusted p-values (Holm) allow for that: the four questions "
        "of all audits on this page are adjusted together, the other metrics among themselves, and so are features."
    ),
    "Gaps have a sign here": (
        "A gap is shown as one group's rate minus that of the reference group. If it passes through 0, the gap "
        "is reversed, which its size alone would not show."
    ),
    "A change is not a cause": (
        "Different people, different settings, a different model or a different month can each change a metric. The "
        "page says that it changed, not why."
    ),
    "No change is not proof": (
        "A change within noise may be real but too small to be seen with so few people. Its interval says how "
        "large it could be."
    ),
}


def _key_changes(comparison: Record) -> list[KeyMetric]:
    """The four questions, strongest change first; with several audits, those of the last."""
    audit = [name for name in comparison["names"] if name != comparison["base"]][-1]
    where = f"in {shortened(audit, 24)}; " if len(comparison["names"]) > 2 else ""
    return [
        KeyMetric(
            f"{_QUESTIONS[f['key']]}, change",
            decimal(f["estimate"]),
            f"{where}{_ANSWERS[f['answer']]}{_interval_words(f)}",
        )
        for f in comparison["findings"]
        if f["audit"] == audit
    ]


_ANSWERS = {"yes": "more than noise", "no": "no change found", "open": "not known"}


def _interval_words(finding: Record) -> str:
    ends = interval(*finding["ci"])
    unit = f" {finding['unit']}" if finding["unit"] not in ("", "CEC score") else ""
    return f"; {ends}{unit}" if ends else ""


_AUDIT_COLUMNS = (
    Column("audit", "text", "name"),
    Column("model", "text"),
    Column("people", "whole", "n_people"),
    Column("groups", "text", lambda r: ", ".join(f"{group} {n:,}" for group, n in r["groups"].items())),
    Column("made", "text", "created"),
    Column("evenhand", "text"),
)


def _what_was_compared(comparison: Record) -> Section:
    base = comparison["base"]
    records = [{**a, "name": f"{base} (base)"} if a["name"] == base else a for a in comparison["audits"]]
    sentences = [pairing["sentence"] for pairing in comparison["pairings"]]
    table = Table("Audits", "Audits", _AUDIT_COLUMNS, records)
    return Section("compared", "What was compared", sentences, tables=[table])


def _score_gap(comparison: Record) -> Section:
    text = (
        "The difference in score between comparable people of two groups at equal finances, and the inputs through "
        "which it runs. The changes of the inputs add up to the change of the gap."
    )
    panels = [
        _change_panel(
            "score-gap",
            "Change in the score gap",
            "Each row is a gap: its change and the 95% interval of the change. A filled point changed by more than "
            "noise.",
            [c for c in comparison["metrics"] if c["part"] == "score_gap"],
            "Change from the base",
            "No audit has a score gap with a standard error.",
        ),
        _change_panel(
            "inputs",
            "Change by input",
            "Change of each input's part of the score gap, largest first. An input that a model does not have has no "
            "part in its gap.",
            _largest(comparison["inputs"]),
            "Change of the part of the score gap",
            "The audits have no score gap by input in common.",
        ),
    ]
    return Section("score-gaps", "Score gap and inputs", [text], panels=panels, is_wide=True)


def _reasoning(metrics: Sequence[Record]) -> Section:
    text = (
        "Weighing is how differently the same inputs count for comparable people of different groups. The excess is "
        "the CEC score of pairs across groups minus that of placebo pairs; 0 means no more difference than between any "
        "two people of the same group."
    )
    panel = _change_panel(
        "reasoning",
        "Change in weighing and excess",
        "Each row is a metric: its change and the 95% interval of the change. A filled point changed by more than "
        "noise.",
        [c for c in metrics if c["part"] in ("weighing", "excess")],
        "Change from the base",
        "No audit has metrics of reasoning with a standard error.",
    )
    return Section("reasoning", "Weighing and excess", [text], panels=[panel])


def _decisions(metrics: Sequence[Record]) -> Section:
    panels = [
        _change_panel(
            "decisions",
            "Change in decisions and errors",
            "Rates, signed gaps between groups, and the AUC. A filled point changed by more than noise.",
            [c for c in metrics if c["part"] == "outcome" and c["scale"] == "difference"],
            "Change from the base",
            "No metric of decisions can be compared.",
        ),
        _change_panel(
            "ratios",
            "Change in approval ratios",
            "The approval ratio divided by that of the base: 1 means no change; below 1, the group lost ground.",
            [c for c in metrics if c["scale"] == "ratio"],
            "Ratio to the base",
            "No approval ratio can be compared.",
        ),
    ]
    text = "What the model decides, by group, without matching."
    return Section("decisions", "Decisions", [text], panels=panels, is_wide=True)


def _drivers(comparison: Record) -> Section:
    panels = [
        _change_panel(
            "drivers",
            "Features that changed",
            "Change of each feature's part of the excess, largest first. A filled point changed by more than noise.",
            _largest(comparison["features"]),
            "Change of the part of the excess",
            "The audits have no evidence by feature in common.",
        ),
        _share_panel(comparison["audits"]),
    ]
    return Section("drivers", "Feature drivers", ["Which features the change comes from."], panels=panels, is_wide=True)


def _largest(changes: Sequence[Record]) -> list[Record]:
    """Changes of the features that changed most in any audit, largest first."""
    known = [c for c in changes if is_number(c["p_value"])]
    size: dict[str, float] = {}
    for change in known:
        size[change["words"]] = max(size.get(change["words"], 0.0), abs(change["change"]))
    largest = sorted(size, key=lambda name: size[name], reverse=True)[:_MOST_FEATURES]
    return sorted((c for c in known if c["words"] in largest), key=lambda c: largest.index(c["words"]))


def _share_panel(audits: Sequence[Record]) -> Panel:
    names = [audit["name"] for audit in audits]
    shares = [
        {"feature": feature, "audit": audit["name"], "share": share}
        for audit in audits
        for feature, share in audit["shares"].items()
        if is_number(share)
    ]
    by_feature: dict[str, dict[str, float]] = {}
    for row in shares:
        by_feature.setdefault(row["feature"], {})[row["audit"]] = row["share"]
    features = sorted(by_feature, key=lambda name: max(by_feature[name].values()), reverse=True)[:_MOST_FEATURES]
    rows = [row for row in shares if row["feature"] in features]
    columns = (Column("feature", "text"), *(Column(name, "share", _of_audit(name)) for name in names))
    records = tuple({"feature": feature, "by_audit": by_feature[feature]} for feature in features)
    table = Table("Shares", "Share of the CEC score", columns, records)
    caption = "How much each feature adds to the CEC score in each audit; not tested."
    chart = share_chart(rows, names, features) if rows else "No audit has scored pairs."
    return panel_of("shares", "Share of the CEC score", caption, chart, table)


def _of_audit(name: str) -> Callable[[Record], Any]:
    return lambda record: record["by_audit"].get(name)


_PARTS = {"inputs": "part of the score gap, ", "feature": "part of the excess, "}
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


def _change_table(changes: Sequence[Record]) -> Table:
    return Table("Changes", "Changes", _CHANGE_COLUMNS, changes)


def _change_panel(name: str, title: str, caption: str, changes: Sequence[Record], axis: str, none: str) -> Panel:
    known = [c for c in changes if is_number(c["p_value"]) and is_number(c["change"])]
    return panel_of(name, title, caption, change_chart(known, axis) if known else none, _change_table(changes))


# --- monitoring ---


def monitoring_page(monitoring: Record) -> str:
    """The page of a history as text.

    Parameters
    ----------
    monitoring
        Output of `Monitoring.to_dict`.
    """
    names = [audit["name"] for audit in monitoring["audits"]]
    found = monitoring["departures"]
    if len(names) < 2:
        headline = "A single audit has no past to depart from."
    elif found:
        n = _n_monitored(monitoring)
        headline = f"{len(found)} of {n} monitored metrics departed from their past, first at {found[0]['audit']}."
    else:
        headline = f"No monitored metric departed from its past in {len(names)} audits."
    last = [t for t in monitoring["trends"] if t["is_monitored"] and is_number(t["points"][-1]["value"])]
    last = [t for t in last if t["part"] != "inputs"][:5]
    key = [
        KeyMetric(
            _capital(t["words"]),
            decimal(t["points"][-1]["value"]),
            f"last audit; expected {decimal(t['points'][-1]['expected'])}",
        )
        for t in last
    ]
    sentences = [("", departure["sentence"]) for departure in found]
    table = Table("Audits", "Audits, oldest first", _AUDIT_COLUMNS, monitoring["audits"])
    sections = [
        Section("verdict", "Verdict", finding=Finding(headline, sentences, key, monitoring["warnings"])),
        _monitored(monitoring),
        _drift(monitoring),
        *_other_trends(monitoring),
        Section("audits", "Audits", tables=[table]),
        Section("reading", "How to read this", points=_rules(monitoring)),
    ]
    title = f"{shortened(names[0], 40)} to {shortened(names[-1], 40)}" if len(names) > 1 else shortened(names[0], 60)
    return render("audit history", title, sections)


def _n_monitored(monitoring: Record) -> int:
    return sum(trend["is_monitored"] for trend in monitoring["trends"])


def _rules(monitoring: Record) -> tuple[tuple[str, str], ...]:
    rate = percent(monitoring["false_alarm_rate"], 0)
    return (
        (
            "False alarms",
            "If nothing changed, the chance that a history of this length raises any alarm is at most "
            f"{rate}. It is shared equally by the {_n_monitored(monitoring)} monitored metrics and, "
            "for each, by the two rules.",
        ),
        (
            "One audit alone",
            f"An alarm is raised by an audit more than {monitoring['single_limit']:.1f} standard errors from the "
            "mean of all previous audits (the gray band).",
        ),
        (
            "Drift",
            "Small deviations on the same side are added up (CUSUM), minus half a standard error each time; an "
            f"alarm is raised when the sum exceeds {monitoring['cusum_limit']:.1f}.",
        ),
        (
            "After an alarm",
            "The past of that metric is no longer updated, so that later audits are compared with the old level.",
        ),
        (
            "Sampling noise only",
            "If applicants change from one audit to the next for other reasons, metrics change with "
            "them. An alarm says that something changed, not what, nor whether it is wrong.",
        ),
        (
            "The same people",
            "If the audits are of the same people, deviations are smaller than the limits allow for, and "
            "alarms are rarer than stated.",
        ),
    )


def _monitored(monitoring: Record) -> Section:
    monitored = [trend for trend in monitoring["trends"] if trend["is_monitored"]]
    inputs = [trend for trend in monitored if trend["part"] == "inputs"]
    shown = [trend for trend in monitored if trend not in inputs or trend["departure"] is not None]
    panels = [_trend_panel(trend, k) for k, trend in enumerate(shown)]
    if inputs:
        table = _by_audit_table(inputs, "Inputs", lambda point: point["value"])
        chart = rate_chart(sorted(inputs, key=_largest_value, reverse=True)[:8], "Part of the score gap", ".2f")
        caption = "The inputs with the largest parts, with 95% intervals; all inputs are monitored."
        panels.append(panel_of("inputs", "Inputs of the score gap", caption, chart, table))
    text = (
        "Each point is an audit with its 95% interval. The dashed line is the expectation from the previous audits, "
        "and the gray band is the range of an unchanged model; a ring marks the audit that raised an alarm."
    )
    return Section("monitored", "Monitored metrics", [text], panels=panels)


def _largest_value(trend: Record) -> float:
    return max((abs(point["value"]) for point in trend["points"] if is_number(point["value"])), default=0.0)


def _if_known(key: str) -> Callable[[Record], Any]:
    """A number that the first audit of a history does not have."""
    return lambda record: record[key] if is_number(record[key]) else ""


_TREND_COLUMNS = (
    Column("audit", "text"),
    estimate("value", lambda p: p),
    Column("expected", "number", _if_known("expected")),
    Column("limits", "text", lambda p: interval(p["limit_low"], p["limit_high"])),
    Column("deviation", "number", _if_known("z"), places=2),
    Column("CUSUM up", "number", "cusum_high", places=2),
    Column("CUSUM down", "number", "cusum_low", places=2),
)


def _trend_panel(trend: Record, place: int) -> Panel:
    is_share = trend["part"] == "outcome" and trend["key"] != "auc" and trend["scale"] == "difference"
    table = Table("Trend", _capital(trend["words"]), _TREND_COLUMNS, trend["points"])
    caption = trend["departure"]["sentence"] if trend["departure"] is not None else "Within its limits."
    return panel_of(f"trend-{place}", _capital(trend["words"]), caption, trend_chart(trend, is_share), table)


def _by_audit_table(trends: Sequence[Record], caption: str, value: Callable[[Record], Any], places: int = 3) -> Table:
    """One row per trend, one column per audit."""
    names = [point["audit"] for point in trends[0]["points"]]
    columns = (Column("metric", "text"), *(Column(name, "number", _of_audit(name), places) for name in names))
    records = [
        {"metric": t["words"], "by_audit": {point["audit"]: value(point) for point in t["points"]}} for t in trends
    ]
    return Table("Trends", caption, columns, records)


def _drift(monitoring: Record) -> Section:
    trends = [trend for trend in monitoring["trends"] if trend["is_monitored"]]
    if not trends:
        return Section("drift", "Drift", ["No two audits have the same metrics."])

    def larger(point: Record) -> float | str:
        return max(point["cusum_high"], point["cusum_low"]) if is_number(point["z"]) else ""

    table = _by_audit_table(trends, "Larger of the two sums", larger, 2)
    chart = cusum_chart(trends, monitoring["cusum_limit"])
    caption = (
        "Deviations on the same side, added up; downward ones are shown below 0. The sum returns to 0 when they stop."
    )
    panel = panel_of("cusum", "Sums of deviations", caption, chart, table)
    return Section(
        "drift", "Drift", ["A change too small for any single audit shows in the sum over many."], panels=[panel]
    )


def _other_trends(monitoring: Record) -> list[Section]:
    kinds = (
        ("positive rate: ", "rates", "Positive rates", ".0%"),
        ("ratio: ", "ratios", "Approval ratios", ".2f"),
        ("auc: ", "areas", "AUC by group", ".2f"),
        ("score_gap_probability: ", "gaps-in-probability", "Score gaps in probability", ".0%"),
        ("score_gap_decision: ", "gaps-in-decisions", "Score gaps in favorable decisions", ".0%"),
        ("excess_balanced", "excess-balanced", "Excess, groups weighted equally", ".3f"),
        ("excess: group ", "excess-by-group", "Excess by group", ".3f"),
    )
    panels = []
    for prefix, name, title, format_ in kinds:
        trends = [t for t in monitoring["trends"] if t["key"].startswith(prefix)]
        if trends:
            table = _by_audit_table(trends, title, lambda point: point["value"])
            chart = rate_chart(trends[:8], title, format_)
            panels.append(panel_of(name, title, "With 95% intervals; shown without limits.", chart, table))
    return [Section("others", "Other metrics", panels=panels)] if panels else []


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
