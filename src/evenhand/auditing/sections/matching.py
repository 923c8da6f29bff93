"""The quality of the matches, and the sampling weights of the people who are matched."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import altair as alt
import numpy as np

from evenhand.auditing.batch import BatchFindings
from evenhand.auditing.totals import Totals
from evenhand.matching.diagnostics import QUANTILES, MatchDiagnostics, MatchSums
from evenhand.metrics.estimate import Plain, effective_number_of_people
from evenhand.report.drawing import (
    MOST_FEATURES,
    STEP,
    NothingToDrawError,
    Row,
    chart_of,
    check_any,
    finished,
    group_color,
    group_shape,
    guide_x,
    label_of,
    labels_of,
    lines_by_group,
    lines_of,
    quantity,
    size_of,
    tooltips,
)
from evenhand.report.formatting import count, decimal, is_number, percent, shortened
from evenhand.report.section import Drawing, Section, Summary, SummaryRow, chart
from evenhand.report.tables import NOTE, Column, Record, Table, flag, text

_LEAST_WORTH = 0.5  # effective sample size as a share of those counted, below which readers are warned
_BALANCED = 0.1  # a standardized mean difference below this is commonly read as balanced


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
    return Table("Balance", caption, columns, summary["matching"]["balance"])


@chart("Distance to the match", distance_table, is_detail=True)
def distances(data: Summary) -> Drawing:
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
    lines = lines_by_group(
        rows,
        quantity(alt.X, "distance", "Distance to the match, in standard deviations"),
        quantity(alt.Y, "share", "Share within this distance", percent=True, domain=[0, 1]),
        (("distance", ".2f"), ("share", ".1%", "share within")),
        "Lines: share of pairs whose match is within each distance, by group.",
        names=map(label_of, found["counts"]),
    )
    half = decimal(data["matching"]["distance_quantiles"].get("0.5"), 2)
    return lines, f"Half of the matches are within {half} standard deviations; the farther, the less comparable."


@chart("Balance of the financial features (Love plot)", balance_table)
def balance(data: Summary) -> Drawing:
    """Love plot: standardized mean difference of each financial feature before and after matching."""
    found: dict[str, list[Row]] = {}
    for row in data["matching"]["balance"]:
        if is_number(row["before"]) or is_number(row["after"]):
            found.setdefault(row["feature"], []).append(row)
    check_any(found, "no difference between groups could be estimated")
    order = sorted(found, key=lambda name: -max(size_of(r["before"]) for r in found[name]))[: MOST_FEATURES + 5]
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
    description = (
        "Love plot: standardized mean difference of each financial feature between groups before and after matching."
    )
    worst = data["matching"]["worst_balance"]
    judged = "above" if is_number(worst) and worst > _BALANCED else "within"
    return finished(alt.layer(*guide_x(0.1, "0.1"), points), description, STEP * len(order)), (
        "Matching should move points to the left of 0.1, a rule of thumb; the largest remaining difference is "
        f"{decimal(worst, 2)}, {judged} it."
    )


class Matching(Section):
    """Who has a match, how near it is, and how alike the groups are after matching."""

    key, title, more = "matching", "Matching and sensitivity", "Distances and coverage"
    charts = (distances, balance)
    words: ClassVar = {
        "standardized difference": "A difference of means in units of the standard deviation.",
        "coverage": "How many people have a match in a different group.",
        "overlap": "How many people have a match and, at the same distance, a placebo (common support).",
    }

    prose = (
        "Every metric of pairs is about matched people. If matches are far or few, or if the groups still differ "
        "after matching, the metrics mean less."
    )

    def sums(self, batch: BatchFindings) -> MatchSums:
        return MatchSums.of(batch.pairs, batch.points, batch.fitted.matcher.points, batch.people.sample_weight)

    def of(self, totals: Totals) -> MatchDiagnostics:
        matcher, sums = totals.fitted.matcher, totals.sums.sections[self.key]
        distances = dict(zip(QUANTILES, totals.quantiles("distance", QUANTILES), strict=True))
        people = matcher.points, matcher.groups, matcher.group_names, matcher.space, totals.fitted.pool.sample_weight
        found: MatchDiagnostics = sums.diagnostics(distances, *people)
        return found

    def facts(self, summary: Summary) -> Sequence[tuple[str, str]]:
        found, reuse = summary["matching"], summary["matching"]["reuse"]
        rows = [
            (
                "Coverage",
                f"{percent(found['coverage'])}: {count(found['n_matched'])} of {count(found['n_pairs'])}, counting a "
                "person once for each other group",
            ),
            ("Exact financial twins", percent(found["twin_share"])),
            (
                "Reuse of matches",
                f"{count(reuse['n_distinct'])} people serve as matches, one of them {count(reuse['max'])} times; their "
                f"effective number is {count(reuse['effective_n'])}",
            ),
        ]
        rows += [("Without a match", f"{count(n)}: {why}") for why, n in found["unmatched"].items() if n]
        evidence = summary["evidence"]
        if evidence is not None:
            without = evidence["without_support"].items()
            rows.append(("With a placebo pair", percent(evidence["common_support"])))
            rows += [("Without a placebo pair", f"{count(n)}: {why}") for why, n in without if n]
        return rows

    def details(self, summary: Summary) -> Sequence[Table]:
        return (coverage_table(summary),)

    def sheets(self, summary: Summary) -> Sequence[Table]:
        return (matching_table(summary), *super().sheets(summary))

    def summary_rows(self, summary: Summary) -> Iterable[SummaryRow]:
        yield "coverage", summary["matching"]["coverage"], "people who have a match in a different group"

    def logged(self, summary: Summary) -> Iterable[tuple[str, Any]]:
        yield "matching.coverage", summary["matching"]["coverage"]


@dataclass(frozen=True)
class GroupWeight:
    """The weights of one group.

    Attributes
    ----------
    n_people, n_counted
        Rows of the group, and those with a weight above 0.
    n_effective
        Number of equally weighted people with the same information (Kish): (Σw)² / Σw².
    share, share_of_sample
        Share of the group in the population, according to the weights, and in the sample.
    """

    group: str
    n_people: int
    n_counted: int
    n_effective: float
    share: float
    share_of_sample: float


@dataclass(frozen=True)
class Weighting(Plain):
    """The sampling weights of an audit.

    Attributes
    ----------
    n_people, n_counted, n_effective
        As in `GroupWeight`, for everyone.
    groups
        By group.
    """

    n_people: int
    n_counted: int
    n_effective: float
    groups: tuple[GroupWeight, ...]

    def reservations(self) -> Iterator[str]:
        """What a reader must know about the weights."""
        n_left_out = self.n_people - self.n_counted
        if n_left_out:
            yield f"{n_left_out:,} of {self.n_people:,} people have a sampling weight of 0 and are not counted."
        uneven = [group for group in self.groups if group.n_effective < _LEAST_WORTH * group.n_counted]
        if uneven:
            shown = ", ".join(f"{g.group} ({g.n_counted:,} people, effectively {g.n_effective:,.0f})" for g in uneven)
            yield (
                f"Sampling weights are so uneven that the effective size of groups is less than half of their people: "
                f"{shown}. A few people with large weights determine their metrics; check the weights, or trim them."
            )


class Weights(Section):
    """How many people each group stands for, and how much information their weights leave."""

    key, title, reads, is_pooled = "weights", "Sampling weights", "weighting", True
    under = "matching"
    parts = (Weighting,)
    prose = (
        "Each row stands for as many people of the population as its sampling weight says. Rates, means and gaps "
        "refer to the population; numbers of people and standard errors refer to the sample. Unequal weights carry "
        "less information than equal ones: the effective number of people says how much."
    )

    def of(self, totals: Totals) -> Weighting | None:
        pool, n_people = totals.fitted.pool, totals.sums.n_people
        if pool.sample_weight is None:
            return None
        counted, total, squares = totals.sums.weights.T
        worth = effective_number_of_people(total, squares)
        groups = tuple(
            GroupWeight(
                group=name,
                n_people=int(n_people[code]),
                n_counted=int(counted[code]),
                n_effective=float(worth[code]),
                share=float(total[code] / total.sum()),
                share_of_sample=float(counted[code] / counted.sum()),
            )
            for code, name in enumerate(pool.groups.names)
        )
        everyone = effective_number_of_people(total.sum(), squares.sum())
        return Weighting(int(n_people.sum()), int(counted.sum()), float(everyone), groups)

    def tables(self, summary: Summary) -> Sequence[Table]:
        weighting = summary["weighting"]
        everyone = {**weighting, "group": "everyone", "share": 1.0, "share_of_sample": 1.0}
        columns = (
            text("group"),
            Column("people", "whole", "n_people"),
            Column("counted", "whole", "n_counted"),
            Column("effective number", "number", "n_effective", 1),
            Column("share of the sample", "share", "share_of_sample"),
            Column("share of the population", "share", "share"),
            flag(
                lambda r: (
                    "effective number below half of the people counted" if r["n_effective"] < r["n_counted"] / 2 else ""
                )
            ),
        )
        caption = (
            "People of each group, and the number of equally weighted people who would carry the same information "
            "(Kish)."
        )
        return (Table("Sampling weights", caption, columns, [*weighting["groups"], everyone]),)
