"""How good a matching is: who was matched, how closely, to how few people, and how alike the groups became."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from evenhand.exceptions import InvalidInputError
from evenhand.matching.pairs import Pairs

__all__ = ["Coverage", "FeatureBalance", "MatchDiagnostics", "MatchReuse", "match_diagnostics"]

Floats: TypeAlias = NDArray[np.float64]

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)


@dataclass(frozen=True)
class Coverage:
    """How many people of one group have a match in another.

    Attributes
    ----------
    group, other_group
        Names of the group matched and of the group matched in.
    n_pairs, n_matched
        Rows, and rows with a match.
    coverage
        Their ratio; NaN if the group has no one.
    """

    group: Any
    other_group: Any
    n_pairs: int
    n_matched: int
    coverage: float


@dataclass(frozen=True)
class MatchReuse:
    """How often the same reference person serves as a match. Figures are NaN when there is no match at all.

    Attributes
    ----------
    n_distinct
        Number of reference people who are anyone's match.
    max, mean
        Most and average times that one of them is used.
    distinct_share
        `n_distinct` as a share of matched rows: 1 when no one is used twice.
    effective_n
        Kish's effective number of matches, (Σ w)² / Σ w² with w the times each is used.
    """

    n_distinct: int
    max: int
    mean: float
    distinct_share: float
    effective_n: float


@dataclass(frozen=True)
class FeatureBalance:
    """Standardised mean difference of one feature between a group and another, before and after matching.

    Attributes
    ----------
    feature
        The feature, or `feature=level`.
    group, other_group
        Names of the two groups.
    before
        Mean of the group's people minus mean of the other group's reference people, over the pooled standard
        deviation of the two, sqrt((s1² + s2²) / 2).
    after
        The same over matched people and their matches, a match counting as often as it is used, and over the
        same standard deviation, so that the two can be compared.
    """

    feature: str
    group: Any
    other_group: Any
    before: float
    after: float


@dataclass(frozen=True)
class MatchDiagnostics:
    """The quality of a matching.

    Attributes
    ----------
    n_persons, n_pairs, n_matched
        People, rows (people times other groups), and rows with a match.
    coverage
        `n_matched / n_pairs`.
    coverage_by_group
        The same for each group and other group.
    unmatched
        Rows without a match, by reason.
    distance_quantiles
        Quantiles of the distance of matched rows; NaN when there are none.
    twin_share
        Share of matched rows at distance 0.
    reuse
        How often matches are used again.
    balance
        A row for each feature coordinate, group and other group: what a Love plot shows.
    constant_features
        Features that count for nothing because everyone in the reference is alike on them.
    """

    n_persons: int
    n_pairs: int
    n_matched: int
    coverage: float
    coverage_by_group: tuple[Coverage, ...]
    unmatched: dict[str, int]
    distance_quantiles: dict[float, float]
    twin_share: float
    reuse: MatchReuse
    balance: tuple[FeatureBalance, ...]
    constant_features: tuple[str, ...]

    @property
    def worst_balance(self) -> float:
        """Largest absolute standardised mean difference after matching; NaN when none can be estimated."""
        known = [abs(row.after) for row in self.balance if np.isfinite(row.after)]
        return max(known, default=float("nan"))

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnostics as plain values for JSON: NaN becomes None, and a quantile's key its text."""
        plain = asdict(self)
        plain["distance_quantiles"] = {f"{q:g}": d for q, d in self.distance_quantiles.items()}
        plain["worst_balance"] = self.worst_balance
        return {key: _without_nan(value) for key, value in plain.items()}


def match_diagnostics(pairs: Pairs, F: object, F_ref: object = None) -> MatchDiagnostics:
    """Return the quality of a matching: coverage, distances, reuse of matches and balance of each feature.

    Parameters
    ----------
    pairs
        What `match_pairs` returned.
    F, F_ref
        The financial features it was given for the people and for the reference; `F_ref` is None when they were
        the same people.

    Raises
    ------
    InvalidInputError
        If `F` or `F_ref` has another number of people than were matched.

    Examples
    --------
    >>> from evenhand.matching import match_pairs
    >>> F = [[1.0], [2.0], [2.0], [9.0]]
    >>> quality = match_diagnostics(match_pairs(F, [1, 1, 1, 1], ["a", "a", "b", "b"]), F)
    >>> quality.coverage, quality.twin_share, quality.reuse.max
    (1.0, 0.5, 2)
    """
    points = _points(pairs, F, pairs.n_persons, "F")
    points_ref = points if F_ref is None else _points(pairs, F_ref, len(pairs.reference_group), "F_ref")
    if len(points_ref) != len(pairs.reference_group):
        raise InvalidInputError(
            f"`F_ref` is needed: the people were matched in a reference of {len(pairs.reference_group)} others."
        )
    matched = pairs.is_matched
    distance = pairs.distance[matched]
    return MatchDiagnostics(
        n_persons=pairs.n_persons,
        n_pairs=len(pairs),
        n_matched=int(matched.sum()),
        coverage=pairs.coverage,
        coverage_by_group=_coverage_by_group(pairs),
        unmatched=dict(pairs.unmatched),
        distance_quantiles=_quantiles(distance),
        twin_share=_mean(distance == 0),
        reuse=_reuse(pairs),
        balance=_balance(pairs, points, points_ref),
        constant_features=pairs.space.constant,
    )


def _points(pairs: Pairs, F: object, n: int, name: str) -> Floats:
    points = pairs.space.transform(F)
    if len(points) != n:
        raise InvalidInputError(f"`{name}` has {len(points)} rows, but {n} people were matched.")
    return points


def _directions(pairs: Pairs) -> list[tuple[int, int, NDArray[np.bool_]]]:
    """Return every group, other group and the rows of `pairs` between them."""
    n_groups = len(pairs.group_names)
    own = pairs.group[pairs.person]
    return [(a, b, (own == a) & (pairs.other_group == b)) for a in range(n_groups) for b in range(n_groups) if a != b]


def _coverage_by_group(pairs: Pairs) -> tuple[Coverage, ...]:
    names = pairs.group_names
    return tuple(
        Coverage(names[a], names[b], int(rows.sum()), int(pairs.is_matched[rows].sum()), _mean(pairs.is_matched[rows]))
        for a, b, rows in _directions(pairs)
    )


def _quantiles(distance: Floats) -> dict[float, float]:
    values = np.quantile(distance, QUANTILES) if len(distance) else np.full(len(QUANTILES), np.nan)
    return dict(zip(QUANTILES, values.tolist(), strict=True))


def _reuse(pairs: Pairs) -> MatchReuse:
    times = np.bincount(pairs.match[pairs.is_matched])
    times = times[times > 0]
    if not len(times):
        return MatchReuse(0, 0, float("nan"), float("nan"), float("nan"))
    total = int(times.sum())
    effective = total**2 / float((times.astype(float) ** 2).sum())
    return MatchReuse(len(times), int(times.max()), total / len(times), len(times) / total, effective)


def _balance(pairs: Pairs, points: Floats, points_ref: Floats) -> tuple[FeatureBalance, ...]:
    """Return the standardised mean differences of every coordinate in every direction."""
    rows = []
    for a, b, between in _directions(pairs):
        own, other = points[pairs.group == a], points_ref[pairs.reference_group == b]
        kept = between & pairs.is_matched
        pooled = np.sqrt((_variances(own) + _variances(other)) / 2)
        before = _standardised(_means(own) - _means(other), pooled)
        after = _standardised(_means(points[pairs.person[kept]]) - _means(points_ref[pairs.match[kept]]), pooled)
        names = pairs.group_names[a], pairs.group_names[b]
        coordinates = zip(pairs.space.coordinate_names, before.tolist(), after.tolist(), strict=True)
        rows += [FeatureBalance(feature, *names, *values) for feature, *values in coordinates]
    return tuple(rows)


def _standardised(difference: Floats, pooled: Floats) -> Floats:
    """Return difference / pooled: 0 where nothing differs, NaN where constants differ."""
    ratio = np.full(len(difference), np.nan)
    np.divide(difference, pooled, out=ratio, where=pooled > 0)
    return np.where(difference == 0, 0.0, ratio)


def _means(points: Floats) -> Floats:
    return points.mean(axis=0) if len(points) else np.full(points.shape[1], np.nan)


def _variances(points: Floats) -> Floats:
    return points.var(axis=0) if len(points) else np.full(points.shape[1], np.nan)


def _mean(flags: NDArray[np.bool_]) -> float:
    return float(flags.mean()) if len(flags) else float("nan")


def _without_nan(value: object) -> object:
    """Return nested plain values with None for NaN."""
    if isinstance(value, dict):
        return {key: _without_nan(v) for key, v in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(v) for v in value]
    return None if isinstance(value, float) and np.isnan(value) else value
