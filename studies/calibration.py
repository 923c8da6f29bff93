"""How often the audit errs: models that have never seen a group, and groups unrelated to people."""

from __future__ import annotations

import time
from dataclasses import dataclass

from evenhand.auditing.audit import audit
from studies.study import Line, read_audit
from studies.worlds import (
    DATA_SETS_PER_MODEL,
    SOURCES,
    Groups,
    Kind,
    audited_people,
    blind_model,
    draw_groups,
    generator,
    why_absent,
    why_not_explained,
)

_REFERENCE = 2000


@dataclass(frozen=True)
class CalibrationCell:
    """One setting of the study of errors; every true value is 0.

    Attributes
    ----------
    source, model, groups, n
        Where features come from, what is audited, how groups are drawn, and the number of people.
    has_reference
        Whether people are matched in 2,000 others instead of among themselves.
    """

    source: str
    model: Kind
    groups: Groups
    n: int = 1000
    has_reference: bool = False

    @property
    def name(self) -> str:
        """Such as ``german/network/random/80-20/1000``."""
        sizes = "five" if self.groups.n == 5 else self.groups.sizes.replace("/", "-")
        parts = [self.source, self.model.replace(" ", "-"), self.groups.draw, sizes, str(self.n)]
        return "/".join([*parts, *(["reference"] if self.has_reference else [])])

    @property
    def is_hard(self) -> bool:
        """Named beforehand: at most a hundred people in the smallest group, or five groups."""
        return self.groups.n == 5 or self.groups.share * self.n <= 100

    @property
    def left_out(self) -> str:
        """Why the cell cannot be run here; empty if it can."""
        return why_absent(self.source) or why_not_explained(self.model)

    def audit(self, replicate: int) -> Line:
        """The result of the audit of dataset number `replicate`."""
        rng = generator(self.name, number=replicate)
        number = replicate // DATA_SETS_PER_MODEL
        model = blind_model(self.source, self.model, number)
        people = audited_people(self.source, number, self.n + _REFERENCE * self.has_reference, rng)
        group = draw_groups(self.groups, people, rng)
        X, y = people.X, people.y
        start = time.process_time()
        result = audit(
            model,
            X[: self.n],
            y[: self.n],
            sensitive_features=group[: self.n],
            financial_features=list(people.finances),
            reference=(X[self.n :], y[self.n :], group[self.n :]) if self.has_reference else None,
            random_state=int(rng.integers(2**31)),
        )
        return {**read_audit(result), "seconds": time.process_time() - start}


def _cells() -> tuple[CalibrationCell, ...]:
    draws = (
        Groups(),
        Groups(share=0.2),
        Groups(share=0.05),
        Groups(share=0.02),
        Groups("logistic", 0.3),
        Groups("non-linear", 0.3),
        Groups("non-linear", 0.05),
    )
    kinds: tuple[Kind, ...] = ("logistic", "network", "boosted")
    cells = [CalibrationCell(source, kind, groups) for source in SOURCES for kind in kinds for groups in draws]
    five, bent = Groups(n=5), Groups("non-linear", n=5)
    cells += [
        CalibrationCell("own", "network", five, 2000),
        CalibrationCell("adult", "logistic", five, 2000),
        CalibrationCell("hmda", "boosted", five, 2000),
        CalibrationCell("taiwan", "network", bent, 2000),
        CalibrationCell("own", "network", Groups("non-linear", 0.3), 2000),
        CalibrationCell("adult", "boosted", Groups(share=0.2), 2000),
        CalibrationCell("hmda", "logistic", Groups(share=0.05), 2000),
        CalibrationCell("own", "logistic", Groups(share=0.2), has_reference=True),
        CalibrationCell("adult", "network", Groups("logistic", 0.3), has_reference=True),
        CalibrationCell("hmda", "network", Groups(share=0.05), has_reference=True),
        CalibrationCell("taiwan", "boosted", Groups("non-linear", 0.3), has_reference=True),
        CalibrationCell("own", "black box", Groups(), 300),
    ]
    return tuple(cells)


CELLS = _cells()
"""Every cell of the study."""

QUICK_CELLS = (
    CalibrationCell("own", "logistic", Groups("logistic", 0.4), 300),
    CalibrationCell("own", "network", Groups(share=0.4), 300),
    CalibrationCell("german", "network", Groups("non-linear", 0.5), 300),
)
"""Cells of a few seconds, for continuous integration."""
