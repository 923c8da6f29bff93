"""The verdict of an audit in plain sentences: the strongest finding first, and what the audit does not show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from evenhand.auditing.findings import NAMES, Finding, headline_of
from evenhand.report.formatting import count, decimal, is_number, percent

__all__ = ["Verdict", "verdict"]


@dataclass(frozen=True)
class Verdict:
    """The conclusion of an audit, in words.

    Attributes
    ----------
    headline
        The strongest finding in a few words.
    sentences
        A name and a sentence for each of the four questions, the strongest finding first; without evidence, what was
        measured and how certain it is.
    limits
        What the audit does not show.
    is_constant
        Whether decisions are (almost) the same for everyone, so that agreement says little.
    """

    headline: str
    sentences: tuple[tuple[str, str], ...]
    limits: str
    is_constant: bool

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the summary."""
        return asdict(self)


def verdict(summary: Mapping[str, Any], findings: Sequence[Finding]) -> Verdict:
    """The verdict on the summary of an audit (`AuditResult.to_dict`) and its findings.

    Decisions that hardly vary are mentioned in the headline and the last sentence, whatever was found.
    """
    outcome = summary["outcome"]
    is_constant = is_number(outcome["positive_rate"]) and bool(outcome["notes"].get("positive_rate"))
    headline = headline_of(findings) if findings else "Not compared with noise"
    return Verdict(
        headline=headline + ("; decisions hardly vary" if is_constant else ""),
        sentences=tuple((NAMES[one.key], one.sentence) for one in findings) or _without_evidence(summary),
        limits=_limits(summary, has_findings=bool(findings), is_constant=is_constant),
        is_constant=is_constant,
    )


def _without_evidence(summary: Mapping[str, Any]) -> tuple[tuple[str, str], ...]:
    cec = summary["cec"]
    return (
        (
            "Measured",
            f"Over {count(cec['n_pairs'])} pairs of comparable people from different groups, the mean CEC score is "
            f"{decimal(cec['mean'])} (0: identical reasoning, 1: opposed), and {percent(summary['regimes']['B'])} of "
            "pairs get the same decision for different reasons.",
        ),
        (
            "Certainty",
            "How much of this is matching noise is not known: the audit was run without evidence, so there are no "
            "placebo pairs to compare with.",
        ),
    )


def _limits(summary: Mapping[str, Any], *, has_findings: bool, is_constant: bool) -> str:
    if is_constant:
        return (
            f"Decisions hardly vary ({percent(summary['outcome']['positive_rate'])} are favorable), so agreement "
            "between people follows from that alone and does not speak for the model."
        )
    n = len(summary["settings"]["financial_features"])
    has_labels = "scope" not in summary or summary["scope"]["has_labels"]
    label = " and the label, and nothing else" if has_labels else ", and nothing else"
    scope = f"people are compared here by {n} financial feature{'' if n == 1 else 's'}{label}"
    if not has_findings:
        return f"This is a description and supports no conclusion about groups: {scope}."
    return f"None of this shows that anyone was treated lawfully or unlawfully: {scope}."
