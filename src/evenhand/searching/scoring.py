"""Models scored on a fold's test people: a stack of networks at once, or any model that can be audited."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.models.dispatch import as_audited_model
from evenhand.models.explaining import Explainer
from evenhand.models.gradient import DifferentiableModel
from evenhand.models.protocol import AuditedModel, EncodesTables
from evenhand.searching.effects import column_effects
from evenhand.searching.families.columns import spelled_as
from evenhand.searching.metrics import fold_outcome
from evenhand.searching.people import EvaluationSettings, SearchPeople
from evenhand.searching.procedure import fold_procedure
from evenhand.training.folds import ComparedFold, Fold
from evenhand.training.network import Layout

__all__ = ["score_model", "score_stack", "score_weighted"]

Floats = NDArray[np.float64]

# Inputs of people in memory at once, over all members: bounds memory for any number of members.
_CHUNK_VALUES = {"cpu": 20_000_000, "cuda": 500_000_000}


def score_model(
    model: Any,  # noqa: ANN401 - anything that can be audited
    people: SearchPeople,
    compared: ComparedFold,
    settings: EvaluationSettings,
) -> dict[str, float]:
    """Metrics of a fitted model on a fold's test people.

    Parameters
    ----------
    model
        Anything that `evenhand.audit` takes.
    people, compared
        Everyone, and the fold.
    settings
        Thresholds and the number of segments.
    """
    weights = np.ones((1, len(compared.fold.test)))
    return {
        name: float(values[0]) for name, values in score_weighted(model, people, compared, settings, weights).items()
    }


def score_weighted(
    model: Any,  # noqa: ANN401 - anything that can be audited
    people: SearchPeople,
    compared: ComparedFold,
    settings: EvaluationSettings,
    weights: Floats,
) -> dict[str, Floats]:
    """Metrics of a fitted model under several weightings of a fold's test people, each of shape (n_weightings,).

    Parameters
    ----------
    model, people, compared, settings
        As in `score_model`.
    weights
        Weights of the test people, of shape (n_weightings, n_test).
    """
    train = people.table.iloc[compared.fold.train].reset_index(drop=True)
    audited = as_audited_model(model, table=train)
    test = people.table.iloc[compared.fold.test].reset_index(drop=True)
    return _scored(audited, audited.encode(train), audited.encode(test), people, compared, settings, weights)[0]


def score_stack(
    parameters: Tensor,
    layout: Layout,
    encoder: EncodesTables,
    people: SearchPeople,
    compared: ComparedFold,
    settings: EvaluationSettings,
) -> list[dict[str, float]]:
    """Metrics of networks on one fold's test people, one for each row of `parameters`, (K, P).

    Parameters
    ----------
    parameters, layout
        The networks, on the device that scores them.
    encoder
        The encoding of the fold's people.
    people, compared, settings
        As in `score_model`.
    """
    device, fold = parameters.device, compared.fold
    x_train, x_test = (torch.as_tensor(x, device=device) for x in (fold.x_train, fold.x_test))
    n_rows = len(x_test) + 2 * len(compared.test_pairs) + fold.match_test.size
    size = max(1, _CHUNK_VALUES[device.type] // (n_rows * x_test.shape[1]))
    found: list[dict[str, float]] = []
    for part in parameters.split(size):
        stack = DifferentiableModel(layout.networks(part), "networks", encoder)
        scored = _scored(stack, x_train, x_test, people, compared, settings, np.ones((1, len(fold.test))))
        found += [{name: float(values[0]) for name, values in metrics.items()} for metrics in scored]
    return found


def _scored(
    model: AuditedModel,
    x_train: Tensor,
    x_test: Tensor,
    people: SearchPeople,
    compared: ComparedFold,
    settings: EvaluationSettings,
    weights: Floats,
) -> list[dict[str, Floats]]:
    """Metrics of each model of a stack, or of the only one, under each weighting of the test people."""
    fold = compared.fold
    explainer = Explainer.of(model, x_train, fold.y_train, fold.group_train, settings.n_steps)
    own = explainer.explain(x_test, fold.cells_test)
    columns = [str(column) for column in people.table.columns]
    seen = columns if model.encoder is None else spelled_as(columns, model.encoder.names)
    is_financial = model.is_financial(columns, list(people.financial_features))
    found = fold_procedure(
        explainer,
        own,
        compared,
        x_train,
        x_test,
        torch.as_tensor(is_financial, device=x_test.device),
        decision_threshold=settings.decision_threshold,
        consistency_threshold=settings.consistency_threshold,
        reference_group=people.reference_group,
        features=seen,
        weights=weights,
    )
    train, test = (people.table.iloc[rows] for rows in (fold.train, fold.test))
    for column in settings.effects:
        found |= column_effects(model, train, test, column, weights)
    found |= _absent_inputs(found, [column for column in columns if column not in seen])
    by_model = {name: values.reshape(-1, len(weights)).cpu().numpy() for name, values in found.items()}
    scores = model.probability(own.logit).cpu().numpy().reshape(-1, len(x_test))
    return [
        {**_outcomes(score, people, fold, settings, weights), **{name: values[k] for name, values in by_model.items()}}
        for k, score in enumerate(scores)
    ]


def _absent_inputs(found: Mapping[str, Tensor], absent: Sequence[str]) -> dict[str, Tensor]:
    """Score gaps of 0 through inputs that a model does not have."""
    totals = {name: values for name, values in found.items() if name.startswith("score_gap|") and name.count("|") == 1}
    return {f"{name}|{column}": torch.zeros_like(values) for name, values in totals.items() for column in absent}


def _outcomes(
    score: Floats, people: SearchPeople, fold: Fold, settings: EvaluationSettings, weights: Floats
) -> dict[str, Floats]:
    """Metrics of utility and outcome of one model under each weighting."""
    decision, names = (score >= settings.decision_threshold).astype(np.int64), people.groups.names
    rows = [
        fold_outcome(fold, score, decision, names=names, weight=weight, payoff=settings.payoff) for weight in weights
    ]
    return {name: np.array([row[name] for row in rows]) for name in rows[0]}
