"""Metrics of models on the test people of a fold: a stack of networks at once, or any model that can be audited.

The metrics are those of an audit with the training fold as reference, computed by the same functions, under several
weightings of the test people at once. The score gap at equal finances is linear in what is compared, with coefficients
that depend on the people alone, so the gaps of many models are one product.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.arrays import Array, Floats, Ints, as_numpy, double, like, namespace
from evenhand.inputs.identity import Identity
from evenhand.matching.leaves import Leaves
from evenhand.metrics.estimate import RowWeights
from evenhand.metrics.outcomes import group_outcomes, ks_distance, outcome_metrics
from evenhand.metrics.score_gap import FinanceControls, LeafPeople, gap_coefficients
from evenhand.models.dispatch import as_audited_model
from evenhand.models.explaining import Explainer, HalvedExplainer
from evenhand.models.gradient import DifferentiableModel
from evenhand.models.protocol import AuditedModel
from evenhand.models.scoring import joined, mean_over_leaves, score_pairs, score_triples
from evenhand.searching.families import spelled_as
from evenhand.searching.people import ComparedFold
from evenhand.training.network import Layout

Metrics: TypeAlias = Mapping[str, Floats]
"""Every metric by name, of shape (n_candidates, n_folds)."""

GAPS = ("score_gap", "probability_gap", "decision_gap")
"""Gaps in the unit in which the model is explained, in probability and in the share of approvals."""

EFFECTS = ("effect", "falls", "rises")
"""How far a column moves the score; the shares of its upward steps at which the score falls, and rises."""

_MOST_PEOPLE, _MOST_VALUES = 200, 9
_ROUNDING = 1e-5  # scores are computed in single precision

# Inputs of people in memory at once, over all members: bounds memory for any number of members.
_CHUNK_VALUES = {"cpu": 20_000_000, "cuda": 500_000_000}


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
        By name, as `gap_name` makes them; the second dimension is folds or weightings.
    means
        By the same names, of shape (n_models,): they decide signs and groups.
    features
        Names of the inputs.

    Examples
    --------
    >>> signed = {"score_gap|1": np.array([[-0.3, -0.1]]), "score_gap|1|age": np.array([[-0.3, -0.1]])}
    >>> means = {name: values.mean(1) for name, values in signed.items()}
    >>> sizes = oriented_gaps(signed, means, ["age"])
    >>> {name: values.round(2).tolist() for name, values in sizes.items()}
    {'score_gap': [[0.3, 0.1]], 'score_gap[age]': [[0.3, 0.1]], 'score_gap_parts': [[0.3, 0.1]]}
    """
    groups = sorted({int(name.split("|")[1]) for name in signed})
    kinds = [kind for kind in GAPS if gap_name(kind, groups[0]) in signed]
    gaps = [*((kind, "") for kind in kinds), *(("score_gap", feature) for feature in features)]
    names = [[gap_name(kind, group, feature) for kind, feature in gaps] for group in groups]
    mean = np.stack([[means[name] for name in row] for row in names])
    turned = np.stack([[signed[name] for name in row] for row in names]) * np.where(mean < 0, -1.0, 1.0)[..., None]
    largest = _largest(turned, np.abs(mean))
    sizes = {f"{kind}[{feature}]" if feature else kind: largest[k] for k, (kind, feature) in enumerate(gaps)}
    if features:
        sizes["score_gap_parts"] = _largest(turned[:, len(kinds) :].sum(1), np.abs(mean)[:, len(kinds) :].sum(1))
    return sizes


def with_sizes(metrics: Metrics, means: Mapping[str, Floats], features: Sequence[str]) -> dict[str, Floats]:
    """Metrics with sizes instead of signed gaps; see `oriented_gaps`."""
    signed = {name: metrics[name] for name in means}
    plain = {name: values for name, values in metrics.items() if name not in signed}
    return plain | (oriented_gaps(signed, means, features) if signed else {})


def _largest(values: Floats, sizes: Floats) -> Floats:
    """The values of the group whose size, of shape (groups, ...), is largest; of shape (..., n)."""
    which = np.where(np.isfinite(sizes), sizes, -1.0).argmax(0)
    return np.asarray(np.take_along_axis(values, which[None, ..., None], 0)[0])


def score_model(model: Any, fold: ComparedFold) -> dict[str, float]:
    """Metrics of a fitted model, anything that `evenhand.audit` takes, on a fold's test people."""
    return unweighted(score_weighted(model, fold, np.ones((1, len(fold.test)))))


def score_weighted(model: Any, fold: ComparedFold, weights: Floats) -> dict[str, Floats]:
    """The same under several weightings of the test people, (n_weightings, n_test); each of shape (n_weightings,)."""
    train, test = (fold.people.table.iloc[rows].reset_index(drop=True) for rows in (fold.train, fold.test))
    audited = as_audited_model(model, output="log-odds", table=train)  # one unit for every candidate
    return _scored(audited, audited.encode(train), audited.encode(test), fold, weights)[0]


def score_stack(parameters: Tensor, layout: Layout, fold: ComparedFold) -> list[dict[str, float]]:
    """Metrics of networks on one fold's test people, one for each row of `parameters`, (K, P), where they are scored.

    Parameters
    ----------
    parameters, layout
        The networks, on the device that scores them.
    fold
        As in `score_model`.
    """
    device = parameters.device
    x_train, x_test = (torch.as_tensor(x, device=device) for x in (fold.x_train, fold.x_test))
    n_rows = len(x_test) + 2 * len(fold.test_pairs) + fold.match_test.size
    size = max(1, _CHUNK_VALUES[device.type] // (n_rows * x_test.shape[1]))
    rows: list[dict[str, float]] = []
    for part in parameters.split(size):
        stack = DifferentiableModel(layout.networks(part), "networks", fold.encoder)
        rows += map(unweighted, _scored(stack, x_train, x_test, fold, np.ones((1, len(fold.test)))))
    return rows


def unweighted(metrics: Mapping[str, Floats]) -> dict[str, float]:
    """Metrics under the first weighting, the equal one."""
    return {name: float(values[0]) for name, values in metrics.items()}


def _scored(
    model: AuditedModel, x_train: Array, x_test: Array, fold: ComparedFold, weights: Floats
) -> list[dict[str, Floats]]:
    """Metrics of each model of a stack, or of the only one, under each weighting of the test people."""
    logit, metrics = _procedure(model, x_train, x_test, fold, weights)
    train, test = (fold.people.table.iloc[rows] for rows in (fold.train, fold.test))
    for column in fold.settings.effects:
        metrics |= column_effects(model, train, test, column, weights)
    by_model = {name: as_numpy(values).reshape(-1, len(weights)) for name, values in metrics.items()}
    rows = []
    for k, score in enumerate(as_numpy(model.probability(logit)).reshape(-1, len(x_test))):
        decision = (score >= fold.settings.decision_threshold).astype(np.int64)
        outcomes = [fold_outcome(fold, score, decision, weight) for weight in weights]
        row = {name: np.array([outcome[name] for outcome in outcomes]) for name in outcomes[0]}
        rows.append(row | {name: values[k] for name, values in by_model.items()})
    return rows


def _procedure(
    model: AuditedModel, x_train: Array, x_test: Array, fold: ComparedFold, weights: Floats
) -> tuple[Array, dict[str, Array]]:
    """Logits, and metrics of scores and procedure, of shape (K, n_weightings), or (n_weightings,); gaps are signed."""
    people, settings = fold.people, fold.settings
    explainer = Explainer.of(model, x_train, fold.y_train, fold.group_train, settings.n_steps)
    own = explainer.explain(x_test, fold.cells_test)
    xp, cells, threshold = namespace(x_test), fold.cells_test, settings.consistency_threshold
    is_financial = model.is_financial(people.columns, list(people.financial_features))
    person, match = fold.matched_test
    known = explainer.has_baseline(cells[person])
    person, match = person[known], match[known]
    identity = Identity.of(as_numpy(x_train), fold.y_train, fold.group_train, None)
    halves = identity.halves(fold.y_train * fold.n_groups + fold.group_train)  # as in an audit
    halved = HalvedExplainer.of(explainer, x_train, fold.y_train, fold.group_train, halves)
    triples = fold.test_pairs
    triples = triples.where(halved.has_baseline(cells[triples.person], triples.own))
    seen = halved.see(x_test, cells, x_train, triples.person, triples.other, triples.own)
    matches = explainer.see(x_train, match, cells[person])

    def approved(logit: Array) -> Array:
        return model.probability(logit) >= settings.decision_threshold

    leaves = Leaves.of(fold.points_train, fold.y_train, identity.content, len(fold.test))  # as in an audit
    leaf = leaves.leaf(fold.points_test, fold.y_test)
    is_moved = like(is_financial, x_test)
    in_leaf = xp.where(is_moved, x_train[like(leaves.row[leaf], x_train)], x_test)
    no_cell = np.zeros(len(x_train), dtype=np.int64)
    baseline = Explainer.of(model, x_train, no_cell, no_cell, explainer.n_steps)
    explained = baseline.explain(in_leaf, np.zeros(len(x_test), dtype=np.int64))
    parts = double(explained.values)
    parts = parts if baseline.join is None else parts @ baseline.join
    means = mean_over_leaves(
        model,
        leaves.members[leaf],
        x_test,
        x_train,
        is_moved,
        lambda logit: xp.stack([model.probability(logit), double(approved(logit))], axis=-1),
    )
    values = xp.concat([parts, means], axis=-1)
    in_leaves = LeafPeople.alike(leaf, fold.group_test, fold.y_test, leaves.scale.transform(fold.points_test))
    finances = FinanceControls.of(leaves.scale.transform(fold.points_train))
    gaps = {}
    for group in (code for code in range(fold.n_groups) if code != people.reference_group):
        rows = gap_coefficients(in_leaves, finances, group, people.reference_group, weights)
        gaps[group] = like(rows, x_test) @ values

    def scored() -> Iterator[tuple[Array, ...]]:
        for _, part in score_triples(halved, seen, x_test, x_train, triples, is_moved):
            yield part.pair.cec, part.placebo.cec, part.gap, part.placebo_gap, part.stretch, part.reasoning_gap

    nothing = double(own.logit[..., :0])
    pairs = joined((part.cec, part.reasoning_gap) for _, part in score_pairs(explainer, own, person, matches))
    cec, reasoning_gap = pairs or [nothing] * 2
    pair, placebo, gap, placebo_gap, stretch, reasoning = joined(scored()) or [nothing] * 6
    decision = [approved(who.logit) for who in (seen.person, seen.match, seen.placebo)]
    same, same_placebo = decision[0] == decision[1], decision[0] == decision[2]

    def in_regime_b(score: Array, placebo_score: Array) -> Array:
        return double(same & (score > threshold)) - double(same_placebo & (placebo_score > threshold))

    # The triples of a person weigh as one; in the balanced excess, groups weigh equally.
    _, code, times = np.unique(triples.person, return_inverse=True, return_counts=True)
    shares = weights[:, triples.person] * (1 / times[code])
    group_of = fold.group_test[triples.person]
    factors = np.stack([1 / np.bincount(group_of, row)[group_of] for row in shares])
    weight, balanced, of_pairs = (like(rows, x_test) for rows in (shares, shares * factors, weights[:, person]))
    controls = (gap - placebo_gap, stretch)
    by_finances, agreement = in_regime_b(gap, placebo_gap), double(same) - double(same_placebo)
    metrics = {
        "cec": adjusted_mean(cec, of_pairs),
        "reasoning_gap": adjusted_mean(reasoning_gap, of_pairs),
        "excess": adjusted_mean(pair - placebo, weight, *controls),
        "excess_balanced": adjusted_mean(pair - placebo, balanced, *controls),
        "reasoning_excess": adjusted_mean(reasoning, weight, *controls),
        "excess_regime_b": adjusted_mean(in_regime_b(pair, placebo), weight, by_finances, *controls, agreement),
    }
    seen_columns = people.columns if model.encoder is None else spelled_as(people.columns, model.encoder.names)
    for group, of_group in gaps.items():
        totals = (of_group[..., :-2].sum(-1), of_group[..., -2], of_group[..., -1])
        metrics |= {gap_name(kind, group): total for kind, total in zip(GAPS, totals, strict=True)}
        # A score gap of 0 through inputs that a model does not have.
        metrics |= {gap_name("score_gap", group, column): 0 * totals[0] for column in people.columns}
        metrics |= {gap_name("score_gap", group, column): of_group[..., k] for k, column in enumerate(seen_columns)}
    return own.logit, metrics


def adjusted_mean(values: Array, weights: Array, *controls: Array) -> Array:
    """Weighted means of values where the controls are 0, as `metrics.excess.excess` does.

    Of shape (..., n_weightings), from values of shape (..., n) and weights of shape (n_weightings, n).

    Examples
    --------
    >>> values, control = np.array([1.0, 2.0, 3.0]), np.array([-1.0, 0.0, 2.0])
    >>> [round(mean, 4) for mean in adjusted_mean(values, np.ones((1, 3)), control).tolist()]
    [1.7857]
    """
    xp = namespace(values)
    if not weights.shape[-1]:
        return values @ weights.T + xp.nan
    shares = weights / weights.sum(-1)[:, None]
    if not controls:
        return values @ shares.T
    regressors = xp.stack([xp.ones_like(values), *controls], axis=-2)[..., None, :, :]
    weighted = regressors * shares[:, None, :]
    design = weighted @ xp.matrix_transpose(regressors)
    product = weighted @ values[..., None, :, None]
    return (xp.linalg.pinv(design, hermitian=True) @ product)[..., 0, 0]


def fold_outcome(fold: ComparedFold, score: NDArray[np.floating], decision: Ints, weight: Floats) -> dict[str, float]:
    """Metrics of utility and outcome on a fold's test people, from the score, decision and weight of each.

    There is no profit unless the settings say what decisions are worth.
    """
    y, names, payoff = fold.y_test, fold.people.groups.names, fold.settings.payoff
    rows = RowWeights(np.ones(len(y), dtype=np.int64), weight, weight**2)
    outcomes = group_outcomes(y, decision, score, fold.group_test, names, rows)
    metrics = outcome_metrics(y, decision, score, outcomes, rows)
    rates = [outcome.positive_rate for outcome in outcomes]
    return {
        **{name: metrics[name].value for name in ("auc", "f1", "eo_gap", "sp_gap", "positive_rate")},
        "ks": ks_distance(score, weight * (y == 1), weight * (y == 0)),
        "air": min(rates) / max(rates) if max(rates) > 0 else float("nan"),
        **({} if payoff is None else {"profit": payoff.profit(y, decision, weight)}),
        **{f"approval_rate[{outcome.group}]": outcome.positive_rate for outcome in outcomes},
    }


def column_effects(
    model: AuditedModel, train: pd.DataFrame, test: pd.DataFrame, column: str, weights: Floats
) -> dict[str, Array]:
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
    each = weights[:, rows]
    each = (each / each.sum(1, keepdims=True)).T
    steps = np.diff(np.stack(scores), axis=0)
    effects = {
        "effect": steps.sum(0),
        "falls": (steps < -_ROUNDING).mean(0) if len(steps) else np.zeros_like(scores[0]),
        "rises": (steps > _ROUNDING).mean(0) if len(steps) else np.zeros_like(scores[0]),
    }
    return {f"{name}[{column}]": effects[name] @ each for name in EFFECTS}


def _scores(model: AuditedModel, people: pd.DataFrame) -> Floats:
    x = model.encode(people)
    # Score a stack the way it is explained: `margin` takes one model.
    is_network = isinstance(model, DifferentiableModel)
    return as_numpy(double(model.attribute(x, x, 1, "midpoint").logit if is_network else model.margin(x)))
