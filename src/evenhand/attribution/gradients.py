"""Path-averaged gradients and integrated gradients, three ways.

Integrated gradients factor as IG(x; b) = (x - b) * g(x), with g the gradient averaged over the straight path
from the baseline b to x. Everything downstream is computed from g, which `attribution.paths` provides:

``midpoint``
    the paper's rule: the gradient at the middles of `n_steps` equal steps.
``segments``
    each activation's mean slope over each of `n_steps` segments. Complete for any number of segments, more
    accurate than ``midpoint`` with eight times as many steps, and differentiable in the biases of a ReLU network.
``exact``
    ``segments`` that end where a hidden unit switches on or off, person by person. Needs ReLU or leaky ReLU.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, replace
from typing import Self, TypeVar, get_args

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from evenhand.attribution.feed_forward import FeedForward, feed_forward
from evenhand.attribution.paths import Integrated, Method, integrate_paths
from evenhand.attribution.scratch import Scratch
from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.system.parallel import in_order
from evenhand.system.threads import one_torch_thread

__all__ = ["Attribution", "Method", "attribute", "evaluating", "integrated_gradients", "placement"]

ArrayOrTensor = TypeVar("ArrayOrTensor", NDArray[np.floating], Tensor)

T = TypeVar("T")

# Largest number of hidden values in memory at once, whatever the number of people.
_CHUNK_VALUES = {"cpu": 4_000_000, "cuda": 100_000_000}
_CACHE_VALUES = 450_000  # that a core processes fastest: fewer have overhead, more exceed its cache
_KEPT = threading.local()
_LEAST_BLOCKS, _PARTS_PER_THREAD = 4, 4  # worth starting a thread, without a long wait for the last part


@dataclass(frozen=True)
class Attribution:
    """Integrated gradients of n people, and their parts.

    Attributes
    ----------
    gradients
        Path-averaged gradients g, of shape (n, d), or (K, n, d) of a stack of K models.
    offset
        x - b, of shape (n, d): all models of a stack share it.
    logit, baseline_logit
        The model at x and at b, of shape (n,), or (K, n).
    method
        How the path was integrated; a module that is not a plain chain of layers always has ``midpoint`` here.
    """

    gradients: Tensor
    offset: Tensor
    logit: Tensor
    baseline_logit: Tensor
    method: Method

    @property
    def values(self) -> Tensor:
        """Integrated gradients (x - b) * g, of shape (n, d)."""
        return self.offset * self.gradients

    @property
    def completeness_gap(self) -> Tensor:
        """|sum of attributions - (f(x) - f(b))|, of shape (n,); 0 for a perfect integral."""
        return (self.values.sum(-1) - (self.logit - self.baseline_logit)).abs()

    @property
    def standard_error(self) -> None:
        """None: nothing is sampled."""
        return

    def rows(self, index: Tensor) -> Self:
        """The people of `index`, in float64."""
        return replace(
            self,
            gradients=self.gradients[..., index, :].double(),
            offset=self.offset[..., index, :].double(),
            logit=self.logit[..., index].double(),
            baseline_logit=self.baseline_logit[..., index].double(),
        )

    def with_inputs_of(self, other: Self) -> Tensor:
        """Contributions (z - b) * g(x) of the inputs z of `other` under the gradients of these people."""
        return other.offset * self.gradients

    def per_deviation(self, deviation: Tensor) -> Tensor:
        """Change of the logit for a step of `deviation` under the gradients of each person."""
        return deviation * self.gradients


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
        ``"segments"``, ``"midpoint"`` (the paper's) or ``"exact"`` (ReLU networks).

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
        return attribute(model, x, torch.as_tensor(baseline), n_steps, method).values
    dtype, device = placement(model)
    with torch.no_grad():
        found = attribute(
            model,
            torch.tensor(np.asarray(x), dtype=dtype, device=device),
            torch.tensor(np.asarray(baseline), dtype=dtype, device=device),
            n_steps,
            method,
        )
    return found.values.cpu().numpy()


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
