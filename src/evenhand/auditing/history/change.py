"""How one metric differs between two audits, with the noise of the difference."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from scipy import special

from evenhand.auditing.history.metrics import AuditMetric, Part, Scale
from evenhand.auditing.options import FindingKey
from evenhand.metrics.excess import ROUNDING
from evenhand.report.formatting import decimal, p_value

__all__ = ["LEVEL", "Change", "change_of"]

LEVEL = 0.05
_CONFIDENCE = 0.95
_NORMAL_HALF = float(special.ndtri((1 + _CONFIDENCE) / 2))


@dataclass(frozen=True)
class Change:
    """How one metric of an audit differs from that of the base.

    Attributes
    ----------
    audit
        Name of the audit that is compared with the base.
    scale
        "difference": `change` is value minus base value, 0 if nothing changed. "ratio": value over base value, 1 if
        nothing changed; the standard error is then that of the logarithm.
    p_value
        Two-sided, for no change.
    p_adjusted
        For the metrics of the four questions: adjusted over the questions of all audits of the comparison and, if there
        are several score gaps or inputs, over these. For all others: adjusted among themselves (Holm).
    is_paired
        Whether the standard error is of differences within people.
    finding
        The question it helps answer; None for other metrics.
    unit, groups
        For score gaps: log-odds or probability, and the group and the one it is compared with.
    """

    audit: str
    key: str
    part: Part
    words: str
    base_value: float
    value: float
    scale: Scale
    change: float
    standard_error: float
    ci_low: float
    ci_high: float
    df: float
    p_value: float
    p_adjusted: float
    is_paired: bool
    note: str = ""
    finding: FindingKey | None = None
    unit: str = ""
    groups: tuple[str, str] | None = None

    @property
    def is_known(self) -> bool:
        """Whether a change can be tested at all."""
        return not math.isnan(self.p_value)

    @property
    def verdict(self) -> str:
        """In a few words: more than noise, within noise, or why neither is known."""
        if not self.is_known:
            return "not known"
        if self.p_adjusted <= LEVEL:
            return "more than noise"
        return "within noise" if self.p_value > LEVEL else "not clearly more than noise"

    @property
    def sentence(self) -> str:
        """The change in words."""
        if not self.is_known:
            return f"{_capital(self.words)}: whether it changed is not known ({self.note or 'no standard error'})."
        size = f"by {decimal(abs(self.change))}" if self.scale == "difference" else f"by a factor of {self.change:.3f}"
        rose = self.change > (0 if self.scale == "difference" else 1)
        moved = f"{'rose' if rose else 'fell'} from {decimal(self.base_value)} to {decimal(self.value)}, {size}"
        moved = moved if self.p_value < 1 or self.value != self.base_value else f"stayed at {decimal(self.value)}"
        shown = p_value(self.p_adjusted)
        p = f"p {shown if shown[0] in '<>' else f'= {shown}'}"
        ending = {
            "more than noise": f"more than noise ({p}, adjusted)",
            "within noise": f"within noise ({p}, adjusted)",
            "not clearly more than noise": f"not clearly more than noise among so many metrics ({p}, adjusted)",
        }[self.verdict]
        return f"{_capital(self.words)} {moved}: {ending}."

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return {**vars(self), "groups": self.groups, "verdict": self.verdict, "sentence": self.sentence}


def change_of(audit: str, base: AuditMetric, other: AuditMetric, within: float | None) -> Change:
    """The change of a metric.

    Parameters
    ----------
    audit
        Name of the audit that is compared with the base.
    base, other
        The metric in both.
    within
        Standard error of the difference for the same people; None for independent people.
    """
    is_ratio = base.scale == "ratio"
    moved = (
        math.log(other.value / base.value) if is_ratio and base.value > 0 < other.value else other.value - base.value
    )
    error = math.hypot(base.standard_error, other.standard_error) if within is None else within
    df = _satterthwaite(base, other) if within is None else min(base.df, other.df)
    note = "; ".join(dict.fromkeys(n for n in (base.note, other.note) if n))
    if base.unit != other.unit:
        error, note = math.nan, f"in {base.unit} in one of the audits, in {other.unit} in the other"
    if not (base.has_error and other.has_error):
        error = math.nan
        note = note or "one of the audits has no standard error for it"
    p, half = _test(moved, error, df)
    low, high = moved - half, moved + half
    if is_ratio:
        moved, low, high = math.exp(moved), math.exp(low), math.exp(high)
    return Change(
        audit=audit,
        key=base.key,
        part=base.part,
        words=base.words,
        base_value=base.value,
        value=other.value,
        scale=base.scale,
        change=moved,
        standard_error=error,
        ci_low=low,
        ci_high=high,
        df=df,
        p_value=p,
        p_adjusted=math.nan,
        is_paired=within is not None,
        note=note,
        finding=base.finding,
        unit=base.unit,
        groups=base.groups,
    )


def _satterthwaite(first: AuditMetric, second: AuditMetric) -> float:
    """Degrees of freedom of a difference of two independent metrics."""
    a, b = first.standard_error**2, second.standard_error**2
    below = (a**2 / first.df if first.df > 0 else math.nan) + (b**2 / second.df if second.df > 0 else math.nan)
    return (a + b) ** 2 / below if below > 0 else math.inf


def _test(moved: float, error: float, df: float) -> tuple[float, float]:
    """Two-sided p-value of no change, and half the interval."""
    if math.isnan(moved) or math.isnan(error):
        return math.nan, math.nan
    if error <= ROUNDING:
        return (1.0, 0.0) if abs(moved) <= ROUNDING else (math.nan, math.nan)
    size = abs(moved) / error
    if not math.isfinite(df):
        return float(2 * special.ndtr(-size)), _NORMAL_HALF * error
    return float(2 * special.stdtr(df, -size)), float(special.stdtrit(df, (1 + _CONFIDENCE) / 2)) * error


def _capital(words: str) -> str:
    return words[:1].upper() + words[1:]
