"""Triples of people with placebo pairs, from which the evidence of an audit is estimated."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from itertools import pairwise
from typing import Self

import numpy as np
from numpy.typing import NDArray

from evenhand.metrics.clustering import InMemory, Part, smallest_row
from evenhand.system.memory import return_freed_memory
from evenhand.system.parallel import Later

__all__ = ["EvidenceSums", "KeptTriples", "Triples", "range_limits", "return_much_freed_memory", "triples_by_range"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

_MANY = 200_000  # triples: more than a batch of a streamed audit has
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
        Where the person's influences are added up: see `auditing.identities.person_buckets`.
    person_row, other, own
        Rows of the reference that represent the person (-1 if outside it), the match and the placebo. If a person has
        several rows, one of them represents all.
    match
        Row of the match in the reference.
    group, other_group, label, is_favorable
        Of the person, except `other_group`; `is_favorable` is the decision.
    rank, n_within
        Rank among the person's triples with the group: near ones from 1, the rest from N_NEAR + 1; number of the
        person's triples with ranks up to 1, 2, ..., N_NEAR, and of all, of shape (n, N_NEAR + 1).
    n_between
        Number of the person's near triples with the group.
    distance
        Distance of the match.
    n_near
        Number of the person's triples within each limit of distance, of shape (n, n_limits).
    cec, placebo_cec, gap, placebo_gap
        CEC scores of pair and placebo pair, and what unequal finances alone would give.
    stretch
        How much longer unequal finances alone make the explanation: see `TripleScores`.
    input_gap, reasoning_gap
        Of the pair minus those of the placebo pair.
    agreement, agreement_control, n_declined
        Overlap of the pair's reasons minus that of the placebo pair's, and the effect of unequal finances alone on it,
        of shape (n, 2), NaN unless all three are declined; number of the person's triples for which they are known.
    is_same_decision, is_same_placebo_decision
        Whether the two people of the pair, and of the placebo pair, have the same decision.
    contributions, weights
        By feature, for the pair minus the placebo pair, of shape (n, n_features).
    finances
        Standardized finances of the person, of shape (n, k).
    score_gaps
        The score of the person with the match's finances minus that of the match: by feature, in total, in probability
        and in decisions, of shape (n, n_features + 3).
    weight, pair_weight
        Sampling weight of the person, times the weight of the triple, or of its pair alone, among those of the person
        with the group; see `_weights_within`. All are 1 if no weights are given.
    by
        Columns of the person to split by, as codes.
    """

    person: Ints
    unit: Ints
    person_row: NDArray[np.signedinteger]
    bucket: NDArray[np.signedinteger]
    other: NDArray[np.signedinteger]
    own: NDArray[np.signedinteger]
    match: NDArray[np.signedinteger]
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
    finances: NDArray[np.float32]
    score_gaps: NDArray[np.float32]
    weight: Floats
    pair_weight: Floats
    by: Mapping[str, Ints]

    def __len__(self) -> int:
        return len(self.person)

    @cached_property
    def controls(self) -> Floats:
        """The effect of unequal finances alone on score and length, pair minus placebo pair, of shape (n, 2)."""
        return np.column_stack([self.gap - self.placebo_gap, self.stretch])

    def rows(self, index: slice | Ints) -> Self:
        """Some of the triples."""
        plain = {f.name: getattr(self, f.name)[index] for f in fields(self) if f.name != "by"}
        return type(self)(**plain, by={name: codes[index] for name, codes in self.by.items()})

    def within(self, limits: Sequence[float]) -> Triples:
        """The same triples with the number of each person's within each limit of distance."""
        code = np.unique(self.person, return_inverse=True)[1]
        near = [np.bincount(code, self.distance <= limit).astype(np.int16)[code] for limit in limits]
        return replace(self, n_near=np.column_stack(near) if near else np.zeros((len(self), 0), dtype=np.int16))


@dataclass(frozen=True)
class EvidenceSums:
    """Counts and sums over (person, other group); those of parts of the people can be added.

    Attributes
    ----------
    n_repeated
        Rows of a person who has another row, in the batch or in the reference.
    compared, compared_cec, placebo_cec
        Sum of the weights of those compared, and weighted sums of their means over triples.
    n_agreement, agreement
        People with a triple of three declined people, and the sum over them of the overlap of reasons: for pairs, then
        for placebo pairs, of shape (2, 2).
    """

    n_triples: int
    n_left_out: int
    n_asked: int
    n_supported: int
    n_repeated: int
    compared: float
    compared_cec: float
    placebo_cec: float
    n_agreement: int
    agreement: Floats
    without_support: Mapping[str, int]

    def __add__(self, other: EvidenceSums) -> EvidenceSums:
        added = {
            f.name: getattr(self, f.name) + getattr(other, f.name) for f in fields(self) if f.name != "without_support"
        }
        reasons = {name: n + other.without_support[name] for name, n in self.without_support.items()}
        return EvidenceSums(**added, without_support=reasons)


@dataclass(frozen=True, eq=False)
class KeptTriples(InMemory[Triples]):
    """Triples kept in memory, sorted by person.

    They are processed a few at a time, so that intermediate results take little extra memory.
    """

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
            return super().ranges()
        part, places = self.part, triples_by_range(self.part, limits)
        return Later(lambda k: (part.rows(places[k]), limits[k], limits[k + 1]), range(len(places)))


def return_much_freed_memory(n_triples: int) -> None:
    """Return what the step before has freed, where so many triples make it much: the next step needs other memory."""
    if n_triples > _MANY:
        return_freed_memory()


def range_limits(counts: Ints, rows_at_once: int) -> list[int]:
    """Ends of ranges of rows, which have about as many triples each.

    Examples
    --------
    >>> range_limits(np.array([3, 1, 2, 2]), 4)
    [0, 1, 3, 4]
    """
    place = np.cumsum(counts) // rows_at_once
    return [0, *(np.flatnonzero(np.diff(place)) + 1).tolist(), len(counts)]


def triples_by_range(part: Part, limits: Sequence[int]) -> list[Ints]:
    """Triples in which a couple of the reference has its lower row in a range, in order, for each range."""
    lower = np.sort(np.stack([part.person_row, part.other, part.own]), axis=0)[:2]  # of the three couples
    code = np.searchsorted(limits, lower, side="right") - 1  # -1 for a couple with someone outside the reference
    code[0, code[0] == code[1]] = -1  # a triple is in each range once
    order = np.argsort(code, axis=None, kind="stable")
    ends = np.searchsorted(code.ravel()[order], np.arange(len(limits)))
    return [np.sort(order[start:stop] % code.shape[1]) for start, stop in pairwise(ends.tolist())]
