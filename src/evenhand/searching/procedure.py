"""Scores and procedure of models on the people of one test fold.

The metrics are those of an audit with the training fold as reference, computed by the same functions, under several
weightings of the test people at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.attribution import Explanation
from evenhand.matching.identity import Identity
from evenhand.models.explaining import Explainer, HalvedExplainer
from evenhand.models.scoring import joined, score_pairs, score_triples
from evenhand.searching.fold_gaps import FoldGaps, named_gaps
from evenhand.training.folds import ComparedFold, Fold

__all__ = ["adjusted_mean", "fold_procedure"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

_OF_PAIRS = ("cec", "reasoning_gap")


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
    reference_group: int,
    features: Sequence[str],
    weights: Floats,
) -> dict[str, Tensor]:
    """Metrics of scores and procedure on a fold's test people, each of shape (K, n_weightings), or (n_weightings,).

    Score gaps are signed, and named by `searching.fold_gaps`.

    Parameters
    ----------
    explainer, own
        The model, or a stack, with the baselines of the training people; explanations of the test people.
    compared
        The fold, its matches and its placebo triples.
    x_train, x_test, is_financial
        Its people as the model sees them, and which inputs belong to financial features.
    decision_threshold, consistency_threshold
        Lowest probability of a favorable decision; CEC score above which reasoning counts as different.
    reference_group
        Code of the group with which others are compared in score gaps.
    features
        Names of the table's columns.
    weights
        Weightings of the test people, of shape (n_weightings, n_test).
    """
    fold = compared.fold
    cells = fold.cells_test
    person, match = fold.matched_test
    known = explainer.has_baseline(cells[person])
    person, match = person[known], match[known]
    halved = HalvedExplainer.of(explainer, x_train, fold.y_train, fold.group_train, _halves(fold, x_train))
    triples = compared.test_pairs
    is_used = halved.has_baseline(cells[triples.person], triples.own)
    triples = triples.where(is_used)
    seen = halved.see(x_test, cells, x_train, triples.person, triples.other, triples.own)
    matches = explainer.see(x_train, match, cells[person])
    gaps = FoldGaps.of(compared, is_used, reference_group, weights, x_test.device)
    sums: dict[int, Tensor] = {}

    def approved(logit: Tensor) -> Tensor:
        probability = explainer.model.probability(logit)
        return torch.stack([probability, (probability >= decision_threshold).to(probability)])

    def scored() -> Iterator[tuple[Tensor, ...]]:
        for block, part in score_triples(halved, seen, x_test, x_train, triples, is_financial):
            gaps.add(sums, block, part, approved(part.moved.logit), approved(part.match.logit))
            reasoning = part.pair.reasoning_gap - part.placebo.reasoning_gap
            yield part.pair.cec, part.placebo.cec, part.gap, part.placebo_gap, part.stretch, reasoning

    pairs = joined((part.cec, part.reasoning_gap) for _, part in score_pairs(explainer, own, person, matches))
    found = joined(scored())
    nothing = own.logit[..., :0].double()
    decided = [approved(who.logit)[1] for who in (seen.person, seen.match, seen.placebo)]
    pair, placebo, gap, placebo_gap, stretch, reasoning = found or [nothing] * 6
    same, same_placebo = decided[0] == decided[1], decided[0] == decided[2]
    values = _TripleValues(pair, placebo, gap, placebo_gap, stretch, reasoning, same, same_placebo)
    of_pairs = torch.as_tensor(weights[:, person], device=x_test.device)
    return {
        **{name: adjusted_mean(of, of_pairs) for name, of in zip(_OF_PAIRS, pairs or [nothing] * 2, strict=True)},
        **values.excesses(weights, triples.person, fold.group_test, consistency_threshold),
        **named_gaps(sums or gaps.none(own.logit.shape[:-1], len(features)), features),
    }


@dataclass(frozen=True, eq=False)
class _TripleValues:
    """Measurements of each triple, of shape (..., n); see `models.scoring.TripleScores`.

    Attributes
    ----------
    reasoning
        Reasoning gap of the pair less that of the placebo pair.
    same, same_placebo
        Whether the two of the pair, and of the placebo pair, have the same decision.
    """

    pair: Tensor
    placebo: Tensor
    gap: Tensor
    placebo_gap: Tensor
    stretch: Tensor
    reasoning: Tensor
    same: Tensor
    same_placebo: Tensor

    def excesses(self, weights: Floats, person: Ints, groups: Ints, threshold: float) -> dict[str, Tensor]:
        """Excess of pairs over placebo pairs, by name, of shape (..., n_weightings)."""
        shares = weights[:, person] * _person_shares(person)
        factors = _group_factors(shares, groups[person])
        weight, balanced = (torch.as_tensor(rows, device=self.pair.device) for rows in (shares, shares * factors))
        controls = (self.gap - self.placebo_gap, self.stretch)
        in_b = self._in_regime_b(self.pair, self.placebo, threshold)
        by_finances = self._in_regime_b(self.gap, self.placebo_gap, threshold)
        decision = self.same.double() - self.same_placebo.double()
        return {
            "excess": adjusted_mean(self.pair - self.placebo, weight, *controls),
            "excess_balanced": adjusted_mean(self.pair - self.placebo, balanced, *controls),
            "reasoning_excess": adjusted_mean(self.reasoning, weight, *controls),
            "excess_regime_b": adjusted_mean(in_b, weight, by_finances, *controls, decision),
        }

    def _in_regime_b(self, score: Tensor, placebo: Tensor, threshold: float) -> Tensor:
        first, second = self.same & (score > threshold), self.same_placebo & (placebo > threshold)
        return first.double() - second.double()


def _halves(fold: Fold, x_train: Tensor) -> Ints:
    """Half-cells of the training people, as in an audit."""
    identity = Identity.of(x_train.cpu().numpy(), fold.y_train, fold.group_train, None)
    return identity.halves(fold.y_train * fold.n_groups + fold.group_train)


def adjusted_mean(values: Tensor, weights: Tensor, *controls: Tensor) -> Tensor:
    """Weighted means of values where the controls are 0, as `metrics.excess.excess` does.

    Of shape (..., n_weightings), from values of shape (..., n) and weights of shape (n_weightings, n).

    Examples
    --------
    >>> values, control = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([-1.0, 0.0, 2.0])
    >>> [round(mean, 4) for mean in adjusted_mean(values, torch.ones((1, 3)), control).tolist()]
    [1.7857]
    """
    if not weights.shape[-1]:
        return values.new_full((*values.shape[:-1], len(weights)), float("nan"))
    shares = (weights / weights.sum(-1, keepdim=True)).to(values)
    if not controls:
        return values @ shares.T
    regressors = torch.stack([torch.ones_like(values), *(control.to(values) for control in controls)], dim=-2)
    regressors = regressors.unsqueeze(-3)
    weighted = regressors * shares.unsqueeze(-2)
    design = weighted @ regressors.transpose(-1, -2)
    product = weighted @ values[..., None, :, None]
    found: Tensor = (torch.linalg.pinv(design, hermitian=True) @ product)[..., 0, 0]
    return found


def _person_shares(person: Ints) -> Floats:
    """Weights of triples that sum to 1 for every person."""
    _, code, count = np.unique(person, return_inverse=True, return_counts=True)
    return 1 / count[code]


def _group_factors(shares: Floats, group: Ints) -> Floats:
    """Factors of the triples' weights that give groups equal weight, of the shape (n_weightings, n_triples)."""
    totals = [np.bincount(group, row) for row in shares]
    return np.stack([1 / total[group] for total in totals])
