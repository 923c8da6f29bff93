"""What an audit can and cannot find with the given inputs, and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

Outcome = Literal["score", "value", "decision"]

DECISION_UNIT = "share of favorable decisions"
"""Unit of the gap if only decisions are known."""


@dataclass(frozen=True)
class Scope:
    """The inputs of an audit.

    Attributes
    ----------
    model
        Whether there is a model.
    attributions, scores, decisions, labels
        Whether there are attributions, scores, decisions (actual ones, or scores at a threshold) and labels.
    unit
        Unit of an outcome that is a value; None for probabilities.
    n_reason_codes
        Number of columns of reason codes.

    Examples
    --------
    >>> Scope(model=False, attributions=False).outcome
    'score'
    >>> sorted(Scope(model=False).not_possible)
    ['weighing']
    >>> sorted(Scope(model=False, attributions=False, decisions=False, labels=False, unit="percent").not_possible)
    ['decisions', 'errors', 'excess', 'inputs', 'regimes', 'weighing']
    """

    model: bool = True
    attributions: bool = True
    scores: bool = True
    decisions: bool = True
    labels: bool = True
    unit: str | None = None
    n_reason_codes: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether everything can be found."""
        return not self.not_possible

    @property
    def outcome(self) -> Outcome:
        """What is compared: a probability, a value in a unit, or decisions alone."""
        if not self.scores:
            return "decision"
        return "score" if self.unit is None else "value"

    @property
    def given(self) -> tuple[str, ...]:
        """The given inputs, in words."""
        words = {
            "model": self.model,
            "scores": self.scores and not self.model,
            "attributions": self.attributions and not self.model,
            "decisions": self.decisions,
            "labels": self.labels,
            "reason codes": self.n_reason_codes > 0,
        }
        return tuple(word for word, is_there in words.items() if is_there)

    @property
    def not_possible(self) -> dict[str, str]:
        """What cannot be found, by question or metric, with a sentence that says why."""
        found: dict[str, str] = {}
        alone = "scores" if self.scores else "decisions"
        if not self.attributions:
            found["inputs"] = (
                f"Attributions are needed to see through which inputs a gap runs; {alone} alone cannot show it."
            )
        if not self.model:
            found["weighing"] = (
                "Whether the same inputs are weighed differently cannot be found without the model: this needs the "
                "scores of people with inputs that they do not have."
            )
        if not self.attributions:
            found["excess"] = (
                f"Whether explanations are farther apart across groups than within cannot be found from {alone} alone: "
                "there is no explanation without attributions."
            )
        if not self.attributions or not self.decisions:
            lacking = "attributions" if not self.attributions else "decisions"
            found["regimes"] = f"Regimes compare decisions with explanations, but there are no {lacking}."
        if not self.decisions:
            found["decisions"] = (
                "Rates of favorable decisions are not computed: no decisions were given, and a value has no threshold."
            )
        if not self.labels:
            found["errors"] = (
                "AUC and error rates are not computed: there are no labels to compare scores or decisions with."
            )
        elif self.outcome == "value":
            found["errors"] = (
                "AUC and calibration are not computed: the outcome is a value, not a probability of the label."
            )
        elif self.outcome == "decision":
            found["errors"] = "AUC and calibration are not computed: there are no scores."
        return found

    def note(self, key: str) -> str:
        """Why something cannot be found, as the note of a number; empty if it can."""
        sentence = self.not_possible.get(key, "").rstrip(".")
        return sentence if sentence.startswith("AUC") else sentence[:1].lower() + sentence[1:]

    def to_dict(self) -> dict[str, Any]:
        """Plain data for the summary."""
        return {
            "given": list(self.given),
            "outcome": self.outcome,
            "unit": self.unit,
            "has_labels": self.labels,
            "has_decisions": self.decisions,
            "n_reason_codes": self.n_reason_codes,
            "not_possible": self.not_possible,
        }
