"""Gradients of a network of layers averaged over straight paths: by midpoints, by segments, or exactly.

The first layer's pre-activation is affine along the path, so its two products with the first weight matrix are
taken once, outside the steps; the last product with it follows the averaging.

Between the matrix products, every hidden value of every step is visited several times. Without a graph to keep, this
happens in the memory of a `Scratch`, which the caller reuses for the next people: with few enough of them at a time,
it never leaves the processor's cache, and the products themselves take most of the time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import torch
from torch import Tensor

from evenhand.attribution.feed_forward import Activation, FeedForward
from evenhand.attribution.scratch import Scratch, room
from evenhand.exceptions import InvalidInputError

__all__ = ["Integrated", "Method", "integrate_paths"]

Method = Literal["segments", "midpoint", "exact"]


@dataclass(frozen=True, eq=False)
class Integrated:
    """Gradients averaged over paths, of shape (..., n, d), and the logit at the start and end of paths, of (..., n)."""

    gradients: Tensor
    start_logit: Tensor
    end_logit: Tensor


def integrate_paths(
    net: FeedForward, x: Tensor, baseline: Tensor, n_steps: int, method: Method, scratch: Scratch | None = None
) -> Integrated:
    """Integrate over the paths from `baseline` to `x`; differentiable without a `scratch`."""
    if not net.activations:
        return Integrated(net.weights[0].squeeze(-1).unsqueeze(-2).expand_as(x), net(baseline), net(x))
    first = (*x.shape[:-1], net.weights[0].shape[-1])
    start, end = (
        net.affine(0, rows, room(scratch, name, x, first)) for name, rows in (("start", baseline), ("end", x))
    )
    if method == "midpoint":
        alphas = (torch.arange(n_steps, dtype=x.dtype, device=x.device) + 0.5) / n_steps
        return Integrated(_midpoint_gradients(net, start, end, alphas), net(baseline), net(x))
    if method == "exact":
        return _integrate_segments(net, start, end, _exact_knots(net, start, end))
    knots = torch.linspace(0, 1, n_steps + 1, dtype=x.dtype, device=x.device).unsqueeze(-1)
    step = torch.sub(end, start, out=room(scratch, "step", x, first)).unsqueeze(-3)
    step = torch.div(step, n_steps, out=None if scratch is None else step)
    return _integrate_segments(net, start, end, knots, step, scratch)


def _midpoint_gradients(net: FeedForward, start: Tensor, end: Tensor, alphas: Tensor) -> Tensor:
    """The derivative at each alpha, averaged."""
    pre = _along_path(start, end, alphas.unsqueeze(-1))
    scalers = []
    for layer, activation in enumerate(net.activations):
        scalers.append(partial(_scaled_by_derivative, activation, pre))
        if layer + 1 < len(net.activations):
            pre = _per_step(net, layer + 1, activation.function(pre))
    return _backward(net, scalers, net.weights[-1].mT.unsqueeze(-3), len(alphas)).mean(-3) @ net.weights[0].mT


def _integrate_segments(
    net: FeedForward,
    start: Tensor,
    end: Tensor,
    knots: Tensor,
    step: Tensor | None = None,
    scratch: Scratch | None = None,
) -> Integrated:
    """Each activation's mean slope between neighboring knots, averaged over the path.

    `knots` has shape (..., n_knots, 1) if people share them and (..., n_knots, n) otherwise. `step` is the change of
    the first layer's pre-activations in each segment, if it is the same in all.
    """
    n_segments = knots.shape[-2] - 1
    pre = _along_path(start, end, knots, scratch)
    scalers: list[Callable[[Tensor], Tensor]] = []
    for layer, activation in enumerate(net.activations):
        left, right = pre[..., :-1, :, :], pre[..., 1:, :, :]
        places = [room(scratch, name, pre, left.shape) for name in (f"slopes {layer}", "spare")]
        slopes = activation.secant(left, right, step if layer == 0 else None, *places)
        scalers.append(partial(torch.mul, slopes, out=None if scratch is None else slopes))
        activated = activation.function if scratch is None else activation.in_place
        if layer + 1 < len(net.activations):
            pre = _per_step(net, layer + 1, activated(pre), scratch)
    start_logit, end_logit = (
        net.affine(len(net.activations), activated(pre[..., knot, :, :])).squeeze(-1) for knot in (0, -1)
    )
    lengths = knots.diff(dim=-2).unsqueeze(-1)
    of_last = net.weights[-1].mT.unsqueeze(-3) * lengths
    by_segment = _backward(net, scalers, of_last, n_segments, scratch)
    mean = torch.sum(by_segment, -3, out=room(scratch, "mean", start, start.shape))
    return Integrated(mean @ net.weights[0].mT, start_logit, end_logit)


def _exact_knots(net: FeedForward, start: Tensor, end: Tensor) -> Tensor:
    """Knots, of shape (..., n_knots, n), at every sign change of every hidden layer but the last."""
    if not net.is_piecewise_linear:
        names = sorted({a.name for a in net.activations if not a.is_piecewise_linear})
        raise InvalidInputError(f'method="exact" needs ReLU or leaky ReLU, but the model has {names}.')
    shape = start.shape[:-1]
    knots = torch.stack((start.new_zeros(shape), start.new_ones(shape)), dim=-2)
    for layer in range(len(net.activations) - 1):
        pre = _along_path(start, end, knots)
        for previous in range(layer):
            pre = _per_step(net, previous + 1, net.activations[previous].function(pre))
        knots = _with_crossings(knots, pre)
    return knots


def _with_crossings(knots: Tensor, pre: Tensor) -> Tensor:
    """Knots of shape (..., S, n) with those added at which a pre-activation, linear between knots, is zero."""
    left, right = pre[..., :-1, :, :], pre[..., 1:, :, :]
    crosses = (left > 0) != (right > 0)
    share = left / torch.where(crosses, left - right, 1.0)
    begin, length = knots[..., :-1, :].unsqueeze(-1), knots.diff(dim=-2).unsqueeze(-1)
    found = torch.where(crosses, begin + share * length, 1.0)  # the end of the path is a knot already
    added = found.movedim(-1, -3).flatten(-3, -2)
    merged = torch.cat((knots, added), dim=-2).sort(dim=-2).values.clamp(0, 1)
    n_useful = int((merged < 1).sum(-2).max()) + 1 if merged.numel() else knots.shape[-2]
    return merged[..., :n_useful, :]


def _along_path(start: Tensor, end: Tensor, alphas: Tensor, scratch: Scratch | None = None) -> Tensor:
    """First-layer pre-activations of shape (..., n_alphas, n, n_hidden)."""
    out = room(scratch, "layer 0", start, (*start.shape[:-2], alphas.shape[-2], *start.shape[-2:]))
    pre: Tensor = torch.lerp(start.unsqueeze(-3), end.unsqueeze(-3), alphas.unsqueeze(-1), out=out)
    return pre


def _per_step(net: FeedForward, layer: int, values: Tensor, scratch: Scratch | None = None) -> Tensor:
    """Pre-activations of `layer` for values of shape (..., S, n, n_in), as one product over steps and people."""
    flat = values.flatten(-3, -2)
    out = room(scratch, f"layer {layer}", flat, (*flat.shape[:-1], net.weights[layer].shape[-1]))
    found = net.affine(layer, flat, out)
    return found.reshape(*values.shape[:-1], found.shape[-1])


def _scaled_by_derivative(activation: Activation, z: Tensor, gradient: Tensor) -> Tensor:
    return activation.scale(gradient, z)


def _backward(
    net: FeedForward,
    scalers: Sequence[Callable[[Tensor], Tensor]],
    of_last: Tensor,
    n_steps: int,
    scratch: Scratch | None = None,
) -> Tensor:
    """Gradient of the logit in the first layer's pre-activations, of shape (..., S, n, n_hidden).

    Each scaler multiplies a gradient by the slopes of its layer. `of_last` is the gradient in the last layer's values.
    """
    gradient = scalers[-1](of_last)
    for layer in range(len(scalers) - 1, 0, -1):
        flat, weight = gradient.flatten(-3, -2), net.weights[layer].mT
        out = room(scratch, f"gradient {layer}", flat, (*flat.shape[:-1], weight.shape[-1]))
        gradient = scalers[layer - 1](torch.matmul(flat, weight, out=out).unflatten(-2, (n_steps, -1)))
    return gradient
