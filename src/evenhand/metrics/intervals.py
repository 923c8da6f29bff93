"""Score intervals from counts: of a rate, and of the difference, ratio and odds ratio of two rates.

Counts are x1 approved of n1 in the group and x0 of n0 in the reference; effective counts need not be integers. The
intervals of the ratios are implemented here: those of statsmodels are NaN, complex or too narrow if a group has few
approvals or few denials.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import optimize
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint

from evenhand.arrays import Floats, Ints
from evenhand.exceptions import InvalidInputError
from evenhand.metrics.estimate import (
    Estimate,
    RowWeights,
    effective_number_of_people,
    group_codes,
    normal_quantile,
    not_estimable,
    row_weights,
    student_quantile,
)

CONFIDENCE = 0.95
_ROUNDING = 1e-12  # of effective counts, as a share of them


def wilson(x: float, n: float, confidence: float = CONFIDENCE) -> tuple[float, float]:
    """Both ends of the interval of a rate of x in n (Wilson 1927)."""
    low, high = proportion_confint(x, n, alpha=1 - confidence, method="wilson")
    return (0.0 if x == 0 else float(low)), (1.0 if x == n else float(high))


def rate_estimate(x: float, n: float, confidence: float = CONFIDENCE, absent: str = "") -> Estimate:
    """A rate of x in n with Wilson's interval; `absent` says why there is no one."""
    return Estimate(x / n, *wilson(x, n, confidence)) if n else not_estimable(absent)


def newcombe(x1: float, n1: float, x0: float, n0: float, confidence: float = CONFIDENCE) -> Estimate:
    """Difference of rates with the hybrid score interval (Newcombe 1998, method 10)."""
    low, high = confint_proportions_2indep(x1, n1, x0, n0, method="newcomb", compare="diff", alpha=1 - confidence)
    return Estimate(x1 / n1 - x0 / n0, float(low), float(high))


def koopman(x1: float, n1: float, x0: float, n0: float, confidence: float = CONFIDENCE) -> Estimate:
    """Ratio of rates with the score interval (Koopman 1984): all ratios that a chi-square test does not reject."""
    if x0 == 0:
        return not_estimable("not estimable: no one in the reference group is approved")

    def chi_square(log_ratio: float) -> float:
        ratio = np.exp(log_ratio)
        one, other = ratio * (n1 + x0), x1 + n0
        # The smaller root, written without cancellation: the fitted rate of the group under this ratio.
        root = np.sqrt((one - other) ** 2 + 4 * ratio * (n1 - x1) * (n0 - x0))
        p1 = min(2 * ratio * (x1 + x0) / (one + other + root), 1.0)
        p0 = min(p1 / ratio, 1.0)
        parts = [
            (x - n * p) ** 2 / (n * p * (1 - p)) if 0 < p < 1 else 0.0 if abs(x - n * p) < 1e-9 else np.inf
            for x, n, p in ((x1, n1, p1), (x0, n0, p0))
        ]
        return float(sum(parts))

    value = (x1 / n1) / (x0 / n0)
    center, level = np.log(value) if x1 else -30.0, normal_quantile(confidence) ** 2
    low = 0.0 if x1 == 0 else float(np.exp(_crossing(chi_square, center, -1, level)))
    return Estimate(value, low, float(np.exp(_crossing(chi_square, center, 1, level))))


def cornfield(x1: float, n1: float, x0: float, n0: float, confidence: float = CONFIDENCE) -> Estimate:
    """Odds ratio with the score interval and fixed margins (Cornfield 1956, without continuity correction)."""
    approved = x1 + x0
    least, most = max(0, approved - n0), min(approved, n1)
    level = normal_quantile(confidence) ** 2
    if most - least <= _ROUNDING * approved:
        return not_estimable("not estimable: each group has only one decision, and both the same")

    def odds_ratio(a: float) -> float:
        return a * (n0 - approved + a) / ((approved - a) * (n1 - a))

    def excess(a: float) -> float:
        return float((x1 - a) ** 2 * (1 / a + 1 / (approved - a) + 1 / (n1 - a) + 1 / (n0 - approved + a)) - level)

    # Within this distance of the boundary, the statistic is beyond any usual level; never less than rounding.
    edge = max(1e-9 * (most - least), 4 * float(np.spacing(float(most))))
    low = 0.0 if x1 - least <= 2 * edge else odds_ratio(float(optimize.brentq(excess, least + edge, x1 - edge)))
    if most - x1 <= 2 * edge:
        note = "infinite in the sample: a group has everyone or no one approved; `low` is a lower bound"
        return Estimate(math.nan, low, note=note)
    high = odds_ratio(float(optimize.brentq(excess, x1 + edge, most - edge)))
    return Estimate(max(odds_ratio(float(x1)), low), low, high)


def _crossing(function: Callable[[float], float], start: float, direction: int, level: float) -> float:
    """Where a function that increases away from `start` reaches `level`."""
    step = 0.5
    while function(start + direction * step) < level:
        step *= 2
    near, far = start + direction * step / 2, start + direction * step
    if function(near) >= level:
        near = start
    return float(optimize.brentq(lambda place: min(function(place), 1e12) - level, near, far, xtol=1e-10))


WEIGHT_NOTE = (
    "rates and means are weighted by the sampling weights, counts are people of the sample, and intervals and tests "
    "use the effective number of people"
)

CLUSTER_NOTE = "people of the same cluster count as one independent unit in intervals and tests"


@dataclass(frozen=True)
class Membership:
    """The group of each row, as codes, and its weight."""

    names: tuple[str, ...]
    codes: Ints
    weights: RowWeights

    @property
    def times(self) -> Floats:
        """Weight of each row, with a mean of 1 per person."""
        return self.weights.total

    @property
    def note(self) -> str:
        """What a reader of counts and intervals must know."""
        notes = {WEIGHT_NOTE: not self.weights.is_equal, CLUSTER_NOTE: self.weights.clusters is not None}
        return "; ".join(note for note, is_needed in notes.items() if is_needed)

    def column(self, code: int) -> Floats:
        """1 for people of a group, and 0 for all others."""
        return np.asarray(self.codes == code, dtype=np.float64)

    def sums(self, values: NDArray[Any]) -> Floats:
        """Weighted sum of `values` over each group, of shape (G,)."""
        return np.bincount(self.codes, self.times * values, len(self.names)).astype(np.float64)

    def counts(self, values: NDArray[Any]) -> Ints:
        """Number of people of each group who have a value of 1, whatever their weights."""
        return np.bincount(self.codes, self.weights.count * values, len(self.names)).round().astype(np.int64)

    def effective_counts(self, values: Ints, subset: NDArray[np.bool_]) -> tuple[Floats, Floats]:
        """Effective number of 1s, and of people, of `subset` in each group."""
        return effective_counts(self.codes[subset], len(self.names), values[subset], self.weights.rows(subset))

    def n_effective(self, code: int) -> float:
        """The number of equally weighted people that would carry the same information."""
        inside = self.column(code)
        return float(self.times @ inside) ** 2 / self.weights.variance(inside) if inside.any() else 0.0


def effective_counts(codes: Ints, n_codes: int, values: Ints, weights: RowWeights) -> tuple[Floats, Floats]:
    r"""Effective number of 1s, and of people, of each code.

    For a weighted rate p with the linearized variance V, it is p (1 - p) / V people, the size of a simple random sample
    with that variance, and never more than there are (Korn and Graubard 1998); for a rate of 0 or 1, which has no
    variance in the sample, it is Kish's number. If everyone has the same weight, these are the counts. In V, residuals
    are summed by cluster, so that the counts are divided by the design effect (Rao and Scott 1992).
    """

    def sums(of: NDArray[Any]) -> Floats:
        return np.bincount(codes, of, minlength=n_codes).astype(np.float64)

    people, ones = sums(weights.total), sums(weights.total * values)
    if weights.is_simple:
        return ones, people
    with np.errstate(divide="ignore", invalid="ignore"):
        rate = np.where(people > 0, ones / people, 0.0)
        variance = weights.squares_by(codes, n_codes, values - rate[codes]) / people**2
        worth = np.where(variance > 0, rate * (1 - rate) / variance, np.inf)
    kish = effective_number_of_people(people, weights.squares_by(codes, n_codes, np.ones(len(codes))))
    number = np.where(np.isinf(worth), kish, np.minimum(worth, sums(weights.count)))
    return rate * number, number


def effective_counts_of_two(
    codes: Ints, first: int, second: int, values: Ints, weights: RowWeights
) -> tuple[float, float, float, float]:
    """Effective 1s and people of two codes, with which the difference of the rates has its variance.

    Both numbers are larger than those of `effective_counts` if people of the same clusters in both have alike values.
    """
    ones, people = effective_counts(codes, max(int(codes.max()), first, second) + 1, values, weights)
    factor = 1.0
    if weights.clusters is not None and people[first] and people[second]:
        sides = [np.asarray(codes == code, dtype=np.float64) for code in (first, second)]
        influences = np.stack([weighted_mean(values, side, weights.total)[1] for side in sides], axis=1)
        variance = sum(float(ones[c] / people[c] * (1 - ones[c] / people[c]) / people[c]) for c in (first, second))
        of_difference = variance - 2 * float(weights.covariance(influences)[0, 1])
        factor = variance / of_difference if of_difference > _ROUNDING * variance else 1.0
    x1, n1, x0, n0 = (float(of[c]) * factor for c in (first, second) for of in (ones, people))
    return x1, n1, x0, n0


def membership_of(
    group: ArrayLike, n: int, names: Sequence[str] | None, frequency: ArrayLike | RowWeights | None
) -> Membership:
    """Membership of `n` rows, at least one; by default, the codes are the names."""
    codes, readable = group_codes(group, n, names)
    return Membership(readable, codes, row_weights(frequency, n))


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
    """Why there is no metric for a group without people."""
    return f"not estimable: no one in group {members.names[code]!r}"


def weighted_mean(values: NDArray[Any], weights: Floats, times: Floats) -> tuple[float, Floats]:
    """Weighted mean, and the influence of a person of weight 1 on it; see `standard_error`."""
    counted = times * weights
    total = float(counted.sum())
    mean = float(counted @ values) / total
    return mean, weights * (values - mean) / total


def standard_error(influence: Floats, weights: RowWeights) -> float:
    """Error of a metric from influences of people of weight 1."""
    return float(np.sqrt(weights.variance(influence)))


def group_mean(members: Membership, code: int, values: Floats) -> Estimate:
    """Weighted mean of the group with Student's interval on the effective number of people."""
    weights, times = members.column(code), members.times
    if not weights.any():
        return not_estimable(nobody_in(members, code))
    mean, influence = weighted_mean(values, weights, times)
    degrees = float(times @ weights) ** 2 / members.weights.variance(weights) - 1
    if degrees <= 1e-9:
        return Estimate(mean, note="no interval: one person")
    error = standard_error(influence, members.weights) * math.sqrt((degrees + 1) / degrees)
    half = student_quantile(CONFIDENCE, degrees) * error
    return Estimate(mean, mean - half, mean + half, error, df=degrees)


def group_rate(
    members: Membership, code: int, values: Ints, subset: NDArray[np.bool_], absent: str, confidence: float = CONFIDENCE
) -> Estimate:
    """Share of 1s among the group's people in `subset`."""
    inside = members.column(code) * subset
    if not inside.any():
        return not_estimable(f"not estimable: {absent} in group {members.names[code]!r}")
    ones, people = (float(counts[code]) for counts in members.effective_counts(values, subset))
    return Estimate(weighted_mean(values, inside, members.times)[0], *wilson(ones, people, confidence))
