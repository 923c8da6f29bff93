"""ROC and KS curves: how well the score separates the labels within each group."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import altair as alt
import numpy as np

from evenhand.arrays import Ints
from evenhand.auditing.fitted import own_score
from evenhand.auditing.totals import Totals
from evenhand.metrics.estimate import Estimate, Plain, RowWeights, not_estimable
from evenhand.metrics.intervals import effective_counts_of_two, newcombe
from evenhand.metrics.outcomes import auc_interval
from evenhand.report.drawing import chart_of, check_any, label_of, lines_by_group, quantity
from evenhand.report.formatting import decimal, is_number, shortened
from evenhand.report.section import AuditMetric, Drawing, Section, Summary, chart, number
from evenhand.report.tables import Column, Table, estimate, joined, text

_MOST_POINTS = 100


@dataclass(frozen=True)
class GroupCurve:
    """The curve of one group.

    Attributes
    ----------
    auc, ks
        Area under the ROC curve (DeLong's interval), and largest distance between the rates (Newcombe's interval for
        the score at which they are farthest apart).
    ks_score
        That score.
    score, true_positive_rate, false_positive_rate
        Points of the curve, at most 100: the shares of people with the favorable label, and with the other, whose score
        is at least as favorable. The first point has no score, because no one's is more favorable.
    """

    group: str
    n_people: int
    n_positive_label: int
    auc: Estimate
    ks: Estimate
    ks_score: float
    score: tuple[float, ...]
    true_positive_rate: tuple[float, ...]
    false_positive_rate: tuple[float, ...]


@dataclass(frozen=True)
class Curves(Plain):
    """The curves of all groups."""

    groups: tuple[GroupCurve, ...]


def group_curve(name: str, label: Ints, score: Any, weights: RowWeights, favorable: Any = "high") -> GroupCurve:
    """The curve of people with labels and scores, of whom those with higher scores are better off.

    Examples
    --------
    >>> y, score = np.array([0, 0, 1, 1]), np.array([0.1, 0.4, 0.35, 0.8])
    >>> found = group_curve("a", y, score, RowWeights(*np.ones((3, 4))))
    >>> found.auc.value, found.ks.value, found.true_positive_rate
    (0.75, 0.5, (0.0, 0.5, 0.5, 1.0, 1.0))
    """
    counted = int(weights.count.sum()), int(weights.count[label == 1].sum())
    area, nan = auc_interval(label, score, weights), math.nan
    levels, place = np.unique(-score, return_inverse=True)  # the most favorable first
    sums = [np.bincount(place, weights.total * (label == kind), minlength=len(levels)) for kind in (1, 0)]
    if not all(of_label.sum() for of_label in sums):
        return GroupCurve(name, *counted, area, not_estimable(area.note), nan, (), (), ())
    true, false = (np.concatenate([[0.0], np.cumsum(of_label) / of_label.sum()]) for of_label in sums)
    at = int(np.argmax(np.abs(true - false)))
    high = int(true[at] >= false[at])
    x1, n1, x0, n0 = effective_counts_of_two(label, high, 1 - high, (place < at).astype(np.int64), weights)
    distance = newcombe(x1, n1, x0, n0, 0.95)
    error = math.sqrt(x1 / n1 * (1 - x1 / n1) / n1 + x0 / n0 * (1 - x0 / n0) / n0)
    shown = own_score(-np.concatenate([[nan], levels]), favorable)
    kept = np.unique([0, at, len(true) - 1, *np.searchsorted(true + false, np.linspace(0, 2, _MOST_POINTS - 2))])
    return GroupCurve(
        name,
        *counted,
        area,
        Estimate(float(distance.value), max(distance.low, 0.0), distance.high, error),
        float(shown[at]),
        *(tuple(values[np.minimum(kept, len(true) - 1)].tolist()) for values in (shown, true, false)),
    )


def _groups(summary: Summary) -> Sequence[Any]:
    return summary["roc"]["groups"] if summary.get("roc") else ()


def roc_table(summary: Summary) -> Table:
    """Areas and distances of each group."""
    columns = (
        text("group"),
        Column("people", "whole", "n_people"),
        Column("with the favorable label", "whole", "n_positive_label"),
        estimate("AUC", "auc"),
        estimate("KS distance of the labels", "ks"),
        Column("at a score of", "number", "ks_score"),
        Column("note", "long text", lambda r: joined(r["auc"]["note"], r["ks"]["note"])),
    )
    caption = "How well the score separates the labels in each group"
    return Table("ROC", caption, columns, _groups(summary), needs=Roc.needs)


def curve_table(summary: Summary) -> Table:
    """The points of the curves."""
    names = ("score", "true_positive_rate", "false_positive_rate")
    records = [
        {"group": group["group"], **dict(zip(names, point, strict=True))}
        for group in _groups(summary)
        for point in zip(*(group[name] for name in names), strict=True)
    ]
    columns = (text("group"), *(Column(name.replace("_", " "), "number", name) for name in names))
    return Table("ROC curves", "Points of the ROC and KS curves of each group", columns, records, needs=Roc.needs)


def _extremes(data: Summary, key: str, words: str) -> str:
    """A caption with the groups in which an estimate is lowest and highest."""
    known = sorted((g for g in _groups(data) if is_number(g[key]["value"])), key=lambda g: g[key]["value"])
    low, high = known[0], known[-1]
    return (
        f"{words} Lowest: {shortened(low['group'], 40)}, {decimal(low[key]['value'])}; highest: "
        f"{shortened(high['group'], 40)}, {decimal(high[key]['value'])}."
    )


@chart("ROC curves", roc_table)
def roc(data: Summary) -> Drawing:
    """True by false positive rate of each group, over all cutoffs."""
    rows = [
        {**row, "group": label_of(row["group"]), "score": row["score"] if is_number(row["score"]) else None}
        for row in curve_table(data).records
    ]
    check_any(rows, "no group has people with both labels")
    x = quantity(alt.X, "false_positive_rate", "False positive rate", percent=True, domain=[0, 1])
    y = quantity(alt.Y, "true_positive_rate", "True positive rate", percent=True, domain=[0, 1])
    ends = [{"false_positive_rate": end, "true_positive_rate": end} for end in (0, 1)]
    lines = lines_by_group(
        rows,
        x,
        y,
        (("score", ".3f"), ("true_positive_rate", ".1%"), ("false_positive_rate", ".1%")),
        "Lines: ROC curve of each group; the diagonal is guessing.",
        height=300,
        guides=[chart_of(ends).mark_line(style="guide").encode(x=x, y=y)],
        order="true_positive_rate",
    )
    return lines, _extremes(data, "auc", "The area under a curve is the AUC.")


@chart("KS curves", roc_table)
def ks(data: Summary) -> Drawing:
    """Distance between the true and the false positive rate of each group, by cutoff."""
    rows = [
        {**row, "group": label_of(row["group"]), "distance": row["true_positive_rate"] - row["false_positive_rate"]}
        for row in curve_table(data).records
        if is_number(row["score"])
    ]
    check_any(rows, "no group has people with both labels")
    lines = lines_by_group(
        rows,
        quantity(alt.X, "score", "Cutoff", zero=False),
        quantity(alt.Y, "distance", "True minus false positive rate", percent=True),
        (("score", ".3f"), ("distance", ".1%")),
        "Lines: true minus false positive rate of each group by cutoff; the peak is KS.",
        height=300,
    )
    return lines, _extremes(data, "ks", "The peak of a curve is the KS distance.")


class Roc(Section):
    """ROC and KS curves by group; compared and followed over time as the KS distance of each group."""

    key, title, reads, needs, result = "roc", "ROC and KS curves", "roc", ("labels", "probability"), Curves
    under = "outcome"
    charts = (roc, ks)
    prose = (
        "Whether the score tells people with the favorable label from the others equally well in every group, whatever "
        "the cutoff. A score that separates one group worse than another makes more errors in it."
    )
    words: ClassVar = {
        "ROC curve": "True by false positive rate as the cutoff moves.",
        "KS distance of the labels": "Largest distance between the true and the false positive rate over all cutoffs. "
        "Its interval is for the cutoff at which they are farthest apart.",
    }

    def of(self, totals: Totals) -> Curves:
        rows, fitted = totals.sums.rows, totals.fitted
        groups = ((name, rows.group == code) for code, name in enumerate(fitted.pool.groups.names))
        favorable = fitted.settings.favorable or "high"
        return Curves(
            tuple(
                group_curve(name, rows.label[part], rows.score[part], rows.weights.rows(part), favorable)
                for name, part in groups
            )
        )

    def tables(self, summary: Summary) -> Sequence[Table]:
        return (roc_table(summary),)

    def sheets(self, summary: Summary) -> Sequence[Table]:
        return (*super().sheets(summary), curve_table(summary)) if self.is_present(summary) else ()

    def metrics(self, summary: Summary, reference: str) -> Iterable[AuditMetric]:
        for row in _groups(summary):
            value, error = (number(row["ks"][name]) for name in ("value", "standard_error"))
            yield AuditMetric(f"ks: {row['group']}", "other", f"KS distance, {row['group']}", value, error)
