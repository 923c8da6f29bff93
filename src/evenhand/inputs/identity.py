"""Identify the same person: applicants who apply twice, households, and rows that repeat another one in every input."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.arrays import Ints, Keys
from evenhand.exceptions import InvalidInputError
from evenhand.system.hashing import mixed_hash, person_hash, row_hash

MOST_COPIES = 4
"""Up to this many rows with equal inputs are taken for one person; if there are more, they are different people."""


@dataclass(frozen=True, eq=False)
class Identity:
    """Who each row is, as hashes, so that nothing depends on the row order.

    Attributes
    ----------
    person
        Equal for rows that are, or may be, the same person, of shape (n,).
    content
        Hash of all of the model's inputs, the label and the group: breaks ties among people with the same finances.
    is_given
        Whether the user gave the identities. Otherwise rows with equal inputs are taken for the same person.
    """

    person: Keys
    content: Keys
    is_given: bool = False

    def __post_init__(self) -> None:
        if self.person.shape != self.content.shape:
            raise InvalidInputError(
                f"Every row needs one identity, got {len(self.person)} identities for {len(self.content)} rows."
            )

    @classmethod
    def of(cls, inputs: NDArray[np.floating], labels: ArrayLike, groups: ArrayLike, person: Keys | None) -> Identity:
        """Identities of rows of model inputs; `person` holds a hash of who each row is, None if unknown.

        Examples
        --------
        >>> twice = Identity.of(np.array([[1.0, 2.0], [3.0, 4.0], [1.0, 2.0]]), [1, 1, 1], [0, 1, 0], None)
        >>> bool(twice.person[0] == twice.person[2]), bool(twice.person[0] == twice.person[1])
        (True, False)
        """
        profile = row_hash(inputs)
        content = mixed_hash(profile, np.asarray(labels, dtype=np.int64), np.asarray(groups, dtype=np.int64))
        return cls(profile if person is None else person, content, person is not None)

    @classmethod
    def by_number(cls, n: int) -> Identity:
        """Every row is a different person, identified by its place."""
        keys = person_hash(np.arange(n))
        return cls(keys, keys, True)

    def __len__(self) -> int:
        return len(self.person)

    def rows(self, chosen: Ints) -> Identity:
        """Select some of the rows."""
        return Identity(self.person[chosen], self.content[chosen], self.is_given)

    def first_rows(self) -> Ints:
        """The first row of the same person, of shape (n,)."""
        _, first, code, count = np.unique(self.person, return_index=True, return_inverse=True, return_counts=True)
        rows = first[code]
        return rows if self.is_given else np.where(count[code] <= MOST_COPIES, rows, np.arange(len(rows)))

    def halves(self, cells: Ints) -> Ints:
        """0 or 1 for each row, so that each cell is split into two equal halves; by content, not by order.

        Rows of the same person in a cell are in the same half.
        """
        _, code, count = np.unique(self.person, return_inverse=True, return_counts=True)
        is_one_person = np.ones(len(code), dtype=np.bool_) if self.is_given else count[code] <= MOST_COPIES
        key = np.where(is_one_person, self.person, self.distinct_content())
        order = np.lexsort((key, cells))
        is_new_cell = np.r_[True, cells[order][1:] != cells[order][:-1]]
        is_new = is_new_cell | np.r_[True, key[order][1:] != key[order][:-1]]
        number = np.cumsum(is_new)
        half = np.empty(len(cells), dtype=np.int64)
        half[order] = (number - np.maximum.accumulate(np.where(is_new_cell, number, 0))) % 2
        return half

    def distinct_content(self) -> Keys:
        """The content, made unique by mixing in a number for rows with the same content."""
        order = np.argsort(self.content, kind="stable")
        ordered = self.content[order]
        start = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]]) if len(order) else np.zeros(0, dtype=np.int64)
        number = np.empty(len(order), dtype=np.int64)
        number[order] = np.arange(len(order)) - np.repeat(start, np.diff(np.r_[start, len(order)]))
        return np.where(number == 0, self.content, mixed_hash(self.content, number))


@dataclass(frozen=True, eq=False)
class KnownPeople:
    """The people of a reference, to be recognized in other rows.

    Attributes
    ----------
    unit
        For each row of the reference, the first row of the same person, of shape (n_reference,).
    keys, rows
        Identities, sorted, and the first row of each; those shared by many people are left out.
    """

    unit: Ints
    keys: Keys
    rows: Ints

    @classmethod
    def of(cls, reference: Identity) -> KnownPeople:
        """Build it from the rows of a reference."""
        unit = reference.first_rows()
        keys, first, count = np.unique(reference.person, return_index=True, return_counts=True)
        known = np.ones(len(keys), dtype=np.bool_) if reference.is_given else count <= MOST_COPIES
        return cls(unit, keys[known], first[known].astype(np.int64))

    def find(self, people: Identity) -> Ints:
        """The first row of the reference that is the same person, -1 for someone who is not in it."""
        if not len(self.keys):
            return np.full(len(people), -1, dtype=np.int64)
        place = np.minimum(np.searchsorted(self.keys, people.person), len(self.keys) - 1)
        return np.where(self.keys[place] == people.person, self.rows[place], -1)
