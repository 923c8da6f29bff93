"""How well each feature alone, and all of them together, predict group membership.

A feature that predicts the group can stand in for it. The screen says how well it could, but not whether the model
uses it in that way or whether there are good reasons to.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from scipy import special
from scipy.stats import rankdata
from sklearn.ensemble import HistGradientBoostingClassifier
from threadpoolctl import threadpool_limits  # comes with scikit-learn

from evenhand.arrays import Bools, Floats, Ints
from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.inputs.validation import in_row_order, is_number_column
from evenhand.metrics.estimate import Estimate, Plain, check_at_least, check_open_fraction, group_codes, normal_quantile
from evenhand.metrics.outcomes import auc, hanley_mcneil

PERFECT_PROXY = 0.9
"""A feature with a larger area under the ROC curve nearly identifies the group."""

# A value seen on few people is uncertain: this many pseudo-people with the overall shares are added to each value.
_PRIOR_PEOPLE = 10.0
# The largest number of values of a category in scikit-learn's boosted trees; rarer ones are combined.
_MOST_CATEGORIES = 250


@dataclass(frozen=True)
class ProxyStrength(Plain):
    """How well a feature, or all features, predict the group.

    Attributes
    ----------
    feature
        Name of the column, or "all features".
    auc
        Area under the ROC curve of the group that is predicted best against everyone else: 0.5 is chance, 1 is perfect.
    low, high
        Its interval with Hanley and McNeil's standard error, widened if the prediction was learned from other folds.
    auc_by_group
        The area for each group; NaN for a group too small to hold people out.
    n_values
        Number of distinct values, not counting missing ones; for all features, the number of columns.
    n_missing
        People without a value; they count as a separate value.
    kind
        "number", "category" or "all".
    """

    feature: str
    kind: Literal["number", "category", "all"]
    auc: float
    low: float
    high: float
    auc_by_group: dict[str, float]
    n_values: int
    n_missing: int
    note: str = ""


@dataclass(frozen=True)
class ProxyScreen(Plain):
    """Features from the strongest to the weakest proxy, and all of them together."""

    features: tuple[ProxyStrength, ...]
    all_features: ProxyStrength
    n_people: int
    n_people_used: int
    n_folds: int
    confidence: float
    random_state: int
    note: str = ""


def proxy_screen(
    X: pd.DataFrame,
    group: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    n_folds: int = 5,
    max_people: int = 20_000,
    n_trees: int = 50,
    confidence: float = 0.95,
    random_state: int = 0,
) -> ProxyScreen:
    """How well each feature alone, and all features together, predict the group.

    Alone, a number (or a category of two values) predicts by its rank, in the better direction. A category predicts by
    the share of each group among the other folds' people with the same value. So does a number, split at about n^(1/3)
    quantiles, if its relation to the group is clearly not linear and this predicts better. Together, the features
    predict through gradient-boosted trees. Areas of learned predictions are computed within each fold and averaged,
    because predictions from different folds are not comparable.

    Parameters
    ----------
    X
        One row per person; columns of numbers or categories, missing values allowed.
    group
        Integer codes of shape (n,).
    names
        A name for each code; by default the codes themselves.
    max_people
        At most this many people, drawn at random, are used; the result says how many were.
    n_trees
        Rounds of boosting for all features together.

    Raises
    ------
    InvalidTypeError
        If `X` is not a pandas table.
    InvalidInputError
        If an argument is invalid, or fewer than two groups are large enough to hold people out.

    Examples
    --------
    >>> import pandas as pd
    >>> sex = np.tile([0, 1], 100)
    >>> X = pd.DataFrame({"title": np.where(sex == 1, "Mrs", "Mr"), "day": np.repeat(np.arange(100), 2)})
    >>> screen = proxy_screen(X, sex, names=["m", "f"], n_trees=10)
    >>> [(row.feature, row.auc) for row in screen.features]
    [('title', 1.0), ('day', 0.5)]
    """
    setting = _Setting.of(X, group, names, n_folds, max_people, confidence, random_state)
    check_at_least(n_trees, 1, "n_trees")
    n_used, small = len(setting.table), [n for code, n in enumerate(setting.names) if code not in setting.judged]
    notes = [
        f"{n_used} of {len(X)} people, drawn at random" if n_used < len(X) else "",
        f"not judged, fewer than {2 * n_folds} people: {', '.join(small)}" if small else "",
    ]
    return ProxyScreen(
        features=_strengths(setting),
        all_features=_joint_strength(setting, n_trees, random_state),
        n_people=len(X),
        n_people_used=n_used,
        n_folds=n_folds,
        confidence=confidence,
        random_state=random_state,
        note="; ".join(note for note in notes if note),
    )


def feature_strengths(
    X: pd.DataFrame,
    group: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    n_folds: int = 5,
    max_people: int = 20_000,
) -> tuple[ProxyStrength, ...]:
    """How well each feature alone predicts the group, strongest first: `proxy_screen` without the trees.

    Examples
    --------
    >>> label = np.tile([0, 1], 100)
    >>> [row.auc for row in feature_strengths(pd.DataFrame({"fee": label * 9}), label)]
    [1.0]
    """
    return _strengths(_Setting.of(X, group, names, n_folds, max_people, confidence=0.95, random_state=0))


def _strengths(setting: _Setting) -> tuple[ProxyStrength, ...]:
    rows = [_feature_strength(setting.table[column], setting) for column in setting.table.columns]
    return tuple(sorted(rows, key=lambda row: -row.auc))


@dataclass(frozen=True)
class _Setting:
    """The people who are used, the groups that are predicted, and how people are held out."""

    table: pd.DataFrame
    codes: Ints
    names: tuple[str, ...]
    judged: Ints
    fold: Ints
    n_folds: int
    confidence: float

    @classmethod
    def of(
        cls,
        X: pd.DataFrame,
        group: ArrayLike,
        names: Sequence[str] | None,
        n_folds: int,
        max_people: int,
        confidence: float,
        random_state: int,
    ) -> _Setting:
        if not isinstance(X, pd.DataFrame):
            raise InvalidTypeError(
                f"`X` must be a pandas table, got {type(X).__name__}; convert it first, for example with "
                "`evenhand.inputs.validation.as_table`."
            )
        if X.shape[1] == 0:
            raise InvalidInputError("`X` must have at least one column, got none.")
        codes, readable = group_codes(in_row_order(group, X, "group"), len(X), names)
        check_at_least(n_folds, 2, "n_folds", "to hold people out")
        check_at_least(max_people, 100, "max_people")
        check_open_fraction(confidence, "confidence")
        rng = np.random.default_rng(random_state)
        chosen = np.sort(rng.permutation(len(codes))[:max_people])
        table, codes = X.iloc[chosen], codes[chosen]
        counts = np.bincount(codes, minlength=len(readable))
        # Two in each fold, so that each fold's area is based on more than one person.
        judged = np.flatnonzero(counts >= 2 * n_folds)
        if len(judged) < 2:
            sizes = dict(zip(readable, counts.tolist(), strict=True))
            raise InvalidInputError(
                f"At least two groups of {2 * n_folds} people are needed for {n_folds} folds, got {sizes}; "
                "use fewer folds, or combine groups."
            )
        # Every group is distributed evenly over the folds, in random order.
        fold = np.empty(len(codes), dtype=np.int64)
        fold[np.lexsort((rng.random(len(codes)), codes))] = np.arange(len(codes)) % n_folds
        return cls(table, codes, readable, judged, fold, n_folds, confidence)


def predicted_group(auc_by_group: Mapping[str, float | None]) -> str:
    """The group that is predicted best, in words; with two groups, predicting either is the same.

    Examples
    --------
    >>> predicted_group({"a": 0.6, "b": 0.95, "c": 0.7}), predicted_group({"a": 0.95, "b": 0.95})
    ('b', 'the group')
    """
    areas = {name: area for name, area in auc_by_group.items() if area is not None and not math.isnan(area)}
    return max(areas, key=lambda name: areas[name]) if areas and len(auc_by_group) > 2 else "the group"


# --- one feature ---


def _feature_strength(column: pd.Series[Any], setting: _Setting) -> ProxyStrength:
    codes, ordered = _as_values(column)
    facts = {
        "feature": str(column.name),
        "kind": "number" if is_number_column(column) else "category",
        "n_values": int(column.nunique()),
        "n_missing": int(column.isna().sum()),
    }
    if len(np.unique(codes)) == 1:
        areas = [Estimate(0.5, 0.5, 0.5)] * len(setting.judged)
        return _strength(facts, areas, setting, "constant: it carries no information about the group")
    shares = _out_of_fold_shares(codes, setting)
    # With two groups, each against the rest is the same question.
    asked = setting.judged[:1] if len(setting.names) == 2 else setting.judged
    areas = []
    for code in asked:
        # By rank if the column has an order; by learned shares if it has none, or if they predict better.
        is_member = setting.codes == code
        ways = [] if ordered is None else [_rank_area(is_member, ordered, setting)]
        if ordered is None or _departs_from_trend(codes, ordered, is_member):
            ways.append(_learned_area(is_member, shares[:, code], setting))
        areas.append(max(ways, key=lambda area: area.value))
    return _strength(facts, areas * (len(setting.judged) // len(asked)), setting)


def _as_values(column: pd.Series[Any]) -> tuple[Ints, Floats | None]:
    """A column as codes (missing is a separate value) and, if it has an order, as numbers."""
    if not is_number_column(column):
        codes, _ = pd.factorize(column.astype(str).where(column.notna()), sort=True)
        return codes.astype(np.int64) + 1, codes.astype(np.float64) if len(np.unique(codes)) == 2 else None
    numbers = column.to_numpy(dtype=np.float64, na_value=np.nan)
    is_missing = np.isnan(numbers)
    present = np.sort(numbers[~is_missing])
    n_bins = int(np.ceil(len(numbers) ** (1 / 3)))
    edges, counts = np.unique(present, return_counts=True)
    if len(edges) > n_bins:
        # A number at a cut belongs above it. A value more frequent than a bin is one by itself: it has a cut after it.
        after_frequent = edges[1:][counts[:-1] > len(present) / n_bins]
        edges = np.union1d(present[(np.arange(1, n_bins) * len(present)) // n_bins], after_frequent)
    bins = np.where(is_missing, 0, np.searchsorted(edges, numbers, side="right") + 1)
    middle = present[len(present) // 2] if len(present) else 0.0
    return bins.astype(np.int64), np.where(is_missing, middle, numbers)


def _departs_from_trend(codes: Ints, ordered: Floats, is_member: Bools) -> bool:
    """Whether shares by bin differ by more than a linear trend in the ranks explains, at the level 0.001."""
    # Bins without people are left out.
    _, codes, people = np.unique(codes, return_inverse=True, return_counts=True)
    if len(people) < 3:
        return False
    members = np.bincount(codes, weights=is_member)
    middle = np.bincount(codes, weights=rankdata(ordered)) / people
    overall = members.sum() / people.sum()
    apart = members - people * overall
    centered = middle - (people @ middle) / people.sum()
    spread = float(people @ centered**2)
    total = float((apart**2 / people).sum())
    trend = float(centered @ apart) ** 2 / spread if spread else 0.0
    residual = (total - trend) / (overall * (1 - overall))
    return bool(residual > special.chdtri(len(people) - 2, 0.001))


def _out_of_fold_shares(values: Ints, setting: _Setting) -> Floats:
    """Share of each group among the other folds' people with the same value, of shape (n, G)."""
    n_values, n_groups = int(values.max()) + 1, len(setting.names)
    cell = (setting.fold * n_values + values) * n_groups + setting.codes
    counts = np.bincount(cell, minlength=setting.n_folds * n_values * n_groups).reshape(-1, n_values, n_groups)
    others = counts.sum(axis=0)[None] - counts
    totals = others.sum(axis=1, keepdims=True)
    prior = _PRIOR_PEOPLE * totals / totals.sum(axis=2, keepdims=True)
    shares = (others + prior) / (others.sum(axis=2, keepdims=True) + _PRIOR_PEOPLE)
    return np.asarray(shares[setting.fold, values], dtype=np.float64)


# --- all features ---


def _joint_strength(setting: _Setting, n_trees: int, random_state: int) -> ProxyStrength:
    """Boosted trees over all columns, cross-validated on the same folds."""
    table = setting.table
    matrix, is_category = _tree_matrix(table)
    shares = np.zeros((len(matrix), len(setting.names)))
    # Trees this small gain nothing from threads, and threads waiting for a busy core are costly.
    with threadpool_limits(limits=1):
        for fold in range(setting.n_folds):
            held_out = setting.fold == fold
            # The trees reject a column without values; with no column left, everyone is tied.
            has_values = ~np.isnan(matrix[~held_out]).all(axis=0)
            if not has_values.any():
                continue
            trees = HistGradientBoostingClassifier(
                max_iter=n_trees,
                learning_rate=0.2,
                max_leaf_nodes=15,
                min_samples_leaf=10,
                early_stopping=False,
                categorical_features=is_category[has_values],
                random_state=random_state,
            )
            trees.fit(matrix[np.ix_(~held_out, has_values)], setting.codes[~held_out])
            shares[np.ix_(held_out, trees.classes_)] = trees.predict_proba(matrix[np.ix_(held_out, has_values)])
    n_missing = int(table.isna().any(axis=1).sum())
    facts = {"feature": "all features", "kind": "all", "n_values": table.shape[1], "n_missing": n_missing}
    areas = [_learned_area(setting.codes == code, shares[:, code], setting) for code in setting.judged]
    return _strength(facts, areas, setting)


def _tree_matrix(table: pd.DataFrame) -> tuple[Floats, Bools]:
    """Numbers unchanged, categories as codes from the most common; NaN is missing."""
    columns = []
    is_category = np.asarray([not is_number_column(table[column]) for column in table.columns])
    for column, category in zip(table.columns, is_category, strict=True):
        if not category:
            numbers = table[column].to_numpy(dtype=np.float64, na_value=np.nan)
            # Trees only see the order, and reject what float32 cannot hold.
            columns.append(np.clip(numbers, -1e30, 1e30))
            continue
        codes, _ = pd.factorize(table[column].astype(str).where(table[column].notna()), sort=True)
        sizes = np.bincount(codes[codes >= 0], minlength=1)
        rank = np.empty(len(sizes), dtype=np.int64)
        rank[np.argsort(-sizes, kind="stable")] = np.arange(len(sizes))
        ranked = np.minimum(rank[codes], _MOST_CATEGORIES - 1).astype(np.float64)
        columns.append(np.where(codes < 0, np.nan, ranked))
    return np.column_stack(columns), is_category


# --- areas ---


def _strength(facts: dict[str, Any], areas: Sequence[Estimate], setting: _Setting, note: str = "") -> ProxyStrength:
    by_group = dict.fromkeys(setting.names, math.nan)
    by_group |= {setting.names[code]: area.value for code, area in zip(setting.judged, areas, strict=True)}
    largest = max(area.value for area in areas)
    # Of two groups, either against the other is the same area, with two intervals.
    best = [area for area in areas if math.isclose(area.value, largest)]
    low, high = np.mean([(area.low, area.high) for area in best], axis=0).tolist()
    if largest >= 1:
        low, high, note = math.nan, math.nan, "no interval: the groups are separated without overlap"
    return ProxyStrength(auc=largest, low=low, high=high, auc_by_group=by_group, note=note, **facts)


def _area(value: float, is_member: Bools, least: float, setting: _Setting, inflation: float = 1.0) -> Estimate:
    n_members = int(is_member.sum())
    error = inflation * hanley_mcneil(value, n_members, len(is_member) - n_members)
    half = normal_quantile(setting.confidence) * error
    return Estimate(value, max(least, value - half), min(1.0, value + half))


def _rank_area(is_member: Bools, numbers: Floats, setting: _Setting) -> Estimate:
    """Area by rank in the direction in which it is above one half; only that direction is learned."""
    area = auc(is_member.astype(np.int64), numbers)
    return _area(max(area, 1 - area), is_member, 0.5, setting)


def _learned_area(is_member: Bools, share: Floats, setting: _Setting) -> Estimate:
    """Mean over folds of the area of shares learned on the other folds."""
    # Rounded, so that shares that differ only in the order of additions stay tied.
    labels, rounded = is_member.astype(np.int64), np.round(share, 12)
    folds = [setting.fold == fold for fold in range(setting.n_folds)]
    area = float(np.mean([auc(labels[members], rounded[members]) for members in folds]))
    # Nadeau and Bengio's (2003) allowance for training folds that overlap.
    inflation = math.sqrt(1 + setting.n_folds / (setting.n_folds - 1))
    return _area(area, is_member, 0.0, setting, inflation)
