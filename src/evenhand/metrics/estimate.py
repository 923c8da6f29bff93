"""A number with its uncertainty, and the checks and weights that metrics share."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from evenhand.arrays import Floats, Ints
from evenhand.exceptions import InvalidInputError

FEW_INDEPENDENT_PEOPLE = 40.0
"""Below this effective number of people, error rates are approximate."""

_ROUNDING = 1e-12
_POWER = 0.8


@dataclass(frozen=True)
class Plain:
    """A result that can be converted to plain data."""

    def to_dict(self) -> dict[str, Any]:
        """Plain fields, nested."""
        return asdict(self)


@dataclass(frozen=True)
class Estimate(Plain):
    """A number with its uncertainty; NaN, or None for `n`, if unknown.

    Attributes
    ----------
    value
        The estimate.
    low, high
        Ends of its confidence interval.
    standard_error
        Of the value.
    p_value
        Of the null that the value is 0, or, for an excess, that it is not above 0.
    n
        Number of people.
    note
        Why a number is missing or weak; empty if none is.
    df
        Degrees of freedom of the interval and the p-value; infinite for a normal approximation.
    n_effective
        Number of equally used people that would be as informative.
    """

    value: float
    low: float = math.nan
    high: float = math.nan
    standard_error: float = math.nan
    p_value: float = math.nan
    n: int | None = None
    note: str = ""
    df: float = math.nan
    n_effective: float = math.nan

    @classmethod
    def from_error(
        cls, value: float, standard_error: float, df: float = math.inf, *, confidence: float = 0.95
    ) -> Estimate:
        """An estimate with Student's interval and two-sided p-value.

        Examples
        --------
        >>> estimate = Estimate.from_error(0.4, 0.2)
        >>> round(estimate.low, 3), round(estimate.high, 3), round(estimate.p_value, 4)
        (0.008, 0.792, 0.0455)
        """
        half = student_quantile(confidence, df) * standard_error
        p_value = p_two_sided(value, standard_error, df)
        return cls(value, value - half, value + half, standard_error, p_value, df=df)

    def scaled(self, factor: float) -> Estimate:
        """The estimate in another unit, or with the opposite sign.

        Examples
        --------
        >>> estimate = Estimate(0.25, 0.125, 0.5).scaled(-100.0)
        >>> estimate.value, estimate.low, estimate.high
        (-25.0, -50.0, -12.5)
        """
        low, high = (self.low, self.high) if factor > 0 else (self.high, self.low)
        error = self.standard_error * abs(factor)
        return replace(self, value=self.value * factor, low=low * factor, high=high * factor, standard_error=error)

    @property
    def is_estimated(self) -> bool:
        """Whether there is a value."""
        return math.isfinite(self.value)

    @property
    def excludes_zero(self) -> bool:
        """Whether the interval excludes 0."""
        return self.low > 0 or self.high < 0

    @property
    def is_weak(self) -> bool:
        """Whether it is based on so few independent people that error rates are approximate."""
        return self.is_estimated and self.n_effective < FEW_INDEPENDENT_PEOPLE

    @property
    def detectable(self) -> float:
        """The smallest size that a two-sided test at the 5% level finds in 80% of cases; NaN if it is not tested."""
        if math.isnan(self.p_value):
            return math.nan
        return size_found(self.standard_error, self.df, 0.05, sides=2) if self.standard_error > 0 else 0.0


def not_estimable(note: str, n: int | None = None) -> Estimate:
    """An estimate that is missing, with the reason, and the number of people if it is known."""
    return Estimate(math.nan, n=n, note=note)


def normal_quantile(confidence: float) -> float:
    """How many standard errors a two-sided interval extends to each side."""
    return float(special.ndtri(0.5 + confidence / 2))


def student_quantile(confidence: float, df: float) -> float:
    """The same with Student's t; the normal one for infinite degrees of freedom."""
    return normal_quantile(confidence) if math.isinf(df) else float(special.stdtrit(df, 0.5 + confidence / 2))


def p_two_sided(value: float, standard_error: float, df: float = math.inf) -> float:
    """Two-sided p-value of an estimate for the null of 0, by Student's t; NaN if a number is missing.

    For an estimate without error, the p-value is 1 if it is 0 up to rounding, and 0 otherwise.

    Examples
    --------
    >>> round(p_two_sided(-0.4, 0.2), 4), p_two_sided(0.0, 0.0), p_two_sided(0.1, 0.0)
    (0.0455, 1.0, 0.0)
    """
    share = p_above(abs(value), standard_error, df)
    return float(abs(value) <= _ROUNDING) if standard_error == 0 and not math.isnan(share) else 2 * share


def p_above(value: float, standard_error: float, df: float = math.inf) -> float:
    """One-sided p-value for the null that an estimate is not above 0, by Student's t; NaN if a number is missing."""
    if math.isnan(value) or math.isnan(standard_error) or math.isnan(df):
        return math.nan
    if standard_error == 0:
        return float(value <= 0)
    size = value / standard_error
    return float(special.ndtr(-size) if math.isinf(df) else special.stdtr(df, -size))


def size_found(standard_error: float, df: float, level: float, *, sides: int) -> float:
    """The smallest size that a test finds in 80% of cases.

    Parameters
    ----------
    standard_error, df
        Of the estimate, by Student's t.
    level, sides
        The level of the test, divided by the number of tests it is adjusted for, and 1 or 2 sides.

    Examples
    --------
    >>> round(size_found(0.1, math.inf, 0.05, sides=2), 3)
    0.28
    """
    shares = np.array([1 - level / sides, _POWER])
    sizes = special.ndtri(shares) if math.isinf(df) else special.stdtrit(df, shares)
    return float(sizes.sum()) * standard_error


def vector(values: ArrayLike, name: str) -> Floats:
    """Numbers of shape (n,)."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise InvalidInputError(f"`{name}` must be one-dimensional, got shape {array.shape}.")
    return array


def binary_values(values: ArrayLike, name: str) -> Ints:
    """Zeros and ones, one per person."""
    array = np.asarray(values)
    if array.ndim != 1 or len(array) == 0:
        raise InvalidInputError(f"`{name}` must be one value per person, got shape {array.shape}.")
    if array.dtype.kind not in "iubf" or not np.isin(array, (0, 1)).all():
        raise InvalidInputError(
            f"`{name}` must be 0 or 1 (1 for the favorable outcome), got {np.unique(array.astype(str))[:5].tolist()}."
        )
    return array.astype(np.int64)


def finite_scores(values: ArrayLike) -> Floats:
    """Finite numbers, one per person."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) == 0:
        raise InvalidInputError(f"`score` must be one number per person, got shape {array.shape}.")
    n_bad = int((~np.isfinite(array)).sum())
    if n_bad:
        raise InvalidInputError(f"`score` must be finite, got {n_bad} missing or infinite values; drop those people.")
    return array


def group_codes(group: ArrayLike, n: int, names: Sequence[str] | None) -> tuple[Ints, tuple[str, ...]]:
    """Integer codes of the groups of `n` people, and a name for each code; by default the codes themselves."""
    codes = np.asarray(group)
    if codes.ndim != 1:
        raise InvalidInputError(
            f"`group` must hold one code for each of {n} people, got shape {codes.shape}; group probabilities "
            "are not supported here."
        )
    if len(codes) != n:
        raise InvalidInputError(f"`group` has {len(codes)} values for {n} people; give one per person.")
    if codes.dtype.kind not in "iub" or codes.min(initial=0) < 0:
        raise InvalidInputError(
            f"`group` must hold integer codes from 0, got {codes.dtype} values"
            f"{f' from {codes.min()}' if codes.dtype.kind == 'i' else ''}; "
            "convert names to codes first, for example with `evenhand.inputs.validation.as_groups`."
        )
    n_codes = int(codes.max(initial=-1)) + 1
    readable = tuple(str(code) for code in range(n_codes)) if names is None else tuple(names)
    if len(readable) < n_codes:
        raise InvalidInputError(f"`names` has {len(readable)} names for {n_codes} group codes; give one per code.")
    return codes.astype(np.int64), readable


def check_same_length(arrays: dict[str, NDArray[Any]]) -> None:
    """Reject arrays, by name, that do not have the same number of people."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidInputError(f"Arrays must all have one value per person, got lengths {lengths}.")


def check_at_least(value: int, least: int, name: str, why: str = "") -> None:
    """Reject a number that is too small; `why` says what the minimum is for."""
    if value < least:
        raise InvalidInputError(f"`{name}` must be at least {least}{why and f' {why}'}, got {value}.")


def check_open_fraction(value: float, name: str) -> None:
    """Reject anything not strictly between 0 and 1."""
    if not 0 < value < 1:
        raise InvalidInputError(f"`{name}` must be a number between 0 and 1, got {value!r}.")


@dataclass(frozen=True, eq=False)
class RowWeights:
    """Rows that stand for one or more people of a sample, each with a weight.

    A mean uses `total` as weights. Its variance, for a sample drawn with unequal probabilities, is the sum over people
    of squared weights times squared residuals: over rows, of `squares` times the squared residual. Weighted residuals
    of people of the same cluster are added before they are squared, because the cluster was drawn as a whole.

    Attributes
    ----------
    count
        People of each row, of shape (n,).
    total, squares
        Sums of their weights, and of the squares of their weights.
    clusters
        Number of each row's cluster, from 1, and 0 for rows whose people are independent; None if all are.
    """

    count: Ints
    total: Floats
    squares: Floats
    clusters: Ints | None = None

    @classmethod
    def of(cls, sample_weight: ArrayLike, clusters: ArrayLike | None = None) -> RowWeights:
        """One person per row, each with a sampling weight above 0; those with the same value of `clusters` are a unit.

        Examples
        --------
        >>> RowWeights.of([2.0, 4.0]).total
        array([0.5, 1. ])
        >>> RowWeights.of([1, 1, 1], clusters=["a", "b", "a"]).variance(np.array([1.0, 1.0, 1.0]))
        5.0
        """
        weight = np.asarray(sample_weight, dtype=np.float64)
        if weight.ndim != 1 or not len(weight) or not (np.isfinite(weight) & (weight > 0)).all():
            raise InvalidInputError(
                f"Sampling weights must be finite and above 0, one per person, got shape {weight.shape}; leave out "
                "people with a weight of 0."
            )
        share = weight / weight.max()  # equal weights are exactly 1
        codes = None if clusters is None else np.unique(np.asarray(clusters), return_inverse=True)[1] + 1
        if codes is not None and codes.shape != share.shape:
            raise InvalidInputError(f"`clusters` has {codes.size} values for {len(share)} people; give one per person.")
        return cls(np.ones(len(share), dtype=np.int64), share, share**2, codes)

    def rows(self, chosen: NDArray[np.bool_] | NDArray[np.intp]) -> RowWeights:
        """Select some of the rows."""
        clusters = None if self.clusters is None else self.clusters[chosen]
        return RowWeights(self.count[chosen], self.total[chosen], self.squares[chosen], clusters)

    def variance(self, influence: Floats) -> float:
        """Variance of a metric from the influences of people of weight 1 on it, of shape (n,)."""
        if self.clusters is None:
            return float(self.squares @ influence**2)
        return float(self.covariance(influence[:, None])[0, 0])

    def covariance(self, influences: Floats) -> Floats:
        """Covariance of m metrics from the influences of people of weight 1 on them, of shape (n, m)."""
        squares = self.squares if self.clusters is None else np.where(self.clusters == 0, self.squares, 0.0)
        covariance: Floats = (squares[:, None] * influences).T @ influences
        if self.clusters is not None:
            by_cluster = np.stack([np.bincount(self.clusters, self.total * one)[1:] for one in influences.T])
            covariance = covariance + by_cluster @ by_cluster.T
        return covariance

    def squares_by(self, codes: Ints, n_codes: int, values: NDArray[Any]) -> Floats:
        """Sums over independent units of their squared weighted sums of `values`, by code, of shape (n_codes,)."""
        if self.clusters is None:
            return np.bincount(codes, self.squares * values**2, minlength=n_codes).astype(np.float64)
        alone, rest = (np.flatnonzero(is_one) for is_one in (self.clusters == 0, self.clusters > 0))
        cells, place = np.unique(self.clusters[rest] * n_codes + codes[rest], return_inverse=True)
        sums = np.bincount(place, (self.total * values)[rest], minlength=len(cells))
        of_alone = np.bincount(codes[alone], (self.squares * values**2)[alone], minlength=n_codes)
        return np.asarray(of_alone + np.bincount(cells % n_codes, sums**2, minlength=n_codes), dtype=np.float64)

    @property
    def is_simple(self) -> bool:
        """Whether everyone has weight 1 and is independent of the others."""
        return self.clusters is None and self.is_equal

    @cached_property
    def is_equal(self) -> bool:
        """Whether everyone has weight 1."""
        return bool((self.total == self.count).all() and (self.squares == self.count).all())

    @property
    def scaled(self) -> RowWeights:
        """The same with a mean weight of 1."""
        if self.is_equal:
            return self
        factor = float(self.count.sum()) / float(self.total.sum())
        return RowWeights(self.count, self.total * factor, self.squares * factor**2, self.clusters)


def row_weights(frequency: ArrayLike | RowWeights | None, n: int) -> RowWeights:
    """The weight of each of `n` rows, with a mean of 1; `frequency` is how many people it stands for, by default one.

    Raises
    ------
    InvalidInputError
        If there is not one weight per row, or a number of people is not an integer of at least 1.
    """
    if isinstance(frequency, RowWeights):
        if len(frequency.count) != n:
            raise InvalidInputError(f"`frequency` has {len(frequency.count)} weights for {n} rows; give one per row.")
        return frequency.scaled
    times = np.ones(n, dtype=np.int64) if frequency is None else np.asarray(frequency)
    if times.shape != (n,) or times.dtype.kind not in "iu" or times.min() < 1:
        raise InvalidInputError(
            f"`frequency` must be a whole number of at least 1 for each of {n} rows, got {times.dtype} of shape "
            f"{times.shape}; leave out rows of no one."
        )
    count = times.astype(np.int64)
    return RowWeights(count, count.astype(np.float64), count.astype(np.float64))


def effective_number_of_people(total: Floats, squares: Floats) -> Floats:
    """Number of equally weighted people with the same information (Kish 1965); 0 if all weights are 0.

    Examples
    --------
    >>> effective_number_of_people(np.array([4.0, 4.0]), np.array([4.0, 10.0]))
    array([4. , 1.6])
    """
    found = np.zeros(np.shape(total))
    np.divide(total**2, squares, out=found, where=squares > 0)
    return found
