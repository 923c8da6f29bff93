"""Placebo pairs: the CEC score when the group plays no role.

Each person is compared with people of a different group and, at the same distance, with people of the same group.
Whatever the two kinds of pairs have in common - unequal finances, a nonlinear model - cancels in the difference.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.arrays import (
    Array,
    Bools,
    Floats,
    Ints,
    Keys,
    as_numpy,
    counts,
    device_of,
    gathered,
    like,
    mixed_hash,
    namespace,
    placed,
    running_max,
    taken,
)
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.identity import Identity, KnownPeople
from evenhand.matching.neighbors import NeighborIndex

N_NEAR = 4
"""Largest number of near triples of a person with a group, and the default for all triples."""

N_NEIGHBORS = 16
"""Candidates of each kind for a near triple."""

_PEOPLE_AT_ONCE = 16_384


@dataclass(frozen=True, eq=False)
class Neighbors:
    """Distances and reference rows of neighbors, of shape (n, k); inf and -1 if there are none."""

    distance: Array
    row: Array

    @property
    def is_empty(self) -> Array:
        """Who has no neighbor."""
        return self.row[:, 0] < 0

    def with_few(self, few: Neighbors | None, part: slice, k: int) -> Neighbors:
        """Some people's k nearest neighbors merged with the k nearest of a few, each once."""
        own_distance, own_row = self.distance[part, :k], self.row[part, :k]
        if few is None:
            return Neighbors(own_distance, own_row)
        distance, row = few.distance[part, :k], few.row[part, :k]
        xp = namespace(row)
        is_known = xp.any(row[:, :, None] == own_row[:, None, :], axis=2)
        return Neighbors(
            xp.concat([own_distance, xp.where(is_known, xp.inf, distance)], axis=1),
            xp.concat([own_row, xp.where(is_known, -1, row)], axis=1),
        )


@dataclass(frozen=True, eq=False)
class Asking:
    """People who search for neighbors with their label.

    Attributes
    ----------
    points
        Query points, of shape (n, n_coordinates), on the device of the index.
    labels
        Their labels, of shape (n,).
    units
        The row that represents each in the reference, -1 if there is none, on the device of the index.
    """

    points: Array
    labels: Ints
    units: Array

    def rows(self, chosen: Ints) -> Asking:
        """Some of them."""
        there = like(chosen, self.points)
        return Asking(self.points[there], self.labels[chosen], self.units[there])


@dataclass(frozen=True, eq=False)
class IndexedRows:
    """Some rows of a reference, indexed.

    Attributes
    ----------
    index
        Their neighbors.
    rows, units
        Row of each in the reference, and the row that represents the same person, on the device of the index.
    """

    index: NeighborIndex
    rows: Array
    units: Array

    @classmethod
    def of(cls, index: NeighborIndex, rows: Ints, units: Ints) -> IndexedRows:
        """Place rows, and the rows that represent them, next to their index."""
        return cls(index, placed(rows, index.device), placed(units, index.device))

    def nearest(self, asking: Asking, group: int, k: int) -> Neighbors:
        """The k nearest people of `group`; no one is their own neighbor.

        One more neighbor than wanted is requested, and twice as many again for those who find themselves too often.
        """
        n, xp = len(asking.labels), namespace(asking.points)
        distance = xp.full((n, k), xp.inf, dtype=xp.float64, device=device_of(asking.points))
        row = xp.full((n, k), -1, dtype=xp.int64, device=device_of(asking.points))
        waiting, n_asked = np.arange(n), k + 1
        while len(waiting):
            people = asking if len(waiting) == n else asking.rows(waiting)
            codes = np.column_stack([people.labels, np.full(len(waiting), group)])
            found, place = self.index.nearest(people.points, codes, n_asked)
            is_self = (place >= 0) & (taken(self.units, place) == people.units[:, None])
            rows = xp.where(place >= 0, taken(self.rows, place), -1)
            order = xp.argsort(xp.astype(is_self, xp.uint8), axis=1, stable=True)[:, :k]
            is_done = (xp.sum(~is_self, axis=1) >= k) | (rows[:, -1] < 0)
            who = like(waiting, place)
            distance[who] = gathered(xp.where(is_self, xp.inf, found), order)
            row[who] = gathered(xp.where(is_self, -1, rows), order)
            waiting, n_asked = waiting[~as_numpy(is_done)], 2 * n_asked
        return Neighbors(distance, row)


def balanced_triples(
    other: tuple[Neighbors, Neighbors | None],
    own: tuple[Neighbors, Neighbors | None],
    *,
    n_neighbors: int,
    n_pairs: int,
    tolerance: float,
    slack: float,
    limit: float,
) -> Array:
    """Person, rank, other row and own row of triples with one group, of shape (n_triples, 4).

    Parameters
    ----------
    other, own
        Neighbors in the other group and in the person's group, each with those among a random few, if any.
    n_neighbors, n_pairs, tolerance
        As in `placebo_pairs`.
    slack, limit
        Allowance for the difference of the distances; largest distance.
    """
    n = len(other[0].row)
    found = []
    for start in range(0, n, _PEOPLE_AT_ONCE):
        part = slice(start, min(start + _PEOPLE_AT_ONCE, n))
        near, *wide = (
            _balanced(other[0].with_few(other[1], part, k), own[0].with_few(own[1], part, k), tolerance, slack, limit)
            for k in sorted({min(n_neighbors, N_NEIGHBORS), n_neighbors})
        )
        triples = _ranked(near, wide[0] if wide else near, part.stop - start, n_pairs)
        triples[:, 0] += start
        found.append(triples)
    xp, row = namespace(other[0].row), other[0].row
    return xp.concat(found) if found else xp.zeros((0, 4), dtype=row.dtype, device=device_of(row))


def _ranked(near: Array, wide: Array, n_people: int, n_pairs: int) -> Array:
    """Person, rank, other row and own row of each triple: near ones, and as many of the rest as requested."""
    place = _place(near[:, 0], n_people)
    is_kept = place < min(N_NEAR, n_pairs)
    near, place = near[is_kept], place[is_kept]
    xp = namespace(near)
    known = xp.full((n_people, N_NEAR, 2), -1, dtype=near.dtype, device=device_of(near))
    known[near[:, 0], place] = near[:, 1:]
    is_near = xp.any(xp.all(known[wide[:, 0]] == wide[:, None, 1:], axis=2), axis=1)  # a near triple is found twice
    rest = wide[~is_near]
    n_left = n_pairs - counts(near[:, 0], n_people)
    further = _place(rest[:, 0], n_people)
    is_kept = further < n_left[rest[:, 0]]
    rest, further = rest[is_kept], further[is_kept]
    rank, kept = xp.concat([1 + place, 1 + N_NEAR + further]), xp.concat([near, rest])
    return xp.concat([kept[:, :1], rank[:, None], kept[:, 1:]], axis=1)


def _place(who: Array, n_people: int) -> Array:
    """Place of each row among those of its person, whose rows follow each other, from 0."""
    xp, count = namespace(who), counts(who, n_people)
    return xp.arange(len(who), device=device_of(who)) - (xp.cumulative_sum(count) - count)[who]


def _balanced(other: Neighbors, own: Neighbors, tolerance: float, slack: float, limit: float) -> Array:
    """Person, other row and own row of each triple, nearest first, of shape (n_triples, 3).

    On the line of a person's sorted distances, a candidate of each kind that are nearest to each other are adjacent.
    """
    xp = namespace(own.row)
    distance = xp.concat([other.distance, own.distance], axis=1)
    order = xp.argsort(distance, axis=1, stable=True)
    distance, row = gathered(distance, order), gathered(xp.concat([other.row, own.row], axis=1), order)
    is_other = order < other.row.shape[1]
    left, right = distance[:, :-1], distance[:, 1:]
    with np.errstate(invalid="ignore"):  # the gap of two who are infinitely far is NaN, which is no pair
        gap = right - left
        is_pair = (
            (is_other[:, :-1] != is_other[:, 1:])
            & (gap <= tolerance * right + slack)
            & (right <= limit)
            & (gap < _gap_before(distance, is_other)[:, :-1])
            & (gap <= _gap_after(distance, is_other)[:, 1:])
            & xp.isfinite(right)
        )
    who, place = xp.nonzero(is_pair)
    first, second, leads = row[who, place], row[who, place + 1], is_other[who, place]
    return xp.stack([who, xp.where(leads, first, second), xp.where(leads, second, first)], axis=1)


def _gap_before(distance: Array, is_other: Array) -> Array:
    """Distance back on the line to the last candidate of the other kind; inf if there is none."""
    xp = namespace(distance)
    last_other = running_max(xp.where(is_other, distance, -xp.inf))
    last_own = running_max(xp.where(is_other, -xp.inf, distance))
    return distance - xp.where(is_other, last_own, last_other)


def _gap_after(distance: Array, is_other: Array) -> Array:
    """Distance ahead on the line to the next candidate of the other kind; inf if there is none."""
    xp = namespace(distance)
    return xp.flip(_gap_before(-xp.flip(distance, axis=1), xp.flip(is_other, axis=1)), axis=1)


NO_ONE_IN_OTHER_GROUP = "no one of that label in the other group"
NO_ONE_IN_OWN_GROUP = "no one else of that label in the own group"
NO_PLACEBO_AT_DISTANCE = "no one of the own group at the distance of anyone in the other"
_REASONS = ("", NO_ONE_IN_OTHER_GROUP, NO_ONE_IN_OWN_GROUP, NO_PLACEBO_AT_DISTANCE)

# Far smaller than any difference between people, in standard deviations: it only decides among people at one point.
_JITTER = 1e-7


@dataclass(frozen=True, eq=False)
class PlaceboPairs:
    """Triples: a person, someone of a different group and, equally distant, someone of the same group.

    A person has up to `n_pairs` triples with each other group. Rows are sorted by person, then by other group, then by
    rank.

    Attributes
    ----------
    person
        Row of the person among the audited people, of shape (n_triples,).
    other, own
        Rows in the reference of the match from the other group and of the placebo from the person's group.
    other_distance, own_distance
        Their distances from the person.
    other_group
        Group code of `other`.
    rank
        Rank of each triple among those of its person with its group. Near triples, up to `N_NEAR` from the
        `N_NEIGHBORS` nearest candidates, have ranks from 1, nearest first; the rest from `N_NEAR` + 1.
    reason
        Why a person has no triple with a group, of shape (n_people, n_groups): an index into `reasons`, 0 if there is
        one, -1 for the person's group.
    unit
        For each row of the reference, the row that represents the same person, of shape (n_reference,).
    person_unit
        That row for each audited person, -1 for someone outside the reference, of shape (n_people,).
    is_same_people
        Whether the audited people are the reference.
    """

    person: Ints
    other: Ints
    own: Ints
    other_distance: Floats
    own_distance: Floats
    other_group: Ints
    rank: Ints
    reason: NDArray[np.int8]
    unit: Ints
    person_unit: Ints
    is_same_people: bool

    reasons = _REASONS

    def __len__(self) -> int:
        return len(self.person)

    @property
    def nodes(self) -> Ints:
        """The three people of each triple as codes for `metrics.excess`, of shape (n_triples, 3)."""
        shift = 0 if self.is_same_people else len(self.reason)
        row = self.person_unit[self.person]
        person = np.where(row >= 0, row + shift, self.person)
        return np.column_stack([person, self.unit[self.other] + shift, self.unit[self.own] + shift])

    @property
    def n_asked(self) -> int:
        """Number of (person, other group)."""
        return int((self.reason >= 0).sum())

    @property
    def common_support(self) -> float:
        """Share of (person, other group) that have a triple; NaN if there is no one."""
        return float((self.reason == 0).sum() / self.n_asked) if self.n_asked else float("nan")

    @property
    def without_support(self) -> dict[str, int]:
        """How many (person, other group) have no triple, by reason."""
        return {text: int((self.reason == code).sum()) for code, text in enumerate(_REASONS) if code}

    def where(self, is_kept: Bools) -> PlaceboPairs:
        """Keep some of the triples."""
        names = ("person", "other", "own", "other_distance", "own_distance", "other_group", "rank")
        return self if is_kept.all() else replace(self, **{name: getattr(self, name)[is_kept] for name in names})

    def person_mean(self, values: ArrayLike) -> Floats:
        """Mean of a value per triple over each person's triples with each group.

        Returns
        -------
        ndarray of shape (n_people, n_groups); NaN if a person has no triple with that group.
        """
        per_triple = np.asarray(values, dtype=np.float64)
        if per_triple.shape != self.person.shape:
            raise InvalidInputError(
                f"`values` must have one value per triple ({len(self)}), got shape {per_triple.shape}."
            )
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
    n_neighbors: int = N_NEIGHBORS,
    n_pairs: int = N_NEAR,
    tolerance: float = 0.05,
    max_distance: float | None = None,
    random_state: int | np.random.Generator = 0,
) -> PlaceboPairs:
    """Distance-balanced triples of each person with every other group.

    Candidates are a person's nearest neighbors with the same label in the other group and in the person's group. If
    one of the two groups has more than twice as many people, neighbors among a random few of it, as many as the smaller
    has, are candidates too; otherwise a large group would have no one as far away as a small group's nearest. A
    candidate of one kind and one of the other become a triple if each is the nearest *in distance* to the other and the
    two distances agree within `tolerance`; the `n_pairs` nearest triples are kept. Among people at exactly the same
    point, the choice is random. No one is compared with themselves, or with another row of the same person.

    Parameters
    ----------
    points
        Standardized financial features, as returned by `MatchingSpace.transform`, of shape (n, k).
    labels, groups
        Integer codes, of shape (n,); groups are 0..G-1.
    reference
        `(points, labels, groups)` of the people to compare with; None for the same people.
    n_neighbors
        Number of candidates of each kind.
    n_pairs
        Largest number of triples of a person with a group.
    tolerance
        Largest relative difference of the two distances.
    max_distance
        Largest distance of a triple; None sets no limit.
    random_state
        Seed or generator.

    Raises
    ------
    InvalidInputError
        If shapes disagree, a group code is negative, or a number is out of range.

    Examples
    --------
    >>> found = placebo_pairs([[0.0], [1.0], [1.0], [5.0]], labels=[1, 1, 1, 1], groups=[0, 0, 1, 1])
    >>> found.person.tolist(), found.other.tolist(), found.own.tolist()
    ([0, 3], [2, 1], [1, 2])
    >>> found.without_support["no one of the own group at the distance of anyone in the other"]
    2
    """
    pool = (points, labels, groups) if reference is None else reference
    return PlaceboReference.of(*pool, random_state).compare(
        points,
        labels,
        groups,
        np.arange(len(np.asarray(groups))) if reference is None else None,
        n_neighbors=n_neighbors,
        n_pairs=n_pairs,
        tolerance=tolerance,
        max_distance=max_distance,
    )


@dataclass(frozen=True, eq=False)
class PlaceboReference:
    """People to compare with, indexed once for any number of compared people.

    What a person is compared with depends only on the reference and the person, never on the other people who are
    compared at the same time.

    Attributes
    ----------
    pool
        The reference.
    jittered
        Its points, with no two people at exactly the same one.
    known
        Which of its rows are the same person.
    index
        The jittered points of the reference.
    few
        By (large group, small group), if the one has far more people: random rows of the large, as many of each label
        as the small has.
    seed
        Seed of the query points of people outside the reference.
    """

    pool: _People
    jittered: Floats
    known: KnownPeople
    index: IndexedRows
    few: Mapping[tuple[int, int], IndexedRows]
    seed: int

    @classmethod
    def of(
        cls,
        points: ArrayLike,
        labels: ArrayLike,
        groups: ArrayLike,
        random_state: int | np.random.Generator = 0,
        *,
        identity: Identity | None = None,
        device: str | None = None,
    ) -> PlaceboReference:
        """Index a reference.

        Parameters
        ----------
        points, labels, groups, random_state
            As in `placebo_pairs`.
        identity
            Who each row is; by default, every row is a different person. With it, what a person is compared with does
            not depend on the row order.
        device
            As in `NeighborIndex.build`.
        """
        pool = _People.of(points, labels, groups)
        seed = int(np.random.default_rng(random_state).integers(2**31))
        who = Identity.by_number(len(pool.groups)) if identity is None else identity
        content = who.distinct_content()
        jittered = pool.points + _jitter_of(content, pool.points.shape[1], seed)
        rank = mixed_hash(content, np.full(len(content), seed))
        known = KnownPeople.of(who)

        def indexed(rows: Ints) -> IndexedRows:
            # By content, so that the few ties left by the jitter do not depend on the row order.
            rows = rows[np.argsort(content[rows])]
            people = (jittered[rows], pool.labels[rows], pool.groups[rows])
            return IndexedRows.of(NeighborIndex.build(*people, device=device), rows, known.unit[rows])

        present = np.unique(pool.groups).tolist()
        chosen = {(a, b): _few(pool, rank, a, b) for a in present for b in present if a != b}
        few = {key: indexed(rows) for key, rows in chosen.items() if len(rows)}
        return cls(pool, jittered, known, indexed(np.arange(len(pool.groups))), few, seed)

    def compare(
        self,
        points: ArrayLike,
        labels: ArrayLike,
        groups: ArrayLike,
        reference_row: ArrayLike | None = None,
        *,
        identity: Identity | None = None,
        n_neighbors: int = N_NEIGHBORS,
        n_pairs: int = N_NEAR,
        tolerance: float = 0.05,
        max_distance: float | None = None,
    ) -> PlaceboPairs:
        """Triples of people: see `placebo_pairs`.

        Parameters
        ----------
        points, labels, groups
            Of the compared people.
        reference_row
            The row of each of them in the reference, -1 if not in it: no one is their own placebo. None if no one is in
            it.
        identity
            Who each of them is; by default, everyone is a different person, and no one of the reference except the
            `reference_row`. People with the same finances query from slightly different points, so that they are not
            all compared with the same few.
        n_neighbors, n_pairs, tolerance, max_distance
            As in `placebo_pairs`.
        """
        _check_numbers(n_neighbors, n_pairs, tolerance, max_distance)
        people, pool = _People.of(points, labels, groups), self.pool
        if people.points.shape[1] != pool.points.shape[1]:
            raise InvalidInputError(
                f"`points` has {people.points.shape[1]} columns, but the reference has {pool.points.shape[1]}."
            )
        rows = np.full(len(people.groups), -1) if reference_row is None else np.asarray(reference_row, dtype=np.int64)
        identified = Identity.by_number(len(rows)) if identity is None else identity
        # Someone in the reference queries from their point in the reference.
        asked = people.points + _jitter_of(identified.content, people.points.shape[1], self.seed)
        asked[rows >= 0] = self.jittered[rows[rows >= 0]]
        unit = np.full(len(rows), -1) if identity is None else self.known.find(identity)
        unit[rows >= 0] = self.known.unit[rows[rows >= 0]]
        n_groups = 1 + int(max(people.groups.max(initial=-1), pool.groups.max(initial=-1)))
        slack = 10 * _JITTER * float(np.sqrt(max(1, pool.points.shape[1])))
        limit = np.inf if max_distance is None else max_distance + slack
        reason = np.full((len(people.groups), n_groups), -1, dtype=np.int8)
        device = self.index.index.device
        everyone = Asking(placed(asked, device), people.labels, placed(unit, device))
        found = [placed(np.zeros((0, 5), dtype=np.int64), device)]
        for who, target, other, own in self._between_groups(everyone, people.groups, n_groups, n_neighbors):
            nobody = as_numpy(other[0].is_empty), as_numpy(own[0].is_empty)
            reason[who, target] = np.select(nobody, (1, 2), 3)
            triples = balanced_triples(
                other,
                own,
                n_neighbors=n_neighbors,
                n_pairs=n_pairs,
                tolerance=tolerance,
                slack=slack,
                limit=limit,
            )
            xp, person = namespace(triples), placed(who, device)[triples[:, :1]]
            found.append(xp.concat([person, xp.full_like(person, target), triples[:, 1:]], axis=1))
        table = self._of_three_people(namespace(*found).concat(found))
        person, other_group, rank, others, owns = as_numpy(table).T.copy()
        reason[person, other_group] = 0
        return PlaceboPairs(
            person=person,
            other=others,
            own=owns,
            other_distance=_distances(people.points[person], pool.points[others]),
            own_distance=_distances(people.points[person], pool.points[owns]),
            other_group=other_group,
            rank=rank,
            reason=reason,
            unit=self.known.unit,
            person_unit=unit,
            is_same_people=len(rows) == len(pool.groups) and bool((rows == np.arange(len(rows))).all()),
        )

    def _between_groups(
        self, everyone: Asking, groups: Ints, n_groups: int, k: int
    ) -> Iterator[tuple[Ints, int, tuple[Neighbors, Neighbors | None], tuple[Neighbors, Neighbors | None]]]:
        """Yield people of a group, another group, and their neighbors there and in their group; all and among few."""

        def among_few(sides: tuple[int, int], asking: Asking) -> Neighbors | None:
            return self.few[sides].nearest(asking, sides[0], k) if sides in self.few else None

        for group in np.unique(groups).tolist():
            who = np.flatnonzero(groups == group)
            asking = everyone.rows(who)
            own = self.index.nearest(asking, group, k)
            for target in range(n_groups):
                if target != group:
                    other = self.index.nearest(asking, target, k)
                    few_other, few_own = among_few((target, group), asking), among_few((group, target), asking)
                    yield who, target, (other, few_other), (own, few_own)

    def _of_three_people(self, table: Array) -> Array:
        """Person, other group, rank, other row and own row of triples of three people, in this order.

        Households can have people of both groups: match and placebo must be different people, too.
        """
        unit = like(self.known.unit, table)
        table = table[unit[table[:, 3]] != unit[table[:, 4]]]
        person, other_group, rank = table[:, 0], table[:, 1], table[:, 2]
        n_groups, n_ranks = (1 + int(codes.max()) if len(table) else 1 for codes in (other_group, rank))
        return table[namespace(table).argsort((person * n_groups + other_group) * n_ranks + rank)]


def _jitter_of(content: Keys, dimensions: int, seed: int) -> Floats:
    """A displacement for each person, of shape (n, dimensions), from their content and the seed alone."""
    columns = [mixed_hash(content, np.full(len(content), seed + column)) for column in range(1, dimensions + 1)]
    uniform = np.stack(columns, axis=1).astype(np.float64) / 2.0**64 if columns else np.zeros((len(content), 0))
    steps: Floats = _JITTER * np.sqrt(12.0) * (uniform - 0.5)
    return steps


def _few(pool: _People, rank: Keys, large: int, small: int) -> Ints:
    """Random reference rows of `large`, as many of each label as `small` has, if it has far fewer."""
    chosen = [np.zeros(0, dtype=np.int64)]
    for label in np.unique(pool.labels):
        is_label = pool.labels == label
        rows = np.flatnonzero(is_label & (pool.groups == large))
        n_small = int((is_label & (pool.groups == small)).sum())
        if len(rows) > 2 * n_small > 0:
            chosen.append(rows[np.argsort(rank[rows])[:n_small]])
    return np.concatenate(chosen)


@dataclass(frozen=True, eq=False)
class _People:
    """Coordinates and codes, checked."""

    points: Floats
    labels: Ints
    groups: Ints

    @classmethod
    def of(cls, points: ArrayLike, labels: ArrayLike, groups: ArrayLike) -> _People:
        coordinates = np.asarray(points, dtype=np.float64)
        codes = np.asarray(labels, dtype=np.int64), np.asarray(groups, dtype=np.int64)
        if coordinates.ndim != 2 or any(code.shape != coordinates.shape[:1] for code in codes):
            raise InvalidInputError(
                f"`points`, `labels` and `groups` must have one row per person, "
                f"got shapes {coordinates.shape}, {codes[0].shape} and {codes[1].shape}."
            )
        if codes[1].min(initial=0) < 0:
            raise InvalidInputError(f"`groups` must be codes 0..G-1, got {codes[1].min()}.")
        return cls(coordinates, *codes)


def _distances(first: Floats, second: Floats) -> Floats:
    difference = first - second
    found: Floats = np.sqrt(np.einsum("ij,ij->i", difference, difference))
    return found


def _check_numbers(n_neighbors: int, n_pairs: int, tolerance: float, max_distance: float | None) -> None:
    if n_neighbors < 1 or n_pairs < 1:
        raise InvalidInputError(f"`n_neighbors` and `n_pairs` must be at least 1, got {n_neighbors} and {n_pairs}.")
    if not 0 <= tolerance < 1:
        raise InvalidInputError(f"`tolerance` must be at least 0 and below 1, got {tolerance}.")
    if max_distance is not None and not max_distance >= 0:
        raise InvalidInputError(f"`max_distance` must be 0 or more, or None for no limit, got {max_distance}.")
