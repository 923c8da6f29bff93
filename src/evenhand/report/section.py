"""A section: one feature of an audit's result, with everything that is shown, compared and logged of it.

Sections read the summary (`AuditResult.to_dict`) and compute nothing when they show it. Page, workbook, memo, terminal,
charts, comparisons, histories, MLflow and the schema of the JSON are made from a list of sections.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Literal, TypeAlias

import altair as alt
import numpy as np
from altair.utils import schemapi

from evenhand.exceptions import InvalidInputError, did_you_mean
from evenhand.report import frame
from evenhand.report.drawing import (
    MOST_FEATURES,
    NothingToDrawError,
    chart_of,
    finished,
    group_color,
    label_of,
    labels_of,
    lines_of,
    quantity,
    save,
    specification,
    svg_of,
    tooltips,
)
from evenhand.report.formatting import decimal, shortened
from evenhand.report.schema import schema_of
from evenhand.report.tables import Table

Summary: TypeAlias = Mapping[str, Any]
Part: TypeAlias = Literal["score_gap", "inputs", "weighing", "excess", "outcome", "feature", "other"]
Scale: TypeAlias = Literal["difference", "ratio"]
SummaryRow: TypeAlias = tuple[Any, ...]
"""A row of the summary: metric, value or estimate, note, and what it needs."""
Drawing: TypeAlias = tuple[alt.Chart, str]
"""A chart and its caption."""

NO_EVIDENCE = "Not available: the audit was run with evidence=False."
_OF_ONE_DRAW = "Groups are drawn: whatever is not in the table of pooled metrics comes from the first draw."


def lacking(summary: Summary, *needs: str) -> str:
    """Why the first unmet need is not met; empty if all are met.

    A need is a key of what may not be possible, ``"labels"``, ``"scores"``, or ``"probability"`` for scores that are
    probabilities.

    Examples
    --------
    >>> lacking({}, "weighing")
    ''
    >>> scope = {"outcome": "value", "has_labels": True, "not_possible": {"weighing": "There is no model."}}
    >>> lacking({"scope": scope}, "weighing"), lacking({"scope": scope}, "probability")
    ('There is no model.', 'The outcome is not a probability.')
    """
    scope = summary.get("scope")
    if not scope:
        return ""
    why = {
        **scope["not_possible"],
        **({} if scope["has_labels"] else {"labels": "There are no labels."}),
        **({"scores": "There are no scores."} if scope["outcome"] == "decision" else {}),
        **({} if scope["outcome"] == "score" else {"probability": "The outcome is not a probability."}),
    }
    return next((why[need] for need in needs if need in why), "")


@dataclass(frozen=True)
class AuditChart:
    """A chart of an audit.

    Attributes
    ----------
    draw
        Draws the chart from an audit's summary, and says what to see in it; the function's name is the chart's.
    title
        Title of the chart on the page.
    table
        The numbers behind it, from the summary.
    is_wide
        Whether it takes the whole width of the page.
    is_detail
        Whether the page folds it away.
    """

    draw: Callable[[Summary], Drawing]
    title: str
    table: Callable[[Summary], Table]
    is_wide: bool = False
    is_detail: bool = False

    @property
    def name(self) -> str:
        """Name, as in `result.plot`."""
        return self.draw.__name__

    def drawn(self, summary: Summary) -> alt.Chart:
        """The chart.

        Raises
        ------
        NothingToDrawError
            If there is nothing to draw, or the given inputs do not allow it.
        """
        why = lacking(summary, *self.table(summary).needs)
        if why:
            raise NothingToDrawError(why)
        return self.draw(summary)[0]

    def panel(self, summary: Summary) -> frame.Panel:
        """The chart on a page, or why there is nothing to draw."""
        table = self.table(summary)
        try:
            with schemapi.debug_mode(False):  # Altair would check every piece
                chart, caption = self.draw(summary)
        except NothingToDrawError as nothing:
            return frame.panel_of(self.name, self.title, "", str(nothing), table, is_wide=self.is_wide)
        return frame.panel_of(self.name, self.title, caption, chart, table, is_wide=self.is_wide)


def chart(
    title: str, table: Callable[[Summary], Table], *, is_wide: bool = False, is_detail: bool = False
) -> Callable[[Callable[[Summary], Drawing]], AuditChart]:
    """Make a chart of a function that draws it: see `AuditChart`."""
    return lambda draw: AuditChart(draw, title, table, is_wide, is_detail)


@dataclass(frozen=True)
class AuditMetric:
    """A metric of an audit and its uncertainty, for comparisons, histories and MLflow.

    Attributes
    ----------
    key
        The same in every audit: "excess", "score_gap: female minus male", "auc".
    part
        What it is about: one of the four questions, decisions, one feature's part of the excess, or something else.
    words
        The metric for a reader.
    standard_error
        Standard error of the value, or of its logarithm if `scale` is "ratio". NaN if there is none.
    df
        Degrees of freedom; infinite for a normal approximation.
    scale
        "difference": two of them are compared by subtraction; "ratio": by division.
    finding
        The question that it answers; None for all other metrics.
    unit, groups
        For score gaps: log-odds or probability, and the group and the one it is compared with.
    influence, sign
        Name of the influences of people on it, and whether they are on the metric or on its negative; None if they are
        not kept.
    """

    key: str
    part: Part
    words: str
    value: float
    standard_error: float
    df: float = math.inf
    scale: Scale = "difference"
    note: str = ""
    finding: Literal["score_gap", "inputs", "weighing", "excess"] | None = None
    unit: str = ""
    groups: tuple[str, str] | None = None
    influence: str | None = None
    sign: float = 1.0

    @property
    def has_error(self) -> bool:
        """Whether there is a value with a standard error."""
        return math.isfinite(self.value) and math.isfinite(self.standard_error)


def number(value: float | None) -> float:
    """A number of the summary, which is None where the summary was read from JSON and could not be estimated."""
    return math.nan if value is None else float(value)


class Section:
    """One feature of an audit's result; a subclass says what it has, and the rest is empty.

    Attributes
    ----------
    key, title
        Id and heading on the page. `key` is also the summary's key of what `of` returns.
    reads
        A key of the summary without which the section is absent: that of what `of` returns, if it is not `key`.
    needs
        What must have been given, as in `lacking`; else the section is absent, and the scope says why.
    charts, prose, words
        Charts in order, a paragraph that comes first, and terms for the glossary.
    answers
        The questions that it answers: their sentences come first.
    under, more
        Key of the section in which the page folds this one away, if any; and the title of the fold for its details.
    is_pooled
        Whether its numbers are pooled over draws, if groups are known as probabilities.
    is_logged
        Whether MLflow gets its metrics; those of the four findings are logged anyway.
    result, parts
        The dataclass that `of` returns, and others in the summary: the schema of the JSON follows from them.
    """

    key: ClassVar[str]
    title: ClassVar[str]
    reads: ClassVar[str] = ""
    needs: ClassVar[tuple[str, ...]] = ()
    charts: ClassVar[tuple[AuditChart, ...]] = ()
    prose: ClassVar[str] = ""
    words: ClassVar[Mapping[str, str]] = {}
    answers: ClassVar[tuple[str, ...]] = ()
    under: ClassVar[str] = ""
    more: ClassVar[str] = "More"
    is_pooled: ClassVar[bool] = False
    is_logged: ClassVar[bool] = True
    result: ClassVar[type | None] = None
    parts: ClassVar[tuple[type, ...]] = ()

    def sums(self, batch: Any) -> Any:
        """What the section adds up over batches of people (`arrays.Sums`), from one of them; None for nothing."""
        return None

    def of(self, totals: Any) -> Any:
        """What the section adds to the result, from all batches (`auditing.totals.Totals`); None for nothing."""
        return None

    def summary(self, part: Any) -> Mapping[str, Any]:
        """What it adds to the summary, by key, from what `of` returned; sections may add to the same key."""
        return {self.reads or self.key: part.to_dict()}

    @property
    def schema(self) -> Mapping[str, Any]:
        """JSON Schema of the section's keys in the summary, by key."""
        return {} if self.result is None else {self.reads or self.key: schema_of(self.result)}

    def is_possible(self, scope: Any) -> bool:
        """Whether what was given allows the section: what it does not allow is not computed."""
        return not lacking({"scope": scope.to_dict()}, *self.needs)

    def is_present(self, summary: Summary) -> bool:
        """Whether the audit has what the section shows."""
        return (not self.reads or summary.get(self.reads) is not None) and not lacking(summary, *self.needs)

    def paragraphs(self, summary: Summary) -> Sequence[str]:
        """What comes first, if `prose` alone cannot say it."""
        return (self.prose,) if self.prose else ()

    def facts(self, summary: Summary) -> Sequence[tuple[str, str]]:
        """Names and values."""
        return ()

    def tables(self, summary: Summary) -> Sequence[Table]:
        """Tables of page and memo, besides those behind charts."""
        return ()

    def details(self, summary: Summary) -> Sequence[Table]:
        """Further ones, which the page folds away."""
        return ()

    def notes(self, summary: Summary) -> Sequence[str]:
        """Reservations below the tables."""
        return ()

    def sheets(self, summary: Summary) -> Sequence[Table]:
        """Tables of the workbook, and of `AuditResult.tables`; by default those of the page and behind its charts."""
        if not self.is_present(summary):
            return ()
        tables = [*self.tables(summary), *self.details(summary), *(chart.table(summary) for chart in self.charts)]
        return list({table.name: table for table in tables}.values())

    def summary_rows(self, summary: Summary) -> Iterable[SummaryRow]:
        """Rows of `AuditResult.summary`."""
        return ()

    def metrics(self, summary: Summary, reference: str) -> Iterable[AuditMetric]:
        """Metrics to compare and to follow over time; `reference` is the group that others are compared with."""
        return ()

    def logged(self, summary: Summary) -> Iterable[tuple[str, Any]]:
        """Names and numbers for MLflow; by default its metrics."""
        if self.is_logged and self.is_present(summary):
            for metric in self.metrics(summary, summary["outcome"]["approvals"]["reference"]):
                yield f"{self.key}.{metric.key}", metric.value

    def on_page(self, summary: Summary) -> frame.Section | None:
        """The section of the page; None if there is nothing to show."""
        if not self.is_present(summary):
            return None
        charts = [c for c in self.charts if not lacking(summary, *c.table(summary).needs)]
        tables, details = (
            [table for table in found if not lacking(summary, *table.needs)]
            for found in (self.tables(summary), self.details(summary))
        )
        drawn = (_OF_ONE_DRAW,) if "drawn_groups" in summary and not self.is_pooled else ()
        answers = [one["sentence"] for key in self.answers for one in summary["findings"] if one["key"] == key]
        panels = [c.panel(summary) for c in charts if c.is_detail]
        more = frame.Section(f"{self.key}-more", self.more, panels=panels, tables=details)
        return frame.Section(
            self.key,
            self.title,
            (*answers, *self.paragraphs(summary), *drawn),
            facts=self.facts(summary),
            panels=[c.panel(summary) for c in charts if not c.is_detail],
            tables=tables,
            notes=self.notes(summary),
            folded=(more,) if panels or details else (),
        )


def sheets_of(summary: Summary, sections: Sequence[Section]) -> list[Table]:
    """The tables of the workbook that the given inputs allow."""
    return [t for section in sections for t in section.sheets(summary) if not lacking(summary, *t.needs)]


def _drawing(chart: Any, include: Any = None, exclude: Any = None) -> dict[str, Any]:
    """A chart as notebooks show it: Altair's own form would fetch scripts from elsewhere."""
    return {"image/svg+xml": svg_of(specification(chart))}


def drawn_offline(chart: alt.Chart) -> alt.Chart:
    """The same chart, which notebooks show without a network."""
    shown = chart.copy(deep=False)
    # Altair keeps what is set on a chart as a part of its specification.
    offline = type(type(chart).__name__, (type(chart),), {"_repr_mimebundle_": _drawing})
    object.__setattr__(shown, "__class__", offline)
    return shown


@dataclass(frozen=True, eq=False)
class Plots:
    """Charts of an audit, each an `altair.Chart`: it shows in a notebook, and `save` writes it to a file.

    Besides `pair`, there is a method without arguments for every chart of the audit's sections; `dir` lists them.

    Attributes
    ----------
    summary
        The audit's summary.
    sample_of
        Returns the sample that holds the pairs of one person (`PairSample.to_dict`).
    charts
        The charts by name.
    """

    summary: Mapping[str, Any]
    sample_of: Callable[[int], Mapping[str, Any]]

    charts: Mapping[str, AuditChart]

    def __getattr__(self, name: str) -> Callable[[], alt.Chart]:
        if name.startswith("_") or name not in self.charts:
            raise AttributeError(f"There is no chart {name!r}.{did_you_mean(name, list(self.charts))}")
        chart = self.charts[name]

        def draw() -> alt.Chart:
            return drawn_offline(chart.drawn(self.summary))

        draw.__name__, draw.__doc__ = name, chart.draw.__doc__
        return draw

    def __dir__(self) -> list[str]:
        return [*super().__dir__(), *self.charts]

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
        return drawn_offline(_pair(sample, others.index(wanted)))

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
        for name, chart in self.charts.items():
            try:
                drawn = chart.drawn(self.summary)
            except NothingToDrawError:
                continue
            for kind in formats:
                path = Path(folder) / f"{name}.{kind}"
                save(drawn, path)
                written.append(path)
        return written


def _pair(sample: Mapping[str, Any], row: int) -> alt.Chart:
    """Attributions of the two people of a sampled pair side by side, as parts of unit vectors."""
    chosen = sample["pairs"].iloc[row]
    sides = {
        f"person {chosen['person']}, {label_of(chosen['group'])}": "",
        f"match {chosen['match']}, {label_of(chosen['other_group'])}": "match_",
    }
    units = sample["attributions"][row], sample["match_attributions"][row]
    units = tuple(unit / max(float(np.linalg.norm(unit)), 1e-30) for unit in units)
    order = np.argsort(-np.maximum(*map(np.abs, units)), kind="stable")[:MOST_FEATURES]
    names = labels_of([str(sample["values"].columns[j]) for j in order])
    rows = [
        {"label": name, "who": who, "part": float(unit[j]), "value": shortened(sample[f"{side}values"].iat[row, j], 40)}
        for name, j in zip(names, order, strict=True)
        for (who, side), unit in zip(sides.items(), units, strict=True)
    ]
    chart = chart_of(rows).mark_bar()
    chart = chart.encode(
        x=quantity(alt.X, "part", "Attribution, as part of the whole explanation"),
        y=lines_of(names),
        yOffset=alt.YOffset("who:N", sort=None, scale=alt.Scale(domain=list(sides))),
        color=group_color(list(sides), "who"),
        tooltip=tooltips("label", "who", "value", ("part", ".3f")),
    )
    return finished(
        chart,
        f"Grouped bars: attributions of person {chosen['person']} and match {chosen['match']}, CEC score "
        f"{decimal(float(chosen['cec']))}.",
        30 * len(names),
    )
