"""Models whose score is linear in their inputs: explained exactly, by the weights."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evenhand.attribution import Attribution
from evenhand.attribution.gradients import Method
from evenhand.exceptions import InvalidInputError
from evenhand.models.protocol import AttributionName, AuditedModel, EncodesTables, Output, check_finite


@dataclass(frozen=True, eq=False)
class LinearModel(AuditedModel):
    """A weighted sum of the encoded table plus an intercept.

    An input's attribution is its weight times its distance from the baseline. Integrated gradients and Shapley values
    both reduce to this, so nothing is integrated or sampled.

    Attributes
    ----------
    weights
        One per encoded column, of shape (d,), in float64.
    intercept
        The score if every input is 0.
    has_probabilities
        Whether the score is log-odds, and not a margin treated as log-odds.

    Examples
    --------
    >>> model = LinearModel(torch.tensor([2.0, -1.0]).double(), 0.5, "scorecard")
    >>> x = torch.tensor([[1.0, 1.0]]).double()
    >>> model.attribute(x, torch.zeros_like(x), 1, "segments").values.tolist()
    [[2.0, -1.0]]
    """

    weights: Tensor
    intercept: float
    kind: str
    encoder: EncodesTables | None = None
    attribution: AttributionName = "linear"
    output: Output = "log-odds"
    has_probabilities: bool = True

    @property
    def dtype(self) -> torch.dtype:
        """The type of the weights, float64."""
        return self.weights.dtype

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return self.weights.device

    def attribute(self, x: Tensor, baseline: Tensor, n_steps: int, method: Method) -> Attribution:
        """Weights times distances from the baselines; the steps and the method do not matter."""
        if x.shape[-1] != len(self.weights):
            raise InvalidInputError(f"The {self.kind} takes {len(self.weights)} inputs, got {x.shape[-1]}.")
        found = Attribution(
            gradients=self.weights.expand_as(x),
            offset=x - baseline,
            logit=self.margin(x),
            baseline_logit=self.margin(baseline),
            method="exact",
        )
        check_finite(found.logit)
        return found

    def margin(self, x: Tensor) -> Tensor:
        """The weighted sum of encoded people."""
        return x @ self.weights + self.intercept
