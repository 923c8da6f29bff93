"""Stacks of ReLU networks that share only their shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from evenhand.attribution.feed_forward import RELU, FeedForward
from evenhand.exceptions import InvalidInputError


@dataclass(frozen=True)
class Layout:
    """Where each layer's weights and biases are in a member's flat row of parameters.

    Attributes
    ----------
    widths
        Inputs, hidden layers and the single output, such as (20, 128, 64, 1).
    """

    widths: tuple[int, ...]

    @property
    def n_parameters(self) -> int:
        """Length of a member's row."""
        return sum((n_in + 1) * n_out for n_in, n_out in pairwise(self.widths))

    def views(self, flat: Tensor) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
        """Weights of shape (K, n_in, n_out) and biases of shape (K, n_out), as views of `flat`, (K, P)."""
        weights, biases, offset = [], [], 0
        for n_in, n_out in pairwise(self.widths):
            weights.append(flat[:, offset : offset + n_in * n_out].view(-1, n_in, n_out))
            offset += n_in * n_out
            biases.append(flat[:, offset : offset + n_out])
            offset += n_out
        return tuple(weights), tuple(biases)

    def networks(self, flat: Tensor) -> FeedForward:
        """The stack with parameters of shape (K, P), without dropout; differentiable in them."""
        weights, biases = self.views(flat)
        return FeedForward(weights, biases, (RELU,) * (len(weights) - 1))

    def initial(self, seeds: Sequence[int]) -> Tensor:
        """Starting parameters of shape (K, P), one seed per member.

        Each row equals the parameters of `torch.nn.Linear` layers built in order after `torch.manual_seed(seed)`, so a
        member starts the same alone and in any stack.
        """
        place = {seed: index for index, seed in enumerate(dict.fromkeys(seeds))}
        flat = torch.empty(len(place), self.n_parameters)
        weights, biases = self.views(flat)
        for seed, member in place.items():
            generator = torch.Generator().manual_seed(seed)
            for weight, bias in zip(weights, biases, strict=True):
                bound = weight.shape[1] ** -0.5
                drawn = torch.empty(weight.shape[2], weight.shape[1]).uniform_(-bound, bound, generator=generator)
                weight[member] = drawn.t()
                bias[member].uniform_(-bound, bound, generator=generator)
        return flat[torch.tensor([place[seed] for seed in seeds], dtype=torch.int64)]


class StackedNetwork(nn.Module):
    """K ReLU networks with one logit each, evaluated together.

    Parameters
    ----------
    n_inputs
        Number of input columns.
    hidden
        Widths of the hidden layers.
    dropout
        Share of hidden units dropped in training mode.
    seeds
        One per member; member k of a stack starts exactly as that member alone.

    Examples
    --------
    >>> import torch
    >>> stack = StackedNetwork(3, hidden=(8,), seeds=(0, 1))
    >>> stack(torch.zeros(2, 5, 3)).shape
    torch.Size([2, 5])
    >>> stack.member(1)(torch.zeros(5, 3)).shape
    torch.Size([5, 1])
    """

    def __init__(
        self,
        n_inputs: int,
        hidden: Sequence[int] = (128, 64),
        dropout: float = 0.2,
        seeds: Sequence[int] = (0,),
    ) -> None:
        super().__init__()
        self.layout = Layout((n_inputs, *hidden, 1))
        self.dropout = dropout
        self.flat = nn.Parameter(self.layout.initial(seeds))

    @classmethod
    def from_parameters(cls, flat: Tensor, layout: Layout, dropout: float = 0.2) -> StackedNetwork:
        """A stack with a copy of parameters of shape (K, P)."""
        if flat.shape[-1] != layout.n_parameters:
            raise InvalidInputError(
                f"`flat` must have {layout.n_parameters} columns for widths {list(layout.widths)}, "
                f"got shape {tuple(flat.shape)}."
            )
        stack = cls(layout.widths[0], layout.widths[1:-1], dropout, seeds=())
        stack.flat = nn.Parameter(flat.detach().clone())
        return stack

    def __len__(self) -> int:
        return self.flat.shape[0]

    def feed_forward(self) -> FeedForward:
        """Explicit form of the whole stack without dropout, differentiable in `flat`."""
        return self.layout.networks(self.flat)

    def forward(self, x: Tensor) -> Tensor:
        """Logits of shape (K, n) for inputs of shape (K, n, d), with dropout in training mode."""
        net = self.feed_forward()
        for layer, activation in enumerate(net.activations):
            x = functional.dropout(activation.function(net.affine(layer, x)), self.dropout, self.training)
        return net.affine(len(net.activations), x).squeeze(-1)

    def member(self, index: int) -> nn.Sequential:
        """Member `index` as a plain `nn.Sequential` with copied weights, in evaluation mode."""
        weights, biases = self.layout.views(self.flat.detach())
        network = empty_network(self.layout.widths, self.dropout).to(weights[0])
        linears = [layer for layer in network if isinstance(layer, nn.Linear)]
        with torch.no_grad():
            for linear, weight, bias in zip(linears, weights, biases, strict=True):
                linear.weight.copy_(weight[index].t())
                linear.bias.copy_(bias[index])
        return network


def empty_network(widths: Sequence[int], dropout: float) -> nn.Sequential:
    """A chain of linear layers with ReLU and dropout between them, its parameters not yet set.

    The caller's random state does not change. `torch.nn.utils.skip_init` would draw no numbers, but it imports sympy,
    which takes seconds.
    """
    layers: list[nn.Module] = []
    with torch.random.fork_rng(devices=[]):
        for n_in, n_out in pairwise(widths):
            layers += [nn.Linear(n_in, n_out), nn.ReLU(), nn.Dropout(dropout)]
    return nn.Sequential(*layers[:-2]).eval()
