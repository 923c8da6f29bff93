"""One training step of a stack: gradients of the objective, written out, and the optimizer.

Nothing here draws random numbers, waits for the device or branches on values, so on CUDA a step can be captured as a
graph once and replayed.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from evenhand.training.engine.consistency import ConsistencyTerm, Pairs
from evenhand.training.network import Layout
from evenhand.training.settings import TrainingMethod

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


@dataclass(frozen=True)
class Batch:
    """One batch for each of K members.

    Attributes
    ----------
    x
        Inputs of m people, of shape (K, m, d).
    y
        Labels of shape (K, m, 1), as floats.
    weight
        Row weights adding up to 1 for each member, of shape (K, m, 1).
    ones
        Ones of shape (K, 1, m).
    keep
        For each hidden layer, 0 for a dropped unit and 1 / (1 - dropout) for a kept one, of shape (K, m, h); empty for
        no dropout.
    rates
        The optimizer's, of shape (4, K, 1).
    cell_shares, odds_form
        The equalized-odds term, quadratic in sigmoids s: A of shape (K, m, C) such that rates are A's, and B of shape
        (K, m, C) such that B (A's) is the derivative in s, lambda included. None to leave the term out.
    pairs
        What the CEC term compares; None to leave the term out.
    """

    x: Tensor
    y: Tensor
    weight: Tensor
    ones: Tensor
    keep: tuple[Tensor, ...]
    rates: Tensor
    cell_shares: Tensor | None = None
    odds_form: Tensor | None = None
    pairs: Pairs | None = None


@dataclass(frozen=True)
class Objective:
    """How attributions are computed and compared; the weights of the terms are in the batches."""

    n_steps: int
    method: TrainingMethod
    join: Tensor | None = None
    uses_reasoning: bool = False
    uses_placebo: bool = False


class Stepper:
    """Runs steps of a stack, whose parameters, of shape (K, P), it changes in place.

    Parameters
    ----------
    parameters, adam
        Updated in place.
    layout
        Of the parameters.
    objective
        What is minimized.
    """

    def __init__(self, parameters: Tensor, adam: AdamState, layout: Layout, objective: Objective) -> None:
        self.parameters, self.adam, self.objective = parameters, adam, objective
        self.gradient = torch.zeros_like(parameters)
        self._weights, biases = layout.views(parameters)
        self._weight_gradients, bias_gradients = layout.views(self.gradient)
        self._consistency: ConsistencyTerm | None = None
        self._layers = (self._weights, biases, self._weight_gradients, bias_gradients)
        # Views are made once: making one costs as much as a small operation.
        self._biases = [bias.unsqueeze(1) for bias in biases]
        self._bias_gradients = [gradient.unsqueeze(1) for gradient in bias_gradients]
        self._transposed = [weight.mT for weight in self._weights]

    def step(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Move the parameters; return the batch's logits (K, m) and squared CEC scores (K, M, q) before the move."""
        logits, scores = self.compute_gradient(batch)
        adam_step(self.parameters, self.gradient, self.adam, batch.rates)
        return logits, scores

    def compute_gradient(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Put the objective's gradient into `gradient`; return logits and squared CEC scores."""
        logits = self._add_prediction_terms(batch)
        if batch.pairs is None:
            return logits, None
        if self._consistency is None:
            _, n_matches, n_pairs = batch.pairs.weight.shape
            self._consistency = ConsistencyTerm(
                *self._layers,
                n_pairs=n_pairs,
                n_matches=n_matches,
                n_cells=batch.pairs.cell.shape[2],
                n_steps=self.objective.n_steps,
                method=self.objective.method,
                join=self.objective.join,
                uses_reasoning=self.objective.uses_reasoning,
                uses_placebo=self.objective.uses_placebo,
            )
        return logits, self._consistency.add_gradient(batch.pairs)

    def _add_prediction_terms(self, batch: Batch) -> Tensor:
        """Set the gradients of cross-entropy and equalized odds, with dropout on; return logits."""
        values, hidden = batch.x, []
        for layer in range(len(self._weights) - 1):
            values = torch.relu_(torch.baddbmm(self._biases[layer], values, self._weights[layer]))
            if batch.keep:
                values.mul_(batch.keep[layer])
            hidden.append(values)
        logits = torch.baddbmm(self._biases[-1], values, self._weights[-1])
        of_values = _of_logits(batch, logits)
        ones = batch.ones
        for layer in range(len(self._weights) - 1, -1, -1):
            below = hidden[layer - 1] if layer > 0 else batch.x
            torch.bmm(below.mT, of_values, out=self._weight_gradients[layer])
            torch.bmm(ones, of_values, out=self._bias_gradients[layer])
            if layer > 0:
                of_hidden = torch.bmm(of_values, self._transposed[layer])
                of_values = torch.ops.aten.threshold_backward(of_hidden, below, 0)
                if batch.keep:
                    of_values.mul_(batch.keep[layer - 1])
        return logits.squeeze(-1)


def _of_logits(batch: Batch, logits: Tensor) -> Tensor:
    """Derivative of cross-entropy and equalized odds in the logits, of shape (K, m, 1)."""
    score = torch.sigmoid(logits)
    of_logits = (score - batch.y).mul_(batch.weight)
    if batch.cell_shares is None or batch.odds_form is None:
        return of_logits
    rates = torch.bmm(batch.cell_shares.mT, score)
    of_scores = torch.bmm(batch.odds_form, rates)
    return of_logits.addcmul_(of_scores, torch.addcmul(score, score, score, value=-1))
