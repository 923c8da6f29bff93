"""Models explained by integrated gradients."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from evenhand.attribution import Attribution, FeedForward, attribute, feed_forward
from evenhand.attribution.gradients import Method, placement
from evenhand.models.protocol import AttributionName, AuditedModel, EncodesTables, Output, check_finite
from evenhand.system.threads import device_turn

__all__ = ["DifferentiableModel"]


@dataclass(frozen=True)
class DifferentiableModel(AuditedModel):
    """A network that maps the encoded table, of shape (n, d), to one score per row; or a stack of K, to (K, n)."""

    network: nn.Module | FeedForward
    kind: str
    encoder: EncodesTables | None = None
    attribution: AttributionName = "integrated_gradients"
    output: Output = "log-odds"

    @property
    def dtype(self) -> torch.dtype:
        """Type of the network's parameters."""
        return placement(self.network)[0]

    @property
    def device(self) -> torch.device:
        """Where the network's parameters are."""
        return placement(self.network)[1]

    def attribute(self, x: Tensor, baseline: Tensor, n_steps: int, method: Method) -> Attribution:
        """Integrated gradients of encoded people from encoded baselines, without a graph."""
        with torch.no_grad(), device_turn(x.device.type):
            found = attribute(self.network, x, baseline, n_steps, method)
        if found.logit.dim() == 1:  # in a stack, one member that overflows must not stop the others
            check_finite(found.logit)
        return found

    def margin(self, x: Tensor) -> Tensor:
        """The logit of encoded people."""
        network = self.network if isinstance(self.network, FeedForward) else feed_forward(self.network)
        if network is not None:
            network.check_inputs(x)
        with torch.no_grad():
            # A module of any other kind is evaluated as for its explanation, with dropout off.
            return attribute(self.network, x, x, 1, "midpoint").logit if network is None else network(x)
