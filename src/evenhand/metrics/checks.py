"""Validate the inputs of metrics: turn them into checked arrays and numbers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.exceptions import InvalidInputError

__all__ = [
    "binary_values",
    "check_at_least",
    "check_open_fraction",
    "check_same_length",
    "finite_scores",
    "group_codes",
    "vector",
]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]


def vector(values: ArrayLike, name: str) -> Floats:
    """Numbers of shape (n,)."""
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != 1:
        raise InvalidInputError(f"`{name}` must be one-dimensional, got shape {array.shape}.")
    return array


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


def group_codes(group: ArrayLike, n: int, names: Sequence[str] | None) -> tuple[Ints, tuple[str, ...]]:
    """Integer codes of the groups of `n` people, and a name for each code; by default the codes themselves."""
    codes = np.asarray(group)
    if codes.ndim != 1:
        raise InvalidInputError(
            f"`group` must hold one code for each of {n} people, got shape {codes.shape}; group probabilities "
            "are not supported here."
        )
    if len(codes) != n:
        raise InvalidInputError(f"`group` has {len(codes)} values for {n} people; give one per person.")
    if codes.dtype.kind not in "iub" or codes.min(initial=0) < 0:
        raise InvalidInputError(
            f"`group` must hold integer codes from 0, got {codes.dtype} values"
            f"{f' from {codes.min()}' if codes.dtype.kind == 'i' else ''}; "
            "convert names to codes first, for example with `evenhand.inputs.validation.as_groups`."
        )
    n_codes = int(codes.max(initial=-1)) + 1
    readable = tuple(str(code) for code in range(n_codes)) if names is None else tuple(names)
    if len(readable) < n_codes:
        raise InvalidInputError(f"`names` has {len(readable)} names for {n_codes} group codes; give one per code.")
    return codes.astype(np.int64), readable


def check_same_length(arrays: dict[str, NDArray[Any]]) -> None:
    """Reject arrays, by name, that do not have the same number of people."""
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidInputError(f"Arrays must all have one value per person, got lengths {lengths}.")


def check_at_least(value: int, least: int, name: str, why: str = "") -> None:
    """Reject a number that is too small; `why` says what the minimum is for."""
    if value < least:
        raise InvalidInputError(f"`{name}` must be at least {least}{why and f' {why}'}, got {value}.")


def check_open_fraction(value: float, name: str) -> None:
    """Reject anything not strictly between 0 and 1."""
    if not 0 < value < 1:
        raise InvalidInputError(f"`{name}` must be a number between 0 and 1, got {value!r}.")
