"""Path-averaged gradients and integrated gradients, three ways.

Integrated gradients factor as IG(x; b) = (x - b) * g(x), with g the gradient averaged over the straight path
from the baseline b to x. Everything downstream is computed from g:

``midpoint``
    the gradient at the middles of `n_steps` equal steps, as in the reproduction of the paper, which names no rule.
``segments``
    each activation's mean slope over each of `n_steps` segments. Complete for any number of segments, more
    accurate than ``midpoint`` with eight times as many steps, and differentiable in the biases of a ReLU network.
``exact``
    ``segments`` that end where a hidden unit switches on or off, person by person. Needs ReLU or leaky ReLU.

The first layer's pre-activation is affine along the path, so its two products with the first weight matrix are
taken once, outside the steps; the last product with it follows the averaging.

Between the matrix products, every hidden value of every step is visited several times. Without a graph to keep, this
happens in the memory of a `Scratch`, which the caller reuses for the next people: with few enough of them at a time,
it never leaves the processor's cache, and the products themselves take most of the time.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from evenhand.attribution.explanation import Attribution, Method
from evenhand.attribution.feed_forward import Activation, FeedForward, feed_forward
from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.system.threads import in_order, one_torch_thread


@dataclass(frozen=True, eq=False)
class Scratch:
    """Tensors by name, of any shape; one scratch for each thread.

    New memory is mapped page by page when it is first written, which takes longer than computing the sums.
    """

    _held: dict[tuple[str, torch.dtype], Tensor] = field(default_factory=dict)

    def take(self, name: str, like: Tensor, shape: tuple[int, ...]) -> Tensor:
        """A tensor with a given shape in the memory of a name, with whatever was last written there."""
        n = math.prod(shape)
        held = self._held.get((name, like.dtype))
        if held is None or held.numel() < n:
            held = self._held[name, like.dtype] = like.new_empty(n)
        return held[:n].view(shape)


def room(scratch: Scratch | None, name: str, like: Tensor, shape: tuple[int, ...]) -> Tensor | None:
    """The `out` of an operation: a tensor of the scratch, or, without one, None for new memory.

    Examples
    --------
    >>> x, scratch = torch.ones(2), Scratch()
    >>> first, second = (torch.add(x, k, out=room(scratch, "sum", x, x.shape)) for k in (1, 2))
    >>> first.data_ptr() == second.data_ptr(), room(None, "sum", x, x.shape)
    (True, None)
    """
    return None if scratch is None else scratch.take(name, like, shape)


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


ArrayOrTensor = TypeVar("ArrayOrTensor", NDArray[np.floating], Tensor)

T = TypeVar("T")

# Largest number of hidden values in memory at once, whatever the number of people.
_CHUNK_VALUES = {"cpu": 4_000_000, "cuda": 100_000_000}
_CACHE_VALUES = 450_000  # that a core processes fastest: fewer have overhead, more exceed its cache
_KEPT = threading.local()
_LEAST_BLOCKS, _PARTS_PER_THREAD = 4, 4  # worth starting a thread, without a long wait for the last part


def integrated_gradients(
    model: nn.Module | FeedForward,
    x: ArrayOrTensor,
    baseline: ArrayOrTensor,
    n_steps: int = 32,
    method: Method = "segments",
) -> ArrayOrTensor:
    """Integrated gradients of the logit of each row of `x`, from `baseline`.

    Dropout is off, whatever the model's mode. For tensors, the result is differentiable in the model's parameters.

    Parameters
    ----------
    model
        A torch module mapping (n, d) to one logit per row. Chains of linear layers and elementwise activations are
        integrated in closed form between steps; any other module by automatic differentiation at midpoints.
    x
        People, of shape (n, d); an array or a tensor, and the result is of the same kind.
    baseline
        One reference point of shape (d,), or one per person, of shape (n, d).
    n_steps
        Number of steps along the path; ignored by ``exact``.
    method
        ``"segments"``, ``"midpoint"`` or ``"exact"`` (ReLU networks).

    Raises
    ------
    InvalidInputError
        If shapes disagree, `n_steps` is not positive, or ``exact`` is used with a model that is not piecewise linear.

    Examples
    --------
    >>> import torch
    >>> model = torch.nn.Sequential(torch.nn.Linear(2, 1))
    >>> _ = model[0].weight.data.copy_(torch.tensor([[2.0, -1.0]]))
    >>> integrated_gradients(model, torch.tensor([[1.0, 1.0]]), torch.zeros(2)).tolist()
    [[2.0, -1.0]]
    """
    if isinstance(x, Tensor):
        return _values(attribute(model, x, torch.as_tensor(baseline), n_steps, method))
    dtype, device = placement(model)
    with torch.no_grad():
        found = attribute(
            model,
            torch.tensor(np.asarray(x), dtype=dtype, device=device),
            torch.tensor(np.asarray(baseline), dtype=dtype, device=device),
            n_steps,
            method,
        )
    return _values(found).cpu().numpy()


def _values(found: Attribution) -> Tensor:
    values: Tensor = found.values
    return values


def attribute(
    model: nn.Module | FeedForward,
    x: Tensor,
    baseline: Tensor,
    n_steps: int = 32,
    method: Method = "segments",
) -> Attribution:
    """Attributions with everything a caller may want to check: see `integrated_gradients` and `Attribution`.

    A stack of networks is evaluated on the same people, `x` of shape (n, d), all at once.
    """
    _check(x, baseline, n_steps, method)
    baseline = baseline.expand_as(x)
    net = model if isinstance(model, FeedForward) else feed_forward(model)
    if net is None:
        if method == "exact":
            raise InvalidInputError(
                'method="exact" needs a chain of linear layers with ReLU or leaky ReLU; this '
                f'{type(model).__name__} is not one. Use method="midpoint".'
            )
        assert isinstance(model, nn.Module)
        return _attribute_by_autograd(model, x, baseline, n_steps)
    net.check_inputs(x)
    return _by_blocks(net, x, baseline, n_steps, method)


def _by_blocks(net: FeedForward, x: Tensor, baseline: Tensor, n_steps: int, method: Method) -> Attribution:
    """Attributions of a chain of layers, in blocks of people whose paths fit in memory, or in the cache."""
    models = net.weights[0].shape[:-2] if x.dim() == 2 else x.shape[:-2]
    ends, starts = (rows.expand(*models, *rows.shape[-2:]) for rows in (x, baseline))
    in_cache = method == "segments" and x.device.type == "cpu" and not torch.is_grad_enabled()
    held = _CACHE_VALUES if in_cache else _chunk_values(x.device)
    rows = max(1, held // _values_per_person(net, n_steps, method))

    def integrated(part: slice) -> list[Integrated]:
        scratch = _of_this_thread() if in_cache else None
        blocks = zip(ends[..., part, :].split(rows, -2), starts[..., part, :].split(rows, -2), strict=True)
        with torch.no_grad() if in_cache else nullcontext():  # a new thread would keep a graph
            return [integrate_paths(net, end, start, n_steps, method, scratch) for end, start in blocks]

    parts = _on_threads(integrated, x.shape[-2], rows) if in_cache else [integrated(slice(None))]
    found = [block for part in parts for block in part]
    return Attribution(
        gradients=torch.cat([block.gradients for block in found], -2),
        offset=x - baseline,
        logit=torch.cat([block.end_logit for block in found], -1),
        baseline_logit=torch.cat([block.start_logit for block in found], -1),
        method=method,
    )


def _of_this_thread() -> Scratch:
    """Memory that stays with a thread, a few megabytes, for reuse by the next call."""
    if not hasattr(_KEPT, "scratch"):
        _KEPT.scratch = Scratch()
    kept: Scratch = _KEPT.scratch
    return kept


def _on_threads(function: Callable[[slice], T], n: int, block: int) -> list[T]:
    """Results for consecutive parts of n people, as many at a time as torch has threads.

    Each part consists of whole blocks, on one core: the result does not depend on the number of parts.
    """
    n_threads = min(torch.get_num_threads(), n // (_LEAST_BLOCKS * block))
    if n_threads < 2:
        return [function(slice(0, n))]
    size = -(-n // (block * n_threads * _PARTS_PER_THREAD)) * block
    with one_torch_thread():
        return list(in_order(function, [slice(k, min(k + size, n)) for k in range(0, n, size)], n_threads))


def _attribute_by_autograd(model: nn.Module, x: Tensor, baseline: Tensor, n_steps: int) -> Attribution:
    """Midpoint gradients of any module, by automatic differentiation."""
    differentiable = torch.is_grad_enabled() and any(p.requires_grad for p in model.parameters())
    alphas = (torch.arange(n_steps, dtype=x.dtype, device=x.device) + 0.5) / n_steps
    rows = max(1, _chunk_values(x.device) // (max(64, x.shape[-1]) * n_steps))
    parts = []
    with evaluating(model):
        for x_part, b_part in zip(x.split(rows), baseline.split(rows), strict=True):
            points = (b_part + alphas.view(-1, 1, 1) * (x_part - b_part)).flatten(0, 1)
            with torch.enable_grad():
                points = points.detach().requires_grad_() if not points.requires_grad else points
                logits = _one_logit_per_row(model(points), len(points))
                (gradient,) = torch.autograd.grad(logits.sum(), points, create_graph=differentiable)
            parts.append(gradient.unflatten(0, (n_steps, len(x_part))).mean(0))
        logit = _one_logit_per_row(model(x), len(x))
        baseline_logit = _one_logit_per_row(model(baseline), len(x))
    return Attribution(torch.cat(parts), x - baseline, logit, baseline_logit, "midpoint")


def _one_logit_per_row(output: Tensor, n_rows: int) -> Tensor:
    if not isinstance(output, Tensor):
        raise InvalidTypeError(f"The model must return a tensor of logits, got {type(output).__name__}.")
    if output.shape not in ((n_rows,), (n_rows, 1)):
        raise InvalidInputError(
            f"The model must return one logit per row, of shape ({n_rows},) or ({n_rows}, 1), "
            f"got {tuple(output.shape)}."
        )
    return output.reshape(n_rows)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Turn dropout off and restore every submodule's mode afterwards."""
    modes = [(module, module.training) for module in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for module, training in modes:
            module.training = training


def placement(model: nn.Module | FeedForward) -> tuple[torch.dtype, torch.device]:
    """Floating type and device of a model; float32 on the CPU for one without parameters."""
    tensors = model.weights if isinstance(model, FeedForward) else tuple(model.parameters())
    for tensor in tensors:
        if tensor.is_floating_point():
            return tensor.dtype, tensor.device
    return torch.float32, torch.device("cpu")


def _chunk_values(device: torch.device) -> int:
    return _CHUNK_VALUES.get(device.type, _CHUNK_VALUES["cpu"])


def _values_per_person(net: FeedForward, n_steps: int, method: Method) -> int:
    """Number of hidden values for one person's path."""
    width = sum(weight.shape[-1] for weight in net.weights)
    if method == "exact":
        n_steps = sum(weight.shape[-1] for weight in net.weights[:-2]) + 2
        width *= 2
    n_models = net.weights[0].shape[:-2].numel()
    return int(width * (n_steps + 1) * n_models)


def _check(x: Tensor, baseline: Tensor, n_steps: int, method: str) -> None:
    if method not in get_args(Method):
        raise InvalidInputError(f"`method` must be one of {list(get_args(Method))}, got {method!r}.")
    if n_steps < 1:
        raise InvalidInputError(f"`n_steps` must be at least 1, got {n_steps}.")
    if x.dim() < 2:
        raise InvalidInputError(f"`x` must have shape (n, d), got {tuple(x.shape)}.")
    if baseline.shape != x.shape and baseline.shape != x.shape[-1:]:
        raise InvalidInputError(
            f"`baseline` must have shape {tuple(x.shape)} or {tuple(x.shape[-1:])}, got {tuple(baseline.shape)}."
        )
