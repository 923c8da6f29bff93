"""Names that differ only in how they were typed."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable

__all__ = ["alike_names", "plain_name"]

_BETWEEN_LETTERS = re.compile(r"(?<=[^\W\d_])[-_\s]+(?=[^\W\d_])")


def plain_name(name: str) -> str:
    """Normalize a name: remove outer and repeated spaces, capitals, wide letters and hyphens between words.

    Examples
    --------
    >>> plain_name(" Non-Hispanic  WHITE "), plain_name("-1")
    ('non hispanic white', '-1')
    """
    folded = " ".join(unicodedata.normalize("NFKC", name).casefold().split())
    return _BETWEEN_LETTERS.sub(" ", folded)


def alike_names(names: Iterable[str]) -> list[tuple[str, ...]]:
    """Groups of names that differ only in typing, each in order of first appearance.

    Examples
    --------
    >>> alike_names(["Black", "Asian", "Black ", "BLACK"])
    [('Black', 'Black ', 'BLACK')]
    """
    found: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        found.setdefault(plain_name(name), []).append(name)
    return [tuple(members) for members in found.values() if len(members) > 1]
