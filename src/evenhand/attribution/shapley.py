"""Shapley attributions of any score from one baseline row per person, and the underlying game.

The players are the inputs. A coalition S of a person's inputs scores f(x_S, b_rest): the inputs outside it come from
the baseline row. The contribution of inputs z in the context of a person w is

    phi_j(z | w; b) = mean over coalitions S without j of f(z_j, w_S, b_rest) - f(b_j, w_S, b_rest),

with Shapley's weights: what the value z_j adds if the preceding inputs are the context's. With z = w = x it is the
Shapley value of x. It corresponds to (z - b) * g(w) for integrated gradients, and like it does not depend on the
context if the score is linear or, more generally, a sum of functions of one input each.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Protocol, Self, runtime_checkable

import numpy as np

from evenhand.arrays import Bools, Floats, Ints
from evenhand.attribution.explanation import Explanation


@dataclass(frozen=True, eq=False)
class Contributions:
    """Contributions of shape (n, d), their standard errors if they were sampled, and the contexts' scores if known."""

    values: Floats
    standard_error: Floats | None = None
    margin: Floats | None = None


@runtime_checkable
class Game(Protocol):
    """A score as a game: inputs against a baseline row, person by person."""

    @property
    def method(self) -> str:
        """A description of how contributions are computed."""
        ...

    def margin(self, x: Floats) -> Floats:
        """The score that is explained, of shape (n,)."""
        ...

    def contributions(self, inputs: Floats, context: Floats, baseline: Floats) -> Contributions:
        """phi(inputs | context; baseline), all three of shape (n, d)."""
        ...


@runtime_checkable
class SharedGame(Game, Protocol):
    """A game that evaluates a context once for all inputs requested in it."""

    def contributions_at(
        self, inputs: tuple[Floats, Ints], context: tuple[Floats, Ints], baseline: tuple[Floats, Ints]
    ) -> Floats:
        """phi(inputs | context; baseline), each given as rows and the places of the n requested ones among them."""
        ...

    def contributions_beside(self, inputs: Floats, context: Floats, baseline: Floats) -> tuple[Floats, Floats]:
        """phi(context | context; baseline), and phi(inputs | context; baseline)."""
        ...


@dataclass(frozen=True, eq=False)
class ShapleyAttribution(Explanation):
    """Shapley values of n people: an `Explanation`.

    Attributes
    ----------
    x, baseline
        The people and the rows they are explained from, of shape (n, d).
    shapley_values, standard_error
        Attributions; their standard errors if permutations were sampled.
    is_category
        Which inputs are codes of categories, of shape (d,), between which no step is taken. None if there are none.
    sign
        -1 if the game is the score of the opposite outcome, and every contribution is negated.
    source
        The attribution whose rows these are, and which rows; None for neither. What depends only on a person's row is
        computed once there.
    """

    game: Game
    x: Floats
    baseline: Floats
    shapley_values: Floats
    logit: Floats
    baseline_logit: Floats
    method: str
    standard_error: Floats | None = None
    is_category: Bools | None = None
    sign: int = 1
    source: tuple[ShapleyAttribution, Ints] | None = None
    _steps: dict[bytes, Floats] = field(default_factory=dict)

    @property
    def values(self) -> Floats:
        """Shapley values, of shape (n, d)."""
        return self.shapley_values

    def rows(self, index: Ints) -> Self:
        """The people of `index`; inputs keep the type in which the score compares them."""
        return replace(
            self,
            x=self.x[index],
            baseline=self.baseline[index],
            shapley_values=self.values[index],
            logit=self.logit[index],
            baseline_logit=self.baseline_logit[index],
            standard_error=None if self.standard_error is None else self.standard_error[index],
            source=(self, index),
            _steps={},
        )

    def with_inputs_of(self, other: Self) -> Floats:
        """Contributions of the inputs of `other` in the contexts of these people."""
        return self.sign * self.game.contributions(other.x, self.x, self.baseline).values

    def crossed(self, contexts: Ints, other: Explanation, inputs: Ints) -> Floats:
        """Contributions of the inputs of rows `inputs` of `other` in the contexts of rows `contexts`, of shape (n, d).

        Both must be explained from the same baselines, row by row, by a game that evaluates contexts once.
        """
        assert isinstance(self.game, SharedGame)
        assert isinstance(other, ShapleyAttribution)
        rows = (other.x, inputs), (self.x, contexts), (self.baseline, contexts)
        return self.sign * self.game.contributions_at(*rows)

    def per_deviation(self, deviation: Floats) -> Floats:
        """Contribution of a step of `deviation` from the baseline in each context; 0 for a category, which has none."""
        if self.source is not None:
            everyone, index = self.source
            key = deviation.tobytes()
            if key not in everyone._steps:
                everyone._steps[key] = everyone.per_deviation(deviation)
            return everyone._steps[key][index]
        if self.is_category is not None:
            deviation = np.where(self.is_category, 0.0, deviation)
        step = (self.baseline + deviation).astype(self.x.dtype, copy=False)
        return self.sign * self.game.contributions(step, self.x, self.baseline).values

    def reversed(self, score: Callable[[Floats], Floats]) -> Self:
        """The same for the opposite outcome."""
        logit, baseline_logit = score(self.logit), score(self.baseline_logit)
        return replace(self, shapley_values=-self.values, logit=logit, baseline_logit=baseline_logit, sign=-self.sign)


def shapley_attribution(
    game: Game, x: Floats, baseline: Floats, is_category: Bools | None = None
) -> ShapleyAttribution:
    """Shapley values of each row of `x` from the same row of `baseline`."""
    found = game.contributions(x, x, baseline)
    logits = game.margin(x) if found.margin is None else found.margin, game.margin(baseline)
    return ShapleyAttribution(game, x, baseline, found.values, *logits, game.method, found.standard_error, is_category)
