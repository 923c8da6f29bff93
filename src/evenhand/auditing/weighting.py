"""Sampling weights of the audited people: how many are counted, and the effective sample size."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Any

from evenhand.auditing.sums import AuditSums
from evenhand.metrics.weights import effective_number_of_people

__all__ = ["GroupWeight", "Weighting"]

_LEAST_WORTH = 0.5  # effective sample size as a share of those counted, below which readers are warned


@dataclass(frozen=True)
class GroupWeight:
    """The weights of one group.

    Attributes
    ----------
    n_people, n_counted
        Rows of the group, and those with a weight above 0.
    n_effective
        Number of equally weighted people with the same information (Kish): (Σw)² / Σw².
    share, share_of_sample
        Share of the group in the population, according to the weights, and in the sample.
    """

    group: str
    n_people: int
    n_counted: int
    n_effective: float
    share: float
    share_of_sample: float

    @property
    def is_uneven(self) -> bool:
        """Whether the effective sample size is less than half of the people counted."""
        return self.n_effective < _LEAST_WORTH * self.n_counted


@dataclass(frozen=True)
class Weighting:
    """The sampling weights of an audit.

    Attributes
    ----------
    n_people, n_counted, n_effective
        As in `GroupWeight`, for everyone.
    groups
        By group.
    """

    n_people: int
    n_counted: int
    n_effective: float
    groups: tuple[GroupWeight, ...]

    @classmethod
    def of(cls, sums: AuditSums, names: tuple[str, ...]) -> Weighting:
        """Compute the weights from the sums over all people."""
        counted, total, squares = sums.weights.T
        worth = effective_number_of_people(total, squares)
        groups = tuple(
            GroupWeight(
                group=name,
                n_people=int(sums.n_people[code]),
                n_counted=int(counted[code]),
                n_effective=float(worth[code]),
                share=float(total[code] / total.sum()),
                share_of_sample=float(counted[code] / counted.sum()),
            )
            for code, name in enumerate(names)
        )
        everyone = effective_number_of_people(total.sum(), squares.sum())
        return cls(int(sums.n_people.sum()), int(counted.sum()), float(everyone), groups)

    def reservations(self) -> Iterator[str]:
        """What a reader must know about the weights."""
        n_left_out = self.n_people - self.n_counted
        if n_left_out:
            yield f"{n_left_out:,} of {self.n_people:,} people have a sampling weight of 0 and are not counted."
        uneven = [group for group in self.groups if group.is_uneven]
        if uneven:
            shown = ", ".join(f"{g.group} ({g.n_counted:,} people, effectively {g.n_effective:,.0f})" for g in uneven)
            yield (
                f"Sampling weights are so uneven that the effective size of groups is less than half of their people: "
                f"{shown}. A few people with large weights determine their metrics; check the weights, or trim them."
            )

    def to_dict(self) -> dict[str, Any]:
        """Plain data for JSON."""
        return {**asdict(self), "groups": [asdict(group) for group in self.groups]}
