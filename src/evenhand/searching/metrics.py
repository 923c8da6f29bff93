"""What a candidate is judged by: utility, outcome and procedure on the people of one test fold.

The metrics of procedure are those of the audit with the training fold as reference, made by the same functions.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.attribution import Explanation
from evenhand.matching.identity import Identity
from evenhand.metrics.outcomes import GroupOutcome, group_outcomes, outcome_metrics
from evenhand.metrics.roc import ks_distance
from evenhand.models.explaining import Explainer, HalvedExplainer
from evenhand.models.scoring import joined, score_pairs, score_triples
from evenhand.training.folds import ComparedFold, Fold

__all__ = ["AXES", "DIRECTIONS", "adjusted_mean", "fold_outcome", "fold_procedure"]

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
"""Every metric, with 1 where more is better, -1 where less is, 0 where neither is."""

AXES: Mapping[str, tuple[str, ...]] = {
    "utility": ("auc", "ks", "f1"),
    "outcome": ("eo_gap", "air", "sp_gap", "positive_rate"),
    "procedure": ("excess", "reasoning_gap", "reasoning_excess", "excess_regime_b", "cec"),
}

Ints = NDArray[np.int64]


def fold_outcome(fold: Fold, score: NDArray[np.floating], decision: Ints) -> dict[str, float]:
    """Metrics of utility and outcome on a fold's test people."""
    y, names = fold.y_test, tuple(str(g) for g in range(fold.n_groups))
    outcomes = group_outcomes(y, decision, score, fold.group_test, names)
    found = {name: metric.value for name, metric in outcome_metrics(y, decision, score, outcomes).items()}
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


def fold_procedure(
    explainer: Explainer,
    own: Explanation,
    compared: ComparedFold,
    x_train: Tensor,
    x_test: Tensor,
    is_financial: Tensor,
    *,
    decision_threshold: float,
    consistency_threshold: float,
) -> dict[str, Tensor]:
    """Metrics of procedure on a fold's test people, each of the shape of the models: (K,), or () for one.

    Parameters
    ----------
    explainer, own
        The model, or a stack, with the baselines of the training people; explanations of the test people.
    compared
        The fold, its matches and its placebo triples.
    x_train, x_test, is_financial
        Its people as the model sees them, and which inputs belong to financial features.
    decision_threshold, consistency_threshold
        Probability from which a decision is favorable; CEC score above which reasoning counts as different.
    """
    fold = compared.fold
    cells = fold.cells_test
    person, match = fold.matched_test
    known = explainer.has_baseline(cells[person])
    person, match = person[known], match[known]
    halved = HalvedExplainer.of(explainer, x_train, fold.y_train, fold.group_train, _halves(fold, x_train))
    triples = compared.test_pairs
    triples = triples.where(halved.has_baseline(cells[triples.person], triples.own))
    seen = halved.see(x_test, cells, x_train, triples.person, triples.other, triples.own)
    matches = explainer.see(x_train, match, cells[person])

    def decided(logit: Tensor) -> Tensor:
        return explainer.model.probability(logit) >= decision_threshold

    pairs = joined((part.cec, part.reasoning_gap) for _, part in score_pairs(explainer, own, person, matches))
    found = joined(
        (
            part.pair.cec,
            part.placebo.cec,
            part.gap,
            part.placebo_gap,
            part.stretch,
            part.pair.reasoning_gap - part.placebo.reasoning_gap,
        )
        for _, part in score_triples(halved, seen, x_test, x_train, triples, is_financial)
    )
    nothing = own.logit[..., :0].double()
    cec, reasoning_gap = pairs or [nothing] * 2
    pair, placebo, gap, placebo_gap, stretch, reasoning = found or [nothing] * 6
    mine = decided(seen.person.logit)
    same, same_placebo = mine == decided(seen.match.logit), mine == decided(seen.placebo.logit)

    def regime_b(first: Tensor, second: Tensor) -> Tensor:
        in_b, placebo_in_b = same & (first > consistency_threshold), same_placebo & (second > consistency_threshold)
        return in_b.double() - placebo_in_b.double()

    weight = torch.as_tensor(_person_weights(triples.person), device=pair.device)
    controls = (gap - placebo_gap, stretch)
    return {
        "cec": _mean(cec),
        "reasoning_gap": _mean(reasoning_gap),
        "excess": adjusted_mean(pair - placebo, weight, *controls),
        "reasoning_excess": adjusted_mean(reasoning, weight, *controls),
        "excess_regime_b": adjusted_mean(
            regime_b(pair, placebo),
            weight,
            regime_b(gap, placebo_gap),
            *controls,
            same.double() - same_placebo.double(),
        ),
    }


def _halves(fold: Fold, x_train: Tensor) -> Ints:
    """Halves of the cells of the training people, as an audit makes them."""
    identity = Identity.of(x_train.cpu().numpy(), fold.y_train, fold.group_train, None)
    return identity.halves(fold.y_train * fold.n_groups + fold.group_train)


def adjusted_mean(values: Tensor, weight: Tensor, *controls: Tensor) -> Tensor:
    """Weighted mean of values where the controls are 0, as `metrics.excess.excess` does; (...,) of (..., n).

    Examples
    --------
    >>> values, control = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-1.0, 0.0, 2.0])
    >>> round(float(adjusted_mean(values, torch.full((3,), 1 / 3), control)), 4)
    1.7857
    """
    if not len(weight):
        return values.new_full(values.shape[:-1], float("nan"))
    regressors = torch.stack([torch.ones_like(values), *(control.to(values) for control in controls)], dim=-2)
    weighted = regressors * weight.to(values)
    design = weighted @ regressors.transpose(-1, -2)
    product = weighted @ values.unsqueeze(-1)
    found: Tensor = (torch.linalg.pinv(design, hermitian=True) @ product)[..., 0, 0]
    return found


def _person_weights(person: Ints) -> NDArray[np.float64]:
    """Weights of triples that sum to 1, equal in total for every person."""
    _, code, count = np.unique(person, return_inverse=True, return_counts=True)
    return 1 / (count[code] * float(max(1, len(count))))


def _mean(values: Tensor) -> Tensor:
    return values.mean(-1) if values.shape[-1] else values.new_full(values.shape[:-1], float("nan"))
