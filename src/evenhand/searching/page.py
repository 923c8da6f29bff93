"""The search for an alternative as one HTML file: what was tried, why it was passed over, what the choice costs."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

from evenhand.report.formatting import count, decimal, interval, listed, percent
from evenhand.report.frame import Finding, KeyMetric, Panel, Section, panel_of, render
from evenhand.report.tables import Column, Record, Table, estimate
from evenhand.searching.charts import frontier_chart, gain_chart, stopping_chart
from evenhand.searching.families import SPECS
from evenhand.searching.links import file_links, rival_words
from evenhand.searching.metrics import AXES, direction_of
from evenhand.searching.tables import (
    candidate_table,
    confirmation_table,
    gain_table,
    kind_of,
    score_gap_table,
    stopping_table,
)
from evenhand.searching.words import capital, metric_words

__all__ = ["search_page"]

_TOLD = ("auc", "eo_gap", "positive_rate", "excess")
_READINGS = {
    "gain": "a gain beyond noise",
    "cost": "a cost beyond noise",
    "higher": "higher beyond noise",
    "lower": "lower beyond noise",
}
Data = Mapping[str, Any]


def search_page(data: Data, files: Mapping[str, str] | None = None) -> str:
    """The page as text. All texts are escaped, and the browser runs and fetches nothing that is not in the page.

    Parameters
    ----------
    data
        What `SearchResult.to_dict` returns.
    files
        Files that the page links to: paths relative to the page, by description.
    """
    finding = Finding(
        _headline(data), [("", sentence) for sentence in _sentences(data)], _key_metrics(data), data["warnings"]
    )
    sections = [
        Section("verdict", "Verdict", finding=finding),
        Section("question", "What was searched for", points=_question(data)),
        *_confirmed(data),
        *_cost(data),
        Section("candidates", "Candidates tried", (_front_words(data),), panels=[_frontier(data)]),
        Section("reasons", "Why each was passed over", tables=[candidate_table(data, is_ranked=True)]),
        *_left_to_gain(data),
        *file_links(files or {}),
        Section("limits", "Limits", data["limits"]),
    ]
    title = f"{count(len(data['candidates']))} candidates, {data['settings']['folds']} folds"
    return render("search for an alternative", title, sections)


def _confirmed(data: Data) -> list[Section]:
    """What the people held out show, if there are any."""
    if data["confirmation"] is None:
        return []
    title = "What people held out of the search show"
    return [Section("confirmed", title, (_CONFIRMED_WORDS,), tables=[confirmation_table(data)])]


def _cost(data: Data) -> list[Section]:
    """What the choice costs and gains, unless it is the unconstrained candidate."""
    if data["chosen"] in (None, data["unconstrained"]):
        return []
    gains = data["cost_and_gain"]
    axes = [axis for axis in AXES if any(row["axis"] == axis for row in gains)]
    panels = [_gain_panel(gains, axis) for axis in axes]
    tables = [gain_table(gains), score_gap_table(data)]
    return [
        Section("cost", "What the choice costs and gains", (_COST_WORDS,), panels=panels, tables=tables, is_wide=True)
    ]


def _headline(data: Data) -> str:
    candidates, chosen, metric = data["candidates"], data["chosen"], data["minimize"]
    n, words = count(len(candidates)), metric_words(metric)
    if chosen is None:
        return f"None of the {n} candidates meets the constraints."
    if chosen == data["unconstrained"]:
        rival = "The unconstrained candidate" if data["start"] is None else "Your model"
        return f"{rival} is chosen: none of {n} meets the constraints with a better {words}."
    mine, theirs = (decimal(candidates[k]["metrics"][metric]["value"]) for k in (chosen, data["unconstrained"]))
    without = "without constraints it is" if data["start"] is None else "your model has"
    told = f"Candidate {chosen} of {n} meets the constraints with {_article(words)} of {mine}; {without} {theirs}."
    if data["confirmation"] is None:
        return told
    of = data["confirmation"]["candidates"][0]
    missed = [limit["about"] for limit in of["limits"] if limit["answer"] == "not confirmed"]
    but = f", and misses {listed(missed)}" if missed else ""
    return f"{told} On people held out: {of['objective']['answer']}{but}."


def _sentences(data: Data) -> list[str]:
    """The choice, and its main metrics with honest differences."""
    chosen, unconstrained, gains = data["chosen"], data["unconstrained"], data["cost_and_gain"]
    if chosen is None:
        return ["A table below says why each candidate was passed over. Loosen the constraints, or widen the space."]
    told = [*data["sentences"], f"Chosen: {data['candidates'][chosen]['words']}."]
    if chosen == unconstrained:
        return [*told, "Nothing is gained and nothing is lost. A table below says why the others were passed over."]
    told.append(f"Compared with: {data['candidates'][unconstrained]['words']}.")
    by_name = {row["metric"]: row for row in gains}
    is_honest = math.isfinite(gains[0]["honest_ci_low"])
    for name in dict.fromkeys((data["minimize"], *_TOLD)):
        row, words = by_name[name], metric_words(name)
        value, low, high, reading = (
            row[f"{'honest_' if is_honest else ''}{key}"] for key in ("difference", "ci_low", "ci_high", "reading")
        )
        told.append(
            f"{capital(words)}: from {decimal(row['unconstrained'])} to {decimal(row['chosen'])}; difference "
            f"{decimal(value)}, 95% interval {interval(low, high)}: {_READINGS.get(reading, reading)}."
        )
    told.append(
        "Differences are honest: each fold judges a choice that was made without it."
        if is_honest
        else "Differences are from the search itself and flatter the choice: there are too few folds for honest ones."
    )
    return told


def _key_metrics(data: Data) -> list[KeyMetric]:
    by_name = {row["metric"]: row for row in data["cost_and_gain"]}
    return [
        KeyMetric(
            capital(metric_words(name)),
            _value(name, by_name[name]["chosen"]),
            f"{rival_words(data)} {_value(name, by_name[name]['unconstrained'])}",
        )
        for name in dict.fromkeys((data["minimize"], data["frontier"]["utility"], "auc", "eo_gap", "positive_rate"))
        if name in by_name
    ]


def _question(data: Data) -> tuple[tuple[str, str], ...]:
    people, folds, seeds = data["people"], data["settings"]["folds"], data["settings"]["seeds"]
    groups = ", ".join(f"{name} {count(n)}" for name, n in people["groups"].items())
    held = f"; {count(people['confirming'])} more were held out of the search" if people["confirming"] else ""
    trained = "one model" if seeds == 1 else f"{seeds} models with averaged metrics"
    return (
        ("Constraints", "; ".join(data["keep"]) or "none"),
        ("Minimized" if direction_of(data["minimize"]) < 0 else "Maximized", metric_words(data["minimize"])),
        *_payoff(data["settings"]["payoff"]),
        ("Family", "; ".join(SPECS[name].words for name in data["families"])),
        ("People", f"{count(people['searched'])} were searched on{held}. Groups of everyone: {groups}"),
        ("Matched on", ", ".join(people["financial_features"])),
        (
            "Judged by",
            f"{folds} folds, {trained} in each, every candidate on the same people. Differences are computed fold by "
            "fold, with the correction of Nadeau and Bengio for overlapping training sets",
        ),
    )


def _payoff(payoff: Mapping[str, float] | None) -> tuple[tuple[str, str], ...]:
    """What decisions are worth, if given."""
    if payoff is None:
        return ()
    return (("Payoff", ", ".join(f"{name.replace('_', ' ')} {decimal(value, 2)}" for name, value in payoff.items())),)


_CONFIRMED_WORDS = (
    "These people had no part in the choice. Each candidate, like the unconstrained one, is refitted on everyone "
    "searched on and evaluated once on them. Confirmed: the whole interval says so. Not confirmed: the interval "
    "excludes what the search saw. Too few people to say: it includes both. A constraint is confirmed if the whole "
    "interval of the distance from its limit is on the right side, which takes many people."
)
_COST_WORDS = (
    "Differences are the chosen candidate minus the unconstrained one, on the same people. Those from the search "
    "itself flatter the choice, since the best of many was kept. In honest ones each fold judges a choice made without "
    "it; those held out are from people whom the search never saw. An excess is how much more pairs across groups "
    "differ than placebo pairs within a group. The score gap is at equal finances, in the unit of the score; its parts "
    "through the inputs add up to it, and the sum of their sizes also counts parts that cancel."
)


def _front_words(data: Data) -> str:
    axes = [metric_words(name) for name in dict.fromkeys(("auc", "eo_gap", data["minimize"]))]
    return (
        f"{count(len(data['front']))} of {count(len(data['candidates']))} candidates are on the front: no other is at "
        f"least as good in {', '.join(axes[:-1])} and {axes[-1]}, and better beyond noise in one of them. A long front "
        "means that these people cannot tell many candidates apart."
    )


def _gain_panel(gains: list[Record], axis: str) -> Panel:
    """Honest differences of an axis with intervals, in the direction in which more is better."""
    rows = []
    for row in gains:
        sign = direction_of(row["metric"])
        if row["axis"] != axis or not sign or not math.isfinite(row["honest_ci_low"]):
            continue
        low, high = sorted((sign * row["honest_ci_low"], sign * row["honest_ci_high"]))
        rows.append(
            {
                "metric": capital(metric_words(row["metric"])),
                "gain": sign * row["honest_difference"],
                "low": low,
                "high": high,
                "reading": row["honest_reading"],
                "difference": decimal(row["honest_difference"]),
                "interval": interval(row["honest_ci_low"], row["honest_ci_high"]),
            }
        )
    caption = "Right of the line the chosen candidate is better, left of it worse; bars are honest 95% intervals."
    chart = gain_chart(rows, axis) if rows else "There are too few folds for honest differences."
    return panel_of(f"gains-{axis}", capital(axis), caption, chart, gain_table(gains, axis))


def _frontier(data: Data) -> Panel:
    """Utility against the metric that is minimized, one point for each candidate, with the frontier."""
    frontier = data["frontier"]
    names = frontier["utility"], frontier["objective"]
    words = metric_words(names[0]), metric_words(names[1])
    place = {k: n for n, k in enumerate(frontier["candidates"])}
    # With two folds, intervals would be as wide as the chart.
    barred = {*place, data["chosen"], data["unconstrained"]} if data["settings"]["folds"] > 2 else set()
    records = [_point(c, names, place, barred) for c in data["candidates"]]
    columns = (
        Column("candidate", "whole"),
        estimate(words[0], f"{names[0]}"),
        estimate(words[1], f"{names[1]}", kind_of(names[1])),
        Column("status", "text"),
        Column("front", "text"),
    )
    shown = [
        row | {name: c["metrics"][name] for name in names} for row, c in zip(records, data["candidates"], strict=True)
    ]
    table = Table("Frontier", "Candidates", columns, shown)
    known = [row for row in records if math.isfinite(row["utility"]) and math.isfinite(row["metric"])]
    caption = (
        "Means over folds and seeds. The line joins those that are best by their means; bars are 95% intervals over "
        "folds. A full point is on the front, an empty one is dominated beyond noise."
    )
    chart = frontier_chart(known, words) if known else "No candidate has metrics."
    return panel_of("frontier", f"{capital(words[0])} and {words[1]}", caption, chart, table)


def _point(
    candidate: Record, names: tuple[str, str], place: Mapping[int, int], barred: Collection[int]
) -> dict[str, Any]:
    """A candidate's row for the chart of the frontier."""
    k = candidate["candidate"]
    utility, metric = (candidate["metrics"][name] for name in names)
    row = {
        "candidate": k,
        "parameters": candidate["words"],
        "utility": utility["value"],
        "metric": metric["value"],
        "status": _status(candidate),
        "is_on_front": candidate["is_on_front"],
        "front": "on the front" if candidate["is_on_front"] else "dominated",
    }
    ends = {
        f"{what}_{end}": of[f"ci_{end}"]
        for what, of in (("utility", utility), ("metric", metric))
        for end in ("low", "high")
    }
    if k in place:
        row |= {"place": place[k]}
    if k in barred and all(math.isfinite(end) for end in ends.values()):
        row |= {"has_interval": True, **ends}
    return row


def _left_to_gain(data: Data) -> list[Section]:
    """How much candidates that were not tried could still gain; empty if too few were drawn to say."""
    stopping, words = data["stopping"], metric_words(data["minimize"])
    if not stopping["bounds"]:
        return []
    rows = [
        {"n_draws": bound["n_draws"], "line": line, "value": bound[key]}
        for line, key in (("best found so far", "best"), ("gain of one further candidate, at most", "gain_of_1"))
        for bound in stopping["bounds"]
    ]
    caption = f"The lines hold after all draws at once with at least {percent(1 - stopping['delta'], 0)} probability."
    table = stopping_table(stopping, words)
    panel = panel_of("left", "What further candidates could gain", caption, stopping_chart(rows, words), table)
    return [
        Section("left", "What is left to gain", (left_to_gain(data),), panels=[panel], points=_assumed(stopping)),
    ]


def _assumed(stopping: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    return tuple((f"Assumption {k}", text) for k, text in enumerate(stopping["assumptions"], start=1))


def left_to_gain(data: Data) -> str:
    """What the bound on further candidates says, in a sentence or two."""
    stopping, last = data["stopping"], data["stopping"]["bounds"][-1]
    if stopping["is_whole_space"] and not stopping["n_left"]:
        return (
            f"All {count(stopping['n_draws'])} constrained candidates of the space were tried, so nothing is left to "
            "gain within it. The curve shows how much could have been left after fewer."
        )
    told = (
        f"After {count(last['n_draws'])} random candidates, at most {percent(last['share_better'])} of those that this "
        f"search could draw are better than the best found, and one further candidate lowers the "
        f"{metric_words(data['minimize'])} by at most {decimal(last['gain_of_1'], 4)} on average "
        f"({percent(1 - stopping['delta'], 0)} confidence)."
    )
    if stopping["n_left"]:
        return f"{told} The search stopped there: {count(stopping['n_left'])} candidates were not tried."
    return told


def _status(candidate: Record) -> str:
    if candidate["status"] in ("chosen", "failed"):
        return str(candidate["status"])
    if candidate["is_unconstrained"]:
        return "your model" if candidate["is_start"] else "unconstrained"
    return "meets the constraints" if candidate["status"] == "passed over" else str(candidate["status"])


def _value(name: str, value: float) -> str:
    return percent(value) if kind_of(name) == "share" else decimal(value)


def _article(words: str) -> str:
    return f"{'an' if words[0].lower() in 'aeio' or words == 'F1' else 'a'} {words}"
