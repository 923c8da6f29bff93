"""Our trainer on all folds and all lambda settings at once: the stack of the search, over two weights."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

from torch import nn

from evenhand.inputs.fingerprints import fingerprint_plain
from evenhand.research.reproduction.evaluation import evaluate_network
from evenhand.research.reproduction.folds import Prepared
from evenhand.research.reproduction.settings import GRID_WEIGHTS, ProtocolSettings, versions
from evenhand.research.reproduction.store import ResultRow, ResultStore
from evenhand.training import Trainer, TrainingData
from evenhand.training.folds import stack_tables

__all__ = ["Member", "ablation_weights", "grid_weights", "run_stacks", "train_members"]

Member: TypeAlias = tuple[int, float, float]
"""Fold, cec_weight and equalized_odds_weight of one model."""


def grid_weights() -> list[tuple[float, float]]:
    """The 36 pairs (cec_weight, equalized_odds_weight) of the heatmaps."""
    return [(cec, odds) for cec in GRID_WEIGHTS for odds in GRID_WEIGHTS]


def ablation_weights(settings: ProtocolSettings) -> dict[str, tuple[float, float]]:
    """Lambdas of the four variants of the ablation.

    Examples
    --------
    >>> ablation_weights(ProtocolSettings())["pred+cec"]
    (1.0, 0.0)
    """
    cec, odds = settings.cec_weight, settings.equalized_odds_weight
    return {"pred": (0.0, 0.0), "pred+eo": (0.0, odds), "pred+cec": (cec, 0.0), "pred+eo+cec": (cec, odds)}


def train_members(
    data: TrainingData,
    members: Sequence[Member],
    settings: ProtocolSettings,
    device: str = "cpu",
    checkpoint: Path | None = None,
) -> list[nn.Sequential]:
    """Trained networks, one for each member, on the CPU.

    Parameters
    ----------
    data
        Tables of the folds.
    members
        Models to train together.
    settings, device
        How and where.
    checkpoint
        File for an unfinished stack, from which the same stack is resumed.
    """
    training = settings.training(list(members), device)
    stack = Trainer(data, training, checkpoint=checkpoint).run().network()
    return [stack.member(index) for index in range(len(members))]


def run_stacks(
    prepared: Prepared,
    weights: Iterable[tuple[float, float]],
    settings: ProtocolSettings,
    store: ResultStore,
    run: str,
    device: str = "cpu",
    advance: Callable[[str], None] | None = None,
) -> None:
    """Train and evaluate every lambda setting on every fold, except those in the store.

    An unfinished stack is kept next to the store, and the same call resumes it. Models without the CEC term are trained
    in a separate stack, so that the term is not computed for them.
    """
    wanted = [(fold, *pair) for pair in dict.fromkeys(weights) for fold in range(len(prepared.folds))]
    missing = [member for member in wanted if _row(prepared, member, run).key not in store]
    data = stack_tables(prepared.folds) if missing else None
    for has_cec in (False, True):
        members = [member for member in missing if (member[1] > 0) == has_cec]
        if not members:
            continue
        assert data is not None
        started = time.monotonic()
        checkpoint = store.path.with_name(f".stack-{fingerprint_plain([run, members])}.safetensors")
        networks = train_members(data, members, settings, device, checkpoint)
        seconds = (time.monotonic() - started) / len(members)
        for member, network in zip(members, networks, strict=True):
            began = time.monotonic()
            metrics = evaluate_network(prepared.folds[member[0]], network, settings)
            row = _row(prepared, member, run, metrics, seconds + time.monotonic() - began)
            store.append(row)
            if advance is not None:
                advance(f"{row.method} fold {row.fold}: CEC {metrics['cec']:.3f}")


def _row(
    prepared: Prepared,
    member: Member,
    run: str,
    metrics: dict[str, float] | None = None,
    seconds: float = float("nan"),
) -> ResultRow:
    fold, cec_weight, equalized_odds_weight = member
    return ResultRow(
        dataset=prepared.dataset,
        method="unconstrained" if cec_weight == equalized_odds_weight == 0 else "cec",
        fold=fold,
        run=run,
        cec_weight=cec_weight,
        equalized_odds_weight=equalized_odds_weight,
        metrics=metrics or {},
        seconds=seconds,
        versions=versions() if metrics else {},
    )
