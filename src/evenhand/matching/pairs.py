"""Counterfactual matching: each person with the nearest real person of every other group with the same label."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from evenhand.arrays import Bools, Floats, Ints, Keys
from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.inputs.validation import in_row_order
from evenhand.matching.neighbors import NeighborIndex
from evenhand.matching.space import MatchingSpace, Missing

NO_ONE_OF_LABEL = "no one of that label in that group"
BEYOND_MAX_DISTANCE = "nearest is beyond max_distance"


@dataclass(frozen=True, eq=False)
class Pairs:
    """Matched people: one row for each person and other group, in person order, other groups ascending.

    Attributes
    ----------
    person
        Row of the person among the matched people, of shape (n_pairs,).
    match
        Row of the match in the reference, -1 if unmatched.
    distance
        Distance in standardized financial features, inf if unmatched; 0 is a financial twin.
    other_group
        Group code of the match.
    group
        Group code of each person, of shape (n_persons,).
    reference_group
        Group code of each person of the reference.
    group_names
        The groups by code.
    unmatched
        How many rows have no match, by reason.
    space
        The coordinates in which distances were taken.
    """

    person: Ints
    match: Ints
    distance: Floats
    other_group: Ints
    group: Ints
    reference_group: Ints
    group_names: tuple[Any, ...]
    unmatched: dict[str, int]
    space: MatchingSpace

    def __len__(self) -> int:
        return len(self.person)

    @property
    def n_persons(self) -> int:
        """Number of people matched or left without a match."""
        return len(self.group)

    @property
    def is_matched(self) -> Bools:
        """Whether each row has a match, of shape (n_pairs,)."""
        return self.match >= 0

    @property
    def coverage(self) -> float:
        """Share of rows that have a match; NaN if there are no people."""
        return float(self.is_matched.mean()) if len(self) else float("nan")


def match_pairs(
    F: object,
    y: ArrayLike | None,
    group: ArrayLike,
    reference: tuple[Any, ArrayLike | None, ArrayLike] | None = None,
    max_distance: float | None = None,
    *,
    missing: Missing = "error",
) -> Pairs:
    r"""Return, for each person, the nearest person of every other group with the same label (Algorithm 1).

    .. math:: i^* = \arg\min_{i:\, a_i \ne a,\, y_i = y} \lVert x_F^{std} - (x_i)_F^{std} \rVert_2

    Features are standardized on the reference. The search is exact; if several people are at the same distance (up to
    rounding), the lowest row is taken.

    Parameters
    ----------
    F
        Financial features of shape (n, k): a numeric array or a table; see `MatchingSpace`.
    y
        Labels of shape (n,), any discrete values. None compares people regardless of their label.
    group
        Group of each person, any hashable values; codes follow their sorted order.
    reference
        `(F, y, group)` of the people to match in; None for the same people.
    max_distance
        A match farther than this does not count; 0 allows only financial twins, None sets no limit.
    missing
        `"error"` rejects missing features, `"indicator"` makes missingness a feature.

    Raises
    ------
    InvalidInputError
        If lengths disagree, a label or group is missing, the reference has fewer than two groups or lacks one of the
        people's groups, features cannot be used, or `max_distance` is negative.
    InvalidTypeError
        If a feature is neither a number nor a category, or `reference` does not have three parts.

    Examples
    --------
    >>> pairs = match_pairs([[1.0], [2.0], [2.1], [9.0]], y=[1, 1, 1, 1], group=["a", "a", "b", "b"])
    >>> pairs.match.tolist()
    [2, 2, 1, 1]
    >>> pairs.group_names
    ('a', 'b')
    """
    people = (F, y, group) if reference is None else _unpack(reference, y)
    fitted = MatchReference.of(*people, missing=missing)
    return fitted.match_members(max_distance) if reference is None else fitted.match(F, y, group, max_distance)


@dataclass(frozen=True, eq=False)
class MatchReference:
    """People to match in, standardized and indexed once for any number of matched people.

    Attributes
    ----------
    space
        Coordinates learned from them.
    points
        Their coordinates, of shape (n_reference, n_coordinates).
    labels, groups
        Codes into the two tuples of names.
    order
        The rows in the order of the index: of several people at the same distance, its first is taken.
    """

    space: MatchingSpace
    points: Floats
    labels: Ints
    groups: Ints
    label_names: tuple[Any, ...]
    group_names: tuple[Any, ...]
    index: NeighborIndex
    order: Ints

    @classmethod
    def of(
        cls,
        F: object,
        y: ArrayLike | None,
        group: ArrayLike,
        *,
        missing: Missing = "error",
        device: str | None = None,
        keys: Keys | None = None,
    ) -> MatchReference:
        """Index a reference; the parameters are those of `match_pairs` and, `device`, of `NeighborIndex.build`.

        Of several people at the same distance, the one with the lowest of `keys` is taken; by default the lowest row.
        """
        space = MatchingSpace.fit(F, missing=missing)
        points = space.transform(F)
        group_names, groups = _encode(in_row_order(group, F, "group"), "group", "reference", len(points))
        if len(group_names) < 2:
            raise InvalidInputError(
                f"Matching needs at least two groups; all {len(points)} people of the reference are in "
                f"{group_names[0]!r}."
            )
        label_names, labels = _encode(in_row_order(y, F, "y"), "y", "reference", len(points))
        order = np.arange(len(points)) if keys is None else np.argsort(keys, kind="stable")
        index = NeighborIndex.build(points[order], labels[order], groups[order], device=device)
        return cls(space, points, labels, groups, label_names, group_names, index, order)

    def match(self, F: object, y: ArrayLike | None, group: ArrayLike, max_distance: float | None = None) -> Pairs:
        """Match other people in the reference."""
        points = self.space.transform(F)
        codes = _group_codes(in_row_order(group, F, "group"), self.group_names, len(points))
        labels = _codes_in(self.label_names, *_encode(in_row_order(y, F, "y"), "y", "people", len(points)))
        distance, match = _nearest_by_group(self.index, (points, labels), codes, len(self.group_names))
        return self._pairs(codes, distance, match, max_distance)

    def match_members(self, max_distance: float | None = None) -> Pairs:
        """Match the people of the reference with each other."""
        found = _nearest_by_group(self.index, None, self.groups[self.order], len(self.group_names))
        place = np.argsort(self.order)  # of each row in the index
        distance, match = found[0].reshape(len(place), -1), found[1].reshape(len(place), -1)
        return self._pairs(self.groups, distance[place].ravel(), match[place].ravel(), max_distance)

    def _pairs(self, codes: Ints, distance: Floats, match: Ints, max_distance: float | None) -> Pairs:
        if max_distance is not None and not max_distance >= 0:
            raise InvalidInputError(f"`max_distance` must be 0 or more, or None for no limit; got {max_distance!r}.")
        n_others = len(self.group_names) - 1
        person = np.repeat(np.arange(len(codes)), n_others)
        other = np.tile(np.arange(n_others), len(codes))
        match = np.where(match >= 0, self.order[match], -1)
        is_far = (match >= 0) & (distance > max_distance) if max_distance is not None else np.zeros(len(match), bool)
        return Pairs(
            person=person,
            match=np.where(is_far, -1, match),
            distance=np.where(is_far, np.inf, distance),
            other_group=other + (other >= codes[person]),
            group=codes,
            reference_group=self.groups,
            group_names=self.group_names,
            unmatched={NO_ONE_OF_LABEL: int((match < 0).sum()), BEYOND_MAX_DISTANCE: int(is_far.sum())},
            space=self.space,
        )


def _nearest_by_group(
    index: NeighborIndex, asking: tuple[Floats, Ints] | None, codes: Ints, n_groups: int
) -> tuple[Floats, Ints]:
    """Return distance and reference row for every (person, other group), in the order of the result.

    `asking` holds the points and labels of people outside the reference; None means the reference itself.
    """
    distance = np.full((len(codes), n_groups - 1), np.inf)
    match = np.full((len(codes), n_groups - 1), -1, dtype=np.int64)
    for target in range(n_groups):
        who = np.flatnonzero(codes != target)
        if asking is None:
            others = set(range(n_groups)) - {target}
            found, row = (values[who] for values in index.query_members(target, of=others))
        else:
            points, labels = asking
            found, row = index.query(points[who], labels[who], np.full(len(who), target))
        slot = target - (target > codes[who])
        distance[who, slot], match[who, slot] = found[:, 0], row[:, 0]
    return distance.ravel(), match.ravel()


def _unpack(reference: object, y: ArrayLike | None) -> tuple[Any, ArrayLike | None, ArrayLike]:
    """Return the reference's three parts."""
    if not isinstance(reference, tuple) or len(reference) != 3:
        got = f"{len(reference)} items" if isinstance(reference, tuple) else type(reference).__name__
        raise InvalidTypeError(f"`reference` must be a tuple (F, y, group); got {got}.")
    if (y is None) != (reference[1] is None):
        without = "the people" if y is None else "the reference"
        raise InvalidInputError(f"`y` must be given for both people and reference or for neither; {without} has none.")
    return reference


def _group_codes(group: ArrayLike, known: tuple[Any, ...], n: int) -> Ints:
    """Return people's groups in the reference's codes."""
    names, codes = _encode(group, "group", "people", n)
    unseen = [name for name in names if name not in known]
    if unseen:
        n_unseen = int(np.isin(codes, [names.index(name) for name in unseen]).sum())
        raise InvalidInputError(
            f"{n_unseen} people are in groups that the reference does not have, {unseen}; it has {list(known)}."
        )
    return _codes_in(known, names, codes)


def _codes_in(known: tuple[Any, ...], names: tuple[Any, ...], codes: Ints) -> Ints:
    """Return codes of `names` as codes of `known`, -1 for an unknown name."""
    place = {name: code for code, name in enumerate(known)}
    return np.array([place.get(name, -1) for name in names], dtype=np.int64)[codes]


def _encode(values: object, name: str, whose: str, n: int) -> tuple[tuple[Any, ...], Ints]:
    """Return the distinct values, sorted, and each person's place among them."""
    if values is None and name == "y":
        return (None,), np.zeros(n, dtype=np.int64)
    array = _as_vector(values, name, whose, n)
    try:
        codes, found = pd.factorize(array if array.dtype.kind in "biuf" else array.astype(object))
    except TypeError as error:
        raise InvalidTypeError(f"`{name}` must hold hashable values; {error}.") from error
    n_missing = int((codes < 0).sum())
    if n_missing:
        raise InvalidInputError(
            f"`{name}` is missing for {n_missing} of {n} people of the {whose}; drop them or give them a value."
        )
    distinct = found.tolist()
    keys = [(type(v).__name__, v if isinstance(v, str | int | float) else repr(v)) for v in distinct]
    order = sorted(range(len(keys)), key=keys.__getitem__)
    return tuple(distinct[j] for j in order), np.argsort(order)[codes]


def _as_vector(values: object, name: str, whose: str, n: int) -> NDArray[Any]:
    """Return one value for each of n people."""
    if isinstance(values, list | tuple) and any(isinstance(v, tuple) for v in values[:1]):
        array = np.empty(len(values), dtype=object)
        array[:] = values
    else:
        array = np.asarray(values)
    if array.ndim != 1:
        raise InvalidInputError(f"`{name}` must be one-dimensional; got shape {array.shape}.")
    if len(array) != n:
        raise InvalidInputError(f"`{name}` has {len(array)} values, but F has {n} rows ({whose}).")
    return array
