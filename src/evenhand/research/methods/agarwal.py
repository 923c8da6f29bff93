"""Reductions: a randomized ensemble of weighted networks (Agarwal et al., 2018)."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import Tensor, nn

from evenhand.arrays import Floats, Ints
from evenhand.attribution import Attribution, attribute
from evenhand.attribution.gradients import Method as Integration
from evenhand.models.gradient import DifferentiableModel
from evenhand.models.protocol import AuditedModel
from evenhand.research.methods.hardt import drawn_decisions
from evenhand.research.methods.method import (
    NetworkMethod,
    NetworkSettings,
    logits_of,
    new_network,
    train_network,
    two_columns,
)
from evenhand.system.libraries import optional_module


class AgarwalReduction(NetworkMethod):
    """fairlearn's `ExponentiatedGradient` with equalized odds, over the network as the weighted learner.

    The result decides by a predictor drawn by weight. `predict_proba` returns the expected decision; `predict` draws,
    row by row, from the seed. The weighted average of the predictors' logits is attributed.

    Parameters
    ----------
    settings
        Network and training of every predictor; None for the paper's.
    tolerance
        Allowed difference of a group's rate from the overall one.
    max_iterations
        Largest number of rounds of the game; each trains one or two networks. fairlearn's default, 50, takes hours on
        larger data for little gain.

    Attributes
    ----------
    weights_
        Probability of each predictor that is ever drawn.
    n_networks_
        Number of networks trained.
    """

    network_: AverageLogit  # type: ignore[assignment]
    weights_: Floats
    n_networks_: int

    def __init__(
        self, settings: NetworkSettings | None = None, tolerance: float = 0.01, max_iterations: int = 15
    ) -> None:
        super().__init__(settings)
        self.tolerance, self.max_iterations = tolerance, max_iterations

    def _learn(self, x: NDArray[np.float32], y: Ints, group: Ints) -> None:
        reductions = optional_module("fairlearn.reductions", "This method", "fairlearn", "methods")
        reduction = reductions.ExponentiatedGradient(
            WeightedNetwork(self.settings),
            # The bound of the constraint and the scale of the multipliers both have the size of the tolerance.
            reductions.EqualizedOdds(difference_bound=self.tolerance),
            eps=self.tolerance,
            max_iter=self.max_iterations,
        )
        with warnings.catch_warnings():
            # fairlearn grows pandas series in a way that pandas has deprecated.
            warnings.simplefilter("ignore", FutureWarning)
            warnings.simplefilter("ignore", DeprecationWarning)
            reduction.fit(x, y, sensitive_features=group)
        self.n_networks_ = int(reduction.n_oracle_calls_)
        weights = reduction.weights_.sort_index()
        used = [int(index) for index in weights.index[weights > 0]]
        self.weights_ = np.asarray([weights[index] for index in used], dtype=np.float64)
        self.weights_ /= self.weights_.sum()
        members = [_network_of(reduction.predictors_[index], x.shape[1], len(x), self.settings) for index in used]
        self.network_ = AverageLogit(members, self.weights_).eval()

    def predict_proba(self, X: Any, sensitive_features: Any = None) -> Floats:
        """Expected decisions, of shape (n, 2)."""
        encoded = self.encoder_.transform(self.audited_table(X))
        decisions = np.stack([logits_of(member, encoded) >= 0 for member in self.network_.members])
        return two_columns((self.weights_ @ decisions).clip(0, 1))

    def predict(self, X: Any, sensitive_features: Any = None) -> Ints:
        """Decisions 0 or 1, of shape (n,), drawn with the method's seed."""
        return drawn_decisions(self.predict_proba(X)[:, 1], self.settings.random_state)

    def audited_model(self) -> AuditedModel:
        """The weighted average of the predictors' logits."""
        return _AuditedAverage(self.network_, type(self).__name__, self.encoder_)


class AverageLogit(nn.Module):
    """Weighted average of the logits of several networks, of shape (n,).

    Examples
    --------
    >>> average = AverageLogit([nn.Linear(2, 1), nn.Linear(2, 1)], np.array([0.25, 0.75]))
    >>> average(torch.zeros(3, 2)).shape
    torch.Size([3])
    """

    weights: Tensor

    def __init__(self, members: list[nn.Module], weights: Floats) -> None:
        super().__init__()
        self.members = nn.ModuleList(members)
        self.register_buffer("weights", torch.as_tensor(weights, dtype=torch.float32))

    def forward(self, x: Tensor) -> Tensor:
        """Logits of rows of shape (n, d)."""
        return self.weights @ torch.stack([member(x).squeeze(-1) for member in self.members])


@dataclass(frozen=True)
class _AuditedAverage(DifferentiableModel):
    """Integrated gradients are linear in the model: those of an average are the average of the members'."""

    def attribute(self, x: Tensor, baseline: Tensor, n_steps: int, method: Integration) -> Attribution:
        network = self.network
        assert isinstance(network, AverageLogit)
        with torch.no_grad():
            parts = [attribute(member, x, baseline, n_steps, method) for member in network.members]

        def average(name: str) -> Tensor:
            return torch.stack([getattr(part, name) for part in parts], -1) @ network.weights

        return Attribution(
            average("gradients"), parts[0].offset, average("logit"), average("baseline_logit"), parts[0].method
        )


class WeightedNetwork(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """The network as a scikit-learn estimator with sample weights."""

    def __init__(self, settings: NetworkSettings) -> None:
        self.settings = settings

    def fit(self, X: Any, y: Any, sample_weight: Any = None) -> Self:
        """Train from the start."""
        weight = None if sample_weight is None else np.asarray(sample_weight, dtype=np.float32)
        labels = np.asarray(y, dtype=np.int64).ravel()
        self.network_ = train_network(np.asarray(X, dtype=np.float32), labels, self.settings, weight)
        self.classes_ = np.array([0, 1])
        return self

    def predict(self, X: Any) -> Ints:
        """The more probable label of each row."""
        return (logits_of(self.network_, np.asarray(X, dtype=np.float32)) >= 0).astype(np.int64)


def _network_of(predictor: Any, n_inputs: int, n_rows: int, settings: NetworkSettings) -> nn.Module:
    """A predictor's network. fairlearn returns a constant if all labels of a round are the same.

    A constant has no attribution; its logit is that of a rate one person short of all.
    """
    if isinstance(predictor, WeightedNetwork):
        return predictor.network_
    constant = int(predictor.predict(np.zeros((1, n_inputs)))[0])
    network = new_network(n_inputs, settings).cpu()
    for parameter in network.parameters():
        nn.init.zeros_(parameter)
    last = network[-1]
    assert isinstance(last, nn.Linear)
    nn.init.constant_(last.bias, (2 * constant - 1) * float(np.log(n_rows)))
    return network
