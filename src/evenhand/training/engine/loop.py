"""The trainer, Algorithm 2 for a stack of models, of which one model is the smallest; and its state."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evenhand.exceptions import EvenhandError, InvalidInputError, ModelFileError
from evenhand.system.threads import one_thread_each
from evenhand.training.data import TrainingData
from evenhand.training.engine.minibatches import BatchSource, Block
from evenhand.training.engine.step import Stepper
from evenhand.training.evaluation import VALIDATION_METRICS, Judge
from evenhand.training.losses import excess_gain
from evenhand.training.model_file import read_tensors, write_tensors
from evenhand.training.network import Layout, StackedNetwork
from evenhand.training.settings import TrainingSettings, label_entropy, term_gain

EpochCallback = Callable[[int, dict[str, Tensor]], None]

_TRAINING_METRICS = ("bce", "equalized_odds", "cec", "equalized_odds_left_out", "unmatched")

# Members whose step fits in a core's cache together; larger stacks are run part by part on the CPU. Smaller parts, or
# many threads, would wait for each other more than they compute: starting an operation is one thread's work at a time.
_MEMBERS_PER_PART = 10
_MOST_THREADS = 8

_SECONDS_BETWEEN_CHECKPOINTS = 10.0

# The excess of an untrained network is that of its random weights. Large gradients at the start would also keep Adam's
# steps small for a long time.
_EPOCHS_WITHOUT_EXCESS = 2


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
        return replace(self, **{name: getattr(self, name).cpu() for name in _TENSORS})

    def network(self) -> StackedNetwork:
        """Trained stack, in evaluation mode."""
        stack = StackedNetwork.from_parameters(
            self.final_parameters, Layout(self.widths), float(self.settings["dropout"])
        )
        return stack.eval()

    def to_dict(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """Tensors by name, and metadata as JSON values."""
        tensors = {name: getattr(self, name) for name in _TENSORS}
        tensors |= {_HISTORY + name: values for name, values in self.history.items()}
        own = {name: getattr(self, name) for name in _PLAIN}
        return tensors, {"format": _FORMAT, "version": _VERSION, **own, "widths": list(self.widths)}

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
        missing = [name for name in (*_TENSORS, *_PLAIN) if name not in tensors and name not in metadata]
        if missing:
            raise ModelFileError(f"The trainer state lacks {missing}.")
        layout = Layout(tuple(int(width) for width in metadata["widths"]))
        n_members = len(tensors["n_steps"])
        for name in _TENSORS:
            expected = (n_members,) if tensors[name].dim() == 1 else (n_members, layout.n_parameters)
            if tuple(tensors[name].shape) != expected:
                raise ModelFileError(
                    f"The trainer state's {name!r} must have shape {expected}, got {tuple(tensors[name].shape)}."
                )
        history = {k.removeprefix(_HISTORY): v for k, v in tensors.items() if k.startswith(_HISTORY)}
        own = {name: tensors[name] for name in _TENSORS}
        return cls(int(metadata["epoch"]), layout.widths, metadata["settings"], **own, history=history)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write one safetensors file; an existing file is replaced completely or not at all."""
        tensors, metadata = self.to_dict()
        write_tensors(path, tensors, {"evenhand": json.dumps(metadata)})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> TrainerState:
        """Read what `save` wrote.

        Raises
        ------
        ModelFileError
            If the file is truncated, altered or of a different kind.
        """
        tensors, header = read_tensors(path, "trainer state")
        try:
            metadata = json.loads(header.get("evenhand", "{}"))
        except json.JSONDecodeError as error:
            raise ModelFileError(f"{os.fspath(path)!r} is not a readable trainer state: {error}") from error
        return cls.from_dict(tensors, metadata)


_TENSORS = tuple(f.name for f in fields(TrainerState) if f.type == "Tensor")
_PLAIN = ("epoch", "widths", "settings")


class TrainingDivergedError(EvenhandError, ArithmeticError):
    """A loss stopped being a finite number."""


class Trainer:
    """Trains a stack, epoch by epoch.

    Parameters
    ----------
    data, settings
        What to learn from, and how.
    state
        Continue from here instead of from the start. The result is the same as that of an uninterrupted run.
    checkpoint
        File that keeps an unfinished training, from which the same training continues; removed at the end.

    Raises
    ------
    InvalidInputError
        If settings and data, or a state and settings, do not fit together.
    """

    def __init__(
        self,
        data: TrainingData,
        settings: TrainingSettings,
        state: TrainerState | None = None,
        *,
        checkpoint: Path | None = None,
    ) -> None:
        _check(data, settings)
        self._checkpoint = checkpoint
        if state is None and checkpoint is not None and checkpoint.is_file():
            state = TrainerState.load(checkpoint)
        self.data, self.settings = data, settings
        self._device = device_of(settings.device)
        self._layout = Layout((data.n_columns, *settings.hidden, 1))
        self._state = _initial_state(self._layout, data, settings) if state is None else state
        differing = settings.differences(self._state.settings)
        if self._state.widths != self._layout.widths:
            before, now = list(self._state.widths), list(self._layout.widths)
            differing.append(f"number of inputs or hidden widths ({before}, now {now})")
        if differing:
            raise InvalidInputError(f"The state to continue from was trained with different settings: {differing}.")
        self._parameters, self._mean, self._square = (
            tensor.to(self._device, copy=True)
            for tensor in (self._state.parameters, self._state.mean, self._state.square)
        )
        self._n_threads = settings.n_threads or torch.get_num_threads()
        self._judge = Judge(data, settings, self._device)
        # Parts of the stack are run one after another, or each on its own thread.
        n_members = settings.n_members
        size = min(n_members, _MEMBERS_PER_PART) if self._device.type == "cpu" else n_members
        self._parts = [slice(start, min(start + size, n_members)) for start in range(0, n_members, size)]
        self._engines = [self._engine(part) for part in self._parts]

    @property
    def state(self) -> TrainerState:
        """As of the last completed epoch, on the CPU; also after an interrupt or an error.

        Fetching a stack of thousands from a device takes longer than an epoch, so it is fetched only when asked for.
        """
        return self._state.on_cpu()

    def network(self) -> StackedNetwork:
        """The stack as of the last completed epoch, on the device where it is trained."""
        return self._state.network()

    def run(self, on_epoch: EpochCallback | None = None) -> TrainerState:
        """Train to the last epoch and return the state.

        Parameters
        ----------
        on_epoch
            Called after each epoch with its number, from 0, and the newest row of the history: by name, (K,).

        Raises
        ------
        TrainingDivergedError
            If a member's loss is no longer finite; `state` is that of the epoch before.
        """
        saved_at = time.monotonic()
        try:
            with ExitStack() as limits:
                if self._device.type == "cpu":
                    limits.enter_context(one_thread_each())
                while self._state.epoch < self.settings.epochs and not self._state.is_stopped.all():
                    self._state = self._next_state()
                    if on_epoch is not None:
                        on_epoch(self._state.epoch - 1, {name: rows[-1] for name, rows in self._state.history.items()})
                    if time.monotonic() - saved_at >= _SECONDS_BETWEEN_CHECKPOINTS:
                        self._save()
                        saved_at = time.monotonic()
        except BaseException:  # also after an interrupt, keep what was trained
            self._save()
            raise
        if self._checkpoint is not None:
            self._checkpoint.unlink(missing_ok=True)
        return self.state

    def _save(self) -> None:
        if self._checkpoint is not None and self._state.epoch:
            self.state.save(self._checkpoint)

    def _engine(self, part: slice) -> Engine:
        join = None if self.data.join is None else self.data.join.to(self._device)
        state = (self._parameters[part], self._mean[part], self._square[part])
        stepper = Stepper(state, self._layout, self.settings, join)
        return Engine(stepper, BatchSource(self.data, self.settings, part, self._device))

    def _next_state(self) -> TrainerState:
        state, epoch = self._state, self._state.epoch
        is_training = ~state.is_stopped
        row = {name: np.full(self.settings.n_members, np.nan) for name in _TRAINING_METRICS}
        n_steps = state.n_steps.clone()
        for part, totals in zip(self._parts, self._run_parts(epoch, is_training), strict=True):
            if totals is not None:
                metrics = self._metrics(totals, is_training[part].numpy())
                for name in _TRAINING_METRICS:
                    row[name][part] = metrics[name]
                n_steps[part] += totals["n_steps"].long().cpu()
        self._check_finite(row, is_training, epoch)
        if self.data.validation is not None:
            found = self._judge.evaluate(self._parameters, self._layout)
            row |= {f"validation_{name}": np.where(is_training, found[name], np.nan) for name in VALIDATION_METRICS}
        parameters = self._parameters.clone()
        return replace(
            state,
            epoch=epoch + 1,
            settings=self.settings.to_dict(),
            parameters=parameters,
            mean=self._mean.clone(),
            square=self._square.clone(),
            n_steps=n_steps,
            **self._best(row, parameters),
            history={
                name: torch.cat((state.history[name], torch.tensor(values)[None])) for name, values in row.items()
            },
        )

    def _run_parts(self, epoch: int, is_training: Tensor) -> list[dict[str, Tensor] | None]:
        def run(index: int) -> dict[str, Tensor] | None:
            part = self._parts[index]
            own = None if gains is None else gains[:, part]
            return self._engines[index].run_epoch(epoch, self._state.n_steps[part], is_training[part], own)

        gains = self._gains(epoch)
        n_workers = min(self._n_threads, _MOST_THREADS, len(self._parts))
        if n_workers == 1 or self._device.type != "cpu":
            return [run(index) for index in range(len(self._parts))]
        with ThreadPoolExecutor(n_workers, initializer=torch.set_num_threads, initargs=(1,)) as pool:
            return list(pool.map(run, range(len(self._parts))))

    def _gains(self, epoch: int) -> Tensor | None:
        """Shares of their weights with which both terms count in an epoch, of shape (2, K); None for all of them."""
        if not self.settings.uses_placebo and not self.settings.least_explained:
            return None
        learned = self._learned_gain()
        if not self.settings.uses_placebo:
            return torch.stack((learned, learned))
        excess = torch.zeros_like(learned)
        if epoch >= _EPOCHS_WITHOUT_EXCESS:
            excess = excess_gain(self._judge.excess(self._parameters, self._layout, epoch))
        return torch.stack((learned * excess, learned))

    def _learned_gain(self) -> Tensor:
        """Shares of their weights with which members' terms count, given what was learned so far, of shape (K,)."""
        losses, n_members = self._state.history["bce"], self.settings.n_members
        if not self.settings.least_explained:
            return torch.ones(n_members, device=self._device)
        if not len(losses):
            return torch.zeros(n_members, device=self._device)
        pairs = zip(self.data.y.numpy(), self.data.weights.numpy(), strict=True)
        entropy = np.array([label_entropy(y, weight) for y, weight in pairs])[list(self.settings.of_member("table"))]
        with np.errstate(invalid="ignore", divide="ignore"):  # of labels that are all the same
            gain = term_gain(losses[-1].numpy(), entropy, self.settings.least_explained)
        return torch.from_numpy(np.nan_to_num(gain)).float().to(self._device)  # NaN: the member has stopped

    def _metrics(self, totals: dict[str, Tensor], is_training: np.ndarray) -> dict[str, np.ndarray]:
        """An epoch's history from its sums: means over rows, batches and pairs."""
        sums = {name: values.double().cpu().numpy() for name, values in totals.items()}
        with np.errstate(invalid="ignore", divide="ignore"):
            metrics = {
                "bce": sums["bce"] / sums["weight"],
                "equalized_odds": sums["equalized_odds"] / sums["n_steps"],
                "cec": sums["cec"] / sums["pair_weight"],
                "equalized_odds_left_out": sums["n_left_out"],
                "unmatched": sums["n_unmatched"],
            }
        return {name: np.where(is_training, values, np.nan) for name, values in metrics.items()}

    def _check_finite(self, row: dict[str, np.ndarray], is_training: Tensor, epoch: int) -> None:
        finite = self._parameters.isfinite().all(1).cpu() & torch.from_numpy(np.isfinite(row["bce"]))
        bad = (~finite & is_training).nonzero().flatten().tolist()
        if bad:
            member = bad[0]
            raise TrainingDivergedError(
                f"Training of member {member} diverged in epoch {epoch} (bce {row['bce'][member]}); "
                f"{len(bad)} of {self.settings.n_members} members did. Lower `learning_rate`, now "
                f"{self.settings.of_member('learning_rate')[member]}, or check the inputs' scale."
            )

    def _best(self, row: dict[str, np.ndarray], parameters: Tensor) -> dict[str, Any]:
        """What early stopping changes in the state."""
        state, patience = self._state, self.settings.patience
        if patience is None:
            return {}
        metric = torch.from_numpy(row[f"validation_{self.settings.monitor}"])
        value = -metric if self.settings.monitor == "auc" else metric
        is_better = value < state.best_value - self.settings.min_improvement  # False for NaN
        best_epoch = torch.where(is_better, state.epoch, state.best_epoch)
        # Before any metric could be computed, patience counts epochs only.
        waited = state.epoch - best_epoch.clamp_min(-1)
        return {
            "is_stopped": state.is_stopped | (waited >= patience + (best_epoch < 0).long()),
            "best_parameters": torch.where(
                is_better.unsqueeze(1).to(self._device), parameters, state.best_parameters.to(self._device)
            ),
            "best_value": torch.where(is_better, value, state.best_value),
            "best_epoch": best_epoch,
        }


class Engine:
    """Epochs of the members whose parameters the stepper holds.

    Parameters
    ----------
    stepper
        Runs the steps.
    source
        Makes the batches.
    """

    def __init__(self, stepper: Stepper, source: BatchSource) -> None:
        self._stepper, self._source = stepper, source
        self._replay: _Replay | None = None
        self._may_capture = stepper.gradient.is_cuda

    @torch.no_grad()
    def run_epoch(
        self, epoch: int, n_done: Tensor, is_training: Tensor, gains: Tensor | None = None
    ) -> dict[str, Tensor] | None:
        """Run every step of an epoch; return the sums for its history, None if no member moves."""
        blocks = self._source.epoch(epoch, n_done, is_training, gains)
        parts = [block.totals(*self._run_block(block)) for block in blocks]
        if not parts:
            return None
        return {name: torch.stack([part[name] for part in parts]).sum(0) for name in parts[0]}

    def _run_block(self, block: Block) -> tuple[Tensor, Tensor | None]:
        if self._may_capture and self._replay is None:
            try:
                self._replay = _Replay(self._stepper, block)
            except RuntimeError:  # the driver or the allocator cannot capture graphs: steps run one by one
                self._may_capture = False
        if self._replay is not None:
            return self._replay.run(block)
        logits, scores = zip(*map(self._stepper.step, block.batches(), block.has_pairs), strict=True)
        if block.pair_weight is None:
            return torch.stack(logits), None
        none = torch.zeros_like(block.pair_weight[0])  # of weight 0, as is all of a step without pairs
        return torch.stack(logits), torch.stack([none if score is None else score for score in scores])


class _Replay:
    """Steps captured as CUDA graphs, with and without the CEC term; a counter on the device chooses their batch."""

    def __init__(self, stepper: Stepper, block: Block) -> None:
        self._stepper = stepper
        self._inputs = {name: value.contiguous().clone() for name, value in block.fields.items()}
        self._index = torch.zeros(1, dtype=torch.int64, device=stepper.gradient.device)
        self._logits = torch.zeros_like(block.row_weight)
        self._scores = None if block.pair_weight is None else torch.zeros_like(block.pair_weight)
        before = [tensor.clone() for tensor in stepper.state]
        try:
            stream = torch.cuda.Stream(stepper.gradient.device)
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for has_pairs in set(block.has_pairs):
                    for _ in range(2):  # libraries set themselves up on first use, which a capture may not contain
                        self._index.zero_()
                        self._step(has_pairs)
            torch.cuda.current_stream().wait_stream(stream)
            self._graphs = {has_pairs: self._capture(has_pairs) for has_pairs in set(block.has_pairs)}
        finally:
            for tensor, value in zip(stepper.state, before, strict=True):
                tensor.copy_(value)

    def run(self, block: Block) -> tuple[Tensor, Tensor | None]:
        """Run the block's steps."""
        n_steps = len(block.has_pairs)
        for name, value in block.fields.items():
            self._inputs[name][:n_steps].copy_(value)
        self._index.zero_()
        for has_pairs in block.has_pairs:
            self._graphs[has_pairs].replay()
        scores = None if self._scores is None else self._scores[:n_steps].clone()
        return self._logits[:n_steps].clone(), scores

    def _capture(self, has_pairs: bool) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        self._index.zero_()
        with torch.cuda.graph(graph):
            self._step(has_pairs)
        return graph

    def _step(self, has_pairs: bool) -> None:
        chosen = {name: value.index_select(0, self._index).squeeze(0) for name, value in self._inputs.items()}
        logits, scores = self._stepper.step(chosen, has_pairs)
        self._logits.index_copy_(0, self._index, logits.unsqueeze(0))
        if self._scores is not None and scores is not None:
            self._scores.index_copy_(0, self._index, scores.unsqueeze(0))
        self._index.add_(1)


def train(
    data: TrainingData,
    settings: TrainingSettings,
    *,
    state: TrainerState | None = None,
    on_epoch: EpochCallback | None = None,
) -> TrainerState:
    """Train a stack and return its state: see `Trainer`, which also keeps the state of an interrupted run.

    Examples
    --------
    >>> import torch
    >>> from evenhand.training import TrainingData, TrainingSettings
    >>> data = TrainingData(
    ...     X=torch.randn(1, 6, 3), y=torch.tensor([[0, 0, 0, 1, 1, 1]]), group=torch.tensor([[0, 1, 1, 0, 1, 1]]),
    ...     match=torch.tensor([[[1], [0], [0], [4], [3], [3]]]), baselines=torch.zeros(1, 2, 2, 3))
    >>> state = train(data, TrainingSettings(seed=(0, 1), hidden=(4,), epochs=2, device="cpu"))
    >>> len(state.network()), state.history["cec"].shape
    (2, torch.Size([2, 2]))
    """
    return Trainer(data, settings, state).run(on_epoch)


def _initial_state(layout: Layout, data: TrainingData, settings: TrainingSettings) -> TrainerState:
    n_members = settings.n_members
    parameters = layout.initial(settings.of_member("seed"))
    names: tuple[str, ...] = _TRAINING_METRICS
    if data.validation is not None:
        names += tuple(f"validation_{name}" for name in VALIDATION_METRICS)
    return TrainerState(
        epoch=0,
        widths=layout.widths,
        settings=settings.to_dict(),
        parameters=parameters,
        mean=torch.zeros_like(parameters),
        square=torch.zeros_like(parameters),
        n_steps=torch.zeros(n_members, dtype=torch.int64),
        is_stopped=torch.zeros(n_members, dtype=torch.bool),
        best_parameters=parameters.clone(),
        best_value=torch.full((n_members,), float("inf"), dtype=torch.float64),
        best_epoch=torch.full((n_members,), -1, dtype=torch.int64),
        history={name: torch.empty(0, n_members, dtype=torch.float64) for name in names},
    )


def _check(data: TrainingData, settings: TrainingSettings) -> None:
    highest = max(settings.of_member("table"))
    if highest >= data.n_tables:
        raise InvalidInputError(f"`table` must be below {data.n_tables}, the number of tables, got {highest}.")
    if settings.patience is not None and data.validation is None:
        raise InvalidInputError("`patience` needs validation data; pass `validation` or leave `patience` None.")
    if settings.uses_equalized_odds and data.n_groups < 2:
        raise InvalidInputError(f"`equalized_odds_weight` needs at least two groups, got {data.n_groups}; set it to 0.")
    if settings.uses_cec and data.match.shape[2] < 1:
        raise InvalidInputError("`cec_weight` needs matches, `match` has none for anyone; set it to 0.")
    people = {"the training data": data, "`validation`": data.validation}
    lacking = [name for name, part in people.items() if part is not None and part.triples is None]
    if settings.uses_placebo and lacking:
        raise InvalidInputError(
            f"objective={settings.objective!r} needs placebo triples, which {' and '.join(lacking)} lack; "
            "make `triples` with `training_triples`."
        )


def device_of(name: str) -> torch.device:
    """The device of that name; "auto" for CUDA if available."""
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise InvalidInputError(f'`device` must be "auto", "cpu" or "cuda", got {name!r}.') from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise InvalidInputError(f"`device` is {name!r}, but this machine has no CUDA device that torch can use.")
    return device
