"""People with a known truth: real or generated features, and groups that depend only on label and finances.

If the group is drawn from the label and the financial features, it is random among people alike in both. No model
that has not seen it can treat it differently, so every gap, excess and difference in an audit has a true value of 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any, Literal, TypeAlias
from zlib import crc32

import numpy as np
import pandas as pd
import torch
from scipy.optimize import brentq
from scipy.special import expit, softmax
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from torch import nn

from evenhand.arrays import Floats, Ints
from evenhand.datasets import load_dataset
from evenhand.datasets.planted import PlantedBiasModel
from evenhand.exceptions import EvenhandError
from evenhand.inputs.encoding import TableEncoder

Draw: TypeAlias = Literal["random", "logistic", "non-linear"]

_GENERATED = 20_000
_RAREST = 0.02  # a rarer value of a category gets no column
_FARTHEST = 3.0  # finances beyond this many deviations are clipped when groups are drawn
_FIVE = np.array([0.35, 0.25, 0.2, 0.12, 0.08])


@dataclass(frozen=True, eq=False)
class People:
    """People as a model's input: standardized numbers, with a column for each value of a category.

    Attributes
    ----------
    X, y
        Inputs of shape (n, d), and labels, 1 for the favorable outcome.
    finances
        The columns on which people are compared.
    """

    X: pd.DataFrame
    y: Ints
    finances: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.y)

    @property
    def others(self) -> list[str]:
        """Inputs that are not finances."""
        return [column for column in self.X.columns if column not in self.finances]

    def rows(self, chosen: Ints) -> People:
        """Some of the people, numbered from 0."""
        return People(self.X.iloc[chosen].reset_index(drop=True), self.y[chosen], self.finances)


@dataclass(frozen=True)
class Groups:
    """How groups are drawn.

    Attributes
    ----------
    draw
        At random; with odds that are log-linear in the finances; or by squares and products of the finances,
        differently for each label.
    share
        Share of the second of two groups.
    n
        Number of groups: two, or five of 35, 25, 20, 12 and 8%.
    """

    draw: Draw = "random"
    share: float = 0.5
    n: Literal[2, 5] = 2

    @property
    def sizes(self) -> str:
        """Shares in percent, largest first: ``"80/20"``."""
        shares = _FIVE if self.n == 5 else np.array([1 - self.share, self.share])
        return "/".join(f"{100 * share:.0f}" for share in shares)


def generator(*words: str, number: int) -> np.random.Generator:
    """Independent random numbers for each text and number, the same on every machine."""
    return np.random.default_rng([*(crc32(word.encode()) for word in words), number])


def draw_groups(groups: Groups, people: People, rng: np.random.Generator) -> Ints:
    """A group for everyone, drawn from label and finances alone; at random, groups have exactly their sizes.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> members = draw_groups(Groups(share=0.2), population("own").rows(np.arange(500)), rng)
    >>> np.bincount(members).tolist()
    [400, 100]
    """
    n = len(people)
    if groups.draw == "random":
        shares = _FIVE if groups.n == 5 else np.array([1 - groups.share, groups.share])
        ends = np.rint(np.cumsum(shares) * n)
        return rng.permutation(np.searchsorted(ends, np.arange(n), side="right").astype(np.int64))
    leaning = _leaning(groups.draw, people)
    if groups.n == 2:
        start = brentq(lambda c: expit(leaning + c).mean() - groups.share, -50, 50)
        return (rng.random(n) < expit(leaning + start)).astype(np.int64)
    chances = softmax(np.log(_FIVE) + leaning[:, None] * np.linspace(-0.5, 0.5, groups.n), axis=1)
    ends = np.cumsum(chances, axis=1)[:, :-1]
    drawn: Ints = (rng.random(n)[:, None] > ends).sum(axis=1)
    return drawn


def _leaning(draw: Draw, people: People) -> Floats:
    """Log-odds of the second group up to a constant, with standard deviation 1."""
    F = people.X[list(people.finances)].to_numpy(dtype=np.float64)
    first, second, third = np.clip(standardized(F)[:, :3], -_FARTHEST, _FARTHEST).T
    if draw == "logistic":
        return standardized(0.8 * first - 0.6 * second + 0.4 * third)
    sign = 2.0 * people.y - 1
    return standardized(0.8 * (np.abs(first) > 1) + 0.6 * first * second + 0.4 * sign * third + 0.3 * sign)


def standardized(values: Floats) -> Floats:
    """Columns with mean 0 and standard deviation 1; a constant column is 0."""
    spread = values.std(axis=0)
    scaled: Floats = (values - values.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    return scaled


def _german() -> People:
    data = load_dataset("german")
    # The column contains the group of the original data: with it, the paper's case would be audited.
    return _encoded(data.X.drop(columns="personal_status"), data.y, data.financial_features)


def _adult() -> People:
    data = load_dataset("adult")
    # Numbers only: people are matched on them directly.
    return _encoded(
        data.X.drop(columns=["fnlwgt", "education"]), data.y, ("capital-gain", "capital-loss", "hours-per-week")
    )


def _hmda() -> People:
    data = load_dataset("hmda")
    rare = ["intro_rate_period", "prepayment_penalty_term"]
    return _encoded(data.X.drop(columns=rare), data.y, data.financial_features)


def _taiwan() -> People:
    data = load_dataset("taiwan")
    return _encoded(data.X, data.y, data.financial_features)


def _own() -> People:
    """Four finances and five other inputs that depend on them; the label depends on both."""
    rng = np.random.default_rng(2024)
    common = rng.standard_normal(_GENERATED)
    F = 0.5 * common[:, None] + rng.standard_normal((_GENERATED, 4))
    F[:, 1] = np.exp(0.7 * F[:, 1])  # as skewed as income
    F[:, 3] = np.rint(F[:, 3])  # many people share a value
    Z = 0.6 * F[:, [0, 0, 2, 2, 3]] + rng.standard_normal((_GENERATED, 5))
    Z[:, 3:] = Z[:, 3:] > 0.5  # two that are yes or no
    logit = F @ [0.6, 0.3, -0.5, 0.3] + Z @ [0.7, -0.6, 0.4, 0.8, -0.7]
    y = (rng.random(_GENERATED) < expit(logit - np.median(logit))).astype(np.int64)
    names = ["finance_1", "finance_2", "finance_3", "finance_4"]
    columns = [*names, "other_1", "other_2", "other_3", "other_4", "other_5"]
    return _encoded(pd.DataFrame(np.column_stack([F, Z]), columns=columns), y, tuple(names))


def _encoded(table: pd.DataFrame, y: Ints, finances: tuple[str, ...]) -> People:
    """The table with categories in separate columns, all columns standardized."""
    encoder = TableEncoder.fit(table)
    X = encoder.transform(table).astype(np.float64)
    is_flag = np.isin(X, (0, 1)).all(axis=0)
    kept = ~is_flag | (np.abs(X.mean(axis=0) - 0.5) <= 0.5 - _RAREST)
    columns = [name for name, is_kept in zip(encoder.encoded_names, kept, strict=True) if is_kept]
    return People(pd.DataFrame(standardized(X[:, kept]).astype(np.float32), columns=columns), y, tuple(finances))


SOURCES: dict[str, Callable[[], People]] = {
    "own": _own,
    "german": _german,
    "adult": _adult,
    "hmda": _hmda,
    "taiwan": _taiwan,
}
"""Where features come from, by name."""


@lru_cache(maxsize=len(SOURCES))
def population(source: str) -> People:
    """Everyone in a source; generated people are the same every time.

    Examples
    --------
    >>> population("german").X.shape[0], population("own").finances
    (1000, ('finance_1', 'finance_2', 'finance_3', 'finance_4'))
    """
    return SOURCES[source]()


@lru_cache(maxsize=len(SOURCES))
def why_absent(source: str) -> str:
    """Why the features of a source cannot be read here; empty if they can."""
    try:
        population(source)
    except EvenhandError as error:
        return str(error)
    return ""


Kind: TypeAlias = Literal["logistic", "network", "boosted", "black box"]
Bias: TypeAlias = Literal[
    "none", "direct", "stand-in 80", "stand-in 65", "learned", "half swap", "halved", "canceling", "one segment"
]

BIASES: dict[Bias, str] = {
    "none": "no bias; the model has the group as an input and does not use it",
    "direct": "0.3 log-odds less",
    "stand-in 80": "the same through an input that agrees with the group for 80% of people; the group is not an input",
    "stand-in 65": "the same through an input that agrees with the group for 65% of people",
    "learned": "boosted trees learned from labels that are 0.75 log-odds against the group, with an 80% stand-in",
    "half swap": "the weights of the two heaviest and the two lightest other inputs move halfway toward each other",
    "halved": "other inputs have half the weight",
    "canceling": "the heaviest other input has twice the weight: a gain for some, a loss for others",
    "one segment": "0.6 log-odds less for people whose first finance is above average, nothing for others",
}
"""What each bias does to the second group."""

DATA_SETS_PER_MODEL = 20
"""Datasets that are audited with one model; the next ones have a model fitted to different people."""

_PEOPLE_PER_MODEL = 2000
_SHARE_OF_FEW = 0.7  # of a source that is too small to leave people out
_PEOPLE_PER_LESSON = 10_000
_GAP = -0.3
_AGREEMENT: dict[Bias, float] = {"stand-in 80": 0.8, "stand-in 65": 0.65, "learned": 0.8}
_LEARNED_GAP, _SEGMENT_GAP = -0.75, -0.6


def why_not_explained(kind: str) -> str:
    """Why models of a kind cannot be explained here; empty if they can."""
    needs_kernel = kind in ("boosted", "learned") and find_spec("numba") is None
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
def blind_model(source: str, kind: Kind, number: int) -> Any:
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

    def __call__(self, x: Any) -> Floats:
        with torch.inference_mode():
            logit = self.network(torch.tensor(np.asarray(x, dtype=np.float32))).squeeze(-1)
        found: Floats = expit(logit.numpy().astype(np.float64))
        return found


def biased_inputs(bias: Bias, X: pd.DataFrame, group: Ints, rng: np.random.Generator) -> pd.DataFrame:
    """The inputs of a biased model: the inputs and the group, or its proxy, as the last column."""
    if bias not in _AGREEMENT:
        return X.assign(group=group.astype(np.float32))
    agrees = rng.random(len(X)) < _AGREEMENT[bias]
    return X.assign(stand_in=np.where(agrees, group, 1 - group).astype(np.float32))


@lru_cache(maxsize=64)
def biased_model(source: str, bias: Bias, number: int) -> Any:
    """Model `number` with a bias, learned or planted in a logistic regression, for inputs of `biased_inputs`."""
    people = population(source)
    fair = blind_model(source, "logistic", number)
    weights, start = fair.coef_[0].astype(np.float64), float(fair.intercept_[0])
    other = np.array([people.X.columns.get_loc(name) for name in people.others])
    unfair = _WEIGHTS[bias](weights, other) if bias in _WEIGHTS else weights
    last = _GAP if bias == "direct" else _GAP / (2 * _AGREEMENT[bias] - 1) if bias in _AGREEMENT else 0.0
    planted = PlantedBiasModel(np.stack([weights, unfair]), np.array([start, start + last]))
    if bias == "one segment":
        return _InSegment(planted, people.X.columns.get_loc(people.finances[0]))
    if bias != "learned":
        return planted
    rng = generator("lesson", source, bias, number=number)
    lesson = people.rows(rng.integers(0, len(people), _PEOPLE_PER_LESSON))
    group = rng.integers(0, 2, len(lesson))
    score = expit(lesson.X.to_numpy(dtype=np.float64) @ weights + start + _LEARNED_GAP * group)
    return _boosted(biased_inputs(bias, lesson.X, group, rng), (rng.random(len(score)) < score).astype(np.int64))


class _InSegment(nn.Module):
    """A model with a penalty for the second group where a finance is above its average of 0."""

    def __init__(self, fair: nn.Module, finance: int) -> None:
        super().__init__()
        self.fair, self.finance = fair, finance

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Scores in log-odds."""
        penalty = _SEGMENT_GAP * x[..., -1] * (x[..., self.finance] > 0)
        score: torch.Tensor = self.fair(x)
        return score + penalty.reshape(score.shape)


def _swapped(weights: Floats, other: Ints, part: float = 1.0) -> Floats:
    """The two heaviest and the two lightest of the other inputs, moved toward each other's weights."""
    order = other[np.argsort(np.abs(weights[other]))]
    light, heavy = order[:2], order[-2:]
    changed = weights.copy()
    changed[light] += part * (weights[heavy] - weights[light])
    changed[heavy] += part * (weights[light] - weights[heavy])
    return changed


def _doubled(weights: Floats, other: Ints) -> Floats:
    changed = weights.copy()
    changed[other[np.argmax(np.abs(weights[other]))]] *= 2
    return changed


_WEIGHTS: dict[Bias, Callable[[Floats, Ints], Floats]] = {
    "half swap": lambda weights, other: _swapped(weights, other, 0.5),
    "halved": lambda weights, other: np.where(np.isin(np.arange(len(weights)), other), weights / 2, weights),
    "canceling": _doubled,
}


def _boosted(X: pd.DataFrame, y: Ints) -> Any:
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
