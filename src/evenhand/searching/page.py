"""The search for an alternative as one HTML file: what was tried, why it was passed over, what the choice costs."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from evenhand.report.charts import specification
from evenhand.report.contents import KeyFigure
from evenhand.report.figures import Figure
from evenhand.report.formatting import count, decimal, interval, percent
from evenhand.report.frame import Section, render_sections
from evenhand.report.tables import Table
from evenhand.searching.charts import gain_chart, plane_chart
from evenhand.searching.metrics import AXES, DIRECTIONS

if TYPE_CHECKING:
    from evenhand.searching.result import SearchResult

__all__ = ["FIGURE_WORDS", "search_page"]

FIGURE_WORDS = {
    "auc": "AUC",
    "ks": "KS distance",
    "f1": "F1",
    "eo_gap": "equalized-odds gap",
    "air": "adverse impact ratio",
    "sp_gap": "statistical-parity gap",
    "positive_rate": "positive rate",
    "excess": "excess",
    "reasoning_gap": "reasoning gap",
    "reasoning_excess": "reasoning excess",
    "excess_regime_b": "excess Regime B",
    "cec": "CEC score",
}
_TOLD = ("auc", "eo_gap", "positive_rate", "excess")
_READINGS = {
    "gain": "a gain beyond noise",
    "cost": "a cost beyond noise",
    "higher": "higher beyond noise",
    "lower": "lower beyond noise",
}
Row = dict[str, Any]


def search_page(result: SearchResult) -> str:
    """The page as text; every text is escaped, and the browser runs and fetches nothing but what is in it."""
    data = result.to_dict()
    gains = data["cost_and_gain"]
    sections = [
        Section("question", "What was searched for", points=_question(result, data)),
        Section("candidates", "Candidates tried", _front_words(result), (_plane(result, data),)),
        Section("reasons", "Why each was passed over", tables=(_reason_table(data),)),
        Section("limits", "Limits", tuple(data["limits"])),
    ]
    if result.chosen not in (None, result.unconstrained):
        figures = tuple(_gain_figure(gains, axis) for axis in AXES)
        cost = Section("cost", "What the choice costs and gains", _COST_WORDS, figures, (_gain_table(gains),), (), True)
        sections.insert(1, cost)
    return render_sections(
        kind="search for an alternative",
        title=f"{count(len(result.tried))} candidates, {result.settings.folds} folds",
        headline=_headline(result),
        sentences=_sentences(result, gains),
        key_figures=_key_figures(result, gains),
        sections=sections,
    )


def _headline(result: SearchResult) -> str:
    n, figure = count(len(result.tried)), result.rule.minimize
    words = FIGURE_WORDS[figure]
    if result.chosen is None:
        return f"None of the {n} candidates meets the constraints."
    if result.chosen == result.unconstrained:
        return f"The unconstrained candidate is chosen: none of {n} meets the constraints with a better {words}."
    mine, theirs = (decimal(result.figures[figure][k].mean()) for k in (result.chosen, result.unconstrained))
    return (
        f"Candidate {result.chosen} of {n} meets the constraints with {_article(words)} of {mine}; without constraints "
        f"it is {theirs}."
    )


def _sentences(result: SearchResult, gains: list[Row]) -> list[str]:
    """The choice, and its main figures with honest differences."""
    if result.chosen is None:
        return ["Why each candidate was passed over is said below. Loosen the constraints, or search a wider space."]
    told = [f"Chosen: {result.tried[result.chosen].words(result.tried)}."]
    if result.chosen == result.unconstrained:
        return [*told, "Nothing is gained and nothing lost. Why each of the others was passed over is said below."]
    told.append(f"Compared with: {result.tried[result.unconstrained].words(result.tried)}.")
    by_name = {row["figure"]: row for row in gains}
    is_honest = math.isfinite(gains[0]["honest_ci_low"])
    for name in dict.fromkeys((result.rule.minimize, *_TOLD)):
        row, words = by_name[name], FIGURE_WORDS[name]
        value, low, high, reading = (
            (row["honest_difference"], row["honest_ci_low"], row["honest_ci_high"], row["honest_reading"])
            if is_honest
            else (row["difference"], row["ci_low"], row["ci_high"], row["reading"])
        )
        told.append(
            f"{_capital(words)}: from {decimal(row['unconstrained'])} to {decimal(row['chosen'])}; difference "
            f"{decimal(value)}, 95 % interval {interval(low, high)}: {_READINGS.get(reading, reading)}."
        )
    told.append(
        "Differences are honest ones: each fold is judged by a choice made without it."
        if is_honest
        else "Differences are of the search itself and flatter the choice: there are too few folds for honest ones."
    )
    return told


def _key_figures(result: SearchResult, gains: list[Row]) -> list[KeyFigure]:
    by_name = {row["figure"]: row for row in gains}
    shown = dict.fromkeys((result.rule.minimize, "auc", "eo_gap", "positive_rate"))
    return [
        KeyFigure(
            _capital(FIGURE_WORDS[name]),
            _value(name, by_name[name]["chosen"]),
            f"unconstrained {_value(name, by_name[name]['unconstrained'])}",
        )
        for name in shown
        if name in by_name
    ]


def _question(result: SearchResult, data: Row) -> tuple[tuple[str, str], ...]:
    people, folds, seeds = data["people"], result.settings.folds, result.settings.seeds
    groups = ", ".join(f"{name} {count(n)}" for name, n in people["groups"].items())
    held = f"; {count(people['confirming'])} more were held out of the search" if people["confirming"] else ""
    trained = "one model" if seeds == 1 else f"{seeds} models, of which figures are means,"
    return (
        ("Constraints", "; ".join(data["keep"]) or "none"),
        ("Minimized", FIGURE_WORDS[data["minimize"]]),
        ("Family", "networks" if data["family"] == "network" else "gradient-boosted trees"),
        ("People", f"{count(people['searched'])} were searched on{held}. Groups of all: {groups}"),
        ("Matched on", ", ".join(people["financial_features"])),
        (
            "Judged by",
            f"{folds} folds, {trained} in each, every candidate on the same people. Differences are taken fold by "
            "fold, with the correction of Nadeau and Bengio for training sets that overlap",
        ),
    )


_COST_WORDS = (
    "Differences are of the chosen candidate less the unconstrained one, on the same folds. The first interval of the "
    "table is of the search itself and flatters the choice, since the best of many was kept. In the second, the honest "
    "one, each fold is judged by a choice made without it. An excess is what pairs across groups have over placebo "
    "pairs of the same group.",
)


def _front_words(result: SearchResult) -> tuple[str, ...]:
    axes = [FIGURE_WORDS[name] for name in dict.fromkeys(("auc", "eo_gap", result.rule.minimize))]
    return (
        f"{count(len(result.front))} of {count(len(result.tried))} candidates are on the front: no other is at least "
        f"as good in {', '.join(axes[:-1])} and {axes[-1]}, and better beyond noise in one of them. A long front says "
        "how little these people can tell apart.",
    )


def _gain_table(gains: list[Row], axis: str | None = None) -> Table:
    has_confirmed = "confirmed_chosen" in gains[0]
    columns = ["figure", "unconstrained", "chosen", "difference", "95 % interval", "reading"]
    columns += ["honest difference", "honest 95 % interval", "honest reading"]
    columns += ["held out: unconstrained", "held out: chosen"] if has_confirmed else []
    rows = []
    for row in gains:
        if axis is not None and row["axis"] != axis:
            continue
        cells = [_capital(FIGURE_WORDS[row["figure"]]), decimal(row["unconstrained"]), decimal(row["chosen"])]
        cells += [decimal(row["difference"]), interval(row["ci_low"], row["ci_high"]), row["reading"]]
        cells += [decimal(row["honest_difference"]), interval(row["honest_ci_low"], row["honest_ci_high"])]
        cells.append(row["honest_reading"])
        if has_confirmed:
            cells += [decimal(row["confirmed_unconstrained"]), decimal(row["confirmed_chosen"])]
        rows.append(tuple(cells))
    is_number = tuple(head not in ("figure", "reading", "honest reading") for head in columns)
    return Table(tuple(columns), tuple(rows), is_number, "Cost and gain against the unconstrained candidate")


def _gain_figure(gains: list[Row], axis: str) -> Figure:
    """Honest differences of an axis with intervals, in the direction in which more is better."""
    title, table = _capital(axis), _gain_table(gains, axis)
    caption = "Right of the line the chosen candidate is better, left of it worse; bars are honest 95 % intervals."
    rows = []
    for row in gains:
        sign = DIRECTIONS[row["figure"]]
        if row["axis"] != axis or not sign or not math.isfinite(row["honest_ci_low"]):
            continue
        low, high = sorted((sign * row["honest_ci_low"], sign * row["honest_ci_high"]))
        rows.append(
            {
                "figure": _capital(FIGURE_WORDS[row["figure"]]),
                "gain": sign * row["honest_difference"],
                "low": low,
                "high": high,
                "reading": row["honest_reading"],
                "difference": decimal(row["honest_difference"]),
                "interval": interval(row["honest_ci_low"], row["honest_ci_high"]),
            }
        )
    name = f"gains-{axis}"
    if not rows:
        return Figure(name, title, caption, "", None, "There are too few folds for honest differences.", table)
    chart = gain_chart(rows, axis)
    return Figure(name, title, caption, str(chart.description), specification(chart), "", table)  # type: ignore[arg-type]


def _reason_table(data: Row) -> Table:
    """Every candidate: the chosen one, then those that meet the constraints from the best on, then the others."""
    figure = data["minimize"]
    shown = tuple(dict.fromkeys(("auc", "eo_gap", "positive_rate", figure)))
    sign = -DIRECTIONS[figure]

    def place(candidate: Row) -> tuple[int, float, int]:
        value = candidate["figures"][figure]["value"]
        rank = {"chosen": 0, "passed over": 1}.get(candidate["status"], 2)
        return rank, sign * value if math.isfinite(value) else math.inf, candidate["candidate"]

    rows = tuple(
        (
            str(c["candidate"]),
            c["words"],
            *(_value(name, c["figures"][name]["value"]) for name in shown),
            "yes" if c["is_on_front"] else "no",
            c["reason"],
        )
        for c in sorted(data["candidates"], key=place)
    )
    columns = ("candidate", "parameters", *(_SHORT.get(name, FIGURE_WORDS[name]) for name in shown), "on the front")
    is_number = (True, False, *(True for _ in shown), False, False)
    return Table((*columns, "why"), rows, is_number, "Every candidate, and why")


_SHORT = {"eo_gap": "EO gap"}


def _plane(result: SearchResult, data: Row) -> Figure:
    """AUC against the figure that is minimized, one point for each candidate."""
    name = result.rule.minimize if result.rule.minimize != "auc" else "reasoning_gap"
    rows, cells = [], []
    for c in data["candidates"]:
        auc, other = c["figures"]["auc"]["value"], c["figures"][name]["value"]
        row = {
            "candidate": c["candidate"],
            "parameters": c["words"],
            "auc": auc,
            "figure": other,
            "status": _status(c),
            "is_on_front": c["is_on_front"],
            "front": "on the front" if c["is_on_front"] else "dominated",
        }
        cells.append((str(c["candidate"]), decimal(auc), decimal(other), row["status"], row["front"]))
        if math.isfinite(auc) and math.isfinite(other):
            rows.append(row)
    words = FIGURE_WORDS[name]
    columns = ("candidate", "AUC", words, "status", "front")
    table = Table(columns, tuple(cells), (True, True, True, False, False), "Candidates")
    title, caption = f"AUC and {words}", "Means over folds; a full point is on the front, an empty one is dominated."
    if not rows:
        return Figure("plane", title, caption, "", None, "No candidate has figures.", table)
    chart = plane_chart(rows, words)
    return Figure("plane", title, caption, str(chart.description), specification(chart), "", table)  # type: ignore[arg-type]


def _status(candidate: Row) -> str:
    if candidate["status"] in ("chosen", "failed"):
        return str(candidate["status"])
    if candidate["is_unconstrained"]:
        return "unconstrained"
    return "meets the constraints" if candidate["status"] == "passed over" else str(candidate["status"])


def _value(name: str, value: float) -> str:
    return percent(value) if name == "positive_rate" else decimal(value)


def _article(words: str) -> str:
    return f"{'an' if words[0].lower() in 'aeio' or words == 'F1' else 'a'} {words}"


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
