"""The charts of an audit, one by one: `AuditResult.plot`."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import altair as alt
import numpy as np

from evenhand.exceptions import InvalidInputError, did_you_mean
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
from evenhand.report.section import AuditChart


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
        f"person {chosen['person']}, {label_of(chosen['group'])}": (
            sample["attributions"][row],
            sample["values"].iloc[row],
        ),
        f"match {chosen['match']}, {label_of(chosen['other_group'])}": (
            sample["match_attributions"][row],
            sample["match_values"].iloc[row],
        ),
    }
    units = [attributions / max(float(np.linalg.norm(attributions)), 1e-30) for attributions, _ in sides.values()]
    order = np.argsort(-np.maximum(*map(np.abs, units)), kind="stable")[:MOST_FEATURES]
    names = labels_of([str(sample["values"].columns[j]) for j in order])
    rows = [
        {"label": name, "who": who, "part": float(unit[j]), "value": shortened(values.iloc[j], 40)}
        for name, j in zip(names, order, strict=True)
        for (who, (_, values)), unit in zip(sides.items(), units, strict=True)
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
