"""Area under the ROC curve of one group, with DeLong's interval."""

from __future__ import annotations

import math
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from evenhand.metrics.disparity.estimate import Estimate, normal_quantile, not_estimable
from evenhand.metrics.disparity.membership import Membership

__all__ = ["group_auc"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]


def group_auc(members: Membership, code: int, labels: Ints, scores: Floats, confidence: float) -> Estimate:
    """Area under the ROC curve of one group with DeLong's interval, formed on the logit scale."""
    if members.codes is None:
        return not_estimable("not estimable: AUC by group needs known membership, not probabilities")
    chosen = members.codes == code
    values, place = np.unique(scores[chosen], return_inverse=True)
    label, times = labels[chosen], members.times[chosen]
    favorable, unfavorable = (np.bincount(place, times * (label == y), minlength=len(values)) for y in (1, 0))
    n1, n0 = favorable.sum(), unfavorable.sum()
    if n1 == 0 or n0 == 0:
        absent = 1 if n1 == 0 else 0
        return not_estimable(f"not estimable: no one with label {absent} in group {members.names[code]!r}")
    # What a person's score outranks among those of the other label, as a share; a tie is half.
    share1 = (np.cumsum(unfavorable) - unfavorable / 2) / n0
    share0 = 1 - (np.cumsum(favorable) - favorable / 2) / n1
    area = float(favorable @ share1 / n1)
    if n1 < 2 or n0 < 2:
        return Estimate(area, math.nan, math.nan, "no interval: one person with a label")
    spread1, spread0 = favorable @ (share1 - area) ** 2, unfavorable @ (share0 - area) ** 2
    error = float(np.sqrt(spread1 / (n1 - 1) / n1 + spread0 / (n0 - 1) / n0))
    if error == 0 or not 0 < area < 1:
        return Estimate(area, math.nan, math.nan, "no interval: the labels are separated without overlap")
    half = normal_quantile(confidence) * error / (area * (1 - area))
    logit = np.log(area / (1 - area))
    return Estimate(area, float(1 / (1 + np.exp(half - logit))), float(1 / (1 + np.exp(-half - logit))))
