"""The model of `make_planted_bias`, a torch module."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn


class PlantedBiasModel(nn.Module):
    r"""Logit that weighs features by group: :math:`f(x, a) = w_0 x + c_0 + a ((w_1 - w_0) x + c_1 - c_0)`.

    The group `a`, 0 or 1, is the last column of the input. Without bias both differences are exactly 0, and
    so is the gradient in `a`.

    Parameters
    ----------
    weights
        w_0 and w_1, of shape (2, d - 1).
    intercepts
        c_0 and c_1, of shape (2,).

    Examples
    --------
    >>> model = PlantedBiasModel(np.array([[1.0], [3.0]]), np.array([0.0, 0.5]))
    >>> model(torch.tensor([[2.0, 0.0], [2.0, 1.0]])).tolist()
    [2.0, 6.5]
    """

    weight: Tensor
    weight_difference: Tensor
    intercept: Tensor
    intercept_difference: Tensor

    def __init__(self, weights: NDArray[np.float64], intercepts: NDArray[np.float64]) -> None:
        super().__init__()
        w, c = torch.tensor(weights, dtype=torch.float32), torch.tensor(intercepts, dtype=torch.float32)
        self.register_buffer("weight", w[0])
        self.register_buffer("weight_difference", w[1] - w[0])
        self.register_buffer("intercept", c[0])
        self.register_buffer("intercept_difference", c[1] - c[0])

    def forward(self, x: Tensor) -> Tensor:
        """Logits of shape (n,) for inputs of shape (n, d)."""
        features, member = x[:, :-1], x[:, -1]
        even_handed = features @ self.weight + self.intercept
        return even_handed + member * (features @ self.weight_difference + self.intercept_difference)
