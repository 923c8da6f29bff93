"""The frontier of a search: the best of what is minimized for each level of utility."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from evenhand.searching.choosing import Metrics
from evenhand.searching.metrics import AXES, direction_of

__all__ = ["Frontier"]


@dataclass(frozen=True)
class Frontier:
    """Candidates such that no other is at least as good in two metrics and better in one, by means over folds.

    Unlike the front, it ignores noise; the chart of it shows intervals.

    Attributes
    ----------
    utility, objective
        The two metrics.
    candidates
        Their numbers, from the least utility to the most.
    """

    utility: str
    objective: str
    candidates: tuple[int, ...]

    @classmethod
    def of(cls, metrics: Metrics, minimize: str, limited: Sequence[str]) -> Frontier:
        """The frontier of all candidates; the utility is the first that a constraint names, or AUC.

        Examples
        --------
        >>> metrics = {"auc": np.array([[0.8], [0.7], [0.7]]), "cec": np.array([[0.3], [0.1], [0.2]])}
        >>> Frontier.of(metrics, "cec", []).candidates
        (1, 0)
        """
        utility = next((name for name in limited if name in AXES["utility"] and name != minimize), "auc")
        objective = "reasoning_gap" if minimize == utility else minimize
        first, second = (direction_of(name) * metrics[name].mean(1) for name in (utility, objective))
        found: list[int] = []
        best = -np.inf
        for k in np.lexsort((-second, -first)).tolist():  # from the most utility to the least
            if np.isfinite(first[k]) and second[k] > best:
                found.append(k)
                best = float(second[k])
        return cls(utility, objective, tuple(reversed(found)))

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**asdict(self), "candidates": list(self.candidates)}
