"""Overrides: actual decisions that differ from the model's at its cut-off, by group and direction, at equal score."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

import numpy as np

from evenhand.arrays import Bools, Floats, Ints
from evenhand.auditing.batches import ScoreCounts
from evenhand.auditing.fitted import own_score
from evenhand.auditing.totals import Totals
from evenhand.metrics.disparity import approval_disparity, segmented_approvals
from evenhand.metrics.estimate import Estimate, Plain, not_estimable
from evenhand.report.section import Section, Summary
from evenhand.report.tables import (
    NOTE,
    Column,
    Table,
    beside_reference,
    estimate,
    flag,
    p_adjusted,
    significance_flag,
    text,
)

_NEAR = 0.2  # share of the people who are near the cut-off
Among: TypeAlias = Literal["below", "above", "near"]
Decided: TypeAlias = Literal["approved", "declined"]
_MOST_BANDS, _PEOPLE_PER_BAND = 10, 50


@dataclass(frozen=True)
class GroupOverrides:
    """Overrides of one group in one direction.

    Attributes
    ----------
    among, decision
        Whom it is about: people below or above the cut-off, or the fifth of all people who are nearest to it; and the
        actual decision that is counted. Below the cut-off an approval is an override, above it a denial.
    n_people, n, rate
        People of the group among them, how many have the decision, and their share (Wilson's interval).
    odds_ratio
        Odds of the decision in the group over those in the reference group at equal score: over bands of the score
        (Mantel and Haenszel).
    p_value, p_value_holm
        Of equal odds at equal score (Cochran, Mantel and Haenszel); adjusted for the number of groups.
    n_bands
        Bands of the score with both groups and both decisions.
    """

    among: Among
    decision: Decided
    group: str
    is_reference: bool
    n_people: int
    n: int
    rate: Estimate
    odds_ratio: Estimate
    p_value: float
    p_value_holm: float
    n_bands: int
    note: str


@dataclass(frozen=True)
class OverridesFound(Plain):
    """Overrides of all groups, the cut-off in the model's own score, and the reference group."""

    cut_off: float
    reference: str
    groups: tuple[GroupOverrides, ...]


def group_overrides(
    rows: ScoreCounts, names: tuple[str, ...], cut_off: float, reference: str | None = None
) -> tuple[str, list[GroupOverrides]]:
    """The reference group, by default the largest, and overrides by direction and group; rows are sorted by score."""
    reference = reference or names[int(np.bincount(rows.group, rows.weight, minlength=len(names)).argmax())]
    distance, is_above = np.abs(rows.score - cut_off), rows.score >= cut_off
    order = np.argsort(distance, kind="stable")
    upto = np.cumsum(rows.count[order])
    is_near = distance <= distance[order[np.searchsorted(upto, _NEAR * upto[-1])]]
    asked: tuple[tuple[Among, Decided, Bools], ...] = (
        ("below", "approved", ~is_above),
        ("above", "declined", is_above),
        ("near", "approved", is_near),
    )
    return reference, [row for one in asked for row in _overrides(*one, rows, names, reference)]


def _overrides(
    among: Among, decision: Decided, chosen: Bools, rows: ScoreCounts, names: tuple[str, ...], reference: str
) -> list[GroupOverrides]:
    if not chosen.any():
        return []
    group, score, weights = rows.group[chosen], rows.score[chosen], rows.weights.rows(chosen)
    value = rows.decision[chosen] if decision == "approved" else 1 - rows.decision[chosen]
    has_reference = bool((group == names.index(reference)).any())
    rates = approval_disparity(value, group, names=names, frequency=weights, test="z").groups
    found = {}
    if has_reference:
        bands = _bands(score, weights.count)
        of_groups = segmented_approvals(value, group, bands, names=names, frequency=weights, reference=reference)
        found = {row.group: row for row in of_groups}
    overrides = []
    for row in rates:
        at = found.get(row.group)
        why = "this is the reference group" if row.group == reference else "no one in the reference group"
        overrides.append(
            GroupOverrides(
                among=among,
                decision=decision,
                group=row.group,
                is_reference=row.group == reference,
                n_people=int(row.n_people),
                n=int(row.n_approved),
                rate=row.approval_rate,
                odds_ratio=not_estimable(why) if at is None else at.common_odds_ratio_group_over_reference,
                p_value=math.nan if at is None else at.p_value,
                p_value_holm=math.nan if at is None else at.p_value_holm,
                n_bands=0 if at is None else at.n_segments_used,
                note=row.approval_rate.note or ("" if at is None else at.common_odds_ratio_group_over_reference.note),
            )
        )
    return overrides


def _bands(score: Floats, count: Ints) -> Ints:
    """Bands of ordered scores with about equal numbers of people; equal scores are in one band."""
    before = np.cumsum(count) - count
    total = int(count.sum())
    n_bands = max(1, min(_MOST_BANDS, total // _PEOPLE_PER_BAND))
    bands: Ints = before[np.searchsorted(score, score)] * n_bands // total
    return bands


_AMONG = {"below": "below the cut-off", "above": "above the cut-off", "near": "near the cut-off"}


def override_table(summary: Summary) -> Table:
    """Overrides of each group, by direction."""
    found = summary.get("overrides") or {"groups": (), "reference": "the reference group", "cut_off": math.nan}
    columns = (
        Column("among", "text", lambda r: _AMONG[r["among"]]),
        text("decision"),
        text("group"),
        Column("people", "whole", "n_people"),
        Column("with the decision", "whole", "n"),
        estimate("share", "rate", "share"),
        estimate("odds ratio at equal score", beside_reference("odds_ratio"), places=2),
        Column("p-value", "p", beside_reference("p_value")).detail(),
        p_adjusted(beside_reference("p_value_holm")),
        Column("bands of the score", "whole", beside_reference("n_bands")).detail(),
        flag(lambda r: significance_flag(r["p_value_holm"], "adjusted p-value")),
        NOTE,
    )
    caption = (
        f"Actual decisions beside the model's at a cut-off of {found['cut_off']:g}, compared with {found['reference']}"
    )
    return Table("Overrides", caption, columns, found["groups"], needs=Overrides.needs)


class Overrides(Section):
    """Actual decisions that differ from the model's at its cut-off; absent if there is no cut-off for everyone."""

    key, title, reads, result = "overrides", "Overrides", "overrides", OverridesFound
    needs = ("decisions", "probability")
    prose = (
        "Where people decide beside the model: how often someone below the cut-off is approved and someone above it is "
        "declined, and how often people near it are approved. Odds ratios compare people in the same band of the "
        "score, so that groups with different scores can be compared. What the score does not know may explain them."
    )
    words: ClassVar = {
        "override": "An actual decision that differs from the model's at its cut-off.",
        "near the cut-off": "The fifth of all people whose scores are closest to the cut-off.",
    }

    def of(self, totals: Totals) -> OverridesFound | None:
        pool, settings = totals.fitted.pool, totals.fitted.settings
        if pool.decisions is None or pool.cut_offs is not None:
            return None
        names, cut_off = pool.groups.names, settings.approval_threshold
        against, groups = group_overrides(totals.sums.rows, names, cut_off, settings.reference_group)
        shown = own_score(cut_off, settings.favorable or "high", settings.unit)
        return OverridesFound(float(shown), against, tuple(groups))

    def tables(self, summary: Summary) -> Sequence[Table]:
        return (override_table(summary),)
