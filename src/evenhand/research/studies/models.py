"""Models with known bias: some have never seen a group, others weigh one differently."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.special import expit
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from torch import nn

from evenhand.datasets.synthetic import PlantedBiasModel
from evenhand.research.studies.worlds import People, generator, population

__all__ = [
    "BIASES",
    "DATA_SETS_PER_MODEL",
    "Bias",
    "Kind",
    "audited_people",
    "biased_inputs",
    "biased_model",
    "blind_model",
    "fitting_rows",
    "why_not_explained",
]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Kind: TypeAlias = Literal["logistic", "network", "boosted", "black box"]
Bias: TypeAlias = Literal[
    "none", "half swap", "full swap", "halved", "finances only", "stand-in", "learned network", "learned trees"
]

BIASES: dict[Bias, str] = {
    "none": "no bias; the model has the group as an input and does not use it",
    "half swap": "the weights of the two heaviest and the two lightest other inputs move halfway toward each other",
    "full swap": "these weights are exchanged",
    "halved": "other inputs have half the weight",
    "finances only": "other inputs have no weight",
    "stand-in": "an input that agrees with the group for 65% of people has a weight of 0.3; the group is not an input",
    "learned network": "a network learned from scores of the full swap on people of both groups in equal numbers",
    "learned trees": "boosted trees learned from decisions by the same scores",
}
"""What each bias does to the second group."""

DATA_SETS_PER_MODEL = 20
"""Datasets that are audited with one model; the next ones have a model fitted to different people."""

_PEOPLE_PER_MODEL = 2000
_SHARE_OF_FEW = 0.7  # of a source that is too small to leave people out
_PEOPLE_PER_LESSON = 10_000
_AGREEMENT, _STAND_IN_WEIGHT = 0.65, 0.3


def why_not_explained(kind: str) -> str:
    """Why models of a kind cannot be explained here; empty if they can."""
    needs_kernel = kind in ("boosted", "learned trees") and find_spec("numba") is None
    return "explaining boosted trees needs numba: install evenhand[trees]" if needs_kernel else ""


def fitting_rows(source: str, number: int) -> Ints:
    """The people that model `number` of a source is fitted to, as rows of its population."""
    n = len(population(source))
    n_fitted = min(_PEOPLE_PER_MODEL, int(_SHARE_OF_FEW * n))
    return np.sort(generator("fitting", source, number=number).permutation(n)[:n_fitted])


def audited_people(source: str, number: int, n: int, rng: np.random.Generator) -> People:
    """`n` people to audit model `number` on: not those it was fitted to, if there are enough.

    The model knows no groups, so in a small source it may have seen the people.
    """
    everyone = population(source)
    rows = np.arange(len(everyone))
    others = np.setdiff1d(rows, fitting_rows(source, number))
    return everyone.rows(rng.permutation(others if len(others) >= n else rows)[:n])


@lru_cache(maxsize=64)
def blind_model(source: str, kind: Kind, number: int) -> Any:  # noqa: ANN401 - any model that `eh.audit` takes
    """Model `number` of a kind, fitted to features and labels before groups are drawn.

    Examples
    --------
    >>> type(blind_model("german", "logistic", 0)).__name__
    'LogisticRegression'
    """
    people = population(source).rows(fitting_rows(source, number))
    if kind == "logistic":
        return LogisticRegression(max_iter=1000).fit(people.X, people.y)
    if kind == "boosted":
        return _boosted(people.X, people.y)
    network = _network(people.X, people.y.astype(np.float64), number)
    return network if kind == "network" else _AsFunction(network)


@dataclass(frozen=True)
class _AsFunction:
    """A network that only returns its probabilities."""

    network: nn.Module

    def __call__(self, x: Any) -> Floats:  # noqa: ANN401 - a table or a matrix
        with torch.inference_mode():
            logit = self.network(torch.tensor(np.asarray(x, dtype=np.float32))).squeeze(-1)
        found: Floats = expit(logit.numpy().astype(np.float64))
        return found


def biased_inputs(bias: Bias, X: pd.DataFrame, group: Ints, rng: np.random.Generator) -> pd.DataFrame:
    """The inputs of a biased model: the inputs and the group, or its proxy, as the last column."""
    if bias != "stand-in":
        return X.assign(group=group.astype(np.float32))
    agrees = rng.random(len(X)) < _AGREEMENT
    return X.assign(stand_in=np.where(agrees, group, 1 - group).astype(np.float32))


@lru_cache(maxsize=64)
def biased_model(source: str, bias: Bias, number: int) -> Any:  # noqa: ANN401 - as above
    """Model `number` with a bias, learned or planted in a logistic regression, for inputs of `biased_inputs`."""
    people = population(source)
    fair = blind_model(source, "logistic", number)
    weights, start = fair.coef_[0].astype(np.float64), float(fair.intercept_[0])
    other = np.array([people.X.columns.get_loc(name) for name in people.others])
    unfair = _WEIGHTS.get(bias, _swapped)(weights, other)
    last = _STAND_IN_WEIGHT if bias == "stand-in" else 0.0
    planted = PlantedBiasModel(np.stack([weights, unfair]), np.array([start, start + last]))
    if bias not in ("learned network", "learned trees"):
        return planted
    rng = generator("lesson", source, bias, number=number)
    lesson = people.rows(rng.integers(0, len(people), _PEOPLE_PER_LESSON))
    X = biased_inputs(bias, lesson.X, rng.integers(0, 2, len(lesson)), rng)
    with torch.inference_mode():
        score = torch.sigmoid(planted(torch.tensor(X.to_numpy()))).numpy().astype(np.float64)
    if bias == "learned network":
        return _network(X, score, number)
    return _boosted(X, (rng.random(len(score)) < score).astype(np.int64))


def _swapped(weights: Floats, other: Ints, part: float = 1.0) -> Floats:
    """The two heaviest and the two lightest of the other inputs, moved toward each other's weights."""
    order = other[np.argsort(np.abs(weights[other]))]
    light, heavy = order[:2], order[-2:]
    changed = weights.copy()
    changed[light] += part * (weights[heavy] - weights[light])
    changed[heavy] += part * (weights[light] - weights[heavy])
    return changed


def _scaled(weights: Floats, other: Ints, factor: float) -> Floats:
    changed = weights.copy()
    changed[other] *= factor
    return changed


_WEIGHTS: dict[str, Callable[[Floats, Ints], Floats]] = {
    "none": lambda weights, other: weights,
    "stand-in": lambda weights, other: weights,
    "half swap": lambda weights, other: _swapped(weights, other, 0.5),
    "halved": lambda weights, other: _scaled(weights, other, 0.5),
    "finances only": lambda weights, other: _scaled(weights, other, 0.0),
}


def _boosted(X: pd.DataFrame, y: Ints) -> Any:  # noqa: ANN401 - XGBoost where it is installed
    """Forty trees of at most eight leaves."""
    if find_spec("xgboost") is not None:
        from xgboost import XGBClassifier

        return XGBClassifier(n_estimators=40, max_depth=3, learning_rate=0.2, n_jobs=1).fit(X, y)
    trees = HistGradientBoostingClassifier(max_iter=40, max_leaf_nodes=8, learning_rate=0.2, early_stopping=False)
    return trees.fit(X, y)


def _network(X: pd.DataFrame, target: Floats, seed: int) -> nn.Module:
    """A ReLU network fitted to probabilities, or labels, in a few hundred steps."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        network = nn.Sequential(nn.Linear(X.shape[1], 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1))
        x, y = torch.tensor(X.to_numpy(dtype=np.float32)), torch.tensor(target, dtype=torch.float32)
        optimizer = torch.optim.Adam(network.parameters(), lr=5e-3)
        for _ in range(10):
            for rows in torch.split(torch.randperm(len(x)), 128):
                optimizer.zero_grad()
                loss = nn.functional.binary_cross_entropy_with_logits(network(x[rows]).squeeze(-1), y[rows])
                loss.backward()
                optimizer.step()
    return network.eval().requires_grad_(False)
