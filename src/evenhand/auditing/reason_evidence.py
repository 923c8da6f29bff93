"""What is asked of triples about reasons: what those of declined people have in common, over placebo pairs."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from evenhand.auditing.triples import Triples
from evenhand.metrics.clustering import Selection

__all__ = ["SharedReasons"]


@dataclass(frozen=True)
class SharedReasons:
    """The excess of what the reasons of declined people have in common: share, and rank-biased overlap."""

    n_columns: int = 2

    def of(self, part: Triples) -> Selection:
        """Triples of three declined people."""
        rows = np.flatnonzero(~np.isnan(part.agreement[:, 0]))
        each = 1 / part.n_declined[rows]
        share = part.weight[rows] * each
        return Selection(rows, share, part.agreement_control[rows], part.agreement[rows], float(each.sum()))
