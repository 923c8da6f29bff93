"""The charts of an audit, defined once: name, place on the page, caption, and table."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import altair as alt

from evenhand.exceptions import InvalidInputError
from evenhand.report import audit_tables, charts, outcome_tables
from evenhand.report.audit_tables import is_shown, lacking
from evenhand.report.drawing import NothingToDrawError, save, unchecked
from evenhand.report.formatting import decimal, estimate_interval, interval, is_number, listed, percent, shortened
from evenhand.report.frame import Panel, panel_of
from evenhand.report.tables import Table

Data = Mapping[str, Any]


@dataclass(frozen=True)
class AuditChart:
    """A chart of an audit.

    Attributes
    ----------
    draw
        Draws the chart from an audit's summary; the function's name is the chart's.
    title
        Title of the chart on the page.
    caption
        What to see in it: fixed, or computed from the summary.
    table
        The numbers behind it, from the summary.
    is_wide
        Whether it takes the whole width of the page.
    """

    draw: Callable[[Data], alt.Chart]
    title: str
    caption: str | Callable[[Data], str]
    table: Callable[[Data], Table]
    is_wide: bool = False

    @property
    def name(self) -> str:
        """Name, as in `result.plot`."""
        return self.draw.__name__

    def drawn(self, summary: Data) -> alt.Chart:
        """The chart.

        Raises
        ------
        NothingToDrawError
            If there is nothing to draw, or the given inputs do not allow it.
        """
        why = lacking(summary, *self.table(summary).needs)
        if why:
            raise NothingToDrawError(why)
        return self.draw(summary)

    def panel(self, summary: Data) -> Panel:
        """The chart on a page, or why there is nothing to draw."""
        table = self.table(summary)
        try:
            with unchecked():
                chart = self.draw(summary)
        except NothingToDrawError as nothing:
            return panel_of(self.name, self.title, "", str(nothing), table, is_wide=self.is_wide)
        caption = self.caption if isinstance(self.caption, str) else self.caption(summary)
        return panel_of(self.name, self.title, caption, chart, table, is_wide=self.is_wide)


def panels_of(summary: Data, section: str) -> tuple[Panel, ...]:
    """The charts of a section of the page, without those that the given inputs do not allow."""
    return tuple(chart.panel(summary) for chart in _SECTIONS[section] if is_shown(summary, chart.table(summary)))


def _score_gap(data: Data) -> str:
    gap = audit_tables.largest_gap(data)
    total = gap["total"]
    label = "" if lacking(data, "labels") else " and label"
    parts = "" if lacking(data, "inputs") else "; the inputs below sum to it"
    side = "; below 0, the group is worse off" if lacking(data, "probability") else ""
    return (
        f"At equal finances{label}, {shortened(gap['group'], 40)} minus {shortened(gap['reference'], 40)} is "
        f"{decimal(total['value'])} {gap['unit']} ({interval(total['low'], total['high'])}){side}{parts}."
    )


def _regimes(data: Data) -> str:
    shares = data["regimes"]
    return (
        f"{percent(shares['B'])} of pairs get the same decision for different reasons (regime B), and "
        f"{percent(shares['A'])} the same decision for the same reasons. Matching noise alone puts many pairs in B, so "
        "compare this with the excess."
    )


def _plane(data: Data) -> str:
    found = data["evidence"]
    if found is None or not is_number(found["placebo_mean"]):
        return "Each point is a group. Higher: more different reasoning; farther right: more different decisions."
    return (
        "The evidence is the gap between the lines of compared pairs and placebo pairs, which are equally far apart: "
        f"{decimal(found['compared_mean'])} and {decimal(found['placebo_mean'])}. Points show nearest matches, and may "
        "be lower."
    )


_DENSITY = (
    "Darker cells hold more pairs. Pairs near the top middle have almost the same score for different "
    "reasons: no outcome metric can see them."
)


def _cec_distribution(data: Data) -> str:
    if data["evidence"] is None:
        return "Filled: nearest matches. Without evidence, there are no placebo pairs to compare them with."
    return (
        "Filled: nearest matches. Dashed: placebo pairs, averaged for each person, at the same distance as all "
        "compared pairs; the test is the excess above, not this chart."
    )


def _excess(data: Data) -> str:
    found = data["evidence"]["cec"]
    return (
        f"The excess of the CEC score is {decimal(found['value'])} ({interval(found['low'], found['high'])}); "
        "0 means the same reasoning for both groups."
    )


def _excess_by(data: Data) -> str:
    splits = [s for s in data["evidence"]["splits"] if is_number(s["estimate"]["value"])]
    called = [s for s in splits if is_number(s["p_adjusted"]) and s["p_adjusted"] <= 0.05]
    if not splits:
        return "No part of the people is large enough for a separate estimate."
    most = max(splits, key=lambda s: s["estimate"]["value"])
    place = f"largest for {shortened(most['split'], 40)}: {shortened(most['value'], 40)}"
    if not called:
        return f"No part of the people shows an excess after adjustment for the number of parts; {place}."
    return f"{len(called)} of {len(splits)} parts show an excess after adjustment for their number; {place}."


def _drivers(data: Data) -> str:
    clear = [f for f in data["evidence"]["features"] if is_number(f["estimate"]["low"]) and f["estimate"]["low"] > 0]
    clear.sort(key=lambda f: -f["estimate"]["value"])
    if not clear:
        return "Contributions sum to the excess; no single feature clearly adds to it."
    return f"Contributions sum to the excess. Features that clearly add to it: {_names(clear)}."


def _shares(data: Data) -> str:
    first = [f for f in data["features"] if is_number(f["share"])][:3]
    total = percent(sum(f["share"] for f in first), 0)
    return (
        f"{total} of the difference between the explanations of a pair is due to {_names(first)}; this includes noise."
    )


def _weights(data: Data) -> str:
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


def _proxies(data: Data) -> str:
    every = data["proxies"]["all_features"]
    known = sorted((f for f in data["proxies"]["features"] if is_number(f["auc"])), key=lambda f: -f["auc"])
    best = f"; best alone is {shortened(known[0]['feature'], 40)} at {decimal(known[0]['auc'], 2)}" if known else ""
    return f"All features together predict the group with an AUC of {decimal(every['auc'], 2)}{best} (0.5: chance)."


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
        "Matching should move points to the left of 0.1, a rule of thumb; the largest remaining difference is "
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


_RATIOS = "1 means equal rates. 0.8 is a rule of thumb from US employment selection, not a limit of credit law."


def _scores(data: Data) -> str:
    if lacking(data, "probability"):
        return f"Everyone audited, in {data['scope']['unit']}."
    return "Scores of everyone audited, in bins of 0.025; people to the right of the threshold are approved."


_CUTOFFS = "If the ratio changes a lot, the finding on outcomes depends on the choice of the cutoff."


def _error_rates(data: Data) -> str:
    gap = data["outcome"]["gaps"]["eo_gap"]
    return (
        f"True (TPR) and false positive rate (FPR): the larger gap, {decimal(gap['value'])}, is in the {gap['rate']}."
    )


def _sensitivity(data: Data) -> str:
    depends_on = data["evidence"]["sensitivity"]["depends_on"]
    if not depends_on:
        return "With every setting shown, the excess differs by no more than chance."
    return f"The excess differs by more than chance with {listed(depends_on)}."


def _thresholds(data: Data) -> str:
    return f"The audit used {data['settings']['consistency_threshold']:g}; these are descriptions, not tests."


def _names(features: list[Mapping[str, Any]]) -> str:
    return listed([shortened(f["feature"], 40) for f in features])


def _reasons(data: Data) -> str:
    found = data["reasons"]
    called = [r for r in found["rates"] if is_number(r["p_value_holm"]) and r["p_value_holm"] <= 0.05]
    asked = [r for r in found["rates"] if is_number(r["p_value_holm"])]
    names = list(dict.fromkeys(shortened(r["reason"], 40) for r in called))[:3]
    which = f", most of all {listed(names)}" if names else ""
    return (
        f"Up to {found['n_reasons']} reasons of each declined person. Compared with "
        f"{shortened(found['reference'], 40)}, {len(called)} of {len(asked)} shares, of first and of all reasons, "
        f"differ after adjustment for their number{which}."
    )


_SECTIONS: dict[str, tuple[AuditChart, ...]] = {
    "score-gap": (
        AuditChart(
            charts.score_gap,
            "Score gap at equal finances",
            _score_gap,
            audit_tables.score_gap_table,
            is_wide=True,
        ),
    ),
    "regimes": (
        AuditChart(charts.plane, "Decisions and reasoning by group", _plane, audit_tables.plane_table),
        AuditChart(charts.regimes, "Regimes", _regimes, audit_tables.regime_table),
        AuditChart(
            charts.density,
            "Pairs by score difference and CEC score",
            _DENSITY,
            audit_tables.density_table,
            is_wide=True,
        ),
    ),
    "excess": (
        AuditChart(charts.excess, "Excess over placebo pairs", _excess, audit_tables.excess_table, is_wide=True),
        AuditChart(
            charts.excess_by, "Excess within parts of the people", _excess_by, audit_tables.split_table, is_wide=True
        ),
        AuditChart(
            charts.cec_distribution,
            "CEC scores of pairs and placebo pairs",
            _cec_distribution,
            audit_tables.cec_table,
            is_wide=True,
        ),
    ),
    "drivers": (
        AuditChart(charts.drivers, "Features that drive the excess", _drivers, audit_tables.feature_table),
        AuditChart(charts.shares, "Features behind the CEC score", _shares, audit_tables.feature_table),
        AuditChart(charts.weights, "Weights that differ by group", _weights, audit_tables.weight_table),
        AuditChart(charts.proxies, "Features that predict the group", _proxies, audit_tables.proxy_table),
    ),
    "matching": (
        AuditChart(charts.distances, "Distance to the match", _distances, audit_tables.distance_table),
        AuditChart(
            charts.balance, "Balance of the financial features (Love plot)", _balance, audit_tables.balance_table
        ),
    ),
    "outcome": (
        AuditChart(charts.approvals, "Favorable decisions", _approvals, outcome_tables.approval_table),
        AuditChart(charts.ratios, "Approval ratios", _RATIOS, outcome_tables.approval_table),
        AuditChart(charts.score_distribution, "Scores", _scores, audit_tables.score_histogram),
        AuditChart(charts.error_rates, "Error rates", _error_rates, outcome_tables.error_table),
        AuditChart(charts.cutoffs, "Other cutoffs", _CUTOFFS, outcome_tables.cutoff_table, is_wide=True),
        AuditChart(
            outcome_tables.reliability,
            "Calibration by group",
            outcome_tables.calibration_caption,
            outcome_tables.reliability_table,
            is_wide=True,
        ),
    ),
    "regressions": (
        AuditChart(
            outcome_tables.coefficients,
            "Effect of the group as more is held equal",
            outcome_tables.regression_caption,
            lambda data: outcome_tables.regression_table(data, ""),
            is_wide=True,
        ),
    ),
    "sensitivity": (
        AuditChart(charts.sensitivity, "Nearer or fewer matches", _sensitivity, audit_tables.sensitivity_table),
        AuditChart(charts.thresholds, "Other consistency thresholds", _thresholds, audit_tables.threshold_table),
    ),
    "reasons-given": (
        AuditChart(charts.reason_rates, "Reasons of declined people", _reasons, audit_tables.rate_table, is_wide=True),
    ),
}
"""The charts of each section of the page, in its order."""

CHARTS: dict[str, AuditChart] = {chart.name: chart for charts_of in _SECTIONS.values() for chart in charts_of}
"""Every chart that needs only the summary, by name, in the order of the page."""


@dataclass(frozen=True, eq=False)
class Plots:
    """Charts of an audit, each an `altair.Chart`: it shows in a notebook, and `save` writes it to a file.

    Besides `pair`, there is a method without arguments for every chart of `evenhand.report.registry.CHARTS`.

    Attributes
    ----------
    summary
        The audit's summary.
    sample_of
        Returns the sample that holds the pairs of one person (`PairSample.to_dict`).
    """

    summary: Mapping[str, Any]
    sample_of: Callable[[int], Mapping[str, Any]]

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[[], alt.Chart]: ...

    def pair(self, person: int, other_group: str | None = None) -> alt.Chart:
        """Attributions of a person and the match side by side.

        Parameters
        ----------
        person
            Row of the audited table.
        other_group
            Group of the match; required only if there are more than two groups.

        Raises
        ------
        InvalidInputError
            If the person has no scored pair, or has several and `other_group` does not say which.
        """
        sample = self.sample_of(person)
        others = sample["pairs"]["other_group"].astype(str).tolist()
        if not others:
            raise InvalidInputError(f"`person` must be a row with a scored pair; {person} has none.")
        if other_group is None and len(others) > 1:
            raise InvalidInputError(
                f"Person {person} has {len(others)} pairs; give `other_group`, one of {sorted(others)}."
            )
        wanted = others[0] if other_group is None else other_group
        if wanted not in others:
            raise InvalidInputError(f"Person {person} has no scored pair in {wanted!r}, only in {sorted(others)}.")
        return charts.pair(sample, others.index(wanted))

    def save(self, folder: str | os.PathLike[str], formats: Sequence[str] = ("svg",)) -> list[Path]:
        """Write every chart that has something to draw, and return the paths.

        Parameters
        ----------
        folder
            Folder to write to; created if it does not exist.
        formats
            Among "svg", "png" and "pdf".
        """
        written = []
        for name, chart in CHARTS.items():
            try:
                drawn = chart.drawn(self.summary)
            except NothingToDrawError:
                continue
            for kind in formats:
                path = Path(folder) / f"{name}.{kind}"
                save(drawn, path)
                written.append(path)
        return written


def _method(chart: AuditChart) -> Callable[[Plots], alt.Chart]:
    def draw(self: Plots) -> alt.Chart:
        return chart.drawn(self.summary)

    draw.__name__, draw.__qualname__, draw.__doc__ = chart.name, f"Plots.{chart.name}", chart.draw.__doc__
    return draw


for _name, _chart in CHARTS.items():
    setattr(Plots, _name, _method(_chart))
