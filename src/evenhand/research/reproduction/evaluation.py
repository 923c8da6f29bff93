"""Metrics of one trained model on one test fold."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from evenhand.arrays import Ints
from evenhand.inputs.encoding import TableEncoder
from evenhand.inputs.splitting import stratified_folds
from evenhand.metrics.cec import assign_regimes, regime_shares
from evenhand.metrics.outcomes import group_outcomes, outcome_metrics
from evenhand.models.explaining import Explainer
from evenhand.models.gradient import DifferentiableModel
from evenhand.models.protocol import AuditedModel
from evenhand.models.scoring import joined, score_pairs
from evenhand.research.methods.method import logits_of
from evenhand.research.reproduction.settings import ProtocolSettings
from evenhand.training.folds import Fold, match_fold

if TYPE_CHECKING:
    from evenhand.datasets import Dataset
    from evenhand.research.reproduction.settings import ProtocolSettings


@dataclass(frozen=True, eq=False)
class Prepared:
    """A dataset's folds.

    Attributes
    ----------
    dataset
        Its name.
    digest
        Changes when any value, label, group or financial feature does.
    folds
        One per test fold.
    """

    dataset: str
    digest: str
    folds: tuple[Fold, ...]


def prepare_folds(data: Dataset, settings: ProtocolSettings) -> Prepared:
    """Split, encode and match a dataset."""
    codes = np.unique(data.group.astype(str), return_inverse=True)[1].astype(np.int64)
    split = stratified_folds(data.y, codes, settings.n_folds, settings.random_state)
    folds = tuple(_prepare(data, codes, train, test, settings) for train, test in split)
    return Prepared(data.name, _digest(data), folds)


def _prepare(data: Dataset, group: Ints, train: Ints, test: Ints, settings: ProtocolSettings) -> Fold:
    encoder = TableEncoder.fit(data.X.iloc[train], settings.encoding)
    F = encoder.as_matched(data.X[list(data.financial_features)])
    return match_fold(encoder.transform(data.X), F, data.y, group, train, test, encoder.join_matrix)


def _digest(data: Dataset) -> str:

    content = hashlib.sha256(repr((data.name, list(data.X.columns), list(data.financial_features))).encode())
    content.update(pd.util.hash_pandas_object(data.X, index=False).to_numpy().tobytes())
    content.update(data.y.tobytes())
    content.update("\0".join(data.group.astype(str)).encode())
    return content.hexdigest()[:16]


@dataclass(frozen=True, eq=False)
class Decisions:
    """The decisions of a method.

    Attributes
    ----------
    score
        Of the test people: probabilities, or expected decisions of a randomized rule; only the AUC uses them.
    test, train
        Decisions 0 or 1 for the test and the training people: one decision per person, however often matched.
    """

    score: NDArray[np.float64]
    test: Ints
    train: Ints


def evaluate_network(fold: Fold, network: nn.Module, settings: ProtocolSettings) -> dict[str, float]:
    """Metrics of a network that takes the fold's encoded people and decides at probability 0.5.

    Returns
    -------
    Each of `METRICS`, and counts of people and of pairs without a match.
    """
    test, train = logits_of(network, fold.x_test), logits_of(network, fold.x_train)
    decisions = Decisions(test, (test >= 0).astype(np.int64), (train >= 0).astype(np.int64))
    return evaluate(fold, DifferentiableModel(network, ""), fold.x_train, fold.x_test, decisions, settings)


def evaluate(
    fold: Fold,
    model: AuditedModel,
    x_train: NDArray[np.float32],
    x_test: NDArray[np.float32],
    decisions: Decisions,
    settings: ProtocolSettings,
) -> dict[str, float]:
    """Metrics of a method from its attributed score and its decisions.

    Parameters
    ----------
    fold
        Labels, groups, matches.
    model
        The score that is attributed.
    x_train, x_test
        People as input of that score: the fold's, unless the method repairs them. Baselines are means of `x_train`.
    decisions
        Decisions of the method, from any rule; they determine F1, the gaps, the flip rate and the regimes.
    settings
        How to integrate, and the threshold of the regimes.
    """
    y, group = fold.y_test, fold.group_test
    outcomes = group_outcomes(y, decisions.test, decisions.score, group, tuple(str(g) for g in range(fold.n_groups)))
    metrics = {
        name: metric.value for name, metric in outcome_metrics(y, decisions.test, decisions.score, outcomes).items()
    }

    person, match = fold.matched_test
    trained = (torch.from_numpy(x_train), fold.y_train, fold.group_train)
    explainer = Explainer.of(model, *trained, settings.n_steps, settings.integration)
    explainer = replace(explainer, join=torch.as_tensor(fold.join, dtype=torch.float64))
    own = explainer.explain(torch.from_numpy(x_test), fold.cells_test)
    matches = explainer.see(trained[0], match, fold.cells_test[person])
    cec, reasoning_gap, input_gap = (
        joined(
            (part.cec, part.reasoning_gap, part.input_gap) for _, part in score_pairs(explainer, own, person, matches)
        )
        or [torch.zeros(0, dtype=torch.float64)] * 3
    )
    decided, decided_match = decisions.test[person], decisions.train[match]
    shares = regime_shares(assign_regimes(decided, decided_match, cec.numpy(), settings.consistency_threshold))

    def mean(values: Tensor) -> float:
        return float(values.mean()) if len(values) else float("nan")

    return {
        "auc": metrics["auc"],
        "f1": metrics["f1"],
        "eo": metrics["eo_gap"],
        "sp": metrics["sp_gap"],
        "cec": mean(cec),
        "pfr": shares["C"] + shares["D"],
        **{f"regime_{letter.lower()}": share for letter, share in shares.items()},
        "positive_rate": metrics["positive_rate"],
        "reasoning_gap": mean(reasoning_gap),
        "input_gap": mean(input_gap),
        "n_train": float(len(fold.y_train)),
        "n_test": float(len(y)),
        "n_unmatched": float((fold.match_test < 0).sum()),
    }
