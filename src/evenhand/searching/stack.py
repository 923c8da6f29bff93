"""Networks of many candidates on all folds, trained and scored as one stack."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from evenhand.attribution import Attribution
from evenhand.attribution.feed_forward import RELU, FeedForward
from evenhand.attribution.gradients import path_gradients
from evenhand.searching.figures import Explains, Sight, outcome_of, procedure_of
from evenhand.searching.folds import ComparedFold
from evenhand.training import StackedNetwork, Trainer, TrainerState, TrainingData, TrainingSettings
from evenhand.training.network import Layout

__all__ = ["score_stack", "train_stack"]

_SECONDS_BETWEEN_CHECKPOINTS = 20.0

# Hidden values held at once while people are explained: bounds memory whatever the number of members.
_CHUNK_VALUES = {"cpu": 30_000_000, "cuda": 500_000_000}


def train_stack(
    data: TrainingData,
    settings: TrainingSettings,
    snapshots: Iterable[int] = (),
    *,
    checkpoint: Path | None = None,
    on_epoch: Callable[[int], None] | None = None,
) -> dict[int, StackedNetwork]:
    """Trained stacks by number of epochs: after each of `snapshots`, and after the last.

    Parameters
    ----------
    data, settings
        What to train on, and how.
    snapshots
        Numbers of epochs after which the stack is kept as well.
    checkpoint
        File in which an unfinished stack is kept, and from which the same stack goes on; not with snapshots.
    on_epoch
        Called after each epoch with its number.
    """
    state = TrainerState.load(checkpoint) if checkpoint is not None and checkpoint.is_file() else None
    trainer = Trainer(data, settings, state)
    wanted, kept = set(snapshots), {}
    saved_at = time.monotonic()

    def after_epoch(epoch: int, figures: dict[str, Tensor]) -> None:
        nonlocal saved_at
        if trainer.state.epoch in wanted:
            kept[trainer.state.epoch] = trainer.state.network()
        if checkpoint is not None and time.monotonic() - saved_at >= _SECONDS_BETWEEN_CHECKPOINTS:
            trainer.state.save(checkpoint)
            saved_at = time.monotonic()
        if on_epoch is not None:
            on_epoch(epoch)

    kept[settings.epochs] = trainer.run(after_epoch).network()
    if checkpoint is not None:
        checkpoint.unlink(missing_ok=True)
    return kept


def score_stack(
    parameters: Tensor,
    layout: Layout,
    compared: ComparedFold,
    sight: Sight,
    *,
    n_steps: int,
    decision_threshold: float,
    consistency_threshold: float,
) -> list[dict[str, float]]:
    """Figures of networks on one fold's test people, one for each row of `parameters`, (K, P).

    Parameters
    ----------
    parameters, layout
        The networks, on the device where they are to be asked.
    compared, sight
        The fold, and its people as the networks see them, on the same device.
    n_steps
        Segments of a path.
    decision_threshold, consistency_threshold
        Probability from which a decision is favourable; CEC score above which reasoning counts as different.
    """
    n_rows = len(sight.x_test) + 4 * len(compared.test_pairs) + compared.fold.match_test.size
    per_member = n_rows * (n_steps + 1) * max(layout.widths)
    size = max(1, _CHUNK_VALUES[parameters.device.type] // per_member)
    found: list[dict[str, float]] = []
    for part in parameters.split(size):
        weights, biases = layout.views(part)
        net = FeedForward(weights, biases, (RELU,) * (len(weights) - 1))
        with torch.no_grad():
            found += _scored(net, compared, sight, n_steps, decision_threshold, consistency_threshold)
    return found


def _scored(
    net: FeedForward,
    compared: ComparedFold,
    sight: Sight,
    n_steps: int,
    decision_threshold: float,
    consistency_threshold: float,
) -> list[dict[str, float]]:
    cut = math.log(decision_threshold / (1 - decision_threshold))
    logits = net(sight.x_test.expand(len(net.weights[0]), -1, -1)).double().cpu().numpy()
    model = Explains(partial(_explain, net, n_steps), _take, lambda logit: logit >= cut)
    procedure = procedure_of(compared, sight, model, consistency_threshold)
    by_figure = {name: values.double().cpu().tolist() for name, values in procedure.items()}
    return [
        {
            **outcome_of(compared.fold, logit, (logit >= cut).astype(np.int64)),
            **{name: values[k] for name, values in by_figure.items()},
        }
        for k, logit in enumerate(logits)
    ]


def _explain(net: FeedForward, n_steps: int, x: Tensor, baseline: Tensor) -> Attribution:
    """Attributions of a stack: gradients of shape (K, n, d), and the offsets that all share, (n, d)."""
    n_members = len(net.weights[0])
    ends, starts = (rows.expand(n_members, -1, -1) for rows in (x, baseline))
    gradients = path_gradients(net, ends, starts, n_steps, "segments")
    return Attribution(gradients, x - baseline, net(ends), net.weights[0].new_zeros(n_members, len(x)), "segments")


def _take(found: Attribution, index: Tensor) -> Attribution:
    gradients, logit, start = found.gradients[:, index], found.logit[:, index], found.baseline_logit[:, index]
    return Attribution(gradients, found.offset[index], logit, start, found.method)
