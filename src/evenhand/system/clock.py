"""The timestamp of written files."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from evenhand.exceptions import InvalidInputError

__all__ = ["time_of_writing"]

_VARIABLE = "SOURCE_DATE_EPOCH"


def time_of_writing() -> datetime:
    """Now, or the time in `SOURCE_DATE_EPOCH` (seconds since 1970), with which a file can be reproduced exactly.

    Raises
    ------
    InvalidInputError
        If the variable is not a number of seconds.

    Examples
    --------
    >>> time_of_writing().tzinfo is UTC
    True
    """
    given = os.environ.get(_VARIABLE)
    if not given:
        return datetime.now(UTC).replace(microsecond=0)
    try:
        return datetime.fromtimestamp(int(given), UTC)
    except (ValueError, OverflowError, OSError):
        raise InvalidInputError(
            f"{_VARIABLE} must be a whole number of seconds since 1970, got {given!r}; correct or unset it."
        ) from None
