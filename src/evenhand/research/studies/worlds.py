"""People with a known truth: real or generated features, and groups that depend only on label and finances.

If the group is drawn from the label and the financial features, it is random among people alike in both. No model
that has not seen it can treat it differently, so every gap, excess and difference in an audit has a true value of 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal, TypeAlias
from zlib import crc32

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit, softmax

from evenhand.datasets.dataset import load_dataset
from evenhand.exceptions import EvenhandError
from evenhand.inputs.encoding import TableEncoder

__all__ = [
    "SOURCES",
    "Draw",
    "Groups",
    "People",
    "draw_groups",
    "generator",
    "population",
    "standardized",
    "why_absent",
]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
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
