"""Many excesses at once from triples that are kept in parts, with the standard errors of `excess`.

The parts may lie on disk. Three passes are made over them: for the regressions, for what concerns each person, and for
what concerns every two people of the reference. The first two go by part, where all triples of a person are; the
third goes by ranges of the reference, as two of its people may meet in triples of any part. Memory grows with the
reference and not with the number of triples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from evenhand.metrics.excess import (
    MIN_PEOPLE,
    ExcessEstimate,
    ExcessFit,
    ExcessMoments,
    estimated,
    left_out_note,
    too_few,
)
from evenhand.metrics.sharing import Gathered, column_blocks, deleted_squares, effective_number, row_codes

__all__ = ["InMemory", "Part", "Parts", "Question", "Selection", "estimate_excesses", "smallest_row"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

_COLUMNS_AT_ONCE = 8
_MOST_SUMS = 1 << 25  # of the reference's people times estimates held at once: 256 MB


class Part(Protocol):
    """Some triples: a person, someone of another group and a placebo, the last two rows of the reference."""

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
    """Triples in parts, to be gone through as often as needed."""

    @property
    def n_reference(self) -> int:
        """Number of people in the reference."""

    @property
    def n_left_out(self) -> int:
        """Triples that could not be used and are in no part."""

    def parts(self) -> Iterator[P_co]:
        """Parts; all triples of a person are in one."""

    def ranges(self) -> Iterator[tuple[P_co, int, int]]:
        """Triples in which a couple of the reference has its lower row in a range, with the range's two ends."""


@dataclass(frozen=True, eq=False)
class Selection:
    """What is averaged over which triples of a part.

    Attributes
    ----------
    rows
        The triples; None for all.
    share
        Weight of each triple: that of the person over the number of the person's selected triples, in all parts.
    control
        Controls of each, of shape (n, q).
    difference
        What is averaged, of shape (n, n_columns).
    n_people
        Number of people, where people do not all weigh 1.
    """

    rows: Ints | None
    share: Floats
    control: Floats
    difference: NDArray[np.floating]
    n_people: float | None = None


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
        """The part, whole."""
        yield self.part, 0, self.n_reference


def smallest_row(part: Part) -> Ints:
    """The lower row of the couple that a triple of someone outside the reference makes."""
    return np.minimum(part.other, part.own)


def estimate_excesses(
    questions: Sequence[Question[P]], parts: Parts[P], n_threads: int = 1
) -> list[tuple[ExcessEstimate, ...]]:
    """The excess of each column of each question.

    The estimates are those of `excess_columns` for all triples at once, up to rounding.

    Parameters
    ----------
    questions
        What to average.
    parts
        The triples.
    n_threads
        Questions answered at the same time; the estimates are the same to the last bit for any number.
    """
    if not questions:
        return []
    note = left_out_note(parts.n_left_out)
    found: list[tuple[ExcessEstimate, ...]] = []
    with ThreadPoolExecutor(n_threads) as pool:
        moments = _moments(questions, parts, pool)
        fits = [None if m is None or round(m.n_people) < max(MIN_PEOPLE, 2) else m.fit() for m in moments]
        for chosen in _batches(questions, parts.n_reference):
            asked = {
                k: _Asked(questions[k], fit, _ClusterSums.zeros(parts.n_reference, questions[k].n_columns))
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


def _moments(questions: Sequence[Question[P]], parts: Parts[P], pool: Executor) -> list[ExcessMoments | None]:
    found: list[ExcessMoments | None] = [None] * len(questions)
    for part in _ahead(parts.parts(), pool):
        for k, more in enumerate(pool.map(lambda question, part=part: _moments_of(question.of(part)), questions)):
            before = found[k]
            found[k] = more if before is None else before + more
    return found


def _moments_of(chosen: Selection) -> ExcessMoments:
    blocks = [
        ExcessMoments.of(chosen.share, chosen.control, block, chosen.n_people)
        for block in column_blocks(chosen.difference, _COLUMNS_AT_ONCE)
    ]
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
    indexed = ((part, _PeopleOfPart.of(part, parts.n_reference)) for part in parts.parts())
    for part, people in _ahead(indexed, pool):

        def add(one: _Asked[P], part: P = part, people: _PeopleOfPart = people) -> None:
            one.sums.add_people(people, one.fit, one.question.of(part))

        _for_each(add, asked, pool)


def _add_couples(asked: Sequence[_Asked[P]], parts: Parts[P], pool: Executor) -> None:
    n = parts.n_reference
    indexed = ((part, _couples_of_reference(part, n, low, high)) for part, low, high in parts.ranges())
    for part, couples in _ahead(indexed, pool):

        def add(one: _Asked[P], part: P = part, couples: tuple[Gathered, ...] = couples) -> None:
            one.sums.add_couples(couples, one.fit, one.question.of(part), len(part))

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


@dataclass(frozen=True, eq=False)
class _PeopleOfPart:
    """Who is in the triples of a part, and what those outside the reference share with whom."""

    code: Ints
    n_people: int
    is_outside_person: Bools
    inside: Ints
    inside_row: Ints
    other: Ints
    own: Ints
    shared: tuple[Gathered, ...]

    @classmethod
    def of(cls, part: Part, n_reference: int) -> _PeopleOfPart:
        people, first, code = np.unique(part.unit, return_index=True, return_inverse=True)
        outside = np.flatnonzero(part.person_row < 0)
        inside = np.flatnonzero(part.person_row >= 0)
        who = code[outside]
        lower, upper = np.minimum(part.other, part.own)[outside], np.maximum(part.other, part.own)[outside]
        couple = row_codes(n_reference, np.concatenate([who, who]), np.concatenate([lower, upper]))
        three = row_codes(n_reference, couple[: len(who)], upper)
        shared = (Gathered(couple, -1.0, np.concatenate([outside, outside])), Gathered(three, 1.0, outside))
        return cls(
            code=code,
            n_people=len(people),
            is_outside_person=part.person_row[first] < 0,
            inside=inside,
            inside_row=part.person_row[inside],
            other=part.other,
            own=part.own,
            shared=shared if len(outside) else (),
        )

    def over_reference(self, residual: Floats, n_reference: int) -> Floats:
        """Sum of a value per triple over the triples that contain each person of the reference."""
        total = np.bincount(self.other, residual, minlength=n_reference)
        total += np.bincount(self.own, residual, minlength=n_reference)
        total += np.bincount(self.inside_row, residual[self.inside], minlength=n_reference)
        return total.astype(np.float64, copy=False)


def _couples_of_reference(part: Part, n_reference: int, low: int, high: int) -> tuple[Gathered, ...]:
    """Couples, and triples, of the reference whose lowest row is in a range."""
    inside = np.flatnonzero(part.person_row >= 0)
    everyone = np.arange(len(part))
    sides = [
        (everyone, part.other, part.own),
        (inside, part.person_row[inside], part.other[inside]),
        (inside, part.person_row[inside], part.own[inside]),
    ]
    couples = []
    for who, first, second in sides:
        lower, upper = np.minimum(first, second), np.maximum(first, second)
        chosen = (lower >= low) & (lower < high)
        couples.append((who[chosen], lower[chosen], upper[chosen]))
    rows, lower, upper = (np.concatenate(columns) for columns in zip(*couples, strict=True))
    found = [Gathered(row_codes(n_reference, lower, upper), -1.0, rows)]
    three = np.sort(np.column_stack([part.person_row[inside], part.other[inside], part.own[inside]]), axis=1)
    chosen = (three[:, 0] >= low) & (three[:, 0] < high)
    if chosen.any():
        found.append(Gathered(row_codes(n_reference, *three[chosen].T), 1.0, inside[chosen]))
    return tuple(found)


@dataclass(eq=False)
class _ClusterSums:
    """Sums that the variances of one question's columns are made of.

    Attributes
    ----------
    leverage
        Weight of the triples of each person of the reference.
    over_reference
        Sum of their residuals, of shape (n_columns, n_reference).
    outside_squares, outside_leverage
        Squared sums over people outside the reference; sums of the second and of the fourth power of their weights.
    person_squares
        Squared sums over the people that triples are about.
    shared_squares
        What is counted more than once.
    """

    leverage: Floats
    over_reference: Floats
    outside_squares: Floats
    person_squares: Floats
    shared_squares: Floats
    outside_leverage: Floats

    @classmethod
    def zeros(cls, n_reference: int, n_columns: int) -> _ClusterSums:
        outside, person, shared = np.zeros((3, n_columns))
        return cls(np.zeros(n_reference), np.zeros((n_columns, n_reference)), outside, person, shared, np.zeros(2))

    def add_people(self, people: _PeopleOfPart, fit: ExcessFit, chosen: Selection) -> None:
        n, n_reference = len(people.code), len(self.leverage)
        weight = _spread(chosen.share / fit.total, chosen.rows, n)
        self.leverage += people.over_reference(weight, n_reference)
        share_of: Floats = np.bincount(people.code, weight, minlength=people.n_people).astype(np.float64)
        share_of = share_of[people.is_outside_person]
        self.outside_leverage += [float((share_of**2).sum()), float((share_of**4).sum())]
        for column, residual in _residuals(fit, chosen, n):
            self.over_reference[column] += people.over_reference(residual, n_reference)
            sums: Floats = np.bincount(people.code, residual, minlength=people.n_people).astype(np.float64)
            self.person_squares[column] += sums @ sums
            outside = sums[people.is_outside_person]
            self.outside_squares[column] += deleted_squares(outside, share_of)
            self.shared_squares[column] += sum(index.squares(residual) for index in people.shared)

    def add_couples(self, couples: tuple[Gathered, ...], fit: ExcessFit, chosen: Selection, n: int) -> None:
        for column, residual in _residuals(fit, chosen, n):
            self.shared_squares[column] += sum(index.squares(residual) for index in couples)

    def estimates(self, fit: ExcessFit, note: str) -> tuple[ExcessEstimate, ...]:
        square, (outside, outside_fourth) = self.leverage**2, self.outside_leverage.tolist()
        n_effective = effective_number(float(square.sum()) + outside, float((square**2).sum()) + outside_fourth)
        found = []
        for column, value in enumerate(fit.values.tolist()):
            variance = deleted_squares(self.over_reference[column], self.leverage) + float(
                self.outside_squares[column] + self.shared_squares[column]
            )
            error = float(np.sqrt(max(variance, float(self.person_squares[column]))))
            found.append(estimated(value, error, fit.n_people, n_effective, 0.95, note))
        return tuple(found)


def _residuals(fit: ExcessFit, chosen: Selection, n: int) -> Iterator[tuple[int, Floats]]:
    """Residuals of each column over all n triples of a part, 0 for those that were not selected."""
    column = 0
    for block in column_blocks(chosen.difference, _COLUMNS_AT_ONCE):
        part = replace(fit, coefficients=fit.coefficients[:, column : column + block.shape[1]])
        residuals = part.residuals(chosen.share, chosen.control, block)
        for residual in np.ascontiguousarray(residuals.T):
            yield column, _spread(residual, chosen.rows, n)
            column += 1


def _spread(values: Floats, rows: Ints | None, n: int) -> Floats:
    if rows is None:
        return values
    whole = np.zeros(n)
    whole[rows] = values
    return whole
