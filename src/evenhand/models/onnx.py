"""Models in the ONNX format: plain networks are read and differentiated, any other is a black box."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from evenhand.arrays import Floats
from evenhand.attribution.sampled import SampledShapley
from evenhand.exceptions import InvalidInputError, first_line
from evenhand.inputs.validation import as_spelled
from evenhand.models.black_box import Score, scores_missing
from evenhand.models.encoders import NamedColumns
from evenhand.models.onnx_process import OnnxProcesses
from evenhand.models.protocol import AuditedModel, LinearModel, Output, ShapleyModel
from evenhand.models.sklearn import networks
from evenhand.system.libraries import optional_module

_CHECKED_ROWS = 64
_TOLERANCE = 1e-4  # tolerance of a probability, or of log-odds relative to their size: ONNX models compute in float32


@dataclass(frozen=True, eq=False)
class OnnxModel:
    """An ONNX model that passed the checks of `onnx` and that onnxruntime can run.

    Attributes
    ----------
    content
        The file's bytes.

    Raises
    ------
    InvalidInputError
        If the bytes are not a valid model, or its inputs are not numbers.
    """

    content: bytes

    def __post_init__(self) -> None:
        inputs = self.processes.inputs
        kinds = {item["type"] for item in inputs}
        if not kinds <= {"tensor(float)", "tensor(double)"}:
            raise InvalidInputError(
                f"The ONNX model takes inputs of type {sorted(kinds)}; only numbers (float or double) can be audited."
            )
        if len(inputs) > 1 and any(_width(item["shape"]) != 1 for item in inputs):
            raise InvalidInputError("The ONNX model takes several inputs of more than one column each; merge them.")

    def __getstate__(self) -> dict[str, bytes]:
        """Only the file: each process starts its own workers."""
        return {"content": self.content}

    @cached_property
    def proto(self) -> Any:
        """The parsed graph without a final ZipMap, which turns rows into dictionaries."""
        onnx = optional_module("onnx", "An ONNX model", "onnx", "onnx")
        try:
            proto = onnx.load_model_from_string(self.content)
            is_whole = all(t.data_location != onnx.TensorProto.EXTERNAL for t in _tensors(proto))
            if is_whole:
                onnx.checker.check_model(proto)
        except Exception as error:  # onnx raises errors of several libraries
            raise InvalidInputError(f"The file is not a valid ONNX model: {first_line(error)}.") from error
        if not is_whole:
            raise InvalidInputError(
                "The ONNX model stores weights in separate files, which are not read; save it as one file."
            )
        maps = [node for node in proto.graph.node if node.op_type == "ZipMap"]
        for node in maps:
            proto.graph.node.remove(node)
            kept = [item for item in proto.graph.output if item.name not in node.output]
            value = onnx.helper.make_tensor_value_info(node.input[0], onnx.TensorProto.FLOAT, None)
            del proto.graph.output[:]
            proto.graph.output.extend([*kept, value])
        return proto

    @cached_property
    def processes(self) -> OnnxProcesses:
        """The workers in which onnxruntime runs the model, each on one CPU thread."""
        optional_module("onnxruntime", "An ONNX model", "onnxruntime", "onnx")
        try:
            return OnnxProcesses(self.proto.SerializeToString())
        except ValueError as error:
            raise InvalidInputError(f"onnxruntime cannot run the ONNX model: {first_line(error)}.") from error

    @cached_property
    def score_name(self) -> str:
        """The output that holds the score: the last one with floating-point numbers."""
        outputs = self.processes.outputs
        names = [item["name"] for item in outputs if item["type"] in ("tensor(float)", "tensor(double)")]
        if not names:
            kinds = [item["type"] for item in outputs]
            raise InvalidInputError(f"The ONNX model returns only {kinds}, and no numbers to explain.")
        return str(names[-1])

    @property
    def column_names(self) -> list[str] | None:
        """Names of the inputs if each column is a separate input."""
        inputs = self.processes.inputs
        return [item["name"] for item in inputs] if len(inputs) > 1 else None

    @property
    def n_inputs(self) -> int | None:
        """Number of columns it takes; None if the file does not say."""
        names = self.column_names
        return _width(self.processes.inputs[0]["shape"]) if names is None else len(names)

    @property
    def returns_probability(self) -> bool:
        """Whether the score is the output of a sigmoid, a softmax or a classifier."""
        makers = {name: node for node in self.proto.graph.node for name in node.output}
        node = makers.get(self.score_name)
        while node is not None and node.op_type in ("Identity", "Cast", "Reshape", "Squeeze", "Flatten", "Normalizer"):
            node = makers.get(node.input[0])
        return node is not None and (
            node.op_type in ("Sigmoid", "Softmax", "Concat") or node.op_type.endswith("Classifier")
        )

    def score(self, x: Floats) -> Any:
        """The model's output for a matrix of people."""
        inputs = self.processes.inputs
        kinds = [np.float32 if item["type"] == "tensor(float)" else np.float64 for item in inputs]
        parts = [x] if len(inputs) == 1 else [x[:, [j]] for j in range(len(inputs))]
        given = [np.ascontiguousarray(part, dtype=kind) for part, kind in zip(parts, kinds, strict=True)]
        try:
            return self.processes.run(self.score_name, given)
        except ValueError as error:
            raise InvalidInputError(f"The ONNX model cannot score {x.shape}: {first_line(error)}.") from error


def onnx_model(
    model: OnnxModel, *, output: Output | None = None, table: pd.DataFrame | None = None, **sampling: Any
) -> AuditedModel:
    """An ONNX model in the form of the audit: differentiated if its graph is a plain network, else a black box."""
    network = None if output == "probability" else onnx_network(model)
    if network is not None:
        return network
    is_probability = model.returns_probability
    explained: Output = "probability" if is_probability and output != "log-odds" else "log-odds"
    score = Score(model.score, "The ONNX model", is_probability, explained)
    names = model.column_names
    if names is not None and table is not None:
        names = as_spelled(names, [str(column) for column in table.columns])
    takes_missing = scores_missing(score, table, names)
    return ShapleyModel(
        SampledShapley(score, **sampling),
        "ONNX model (black box)",
        None if names is None else NamedColumns(names, takes_missing),
        output=explained,
        takes_missing=takes_missing,
    )


def onnx_network(model: OnnxModel) -> AuditedModel | None:
    """The graph as a chain of affine maps and activations; None if it is not one.

    The result is compared with the model's scores before it is used.
    """
    try:
        network = _Reader(model).read()
    except _NotAChainError:
        return None
    # The network's logits must be the model's score, or its log-odds, at points near and far.
    rng = np.random.default_rng(0)
    x = rng.normal(size=(_CHECKED_ROWS, model.n_inputs or 0)) * rng.choice([0.1, 1.0, 10.0], size=(_CHECKED_ROWS, 1))
    x = x.astype(np.float32).astype(np.float64)
    theirs = Score(model.score, "The ONNX model", False, "log-odds")(x)
    ours = network.margin(x)
    scale = 1.0 if model.returns_probability else max(1.0, float(np.abs(theirs).max()))
    if model.returns_probability:
        ours = 0.5 * (1 + np.tanh(ours / 2))
    return network if np.abs(ours - theirs).max() <= _TOLERANCE * scale else None


class _NotAChainError(Exception):
    """The graph has something that does not fit a chain of affine maps and activations."""


class _Reader:
    """One pass along the graph from its input; affine maps are collected until an activation ends a layer."""

    def __init__(self, model: OnnxModel) -> None:
        from onnx import numpy_helper

        graph = model.proto.graph
        self._constants = {t.name: numpy_helper.to_array(t) for t in graph.initializer}
        for node in graph.node:
            if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
                self._constants[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
        self._nodes = graph.node
        self._model = model
        self._layers: list[tuple[Floats, Floats]] = []
        self._activations: list[tuple[str, float | None]] = []
        # Of the current layer: the inputs, unchanged so far.
        self._weight: Floats = np.eye(model.n_inputs or 0)
        self._bias: Floats = np.zeros(model.n_inputs or 0)

    def read(self) -> AuditedModel:
        if self._model.column_names is not None or self._model.n_inputs is None:
            raise _NotAChainError
        current = self._model.processes.inputs[0]["name"]
        while True:
            followers = [node for node in self._nodes if current in node.input]
            if not followers or current == self._model.score_name:
                break
            node = followers[0]
            if len(followers) > 1 or self._ends(node):
                break
            self._take(node, current)
            current = node.output[0]
        return self._network()

    def _ends(self, node: Any) -> bool:
        """Whether the log-odds are complete and only the final activation is left."""
        if node.op_type == "Sigmoid" and len(self._bias) == 1:
            return True
        if node.op_type == "Softmax" and len(self._bias) == 2:
            self._weight = self._weight[:, 1:] - self._weight[:, :1]
            self._bias = self._bias[1:] - self._bias[:1]
            return True
        return False

    def _take(self, node: Any, current: str) -> None:
        from onnx import helper

        attributes = {a.name: helper.get_attribute_value(a) for a in node.attribute}
        kind = node.op_type
        if kind in _IGNORED:
            return
        if kind in _ONNX_ACTIVATIONS:
            self._close(_ONNX_ACTIVATIONS[kind](attributes))
        elif kind == "Gemm" and node.input[0] == current and not attributes.get("transA", 0):
            weight = self._constant(node.input[1])
            weight = attributes.get("alpha", 1.0) * (weight.T if attributes.get("transB", 0) else weight)
            shift = self._constant(node.input[2]) if len(node.input) > 2 else np.zeros(weight.shape[1])
            self._affine(weight, attributes.get("beta", 1.0) * shift.reshape(-1))
        elif kind == "MatMul" and node.input[0] == current:
            weight = self._constant(node.input[1])
            self._affine(weight, np.zeros(weight.shape[-1]))
        elif kind in ("Add", "Sub", "Mul", "Div"):
            self._elementwise(kind, node, current)
        elif kind == "Scaler":
            scale = np.asarray(attributes["scale"], dtype=np.float64)
            self._affine(np.diag(scale), -scale * np.asarray(attributes["offset"], dtype=np.float64))
        elif kind == "LinearClassifier" and len(attributes["intercepts"]) == 2:
            coefficients = np.asarray(attributes["coefficients"], dtype=np.float64).reshape(2, -1)
            if attributes.get("post_transform") == b"SOFTMAX":
                coefficients = coefficients - coefficients[:1]
            self._affine(coefficients[1:].T, np.asarray(attributes["intercepts"], dtype=np.float64)[1:])
        else:
            raise _NotAChainError

    def _elementwise(self, kind: str, node: Any, current: str) -> None:
        first = node.input[0] == current
        value = self._constant(node.input[1] if first else node.input[0]).reshape(-1)
        width = len(self._bias)
        if value.size not in (1, width) or (kind in ("Sub", "Div") and not first):
            raise _NotAChainError
        value = np.broadcast_to(value, (width,)).astype(np.float64)
        if kind in ("Add", "Sub"):
            self._affine(np.eye(width), value if kind == "Add" else -value)
        else:
            self._affine(np.diag(value if kind == "Mul" else 1 / value), np.zeros(width))

    def _affine(self, weight: Floats, bias: Floats) -> None:
        if weight.ndim != 2 or weight.shape[0] != len(self._bias) or bias.shape != weight.shape[1:]:
            raise _NotAChainError
        self._weight, self._bias = self._weight @ weight, self._bias @ weight + bias

    def _close(self, activation: tuple[str, float | None]) -> None:
        self._layers.append((self._weight, self._bias))
        self._activations.append(activation)
        width = len(self._bias)
        self._weight, self._bias = np.eye(width), np.zeros(width)

    def _network(self) -> AuditedModel:
        if len(self._bias) != 1:
            raise _NotAChainError
        if not self._layers:
            return LinearModel(self._weight[:, 0], float(self._bias[0]), "ONNX linear model")
        layers = [*self._layers, (self._weight, self._bias)]
        found: AuditedModel = networks("An ONNX network").chain_model(layers, self._activations, "ONNX network")
        return found

    def _constant(self, name: str) -> Floats:
        if name not in self._constants:
            raise _NotAChainError
        return np.asarray(self._constants[name], dtype=np.float64)


# As torch names them, and the parameter they have.
_ONNX_ACTIVATIONS: dict[str, Callable[[dict[str, Any]], tuple[str, float | None]]] = {
    "Relu": lambda _: ("ReLU", None),
    "LeakyRelu": lambda a: ("LeakyReLU", a.get("alpha", 0.01)),
    "Tanh": lambda _: ("Tanh", None),
    "Sigmoid": lambda _: ("Sigmoid", None),
    "Softplus": lambda _: ("Softplus", None),
    "Elu": lambda a: ("ELU", a.get("alpha", 1.0)),
}
# Keep values unchanged; comparing scores shows whether that is right for this model.
_IGNORED = ("Cast", "Dropout", "Flatten", "Identity", "Normalizer", "Reshape", "Squeeze", "Unsqueeze")


def _tensors(proto: Any) -> Iterator[Any]:
    """Every tensor of a model: in its graph, in graphs inside nodes, and in its functions."""
    waiting = [proto.graph, *proto.functions]
    while waiting:
        part = waiting.pop()
        yield from getattr(part, "initializer", ())
        for sparse in getattr(part, "sparse_initializer", ()):
            yield from (sparse.values, sparse.indices)
        for attribute in (a for node in part.node for a in node.attribute):
            yield from (attribute.t, *attribute.tensors)
            waiting.extend([attribute.g, *attribute.graphs])


def _width(shape: Sequence[Any]) -> int | None:
    """Number of columns of an input of shape (n, d), if the file says."""
    return shape[1] if len(shape) == 2 and isinstance(shape[1], int) and shape[1] > 0 else None
