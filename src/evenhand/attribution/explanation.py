"""What the audit needs from an explanation, however it was computed."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal, Self

from evenhand.arrays import Array, double

Method = Literal["segments", "midpoint", "exact"]
"""How gradients are averaged over a path: see `attribution.gradients`."""


class Explanation(ABC):
    """Attributions of n people, each from a separate baseline row, and what they would be with different inputs.

    The contribution of a feature to a person's score has two sides: the person's value, and the weight that the model
    gives it next to the person's other values, the context. Gaps between two people are separated by taking one side
    from each person.

    Attributes
    ----------
    logit, baseline_logit
        The score that is explained, and that at the baselines, of shape (n,).
    method
        How the attributions were computed.
    standard_error
        Standard error of each attribution, of shape (n, d), if they were estimated from a sample; else None.
    """

    logit: Array
    baseline_logit: Array
    method: str
    standard_error: Array | None = None

    @property
    @abstractmethod
    def values(self) -> Array:
        """Attributions, of shape (n, d); rows sum to the logit minus the baseline's."""

    @property
    def completeness_gap(self) -> Array:
        """|sum of attributions - (f(x) - f(b))|, of shape (n,); 0 for a perfect integral."""
        return abs(self.values.sum(-1) - (self.logit - self.baseline_logit))

    @abstractmethod
    def rows(self, index: Array) -> Self:
        """The people of `index`, in float64."""

    @abstractmethod
    def with_inputs_of(self, other: Self) -> Array:
        """Contributions of the inputs of `other` in the contexts of these people, of shape (n, d).

        Both must be explained from the same baselines, row by row.
        """

    @abstractmethod
    def per_deviation(self, deviation: Array) -> Array:
        """Contribution of a step of `deviation`, of shape (d,), from the baseline in each context, of shape (n, d)."""

    @abstractmethod
    def reversed(self, score: Callable[[Array], Array]) -> Self:
        """The explanation of the opposite outcome, whose score is `score` of this one: every contribution negated."""


@dataclass(frozen=True)
class Attribution(Explanation):
    """Weights times distances from the baseline: of a linear model, or integrated gradients of a network.

    Attributes
    ----------
    gradients
        Path-averaged gradients g, of shape (n, d), or (K, n, d) of a stack of K models.
    offset
        x - b, of shape (n, d): all models of a stack share it.
    logit, baseline_logit
        The model at x and at b, of shape (n,), or (K, n).
    method
        How the path was integrated; a module that is not a plain chain of layers always has ``midpoint`` here.
    """

    gradients: Array
    offset: Array
    logit: Array
    baseline_logit: Array
    method: Method

    @property
    def values(self) -> Array:
        """Attributions (x - b) * g, of shape (n, d)."""
        return self.offset * self.gradients

    def rows(self, index: Array) -> Self:
        """The people of `index`, in float64."""
        return replace(
            self,
            gradients=double(self.gradients[..., index, :]),
            offset=double(self.offset[..., index, :]),
            logit=double(self.logit[..., index]),
            baseline_logit=double(self.baseline_logit[..., index]),
        )

    def with_inputs_of(self, other: Self) -> Array:
        """Contributions (z - b) * g(x) of the inputs z of `other` under the gradients of these people."""
        return other.offset * self.gradients

    def per_deviation(self, deviation: Array) -> Array:
        """Change of the logit for a step of `deviation` under the gradients of each person."""
        return deviation * self.gradients

    def reversed(self, score: Callable[[Array], Array]) -> Self:
        """The same for the opposite outcome."""
        logit, baseline_logit = score(self.logit), score(self.baseline_logit)
        return replace(self, gradients=-self.gradients, logit=logit, baseline_logit=baseline_logit)
