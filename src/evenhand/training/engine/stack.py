"""Networks of many candidates on all folds, trained as one stack."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from torch import Tensor

from evenhand.training.data import TrainingData
from evenhand.training.engine.loop import Trainer
from evenhand.training.engine.state import TrainerState
from evenhand.training.network import StackedNetwork
from evenhand.training.settings import TrainingSettings

__all__ = ["train_stack"]

_SECONDS_BETWEEN_CHECKPOINTS = 20.0


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

    def after_epoch(epoch: int, metrics: dict[str, Tensor]) -> None:
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
