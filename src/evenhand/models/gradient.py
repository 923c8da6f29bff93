"""Models explained by integrated gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn

from evenhand.arrays import Array, Floats, as_numpy, is_torch_array
from evenhand.attribution.explanation import Attribution, Method
from evenhand.attribution.feed_forward import ACTIVATIONS, FeedForward, feed_forward
from evenhand.attribution.gradients import attribute, evaluating, placement
from evenhand.exceptions import InvalidInputError
from evenhand.models.encoders import spread_people
from evenhand.models.protocol import AttributionName, AuditedModel, EncodesTables, LinearModel, Output, check_finite
from evenhand.system.threads import device_turn


@dataclass(frozen=True)
class DifferentiableModel(AuditedModel):
    """A network that maps the encoded table, of shape (n, d), to one score per row; or a stack of K, to (K, n).

    It answers in the kind it is asked in: arrays for arrays, tensors for tensors. `encode` returns tensors only for a
    network that is not in memory of the processor.
    """

    network: nn.Module | FeedForward
    kind: str
    encoder: EncodesTables | None = None
    attribution: AttributionName = "integrated_gradients"
    output: Output = "log-odds"

    @property
    def dtype(self) -> type[np.floating]:
        """Type of the network's parameters; float32 if NumPy has none like it, or a narrower one."""
        return np.float64 if placement(self.network)[0] == torch.float64 else np.float32

    @property
    def device(self) -> str | None:
        """Where the network's parameters are, unless in memory of the processor."""
        device = placement(self.network)[1]
        return None if device.type == "cpu" else str(device)

    def attribute(self, x: Array, baseline: Array, n_steps: int, method: Method) -> Attribution:
        """Integrated gradients of encoded people from encoded baselines, without a graph."""
        people, starts = self._tensor(x), self._tensor(baseline)
        with torch.no_grad(), device_turn(people.device.type):
            found = self.integrated(people, starts, n_steps, method)
        if found.logit.ndim == 1:  # in a stack, one member that overflows must not stop the others
            check_finite(found.logit)
        if is_torch_array(x):
            return found
        return replace(
            found,
            gradients=as_numpy(found.gradients),
            offset=as_numpy(found.offset),
            logit=as_numpy(found.logit),
            baseline_logit=as_numpy(found.baseline_logit),
        )

    def integrated(self, x: Tensor, baseline: Tensor, n_steps: int, method: Method) -> Attribution:
        """Integrated gradients of the network, from tensors where it is."""
        return attribute(self.network, x, baseline, n_steps, method)

    def margin(self, x: Array) -> Array:
        """The logit of encoded people."""
        people = self._tensor(x)
        network = self.network if isinstance(self.network, FeedForward) else feed_forward(self.network)
        if network is not None:
            network.check_inputs(people)
        with torch.no_grad():
            # A module of any other kind is evaluated as for its explanation, with dropout off.
            logit = attribute(self.network, people, people, 1, "midpoint").logit if network is None else network(people)
        return logit if is_torch_array(x) else as_numpy(logit)

    def _tensor(self, rows: Array) -> Tensor:
        """Rows as the network takes them; nothing is copied if they are in its memory and its type."""
        dtype, device = placement(self.network)
        given = rows if is_torch_array(rows) else np.require(rows, requirements=("C", "W"))
        return torch.as_tensor(given, dtype=dtype, device=device)


def chain_model(
    layers: Sequence[tuple[Floats, Floats]],
    activations: Sequence[tuple[str, float | None]],
    kind: str,
    encoder: EncodesTables | None = None,
) -> DifferentiableModel:
    """Weights, biases and activations that another library has learned, as a network in float64.

    Parameters
    ----------
    layers
        Weights, of shape (n_in, n_out), and biases.
    activations
        Name of a torch module and its parameter, if it has one, between every two layers.

    Examples
    --------
    >>> layers = [(np.array([[1.0, -1.0]]), np.zeros(2)), (np.ones((2, 1)), np.zeros(1))]
    >>> chain_model(layers, [("ReLU", None)], "two units").margin(np.array([[3.0]])).tolist()
    [3.0]
    """
    weights, biases = (tuple(torch.as_tensor(np.array(layer[k], dtype=np.float64)) for layer in layers) for k in (0, 1))
    modules = [getattr(nn, name)(*(() if value is None else (value,))) for name, value in activations]
    network = FeedForward(weights, biases, tuple(ACTIVATIONS[type(module)](module) for module in modules))
    return DifferentiableModel(network, kind, encoder)


def as_network(model: LinearModel) -> DifferentiableModel:
    """A linear model as a network without hidden layers, for integrated gradients."""
    layer = model.weights[:, None], np.array([model.intercept])
    return chain_model([layer], [], model.kind, model.encoder)


_ASKED_PEOPLE = 10_000


def module_model(
    module: nn.Module, *, output: Output | None = None, table: pd.DataFrame | None = None
) -> DifferentiableModel:
    """A torch module in the form of the audit.

    For two outputs per row, the log-odds are the second minus the first; if they are probabilities, the probability is
    the second.

    Parameters
    ----------
    module
        Maps a matrix of people to one or two numbers per row; a Keras model on torch is such a module.
    output
        What the numbers are, if that cannot be seen from them.
    table
        People of the audit; without them the output is taken as one logit per row.

    Raises
    ------
    InvalidInputError
        If every number is between 0 and 1, so that it may be either, and `output` does not say which.

    Examples
    --------
    >>> people = pd.DataFrame({"income": [0.5, -2.0]})
    >>> module_model(nn.Sequential(nn.Linear(1, 1), nn.Sigmoid()), output="probability", table=people).output
    'probability'
    >>> module_model(nn.Linear(1, 2), output="log-odds", table=people).kind
    'torch module Linear (second output minus the first)'
    """
    is_keras = any(kind.__module__.partition(".")[0] == "keras" for kind in type(module).__mro__)
    plain = DifferentiableModel(module, f"{'Keras model' if is_keras else 'torch module'} {type(module).__name__}")
    if table is None or not len(table):
        return plain
    returned = _returned(plain, table)
    if returned is None:
        return plain
    # The audit detects a module that returns the same number for everyone.
    may_be_probability = bool(((returned >= 0) & (returned <= 1)).all() and returned.min() < returned.max())
    if may_be_probability and output is None:
        raise InvalidInputError(
            f"The {plain.kind} returns only numbers between 0 and 1 ({returned.min():.3g} to {returned.max():.3g} for "
            f"{len(returned):,} people), which may be probabilities or logits; say which with "
            'options=AuditOptions(output="probability") or output="log-odds" (--output).'
        )
    is_probability = may_be_probability and output == "probability"
    explained: Output = "probability" if is_probability else "log-odds"
    if returned.dim() == 1 or returned.shape[1] == 1:
        # A sum after it turns a chain of layers that ends in an activation into one that ends in an affine map.
        network = _weighed(module, (1.0,)) if is_probability and returned.dim() == 2 else module
        return DifferentiableModel(network, plain.kind, output=explained)
    taken = (0.0, 1.0) if is_probability else (-1.0, 1.0)
    words = "second output" if is_probability else "second output minus the first"
    return DifferentiableModel(_weighed(module, taken), f"{plain.kind} ({words})", output=explained)


def _returned(model: DifferentiableModel, table: pd.DataFrame) -> Tensor | None:
    """The module's output for people spread over the table; None if it is not one or two numbers per row.

    Any other output is rejected with a message when people are explained.
    """
    x = model._tensor(model.encode(spread_people(table, _ASKED_PEOPLE)))
    assert isinstance(model.network, nn.Module)
    try:
        with torch.no_grad(), evaluating(model.network):
            found = model.network(x)
    except RuntimeError:  # a different number of columns, for example
        return None
    return found if isinstance(found, Tensor) and found.shape in ((len(x),), (len(x), 1), (len(x), 2)) else None


def _weighed(module: nn.Module, weights: tuple[float, ...]) -> nn.Module:
    """The module followed by a weighted sum of its outputs."""
    dtype, device = placement(module)
    last = nn.Linear(len(weights), 1, bias=False, dtype=dtype, device=device).requires_grad_(False)
    last.weight.copy_(torch.tensor([weights], dtype=dtype))
    return nn.Sequential(module, last)
