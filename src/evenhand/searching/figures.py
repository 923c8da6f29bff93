"""What a candidate is judged by: utility, outcome and procedure on the people of one test fold.

The procedure figures are those of the audit with the training fold as reference. They are made from explanations with
or without a leading dimension of models, so that a stack of networks is scored at once by the formulas that score a
tree.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Generic, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.attribution import Explanation
from evenhand.matching.placebos import PlaceboPairs
from evenhand.metrics.cec import cec_scores
from evenhand.metrics.outcomes import GroupOutcome, group_outcomes, outcome_metrics
from evenhand.metrics.roc import ks_distance
from evenhand.training.folds import ComparedFold, Fold

__all__ = ["AXES", "DIRECTIONS", "Explains", "Sight", "outcome_of", "procedure_of"]

DIRECTIONS: Mapping[str, int] = {
    "auc": 1,
    "ks": 1,
    "f1": 1,
    "eo_gap": -1,
    "air": 1,
    "sp_gap": -1,
    "positive_rate": 0,
    "excess": -1,
    "reasoning_gap": -1,
    "reasoning_excess": -1,
    "excess_regime_b": -1,
    "cec": -1,
}
"""Every figure, with 1 where more is better, -1 where less is, 0 where neither is."""

AXES: Mapping[str, tuple[str, ...]] = {
    "utility": ("auc", "ks", "f1"),
    "outcome": ("eo_gap", "air", "sp_gap", "positive_rate"),
    "procedure": ("excess", "reasoning_gap", "reasoning_excess", "excess_regime_b", "cec"),
}

Found = TypeVar("Found", bound=Explanation)
Ints = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Sight:
    """People of a fold as a model sees them.

    Attributes
    ----------
    x_train, x_test
        Encoded inputs, of shape (n, d).
    baselines
        Mean of each (label, group) cell of the training people, of shape (C, d); 0 where there is no one.
    cell_sizes
        Number of training people in each cell, of shape (C,).
    is_financial
        Which inputs belong to financial features, of shape (d,).
    join
        Sums inputs into the table's columns; None where they are the same.
    without_one
        Categories of the baselines when one who has them is left out: see `categories_without_one`. None where no
        input is a category.
    """

    x_train: Tensor
    x_test: Tensor
    baselines: Tensor
    cell_sizes: Tensor
    is_financial: Tensor
    join: Tensor | None
    without_one: Tensor | None = None


@dataclass(frozen=True)
class Explains(Generic[Found]):
    """How a model, or a stack of models, is asked.

    Attributes
    ----------
    explain
        Explanations of rows (n, d) from baselines (n, d).
    take
        Those of some of the rows.
    decide
        Whether each score is a favorable decision.
    """

    explain: Callable[[Tensor, Tensor], Found]
    take: Callable[[Found, Tensor], Found]
    decide: Callable[[Tensor], Tensor]


def outcome_of(fold: Fold, score: NDArray[np.floating], decision: Ints) -> dict[str, float]:
    """Figures of utility and outcome on a fold's test people."""
    y, names = fold.y_test, tuple(str(g) for g in range(fold.n_groups))
    outcomes = group_outcomes(y, decision, score, fold.group_test, names)
    found = {name: figure.value for name, figure in outcome_metrics(y, decision, score, outcomes).items()}
    kept = ("auc", "f1", "eo_gap", "sp_gap", "positive_rate")
    return {
        **{n: found[n] for n in kept},
        "ks": ks_distance(score, y == 1, y == 0),
        "air": _adverse_impact_ratio(outcomes),
    }


def _adverse_impact_ratio(outcomes: list[GroupOutcome]) -> float:
    """Lowest approval rate of a group over the highest; NaN where no one is approved."""
    rates = [outcome.positive_rate for outcome in outcomes]
    return min(rates) / max(rates) if max(rates) > 0 else float("nan")


def procedure_of(
    compared: ComparedFold, sight: Sight, model: Explains[Found], consistency_threshold: float
) -> dict[str, Tensor]:
    """Figures of procedure on a fold's test people, each of the shape of the models: (K,), or () for one.

    Parameters
    ----------
    compared
        The fold, its matches and its placebo triples.
    sight
        Its people as the model sees them.
    model
        The model, or a stack.
    consistency_threshold
        CEC score above which reasoning counts as different.
    """
    fold, pairs = compared.fold, compared.test_pairs
    device = sight.x_test.device
    n_cells = len(sight.baselines)
    cells = fold.y_test * fold.n_groups + fold.group_test
    matched_person, matched = _matched(fold.match_test)
    kept = np.flatnonzero(sight.cell_sizes.cpu().numpy()[cells[pairs.person]] > 1)
    person = pairs.person[kept]
    keys = [matched * n_cells + cells[matched_person]]
    keys += [rows[kept] * n_cells + cells[person] for rows in (pairs.other, pairs.own)]
    distinct, place = np.unique(np.concatenate(keys), return_inverse=True)
    of_match, of_other, of_own = np.split(place, np.cumsum([len(k) for k in keys[:-1]]))

    def index(rows: Ints) -> Tensor:
        return torch.as_tensor(rows, device=device)

    pool_rows, pool_cells = index(distinct // n_cells), index(distinct % n_cells)
    own = model.explain(sight.x_test, sight.baselines[index(cells)])
    pool = model.explain(sight.x_train[pool_rows], sight.baselines[pool_cells])
    own_decision, pool_decision = model.decide(own.logit), model.decide(pool.logit)

    me, them = model.take(own, index(matched_person)), model.take(pool, index(of_match))
    figures = {"cec": _mean(_cec(me, them, sight.join)), "reasoning_gap": _mean(_reasoning(me, them, sight.join))}

    me, them, like_me = (
        model.take(found, index(rows)) for found, rows in ((own, person), (pool, of_other), (pool, of_own))
    )
    x, baseline = sight.x_test[index(person)], sight.baselines[index(cells[person])]
    with_theirs, with_placebos = (
        model.explain(torch.where(sight.is_financial, sight.x_train[index(rows[kept])], x), baseline)
        for rows in (pairs.other, pairs.own)
    )
    sizes = sight.cell_sizes[index(cells[person])].unsqueeze(-1)
    without_one = None if sight.without_one is None else sight.without_one[index(cells[person])]
    apart, placebo, apart_moved = (
        each.leaving_out(like_me, sizes, without_one) for each in (me, like_me, with_placebos)
    )
    weight = torch.as_tensor(_person_weights(pairs, kept), dtype=me.values.dtype, device=device)
    pair, null = _cec(me, them, sight.join), _cec(apart, placebo, sight.join)
    gap, null_gap = _cec(me, with_theirs, sight.join), _cec(apart, apart_moved, sight.join)
    control = gap - null_gap
    reasoning = _reasoning(me, them, sight.join) - _reasoning(apart, placebo, sight.join)
    mine = own_decision[..., index(person)]
    same = (mine == pool_decision[..., index(of_other)]).to(pair.dtype)
    same_null = (mine == pool_decision[..., index(of_own)]).to(pair.dtype)

    def regime_b(first: Tensor, second: Tensor) -> Tensor:
        return same * (first > consistency_threshold) - same_null * (second > consistency_threshold)

    return {
        **figures,
        "excess": adjusted_mean(pair - null, control, weight),
        "reasoning_excess": adjusted_mean(reasoning, control, weight),
        "excess_regime_b": adjusted_mean(regime_b(pair, null), regime_b(gap, null_gap), weight),
    }


def adjusted_mean(values: Tensor, control: Tensor, weight: Tensor) -> Tensor:
    """Weighted mean of values where the control is 0, as `metrics.excess.excess` does; (...,) of (..., n).

    Examples
    --------
    >>> values, control = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-1.0, 0.0, 2.0])
    >>> round(float(adjusted_mean(values, control, torch.full((3,), 1 / 3))), 4)
    1.7857
    """
    if not len(weight):
        return values.new_full(values.shape[:-1], float("nan"))
    mean, center = (values * weight).sum(-1), (control * weight).sum(-1)
    spread = control - center.unsqueeze(-1)
    variance = (spread.square() * weight).sum(-1)
    slope = torch.where(variance > 1e-12, (spread * values * weight).sum(-1) / variance.clamp_min(1e-12), 0.0)
    return mean - slope * center


def _matched(match: Ints) -> tuple[Ints, Ints]:
    """Person and match of each pair that has one."""
    person, column = np.nonzero(match >= 0)
    return person.astype(np.int64), match[person, column]


def _person_weights(pairs: PlaceboPairs, kept: Ints) -> NDArray[np.float64]:
    """Weights of the kept triples that sum to 1, equal in total for every person."""
    _, code, count = np.unique(pairs.person[kept], return_inverse=True, return_counts=True)
    return 1 / (count[code] * float(max(1, len(count))))


def _mean(values: Tensor) -> Tensor:
    return values.mean(-1) if values.shape[-1] else values.new_full(values.shape[:-1], float("nan"))


def _cec(first: Explanation, second: Explanation, join: Tensor | None) -> Tensor:
    return cec_scores(*_joined(join, first.values, second.values))


def _reasoning(first: Explanation, second: Explanation, join: Tensor | None) -> Tensor:
    """Reasoning gap of each pair."""
    moved, other = _joined(join, first.with_inputs_of(second), second.values)
    own, swapped = _joined(join, first.values, second.with_inputs_of(first))
    return (cec_scores(moved, other) + cec_scores(own, swapped)) / 2


def _joined(join: Tensor | None, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    if join is None:
        return first, second
    matrix = join.to(first.dtype)
    return first @ matrix, second @ matrix
