"""Constrained optimization with proxy constraints (Cotter et al., 2019)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from evenhand.research.methods.method import NetworkMethod, NetworkSettings, batches, new_network, seeded
from evenhand.system.libraries import optional_module
from evenhand.training.losses import cell_shares


class LagrangianConstraints(NetworkMethod):
    """Cross-entropy under equal true and false positive rates, as a game between network and multipliers.

    Every group's two rates must equal the first group's: equality constraints with signed multipliers, so that the
    noise of a batch moves them both ways. The network's step uses soft rates, the means of its probabilities, which
    have a gradient; the multipliers' step uses the rates of its decisions, which should be equal. A difference with
    only one side in a batch is left out of that step.

    Parameters
    ----------
    settings
        Network and training; None for the paper's.
    dual_learning_rate
        Step of the multipliers, which start at 0 and climb by gradient ascent.

    Attributes
    ----------
    multipliers_
        The last multipliers: true positive rates of groups 1, 2, ..., then false positive rates.
    """

    multipliers_: NDArray[np.float64]

    def __init__(self, settings: NetworkSettings | None = None, dual_learning_rate: float = 0.02) -> None:
        super().__init__(settings)
        self.dual_learning_rate = dual_learning_rate

    def _learn(self, x: NDArray[np.float32], y: NDArray[np.int64], group: NDArray[np.int64]) -> None:
        cooper = optional_module("cooper", "This method", "cooper-optim", "methods")
        n_groups, device = len(self.group_names_), self.settings.device
        network = new_network(x.shape[1], self.settings)
        multiplier = cooper.multipliers.DenseMultiplier(num_constraints=2 * (n_groups - 1), device=device)
        constraint = cooper.Constraint(
            constraint_type=cooper.ConstraintType.EQUALITY,
            formulation_type=cooper.formulations.Lagrangian,
            multiplier=multiplier,
        )
        game = _game(cooper, network, constraint, n_groups)
        optimizer = cooper.optim.SimultaneousOptimizer(
            cmp=game,
            primal_optimizers=torch.optim.Adam(network.parameters(), lr=self.settings.learning_rate),
            dual_optimizers=torch.optim.SGD(game.dual_parameters(), lr=self.dual_learning_rate, maximize=True),
        )
        tensors = [torch.from_numpy(values).to(device) for values in (x, y, group)]
        with seeded(self.settings):
            for _, rows in batches(len(y), self.settings):
                people, labels, groups = (values[rows.to(device)] for values in tensors)
                optimizer.roll(compute_cmp_state_kwargs={"x": people, "y": labels, "group": groups})
        self.multipliers_ = multiplier.weight.detach().double().cpu().numpy()
        self.network_ = network.eval().cpu()


def rate_differences(score: Tensor, y: Tensor, group: Tensor, n_groups: int) -> Tensor:
    """Each group's true, then false, positive rate minus the first group's, of shape (2 * (n_groups - 1),).

    Parameters
    ----------
    score
        Probabilities for soft rates, decisions 0 or 1 for hard ones, of shape (n,).
    y, group
        Labels and group codes.

    Returns
    -------
    Differences; 0 if either group has no one with that label.

    Examples
    --------
    >>> decisions, y = torch.tensor([1.0, 0.0, 1.0, 1.0]), torch.tensor([1, 1, 1, 0])
    >>> rate_differences(decisions, y, torch.tensor([0, 0, 1, 1]), n_groups=2)
    tensor([0.5000, 0.0000])
    """
    shares, is_present = cell_shares(y, group, n_groups, dtype=score.dtype)
    rates = (score @ shares).unflatten(0, (2, n_groups)).flip(0)
    both = (is_present[:, 1:] & is_present[:, :1]).flip(0)
    differences: Tensor = (rates[:, 1:] - rates[:, :1]) * both
    return differences.flatten()


def _game(cooper: Any, network: nn.Module, constraint: Any, n_groups: int) -> Any:
    class Game(cooper.ConstrainedMinimizationProblem):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.odds = constraint

        def compute_cmp_state(self, x: Tensor, y: Tensor, group: Tensor) -> Any:
            logits = network(x).squeeze(-1)
            loss = functional.binary_cross_entropy_with_logits(logits, y.to(logits.dtype))
            soft = rate_differences(torch.sigmoid(logits), y, group, n_groups)
            hard = rate_differences((logits.detach() >= 0).to(logits.dtype), y, group, n_groups)
            state = cooper.ConstraintState(violation=soft, strict_violation=hard)
            return cooper.CMPState(loss=loss, observed_constraints={self.odds: state})

    return Game()
