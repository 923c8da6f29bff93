"""Placebo pairs: what the CEC score is when the group plays no part.

Each person is compared with people of another group and, at the same distance, with people of their own group.
Whatever the two kinds of pairs have in common - unlike finances, a model that bends - cancels in the difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.exceptions import InvalidInputError
from evenhand.matching.neighbors import NeighborIndex
from evenhand.system.hashing import person_hash

__all__ = [
    "NO_ONE_IN_OTHER_GROUP",
    "NO_ONE_IN_OWN_GROUP",
    "NO_PLACEBO_AT_DISTANCE",
    "N_PAIRS",
    "PlaceboPairs",
    "PlaceboReference",
    "placebo_pairs",
]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]

NO_ONE_IN_OTHER_GROUP = "no one of that label in the other group"
NO_ONE_IN_OWN_GROUP = "no one else of that label in the own group"
NO_PLACEBO_AT_DISTANCE = "no one of the own group at the distance of anyone in the other"
_REASONS = ("", NO_ONE_IN_OTHER_GROUP, NO_ONE_IN_OWN_GROUP, NO_PLACEBO_AT_DISTANCE)

N_PAIRS = 4
"""Most triples of a person with a group, unless told otherwise."""

# Far below any difference between people, in standard deviations: it only decides among people at one point.
_JITTER = 1e-7
_PEOPLE_AT_ONCE = 16_384


@dataclass(frozen=True, eq=False)
class PlaceboPairs:
    """Triples: a person, someone of another group and, as far away, someone of their own.

    A person has up to `n_pairs` triples with each other group, nearest first. Rows are in order of person,
    then of other group.

    Attributes
    ----------
    person
        Row of the person among the audited people, of shape (n_triples,).
    other, own
        Rows in the reference of the one from the other group and of the placebo from the person's own.
    other_distance, own_distance
        Their distances from the person.
    other_group
        Group code of `other`.
    reason
        Why a person has no triple with a group, of shape (n_people, n_groups): an index into `reasons`, 0 for
        one who has, -1 for the person's own group.
    reference_row
        The row of the reference that each person is, -1 for someone outside it, of shape (n_people,).
    is_same_people
        Whether the audited people are the reference.
    n_reference
        Number of people in the reference.
    """

    person: Ints
    other: Ints
    own: Ints
    other_distance: Floats
    own_distance: Floats
    other_group: Ints
    reason: NDArray[np.int8]
    reference_row: Ints
    is_same_people: bool
    n_reference: int

    reasons = _REASONS

    def __len__(self) -> int:
        return len(self.person)

    @property
    def nodes(self) -> Ints:
        """The three people of each triple as codes for `metrics.excess`, of shape (n_triples, 3)."""
        shift = 0 if self.is_same_people else len(self.reason)
        row = self.reference_row[self.person]
        return np.column_stack([np.where(row >= 0, row + shift, self.person), self.other + shift, self.own + shift])

    @property
    def rank(self) -> Ints:
        """Place of each triple among those of its person with its group, from 1 for the nearest."""
        key = self.person * self.reason.shape[1] + self.other_group  # sorted, nearest first within
        first = np.flatnonzero(np.r_[True, key[1:] != key[:-1]]) if len(key) else np.zeros(0, dtype=np.int64)
        return np.arange(len(key)) - np.repeat(first, np.diff(np.r_[first, len(key)])) + 1

    @property
    def n_asked(self) -> int:
        """Number of (person, other group)."""
        return int((self.reason >= 0).sum())

    @property
    def common_support(self) -> float:
        """Share of (person, other group) that has a triple; NaN if there is no one."""
        return float((self.reason == 0).sum() / self.n_asked) if self.n_asked else float("nan")

    @property
    def without_support(self) -> dict[str, int]:
        """How many (person, other group) have no triple, by reason."""
        return {text: int((self.reason == code).sum()) for code, text in enumerate(_REASONS) if code}

    def where(self, is_kept: Bools) -> PlaceboPairs:
        """Those of the triples that are kept."""
        names = ("person", "other", "own", "other_distance", "own_distance", "other_group")
        return self if is_kept.all() else replace(self, **{name: getattr(self, name)[is_kept] for name in names})

    def person_mean(self, values: ArrayLike) -> Floats:
        """Mean of a value per triple over each person's triples with each group.

        Returns
        -------
        ndarray of shape (n_people, n_groups); NaN where a person has no triple with that group.
        """
        per_triple = np.asarray(values, dtype=np.float64)
        if per_triple.shape != self.person.shape:
            raise InvalidInputError(f"`values` must hold one per triple ({len(self)}), got shape {per_triple.shape}.")
        cell = self.person * self.reason.shape[1] + self.other_group
        count = np.bincount(cell, minlength=self.reason.size)
        total = np.bincount(cell, per_triple, minlength=self.reason.size)
        mean = np.full(self.reason.size, np.nan)
        np.divide(total, count, out=mean, where=count > 0)
        return mean.reshape(self.reason.shape)


def placebo_pairs(
    points: ArrayLike,
    labels: ArrayLike,
    groups: ArrayLike,
    reference: tuple[ArrayLike, ArrayLike, ArrayLike] | None = None,
    *,
    n_neighbors: int = 16,
    n_pairs: int = N_PAIRS,
    tolerance: float = 0.05,
    max_distance: float | None = None,
    random_state: int | np.random.Generator = 0,
) -> PlaceboPairs:
    """Distance-balanced triples of each person with every other group.

    Candidates are a person's nearest neighbors of the same label in the other group and in their own. Where one
    of the two groups has over twice as many people, neighbors among a random few of it, as many as the
    smaller has, are candidates too: else a large group would have no one as far away as a small group's
    nearest. A candidate of one kind and a candidate of the other become a triple when each is the
    nearest *in distance* to the other and the two distances agree within `tolerance`; the `n_pairs`
    nearest triples are kept. Among people at one and the same point the choice is random.

    Parameters
    ----------
    points
        Standardized financial features, as `MatchingSpace.transform` gives them, of shape (n, k).
    labels, groups
        Integer codes, of shape (n,); groups are 0..G-1.
    reference
        `(points, labels, groups)` of the people to compare with; None for the same people.
    n_neighbors
        Number of candidates of each kind.
    n_pairs
        Most triples of a person with a group.
    tolerance
        Largest relative difference of the two distances.
    max_distance
        Largest distance of a triple; None sets no limit.
    random_state
        Seed or generator.

    Raises
    ------
    InvalidInputError
        If shapes disagree, a group code is negative, or a number is out of its range.

    Examples
    --------
    >>> found = placebo_pairs([[0.0], [1.0], [1.0], [5.0]], labels=[1, 1, 1, 1], groups=[0, 0, 1, 1])
    >>> found.person.tolist(), found.other.tolist(), found.own.tolist()
    ([0, 3], [2, 1], [1, 2])
    >>> found.without_support["no one of the own group at the distance of anyone in the other"]
    2
    """
    people = _People.of(points, labels, groups, "people")
    pool = people if reference is None else _People.of(*reference, "reference")
    return PlaceboReference.of(pool.points, pool.labels, pool.groups, random_state).compare(
        people.points,
        people.labels,
        people.groups,
        np.arange(len(people.groups)) if reference is None else None,
        n_neighbors=n_neighbors,
        n_pairs=n_pairs,
        tolerance=tolerance,
        max_distance=max_distance,
    )


@dataclass(frozen=True, eq=False)
class PlaceboReference:
    """People to compare with, indexed once for any number of people who are compared.

    What a person is compared with depends on the reference and on the person alone, never on the others who are
    compared at the same time.

    Attributes
    ----------
    pool
        The reference.
    jittered
        The reference with no two people at quite the same point.
    index
        Of the jittered points.
    few
        By (large group, small group) where the one has far more people: random rows of the large, as many of each
        label as the small has, with their index.
    seed
        Of where people outside the reference ask from.
    """

    pool: _People
    jittered: _People
    index: NeighborIndex
    few: Mapping[tuple[int, int], tuple[Ints, NeighborIndex]]
    seed: int

    @classmethod
    def of(
        cls,
        points: ArrayLike,
        labels: ArrayLike,
        groups: ArrayLike,
        random_state: int | np.random.Generator = 0,
        *,
        device: str | None = None,
    ) -> PlaceboReference:
        """Index a reference; the parameters are those of `placebo_pairs` and, `device`, of `NeighborIndex.build`."""
        pool = _People.of(points, labels, groups, "reference")
        rng = np.random.default_rng(random_state)
        jittered = pool.jittered(rng)
        rank = rng.permutation(len(pool.groups))
        index = NeighborIndex.build(jittered.points, pool.labels, pool.groups, device=device)
        present = np.unique(pool.groups).tolist()
        chosen = {(a, b): _few(pool, rank, a, b) for a in present for b in present if a != b}
        few = {
            key: (rows, NeighborIndex.build(jittered.points[rows], pool.labels[rows], pool.groups[rows], device=device))
            for key, rows in chosen.items()
            if len(rows)
        }
        return cls(pool, jittered, index, few, int(rng.integers(2**31)))

    def compare(
        self,
        points: ArrayLike,
        labels: ArrayLike,
        groups: ArrayLike,
        reference_row: ArrayLike | None = None,
        *,
        number: ArrayLike | None = None,
        n_neighbors: int = 16,
        n_pairs: int = N_PAIRS,
        tolerance: float = 0.05,
        max_distance: float | None = None,
    ) -> PlaceboPairs:
        """Triples of people: see `placebo_pairs`.

        Parameters
        ----------
        points, labels, groups
            Of the people compared.
        reference_row
            The row of the reference that each of them is, -1 for none: no one is their own placebo. None for people
            who are all outside it.
        number
            A number for each of them, whoever else is compared at the same time; their place here by default. People
            who have the same finances ask from points a hair apart, so that they are not all compared with the same
            few.
        n_neighbors, n_pairs, tolerance, max_distance
            As in `placebo_pairs`.
        """
        _check_numbers(n_neighbors, n_pairs, tolerance, max_distance)
        people, pool = _People.of(points, labels, groups, "people"), self.pool
        if people.points.shape[1] != pool.points.shape[1]:
            raise InvalidInputError(
                f"`points` has {people.points.shape[1]} columns and the reference has {pool.points.shape[1]}."
            )
        rows = np.full(len(people.groups), -1) if reference_row is None else np.asarray(reference_row, dtype=np.int64)
        numbers = np.arange(len(rows)) if number is None else np.asarray(number, dtype=np.int64)
        # Someone of the reference asks from where the reference has them.
        asked = people.points + _jitter_of(numbers, people.points.shape[1], self.seed)
        asked[rows >= 0] = self.jittered.points[rows[rows >= 0]]
        search = _Search(self, people, asked, rows, n_neighbors)
        slack = 10 * _JITTER * float(np.sqrt(max(1, pool.points.shape[1])))
        limit = np.inf if max_distance is None else max_distance + slack
        n_groups = 1 + int(max(people.groups.max(initial=-1), pool.groups.max(initial=-1)))
        reason = np.full((len(people.groups), n_groups), -1, dtype=np.int8)
        found = [np.zeros((0, 4), dtype=np.int64)]
        for who, own, target, other, few_own, few_other in search.between_groups(n_groups):
            reason[who, target] = np.where(other.is_empty, 1, np.where(own.is_empty, 2, 3))
            for part in _parts(len(who)):
                which, other_row, own_row = _balanced(
                    other.and_also(few_other, part), own.and_also(few_own, part), n_pairs, tolerance, slack, limit
                )
                found.append(np.column_stack([who[part][which], np.full(len(which), target), other_row, own_row]))
        table = np.concatenate(found)
        # Stable, so that the nearest triple of a person with a group stays first.
        person, other_group, others, owns = table[np.lexsort((table[:, 1], table[:, 0]))].T
        reason[person, other_group] = 0
        return PlaceboPairs(
            person=person,
            other=others,
            own=owns,
            other_distance=_distances(people.points[person], pool.points[others]),
            own_distance=_distances(people.points[person], pool.points[owns]),
            other_group=other_group,
            reason=reason,
            reference_row=rows,
            is_same_people=len(rows) == len(pool.groups) and bool((rows == np.arange(len(rows))).all()),
            n_reference=len(pool.groups),
        )


def _jitter_of(person: Ints, dimensions: int, seed: int) -> Floats:
    """A step for each person, of shape (n, dimensions), from their number and the seed alone."""
    columns = [person_hash(person, seed + column) for column in range(dimensions)]
    uniform = np.stack(columns, axis=1).astype(np.float64) / 2.0**64 if columns else np.zeros((len(person), 0))
    steps: Floats = _JITTER * np.sqrt(12.0) * (uniform - 0.5)
    return steps


def _few(pool: _People, rank: Ints, large: int, small: int) -> Ints:
    """Random reference rows of `large`, as many of each label as `small` has, where it has far fewer."""
    chosen = [np.zeros(0, dtype=np.int64)]
    for label in np.unique(pool.labels):
        is_label = pool.labels == label
        rows = np.flatnonzero(is_label & (pool.groups == large))
        n_small = int((is_label & (pool.groups == small)).sum())
        if len(rows) > 2 * n_small > 0:
            chosen.append(rows[np.argsort(rank[rows])[:n_small]])
    return np.sort(np.concatenate(chosen))


@dataclass(frozen=True, eq=False)
class _People:
    """Coordinates and codes, checked."""

    points: Floats
    labels: Ints
    groups: Ints

    @classmethod
    def of(cls, points: ArrayLike, labels: ArrayLike, groups: ArrayLike, whose: str) -> _People:
        coordinates = np.asarray(points, dtype=np.float64)
        codes = np.asarray(labels, dtype=np.int64), np.asarray(groups, dtype=np.int64)
        if coordinates.ndim != 2 or any(code.shape != coordinates.shape[:1] for code in codes):
            raise InvalidInputError(
                f"`points`, `labels` and `groups` of the {whose} must have one row per person, "
                f"got shapes {coordinates.shape}, {codes[0].shape} and {codes[1].shape}."
            )
        if codes[1].min(initial=0) < 0:
            raise InvalidInputError(f"`groups` of the {whose} must be codes 0..G-1, got {codes[1].min()}.")
        return cls(coordinates, *codes)

    def jittered(self, rng: np.random.Generator) -> _People:
        """The same people, none at quite the same point."""
        return _People(self.points + _JITTER * rng.standard_normal(self.points.shape), self.labels, self.groups)


@dataclass(frozen=True, eq=False)
class _Neighbors:
    """Distances and reference rows of neighbors, of shape (n, k); inf and -1 for none."""

    distance: Floats
    row: Ints

    @property
    def is_empty(self) -> Bools:
        return self.row[:, 0] < 0

    def and_also(self, more: _Neighbors | None, part: slice) -> _Neighbors:
        """Some people's neighbors with those of `more` merged in, each once."""
        if more is None:
            return _Neighbors(self.distance[part], self.row[part])
        distance, row = more.distance[part], more.row[part]
        is_known = (row[:, :, None] == self.row[part][:, None, :]).any(axis=2)
        distance = np.concatenate([self.distance[part], np.where(is_known, np.inf, distance)], axis=1)
        return _Neighbors(distance, np.concatenate([self.row[part], np.where(is_known, -1, row)], axis=1))


@dataclass(frozen=True, eq=False)
class _Search:
    """Neighbors of the same label, in the whole reference and in a random few of it."""

    reference: PlaceboReference
    people: _People
    points: Floats
    rows: Ints
    k: int

    def between_groups(
        self, n_groups: int
    ) -> Iterator[tuple[Ints, _Neighbors, int, _Neighbors, _Neighbors | None, _Neighbors | None]]:
        """Yield people of a group with neighbors in it, another group, and neighbors there; then of few."""
        for group in np.unique(self.people.groups).tolist():
            who = np.flatnonzero(self.people.groups == group)
            asked = self.points[who]
            own = self.nearest(who, asked, group)
            for target in range(n_groups):
                if target != group:
                    few_own = self.nearest_of((group, target), who, asked, group)
                    few_other = self.nearest_of((target, group), who, asked, target)
                    yield who, own, target, self.nearest(who, asked, target), few_own, few_other

    def nearest(self, who: Ints, asked: Floats, group: int) -> _Neighbors:
        """Nearest people of `group`, themselves excluded."""
        return self._ask(self.reference.index, who, asked, group, self.rows[who])

    def nearest_of(self, sides: tuple[int, int], who: Ints, asked: Floats, group: int) -> _Neighbors | None:
        """Nearest people of `group` among the random few of it; None if there are none."""
        if sides not in self.reference.few:
            return None
        chosen, index = self.reference.few[sides]
        place = np.full(len(self.reference.pool.groups) + 1, -1, dtype=np.int64)  # the last stands for no row
        place[chosen] = np.arange(len(chosen))
        found = self._ask(index, who, asked, group, place[self.rows[who]])
        return _Neighbors(found.distance, np.where(found.row >= 0, chosen[found.row], -1))

    def _ask(self, index: NeighborIndex, who: Ints, asked: Floats, group: int, own_rows: Ints) -> _Neighbors:
        distance, row = index.query(
            asked,
            self.people.labels[who],
            np.full(len(who), group),
            self.k,
            exclude_self_rows=own_rows if (own_rows >= 0).any() else None,
        )
        return _Neighbors(distance, row)


def _balanced(
    other: _Neighbors, own: _Neighbors, n_pairs: int, tolerance: float, slack: float, limit: float
) -> tuple[Ints, Ints, Ints]:
    """Person, other row and own row of each triple.

    On the line of a person's sorted distances, a candidate of each kind that are nearest to each other
    stand side by side.
    """
    n_other = other.row.shape[1]
    distance = np.concatenate([other.distance, own.distance], axis=1)
    order = np.argsort(distance, axis=1, kind="stable")
    distance = np.take_along_axis(distance, order, 1)
    row = np.take_along_axis(np.concatenate([other.row, own.row], axis=1), order, 1)
    is_other = order < n_other
    left, right = distance[:, :-1], distance[:, 1:]
    with np.errstate(invalid="ignore"):
        gap = right - left
        is_pair = (
            (is_other[:, :-1] != is_other[:, 1:])
            & (gap <= tolerance * right + slack)
            & (right <= limit)
            & (gap < _gap_before(distance, is_other)[:, :-1])
            & (gap <= _gap_after(distance, is_other)[:, 1:])
        )
    is_pair &= np.isfinite(right) & (np.cumsum(is_pair, axis=1) <= n_pairs)
    who, place = np.nonzero(is_pair)
    first, second = row[who, place], row[who, place + 1]
    leads = is_other[who, place]
    return who, np.where(leads, first, second), np.where(leads, second, first)


def _gap_before(distance: Floats, is_other: Bools) -> Floats:
    """How far back on the line the last candidate of the other kind stands; inf if there is none."""
    last_other = np.maximum.accumulate(np.where(is_other, distance, -np.inf), axis=1)
    last_own = np.maximum.accumulate(np.where(is_other, -np.inf, distance), axis=1)
    gap: Floats = distance - np.where(is_other, last_own, last_other)
    return gap


def _gap_after(distance: Floats, is_other: Bools) -> Floats:
    """How far ahead on the line the next candidate of the other kind stands; inf if there is none."""
    gap: Floats = _gap_before(-distance[:, ::-1], is_other[:, ::-1])[:, ::-1]
    return gap


def _distances(first: Floats, second: Floats) -> Floats:
    difference = first - second
    found: Floats = np.sqrt(np.einsum("ij,ij->i", difference, difference))
    return found


def _parts(n: int) -> Iterator[slice]:
    for first in range(0, n, _PEOPLE_AT_ONCE):
        yield slice(first, first + _PEOPLE_AT_ONCE)


def _check_numbers(n_neighbors: int, n_pairs: int, tolerance: float, max_distance: float | None) -> None:
    if n_neighbors < 1 or n_pairs < 1:
        raise InvalidInputError(f"`n_neighbors` and `n_pairs` must be at least 1, got {n_neighbors} and {n_pairs}.")
    if not 0 <= tolerance < 1:
        raise InvalidInputError(f"`tolerance` must be at least 0 and below 1, got {tolerance}.")
    if max_distance is not None and not max_distance >= 0:
        raise InvalidInputError(f"`max_distance` must be 0 or more, or None for no limit, got {max_distance}.")
