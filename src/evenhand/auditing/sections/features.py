"""Features: their parts of the CEC score and of the excess, and weights that differ by group."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.arrays import Floats, Ints, Sums
from evenhand.auditing.batch import BatchFindings
from evenhand.auditing.batches import AuditSums
from evenhand.auditing.evidence import Evidence, FeatureEvidence, WeightDifference
from evenhand.auditing.fitted import Fitted
from evenhand.auditing.sections.evidence import evidence_of, excess_columns, excess_metric
from evenhand.auditing.sections.pairs import Pairs
from evenhand.report.drawing import (
    MOST_FEATURES,
    STEP,
    chart_of,
    check_any,
    finished,
    forest,
    labels_of,
    lines_of,
    quantity,
    size_of,
    tooltips,
)
from evenhand.report.formatting import is_number, listed, percent, shortened
from evenhand.report.section import NO_EVIDENCE, AuditChart, AuditMetric, Section, Summary
from evenhand.report.tables import (
    Column,
    Record,
    Table,
    estimate,
    flag,
    inside,
    joined,
    significance_flag,
    text,
)

_NOTHING = 1e-4  # of the size of attributions


@dataclass(frozen=True, eq=False)
class FeatureSums(Sums):
    """Sums of each feature's parts of the scores of pairs, and of its attributions to people by group; weighted."""

    contributions: Floats
    attributions: Floats


def _weighted_sum(rows: NDArray[np.float32], sample_weight: Floats | None, person: Ints) -> Floats:
    """The sum of the rows, each multiplied by 1 or by its person's weight."""
    total: Floats = (
        rows.sum(axis=0, dtype=np.float64)
        if sample_weight is None
        else np.einsum("i,ij->j", sample_weight[person], rows, dtype=np.float64)
    )
    return total


def feature_table_of(fitted: Fitted, sums: AuditSums, evidence: Evidence | None) -> pd.DataFrame:
    """For each feature: mean part of the CEC score, share, part of the excess, and mean attribution by group.

    From the mean of their own group, people's attributions by a linear model have a mean of 0, which says nothing: then
    there are no columns of means.
    """
    if not fitted.scope.attributions:
        return pd.DataFrame(columns=["feature", "contribution", "share"])
    features, names = [str(column) for column in fitted.pool.table.columns], fitted.pool.groups.names
    scored, own = float(sums.sections[Pairs.key].weight.sum()), sums.sections[Features.key]
    contribution = own.contributions / scored if scored else np.full(len(features), np.nan)
    columns: dict[str, Any] = {
        "feature": features,
        "contribution": contribution,
        "share": contribution / contribution.sum() if contribution.sum() > 0 else np.nan,
    }
    if evidence is not None:
        estimates = [feature.estimate for feature in evidence.features]
        columns |= {
            "excess": [e.value for e in estimates],
            "excess_low": [e.low for e in estimates],
            "excess_high": [e.high for e in estimates],
        }
    with np.errstate(invalid="ignore"):
        means = own.attributions / sums.weights[:, 1:2]
    if np.nanmax(np.abs(means), initial=0.0) > _NOTHING * np.sqrt(sums.value_squares / sums.n_people.sum()):
        columns |= {f"mean attribution: {name}": means[code] for code, name in enumerate(names)}
    return pd.DataFrame(columns).sort_values("contribution", ascending=False, kind="stable", ignore_index=True)


def feature_table(summary: Summary) -> Table:
    """Each feature's part of score and excess."""
    found = {f["feature"]: f["estimate"] for f in (summary["evidence"] or {"features": []})["features"]}
    nothing = {"p_value": None, "note": "" if found else NO_EVIDENCE}
    records = [{**row, **found.get(row["feature"], nothing), "row": row} for row in summary["features"]]

    def excess_of(record: Record) -> Mapping[str, Any]:
        row = record["row"]
        return {"value": row.get("excess"), "low": row.get("excess_low"), "high": row.get("excess_high")}

    def note(record: Record) -> str:
        return joined(record["note"], "" if is_number(record["share"]) else "no score to share")

    columns = (
        text("feature"),
        Column("contribution to CEC", "number", "contribution").detail(),
        Column("share of CEC", "share", "share"),
        estimate("contribution to excess", excess_of, places=4),
        Column("p-value, one-sided", "p", "p_value").detail(),
        *(
            Column(name, "number", inside("row", name))
            for name in (f"mean attribution: {group}" for group in summary["data"]["groups"])
            if any(name in row for row in summary["features"])
        ),
        flag(lambda r: significance_flag(r["p_value"], "p-value, not adjusted,")),
        Column("note", "long text", note).detail(),
    )
    caption = "Each feature's part of the CEC score and of the excess"
    return Table("Features", caption, columns, records, needs=("excess",))


def weight_table(summary: Summary) -> Table:
    """Differences in weights."""
    effect, error, _, *rest = excess_columns("estimate")
    columns = (
        text("feature"),
        text("group"),
        text("other group", "other_group"),
        estimate("weight, group minus other", effect.value, places=4),
        error,
        Column("p-value, two-sided", "p", "estimate/p_value"),
        *(column.detail() for column in rest),
        Column("note", "long text", "estimate/note").detail(),
    )
    evidence = summary["evidence"]
    caption = "How differently the model weighs a feature for comparable people of two groups, minus placebo pairs"
    missing = "No feature has a weight: the model treats all as categories." if evidence else NO_EVIDENCE
    records = (evidence or {"weights": []})["weights"]
    return Table("Weights", caption, columns, records, missing, needs=("weighing",))


def drivers(data: Summary) -> alt.Chart:
    """Each feature's contribution to the excess, with 95% intervals; the largest ones."""
    found = sorted(evidence_of(data)["features"], key=lambda f: -size_of(f["estimate"]["value"]))
    rows = [(f["feature"], f["estimate"]) for f in found[:MOST_FEATURES]]
    return forest(rows, "Contribution to the excess", "contribution of each feature to the excess.")


def shares(data: Summary) -> alt.Chart:
    """Each feature's share of the CEC score; the largest first."""
    found = [f for f in data["features"] if is_number(f["share"])][:MOST_FEATURES]
    check_any(found, "no pair was scored")
    names = labels_of([f["feature"] for f in found])
    rows = [{"label": name, "share": f["share"]} for name, f in zip(names, found, strict=True)]
    bars = chart_of(rows).mark_bar(height={"band": 0.65})
    x = quantity(alt.X, "share", "Share of the mean CEC score", percent=True)
    chart = bars.encode(x=x, y=lines_of(names), tooltip=tooltips("label", ("share", ".1%")))
    return finished(chart, "Bars: share of each feature in the mean CEC score, largest first.", STEP * len(rows))


def weights(data: Summary) -> alt.Chart:
    """How differently the model weighs features for comparable people of two groups; the clearest differences."""
    found = [w for w in evidence_of(data)["weights"] if is_number(w["estimate"]["value"])]
    found.sort(key=lambda w: -abs(w["estimate"]["value"]) / max(w["estimate"]["standard_error"] or 0.0, 1e-9))
    several = len({(w["group"], w["other_group"]) for w in found}) > 1
    rows = [
        (f"{w['feature']}: {w['group']} − {w['other_group']}" if several else w["feature"], w["estimate"])
        for w in found[:MOST_FEATURES]
    ]
    title = "Difference in weights, minus placebo pairs"
    if found and not several:
        title = f"Weight, {shortened(found[0]['group'], 16)} minus {shortened(found[0]['other_group'], 16)}"
    return forest(rows, title, "difference between two groups in the weight of each feature.")


def _drivers(data: Summary) -> str:
    clear = [f for f in data["evidence"]["features"] if is_number(f["estimate"]["low"]) and f["estimate"]["low"] > 0]
    clear.sort(key=lambda f: -f["estimate"]["value"])
    if not clear:
        return "Contributions sum to the excess; no single feature clearly adds to it."
    return f"Contributions sum to the excess. Features that clearly add to it: {_names(clear)}."


def _shares(data: Summary) -> str:
    first = [f for f in data["features"] if is_number(f["share"])][:3]
    total = percent(sum(f["share"] for f in first), 0)
    return (
        f"{total} of the difference between the explanations of a pair is due to {_names(first)}; this includes noise."
    )


def _weights(data: Summary) -> str:
    clear = [
        w
        for w in data["evidence"]["weights"]
        if is_number(w["estimate"]["low"]) and (w["estimate"]["low"] > 0 or w["estimate"]["high"] < 0)
    ]
    several = f"{len(clear)} of {len(data['evidence']['weights'])} intervals exclude 0 (1 in 20 would by chance)"
    weighed = {w["feature"] for w in data["evidence"]["weights"]}
    left = [f for f in data["features"] if f["feature"] not in weighed]
    categories = f" Without a weight, because the model treats them as categories: {_names(left)}." if left else ""
    return f"Change of the model's output for one standard deviation of the feature: {several}.{categories}"


def _names(features: list[Mapping[str, Any]]) -> str:
    return listed([shortened(f["feature"], 40) for f in features])


class Features(Section):
    """Which features the excess comes from, and which ones the model weighs differently."""

    key, title, needs, is_logged = "drivers", "Feature drivers", ("excess",), False
    under = "excess"
    parts = (FeatureEvidence, WeightDifference)
    charts = (
        AuditChart(drivers, "Features that drive the excess", _drivers, feature_table),
        AuditChart(shares, "Features behind the CEC score", _shares, feature_table),
        AuditChart(weights, "Weights that differ by group", _weights, weight_table),
    )

    prose = "Which features the excess comes from, and which ones the model weighs differently for comparable people."

    def sums(self, batch: BatchFindings) -> FeatureSums:
        weight, groups = batch.people.sample_weight, batch.people.groups
        members = [np.flatnonzero(groups.codes == code) for code in range(len(groups.names))]
        return FeatureSums(
            _weighted_sum(batch.scored.contributions, weight, batch.pairs.person),
            np.stack([_weighted_sum(batch.attributions[rows], weight, rows) for rows in members]),
        )

    def metrics(self, summary: Summary, reference: str) -> Iterable[AuditMetric]:
        for row in (summary["evidence"] or {"features": ()})["features"]:
            yield excess_metric(f"feature: {row['feature']}", "feature", row["feature"], row["estimate"])
