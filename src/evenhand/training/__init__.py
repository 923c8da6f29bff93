"""Training: the paper's objective and three others, for one model or hundreds at once."""

import warnings

from evenhand.training.data import TrainingData, ValidationData
from evenhand.training.engine.loop import Trainer, TrainerState, TrainingDivergedError, train
from evenhand.training.losses import (
    balanced_weights,
    bce_loss,
    cec_loss,
    cec_term,
    equalized_odds_loss,
    excess_gain,
    squared_reasoning_gap,
    training_triples,
)
from evenhand.training.network import StackedNetwork
from evenhand.training.settings import PAPER_TRAINING, TrainingSettings

__all__ = [
    "StackedNetwork",
    "Trainer",
    "TrainerState",
    "TrainingData",
    "TrainingDivergedError",
    "TrainingSettings",
    "ValidationData",
    "balanced_weights",
    "bce_loss",
    "cec_loss",
    "cec_term",
    "equalized_odds_loss",
    "excess_gain",
    "squared_reasoning_gap",
    "train",
    "training_triples",
]


def __getattr__(name: str) -> object:
    if name != "PAPER_SETTINGS":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    warnings.warn("`PAPER_SETTINGS` is now `evenhand.PAPER.training`; it goes in the next release.", FutureWarning, 2)
    return dict(list(PAPER_TRAINING.items())[:6])
