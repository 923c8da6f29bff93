"""How a column moves the score of a model: how far, and how often against a required sign."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.exceptions import InvalidInputError
from evenhand.inputs.validation import check_columns, is_number_column
from evenhand.models.gradient import DifferentiableModel
from evenhand.models.protocol import AuditedModel

__all__ = ["EFFECTS", "check_effect_columns", "column_effects"]

Floats: TypeAlias = NDArray[np.float64]

EFFECTS = ("effect", "falls", "rises")
"""How far a column moves the score; the shares of its upward steps at which the score falls, and rises."""

_MOST_PEOPLE, _MOST_VALUES = 200, 9
_ROUNDING = 1e-5  # scores are computed in single precision


def check_effect_columns(columns: tuple[str, ...], table: pd.DataFrame) -> None:
    """Refuse columns whose effect cannot be measured.

    Raises
    ------
    InvalidInputError
        If a column is absent or does not contain numbers.
    """
    for name in check_columns(columns, [str(column) for column in table.columns], "`keep`") if columns else ():
        if not is_number_column(table[name]):
            raise InvalidInputError(f"`keep` asks which way {name!r} moves the score, but it does not contain numbers.")


def column_effects(
    model: AuditedModel, train: pd.DataFrame, test: pd.DataFrame, column: str, weights: Floats
) -> dict[str, Tensor]:
    """Effects of a column by name, each of shape (..., n_weightings).

    Up to 200 people are given up to nine of the column's values, quantiles of the training people, all else equal.
    ``effect[column]`` is the mean change of the score from the lowest to the highest of them.

    Parameters
    ----------
    model
        A model or a stack.
    train, test
        Tables of the training people and of those who are scored.
    column
        The column, which contains numbers.
    weights
        Weightings of the test people, of shape (n_weightings, n_test).
    """
    known = train[column].dropna().to_numpy()
    values = np.unique(np.quantile(known, np.linspace(0.02, 0.98, _MOST_VALUES), method="nearest"))
    rows = np.unique(np.linspace(0, len(test) - 1, _MOST_PEOPLE).astype(np.int64))
    people = test.iloc[rows].reset_index(drop=True)
    scores = [_scores(model, people.assign(**{column: value})) for value in values]
    each = torch.as_tensor(weights[:, rows], device=scores[0].device)
    each = (each / each.sum(1, keepdim=True)).T
    steps = torch.stack(scores).diff(dim=0)
    found = {
        "effect": steps.sum(0),
        "falls": (steps < -_ROUNDING).double().mean(0) if len(steps) else torch.zeros_like(scores[0]),
        "rises": (steps > _ROUNDING).double().mean(0) if len(steps) else torch.zeros_like(scores[0]),
    }
    return {f"{name}[{column}]": found[name] @ each for name in EFFECTS}


def _scores(model: AuditedModel, people: pd.DataFrame) -> Tensor:
    x = model.encode(people)
    # Score a stack the way it is explained: `margin` takes one model.
    is_network = isinstance(model, DifferentiableModel)
    return (model.attribute(x, x, 1, "midpoint").logit if is_network else model.margin(x)).double()
