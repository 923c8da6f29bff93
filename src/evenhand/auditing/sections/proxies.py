"""Proxies: features that predict the group."""

from __future__ import annotations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.arrays import person_hash
from evenhand.auditing.totals import Totals
from evenhand.inputs.identity import hash_rows
from evenhand.metrics.proxies import ProxyScreen, predicted_group, proxy_screen
from evenhand.report.drawing import MOST_FEATURES, NothingToDrawError, forest
from evenhand.report.formatting import decimal, is_number, shortened
from evenhand.report.section import Drawing, Section, Summary, chart
from evenhand.report.tables import Column, Table, estimate, inside, joined, text

PROXY_PEOPLE = 5_000
"""Number of people in the proxy screen: a sample is enough for a screen."""

_PROXY_FOLDS, _PROXY_TREES = 3, 25


def screened_people(person: NDArray[np.int64], random_state: int) -> NDArray[np.int64]:
    """Rows of the people who are screened for proxies: those with the lowest hashes, in row order."""
    if len(person) <= PROXY_PEOPLE:
        return np.arange(len(person))
    order = np.argsort(person_hash(person, random_state), kind="stable")[:PROXY_PEOPLE]
    return order[np.argsort(person[order])]


def proxy_table(summary: Summary) -> Table:
    """How well features predict the group."""
    screen = summary["proxies"]
    records = [f for f in (screen["all_features"], *screen["features"]) if f is not None] if screen else []
    groups = list(records[0]["auc_by_group"]) if records else []
    several = len(groups) > 2
    columns = (
        text("feature"),
        text("kind").detail(),
        estimate("AUC for the group", lambda r: {**r, "value": r["auc"]}),
        *((Column("group predicted best", "text", lambda r: predicted_group(r["auc_by_group"])),) if several else ()),
        *(Column(f"AUC: {group}", "number", inside("auc_by_group", group)).detail() for group in groups),
        Column("distinct values", "whole", "n_values").detail(),
        Column("people without a value", "whole", "n_missing"),
        Column("note", "long text", lambda r: joined(r["note"], screen["note"])),
    )
    best = "; of several groups, the one predicted best against all others" if several else ""
    caption = f"How well each feature, and all together, predict the group (AUC){best}: 0.5 is guessing, 1 is perfect"
    missing = "Not available: the audit was run with evidence=False, or a group is too small to hold people out."
    return Table("Proxies", caption, columns, records, missing)


@chart("Features that predict the group", proxy_table, is_wide=True)
def proxies(data: Summary) -> Drawing:
    """How well each feature alone predicts the group; 0.5 is guessing."""
    screen = data["proxies"]
    if screen is None:
        raise NothingToDrawError(
            "There is no proxy screen: groups were too small, or the audit was run without evidence."
        )
    known = sorted((f for f in screen["features"] if is_number(f["auc"])), key=lambda f: -f["auc"])
    every = screen["all_features"]
    rows = [(f["feature"], {**f, "value": f["auc"]}) for f in (every, *known[:MOST_FEATURES]) if f is not None]
    description = "how well each feature predicts the group; 0.5 is guessing, 1 is perfect."
    points, best = forest(rows, "AUC of predicting the group", description, zero=0.5), ""
    if known:
        first = known[0]
        best = f"; best alone is {shortened(first['feature'], 40)} at {decimal(first['auc'], 2)}"
        best += f" for {predicted_group(first['auc_by_group'])}" if len(first["auc_by_group"]) > 2 else ""
    return points, (
        f"All features together predict {predicted_group(every['auc_by_group'])} with an AUC of "
        f"{decimal(every['auc'], 2)}{best} (0.5: chance)."
    )


class Proxies(Section):
    """How well each feature, and all together, predict the group."""

    key, title, under = "proxies", "Inputs that predict the group", "score-gap"
    parts = (ProxyScreen,)
    charts = (proxies,)

    prose = (
        "Which features predict the group. A feature that does can stand in for it; whether it does is a question "
        "for someone who knows the product."
    )

    def of(self, totals: Totals) -> ProxyScreen | None:
        """The screen of some people; None without evidence, or if fewer than two groups have people to hold out.

        Of the rows of a cluster, one is screened: copies of a person who is held out would give the group away.
        """
        if totals.sums.evidence is None:
            return None
        batches, names = totals.batches, totals.fitted.pool.groups.names
        parts = batches.crew.in_order(batches.screened, totals.merged.numbers)
        screened = [part for part in parts if part is not None and len(part)]
        if not screened:
            return None
        table = pd.concat(screened)
        codes, clusters = (table.index.get_level_values(level).to_numpy() for level in (0, 1))
        order = np.lexsort((codes, hash_rows(table)))  # people are held out whatever the order of their rows
        order = order[(clusters[order] == 0) | ~pd.Series(clusters[order]).duplicated().to_numpy()]
        if (np.bincount(codes[order], minlength=len(names)) >= 2 * _PROXY_FOLDS).sum() < 2:
            return None
        return proxy_screen(
            table.iloc[order].reset_index(drop=True),
            codes[order],
            names=names,
            n_folds=_PROXY_FOLDS,
            n_trees=_PROXY_TREES,
            max_people=PROXY_PEOPLE,
            random_state=totals.fitted.settings.random_state,
        )
