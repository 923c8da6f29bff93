"""Runs epochs of (a part of) a stack: step by step or compiled on the CPU, one captured graph per step on CUDA."""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from importlib import import_module
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.training.data import TrainingData
from evenhand.training.engine.minibatches import BatchSource, Block, Gains, TermTotals, batch_of
from evenhand.training.engine.step import Stepper
from evenhand.training.network import Layout
from evenhand.training.settings import TrainingSettings

# Arrays of `Work.layers`.
VALUES, ON, SLOPES, CARRIED, SCALED, OF_SCALED, OF_VALUES, N_LAYER_ARRAYS = range(8)


class Steps(NamedTuple):
    """S steps of K members: the contents of `training.engine.step.Batch`, with people by row number.

    Attributes
    ----------
    inputs
        All tables' people and baselines, of shape (N, d).
    person, partner
        Rows of `inputs`, of shapes (S, K, m) and (S, K, M, m).
    baseline
        Row of each member's first baseline, of shape (K,).
    cell
        (label, group) cell of each person, of shape (S, K, m).
    y, weight
        Of shape (S, K, m, 1).
    kept
        Dropout factors of a step's layers, of shape (K, S, m * sum(h)); no columns for no dropout.
    rates
        Of shape (S, 4, K, 1).
    cell_shares, odds_form
        Of shape (S, K, m, C); C = 0 to leave the term out.
    pair_weight
        Of shape (S, K, M, m).
    has_pairs
        Whether the CEC term is part of a step, of shape (S,).
    join
        Of shape (d, n_features); no rows for none.
    """

    inputs: NDArray[Any]
    person: NDArray[Any]
    partner: NDArray[Any]
    baseline: NDArray[Any]
    cell: NDArray[Any]
    y: NDArray[Any]
    weight: NDArray[Any]
    kept: NDArray[Any]
    rates: NDArray[Any]
    cell_shares: NDArray[Any]
    odds_form: NDArray[Any]
    pair_weight: NDArray[Any]
    has_pairs: NDArray[Any]
    join: NDArray[Any]


class Work(NamedTuple):
    """Scratch of one member for R people and partners and C baselines, which are the last rows.

    Attributes
    ----------
    layers
        u, relu(u), S, e, g and the derivatives in g, and then e, and in u, of shape (7, (R + C) * sum(h)).
    people
        relu(u) of the batch with dropout and the derivative in u, of shape (2, m * sum(h)).
    inputs
        Rows, their attributions, and the derivative in path-averaged gradients, of shape (3, R + C, d).
    features
        Unit vectors and the derivative in attributions, of shape (2, R, n_features).
    lengths, cell
        Of the rows, of shape (R,).
    top
        Weights below the top layer, transposed, and their gradient, of shape (2, h, n_in).
    switching, n_switching
        Units of the top layer that switch on each path, of shape (R + C, h + 3), and their number; for baselines, all.
    amounts
        Of each of them: change of S and of g, derivatives in g and in u; of shape (4, R + C, h + 3).
    of_start
        Derivative in the baselines' u of the top layer before the division by its size, of shape (C, h).
    below
        Derivative in the relu(u) below a layer, flat.
    product
        As large as the largest weights.
    gradient
        Of shape (P,).
    """

    layers: NDArray[Any]
    people: NDArray[Any]
    inputs: NDArray[Any]
    features: NDArray[Any]
    lengths: NDArray[Any]
    cell: NDArray[Any]
    top: NDArray[Any]
    switching: NDArray[Any]
    n_switching: NDArray[Any]
    amounts: NDArray[Any]
    of_start: NDArray[Any]
    below: NDArray[Any]
    product: NDArray[Any]
    gradient: NDArray[Any]


def new_work(widths: NDArray[Any], steps: Steps, n_cells: int) -> Work:
    """Scratch for steps of the same shape as `steps`."""
    n_people, n_partners = steps.person.shape[2], steps.partner.shape[2]
    n_ends = (1 + n_partners) * n_people
    n_rows, n_units, n_inputs = n_ends + n_cells, int(widths[1:-1].sum()), int(widths[0])
    n_features = steps.join.shape[1] if len(steps.join) else n_inputs
    n_in, n_top = int(widths[-3]), int(widths[-2])
    kind = torch.from_numpy(steps.inputs).dtype

    def array(*shape: int) -> NDArray[Any]:
        # torch aligns memory to the width of a vector; numpy does not, and every access would touch two lines.
        return torch.zeros(shape, dtype=kind).numpy()

    return Work(
        layers=array(N_LAYER_ARRAYS, n_rows * n_units),
        people=array(2, n_people * n_units),
        inputs=array(3, n_rows, n_inputs),
        features=array(2, n_ends, n_features),
        lengths=array(n_ends),
        cell=np.zeros(n_ends, np.int64),
        top=array(2, n_top, n_in),
        switching=np.zeros((n_rows, n_top + 3), np.int64),
        n_switching=np.zeros(n_rows, np.int64),
        amounts=array(4, n_rows, n_top + 3),
        of_start=array(n_cells, n_top),
        below=array(n_rows * int(widths[:-1].max())),
        product=array(int((widths[:-1] * widths[1:]).max())),
        gradient=array(int(((widths[:-1] + 1) * widths[1:]).sum())),
    )


# Steps of an epoch, over all members, at which thirty epochs save more time than loading compiled code from disk takes.
# The number of epochs itself does not count: a training that continues must use the same arithmetic.
_FEWEST_STEPS = 50


def is_compiled(data: TrainingData, settings: TrainingSettings, device: torch.device) -> bool:
    """Whether `CompiledSteps` runs a training: on the CPU, with one segment, for large trainings.

    Compiled code and torch differ in rounding only. Torch runs the reasoning gap, several steps along a path, and
    midpoints.
    """
    uses_cec = any(settings.of_member("cec_weight"))
    is_written = not settings.uses_reasoning and settings.method == "segments" and settings.n_steps == 1
    if device.type != "cpu" or (uses_cec and not is_written):
        return False
    n_rows = data.n_rows[torch.tensor(settings.of_member("table"))]
    return int((-(-n_rows // settings.batch_size)).sum()) >= _FEWEST_STEPS and _kernel() is not None


@cache
def _kernel() -> Any:
    """The compiled steps; None without numba, or with one that this numpy is too new for."""
    try:
        return import_module("evenhand.training.engine.kernel")
    except ImportError:
        return None


class CompiledSteps:
    """Runs the steps of a stack, whose parameters and moments it changes in place.

    Parameters
    ----------
    stepper
        Has parameters, moments and objective.
    layout
        Of the parameters.
    source
        Makes the batches, with people by number of their row.
    """

    def __init__(self, stepper: Stepper, layout: Layout, source: BatchSource) -> None:
        self._take_steps = _kernel().take_steps
        self._widths = np.array(layout.widths, dtype=np.int64)
        self._parameters = stepper.parameters.numpy()
        self._mean, self._square = stepper.adam.mean.numpy(), stepper.adam.square.numpy()
        self._inputs, self._baselines, self._n_cells = source.inputs, source.first_baselines, source.n_cells
        join = stepper.objective.join
        self._join = torch.empty(0, 0) if join is None else join
        self._work: Work | None = None

    def run(self, block: Block) -> tuple[Tensor, Tensor | None]:
        """Run the block's steps; return logits (S, K, m) and squared CEC scores (S, K, M, m) before each."""
        steps = self._steps(block)
        if self._work is None:
            self._work = new_work(self._widths, steps, self._n_cells)
        logits, scores = torch.zeros(steps.person.shape), torch.zeros(steps.pair_weight.shape)
        state = self._parameters, self._mean, self._square
        self._take_steps(self._widths, *state, steps, self._work, logits.numpy(), scores.numpy())
        return logits, None if block.pair_weight is None else scores

    def _steps(self, block: Block) -> Steps:
        n_steps, n_members, size = block.row_weight.shape

        def field(name: str, *without: int, kind: torch.dtype = torch.float32) -> NDArray[Any]:
            value = block.fields.get(name)
            return (torch.zeros(without, dtype=kind) if value is None else value.contiguous()).numpy()

        return Steps(
            inputs=self._inputs.numpy(),
            person=field("person"),
            partner=field("partner", n_steps, n_members, 0, size, kind=torch.int64),
            baseline=self._baselines.numpy(),
            cell=field("cell", n_steps, n_members, size, kind=torch.int64),
            y=field("y"),
            weight=field("weight"),
            kept=field("kept", n_members, n_steps, 0),
            rates=field("rates"),
            cell_shares=field("cell_shares", n_steps, n_members, size, 0),
            odds_form=field("odds_form", n_steps, n_members, size, 0),
            pair_weight=field("pair_weight", n_steps, n_members, 0, size),
            has_pairs=np.array(block.has_pairs),
            join=self._join.numpy(),
        )


class Engine:
    """Epochs of the members whose parameters the stepper holds.

    Parameters
    ----------
    stepper
        Runs the steps.
    source
        Makes the batches.
    compiled
        Runs the steps instead, if the source gives people by row; None for the stepper.
    """

    def __init__(self, stepper: Stepper, source: BatchSource, compiled: CompiledSteps | None = None) -> None:
        self._stepper, self._source, self._compiled = stepper, source, compiled
        self._replay: _Replay | None = None
        self._may_capture = stepper.parameters.is_cuda

    @torch.no_grad()
    def run_epoch(
        self, epoch: int, n_done: Tensor, is_training: Tensor, gains: Gains | None = None
    ) -> TermTotals | None:
        """Run every step of an epoch; return the sums for its history, None if no member moves."""
        blocks = self._source.epoch(epoch, n_done, is_training, gains)
        parts = [block.totals(*self._run_block(block)) for block in blocks]
        if not parts:
            return None
        sums = {f.name: torch.stack([getattr(p, f.name) for p in parts]).sum(0) for f in fields(TermTotals)}
        return TermTotals(**sums)

    def _run_block(self, block: Block) -> tuple[Tensor, Tensor | None]:
        if self._compiled is not None:
            return self._compiled.run(block)
        if self._may_capture and self._replay is None:
            self._capture(block)
        if self._replay is not None:
            return self._replay.run(block)
        logits, scores = zip(*(self._stepper.step(batch) for batch in block.batches()), strict=True)
        if block.pair_weight is None:
            return torch.stack(logits), None
        none = torch.zeros_like(block.pair_weight[0])  # of weight 0, as is all of a step without pairs
        return torch.stack(logits), torch.stack([none if score is None else score for score in scores])

    def _capture(self, block: Block) -> None:
        # If the driver or the allocator cannot capture graphs, steps run one by one.
        try:
            self._replay = _Replay(self._stepper, block)
        except RuntimeError:
            self._may_capture = False


class _Replay:
    """Steps captured as CUDA graphs, with and without the CEC term; a counter on the device chooses their batch."""

    def __init__(self, stepper: Stepper, block: Block) -> None:
        self._stepper = stepper
        self._inputs = {name: value.contiguous().clone() for name, value in block.fields.items()}
        self._index = torch.zeros(1, dtype=torch.int64, device=stepper.parameters.device)
        self._logits = torch.zeros_like(block.row_weight)
        self._scores = None if block.pair_weight is None else torch.zeros_like(block.pair_weight)
        state = (stepper.parameters, stepper.adam.mean, stepper.adam.square)
        before = [tensor.clone() for tensor in state]
        try:
            stream = torch.cuda.Stream(stepper.parameters.device)
            stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(stream):
                for has_pairs in set(block.has_pairs):
                    for _ in range(2):  # libraries set themselves up on first use, which a capture may not contain
                        self._index.zero_()
                        self._step(has_pairs)
            torch.cuda.current_stream().wait_stream(stream)
            self._graphs = {has_pairs: self._capture(has_pairs) for has_pairs in set(block.has_pairs)}
        finally:
            for tensor, value in zip(state, before, strict=True):
                tensor.copy_(value)

    def run(self, block: Block) -> tuple[Tensor, Tensor | None]:
        """Run the block's steps."""
        for name, value in block.fields.items():
            self._inputs[name][: block.n_steps].copy_(value)
        self._index.zero_()
        for has_pairs in block.has_pairs:
            self._graphs[has_pairs].replay()
        scores = None if self._scores is None else self._scores[: block.n_steps].clone()
        return self._logits[: block.n_steps].clone(), scores

    def _capture(self, has_pairs: bool) -> torch.cuda.CUDAGraph:
        graph = torch.cuda.CUDAGraph()
        self._index.zero_()
        with torch.cuda.graph(graph):
            self._step(has_pairs)
        return graph

    def _step(self, has_pairs: bool) -> None:
        chosen = {name: value.index_select(0, self._index).squeeze(0) for name, value in self._inputs.items()}
        logits, scores = self._stepper.step(batch_of(chosen, has_pairs))
        self._logits.index_copy_(0, self._index, logits.unsqueeze(0))
        if self._scores is not None and scores is not None:
            self._scores.index_copy_(0, self._index, scores.unsqueeze(0))
        self._index.add_(1)
