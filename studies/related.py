"""Related measures of whether a model explains its decisions alike across groups, with a common signature.

They answer different questions from the CEC score and from each other; side by side they show where the answers agree.
Each follows its published definition. With more than two groups, every pair of groups is compared and the least
similar pair is reported, with p-values multiplied by the number of pairs (Bonferroni).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist
from scipy.stats import mannwhitneyu
from sklearn.base import clone
from sklearn.ensemble import HistGradientBoostingClassifier

from evenhand.arrays import Floats, Ints
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.encoding import TableEncoder
from evenhand.metrics.estimate import Plain, check_at_least, check_open_fraction, group_codes, p_two_sided
from evenhand.metrics.outcomes import auc
from evenhand.models.dispatch import as_audited_model
from evenhand.models.explaining import Explainer

HIGHER_IS_MORE_ALIKE = "higher is more alike"
LOWER_IS_MORE_ALIKE = "lower is more alike"

# A smaller group is not informative.
_LEAST_PEOPLE = 10
_NAN = float("nan")


@dataclass(frozen=True)
class ProceduralMetric(Plain):
    """One measure of how alike groups are explained.

    Attributes
    ----------
    value
        The measure; NaN with the reason in `note` if it cannot be estimated.
    p_value
        For groups that are explained alike; None if the definition has no test.
    direction
        "higher is more alike" or "lower is more alike".
    groups
        The two groups of the value: the least similar pair.
    """

    name: str
    value: float
    p_value: float | None
    direction: str
    groups: tuple[str, str] | None = None
    note: str = ""


@dataclass(frozen=True)
class Compared:
    """A measure of two groups, and its p-value if there is a test."""

    value: float
    p_value: float | None


@dataclass(frozen=True)
class ExplainedPeople:
    """Checked arrays, one row per person."""

    attributions: Floats
    scores: Floats | None
    labels: Ints | None
    codes: Ints
    names: tuple[str, ...]


def least_alike(
    name: str, people: ExplainedPeople, contrast: Callable[[int, int], Compared], direction: str, note: str = ""
) -> ProceduralMetric:
    """The least similar pair of groups, with its p-value adjusted for the number of pairs."""
    sizes = np.bincount(people.codes, minlength=len(people.names))
    small = [group for group, size in zip(people.names, sizes, strict=True) if size < _LEAST_PEOPLE]
    judged = np.flatnonzero(sizes >= _LEAST_PEOPLE).tolist()
    left_out = f"not judged, fewer than {_LEAST_PEOPLE} people: {', '.join(small)}" if small else ""
    if len(judged) < 2:
        reason = f"not estimable: fewer than two groups of {_LEAST_PEOPLE} people; {left_out}"
        return ProceduralMetric(name, _NAN, None, direction, None, reason)
    pairs = list(combinations(judged, 2))
    found = [contrast(first, second) for first, second in pairs]
    sign = -1 if direction == HIGHER_IS_MORE_ALIKE else 1
    worst = int(np.argmax([sign * pair.value for pair in found]))
    p_value = found[worst].p_value
    first, second = pairs[worst]
    several = f"the least alike of {len(pairs)} pairs of groups" if len(pairs) > 1 else ""
    return ProceduralMetric(
        name=name,
        value=found[worst].value,
        p_value=None if p_value is None else min(1.0, p_value * len(pairs)),
        direction=direction,
        groups=(people.names[first], people.names[second]),
        note="; ".join(part for part in (several, left_out, note) if part),
    )


def explained_people(
    attributions: ArrayLike,
    scores: ArrayLike | None,
    labels: ArrayLike | None,
    group: ArrayLike,
    names: Sequence[str] | None,
) -> ExplainedPeople:
    """Check attributions, scores, labels and groups.

    Raises
    ------
    InvalidInputError
        If one of them is not one for each person, or has values that it cannot have.
    """
    values = np.asarray(attributions, dtype=np.float64)
    if values.ndim != 2 or values.size == 0:
        raise InvalidInputError(f"`attributions` must have shape (n, d), got {values.shape}.")
    if not np.isfinite(values).all():
        n_bad = int((~np.isfinite(values)).any(axis=1).sum())
        raise InvalidInputError(
            f"`attributions` must be finite, got {n_bad} people with missing or infinite values; drop those people."
        )
    n = len(values)
    codes, readable = group_codes(group, n, names)
    return ExplainedPeople(
        attributions=values,
        scores=None if scores is None else probabilities(scores, n, "`scores`"),
        labels=None if labels is None else _labels(labels, n),
        codes=codes,
        names=readable,
    )


def probabilities(scores: ArrayLike, n: int, what: str) -> Floats:
    """Check that there is a probability for each person; `what` names them in the error."""
    values = np.asarray(scores, dtype=np.float64)
    if values.shape != (n,):
        raise InvalidInputError(f"{what} must be one for each of {n} people, got shape {values.shape}.")
    if not ((values >= 0) & (values <= 1)).all():
        raise InvalidInputError(
            f"{what} must be probabilities in [0, 1], got values from {values.min():g} to {values.max():g}; "
            "convert them to probabilities first."
        )
    return values


def _labels(labels: ArrayLike, n: int) -> Ints:
    values = np.asarray(labels)
    if values.shape != (n,) or not np.isin(values, (0, 1)).all():
        raise InvalidInputError(f"`labels` must be 0 or 1 for each of {n} people, got shape {values.shape}.")
    return values.astype(np.int64)


def feature_matrix(X: ArrayLike | None, n: int, name: str) -> Floats:
    """Check the features that the measure `name` needs: a row for each person."""
    if X is None:
        raise InvalidInputError(f"`{name}` needs `X`, the features of each person, got None.")
    values = np.asarray(X, dtype=np.float64)
    if values.ndim != 2 or len(values) != n:
        raise InvalidInputError(f"`X` must have a row for each of {n} people, got shape {values.shape}.")
    if not np.isfinite(values).all():
        raise InvalidInputError("`X` must be finite, got missing or infinite values; fill them or drop those people.")
    return values


ScoreFunction = Callable[[Floats], ArrayLike]
"""Scores in [0, 1] of shape (n,) for a matrix of shape (n, d)."""

# Number of distances in memory.
_MOST_DISTANCES = 4_000_000


def gpf_fae(
    attributions: ArrayLike,
    scores: ArrayLike | None,
    labels: ArrayLike | None,
    group: ArrayLike,
    *,
    X: ArrayLike | None = None,
    score_function: ScoreFunction | None = None,
    names: Sequence[str] | None = None,
    random_state: int = 0,
    n_people: int = 100,
    n_permutations: int = 999,
) -> ProceduralMetric:
    r"""Group procedural fairness by feature attribution explanation: a p-value, near 1 if pairs are explained alike.

    `n_people` are drawn, half from each group, and each is paired with the nearest person of the other group in X. The
    attributions on the two sides are compared by the maximum mean discrepancy

    .. math:: w^\top K w, \quad K_{ij} = \exp(-\lVert e_i - e_j \rVert^2 / m)

    with w = 1/n on one side and -1/n on the other, and m the median squared distance across sides; the metric is the
    permutation p-value (Wang, Huang and Yao, arXiv 2404.01877). People are drawn at random, and X is standardized
    before distances are computed. Paired people are near each other, so the two sides are closer than two random
    samples: if the model explains both alike, the value is near 1 rather than uniform, and a small value is strong.

    Parameters
    ----------
    attributions
        Attributions of shape (n, d).
    scores, labels, score_function
        Not used; part of the common signature.
    X
        Features by which people are paired, of shape (n, k).
    n_people
        People drawn for each pair of groups; the cost grows with its square.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, group = rng.normal(size=(200, 2)), np.tile([0, 1], 100)
    >>> turned = X * np.where(group == 1, 1, -1)[:, None] + 1
    >>> gpf_fae(X * X, None, None, group, X=X).value > 0.05, gpf_fae(turned * X, None, None, group, X=X).value
    (True, 0.001)
    """
    people = explained_people(attributions, None, None, group, names)
    matrix = feature_matrix(X, len(people.attributions), "gpf_fae")
    if n_people < 20 or n_people % 2:
        raise InvalidInputError(f"`n_people` must be an even number of at least 20, got {n_people}.")
    check_at_least(n_permutations, 99, "n_permutations")
    spread = matrix.std(axis=0)
    standard = (matrix - matrix.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    rng = np.random.default_rng(random_state)

    def contrast(first: int, second: int) -> Compared:
        one, other = _joined_people(standard, people, first, second, n_people // 2, rng)
        p_value = _mmd_p_value(people.attributions[one], people.attributions[other], n_permutations, rng)
        return Compared(p_value, p_value)

    worst = least_alike("gpf_fae", people, contrast, HIGHER_IS_MORE_ALIKE)
    # The value is itself a p-value, so it needs the same adjustment.
    return worst if worst.p_value is None else replace(worst, value=worst.p_value)


def ref(
    attributions: ArrayLike,
    scores: ArrayLike | None,
    labels: ArrayLike | None,
    group: ArrayLike,
    *,
    X: ArrayLike | None = None,
    score_function: ScoreFunction | None = None,
    names: Sequence[str] | None = None,
    random_state: int = 0,
    top_k: int = 1,
    top_share: float = 0.2,
    mask_value: ArrayLike = 0.0,
) -> ProceduralMetric:
    """Ratio-based explanation fairness: 0 if groups are equally often among the best explained.

    The quality of a person's explanation is how much the model's confidence max(p, 1 - p) drops when the `top_k`
    features of largest absolute attribution are set to `mask_value`. The metric is the difference between groups in
    the share of people who are in the top `top_share` of everyone by quality (Zhao, Wang and Derr, AAAI 2023). People
    tied at the border share the remaining places. The p-value is for groups assigned at random.

    Parameters
    ----------
    scores
        Probabilities of shape (n,).
    labels, random_state
        Not used; part of the common signature.
    X
        Input of `score_function`, of shape (n, d), with columns in the order of `attributions`.
    score_function
        The model: scores of shape (n,) for a matrix of shape (n, d).
    mask_value
        A number, or one for each feature; 0 in the definition, which suits standardized features.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, group = rng.normal(size=(200, 2)), np.tile([0, 1], 100)
    >>> model = lambda X: 1 / (1 + np.exp(-X[:, 0]))
    >>> metric = ref(X * [1, 0], model(X), None, group, X=X, score_function=model)
    >>> metric.value < 0.2, metric.direction
    (True, 'lower is more alike')
    """
    people = explained_people(attributions, scores, None, group, names)
    quality, _ = _explanation_quality(people, X, score_function, top_k, mask_value, "ref")
    check_open_fraction(top_share, "top_share")
    inside = _top_weights(quality, top_share)

    def contrast(first: int, second: int) -> Compared:
        one, other = (inside[people.codes == code] for code in (first, second))
        difference = float(one.mean() - other.mean())
        both = np.concatenate([one, other])
        error = float(np.sqrt(both.var(ddof=1) * (1 / len(one) + 1 / len(other))))
        return Compared(abs(difference), p_two_sided(difference, error))

    return least_alike("ref", people, contrast, LOWER_IS_MORE_ALIKE)


def vef(
    attributions: ArrayLike,
    scores: ArrayLike | None,
    labels: ArrayLike | None,
    group: ArrayLike,
    *,
    X: ArrayLike | None = None,
    score_function: ScoreFunction | None = None,
    names: Sequence[str] | None = None,
    random_state: int = 0,
    top_k: int = 1,
    top_share: float = 0.2,
    mask_value: ArrayLike = 0.0,
    decision_threshold: float = 0.5,
) -> ProceduralMetric:
    """Value-based explanation fairness: 0 if masking costs the best explained of each group the same accuracy.

    In each group the `top_share` of people with the best explanations (see `ref`) are taken; the metric is the
    difference between groups in how much accuracy they lose when their `top_k` features are masked (Zhao, Wang and
    Derr, AAAI 2023). The definition has no test.

    Parameters
    ----------
    labels
        0 or 1, of shape (n,).
    scores, X, score_function, mask_value
        As in `ref`.
    random_state
        Not used; part of the common signature.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, group = rng.normal(size=(200, 2)), np.tile([0, 1], 100)
    >>> model = lambda X: 1 / (1 + np.exp(-X[:, 0] - 2))
    >>> y = (model(X) >= 0.5).astype(int)
    >>> vef(X * [1, 0], model(X), y, group, X=X, score_function=model).p_value is None
    True
    """
    if labels is None:
        raise InvalidInputError("`vef` needs `labels`, 0 or 1 for each person, got None.")
    people = explained_people(attributions, scores, labels, group, names)
    quality, masked = _explanation_quality(people, X, score_function, top_k, mask_value, "vef")
    check_open_fraction(top_share, "top_share")
    assert people.scores is not None  # checked with the quality
    assert people.labels is not None
    right = (people.scores >= decision_threshold) == people.labels
    right_masked = (masked >= decision_threshold) == people.labels
    lost = right.astype(np.float64) - right_masked

    def contrast(first: int, second: int) -> Compared:
        drops = []
        for code in (first, second):
            members = people.codes == code
            weights = _top_weights(quality[members], top_share)
            drops.append(float(weights @ lost[members]) / float(weights.sum()))
        return Compared(abs(drops[0] - drops[1]), None)

    return least_alike("vef", people, contrast, LOWER_IS_MORE_ALIKE)


def explanation_disparity_auc(
    attributions: ArrayLike,
    scores: ArrayLike | None,
    labels: ArrayLike | None,
    group: ArrayLike,
    *,
    X: ArrayLike | None = None,
    score_function: ScoreFunction | None = None,
    names: Sequence[str] | None = None,
    random_state: int = 0,
    inspector: Any = None,
    max_people: int = 20_000,
) -> ProceduralMetric:
    """Area under the ROC curve with which an inspector predicts the group from attributions alone; 0.5 is chance.

    The inspector learns the group from the attributions of one half of the people and is evaluated on the other half
    (Mougan et al., arXiv 2303.08040). The p-value is that of the one-sided rank test for an area of one half. If groups
    have different inputs, their attributions differ under any model that uses those inputs.

    Parameters
    ----------
    scores, labels, X, score_function
        Not used; part of the common signature.
    inspector
        A scikit-learn classifier with `predict_proba`; by default gradient-boosted trees.
    max_people
        At most this many people, drawn at random, are used.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> group = np.tile([0, 1], 200)
    >>> attributions = rng.normal(size=(400, 3)) + 3 * group[:, None]
    >>> explanation_disparity_auc(attributions, None, None, group).value > 0.95
    True
    """
    people = explained_people(attributions, None, None, group, names)
    check_at_least(max_people, 100, "max_people")
    rng = np.random.default_rng(random_state)
    chosen = np.sort(rng.permutation(len(people.codes))[:max_people])
    values, codes = people.attributions[chosen], people.codes[chosen]
    # Every second person of each group, in random order.
    order = np.lexsort((rng.random(len(codes)), codes))
    held_out = np.empty(len(codes), dtype=bool)
    held_out[order] = np.arange(len(codes)) % 2 == 1
    learner = (
        clone(inspector)
        if inspector is not None
        else HistGradientBoostingClassifier(
            max_iter=50, max_leaf_nodes=15, early_stopping=False, random_state=random_state
        )
    )
    learner.fit(values[~held_out], codes[~held_out])
    shares = np.full((len(codes), len(people.names)), 1e-300)
    shares[:, learner.classes_] = np.maximum(learner.predict_proba(values), 1e-300)

    def contrast(first: int, second: int) -> Compared:
        judged = held_out & np.isin(codes, (first, second))
        is_second = codes[judged] == second
        leaning = np.log(shares[judged, second]) - np.log(shares[judged, first])
        p_value = mannwhitneyu(leaning[is_second], leaning[~is_second], alternative="greater", method="asymptotic")
        return Compared(auc(is_second.astype(np.int64), leaning), float(p_value.pvalue))

    sampled = ExplainedPeople(values, None, None, codes, people.names)
    note = f"{len(codes)} of {len(people.codes)} people, drawn at random" if len(codes) < len(people.codes) else ""
    return least_alike("explanation_disparity_auc", sampled, contrast, LOWER_IS_MORE_ALIKE, note)


def procedural_metrics(
    attributions: ArrayLike,
    scores: ArrayLike | None,
    labels: ArrayLike | None,
    group: ArrayLike,
    *,
    X: ArrayLike | None = None,
    score_function: ScoreFunction | None = None,
    names: Sequence[str] | None = None,
    random_state: int = 0,
) -> list[ProceduralMetric]:
    """All the measures with their defaults, in one table; one that lacks an input is NaN with the reason.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X, group = rng.normal(size=(200, 2)), np.tile([0, 1], 100)
    >>> rows = procedural_metrics(X, np.full(200, 0.5), np.tile([0, 1], 100), group, X=X)
    >>> [row.name for row in rows], rows[1].note
    (['gpf_fae', 'ref', 'vef', 'explanation_disparity_auc'], 'not estimable: needs `score_function`')
    """
    masking: dict[str, object] = {"scores": scores, "X": X, "score_function": score_function}
    table: list[tuple[Callable[..., ProceduralMetric], str, dict[str, object]]] = [
        (gpf_fae, HIGHER_IS_MORE_ALIKE, {"X": X}),
        (ref, LOWER_IS_MORE_ALIKE, masking),
        (vef, LOWER_IS_MORE_ALIKE, {"labels": labels, **masking}),
        (explanation_disparity_auc, LOWER_IS_MORE_ALIKE, {}),
    ]
    rows = []
    for metric, direction, needed in table:
        lacking = [f"`{name}`" for name, given in needed.items() if given is None]
        if lacking:
            note = f"not estimable: needs {' and '.join(lacking)}"
            rows.append(ProceduralMetric(metric.__name__, float("nan"), None, direction, None, note))
            continue
        rows.append(
            metric(
                attributions,
                scores,
                labels,
                group,
                X=X,
                score_function=score_function,
                names=names,
                random_state=random_state,
            )
        )
    return rows


def related_metrics(
    model: Any,
    X: pd.DataFrame,
    y: ArrayLike,
    group: ArrayLike,
    score_function: ScoreFunction | None = None,
    *,
    random_state: int = 0,
) -> pd.DataFrame:
    """All the measures for a model that `evenhand.audit` accepts, a row each.

    They compare the explanations of different people, so people are explained from the mean of their label. From the
    mean of their group, as in an audit, the explanations would reveal the group.

    Parameters
    ----------
    model, X, y, group
        The model, people, labels (1 for the favorable outcome), and the group of each person.
    score_function
        Scores a numeric table; needed by `ref` and `vef`, which blank out features. Only for tables of numbers.

    Examples
    --------
    >>> import evenhand as eh
    >>> planted = eh.make_planted_bias(400, strength=1.0)
    >>> table = related_metrics(planted.model, planted.dataset.X, planted.dataset.y, planted.dataset.group)
    >>> bool(table.set_index("name").loc["gpf_fae", "p_value"] < 0.05)
    True
    """
    labels, groups = np.asarray(y, dtype=np.int64), np.asarray(group)
    names, codes = np.unique(groups.astype(str), return_inverse=True)
    audited = as_audited_model(model, table=X)
    x, join = audited.encode(X), audited.join_matrix()
    explained = Explainer.of(audited, x, labels, np.zeros_like(labels)).explain(x, labels).values
    if score_function is None:
        numbers, scores = TableEncoder.fit(X).transform(X).astype(np.float64), None
    else:
        numbers = X.to_numpy(dtype=np.float64)
        scores = score_function(numbers)
    rows = procedural_metrics(
        (explained if join is None else explained @ join).astype(np.float64),
        scores,
        labels,
        codes,
        X=numbers,
        score_function=score_function,
        names=names.tolist(),
        random_state=random_state,
    )
    return pd.DataFrame([asdict(row) for row in rows])


# --- two-sample test ---


def _joined_people(
    X: Floats, people: ExplainedPeople, first: int, second: int, n_each: int, rng: np.random.Generator
) -> tuple[Ints, Ints]:
    """Rows on each side: people drawn from each group, and for each the nearest of the other group."""
    rows = [np.flatnonzero(people.codes == code) for code in (first, second)]
    drawn = [rng.permutation(members)[:n_each] for members in rows]
    nearest = [rows[1 - side][_nearest(X[drawn[side]], X[rows[1 - side]])] for side in (0, 1)]
    return np.concatenate([drawn[0], nearest[1]]), np.concatenate([nearest[0], drawn[1]])


def _nearest(wanted: Floats, pool: Floats) -> Ints:
    """Row of `pool` nearest to each row of `wanted`; for few rows against many, where a tree does not pay off."""
    block = max(1, _MOST_DISTANCES // len(pool))
    parts = [cdist(wanted[start : start + block], pool).argmin(axis=1) for start in range(0, len(wanted), block)]
    return np.concatenate(parts).astype(np.int64)


def _mmd_p_value(first: Floats, second: Floats, n_permutations: int, rng: np.random.Generator) -> float:
    """Permutation p-value of the squared maximum mean discrepancy with a Gaussian kernel."""
    pooled = np.concatenate([first, second])
    squared = cdist(pooled, pooled, "sqeuclidean")
    width = float(np.median(squared[: len(first), len(first) :]))
    if width == 0:
        width = float(squared.max()) or 1.0
    kernel = np.exp(-squared / width)
    weights = np.concatenate([np.full(len(first), 1 / len(first)), np.full(len(second), -1 / len(second))])
    observed = float(weights @ kernel @ weights)
    permuted = rng.permuted(np.tile(weights, (n_permutations, 1)), axis=1)
    null = ((permuted @ kernel) * permuted).sum(axis=1)
    # Equal up to rounding counts as at least as large.
    return float(1 + (null >= observed - 1e-12).sum()) / (n_permutations + 1)


# --- masking ---


def _explanation_quality(
    people: ExplainedPeople,
    X: ArrayLike | None,
    score_function: ScoreFunction | None,
    top_k: int,
    mask_value: ArrayLike,
    name: str,
) -> tuple[Floats, Floats]:
    """Drop in confidence when the features of largest attribution are masked, and the masked scores."""
    n, n_features = people.attributions.shape
    matrix = feature_matrix(X, n, name)
    if score_function is None:
        raise InvalidInputError(
            f"`{name}` needs `score_function`, the model as a function that maps a matrix to scores, got None."
        )
    if people.scores is None:
        raise InvalidInputError(f"`{name}` needs `scores`, a probability for each person, got None.")
    if matrix.shape[1] != n_features:
        raise InvalidInputError(
            f"`X` must have a column for each of {n_features} attributions, got {matrix.shape[1]} columns."
        )
    if not 1 <= top_k <= n_features:
        raise InvalidInputError(f"`top_k` must be from 1 to the {n_features} features, got {top_k}.")
    fill = np.asarray(mask_value, dtype=np.float64)
    if fill.shape not in ((), (n_features,)):
        raise InvalidInputError(
            f"`mask_value` must be a number or one for each of {n_features} features, got shape {fill.shape}."
        )
    # Stable, so that features with equal attributions are masked in column order.
    top = np.argsort(-np.abs(people.attributions), axis=1, kind="stable")[:, :top_k]
    hidden = np.zeros((n, n_features), dtype=bool)
    np.put_along_axis(hidden, top, True, axis=1)
    masked = probabilities(score_function(np.where(hidden, fill, matrix)), n, "`score_function`'s scores")
    return _confidence(people.scores) - _confidence(masked), masked


def _confidence(scores: Floats) -> Floats:
    return np.maximum(scores, 1 - scores)


def _top_weights(quality: Floats, share: float) -> Floats:
    """1 for people above the border of the top share, and an equal part of the remaining places for those at it."""
    n_places = int(np.ceil(share * len(quality) - 1e-9))
    border = np.partition(quality, len(quality) - n_places)[len(quality) - n_places]
    # Equal up to rounding is a tie.
    is_above = quality > border + 1e-12
    at_border = ~is_above & (quality >= border - 1e-12)
    return np.where(is_above, 1.0, at_border * (n_places - is_above.sum()) / at_border.sum())
