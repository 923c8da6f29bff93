"""Error and warning types. Every message says what was expected, what came, and what to do."""

__all__ = [
    "ArchiveError",
    "DataFileError",
    "DownloadError",
    "EvenhandError",
    "EvenhandWarning",
    "InvalidInputError",
    "InvalidTypeError",
    "MissingExtraError",
    "ModelFileError",
    "StreamError",
]


class EvenhandError(Exception):
    """Base of every error raised on purpose by evenhand."""


class InvalidInputError(EvenhandError, ValueError):
    """A value the user gave cannot be used."""


class InvalidTypeError(EvenhandError, TypeError):
    """An object of the wrong kind was given."""


class ArchiveError(EvenhandError, ValueError):
    """A zip file is damaged, hostile, or not what was expected."""


class DataFileError(EvenhandError, ValueError):
    """A data file is missing, unreadable or not what its name promises."""


class DownloadError(EvenhandError, OSError):
    """A download could not be completed; nothing half-written was left behind."""


class ModelFileError(EvenhandError, ValueError):
    """A model file is truncated, altered, foreign or of an unknown version."""


class MissingExtraError(EvenhandError, ImportError):
    """A library that only some work needs is not installed; the message names the extra that brings it."""


class StreamError(EvenhandError, OSError):
    """A streamed audit could not go on; the message says why and what of it is kept."""


class EvenhandWarning(UserWarning):
    """Weak evidence or a degenerate model: the result stands, with a reservation that it also reports."""


def first_line(error: BaseException) -> str:
    r"""The first line of an error's message without its full stop, to quote in a message of ours; else its type.

    Examples
    --------
    >>> first_line(ValueError("no such column.\nAsk for another."))
    'no such column'
    """
    return (str(error).strip().splitlines() or [""])[0].rstrip(".:") or type(error).__name__
