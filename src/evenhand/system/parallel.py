"""Results in order, from work done in parallel, wherever it is done; and their sum."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from itertools import islice
from typing import Any, Generic, Protocol, TypeVar

__all__ = ["ONE_THREAD", "Crew", "Later", "PairwiseSum", "Threads", "consumed_in_order", "in_order", "sum_in_order"]


class _Adds(Protocol):
    def __add__(self, other: Any, /) -> Any: ...  # noqa: ANN401


T = TypeVar("T")
A = TypeVar("A", bound=_Adds)
R = TypeVar("R")

_WAITING_PER_THREAD = 2
_ADDED_AT_ONCE = 8  # items; a power of 2, as the order of additions is then that of `PairwiseSum`


def in_order(function: Callable[[T], R], items: Iterable[T], n_threads: int) -> Iterator[R]:
    """Results of a function in the order of the items, computed in threads; only a few wait to be consumed.

    Not joblib's `Parallel(return_as="generator")`: it limits what is started but not what is done, so that all results
    wait in memory for a slow consumer, and it warns if the consumer stops early.

    Examples
    --------
    >>> list(in_order(abs, [-3, 1, -2], n_threads=2))
    [3, 1, 2]
    """
    with ThreadPoolExecutor(n_threads) as pool:
        yield from consumed_in_order(lambda item: pool.submit(function, item), items, _WAITING_PER_THREAD * n_threads)


def consumed_in_order(submit: Callable[[T], Future[R]], items: Iterable[T], most: int) -> Iterator[R]:
    """Results of items in order, of which no more than so many are begun before they are consumed."""
    waiting: deque[Future[R]] = deque()
    try:
        for item in items:
            if len(waiting) == most:
                yield waiting.popleft().result()
            waiting.append(submit(item))
        while waiting:
            yield waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()


@dataclass(frozen=True, eq=False)
class Later(Generic[T]):
    """Items that are loaded where they are needed: by whoever iterates over them, or in each thread or process.

    Examples
    --------
    >>> list(Later(abs, [-3, 1]))
    [3, 1]
    """

    load: Callable[[Any], T]
    keys: Sequence[Any]

    def __iter__(self) -> Iterator[T]:
        return map(self.load, self.keys)

    def then(self, function: Callable[[T], R]) -> Callable[[Any], R]:
        """What a function returns of the item of a key."""
        return lambda key: function(self.load(key))


class Crew(Protocol):
    """Threads or processes that work through items."""

    def in_order(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Results of a function in the order of the items; only a few wait to be consumed."""


@dataclass(frozen=True)
class Threads:
    """Threads of this process.

    Examples
    --------
    >>> list(Threads(2).in_order(str, Later(abs, [-3, 1, -2])))
    ['3', '1', '2']
    """

    n: int = 1

    def in_order(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Results of a function in the order of the items; only a few wait to be consumed."""
        if isinstance(items, Later):
            return in_order(items.then(function), items.keys, self.n)
        return in_order(function, items, self.n)


ONE_THREAD = Threads()


class PairwiseSum(Generic[A]):
    """The sum of many items in order, in which each is added a number of times that hardly grows with their number.

    Adding to one growing total would take time proportional to its size, every time.

    Examples
    --------
    >>> letters = PairwiseSum()
    >>> for letter in "abcde":
    ...     letters.add(letter)
    >>> letters.total()
    'abcde'
    """

    def __init__(self) -> None:
        self._sums: list[A | None] = []  # of 1, 2, 4, ... items, the later ones first

    def add(self, item: A) -> None:
        """Add the next item."""
        for k, before in enumerate(self._sums):
            if before is None:
                self._sums[k] = item
                return
            item, self._sums[k] = before + item, None
        self._sums.append(item)

    def total(self) -> A | None:
        """The sum; None if nothing was added."""
        total: A | None = None
        for part in self._sums:
            if part is not None:
                total = part if total is None else part + total
        return total


def sum_in_order(function: Callable[[T], A], items: Iterable[T], crew: Crew) -> A | None:
    """The sum of a function's results over the items, added by a crew as `PairwiseSum` does; None without items.

    Examples
    --------
    >>> sum_in_order(str, range(12), Threads(2))
    '01234567891011'
    """

    def added(some: Sequence[T]) -> A:
        sums: PairwiseSum[A] = PairwiseSum()
        for item in some:
            sums.add(function(item))
        total = sums.total()
        assert total is not None
        return total

    left = iter(items)
    blocks = iter(lambda: list(islice(left, _ADDED_AT_ONCE)), [])
    sums: PairwiseSum[A] = PairwiseSum()
    for block in crew.in_order(added, blocks):
        sums.add(block)
    return sums.total()
