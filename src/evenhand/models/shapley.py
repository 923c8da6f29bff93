"""Models explained by Shapley values: any score that can be evaluated on mixtures of a person and a baseline row."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evenhand.attribution.gradients import Method
from evenhand.attribution.shapley import Game, ShapleyAttribution, shapley_attribution
from evenhand.models.protocol import AttributionName, AuditedModel, EncodesTables, Output, check_finite

_CPU = torch.device("cpu")


@dataclass(frozen=True)
class ShapleyModel(AuditedModel):
    """A score with the game that explains it: a tree ensemble, or a black box.

    Attributes
    ----------
    game
        The score and its Shapley values.
    output
        Whether the score is log-odds or a probability.
    takes_missing
        Whether the score is defined if an input is missing.
    categorical_inputs
        Positions of the inputs that are codes of categories.
    has_probabilities
        Whether the score is log-odds or a probability, and not a margin treated as log-odds.
    """

    game: Game
    kind: str
    encoder: EncodesTables | None = None
    output: Output = "log-odds"
    takes_missing: bool = False
    attribution: AttributionName = "sampled_shapley"
    categorical_inputs: tuple[int, ...] = ()
    has_probabilities: bool = True

    @property
    def dtype(self) -> torch.dtype:
        """Type in which inputs are compared."""
        return torch.float64

    @property
    def device(self) -> torch.device:
        """The CPU."""
        return _CPU

    def attribute(self, x: Tensor, baseline: Tensor, n_steps: int, method: Method) -> ShapleyAttribution:
        """Shapley values of encoded people from encoded baselines; nothing is integrated."""
        is_category = None
        if self.categorical_inputs:
            is_category = torch.zeros(x.shape[-1], dtype=torch.bool)
            is_category[list(self.categorical_inputs)] = True
        found = shapley_attribution(self.game, x, baseline, is_category)
        check_finite(found.logit)
        return found

    def margin(self, x: Tensor) -> Tensor:
        """The score of encoded people."""
        return self.game.margin(x)
