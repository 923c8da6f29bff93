"""The score gap at equal finances, in total and through each input."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar

import altair as alt

from evenhand.auditing.evidence import Evidence, gap_key, input_key
from evenhand.report.drawing import (
    MOST_FEATURES,
    NothingToDrawError,
    chart_of,
    finished,
    forest,
    guide_x,
    quantity,
    size_of,
    tooltips,
)
from evenhand.report.formatting import capital, count, decimal, interval, is_number, percent, shortened
from evenhand.report.section import (
    NO_EVIDENCE,
    AuditMetric,
    Drawing,
    Section,
    Summary,
    SummaryRow,
    chart,
    lacking,
    number,
)
from evenhand.report.tables import NOTE, Column, Record, Table, estimate, p_adjusted, text

_NOT_TESTED = "finances are equal here: its part comes from how they interact with other inputs, and is not tested"


def gaps_of(evidence: Evidence) -> dict[str, Any]:
    """The score gaps of an audit's evidence, by their keys in the summary."""
    gaps: dict[str, Any] = {
        "score_gaps": [gap.to_dict() for gap in evidence.score_gaps],
        "score_gap": evidence.largest_score_gap.metrics,
    }
    if evidence.segment_gaps:
        gaps["segment_gaps"] = [gap.to_dict() for gap in evidence.segment_gaps]
    if evidence.influences is not None:
        gaps["influences"] = evidence.influences.to_dict()
    return gaps


def largest_gap(summary: Summary) -> Mapping[str, Any]:
    """The score gap of the two groups that `summary["score_gap"]` names.

    Raises
    ------
    NothingToDrawError
        If the audit was run without evidence.
    """
    if summary["evidence"] is None:
        raise NothingToDrawError("There is no score gap: the audit was run without evidence.")
    named = summary["score_gap"]["group"], summary["score_gap"]["reference"]
    return next(gap for gap in summary["score_gaps"] if (gap["group"], gap["reference"]) == named)


def score_gap_table(summary: Summary) -> Table:
    """Score gaps of every two groups: in total, in probability, in decisions and through each input."""
    records: list[Record] = []
    for gap in summary.get("score_gaps", ()):
        named = {"group": gap["group"], "reference": gap["reference"]}
        parts = (
            ("all inputs together" if gap["features"] else "in total", "total", gap["unit"], gap["p_adjusted"], ""),
            ("in probability", "probability", "probability", "", "probability"),
            ("in favorable decisions", "decision", "share", "", "decisions"),
        )
        records += [
            {**gap[key], **named, "part": part, "unit": unit, "p_adjusted": p_adjusted}
            for part, key, unit, p_adjusted, need in parts
            if not lacking(summary, need)
        ]
        for row in gap["features"]:
            record = {**row, **named, "part": row["feature"], "unit": gap["unit"]}
            if is_number(row["value"]) and not is_number(row["p_adjusted"]):
                record |= {"p_adjusted": "", "note": row["note"] or _NOT_TESTED}
            records.append(record)
    columns = (
        text("group"),
        text("reference"),
        text("part"),
        estimate("gap", lambda r: r),
        text("unit"),
        Column("p-value, two-sided", "p", "p_value"),
        Column("p-value, adjusted", "p", "p_adjusted"),
        Column("smallest gap that a single test finds in 80% of cases", "number", "detectable", where="workbook"),
        NOTE,
    )
    caption = (
        f"Score gap at equal finances, group minus reference group{_direction(summary)}, in total and by input, with "
        "95% intervals; those of inputs hold for all inputs at once."
    )
    return Table("Score gap", caption, columns, records, if_empty=NO_EVIDENCE)


def segment_gap_table(summary: Summary) -> Table:
    """The score gap among people with one value of a column of `by`, in total and by input."""
    records: list[Record] = []
    for gap in summary.get("segment_gaps", ()):
        whole = "all inputs together" if gap["features"] else "in total"
        records.append({**gap, "part": whole})
        tested = [row for row in gap["features"] if is_number(row["p_adjusted"]) and row["value"]]
        records += [
            {**gap, "part": row["feature"], "total": row, "p_adjusted": row["p_adjusted"]}
            for row in sorted(tested, key=lambda row: -abs(row["value"]))
        ]
    columns = (
        text("column"),
        text("value"),
        text("group"),
        text("reference"),
        text("part"),
        Column("people compared", "whole", "n_people"),
        Column("people in leaves with one group", "whole", "n_alone").detail(),
        estimate("gap", "total"),
        text("unit"),
        Column("p-value, two-sided", "p", "total/p_value"),
        p_adjusted("p_adjusted"),
        Column("note", "long text", "total/note"),
    )
    drawn = ", in the first draw of the groups" if "drawn_groups" in summary else ""
    caption = (
        f"Score gap at equal finances among people with one value of a column of `by`{drawn}, in total and by input; "
        "p-values of totals are adjusted over the values of the column (Holm), those of inputs over the inputs."
    )
    return Table("Score gap by segment", caption, columns, records)


def _shuffles(summary: Summary, *, is_input: bool) -> tuple[Mapping[str, Any], Mapping[str, Any]]:
    """The largest gap, and how it, or its clearest input, is distributed over shuffles.

    Raises
    ------
    NothingToDrawError
        If there are no shuffles.
    """
    gap = largest_gap(summary)
    for shuffles in gap["shuffles"]:
        if (shuffles["feature"] is not None) == is_input and is_number(shuffles["observed"]):
            return gap, shuffles
    if gap["shuffles"] and is_input:
        raise NothingToDrawError("There is nothing to draw: no input other than finances makes a difference.")
    why = gap["total"]["note"] or "the gap is a mean over draws of the groups, each with its own shuffles"
    raise NothingToDrawError(f"There is nothing to draw: {why}.")


def _bars(shuffles: Mapping[str, Any]) -> list[dict[str, float]]:
    total, edges = sum(shuffles["counts"]), shuffles["edges"]
    return [
        {"from": low, "to": high, "share": n / total}
        for low, high, n in zip(edges, edges[1:], shuffles["counts"], strict=False)
    ]


def _share_of_shuffles(shuffles: Mapping[str, Any], p_value: float) -> str:
    """In how many shuffles something was at least as large, given its p-value."""
    if not shuffles["is_drawn"]:
        return "less than 0.1% of shuffles" if p_value < 0.001 else f"{percent(p_value)} of shuffles"
    n = round(sum(shuffles["counts"]))
    n_as_large = round(p_value * (n + 1)) - 1  # the actual groups count as a shuffle
    share = f" ({percent(n_as_large / n)})" if n_as_large else ""
    return f"{count(n_as_large) if n_as_large else 'none'} of {count(n)} shuffles{share}"


def _shuffle_table(summary: Summary, *, is_input: bool) -> Table:
    try:
        gap, shuffles = _shuffles(summary, is_input=is_input)
    except NothingToDrawError:
        part, records = "the gap", []
    else:
        part = f"{shuffles['feature'] or 'the gap'}, {gap['group']} minus {gap['reference']}, {gap['unit']}"
        records = _bars(shuffles)
    columns = (Column("from", places=4), Column("to", places=4), Column("share of shuffles", "share", "share"))
    caption = f"Shares of shuffles by what they make of {part}."
    name = "Shuffled input" if is_input else "Shuffled gap"
    return Table(name, caption, columns, records, if_empty=NO_EVIDENCE, needs=("inputs",) if is_input else ())


def _histogram(summary: Summary, gap: Mapping[str, Any], shuffles: Mapping[str, Any]) -> alt.Chart:
    is_input = shuffles["feature"] is not None
    observed, part = shuffles["observed"], shortened(shuffles["feature"] or "gap", 24)
    bars = chart_of(_bars(shuffles)).mark_bar(style="floor", fillOpacity=0.5)
    bars = bars.encode(
        x=quantity(alt.X, "from", _axis(summary, gap), nice=False, zero=False).bin("binned"),
        x2=alt.X2("to:Q"),
        y=quantity(alt.Y, "share", "Share of shuffles", percent=True),
        tooltip=tooltips(("from", ".4f"), ("to", ".4f"), ("share", ".1%", "share of shuffles")),
    )
    words = f"actual {'part' if is_input else 'gap'} {decimal(observed)}"
    line = guide_x(observed, words, "compared", "left" if observed < 0 else "right")
    return finished(
        alt.layer(bars, *line),
        f"Histogram: the {part} after the groups were reshuffled within leaves, around 0; a line marks the actual one, "
        f"{decimal(observed)} {gap['unit']}.",
        200,
    )


@chart("The gap among reshuffled groups", lambda s: _shuffle_table(s, is_input=False), is_detail=True)
def shuffled_gap(data: Summary) -> Drawing:
    """The score gap after reshuffling the groups among people with the same finances, and the actual one."""
    gap, shuffles = _shuffles(data, is_input=False)
    share = _share_of_shuffles(shuffles, gap["total"]["p_value"])
    caption = f"Bars: gaps after reshuffling the groups. Line: the actual gap. As large, on either side of 0: {share}."
    return _histogram(data, gap, shuffles), caption


@chart("The clearest input among reshuffled groups", lambda s: _shuffle_table(s, is_input=True), is_detail=True)
def shuffled_input(data: Summary) -> Drawing:
    """The part of the clearest input after reshuffling the groups, and the actual one."""
    gap, shuffles = _shuffles(data, is_input=True)
    row = next(row for row in gap["features"] if row["feature"] == shuffles["feature"])
    return _histogram(data, gap, shuffles), (
        f"Bars: the part of {shortened(shuffles['feature'], 40)}, which stands out most, after reshuffling the groups. "
        f"Line: the actual part. Any input stood out as much in {_share_of_shuffles(shuffles, row['p_adjusted'])}."
    )


def _axis(summary: Summary, gap: Mapping[str, Any]) -> str | list[str]:
    """The title of an axis of gaps, on two lines if it is long."""
    sides = f"{shortened(gap['group'], 16)} minus {shortened(gap['reference'], 16)}"
    unit = f"{gap['unit']}{' of the favorable outcome' if _is_risk(summary) else ''}"
    return f"{sides}, {unit}" if len(sides) + len(unit) < 40 else [sides, unit]


@chart("Score gap at equal finances", score_gap_table, is_wide=True)
def score_gap(data: Summary) -> Drawing:
    """The score gap at equal finances and the part of each input, with 95% intervals; the largest ones."""
    gap = largest_gap(data)
    inputs = sorted(gap["features"], key=lambda f: -size_of(f["value"]))[:MOST_FEATURES]
    total = gap["total"]
    rows = [("all inputs together" if inputs else "in total", total), *((f["feature"], f) for f in inputs)]
    label = "" if lacking(data, "labels") else " and label"
    parts = "" if lacking(data, "inputs") else "; the inputs below sum to it"
    return forest(rows, _axis(data, gap), "score gap at equal finances, in total and through each input."), (
        f"At equal finances{label}, {shortened(gap['group'], 40)} minus {shortened(gap['reference'], 40)} is "
        f"{decimal(total['value'])} {gap['unit']} ({interval(total['low'], total['high'])}){_direction(data)}{parts}."
    )


def _is_risk(summary: Summary) -> bool:
    return summary["settings"]["favorable"] == "low" and not lacking(summary, "probability")


def _direction(summary: Summary) -> str:
    """Which sign of a gap is bad, where a low score need not be."""
    if lacking(summary, "probability"):
        is_turned = summary["settings"]["favorable"] == "low" and summary["settings"].get("unit")
        return f"; {'above' if is_turned else 'below'} 0, the group is worse off"
    return "; of the favorable outcome, so below 0 the group is rated riskier" if _is_risk(summary) else ""


def _gap_numbers(estimate: Mapping[str, Any], sign: float) -> tuple[float, float, float]:
    """Value, standard error and degrees of freedom."""
    value, error, df = (number(estimate[name]) for name in ("value", "standard_error", "df"))
    return value * sign, error, math.inf if error == 0 else df


class ScoreGap(Section):
    """Differences in score between comparable people of two groups."""

    key, title, is_pooled, is_logged = "score-gap", "Score gap, by input", True, False
    answers, more = ("score_gap", "inputs"), "How far chance alone moves the gap, and the gap within segments"
    charts = (score_gap, shuffled_gap, shuffled_input)
    words: ClassVar = {
        "score gap": "Difference in score between comparable people of two groups at equal finances and label, group "
        "minus reference group.",
        "leaf": "About 20 to 40 people with the same label and alike finances. Everyone in it is given the same "
        "finances, so what still differs between two of them is not finances.",
        "reshuffle": "Deal the groups of the people in a leaf out again at random, many times. It shows how large a "
        "gap would be if the group played no role.",
        "log-odds": "The logarithm of the odds of the favorable outcome; near even odds, 0.1 is 2.5 points of "
        "probability.",
    }

    def paragraphs(self, summary: Summary) -> Sequence[str]:
        if not summary["evidence"]:
            return ()
        gap, has_inputs = largest_gap(summary), not lacking(summary, "inputs")
        alike = "alike finances" if lacking(summary, "labels") else "the same label and alike finances"
        n_people, n_reference = summary["data"]["n_people"], summary["data"]["n_reference"]
        size = " of about 20 to 40" if 4 * (n_reference or n_people) >= n_people else ""  # else of more
        equal = (
            "and everyone in a leaf was given the same finances. What still differs between two people of a leaf is "
            "not finances; what it has to do with their actual finances is removed by a regression."
            if has_inputs
            else "and a regression removed what their finances still explain within a leaf."
        )
        sums = (
            "The gap is the sum of the parts that run through each input. An input that predicts the group can carry "
            "the gap even if the model does not see the group."
        )
        return (
            f"Applicants with {alike} were put into leaves{size}, {equal} {self._result(summary, gap)}",
            *((sums,) if has_inputs else ()),
        )

    def _result(self, summary: Summary, gap: Mapping[str, Any]) -> str:
        """What the shuffles showed."""
        sides = f"{shortened(gap['group'], 40)} and {shortened(gap['reference'], 40)}"
        n = gap["n_alone"]
        people = "1 person is in a leaf" if n == 1 else f"{count(n)} people are in leaves"
        alone = (
            f" {people} with only one of these groups, and say{'s' if n == 1 else ''} nothing about a gap." if n else ""
        )
        p_value, shuffles = gap["total"]["p_value"], next(iter(gap["shuffles"]), None)
        if not is_number(p_value):
            return f"{capital(gap['total']['note'])}.{alone}"
        if shuffles is None:
            return (
                "In each draw of the groups, they were reshuffled within leaves to see how far chance alone moves a "
                f"gap; gaps and errors of all draws were pooled.{alone}"
            )
        share = _share_of_shuffles(shuffles, p_value)
        if shuffles["is_drawn"]:
            return (
                "Then the groups of the people in a leaf were reshuffled: dealt out again at random. A gap between "
                f"{sides} as large as the actual one came up in {share}.{alone}"
            )
        return (
            "If the groups of the people in a leaf were reshuffled, that is, dealt out again at random, a gap between "
            f"{sides} as large as the actual one would come up in {share}: the groups are so large that a normal "
            f"distribution stands for the shuffles.{alone}"
        )

    def details(self, summary: Summary) -> Sequence[Table]:
        return (segment_gap_table(summary),) if summary.get("segment_gaps") else ()

    def summary_rows(self, summary: Summary) -> Iterable[SummaryRow]:
        if not summary["evidence"]:
            return
        gap, scope = summary["score_gap"], summary.get("scope")
        side = f"{gap['group']} minus {gap['reference']}, at equal finances"
        if "value" in gap and scope and scope["outcome"] == "value":
            worse = f"{side}{_direction(summary)}"
            yield f"score gap, {scope['unit']}", gap["value"], gap["value"]["note"] or worse, "scores"
        riskier = "; below 0, riskier" if _is_risk(summary) else ""
        for key, words, need in (
            ("logit", "log-odds", "probability"),
            ("probability", "probability", "probability"),
            ("decision", "favorable decisions", "decisions"),
        ):
            beside = side if key == "decision" else f"{side}{riskier}"
            yield f"score gap, {words}", gap[key], gap[key]["note"] or beside, need

    def metrics(self, summary: Summary, reference: str) -> Iterable[AuditMetric]:
        """Score gaps of every two groups, in total and by input, with the same sign in every audit."""
        gaps = summary.get("score_gaps", ())
        for gap in gaps:
            group, other = gap["group"], gap["reference"]
            # Relative to the reference group; other pairs in the order of their names.
            is_turned = group == reference or (other != reference and group < other)
            groups = (other, group) if is_turned else (group, other)
            sign = -1.0 if is_turned else 1.0
            of_groups = f", {groups[0]} minus {groups[1]}"
            for name, unit, words in (
                ("total", "", gap["unit"]),
                ("probability", "probability", "probability"),
                ("decision", "decision", "favorable decisions"),
            ):
                yield AuditMetric(
                    gap_key(*groups, unit),
                    "score_gap",
                    f"score gap in {words}{of_groups}",
                    *_gap_numbers(gap[name], sign),
                    note=gap[name]["note"] if gap[name]["standard_error"] else "",
                    finding=None if unit else "score_gap",
                    unit=unit or gap["unit"],
                    groups=groups,
                    influence=gap_key(group, other, unit),
                    sign=sign,
                )
            for row in gap["features"]:
                is_tested = is_number(row["p_adjusted"])
                yield AuditMetric(
                    input_key(row["feature"], *groups),
                    "inputs",
                    row["feature"] + (of_groups if len(gaps) > 1 else ""),
                    *(_gap_numbers(row, sign) if is_tested else (number(row["value"]) * sign, math.nan, math.inf)),
                    note=(row["note"] if row["standard_error"] else "") if is_tested else row["note"] or _NOT_TESTED,
                    finding="inputs",
                    unit=gap["unit"],
                    groups=groups,
                    influence=input_key(row["feature"], group, other),
                    sign=sign,
                )
