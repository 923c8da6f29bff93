"""The tables of a search, from its dictionary (`SearchResult.to_dict`): each for the page and for the workbook."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

from evenhand.report.tables import Column, Highlight, Kind, Record, Table, estimate
from evenhand.searching.draws import FURTHER
from evenhand.searching.metrics import DIRECTIONS
from evenhand.searching.space import in_a_cell

__all__ = ["METRIC_WORDS", "candidate_table", "capital", "gain_table", "kind_of", "stopping_table", "workbook_tables"]

METRIC_WORDS = {
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


def kind_of(metric: str) -> Kind:
    """How a metric is shown."""
    return "share" if metric == "positive_rate" else "number"


def capital(words: str) -> str:
    """The words with a capital first letter."""
    return words[:1].upper() + words[1:]


def candidate_table(data: Mapping[str, Any], *, is_ranked: bool = False) -> Table:
    """Every candidate, by number or from the chosen one to those that do not meet the constraints."""
    minimized = data["minimize"]
    on_page = dict.fromkeys(("auc", "eo_gap", "positive_rate", minimized))
    sign = -DIRECTIONS[minimized]

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
        *(Column(METRIC_WORDS[name], kind_of(name), f"metrics/{name}/value", where="page") for name in on_page),
        Column("on the front", "any", "is_on_front"),
        Column("why", "long text", "reason"),
        *(Column(name, "any", _parameter(name), where="workbook") for name in parameters),
        *(estimate(METRIC_WORDS[name], f"metrics/{name}").detail() for name in metrics),
    )
    highlights = (Highlight("status", "equals", "chosen", "evidence"),)
    records = tuple(sorted(data["candidates"], key=place) if is_ranked else data["candidates"])
    return Table("Candidates", "Every candidate, and why it was passed over", columns, records, highlights)


def _parameter(name: str) -> Callable[[Record], Any]:
    return lambda candidate: in_a_cell(candidate["parameters"].get(name, ""))


def gain_table(gains: list[Record], axis: str | None = None) -> Table:
    """What the chosen candidate costs and gains against the unconstrained one, of one axis or of all."""

    def honest(row: Record) -> Mapping[str, Any]:
        return {"value": row["honest_difference"], "low": row["honest_ci_low"], "high": row["honest_ci_high"]}

    has_confirmed = bool(gains) and "confirmed_chosen" in gains[0]
    confirmed = (
        Column("held out: unconstrained", "number", "confirmed_unconstrained"),
        Column("held out: chosen", "number", "confirmed_chosen"),
    )
    columns = (
        Column("axis", "text", where="workbook"),
        Column("metric", "text", lambda row: capital(METRIC_WORDS[row["metric"]])),
        Column("unconstrained"),
        Column("chosen"),
        estimate("difference", lambda row: {**row, "value": row["difference"]}),
        Column("reading", "text"),
        estimate("honest difference", honest),
        Column("honest reading", "text", "honest_reading"),
        *(confirmed if has_confirmed else ()),
    )
    records = tuple(row for row in gains if axis in (None, row["axis"]))
    return Table("Cost and gain", "Cost and gain against the unconstrained candidate", columns, records)


def fold_table(data: Mapping[str, Any]) -> Table:
    """Every metric of every candidate in every fold."""
    records = tuple(
        {"candidate": c["candidate"], "metric": METRIC_WORDS[metric], "fold": fold, "value": value}
        for c in data["candidates"]
        for metric, values in c["folds"].items()
        for fold, value in enumerate(values)
    )
    columns = (Column("candidate", "whole"), Column("metric", "text"), Column("fold", "whole"), Column("value"))
    return Table("Folds", "Every metric in every fold, means over seeds.", columns, records)


def stopping_table(stopping: Mapping[str, Any], words: str) -> Table:
    """After how many draws how much was left to gain, at most."""
    columns = (
        Column("candidates drawn", "whole", "n_draws"),
        Column(f"best {words}", "number", "best"),
        Column("share of candidates that are better, at most", "share", "share_better"),
        *(Column(f"gain of {'one' if n == 1 else n} further, at most", "number", f"gain_of_{n}") for n in FURTHER),
    )
    return Table("Left to gain", "What further candidates could gain", columns, tuple(stopping["bounds"]))


def setting_table(data: Mapping[str, Any]) -> Table:
    """How the search was made."""
    people = data["people"]
    settings = {
        "family": ", ".join(data["families"]),
        **{f"keep {k}": text for k, text in enumerate(data["keep"], start=1)},
        "minimize": data["minimize"],
        "people searched on": people["searched"],
        "people held out": people["confirming"],
        "financial features": ", ".join(people["financial_features"]),
        **{f"people of group {name}": n for name, n in people["groups"].items()},
        **{name: "none" if value is None else value for name, value in data["settings"].items()},
    }
    records = tuple({"setting": name, "value": value} for name, value in settings.items())
    return Table("Settings", "How the search was made.", (Column("setting", "text"), Column("value", "any")), records)


def limit_table(data: Mapping[str, Any]) -> Table:
    """What to know before using the choice."""
    records = tuple({"limit": limit} for limit in data["limits"])
    return Table("Limits", "What to know before using it.", (Column("limit", "long text"),), records)


def workbook_tables(data: Mapping[str, Any]) -> list[Table]:
    """The sheets of the workbook: candidates, cost and gain, what is left, every fold, settings and limits."""
    gains = data["cost_and_gain"]
    cost_and_gain = [gain_table(gains)] if gains else []
    stopping = data["stopping"]
    left = [stopping_table(stopping, METRIC_WORDS[data["minimize"]])] if stopping["bounds"] else []
    return [candidate_table(data), *cost_and_gain, *left, fold_table(data), setting_table(data), limit_table(data)]
