"""Proxies: features that predict the group."""

from __future__ import annotations

import altair as alt

from evenhand.report.drawing import MOST_FEATURES, NothingToDrawError, forest
from evenhand.report.formatting import decimal, is_number, shortened
from evenhand.report.section import AuditChart, Section, Summary
from evenhand.report.tables import Column, Table, estimate, inside, joined, text


def proxy_table(summary: Summary) -> Table:
    """How well features predict the group."""
    screen = summary["proxies"]
    records = [f for f in (screen["all_features"], *screen["features"]) if f is not None] if screen else []
    groups = list(records[0]["auc_by_group"]) if records else []
    columns = (
        text("feature"),
        text("kind").detail(),
        estimate("AUC for the group", lambda r: {**r, "value": r["auc"]}),
        *(Column(f"AUC: {group}", "number", inside("auc_by_group", group)).detail() for group in groups),
        Column("distinct values", "whole", "n_values").detail(),
        Column("people without a value", "whole", "n_missing"),
        Column("note", "long text", lambda r: joined(r["note"], screen["note"])),
    )
    caption = "How well each feature, and all together, predict the group (AUC): 0.5 is guessing, 1 is perfect"
    missing = "Not available: the audit was run with evidence=False, or a group is too small to hold people out."
    return Table("Proxies", caption, columns, records, (), missing)


def proxies(data: Summary) -> alt.Chart:
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


def _proxies(data: Summary) -> str:
    every = data["proxies"]["all_features"]
    known = sorted((f for f in data["proxies"]["features"] if is_number(f["auc"])), key=lambda f: -f["auc"])
    best = f"; best alone is {shortened(known[0]['feature'], 40)} at {decimal(known[0]['auc'], 2)}" if known else ""
    return f"All features together predict the group with an AUC of {decimal(every['auc'], 2)}{best} (0.5: chance)."


class Proxies(Section):
    """How well each feature, and all together, predict the group."""

    key, title = "proxies", "Proxies"
    charts = (AuditChart(proxies, "Features that predict the group", _proxies, proxy_table, is_wide=True),)

    prose = (
        "Which features predict the group. A feature that does can stand in for it; whether it does is a question "
        "for someone who knows the product."
    )
