"""Combine many remarks on columns into few sentences."""

from __future__ import annotations

from collections.abc import Iterable

__all__ = ["few_sentences"]

_MOST_OF_A_KIND = 3
_MOST_NAMES = 6


def few_sentences(remarks: Iterable[tuple[str, str, str]]) -> list[str]:
    """A sentence for each remark (column, kind and sentence), or one for a kind that many columns share.

    Examples
    --------
    >>> few_sentences([("when", "date", "'when' holds dates.")])
    ["'when' holds dates."]
    >>> few_sentences([(name, "date", "") for name in "abcd"])
    ["4 columns, date: 'a', 'b', 'c', 'd'."]
    """
    by_kind: dict[str, dict[str, str]] = {}
    for column, kind, sentence in remarks:
        by_kind.setdefault(kind, {})[column] = sentence
    sentences: list[str] = []
    for kind, found in by_kind.items():
        names = [repr(name) for name in found]
        if len(names) <= _MOST_OF_A_KIND:
            sentences += found.values()
        elif len(names) <= _MOST_NAMES:
            sentences.append(f"{len(names)} columns, {kind}: {', '.join(names)}.")
        else:
            shown = ", ".join(names[:_MOST_NAMES])
            sentences.append(f"{len(names)} columns, {kind}: {shown} and {len(names) - _MOST_NAMES} more.")
    return sentences
