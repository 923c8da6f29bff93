"""What the batches of an audit add up to: what its sections compute their parts of the result from."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evenhand.arrays import Floats, Ints, quantiles_of_parts, weighted_quantiles_of_parts
from evenhand.auditing.batch import BatchFindings
from evenhand.auditing.batches import AuditSums, FinishedBatches, Merged
from evenhand.auditing.fitted import Fitted
from evenhand.report.section import Section


@dataclass(frozen=True, eq=False)
class Totals:
    """What all batches together say about the audited people.

    Attributes
    ----------
    fitted
        What was fitted once, before the batches.
    batches, merged
        The output of the batches, and their merged sums.
    batch, outcomes
        For an audit in memory: its only batch, and outcomes to regress by name, None if no regressions are wanted.
    codes
        Given reasons: their names, and those of everyone as places among the names, (n, k), -1 for none; None if
        reasons come from attributions.
    """

    fitted: Fitted
    batches: FinishedBatches
    merged: Merged
    batch: BatchFindings | None = None
    outcomes: Mapping[str, Floats] | None = None
    codes: tuple[tuple[str, ...], Ints] | None = None
    _parts: dict[str, Any] = field(default_factory=dict)

    @property
    def sums(self) -> AuditSums:
        """Counts and sums over all people."""
        return self.merged.sums

    def part(self, section: Section | type[Section]) -> Any:
        """What a section computed, when it is first asked for; None if it has nothing or lacks what it needs."""
        if section.key not in self._parts:
            one = section() if isinstance(section, type) else section
            self._parts[section.key] = one.of(self) if one.is_possible(self.fitted.scope) else None
        return self._parts[section.key]

    def quantiles(self, column: str, shares: Sequence[float]) -> list[float]:
        """Quantiles of a column of the pair table over pairs that have a value; weighted if people have weights."""
        if self.fitted.pool.sample_weight is None:
            return quantiles_of_parts(lambda: (v[np.isfinite(v)] for (v,) in self._columns(column)), shares)

        def counted() -> Iterator[tuple[Floats, Floats]]:
            for values, weight in self._columns(column, "sample_weight"):
                kept = np.isfinite(values) & (weight > 0)
                yield values[kept], weight[kept]

        if self.sums.scores.weights.is_equal:
            return quantiles_of_parts(lambda: (values for values, _ in counted()), shares)
        return weighted_quantiles_of_parts(counted, shares)

    def _columns(self, *names: str) -> Iterator[list[NDArray[Any]]]:
        numbers = self.merged.numbers
        return self.batches.crew.in_order(lambda number: self.batches.pair_column(number, *names), numbers)
