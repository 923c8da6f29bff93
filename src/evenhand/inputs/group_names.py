"""Implausible groups: the same one written in several ways, or a number for every person."""

from __future__ import annotations

from collections.abc import Mapping

from evenhand.exceptions import InvalidInputError
from evenhand.inputs.alike_names import alike_names

__all__ = ["MOST_GROUPS", "check_group_names", "is_writable"]

MOST_GROUPS = 50
"""People are compared with every other group: time and memory grow with their number, and small groups say little."""

_SHOWN = 4


def check_group_names(counts: Mapping[str, int], name: str) -> None:
    """Reject groups that are too many, differ only in capitals and spaces, or have invalid names.

    Parameters
    ----------
    counts
        People of each group.
    name
        What the user gave, for messages.

    Raises
    ------
    InvalidInputError
        If the groups are implausible.

    Examples
    --------
    >>> check_group_names({"Black": 90, "BLACK": 2, "White": 80}, "race")
    Traceback (most recent call last):
    ...
    evenhand.exceptions.InvalidInputError: `race` has groups that differ only in typing: 'Black' (90),
    'BLACK' (2); write each group in one way.
    """
    if len(counts) > MOST_GROUPS:
        shown = ", ".join(repr(group) for group in list(counts)[:_SHOWN])
        raise InvalidInputError(
            f"`{name}` has {len(counts):,} groups, such as {shown}; at most {MOST_GROUPS} can be compared. "
            "Put a number such as age into ranges first (for example under 25, 25 to 61, 62 and over), and combine "
            "rare groups."
        )
    unwritable = [group for group in counts if "\0" in group or not is_writable(group)]
    if unwritable:
        raise InvalidInputError(f"`{name}` has group names with invalid characters: {unwritable[:_SHOWN]}.")
    alike = alike_names(counts)
    if alike:
        shown = ", ".join(f"{group!r} ({counts[group]:,})" for group in alike[0])
        raise InvalidInputError(
            f"`{name}` has groups that differ only in typing: {shown}; write each group in one way."
        )


def is_writable(text: str) -> bool:
    """Whether a text has no lone surrogate, which cannot be encoded."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
