"""Random-looking bits that depend only on a person and a seed: samples that are the same however people are read."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.exceptions import InvalidInputError

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def person_hash(keys: ArrayLike, random_state: int = 0) -> NDArray[np.uint64]:
    """64 random-looking bits for each person, of shape (n,), from their key and the seed alone.

    People read in parts, in any order, on any number of machines, have the same bits: a sample of those with the lowest
    bits is always the same.

    Parameters
    ----------
    keys
        An integer for each person, of shape (n,), such as a row number.
    random_state
        Seed.

    Raises
    ------
    InvalidInputError
        If `keys` are not integers.

    Examples
    --------
    >>> bool(person_hash([7, 8, 9])[1] == person_hash([8])[0])
    True
    """
    codes = np.asarray(keys)
    if codes.ndim != 1 or codes.dtype.kind not in "iu":
        raise InvalidInputError(f"`keys` must be one integer per person, got {codes.dtype} of shape {codes.shape}.")
    seed = _mixed(np.array([random_state], dtype=np.int64).astype(np.uint64) + _GOLDEN)
    return _mixed(codes.astype(np.uint64) * _GOLDEN + seed)


def mixed_hash(keys: NDArray[np.uint64], *columns: NDArray[np.int64]) -> NDArray[np.uint64]:
    """Hashes with the integers of additional columns mixed in, of shape (n,).

    Examples
    --------
    >>> found = mixed_hash(person_hash([1, 1, 2]), np.array([0, 5, 0]))
    >>> len(set(found.tolist()))
    3
    """
    for column in columns:
        keys = _mixed(keys * _GOLDEN + column.astype(np.uint64))
    return keys


def row_hash(rows: NDArray[np.floating]) -> NDArray[np.uint64]:
    """64 random-looking bits for each row of a matrix, of shape (n,), equal for rows that are equal number by number.

    Examples
    --------
    >>> found = row_hash(np.array([[0.0, 1.0], [-0.0, 1.0], [1.0, 0.0]]))
    >>> bool(found[0] == found[1]), bool(found[0] == found[2])
    (True, False)
    """
    keys = np.zeros(len(rows), dtype=np.uint64)
    for column in rows.T:
        # A single zero, and a single missing value.
        numbers = np.where(np.isnan(column), np.nan, column.astype(np.float64) + 0.0)
        keys = _mixed(keys * _GOLDEN + numbers.view(np.uint64))
    return keys


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of splitmix64: every input bit changes every output bit half of the time."""
    words = words ^ (words >> np.uint64(30))
    words = words * np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words
