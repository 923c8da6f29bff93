"""Shapley attributions of any score from one baseline row per person, and the game they are the value of.

The players are the inputs. A coalition S of people's inputs scores f(x_S, b_rest): the inputs outside it come from the
baseline row. Inputs z are weighed in the context of a person w by

    phi_j(z | w; b) = mean over coalitions S without j of f(z_j, w_S, b_rest) - f(b_j, w_S, b_rest),

in Shapley's weights: what the value z_j adds when the inputs that came before it are the context's. With z = w = x it
is the Shapley value of x. It plays the part that (z - b) * g(w) has for integrated gradients, and like it is free of
the context where the score is linear; more generally where it is a sum of functions of one input each.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Protocol, Self, runtime_checkable

from torch import Tensor

from evenhand.attribution.explanation import Explanation

__all__ = ["Contributions", "Game", "ShapleyAttribution", "SharedGame", "shapley_attribution"]


@dataclass(frozen=True, eq=False)
class Contributions:
    """Contributions of shape (n, d), and their standard errors where they were estimated from a sample."""

    values: Tensor
    standard_error: Tensor | None = None


@runtime_checkable
class Game(Protocol):
    """A score that can be played: inputs against a baseline row, person by person."""

    @property
    def method(self) -> str:
        """How contributions are computed, in words."""
        ...

    def margin(self, x: Tensor) -> Tensor:
        """The score that is explained, of shape (n,)."""
        ...

    def contributions(self, inputs: Tensor, context: Tensor, baseline: Tensor) -> Contributions:
        """phi(inputs | context; baseline), all three of shape (n, d)."""
        ...


@runtime_checkable
class SharedGame(Game, Protocol):
    """A game that plays a context once for all inputs that are asked for in it."""

    def contributions_at(
        self, inputs: tuple[Tensor, Tensor], context: tuple[Tensor, Tensor], baseline: tuple[Tensor, Tensor]
    ) -> Tensor:
        """phi(inputs | context; baseline), each given as rows and the places among them of the n asked for."""
        ...


@dataclass(frozen=True, eq=False)
class ShapleyAttribution:
    """Shapley values of n people: an `Explanation`.

    Attributes
    ----------
    x, baseline
        The people and the rows they are explained from, of shape (n, d).
    values, standard_error
        Shapley values; their standard errors where permutations were sampled.
    is_category
        Which inputs are codes of categories, of shape (d,): no step is taken from one to another. None for none.
    source
        The attribution that these are rows of, and which; None for neither. What depends on a person's row alone is
        computed once there.
    """

    game: Game
    x: Tensor
    baseline: Tensor
    values: Tensor
    logit: Tensor
    baseline_logit: Tensor
    standard_error: Tensor | None
    is_category: Tensor | None = None
    source: tuple[ShapleyAttribution, Tensor] | None = None
    _steps: dict[bytes, Tensor] = field(default_factory=dict)

    @property
    def method(self) -> str:
        """How they were computed."""
        return self.game.method

    @property
    def completeness_gap(self) -> Tensor:
        """|sum of attributions - (f(x) - f(b))|, of shape (n,)."""
        return (self.values.sum(-1) - (self.logit - self.baseline_logit)).abs()

    def rows(self, index: Tensor) -> Self:
        """The people of `index`; inputs keep the type in which the score compares them."""
        return replace(
            self,
            x=self.x[index],
            baseline=self.baseline[index],
            values=self.values[index].double(),
            logit=self.logit[index].double(),
            baseline_logit=self.baseline_logit[index].double(),
            standard_error=None if self.standard_error is None else self.standard_error[index],
            source=(self, index),
            _steps={},
        )

    def with_inputs_of(self, other: Self) -> Tensor:
        """Contributions of the inputs of `other` in the contexts of these people."""
        return self.game.contributions(other.x, self.x, self.baseline).values

    @property
    def shares_contexts(self) -> bool:
        """Whether the game plays a context once for all who ask."""
        return isinstance(self.game, SharedGame)

    def crossed(self, contexts: Tensor, other: Explanation, inputs: Tensor) -> Tensor:
        """Contributions of the inputs of rows of `other` in the contexts of rows."""
        assert isinstance(self.game, SharedGame)
        assert isinstance(other, ShapleyAttribution)
        return self.game.contributions_at((other.x, inputs), (self.x, contexts), (self.baseline, contexts))

    def per_deviation(self, deviation: Tensor) -> Tensor:
        """Contribution of a step of `deviation` from the baseline in each context; 0 for a category, which has none."""
        if self.source is not None:
            everyone, index = self.source
            key = deviation.cpu().numpy().tobytes()
            if key not in everyone._steps:
                everyone._steps[key] = everyone.per_deviation(deviation)
            return everyone._steps[key][index]
        if self.is_category is not None:
            deviation = deviation.masked_fill(self.is_category, 0.0)
        step = (self.baseline + deviation).to(self.x.dtype)
        return self.game.contributions(step, self.x, self.baseline).values


def shapley_attribution(
    game: Game, x: Tensor, baseline: Tensor, is_category: Tensor | None = None
) -> ShapleyAttribution:
    """Shapley values of each row of `x` from the same row of `baseline`."""
    found = game.contributions(x, x, baseline)
    return ShapleyAttribution(
        game, x, baseline, found.values, game.margin(x), game.margin(baseline), found.standard_error, is_category
    )
