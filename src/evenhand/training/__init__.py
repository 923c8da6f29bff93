"""Training: the paper's objective, for one model or hundreds at once."""

from evenhand.training.data import TrainingData, ValidationData
from evenhand.training.loop import Trainer, TrainingDivergedError, train
from evenhand.training.losses import bce_loss, cec_loss, cec_term, equalized_odds_loss
from evenhand.training.network import StackedNetwork
from evenhand.training.settings import TrainingSettings
from evenhand.training.state import TrainerState

__all__ = [
    "StackedNetwork",
    "Trainer",
    "TrainerState",
    "TrainingData",
    "TrainingDivergedError",
    "TrainingSettings",
    "ValidationData",
    "bce_loss",
    "cec_loss",
    "cec_term",
    "equalized_odds_loss",
    "train",
]
