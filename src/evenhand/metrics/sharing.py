"""Averages over pairs or triples that share people: their variance, and what two of them have in common.

An estimate's error is a sum over rows (pairs or triples) of a residual times a weight. Summed over the rows that
contain a person, it is that person's influence. People are assigned to a fixed number of buckets by who they are, so
the influences of millions take no more space than those of a thousand; the correlation of two estimates is that of
their sums by bucket. People who share a bucket by chance add noise, but no bias.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy.sparse import coo_array
from torch import Tensor

from evenhand.arrays import Floats, Ints

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

    code: Tensor
    n_codes: int
    sign: float = 1.0
    rows: Tensor | None = None

    @classmethod
    def of(cls, code: Tensor, sign: float = 1.0, rows: Tensor | None = None) -> Gathered:
        """For codes that all occur."""
        return cls(code, 1 + int(code.max()) if len(code) else 0, sign, rows)

    def sums(self, residual: Tensor) -> Tensor:
        """Sum of the residuals, of shape (n, n_columns), of each code's triples: (n_codes, n_columns)."""
        if residual.device.type == "cpu":
            entries = (np.ones(len(self.code)), (self.code.numpy(), self._rows.numpy()))
            index = coo_array(entries, shape=(self.n_codes, len(residual)))
            return torch.from_numpy(index @ residual.contiguous().numpy())
        if not len(self.code):
            return residual.new_zeros((self.n_codes, residual.shape[1]))
        # A GPU adds in any order unless the values of each sum are adjacent.
        values, (order, lengths) = residual if self.rows is None else residual[self.rows], self._by_code
        sums: Tensor = torch.segment_reduce(values[order], "sum", lengths=lengths, axis=0, unsafe=True)
        return sums

    @cached_property
    def _rows(self) -> Tensor:
        return torch.arange(len(self.code), device=self.code.device) if self.rows is None else self.rows

    @cached_property
    def lone_and_again(self) -> tuple[Tensor, Gathered]:
        """Triples of codes that occur once, which are most couples and need not be added up; and the other codes."""
        is_again = (self.code.bincount(minlength=self.n_codes) > 1)[self.code]
        again, code = numbered(self.code[is_again], self.n_codes)
        return self._rows[~is_again], Gathered(code, len(again), rows=self._rows[is_again])

    @cached_property
    def _by_code(self) -> tuple[Tensor, Tensor]:
        """The order in which codes ascend, and how often each occurs."""
        return self.code.argsort(stable=True), self.code.bincount(minlength=self.n_codes)


def squared_sums(gathered: Iterable[Gathered], residual: Tensor) -> Tensor:
    """Signed sums of the squares of the sums of every code, of shape (n_columns,)."""
    times = residual.new_zeros(len(residual))
    found = residual.new_zeros(residual.shape[1])
    for index in gathered:
        lone, again = index.lone_and_again
        times += index.sign * lone.bincount(minlength=len(residual))
        found += index.sign * again.sums(residual).square().sum(0)
    return found + (times.unsqueeze(1) * residual).mul_(residual).sum(0)


@dataclass(frozen=True, eq=False)
class Overlap:
    """Who shares triples with whom, indexed once for every score that is averaged over them."""

    person: Gathered
    singles: Gathered
    larger: tuple[Gathered, ...]
    leverage: Tensor

    @classmethod
    def of(cls, people: Ints, weight: Floats) -> Overlap:
        """Index the single people, the couples and the triplets of every triple, given as codes of shape (n, m)."""
        codes = placed(people).unique(return_inverse=True)[1]
        ordered = codes.sort(dim=1).values
        n_codes, everyone = int(codes.max()) + 1, torch.arange(len(codes))
        larger = []
        for size, sign in ((2, -1.0), (3, 1.0)):
            subsets = list(combinations(range(ordered.shape[1]), size))
            if subsets:
                members = (ordered[:, list(column)].T.flatten() for column in zip(*subsets, strict=True))
                rows = everyone.repeat(len(subsets))
                larger.append(Gathered.of(row_codes(n_codes, *members), sign, rows))
        singles = Gathered(codes.T.flatten(), n_codes, rows=everyone.repeat(codes.shape[1]))
        leverage = singles.sums(placed(weight).unsqueeze(1))[:, 0]
        return cls(Gathered(codes[:, 0].contiguous(), n_codes), singles, tuple(larger), leverage)

    @property
    def n_effective(self) -> float:
        """Effective number of people, given how unevenly they are used."""
        return effective_number(float(self.leverage.pow(2).sum()), float(self.leverage.pow(4).sum()))

    def variance(self, residual: Tensor) -> Floats:
        """Variance of the sum of each column of `residual`, of shape (n_columns,)."""
        total = deleted_squares(self.singles.sums(residual), self.leverage.unsqueeze(1))
        total += squared_sums(self.larger, residual)
        found: Floats = torch.maximum(total, squared_sums([self.person], residual)).numpy()
        return found


def placed(values: NDArray[Any], device: torch.device | None = None, dtype: torch.dtype | None = None) -> Tensor:
    """An array as a tensor on a device; None is the CPU, where the two share memory if they can."""
    return torch.as_tensor(np.require(values, requirements=("W",)), dtype=dtype, device=device)


def row_codes(n: int, first: Tensor, *others: Tensor) -> Tensor:
    """One code from 0 for each distinct row of columns of codes below `n`.

    Examples
    --------
    >>> row_codes(10, torch.tensor([3, 1, 3]), torch.tensor([0, 9, 0]))
    tensor([0, 1, 0])
    """
    code = first
    for column in others:  # one at a time: n cubed could overflow
        code = distinct_codes(code * n + column)
    return code


def distinct_codes(values: Tensor) -> Tensor:
    """One code from 0 for each distinct value; on a CPU without sorting them."""
    if values.device.type != "cpu":
        codes: Tensor = values.unique(return_inverse=True)[1]
        return codes
    return torch.from_numpy(pd.factorize(values.numpy())[0])


def numbered(rows: Tensor, n: int) -> tuple[Tensor, Tensor]:
    """Those of n rows that occur, in order, and the place of each row among them.

    Examples
    --------
    >>> numbered(torch.tensor([7, 2, 7]), 10)
    (tensor([2, 7]), tensor([1, 0, 1]))
    """
    occurs = rows.bincount(minlength=n) > 0
    return occurs.nonzero().squeeze(1), (occurs.cumsum(0) - 1)[rows]


def deleted_squares(sums: Tensor, leverage: Tensor) -> Tensor:
    """Sums of squared changes of estimates when each person is deleted, of shape (n_columns,).

    Parameters
    ----------
    sums
        Sum of the residuals of each person's triples, of shape (n_people, n_columns).
    leverage
        Weight of each person's triples, of the shape of `sums`, or (n_people, 1) where it is that of all columns.
    """
    # A person in every triple cannot be deleted; the bound only keeps the division defined.
    return (sums / (1 - leverage).clamp_min(0.1)).square().sum(0)


def effective_number(squares: float, fourth_powers: float) -> float:
    """Number of equally used people with the same information, from sums of powers of their leverages."""
    return squares**2 / fourth_powers


@dataclass(frozen=True, eq=False)
class People:
    """The people of some triples, on a device; the fields are those of `Triples`."""

    unit: Tensor
    person_row: Tensor
    other: Tensor
    own: Tensor


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
    is_outside_person: Tensor
    reference: Gathered
    rows: Tensor
    shared: tuple[Gathered, ...]

    @classmethod
    def of(cls, part: People, n_reference: int) -> PeopleOfPart:
        """Index the triples of a part."""
        person_row, other, own, device = part.person_row, part.other, part.own, part.unit.device
        code = distinct_codes(part.unit)
        person, everyone = Gathered.of(code), torch.arange(len(code), device=device)
        is_outside = torch.zeros(person.n_codes, dtype=torch.bool, device=device)
        is_outside[code] = person_row < 0
        outside, inside = ((person_row < 0) == side for side in (True, False))
        outside, inside = everyone[outside], everyone[inside]
        who = code[outside]
        lower, upper = torch.minimum(other, own)[outside], torch.maximum(other, own)[outside]
        couple = row_codes(n_reference, torch.cat([who, who]), torch.cat([lower, upper]))
        three = row_codes(n_reference, couple[: len(who)], upper)
        shared = (Gathered.of(couple, -1.0, torch.cat([outside, outside])), Gathered.of(three, 1.0, outside))
        rows, place = numbered(torch.cat([other, own, person_row[inside]]), n_reference)
        reference = Gathered(place, len(rows), rows=torch.cat([everyone, everyone, inside]))
        return cls(person, is_outside, reference, rows, shared if len(outside) else ())


def couples_of_reference(part: People, n_reference: int, low: int, high: int) -> tuple[Gathered, ...]:
    """Couples, and triples, of the reference whose lowest row is in a range."""
    person, other, own = part.person_row, part.other, part.own
    everyone = torch.arange(len(person), device=person.device)
    inside = everyone[person >= 0]
    sides = [
        (everyone, other, own),
        (inside, person[inside], other[inside]),
        (inside, person[inside], own[inside]),
    ]
    couples = []
    for who, first, second in sides:
        lower, upper = torch.minimum(first, second), torch.maximum(first, second)
        chosen = (lower >= low) & (lower < high)
        couples.append((who[chosen], lower[chosen], upper[chosen]))
    rows, lower, upper = (torch.cat(columns) for columns in zip(*couples, strict=True))
    found = [Gathered.of(row_codes(n_reference, lower, upper), -1.0, rows)]
    three = torch.stack([person[inside], other[inside], own[inside]], dim=1).sort(dim=1).values
    chosen = (three[:, 0] >= low) & (three[:, 0] < high)
    if chosen.any():
        found.append(Gathered.of(row_codes(n_reference, *three[chosen].T), 1.0, inside[chosen]))
    return tuple(found)


def bucket_sums(values: Tensor, *buckets: Tensor) -> Tensor:
    """Sums of the rows of `values` over the buckets of each of their people, of shape (N_BUCKETS, n_columns).

    Examples
    --------
    >>> found = bucket_sums(torch.tensor([[1.0], [2.0]]), torch.tensor([0, 1]), torch.tensor([3, 0]))
    >>> found[[0, 1, 3], 0].tolist()
    [3.0, 2.0, 1.0]
    """
    rows = torch.arange(len(values), device=values.device).repeat(len(buckets))
    return Gathered(torch.cat(buckets), N_BUCKETS, rows=rows).sums(values)


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
