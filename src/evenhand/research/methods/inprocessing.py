"""Methods that train networks for equal rates, or for consistent reasoning."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, ClassifierMixin
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils import parameters_to_vector

from evenhand.arrays import Floats, Ints
from evenhand.attribution import Attribution, attribute
from evenhand.attribution.explanation import Method as Integration
from evenhand.exceptions import EvenhandWarning
from evenhand.models.gradient import DifferentiableModel
from evenhand.models.protocol import AuditedModel
from evenhand.research.methods.method import (
    NetworkMethod,
    NetworkSettings,
    batches,
    drawn_decisions,
    logits_of,
    new_network,
    seeded,
    train_network,
    two_columns,
)
from evenhand.system.libraries import optional_module
from evenhand.training.classifier import CECClassifier
from evenhand.training.losses import cell_shares
from evenhand.training.settings import TrainingMethod


class AgarwalReduction(NetworkMethod):
    """fairlearn's `ExponentiatedGradient` (Agarwal et al., 2018) with equalized odds, over weighted networks.

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


class LagrangianConstraints(NetworkMethod):
    """Cross-entropy under equal true and false positive rates, as a game between network and multipliers.

    The constraints are proxies (Cotter et al., 2019). Every group's two rates must equal the first group's: equality
    constraints with signed multipliers, so that the noise of a batch moves them both ways. The network's step uses soft
    rates, the means of its probabilities, which have a gradient; the multipliers' step uses the rates of its decisions,
    which should be equal. A difference with only one side in a batch is left out of that step.

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


class AdversarialDebiasing(NetworkMethod):
    r"""A network trained against an adversary that predicts the group from score and label (Zhang et al., 2018).

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
                gradients = torch.autograd.grad(against, [*parameters, *adversary.parameters()])
                alpha = self.strength * math.sqrt(epoch + 1)
                update = adversarial_update(
                    parameters_to_vector(own), parameters_to_vector(gradients[: len(parameters)]), alpha
                )
                sizes = [parameter.numel() for parameter in parameters]
                for parameter, gradient in zip(parameters, update.split(sizes), strict=True):
                    parameter.grad = gradient.view_as(parameter)
                for parameter, gradient in zip(adversary.parameters(), gradients[len(parameters) :], strict=True):
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
        result: Tensor = self.guess(torch.stack((score, score * is_positive, score * (1 - is_positive)), dim=1))
        return result


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
    result: Tensor = own - (own @ direction) * direction - alpha * against
    return result


class CEC(NetworkMethod):
    """`CECClassifier` as a method, with the paper's integration by default.

    There is no warning about a constant model here: the comparison reports every method's positive rate.

    Parameters
    ----------
    settings
        Network and training; None for the paper's.
    financial_features
        Columns on which people are matched; None for all.
    cec_weight, equalized_odds_weight
        The paper's lambdas.
    n_steps, integration
        How attributions are integrated in training.
    """

    def __init__(
        self,
        settings: NetworkSettings | None = None,
        financial_features: Sequence[str] | None = None,
        *,
        cec_weight: float = 1.0,
        equalized_odds_weight: float = 1.0,
        n_steps: int = 32,
        integration: TrainingMethod = "midpoint",
    ) -> None:
        super().__init__(settings)
        self.classifier = CECClassifier(
            financial_features=financial_features,
            objective="cec",
            least_explained=0.0,
            cec_weight=cec_weight,
            equalized_odds_weight=equalized_odds_weight,
            n_steps=n_steps,
            method=integration,
            **vars(self.settings),
        )

    def fit(self, X: Any, y: ArrayLike, *, sensitive_features: Any) -> Self:
        """Match, and train the network on the three terms."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EvenhandWarning)
            fitted = self.classifier.fit(X, y, sensitive_features=sensitive_features)
        self.encoder_, self.network_, self.group_names_ = fitted.encoder_, fitted.network_, fitted.group_names_
        return self

    def _logits(self, X: Any, sensitive_features: Any) -> Floats:
        return self.classifier.decision_function(X)
