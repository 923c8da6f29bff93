"""The library's messages, as the command line shows them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from functools import wraps
from pathlib import Path
from typing import Any

import typer

from evenhand.cli.options import ALIASES, AuditPlan, SearchPlan
from evenhand.exceptions import InvalidInputError
from evenhand.system.terminal import printable

_ARGUMENTS = {"sensitive_features": "group", "y": "label"}
_QUOTED = re.compile(r"`(\w+)`(?! \(--)")


def say(text: str = "", *, err: bool = False) -> None:
    """Print a text without terminal control codes, because names of columns and groups come from files."""
    typer.echo(printable(text), err=err)


def with_options(message: str) -> str:
    """Add the command-line option after each argument of `evenhand.audit` or `evenhand.search` that a message names.

    Examples
    --------
    >>> with_options("Set `max_distance`, or look at `X`.")
    'Set `max_distance` (--max-distance), or look at `X`.'
    """
    known = {option.name for plan in (AuditPlan, SearchPlan) for option in fields(plan) if "help" in option.metadata}
    short = {name: alias for alias, name in ALIASES.items()}

    def replaced(found: re.Match[str]) -> str:
        name = _ARGUMENTS.get(found[1], found[1])
        if name not in known:
            return found[0]
        return f"{found[0]} (--{short.get(name, name).replace('_', '-')})"

    return _QUOTED.sub(replaced, message)


INTERRUPTED = 130
"""Exit code of a program that Ctrl-C ended."""

# For each command: the file or folder that holds finished work, and the option that says where it is.
_KEPT = {
    "search": ("out", "store"),
    "train": ("checkpoint", ""),
    "reproduce": ("out", "results.jsonl"),
}


class InterruptionError(Exception):
    """What to say after an interrupt; the parser of the command line would keep neither it nor its notes."""


def said_when_interrupted(command: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command so that Ctrl-C ends it with a sentence and an exit code."""

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> None:
        _check_memory()
        try:
            command(*arguments, **options)
        except KeyboardInterrupt as interrupt:
            said = [*getattr(interrupt, "__notes__", ()), *_kept(command.__name__, options)]
            raise InterruptionError(with_options(" ".join(["Interrupted.", *said]))) from interrupt

    return run


_LEAST_MEMORY = 4000 << 20  # of addresses; libraries take 3,000, and may end the process, or hang, where they find less


def _check_memory() -> None:
    try:
        import resource
    except ImportError:  # not on Windows
        return
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < _LEAST_MEMORY:
        raise InvalidInputError(
            f"There is not enough memory: this process may use {limit >> 20:,} MB of addresses, and its libraries need "
            f"most of {_LEAST_MEMORY >> 20:,}; raise the limit (ulimit -v)."
        )


def _kept(name: str, options: Mapping[str, Any]) -> Iterator[str]:
    """Where a command has stored work that it can resume."""
    option, within = _KEPT.get(name, ("", ""))
    if options.get(option) is None:
        return
    place = Path(options[option]) / within
    if any(place.iterdir()) if place.is_dir() else place.is_file():
        yield f"Finished work is kept in {str(place)!r}: run the same command again to continue."
