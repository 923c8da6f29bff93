"""Work on many things at once whose results are wanted one after the other."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

__all__ = ["in_order"]

T = TypeVar("T")
R = TypeVar("R")

_WAITING_PER_THREAD = 2


def in_order(function: Callable[[T], R], items: Iterable[T], n_threads: int) -> Iterator[R]:
    """Results of a function in the order of the items, computed in threads; only a few wait to be taken.

    Examples
    --------
    >>> list(in_order(abs, [-3, 1, -2], n_threads=2))
    [3, 1, 2]
    """
    waiting: deque[Future[R]] = deque()
    with ThreadPoolExecutor(n_threads) as pool:
        try:
            for item in items:
                if len(waiting) == _WAITING_PER_THREAD * n_threads:
                    yield waiting.popleft().result()
                waiting.append(pool.submit(function, item))
            while waiting:
                yield waiting.popleft().result()
        finally:
            for future in waiting:
                future.cancel()
