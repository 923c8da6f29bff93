"""Training: the paper's objective and three others, for one model or hundreds at once."""

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
from evenhand.training.settings import PAPER_SETTINGS, TrainingSettings

__all__ = [
    "PAPER_SETTINGS",
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
