"""A fitted classifier as one safetensors file: weights, and JSON in its header. Nothing is ever unpickled."""

from __future__ import annotations

import hashlib
import json
import os
from importlib.resources import files
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save
from torch import Tensor, nn

from evenhand.exceptions import ModelFileError, first_line
from evenhand.inputs.encoding import TableEncoder
from evenhand.report.schema import first_fault
from evenhand.system import __version__
from evenhand.system.files import json_ready, write_atomically
from evenhand.training.network import Layout, empty_network

_LENGTH_BYTES = 8  # size of the header's length, and the multiple to which the header is padded


def tensor_bytes(tensors: dict[str, Tensor], metadata: dict[str, str]) -> bytes:
    """What `safetensors.torch.save` writes, with the header's keys sorted, because the library's order is random.

    Examples
    --------
    >>> import torch
    >>> contents = {tensor_bytes({"x": torch.zeros(2)}, {"a": "1", "b": "2", "c": "3"}) for _ in range(9)}
    >>> len(contents)
    1
    """
    content = save({name: tensor.contiguous() for name, tensor in tensors.items()}, metadata)
    end = _LENGTH_BYTES + int.from_bytes(content[:_LENGTH_BYTES], "little")
    ordered = json.dumps(json.loads(content[_LENGTH_BYTES:end]), sort_keys=True, separators=(",", ":"))
    header = ordered.encode()
    header += b" " * (-len(header) % _LENGTH_BYTES)
    return len(header).to_bytes(_LENGTH_BYTES, "little") + header + content[end:]


def write_tensors(path: str | os.PathLike[str], tensors: dict[str, Tensor], header: dict[str, str]) -> None:
    """Write one safetensors file; an existing file is replaced completely or not at all."""
    with write_atomically(path) as temporary:
        temporary.write_bytes(tensor_bytes(tensors, header))


def read_tensors(path: str | os.PathLike[str], what: str) -> tuple[dict[str, Tensor], dict[str, str]]:
    """Tensors and header of a safetensors file.

    Raises
    ------
    ModelFileError
        If the file cannot be read; the message says that it is not `what`.
    """
    try:
        with safe_open(path, framework="pt") as opened:
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - not a dict
            return tensors, opened.metadata() or {}
    except (SafetensorError, OSError) as error:
        raise ModelFileError(f"{str(path)!r} is not a readable {what}, or is truncated: {error}.") from error


FILE_NAME = "model.safetensors"

_FORMAT = "evenhand.classifier"
_VERSION = 1

# Whole numbers of a fitted classifier, by their name in the file.
_COUNTS = {
    "n_features": "n_features_in_",
    "n_epochs": "n_iter_",
    "best_epoch": "best_epoch_",
    "n_unmatched": "n_unmatched_",
}
Classifier = TypeVar("Classifier")


def write_model(path: str | os.PathLike[str], model: Any) -> Path:
    """Write a fitted `CECClassifier` to a file, or to a folder as ``model.safetensors``; return the file's path."""
    target = Path(path)
    if target.suffix != ".safetensors":
        target = target / FILE_NAME
    tensors = dict(model.network_.state_dict())
    tensors |= {f"history.{name}": torch.from_numpy(values.copy()) for name, values in model.history_.items()}
    content = _content(model)
    header = {"format": _FORMAT, "version": str(_VERSION), "content": content, "sha256": _digest(tensors, content)}
    write_tensors(target, tensors, header)
    return target


def read_model(path: str | os.PathLike[str], kind: type[Classifier]) -> Classifier:
    """Read the model that `write_model` wrote, as an instance of `kind`."""
    file = Path(path)
    if file.is_dir():
        file = file / FILE_NAME
    if not file.is_file():
        raise ModelFileError(f"There is no model at {str(path)!r}: expected a file {FILE_NAME!r}.")
    tensors, header = read_tensors(file, "safetensors file")
    if header.get("format") != _FORMAT:
        raise ModelFileError(f"{str(file)!r} is a safetensors file, but not a model saved by evenhand.")
    if header.get("version") != str(_VERSION):
        raise ModelFileError(
            f"{str(file)!r} has version {header.get('version')!r} of the format; this evenhand reads {_VERSION}."
        )
    content = header.get("content", "")
    if header.get("sha256") != _digest(tensors, content):
        raise ModelFileError(f"{str(file)!r} was altered after it was saved: its checksum does not match.")
    try:
        return _rebuilt(json.loads(content), tensors, kind)
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError, RecursionError) as error:
        raise ModelFileError(f"{str(file)!r} does not contain a valid model: {first_line(error)}.") from error


def _content(model: Any) -> str:
    """Everything except the tensors, as JSON."""
    names = getattr(model, "feature_names_in_", None)
    layers = [layer for layer in model.network_ if isinstance(layer, nn.Linear)]
    parameters = model.get_params(deep=False)
    parameters["checkpoint"] = None  # a path of the machine that trained
    if not isinstance(parameters["random_state"], (int, type(None))):
        parameters["random_state"] = None
    data = {
        "evenhand": __version__,
        "parameters": json_ready(parameters),
        "classes": model.classes_.tolist(),
        "encoder": model.encoder_.to_dict(),
        "widths": [layers[0].in_features, *(layer.out_features for layer in layers)],
        "dropout": float(model.dropout),
        "feature_names": None if names is None else names.tolist(),
        "group_names": list(model.group_names_),
        **{name: getattr(model, attribute) for name, attribute in _COUNTS.items()},
    }
    return json.dumps(data, sort_keys=True)


def _rebuilt(data: dict[str, Any], tensors: dict[str, Tensor], kind: type[Classifier]) -> Classifier:
    _check_parts(data, tensors)
    # A file without the parameter is older than the parameter; its model was trained without it.
    model: Any = kind(**{"least_explained": 0.0} | data["parameters"])
    model.classes_ = np.asarray(data["classes"])
    model.encoder_ = TableEncoder.from_dict(data["encoder"])
    model.network_ = empty_network(data["widths"], data["dropout"])
    model.network_.load_state_dict({k: v for k, v in tensors.items() if not k.startswith("history.")})
    model.history_ = {k.removeprefix("history."): v.numpy() for k, v in tensors.items() if k.startswith("history.")}
    if data["feature_names"] is not None:
        model.feature_names_in_ = np.asarray(data["feature_names"], dtype=object)
    model.group_names_ = tuple(data["group_names"])
    for name, attribute in _COUNTS.items():
        setattr(model, attribute, int(data[name]))
    if data["widths"][0] != len(model.encoder_.encoded_names):
        raise ValueError("the encoding and the network have different numbers of inputs")
    result: Classifier = model
    return result


def _check_parts(data: Any, tensors: dict[str, Tensor]) -> None:
    """Refuse metadata and weights that do not belong to a model, before building one."""
    schema = (files("evenhand.training") / "model.schema.json").read_text(encoding="utf-8")
    fault = first_fault(data, json.loads(schema))
    if fault:
        raise ValueError(fault)
    weights = [tensor for name, tensor in tensors.items() if not name.startswith("history.")]
    if sum(tensor.numel() for tensor in weights) != Layout(tuple(data["widths"])).n_parameters:
        raise ValueError(f"the weights do not fit a network of widths {data['widths']}")
    if not all(torch.isfinite(tensor).all() for tensor in weights):
        raise ValueError("some weights are not finite numbers")


def _digest(tensors: dict[str, Tensor], content: str) -> str:
    digest = hashlib.sha256(content.encode())
    for name in sorted(tensors):
        digest.update(f"{name}{tuple(tensors[name].shape)}{tensors[name].dtype}".encode())
        digest.update(tensors[name].contiguous().numpy().tobytes())
    return digest.hexdigest()
