"""A network as affine maps and elementwise activations, for one model or a stack of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn import functional

from evenhand.exceptions import InvalidInputError

# For a smaller step, the secant of a smooth activation loses more digits than the derivative at its middle.
_SMALL_STEP = 1e-3
_TINY = 1e-12  # its square is still a float32, so that no gradient is 0 times infinity


@dataclass(frozen=True)
class Activation:
    """An elementwise activation and its slopes.

    Attributes
    ----------
    function
        The activation itself.
    scale
        `scale(gradient, z)`: the gradient times the derivative at z.
    secant
        `secant(start, end, step, out, spare)`: the derivative averaged over the straight line between two values of z.
        `step` is `end - start`, or None if the caller does not know it; it may broadcast. The result may be written to
        `out`, and `spare` and `step` may be overwritten, if they are not None.
    in_place
        The activation itself, which may be written over its argument.
    is_piecewise_linear
        Whether it is linear on both sides of zero.
    """

    name: str
    function: Callable[[Tensor], Tensor]
    scale: Callable[[Tensor, Tensor], Tensor]
    secant: Callable[[Tensor, Tensor, Tensor | None, Tensor | None, Tensor | None], Tensor]
    in_place: Callable[[Tensor], Tensor]
    is_piecewise_linear: bool = False


def _relu_scale(gradient: Tensor, z: Tensor) -> Tensor:
    # One pass over memory, and differentiable; comparing, casting and multiplying would take three.
    result: Tensor = torch.ops.aten.threshold_backward(gradient.expand_as(z), z, 0)
    return result


def _relu_secant(start: Tensor, end: Tensor, step: Tensor | None, out: Tensor | None, spare: Tensor | None) -> Tensor:
    # The share of the step on which the unit is on: no cancellation, no branch, 0 or 1 for a step of 0.
    if step is None:
        step = torch.sub(end, start, out=spare)
    over = None if out is None else step
    length = torch.clamp_min(torch.abs(step, out=over), _TINY, out=over)
    return torch.clamp(torch.div(torch.maximum(start, end, out=out), length, out=out), 0, 1, out=out)


def _leaky_relu(slope: float) -> Activation:
    def secant(start: Tensor, end: Tensor, step: Tensor | None, out: Tensor | None, spare: Tensor | None) -> Tensor:
        return torch.add(torch.mul(_relu_secant(start, end, step, out, spare), 1 - slope, out=out), slope, out=out)

    return Activation(
        f"leaky_relu({slope})",
        lambda z: functional.leaky_relu(z, slope),
        lambda gradient, z: torch.where(z > 0, gradient, slope * gradient),
        secant,
        lambda z: functional.leaky_relu_(z, slope),
        is_piecewise_linear=True,
    )


def _smooth(function: nn.Module) -> Activation:
    def derivative(z: Tensor) -> Tensor:
        create_graph = torch.is_grad_enabled() and z.requires_grad
        with torch.enable_grad():
            point = z if z.requires_grad else z.detach().requires_grad_()
            (slope,) = torch.autograd.grad(function(point).sum(), point, create_graph=create_graph)
        return slope

    def secant(start: Tensor, end: Tensor, step: Tensor | None, out: Tensor | None, spare: Tensor | None) -> Tensor:
        step = end - start if step is None else step
        small = step.abs() < _SMALL_STEP
        slope = (function(end) - function(start)) / step.masked_fill(small, 1.0)
        return torch.where(small, derivative((start + end) / 2), slope)

    name = type(function).__name__.lower()
    return Activation(name, function, lambda gradient, z: gradient * derivative(z), secant, function)


RELU = Activation("relu", torch.relu, _relu_scale, _relu_secant, torch.relu_, is_piecewise_linear=True)

ACTIVATIONS: dict[type[nn.Module], Callable[[nn.Module], Activation]] = {
    nn.ReLU: lambda _: RELU,
    nn.LeakyReLU: lambda m: _leaky_relu(float(m.negative_slope)),  # type: ignore[arg-type]
    **dict.fromkeys((nn.Tanh, nn.Sigmoid, nn.Softplus, nn.SiLU, nn.GELU, nn.ELU), _smooth),
}

# No effect on a model that is scored, not trained.
_TRANSPARENT = (nn.Dropout, nn.Identity)


@dataclass(frozen=True)
class FeedForward:
    """A logit as a chain of affine maps with elementwise activations between them.

    Attributes
    ----------
    weights
        One tensor per layer, of shape (..., n_in, n_out); leading dimensions are models of a stack.
    biases
        One tensor per layer, of shape (..., n_out).
    activations
        One per hidden layer: one fewer than `weights`.
    """

    weights: tuple[Tensor, ...]
    biases: tuple[Tensor, ...]
    activations: tuple[Activation, ...]

    @property
    def n_inputs(self) -> int:
        """Number of input features."""
        return int(self.weights[0].shape[-2])

    def check_inputs(self, x: Tensor) -> None:
        """Reject people who do not have the network's features."""
        if self.n_inputs != x.shape[-1]:
            raise InvalidInputError(f"The model takes {self.n_inputs} features, but `x` has {x.shape[-1]}.")

    @property
    def is_piecewise_linear(self) -> bool:
        """Whether every activation is linear on both sides of zero, as `method="exact"` needs."""
        return all(activation.is_piecewise_linear for activation in self.activations)

    def affine(self, layer: int, values: Tensor, out: Tensor | None = None) -> Tensor:
        """Pre-activations of `layer` from the previous layer's values of shape (..., n, n_in), in `out` if given."""
        weight, bias = self.weights[layer], self.biases[layer]
        if weight.dim() > 2:
            return torch.baddbmm(bias.unsqueeze(-2), values, weight, out=out)
        if out is None:
            return functional.linear(values, weight.t(), bias)
        torch.addmm(bias, values.flatten(end_dim=-2), weight, out=out.flatten(end_dim=-2))
        return out

    def __call__(self, x: Tensor) -> Tensor:
        """Logits of shape (..., n) for inputs of shape (..., n, n_in); (n, n_in) is shared by all models of a stack."""
        if self.weights[0].dim() > x.dim():
            x = x.expand(*self.weights[0].shape[:-2], *x.shape)
        for layer, activation in enumerate(self.activations):
            x = activation.function(self.affine(layer, x))
        return self.affine(len(self.activations), x).squeeze(-1)


def feed_forward(model: nn.Module) -> FeedForward | None:
    """Return the explicit form of `model`, or None if it is not a plain chain of layers.

    A model may have a `feed_forward()` method; otherwise an `nn.Sequential` (nested or not) of `nn.Linear`, elementwise
    activations and dropout that ends in one output is read.

    Examples
    --------
    >>> from torch import nn
    >>> feed_forward(nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 1))).n_inputs
    3
    >>> feed_forward(nn.Sequential(nn.Conv1d(1, 1, 1))) is None
    True
    """
    own = getattr(model, "feed_forward", None)
    if callable(own):
        net = own()
        return net if isinstance(net, FeedForward) else None
    weights: list[Tensor] = []
    biases: list[Tensor] = []
    activations: list[Activation] = []
    for layer in _flat_layers(model):
        if isinstance(layer, nn.Linear):
            weight = layer.weight.t()
            bias: Tensor = layer.bias if layer.bias is not None else layer.weight.new_zeros(layer.out_features)
            if len(weights) != len(activations):  # two affine maps in a row are one
                bias = biases.pop() @ weight + bias
                weight = weights.pop() @ weight
            weights.append(weight)
            biases.append(bias)
        elif type(layer) in ACTIVATIONS:
            if len(activations) != len(weights) - 1:  # an activation before, or right after, another
                return None
            activations.append(ACTIVATIONS[type(layer)](layer))
        elif not isinstance(layer, _TRANSPARENT):
            return None
    if not weights or len(activations) != len(weights) - 1 or weights[-1].shape[-1] != 1:
        return None
    return FeedForward(tuple(weights), tuple(biases), tuple(activations))


def _flat_layers(model: nn.Module) -> Iterator[nn.Module]:
    if type(model) is nn.Sequential:
        for layer in model:
            yield from _flat_layers(layer)
    else:
        yield model
