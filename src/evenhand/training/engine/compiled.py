"""Blocks of steps in compiled code, if numba is installed and there are enough of them."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.training.data import TrainingData
from evenhand.training.engine.arrays import Steps, Work, new_work
from evenhand.training.engine.minibatches import BatchSource, Block
from evenhand.training.engine.step import Stepper
from evenhand.training.network import Layout
from evenhand.training.settings import TrainingSettings

__all__ = ["CompiledSteps", "is_compiled"]

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
def _kernel() -> Any:  # noqa: ANN401 (a module)
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
