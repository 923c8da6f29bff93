"""Figures of the report: a chart, a line on what to see in it, and the table behind it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from evenhand.report import charts, tables
from evenhand.report.charts import NothingToDrawError, specification
from evenhand.report.formatting import decimal, estimate_interval, interval, is_number, listed, percent, shortened
from evenhand.report.tables import Table

__all__ = ["Figure", "figures"]

Data = Mapping[str, Any]


@dataclass(frozen=True)
class Figure:
    """A figure of the report.

    Attributes
    ----------
    name
        Of the chart function, and of the figure in the page.
    title, caption
        What it is, and what to see in it.
    description
        The chart in words, for screen readers.
    specification
        Vega-Lite, without configuration; None where there is nothing to draw.
    note
        Why there is nothing to draw; else empty.
    table
        The numbers behind it.
    """

    name: str
    title: str
    caption: str
    description: str
    specification: Mapping[str, Any] | None
    note: str
    table: Table


def figures(data: Data) -> dict[str, Figure]:
    """Every figure of the report by name, from the plain data of an audit."""
    return {name: _figure(name, title, caption, table, data) for name, title, caption, table in _FIGURES}


def _figure(
    name: str, title: str, caption: Callable[[Data], str], table: Callable[[Data], Table], data: Data
) -> Figure:
    try:
        chart = specification(getattr(charts, name)(data))
    except NothingToDrawError as nothing:
        return Figure(name, title, "", "", None, str(nothing), table(data))
    chart.pop("config", None)
    return Figure(name, title, caption(data), chart["description"], chart, "", table(data))


def _regimes(data: Data) -> str:
    shares = data["regimes"]
    return (
        f"{percent(shares['B'])} of pairs get the same decision for different reasons (regime B), and "
        f"{percent(shares['A'])} the same decision for the same reasons; match noise alone puts many pairs in B, so "
        "read this beside the excess."
    )


def _plane(data: Data) -> str:
    found = data["evidence"]
    if found is None or not is_number(found["placebo_mean"]):
        return "Each point is a group; up means more different reasoning, right means more different decisions."
    return (
        "The evidence is the gap between the lines of compared pairs and placebo pairs, which are equally far apart: "
        f"{decimal(found['compared_mean'])} and {decimal(found['placebo_mean'])}. Points are nearest matches, and may "
        "lie lower."
    )


def _density(data: Data) -> str:
    return (
        "Darker cells hold more pairs. Those high up and near the middle have almost the same score for different "
        "reasons: no comparison of outcomes can see them."
    )


def _cec_distribution(data: Data) -> str:
    if data["evidence"] is None:
        return "Filled: nearest matches. Without evidence there are no placebo pairs to hold them against."
    return (
        "Filled: nearest matches. Dashed: placebo pairs, averaged for each person and as far apart as all who are "
        "compared; the test is the excess above, not this picture."
    )


def _excess(data: Data) -> str:
    found = data["evidence"]["cec"]
    return (
        f"The excess of the CEC score is {decimal(found['value'])} ({interval(found['ci_low'], found['ci_high'])}); "
        "inside the shaded band it would have no practical weight."
    )


def _excess_by(data: Data) -> str:
    splits = [s for s in data["evidence"]["splits"] if is_number(s["estimate"]["value"])]
    called = [s for s in splits if is_number(s["p_adjusted"]) and s["p_adjusted"] <= 0.05]
    if not splits:
        return "No part of the people is large enough for an estimate of its own."
    most = max(splits, key=lambda s: s["estimate"]["value"])
    place = f"largest for {shortened(most['split'], 40)}: {shortened(most['value'], 40)}"
    if not called:
        return f"No part of the people shows an excess after adjustment for the number of parts; {place}."
    return f"{len(called)} of {len(splits)} parts show an excess after adjustment for their number; {place}."


def _drivers(data: Data) -> str:
    clear = [
        f for f in data["evidence"]["features"] if is_number(f["estimate"]["ci_low"]) and f["estimate"]["ci_low"] > 0
    ]
    clear.sort(key=lambda f: -f["estimate"]["value"])
    if not clear:
        return "Contributions sum to the excess; no single feature adds to it clearly."
    return f"Contributions sum to the excess. Clearly adding to it: {_names(clear)}."


def _shares(data: Data) -> str:
    first = [f for f in data["features"] if is_number(f["share"])][:3]
    total = percent(sum(f["share"] for f in first), 0)
    return f"{total} of what differs between the explanations of a pair is due to {_names(first)}; noise is part of it."


def _weights(data: Data) -> str:
    clear = [
        w
        for w in data["evidence"]["weights"]
        if is_number(w["estimate"]["ci_low"]) and (w["estimate"]["ci_low"] > 0 or w["estimate"]["ci_high"] < 0)
    ]
    several = f"{len(clear)} of {len(data['evidence']['weights'])} intervals exclude 0 (1 in 20 would by chance)"
    weighed = {w["feature"] for w in data["evidence"]["weights"]}
    left = [f for f in data["features"] if f["feature"] not in weighed]
    categories = f" Without a weight, because the model takes them as categories: {_names(left)}." if left else ""
    return f"Change of the model's output for one standard deviation of the feature: {several}.{categories}"


def _proxies(data: Data) -> str:
    every = data["proxies"]["all_features"]
    known = sorted((f for f in data["proxies"]["features"] if is_number(f["auc"])), key=lambda f: -f["auc"])
    best = f"; best alone is {shortened(known[0]['feature'], 40)} at {decimal(known[0]['auc'], 2)}" if known else ""
    return f"All features together tell the group with an AUC of {decimal(every['auc'], 2)}{best}. 0.5 is guessing."


def _distances(data: Data) -> str:
    quantiles = data["matching"]["distance_quantiles"]
    return (
        f"Half of the matches are within {decimal(quantiles.get('0.5'), 2)} standard deviations; the farther, the less "
        "comparable."
    )


def _balance(data: Data) -> str:
    worst = data["matching"]["worst_balance"]
    judged = "above" if is_number(worst) and worst > 0.1 else "within"
    return (
        "Matching should move points left of 0.1, a rule of thumb; the largest difference that remains is "
        f"{decimal(worst, 2)}, {judged} it."
    )


def _approvals(data: Data) -> str:
    gap = data["outcome"]["gaps"]["sp_gap"]
    if not is_number(gap["value"]):
        return f"The gap between groups was not estimated: {gap['note']}."
    ends = estimate_interval(gap, 1, 100)
    return (
        f"Approved most often: {shortened(gap['group_high'], 40)}; least often: {shortened(gap['group_low'], 40)}. "
        f"The gap is {decimal(100 * gap['value'], 1)} points ({ends})."
    )


def _ratios(data: Data) -> str:
    return "1 is equal rates. 0.8 is a rule of thumb from US employment selection, not a limit of credit law."


def _score_distribution(data: Data) -> str:
    return "Scores of everyone audited, in bins of 0.025; what lies right of the threshold is approved."


def _cutoffs(data: Data) -> str:
    return "A ratio that moves a lot says that the finding on outcomes hangs on where the cut-off is."


def _error_rates(data: Data) -> str:
    gap = data["outcome"]["gaps"]["eo_gap"]
    return (
        f"True (TPR) and false positive rate (FPR): the larger gap, {decimal(gap['value'])}, is in the {gap['rate']}."
    )


def _sensitivity(data: Data) -> str:
    hangs_on = data["evidence"]["sensitivity"]["hangs_on"]
    if not hangs_on:
        return "The verdict on the excess is the same under every choice shown."
    return f"The verdict on the excess would be another with {listed(hangs_on)}."


def _thresholds(data: Data) -> str:
    return f"The audit used {data['settings']['consistency_threshold']:g}; these are descriptions, not tests."


def _names(features: list[Mapping[str, Any]]) -> str:
    return listed([shortened(f["feature"], 40) for f in features])


def _cec_table(data: Data) -> Table:
    return tables.histogram_table(data["distributions"]["cec"], "Pairs by CEC score and group")


def _score_histogram(data: Data) -> Table:
    return tables.histogram_table(data["distributions"]["score"], "People by score and group")


_FIGURES: tuple[tuple[str, str, Callable[[Data], str], Callable[[Data], Table]], ...] = (
    ("plane", "Decisions and reasoning by group", _plane, tables.plane_table),
    ("regimes", "Regimes", _regimes, tables.regime_table),
    ("density", "Pairs by score difference and CEC score", _density, tables.density_table),
    ("excess", "Excess over placebo pairs", _excess, tables.excess_table),
    ("excess_by", "Excess within parts of the people", _excess_by, tables.excess_by_table),
    ("cec_distribution", "CEC scores of pairs and placebo pairs", _cec_distribution, _cec_table),
    ("drivers", "Features that drive the excess", _drivers, tables.feature_table),
    ("shares", "Features behind the CEC score", _shares, tables.feature_table),
    ("weights", "Weights that differ by group", _weights, tables.weight_table),
    ("proxies", "Features that tell the group", _proxies, tables.proxy_table),
    ("distances", "Distance to the match", _distances, tables.distance_table),
    ("balance", "Balance of the financial features (Love plot)", _balance, tables.balance_table),
    ("approvals", "Favorable decisions", _approvals, tables.approval_table),
    ("ratios", "Approval ratios", _ratios, tables.approval_table),
    ("score_distribution", "Scores", _score_distribution, _score_histogram),
    ("error_rates", "Error rates", _error_rates, tables.error_table),
    ("cutoffs", "Other cut-offs", _cutoffs, tables.cutoff_table),
    ("sensitivity", "Nearer or fewer comparisons", _sensitivity, tables.sensitivity_table),
    ("thresholds", "Other consistency thresholds", _thresholds, tables.threshold_table),
)
