"""Numbers as the report shows them; a number that could not be estimated says so."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

MISSING = "not estimated"
_MINUS = "\N{MINUS SIGN}"


def is_number(value: object) -> bool:
    """Whether the value is a finite number.

    Examples
    --------
    >>> is_number(0.3), is_number(float("nan")), is_number(None)
    (True, False, False)
    """
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def decimal(value: float | None, places: int = 3) -> str:
    """A number with a true minus sign, or "not estimated".

    Examples
    --------
    >>> decimal(0.12345), decimal(-0.0001, 2), decimal(None)
    ('0.123', '0.00', 'not estimated')
    """
    if value is None or not is_number(value):
        return MISSING
    text = f"{value:,.{places}f}"
    if text.startswith("-"):
        text = text[1:] if not text.strip("-0.,") else _MINUS + text[1:]
    return text


def percent(value: float | None, places: int = 1) -> str:
    """A share as a percentage.

    Examples
    --------
    >>> percent(0.7166), percent(float("nan"))
    ('71.7%', 'not estimated')
    """
    if value is None or not is_number(value):
        return MISSING
    return f"{decimal(100 * value, places)}%"


def count(value: float | None) -> str:
    """A whole number with thousands separated.

    Examples
    --------
    >>> count(100000)
    '100,000'
    """
    return MISSING if value is None or not is_number(value) else f"{value:,.0f}"


def p_value(value: float | None) -> str:
    """A p-value, never shown as zero.

    Examples
    --------
    >>> p_value(0.00002), p_value(0.0412), p_value(0.99991)
    ('< 0.001', '0.041', '> 0.999')
    """
    if value is None or not is_number(value):
        return MISSING
    return "< 0.001" if value < 0.001 else "> 0.999" if value > 0.999 else f"{value:.3f}"


def p_words(value: float | None) -> str:
    """A p-value in a sentence.

    Examples
    --------
    >>> p_words(0.00002), p_words(0.0412)
    ('p < 0.001', 'p = 0.041')
    """
    shown = p_value(value)
    return f"p {shown}" if shown[0] in "<>" else f"p = {shown}"


def capital(words: str) -> str:
    """The words as the beginning of a sentence, with names as they are written."""
    return words[:1].upper() + words[1:]


def interval(low: float | None, high: float | None, places: int = 3) -> str:
    """Two ends, or an empty text if neither is known.

    Examples
    --------
    >>> interval(-0.015, 0.011)
    '−0.015 to 0.011'
    """
    if not is_number(low) and not is_number(high):
        return ""
    return f"{decimal(low, places)} to {decimal(high, places)}"


def estimate_interval(estimate: Mapping[str, Any], places: int = 3, scale: float = 1.0) -> str:
    """The interval of an estimate."""
    low, high = (None if end is None else end * scale for end in (estimate.get("low"), estimate.get("high")))
    return interval(low, high, places)


def listed(names: list[str], most: int = 3) -> str:
    """Names in a sentence, the rest counted.

    Examples
    --------
    >>> listed(["age", "income"]), listed(["a", "b", "c", "d"], 2)
    ('age and income', 'a, b and 2 more')
    """
    shown = names[:most] + ([f"{len(names) - most} more"] if len(names) > most else [])
    return shown[0] if len(shown) == 1 else f"{', '.join(shown[:-1])} and {shown[-1]}" if shown else "none"


def shortened(text: object, most: int = 60) -> str:
    """A text of limited length.

    Examples
    --------
    >>> shortened("a_very_long_column_name", 10)
    'a_very_lo…'
    """
    words = str(text)
    return words if len(words) <= most else words[: most - 1] + "…"


_PEOPLE = {"men", "women", "people", "persons", "applicants", "customers", "borrowers", "households"}


def people_of(group: str) -> str:
    """The people of a group in a sentence.

    Examples
    --------
    >>> people_of("female"), people_of("women"), people_of("1")
    ('female applicants', 'women', 'applicants in group 1')
    """
    if _PEOPLE & set(group.lower().split()):
        return group
    if group.lower().startswith("group "):
        return f"applicants in {group}"
    return f"{group} applicants" if group[:1].isalpha() and len(group) > 2 else f"applicants in group {group}"


def fewer_or_more(value: float, low: float, high: float) -> tuple[str, str]:
    """A signed number of people and its interval, in words.

    Examples
    --------
    >>> fewer_or_more(-7.2, -16.0, 3.1), fewer_or_more(-76.0, -92.0, -61.0)
    (('7 fewer', '16 fewer to 3 more'), ('76 fewer', '92 to 61 fewer'))
    >>> fewer_or_more(2.0, -math.inf, math.inf)[1]
    'any number fewer to any number more'
    """
    numbers = ["any number" if math.isinf(end) else count(abs(round(end))) for end in (value, low, high)]
    words = ["fewer" if end < -0.5 else "more" for end in (value, low, high)]
    first = "" if words[1] == words[2] else f" {words[1]}"
    shown = "as many" if round(value) == 0 else f"{numbers[0]} {words[0]}"
    return shown, f"{numbers[1]}{first} to {numbers[2]} {words[2]}"
