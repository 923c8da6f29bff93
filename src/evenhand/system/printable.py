"""Text from files in a form that is safe for a terminal."""

from __future__ import annotations

import re

__all__ = ["printable"]

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
    return _HIDDEN.sub(lambda found: found[0].encode("unicode_escape").decode("ascii"), text)
