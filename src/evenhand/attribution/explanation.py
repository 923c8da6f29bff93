"""What the audit needs from an explanation, however it was computed."""

from __future__ import annotations

from typing import Protocol, Self, runtime_checkable

from torch import Tensor


class Explanation(Protocol):
    """Attributions of n people, each from a separate baseline row, and what they would be with different inputs.

    The contribution of a feature to a person's score has two sides: the person's value, and the weight that the model
    gives it next to the person's other values, the context. Gaps between two people are separated by taking one side
    from each person.
    """

    @property
    def values(self) -> Tensor:
        """Attributions, of shape (n, d); rows sum to the logit minus the baseline's."""
        ...

    @property
    def logit(self) -> Tensor:
        """The score that is explained, of shape (n,)."""
        ...

    @property
    def baseline_logit(self) -> Tensor:
        """The score at the baselines, of shape (n,)."""
        ...

    @property
    def completeness_gap(self) -> Tensor:
        """|sum of attributions - (f(x) - f(b))|, of shape (n,)."""
        ...

    @property
    def standard_error(self) -> Tensor | None:
        """Standard error of each attribution, of shape (n, d), if they were estimated from a sample; else None."""
        ...

    @property
    def method(self) -> str:
        """How they were computed."""
        ...

    def rows(self, index: Tensor) -> Self:
        """The people of `index`, in float64."""
        ...

    def with_inputs_of(self, other: Self) -> Tensor:
        """Contributions of the inputs of `other` in the contexts of these people, of shape (n, d).

        Both must be explained from the same baselines, row by row.
        """
        ...

    def per_deviation(self, deviation: Tensor) -> Tensor:
        """Contribution of a step of `deviation`, of shape (d,), from the baseline in each context, of shape (n, d)."""
        ...


@runtime_checkable
class SharesContexts(Protocol):
    """An explanation that can compute what inputs contribute in a context once for all requests in it."""

    @property
    def shares_contexts(self) -> bool:
        """Whether it does, so that requests are best combined."""
        ...

    def crossed(self, contexts: Tensor, other: Explanation, inputs: Tensor) -> Tensor:
        """Contributions of the inputs of rows `inputs` of `other` in the contexts of rows `contexts`, of shape (n, d).

        Both must be explained from the same baselines, row by row.
        """
        ...
