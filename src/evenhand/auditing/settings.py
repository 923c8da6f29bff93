"""Every choice that moves a metric of the audit."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evenhand.attribution.gradients import Method
from evenhand.models.protocol import AttributionName

__all__ = ["AuditSettings"]

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]


@dataclass(frozen=True)
class AuditSettings:
    """Every choice that moves a figure of the audit."""

    financial_features: tuple[str, ...]
    decision_threshold: float
    consistency_threshold: float
    max_distance: float | None
    n_steps: int
    method: Method
    random_state: int
    attribution: AttributionName
    n_permutations: int
