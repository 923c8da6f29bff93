"""Whether the answers to the four questions changed between audits, each with a sentence."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from scipy import stats

from evenhand.auditing.findings import NAMES, Answer
from evenhand.auditing.history.change import LEVEL, Change
from evenhand.auditing.options import FindingKey
from evenhand.metrics.adjustment import holm
from evenhand.report.formatting import decimal, p_value

__all__ = ["ChangedFinding", "changed_findings", "headline_of"]

# Each question, asked about two audits.
_QUESTIONS: dict[FindingKey, str] = {
    "score_gap": "Did the difference in scores between comparable people change?",
    "inputs": "Through which inputs?",
    "weighing": "Are the same inputs weighed more, or less, differently?",
    "excess": "Did explanations move farther apart across groups?",
}

_POWER = 0.8
_ORDER: dict[Answer, int] = {"yes": 0, "no": 1, "open": 2}


@dataclass(frozen=True)
class ChangedFinding:
    """Whether the answer to one question changed.

    Attributes
    ----------
    audit, key, question
        The audit that is compared with the base, and the question.
    estimate, ci, unit
        The change with its 95% interval; if there are several score gaps or inputs, the one that changed most clearly.
    p_value, p_adjusted
        For no change; adjusted over the questions of all audits of the comparison (Holm).
    answer
        "yes" for a change, "no" if none was found, "open" if it could not be tested.
    headline, sentence
        The answer in a few words, and in a sentence that says what it does not show.
    """

    audit: str
    key: FindingKey
    question: str
    estimate: float
    ci: tuple[float, float]
    unit: str
    p_value: float
    p_adjusted: float
    is_paired: bool
    answer: Answer
    headline: str
    sentence: str

    def to_dict(self) -> dict[str, Any]:
        """Plain data."""
        return dict(vars(self))


def headline_of(findings: Sequence[ChangedFinding]) -> str:
    """The strongest change in a few words, or a statement that none of the answers changed."""
    if not any(one.answer != "open" for one in findings):
        return "Whether the answers to the four questions changed is not known"
    strongest = findings[0]
    return strongest.headline if strongest.answer == "yes" else "None of the four answers changed by more than noise"


def changed_findings(changes: Sequence[Change]) -> tuple[tuple[ChangedFinding, ...], tuple[Change, ...]]:
    """The findings of a comparison, strongest first, and the changes with adjusted p-values.

    A question of an audit has the smallest p-value of its score gaps or inputs, adjusted for their number; these are
    then adjusted over the questions of all audits. A single score gap or input has the larger of its p-value, adjusted
    within the question, and that of the question. The other metrics are adjusted among themselves, and so are the
    features' parts of the excess.
    """
    asked = [_Asked.of(audit, key, changes) for audit in dict.fromkeys(c.audit for c in changes) for key in NAMES]
    overall = holm([one.p_value for one in asked])
    p_adjusted: dict[int, float] = {}
    findings = []
    for one, p in zip(asked, overall.tolist(), strict=True):
        p_adjusted |= {id(c): max(within, p) for c, within in zip(one.candidates, one.within, strict=True)}
        findings.append(one.finding(p))
    for is_part in (False, True):
        rest = [c for c in changes if id(c) not in p_adjusted and (c.part == "feature") == is_part]
        p_adjusted |= {id(c): p for c, p in zip(rest, _adjusted(rest), strict=True)}
    findings.sort(key=lambda f: (_ORDER[f.answer], _last(f.p_adjusted), -abs(f.estimate) if f.key == "inputs" else 0))
    return tuple(findings), tuple(replace(c, p_adjusted=p_adjusted[id(c)]) for c in changes)


def _last(p: float) -> float:
    return math.inf if math.isnan(p) else p


def _adjusted(changes: Sequence[Change]) -> list[float]:
    found: list[float] = holm([change.p_value for change in changes]).tolist() if changes else []
    return found


@dataclass(frozen=True)
class _Asked:
    """A question of an audit, the changes that can answer it, and their p-values adjusted for their number."""

    audit: str
    key: FindingKey
    candidates: tuple[Change, ...]
    within: tuple[float, ...]

    @classmethod
    def of(cls, audit: str, key: FindingKey, changes: Sequence[Change]) -> _Asked:
        candidates = tuple(c for c in changes if c.audit == audit and c.finding == key)
        if key == "score_gap" and not any(c.is_known for c in candidates):
            # Models that are explained in different units still have probabilities.
            in_probability = (c for c in changes if c.audit == audit and c.part == "score_gap")
            candidates = tuple(c for c in in_probability if c.unit == "probability") or candidates
        return cls(audit, key, candidates, tuple(_adjusted(candidates)))

    @property
    def p_value(self) -> float:
        """The smallest p-value; NaN if there is none."""
        return min((p for p in self.within if not math.isnan(p)), default=math.nan)

    @property
    def strongest(self) -> Change | None:
        """The largest change that stands out; without one, the change with the smallest p-value."""
        known = [(p, c) for p, c in zip(self.within, self.candidates, strict=True) if not math.isnan(p)]
        clear = [c for p, c in known if p <= LEVEL]
        if clear:
            return max(clear, key=lambda c: abs(c.change))
        return min(known, key=lambda one: one[0])[1] if known else None

    def finding(self, p_adjusted: float) -> ChangedFinding:
        change = self.strongest
        nan = math.nan
        if change is None:
            headline = f"{NAMES[self.key]} not compared"
            notes = [c.note for c in self.candidates if c.note]
            reason = notes[0] if notes else "one of the audits has no estimate of it"
            sentence = f"Whether it changed is not known: {reason}."
            return self._answered(nan, (nan, nan), "", nan, False, "open", headline, sentence)
        answer: Answer = "yes" if p_adjusted <= LEVEL else "no"
        headline, sentence = _WORDS[self.key](change, p_adjusted, answer)
        ends = (change.ci_low, change.ci_high)
        return self._answered(
            change.change, ends, change.unit or "CEC score", p_adjusted, change.is_paired, answer, headline, sentence
        )

    def _answered(
        self,
        estimate: float,
        ci: tuple[float, float],
        unit: str,
        p_adjusted: float,
        is_paired: bool,
        answer: Answer,
        headline: str,
        sentence: str,
    ) -> ChangedFinding:
        return ChangedFinding(
            audit=self.audit,
            key=self.key,
            question=_QUESTIONS[self.key],
            estimate=estimate,
            ci=ci,
            unit=unit,
            p_value=self.p_value,
            p_adjusted=p_adjusted,
            is_paired=is_paired,
            answer=answer,
            headline=headline,
            sentence=sentence,
        )


# --- sentences ---


def _sure(change: Change, p_adjusted: float) -> str:
    return f"95% interval of the change {decimal(change.ci_low)} to {decimal(change.ci_high)}, {_p(p_adjusted)}"


def _p(p_adjusted: float) -> str:
    shown = p_value(p_adjusted)
    return f"adjusted p {shown if shown[0] in '<>' else f'= {shown}'}"


def _detectable(change: Change) -> str:
    """The size of change that would have been found."""
    quantile = stats.norm.ppf if not math.isfinite(change.df) else lambda share: stats.t.ppf(share, change.df)
    size = float(quantile(1 - LEVEL / 2) + quantile(_POWER)) * change.standard_error
    return f"A change of {decimal(size)} would have been found in 80% of cases; smaller ones may exist."


def _from_to(change: Change) -> str:
    return f"from {decimal(change.base_value)} to {decimal(change.value)}{_unit(change)}"


def _unit(change: Change) -> str:
    return f" {change.unit}" if change.unit else ""


def _size_moved(change: Change) -> str:
    """How the size of something signed changed."""
    if change.base_value * change.value < 0:
        return "reversed"
    return "grew" if abs(change.value) > abs(change.base_value) else "shrank"


def _not_found(what: str, change: Change, p_adjusted: float) -> str:
    if change.standard_error == 0:
        return f"{what} is the same in both audits: {decimal(change.value)}{_unit(change)}."
    found = f"{_from_to(change)}; {_sure(change, p_adjusted)}"
    return f"No evidence was found that {what[:1].lower()}{what[1:]} changed ({found}). {_detectable(change)}"


def _score_words(change: Change, p_adjusted: float, answer: Answer) -> tuple[str, str]:
    assert change.groups is not None
    what = f"The score gap between {change.groups[0]} and {change.groups[1]} at equal finances"
    if answer == "no":
        return "No change in the score gap found", _not_found(what, change, p_adjusted)
    moved = _size_moved(change)
    return (
        f"The score gap between {change.groups[0]} and {change.groups[1]} {moved}, by "
        f"{decimal(abs(change.change))}{_unit(change)}",
        f"{what} {moved}, {_from_to(change)} ({_sure(change, p_adjusted)}). This does not show why.",
    )


def _input_words(change: Change, p_adjusted: float, answer: Answer) -> tuple[str, str]:
    if answer == "no":
        if change.standard_error == 0:
            return "No input's part changed", "Every input's part of the score gap is the same in both audits."
        return (
            "No input's part changed clearly",
            "No single input's part of the score gap was found to have changed; the smallest p-value is that of "
            f"{change.words} ({_from_to(change)}, {_p(p_adjusted)}).",
        )
    moved = _size_moved(change)
    note = f" ({change.note})" if change.note else ""
    return (
        f"The part of {change.words} in the score gap {moved}, by {decimal(abs(change.change))}{_unit(change)}",
        f"The largest change runs through {change.words}{note}: its part of the score gap {moved}, {_from_to(change)} "
        f"({_sure(change, p_adjusted)}). This does not show whether the input has a business reason.",
    )


def _weighing_words(change: Change, p_adjusted: float, answer: Answer) -> tuple[str, str]:
    what = "The difference in how the same inputs are weighed for different groups"
    if answer == "no":
        return "No change in weighing found", _not_found(what, change, p_adjusted)
    more = "more" if change.change > 0 else "less"
    return (
        f"The same inputs are weighed {more} differently, by {decimal(abs(change.change))}",
        f"The same inputs are weighed {more} differently for comparable people of different groups: weighing went "
        f"{_from_to(change)} ({_sure(change, p_adjusted)}). This does not show which weights are right.",
    )


def _excess_words(change: Change, p_adjusted: float, answer: Answer) -> tuple[str, str]:
    what = "The excess, that is, how much farther apart explanations are across groups than within,"
    if answer == "no":
        return "No change in the excess found", _not_found(what, change, p_adjusted)
    moved = "farther apart" if change.change > 0 else "closer together"
    return (
        f"Explanations moved {moved} across groups, by {decimal(abs(change.change))}",
        f"Explanations of comparable people of different groups moved {moved}: the excess went {_from_to(change)} "
        f"({_sure(change, p_adjusted)}). This does not show whether inputs or weights make the difference.",
    )


_WORDS: dict[FindingKey, Callable[[Change, float, Answer], tuple[str, str]]] = {
    "score_gap": _score_words,
    "inputs": _input_words,
    "weighing": _weighing_words,
    "excess": _excess_words,
}
