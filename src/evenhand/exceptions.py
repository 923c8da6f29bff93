"""Error and warning types. Every message says what was expected, what was found, and what to do."""

import contextlib
import os
import sys
import warnings
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

_OURS = (f"{Path(__file__).parent}{os.sep}", contextlib.__file__)  # decorators of ours are called through contextlib


class EvenhandError(Exception):
    """Base class of all errors that evenhand raises on purpose."""


class InvalidInputError(EvenhandError, ValueError):
    """A value the user gave cannot be used."""


class InvalidTypeError(EvenhandError, TypeError):
    """An object of the wrong type was given."""


class ArchiveError(EvenhandError, ValueError):
    """A zip file is damaged, hostile, or not what was expected."""


class DataFileError(EvenhandError, ValueError):
    """A data file is missing, unreadable or not of the type its name suggests."""


class DownloadError(EvenhandError, OSError):
    """A download could not be completed; nothing half-written was left behind."""


class ModelFileError(EvenhandError, ValueError):
    """A model file is truncated, altered, foreign or of an unknown version."""


class MissingExtraError(EvenhandError, ImportError):
    """An optional library is not installed; the message names the extra that installs it."""


class StreamError(EvenhandError, OSError):
    """A streamed audit could not continue; the message says why and what is kept."""


class LimitError(EvenhandError):
    """A separate process that read a file crashed, or took more time or memory than it may."""


class EvenhandWarning(UserWarning):
    """Weak evidence or a degenerate model: the result stands, with a reservation that is also reported."""


def warn_caller(message: str, category: type[Warning] = EvenhandWarning) -> None:
    """Warn, naming the line outside this package that the call came from, however deep inside the reason was found."""
    frame, level = sys._getframe(), 1
    while frame is not None and frame.f_code.co_filename.startswith(_OURS):
        frame, level = frame.f_back, level + 1  # type: ignore[assignment]
    warnings.warn(message, category, stacklevel=level)


def first_line(error: BaseException) -> str:
    r"""The first line of an error's message without its period, to quote in our messages; else the error's type.

    Examples
    --------
    >>> first_line(ValueError("no such column.\nAsk for a different one."))
    'no such column'
    """
    return (str(error).strip().splitlines() or [""])[0].rstrip(".:") or type(error).__name__


def did_you_mean(name: str, options: Sequence[str]) -> str:
    """A suggestion for the end of an error message.

    Examples
    --------
    >>> did_you_mean("incme", ["income", "age"])
    " Did you mean 'income'?"
    """
    close = get_close_matches(name, options, n=1)
    if close:
        return f" Did you mean {close[0]!r}?"
    shown = ", ".join(repr(option) for option in options[:12])
    return f" Available: {shown}{', ...' if len(options) > 12 else ''}."
