"""What a terminal shows: progress of long work, text without control characters, and output that no one reads."""

from __future__ import annotations

import io
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

PATIENCE = 2.0
"""Seconds without output that users do not mind."""

_SECONDS_BETWEEN_LINES = 5.0
_VARIABLE = "EVENHAND_PROGRESS_SECONDS"  # set by programs that read the lines


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
    if not is_shown or _silenced:
        yield lambda status: None
        return
    console = Console(stderr=True)
    if console.is_terminal:
        with _bar(console, what, total, done, after) as advance:
            yield advance
    else:
        yield _lines(console, what, total, done, after)


_silenced: list[bool] = []


@contextmanager
def silence() -> Iterator[None]:
    """Print neither output nor progress, only what goes to the stream of errors."""
    _silenced.append(True)
    try:
        with Path(os.devnull).open("w", encoding="utf-8") as nowhere, redirect_stdout(nowhere):
            yield
    finally:
        _silenced.pop()


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
    given = os.environ.get(_VARIABLE)
    between, after = (_SECONDS_BETWEEN_LINES, after) if given is None else (float(given), 0.0)

    def advance(status: str) -> None:
        nonlocal count, last
        count += 1
        if time.monotonic() - begun < after:
            return
        if count == total or time.monotonic() - last >= between:
            last = time.monotonic()
            console.print(f"{what} {count}/{total} {status}".rstrip(), markup=False, highlight=False)

    return advance


# Control characters except line feed and tab, which could move the cursor, recolor or rewrite what was printed; and
# marks that reverse the order in which letters are shown.
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    r"""The text with control characters escaped, as in Python.

    Examples
    --------
    >>> print(printable("income\x1b[2J \u202etxet"))
    income\x1b[2J \u202etxet
    """
    return _HIDDEN.sub(lambda match: match[0].encode("unicode_escape").decode("ascii"), text)


class _Outlet(io.FileIO):
    """A file that accepts output although its reader has gone."""

    def write(self, content: ReadableBuffer, /) -> int:
        try:
            return super().write(content)
        except BrokenPipeError:
            return memoryview(content).nbytes


def outlive_readers() -> None:
    """Continue after the reader of a pipe, such as `head`, has gone: later output is lost, the exit code is not.

    Click and rich both end the process with code 1, which says that a gate was crossed.
    """
    sys.stdout, sys.stderr = _without_reader(sys.stdout), _without_reader(sys.stderr)


def _without_reader(stream: TextIO) -> TextIO:
    """The stream, or one to the same file that outlives its reader; a stream that a program replaced stays."""
    if type(stream) is not io.TextIOWrapper:
        return stream
    raw = getattr(stream.buffer, "raw", stream.buffer)  # PYTHONUNBUFFERED leaves the buffer out
    if type(raw) is not io.FileIO:
        return stream
    stream.flush()
    outlet = _Outlet(stream.fileno(), "wb", closefd=False)
    return io.TextIOWrapper(
        outlet if raw is stream.buffer else io.BufferedWriter(outlet),
        encoding=stream.encoding,
        errors=stream.errors,
        line_buffering=stream.line_buffering,
        write_through=stream.write_through,
    )
