"""Adam for a stack, in which every member has its own step and finished members do not move."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["AdamState", "adam_rates", "adam_step"]

_BETA1, _BETA2, _EPSILON = 0.9, 0.999, 1e-8  # torch.optim.Adam's defaults


@dataclass(frozen=True)
class AdamState:
    """First and second moments of shape (K, P), updated in place."""

    mean: Tensor
    square: Tensor


def adam_rates(n_done: Tensor, is_active: Tensor, learning_rate: Tensor) -> Tensor:
    """The part of the next S steps that does not depend on gradients, of shape (S, 4, K, 1).

    Parameters
    ----------
    n_done
        Steps each member has taken, of shape (K,).
    is_active
        Whether a member moves in a step, of shape (S, K).
    learning_rate
        Of shape (K,).

    Returns
    -------
    For each step: the weights of the new gradient in both moments, the negative step size, and epsilon, the last two
    with the bias corrections in them. The first three are 0 for a member that does not move.
    """
    active = is_active.to(torch.float64)
    step = (n_done + is_active.long().cumsum(0)).clamp_min(1).to(torch.float64)
    correction = (1 - _BETA2**step).sqrt()
    size = -active * learning_rate.to(torch.float64) * correction / (1 - _BETA1**step)
    rates = torch.stack(((1 - _BETA1) * active, (1 - _BETA2) * active, size, _EPSILON * correction), dim=1)
    return rates.to(torch.float32).unsqueeze(-1)


def adam_step(parameters: Tensor, gradient: Tensor, state: AdamState, rates: Tensor) -> None:
    """Move parameters of shape (K, P) in place, by `rates` of shape (4, K, 1); `gradient` is overwritten."""
    mean_weight, square_weight, size, epsilon = rates.unbind(0)
    state.mean.lerp_(gradient, mean_weight)
    state.square.lerp_(gradient.square_(), square_weight)
    torch.sqrt(state.square, out=gradient).add_(epsilon)
    torch.div(state.mean, gradient, out=gradient)
    parameters.addcmul_(gradient, size)
