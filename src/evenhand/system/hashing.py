"""Random-looking bits that depend on a person and a seed alone: samples that are the same however people are read."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.exceptions import InvalidInputError

__all__ = ["person_hash"]

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def person_hash(keys: ArrayLike, random_state: int = 0) -> NDArray[np.uint64]:
    """64 random-looking bits for each person, of shape (n,), from their key and the seed alone.

    People read in parts, in any order, on any number of machines, have the bits they would have had at once: a sample
    of those with the lowest is one and the same.

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


def _mixed(words: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finalizer of splitmix64: every input bit changes every output bit half of the time."""
    words = words ^ (words >> np.uint64(30))
    words = words * np.uint64(0xBF58476D1CE4E5B9)
    words ^= words >> np.uint64(27)
    words *= np.uint64(0x94D049BB133111EB)
    words ^= words >> np.uint64(31)
    return words
