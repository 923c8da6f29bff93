"""The tables of a search for the page and the workbook, from its dictionary (`SearchResult.to_dict`)."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from evenhand.report.formatting import count
from evenhand.report.tables import Column, Highlight, Kind, Record, Table, estimate
from evenhand.searching.draws import FURTHER
from evenhand.searching.metrics import asked_of, direction_of
from evenhand.searching.space import in_a_cell
from evenhand.searching.words import capital, metric_words

__all__ = [
    "candidate_table",
    "confirmation_table",
    "gain_table",
    "kind_of",
    "score_gap_table",
    "stopping_table",
    "workbook_tables",
]

_SHARES = ("approval_rate", "falls", "rises")


def kind_of(metric: str) -> Kind:
    """How a metric is shown."""
    return "share" if metric == "positive_rate" or asked_of(metric)[0] in _SHARES else "number"


def candidate_table(data: Mapping[str, Any], *, is_ranked: bool = False) -> Table:
    """Every candidate, by number or from the chosen one to those that do not meet the constraints."""
    minimized = data["minimize"]
    on_page = dict.fromkeys((data["frontier"]["utility"], "auc", "eo_gap", "positive_rate", minimized))
    sign = -direction_of(minimized)

    def place(candidate: Record) -> tuple[int, float, int]:
        value = candidate["metrics"][minimized]["value"]
        rank = {"chosen": 0, "passed over": 1}.get(candidate["status"], 2)
        return rank, sign * value if math.isfinite(value) else math.inf, candidate["candidate"]

    parameters = dict.fromkeys(name for c in data["candidates"] for name in c["parameters"])
    metrics = data["candidates"][0]["metrics"]
    columns = (
        Column("candidate", "whole"),
        Column("status", "text", where="workbook"),
        Column("parameters", "text", "words", where="page"),
        *(Column(metric_words(name), kind_of(name), f"metrics/{name}/value", where="page") for name in on_page),
        Column("on the front", "any", "is_on_front", where="workbook"),
        Column("why", "long text", _why, where="page"),
        Column("why", "long text", "reason", where="workbook"),
        Column("approvals", "long text", lambda row: " ".join(row["warnings"]), where="workbook"),
        *(Column(name, "any", _parameter(name), where="workbook") for name in parameters),
        *(estimate(metric_words(name), f"metrics/{name}").detail() for name in metrics),
    )
    highlights = (Highlight("status", "equals", "chosen", "evidence"),)
    records = tuple(sorted(data["candidates"], key=place) if is_ranked else data["candidates"])
    return Table("Candidates", "Every candidate, and why it was passed over", columns, records, highlights)


def _why(candidate: Record) -> str:
    """The reason and what to know about approvals, in one cell."""
    return " ".join([f"{capital(candidate['reason'])}.", *candidate["warnings"]])


def _parameter(name: str) -> Callable[[Record], Any]:
    return lambda candidate: in_a_cell(candidate["parameters"].get(name, ""))


def gain_table(gains: list[Record], axis: str | None = None) -> Table:
    """What the chosen candidate costs and gains against the unconstrained one, of one axis or of all."""

    def honest(row: Record) -> Mapping[str, Any]:
        return {"value": row["honest_difference"], "low": row["honest_ci_low"], "high": row["honest_ci_high"]}

    def held_out(row: Record) -> Mapping[str, Any]:
        low, high = row["confirmed_ci_low"], row["confirmed_ci_high"]
        return {"value": row["confirmed_difference"], "low": low, "high": high}

    has_confirmed = bool(gains) and "confirmed_chosen" in gains[0]
    confirmed = (
        Column("held out: unconstrained", "number", "confirmed_unconstrained", where="workbook"),
        Column("held out: chosen", "number", "confirmed_chosen", where="workbook"),
        estimate("held out: difference", held_out),
        Column("held out: reading", "text", "confirmed_reading"),
    )
    own = (estimate("difference", lambda row: {**row, "value": row["difference"]}), Column("reading", "text"))
    columns = (
        Column("axis", "text", where="workbook"),
        Column("metric", "text", lambda row: capital(metric_words(row["metric"]))),
        Column("unconstrained"),
        Column("chosen"),
        *((column.detail() for column in own) if has_confirmed else own),
        estimate("honest difference", honest),
        Column("honest reading", "text", "honest_reading"),
        *(confirmed if has_confirmed else ()),
    )
    records = tuple(row for row in gains if axis in (None, row["axis"]))
    return Table("Cost and gain", "Cost and gain against the unconstrained candidate", columns, records)


def confirmation_table(data: Mapping[str, Any]) -> Table:
    """What the people held out show about each reported candidate: what is minimized, and each constraint."""
    confirmation = data["confirmation"]
    records = [
        {"candidate": of["candidate"], "about": about, "answer": verdict["answer"], **verdict["difference"]}
        for of in confirmation["candidates"]
        for about, verdict in (
            (capital(metric_words(of["objective"]["about"])), of["objective"]),
            *((limit["about"], limit) for limit in of["limits"]),
        )
    ]
    number = Column("candidate", "whole")
    columns = (
        Column("what", "text", "about"),
        number if len(confirmation["candidates"]) > 1 else number.detail(),
        Column("answer", "text"),
        estimate("difference, or distance from the limit", lambda row: row),
        Column("p-value, adjusted", "p", "p_adjusted", where="workbook"),
    )
    n = len(confirmation["candidates"])
    title = f"On {count(confirmation['n_people'])} people held out of the search"
    title = f"{title}; intervals hold for all {n} candidates at once" if n > 1 else title
    return Table("Confirmation", title, columns, tuple(records))


def score_gap_table(data: Mapping[str, Any]) -> Table:
    """Signed score gaps of the unconstrained and the chosen candidate, in total and through each input."""

    def of(who: str) -> Column:
        return estimate(who, lambda row: {"value": row[who], "low": row[f"{who}_low"], "high": row[f"{who}_high"]})

    columns = (
        Column("group", "text"),
        Column("metric", "text", lambda row: capital(metric_words(row["metric"]))),
        Column("through", "text"),
        of("unconstrained"),
        of("chosen"),
    )
    title = f"Score gaps at equal finances, group minus {data['people']['reference_group']}"
    return Table("Score gaps", title, columns, tuple(data["score_gaps"]))


def sentence_table(data: Mapping[str, Any]) -> Table:
    """What people held out show, and how the candidates change approvals."""
    records = tuple({"finding": text} for text in (*data["sentences"], *data["warnings"]))
    return Table("Findings", "What to take away.", (Column("finding", "long text"),), records)


def fold_table(data: Mapping[str, Any]) -> Table:
    """Every metric of every candidate in every fold."""
    records = tuple(
        {"candidate": c["candidate"], "metric": metric_words(metric), "fold": fold, "value": value}
        for c in data["candidates"]
        for metric, values in c["folds"].items()
        for fold, value in enumerate(values)
    )
    columns = (Column("candidate", "whole"), Column("metric", "text"), Column("fold", "whole"), Column("value"))
    return Table("Folds", "Every metric in every fold, averaged over seeds.", columns, records)


def stopping_table(stopping: Mapping[str, Any], words: str) -> Table:
    """How much was left to gain, at most, after each number of draws."""
    columns = (
        Column("candidates drawn", "whole", "n_draws"),
        Column(f"best {words}", "number", "best"),
        Column("share of candidates that are better, at most", "share", "share_better"),
        *(Column(f"gain of {'one' if n == 1 else n} more, at most", "number", f"gain_of_{n}") for n in FURTHER),
    )
    return Table("Left to gain", "What further candidates could gain", columns, tuple(stopping["bounds"]))


def setting_table(data: Mapping[str, Any]) -> Table:
    """How the search was run."""
    people = data["people"]
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
    records = tuple({"setting": name, "value": value} for name, value in settings.items())
    return Table("Settings", "How the search was run.", (Column("setting", "text"), Column("value", "any")), records)


def _setting(value: Any) -> Any:  # noqa: ANN401 - of a setting
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {number:g}" for name, number in value.items())
    if isinstance(value, (list, tuple)):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else value


def limit_table(data: Mapping[str, Any]) -> Table:
    """What to know before using the choice."""
    records = tuple({"limit": limit} for limit in data["limits"])
    return Table("Limits", "What to know before using it.", (Column("limit", "long text"),), records)


def workbook_tables(data: Mapping[str, Any]) -> list[Table]:
    """The sheets of the workbook."""
    gains, stopping = data["cost_and_gain"], data["stopping"]
    return [
        *([sentence_table(data)] if data["sentences"] or data["warnings"] else []),
        candidate_table(data),
        *([gain_table(gains)] if gains else []),
        *([confirmation_table(data)] if data["confirmation"] else []),
        *([score_gap_table(data)] if data["score_gaps"] else []),
        *([stopping_table(stopping, metric_words(data["minimize"]))] if stopping["bounds"] else []),
        fold_table(data),
        setting_table(data),
        limit_table(data),
    ]
