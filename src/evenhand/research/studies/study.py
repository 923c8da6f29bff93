"""A study: cells, each a setting that is audited on many datasets."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol, TypeAlias, TypeVar

from evenhand.exceptions import InvalidInputError

__all__ = ["Cell", "Line", "chosen_cells", "plan_of", "share_error"]

Line: TypeAlias = dict[str, Any]
"""The result of one audit, as written to the file of audits."""


class Cell(Protocol):
    """One setting."""

    @property
    def name(self) -> str:
        """Settings in words, separated by slashes; unique to the cell."""

    @property
    def left_out(self) -> str:
        """Why the cell cannot be run here; empty if it can."""

    def audit(self, replicate: int) -> Line:
        """The result of the audit of dataset number `replicate`."""


C = TypeVar("C", bound=Cell)


def chosen_cells(cells: Sequence[C], words: Sequence[str]) -> tuple[C, ...]:
    """Cells whose name contains any of the words; all without words.

    Raises
    ------
    InvalidInputError
        If a word is in no name.
    """
    for word in words:
        if not any(word in cell.name for cell in cells):
            names = ", ".join(cell.name for cell in cells[:3])
            raise InvalidInputError(
                f"`cells` (--cells) must be parts of names of cells, such as {names}; no name contains {word!r}."
            )
    return tuple(cell for cell in cells if not words or any(word in cell.name for word in words))


def plan_of(n_cells: int, replicates: int, rate: float) -> str:
    """A sentence on what will be run, and how precise a share of about `rate` will be.

    Examples
    --------
    >>> print(plan_of(50, 400, 0.05))
    50 cells, 400 datasets each, 20,000 audits: the standard error of a share of 5% is
    1.1 points in a cell, 0.15 in all.
    """
    n = n_cells * replicates
    alone, together = (100 * share_error(rate, count) for count in (replicates, n))
    return (
        f"{n_cells} cells, {replicates} datasets each, {n:,} audits: the standard error of a share of "
        f"{100 * rate:g}% is {alone:.1f} points in a cell, {together:.2f} in all."
    )


def share_error(share: float, n: int) -> float:
    """Monte Carlo standard error of a share of n datasets; NaN if there are none.

    Examples
    --------
    >>> round(share_error(0.05, 400), 4)
    0.0109
    """
    return math.sqrt(share * (1 - share) / n) if n else math.nan
