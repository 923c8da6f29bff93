r"""One training step of a stack: gradients of the objective, written out, and the optimizer.

Nothing here draws random numbers, waits for the device or branches on values, so on CUDA a step can be captured as a
graph once and replayed.

`evenhand.attribution` and `evenhand.training.losses` state the same formulas plainly, and tests compare this module
with their automatic differentiation. At the sizes trained here, that costs several times the arithmetic in dispatch: an
epoch with the default objective takes four to five times as long (one core; benchmarks/bench_training.py). So the
derivative is written by hand.

For a path from b to x cut at knots t = 0..T, with pre-activations :math:`u_{l,t}` of layer l:

.. math::
    S_{l,t} &= \frac{\mathrm{relu}(u_{l,t}) - \mathrm{relu}(u_{l,t-1})}{u_{l,t} - u_{l,t-1}}, \qquad
    g_{L,t} = S_{L,t} \circ w, \qquad e_{l,t} = W_{l+1} g_{l+1,t}, \qquad g_{l,t} = S_{l,t} \circ e_{l,t}, \\
    \mathrm{IG} &= (x - b) \circ W_1 \tfrac1T \sum_t g_{1,t}.

Weights enter twice: through the pre-activations and through the products that carry g back. The slope of a unit that
switches between u and v is :math:`\max(u, v) / |u - v|`, so

.. math:: \frac{\partial S}{\partial u} = \frac{S (1 - S)}{|u|}, \qquad
          \frac{\partial S}{\partial v} = \frac{S (1 - S)}{|v|},

which is 0, as it should be, for a unit that does not switch (S is then 0 or 1).

The reasoning gap compares weights on the same inputs: with :math:`\mathrm{IG} = (x - b) \circ \gamma(x)` the pairs of
vectors are :math:`(z - b) \circ \gamma(x)` and :math:`(z - b) \circ \gamma(\tilde x)`, for z = x and z = x~. The
placebo's weights are compared on the inputs of the person and of the *match*: see `training.losses`. The two
objectives differ in how the derivative in :math:`\gamma` comes about, and in nothing after that.

At these sizes, making a view or a new tensor costs as much as the arithmetic. So all of them are made once, layers
share flat buffers, and one operation covers all layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

import torch
from torch import Tensor

from evenhand.metrics.cec import _EPSILON
from evenhand.training.network import Layout
from evenhand.training.settings import TrainingSettings

_BETA1, _BETA2, _ADAM_EPSILON = 0.9, 0.999, 1e-8  # torch.optim.Adam's defaults
_TINY = 1e-30


Batch: TypeAlias = Mapping[str, Tensor]  # see `Stepper`


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
    rates = torch.stack(((1 - _BETA1) * active, (1 - _BETA2) * active, size, _ADAM_EPSILON * correction), dim=1)
    return rates.to(torch.float32).unsqueeze(-1)


def adam_step(parameters: Tensor, mean: Tensor, square: Tensor, gradient: Tensor, rates: Tensor) -> None:
    """Move parameters and their moments, of shape (K, P), by `rates` of shape (4, K, 1); `gradient` is overwritten."""
    mean_weight, square_weight, size, epsilon = rates.unbind(0)
    mean.lerp_(gradient, mean_weight)
    square.lerp_(gradient.square_(), square_weight)
    torch.sqrt(square, out=gradient).add_(epsilon)
    torch.div(mean, gradient, out=gradient)
    parameters.addcmul_(gradient, size)


class Stepper:
    """Runs steps of a stack.

    A batch is tensors by name:

    x, y, weight
        Inputs of m people, of shape (K, m, d); their labels as floats, and weights adding up to 1 for each member, of
        shape (K, m, 1).
    ones
        Ones of shape (K, 1, m).
    keep0, keep1, ...
        For each hidden layer, 0 for a dropped unit and 1 / (1 - dropout) for a kept one, of shape (K, m, h); absent
        without dropout.
    rates
        The optimizer's, of shape (4, K, 1).
    cell_shares, odds_form
        The equalized-odds term, quadratic in sigmoids s: A of shape (K, m, C) such that rates are A's, and B of shape
        (K, m, C) such that B (A's) is the derivative in s, lambda included. Absent without the term.
    rows, offset, cell, pair_weight
        What the CEC term compares: R = (1 + M) * q rows, the q people and then their M partners each, who are matches
        or, for objectives with placebo pairs, matches followed by placebos, which have negative weight. Inputs of
        people, matches and the C baselines, of shape (K, R + C, d); x - b for the people and x~ - b for the partners,
        of shape (K, R, d); the one-hot (label, group) cell of each row's person, of shape (K, R, C); and half of lambda
        times each pair's share in the mean, of shape (K, M, q): the score halves the distance, so this is the
        objective's derivative in it but for the distance itself. Absent without the term.

    Parameters
    ----------
    state
        Parameters and both of Adam's moments, each of shape (K, P), changed in place.
    layout
        Of the parameters.
    settings
        How attributions are computed and compared; the weights of the terms are in the batches.
    join
        Matrix of shape (d, n_features) that sums columns into features; None for none.
    """

    def __init__(
        self, state: tuple[Tensor, Tensor, Tensor], layout: Layout, settings: TrainingSettings, join: Tensor | None
    ) -> None:
        self.state, self.settings, self.join = state, settings, join
        self.gradient = torch.zeros_like(state[0])
        self.weights, biases = layout.views(state[0])
        self.weight_gradients, bias_gradients = layout.views(self.gradient)
        # Views are made once: making one costs as much as a small operation.
        self.biases = [bias.unsqueeze(1) for bias in biases]
        self.bias_gradients = [gradient.unsqueeze(1) for gradient in bias_gradients]
        self.transposed = [weight.mT for weight in self.weights]
        self._consistency: ConsistencyTerm | None = None

    def step(self, batch: Batch, has_pairs: bool) -> tuple[Tensor, Tensor | None]:
        """Move the parameters; return the batch's logits (K, m) and squared CEC scores (K, M, q) before the move."""
        logits, scores = self.compute_gradient(batch, has_pairs)
        adam_step(*self.state, self.gradient, batch["rates"])
        return logits, scores

    def compute_gradient(self, batch: Batch, has_pairs: bool) -> tuple[Tensor, Tensor | None]:
        """Put the objective's gradient into `gradient`; return logits and, with the CEC term, squared CEC scores."""
        logits = self._add_prediction_terms(batch)
        if not has_pairs:
            return logits, None
        if self._consistency is None:
            self._consistency = ConsistencyTerm(self, batch)
        return logits, self._consistency.add_gradient(batch)

    def _add_prediction_terms(self, batch: Batch) -> Tensor:
        """Set the gradients of cross-entropy and equalized odds, with dropout on; return logits."""
        values, hidden, has_dropout = batch["x"], [], "keep0" in batch
        for layer in range(len(self.weights) - 1):
            values = torch.relu_(torch.baddbmm(self.biases[layer], values, self.weights[layer]))
            if has_dropout:
                values.mul_(batch[f"keep{layer}"])
            hidden.append(values)
        logits = torch.baddbmm(self.biases[-1], values, self.weights[-1])
        of_values = _of_logits(batch, logits)
        for layer in range(len(self.weights) - 1, -1, -1):
            below = hidden[layer - 1] if layer > 0 else batch["x"]
            torch.bmm(below.mT, of_values, out=self.weight_gradients[layer])
            torch.bmm(batch["ones"], of_values, out=self.bias_gradients[layer])
            if layer > 0:
                of_hidden = torch.bmm(of_values, self.transposed[layer])
                of_values = torch.ops.aten.threshold_backward(of_hidden, below, 0)
                if has_dropout:
                    of_values.mul_(batch[f"keep{layer - 1}"])
        return logits.squeeze(-1)


def _of_logits(batch: Batch, logits: Tensor) -> Tensor:
    """Derivative of cross-entropy and equalized odds in the logits, of shape (K, m, 1)."""
    score = torch.sigmoid(logits)
    of_logits = (score - batch["y"]).mul_(batch["weight"])
    if "odds_form" not in batch:
        return of_logits
    rates = torch.bmm(batch["cell_shares"].mT, score)
    of_scores = torch.bmm(batch["odds_form"], rates)
    return of_logits.addcmul_(of_scores, torch.addcmul(score, score, score, value=-1))


class _Layers:
    """One array of shape (K, n_rows, h) for each hidden layer, in one flat buffer of zeros."""

    def __init__(self, like: Tensor, n_rows: int, widths: tuple[int, ...]) -> None:
        sizes = [like.shape[0] * n_rows * width for width in widths]
        self.flat = like.new_zeros(sum(sizes))
        parts = torch.split(self.flat, sizes)
        self.layers = [part.view(-1, n_rows, width) for part, width in zip(parts, widths, strict=True)]

    def rows(self, start: int, end: int) -> list[Tensor]:
        return [layer[:, start:end] for layer in self.layers]


class ConsistencyTerm:
    """The CEC term of a stack, or a related term over the same pairs, on batches of one shape.

    Parameters
    ----------
    stepper
        Has the weights and biases, which the optimizer changes in place, and the gradients that are added to. With
        placebo pairs, the second half of the partners are placebos.
    batch
        A batch of that shape.
    """

    def __init__(self, stepper: Stepper, batch: Batch) -> None:
        _, n_matches, n_pairs = batch["pair_weight"].shape
        settings, join, like = stepper.settings, stepper.join, stepper.weights[0]
        n_steps, n_cells = settings.n_steps, batch["cell"].shape[2]
        n_members, n_inputs = like.shape[0], like.shape[1]
        widths = tuple(weight.shape[2] for weight in stepper.weights[:-1])
        n_ends = (1 + n_matches) * n_pairs
        n_points = n_steps * n_ends
        n_rows = n_points + n_cells
        self._n_hidden, self._n_steps, self._method, self._join = len(widths), n_steps, settings.method, join
        self._n_ends = n_ends
        self._weights, self._transposed, self._biases = stepper.weights, stepper.transposed, stepper.biases
        self._weight_gradients, self._bias_gradients = stepper.weight_gradients, stepper.bias_gradients
        # Each has the rows of all knots, (T, R) flattened, and then those of the baselines.
        self._values = _Layers(like, n_rows, widths)  # u
        self._on = _Layers(like, n_rows, widths)  # relu(u)
        self._previous = _Layers(like, n_rows, widths)  # u at the knot before; 0 for baselines
        self._slopes = _Layers(like, n_rows, widths)  # S
        self._carried = _Layers(like, n_rows, widths[:-1])  # e
        self._scaled = _Layers(like, n_rows, widths)  # g
        self._of_scaled = _Layers(like, n_rows, widths)
        self._of_slopes = _Layers(like, n_rows, widths)
        self._of_values = _Layers(like, n_rows, widths)
        self._work = _Layers(like, n_rows, widths)
        self._base, self._of_base = self._values.rows(n_points, n_rows), self._of_values.rows(n_points, n_rows)
        self._base_size = self._work.rows(n_points, n_rows)
        self._first_previous = self._previous.rows(0, n_ends)
        self._first_of_slopes = self._of_slopes.rows(0, n_ends)
        # From the second knot on, the knot before is the row R places up.
        self._later = [layers.rows(n_ends, n_points) for layers in (self._previous, self._of_slopes)]
        self._earlier = [layers.rows(0, n_points - n_ends) for layers in (self._values, self._of_values, self._work)]
        self._ones = like.new_ones(n_members, n_rows, 1)
        self._ones_row = self._ones.mT
        self._of_gradients = like.new_zeros(n_members, n_ends, n_inputs)
        self._of_gradients_t = self._of_gradients.mT
        n_features = n_inputs if join is None else join.shape[1]
        by_person = (n_members, 1 + n_matches, n_pairs, n_features)
        self._by_person = by_person
        self._uses_reasoning = settings.uses_reasoning
        self._n_placebos = n_matches // 2 if settings.uses_placebo else 0
        # Each of the two inputs is half of the mean; the match's derivative is the opposite of the person's.
        self._signed_halves = like.new_tensor([0.5, -0.5]).view(1, 1, 2, 1, 1, 1)
        self._of_gradients_by_person = self._of_gradients.view(n_members, 1 + n_matches, n_pairs, n_inputs)
        self._upstream = like.new_zeros(by_person)
        self._upstream_of_person, self._upstream_of_match = self._upstream[:, 0], self._upstream[:, 1:]
        self._upstream_rows = self._upstream.view(n_members, n_ends, n_features)
        by_step = (n_members, n_steps, n_ends, widths[0])
        self._first_scaled = self._scaled.layers[0][:, :n_points].view(by_step)
        self._first_of_scaled = self._of_scaled.layers[0][:, :n_points].view(by_step)
        self._mean_scaled = self._first_scaled[:, 0]
        self._first_points = self._values.layers[0][:, :n_points].view(by_step)
        self._of_first_points = self._of_values.layers[0][:, :n_points].view(by_step)
        self._on_t = [layer.mT for layer in self._on.layers]
        shift = 0.5 if settings.method == "midpoint" else 1.0
        alphas = (torch.arange(n_steps, dtype=like.dtype, device=like.device) + shift) / n_steps
        self._alphas = alphas.view(-1, 1, 1)

    def add_gradient(self, batch: Batch) -> Tensor:
        """Add the term's gradient to the gradients given; return the pairs' squared scores, (K, M, q)."""
        gradients = self._follow_paths(batch)
        compare = self._compare_reasoning if self._uses_reasoning else self._compare_attributions
        scores = compare(gradients, batch)
        self._return_along_chain()
        if self._method == "segments":  # at midpoints slopes are steps of the pre-activations: derivative 0
            self._return_along_values(batch)
        return scores

    def _compare_attributions(self, gradients: Tensor, batch: Batch) -> Tensor:
        """Squared CEC scores; leaves their derivative in the path-averaged gradients in `_of_gradients`."""
        attributions = gradients.mul_(batch["offset"])
        if self._join is not None:
            attributions = attributions @ self._join
        scores = self._compare(attributions.view(self._by_person), batch["pair_weight"])
        upstream = self._upstream_rows if self._join is None else self._upstream_rows @ self._join.mT
        torch.mul(upstream, batch["offset"], out=self._of_gradients)
        return scores

    def _compare_reasoning(self, gradients: Tensor, batch: Batch) -> Tensor:
        """Squared reasoning gaps; leaves their derivative in the path-averaged gradients in `_of_gradients`."""
        by_person = self._of_gradients_by_person
        inputs = self._both(batch["offset"].view(by_person.shape), self._n_placebos).unsqueeze(2)
        vectors = inputs * self._both(gradients.view(by_person.shape)).unsqueeze(1)  # inputs of z, weights of both
        if self._join is not None:
            vectors = vectors @ self._join
        norm = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True).clamp_min_(1e-15)
        longer = norm + _EPSILON
        units = vectors.div_(longer)
        difference = units[:, :, 0] - units[:, :, 1]
        scores = difference.square().sum(-1).mean(1)
        upstream = difference.unsqueeze(2) * (self._signed_halves * batch["pair_weight"][:, None, None, :, :, None])
        along = (upstream * units).sum(-1, keepdim=True).div_(norm)
        upstream.div_(longer).addcmul_(units, along, value=-1)
        if self._join is not None:
            upstream = upstream @ self._join.mT
        of_both = upstream.mul_(inputs)
        torch.sum(of_both[:, :, 0], (1, 2), out=by_person[:, 0])
        torch.sum(of_both[:, :, 1], 1, out=by_person[:, 1:])
        return scores.mul_(0.25)

    def _both(self, values: Tensor, n_placebos: int = 0) -> Tensor:
        """Values of a person and of a partner, (K, 2, M, q, d), from those by person, (K, 1 + M, q, d).

        With placebos, a placebo's are those of the match.
        """
        if values.shape[1] == 2:
            return values.unsqueeze(2)
        theirs = values[:, 1:]
        if n_placebos:
            theirs = theirs[:, :n_placebos].repeat(1, 2, 1, 1)
        return torch.stack((values[:, :1].expand_as(theirs), theirs), dim=1)

    def _follow_paths(self, batch: Batch) -> Tensor:
        """Path-averaged gradients of the logit in the inputs, of shape (K, R, d)."""
        values, on = self._values.layers, self._on.layers
        self._place_first_layer(batch)
        for layer in range(self._n_hidden):
            if layer > 0:
                torch.bmm(on[layer - 1], self._weights[layer], out=values[layer]).add_(self._biases[layer])
            torch.clamp_min(values[layer], 0, out=on[layer])
            if self._method == "segments":
                torch.bmm(batch["cell"], self._base[layer], out=self._first_previous[layer])
                if self._n_steps > 1:
                    self._later[0][layer].copy_(self._earlier[0][layer])
        self._find_slopes()
        slopes, scaled, carried = self._slopes.layers, self._scaled.layers, self._carried.layers
        torch.mul(slopes[-1], self._transposed[-1], out=scaled[-1])
        for layer in range(self._n_hidden - 2, -1, -1):
            torch.bmm(scaled[layer + 1], self._transposed[layer + 1], out=carried[layer])
            torch.mul(slopes[layer], carried[layer], out=scaled[layer])
        if self._n_steps > 1:
            self._mean_scaled = self._first_scaled.mean(1)
        return torch.bmm(self._mean_scaled, self._transposed[0])

    def _place_first_layer(self, batch: Batch) -> None:
        """First-layer pre-activations at knots and baselines: affine along each path, so one product does."""
        if self._n_steps == 1 and self._method == "segments":  # the one knot is the end itself
            torch.bmm(batch["rows"], self._weights[0], out=self._values.layers[0]).add_(self._biases[0])
            return
        placed = torch.baddbmm(self._biases[0], batch["rows"], self._weights[0])
        ends, base = placed[:, : self._n_ends], placed[:, self._n_ends :]
        start = torch.bmm(batch["cell"], base)
        self._first_points.copy_(torch.lerp(start.unsqueeze(1), ends.unsqueeze(1), self._alphas))
        self._base[0].copy_(base)

    def _find_slopes(self) -> None:
        if self._method == "midpoint":
            torch.sign(self._on.flat, out=self._slopes.flat)
            return
        # Both differences round the same way, so a unit that stays on has a slope of exactly 1. If the ends are equal,
        # the slope is set to 0 and nothing is attributed to the step.
        rise = torch.clamp_min(self._previous.flat, 0, out=self._slopes.flat)
        torch.sub(self._on.flat, rise, out=rise)
        run = torch.sub(self._values.flat, self._previous.flat, out=self._work.flat)
        rise.div_(run).nan_to_num_(0.0)

    def _compare(self, vectors: Tensor, weight: Tensor) -> Tensor:
        """Squared scores of shape (K, M, q); leaves their derivative in the attributions in `_upstream`."""
        norm = torch.linalg.vector_norm(vectors, dim=-1, keepdim=True).clamp_min_(1e-15)
        longer = norm + _EPSILON
        units = vectors.div_(longer)
        difference = units[:, :1] - units[:, 1:]
        scores = difference.square().sum(-1)
        # d(|difference|^2 / 4) is difference / 2 for the person, over all matches, and the opposite for the match; the
        # halving is in `weight`.
        torch.mul(difference, weight.unsqueeze(-1), out=self._upstream_of_match)
        torch.sum(self._upstream_of_match, 1, out=self._upstream_of_person)
        self._upstream_of_match.neg_()
        along = (self._upstream * units).sum(-1, keepdim=True).div_(norm)
        self._upstream.div_(longer).addcmul_(units, along, value=-1)
        return scores.mul_(0.25)

    def _return_along_chain(self) -> None:
        """Forward through the products that carried slopes back: gradients of weights, and of the slopes."""
        of_scaled, of_slopes = self._of_scaled.layers, self._of_slopes.layers
        slopes, scaled, passed = self._slopes.layers, self._scaled.layers, self._work.layers
        self._weight_gradients[0].baddbmm_(self._of_gradients_t, self._mean_scaled)
        if self._n_steps == 1:
            torch.bmm(self._of_gradients, self._weights[0], out=self._first_of_scaled[:, 0])
        else:
            of_mean = torch.bmm(self._of_gradients, self._weights[0]).div_(self._n_steps)
            self._first_of_scaled.copy_(of_mean.unsqueeze(1))
        for layer in range(self._n_hidden):
            is_last = layer + 1 == self._n_hidden
            carried = self._transposed[-1] if is_last else self._carried.layers[layer]
            torch.mul(of_scaled[layer], carried, out=of_slopes[layer])
            torch.mul(of_scaled[layer], slopes[layer], out=passed[layer])
            gradient = self._weight_gradients[layer + 1]
            gradient.baddbmm_(passed[layer].mT, self._ones if is_last else scaled[layer + 1])
            if not is_last:
                torch.bmm(passed[layer], self._weights[layer + 1], out=of_scaled[layer + 1])

    def _return_along_values(self, batch: Batch) -> None:
        """Back through the pre-activations that made the slopes."""
        slopes, of_values = self._slopes.flat, self._of_values.layers
        switching = self._of_slopes.flat.mul_(torch.addcmul(slopes, slopes, slopes, value=-1))
        size = torch.abs(self._values.flat, out=self._work.flat).clamp_min_(_TINY)
        torch.div(switching, size, out=self._of_values.flat)
        cell_t = batch["cell"].mT
        for layer in range(self._n_hidden):
            by_cell = torch.bmm(cell_t, self._first_of_slopes[layer])
            self._of_base[layer].addcdiv_(by_cell, self._base_size[layer])
            if self._n_steps > 1:
                self._earlier[1][layer].addcdiv_(self._later[1][layer], self._earlier[2][layer])
        for layer in range(self._n_hidden - 1, 0, -1):
            self._bias_gradients[layer].baddbmm_(self._ones_row, of_values[layer])
            self._weight_gradients[layer].baddbmm_(self._on_t[layer - 1], of_values[layer])
            below = torch.bmm(of_values[layer], self._transposed[layer])
            of_values[layer - 1].add_(torch.ops.aten.threshold_backward(below, self._on.layers[layer - 1], 0))
        of_first = of_values[0]
        if self._n_steps > 1:  # at ends and baselines, (K, R + C, h), from all knots
            at_end = (self._of_first_points * self._alphas).sum(1)
            at_start = self._of_first_points.sum(1) - at_end
            of_first = torch.cat((at_end, torch.baddbmm(self._of_base[0], cell_t, at_start)), dim=1)
        self._weight_gradients[0].baddbmm_(batch["rows"].mT, of_first)
        self._bias_gradients[0].add_(of_first.sum(1, keepdim=True))
