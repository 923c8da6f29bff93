"""The excess over placebo pairs: in total, within parts of the people, by feature, and with different settings."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import altair as alt
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.arrays import Floats, Ints, Sums
from evenhand.auditing.batch import BatchFindings
from evenhand.auditing.evidence import (
    Evidence,
    FeatureEvidence,
    SplitExcess,
    WeightDifference,
    gather_evidence,
    write_q_values,
)
from evenhand.auditing.sections.outcome import Outcome
from evenhand.auditing.sections.pairs import Pairs
from evenhand.auditing.sections.score_gap import gaps_of
from evenhand.auditing.totals import Totals
from evenhand.metrics.names import METRICS
from evenhand.report.drawing import (
    MOST_FEATURES,
    STEP,
    NothingToDrawError,
    Row,
    chart_of,
    check_any,
    finished,
    forest,
    guide_x,
    labels_of,
    lines_of,
    quantity,
    size_of,
    tooltips,
)
from evenhand.report.formatting import decimal, interval, is_number, listed, percent, shortened
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
from evenhand.report.tables import (
    NOTE,
    SIGNIFICANT,
    Column,
    Record,
    Table,
    estimate,
    flag,
    histogram_table,
    inside,
    joined,
    significance_flag,
    text,
)

_MOST_ROWS = 40
_OVER_PLACEBO = "Excess over placebo pairs"


# What the excess is of: in words, shorter in charts, and what it needs.
_EXCESS_OF: dict[str, tuple[str, str, str]] = {
    "cec": ("CEC score", "CEC score", ""),
    "input_gap": ("input gap", "input gap", "weighing"),
    "reasoning_gap": ("reasoning gap", "reasoning gap", "weighing"),
    "regime_b": ("share in Regime B (a description, not a test)", "regime B share", "regimes"),
    "reason_overlap": ("shared principal reasons of declined people (below 0: fewer shared)", "shared reasons", ""),
    "rank_overlap": ("rank-biased overlap of their reasons (below 0: less alike)", "", ""),
}

_CHOICES: dict[str, tuple[str, Callable[[Any], str]]] = {
    "max_distance": ("cec", lambda at: f"within a distance of {at:.2f}"),
    "n_matches": ("cec", lambda at: f"nearest {at} of each person"),
    "consistency_threshold": ("regime_b", lambda at: f"reasoning differs above {at:g}"),
}


def excess_columns(path: str = "") -> tuple[Column, ...]:
    """The columns of an estimate over pairs and placebo pairs, which is at `path` in each record."""
    key = f"{path}/" if path else ""
    return (
        estimate("excess", path or (lambda r: r)),
        Column("standard error", "number", f"{key}standard_error").detail(),
        Column("p-value, one-sided", "p", f"{key}p_value"),
        Column("people", "whole", f"{key}n"),
        Column("people, effective", "number", f"{key}n_effective").detail(),
        Column("degrees of freedom", "number", f"{key}df").detail(),
    )


def _excess_records(summary: Summary) -> list[Record]:
    found = summary["evidence"]
    if not found:
        return []
    records: list[Record] = [
        {**found[name], "metric": words, "choice": "as audited", "at": "", "by": ""}
        for name, (words, _, need) in _EXCESS_OF.items()
        if not lacking(summary, need)
    ]
    for name, (metric, choice) in _CHOICES.items():
        records += [
            {**row, "metric": _EXCESS_OF[metric][0], "choice": choice(row[name]), "at": row[name], "by": name}
            for row in found["sensitivity"][name]
        ]
    return records


def excess_table(summary: Summary, *, with_choices: bool = False) -> Table:
    """The excess of each metric, as audited and, if requested, with different settings."""
    records = [r for r in _excess_records(summary) if with_choices or not r["by"]]
    columns = (
        text("metric"),
        text("choice").detail(),
        Column("at").detail(),
        *excess_columns(),
        flag(lambda r: significance_flag(r["p_value"], "p-value")),
        NOTE,
    )
    caption = "Excess over placebo pairs with 95% intervals"
    return Table("Excess", caption, columns, records, NO_EVIDENCE, needs=("excess",))


def sensitivity_table(summary: Summary) -> Table:
    """The excess of the CEC score with nearer or fewer matches."""
    records = [r for r in _excess_records(summary) if r["metric"] == _EXCESS_OF["cec"][0]]
    columns = (text("choice"), *excess_columns(), NOTE)
    return Table("Sensitivity", "Excess of the CEC score with different settings", columns, records, needs=("excess",))


def threshold_table(summary: Summary) -> Table:
    """The excess share in regime B at different thresholds."""
    records = [r for r in _excess_records(summary) if r["by"] == "consistency_threshold"]
    columns = (text("choice"), estimate("excess share", lambda r: r, "share"), NOTE)
    caption = "Excess share in regime B at different consistency thresholds"
    return Table("Thresholds", caption, columns, records, needs=("regimes",))


def split_table(summary: Summary) -> Table:
    """The excess within parts of the people."""
    columns = (
        text("column", "split"),
        text("value"),
        *excess_columns("estimate"),
        Column("p-value, adjusted", "p", "p_adjusted"),
        flag(lambda r: significance_flag(r["p_adjusted"], "adjusted p-value")),
        Column("note", "long text", "estimate/note"),
    )
    caption = "Excess of the CEC score within parts of the people; p-values adjusted (Holm) within a column"
    records = (summary["evidence"] or {"splits": []})["splits"]
    return Table("Splits", caption, columns, records, NO_EVIDENCE, needs=("excess",))


def evidence_of(data: Summary) -> Mapping[str, Any]:
    """The evidence, for charts that need it."""
    if data["evidence"] is None:
        raise NothingToDrawError("The audit was run without evidence: run `audit` with `evidence=True` for this chart.")
    found: Mapping[str, Any] = data["evidence"]
    return found


@chart(
    "CEC scores of pairs and placebo pairs",
    lambda summary: histogram_table(summary["distributions"]["cec"], "Pairs by CEC score and group", "excess"),
    is_wide=True,
    is_detail=True,
)
def cec_distribution(data: Summary) -> Drawing:
    """CEC scores of pairs, and of the placebo pairs of the same people."""
    x = quantity(alt.X, "cec", "CEC score", domain=[0, 1])
    y = quantity(alt.Y, "share", "Share of pairs", percent=True)
    pairs, placebo = (_histogram(data["distributions"][key]) for key in ("cec", "placebo_cec"))
    check_any(pairs, "no pair was scored")
    layers: list[Any] = [chart_of(pairs).mark_area(style="pairs", interpolate="step-after", line=True).encode(x=x, y=y)]
    if placebo:
        layers.append(chart_of(placebo).mark_line(style="floor", interpolate="step-after").encode(x=x, y=y))
    tau = data["settings"]["consistency_threshold"]
    description = "Histogram: CEC scores of pairs across groups (filled) and of placebo pairs (dashed line)."
    areas = finished(alt.layer(*layers, *guide_x(tau, f"threshold {tau:g}")), description, height=220)
    if data["evidence"] is None:
        return areas, "Filled: nearest matches. Without evidence, there are no placebo pairs to compare them with."
    return areas, (
        "Filled: nearest matches. Dashed: placebo pairs, averaged for each person, at the same distance as all "
        "compared pairs; the test is the excess above, not this chart."
    )


def _histogram(found: Mapping[str, Any]) -> list[Row]:
    """Share of everyone in each bin, at its left edge, and 0 at the end."""
    counts = np.sum(list(found["counts"].values()), axis=0) if found["counts"] else np.zeros(0)
    if not counts.sum():
        return []
    shares = [*(counts / counts.sum()).tolist(), 0.0]
    return [{"cec": edge, "share": share} for edge, share in zip(found["edges"], shares, strict=True)]


@chart(_OVER_PLACEBO, excess_table, is_wide=True)
def excess(data: Summary) -> Drawing:
    """The excess over placebo pairs of each measure, with 95% intervals."""
    found = evidence_of(data)
    rows = [(label, found[name]) for name, (_, label, _) in _EXCESS_OF.items() if label]
    cec = found["cec"]
    description = "excess over placebo pairs of the CEC score, its two parts, regime B and shared reasons."
    return forest(rows, _OVER_PLACEBO, description), (
        f"The excess of the CEC score is {decimal(cec['value'])} ({interval(cec['low'], cec['high'])}); "
        "0 means the same reasoning for both groups."
    )


@chart("Excess within parts of the people", split_table, is_wide=True, is_detail=True)
def excess_by(data: Summary) -> Drawing:
    """The excess of the CEC score within each group, label, decision and additional column."""
    splits = evidence_of(data)["splits"]
    rows = [("everyone", data["evidence"]["cec"])]
    rows += [(f"{s['split']}: {s['value']}", s["estimate"]) for s in splits]
    among = "for everyone and within each group, label, decision and additional column."
    points = forest(rows[:_MOST_ROWS], _OVER_PLACEBO, f"excess of the CEC score {among}")
    known = [s for s in splits if is_number(s["estimate"]["value"])]
    called = [s for s in known if is_number(s["p_adjusted"]) and s["p_adjusted"] <= SIGNIFICANT]
    if not known:
        return points, "No part of the people is large enough for a separate estimate."
    most = max(known, key=lambda s: s["estimate"]["value"])
    place = f"largest for {shortened(most['split'], 40)}: {shortened(most['value'], 40)}"
    if not called:
        return points, f"No part of the people shows an excess after adjustment for the number of parts; {place}."
    return points, f"{len(called)} of {len(known)} parts show an excess after adjustment for their number; {place}."


@chart("Nearer or fewer matches", sensitivity_table)
def sensitivity(data: Summary) -> Drawing:
    """The excess with different matches, with 95% intervals."""
    found = evidence_of(data)["sensitivity"]
    rows = [("as audited", data["evidence"]["cec"])]
    rows += [(f"distance up to {e['max_distance']:.2f}", e) for e in found["max_distance"]]
    rows += [(f"nearest {e['n_matches']} each", e) for e in found["n_matches"]]
    depends_on = found["depends_on"]
    return forest(rows, _OVER_PLACEBO, "excess of the CEC score with nearer or fewer matches."), (
        f"The excess differs by more than chance with {listed(depends_on)}."
        if depends_on
        else "With every setting shown, the excess differs by no more than chance."
    )


@chart("Other consistency thresholds", threshold_table)
def thresholds(data: Summary) -> Drawing:
    """The excess share in regime B at different consistency thresholds, with 95% intervals."""
    found = evidence_of(data)["sensitivity"]["consistency_threshold"]
    rows = [(f"CEC above {e['consistency_threshold']:g}", e) for e in found]
    description = "excess share in regime B at different consistency thresholds."
    caption = f"The audit used {data['settings']['consistency_threshold']:g}; these are descriptions, not tests."
    return forest(rows, "Excess share in regime B", description, percent_axis=True), caption


_EXCESSES: dict[str, tuple[str, str, str]] = {
    "weighing": ("reasoning_gap", METRICS["reasoning_excess"].words, "weighing"),
    "excess": ("cec", METRICS["excess"].words, "excess"),
    "excess_balanced": ("balanced", METRICS["excess_balanced"].words, "excess"),
    "excess: input gap": ("input_gap", "excess, input gap", "excess"),
    "excess: regime B": ("regime_b", METRICS["excess_regime_b"].words, "excess"),
    "excess: shared reasons": ("reason_overlap", "excess, shared principal reasons", "excess"),
}


class Excess(Section):
    """How much farther apart the explanations of pairs are than those of placebo pairs."""

    key, title, needs, is_logged = "excess", "Weighing and excess", ("excess",), False
    answers, more = ("weighing", "excess"), "Parts of the people, and all CEC scores"
    parts = (SplitExcess,)
    charts = (excess, excess_by, cec_distribution)
    words: ClassVar = {
        "placebo pair": "A person and someone of the same group and label who is as far away as the match. It shows "
        "what the CEC score is when the group plays no role.",
        "excess": "The CEC score of pairs minus that of placebo pairs, adjusted for unequal finances: the evidence.",
        "weighing": "Whether the same inputs count alike for both groups: the reasoning gap of pairs minus that of "
        "placebo pairs.",
        "q-value": "Expected share of false alarms in a list of people that ends with this one.",
        "people, effective": "Number of equally used people who would be as informative as those compared.",
    }

    prose = (
        "Two people are never quite alike, so explanations differ even if the group plays no role. A placebo pair "
        "is a person and someone of the same group and label who is as far away as the match. The CEC score of "
        "pairs across groups minus that of placebo pairs is the excess: the evidence of this audit."
    )

    def is_possible(self, scope: Any) -> bool:
        return True  # score gaps are known even if excesses are not

    def of(self, totals: Totals) -> Evidence | None:
        """The evidence, score gaps included; the pair tables of the batches get their q-values."""
        fitted, batches, merged = totals.fitted, totals.batches, totals.merged
        if totals.sums.evidence is None:
            return None
        write_q_values(batches, merged.numbers, len(fitted.pool.groups.names))
        return gather_evidence(fitted, batches, merged, totals.part(Outcome).approvals.reference)

    def summary(self, part: Evidence) -> Mapping[str, Any]:
        return {
            **gaps_of(part),
            "evidence": part.to_dict(),
            "cec": {
                "placebo": part.placebo_mean,
                "excess": part.cec.value,
                "excess_ci": [part.cec.low, part.cec.high],
                "p_value": part.cec.p_value,
                "excess_balanced": part.balanced.value,
                "excess_balanced_ci": [part.balanced.low, part.balanced.high],
                "excess_balanced_p_value": part.balanced.p_value,
                "weighing_excess": part.reasoning_gap.value,
                "weighing_ci": [part.reasoning_gap.low, part.reasoning_gap.high],
                "weighing_p_value": part.reasoning_gap.p_value,
                "input_gap_excess": part.input_gap.value,
                "regime_b_excess": part.regime_b.value,
            },
        }

    def sheets(self, summary: Summary) -> Sequence[Table]:
        return (excess_table(summary, with_choices=True), split_table(summary))

    def summary_rows(self, summary: Summary) -> Iterable[SummaryRow]:
        found = summary["evidence"]
        if not found:
            return
        p, overlap = found["cec"]["p_value"], found["reason_overlap"]
        words = "" if not is_number(p) else "one-sided p < 0.001" if p < 0.001 else f"one-sided p = {p:.3f}"
        note = ", ".join(x for x in ("minus placebo pairs", words, found["cec"]["note"]) if x)
        weighing = found["reasoning_gap"]
        shared = overlap["note"] or "of two declined people; below 0, fewer shared"
        yield "compared pairs, CEC mean", found["compared_mean"], "pairs that have a placebo pair", "excess"
        yield "placebo pairs, CEC mean", found["placebo_mean"], "within a group, at the same distance", "excess"
        yield "excess", found["cec"], note, "excess"
        yield "excess, groups weighted equally", found["balanced"], found["balanced"]["note"], "excess"
        yield "weighing", weighing, weighing["note"] or "excess of the reasoning gap", "weighing"
        yield METRICS["excess_regime_b"].words, found["regime_b"], found["regime_b"]["note"], "regimes"
        yield "excess, shared principal reasons", overlap, shared, "excess", "decisions"

    def metrics(self, summary: Summary, reference: str) -> Iterable[AuditMetric]:
        found = summary["evidence"]
        if found is None:
            return
        for key, (name, words, part) in _EXCESSES.items():
            finding = key if key in ("weighing", "excess") else None
            yield excess_metric(key, part, words, found[name], finding=finding, influence=key)
        for split in found["splits"]:
            if split["split"] in ("group", "groups compared"):
                key, words = f"excess: {split['split']} {split['value']}", f"excess, {split['value']}"
                yield excess_metric(key, "excess", words, split["estimate"])


def excess_metric(key: str, part: Any, words: str, of: Mapping[str, Any], **more: Any) -> AuditMetric:
    """A metric from an estimate over pairs and placebo pairs."""
    value, error, df = (number(of[name]) for name in ("value", "standard_error", "df"))
    return AuditMetric(key, part, words, value, error, df, note=of["note"], **more)


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


def _names(features: list[Mapping[str, Any]]) -> str:
    return listed([shortened(f["feature"], 40) for f in features])


@chart("Features that drive the excess", feature_table)
def drivers(data: Summary) -> Drawing:
    """Each feature's contribution to the excess, with 95% intervals; the largest ones."""
    found = sorted(evidence_of(data)["features"], key=lambda f: -size_of(f["estimate"]["value"]))
    rows = [(f["feature"], f["estimate"]) for f in found[:MOST_FEATURES]]
    points = forest(rows, "Contribution to the excess", "contribution of each feature to the excess.")
    clear = [f for f in found if is_number(f["estimate"]["low"]) and f["estimate"]["low"] > 0]
    if not clear:
        return points, "Contributions sum to the excess; no single feature clearly adds to it."
    return points, f"Contributions sum to the excess. Features that clearly add to it: {_names(clear)}."


@chart("Features behind the CEC score", feature_table)
def shares(data: Summary) -> Drawing:
    """Each feature's share of the CEC score; the largest first."""
    found = [f for f in data["features"] if is_number(f["share"])][:MOST_FEATURES]
    check_any(found, "no pair was scored")
    names = labels_of([f["feature"] for f in found])
    rows = [{"label": name, "share": f["share"]} for name, f in zip(names, found, strict=True)]
    bars = chart_of(rows).mark_bar(height={"band": 0.65})
    x = quantity(alt.X, "share", "Share of the mean CEC score", percent=True)
    bars = bars.encode(x=x, y=lines_of(names), tooltip=tooltips("label", ("share", ".1%")))
    first, description = found[:3], "Bars: share of each feature in the mean CEC score, largest first."
    return finished(bars, description, STEP * len(rows)), (
        f"{percent(sum(f['share'] for f in first), 0)} of the difference between the explanations of a pair is due to "
        f"{_names(first)}; this includes noise."
    )


@chart("Weights that differ by group", weight_table)
def weights(data: Summary) -> Drawing:
    """How differently the model weighs features for comparable people of two groups; the clearest differences."""
    evidence = evidence_of(data)
    found = [w for w in evidence["weights"] if is_number(w["estimate"]["value"])]
    found.sort(key=lambda w: -abs(w["estimate"]["value"]) / max(w["estimate"]["standard_error"] or 0.0, 1e-9))
    several = len({(w["group"], w["other_group"]) for w in found}) > 1
    rows = [
        (f"{w['feature']}: {w['group']} − {w['other_group']}" if several else w["feature"], w["estimate"])
        for w in found[:MOST_FEATURES]
    ]
    title = "Difference in weights, minus placebo pairs"
    if found and not several:
        title = f"Weight, {shortened(found[0]['group'], 16)} minus {shortened(found[0]['other_group'], 16)}"
    points, weights = (
        forest(rows, title, "difference between two groups in the weight of each feature."),
        evidence["weights"],
    )
    ends = [(w["estimate"]["low"], w["estimate"]["high"]) for w in weights]
    n_clear = sum(is_number(low) and (low > 0 or high < 0) for low, high in ends)
    weighed = {w["feature"] for w in weights}
    left = [f for f in data["features"] if f["feature"] not in weighed]
    categories = f" Without a weight, because the model treats them as categories: {_names(left)}." if left else ""
    return points, (
        f"Change of the model's output for one standard deviation of the feature: {n_clear} of {len(weights)} "
        f"intervals exclude 0 (1 in 20 would by chance).{categories}"
    )


class Features(Section):
    """Which features the excess comes from, and which ones the model weighs differently."""

    key, title, needs, is_logged = "drivers", "Feature drivers", ("excess",), False
    under = "excess"
    parts = (FeatureEvidence, WeightDifference)
    charts = (drivers, shares, weights)

    prose = "Which features the excess comes from, and which ones the model weighs differently for comparable people."

    def sums(self, batch: BatchFindings) -> FeatureSums:
        weight, groups = batch.people.sample_weight, batch.people.groups
        members = [np.flatnonzero(groups.codes == code) for code in range(len(groups.names))]
        return FeatureSums(
            _weighted_sum(batch.scored.contributions, weight, batch.pairs.person),
            np.stack([_weighted_sum(batch.attributions[rows], weight, rows) for rows in members]),
        )

    def is_possible(self, scope: Any) -> bool:
        return True  # the table is empty rather than absent

    def of(self, totals: Totals) -> pd.DataFrame:
        """For each feature: mean part of the CEC score, share, part of the excess, and mean attribution by group.

        From the mean of their own group, people's attributions by a linear model have a mean of 0, which says nothing:
        then there are no columns of means.
        """
        fitted, sums, evidence = totals.fitted, totals.sums, totals.part(Excess)
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

    def summary(self, part: pd.DataFrame) -> Mapping[str, Any]:
        return {"features": part.to_dict("records")}

    def metrics(self, summary: Summary, reference: str) -> Iterable[AuditMetric]:
        for row in (summary["evidence"] or {"features": ()})["features"]:
            yield excess_metric(f"feature: {row['feature']}", "feature", row["feature"], row["estimate"])


class Sensitivity(Section):
    """The excess with nearer or fewer matches, and at other thresholds; its numbers are in the sheet of the excess."""

    key, title, needs, under = "sensitivity", "The excess with other matches and thresholds", ("excess",), "matching"
    charts = (sensitivity, thresholds)

    prose = (
        "The same question with different settings. A verdict that changes with an arbitrary setting is not reliable."
    )

    def sheets(self, summary: Summary) -> Sequence[Table]:
        return ()
