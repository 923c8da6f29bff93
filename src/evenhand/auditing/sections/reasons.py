"""The principal reasons of declined people."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

import numpy as np

from evenhand.arrays import Ints
from evenhand.auditing.batch import BatchFindings
from evenhand.auditing.fitted import Fitted
from evenhand.auditing.reasons import BASELINE, NO_BASELINE, PeopleReasons, reasons_of_codes
from evenhand.auditing.reasons import Reasons as ReasonsGiven
from evenhand.auditing.sections.evidence import Excess
from evenhand.auditing.sections.outcome import Outcome
from evenhand.auditing.totals import Totals
from evenhand.auditing.triples import compared_people
from evenhand.metrics.reason_codes import ReasonCounts, ReasonRate
from evenhand.report.drawing import check_any, forest, label_of
from evenhand.report.formatting import is_number, listed, shortened
from evenhand.report.section import Drawing, Section, Summary, chart
from evenhand.report.tables import (
    NOTE,
    SIGNIFICANT,
    Column,
    Record,
    Table,
    beside_reference,
    estimate,
    flag,
    p_adjusted,
    significance_flag,
    text,
)

_PLACES = {"first": "first", "any": "among all"}
NO_REASONS = "Not available: the audit has no reasons."


def given_to_declined(codes: Ints, decision: Ints) -> PeopleReasons:
    """Given reasons of everyone, without those of approved people."""
    is_declined = decision == 0
    return PeopleReasons(np.where(is_declined[:, None], codes, -1), is_declined)


def _of_codes(fitted: Fitted, batch: BatchFindings, names: Sequence[str], codes: Ints, reference: str) -> ReasonsGiven:
    """Frequency of given reasons, and what pairs of people, who are matched with each other, have in common."""
    people, triples = batch.people, None
    if fitted.evidence is not None:
        rows, limit = np.arange(len(people)), fitted.settings.max_distance
        triples = compared_people(fitted.evidence, people, fitted.matcher.points, rows, None, limit)
    return reasons_of_codes(
        codes,
        names,
        people.groups.codes,
        people.groups.names,
        batch.decision,
        pairs=batch.pairs,
        triples=triples,
        reference=reference or None,
        source="the given codes, first reason first",
    )


def rate_table(summary: Summary) -> Table:
    """How often each reason is given to the declined people of each group."""
    found = summary["reasons"]
    columns = (
        text("reason"),
        Column("given", "text", lambda r: _PLACES[r["place"]]),
        text("group"),
        Column("people", "whole", "n"),
        Column("declined", "whole", "n_people"),
        estimate("share of declined", "rate", "share"),
        estimate("difference, group minus reference", beside_reference("difference"), "share"),
        Column("p-value", "p", beside_reference("p_value")).detail(),
        p_adjusted(beside_reference("p_value_holm")),
        Column("test", "text").detail(),
        flag(lambda r: significance_flag(r["p_value_holm"], "adjusted p-value")),
        Column("note", "long text", lambda r: "" if r["is_reference"] else r["difference"]["note"]),
    )
    beside = f", compared with {found['reference']}" if found else ""
    caption = f"Reasons of declined people{beside}; finances are not held equal"
    return Table("Reason rates", caption, columns, found["rates"] if found else [], _if_empty(summary))


def agreement_table(summary: Summary) -> Table:
    """Overlap of the reasons of comparable declined people, minus that of placebo pairs."""
    columns = (
        Column("measure", "text", "words"),
        Column("pairs", "share", "compared"),
        Column("placebo pairs", "share", "placebo"),
        estimate("excess", lambda r: r["excess"] or "", "share"),
        Column("p-value, one-sided", "p", lambda r: "" if r["excess"] is None else r["excess"]["p_value"]),
        Column("people", "whole", lambda r: "" if r["excess"] is None else r["excess"]["n"]),
        Column("mean of all pairs", "share", "all"),
        Column("number of pairs", "whole", "n_pairs"),
        NOTE,
    )
    caption = "Reasons that two comparable declined people share; below 0, fewer than placebo pairs share"
    return Table("Reason agreement", caption, columns, _agreement_records(summary["reasons"]), _if_empty(summary))


def _agreement_records(found: Mapping[str, Any] | None) -> list[Record]:
    if found is None:
        return []
    words = {"shared": "share of reasons in common", "rank_overlap": "rank-biased overlap"}
    return [
        {
            "words": text_,
            "compared": found[f"compared_{key}"],
            "placebo": found[f"placebo_{key}"],
            "excess": found[f"{key}_excess"],
            "all": found[key],
            "n_pairs": found["n_pairs"],
            "note": "no placebo pairs" if found[f"{key}_excess"] is None else found[f"{key}_excess"]["note"],
        }
        for key, text_ in words.items()
    ]


def declined_table(summary: Summary) -> Table:
    """Declined people of each group, and those without a reason."""
    found = summary["reasons"]
    records: list[Record] = [
        {
            "group": group,
            "declined": n,
            "without": found["without_reason"][group],
            "shared": found["by_group"].get(group),
            "note": found["note"],
        }
        for group, n in (found["declined"].items() if found else ())
    ]
    columns = (
        text("group"),
        Column("declined", "whole"),
        Column("without a reason", "whole", "without"),
        Column("shared with a declined match", "share", "shared"),
        NOTE,
    )
    caption = "Declined people of each group"
    return Table("Declined", caption, columns, records, _if_empty(summary))


def _if_empty(summary: Summary) -> str:
    found = summary["reasons"]
    return NO_REASONS if found is None else f"Not available: {found['note'] or 'no one is given a reason'}."


_MOST_REASONS = 12


@chart("Reasons of declined people", rate_table, is_wide=True)
def reason_rates(data: Summary) -> Drawing:
    """How often each reason is given to declined people of each group, with 95% intervals; the most frequent first."""
    found = data["reasons"]
    rates = [
        row for row in (found["rates"] if found else ()) if row["place"] == "any" and is_number(row["rate"]["value"])
    ]
    check_any(rates, (found and found["note"]) or "no one is given a reason")
    frequent = list(dict.fromkeys(row["reason"] for row in rates))[:_MOST_REASONS]
    points = forest(
        [
            (row["reason"], {**row["rate"], "series": label_of(row["group"]), "people": row["n"]})
            for row in rates
            if row["reason"] in frequent
        ],
        "Share of declined people with the reason",
        "share of declined people of each group who are given each reason, the most frequent reasons first.",
        percent_axis=True,
        series=list(dict.fromkeys(label_of(row["group"]) for row in rates)),
    )
    asked = [row for row in found["rates"] if is_number(row["p_value_holm"])]
    called = [row for row in asked if row["p_value_holm"] <= SIGNIFICANT]
    names = list(dict.fromkeys(shortened(row["reason"], 40) for row in called))[:3]
    which = f", most of all {listed(names)}" if names else ""
    return points, (
        f"Up to {found['n_reasons']} reasons of each declined person. Compared with "
        f"{shortened(found['reference'], 40)}, {len(called)} of {len(asked)} shares, of first and of all reasons, "
        f"differ after adjustment for their number{which}."
    )


class Reasons(Section):
    """How often each reason is given to which group, and how many reasons comparable people share."""

    key, title, reads, more = "reasons-given", "Reason codes", "reasons", "Reasons that comparable people share"
    parts = (ReasonRate,)
    charts = (reason_rates,)
    words: ClassVar = {
        "principal reasons": "What counts most against a declined person, measured from the mean of approved people; "
        "features that share a reason are added up.",
        "rank-biased overlap": "How alike two ordered lists of reasons are, where the first reasons count most: 0 "
        "nothing in common, 1 identical.",
    }

    def sums(self, batch: BatchFindings) -> ReasonCounts:
        reasons, groups = batch.reasons, batch.people.groups
        sizes = len(reasons.source.reason_map.names), len(groups.names)
        return reasons.people.counts(groups.codes, *sizes, batch.pairs.person, reasons.agreement)

    def of(self, totals: Totals) -> ReasonsGiven | None:
        if totals.codes is not None and totals.batch is not None:
            return _of_codes(totals.fitted, totals.batch, *totals.codes, totals.part(Outcome).approvals.reference)
        given, scope, sums, evidence = totals.fitted.reasons, totals.fitted.scope, totals.sums, totals.part(Excess)
        if not (scope.attributions and scope.decisions and sums.scores.weights.is_equal):  # shares are not weighted
            return None
        found = ReasonsGiven.of(
            sums.sections[self.key],
            given.reason_map.names,
            totals.fitted.pool.groups.names,
            totals.part(Outcome).approvals.reference,
            given.n_reasons,
            BASELINE,
            None if sums.clustered is None else sums.clustered.declined,
        )
        note = NO_BASELINE if given.explainer is None else found.note
        found = replace(found, of_features=given.reason_map.of_feature, note=note)
        if evidence is None:
            return found
        return found.with_placebos(evidence.agreement, evidence.reason_overlap, evidence.rank_overlap)

    def paragraphs(self, summary: Summary) -> Sequence[str]:
        found = summary["reasons"]
        return (
            f"The reason codes that declined applicants would be given: up to {found['n_reasons']} principal reasons "
            f"each. They are {found['source']}. Shares by group do not hold finances equal, but the comparison of "
            "comparable people with placebo pairs does. Whether a notice is right or complete is not judged here.",
        )

    def details(self, summary: Summary) -> Sequence[Table]:
        return (agreement_table(summary), declined_table(summary))

    def sheets(self, summary: Summary) -> Sequence[Table]:
        return (rate_table(summary), *self.details(summary))  # also without reasons: the sheets say so
