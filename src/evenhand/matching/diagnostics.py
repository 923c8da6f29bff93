"""The quality of a matching: who was matched, how closely, reuse of matches, and balance of the groups."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from itertools import permutations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.arrays import Floats, Sums
from evenhand.exceptions import InvalidInputError
from evenhand.matching.pairs import Pairs
from evenhand.matching.space import MatchingSpace
from evenhand.system.files import json_ready

QUANTILES = (0.0, 0.05, 0.25, 0.5, 0.75, 0.95, 1.0)

# Relative to a coordinate's size: smaller differences count as equal. A value of 1e20 leaves the others of its column
# only their first digits, and a ratio of last digits depends on the order of summation.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Coverage:
    """How many people of one group have a match in another group.

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
    """How often the same reference person is used as a match. Metrics are NaN if there are no matches.

    Attributes
    ----------
    n_distinct
        Number of reference people who are anyone's match.
    max, mean
        Largest and average number of times that one of them is used.
    distinct_share
        `n_distinct` as a share of matched rows: 1 if no one is used twice.
    effective_n
        Kish's effective number of matches, (Σ w)² / Σ w² with w the number of uses.
    """

    n_distinct: int
    max: int
    mean: float
    distinct_share: float
    effective_n: float


@dataclass(frozen=True)
class FeatureBalance:
    """Standardized mean difference of one feature between two groups, before and after matching.

    Attributes
    ----------
    feature
        The feature, or `feature=level`.
    group, other_group
        Names of the two groups.
    before
        Mean of the group's people minus mean of the other group's reference people, divided by the pooled standard
        deviation of the two, sqrt((s1² + s2²) / 2).
    after
        The same for matched people and their matches, with matches counted as often as they are used, and with the same
        standard deviation, so that the two can be compared.
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
        Quantiles of the distance of matched rows; NaN if there are none.
    twin_share
        Share of matched rows at distance 0.
    reuse
        How often matches are reused.
    balance
        One row per feature coordinate, group and other group: the content of a Love plot.
    constant_features
        Features without effect because everyone in the reference has the same value.
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
        """Largest absolute standardized mean difference after matching; NaN if none can be estimated."""
        known = [abs(row.after) for row in self.balance if np.isfinite(row.after)]
        return max(known, default=float("nan"))

    def to_dict(self) -> dict[str, Any]:
        """Return the diagnostics as plain values for JSON: NaN becomes None, and the keys of quantiles become text."""
        plain = asdict(self)
        plain["distance_quantiles"] = {f"{q:g}": d for q, d in self.distance_quantiles.items()}
        plain["worst_balance"] = self.worst_balance
        ready: dict[str, Any] = json_ready(plain)
        return ready


def match_diagnostics(pairs: Pairs, F: object, F_ref: object = None) -> MatchDiagnostics:
    """Return the quality of a matching: coverage, distances, reuse of matches and balance of each feature.

    Parameters
    ----------
    pairs
        Output of `match_pairs`.
    F, F_ref
        The financial features of the people and of the reference; `F_ref` is None if they were the same people.

    Raises
    ------
    InvalidInputError
        If `F` or `F_ref` has a different number of people than were matched.

    Examples
    --------
    >>> from evenhand.matching.pairs import match_pairs
    >>> F = [[1.0], [2.0], [2.0], [9.0]]
    >>> quality = match_diagnostics(match_pairs(F, [1, 1, 1, 1], ["a", "a", "b", "b"]), F)
    >>> quality.coverage, quality.twin_share, quality.reuse.max
    (1.0, 0.5, 2)
    """
    points = _points(pairs, F, pairs.n_persons, "F")
    points_ref = points if F_ref is None else _points(pairs, F_ref, len(pairs.reference_group), "F_ref")
    if len(points_ref) != len(pairs.reference_group):
        raise InvalidInputError(
            f"`F_ref` is required: the people were matched in a reference of {len(pairs.reference_group)} others."
        )
    return MatchSums.of(pairs, points, points_ref).diagnostics(
        distance_quantiles(pairs.distance[pairs.is_matched]),
        points_ref,
        pairs.reference_group,
        pairs.group_names,
        pairs.space,
    )


@dataclass(frozen=True, eq=False)
class Moments:
    """Weight of rows, their mean and sum of squared deviations, of shape (n_coordinates,); parts can be joined.

    Both are NaN if there is no one.
    """

    n: float
    mean: Floats
    squares: Floats

    @classmethod
    def of(cls, points: Floats, weight: Floats | None = None) -> Moments:
        """The moments of rows of shape (n, n_coordinates), each of weight 1 unless given."""
        n = float(len(points) if weight is None else weight.sum())
        if not n:
            return cls(0, *np.full((2, points.shape[1]), np.nan))
        each = 1.0 if weight is None else weight[:, None]
        mean = (each * points).sum(axis=0) / n
        return cls(n, mean, (each * (points - mean) ** 2).sum(axis=0))

    def __add__(self, other: Moments) -> Moments:
        """Those of both together (Chan, Golub and LeVeque 1983)."""
        if not self.n or not other.n:
            return self if self.n else other
        n, apart = self.n + other.n, other.mean - self.mean
        squares = self.squares + other.squares + apart**2 * (self.n * other.n / n)
        return Moments(n, self.mean + apart * (other.n / n), squares)

    @property
    def variances(self) -> Floats:
        """The variance of each coordinate."""
        return self.squares / (self.n or 1)


@dataclass(frozen=True, eq=False)
class MatchSums(Sums):
    """The sums behind the quality of a matching; those of parts of the people can be added.

    Attributes
    ----------
    n_pairs, n_matched
        Rows, and rows with a match, from each group (row) to each other group (column).
    unmatched
        Rows without a match, by reason.
    n_twins
        Matches at distance 0.
    times_used
        How often each person of the reference is a match.
    own
        Coordinates of the people of each group.
    matched, matches
        Coordinates of matched people and of their matches, for each group and other group.
    """

    n_persons: int
    n_pairs: NDArray[np.int64]
    n_matched: NDArray[np.int64]
    unmatched: dict[str, int]
    n_twins: int
    times_used: NDArray[np.int64]
    own: tuple[Moments, ...]
    matched: dict[tuple[int, int], Moments]
    matches: dict[tuple[int, int], Moments]

    @classmethod
    def of(cls, pairs: Pairs, points: Floats, points_ref: Floats, weight: Floats | None = None) -> MatchSums:
        """Sums of a matching, from the coordinates of the people and of the reference.

        The means of people and of their matches are weighted by `weight`; numbers of pairs are not.
        """
        n_groups, matched = len(pairs.group_names), pairs.is_matched
        own = pairs.group[pairs.person]
        cell = own * n_groups + pairs.other_group
        shape = (n_groups, n_groups)
        between = {
            (a, b): np.flatnonzero((own == a) & (pairs.other_group == b) & matched)
            for a, b in permutations(range(n_groups), 2)
        }

        def moments(coordinates: Floats, people: NDArray[Any]) -> Moments:
            return Moments.of(coordinates, None if weight is None else weight[people])

        return cls(
            n_persons=pairs.n_persons,
            n_pairs=np.bincount(cell, minlength=n_groups**2).reshape(shape),
            n_matched=np.bincount(cell[matched], minlength=n_groups**2).reshape(shape),
            unmatched=dict(pairs.unmatched),
            n_twins=int((pairs.distance == 0).sum()),
            times_used=np.bincount(pairs.match[matched], minlength=len(points_ref)),
            own=tuple(moments(points[inside], inside) for inside in (pairs.group == code for code in range(n_groups))),
            matched={key: moments(points[pairs.person[rows]], pairs.person[rows]) for key, rows in between.items()},
            matches={key: moments(points_ref[pairs.match[rows]], pairs.person[rows]) for key, rows in between.items()},
        )

    def diagnostics(
        self,
        distance_quantiles: dict[float, float],
        points_ref: Floats,
        reference_group: NDArray[np.int64],
        names: tuple[Any, ...],
        space: MatchingSpace,
        weight_ref: Floats | None = None,
    ) -> MatchDiagnostics:
        """The quality of the matching, given what cannot be summed: quantiles, and the reference itself."""
        n_pairs, n_matched = int(self.n_pairs.sum()), int(self.n_matched.sum())
        members = [reference_group == code for code in range(len(names))]
        others = [Moments.of(points_ref[m], None if weight_ref is None else weight_ref[m]) for m in members]
        balance = []
        for a, b in self.matched:
            own, other = self.own[a], others[b]
            pooled = np.sqrt((own.variances + other.variances) / 2)
            rounding = _ROUNDING * np.maximum(np.abs(own.mean), np.abs(other.mean))
            before = _standardized(own.mean - other.mean, pooled, rounding)
            after = _standardized(self.matched[a, b].mean - self.matches[a, b].mean, pooled, rounding)
            coordinates = zip(space.coordinate_names, before.tolist(), after.tolist(), strict=True)
            balance += [FeatureBalance(feature, names[a], names[b], *values) for feature, *values in coordinates]
        return MatchDiagnostics(
            n_persons=self.n_persons,
            n_pairs=n_pairs,
            n_matched=n_matched,
            coverage=_share(n_matched, n_pairs),
            coverage_by_group=tuple(
                Coverage(names[a], names[b], n, m, _share(m, n))
                for a, b in self.matched
                for n, m in [(int(self.n_pairs[a, b]), int(self.n_matched[a, b]))]
            ),
            unmatched=dict(self.unmatched),
            distance_quantiles=distance_quantiles,
            twin_share=_share(self.n_twins, n_matched),
            reuse=_reuse(self.times_used),
            balance=tuple(balance),
            constant_features=space.constant,
        )


def _points(pairs: Pairs, F: object, n: int, name: str) -> Floats:
    points = pairs.space.transform(F)
    if len(points) != n:
        raise InvalidInputError(f"`{name}` has {len(points)} rows, but {n} people were matched.")
    return points


def distance_quantiles(distance: Floats) -> dict[float, float]:
    """Return the reported quantiles of distances; NaN if there are none."""
    values = np.quantile(distance, QUANTILES) if len(distance) else np.full(len(QUANTILES), np.nan)
    return dict(zip(QUANTILES, values.tolist(), strict=True))


def _reuse(times_used: NDArray[np.int64]) -> MatchReuse:
    times = times_used[times_used > 0]
    if not len(times):
        return MatchReuse(0, 0, float("nan"), float("nan"), float("nan"))
    total = int(times.sum())
    effective = total**2 / float((times.astype(float) ** 2).sum())
    return MatchReuse(len(times), int(times.max()), total / len(times), len(times) / total, effective)


def _standardized(difference: Floats, pooled: Floats, rounding: Floats) -> Floats:
    """Return difference / pooled: 0 if nothing differs, NaN if constants differ, up to rounding."""
    ratio = np.full(len(difference), np.nan)
    np.divide(difference, pooled, out=ratio, where=pooled > rounding)
    return np.where((np.abs(difference) <= rounding) & ~(pooled > rounding), 0.0, ratio)


def _share(part: int, whole: int) -> float:
    return part / whole if whole else float("nan")
