"""Ctrl-C on the command line: say what is kept, if anything is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from functools import wraps
from pathlib import Path
from typing import Any

import typer

from evenhand.cli.messages import say, with_options

__all__ = ["INTERRUPTED", "said_when_interrupted"]

INTERRUPTED = 130
"""Exit code of a program that Ctrl-C ended."""

# For each command: the file or folder that holds finished work, and the option that says where it is.
_KEPT = {
    "search": ("out", "store"),
    "train": ("checkpoint", ""),
    "reproduce": ("out", "results.jsonl"),
    "calibrate": ("out", "calibration.jsonl"),
    "power": ("out", "power.jsonl"),
}


def said_when_interrupted(command: Callable[..., None]) -> Callable[..., None]:
    """Wrap a command so that Ctrl-C ends it with a sentence and an exit code."""

    @wraps(command)
    def run(*arguments: Any, **options: Any) -> None:  # noqa: ANN401 - of any command
        try:
            command(*arguments, **options)
        except KeyboardInterrupt as interrupt:
            said = [*getattr(interrupt, "__notes__", ()), *_kept(command.__name__, options)]
            say(with_options(" ".join(["Interrupted.", *said])), err=True)
            raise typer.Exit(INTERRUPTED) from interrupt

    return run


def _kept(name: str, options: Mapping[str, Any]) -> Iterator[str]:
    """Where a command has stored work that it can resume."""
    option, within = _KEPT.get(name, ("", ""))
    if options.get(option) is None:
        return
    place = Path(options[option]) / within
    if any(place.iterdir()) if place.is_dir() else place.is_file():
        yield f"Finished work is kept in {str(place)!r}: run the same command again to continue."
