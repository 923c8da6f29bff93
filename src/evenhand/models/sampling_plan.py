"""How many orders sampled Shapley values need, and how long they take: measured on a few people beforehand."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.attribution.sampled import SampledShapley
from evenhand.models.explaining import Explainer
from evenhand.models.shapley import ShapleyModel

__all__ = ["is_sampled", "needed_permutations", "questions", "seconds_per_question", "watched", "with_permutations"]

Ints = NDArray[np.int64]

# Orders of the trial; orders that cost as much as all coalitions, which are then used; and the largest number.
_TRIED, _WHERE_ALL, _MOST = 8, 32, 64
_TRIED_PEOPLE = 64
_SECONDS = 0.2  # duration of the trial's last batch, to be measurable
_LARGEST_BATCH = 1024


def is_sampled(explainer: Explainer) -> bool:
    """Whether an explainer's model is explained by sampled Shapley values."""
    return isinstance(explainer.model, ShapleyModel) and isinstance(explainer.model.game, SampledShapley)


def with_permutations(explainer: Explainer, n_permutations: int) -> Explainer:
    """An explainer of a sampled model that uses this many orders."""
    return _with_game(explainer, replace(_game(explainer), n_permutations=n_permutations))


def watched(explainer: Explainer, watch: Callable[[int], None]) -> Explainer:
    """An explainer of a sampled model that reports to `watch` how many evaluations it has made."""
    return _with_game(explainer, replace(_game(explainer), watch=watch))


def questions(explainer: Explainer, *, is_own: bool) -> int:
    """How often the score is evaluated for a person; in their own context, or in a different one."""
    return _game(explainer).n_questions(explainer.baselines.rows.shape[1], is_own=is_own)


def _game(explainer: Explainer) -> SampledShapley:
    assert isinstance(explainer.model, ShapleyModel)
    assert isinstance(explainer.model.game, SampledShapley)
    return explainer.model.game


def _with_game(explainer: Explainer, game: SampledShapley) -> Explainer:
    assert isinstance(explainer.model, ShapleyModel)
    return replace(explainer, model=replace(explainer.model, game=game))


def needed_permutations(explainer: Explainer, x: Tensor, cells: Ints, target: float) -> int:
    """Number of orders for everyone, so that two people are compared under the same ones; between 8 and 64.

    Parameters
    ----------
    explainer
        Explainer of a sampled model.
    x, cells
        Encoded people, and the cells they are explained from.
    target
        Largest standard error of attributions, as a share of their size.
    """
    rows = explainer.spread_people(cells, _TRIED_PEOPLE)
    if not len(rows) or _game(with_permutations(explainer, _WHERE_ALL)).is_exact(x.shape[1]):
        return _WHERE_ALL
    found = with_permutations(explainer, _TRIED).explain(x[torch.as_tensor(rows)], cells[rows])
    assert found.standard_error is not None
    size = float(found.values.square().sum())
    error = float(found.standard_error.square().sum() / size) ** 0.5 if size > 0 else 0.0
    needed = _TRIED * (error / target) ** 2  # the error decreases with the square root of the orders
    return int(np.clip(4 * np.ceil(needed / 4), _TRIED, _MOST))


def seconds_per_question(explainer: Explainer, x: Tensor, cells: Ints) -> float:
    """Time of one score, from batches of people that grow until they take long enough to measure."""
    rows = explainer.spread_people(cells, _TRIED_PEOPLE)
    per_person = _game(explainer).n_questions(x.shape[1], is_own=True)
    n, taken, is_first = min(4, len(rows)), 0.0, True  # the first batch triggers compilation
    while n:
        chosen = np.resize(rows, n)
        start = time.perf_counter()
        explainer.explain(x[torch.as_tensor(chosen)], cells[chosen])
        taken = time.perf_counter() - start
        if not is_first and (taken > _SECONDS or 4 * n > _LARGEST_BATCH):
            break
        n, is_first = n if is_first else 4 * n, False
    return taken / max(1, n * per_person)
