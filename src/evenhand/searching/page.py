"""The search for an alternative as one HTML file: what was tried, why it was passed over, what the choice costs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from evenhand.report.charts import specification
from evenhand.report.comparison_page import _page, _Section
from evenhand.report.figures import Figure
from evenhand.report.formatting import count, decimal, interval, percent
from evenhand.report.tables import Table
from evenhand.report.theme import VARIABLES
from evenhand.searching.figures import AXES, DIRECTIONS

if TYPE_CHECKING:
    import altair as alt

    from evenhand.searching.result import SearchResult

__all__ = ["FIGURE_WORDS", "search_page"]

FIGURE_WORDS = {
    "auc": "AUC",
    "ks": "KS distance of the two labels",
    "f1": "F1",
    "eo_gap": "equalized-odds gap",
    "air": "adverse impact ratio",
    "sp_gap": "statistical-parity gap",
    "positive_rate": "positive rate",
    "excess": "excess over placebo pairs",
    "reasoning_gap": "reasoning gap",
    "reasoning_excess": "reasoning gap over placebo pairs",
    "excess_regime_b": "Regime B over placebo pairs",
    "cec": "CEC score",
}
_STATUS_COLOURS = {
    "chosen": VARIABLES.regimes[1],
    "passed over": VARIABLES.floor,
    "does not meet the constraints": VARIABLES.muted,
    "unconstrained": VARIABLES.regimes[0],
}
_WIDTH, _HEIGHT, _STEP = 560, 320, 26


def search_page(result: SearchResult) -> str:
    """The page as text; every text is escaped, and the browser runs and fetches nothing but what is in it."""
    data = result.to_dict()
    gains = data["cost_and_gain"]
    sections = [
        _Section("verdict", "Verdict"),
        _Section("question", "What was searched for", points=_question(result, data)),
        _Section(
            "cost", "What the choice costs and gains", _cost_words(), (_gain_figure(gains),), (_gain_table(gains),)
        ),
        _Section("candidates", "Candidates tried", _front_words(result), (_plane(result, data),)),
        _Section("reasons", "Why each was passed over", tables=(_reason_table(data),), is_wide=True),
        _Section("limits", "Limits", tuple(data["limits"])),
    ]
    return _page(
        kind="search for an alternative",
        title=f"{len(result.tried)} candidates, {result.judging.folds} folds",
        headline=_headline(result),
        sentences=_sentences(gains),
        key_figures=_key_figures(result, gains),
        warnings=[],
        sections=sections,
    )


def _headline(result: SearchResult) -> str:
    if result.chosen is None:
        return f"None of the {len(result.tried)} candidates meets the constraints."
    if result.chosen == result.unconstrained:
        return "No candidate was found that meets the constraints with a lower value than the unconstrained model's."
    return f"Candidate {result.chosen} was chosen: {result.tried[result.chosen].words(result.tried)}."


def _sentences(gains: list[dict[str, Any]]) -> list[str]:
    told = []
    for row in gains:
        if row["figure"] in ("auc", "eo_gap", "reasoning_gap", "excess"):
            words = FIGURE_WORDS[row["figure"]]
            told.append(
                f"{words[0].upper()}{words[1:]}: {decimal(row['unconstrained'])} unconstrained, "
                f"{decimal(row['chosen'])} chosen; judged by choices that did not see the fold the difference is "
                f"{decimal(row['honest_difference'])} "
                f"({interval(row['honest_ci_low'], row['honest_ci_high'])}), {row['reading']} in the search itself."
            )
    return told


def _key_figures(result: SearchResult, gains: list[dict[str, Any]]) -> list[tuple[str, str, str]]:
    shown = dict.fromkeys(("auc", "eo_gap", "positive_rate", result.rule.minimize))
    by_name = {row["figure"]: row for row in gains}
    return [
        (
            FIGURE_WORDS[name],
            decimal(by_name[name]["chosen"]),
            f"unconstrained {decimal(by_name[name]['unconstrained'])}",
        )
        for name in shown
        if name in by_name
    ]


def _question(result: SearchResult, data: dict[str, Any]) -> tuple[tuple[str, str], ...]:
    people = data["people"]
    groups = ", ".join(f"{name} {count(n)}" for name, n in people["groups"].items())
    keep = "; ".join(data["keep"]) or "none"
    held = f"; {count(people['confirming'])} were held out of the search" if people["confirming"] else ""
    return (
        ("Constraints", keep),
        ("Minimised", FIGURE_WORDS[data["minimize"]]),
        ("Family", "networks" if data["family"] == "network" else "gradient-boosted trees"),
        ("People", f"{count(people['searched'])} were searched on{held}. Groups: {groups}"),
        ("Matched on", ", ".join(people["financial_features"])),
        (
            "Judged by",
            f"{result.judging.folds} folds and {result.judging.seeds} seed(s) per fold; every candidate on the same "
            "people. Differences are taken fold by fold, with the correction of Nadeau and Bengio for training sets "
            "that overlap",
        ),
    )


def _cost_words() -> tuple[str, ...]:
    return (
        "Differences are of the chosen candidate less the unconstrained one, on the same folds. The first interval is "
        "of the search itself and flatters the choice, since the best of many was kept. In the second each fold is "
        "judged by a choice made without it.",
    )


def _front_words(result: SearchResult) -> tuple[str, ...]:
    return (
        f"{len(result.front)} of {len(result.tried)} candidates are on the front: no other is at least as good in AUC, "
        f"equalized-odds gap and {FIGURE_WORDS[result.rule.minimize]}, and better beyond noise in one of them.",
    )


def _gain_table(gains: list[dict[str, Any]]) -> Table:
    columns = ["figure", "axis", "unconstrained", "chosen", "difference", "95 % interval", "honest difference"]
    columns += ["95 % interval ", "reading"]
    has_confirmed = bool(gains) and "confirmed_chosen" in gains[0]
    columns += ["held out: unconstrained", "held out: chosen"] if has_confirmed else []
    rows = []
    for row in gains:
        cells = [FIGURE_WORDS[row["figure"]], row["axis"], decimal(row["unconstrained"]), decimal(row["chosen"])]
        cells += [decimal(row["difference"]), interval(row["ci_low"], row["ci_high"])]
        cells += [decimal(row["honest_difference"]), interval(row["honest_ci_low"], row["honest_ci_high"])]
        cells.append(row["reading"])
        if has_confirmed:
            cells += [decimal(row["confirmed_unconstrained"]), decimal(row["confirmed_chosen"])]
        rows.append(tuple(cells))
    is_number = tuple(head not in ("figure", "axis", "reading") for head in columns)
    return Table(tuple(columns), tuple(rows), is_number, "Cost and gain against the unconstrained candidate")


def _reason_table(data: dict[str, Any]) -> Table:
    columns = (
        "candidate",
        "parameters",
        "AUC",
        "EO gap",
        "positive rate",
        FIGURE_WORDS[data["minimize"]],
        "front",
        "why",
    )
    shown = ("auc", "eo_gap", "positive_rate", data["minimize"])
    rows = tuple(
        (
            str(c["candidate"]),
            c["words"],
            *(
                percent(c["figures"][n]["value"]) if n == "positive_rate" else decimal(c["figures"][n]["value"])
                for n in shown
            ),
            "yes" if c["is_on_front"] else "",
            c["reason"],
        )
        for c in data["candidates"]
    )
    return Table(columns, rows, (True, False, True, True, True, True, False, False), "Every candidate, and why")


def _plane(result: SearchResult, data: dict[str, Any]) -> Figure:
    """AUC against the figure that is minimised, one point for each candidate."""
    import altair as alt

    name = result.rule.minimize if result.rule.minimize != "auc" else "reasoning_gap"
    rows = []
    for c in data["candidates"]:
        auc, other = c["figures"]["auc"], c["figures"][name]
        if math.isfinite(auc["value"]) and math.isfinite(other["value"]):
            status = "unconstrained" if c["is_unconstrained"] and c["status"] != "chosen" else c["status"]
            rows.append(
                {
                    "candidate": c["candidate"],
                    "parameters": c["words"],
                    "auc": auc["value"],
                    "figure": other["value"],
                    "status": status,
                    "front": "on the front" if c["is_on_front"] else "dominated",
                }
            )
    words = FIGURE_WORDS[name]
    title, caption = "Utility and procedure", "A full point is on the front. Figures are means over folds."
    present = [status for status in _STATUS_COLOURS if any(row["status"] == status for row in rows)]
    table = _reason_table(data)
    if not rows:
        return Figure("plane", title, caption, "", None, "No candidate has figures.", table)
    chart: alt.Chart = (
        alt.Chart(_values(rows))
        .mark_point(size=70, filled=True)
        .encode(
            x=alt.X("auc:Q", title="AUC", scale=alt.Scale(zero=False)),
            y=alt.Y("figure:Q", title=words, scale=alt.Scale(zero=False)),
            color=alt.Color(
                "status:N",
                title=None,
                scale=alt.Scale(domain=present, range=[_STATUS_COLOURS[status] for status in present]),
            ),
            fillOpacity=alt.FillOpacity(
                "front:N", scale=alt.Scale(domain=["on the front", "dominated"], range=[1.0, 0.15]), title=None
            ),
            tooltip=[alt.Tooltip(f"{field}:N") for field in ("candidate", "parameters", "status", "front")],
        )
        .properties(width=_WIDTH, height=_HEIGHT, description=f"AUC and {words} of {len(rows)} candidates.")
    )
    return Figure("plane", title, caption, str(chart.description), specification(chart), "", table)


def _gain_figure(gains: list[dict[str, Any]]) -> Figure:
    """Honest differences with intervals, in the direction in which more is better."""
    import altair as alt

    title = "Gains and costs, judged by choices that did not see the fold"
    caption = "Right of the line the chosen candidate is better, left of it worse; the line is the 95 % interval."
    known = [row for row in gains if math.isfinite(row["honest_ci_low"]) and DIRECTIONS[row["figure"]]]
    table = _gain_table(gains)
    if not known:
        return Figure("gains", title, caption, "", None, "There are too few folds for an honest estimate.", table)
    rows = []
    for row in known:
        sign = DIRECTIONS[row["figure"]]
        ends = sorted((sign * row["honest_ci_low"], sign * row["honest_ci_high"]))
        rows.append(
            {
                "figure": FIGURE_WORDS[row["figure"]],
                "gain": sign * row["honest_difference"],
                "low": ends[0],
                "high": ends[1],
                "axis": row["axis"],
            }
        )
    order = [FIGURE_WORDS[name] for names in AXES.values() for name in names]
    base = alt.Chart(_values(rows)).encode(y=alt.Y("figure:N", title=None, sort=order))
    line = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title="gain"), x2="high:Q")
    point = base.mark_point(size=60, filled=True).encode(x="gain:Q", color=alt.Color("axis:N", title=None))
    zero = alt.Chart(_values([{"zero": 0}])).mark_rule(strokeDash=[4, 4]).encode(x="zero:Q")
    chart = alt.layer(zero, line, point).properties(
        width=_WIDTH, height=_STEP * len(rows), description="Gain of the chosen candidate by figure, with intervals."
    )
    return Figure("gains", title, caption, str(chart.description), specification(chart), "", table)  # type: ignore[arg-type]


def _values(rows: list[dict[str, Any]]) -> alt.Data:
    """Rows as a chart's own data."""
    import altair as alt

    return alt.Data(values=rows)  # type: ignore[no-untyped-call]
