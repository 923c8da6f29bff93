"""What a smaller gap can hide: fewer approvals for the group that has the fewest, or the same decision for everyone."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from evenhand.report.formatting import decimal, interval, percent
from evenhand.searching.choosing import Metrics
from evenhand.searching.comparing import paired_difference
from evenhand.searching.metrics import asked_of

__all__ = ["approval_warnings", "least_approved"]

_FEW = 0.01  # share of approvals or of declines below which nearly all decisions are the same
_FEWER = 0.2  # the same, as a share of the unconstrained model's
_POINTS = 0.0005  # below half a tenth of a point, approvals are the same


def least_approved(metrics: Metrics, unconstrained: int) -> str:
    """The group that the unconstrained candidate approves least."""
    rates = _rates(metrics)
    return min(rates, key=lambda group: float(np.nan_to_num(rates[group][unconstrained].mean(), nan=np.inf)))


def approval_warnings(metrics: Metrics, k: int, unconstrained: int, test_share: float) -> tuple[str, ...]:
    """Sentences on the approvals of candidate `k` compared with the unconstrained one."""
    if k == unconstrained or not np.isfinite(metrics["positive_rate"][k]).all():
        return ()
    told = [_nearly_all_alike(metrics, k, unconstrained), _fewer(metrics, k, unconstrained, test_share)]
    return tuple(sentence for sentence in told if sentence)


def _nearly_all_alike(metrics: Metrics, k: int, unconstrained: int) -> str:
    rate, start = (float(metrics["positive_rate"][who].mean()) for who in (k, unconstrained))
    for share, whole, words in ((1 - rate, 1 - start, "everyone"), (rate, start, "no one")):
        if share < min(whole, max(_FEW, _FEWER * whole)):
            nearly = words if share == 0 else f"nearly {words}"
            return (
                f"Candidate {k} approves {nearly} ({percent(rate)} of the people; the unconstrained one "
                f"{percent(start)}): its gaps between groups are small for that reason alone."
            )
    return ""


def _fewer(metrics: Metrics, k: int, unconstrained: int, test_share: float) -> str:
    group = least_approved(metrics, unconstrained)
    rates = _rates(metrics)[group]
    change = paired_difference(rates[k], rates[unconstrained], test_share)
    if not change.value < -_POINTS:
        return ""
    noise = "" if change.is_beyond_noise else "; this is within noise"
    points = f"{decimal(100 * change.value, 1)} points"
    known = np.isfinite(change.ci_low)
    around = f", 95% interval {interval(100 * change.ci_low, 100 * change.ci_high, 1)}{noise}" if known else ""
    return (
        f"Candidate {k} approves fewer people of {group}, the group with the fewest approvals: "
        f"{percent(float(rates[k].mean()))} instead of {percent(float(rates[unconstrained].mean()))} "
        f"({points}{around})."
    )


def _rates(metrics: Metrics) -> Mapping[str, np.ndarray]:
    return {of: values for name, values in metrics.items() for kind, of in [asked_of(name)] if kind == "approval_rate"}
