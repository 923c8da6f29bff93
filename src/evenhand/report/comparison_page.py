"""Pages on several audits: a comparison and a history, in the look of the report and each one file."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from evenhand.report.charts import specification
from evenhand.report.comparison_charts import change_chart, cusum_chart, rate_chart, share_chart, trend_chart
from evenhand.report.contents import KeyFigure
from evenhand.report.figures import Figure
from evenhand.report.formatting import count, decimal, interval, listed, p_value, percent, shortened
from evenhand.report.frame import Section, render_sections
from evenhand.report.tables import Table
from evenhand.system.files import write_atomically

if TYPE_CHECKING:
    import altair as alt

    from evenhand.auditing.history.changes import Change, Comparison
    from evenhand.auditing.history.monitoring import Monitoring, Trend
    from evenhand.auditing.history.records import History

__all__ = ["render_comparison", "render_monitoring", "write_comparison", "write_monitoring"]

_MOST_FEATURES = 15
_MOST_SENTENCES = 8


def write_comparison(comparison: Comparison, path: str | os.PathLike[str]) -> None:
    """Write a comparison as one HTML file, whole or not at all.

    Examples
    --------
    >>> import evenhand as eh, pathlib, tempfile
    >>> from evenhand.auditing.history.changes import compare_audits
    >>> def audited(seed):
    ...     planted = eh.make_planted_bias(80, random_state=seed)
    ...     people = planted.dataset
    ...     return eh.audit(planted.model, people.X, people.y, sensitive_features=people.group,
    ...                     financial_features=people.financial_features, evidence=False)
    >>> file = pathlib.Path(tempfile.mkdtemp()) / "comparison.html"
    >>> write_comparison(compare_audits({"spring": audited(0), "summer": audited(1)}), file)
    >>> file.stat().st_size > 100_000
    True
    """
    _write(render_comparison(comparison), path)


def write_monitoring(history: History | Monitoring, path: str | os.PathLike[str]) -> None:
    """Write a history of audits as one HTML file, whole or not at all; a `History` is judged by `monitor` first."""
    from evenhand.auditing.history.monitoring import monitor
    from evenhand.auditing.history.records import History

    _write(render_monitoring(monitor(history) if isinstance(history, History) else history), path)


def _write(text: str, path: str | os.PathLike[str]) -> None:
    with write_atomically(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


# --- comparison ---


def render_comparison(comparison: Comparison) -> str:
    """The page of a comparison as text."""
    others = [name for name in comparison.names if name != comparison.base]
    moved = [c for c in comparison.figures if c.verdict == "more than noise"]
    tested = [c for c in comparison.figures if not math.isnan(c.p_value)]
    headline = (
        f"{len(moved)} of {len(tested)} figures moved by more than noise"
        if tested
        else "No figure of these audits can be compared"
    )
    sections = [
        _what_was_compared(comparison),
        _reasoning(comparison),
        _decisions(comparison),
        _drivers(comparison),
        _all_changes(comparison),
        Section("reading", "How to read this", points=_READING),
    ]
    first = [c for c in comparison.figures if c.key == "excess"]
    first += [c for c in sorted(moved, key=lambda c: c.p_adjusted) if c.key != "excess"][:_MOST_SENTENCES]
    sentences = [c.sentence if len(others) == 1 else f"{c.audit}: {_lower(c.sentence)}" for c in first]
    return render_sections(
        kind="audit comparison",
        title=f"{listed([shortened(name, 40) for name in others])} against {shortened(comparison.base, 40)}",
        headline=f"{headline}.",
        sentences=sentences,
        key_figures=_key_changes(comparison, others[-1]),
        warnings=comparison.warnings,
        sections=sections,
    )


_READING = (
    (
        "Noise",
        "Every figure is an estimate from the people who happened to be audited. A change counts as more than "
        "noise when chance alone would give as large a one in at most 5 % of comparisons in which nothing "
        "changed.",
    ),
    (
        "Many figures",
        "Looking at many figures, some stray by chance. Adjusted p-values (Holm) allow for all figures of all "
        "audits on this page; features are adjusted among themselves.",
    ),
    (
        "Gaps have a sign here",
        "A gap is shown as one group's rate minus that of the reference group. If it passes through 0 the gap "
        "changes sides, which its size alone would not show.",
    ),
    (
        "A change is no cause",
        "Other people, other settings, another model or another month can each move a figure. The page says "
        "that it moved, not why.",
    ),
    (
        "No change is no proof",
        "A change within noise may be real and too small to be seen with so few people. Its interval says how "
        "large it could be.",
    ),
)


def _key_changes(comparison: Comparison, audit: str) -> list[KeyFigure]:
    """Four figures of the last audit: value, and where it came from."""
    wanted = ("excess", "excess: reasoning gap", "auc", "positive rate")
    found = {c.key: c for c in comparison.figures if c.audit == audit}
    chosen = [found[key] for key in wanted if key in found]
    chosen += [c for c in found.values() if c.key.startswith("gap: positive rate")][:1]
    base, where = shortened(comparison.base, 24), f"in {shortened(audit, 24)}, " if len(comparison.names) > 2 else ""
    return [
        KeyFigure(_capital(c.words), decimal(c.value), f"{where}from {decimal(c.base_value)} in {base}: {c.verdict}")
        for c in chosen
    ]


def _what_was_compared(comparison: Comparison) -> Section:
    rows = []
    for name in comparison.names:
        audit = comparison.audits[name]
        data, groups = audit["data"], audit["data"]["groups"]
        rows.append(
            (
                f"{name} (base)" if name == comparison.base else name,
                str(data["model"]),
                count(data["n_people"]),
                ", ".join(f"{group} {n:,}" for group, n in groups.items()),
                str(audit.get("created", "")),
                str(audit["versions"].get("evenhand", "")),
            )
        )
    heads = ("audit", "model", "people", "groups", "made", "evenhand")
    table = Table(heads, tuple(rows), (False, False, True, False, False, False), "Audits")
    return Section("compared", "What was compared", tuple(p.sentence for p in comparison.pairings), tables=(table,))


def _reasoning(comparison: Comparison) -> Section:
    changes = [c for c in comparison.figures if c.part == "reasoning"]
    text = (
        "How differently comparable people of different groups are argued about. The excess is what pairs across "
        "groups have over placebo pairs; 0 means no more than any two people of the same group differ."
    )
    caption = (
        "Each row is a figure: its change and the 95 % interval of the change. A full point moved by more than noise."
    )
    figure = _figure(
        "reasoning",
        "Change in reasoning",
        caption,
        changes,
        lambda known: change_chart(known, "Change against the base"),
        "No audit has figures of reasoning with a standard error.",
    )
    return Section("reasoning", "Reasoning", (text,), (figure,))


def _decisions(comparison: Comparison) -> Section:
    changes = [c for c in comparison.figures if c.part == "outcome" and c.scale == "difference"]
    ratios = [c for c in comparison.figures if c.scale == "ratio"]
    figures = [
        _figure(
            "decisions",
            "Change in decisions and errors",
            "Rates, signed gaps between groups, and the AUC. A full point moved by more than noise.",
            changes,
            lambda known: change_chart(known, "Change against the base"),
            "No figure of decisions can be compared.",
        ),
        _figure(
            "ratios",
            "Change in approval ratios",
            "The approval ratio divided by that of the base: 1 is no change, below 1 the group lost ground.",
            ratios,
            lambda known: change_chart(known, "Ratio to the base"),
            "No approval ratio can be compared.",
        ),
    ]
    text = "What the model decides, by group, without matching."
    return Section("decisions", "Decisions", (text,), tuple(figures), is_wide=True)


def _drivers(comparison: Comparison) -> Section:
    known = [c for c in comparison.features if not math.isnan(c.p_value)]
    size: dict[str, float] = {}
    for change in known:
        size[change.words] = max(size.get(change.words, 0.0), abs(change.change))
    largest = sorted(size, key=lambda name: size[name], reverse=True)[:_MOST_FEATURES]
    changes = sorted((c for c in known if c.words in largest), key=lambda c: largest.index(c.words))
    caption = "Change of each feature's part of the excess, largest first. A full point moved by more than noise."
    figures = (
        _figure(
            "drivers",
            "Feature drivers that moved",
            caption,
            changes,
            lambda found: change_chart(found, "Change of the part of the excess"),
            "The audits have no evidence by feature in common.",
        ),
        _share_figure(comparison),
    )
    return Section("drivers", "Feature drivers", ("Which features the change comes from.",), figures, is_wide=True)


def _share_figure(comparison: Comparison) -> Figure:
    shares = [
        {"feature": str(row["feature"]), "audit": name, "share": row["share"]}
        for name in comparison.names
        for row in comparison.audits[name]["features"]
        if row["share"] is not None and math.isfinite(row["share"])
    ]
    by_feature: dict[str, list[float]] = {}
    for row in shares:
        by_feature.setdefault(row["feature"], []).append(row["share"])
    features = sorted(by_feature, key=lambda name: max(by_feature[name]), reverse=True)[:_MOST_FEATURES]
    rows = [row for row in shares if row["feature"] in features]
    place = {(row["feature"], row["audit"]): row["share"] for row in rows}
    cells = tuple((f, *(percent(place.get((f, name))) for name in comparison.names)) for f in features)
    table = Table(
        ("feature", *comparison.names), cells, (False, *(True for _ in comparison.names)), "Share of the CEC score"
    )
    title, caption = (
        "Share of the CEC score",
        "How much each feature adds to the CEC score in each audit; without a test.",
    )
    if not rows:
        return Figure("shares", title, caption, "", None, "No audit has scored pairs.", table)
    chart = share_chart(rows, comparison.names, features)
    return Figure("shares", title, caption, str(chart.description), specification(chart), "", table)  # type: ignore[arg-type]


def _all_changes(comparison: Comparison) -> Section:
    return Section("all", "All changes", tables=(_change_table([*comparison.figures, *comparison.features]),))


def _change_table(changes: Iterable[Change]) -> Table:
    heads = (
        "figure",
        "audit",
        "from",
        "to",
        "change",
        "95 % interval",
        "p",
        "p, adjusted",
        "people",
        "verdict",
        "note",
    )
    rows = tuple(
        (
            c.words if c.part != "feature" else f"part of the excess, {c.words}",
            c.audit,
            decimal(c.base_value),
            decimal(c.value),
            f"× {decimal(c.change)}" if c.scale == "ratio" else decimal(c.change),
            interval(c.ci_low, c.ci_high),
            p_value(c.p_value),
            p_value(c.p_adjusted),
            "the same" if c.is_paired else "independent",
            c.verdict,
            c.note,
        )
        for c in changes
    )
    return Table(heads, rows, (False, False, True, True, True, True, True, True, False, False, False), "Changes")


def _figure(
    name: str,
    title: str,
    caption: str,
    changes: Sequence[Change],
    draw: Callable[[list[Change]], alt.LayerChart],
    none: str,
) -> Figure:
    known = [c for c in changes if not math.isnan(c.p_value) and math.isfinite(c.change)]
    table = _change_table(changes)
    if not known:
        return Figure(name, title, caption, "", None, none, table)
    chart = draw(known)
    return Figure(name, title, caption, str(chart.description), specification(chart), "", table)  # type: ignore[arg-type]


# --- monitoring ---


def render_monitoring(monitoring: Monitoring) -> str:
    """The page of a history as text."""
    history = monitoring.history
    names = [audit.name for audit in history.audits]
    found = monitoring.departures
    if len(names) < 2:
        headline = "One audit has no past to depart from."
    elif found:
        headline = (
            f"{len(found)} of {_n_monitored(monitoring)} monitored figures left their past, first at {found[0].audit}."
        )
    else:
        headline = f"No monitored figure left its past in {len(names)} audits."
    sections = [_monitored(monitoring), _drift(monitoring), *_other_trends(monitoring)]
    sections += [_audit_list(monitoring), Section("reading", "How to read this", points=_rules(monitoring))]
    last = [t for t in monitoring.trends if t.is_monitored and not math.isnan(t.points[-1].value)][:5]
    return render_sections(
        kind="audit history",
        title=f"{shortened(names[0], 40)} to {shortened(names[-1], 40)}" if len(names) > 1 else shortened(names[0], 60),
        headline=headline,
        sentences=[departure.sentence for departure in found],
        key_figures=[
            KeyFigure(
                _capital(t.words), decimal(t.points[-1].value), f"last audit; expected {decimal(t.points[-1].expected)}"
            )
            for t in last
        ],
        warnings=monitoring.warnings,
        sections=sections,
    )


def _n_monitored(monitoring: Monitoring) -> int:
    return sum(trend.is_monitored for trend in monitoring.trends)


def _rules(monitoring: Monitoring) -> tuple[tuple[str, str], ...]:
    rate = percent(monitoring.false_alarm_rate, 0)
    return (
        (
            "False alarms",
            "If nothing changed, a history of this length raises any alarm at all with a chance of at most "
            f"{rate}. The chance is shared equally by the {_n_monitored(monitoring)} monitored figures and, "
            "for each, by the two rules.",
        ),
        (
            "One audit alone",
            f"An alarm is raised by an audit more than {monitoring.single_limit:.1f} standard errors from the "
            "mean of all audits before it (the gray band).",
        ),
        (
            "Drift",
            "Small deviations on the same side are added up (CUSUM), less half a standard error each time; an "
            f"alarm is raised when the sum passes {monitoring.cusum_limit:.1f}.",
        ),
        (
            "After an alarm",
            "The past of that figure is no longer updated, so that what follows is judged against what was.",
        ),
        (
            "Noise of sampling only",
            "Where applicants change from one audit to the next for reasons of their own, figures move with "
            "them. An alarm says that something moved, not what, nor whether it is wrong.",
        ),
        (
            "The same people",
            "When the audits are of the same people, deviations are smaller than the limits allow for, and "
            "alarms are rarer than said.",
        ),
    )


def _monitored(monitoring: Monitoring) -> Section:
    figures = tuple(_trend_figure(trend) for trend in monitoring.trends if trend.is_monitored)
    text = (
        "Each point is an audit with its 95 % interval. The dashed line is what the audits before it lead to expect, "
        "the gray band what an unchanged model stays within; a ring marks the audit that raised an alarm."
    )
    return Section("monitored", "Monitored figures", (text,), figures)


def _trend_figure(trend: Trend) -> Figure:
    is_share = not trend.key.startswith("excess") and trend.key != "auc" and trend.scale == "difference"
    heads = ("audit", "value", "95 % interval", "expected", "limits", "deviation", "CUSUM up", "CUSUM down")
    rows = tuple(
        (
            p.audit,
            decimal(p.value),
            interval(p.ci_low, p.ci_high),
            decimal(p.expected) if not math.isnan(p.expected) else "",
            interval(p.limit_low, p.limit_high),
            decimal(p.z, 2) if not math.isnan(p.z) else "",
            decimal(p.cusum_high, 2),
            decimal(p.cusum_low, 2),
        )
        for p in trend.points
    )
    table = Table(heads, rows, (False, *(True for _ in heads[1:])), _capital(trend.words))
    caption = trend.departure.sentence if trend.departure is not None else "Within its limits."
    chart = trend_chart(trend, is_share)
    name = f"trend-{trend.key}".replace(" ", "-")
    return Figure(name, _capital(trend.words), caption, str(chart.description), specification(chart), "", table)  # type: ignore[arg-type]


def _drift(monitoring: Monitoring) -> Section:
    trends = [trend for trend in monitoring.trends if trend.is_monitored]
    if not trends:
        return Section("drift", "Drift", ("There are no two audits with the same figures.",))
    names = [point.audit for point in trends[0].points]
    rows = tuple(
        (t.words, *(decimal(max(p.cusum_high, p.cusum_low), 2) if not math.isnan(p.z) else "" for p in t.points))
        for t in trends
    )
    table = Table(("figure", *names), rows, (False, *(True for _ in names)), "Larger of the two sums")
    chart = cusum_chart(trends, monitoring.cusum_limit)
    caption = (
        "Deviations on the same side, added up; those downwards are shown below 0. The sum returns to 0 when they stop."
    )
    figure = Figure("cusum", "Sums of deviations", caption, str(chart.description), specification(chart), "", table)  # type: ignore[arg-type]
    return Section("drift", "Drift", ("A change too small for any single audit shows in the sum of many.",), (figure,))


def _other_trends(monitoring: Monitoring) -> list[Section]:
    kinds = (
        ("positive rate: ", "rates", "Positive rates", ".0%"),
        ("ratio: ", "ratios", "Approval ratios", ".2f"),
        ("auc: ", "areas", "AUC by group", ".2f"),
        ("excess: group ", "excess-by-group", "Excess by group", ".3f"),
    )
    figures = []
    for prefix, name, title, format_ in kinds:
        trends = [t for t in monitoring.trends if t.key.startswith(prefix)]
        if trends:
            names = [point.audit for point in trends[0].points]
            rows = tuple((t.words, *(decimal(p.value) for p in t.points)) for t in trends)
            table = Table(("figure", *names), rows, (False, *(True for _ in names)), title)
            chart = rate_chart(trends[:8], title, format_)
            caption = "With 95 % intervals; shown without limits."
            figures.append(Figure(name, title, caption, str(chart.description), specification(chart), "", table))  # type: ignore[arg-type]
    return [Section("others", "Other figures", (), tuple(figures))] if figures else []


def _audit_list(monitoring: Monitoring) -> Section:
    rows = tuple(
        (
            audit.name,
            audit.created.isoformat(timespec="minutes") if audit.created else "",
            str(audit.data["data"]["model"]),
            count(audit.data["data"]["n_people"]),
            str(audit.data["versions"].get("evenhand", "")),
        )
        for audit in monitoring.history.audits
    )
    heads = ("audit", "made", "model", "people", "evenhand")
    table = Table(heads, rows, (False, False, False, True, False), "Audits, oldest first")
    return Section("audits", "Audits", tables=(table,))


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]


def _lower(sentence: str) -> str:
    """A sentence that goes on after a colon; names in capitals keep them."""
    return sentence if sentence[:2].isupper() else sentence[:1].lower() + sentence[1:]
