"""Estimate many excesses at once from triples in parts, with the standard errors of `excess`.

The parts may be on disk. Three passes are made over them: for the regressions, for sums over each person, and for
sums over every two people of the reference. The first two go by part, which holds all triples of a person; the third
goes by ranges of the reference, because two of its people may meet in triples of any part. Memory grows with the
reference, not with the number of triples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.metrics.excess import (
    MIN_PEOPLE,
    ExcessEstimate,
    ExcessFit,
    ExcessMoments,
    estimated,
    left_out_note,
    too_few,
)
from evenhand.metrics.sharing import Gathered, deleted_squares, effective_number, placed, row_codes
from evenhand.system.threads import one_torch_thread

__all__ = ["InMemory", "Part", "Parts", "Question", "Selection", "estimate_excesses", "smallest_row"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

_COLUMNS_AT_ONCE = {"cpu": 8, "cuda": 256}  # bounds memory
_MOST_SUMS = 1 << 25  # of the reference's people times estimates held at once: 256 MB


class Part(Protocol):
    """Some triples: a person, someone of a different group and a placebo, the last two rows of the reference."""

    @property
    def unit(self) -> Ints:
        """A code for each person, of shape (n,); rows of the same person have the same."""

    @property
    def person_row(self) -> Ints:
        """The row that stands for the person in the reference, -1 for someone outside it."""

    @property
    def other(self) -> Ints:
        """Row that stands for the one from the other group."""

    @property
    def own(self) -> Ints:
        """Row that stands for the placebo."""

    def __len__(self) -> int: ...


T = TypeVar("T")
P = TypeVar("P", bound=Part)
P_co = TypeVar("P_co", bound=Part, covariant=True)
P_contra = TypeVar("P_contra", bound=Part, contravariant=True)


class Parts(Protocol[P_co]):
    """Triples in parts that can be iterated over repeatedly."""

    @property
    def n_reference(self) -> int:
        """Number of people in the reference."""

    @property
    def n_left_out(self) -> int:
        """Triples that could not be used and are not in any part."""

    def parts(self) -> Iterator[P_co]:
        """Parts; all triples of a person are in one."""

    def ranges(self) -> Iterator[tuple[P_co, int, int]]:
        """Triples whose two reference rows have the lower one in a range, with the range's two ends."""


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

    def first(self, n_columns: int) -> Selection:
        """The same with no more than the first columns."""
        return replace(self, difference=self.difference[:, :n_columns])

    def on(self, device: torch.device) -> _Placed:
        """The selection where its sums are taken."""
        share, control, difference = (placed(array, device) for array in (self.share, self.control, self.difference))
        return _Placed(share, control, difference, None if self.rows is None else placed(self.rows, device))


@dataclass(frozen=True, eq=False)
class _Placed:
    """A selection on a device."""

    share: Tensor
    control: Tensor
    difference: Tensor
    rows: Tensor | None

    def blocks(self) -> Iterator[tuple[slice, Tensor]]:
        """A few columns at a time, in double precision, and which they are."""
        width = _COLUMNS_AT_ONCE.get(self.share.device.type, _COLUMNS_AT_ONCE["cpu"])
        for first in range(0, self.difference.shape[1], width):
            chosen = slice(first, first + width)
            yield chosen, self.difference[:, chosen].double()

    def spread(self, values: Tensor, n: int) -> Tensor:
        """Rows of values over all n triples of a part, 0 for those that were not selected."""
        if self.rows is None:
            return values
        whole = values.new_zeros((n, *values.shape[1:]))
        whole[self.rows] = values
        return whole


class Question(Protocol[P_contra]):
    """A selection of triples and columns, the same for every part."""

    @property
    def n_columns(self) -> int:
        """Number of columns."""

    def of(self, part: P_contra) -> Selection:
        """The selection of one part."""


@dataclass(frozen=True, eq=False)
class InMemory(Generic[P]):
    """Triples in a single part."""

    part: P
    n_reference: int
    n_left_out: int = 0

    def parts(self) -> Iterator[P]:
        """The part."""
        yield self.part

    def ranges(self) -> Iterator[tuple[P, int, int]]:
        """The whole part."""
        yield self.part, 0, self.n_reference


def smallest_row(part: Part) -> Ints:
    """The lower row of the couple that a triple of someone outside the reference makes."""
    return np.minimum(part.other, part.own)


def estimate_excesses(
    questions: Sequence[Question[P]],
    parts: Parts[P],
    n_threads: int = 1,
    device: torch.device | None = None,
) -> list[tuple[ExcessEstimate, ...]]:
    """The excess of each column of each question.

    The estimates equal those of `excess_columns` for all triples at once, up to rounding.

    Parameters
    ----------
    questions
        What to average.
    parts
        The triples.
    n_threads
        Questions answered at the same time; the estimates are the same to the last bit for any number.
    device
        Device on which sums are taken; None for the CPU. Estimates of different devices agree up to rounding.
    """
    if not questions:
        return []
    place = device or torch.device("cpu")
    note = left_out_note(parts.n_left_out)
    found: list[tuple[ExcessEstimate, ...]] = []
    with one_torch_thread(), ThreadPoolExecutor(n_threads) as pool:
        moments = _moments(questions, parts, pool, place)
        fits = [None if m is None or round(m.n_people) < max(MIN_PEOPLE, 2) else m.fit() for m in moments]
        for chosen in _batches(questions, parts.n_reference):
            asked = {
                k: _Asked(questions[k], fit, _ClusterSums.zeros(parts.n_reference, questions[k].n_columns, place))
                for k in chosen
                if (fit := fits[k]) is not None
            }
            if asked:
                _add_people(list(asked.values()), parts, pool)
                _add_couples(list(asked.values()), parts, pool)
            for k in chosen:
                moment = moments[k]
                if k in asked:
                    found.append(asked[k].sums.estimates(asked[k].fit, note))
                else:
                    n = 0 if moment is None else round(moment.n_people)
                    found.append(tuple(too_few(n, MIN_PEOPLE, note) for _ in range(questions[k].n_columns)))
    return found


@dataclass(frozen=True, eq=False)
class _Asked(Generic[P]):
    """A question that enough people answer, its regressions and the sums that its errors are made of."""

    question: Question[P]
    fit: ExcessFit
    sums: _ClusterSums


def _moments(
    questions: Sequence[Question[P]], parts: Parts[P], pool: Executor, device: torch.device
) -> list[ExcessMoments | None]:
    found: list[ExcessMoments | None] = [None] * len(questions)
    for part in _ahead(parts.parts(), pool):
        asked = pool.map(lambda question, part=part: _moments_of(question.of(part), device), questions)
        for k, more in enumerate(asked):
            before = found[k]
            found[k] = more if before is None else before + more
    return found


def _moments_of(chosen: Selection, device: torch.device) -> ExcessMoments:
    there = chosen.on(device)
    blocks = [ExcessMoments.of(there.share, there.control, block, chosen.n_people) for _, block in there.blocks()]
    product = np.concatenate([block.product for block in blocks], axis=1)
    return replace(blocks[0], product=product)


def _batches(questions: Sequence[Question[P]], n_reference: int) -> Iterator[list[int]]:
    """Questions that are answered in one pass, so that their sums over the reference stay bounded."""
    chosen: list[int] = []
    size = 0
    for k, question in enumerate(questions):
        more = (question.n_columns + 1) * n_reference
        if chosen and size + more > _MOST_SUMS:
            yield chosen
            chosen, size = [], 0
        chosen.append(k)
        size += more
    yield chosen


def _add_people(asked: Sequence[_Asked[P]], parts: Parts[P], pool: Executor) -> None:
    device = asked[0].sums.leverage.device
    indexed = ((part, _PeopleOfPart.of(part, parts.n_reference, device)) for part in parts.parts())
    for part, people in _ahead(indexed, pool):

        def add(one: _Asked[P], part: P = part, people: _PeopleOfPart = people) -> None:
            one.sums.add_people(people, one.fit, one.question.of(part).on(device))

        _for_each(add, asked, pool)


def _add_couples(asked: Sequence[_Asked[P]], parts: Parts[P], pool: Executor) -> None:
    n, device = parts.n_reference, asked[0].sums.leverage.device
    indexed = ((part, _couples_of_reference(part, n, low, high, device)) for part, low, high in parts.ranges())
    for part, couples in _ahead(indexed, pool):

        def add(one: _Asked[P], part: P = part, couples: tuple[Gathered, ...] = couples) -> None:
            one.sums.add_couples(couples, one.fit, one.question.of(part).on(device), len(part))

        _for_each(add, asked, pool)


def _for_each(function: Callable[[T], None], items: Iterable[T], pool: Executor) -> None:
    """Call a function of every item, and raise what it raises."""
    for _ in pool.map(function, items):
        pass


def _ahead(items: Iterator[T], pool: Executor) -> Iterator[T]:
    """The items, each of them made while the one before is in use."""
    end = object()
    coming = pool.submit(next, items, end)
    while (item := coming.result()) is not end:
        coming = pool.submit(next, items, end)
        yield item  # type: ignore[misc]


def _rows_of(part: Part, device: torch.device) -> tuple[Tensor, Tensor, Tensor]:
    """Rows that stand in the reference for the three of each triple."""
    columns = (part.person_row, part.other, part.own)
    person, other, own = (placed(rows, device, torch.int64) for rows in columns)
    return person, other, own


@dataclass(frozen=True, eq=False)
class _PeopleOfPart:
    """Who is in the triples of a part, and what those outside the reference share with whom.

    Attributes
    ----------
    person
        Triples by the person that they are about.
    is_outside_person
        Which of those people are not in the reference.
    reference
        Triples by each person of the reference who is in them.
    shared
        Triples by what people outside the reference share.
    """

    person: Gathered
    is_outside_person: Tensor
    reference: Gathered
    shared: tuple[Gathered, ...]

    @classmethod
    def of(cls, part: Part, n_reference: int, device: torch.device) -> _PeopleOfPart:
        person_row, other, own = _rows_of(part, device)
        code = placed(part.unit, device).unique(return_inverse=True)[1]
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
        reference = Gathered(
            torch.cat([other, own, person_row[inside]]), n_reference, rows=torch.cat([everyone, everyone, inside])
        )
        return cls(person, is_outside, reference, shared if len(outside) else ())


def _couples_of_reference(
    part: Part, n_reference: int, low: int, high: int, device: torch.device
) -> tuple[Gathered, ...]:
    """Couples, and triples, of the reference whose lowest row is in a range."""
    person, other, own = _rows_of(part, device)
    everyone = torch.arange(len(person), device=device)
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


@dataclass(eq=False)
class _ClusterSums:
    """Sums that the variances of one question's columns are made of.

    Attributes
    ----------
    leverage
        Weight of the triples of each person of the reference.
    over_reference
        Sum of their residuals, of shape (n_reference, n_columns).
    outside_squares, outside_leverage
        Squared sums over people outside the reference; sums of the second and of the fourth power of their weights.
    person_squares
        Squared sums over the people that triples are about.
    shared_squares
        What is counted more than once.
    """

    leverage: Tensor
    over_reference: Tensor
    outside_squares: Tensor
    person_squares: Tensor
    shared_squares: Tensor
    outside_leverage: Tensor

    @classmethod
    def zeros(cls, n_reference: int, n_columns: int, device: torch.device) -> _ClusterSums:
        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=device)

        outside, person, shared = zeros(n_columns), zeros(n_columns), zeros(n_columns)
        return cls(zeros(n_reference), zeros(n_reference, n_columns), outside, person, shared, zeros(2))

    def add_people(self, people: _PeopleOfPart, fit: ExcessFit, chosen: _Placed) -> None:
        n, is_outside = len(people.person.code), people.is_outside_person
        weight = chosen.spread(chosen.share / fit.total, n).unsqueeze(1)
        self.leverage += people.reference.sums(weight)[:, 0]
        share_of = people.person.sums(weight)[is_outside, 0]
        self.outside_leverage += torch.stack([share_of.pow(2).sum(), share_of.pow(4).sum()])
        for columns, residual in _residuals(fit, chosen, n):
            self.over_reference[:, columns] += people.reference.sums(residual)
            sums = people.person.sums(residual)
            self.person_squares[columns] += sums.square().sum(0)
            self.outside_squares[columns] += deleted_squares(sums[is_outside], share_of)
            for index in people.shared:
                self.shared_squares[columns] += index.squares(residual)

    def add_couples(self, couples: tuple[Gathered, ...], fit: ExcessFit, chosen: _Placed, n: int) -> None:
        for columns, residual in _residuals(fit, chosen, n):
            for index in couples:
                self.shared_squares[columns] += index.squares(residual)

    def estimates(self, fit: ExcessFit, note: str) -> tuple[ExcessEstimate, ...]:
        square, (outside, outside_fourth) = self.leverage.square(), self.outside_leverage.tolist()
        n_effective = effective_number(float(square.sum()) + outside, float(square.square().sum()) + outside_fourth)
        variance = deleted_squares(self.over_reference, self.leverage) + self.outside_squares + self.shared_squares
        errors = torch.maximum(variance, self.person_squares).cpu().numpy()
        return tuple(
            estimated(value, error, fit.n_people, n_effective, 0.95, note)
            for value, error in zip(fit.values.tolist(), np.sqrt(errors).tolist(), strict=True)
        )


def _residuals(fit: ExcessFit, chosen: _Placed, n: int) -> Iterator[tuple[slice, Tensor]]:
    """Residuals of a few columns over all n triples of a part, 0 for those that were not selected."""
    for columns, block in chosen.blocks():
        part = replace(fit, coefficients=fit.coefficients[:, columns])
        yield columns, chosen.spread(part.residuals(chosen.share, chosen.control, block), n)
