"""Triples between every two groups, located once.

With G groups there are G (G - 1) / 2 questions about two of them. If each question went through all triples, the time
would grow with the cube of G. If each goes through the triples between its two groups, all take as long as one does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from evenhand.auditing.triples import Triples
from evenhand.metrics.clustering import InMemory, Parts, Question, estimate_excesses
from evenhand.metrics.excess import ExcessEstimate
from evenhand.system.parallel import Crew

__all__ = ["ByGroups", "excesses_by_groups"]

Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class ByGroups:
    """Triples in memory, sorted by the two groups they are between; triples not in memory are passed on unchanged.

    Attributes
    ----------
    triples
        All triples.
    n_groups
        Number of groups.
    order, code
        The triples in the order of their two groups, and a code of the groups; None if all triples are passed on.
    """

    triples: Parts[Triples]
    n_groups: int
    order: Ints | None = None
    code: Ints | None = None

    @classmethod
    def of(cls, triples: Parts[Triples], n_groups: int) -> ByGroups:
        """Locate the triples; with two groups, all triples are between them."""
        if n_groups <= 2 or not isinstance(triples, InMemory):
            return cls(triples, n_groups)
        group, other = triples.part.group, triples.part.other_group
        code = np.minimum(group, other) * n_groups + np.maximum(group, other)
        order = np.argsort(code, kind="stable")
        return cls(triples, n_groups, order, code[order])

    def between(self, first: int, second: int) -> Parts[Triples]:
        """Triples that include all those between two groups; if they are in memory, only those."""
        if self.order is None or self.code is None or not isinstance(self.triples, InMemory):
            return self.triples
        code = min(first, second) * self.n_groups + max(first, second)
        start, stop = np.searchsorted(self.code, [code, code + 1])
        return replace(self.triples, part=self.triples.part.rows(self.order[start:stop]))


def excesses_by_groups(
    questions: Sequence[Question[Triples]],
    triples: Parts[Triples],
    n_groups: int,
    crew: Crew,
    device: torch.device | None,
) -> list[tuple[ExcessEstimate, ...]]:
    """As `estimate_excesses`, but a question with `sides` only uses the triples between these two groups."""
    by_groups = ByGroups.of(triples, n_groups)
    if by_groups.order is None:
        return estimate_excesses(questions, triples, crew, device)
    places: dict[tuple[int, int] | None, list[int]] = {}
    for place, question in enumerate(questions):
        places.setdefault(getattr(question, "sides", None), []).append(place)
    found: dict[int, tuple[ExcessEstimate, ...]] = {}
    for sides, asked in places.items():
        some = triples if sides is None else by_groups.between(*sides)
        answers = estimate_excesses([questions[place] for place in asked], some, crew, device)
        found |= dict(zip(asked, answers, strict=True))
    return [found[place] for place in range(len(questions))]
