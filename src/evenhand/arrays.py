"""Names for the arrays that functions take and return, and sums of them that can be added."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, Self, TypeAlias

import numpy as np
from numpy.typing import NDArray

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]
Bools: TypeAlias = NDArray[np.bool_]
Keys: TypeAlias = NDArray[np.uint64]


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
