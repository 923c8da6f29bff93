"""Who is in which group, known or with a probability for each; and a mean or a rate of one group with its interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from evenhand.exceptions import InvalidInputError
from evenhand.metrics.checks import group_codes
from evenhand.metrics.disparity.intervals import wilson
from evenhand.metrics.estimate import Estimate, normal_quantile, not_estimable

__all__ = [
    "SOFT_NOTE",
    "Membership",
    "frequencies",
    "group_mean",
    "group_rate",
    "membership_of",
    "nobody_in",
    "reference_code_of",
    "standard_error",
    "weighted_mean",
]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

SOFT_NOTE = (
    "group membership is given as probabilities: counts are sums of probabilities, intervals are normal "
    "approximations, and differences are understated or overstated where decisions depend on membership beyond them"
)


@dataclass(frozen=True)
class Membership:
    """Who is in which group: codes where known, else probabilities of shape (n, G), and how many people a row is."""

    names: tuple[str, ...]
    codes: Ints | None
    probabilities: Floats | None
    times: Floats

    @property
    def is_soft(self) -> bool:
        """Whether membership is given as probabilities."""
        return self.codes is None

    def column(self, code: int) -> Floats:
        """Each person's weight in one group."""
        if self.probabilities is not None:
            return self.probabilities[:, code]
        assert self.codes is not None
        return np.asarray(self.codes == code, dtype=np.float64)

    def sums(self, values: NDArray[Any]) -> Floats:
        """Sum of `values` over each group, of shape (G,)."""
        if self.probabilities is not None:
            return np.asarray((self.times * values) @ self.probabilities, dtype=np.float64)
        assert self.codes is not None
        return np.bincount(self.codes, weights=self.times * values, minlength=len(self.names)).astype(np.float64)

    def n_effective(self, code: int) -> float:
        """The number of people with known membership that would carry the same information."""
        weights = self.column(code)
        if not weights.any():
            return 0.0
        squares = float(self.times @ weights**2)
        # The squares of the tiniest probabilities are 0 in floating point.
        return float(self.times @ weights) ** 2 / squares if squares else math.nan

    def count(self, value: float) -> float:
        """A count of people: whole where membership is known."""
        return float(value) if self.is_soft else round(value)


def frequencies(frequency: ArrayLike | None, n: int) -> Floats:
    """How many people each of `n` rows stands for."""
    if frequency is None:
        return np.ones(n)
    times = np.asarray(frequency)
    if times.shape != (n,) or times.dtype.kind not in "iu" or times.min() < 1:
        raise InvalidInputError(
            f"`frequency` must be a whole number of at least 1 for each of {n} rows, got {times.dtype} of shape "
            f"{times.shape}; leave rows of no one out."
        )
    return times.astype(np.float64)


def membership_of(group: ArrayLike, n: int, names: Sequence[str] | None, frequency: ArrayLike | None) -> Membership:
    """Membership of `n` rows, at least one, from codes of shape (n,) or probabilities of shape (n, G)."""
    times = frequencies(frequency, n)
    values = np.asarray(group)
    if values.ndim not in (1, 2):
        raise InvalidInputError(
            f"`group` must be codes of shape (n,) or probabilities of shape (n, G), got shape {values.shape}."
        )
    if values.ndim == 2 and len(values) == n:
        return _soft_membership(values, names, times)
    codes, readable = group_codes(values, n, names)
    _check_names(readable)
    return Membership(readable, codes, None, times)


def reference_code_of(members: Membership, reference: str | None) -> int:
    """Code of the group with that name, by default of the largest; never a group without people."""
    sizes = members.sums(np.ones(len(members.times)))
    if reference is None:
        return int(sizes.argmax())
    if reference not in members.names:
        raise InvalidInputError(f"`reference` must be one of the groups {list(members.names)}, got {reference!r}.")
    code = members.names.index(reference)
    if sizes[code] == 0:
        raise InvalidInputError(f"`reference` group {reference!r} has no one in it; choose a group with people.")
    return code


def nobody_in(members: Membership, code: int) -> str:
    """Why there is no metric of a group without people."""
    return f"not estimable: no one in group {members.names[code]!r}"


def _soft_membership(values: NDArray[Any], names: Sequence[str] | None, times: Floats) -> Membership:
    probabilities = values.astype(np.float64)
    readable = tuple(str(code) for code in range(values.shape[1])) if names is None else tuple(names)
    if len(readable) != values.shape[1]:
        raise InvalidInputError(
            f"`names` has {len(readable)} names for {values.shape[1]} columns of probabilities; give one per column."
        )
    _check_names(readable)
    is_bad = ~((probabilities >= 0).all(axis=1) & (np.abs(probabilities.sum(axis=1) - 1) <= 1e-6))
    if is_bad.any():
        raise InvalidInputError(
            f"`group` probabilities must be at least 0 and sum to 1 for each person, got {int(is_bad.sum())} rows that "
            f"do not, the first at {int(is_bad.argmax())}; divide each row by its sum, or drop those people."
        )
    return Membership(readable, None, probabilities, times)


def _check_names(names: tuple[str, ...]) -> None:
    if len(names) < 2:
        raise InvalidInputError(f"At least two groups are needed to compare, got {list(names)}; check `group`.")
    repeated = sorted({name for name in names if names.count(name) > 1})
    if repeated:
        raise InvalidInputError(f"`names` must differ from each other, got {repeated} more than once.")


def weighted_mean(values: NDArray[Any], weights: Floats, times: Floats) -> tuple[float, Floats]:
    """Weighted mean, and each person's influence on it; the root of the influences' sum of squares is its error."""
    counted = times * weights
    total = float(counted.sum())
    mean = float(counted @ values) / total
    return mean, weights * (values - mean) / total


def standard_error(influence: Floats, times: Floats) -> float:
    """Error of a metric from each person's influence on it."""
    return float(np.sqrt(times @ influence**2))


def group_mean(members: Membership, code: int, values: Floats, confidence: float) -> Estimate:
    """Weighted mean of the group with Student's interval on the effective number of people."""
    weights, times = members.column(code), members.times
    if not weights.any():
        return not_estimable(nobody_in(members, code))
    mean, influence = weighted_mean(values, weights, times)
    degrees = float(times @ weights) ** 2 / float(times @ weights**2) - 1
    if degrees <= 1e-9:
        return Estimate(mean, math.nan, math.nan, "no interval: one person")
    error = standard_error(influence, times) * np.sqrt((degrees + 1) / degrees)
    half = float(special.stdtrit(degrees, 0.5 + confidence / 2) * error)
    return Estimate(mean, mean - half, mean + half)


def group_rate(
    members: Membership, code: int, values: Ints, subset: NDArray[np.bool_], absent: str, confidence: float
) -> Estimate:
    """Share of 1s among the group's people in `subset`."""
    weights = members.column(code) * subset
    total = float(members.times @ weights)
    if total == 0:
        return not_estimable(f"not estimable: {absent} in group {members.names[code]!r}")
    rate, influence = weighted_mean(values, weights, members.times)
    if not members.is_soft:
        return Estimate(rate, *wilson(round(float((members.times * weights) @ values)), round(total), confidence))
    half = normal_quantile(confidence) * standard_error(influence, members.times)
    return Estimate(rate, max(0.0, rate - half), min(1.0, rate + half))
