"""The library's messages, as the command line shows them."""

from __future__ import annotations

import re
from dataclasses import fields

import typer

from evenhand.cli.options import ALIASES, AuditPlan
from evenhand.system.printable import printable

__all__ = ["say", "with_options"]

_ARGUMENTS = {"sensitive_features": "group", "y": "label"}
_QUOTED = re.compile(r"`(\w+)`(?! \(--)")


def say(text: str = "", *, err: bool = False) -> None:
    """Print a text without terminal control codes, because names of columns and groups come from files."""
    typer.echo(printable(text), err=err)


def with_options(message: str) -> str:
    """Add the command-line option after each argument of `evenhand.audit` that a message names.

    Examples
    --------
    >>> with_options("Set `max_distance`, or look at `X`.")
    'Set `max_distance` (--max-distance), or look at `X`.'
    """
    known = {option.name for option in fields(AuditPlan)}
    short = {name: alias for alias, name in ALIASES.items()}

    def replaced(found: re.Match[str]) -> str:
        name = _ARGUMENTS.get(found[1], found[1])
        if name not in known:
            return found[0]
        return f"{found[0]} (--{short.get(name, name).replace('_', '-')})"

    return _QUOTED.sub(replaced, message)
