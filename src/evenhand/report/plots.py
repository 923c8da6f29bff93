"""The charts of a result, by name."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenhand.exceptions import InvalidInputError
from evenhand.report import charts

if TYPE_CHECKING:
    import altair as alt

    from evenhand.auditing.sample import PairSample

__all__ = ["CHARTS", "Plots"]

CHARTS = (
    "regimes",
    "plane",
    "density",
    "excess",
    "excess_by",
    "cec_distribution",
    "drivers",
    "shares",
    "weights",
    "proxies",
    "distances",
    "balance",
    "approvals",
    "ratios",
    "error_rates",
    "cutoffs",
    "score_distribution",
    "sensitivity",
    "thresholds",
)
"""Names of the charts that need no argument."""


@dataclass(frozen=True, eq=False)
class Plots:
    """Charts of an audit, each an `altair.Chart`: it shows in a notebook, and `save` writes it to a file.

    Attributes
    ----------
    data
        The audit as plain data.
    sample_of
        Gives the sample that holds the pairs of one person.
    """

    data: Mapping[str, Any]
    sample_of: Callable[[int], PairSample]

    def regimes(self) -> alt.Chart:
        """Share of pairs in each regime, by group."""
        return charts.regimes(self.data)

    def plane(self) -> alt.Chart:
        """Prediction flip rate and mean CEC score of each group."""
        return charts.plane(self.data)

    def density(self) -> alt.Chart:
        """Pairs by difference of scores and CEC score."""
        return charts.density(self.data)

    def excess(self) -> alt.Chart:
        """Excess over placebo pairs of each measure."""
        return charts.excess(self.data)

    def excess_by(self) -> alt.Chart:
        """Excess within each group, label, decision and further column."""
        return charts.excess_by(self.data)

    def cec_distribution(self) -> alt.Chart:
        """CEC scores of pairs and placebo pairs."""
        return charts.cec_distribution(self.data)

    def drivers(self) -> alt.Chart:
        """What each feature contributes to the excess."""
        return charts.drivers(self.data)

    def shares(self) -> alt.Chart:
        """Each feature's share of the CEC score."""
        return charts.shares(self.data)

    def weights(self) -> alt.Chart:
        """How differently features are weighed in comparable people of two groups."""
        return charts.weights(self.data)

    def proxies(self) -> alt.Chart:
        """How well each feature tells the group."""
        return charts.proxies(self.data)

    def distances(self) -> alt.Chart:
        """Share of pairs within each distance."""
        return charts.distances(self.data)

    def balance(self) -> alt.Chart:
        """Love plot of the financial features."""
        return charts.balance(self.data)

    def approvals(self) -> alt.Chart:
        """Share of favorable decisions by group."""
        return charts.approvals(self.data)

    def ratios(self) -> alt.Chart:
        """Approval ratio of each group to the reference group."""
        return charts.ratios(self.data)

    def error_rates(self) -> alt.Chart:
        """True and false positive rate by group."""
        return charts.error_rates(self.data)

    def cutoffs(self) -> alt.Chart:
        """Approval ratios as the cut-off moves."""
        return charts.cutoffs(self.data)

    def score_distribution(self) -> alt.Chart:
        """Scores by group."""
        return charts.score_distribution(self.data)

    def sensitivity(self) -> alt.Chart:
        """The excess with nearer or fewer comparisons."""
        return charts.sensitivity(self.data)

    def thresholds(self) -> alt.Chart:
        """The excess share in regime B at other consistency thresholds."""
        return charts.thresholds(self.data)

    def pair(self, person: int, other_group: str | None = None) -> alt.Chart:
        """Attributions of a person and the match side by side.

        Parameters
        ----------
        person
            Row of the audited table.
        other_group
            Group of the match; needed only where there are more than two.

        Raises
        ------
        InvalidInputError
            If the person has no scored pair, or several and `other_group` does not say which.
        """
        sample = self.sample_of(person)
        others = sample.pairs["other_group"].astype(str).tolist()
        if not others:
            raise InvalidInputError(f"`person` must be a row with a scored pair, got {person}: it has none.")
        if other_group is None and len(others) > 1:
            raise InvalidInputError(
                f"Person {person} has {len(others)} pairs; give `other_group`, one of {sorted(others)}."
            )
        wanted = others[0] if other_group is None else other_group
        if wanted not in others:
            raise InvalidInputError(
                f"Person {person} has no scored pair in {wanted!r}; there is one in {sorted(others)}."
            )
        return charts.pair(sample, others.index(wanted))

    def save(self, folder: str | os.PathLike[str], formats: Sequence[str] = ("svg",)) -> list[Path]:
        """Write every chart that has something to draw, and return the paths.

        Parameters
        ----------
        folder
            Where to; it is made if it is not there.
        formats
            Of "svg", "png" and "pdf".
        """
        written = []
        for name in CHARTS:
            try:
                chart: alt.Chart = getattr(self, name)()
            except charts.NothingToDrawError:
                continue
            for kind in formats:
                path = Path(folder) / f"{name}.{kind}"
                charts.save(chart, path)
                written.append(path)
        return written
