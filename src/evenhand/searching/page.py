"""The search for an alternative as one HTML file: what was tried, why it was passed over, what the choice costs.

Tables and charts are made from what `SearchResult.to_dict` returns; the workbook has the same tables.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

import altair as alt
from markupsafe import Markup

from evenhand.metrics.estimate import Estimate
from evenhand.metrics.names import AXES, metric_of
from evenhand.report.drawing import (
    VARIABLES,
    chart_of,
    finished,
    forest,
    lines_by_group,
    quantity,
    tooltips,
)
from evenhand.report.formatting import capital, count, decimal, interval, listed, percent
from evenhand.report.frame import Finding, KeyMetric, Panel, Section, panel_of, render
from evenhand.report.tables import Column, Highlight, Record, Table, estimate
from evenhand.searching.families import FAMILIES
from evenhand.searching.space import in_a_cell
from evenhand.searching.stopping import FURTHER

Data: TypeAlias = Mapping[str, Any]

# Status, color, shape and size; later ones are drawn on top.
_STATUSES = (
    ("does not meet the constraints", VARIABLES.muted, "circle", 50),
    ("failed", VARIABLES.muted, "cross", 50),
    ("meets the constraints", VARIABLES.regimes[2], "circle", 70),
    ("unconstrained", VARIABLES.floor, "square", 90),
    ("your model, retrained", VARIABLES.floor, "square", 90),
    ("chosen", VARIABLES.regimes[1], "diamond", 260),
)
_HEIGHT = 320

_CONFIRMED_WORDS = (
    "These people had no part in the choice. Each candidate, like the unconstrained one, is refitted on everyone "
    "searched on and evaluated once on them. Confirmed: the whole interval says so. Not confirmed: the interval "
    "excludes what the search saw. Too few people to say: it includes both. A constraint is confirmed if the whole "
    "interval of the distance from its limit is on the right side, which takes many people."
)
_COST_WORDS = (
    "Differences are the chosen candidate minus the unconstrained one, on the same people. Those from the search "
    "itself flatter the choice, since the best of many was kept. In honest ones each fold judges a choice made without "
    "it, so both metrics, too, are those of these choices; those held out are from people whom the search never saw, "
    "and from the refitted candidates. An excess is how much more pairs across groups differ than placebo pairs within "
    "a group. The score gap is at equal finances, in log-odds for every candidate; its parts through the inputs add up "
    "to it, and the sum of their sizes also counts parts that cancel."
)


def search_page(data: Data, files: Mapping[str, str] | None = None) -> str:
    """The page as text. All texts are escaped, and the browser runs and fetches nothing that is not in the page.

    Parameters
    ----------
    data
        What `SearchResult.to_dict` returns.
    files
        Files that the page links to: paths relative to the page, by description.
    """
    candidates, chosen, gains, stopping = (data[name] for name in ("candidates", "chosen", "cost_and_gain", "stopping"))
    by_name = {row["metric"]: row for row in gains}
    rival = "unconstrained" if data["start"] is None else "your model, retrained"
    key_metrics = [
        KeyMetric(
            capital(metric_of(name).words),
            _value(name, by_name[name]["chosen"]),
            f"{rival} {_value(name, by_name[name]['unconstrained'])}",
        )
        for name in dict.fromkeys((data["minimize"], data["frontier"]["utility"], "auc", "eo_gap", "positive_rate"))
        if name in by_name
    ]
    sentences = [("", sentence) for sentence in _sentences(data)]
    axes = [metric_of(name).words for name in dict.fromkeys(("auc", "eo_gap", data["minimize"]))]
    front = (
        f"{count(len(data['front']))} of {count(len(candidates))} candidates are on the front: no other is at "
        f"least as good in {', '.join(axes[:-1])} and {axes[-1]}, and better beyond noise in one of them. A long front "
        "means that these people cannot tell many candidates apart."
    )
    sections = [
        Section("verdict", "Verdict", finding=Finding(_headline(data), sentences, key_metrics, data["warnings"])),
        Section("question", "What was searched for", points=_question(data)),
        Section("candidates", "Candidates tried", (front,), panels=[_frontier(data)]),
        Section("reasons", "Why each was passed over", tables=[candidate_table(data, is_ranked=True)]),
        Section("limits", "Limits", data["limits"]),
    ]
    if chosen not in (None, data["unconstrained"]):
        panels = [_gain_panel(gains, axis) for axis in AXES if any(row["axis"] == axis for row in gains)]
        tables = [gain_table(gains), score_gap_table(data)]
        title = "What the choice costs and gains"
        sections.insert(2, Section("cost", title, (_COST_WORDS,), panels=panels, tables=tables, is_wide=True))
    if data["confirmation"] is not None:
        title = "What people held out of the search show"
        tables = [confirmation_table(data)]
        sections.insert(2, Section("confirmed", title, (_CONFIRMED_WORDS,), tables=tables))
    if stopping["bounds"]:
        points = [(f"Assumption {k}", text) for k, text in enumerate(stopping["assumptions"], start=1)]
        panels = [_stopping_panel(stopping, metric_of(data["minimize"]).words)]
        paragraphs = (left_to_gain(data),)
        sections.insert(-1, Section("left", "What is left to gain", paragraphs, panels=panels, points=points))
    if files:
        links = [(what, Markup('<a href="{0}">{0}</a>').format(path)) for what, path in files.items()]
        sections.insert(-1, Section("files", "Files", points=links))
    title = f"{count(len(candidates))} candidates, {data['settings']['folds']} folds"
    return render("search for an alternative", title, sections)


def workbook_tables(data: Data) -> list[Table]:
    """The sheets of the workbook."""
    people, minimized = data["people"], metric_of(data["minimize"]).words
    findings = [{"finding": text} for text in (*data["sentences"], *data["warnings"])]
    folds = [
        {"candidate": c["candidate"], "metric": metric_of(metric).words, "fold": fold, "value": value}
        for c in data["candidates"]
        for metric, values in c["folds"].items()
        for fold, value in enumerate(values)
    ]
    of_folds = (Column("candidate", "whole"), Column("metric", "text"), Column("fold", "whole"), Column("value"))
    settings = {
        "family": ", ".join(data["families"]),
        **{f"keep {k}": text for k, text in enumerate(data["keep"], start=1)},
        "minimize": data["minimize"],
        "people searched on": people["searched"],
        "people held out": people["confirming"],
        "financial features": ", ".join(people["financial_features"]),
        **{f"people of group {name}": n for name, n in people["groups"].items()},
        **{name: _setting(value) for name, value in data["settings"].items()},
    }
    rows = [{"setting": name, "value": value} for name, value in settings.items()]
    limits = [{"limit": limit} for limit in data["limits"]]
    tables = [
        Table("Findings", "What to take away.", (Column("finding", "long text"),), findings),
        candidate_table(data),
        gain_table(data["cost_and_gain"]),
        *([confirmation_table(data)] if data["confirmation"] else []),
        score_gap_table(data),
        stopping_table(data["stopping"], minimized),
        Table("Folds", "Every metric in every fold, averaged over seeds.", of_folds, folds),
        Table("Settings", "How the search was run.", (Column("setting", "text"), Column("value", "any")), rows),
        Table("Limits", "What to know before using it.", (Column("limit", "long text"),), limits),
    ]
    return [table for table in tables if table.records]


def _headline(data: Data) -> str:
    candidates, chosen, metric = data["candidates"], data["chosen"], data["minimize"]
    n, words = count(len(candidates)), metric_of(metric).words
    if chosen is None:
        return f"None of the {n} candidates meets the constraints."
    if chosen == data["unconstrained"]:
        rival = "The unconstrained candidate" if data["start"] is None else "Your model, retrained,"
        return f"{rival} is chosen: none of {n} meets the constraints with a better {words}."
    mine, theirs = (decimal(candidates[k]["metrics"][metric]["value"]) for k in (chosen, data["unconstrained"]))
    without = "without constraints it is" if data["start"] is None else "your model, retrained, has"
    article = "an" if words[0].lower() in "aeio" or words == "F1" else "a"
    sentence = f"Candidate {chosen} of {n} meets the constraints with {article} {words} of {mine}; {without} {theirs}."
    if data["confirmation"] is None:
        return sentence
    of = data["confirmation"]["candidates"][0]
    missed = [limit["about"] for limit in of["limits"] if limit["answer"] == "not confirmed"]
    but = f", and misses {listed(missed)}" if missed else ""
    return f"{sentence} On people held out: {of['objective']['answer']}{but}."


def _sentences(data: Data) -> list[str]:
    """The choice, and its main metrics with honest differences."""
    chosen, unconstrained, gains = data["chosen"], data["unconstrained"], data["cost_and_gain"]
    sentences = list(data["sentences"])
    if chosen is None:
        why = "A table below says why each candidate was passed over. Loosen the constraints, or widen the space."
        return [*sentences, why]
    sentences.append(f"Chosen: {data['candidates'][chosen]['words']}.")
    if chosen == unconstrained:
        return [
            *sentences,
            "Nothing is gained and nothing is lost. A table below says why the others were passed over.",
        ]
    sentences.append(f"Compared with: {data['candidates'][unconstrained]['words']}.")
    by_name = {row["metric"]: row for row in gains}
    prefix = "honest_" if math.isfinite(gains[0]["honest_low"]) else ""
    for name in dict.fromkeys((data["minimize"], "auc", "eo_gap", "positive_rate", "excess")):
        before, after, value, low, high, reading = (
            by_name[name][prefix + key] for key in ("unconstrained", "chosen", "difference", "low", "high", "reading")
        )
        beyond = "" if reading in ("within noise", "not estimated") else " beyond noise"
        sentences.append(
            f"{capital(metric_of(name).words)}: from {decimal(before)} to {decimal(after)}; difference "
            f"{decimal(value)}, 95% interval {interval(low, high)}: {reading}{beyond}."
        )
    sentences.append(
        "These metrics and differences are honest: each fold judges a choice that was made without it. So they may "
        "differ from the means of the chosen candidate, which are in the headline and in the table of candidates."
        if prefix
        else "Differences are from the search itself and flatter the choice: there are too few folds for honest ones."
    )
    return sentences


def _question(data: Data) -> tuple[tuple[str, str], ...]:
    people, folds, seeds, payoff = data["people"], *(data["settings"][name] for name in ("folds", "seeds", "payoff"))
    worth = ", ".join(f"{name.replace('_', ' ')} {decimal(value, 2)}" for name, value in (payoff or {}).items())
    groups = ", ".join(f"{name} {count(n)}" for name, n in people["groups"].items())
    held = f"; {count(people['confirming'])} more were held out of the search" if people["confirming"] else ""
    trained = "one model" if seeds == 1 else f"{seeds} models with averaged metrics"
    return (
        ("Constraints", "; ".join(data["keep"]) or "none"),
        ("Minimized" if metric_of(data["minimize"]).direction < 0 else "Maximized", metric_of(data["minimize"]).words),
        *([("Payoff", worth)] if worth else []),
        ("Family", "; ".join(FAMILIES[name].words for name in data["families"])),
        ("People", f"{count(people['searched'])} were searched on{held}. Groups of everyone: {groups}"),
        ("Matched on", ", ".join(people["financial_features"])),
        (
            "Judged by",
            f"{folds} folds, {trained} in each, every candidate on the same people. Differences are computed fold by "
            "fold, with the correction of Nadeau and Bengio for overlapping training sets",
        ),
    )


def candidate_table(data: Mapping[str, Any], *, is_ranked: bool = False) -> Table:
    """Every candidate, by number or from the chosen one to those that do not meet the constraints."""
    minimized = data["minimize"]
    on_page = dict.fromkeys((data["frontier"]["utility"], "auc", "eo_gap", "positive_rate", minimized))
    sign = -metric_of(minimized).direction

    def place(candidate: Record) -> tuple[int, float, int]:
        value = candidate["metrics"][minimized]["value"]
        rank = {"chosen": 0, "passed over": 1}.get(candidate["status"], 2)
        return rank, sign * value if math.isfinite(value) else math.inf, candidate["candidate"]

    def why(candidate: Record) -> str:
        return " ".join([f"{capital(candidate['reason'])}.", *candidate["warnings"]])

    def parameter(name: str) -> Callable[[Record], Any]:
        return lambda candidate: in_a_cell(candidate["parameters"].get(name, ""))

    parameters = dict.fromkeys(name for c in data["candidates"] for name in c["parameters"])
    metrics = data["candidates"][0]["metrics"]
    columns = (
        Column("candidate", "whole"),
        Column("status", "text", where="workbook", highlights=(Highlight("equals", "chosen", "evidence"),)),
        Column("parameters", "text", "words", where="page"),
        *(
            Column(metric_of(name).words, metric_of(name).kind, f"metrics/{name}/value", where="page")
            for name in on_page
        ),
        Column("on the front", "any", "is_on_front", where="workbook"),
        Column("why", "long text", why, where="page"),
        Column("why", "long text", "reason", where="workbook"),
        Column("approvals", "long text", lambda row: " ".join(row["warnings"]), where="workbook"),
        *(Column(name, "any", parameter(name), where="workbook") for name in parameters),
        *(estimate(metric_of(name).words, f"metrics/{name}").detail() for name in metrics),
    )
    records = tuple(sorted(data["candidates"], key=place) if is_ranked else data["candidates"])
    return Table("Candidates", "Every candidate, and why it was passed over", columns, records)


def gain_table(gains: list[Record], axis: str | None = None) -> Table:
    """What the chosen candidate costs and gains against the unconstrained one, of one axis or of all.

    Each difference stands next to the two metrics it is the difference of.
    """
    has_confirmed = bool(gains) and "confirmed_chosen" in gains[0]

    def columns_of(words: str, prefix: str) -> tuple[Column, ...]:
        return (
            Column(f"{words}unconstrained", "number", f"{prefix}unconstrained"),
            Column(f"{words}chosen", "number", f"{prefix}chosen"),
            _estimate_at(f"{words}difference", f"{prefix}difference", prefix),
            Column(f"{words}reading", "text", f"{prefix}reading"),
        )

    own = columns_of("", "")
    columns = (
        Column("axis", "text", where="workbook"),
        Column("metric", "text", lambda row: capital(metric_of(row["metric"]).words)),
        *((column.detail() for column in own) if has_confirmed else own),
        *columns_of("honest ", "honest_"),
        *(columns_of("held out: ", "confirmed_") if has_confirmed else ()),
    )
    records = tuple(row for row in gains if axis in (None, row["axis"]))
    return Table("Cost and gain", "Cost and gain against the unconstrained candidate", columns, records)


def _estimate_at(heading: str, key: str, prefix: str) -> Column:
    """A column of estimates whose value has a key of its own, and whose ends are ``low`` and ``high`` with a prefix."""
    return estimate(heading, lambda row: {"value": row[key], "low": row[f"{prefix}low"], "high": row[f"{prefix}high"]})


def confirmation_table(data: Data) -> Table:
    """What the people held out show about each reported candidate: what is minimized, and each constraint."""
    confirmation = data["confirmation"]
    records = [
        {"candidate": of["candidate"], "about": about, "answer": verdict["answer"], **verdict["difference"]}
        for of in confirmation["candidates"]
        for about, verdict in (
            (capital(metric_of(of["objective"]["about"]).words), of["objective"]),
            *((limit["about"], limit) for limit in of["limits"]),
        )
    ]
    number = Column("candidate", "whole")
    columns = (
        Column("what", "text", "about"),
        number if len(confirmation["candidates"]) > 1 else number.detail(),
        Column("answer", "text"),
        estimate("difference, or distance from the limit", lambda row: row),
        Column("p-value, adjusted", "p", "p_value", where="workbook"),
    )
    n = len(confirmation["candidates"])
    title = f"On {count(confirmation['n_people'])} people held out of the search"
    title = f"{title}; intervals hold for all {n} candidates at once" if n > 1 else title
    return Table("Confirmation", title, columns, tuple(records))


def score_gap_table(data: Data) -> Table:
    """Signed score gaps of the unconstrained and the chosen candidate, in total and through each input."""
    columns = (
        Column("group", "text"),
        Column("metric", "text", lambda row: capital(metric_of(row["metric"]).words)),
        Column("through", "text"),
        _estimate_at("unconstrained", "unconstrained", "unconstrained_"),
        _estimate_at("chosen", "chosen", "chosen_"),
    )
    title = f"Score gaps at equal finances, group minus {data['people']['reference_group']}"
    return Table("Score gaps", title, columns, tuple(data["score_gaps"]))


def stopping_table(stopping: Data, words: str) -> Table:
    """How much was left to gain, at most, after each number of draws."""
    columns = (
        Column("candidates drawn", "whole", "n_draws"),
        Column(f"best {words}", "number", "best"),
        Column("share of candidates that are better, at most", "share", "share_better"),
        *(Column(f"gain of {'one' if n == 1 else n} more, at most", "number", f"gain_of_{n}") for n in FURTHER),
    )
    return Table("Left to gain", "What further candidates could gain", columns, tuple(stopping["bounds"]))


def _setting(value: Any) -> Any:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {number:g}" for name, number in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else value


def _gain_panel(gains: list[Record], axis: str) -> Panel:
    """Honest differences of an axis with intervals, in the direction in which more is better."""
    rows = []
    for row in gains:
        sign = metric_of(row["metric"]).direction
        if row["axis"] == axis and sign and math.isfinite(row["honest_low"]):
            better = Estimate(row["honest_difference"], row["honest_low"], row["honest_high"]).scaled(sign)
            rows.append((capital(metric_of(row["metric"]).words), better.to_dict()))
    table, title = gain_table(gains, axis), capital(axis)
    if not rows:
        return panel_of(f"gains-{axis}", title, "", "There are too few folds for honest differences.", table)
    description = f"how much better the chosen candidate is in {len(rows)} metrics of {axis}."
    caption = "Right of the line the chosen candidate is better, left of it worse; bars are honest 95% intervals."
    return panel_of(f"gains-{axis}", title, caption, forest(rows, "Better by", description), table)


def _frontier(data: Data) -> Panel:
    """Utility against the metric that is minimized, one point for each candidate, with the frontier."""
    frontier = data["frontier"]
    names = frontier["utility"], frontier["objective"]
    words = metric_of(names[0]).words, metric_of(names[1]).words
    place = {k: n for n, k in enumerate(frontier["candidates"])}
    # With two folds, intervals would be as wide as the chart.
    barred = {*place, data["chosen"], data["unconstrained"]} if data["settings"]["folds"] > 2 else set()
    records = []
    for candidate in data["candidates"]:
        k, utility, metric = candidate["candidate"], *(candidate["metrics"][name] for name in names)
        row = {
            "candidate": k,
            "parameters": candidate["words"],
            "utility": utility["value"],
            "metric": metric["value"],
            "status": _status(candidate),
            "is_on_front": candidate["is_on_front"],
            "front": "on the front" if candidate["is_on_front"] else "dominated",
            **({"place": place[k]} if k in place else {}),
        }
        ends = {f"utility_{end}": utility[end] for end in ("low", "high")}
        ends |= {f"metric_{end}": metric[end] for end in ("low", "high")}
        records.append(row | (ends if k in barred and all(map(math.isfinite, ends.values())) else {}))
    columns = (
        Column("candidate", "whole"),
        estimate(words[0], lambda row: row["metrics"][names[0]]),
        estimate(words[1], lambda row: row["metrics"][names[1]], metric_of(names[1]).kind),
        Column("status", "text", _status),
        Column("front", "text", lambda row: "on the front" if row["is_on_front"] else "dominated"),
    )
    table = Table("Frontier", "Candidates", columns, data["candidates"])
    known = [row for row in records if math.isfinite(row["utility"]) and math.isfinite(row["metric"])]
    caption = (
        "Means over folds and seeds. The line joins those that are best by their means; bars are 95% intervals over "
        "folds. A full point is on the front, an empty one is dominated beyond noise."
    )
    chart = _frontier_chart(known, words) if known else "No candidate has metrics."
    return panel_of("frontier", f"{capital(words[0])} and {words[1]}", caption, chart, table)


def _frontier_chart(rows: Sequence[dict[str, Any]], words: tuple[str, str]) -> Any:
    """A point for each candidate, a line along those with a place on the frontier, and intervals of those with ends."""
    titles = capital(words[0]), capital(words[1])
    looks = [look for look in _STATUSES if any(row["status"] == look[0] for row in rows)]
    present, colors, shapes, _ = map(list, zip(*looks, strict=True))
    size = {name: size for name, _, _, size in looks}
    x, y = quantity(alt.X, "utility", titles[0], zero=False), quantity(alt.Y, "metric", titles[1], zero=False)
    color = alt.Color("status:N", scale=alt.Scale(domain=present, range=colors), legend=alt.Legend())
    layers = []
    on_line = sorted((row for row in rows if "place" in row), key=lambda row: row["place"])
    if len(on_line) > 1:
        line = chart_of(on_line).mark_line(strokeWidth=1.5, strokeDash=[4, 3], color=VARIABLES.muted)
        layers.append(line.encode(x=x, y=y, order=alt.Order("place:Q")))
    known = [row for row in rows if "utility_low" in row]
    if known:
        bars = chart_of(known).mark_rule(strokeWidth=1)
        layers += [
            bars.encode(x=alt.X("utility_low:Q", title=titles[0]), x2=alt.X2("utility_high:Q"), y=y, color=color),
            bars.encode(y=alt.Y("metric_low:Q", title=titles[1]), y2=alt.Y2("metric_high:Q"), x=x, color=color),
        ]
    drawn = [row | {"size": size[row["status"]]} for row in sorted(rows, key=lambda row: present.index(row["status"]))]
    for is_full in (False, True):
        part = [row for row in drawn if row["is_on_front"] is is_full]
        if part:  # a layer without rows has no extent
            points = (
                chart_of(part)
                .mark_point(filled=is_full, strokeWidth=1.5)
                .encode(
                    x=x,
                    y=y,
                    color=color,
                    shape=alt.Shape("status:N", scale=alt.Scale(domain=present, range=shapes), legend=alt.Legend()),
                    size=alt.Size("size:Q", scale=None, legend=None),
                    tooltip=tooltips(
                        "candidate",
                        "parameters",
                        ("utility", ".3f", words[0]),
                        ("metric", ".3f", words[1]),
                        "status",
                        "front",
                    ),
                )
            )
            layers.append(points)
    description = f"{titles[0]} and {words[1]} of {len(rows)} candidates, with intervals of those on the frontier."
    return finished(alt.layer(*layers), description, _HEIGHT)


def _stopping_panel(stopping: Data, words: str) -> Panel:
    """The best value so far, and what one further candidate gains at most, against the number of draws."""
    rows = [
        {"n_draws": bound["n_draws"], "group": line, "value": bound[key]}
        for line, key in (("best found so far", "best"), ("gain of one further candidate, at most", "gain_of_1"))
        for bound in stopping["bounds"]
    ]
    axes = (
        quantity(alt.X, "n_draws", "Candidates drawn", type="log", nice=False),
        quantity(alt.Y, "value", capital(words)),
    )
    numbers = (("n_draws", "", "candidates drawn"), ("value", ".4f", words))
    description = f"Best {words} found so far, and the most that one further candidate gains, by candidates drawn."
    chart = lines_by_group(rows, *axes, numbers, description, height=_HEIGHT, interpolate="step-after", strokeWidth=2)
    caption = f"The lines hold after all draws at once with at least {percent(1 - stopping['delta'], 0)} probability."
    title = "What further candidates could gain"
    return panel_of("left", title, caption, chart, stopping_table(stopping, words))


def left_to_gain(data: Data) -> str:
    """What the bound on further candidates says, in a sentence or two."""
    stopping, last = data["stopping"], data["stopping"]["bounds"][-1]
    if stopping["is_whole_space"] and not stopping["n_left"]:
        return (
            f"All {count(stopping['n_draws'])} constrained candidates of the space were tried, so nothing is left to "
            "gain within it. The curve shows how much could have been left after fewer."
        )
    sentence = (
        f"After {count(last['n_draws'])} random candidates, at most {percent(last['share_better'])} of those that this "
        f"search could draw are better than the best found, and one further candidate lowers the "
        f"{metric_of(data['minimize']).words} by at most {decimal(last['gain_of_1'], 4)} on average "
        f"({percent(1 - stopping['delta'], 0)} confidence)."
    )
    if stopping["n_left"]:
        return f"{sentence} The search stopped there: {count(stopping['n_left'])} candidates were not tried."
    return sentence


def _status(candidate: Record) -> str:
    if candidate["status"] in ("chosen", "failed"):
        return str(candidate["status"])
    if candidate["is_unconstrained"]:
        return "your model, retrained" if candidate["is_start"] else "unconstrained"
    return "meets the constraints" if candidate["status"] == "passed over" else str(candidate["status"])


def _value(name: str, value: float) -> str:
    return percent(value) if metric_of(name).kind == "share" else decimal(value)
