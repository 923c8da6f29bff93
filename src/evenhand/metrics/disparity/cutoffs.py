"""Approvals of each group at several cut-offs of the score."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from evenhand.exceptions import InvalidInputError
from evenhand.metrics.checks import finite_scores
from evenhand.metrics.disparity.approvals import FOUR_FIFTHS, ApprovalTable, approval_disparity
from evenhand.metrics.disparity.contrast import Test
from evenhand.metrics.disparity.membership import frequencies
from evenhand.metrics.estimate import Plain

__all__ = ["CutoffApprovals", "approval_disparity_by_cutoff"]


@dataclass(frozen=True)
class CutoffApprovals(Plain):
    """Approvals of every group if everyone with a score of at least `cutoff` were approved."""

    quantile: float
    cutoff: float
    overall_approval_rate: float
    table: ApprovalTable


def approval_disparity_by_cutoff(
    score: ArrayLike,
    group: ArrayLike,
    *,
    quantiles: Sequence[float] = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9),
    names: Sequence[str] | None = None,
    frequency: ArrayLike | None = None,
    reference: str | None = None,
    test: Test = "auto",
    confidence: float = 0.95,
    significance_level: float = 0.05,
    four_fifths_threshold: float = FOUR_FIFTHS,
    small_group: int = 30,
) -> list[CutoffApprovals]:
    """Approvals by group at several cut-offs, each a quantile of everyone's scores; by default the deciles.

    With tied scores several quantiles can name the same cut-off, and the overall approval rate need not be one minus
    the quantile; it is given with each. p-values are adjusted over groups, not over cut-offs.

    Examples
    --------
    >>> rows = approval_disparity_by_cutoff([0.1, 0.2, 0.3, 0.4], [0, 1, 0, 1], quantiles=[0.5])
    >>> rows[0].cutoff, rows[0].overall_approval_rate, rows[0].table.groups[1].n_approved
    (0.3, 0.5, 1)
    """
    scores = finite_scores(score)
    if not quantiles or not all(0 < quantile < 1 for quantile in quantiles):
        raise InvalidInputError(f"`quantiles` must be numbers between 0 and 1, got {list(quantiles)}.")
    times = frequencies(frequency, len(scores))
    order = np.argsort(scores, kind="stable")
    upto = np.cumsum(times[order])
    # The cut-off is a score that someone has: the first one above the quantile's share of people.
    places = np.minimum(np.ceil(np.asarray(quantiles) * upto[-1] - 1e-9), upto[-1] - 1)
    cutoffs = scores[order[np.searchsorted(upto, places, side="right")]]

    def at(quantile: float, cutoff: float) -> CutoffApprovals:
        approved = scores >= cutoff
        table = approval_disparity(
            approved,
            group,
            names=names,
            frequency=frequency,
            reference=reference,
            test=test,
            confidence=confidence,
            significance_level=significance_level,
            four_fifths_threshold=four_fifths_threshold,
            small_group=small_group,
        )
        return CutoffApprovals(float(quantile), cutoff, float(times @ approved / upto[-1]), table)

    return [at(quantile, float(cutoff)) for quantile, cutoff in zip(quantiles, cutoffs, strict=True)]
