"""Regressions of outcomes on the group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar

from evenhand.auditing.regressions import RegressedOutcome, regressions_of
from evenhand.auditing.regressions import Regressions as RegressionsFound
from evenhand.auditing.sections.evidence import Excess
from evenhand.auditing.sections.outcome import Outcome
from evenhand.auditing.totals import Totals
from evenhand.report.drawing import NothingToDrawError, check_any, forest
from evenhand.report.formatting import is_number, shortened
from evenhand.report.section import Drawing, Section, Summary, chart
from evenhand.report.tables import (
    SIGNIFICANT,
    Column,
    Record,
    Table,
    estimate,
    flag,
    joined,
    p_adjusted,
    significance_flag,
    text,
)

_NOT_ASKED = "Not available: the audit was run without regressions (`regressions=True`, --regressions)."
_CONTROLS = {
    "none": "nothing",
    "financial features": "finances",
    "all inputs": "all inputs",
    "leaves": "finances and label, in leaves",
}
_METHODS = {"logit": "logit, average marginal effect", "ols": "least squares"}
_MOST_LINES = 12


def regression_table(summary: Summary, column: str | None = None) -> Table:
    """Regressions for everyone and within segments: all of them, or those of one column; "" for everyone."""
    found = summary.get("regressions") or {"outcomes": (), "rows": (), "reference": "the reference group"}
    described = {one["outcome"]: one for one in found["outcomes"]}
    records = [
        {**row, "of": described[row["outcome"]]} for row in found["rows"] if column is None or row["column"] == column
    ]
    columns = (
        text("column").detail(),
        text("segment") if column else text("segment").detail(),
        text("outcome"),
        text("group"),
        Column("held equal", "text", lambda r: _CONTROLS[r["controls"]]),
        estimate("group minus reference", "effect"),
        estimate("odds ratio", lambda r: r["effect"].get("odds_ratio") or "", places=2),
        Column("unit", "text", "of/unit").detail(),
        Column("method", "text", _method).detail(),
        Column("standard error", "number", "effect/standard_error").detail(),
        Column("p-value, two-sided", "p", "effect/p_value").detail(),
        p_adjusted(lambda r: "" if r["controls"] == "leaves" else r["p_adjusted"]),
        Column("people", "whole", "effect/n_people"),
        Column("people, group", "whole", "effect/n_group").detail(),
        Column("columns held equal", "whole", "effect/n_controls").detail(),
        flag(lambda r: significance_flag(r["p_adjusted"], "adjusted p-value")),
        Column("note", "long text", lambda r: joined(r["effect"]["note"], _lacking(r))),
    )
    within = f" within values of {column}" if column else ""
    words = f"Outcomes of each group minus those of {found['reference']} by regression{within}{_direction(summary)}"
    return Table("Regressions", words, columns, records, _NOT_ASKED)


def _direction(summary: Summary) -> str:
    """Which sign is worse, if the audited value, such as a price, is better the lower it is."""
    settings = summary["settings"]
    if settings["favorable"] != "low" or not settings.get("unit"):
        return ""
    return f"; in {settings['unit']} as given, so above 0 is worse off"


def _method(record: Record) -> str:
    return "reshuffling" if record["controls"] == "leaves" else _METHODS[record["of"]["method"]]


def _lacking(record: Record) -> str:
    """How many people have no outcome, in the row for everyone without controls."""
    n = record["of"]["n_missing"]
    return f"{n:,} people without this outcome" if n and record["controls"] == "none" and not record["column"] else ""


@chart("Effect of the group as more is held equal", lambda summary: regression_table(summary, ""), is_wide=True)
def coefficients(data: Summary) -> Drawing:
    """The group's effect on every outcome as more is held equal, in standard deviations of the outcome."""
    found = data.get("regressions")
    if not found:
        raise NothingToDrawError("There are no regressions: run `audit` with `regressions=True` for this chart.")
    spread = {one["outcome"]: one["standard_deviation"] for one in found["outcomes"]}
    several = len({row["group"] for row in found["rows"]}) > 1
    rows = []
    for row in (row for row in found["rows"] if not row["column"] and is_number(row["effect"]["value"])):
        effect, unit = row["effect"], spread[row["outcome"]]
        label = f"{row['outcome']}: {shortened(row['group'], 30)}" if several else row["outcome"]
        ends = {k: effect[k] / unit if unit else 0.0 for k in ("value", "low", "high") if is_number(effect[k])}
        interval = f" ({effect['low']:.4g} to {effect['high']:.4g})" if "low" in ends else ""
        shown = f"{effect['value']:.4g}{interval}"
        controls = _CONTROLS[row["controls"]]
        rows.append((label, {"series": controls, "shown": shown, "people": effect["n_people"], **ends}))
    check_any(rows, "no regression could be estimated")
    names = list(dict.fromkeys(label for label, _ in rows))[:_MOST_LINES]
    group = "Group" if several else shortened(found["rows"][0]["group"], 16)
    points = forest(
        [row for row in rows if row[0] in names],
        f"{group} minus {shortened(found['reference'], 16)}, standard deviations",
        "effect of the group on each outcome, as more is held equal.",
        series=[words for words in _CONTROLS.values() if any(row["series"] == words for _, row in rows)],
        legend="held equal",
    )
    tested = [row for row in found["rows"] if not row["column"] and is_number(row["p_adjusted"])]
    parts = []
    for controls, words in (("none", "nothing"), ("all inputs", "all inputs")):
        among = [row for row in tested if row["controls"] == controls]
        clear = [row for row in among if row["p_adjusted"] <= SIGNIFICANT]
        if among:
            parts.append(f"{len(clear)} of {len(among)} with {words} held equal")
    return points, (
        f"Differences beyond chance after adjustment: {', '.join(parts) or 'none could be tested'}{_direction(data)}. "
        "If a difference disappears as more is held equal, it runs through what is held equal."
    )


class Regressions(Section):
    """The effect of the group on outcomes, as more is held equal."""

    key, title, reads, is_pooled = "regressions", "Regressions", "regressions", True
    parts = (RegressedOutcome,)
    charts = (coefficients,)
    words: ClassVar = {
        "held equal": "What a regression controls for.",
        "average marginal effect": "How much the share of favorable decisions would change if everyone were in the "
        "group rather than in the reference group, all else being equal.",
        "odds ratio of a logit": "Odds of a favorable decision in the group divided by those in the reference group, "
        "all else being equal; 1 means equal odds.",
    }

    prose = (
        "The same outcomes by regression, as in a fair-lending file: on the group alone, with the financial "
        "features held equal, and with all inputs held equal except those that reveal the group. What remains with "
        "all inputs held equal does not run through them one by one; if decisions follow from the inputs by a "
        "linear score, nothing remains to be estimated. Leaves hold finances and label equal."
    )

    def of(self, totals: Totals) -> RegressionsFound | None:
        if totals.batch is None or totals.outcomes is None:
            return None
        evidence, reference = totals.part(Excess), totals.part(Outcome).approvals.reference
        gaps = () if evidence is None else evidence.score_gaps
        return regressions_of(totals.fitted, totals.batch, totals.outcomes, reference, gaps)

    def tables(self, summary: Summary) -> Sequence[Table]:
        columns = dict.fromkeys(row["column"] for row in summary["regressions"]["rows"])  # "" for everyone first
        return [regression_table(summary, column) for column in columns]

    def notes(self, summary: Summary) -> Sequence[str]:
        """What is held equal, and what is not."""
        found = summary["regressions"]
        errors = {
            "robust": "robust to unequal variances (HC1; White's for logits)",
            "clustered": "clustered by applicant",
        }
        notes = [
            "A decision is regressed with a logit and shown as an average marginal effect, in shares of people, and as "
            "an odds ratio; anything else with least squares, in its unit. Standard errors are "
            f"{errors[found['errors']]}. p-values are adjusted (Holm) over groups and outcomes, and over the segments "
            "of a column, with the same controls; the table of score gaps adjusts those in leaves.",
        ]
        finances = found["controls"].get("financial features", ())
        if finances:
            notes.append(f"Finances held equal: {', '.join(shortened(name, 40) for name in finances)}.")
        notes += [f"Not held equal: {shortened(name, 40)}, because {why}." for name, why in found["left_out"].items()]
        return (*notes, *(f"{note[:1].upper()}{note[1:]}." for note in found["notes"]))

    def sheets(self, summary: Summary) -> Sequence[Table]:
        return (regression_table(summary),)  # also if not asked for: the sheet says so
