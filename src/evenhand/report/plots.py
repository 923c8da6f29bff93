"""The charts of a result, by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import altair as alt

from evenhand.exceptions import InvalidInputError
from evenhand.report import charts
from evenhand.report.drawing import NothingToDrawError, save
from evenhand.report.registry import CHARTS, AuditChart

__all__ = ["Plots"]


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
