"""Triples of a person, a match and a placebo, and what is averaged over which of them.

Averages over pairs or triples that share people: their variance, and what two of them have in common.

An estimate's error is a sum over rows (pairs or triples) of a residual times a weight. Summed over the rows that
contain a person, it is that person's influence. People are assigned to a fixed number of buckets by who they are, so
the influences of millions take no more space than those of a thousand; the correlation of two estimates is that of
their sums by bucket. People who share a bucket by chance add noise, but no bias.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any, Protocol, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy.sparse import coo_array

from evenhand.arrays import Array, Bools, Floats, Ints, Sums, counts, device_of, is_torch_array, like, namespace
from evenhand.system.threads import ONE_THREAD, Crew, Later

N_BUCKETS = 1024


@dataclass(frozen=True, eq=False)
class Gathered:
    """Triples grouped by who is in them, on any device; a triple may be in several groups.

    Sums are taken in the order of the triples, so that they are the same to the last bit each time.

    Attributes
    ----------
    code
        Who is shared: a person, a couple or three people.
    n_codes
        One more than the largest possible code.
    sign
        Whether their squared sums are added to the variance or subtracted, because they were counted too often.
    rows
        The triple of each code; None if there is one code per triple.
    """

    code: Array
    n_codes: int
    sign: float = 1.0
    rows: Array | None = None

    @classmethod
    def of(cls, code: Array, sign: float = 1.0, rows: Array | None = None) -> Gathered:
        """For codes that all occur."""
        return cls(code, 1 + int(code.max()) if len(code) else 0, sign, rows)

    def sums(self, residual: Array) -> Array:
        """Sum of the residuals, of shape (n, n_columns), of each code's triples: (n_codes, n_columns)."""
        if not is_torch_array(residual):
            entries = (np.ones(len(self.code)), (self.code, self._rows))
            return coo_array(entries, shape=(self.n_codes, len(residual))) @ np.ascontiguousarray(residual)
        if not len(self.code):
            return residual.new_zeros((self.n_codes, residual.shape[1]))
        # A GPU adds in any order unless the values of each sum are adjacent.
        values, (order, lengths) = residual if self.rows is None else residual[self.rows], self._by_code
        return namespace(values).segment_reduce(values[order], "sum", lengths=lengths, axis=0, unsafe=True)

    @cached_property
    def _rows(self) -> Array:
        return _everyone(self.code) if self.rows is None else self.rows

    @cached_property
    def lone_and_again(self) -> tuple[Array, Gathered]:
        """Triples of codes that occur once, which are most couples and need not be added up; and the other codes."""
        is_again = (counts(self.code, self.n_codes) > 1)[self.code]
        again, code = numbered(self.code[is_again], self.n_codes)
        return self._rows[~is_again], Gathered(code, len(again), rows=self._rows[is_again])

    @cached_property
    def _by_code(self) -> tuple[Array, Array]:
        """The order in which codes ascend, and how often each occurs."""
        return self.code.argsort(stable=True), counts(self.code, self.n_codes)


def squared_sums(gathered: Iterable[Gathered], residual: Array) -> Array:
    """Signed sums of the squares of the sums of every code, of shape (n_columns,)."""
    times = like(np.zeros(len(residual)), residual)
    found = like(np.zeros(residual.shape[1]), residual)
    for index in gathered:
        lone, again = index.lone_and_again
        times += index.sign * counts(lone, len(residual))
        found += index.sign * (again.sums(residual) ** 2).sum(0)
    return found + times @ (residual * residual)


def _everyone(codes: Array) -> Array:
    """Places of the rows, in order."""
    return namespace(codes).arange(len(codes), device=device_of(codes))


@dataclass(frozen=True, eq=False)
class Overlap:
    """Who shares triples with whom, indexed once for every score that is averaged over them."""

    person: Gathered
    singles: Gathered
    larger: tuple[Gathered, ...]
    leverage: Array

    @classmethod
    def of(cls, people: Ints, weight: Floats) -> Overlap:
        """Index the single people, the couples and the triplets of every triple, given as codes of shape (n, m)."""
        codes: Ints = np.unique(people, return_inverse=True)[1].reshape(people.shape)
        ordered = np.sort(codes, axis=1)
        n_codes, everyone = int(codes.max()) + 1, np.arange(len(codes))
        larger = []
        for size, sign in ((2, -1.0), (3, 1.0)):
            subsets = list(combinations(range(ordered.shape[1]), size))
            if subsets:
                members = (ordered[:, list(column)].T.flatten() for column in zip(*subsets, strict=True))
                rows = np.tile(everyone, len(subsets))
                larger.append(Gathered.of(row_codes(n_codes, *members), sign, rows))
        singles = Gathered(codes.T.flatten(), n_codes, rows=np.tile(everyone, codes.shape[1]))
        leverage = singles.sums(weight[:, None])[:, 0]
        return cls(Gathered(codes[:, 0], n_codes), singles, tuple(larger), leverage)

    @property
    def n_effective(self) -> float:
        """Effective number of people, given how unevenly they are used."""
        return effective_number(float((self.leverage**2).sum()), float((self.leverage**4).sum()))

    def variance(self, residual: Array) -> Floats:
        """Variance of the sum of each column of `residual`, of shape (n_columns,)."""
        total = deleted_squares(self.singles.sums(residual), self.leverage[:, None])
        total += squared_sums(self.larger, residual)
        found: Floats = np.maximum(total, squared_sums([self.person], residual))
        return found


def placed(values: NDArray[Any], device: str | None, dtype: str | None = None) -> Array:
    """An array of one type on a device; None is NumPy's, and copies only to change the type."""
    array = np.asarray(values, dtype=dtype)
    if device is None:
        return array
    import torch

    return torch.from_numpy(np.require(array, requirements=("C", "W"))).to(device)


def row_codes(n: int, first: Array, *others: Array) -> Array:
    """One code from 0 for each distinct row of columns of codes below `n`.

    Examples
    --------
    >>> row_codes(10, np.array([3, 1, 3]), np.array([0, 9, 0]))
    array([0, 1, 0])
    """
    code = first
    for column in others:  # one at a time: n cubed could overflow
        code = distinct_codes(code * n + column)
    return code


def distinct_codes(values: Array) -> Array:
    """One code from 0 for each distinct value; on a CPU without sorting them."""
    return values.unique(return_inverse=True)[1] if is_torch_array(values) else pd.factorize(values)[0]


def numbered(rows: Array, n: int) -> tuple[Array, Array]:
    """Those of n rows that occur, in order, and the place of each row among them.

    Examples
    --------
    >>> numbered(np.array([7, 2, 7]), 10)
    (array([2, 7]), array([1, 0, 1]))
    """
    occurs = counts(rows, n) > 0
    return namespace(rows).nonzero(occurs)[0], (occurs.cumsum(0) - 1)[rows]


def deleted_squares(sums: Array, leverage: Array) -> Array:
    """Sums of squared changes of estimates when each person is deleted, of shape (n_columns,).

    Parameters
    ----------
    sums
        Sum of the residuals of each person's triples, of shape (n_people, n_columns).
    leverage
        Weight of each person's triples, of the shape of `sums`, or (n_people, 1) where it is that of all columns.
    """
    # A person in every triple cannot be deleted; the bound only keeps the division defined.
    return ((sums / (1 - leverage).clip(min=0.1)) ** 2).sum(0)


def effective_number(squares: float, fourth_powers: float) -> float:
    """Number of equally used people with the same information, from sums of powers of their leverages."""
    return squares**2 / fourth_powers


@dataclass(frozen=True, eq=False)
class People:
    """The people of some triples, on a device; the fields are those of `Triples`."""

    unit: Array
    person_row: Array
    other: Array
    own: Array


@dataclass(frozen=True, eq=False)
class PeopleOfPart:
    """Who is in the triples of a part, and what those outside the reference share with whom.

    Attributes
    ----------
    person
        Triples by the person that they are about.
    is_outside_person
        Which of those people are not in the reference.
    reference, rows
        Triples by each person of the reference who is in them, and the rows of those people.
    shared
        Triples by what people outside the reference share.
    """

    person: Gathered
    is_outside_person: Array
    reference: Gathered
    rows: Array
    shared: tuple[Gathered, ...]

    @classmethod
    def of(cls, part: People, n_reference: int) -> PeopleOfPart:
        """Index the triples of a part."""
        person_row, other, own, xp = part.person_row, part.other, part.own, namespace(part.unit)
        code = distinct_codes(part.unit)
        person, everyone = Gathered.of(code), _everyone(code)
        is_outside = xp.zeros(person.n_codes, dtype=xp.bool, device=device_of(code))
        is_outside[code] = person_row < 0
        outside, inside = ((person_row < 0) == side for side in (True, False))
        outside, inside = everyone[outside], everyone[inside]
        who = code[outside]
        lower, upper = xp.minimum(other, own)[outside], xp.maximum(other, own)[outside]
        couple = row_codes(n_reference, xp.concat([who, who]), xp.concat([lower, upper]))
        three = row_codes(n_reference, couple[: len(who)], upper)
        shared = (Gathered.of(couple, -1.0, xp.concat([outside, outside])), Gathered.of(three, 1.0, outside))
        rows, place = numbered(xp.concat([other, own, person_row[inside]]), n_reference)
        reference = Gathered(place, len(rows), rows=xp.concat([everyone, everyone, inside]))
        return cls(person, is_outside, reference, rows, shared if len(outside) else ())


def couples_of_reference(part: People, n_reference: int, low: int, high: int) -> tuple[Gathered, ...]:
    """Couples, and triples, of the reference whose lowest row is in a range."""
    person, other, own, xp = part.person_row, part.other, part.own, namespace(part.person_row)
    everyone = _everyone(person)
    inside = everyone[person >= 0]
    sides = [
        (everyone, other, own),
        (inside, person[inside], other[inside]),
        (inside, person[inside], own[inside]),
    ]
    couples = []
    for who, first, second in sides:
        lower, upper = xp.minimum(first, second), xp.maximum(first, second)
        chosen = (lower >= low) & (lower < high)
        couples.append((who[chosen], lower[chosen], upper[chosen]))
    rows, lower, upper = (xp.concat(columns) for columns in zip(*couples, strict=True))
    found = [Gathered.of(row_codes(n_reference, lower, upper), -1.0, rows)]
    three = xp.sort(xp.stack([person[inside], other[inside], own[inside]], axis=1), axis=1)
    chosen = (three[:, 0] >= low) & (three[:, 0] < high)
    if chosen.any():
        found.append(Gathered.of(row_codes(n_reference, *three[chosen].T), 1.0, inside[chosen]))
    return tuple(found)


def bucket_sums(values: Array, *buckets: Array) -> Array:
    """Sums of the rows of `values` over the buckets of each of their people, of shape (N_BUCKETS, n_columns).

    Examples
    --------
    >>> found = bucket_sums(np.array([[1.0], [2.0]]), np.array([0, 1]), np.array([3, 0]))
    >>> found[[0, 1, 3], 0].tolist()
    [3.0, 2.0, 1.0]
    """
    xp = namespace(values)
    rows = xp.concat([_everyone(values)] * len(buckets))
    return Gathered(xp.concat(buckets), N_BUCKETS, rows=rows).sums(values)


def folded(values: NDArray[np.floating], n_buckets: int) -> Floats:
    """Influences in fewer buckets, whose number divides theirs.

    Examples
    --------
    >>> folded(np.array([1.0, 2.0, 3.0, 4.0]), 2)
    array([4., 6.])
    """
    found: Floats = values.astype(np.float64).reshape(-1, n_buckets).sum(axis=0)
    return found


def standard_error_of_difference(
    first_error: float, second_error: float, first: NDArray[np.floating], second: NDArray[np.floating]
) -> float:
    r"""Standard error of the difference of two estimates of the same people.

    .. math:: (s_1 - s_2)^2 + 2 s_1 s_2 (1 - r)

    is its square, with r the correlation of the influences about 0, which is their mean. It is 0 for two identical
    estimates, and the sum of the variances if nothing is in common.

    Parameters
    ----------
    first_error, second_error
        Standard errors of the two.
    first, second
        Their influences by bucket, up to a factor; one may be in fewer buckets, as `folded` makes them.

    Examples
    --------
    >>> influence = np.array([1.0, -2.0, 1.0])
    >>> standard_error_of_difference(0.3, 0.3, influence, influence * 4)
    0.0
    >>> standard_error_of_difference(0.3, 0.4, influence, np.array([1.0, 1.0, 1.0]))
    0.5
    """
    n_buckets = min(len(first), len(second))
    own, other = (folded(values, n_buckets) for values in (first, second))
    size, other_size = float(np.sqrt(own @ own)), float(np.sqrt(other @ other))
    if size == 0 or other_size == 0:
        return float(np.hypot(first_error, second_error))
    apart = own / size - other / other_size  # squares to 2 (1 - r), and is exactly 0 for equal influences
    return float(np.sqrt((first_error - second_error) ** 2 + first_error * second_error * (apart @ apart)))


_ROWS_AT_ONCE = 16_384  # of triples in memory that are worked on together


@dataclass(frozen=True, eq=False)
class Triples:
    """Triples that could be scored, with everything from which the evidence is estimated.

    Every field has one row per triple. Small numbers are kept in few bytes: there may be millions of triples.

    Attributes
    ----------
    person, unit
        The person's number, and the first number of the same person in the batch.
    bucket
        Where the person's influences are added up: see `N_BUCKETS`.
    person_row, other, own
        Rows of the reference that represent the person (-1 if outside it), the match and the placebo. If a person has
        several rows, one of them represents all.
    group, other_group, label, is_favorable
        Of the person, except `other_group`; `is_favorable` is the decision.
    rank, n_within
        Rank among the person's triples with the group: near ones from 1 to some largest rank, then the rest; number of
        the person's triples with ranks up to 1, 2, ..., that one, and of all, of shape (n, largest + 1).
    n_between
        Number of the person's near triples with the group.
    distance
        Distance of the match.
    n_near
        Number of the person's triples within each limit of distance, of shape (n, n_limits).
    cec, placebo_cec, gap, placebo_gap
        CEC scores of pair and placebo pair, and what unequal finances alone would give.
    stretch
        How much longer unequal finances alone make the explanation: see `models.scoring.TripleScores`.
    input_gap, reasoning_gap
        Of the pair minus those of the placebo pair; reasoning gaps are at the person's finances.
    agreement, agreement_control, n_declined
        Overlap of the pair's reasons minus that of the placebo pair's, and the effect of unequal finances alone on it,
        of shape (n, 2), NaN unless all three are declined; number of the person's triples for which they are known.
    is_same_decision, is_same_placebo_decision
        Whether the two people of the pair, and of the placebo pair, have the same decision.
    contributions, weights
        By feature, for the pair minus the placebo pair, of shape (n, n_features).
    weight
        Sampling weight of the person, times the weight of the triple among those of the person with the group. All are
        1 if no weights are given.
    by
        Columns of the person to split by, as codes.
    """

    person: Ints
    unit: Ints
    person_row: NDArray[np.signedinteger]
    bucket: NDArray[np.signedinteger]
    other: NDArray[np.signedinteger]
    own: NDArray[np.signedinteger]
    group: NDArray[np.signedinteger]
    other_group: NDArray[np.signedinteger]
    label: NDArray[np.signedinteger]
    is_favorable: Bools
    rank: NDArray[np.signedinteger]
    n_within: NDArray[np.signedinteger]
    n_between: NDArray[np.signedinteger]
    distance: Floats
    n_near: NDArray[np.signedinteger]
    cec: Floats
    placebo_cec: Floats
    gap: Floats
    placebo_gap: Floats
    stretch: Floats
    input_gap: Floats
    reasoning_gap: Floats
    agreement: Floats
    agreement_control: Floats
    n_declined: NDArray[np.signedinteger]
    is_same_decision: Bools
    is_same_placebo_decision: Bools
    contributions: NDArray[np.float32]
    weights: NDArray[np.float32]
    weight: Floats
    by: Mapping[str, Ints]

    def __len__(self) -> int:
        return len(self.person)

    @cached_property
    def controls(self) -> Floats:
        """The effect of unequal finances alone on score and length, pair minus placebo pair, of shape (n, 2)."""
        return np.column_stack([self.gap - self.placebo_gap, self.stretch])

    @property
    def is_near(self) -> Bools:
        """Near triples: with farther ones, the tests of splits, regimes and weights raise too many false alarms."""
        is_near: Bools = self.rank < self.n_within.shape[1]
        return is_near

    def rows(self, index: slice | Ints) -> Self:
        """Some of the triples."""
        plain = {f.name: getattr(self, f.name)[index] for f in fields(self) if f.name != "by"}
        return type(self)(**plain, by={name: codes[index] for name, codes in self.by.items()})

    def within(self, limits: Sequence[float]) -> Triples:
        """The same triples with the number of each person's within each limit of distance."""
        code = np.unique(self.person, return_inverse=True)[1]
        near = [np.bincount(code, self.distance <= limit).astype(np.int16)[code] for limit in limits]
        return replace(self, n_near=np.column_stack(near) if near else np.zeros((len(self), 0), dtype=np.int16))


class Parts(Protocol):
    """Triples in parts that can be iterated over repeatedly."""

    @property
    def n_reference(self) -> int:
        """Number of people in the reference."""

    @property
    def n_left_out(self) -> int:
        """Triples that could not be used and are not in any part."""

    def parts(self) -> Iterable[Triples]:
        """Parts; all triples of a person are in one."""

    def ranges(self) -> Iterable[tuple[Triples, int, int]]:
        """Triples whose two reference rows have the lower one in a range, with the range's two ends."""


@dataclass(frozen=True, eq=False)
class KeptTriples:
    """Triples kept in memory, sorted by person.

    They are processed a few at a time, so that intermediate results take little extra memory.
    """

    part: Triples
    n_reference: int
    n_left_out: int = 0

    def parts(self) -> Iterable[Triples]:
        """Yield the triples part by part; all at once if a person has several rows."""
        person = self.part.person
        if len(person) <= _ROWS_AT_ONCE or not np.array_equal(self.part.unit, person):
            yield self.part
            return
        ends = np.searchsorted(person, person[_ROWS_AT_ONCE - 1 :: _ROWS_AT_ONCE], side="right").tolist()
        for start, stop in pairwise(sorted({0, *ends, len(person)})):
            yield self.part.rows(slice(start, stop))

    def ranges(self) -> Iterable[tuple[Triples, int, int]]:
        """Triples by ranges of the reference."""
        limits = range_limits(np.bincount(smallest_row(self.part), minlength=self.n_reference), _ROWS_AT_ONCE)
        if len(limits) == 2:
            return [(self.part, 0, self.n_reference)]
        part, places = self.part, triples_by_range(self.part, limits)
        return Later(lambda k: (part.rows(places[k]), limits[k], limits[k + 1]), range(len(places)))


def smallest_row(part: Triples) -> NDArray[np.signedinteger]:
    """The lower row of the couple that a triple of someone outside the reference makes."""
    lower: NDArray[np.signedinteger] = np.minimum(part.other, part.own)
    return lower


def range_limits(counts: Ints, rows_at_once: int) -> list[int]:
    """Ends of ranges of rows, which have about as many triples each.

    Examples
    --------
    >>> range_limits(np.array([3, 1, 2, 2]), 4)
    [0, 1, 3, 4]
    """
    place = np.cumsum(counts) // rows_at_once
    return [0, *(np.flatnonzero(np.diff(place)) + 1).tolist(), len(counts)]


def triples_by_range(part: Triples, limits: Sequence[int]) -> list[Ints]:
    """Triples in which a couple of the reference has its lower row in a range, in order, for each range."""
    lower = np.sort(np.stack([part.person_row, part.other, part.own]), axis=0)[:2]  # of the three couples
    code = np.searchsorted(limits, lower, side="right") - 1  # -1 for a couple with someone outside the reference
    code[0, code[0] == code[1]] = -1  # a triple is in each range once
    order = np.argsort(code, axis=None, kind="stable")
    ends = np.searchsorted(code.ravel()[order], np.arange(len(limits)))
    return [np.sort(order[start:stop] % code.shape[1]) for start, stop in pairwise(ends.tolist())]


@dataclass(frozen=True, eq=False)
class Selection:
    """What is averaged over which triples of a part.

    Attributes
    ----------
    rows
        The triples; None for all.
    share
        Weight of each triple: that of the person divided by the number of the person's selected triples, in all parts.
    control
        Controls of each, of shape (n, q).
    difference
        Values to average, of shape (n, n_columns).
    n_people
        Number of people, if people do not all have weight 1.
    """

    rows: Ints | None
    share: Floats
    control: Floats
    difference: NDArray[np.floating]
    n_people: float | None = None

    def only(self, columns: slice) -> Selection:
        """The same with some of the columns."""
        return replace(self, difference=self.difference[:, columns])

    def on(self, device: str | None) -> Placed:
        """The selection where its sums are taken, in double precision."""
        share, control, difference = (
            placed(array, device, "float64") for array in (self.share, self.control, self.difference)
        )
        return Placed(share, control, difference, None if self.rows is None else placed(self.rows, device))


@dataclass(frozen=True, eq=False)
class Placed:
    """A selection on a device."""

    share: Array
    control: Array
    difference: Array
    rows: Array | None

    def spread(self, values: Array, whole: Array) -> None:
        """Write rows of values into those of all triples of a part, in the rows of triples that were selected."""
        whole[slice(None) if self.rows is None else self.rows] = values


class Question(Protocol):
    """A selection of triples and columns, the same for every part."""

    @property
    def n_columns(self) -> int:
        """Number of columns."""

    def of(self, part: Triples) -> Selection:
        """The selection of one part."""


@dataclass(frozen=True)
class SharedReasons:
    """The excess of what the reasons of declined people have in common: share, and rank-biased overlap."""

    n_columns: int = 2

    def of(self, part: Triples) -> Selection:
        """Triples of three declined people."""
        rows = np.flatnonzero(~np.isnan(part.agreement[:, 0]))
        each = 1 / part.n_declined[rows]
        share = part.weight[rows] * each
        return Selection(rows, share, part.agreement_control[rows], part.agreement[rows], float(each.sum()))


@dataclass(frozen=True)
class _ScoreExcess:
    """The excess of the CEC score, of the input gap and of the reasoning gap."""

    n_columns: int = 3

    def of(self, part: Triples) -> Selection:
        scores = np.column_stack([part.cec - part.placebo_cec, part.input_gap, part.reasoning_gap])
        return _selected(part, None, part.n_within[:, -1], part.controls, scores)


@dataclass(frozen=True)
class _Features:
    """Each feature's part of the excess; separate from the scores, because joining the two would copy all parts."""

    n_columns: int

    def of(self, part: Triples) -> Selection:
        return _selected(part, None, part.n_within[:, -1], part.controls, part.contributions)


@dataclass(frozen=True)
class _Balanced:
    """The excess of the scores with equal weight for each group, whatever its size."""

    weights: Mapping[int, float]
    n_columns: int = 1

    def of(self, part: Triples) -> Selection:
        everyone = sum(weight for _, weight in sorted(self.weights.items()))
        factor = np.zeros(max(self.weights, default=0) + 1)
        for group, weight in self.weights.items():
            factor[group] = everyone / (len(self.weights) * weight)
        difference = (part.cec - part.placebo_cec)[:, None]
        chosen = _selected(part, None, part.n_within[:, -1], part.controls, difference)
        return replace(chosen, share=chosen.share * factor[part.group])


@dataclass(frozen=True)
class RegimeB:
    """The excess of the share in Regime B at a threshold."""

    threshold: float
    n_columns: int = 1

    def of(self, part: Triples) -> Selection:
        """Near triples, with the effect of unequal finances alone as controls."""

        def share(is_same: Bools, score: Floats) -> Floats:
            return (is_same & (score > self.threshold)).astype(np.float64)

        same, same_placebo = part.is_same_decision, part.is_same_placebo_decision
        difference = share(same, part.cec) - share(same_placebo, part.placebo_cec)
        # The effect of unequal finances alone on the regime, on the score, and on decisions.
        regime = share(same, part.gap) - share(same_placebo, part.placebo_gap)
        decision = same.astype(np.float64) - same_placebo
        control = np.column_stack([regime, part.controls, decision])
        rows, at = _chosen(part.is_near)
        return _selected(part, rows, part.n_within[at, -2], control[at], difference[at, None])


@dataclass(frozen=True)
class _WithinPeople:
    """The excess among people with one value of a column."""

    column: str
    code: int
    n_columns: int = 1

    def of(self, part: Triples) -> Selection:
        values = part.by[self.column] if self.column in part.by else _person_column(part, self.column)
        return _cec_of(part, part.is_near & (values == self.code), part.n_within[:, -2])


@dataclass(frozen=True)
class BetweenGroups:
    """The excess of triples between two groups."""

    first: int
    second: int
    n_columns: int = 1

    @property
    def sides(self) -> tuple[int, int]:
        """The two groups whose triples this question is about."""
        return self.first, self.second

    def of(self, part: Triples) -> Selection:
        """Near triples between the two."""
        return _cec_of(part, part.is_near & _is_between(part, self.first, self.second), part.n_between)


@dataclass(frozen=True)
class WithinDistance:
    """The excess of triples within a distance."""

    place: int
    limit: float
    n_columns: int = 1

    def of(self, part: Triples) -> Selection:
        """Triples within the limit."""
        return _cec_of(part, part.distance <= self.limit, part.n_near[:, self.place])


@dataclass(frozen=True)
class Nearest:
    """The excess of each person's nearest near triples with a group."""

    n_nearest: int
    n_columns: int = 1

    def of(self, part: Triples) -> Selection:
        """Triples up to the rank."""
        return _cec_of(part, part.rank <= self.n_nearest, part.n_within[:, self.n_nearest - 1])


@dataclass(frozen=True)
class Weights:
    """Weights in one group minus those in another, feature by feature."""

    first: int
    second: int
    features: tuple[int, ...]

    @property
    def n_columns(self) -> int:
        """One for each feature."""
        return len(self.features)

    @property
    def sides(self) -> tuple[int, int]:
        """The two groups whose triples this question is about."""
        return self.first, self.second

    def of(self, part: Triples) -> Selection:
        """Near triples between the two groups."""
        rows, at = _chosen(part.is_near & _is_between(part, self.first, self.second))
        # The difference is of the other's weight over the placebo's, who is of the person's own group.
        sign = np.where(part.group[at] == self.second, 1.0, -1.0).astype(np.float32)
        weights = part.weights[at]
        if self.n_columns < weights.shape[1]:
            weights = weights[:, list(self.features)]
        return _selected(part, rows, part.n_between[at], part.controls[at], sign[:, None] * weights)


def _selected(
    part: Triples, rows: Ints | None, n_of_person: Ints, control: Floats, difference: NDArray[np.floating]
) -> Selection:
    """Some triples, each weighted by one over the number of the person's triples."""
    weight, each = part.weight if rows is None else part.weight[rows], 1 / n_of_person.astype(np.float64)
    return Selection(rows, weight * each, control, difference, float(each.sum()))


def _cec_of(part: Triples, is_in: Bools, n_of_person: Ints) -> Selection:
    rows, at = _chosen(is_in)
    difference = part.cec[at] - part.placebo_cec[at]
    return _selected(part, rows, n_of_person[at], part.controls[at], difference[:, None])


def _chosen(is_in: Bools) -> tuple[Ints | None, Ints | slice]:
    """The rows of a selection, None for all; and what takes them from an array."""
    rows = np.flatnonzero(is_in)
    return (None, slice(None)) if len(rows) == len(is_in) else (rows, rows)


def _person_column(part: Triples, name: str) -> Ints:
    return {"group": part.group, "label": part.label, "decision": part.is_favorable.astype(np.int64)}[name]


def _is_between(part: Triples, first: int, second: int) -> Bools:
    low, high = np.minimum(part.group, part.other_group), np.maximum(part.group, part.other_group)
    is_between: Bools = (low == first) & (high == second)
    return is_between


@dataclass(frozen=True)
class Design:
    """How the evidence is split.

    Attributes
    ----------
    features, groups
        Their names.
    by
        Values of each column to split by, in code order.
    consistency_threshold
        As in `evenhand.audit`.
    without_weight
        Features that the model treats as categories.
    """

    features: tuple[str, ...]
    groups: tuple[str, ...]
    by: Mapping[str, tuple[str, ...]]
    consistency_threshold: float
    without_weight: tuple[str, ...] = ()


def main_questions(design: Design, present: Present) -> list[Question]:
    """The excess of the scores and of each feature, the same with groups weighing equally, and that of Regime B."""
    return [
        _ScoreExcess(),
        _Features(len(design.features)),
        _Balanced(present.weights),
        SharedReasons(),
        RegimeB(design.consistency_threshold),
    ]


@dataclass(frozen=True)
class Present(Sums):
    """Which values occur among some triples, and what each group weighs."""

    groups: frozenset[int]
    weights: Mapping[int, float]
    labels: frozenset[int]
    decisions: frozenset[int]
    between: frozenset[tuple[int, int]]
    by: Mapping[str, frozenset[int]]
    ranks: frozenset[int]


def values_present(parts: Parts, n_groups: int, crew: Crew = ONE_THREAD) -> Present:
    """Scan the triples for the values that occur and the weight of each group."""
    none = frozenset[int]()
    found = Present(none, {}, none, none, frozenset(), {}, none)
    for more in crew.in_order(lambda part: _present(part, n_groups), parts.parts()):
        found += more
    return found


def _present(part: Triples, n_groups: int) -> Present:
    sides = part.group * n_groups + part.other_group
    weights = np.bincount(part.group, part.weight / part.n_within[:, -1], minlength=n_groups)
    return Present(
        groups=_occurring(part.group),
        weights={code: float(weight) for code, weight in enumerate(weights) if weight > 0},
        labels=_occurring(part.label),
        decisions=_occurring(part.is_favorable.astype(np.int64)),
        between=frozenset((min(two), max(two)) for two in (divmod(code, n_groups) for code in _occurring(sides))),
        by={name: _occurring(codes) for name, codes in part.by.items()},
        ranks=_occurring(part.rank),
    )


def _occurring(codes: NDArray[np.signedinteger]) -> frozenset[int]:
    """Which of few codes occur."""
    return frozenset(np.flatnonzero(np.bincount(codes)).tolist())


def split_questions(
    design: Design, between: list[tuple[int, int]], present: Present
) -> list[tuple[str, str, Question]]:
    """Split, value and question; every group is shown, even one without triples."""
    found: list[tuple[str, str, Question]] = []

    def add(split: str, names: Mapping[int, str], codes: Iterable[int]) -> None:
        ordered = sorted(codes, key=lambda code: names[code])
        found.extend((split, names[code], _WithinPeople(split, code)) for code in ordered)

    groups = dict(enumerate(design.groups))
    add("group", groups, present.groups)
    found += [("group", groups[c], _WithinPeople("group", c)) for c in groups if c not in present.groups]
    for split, codes in (("label", present.labels), ("decision", present.decisions)):
        add(split, {1: "favorable", 0: "unfavorable"}, codes)
    if len(groups) > 2:
        order = sorted(between, key=lambda sides: (sides not in present.between, _sides(design, sides)))
        found += [("groups compared", _sides(design, sides), BetweenGroups(*sides)) for sides in order]
    for name, values in design.by.items():
        add(name, dict(enumerate(values)), present.by.get(name, frozenset()))
    return found


def _sides(design: Design, sides: tuple[int, int]) -> str:
    return f"{design.groups[sides[0]]} - {design.groups[sides[1]]}"
