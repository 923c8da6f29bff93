"""Constraints on candidates in the user's words, such as ``auc >= best - 0.01``."""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from evenhand.exceptions import InvalidInputError
from evenhand.inputs.validation import did_you_mean
from evenhand.searching.metrics import DIRECTIONS

__all__ = ["Constraint", "check_metric", "parse_constraint"]

_OPERATORS: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    "<=": operator.le,
    ">": operator.gt,
    "<": operator.lt,
}
_REFERENCES = ("best", "unconstrained")
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_COMPARES = re.compile(rf"\s*(\w+)\s*(>=|<=|>|<)\s*(?:({_NUMBER})|(\w+)\s*(?:([-+*])\s*({_NUMBER}))?)\s*")
_WITHIN = re.compile(rf"\s*(\w+)\s+within\s+({_NUMBER})\s+of\s+(?:({_NUMBER})|(\w+))\s*")


@dataclass(frozen=True)
class Constraint:
    """A metric and where it must lie.

    Attributes
    ----------
    text
        As the user wrote it.
    metric
        The metric.
    comparison
        ``">="``, ``"<="``, ``">"``, ``"<"`` or ``"within"``.
    reference
        ``"best"``, ``"unconstrained"``, or None for a plain number.
    factor, shift
        The limit is factor times the reference plus shift; the shift alone where there is no reference. For
        ``"within"``, the middle is that and `margin` is how far off a metric may be.
    """

    text: str
    metric: str
    comparison: str
    reference: str | None
    factor: float
    shift: float
    margin: float = 0.0

    def limit(self, references: Mapping[str, Mapping[str, float]]) -> float:
        """The limit, given each reference's metrics."""
        base = 0.0 if self.reference is None else references[self.reference][self.metric]
        return self.factor * base + self.shift

    def holds(self, value: float, references: Mapping[str, Mapping[str, float]]) -> bool:
        """Whether a metric meets it; a metric that could not be estimated does not."""
        limit = self.limit(references)
        if math.isnan(value) or math.isnan(limit):
            return False
        if self.comparison == "within":
            return abs(value - limit) <= self.margin
        return _OPERATORS[self.comparison](value, limit)

    def complaint(self, value: float, references: Mapping[str, Mapping[str, float]]) -> str:
        """Why a metric does not meet it, in words."""
        limit = self.limit(references)
        if math.isnan(value):
            return f"{self.metric} could not be estimated, and `{self.text}` was asked"
        if self.comparison == "within":
            return f"{self.metric} is {value:.4f}, more than {self.margin:g} from {limit:.4f} (`{self.text}`)"
        side = "below" if self.comparison.startswith(">") else "above"
        return f"{self.metric} is {value:.4f}, {side} the limit of {limit:.4f} (`{self.text}`)"


def parse_constraint(text: str) -> Constraint:
    """A constraint from its text.

    Three forms: a metric against a number (``air >= 0.8``), against a reference with or without a shift or a factor
    (``auc >= best - 0.01``, ``eo_gap <= unconstrained``, ``reasoning_gap <= unconstrained * 0.5``), or near one
    (``positive_rate within 0.05 of unconstrained``). ``best`` is the best value of any candidate, ``unconstrained`` the
    value of the model that nothing but accuracy was asked of.

    Raises
    ------
    InvalidInputError
        If the text has none of these forms, or names no metric or no reference.

    Examples
    --------
    >>> constraint = parse_constraint("auc >= best - 0.01")
    >>> constraint.holds(0.795, {"best": {"auc": 0.80}})
    True
    >>> parse_constraint("positive_rate within 0.05 of unconstrained").margin
    0.05
    """
    if not isinstance(text, str):
        raise InvalidInputError(f"A constraint must be a text such as 'auc >= best - 0.01', got {text!r}.")
    near = _WITHIN.fullmatch(text)
    if near is not None:
        metric, margin, number, reference = near.groups()
        check_metric(metric, f"The constraint {text!r}")
        if float(margin) < 0:
            raise InvalidInputError(f"The constraint {text!r} must allow a distance of 0 or more, got {margin}.")
        shift = 0.0 if number is None else float(number)
        return Constraint(
            text.strip(), metric, "within", _reference(reference, metric, text), 1.0, shift, float(margin)
        )
    form = _COMPARES.fullmatch(text)
    if form is None:
        raise InvalidInputError(
            "A constraint reads like 'auc >= best - 0.01', 'eo_gap <= unconstrained', 'air >= 0.8' or "
            f"'positive_rate within 0.05 of unconstrained', got {text!r}."
        )
    metric, comparison, number, reference, sign, amount = form.groups()
    check_metric(metric, f"The constraint {text!r}")
    if number is not None:
        return Constraint(text.strip(), metric, comparison, None, 1.0, float(number))
    by = 0.0 if amount is None else float(amount)
    factor, shift = (by, 0.0) if sign == "*" else (1.0, -by if sign == "-" else by)
    return Constraint(text.strip(), metric, comparison, _reference(reference, metric, text), factor, shift)


def check_metric(name: str, whose: str) -> str:
    """`name` if it is a metric that a search knows."""
    if name not in DIRECTIONS:
        raise InvalidInputError(f"{whose} names no metric: {name!r}.{did_you_mean(name, list(DIRECTIONS))}")
    return name


def _reference(name: str | None, metric: str, text: str) -> str | None:
    if name is None:
        return None
    if name not in _REFERENCES:
        raise InvalidInputError(
            f"The constraint {text!r} compares with {name!r}, which is neither a number nor one of {list(_REFERENCES)}."
            f"{did_you_mean(name, _REFERENCES)}"
        )
    if name == "best" and DIRECTIONS[metric] == 0:
        raise InvalidInputError(
            f"The constraint {text!r} asks for the best {metric}, of which neither more nor less is better; "
            "compare with 'unconstrained' or a number."
        )
    return name
