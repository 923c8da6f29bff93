"""Progress of long work: a bar on a terminal, plain lines elsewhere."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

__all__ = ["PATIENCE", "progress"]

PATIENCE = 2.0
"""Seconds without output that users do not mind."""

_SECONDS_BETWEEN_LINES = 5.0


@contextmanager
def progress(
    what: str, total: int, *, is_shown: bool = True, done: int = 0, after: float = 0.0
) -> Iterator[Callable[[str], None]]:
    """Return a function to call after each of `total` pieces of work, with a short status.

    Parameters
    ----------
    what
        The work.
    total, done
        The number of pieces, and how many were done before.
    is_shown
        False for no output.
    after
        Seconds before anything is shown: work that is done by then needs no output.

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
        with _bar(console, what, total, done, after) as advance:
            yield advance
    else:
        yield _lines(console, what, total, done, after)


@contextmanager
def _bar(console: Console, what: str, total: int, done: int, after: float) -> Iterator[Callable[[str], None]]:
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        TextColumn("{task.fields[status]}"),
    )
    bar = Progress(*columns, console=console, transient=True)
    task = bar.add_task(what, total=total, completed=done, status="")
    start = threading.Timer(after, bar.start)
    start.start()
    try:
        yield lambda status: bar.update(task, advance=1, status=status)
    finally:
        start.cancel()
        start.join()
        bar.stop()


def _lines(console: Console, what: str, total: int, done: int, after: float) -> Callable[[str], None]:
    count, last, begun = done, float("-inf"), time.monotonic()

    def advance(status: str) -> None:
        nonlocal count, last
        count += 1
        if time.monotonic() - begun < after:
            return
        if count == total or time.monotonic() - last >= _SECONDS_BETWEEN_LINES:
            last = time.monotonic()
            console.print(f"{what} {count}/{total} {status}".rstrip(), markup=False, highlight=False)

    return advance
