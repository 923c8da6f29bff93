"""How often the audit finds planted biases: biased models on real features, next to alternative tests."""

from __future__ import annotations

import time
from dataclasses import dataclass

from evenhand.auditing.audit import audit
from evenhand.research.studies.alternatives import alternative_p_values
from evenhand.research.studies.study import Line, read_audit
from evenhand.research.studies.worlds import (
    BIASES,
    DATA_SETS_PER_MODEL,
    Bias,
    Groups,
    audited_people,
    biased_inputs,
    biased_model,
    draw_groups,
    generator,
    why_absent,
    why_not_explained,
)

_SOURCES = ("german", "adult", "hmda", "taiwan")
_SHARES = (0.5, 0.2, 0.05)


@dataclass(frozen=True)
class PowerCell:
    """One setting of the study of power.

    Attributes
    ----------
    source, bias, share, n
        Where features come from, what the model does to the second group, that group's share, and the number of people.
        Groups are drawn at random.
    """

    source: str
    bias: Bias
    share: float
    n: int = 1000

    @property
    def sizes(self) -> str:
        """Shares of the groups in percent."""
        return Groups(share=self.share).sizes

    @property
    def name(self) -> str:
        """Such as ``german/half-swap/80-20/1000``."""
        return "/".join([self.source, self.bias.replace(" ", "-"), self.sizes.replace("/", "-"), str(self.n)])

    @property
    def left_out(self) -> str:
        """Why the cell cannot be run here; empty if it can."""
        return why_absent(self.source) or why_not_explained(self.bias)

    def audit(self, replicate: int) -> Line:
        """The results of the audit of dataset number `replicate`, and of the alternative tests."""
        rng = generator(self.name, number=replicate)
        number = replicate // DATA_SETS_PER_MODEL
        model = biased_model(self.source, self.bias, number)
        people = audited_people(self.source, number, self.n, rng)
        group = draw_groups(Groups(share=self.share), people, rng)
        X, finances = biased_inputs(self.bias, people.X, group, rng), list(people.finances)
        start = time.process_time()
        result = audit(
            model,
            X,
            people.y,
            sensitive_features=group,
            financial_features=finances,
            random_state=int(rng.integers(2**31)),
        )
        line = {**read_audit(result), "seconds": time.process_time() - start}
        return {**line, "alternatives": alternative_p_values(result, model, X, people.y, group, finances)}


CELLS = tuple(PowerCell(source, bias, share) for source in _SOURCES for bias in BIASES for share in _SHARES)
"""Every cell of the study; those without bias show how often each test is wrong."""

QUICK_CELLS = (PowerCell("german", "none", 0.2, 400), PowerCell("german", "half swap", 0.2, 400))
"""Cells of a few seconds, for continuous integration."""
