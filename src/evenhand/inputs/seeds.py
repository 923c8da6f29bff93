"""Seeds of all random draws. This module imports nothing heavy: options are checked with it."""

from __future__ import annotations

from numbers import Integral

from evenhand.exceptions import InvalidInputError

__all__ = ["check_seed"]

_MOST = 2**31 - 1  # numpy accepts twice as much; folds and draws add to the seed


def check_seed(value: object, name: str = "`random_state` (--random-state)") -> int:
    """A seed that every generator accepts.

    Examples
    --------
    >>> check_seed(-1)
    Traceback (most recent call last):
    ...
    evenhand.exceptions.InvalidInputError: `random_state` (--random-state) must be a whole number from 0 to
    2147483647, got -1.
    """
    if not isinstance(value, Integral) or isinstance(value, bool) or not 0 <= int(value) <= _MOST:
        raise InvalidInputError(f"{name} must be a whole number from 0 to {_MOST}, got {value!r}.")
    return int(value)
