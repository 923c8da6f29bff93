"""Scores that are a sum of terms of a few inputs each, explained exactly, term by term."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.attribution.sampled import all_coalitions_game
from evenhand.attribution.shapley import Contributions

__all__ = ["AdditiveGame", "Term"]

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Term:
    """One term of a score.

    Attributes
    ----------
    inputs
        Positions of the inputs it reads.
    score
        Maps these inputs, of shape (n, k), to n numbers.
    """

    inputs: tuple[int, ...]
    score: Callable[[Floats], Floats]


@dataclass(frozen=True, eq=False)
class AdditiveGame:
    """A constant plus terms: a `Game`.

    The Shapley value of a sum is the sum of the Shapley values. A term of one input belongs to that input; a term of
    two or three is split over all their coalitions.

    Examples
    --------
    >>> game = AdditiveGame(0.5, (Term((0,), lambda x: 3 * x[:, 0]), Term((0, 1), lambda x: x[:, 0] * x[:, 1])))
    >>> x, baseline = torch.tensor([[2.0, 4.0]]), torch.zeros(1, 2)
    >>> game.contributions(x, x, baseline).values.tolist()
    [[10.0, 4.0]]
    """

    constant: float
    terms: tuple[Term, ...]

    @property
    def method(self) -> str:
        """How contributions are computed."""
        return "Shapley values of each additive term, exact"

    def margin(self, x: Tensor) -> Tensor:
        """The score, of shape (n,)."""
        values = x.double().cpu().numpy()
        total = np.full(len(values), self.constant)
        for term in self.terms:
            total += term.score(values[:, term.inputs])
        return torch.from_numpy(total)

    def contributions(self, inputs: Tensor, context: Tensor, baseline: Tensor) -> Contributions:
        """phi(inputs | context; baseline), exactly."""
        total = torch.zeros(context.shape, dtype=torch.float64)
        for term in self.terms:
            chosen = list(term.inputs)
            of_context = context[:, chosen]
            of_inputs = of_context if inputs is context else inputs[:, chosen]
            game = all_coalitions_game(term.score)
            total[:, chosen] += game.contributions(of_inputs, of_context, baseline[:, chosen]).values
        return Contributions(total)
