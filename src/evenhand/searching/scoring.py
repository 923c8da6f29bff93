"""Models scored on a fold's test people: a stack of networks at once, or any model that can be audited.

The score gap at equal finances on the test people of a fold, for many models at once: total and through each input.

The regression is the audit's (`metrics.score_gap`). Its result is linear in what is compared, with coefficients that
depend on the people alone, so each model's gaps are one product.

Scores and procedure of models on the people of one test fold.

The metrics are those of an audit with the training fold as reference, computed by the same functions, under several
weightings of the test people at once.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.arrays import Floats, Ints
from evenhand.attribution import Explanation
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.identity import Identity
from evenhand.inputs.validation import check_columns, is_number_column
from evenhand.metrics.score_gap import FinanceControls, gap_coefficients
from evenhand.models.dispatch import as_audited_model
from evenhand.models.explaining import Explainer, HalvedExplainer
from evenhand.models.gradient import DifferentiableModel
from evenhand.models.protocol import AuditedModel, EncodesTables
from evenhand.models.scoring import TripleScores, joined, score_pairs, score_triples
from evenhand.searching.families.family import spelled_as
from evenhand.searching.metrics import fold_outcome
from evenhand.searching.people import EvaluationSettings, SearchPeople
from evenhand.training.folds import ComparedFold, Fold
from evenhand.training.network import Layout

GAPS = ("score_gap", "probability_gap", "decision_gap")
"""Gaps in the unit in which the model is explained, in probability and in the share of approvals."""


def gap_name(kind: str, group: int, feature: str = "") -> str:
    """Name of a signed gap of a group: the total, or the part through a feature.

    Examples
    --------
    >>> gap_name("score_gap", 1), gap_name("score_gap", 1, "income")
    ('score_gap|1', 'score_gap|1|income')
    """
    return f"{kind}|{group}|{feature}" if feature else f"{kind}|{group}"


def is_signed_gap(name: str) -> bool:
    """Whether `gap_name` made a name.

    Examples
    --------
    >>> is_signed_gap("score_gap|1|income"), is_signed_gap("score_gap[income]")
    (True, False)
    """
    kind, bar, _ = name.partition("|")
    return bool(bar) and kind in GAPS


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Pairs of a fold, as `metrics.gap_sums` takes them; it does not need the gaps themselves."""

    person: Ints
    match: Ints
    other: Ints
    group: Ints
    other_group: Ints
    label: Ints
    finances: Floats
    pair_weight: Floats

    @property
    def person_row(self) -> Ints:
        """No test person is in the training fold."""
        return np.full(len(self.person), -1)

    @property
    def unit(self) -> Ints:
        """Every row is a different person."""
        return self.person

    @property
    def bucket(self) -> Ints:
        """No influences are needed."""
        return np.zeros(len(self.person), dtype=np.int64)

    @property
    def score_gaps(self) -> Floats:
        """Nothing: coefficients do not depend on it."""
        return np.zeros((len(self.person), 0))


@dataclass(frozen=True, eq=False)
class FoldGaps:
    """The coefficient of each triple's difference in the gap between each group and the reference group.

    Attributes
    ----------
    coefficients
        By code of the group, of shape (n_weightings, n_triples).
    """

    coefficients: Mapping[int, Tensor]

    @classmethod
    def of(
        cls,
        compared: ComparedFold,
        is_used: NDArray[np.bool_],
        reference_group: int,
        weights: Floats,
        device: torch.device,
    ) -> FoldGaps:
        """For the usable triples of a fold and each weighting of its test people, (n_weightings, n_test)."""
        fold, triples = compared.fold, compared.test_pairs.where(is_used)
        person = triples.person
        pairs = _Pairs(
            person=person,
            match=triples.other,
            other=triples.other,
            group=fold.group_test[person],
            other_group=triples.other_group,
            label=fold.y_test[person],
            finances=compared.points_test[person],
            pair_weight=np.ones(len(person)),
        )
        controls = FinanceControls.of(compared.points_train, device)
        return cls(
            {
                group: gap_coefficients(pairs, controls, group, reference_group, weights[:, person])
                for group in range(fold.n_groups)
                if group != reference_group
            }
        )

    def none(self, models: Sequence[int], n_features: int) -> dict[int, Tensor]:
        """NaN gaps of as many models as the shape says."""
        return {
            group: coefficients.new_full((*models, len(coefficients), n_features + 2), float("nan"))
            for group, coefficients in self.coefficients.items()
        }

    def add(self, sums: dict[int, Tensor], block: slice, part: TripleScores, moved: Tensor, match: Tensor) -> None:
        """Add a block of triples to the gaps of each group, of shape (..., n_weightings, n_features + 2).

        Parameters
        ----------
        sums
            Gaps so far, by code of the group: by feature, in probability and in decisions.
        block, part
            Which triples, and their scores.
        moved, match
            Probability, and whether approved, of the person with the match's finances and of the match: of shape
            (2, ..., n).
        """
        differences = torch.cat([part.score_gaps.double(), (moved - match).movedim(0, -1)], dim=-1)
        for group, coefficients in self.coefficients.items():
            more = coefficients[:, block] @ differences
            sums[group] = sums[group] + more if group in sums else more


def named_gaps(sums: Mapping[int, Tensor], features: Sequence[str]) -> dict[str, Tensor]:
    """Signed gaps by name, each of shape (..., n_weightings)."""
    found: dict[str, Tensor] = {}
    for group, gaps in sums.items():
        by_feature, in_probability, in_decisions = gaps[..., :-2], gaps[..., -2], gaps[..., -1]
        totals = (by_feature.sum(-1), in_probability, in_decisions)
        found |= {gap_name(kind, group): total for kind, total in zip(GAPS, totals, strict=True)}
        found |= {gap_name("score_gap", group, f): by_feature[..., k] for k, f in enumerate(features)}
    return found


def oriented_gaps(
    signed: Mapping[str, Floats], means: Mapping[str, Floats], features: Sequence[str]
) -> dict[str, Floats]:
    """Sizes of gaps, as a search minimizes them, from signed ones of shape (n_models, n).

    The size in each fold would be noise where the gap is small. So a model's gap is that of the group whose mean is
    largest in size, with the sign that makes this mean positive: its mean is the size of the mean. In the sum over
    inputs (``score_gap_parts``) each input has its own sign, so inputs that cancel each other both count.

    Parameters
    ----------
    signed
        By name, as `named_gaps` returns them; the second dimension is folds or weightings.
    means
        By the same names, of shape (n_models,): they decide signs and groups.
    features
        Names of the inputs.

    Examples
    --------
    >>> signed = {"score_gap|1": np.array([[-0.3, -0.1]]), "score_gap|1|age": np.array([[-0.3, -0.1]])}
    >>> means = {name: values.mean(1) for name, values in signed.items()}
    >>> found = oriented_gaps(signed, means, ["age"])
    >>> {name: values.round(2).tolist() for name, values in found.items()}
    {'score_gap': [[0.3, 0.1]], 'score_gap[age]': [[0.3, 0.1]], 'score_gap_parts': [[0.3, 0.1]]}
    """
    groups = sorted({int(name.split("|")[1]) for name in signed})
    found: dict[str, Floats] = {}
    for kind in GAPS:
        names = [name for group in groups if (name := gap_name(kind, group)) in signed]
        if names:
            found[kind] = _largest([_turned(signed[name], means[name]) for name in names], [means[n] for n in names])
    parts: dict[int, list[Floats]] = {group: [] for group in groups}
    for feature in features:
        names = [gap_name("score_gap", group, feature) for group in groups]
        turned = [_turned(signed[name], means[name]) for name in names]
        found[f"score_gap[{feature}]"] = _largest(turned, [means[name] for name in names])
        for group, values in zip(groups, turned, strict=True):
            parts[group].append(values)
    if features and groups:
        sizes = {
            group: sum(np.abs(means[gap_name("score_gap", group, feature)]) for feature in features) for group in groups
        }
        totals = [np.sum(values, axis=0) for values in parts.values()]
        found["score_gap_parts"] = _largest(totals, [np.asarray(sizes[group]) for group in groups])
    return found


def _turned(values: Floats, mean: Floats) -> Floats:
    """Values with the sign that makes the mean of each model positive."""
    return values * np.where(mean < 0, -1.0, 1.0)[:, None]


def _largest(values: Sequence[Floats], means: Sequence[Floats]) -> Floats:
    """For each model, the values of the group whose mean is largest in size."""
    sizes = np.abs(np.stack(means))
    which = np.where(np.isfinite(sizes), sizes, -1.0).argmax(0)
    return np.asarray(np.stack(values)[which, np.arange(sizes.shape[1])])


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


# Inputs of people in memory at once, over all members: bounds memory for any number of members.
_CHUNK_VALUES = {"cpu": 20_000_000, "cuda": 500_000_000}


def score_model(
    model: Any,
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
    model: Any,
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
