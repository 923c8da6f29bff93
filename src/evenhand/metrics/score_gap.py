r"""The score gap at equal finances: who is worse off, by how much, and through which inputs.

For a person i and a match j of the other group, let z be i with j's finances. What is averaged is
:math:`D = \phi(z) - \phi(j)`, both explained from i's baseline: a value for every feature, and their sum is
:math:`f(z) - f(j)`. The financial features of z and j are the same, but what goes with finances is not: D is regressed
on the sign s (+1 where i is of the group, -1 where i is of the reference group) and on differences :math:`h(i) - h(j)`
of functions of the finances, without an intercept, as exchanging i and j changes the sign of all of them. The
coefficient of s is the gap of the group minus the reference group at equal finances. Both groups weigh the same, and
within a group people do, or weigh what they are given as sampling weights.

A person may serve in many pairs. With :math:`S_v` the sum of the influences of all rows that contain person v, divided
by :math:`\sqrt{1 - 2 c_v}`, where :math:`c_v` is the person's share of the weight, the variance is
:math:`\sum_v S_v S_v^\top`. Where a small group happens to hold few carriers of a rare input, that is far too small. If
there is no gap, what is left of D after the finances has the same variance in both groups, so the estimate, a sum of
:math:`A_v u_v` over people, also has the variance :math:`\sum_v A_v^2` times half the mean squared residual. The larger
of the two counts. Few people may carry an input: the degrees of freedom are the
smaller of :math:`(\sum S^2)^2 / \sum S^4 - 1` and of what :math:`A_v` and the kurtosis of the residuals give, and a
feature with fewer than 12 is not tested.

Decisions are another matter: D is 0 for most pairs, and 1 or -1 for pairs near the threshold. The kurtosis of such
residuals is one over the share of pairs that differ, which says that few pairs count and not that few people do. Their
degrees of freedom are those of S, and with 5 of them decisions are tested; the variance is the same, and too large
rather than too small where few pairs differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Protocol, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from evenhand.metrics.estimate import p_two_sided, size_found
from evenhand.metrics.influence import N_BUCKETS, bucket_sums

__all__ = [
    "FEW_DEGREES",
    "FEW_DEGREES_OF_DECISIONS",
    "FinanceControls",
    "GapColumn",
    "GapPart",
    "GroupGap",
    "group_gap",
    "smallest_p_values",
]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

FEW_DEGREES = 12.0
"""A column with fewer degrees of freedom than this is estimated and not tested."""

FEW_DEGREES_OF_DECISIONS = 5.0
"""The same of a column of decisions."""

_MIN_PEOPLE = 10
_COMPONENTS = 4
_DRAWS = 4_000
_ROUNDING = 1e-6  # attributions are computed in single precision
_LEVEL = 0.05


class GapPart(Protocol):
    """Some pairs: a person and a match, who is a row of the reference."""

    @property
    def person(self) -> Ints:
        """A code for each person, of shape (n,); all pairs of a person are in one part."""
        ...

    @property
    def person_row(self) -> Ints:
        """The row that stands for the person in the reference, -1 for someone outside it."""
        ...

    @property
    def unit(self) -> Ints:
        """A code that is the same for pairs of the same person outside the reference, who may have several rows."""
        ...

    @property
    def bucket(self) -> Ints:
        """Bucket of the person."""
        ...

    @property
    def other(self) -> Ints:
        """Row of the reference that stands for the match."""
        ...

    @property
    def match(self) -> Ints:
        """Row of the match."""
        ...

    @property
    def group(self) -> Ints:
        """Group of the person."""
        ...

    @property
    def other_group(self) -> Ints:
        """Group of the match."""
        ...

    @property
    def label(self) -> Ints:
        """Label of both."""
        ...

    @property
    def pair_weight(self) -> Floats:
        """Sampling weight of the person, times that of the match over the mean of the person's matches in the group."""
        ...

    @property
    def finances(self) -> NDArray[np.floating]:
        """Standardized finances of the person, of shape (n, k)."""
        ...

    @property
    def score_gaps(self) -> NDArray[np.floating]:
        """What is averaged, of shape (n, n_columns)."""
        ...


@dataclass(frozen=True, eq=False)
class FinanceControls:
    """Functions of the finances that are held equal: linear, squared, products of principal components, by label.

    Attributes
    ----------
    points
        Standardized finances of the reference, of shape (n_reference, k).
    components
        Up to four principal components of them, of shape (k, q).
    """

    points: Floats
    components: Floats

    @classmethod
    def of(cls, points: Floats) -> FinanceControls:
        """Fit the components."""
        centered = points - points.mean(axis=0)
        vectors = np.linalg.eigh(centered.T @ centered)[1][:, ::-1]
        return cls(points, vectors[:, :_COMPONENTS])

    def difference(self, part: GapPart, rows: Ints) -> Floats:
        """Functions of the person's finances minus those of the match's, of shape (len(rows), n_controls)."""
        own = self._functions(part.finances[rows].astype(np.float64))
        apart = own - self._functions(self.points[part.match[rows]])
        return np.hstack([apart, apart * part.label[rows, None]])

    def _functions(self, points: Floats) -> Floats:
        along = points @ self.components
        first, second = np.triu_indices(along.shape[1], k=1)
        return np.hstack([points, points**2, along[:, first] * along[:, second]])


@dataclass(frozen=True)
class GapColumn:
    """A score gap at equal finances; every number is NaN where it cannot be estimated.

    Attributes
    ----------
    value
        Group minus reference group: negative where the group is worse off.
    ci_low, ci_high
        95 % confidence interval.
    p_value
        Two-sided, of no gap; NaN where too few people stand behind it to test.
    standard_error, df
        Standard error that respects repeated use of people, and its degrees of freedom.
    detectable
        The smallest gap that a test of it alone at the 5 % level would have found in 80 % of cases.
    note
        Why a number is missing; empty if none is.
    """

    value: float
    ci_low: float
    ci_high: float
    p_value: float
    standard_error: float
    df: float
    detectable: float
    note: str = ""


@dataclass(frozen=True, eq=False)
class GroupGap:
    """Gaps between two groups.

    Attributes
    ----------
    columns
        An estimate for each column.
    correlation
        Of the columns' estimates, of shape (n_columns, n_columns).
    n_people, n_pairs
        People of either group who are compared, and their pairs.
    influence
        Influences of people on each column by bucket, of shape (n_buckets, n_columns); no row without buckets.
    """

    columns: tuple[GapColumn, ...]
    correlation: Floats
    n_people: int
    n_pairs: int
    influence: Floats


def group_gap(
    parts: Callable[[], Iterator[GapPart]],
    controls: FinanceControls,
    group: int,
    reference_group: int,
    reference_buckets: Ints | None = None,
    *,
    decisions: Sequence[int] = (),
) -> GroupGap:
    """Score gaps of a group against a reference group, one for each column.

    Parameters
    ----------
    parts
        Goes through the pairs afresh each time it is called.
    controls
        The finances to hold equal.
    group, reference_group
        Codes of the two groups.
    reference_buckets
        Bucket of each person of the reference, where influences are wanted.
    decisions
        Columns of differences between decisions, 0 for most pairs: see the module.

    Returns
    -------
    Estimates in the order of the columns. As all are made by one regression, columns that add up to another have
    estimates that add up to its estimate.
    """
    moments = _Moments.of(parts(), controls, group, reference_group)
    if moments is None or min(moments.n_people) < _MIN_PEOPLE:
        n = (0, 0) if moments is None else moments.n_people
        n_columns = 0 if moments is None else moments.product.shape[2]
        note = f"only {min(n)} people of a group are compared; at least {_MIN_PEOPLE} are needed"
        return GroupGap(
            tuple(_nothing(note) for _ in range(n_columns)), np.eye(n_columns), sum(n), 0, np.zeros((0, n_columns))
        )
    fit = moments.fit()
    sums = _InfluenceSums.of(parts(), controls, fit, len(controls.points), reference_buckets)
    own_error = np.sqrt(np.diag(sums.products))
    is_decision = np.isin(np.arange(len(own_error)), decisions)
    error = np.sqrt(np.maximum(sums.squares, sums.pooled_variance))
    with np.errstate(divide="ignore", invalid="ignore"):
        own_degrees = sums.squares**2 / sums.fourth_powers
        df = np.where(is_decision, own_degrees, np.minimum(own_degrees, sums.pooled_degrees)) - 1
        correlation = sums.products / np.outer(own_error, own_error)
    correlation[~np.isfinite(correlation)] = 0.0
    np.fill_diagonal(correlation, 1.0)
    least = np.where(is_decision, FEW_DEGREES_OF_DECISIONS, FEW_DEGREES)
    columns = tuple(
        _column(*of_column)
        for of_column in zip(fit.values.tolist(), error.tolist(), df.tolist(), least.tolist(), strict=True)
    )
    return GroupGap(columns, correlation, sum(moments.n_people), moments.n_pairs, sums.by_bucket)


def smallest_p_values(
    p_values: Sequence[float], correlation: Floats, random_state: int = 0, n_draws: int = _DRAWS
) -> tuple[Floats, float]:
    """p-values adjusted for their number, given how the estimates are correlated, and that of the smallest.

    Each is held against the smallest of as many p-values of correlated normal draws: the chance of any false alarm is
    controlled. NaN stays NaN and is not counted.

    Examples
    --------
    >>> adjusted, smallest = smallest_p_values([0.01, 0.5, float("nan")], np.eye(3))
    >>> bool(0.015 < smallest < 0.025), bool(np.isnan(adjusted[2]))
    (True, True)
    """
    p = np.asarray(p_values, dtype=np.float64)
    known = np.isfinite(p)
    adjusted = np.full(len(p), np.nan)
    if not known.any():
        return adjusted, float("nan")
    values, vectors = np.linalg.eigh(correlation[np.ix_(known, known)])
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    draws = np.random.default_rng(random_state).standard_normal((n_draws, len(values))) @ root.T
    smallest = np.sort(2 * stats.norm.sf(np.abs(draws).max(axis=1)))
    below = np.searchsorted(smallest, p[known], side="right")
    # Beyond what the draws can tell, Bonferroni's bound; a p-value is never adjusted downward.
    bound = np.minimum(p[known] * known.sum(), 1.0)
    found = np.where(below > 0, np.minimum((below + 1) / (n_draws + 1), 1.0), np.minimum(bound, 1 / n_draws))
    adjusted[known] = np.maximum(np.minimum(found, np.maximum(bound, p[known])), p[known])
    return adjusted, float(np.nanmin(adjusted))


def _nothing(note: str) -> GapColumn:
    nan = float("nan")
    return GapColumn(nan, nan, nan, nan, nan, nan, nan, note)


def _column(value: float, error: float, df: float, least: float) -> GapColumn:
    if error <= _ROUNDING and abs(value) <= _ROUNDING:
        return GapColumn(0.0, 0.0, 0.0, 1.0, 0.0, df, 0.0, "the model does not use it differently at equal finances")
    if not np.isfinite(df) or df < least:
        note = f"worth {max(df + 1, 1):.0f} independent people: too few to test" if np.isfinite(df) else "not estimated"
        half = float(stats.t.ppf(0.975, max(df, 1.0))) * error if np.isfinite(df) else float("nan")
        return GapColumn(value, value - half, value + half, float("nan"), error, df, float("nan"), note)
    half = float(stats.t.ppf(0.975, df)) * error
    p_value = p_two_sided(value, error, df)
    return GapColumn(value, value - half, value + half, p_value, error, df, size_found(error, df, _LEVEL, sides=2))


def _rows_between(part: GapPart, group: int, reference_group: int) -> tuple[Ints, Floats]:
    """Pairs between the two groups, and the sign of each."""
    forward = (part.group == group) & (part.other_group == reference_group)
    backward = (part.group == reference_group) & (part.other_group == group)
    rows = np.flatnonzero(forward | backward)
    return rows, np.where(forward[rows], 1.0, -1.0)


def _shares(person: Ints, weight: Floats) -> tuple[Floats, int]:
    """The weight of each pair over the number of the person's pairs, and the number of people who weigh something."""
    _, code, count = np.unique(person, return_inverse=True, return_counts=True)
    share: Floats = weight / count[code]
    return share, int((np.bincount(code, weight) > 0).sum())


@dataclass(frozen=True, eq=False)
class _Design:
    """Regressors, weights and differences of the pairs of a part."""

    rows: Ints
    side: Ints
    regressors: Floats
    share: Floats
    difference: Floats
    n_people: tuple[int, int]

    @classmethod
    def of(cls, part: GapPart, controls: FinanceControls, group: int, reference_group: int) -> _Design:
        rows, sign = _rows_between(part, group, reference_group)
        side = (sign > 0).astype(np.int64)
        share = np.empty(len(rows))
        n_people = [0, 0]
        for which in (0, 1):
            inside = side == which
            chosen = rows[inside]
            share[inside], n_people[which] = _shares(part.person[chosen], part.pair_weight[chosen])
        regressors = np.column_stack([sign, controls.difference(part, rows)])
        difference = part.score_gaps[rows].astype(np.float64)
        return cls(rows, side, regressors, share, difference, (n_people[0], n_people[1]))


@dataclass(frozen=True, eq=False)
class _Moments:
    """Sums over pairs by the person's group, that the regression follows from."""

    group: int
    reference_group: int
    n_people: tuple[int, int]
    total: Floats
    n_pairs: int
    design: Floats
    product: Floats

    @classmethod
    def of(
        cls, parts: Iterator[GapPart], controls: FinanceControls, group: int, reference_group: int
    ) -> _Moments | None:
        found: _Moments | None = None
        for part in parts:
            one = _Design.of(part, controls, group, reference_group)
            design, product = [], []
            for which in (0, 1):
                inside = one.side == which
                weighted = one.regressors[inside] * one.share[inside, None]
                design.append(weighted.T @ one.regressors[inside])
                product.append(weighted.T @ one.difference[inside])
            total = np.bincount(one.side, one.share, minlength=2).astype(np.float64)
            n_pairs = int((one.share > 0).sum())
            more = cls(group, reference_group, one.n_people, total, n_pairs, np.stack(design), np.stack(product))
            found = more if found is None else found._added(more)
        return found

    def _added(self, other: _Moments) -> _Moments:
        n_people = (self.n_people[0] + other.n_people[0], self.n_people[1] + other.n_people[1])
        return _Moments(
            self.group,
            self.reference_group,
            n_people,
            self.total + other.total,
            self.n_pairs + other.n_pairs,
            self.design + other.design,
            self.product + other.product,
        )

    def fit(self) -> _Fit:
        weight = 0.5 / self.total  # both groups weigh the same
        design = np.tensordot(weight, self.design, axes=1)
        inverse = np.linalg.pinv(design, hermitian=True).astype(np.float64)
        coefficients = inverse @ np.tensordot(weight, self.product, axes=1)
        return _Fit(self.group, self.reference_group, weight, inverse, coefficients)


@dataclass(frozen=True, eq=False)
class _Fit:
    """The regression; the first coefficient of each column is its gap."""

    group: int
    reference_group: int
    weight: Floats
    inverse: Floats
    coefficients: Floats

    @property
    def values(self) -> Floats:
        found: Floats = self.coefficients[0]
        return found

    def influence(self, one: _Design) -> tuple[Floats, Floats, Floats]:
        """Weight of each pair, its coefficient in the gaps, and the residuals, of shape (n, n_columns)."""
        weight = one.share * self.weight[one.side]
        linear = weight * (one.regressors @ self.inverse[0])
        return weight, linear, one.difference - one.regressors @ self.coefficients


@dataclass(frozen=True, eq=False)
class _InfluenceSums:
    """Sums over people of products and powers of their influence, and over pairs of powers of residuals.

    Attributes
    ----------
    products, squares, fourth_powers
        Of the scaled sums of influences.
    leverage
        Sums of the second and of the fourth power of the people's coefficients in the gap.
    residuals
        Weighted means of the second and of the fourth power of the residuals, of shape (2, n_columns).
    by_bucket
        Influences by bucket of people, of shape (n_buckets, n_columns).
    """

    products: Floats
    squares: Floats
    fourth_powers: Floats
    leverage: Floats
    residuals: Floats
    by_bucket: Floats

    @classmethod
    def of(
        cls,
        parts: Iterator[GapPart],
        controls: FinanceControls,
        fit: _Fit,
        n_reference: int,
        reference_buckets: Ints | None,
    ) -> _InfluenceSums:
        n_columns, n_buckets = fit.coefficients.shape[1], 0 if reference_buckets is None else N_BUCKETS
        inside = _PersonSums.zeros(n_reference, n_columns)
        of_residuals, of_buckets = np.zeros((2, n_columns)), np.zeros((n_buckets, n_columns))
        products, (squares, fourth_powers) = np.zeros((n_columns, n_columns)), np.zeros((2, n_columns))
        found = cls(products, squares, fourth_powers, np.zeros(2), of_residuals, of_buckets)
        for part in parts:
            one = _Design.of(part, controls, fit.group, fit.reference_group)
            weight, linear, residual = fit.influence(one)
            influence, squares = linear[:, None] * residual, residual**2
            found = found._with_residuals(np.stack([weight @ squares, weight @ squares**2]))
            if reference_buckets is not None:
                others = reference_buckets[part.other[one.rows]]
                found.by_bucket[:] += bucket_sums(influence, part.bucket[one.rows], others)
            own_row, is_inside = part.person_row[one.rows], part.person_row[one.rows] >= 0
            inside.add(part.other[one.rows], weight, -linear, influence)
            inside.add(own_row[is_inside], weight[is_inside], linear[is_inside], influence[is_inside])
            people = np.unique(part.unit[one.rows[~is_inside]], return_inverse=True)[1]
            outside = _PersonSums.zeros(int(people.max(initial=-1)) + 1, n_columns)
            outside.add(people, weight[~is_inside], linear[~is_inside], influence[~is_inside])
            found = found._with_people(outside)
        return found._with_people(inside)

    @property
    def pooled_variance(self) -> Floats:
        """Variance of each gap if there is none, from the residuals of both groups."""
        found: Floats = self.leverage[0] * self.residuals[0] / 2
        return found

    @property
    def pooled_degrees(self) -> Floats:
        """Effective number of people behind it."""
        found: Floats = self.leverage[0] ** 2 / self.leverage[1] * self.residuals[0] ** 2 / self.residuals[1]
        return found

    def _with_residuals(self, more: Floats) -> _InfluenceSums:
        return replace(self, residuals=self.residuals + more)

    def _with_people(self, people: _PersonSums) -> _InfluenceSums:
        # A person in every pair cannot be left out; the bound only keeps the division defined.
        scaled = people.influence / np.sqrt(np.maximum(1 - 2 * people.share, 0.1))[:, None]
        square, leverage = scaled**2, people.coefficient**2
        return replace(
            self,
            products=self.products + scaled.T @ scaled,
            squares=self.squares + square.sum(axis=0),
            fourth_powers=self.fourth_powers + (square**2).sum(axis=0),
            leverage=self.leverage + np.array([leverage.sum(), (leverage**2).sum()]),
        )


@dataclass(frozen=True, eq=False)
class _PersonSums:
    """Sums over the pairs of each person: of weights, of coefficients in the gap, and of influences."""

    share: Floats
    coefficient: Floats
    influence: Floats

    @classmethod
    def zeros(cls, n_people: int, n_columns: int) -> _PersonSums:
        return cls(np.zeros(n_people), np.zeros(n_people), np.zeros((n_people, n_columns)))

    def add(self, codes: Ints, weight: Floats, coefficient: Floats, influence: Floats) -> None:
        n = len(self.share)
        self.share[:] += np.bincount(codes, weight, minlength=n)
        self.coefficient[:] += np.bincount(codes, coefficient, minlength=n)
        self.influence[:] += _summed(codes, influence, n)


def _summed(codes: Ints, values: Floats, n: int) -> Floats:
    """Sums of the rows of `values` with each code, of shape (n, n_columns)."""
    columns = [np.bincount(codes, column, minlength=n) for column in np.ascontiguousarray(values.T)]
    return np.column_stack(columns).astype(np.float64) if columns else np.zeros((n, 0))
