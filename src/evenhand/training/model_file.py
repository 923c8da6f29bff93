"""A fitted classifier as one safetensors file: weights, and JSON in its header. Nothing is ever unpickled."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path
from typing import Any, Protocol, TypeVar

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from evenhand._version import __version__
from evenhand.exceptions import ModelFileError
from evenhand.inputs.encoding import TableEncoder
from evenhand.system.files import write_atomically
from evenhand.training.network import empty_network
from evenhand.training.tensor_file import tensor_bytes

__all__ = ["FILE_NAME", "read_model", "write_model"]

FILE_NAME = "model.safetensors"

_FORMAT = "evenhand.classifier"
_VERSION = 1


class FittedClassifier(Protocol):
    """What a file keeps of a classifier."""

    dropout: float
    classes_: Any
    encoder_: TableEncoder
    network_: nn.Sequential
    history_: dict[str, Any]
    n_features_in_: int
    n_iter_: int
    best_epoch_: int
    group_names_: tuple[str, ...]
    n_unmatched_: int
    feature_names_in_: Any

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Arguments of the constructor."""


Classifier = TypeVar("Classifier", bound=FittedClassifier)


def write_model(path: str | os.PathLike[str], model: FittedClassifier) -> Path:
    """Write `model` to a file, or to a folder as ``model.safetensors``; return the file's path."""
    target = Path(path)
    if target.suffix != ".safetensors":
        target = target / FILE_NAME
    tensors = dict(model.network_.state_dict())
    tensors |= {f"history.{name}": torch.from_numpy(values.copy()) for name, values in model.history_.items()}
    content = _content(model)
    header = {"format": _FORMAT, "version": str(_VERSION), "content": content, "sha256": _digest(tensors, content)}
    with write_atomically(target) as temporary:
        temporary.write_bytes(tensor_bytes(tensors, header))
    return target


def read_model(path: str | os.PathLike[str], kind: type[Classifier]) -> Classifier:
    """Read the model that `write_model` wrote, as an instance of `kind`."""
    file = Path(path)
    if file.is_dir():
        file = file / FILE_NAME
    if not file.is_file():
        raise ModelFileError(f"There is no model at {str(path)!r}: expected a file {FILE_NAME!r}.")
    try:
        with safe_open(file, framework="pt") as opened:
            header = opened.metadata() or {}
            tensors = {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118 - not a dict
    except (SafetensorError, OSError) as error:
        raise ModelFileError(f"{str(file)!r} is not a readable safetensors file, or is cut short: {error}.") from error
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
    except (KeyError, TypeError, ValueError, RuntimeError, AttributeError) as error:
        raise ModelFileError(f"{str(file)!r} does not hold what a model needs: {error}.") from error


def _content(model: FittedClassifier) -> str:
    """Everything but the tensors, as JSON."""
    names = getattr(model, "feature_names_in_", None)
    parameters = model.get_params(deep=False)
    parameters["checkpoint"] = None  # a path of the machine that trained
    if not isinstance(parameters["random_state"], (int, type(None))):
        parameters["random_state"] = None
    data = {
        "evenhand": __version__,
        "parameters": {name: _plain(value) for name, value in parameters.items()},
        "classes": model.classes_.tolist(),
        "encoder": model.encoder_.to_dict(),
        "widths": _widths(model.network_),
        "dropout": float(model.dropout),
        "feature_names": None if names is None else names.tolist(),
        "n_features": model.n_features_in_,
        "n_epochs": model.n_iter_,
        "best_epoch": model.best_epoch_,
        "group_names": list(model.group_names_),
        "n_unmatched": model.n_unmatched_,
    }
    return json.dumps(data, sort_keys=True)


def _rebuilt(data: dict[str, Any], tensors: dict[str, Tensor], kind: type[Classifier]) -> Classifier:
    # A file older than the parameter is of a model that was trained without it.
    model = kind(**{"least_explained": 0.0} | data["parameters"])
    model.classes_ = np.asarray(data["classes"])
    model.encoder_ = TableEncoder.from_dict(data["encoder"])
    model.network_ = empty_network(data["widths"], data["dropout"])
    model.network_.load_state_dict({k: v for k, v in tensors.items() if not k.startswith("history.")})
    model.history_ = {k.removeprefix("history."): v.numpy() for k, v in tensors.items() if k.startswith("history.")}
    if data["feature_names"] is not None:
        model.feature_names_in_ = np.asarray(data["feature_names"], dtype=object)
    model.n_features_in_ = int(data["n_features"])
    model.n_iter_ = int(data["n_epochs"])
    model.best_epoch_ = int(data["best_epoch"])
    model.group_names_ = tuple(data["group_names"])
    model.n_unmatched_ = int(data["n_unmatched"])
    if len(model.classes_) != 2 or data["widths"][0] != len(model.encoder_.encoded_names):
        raise ValueError("the classes, the encoding and the network do not fit together")
    return model


def _widths(network: nn.Sequential) -> list[int]:
    layers = [layer for layer in network if isinstance(layer, nn.Linear)]
    return [layers[0].in_features, *(layer.out_features for layer in layers)]


def _digest(tensors: dict[str, Tensor], content: str) -> str:
    digest = hashlib.sha256(content.encode())
    for name in sorted(tensors):
        digest.update(f"{name}{tuple(tensors[name].shape)}{tensors[name].dtype}".encode())
        digest.update(tensors[name].contiguous().numpy().tobytes())
    return digest.hexdigest()


def _plain(value: Any) -> Any:  # noqa: ANN401 - a constructor argument
    """A constructor argument as JSON holds it."""
    if isinstance(value, (list, tuple, np.ndarray)):
        return [_plain(item) for item in value]
    if isinstance(value, np.generic):
        return value.item()
    return value
