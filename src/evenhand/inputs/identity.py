"""Identify the same person: applicants who apply twice, households, and rows that repeat another one in every input."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from evenhand.arrays import Ints, Keys, mixed_hash, person_hash, row_hash
from evenhand.inputs.validation import is_number_column

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
        number = pd.Series(self.content).groupby(self.content, sort=False).cumcount().to_numpy().astype(np.int64)
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


def fingerprint_table(table: pd.DataFrame) -> str:
    """SHA-256 of a table's column names and values, in order; the index and data types do not matter.

    Examples
    --------
    >>> import pandas as pd
    >>> first = fingerprint_table(pd.DataFrame({"a": [1, 2], "b": ["x", None]}))
    >>> first == fingerprint_table(pd.DataFrame({"a": [1.0, 2.0], "b": ["x", None]}))
    True
    >>> first == fingerprint_table(pd.DataFrame({"a": [2, 1], "b": ["x", None]}))
    False
    """
    digest = hashlib.sha256()
    for name in table.columns:
        column = table[name]
        if is_number_column(column) or column.dtype == bool:
            content = column.to_numpy(dtype=np.float64, na_value=np.nan).tobytes()
        else:
            codes, values = column.astype(object).factorize()
            texts = [hashlib.sha256(f"{type(value).__name__}:{value}".encode()).digest() for value in values]
            content = b"".join(texts[code] if code >= 0 else b"\0" * 32 for code in codes.tolist())
        digest.update(f"{len(str(name))}:{name}:{len(content)}:".encode())
        digest.update(content)
    return digest.hexdigest()


def hash_rows(table: pd.DataFrame) -> NDArray[np.uint64]:
    """64 random-looking bits for each row, from the names and values of its columns, in any order.

    The order of rows and columns, the index and the data types do not matter, so a row has the same bits wherever it is
    read.

    Examples
    --------
    >>> import pandas as pd
    >>> whole = hash_rows(pd.DataFrame({"a": [1, 2], "b": ["x", None]}))
    >>> bool(whole[1] == hash_rows(pd.DataFrame({"b": [None], "a": [2.0]}))[0])
    True
    """
    bits = np.zeros(len(table), dtype=np.uint64)
    for name in table.columns:
        bits += hash_column(table[name])
    return bits


def hash_column(column: pd.Series[Any]) -> NDArray[np.uint64]:
    """The contribution of a column to the bits of each row; all missing values are equal."""
    bits: NDArray[np.uint64]
    if is_number_column(column) or column.dtype == bool:
        numbers = column.to_numpy(dtype=np.float64, na_value=np.nan) + 0.0  # one zero, without a sign
        numbers[np.isnan(numbers)] = np.nan
        bits = numbers.view(np.uint64)
    else:
        codes, values = column.astype(object).factorize()
        bits = np.array([*map(_object_bits, values), _number_bits(np.nan)], dtype=np.uint64)[codes]
    return person_hash(bits, _text_bits(str(column.name)) >> 1)


def _object_bits(value: object) -> int:
    """Bits of a value in a column of mixed types; booleans next to missing values keep their usual bits."""
    if isinstance(value, (bool, np.bool_)):
        return _number_bits(float(value))
    return _text_bits(f"{type(value).__name__}:{value}")


def _number_bits(value: float) -> int:
    return int(np.float64(value).view(np.uint64))


def _text_bits(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "little")


def fingerprint_numbers(*arrays: ArrayLike) -> str:
    """SHA-256 of arrays of numbers, as float64.

    Examples
    --------
    >>> fingerprint_numbers([1, 2]) == fingerprint_numbers([1.0, 2.0]) != fingerprint_numbers([2, 1])
    True
    """
    digest = hashlib.sha256()
    for array in arrays:
        values = np.ascontiguousarray(array, dtype=np.float64)
        digest.update(f"{values.shape}:".encode())
        digest.update(values.tobytes())
    return digest.hexdigest()


def fingerprint_file(path: str | Path) -> str:
    """SHA-256 of a file's bytes; for a folder, of its files and their names."""
    path = Path(path)
    if path.is_dir():
        digest = hashlib.sha256()
        for part in sorted(p for p in path.rglob("*") if p.is_file()):
            digest.update(f"{part.relative_to(path).as_posix()}:{fingerprint_file(part)};".encode())
        return digest.hexdigest()
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def fingerprint_plain(data: object) -> str:
    """Sixteen hexadecimal digits that differ when JSON-able `data` does.

    Examples
    --------
    >>> fingerprint_plain({"a": 1, "b": 2}) == fingerprint_plain({"b": 2, "a": 1})
    True
    """
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]
