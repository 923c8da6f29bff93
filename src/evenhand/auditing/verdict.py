"""The verdict of an audit in plain sentences: what was measured, how sure it is, what it does not show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from evenhand.metrics.estimate import Plain
from evenhand.metrics.excess import FEW_INDEPENDENT_PEOPLE, ROUNDING, SMALLEST_EXCESS_OF_INTEREST, ExcessEstimate
from evenhand.report.formatting import count, decimal, is_number, p_value, percent

__all__ = ["Verdict", "practical_significance", "statistical_significance", "verdict"]

_LEVEL = 0.05

Kind = Literal["no evidence", "not estimated", "none found", "tiny", "unsettled", "sizeable"]

_HEADLINES: dict[Kind, str] = {
    "no evidence": "Not compared with noise",
    "not estimated": "Excess not estimated",
    "none found": "No excess over the placebo floor was found",
    "tiny": "A tiny excess, unlikely to be noise",
    "unsettled": "An excess whose size is not settled",
    "sizeable": "An excess of practical size",
}


@dataclass(frozen=True)
class Verdict(Plain):
    """Three sentences on an audit.

    Attributes
    ----------
    kind
        Which of the possible findings it is.
    headline
        A few words.
    measured, certainty, limits
        What was measured, how sure that is, and what it does not show.
    is_constant
        Whether decisions are (almost) the same for everyone, so that agreement says little.
    smallest_excess_of_interest
        What the size of the excess was held against.
    """

    kind: Kind
    headline: str
    measured: str
    certainty: str
    limits: str
    is_constant: bool
    smallest_excess_of_interest: float = SMALLEST_EXCESS_OF_INTEREST


def verdict(data: Mapping[str, Any]) -> Verdict:
    """The verdict on the summary of an audit (`AuditResult.to_dict`).

    An excess is called at the 5 % level, one-sided, and judged by its interval against 0.02, the smallest excess of
    interest. Decisions that hardly vary are named in the headline and the last sentence, whatever the excess.
    """
    kind = _kind(data)
    is_constant = bool(data["outcome"]["notes"].get("positive_rate"))
    headline = _HEADLINES[kind] + ("; decisions hardly vary" if is_constant else "")
    return Verdict(
        kind, headline, _measured(data, kind), _certainty(data, kind), _limits(data, kind, is_constant), is_constant
    )


def _kind(data: Mapping[str, Any]) -> Kind:
    if data["evidence"] is None:
        return "no evidence"
    found = data["evidence"]["cec"]
    if not is_number(found["value"]) or not is_number(found["p_value"]):
        return "not estimated"
    if found["p_value"] > _LEVEL:
        return "none found"
    if found["ci_high"] < SMALLEST_EXCESS_OF_INTEREST:
        return "tiny"
    return "sizeable" if found["ci_low"] > SMALLEST_EXCESS_OF_INTEREST else "unsettled"


def _measured(data: Mapping[str, Any], kind: Kind) -> str:
    cec, regime_b = data["cec"], percent(data["regimes"]["B"])
    if kind in ("no evidence", "not estimated"):
        return (
            f"Over {count(cec['n_pairs'])} pairs of comparable people from different groups the mean CEC score is "
            f"{decimal(cec['mean'])} (0 identical reasoning, 1 opposed), and {regime_b} of pairs get the same decision "
            "for different reasons."
        )
    found = data["evidence"]
    excess = found["cec"]["value"]
    same = decimal(abs(excess)) == "0.000"
    size = "as much" if same else f"by {decimal(abs(excess))} {'more' if excess > 0 else 'less'}"
    return (
        f"The model's reasons differ {size} between comparable people of different groups {'as' if same else 'than'} "
        "between people of the same group who are as far apart: the mean CEC score is "
        f"{decimal(found['compared_mean'])} across groups and {decimal(found['placebo_mean'])} within them, before "
        "adjustment for unlike finances."
    )


def _certainty(data: Mapping[str, Any], kind: Kind) -> str:
    if kind == "no evidence":
        return (
            "How much of this is match noise is not known: the audit was run without evidence, so there are no placebo "
            "pairs to compare with."
        )
    found = data["evidence"]["cec"]
    if kind == "not estimated":
        return f"How sure this is cannot be said: {found['note'] or 'the excess could not be estimated'}."
    sureness = (
        f"95 % interval {decimal(found['ci_low'])} to {decimal(found['ci_high'])}, one-sided p {_p(found['p_value'])}, "
        f"{count(found['n'])} people compared"
    )
    if found["n_effective"] < FEW_INDEPENDENT_PEOPLE:
        sureness += f" who are worth only {count(found['n_effective'])} independent ones"
    limit = f"{SMALLEST_EXCESS_OF_INTEREST:.2f}, the smallest excess of interest"
    high = decimal(found["ci_high"])
    beyond = (
        f"and an excess above {high} is implausible"
        if found["ci_high"] < SMALLEST_EXCESS_OF_INTEREST
        else f"but an excess of up to {high} remains plausible"
    )
    words = {
        "none found": f"This is no more than chance alone would give, {beyond}",
        "tiny": f"This is more than chance alone would give, but the whole interval lies below {limit}",
        "unsettled": f"This is more than chance alone would give; whether it exceeds {limit}, is open",
        "sizeable": f"This is more than chance alone would give, and the whole interval lies above {limit}",
    }
    return f"{words[kind]} ({sureness})."


def _p(value: float) -> str:
    shown = p_value(value)
    return shown if shown[0] in "<>" else f"= {shown}"


def _limits(data: Mapping[str, Any], kind: Kind, is_constant: bool) -> str:
    if is_constant:
        return (
            f"Decisions hardly vary ({percent(data['outcome']['positive_rate'])} are favorable), so that agreement "
            "between people follows from that alone and says nothing good about the model."
        )
    n = len(data["settings"]["financial_features"])
    scope = f"people are comparable here by {n} financial feature{'' if n == 1 else 's'} and the label, and by no other"
    if kind in ("no evidence", "not estimated"):
        return f"This is a description and supports no conclusion about groups: {scope}."
    if kind == "none found":
        return f"It does not show that the model treats groups alike in every way, or lawfully: {scope}."
    return f"It does not show why the reasons differ, or that anyone was treated unlawfully: {scope}."


# --- the excess alone, in two sentences ---


def statistical_significance(estimate: ExcessEstimate, level: float = 0.05) -> str:
    """A sentence on whether the excess could be noise.

    Examples
    --------
    >>> print(statistical_significance(ExcessEstimate(0.031, 0.02, 0.042, 0.0004, 0.006, 900, 700.0, 699.0)))
    Pairs across groups score 0.031 more than placebo pairs (p < 0.001): more than chance explains at the 5 % level.
    """
    if not estimate.is_estimated:
        return f"Whether there is an excess cannot be said: {estimate.note}."
    p = "p < 0.001" if estimate.p_value < 0.001 else f"p = {estimate.p_value:.3f}"
    if abs(estimate.value) < ROUNDING:
        return "Pairs across groups score just what placebo pairs score: no excess at all."
    direction = "more" if estimate.value >= 0 else "less"
    verdict = (
        f"more than chance explains at the {level:.0%} level".replace("%", " %")
        if estimate.p_value <= level
        else f"no evidence of an excess at the {level:.0%} level".replace("%", " %")
    )
    caution = (
        f" Few independent people (worth {estimate.n_effective:.0f}): take it with care." if estimate.is_weak else ""
    )
    return (
        f"Pairs across groups score {abs(estimate.value):.3f} {direction} than placebo pairs ({p}): {verdict}.{caution}"
    )


def practical_significance(estimate: ExcessEstimate, smallest_of_interest: float = SMALLEST_EXCESS_OF_INTEREST) -> str:
    """A sentence on whether the excess is large enough to matter, judged by its interval.

    Examples
    --------
    >>> print(practical_significance(ExcessEstimate(0.031, 0.025, 0.037, 0.0, 0.003, 900, 700.0, 699.0)))
    The excess is of practical size: its interval, 0.025 to 0.037, lies above 0.020, the smallest excess of interest.
    """
    if not estimate.is_estimated:
        return f"The size of the excess cannot be judged: {estimate.note}."
    interval = f"its interval, {estimate.ci_low:.3f} to {estimate.ci_high:.3f},"
    limit = f"{smallest_of_interest:.3f}, the smallest excess of interest"
    if estimate.ci_low > smallest_of_interest:
        return f"The excess is of practical size: {interval} lies above {limit}."
    if estimate.ci_high < smallest_of_interest:
        return f"The excess is too small to matter in practice: {interval} lies below {limit}."
    return f"The data do not settle whether the excess matters in practice: {interval} contains {limit}."
