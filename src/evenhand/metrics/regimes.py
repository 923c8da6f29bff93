"""The four regimes: whether two matched people share the decision, and whether they share the reasoning."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.exceptions import InvalidInputError

__all__ = ["REGIMES", "assign_regimes", "regime_shares"]

REGIMES: tuple[str, ...] = ("A", "B", "C", "D")


def assign_regimes(
    decision: ArrayLike, decision_match: ArrayLike, delta: ArrayLike, consistency_threshold: float = 0.3
) -> NDArray[np.str_]:
    """Regime of each pair (the paper's Table 1).

    A: same decision, same reasoning. B: same decision, different reasoning. C: different decision, same reasoning.
    D: both differ. Reasoning counts as different when the CEC score is above `consistency_threshold`.

    Raises
    ------
    InvalidInputError
        If lengths differ, a score is outside [0, 1] or missing, or the threshold is outside [0, 1].

    Examples
    --------
    >>> assign_regimes([1, 1, 1, 0], [1, 1, 0, 1], [0.1, 0.5, 0.1, 0.5])
    array(['A', 'B', 'C', 'D'], dtype='<U1')
    """
    own, other, scores = np.asarray(decision), np.asarray(decision_match), np.asarray(delta, dtype=np.float64)
    if not own.shape == other.shape == scores.shape:
        raise InvalidInputError(
            "`decision`, `decision_match` and `delta` must have the same length, "
            f"got {own.shape}, {other.shape} and {scores.shape}."
        )
    if not 0 <= consistency_threshold <= 1:
        raise InvalidInputError(f"`consistency_threshold` must be in [0, 1], got {consistency_threshold}.")
    if not ((scores >= 0) & (scores <= 1)).all():
        raise InvalidInputError("`delta` must hold CEC scores in [0, 1]; got missing or other values.")
    differs = (own != other).astype(np.int64) * 2 + (scores > consistency_threshold)
    regimes: NDArray[np.str_] = np.asarray(REGIMES)[differs]
    return regimes


def regime_shares(regimes: ArrayLike) -> dict[str, float]:
    """Share of pairs in each regime; NaN for every regime if there are no pairs.

    Examples
    --------
    >>> regime_shares(["A", "A", "B", "D"])
    {'A': 0.5, 'B': 0.25, 'C': 0.0, 'D': 0.25}
    """
    values = np.asarray(regimes)
    if values.size == 0:
        return dict.fromkeys(REGIMES, float("nan"))
    return {regime: float(np.mean(values == regime)) for regime in REGIMES}
