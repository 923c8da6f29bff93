"""Decisions, labels, scores and settings as they are given -> checked arrays and numbers."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.exceptions import InvalidInputError

__all__ = ["binary_values", "check_open_fraction", "check_same_length", "finite_scores"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]


def binary_values(values: ArrayLike, name: str) -> Ints:
    """Zeros and ones, one per person."""
    array = np.asarray(values)
    if array.ndim != 1 or len(array) == 0:
        raise InvalidInputError(f"`{name}` must be one value per person, got shape {array.shape}.")
    if array.dtype.kind not in "iubf" or not np.isin(array, (0, 1)).all():
        raise InvalidInputError(
            f"`{name}` must be 0 or 1 (1 for the favorable outcome), got {np.unique(array.astype(str))[:5].tolist()}."
        )
    return array.astype(np.int64)


def finite_scores(values: ArrayLike) -> Floats:
    """Finite numbers, one per person."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1 or len(array) == 0:
        raise InvalidInputError(f"`score` must be one number per person, got shape {array.shape}.")
    n_bad = int((~np.isfinite(array)).sum())
    if n_bad:
        raise InvalidInputError(f"`score` must be finite, got {n_bad} missing or infinite values; drop those people.")
    return array


def check_same_length(arrays: dict[str, NDArray[Any]]) -> None:
    """Refuse arrays, by name, that are not of the same people."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidInputError(f"Arrays must have one value per person each, got lengths {lengths}.")


def check_open_fraction(value: float, name: str) -> None:
    """Refuse what is not strictly between 0 and 1."""
    if not 0 < value < 1:
        raise InvalidInputError(f"`{name}` must be a number between 0 and 1, got {value!r}.")
