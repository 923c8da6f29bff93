"""Pairs of comparable people: decisions, CEC scores and regimes."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, ClassVar

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.arrays import Floats, Ints, Sums
from evenhand.auditing.batch import BatchFindings
from evenhand.auditing.batches import AuditSums, sums_by_code
from evenhand.auditing.fitted import own_score
from evenhand.auditing.scope import Scope
from evenhand.auditing.totals import Totals
from evenhand.metrics.cec import REGIMES
from evenhand.report.drawing import (
    chart_of,
    check_any,
    finished,
    group_color,
    group_shape,
    guide_y,
    label_of,
    lines_of,
    quantity,
    tooltips,
)
from evenhand.report.formatting import decimal, is_number, percent
from evenhand.report.section import Drawing, Section, Summary, SummaryRow, chart, lacking
from evenhand.report.tables import REGIME_COLORS, Column, Table, flag, text

CEC_EDGES = np.round(np.linspace(0, 1, 51), 3)
SCORE_EDGES = np.round(np.linspace(0, 1, 41), 4)
# Distances are unbounded: one bin for 0, then 20 per power of ten, and a last one for the rest.
DISTANCE_EDGES = np.concatenate([[0.0], np.round(np.logspace(-3, 3, 121), 6)])
PLANE_EDGES = (np.round(np.linspace(-1, 1, 41), 3), np.round(np.linspace(0, 1, 26), 3))
_EVERYONE = "all pairs"


@dataclass(frozen=True, eq=False)
class Histogram:
    """Numbers of each group in bins, of shape (G, n_bins), or sums of weights.

    A bin includes its left edge, and the last bin both edges and everything beyond.
    """

    edges: Floats
    counts: NDArray[Any]

    @classmethod
    def of(cls, values: Floats, groups: Ints, n_groups: int, edges: Floats, weight: Floats | None) -> Histogram:
        """Count values that are known; for no groups, none.

        Examples
        --------
        >>> one = Histogram.of(np.array([0.2, 3.0, np.nan]), np.array([0, 1, 1]), 2, np.array([0.0, 0.5, 1.0]), None)
        >>> (one + one).counts
        array([[2, 0],
               [0, 2]])
        """
        known, n_bins = np.isfinite(values) & (values >= edges[0]) & (groups < n_groups), len(edges) - 1
        place = np.minimum(np.searchsorted(edges, values[known], side="right") - 1, n_bins - 1)
        counts = np.bincount(
            groups[known] * n_bins + place, None if weight is None else weight[known], minlength=n_groups * n_bins
        )
        return cls(edges, counts.reshape(n_groups, n_bins))

    def __add__(self, other: Histogram) -> Histogram:
        return Histogram(self.edges, self.counts + other.counts)


@dataclass(frozen=True, eq=False)
class PairSums(Sums):
    """Counts and sums over pairs.

    Attributes
    ----------
    n, weight, means
        Counted scored pairs of each group, the sum of their weights, and weighted sums of their cec, input gap and
        reasoning gap, of shape (G, 3).
    regimes
        Weight of the pairs of each group and regime, of shape (G, 4).
    n_negligible
        Pairs with an attribution too short to have a direction.
    cec, placebo_cec, distance, score
        Pairs by CEC score, by the mean score of the person's placebo pairs and by distance; people by score. Without
        groups where the inputs do not allow it.
    plane
        Pairs by score of the match minus score of the person, and by CEC score: numbers, or sums of weights.
    """

    n: Ints
    weight: Floats
    means: Floats
    regimes: Floats
    n_negligible: int
    cec: Histogram
    placebo_cec: Histogram
    distance: Histogram
    score: Histogram
    plane: NDArray[Any]

    @classmethod
    def of(cls, batch: BatchFindings) -> PairSums:
        """Those of a batch."""
        people, scored, scope, settings = batch.people, batch.scored, batch.fitted.scope, batch.fitted.settings
        done, codes, n_groups = scored.is_scored, people.groups.codes, len(people.groups.names)
        person, other = batch.pairs.person[done], batch.pairs.other_group[done]
        group, weight = codes[person], people.weight[person]
        given = None if people.sample_weight is None else weight
        place = pd.Index(REGIMES).get_indexer(pd.Index(batch.regime[done]))
        favorable = settings.favorable or "high"
        own, match = (own_score(score, favorable, settings.unit) for score in (batch.score, scored.match_score))
        is_value, cec = scope.outcome == "value", scored.cec[done]
        edges = np.linspace(own.min(), own.max(), len(SCORE_EDGES)) if is_value else SCORE_EDGES
        n_explained = n_groups if scope.attributions else 0
        n_scored = 0 if scope.outcome == "decision" else n_groups
        placebo = np.full(len(person), np.nan) if batch.evidence is None else batch.evidence.placebo_cec[person, other]
        plane = np.zeros([len(edges) - 1 for edges in PLANE_EDGES])
        if scope.attributions and scope.outcome == "score":
            plane = np.histogram2d(match[done] - own[person], cec, PLANE_EDGES, weights=given)[0]
        return cls(
            n=np.bincount(group[weight > 0], minlength=n_groups),
            weight=sums_by_code(group, weight, n_groups),
            means=np.column_stack(
                [
                    sums_by_code(group, weight * values[done], n_groups)
                    for values in (scored.cec, scored.input_gap, scored.reasoning_gap)
                ]
            ),
            regimes=sums_by_code(group * 4 + place, weight, 4 * n_groups).reshape(n_groups, 4),
            n_negligible=int(scored.is_negligible.sum()),
            cec=Histogram.of(cec, group, n_explained, CEC_EDGES, given),
            placebo_cec=Histogram.of(placebo, group, n_explained, CEC_EDGES, given),
            distance=Histogram.of(batch.pairs.distance[done], group, n_groups, DISTANCE_EDGES, given),
            score=Histogram.of(own, codes, n_scored, edges, people.sample_weight),
            plane=plane,
        )

    def distributions(self, names: Sequence[str], scope: Scope, factor: float | None) -> dict[str, Any]:
        """Histograms as plain data, enough to draw the charts of a report; sums of weights are multiplied by a factor.

        Returns
        -------
        `cec`, `placebo_cec`, `distance` and `score`: `edges`, and `counts` by group. `plane`: `cells` are (bin of the
        difference, bin of the score, count), without empty ones. `regimes`: pairs by group and regime.
        """

        def shown(numbers: NDArray[Any]) -> Any:
            return (numbers.astype(np.int64) if factor is None else factor * numbers).tolist()

        def by_group(numbers: NDArray[Any]) -> dict[str, Any]:
            return {names[code]: shown(numbers[code]) for code in np.argsort(names) if len(numbers)}

        places = np.nonzero(self.plane)
        cells = zip(*(place.tolist() for place in places), shown(self.plane[places]), strict=True)
        regimes = self.regimes[:0] if "regimes" in scope.not_possible else self.regimes
        histograms = {"cec": self.cec, "placebo_cec": self.placebo_cec, "distance": self.distance, "score": self.score}
        return {
            **{
                name: {"edges": histogram.edges.tolist(), "counts": by_group(histogram.counts)}
                for name, histogram in histograms.items()
            },
            "plane": {
                "difference_edges": PLANE_EDGES[0].tolist(),
                "cec_edges": PLANE_EDGES[1].tolist(),
                "cells": [list(cell) for cell in cells],
            },
            "regimes": {name: dict(zip(REGIMES, row, strict=True)) for name, row in by_group(regimes).items()},
        }


@dataclass(frozen=True)
class PairMetrics:
    """Metrics of all scored pairs.

    Attributes
    ----------
    cec, input_gap, reasoning_gap
        Means; NaN if no pair was scored.
    cec_median, cec_p90
        Quantiles of the CEC score.
    cec_by_group
        Means by group of the person, in order of the groups' names.
    regimes
        Share of pairs in each regime.
    distributions
        Histograms: see `PairSums.distributions`.
    flips
        Share of pairs whose two people get different decisions.
    """

    n_pairs: int
    n_negligible: int
    cec: float
    cec_median: float
    cec_p90: float
    input_gap: float
    reasoning_gap: float
    cec_by_group: Mapping[str, float]
    regimes: Mapping[str, float]
    distributions: Mapping[str, Any]
    flips: float = math.nan

    @classmethod
    def of(
        cls, sums: AuditSums, names: Sequence[str], quantiles: tuple[float, float], scope: Scope, *, is_weighted: bool
    ) -> PairMetrics:
        """Metrics from the sums over all pairs, and the median and 0.9 quantile of their CEC scores."""
        own: PairSums = sums.sections[Pairs.key]
        n, total = int(own.n.sum()), float(own.weight.sum())
        means = (own.means.sum(axis=0) / total).tolist() if n else [math.nan] * 3
        regimes = (own.regimes.sum(axis=0) / total).tolist() if n else [math.nan] * len(REGIMES)
        present = [code for code in np.argsort(names) if own.n[code]]
        nan, lost, has_explanations = math.nan, scope.not_possible, scope.attributions
        factor = float(sums.weights[:, 0].sum() / sums.weights[:, 1].sum()) if is_weighted else None
        return cls(
            n_pairs=n,
            n_negligible=own.n_negligible if has_explanations else 0,
            cec=means[0] if has_explanations else nan,
            cec_median=quantiles[0],
            cec_p90=quantiles[1],
            input_gap=nan if "weighing" in lost else means[1],
            reasoning_gap=nan if "weighing" in lost else means[2],
            cec_by_group={names[code]: float(own.means[code, 0] / own.weight[code]) for code in present}
            if has_explanations
            else {},
            regimes=dict.fromkeys(REGIMES, nan) if "regimes" in lost else dict(zip(REGIMES, regimes, strict=True)),
            distributions=own.distributions(names, scope, factor),
            flips=regimes[2] + regimes[3] if scope.decisions else nan,
        )


_REGIME_WORDS = {
    "A": "same decision, same reasoning",
    "B": "same decision, different reasoning",
    "C": "different decision, same reasoning",
    "D": "different decision, different reasoning",
}


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
        Column("regime", "text", highlights=REGIME_COLORS),
        Column("pairs", "whole"),
        Column("share", "share"),
        flag(lambda r: "different reasoning" if r["regime"] in "BD" else ""),
        Column("meaning", "long text"),
    )
    caption = "Share of pairs in each regime, by group of the person"
    return Table("Regimes", caption, columns, records, needs=("regimes",))


def plane_table(summary: Summary) -> Table:
    """Flip rate and CEC score by group."""
    cec = summary["cec"]
    records = []
    for group, counts in _regime_counts(summary).items():
        total, is_all = sum(counts.values()), group == _EVERYONE
        records.append(
            {
                "group": group,
                "pfr": summary["outcome"]["pfr"] if is_all else _share(counts["C"] + counts["D"], total),
                "cec": cec["mean"] if is_all else cec["by_group"].get(group),
                "pairs": total,
            }
        )
    columns = (
        text("group"),
        Column("flip rate", "share", "pfr"),
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


def _labeled_counts(data: Summary) -> dict[str, Mapping[str, int]]:
    """Pairs by regime with all pairs last, so that groups have the same colors as in other charts."""
    everyone, *groups = _regime_counts(data).items()
    return {label_of(name): counts for name, counts in (*groups, everyone)}


@chart("Regimes", regime_table, is_wide=True)
def regimes(data: Summary) -> Drawing:
    """Share of pairs in each regime, for everyone and by group of the person."""
    counts, words = _labeled_counts(data), {r: f"{r}: {meaning}" for r, meaning in _REGIME_WORDS.items()}
    rows = [
        {"group": name, "regime": words[r], "share": n[r] / sum(n.values()), "pairs": n[r], "place": place}
        for name, n in counts.items()
        if sum(n.values())
        for place, r in enumerate(REGIMES)
    ]
    check_any(rows, "no pair was scored")
    colors = alt.Scale(domain=list(words.values()), range="ordinal")
    bars = chart_of(rows).mark_bar(height={"band": 0.7})
    stacked = bars.encode(
        x=quantity(alt.X, "share", "Share of pairs", percent=True, domain=[0, 1]),
        y=lines_of(list(counts), "group"),
        color=alt.Color("regime:N", scale=colors, legend=alt.Legend(columns=2, labelLimit=260)),
        order=alt.Order("place:Q"),
        tooltip=tooltips("group", "regime", ("share", ".1%"), ("pairs", ",")),
    )
    description, shares = (
        "Stacked bars: share of pairs in the regimes A to D, for all pairs and by group.",
        data["regimes"],
    )
    return finished(stacked, description, 30 * len(counts)), (
        f"{percent(shares['B'])} of pairs get the same decision for different reasons (regime B), and "
        f"{percent(shares['A'])} the same decision for the same reasons. Matching noise alone puts many pairs in B, so "
        "compare this with the excess."
    )


@chart("Decisions and reasoning by group", plane_table, is_detail=True)
def plane(data: Summary) -> Drawing:
    """Each group by how often decisions differ and how far reasoning differs, and the level of placebo pairs."""
    everyone, *groups = plane_table(data).records
    every = [{**row, "group": label_of(row["group"])} for row in (*groups, everyone)]
    names, rows = [row["group"] for row in every], [row for row in every if row["pairs"] and is_number(row["cec"])]
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
        color=group_color(names),
        shape=group_shape(names),
        tooltip=tooltips("group", ("pfr", ".1%", "flip rate"), ("cec", ".3f", "mean CEC"), ("pairs", ",")),
    )
    layers: list[Any] = [
        chart_of(corners).mark_text(style="corner").encode(x=x, y=y, text=alt.Text("letter:N")),
        *guide_y(tau, f"consistency threshold {tau:g}", "guide"),
    ]
    found = data["evidence"]
    caption = "Each point is a group. Higher: more different reasoning; farther right: more different decisions."
    if found is not None and is_number(found["placebo_mean"]):
        caption = (
            "The evidence is the gap between the lines of compared pairs and placebo pairs, which are equally far "
            f"apart: {decimal(found['compared_mean'])} and {decimal(found['placebo_mean'])}. Points show nearest "
            "matches, and may be lower."
        )
        lines = {"placebo": ("floor", found["placebo_mean"]), "compared": ("compared", found["compared_mean"])}
        highest = max(lines, key=lambda name: lines[name][1])
        for name, (style, value) in lines.items():
            words = f"{name} pairs {decimal(value)}"
            layers += guide_y(value, words, style, side="left", is_above=name == highest)
    description = (
        "Points: prediction flip rate and mean CEC score of all pairs and of each group, with the consistency "
        "threshold, compared pairs and placebo pairs as horizontal lines."
    )
    return finished(alt.layer(*layers, points), description, height=300), caption


@chart("Pairs by score difference and CEC score", density_table, is_wide=True, is_detail=True)
def density(data: Summary) -> Drawing:
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
    layers = alt.layer(cells, *guide_y(tau, f"consistency threshold {tau:g}", "guide"))
    description = "Heat map: number of pairs by difference in scores and CEC score; darker means more pairs."
    return finished(layers, description, height=300), (
        "Darker cells hold more pairs. Pairs near the top middle have almost the same score for different reasons: no "
        "outcome metric can see them."
    )


_DECISIONS = {0: "declined", 1: "approved"}


def review_table(review: pd.DataFrame) -> Table:
    """The applicants to look at first, each next to the closest applicant of a better-off group."""
    names = [str(name) for name in review.columns]
    who, whose = ("person_id", "match_id") if "person_id" in names else ("person", "match")
    columns = (
        text("applicant", who),
        text("group"),
        Column("score", "number", "score"),
        Column("decision", "text", lambda r: _DECISIONS.get(r["decision"], "")).detail(),
        text("closest", whose if whose in names else "match"),
        text("its group", "other_group"),
        Column("its score", "number", "match_score"),
        Column("its decision", "text", lambda r: _DECISIONS.get(r["match_decision"], "")).detail(),
        Column("distance", "number", "distance"),
        Column("inputs that differ, applicant | closest", "long text", lambda r: _few_inputs(r["inputs_that_differ"])),
        *(Column(name, "any", itemgetter(name)).detail() for name in names if ": " in name),
    )
    caption = (
        "Declined applicants of the group that is approved less often at equal finances, each next to the closest "
        "applicant of the other group, who was approved. The closest pairs come first."
    )
    records = [{str(name): value for name, value in row.items()} for row in review.to_dict("records")]
    return Table("Review", caption, columns, records)


def _few_inputs(text: str, most: int = 8) -> str:
    parts = text.split("; ")
    return "; ".join(parts[:most]) + (f"; and {len(parts) - most} more" if len(parts) > most else "")


class Pairs(Section):
    """Whether two comparable people get the same decision, and for the same reasons."""

    key, title, needs = "regimes", "Decisions and reasoning", ("regimes",)
    more = "Groups and pairs one by one"
    charts = (plane, regimes, density)
    words: ClassVar = {
        "match, pair": "A person and the nearest person of a different group with the same label, by financial "
        "features.",
        "attribution": "How far a feature moved a person's score away from the score of the average person with their "
        "label and group.",
        "baseline": "The mean of the people with the person's label and group; both people of a pair are explained "
        "from it.",
        "CEC score": "How differently the model reasons about the two people of a pair: 0 identical reasoning, 1 "
        "opposed.",
        "consistency threshold": "The CEC score above which reasoning counts as different.",
        "input gap": "The part of the CEC score that comes from different inputs under the same weights.",
        "reasoning gap": "The part of the CEC score that comes from different weights on the same inputs.",
        "regime": "A: same decision, same reasoning. B: same decision, different reasoning. C: different decision, "
        "same reasoning. D: both differ.",
        "prediction flip rate": "The share of pairs whose two people get different decisions: regimes C and D.",
    }

    prose = (
        "Each person is paired with the nearest person of a different group who has the same label. Two questions "
        "are asked about a pair: do both get the same decision, and does the model weigh their features alike? The "
        "answers define four regimes. Regime B is the one that outcome metrics cannot see."
    )

    def sums(self, batch: BatchFindings) -> PairSums:
        return PairSums.of(batch)

    def is_possible(self, scope: Scope) -> bool:
        return True  # some of its numbers are known even if regimes are not

    def of(self, totals: Totals) -> PairMetrics:
        median, p90 = totals.quantiles("cec", (0.5, 0.9))
        pool, scope = totals.fitted.pool, totals.fitted.scope
        is_weighted = pool.sample_weight is not None
        return PairMetrics.of(totals.sums, pool.groups.names, (median, p90), scope, is_weighted=is_weighted)

    def summary(self, part: PairMetrics) -> Mapping[str, Any]:
        return {
            "cec": {
                "mean": part.cec,
                "median": part.cec_median,
                "p90": part.cec_p90,
                "input_gap": part.input_gap,
                "reasoning_gap": part.reasoning_gap,
                "n_pairs": part.n_pairs,
                "n_negligible": part.n_negligible,
                "by_group": part.cec_by_group,
            },
            "regimes": part.regimes,
            "outcome": {"pfr": part.flips},
            "distributions": part.distributions,
        }

    def paragraphs(self, summary: Summary) -> Sequence[str]:
        return (self.prose.replace(" who has the same label", "") if lacking(summary, "labels") else self.prose,)

    def sheets(self, summary: Summary) -> Sequence[Table]:
        return (regime_table(summary),)

    def summary_rows(self, summary: Summary) -> Iterable[SummaryRow]:
        cec, tau = summary["cec"], summary["settings"]["consistency_threshold"]
        yield "CEC score, mean", cec["mean"], "0 identical reasoning, 1 opposed", "excess"
        yield "input gap, mean", cec["input_gap"], "different inputs under the same weights", "weighing"
        yield "reasoning gap, mean", cec["reasoning_gap"], "the same inputs under different weights", "weighing"
        for regime in REGIMES:
            yield f"regime {regime}, share", summary["regimes"][regime], regime_meaning(regime, tau), "regimes"
        flips = summary["outcome"]["pfr"]
        yield "prediction flip rate", flips, "matched people who get different decisions", "decisions"

    def logged(self, summary: Summary) -> Iterable[tuple[str, Any]]:
        yield "cec.mean", summary["cec"]["mean"]
        yield from ((f"regime.{regime}", share) for regime, share in summary["regimes"].items())
        yield "outcome.pfr", summary["outcome"]["pfr"]
