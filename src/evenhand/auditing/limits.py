"""Limits that a user sets on the size of findings: each finding is within its limit, beyond it, or open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal

from scipy import stats

from evenhand.report.formatting import is_number

__all__ = ["beyond_limit", "within_limit"]

Data = Mapping[str, Any]

_LEVEL = 0.05


def within_limit(limit: float, estimates: Sequence[Data], *, has_side: bool) -> Literal["yes", "no", "open"]:
    """Whether all estimates are smaller than a limit: "no" if one is clearly larger, "open" if neither is clear.

    Parameters
    ----------
    limit
        A size above 0.
    estimates
        Each with `value`, `ci_low`, `ci_high`, `p_value`, `standard_error` and `df`.
    has_side
        Whether an estimate below 0 is as large as one above; if not, negative estimates are below any limit.

    Examples
    --------
    >>> gap = {"value": -0.04, "ci_low": -0.08, "ci_high": 0.0, "p_value": 0.05, "standard_error": 0.02, "df": 500.0}
    >>> [within_limit(limit, [gap], has_side=True) for limit in (0.1, 0.05)]
    ['yes', 'open']
    """
    # All are smaller only if each one is, which needs no adjustment for their number.
    if all(_is_inside(limit, one, has_side) for one in estimates):
        return "yes"
    return "no" if beyond_limit(limit, estimates, has_side=has_side) else "open"


def beyond_limit(limit: float, estimates: Sequence[Data], *, has_side: bool) -> list[Data]:
    """The estimates that are clearly larger, by intervals that allow for their number (Bonferroni)."""
    return [one for one in estimates if _is_beyond(limit, one, has_side, len(estimates))]


def _is_inside(limit: float, one: Data, has_side: bool) -> bool:
    low, high = one["ci_low"], one["ci_high"]
    return is_number(low) and is_number(high) and high < limit and (low > -limit or not has_side)


def _is_beyond(limit: float, one: Data, has_side: bool, n: int) -> bool:
    if not is_number(one["p_value"]):
        return False
    size = abs(one["value"]) if has_side else one["value"]
    half = float(stats.t.ppf(1 - _LEVEL / (2 * n), one["df"])) * one["standard_error"]
    return bool(size - half > limit)
