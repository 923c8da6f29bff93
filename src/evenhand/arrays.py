"""Arrays: their types, one namespace for NumPy and torch, hashes of people, codes of texts, sums and quantiles.

What an audit computes is written once, for NumPy arrays and for torch tensors, with the functions of the array API
standard. Tensors come from networks alone; without one, torch is not imported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import Any, Literal, Self, TypeAlias

import array_api_compat
import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.exceptions import InvalidInputError

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Keys: TypeAlias = NDArray[np.uint64]
Array: TypeAlias = Any
"""A NumPy array, or a torch tensor on any device."""


def namespace(*arrays: Array) -> Any:
    """The functions of the array API standard for these arrays: NumPy's, or torch's.

    Examples
    --------
    >>> namespace(np.zeros(2)).concat([np.zeros(1), np.ones(1)])
    array([0., 1.])
    """
    return array_api_compat.array_namespace(*arrays)


def is_torch_array(array: Any) -> bool:
    """Whether this is a tensor; torch is not imported to find out."""
    return bool(array_api_compat.is_torch_array(array))


def device_of(array: Array) -> Any:
    """Where an array is, as its library says it."""
    return array_api_compat.device(array)


def gpu_of(array: Array) -> str | None:
    """The device of a tensor such as ``"cuda:0"``; None for what is in memory of the processor."""
    return str(array.device) if is_torch_array(array) and array.device.type != "cpu" else None


def as_numpy(array: Array) -> NDArray[Any]:
    """The values in memory of this process, not copied if they are there already."""
    return array.detach().cpu().numpy() if is_torch_array(array) else np.asarray(array)


def like(values: Array, array: Array, *, dtype: Any = None) -> Array:
    """Values as an array of the same library on the same device; of type `dtype`, or their own.

    Examples
    --------
    >>> like([1, 2], np.zeros(3))
    array([1, 2])
    """
    if not is_torch_array(array):
        return np.asarray(values, dtype=dtype)
    import torch

    given = values if is_torch_array(values) else torch.from_numpy(np.require(values, requirements=("C", "W")))
    return given.to(device=device_of(array), dtype=dtype)


def placed(values: ArrayLike, device: str | None) -> Array:
    """Values as a tensor on a device, or as a NumPy array if that is None.

    Examples
    --------
    >>> placed([1, 2], None)
    array([1, 2])
    """
    if device is None:
        return np.asarray(values)
    import torch

    return torch.as_tensor(values, device=device)


def in_blocks(array: Array, size: int) -> list[Array]:
    """Parts of at most so many consecutive rows; one without rows if there are none.

    Examples
    --------
    >>> in_blocks(np.array([1, 2, 3]), 2)
    [array([1, 2]), array([3])]
    """
    return [array[start : start + size] for start in range(0, max(1, len(array)), size)]


def taken(values: Array, places: Array) -> Array:
    """Values, of shape (n,), at places of any shape.

    Examples
    --------
    >>> taken(np.array([5, 6, 7]), np.array([[2, 0]]))
    array([[7, 5]])
    """
    return values[places] if is_torch_array(values) else values.take(places)


def gathered(values: Array, places: Array) -> Array:
    """Values of each row at its places, of the shape of `places`.

    Examples
    --------
    >>> gathered(np.array([[5, 6, 7], [1, 2, 3]]), np.array([[2, 0], [1, 1]]))
    array([[7, 5],
           [2, 2]])
    """
    if is_torch_array(values):
        return values.gather(1, places)
    starts = np.arange(0, values.size, values.shape[1]).reshape(-1, 1) if values.size else 0
    return values.reshape(-1).take(places + starts)


def running_max(array: Array) -> Array:
    """The largest value so far in each row.

    Examples
    --------
    >>> running_max(np.array([[1, 3, 2]]))
    array([[1, 3, 3]])
    """
    return array.cummax(1).values if is_torch_array(array) else np.maximum.accumulate(array, axis=1)


def kth_smallest(array: Array, k: int) -> Array:
    """The k-th smallest value of each row.

    Examples
    --------
    >>> kth_smallest(np.array([[5, 3, 4]]), 2)
    array([4])
    """
    if is_torch_array(array):
        return array.kthvalue(k, dim=1).values
    return np.partition(array, k - 1, axis=1)[:, k - 1]


def smallest(array: Array, k: int) -> tuple[Array, Array]:
    """The k smallest values of each row, in any order, and their places.

    Examples
    --------
    >>> values, places = smallest(np.array([[5, 3, 4]]), 1)
    >>> values.tolist(), places.tolist()
    ([[3]], [[1]])
    """
    if is_torch_array(array):
        values, places = array.topk(k, dim=1, largest=False)
        return values, places
    places = np.argpartition(array, k - 1, axis=1)[:, :k]
    return gathered(array, places), places


def double(array: Array) -> Array:
    """The array in float64."""
    xp = namespace(array)
    return xp.astype(array, xp.float64, copy=False)


def counts(codes: Array, n_codes: int) -> Array:
    """How often each code occurs, of shape (n_codes,).

    Examples
    --------
    >>> counts(np.array([2, 0, 2]), 4)
    array([1, 0, 2, 0])
    """
    return codes.bincount(minlength=n_codes) if is_torch_array(codes) else np.bincount(codes, minlength=n_codes)


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


def text_codes(values: NDArray[np.str_]) -> tuple[tuple[str, ...], Ints]:
    """Distinct texts in order, and the place of each value among them.

    Examples
    --------
    >>> text_codes(np.array(["b", "a", "b"]))
    (('a', 'b'), array([1, 0, 1]))
    """
    names, codes = np.unique(values, return_inverse=True)
    return tuple(str(name) for name in names), codes.astype(np.int64)


class Sums:
    """Counts and sums over some people, as the fields of a dataclass; those of two parts of the people can be added.

    None is nothing, sets are united, mappings are added key by key, tuples place by place.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Counts(Sums):
    ...     n: int
    ...     by_reason: dict[str, int]
    >>> Counts(1, {"a": 2}) + Counts(3, {"a": 1, "b": 5})
    Counts(n=4, by_reason={'a': 3, 'b': 5})
    """

    def __add__(self, other: Self) -> Self:
        mine: Any = self
        both = {f.name: _added(getattr(self, f.name), getattr(other, f.name)) for f in fields(mine)}
        return type(self)(**both)


def _added(first: Any, second: Any) -> Any:
    if first is None or second is None:
        return second if first is None else first
    if isinstance(first, Mapping):
        return {key: _added(first.get(key), second.get(key)) for key in {**first, **second}}
    if isinstance(first, frozenset):
        return first | second
    if isinstance(first, tuple):
        return tuple(_added(*both) for both in zip(first, second, strict=True))
    return first + second


_MOST_KEPT = 1 << 22  # values: 32 MB
_DIGIT = 16  # bits of a value looked at in each pass
_ROUNDING = 1e-12  # of sums of weights, as a share of them


def quantiles_of_parts(parts: Callable[[], Iterator[Floats]], shares: Sequence[float]) -> list[float]:
    """Quantiles of all values together, as `numpy.quantile` computes them; NaN if there are no values.

    Where they are too many to keep, values are compared by their bits, sixteen at a time: four passes count them, and
    nothing is kept but counts.

    Parameters
    ----------
    parts
        Iterates over the parts anew at each call. No value may be NaN.
    shares
        Which quantiles, from 0 to 1.

    Examples
    --------
    >>> quantiles_of_parts(lambda: iter([np.array([1.0, 4.0]), np.array([2.0, 3.0])]), [0.0, 0.5, 1.0])
    [1.0, 2.5, 4.0]
    """
    n, kept = 0, list[Floats]()
    for part in parts():
        n += len(part)
        kept.append(part)
        if n > _MOST_KEPT:
            kept.clear()
    if not n:
        return [float("nan")] * len(shares)
    if n <= _MOST_KEPT:
        return [float(value) for value in np.quantile(np.concatenate(kept), shares)]
    # NumPy interpolates between the two values around place (n - 1) * share.
    places = [(n - 1) * share for share in shares]
    below = [min(int(place), n - 1) for place in places]
    wanted = sorted({k for first in below for k in (first, min(first + 1, n - 1))})
    found = _order_statistics(lambda: ((part, None) for part in parts()), np.asarray(wanted), side="right")
    value = dict(zip(wanted, found, strict=True))
    pairs = [(value[first], value[min(first + 1, n - 1)]) for first in below]
    return [float(np.quantile(pair, place - k)) for pair, place, k in zip(pairs, places, below, strict=True)]


def weighted_quantiles_of_parts(
    parts: Callable[[], Iterator[tuple[Floats, Floats]]], shares: Sequence[float]
) -> list[float]:
    """Quantiles of weighted values: the smallest value up to which the weights reach the share; NaN if there are none.

    They equal those of `numpy.quantile` with weights, which does not interpolate.

    Parameters
    ----------
    parts
        Iterates over values and their weights anew at each call. Values of weight 0 do not count.
    shares
        Which quantiles, from 0 to 1.

    Examples
    --------
    >>> weighted_quantiles_of_parts(lambda: iter([(np.array([1.0, 2.0, 9.0]), np.array([1.0, 1.0, 3.0]))]), [0.4, 0.5])
    [2.0, 9.0]
    """
    total = sum(float(weight.sum()) for _, weight in parts())
    if not total:
        return [float("nan")] * len(shares)
    # For a share of 0, the smallest value with a positive weight.
    places = np.maximum((np.asarray(shares) - _ROUNDING) * total, np.finfo(np.float64).tiny)
    return _order_statistics(parts, places, side="left")


def _order_statistics(
    parts: Callable[[], Iterator[tuple[Floats, Floats | None]]],
    wanted: NDArray[np.int64] | Floats,
    side: Literal["left", "right"],
) -> list[float]:
    """The values at places of the sorted whole; places are numbers of preceding values, or sums of their weights."""
    prefix = np.zeros(len(wanted), dtype=np.uint64)
    place = np.array(wanted)
    for shift in range(64 - _DIGIT, -1, -_DIGIT):
        counts = {int(p): np.zeros(1 << _DIGIT, dtype=place.dtype) for p in prefix}
        for part, weight in parts():
            bits = _ordered_bits(part)
            upper = bits >> np.uint64(shift)
            # A shift by all 64 bits is undefined, so the first pass has no prefix to compare.
            known = upper >> np.uint64(_DIGIT)
            digits = (upper & np.uint64((1 << _DIGIT) - 1)).astype(np.int64)
            for p, count in counts.items():
                inside = known == np.uint64(p)
                count += np.bincount(digits[inside], None if weight is None else weight[inside], minlength=1 << _DIGIT)
        for k in range(len(wanted)):
            upto = np.cumsum(counts[int(prefix[k])])
            # Sums of weights may end just below the target.
            digit = int(np.searchsorted(upto, min(place[k], upto[-1]), side=side))
            place[k] -= upto[digit - 1] if digit else 0
            prefix[k] = (prefix[k] << np.uint64(_DIGIT)) | np.uint64(digit)
    return [float(value) for value in _from_ordered_bits(prefix)]


def _ordered_bits(values: Floats) -> NDArray[np.uint64]:
    """Bits that sort in the order of the values."""
    bits = np.ascontiguousarray(values + 0.0, dtype=np.float64).view(np.uint64)  # -0.0 becomes 0.0
    is_negative = bits >> np.uint64(63) == 1
    return np.where(is_negative, ~bits, bits | np.uint64(1 << 63))


def _from_ordered_bits(bits: NDArray[np.uint64]) -> Floats:
    is_negative = bits >> np.uint64(63) == 0
    return np.where(is_negative, ~bits, bits & np.uint64((1 << 63) - 1)).view(np.float64)
