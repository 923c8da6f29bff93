"""Adversarial debiasing (Zhang et al., 2018) with the projection over the whole parameter vector."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from evenhand.research.methods.method import NetworkMethod, NetworkSettings, batches, new_network, seeded


class AdversarialDebiasing(NetworkMethod):
    r"""A network trained against an adversary that predicts the group from the score and the true label.

    .. math:: g = \nabla L_P - \operatorname{proj}_{\nabla L_A} \nabla L_P - \alpha \nabla L_A

    is the gradient that Adam follows: that of the network, minus its part that would help the adversary, minus alpha
    times the adversary's. Alpha grows from `strength` with the square root of the epoch; the learning rate, which the
    authors decrease, stays that of all methods.

    Parameters
    ----------
    settings
        Network and training; None for the paper's.
    strength
        Alpha in the first epoch. The default was chosen on simulated people with a known gap: ten times as much
        overshoots equal odds and swings back.
    adversary_learning_rate
        Learning rate of the adversary's Adam; larger than the network's, because the adversary must keep up.
    """

    def __init__(
        self, settings: NetworkSettings | None = None, strength: float = 0.1, adversary_learning_rate: float = 1e-2
    ) -> None:
        super().__init__(settings)
        self.strength, self.adversary_learning_rate = strength, adversary_learning_rate

    def _learn(self, x: NDArray[np.float32], y: NDArray[np.int64], group: NDArray[np.int64]) -> None:
        device = self.settings.device
        network = new_network(x.shape[1], self.settings)
        parameters = list(network.parameters())
        tensors = [torch.from_numpy(values).to(device) for values in (x, y, group)]
        with seeded(self.settings):
            adversary = Adversary(len(self.group_names_)).to(device)
            optimizer = torch.optim.Adam(parameters, lr=self.settings.learning_rate)
            opponent = torch.optim.Adam(adversary.parameters(), lr=self.adversary_learning_rate)
            for epoch, rows in batches(len(y), self.settings):
                people, labels, groups = (values[rows.to(device)] for values in tensors)
                logits = network(people).squeeze(-1)
                loss = functional.binary_cross_entropy_with_logits(logits, labels.to(logits.dtype))
                own = torch.autograd.grad(loss, parameters, retain_graph=True)
                opponent.zero_grad()
                against = functional.cross_entropy(adversary(logits, labels), groups)
                found = torch.autograd.grad(against, [*parameters, *adversary.parameters()])
                alpha = self.strength * math.sqrt(epoch + 1)
                update = adversarial_update(_flat(own), _flat(found[: len(parameters)]), alpha)
                _set_gradients(parameters, update)
                for parameter, gradient in zip(adversary.parameters(), found[len(parameters) :], strict=True):
                    parameter.grad = gradient
                optimizer.step()
                opponent.step()
        self.network_ = network.eval().cpu()


class Adversary(nn.Module):
    """Predicts the group from the sharpened score s and the label: a linear map of s, s y and s (1 - y)."""

    def __init__(self, n_groups: int) -> None:
        super().__init__()
        self.sharpness = nn.Parameter(torch.zeros(()))
        self.guess = nn.Linear(3, n_groups)

    def forward(self, logits: Tensor, y: Tensor) -> Tensor:
        """Logits of the groups, of shape (n, n_groups), from those of the network and the labels, of shape (n,)."""
        score = torch.sigmoid((1 + self.sharpness.abs()) * logits)
        is_positive = y.to(score.dtype)
        guess: Tensor = self.guess(torch.stack((score, score * is_positive, score * (1 - is_positive)), dim=1))
        return guess


def adversarial_update(own: Tensor, against: Tensor, alpha: float) -> Tensor:
    """The gradient to follow, from the network's and the adversary's over all parameters, of shape (P,).

    Examples
    --------
    >>> adversarial_update(torch.tensor([1.0, 1.0]), torch.tensor([0.0, 2.0]), alpha=0.0)
    tensor([1., 0.])
    >>> adversarial_update(torch.tensor([1.0, 1.0]), torch.tensor([0.0, 2.0]), alpha=0.5)
    tensor([ 1., -1.])
    """
    direction = against / against.norm().clamp_min(torch.finfo(against.dtype).tiny)
    update: Tensor = own - (own @ direction) * direction - alpha * against
    return update


def _flat(gradients: tuple[Tensor, ...]) -> Tensor:
    return torch.cat([gradient.flatten() for gradient in gradients])


def _set_gradients(parameters: list[nn.Parameter], flat: Tensor) -> None:
    sizes = [parameter.numel() for parameter in parameters]
    for parameter, gradient in zip(parameters, flat.split(sizes), strict=True):
        parameter.grad = gradient.view_as(parameter)
