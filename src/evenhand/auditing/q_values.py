"""The false discovery rate at which each person's excess over a placebo pair would be reported."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from evenhand.auditing.finished import FinishedBatches
from evenhand.metrics.adjustment import NullScores
from evenhand.system.parallel import sum_in_order

__all__ = ["write_q_values"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

# Placebo scores among which a person's score is ranked: all of them, until they no longer fit.
_MOST_NULL, _LEAST_NULL = 2_000_000, 10_000


def write_q_values(batches: FinishedBatches, numbers: Sequence[int], n_groups: int) -> None:
    """Rank every pair's excess among the placebo pairs of all batches, and add q-values to the pair tables."""
    most = max(_LEAST_NULL, _MOST_NULL // (2 * n_groups * (n_groups - 1)))

    def nulls_of(number: int) -> NullScores:
        part = batches.nulls(number)
        return NullScores.of(part.placebo_over_gap, part.stratum, part.person, 2 * n_groups * n_groups, most)

    pooled = sum_in_order(nulls_of, numbers, batches.crew)
    assert pooled is not None

    def n_at_least(number: int) -> tuple[Ints, Ints]:
        part = batches.nulls(number)
        return pooled.n_at_least(part.over_gap, part.stratum), part.stratum

    counts = sum_in_order(lambda number: np.concatenate(pooled.counts(*n_at_least(number))), numbers, batches.crew)
    assert counts is not None
    table = pooled.q_values(tuple(np.split(counts, np.cumsum(pooled.sizes + 1)[:-1])))

    def write(number: int) -> None:
        batches.write_q_values(number, _looked_up(table, *n_at_least(number)))

    for _ in batches.crew.in_order(write, numbers):
        pass


def _looked_up(table: Sequence[Floats], n_at_least: Ints, stratum: Ints) -> Floats:
    """Look up the q-values of scores in the table of `NullScores.q_values`; NaN if the number is -1."""
    found = np.full(len(n_at_least), np.nan)
    for code, values in enumerate(table):
        asked = (stratum == code) & (n_at_least >= 0)
        found[asked] = values[n_at_least[asked]]
    return found
