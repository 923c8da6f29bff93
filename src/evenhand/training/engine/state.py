"""The state of training: enough to use the models, or to continue exactly as if never stopped."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, fields, replace
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from torch import Tensor

from evenhand.exceptions import ModelFileError
from evenhand.system.files import write_atomically
from evenhand.training.model_file import tensor_bytes
from evenhand.training.network import Layout, StackedNetwork

_FORMAT = "evenhand-trainer-state"
_VERSION = 1
_HISTORY = "history."


@dataclass(frozen=True, eq=False)
class TrainerState:
    """A stack after a number of whole epochs; tensors are on the CPU, except in a trainer.

    It keeps no random state: a member's draws in an epoch follow from its seed and the epoch's number.

    Attributes
    ----------
    epoch
        Number of epochs completed.
    widths
        Inputs, hidden layers and output of each network.
    settings
        `TrainingSettings.to_dict()` of the run.
    parameters, mean, square
        Parameters and Adam's moments, of shape (K, P).
    n_steps
        Optimizer steps taken by each member, int64 of shape (K,).
    is_stopped
        Members that early stopping has ended, of shape (K,).
    best_parameters, best_value, best_epoch
        Parameters at each member's best epoch, the monitored metric there (lower is better; -AUC for ``"auc"``), and
        the epoch's number from 0, or -1 if there is none yet.
    history
        By name, one row per epoch and one column per member; NaN where a term was not computed or a member had stopped.
    """

    epoch: int
    widths: tuple[int, ...]
    settings: dict[str, Any]
    parameters: Tensor
    mean: Tensor
    square: Tensor
    n_steps: Tensor
    is_stopped: Tensor
    best_parameters: Tensor
    best_value: Tensor
    best_epoch: Tensor
    history: dict[str, Tensor]

    @property
    def final_parameters(self) -> Tensor:
        """Parameters to use, (K, P): of the best epoch with early stopping, else of the last."""
        if self.settings["patience"] is None:
            return self.parameters
        has_best = (self.best_epoch >= 0).unsqueeze(1).to(self.parameters.device)
        return torch.where(has_best, self.best_parameters.to(self.parameters.device), self.parameters)

    def on_cpu(self) -> TrainerState:
        """The same state, with every tensor on the CPU."""
        tensors = {f.name: getattr(self, f.name).cpu() for f in fields(self) if f.type == "Tensor"}
        return replace(self, **tensors)

    def network(self) -> StackedNetwork:
        """Trained stack, in evaluation mode."""
        stack = StackedNetwork.from_parameters(
            self.final_parameters, Layout(self.widths), float(self.settings["dropout"])
        )
        return stack.eval()

    def to_dict(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors by name, and metadata as JSON values."""
        tensors = {f.name: getattr(self, f.name) for f in fields(self) if f.type == "Tensor"}
        tensors |= {_HISTORY + name: values for name, values in self.history.items()}
        metadata = {
            "format": _FORMAT,
            "version": _VERSION,
            "epoch": self.epoch,
            "widths": list(self.widths),
            "settings": self.settings,
        }
        return tensors, metadata

    @classmethod
    def from_dict(cls, tensors: dict[str, Tensor], metadata: dict[str, Any]) -> TrainerState:
        """Inverse of `to_dict`.

        Raises
        ------
        ModelFileError
            If the two do not come from `to_dict`.
        """
        if metadata.get("format") != _FORMAT or metadata.get("version") != _VERSION:
            raise ModelFileError(
                f"Expected a trainer state of version {_VERSION}, got format {metadata.get('format')!r}, "
                f"version {metadata.get('version')!r}."
            )
        names = [f.name for f in fields(cls) if f.type == "Tensor"]
        missing = [n for n in names if n not in tensors] + [
            n for n in ("epoch", "widths", "settings") if n not in metadata
        ]
        if missing:
            raise ModelFileError(f"The trainer state lacks {missing}.")
        layout = Layout(tuple(int(width) for width in metadata["widths"]))
        n_members = len(tensors["n_steps"])
        for name in names:
            expected = (n_members,) if tensors[name].dim() == 1 else (n_members, layout.n_parameters)
            if tuple(tensors[name].shape) != expected:
                raise ModelFileError(
                    f"The trainer state's {name!r} must have shape {expected}, got {tuple(tensors[name].shape)}."
                )
        history = {k.removeprefix(_HISTORY): v for k, v in tensors.items() if k.startswith(_HISTORY)}
        own = {name: tensors[name] for name in names}
        return cls(int(metadata["epoch"]), layout.widths, metadata["settings"], **own, history=history)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one safetensors file; an existing file is replaced completely or not at all."""
        tensors, metadata = self.to_dict()
        content = tensor_bytes(tensors, {"evenhand": json.dumps(metadata)})
        with write_atomically(path) as temporary:
            temporary.write_bytes(content)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TrainerState:
        """Read what `save` wrote.

        Raises
        ------
        ModelFileError
            If the file is truncated, altered or of a different kind.
        """
        try:
            with safe_open(path, framework="pt") as file:
                tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  (not a dict)
                metadata = json.loads((file.metadata() or {}).get("evenhand", "{}"))
        except (SafetensorError, json.JSONDecodeError) as error:
            raise ModelFileError(f"{os.fspath(path)} is not a readable trainer state: {error}") from error
        return cls.from_dict(tensors, metadata)
