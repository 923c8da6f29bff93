"""The groups of a table before an audit: their sizes, similar names, and groups too small to judge."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pandas as pd

from evenhand.inputs.alike_names import alike_names
from evenhand.inputs.group_names import MOST_GROUPS

__all__ = ["SMALL_GROUP", "GroupCheck", "check_groups"]

SMALL_GROUP = 30
"""Metrics of groups with fewer people are unstable."""


@dataclass(frozen=True)
class GroupCheck:
    """The groups of people.

    Attributes
    ----------
    name
        The column, or columns.
    counts
        People of each group, the largest first.
    n_missing
        People without a group.
    alike
        Names that differ only in typing, grouped.
    """

    name: str
    counts: Mapping[str, int]
    n_missing: int
    alike: tuple[tuple[str, ...], ...]

    @property
    def are_many(self) -> bool:
        """Whether there are more groups than an audit can compare."""
        return len(self.counts) > MOST_GROUPS

    @property
    def small(self) -> dict[str, int]:
        """Groups with too few people."""
        return {name: n for name, n in self.counts.items() if n < SMALL_GROUP}

    def sentences(self) -> Iterator[tuple[str, str]]:
        """What is suspicious: a kind and a sentence each."""
        if len(self.counts) < 2:
            yield "one group", f"{self.name!r} has fewer than two groups, but at least two are needed to compare."
        if self.are_many:
            yield (
                "many groups",
                f"{self.name!r} has {len(self.counts):,} values, too many for groups; combine them, or turn a "
                "number such as an age into a few ranges.",
            )
            return
        for names in self.alike:
            shown = ", ".join(f"{name!r} ({self.counts[name]:,})" for name in names)
            yield (
                "alike groups",
                f"{self.name!r} has groups whose names differ only in typing: {shown}; combine them.",
            )
        if self.small:
            shown = ", ".join(f"{name!r} ({n:,})" for name, n in self.small.items())
            yield (
                "small groups",
                f"{self.name!r} has groups with fewer than {SMALL_GROUP} people, whose metrics are unstable: {shown}; "
                "combine them, or leave them out.",
            )
        if self.n_missing:
            yield (
                "missing group",
                f"{self.n_missing:,} people have no group; `drop_missing` leaves them out and counts them.",
            )


def check_groups(groups: pd.Series[str], name: str) -> GroupCheck:
    """The groups of people by name, missing if someone has none.

    Examples
    --------
    >>> check_groups(pd.Series(["f", "m", "F", "m", None]), "sex").alike
    (('f', 'F'),)
    """
    counts = groups.value_counts()
    sizes = {str(group): int(n) for group, n in counts.items()}
    return GroupCheck(name, sizes, int(groups.isna().sum()), tuple(alike_names(sorted(sizes, reverse=True))))
