"""Local processes that work through items in order."""

from __future__ import annotations

import copyreg
import traceback
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.exceptions import EvenhandError
from evenhand.system.memory import keep_freed_memory
from evenhand.system.parallel import Later, Threads, consumed_in_order
from evenhand.system.parcels import Parcel, opened, parcel
from evenhand.system.threads import on_this_core, one_thread_each
from evenhand.system.workers import Workers

__all__ = ["Processes"]

T = TypeVar("T")
R = TypeVar("R")

_AHEAD = 2  # items begun beyond one for each process: bounds memory


@dataclass(frozen=True, eq=False)
class Processes:
    """Processes of a pool: a `Crew`. Sent to a process, it is a single thread there.

    A function and what it refers to are written to a file that all processes open, so it may be large, but must not
    depend on this process. Items and results travel one by one.

    Attributes
    ----------
    pool
        The processes; each computes on one core.
    folder
        Where the file is written.
    """

    pool: Workers
    folder: Path

    def in_order(self, function: Callable[[T], R], items: Iterable[T]) -> Iterator[R]:
        """Results of a function in the order of the items; only a few wait to be consumed.

        Raises
        ------
        BrokenExecutor
            If a process is lost.
        """
        work: Callable[[Any], R] = function
        todo: Iterable[Any] = items
        if isinstance(items, Later):
            work, todo = items.then(function), items.keys
        with parcel(work, self.folder) as sent:
            most = self.pool.n_workers + _AHEAD
            yield from consumed_in_order(lambda item: self.pool.submit(_result, sent, item), todo, most)

    def __reduce__(self) -> tuple[type[Threads], tuple[()]]:
        return Threads, ()


def _result(sent: Parcel, item: Any) -> Any:  # noqa: ANN401
    """In a process: what the function returns."""
    keep_freed_memory()
    copyreg.pickle(Tensor, _as_array)
    with on_this_core(), one_thread_each():
        try:
            return opened(sent)(item)
        except EvenhandError:
            raise
        except Exception as error:
            error.add_note(traceback.format_exc())  # which cannot be sent between processes
            raise


def _as_array(tensor: Tensor) -> tuple[Callable[[NDArray[Any]], Tensor], tuple[NDArray[Any]]]:
    """How a result is pickled: torch's way copies it several times."""
    return _of_array, (tensor.numpy(),)


def _of_array(values: NDArray[Any]) -> Tensor:
    return torch.from_numpy(values)
