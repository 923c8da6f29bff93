"""Progress of long work: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["progress"]

_SECONDS_BETWEEN_LINES = 5.0


@contextmanager
def progress(what: str, total: int, *, is_shown: bool = True, done: int = 0) -> Iterator[Callable[[str], None]]:
    """A function to call after each of `total` pieces of work, with a few words on how it stands.

    Parameters
    ----------
    what
        The work.
    total, done
        How many pieces there are, and how many were done before.
    is_shown
        False for silence.

    Examples
    --------
    >>> with progress("folds", 2, is_shown=False) as advance:
    ...     advance("auc 0.8")
    """
    if not is_shown:
        yield lambda status: None
        return
    console = Console(stderr=True)
    if console.is_terminal:
        with _bar(console, what, total, done) as advance:
            yield advance
    else:
        yield _lines(console, what, total, done)


@contextmanager
def _bar(console: Console, what: str, total: int, done: int) -> Iterator[Callable[[str], None]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[status]}"),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task(what, total=total, completed=done, status="")
        yield lambda status: bar.update(task, advance=1, status=status)


def _lines(console: Console, what: str, total: int, done: int) -> Callable[[str], None]:
    count, last = done, float("-inf")

    def advance(status: str) -> None:
        nonlocal count, last
        count += 1
        if count == total or time.monotonic() - last >= _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            console.print(f"{what} {count}/{total} {status}".rstrip(), markup=False, highlight=False)

    return advance
