"""Estimate many excesses at once from triples in parts, with the standard errors of `excess`.

The parts may be on disk. Three passes are made over them: for the regressions, for sums over each person, and for
sums over every two people of the reference. The first two go by part, which holds all triples of a person; the third
goes by ranges of the reference, because two of its people may meet in triples of any part. Memory grows with the
reference, not with the number of triples.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Generic, Protocol, TypeAlias, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.metrics.couples import People, PeopleOfPart, couples_of_reference
from evenhand.metrics.excess import (
    MIN_PEOPLE,
    ExcessEstimate,
    ExcessFit,
    ExcessMoments,
    estimated,
    left_out_note,
    too_few,
)
from evenhand.metrics.sharing import deleted_squares, effective_number, placed, squared_sums
from evenhand.system.parallel import ONE_THREAD, Crew
from evenhand.system.threads import device_turn, one_torch_thread

__all__ = [
    "InMemory",
    "Part",
    "Parts",
    "Placed",
    "Question",
    "Selection",
    "estimate_excesses",
    "excess_moments",
    "smallest_row",
]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

_COLUMNS_AT_ONCE = {"cpu": 16, "cuda": 256}  # bounds memory
_MOST_SUMS = 1 << 24  # of the reference's people times estimates held at once: 128 MB
_ESTIMATES_AT_ONCE = 64  # at least, so that the number of passes does not grow with the reference


class Part(Protocol):
    """Some triples: a person, someone of a different group and a placebo, the last two rows of the reference."""

    @property
    def unit(self) -> NDArray[np.signedinteger]:
        """A code for each person, of shape (n,); rows of the same person have the same."""

    @property
    def person_row(self) -> NDArray[np.signedinteger]:
        """The row that stands for the person in the reference, -1 for someone outside it."""

    @property
    def other(self) -> NDArray[np.signedinteger]:
        """Row that stands for the one from the other group."""

    @property
    def own(self) -> NDArray[np.signedinteger]:
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

    def parts(self) -> Iterable[P_co]:
        """Parts; all triples of a person are in one."""

    def ranges(self) -> Iterable[tuple[P_co, int, int]]:
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

    def only(self, columns: slice) -> Selection:
        """The same with some of the columns."""
        return replace(self, difference=self.difference[:, columns])

    def on(self, device: torch.device) -> Placed:
        """The selection where its sums are taken, in double precision."""
        share, control, difference = (
            placed(array, device, torch.float64) for array in (self.share, self.control, self.difference)
        )
        return Placed(share, control, difference, None if self.rows is None else placed(self.rows, device))


@dataclass(frozen=True, eq=False)
class Placed:
    """A selection on a device."""

    share: Tensor
    control: Tensor
    difference: Tensor
    rows: Tensor | None

    def spread(self, values: Tensor, whole: Tensor) -> None:
        """Write rows of values into those of all triples of a part, in the rows of triples that were selected."""
        whole[slice(None) if self.rows is None else self.rows] = values


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

    def parts(self) -> Iterable[P]:
        """The part."""
        return [self.part]

    def ranges(self) -> Iterable[tuple[P, int, int]]:
        """The whole part."""
        return [(self.part, 0, self.n_reference)]


def smallest_row(part: Part) -> NDArray[np.signedinteger]:
    """The lower row of the couple that a triple of someone outside the reference makes."""
    lower: NDArray[np.signedinteger] = np.minimum(part.other, part.own)
    return lower


def estimate_excesses(
    questions: Sequence[Question[P]],
    parts: Parts[P],
    crew: Crew = ONE_THREAD,
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
    crew
        Who works on parts at the same time; the estimates are the same to the last bit for any.
    device
        Device on which sums are taken; None for the CPU. Estimates of different devices agree up to rounding.
    """
    if not questions:
        return []
    place = device or torch.device("cpu")
    note = left_out_note(parts.n_left_out)
    found: list[list[ExcessEstimate]] = [[] for _ in questions]
    with one_torch_thread():
        moments = excess_moments(questions, parts, crew, place)
        pieces: list[_Piece[P]] = []
        for k, (question, moment) in enumerate(zip(questions, moments, strict=True)):
            n_people = 0 if moment is None else round(moment.n_people)
            if moment is None or n_people < max(MIN_PEOPLE, 2):
                found[k] = [too_few(n_people, MIN_PEOPLE, note)] * question.n_columns
            else:
                pieces += _pieces(k, question, moment.fit(), place)
        for blocks in _passes(pieces, parts.n_reference, place):
            sums = [_ClusterSums.zeros(block, parts.n_reference, place) for block in blocks]
            _add_people(sums, parts, crew)
            _add_couples(sums, parts, crew)
            for of_block in sums:
                for piece, estimates in zip(of_block.block, of_block.estimates(note), strict=True):
                    found[piece.place] += estimates
    return [tuple(estimates) for estimates in found]


@dataclass(frozen=True, eq=False)
class _Piece(Generic[P]):
    """Some columns of a question that enough people answer, and their regressions; `place` is the question's."""

    place: int
    question: Question[P]
    columns: slice
    fit: ExcessFit

    @property
    def n_columns(self) -> int:
        return len(self.fit.values)


def excess_moments(
    questions: Sequence[Question[P]], parts: Parts[P], crew: Crew, device: torch.device
) -> list[ExcessMoments | None]:
    """Sums that the regression of each question follows from; None without a part."""

    def of_part(part: P) -> list[ExcessMoments]:
        with device_turn(device.type):
            return [_moments_of(question, part, device) for question in questions]

    found: list[ExcessMoments | None] = [None] * len(questions)
    for of_questions in crew.in_order(of_part, parts.parts()):
        for k, more in enumerate(of_questions):
            before = found[k]
            found[k] = more if before is None else before + more
    return found


def _moments_of(question: Question[P], part: P, device: torch.device) -> ExcessMoments:
    chosen = question.of(part)
    blocks = []
    for columns in _column_slices(question.n_columns, device):
        there = chosen.only(columns).on(device)
        blocks.append(ExcessMoments.of(there.share, there.control, there.difference, chosen.n_people))
    return replace(blocks[0], product=np.concatenate([block.product for block in blocks], axis=1))


def _column_slices(n_columns: int, device: torch.device) -> list[slice]:
    width = _COLUMNS_AT_ONCE.get(device.type, _COLUMNS_AT_ONCE["cpu"])
    return [slice(first, min(first + width, n_columns)) for first in range(0, n_columns, width)]


def _pieces(place: int, question: Question[P], fit: ExcessFit, device: torch.device) -> list[_Piece[P]]:
    return [
        _Piece(place, question, columns, replace(fit, coefficients=fit.coefficients[:, columns]))
        for columns in _column_slices(question.n_columns, device)
    ]


def _passes(pieces: Sequence[_Piece[P]], n_reference: int, device: torch.device) -> Iterator[list[list[_Piece[P]]]]:
    """Blocks of pieces that are added up together, in passes that keep their sums over the reference bounded."""
    width = _COLUMNS_AT_ONCE.get(device.type, _COLUMNS_AT_ONCE["cpu"])
    blocks = _filled(pieces, lambda piece: piece.n_columns, width)
    most = max(_MOST_SUMS, _ESTIMATES_AT_ONCE * n_reference)
    return _filled(blocks, lambda block: n_reference * sum(piece.n_columns + 1 for piece in block), most)


def _filled(items: Iterable[T], size: Callable[[T], int], most: int) -> Iterator[list[T]]:
    """Consecutive items in lists of bounded size, each with one item at least."""
    found: list[T] = []
    room = most
    for item in items:
        if found and size(item) > room:
            yield found
            found, room = [], most
        found.append(item)
        room -= size(item)
    if found:
        yield found


def _add_people(sums: Sequence[_ClusterSums[P]], parts: Parts[P], crew: Crew) -> None:
    # The function may be sent to processes, without the sums.
    device, n_reference, blocks = sums[0].of_piece.device, parts.n_reference, [(s.block, s.of_piece) for s in sums]

    def of_part(part: P) -> tuple[Tensor, list[_PeopleSums]]:
        with device_turn(device.type):
            people = PeopleOfPart.of(_people(part, device), n_reference)
            found = [_PeopleSums.of(people, *_residuals(block, part, device), of_piece) for block, of_piece in blocks]
            return people.rows, found

    for rows, of_blocks in crew.in_order(of_part, parts.parts()):
        for total, more in zip(sums, of_blocks, strict=True):
            total.people.add(rows, more)


def _add_couples(sums: Sequence[_ClusterSums[P]], parts: Parts[P], crew: Crew) -> None:
    device, n_reference, blocks = sums[0].of_piece.device, parts.n_reference, [s.block for s in sums]

    def of_range(item: tuple[P, int, int]) -> list[Tensor] | None:
        part, low, high = item
        if not len(part):
            return None
        with device_turn(device.type):
            couples = couples_of_reference(_people(part, device), n_reference, low, high)
            return [squared_sums(couples, _residuals(block, part, device)[0]) for block in blocks]

    for of_blocks in crew.in_order(of_range, parts.ranges()):
        for total, more in zip(sums, of_blocks or (), strict=of_blocks is not None):
            total.people.shared_squares.add_(more)


def _residuals(block: Sequence[_Piece[P]], part: P, device: torch.device) -> tuple[Tensor, Tensor]:
    """Residuals of all columns of a block, and weights for each piece; 0 for triples of the part not selected."""
    n_columns = sum(piece.n_columns for piece in block)
    residual, weight = (
        torch.zeros((len(part), n), dtype=torch.float64, device=device) for n in (n_columns, len(block))
    )
    first = 0
    for k, piece in enumerate(block):
        there = piece.question.of(part).only(piece.columns).on(device)
        stop = first + piece.n_columns
        there.spread(piece.fit.residuals(there.share, there.control, there.difference), residual[:, first:stop])
        there.spread(there.share / piece.fit.total, weight[:, k])
        first = stop
    return residual, weight


def _people(part: Part, device: torch.device) -> People:
    columns = (part.unit, part.person_row, part.other, part.own)
    return People(*(placed(codes, device, torch.int64) for codes in columns))


@dataclass(frozen=True, eq=False)
class _PeopleSums:
    """Sums over the people in triples, for a block of columns.

    Attributes
    ----------
    leverage
        Weight of the triples of each person of the reference, of shape (n_reference, n_pieces).
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
    def of(cls, people: PeopleOfPart, residual: Tensor, weight: Tensor, of_piece: Tensor) -> _PeopleSums:
        """Those of a part, only with the people of the reference who are in it; `of_piece` as in `_ClusterSums`."""
        outside, sums = people.is_outside_person, people.person.sums(residual)
        share = people.person.sums(weight)[outside]
        return cls(
            leverage=people.reference.sums(weight),
            over_reference=people.reference.sums(residual),
            outside_squares=deleted_squares(sums[outside], share[:, of_piece]),
            person_squares=sums.square().sum(0),
            shared_squares=squared_sums(people.shared, residual),
            outside_leverage=torch.stack([share.pow(2).sum(0), share.pow(4).sum(0)]),
        )

    @classmethod
    def zeros(cls, n_reference: int, n_columns: int, n_pieces: int, device: torch.device) -> _PeopleSums:
        """No triples yet."""

        def zeros(*shape: int) -> Tensor:
            return torch.zeros(shape, dtype=torch.float64, device=device)

        return cls(
            leverage=zeros(n_reference, n_pieces),
            over_reference=zeros(n_reference, n_columns),
            outside_squares=zeros(n_columns),
            person_squares=zeros(n_columns),
            shared_squares=zeros(n_columns),
            outside_leverage=zeros(2, n_pieces),
        )

    def add(self, rows: Tensor, more: _PeopleSums) -> None:
        """Add, in place, those of a part; `rows` are the people of the reference who are in its triples."""
        self.leverage.index_add_(0, rows, more.leverage)
        self.over_reference.index_add_(0, rows, more.over_reference)
        for name in ("outside_squares", "person_squares", "shared_squares", "outside_leverage"):
            getattr(self, name).add_(getattr(more, name))


@dataclass(frozen=True, eq=False)
class _ClusterSums(Generic[P]):
    """What the variances of a block of columns are made of.

    Attributes
    ----------
    block, of_piece
        The pieces of questions whose columns they are, and the place of each column's piece.
    people
        Sums over the people of all parts that were added.
    """

    block: Sequence[_Piece[P]]
    of_piece: Tensor
    people: _PeopleSums

    @classmethod
    def zeros(cls, block: Sequence[_Piece[P]], n_reference: int, device: torch.device) -> _ClusterSums[P]:
        """No triples yet."""
        of_piece = torch.tensor([k for k, piece in enumerate(block) for _ in range(piece.n_columns)], device=device)
        return cls(block, of_piece, _PeopleSums.zeros(n_reference, len(of_piece), len(block), device))

    def estimates(self, note: str) -> Iterator[list[ExcessEstimate]]:
        """Those of each piece."""
        sums = self.people
        of_reference = deleted_squares(sums.over_reference, sums.leverage[:, self.of_piece])
        variance = of_reference + sums.outside_squares + sums.shared_squares
        errors = torch.maximum(variance, sums.person_squares).sqrt().tolist()
        square = sums.leverage.square()
        powers = torch.stack([square.sum(0), square.square().sum(0)]) + sums.outside_leverage
        for k, (piece, of_weights) in enumerate(zip(self.block, powers.T.tolist(), strict=True)):
            own = [error for error, place in zip(errors, self.of_piece.tolist(), strict=True) if place == k]
            n_effective = effective_number(*of_weights)
            yield [
                estimated(value, error, piece.fit.n_people, n_effective, 0.95, note)
                for value, error in zip(piece.fit.values.tolist(), own, strict=True)
            ]
