"""Constraints on candidates in the user's words, such as ``auc >= best - 0.01``."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from evenhand.exceptions import InvalidInputError
from evenhand.inputs.validation import did_you_mean
from evenhand.searching.comparing import standard_error
from evenhand.searching.metrics import DIRECTIONS

__all__ = ["Constraint", "Judgement", "check_metric", "parse_constraint"]

Floats: TypeAlias = NDArray[np.float64]
References: TypeAlias = Mapping[str, Mapping[str, Floats]]
"""For each reference, every metric by name, of shape (n_folds,)."""

_ROUNDING = 1e-12
_REFERENCES = ("best", "unconstrained", "start")
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
        ``"best"``, ``"unconstrained"``, ``"start"``, or None for a plain number.
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

    def judge(self, values: Floats, references: References, test_share: float) -> Judgement:
        """Which candidates meet it, given their metric and those of the references in each fold.

        A candidate misses a limit where its mean over folds lies beyond it by more than one standard error of the
        difference, with Nadeau and Bengio's correction: fold-to-fold noise alone should not pass a candidate over.

        Parameters
        ----------
        values
            The metric, of shape (n_candidates, n_folds).
        references
            Every metric of each reference, of shape (n_folds,).
        test_share
            Test people over training people in a fold.
        """
        base = np.zeros(values.shape[1]) if self.reference is None else references[self.reference][self.metric]
        limits = self.factor * base + self.shift
        distance = values - limits
        off = distance.mean(1)
        error = standard_error(distance, test_share) if values.shape[1] > 1 else np.zeros(len(values))
        if self.comparison == "within":
            missed = np.abs(off) - self.margin
        else:
            missed = -off if self.comparison.startswith(">") else off
        is_strict = self.comparison in ("<", ">")
        is_met = missed < -_ROUNDING if is_strict else missed <= _ROUNDING
        is_near = ~is_met & (missed < error)
        return Judgement(self, values.mean(1), float(limits.mean()), error, is_met | is_near, is_near)


@dataclass(frozen=True, eq=False)
class Judgement:
    """What a constraint makes of candidates.

    Attributes
    ----------
    constraint
        The constraint.
    value, error
        Mean of each candidate's metric, and the standard error of its distance from the limit.
    limit
        The limit, or the middle of what is allowed.
    is_met, is_near
        Whether each candidate meets it; whether it does only within noise.
    """

    constraint: Constraint
    value: Floats
    limit: float
    error: Floats
    is_met: NDArray[np.bool_]
    is_near: NDArray[np.bool_]

    def complaint(self, k: int) -> str:
        """Why candidate `k` does not meet it, in words."""
        asked, value = self.constraint, float(self.value[k])
        if math.isnan(value):
            return f"{asked.metric} could not be estimated, and `{asked.text}` was asked"
        noise = f", by more than a standard error of {self.error[k]:.4f}" if self.error[k] > 0 else ""
        side = f"{'below' if asked.comparison.startswith('>') else 'above'} the limit of"
        side = f"more than {asked.margin:g} from" if asked.comparison == "within" else side
        return f"{asked.metric} is {value:.4f}, {side} {self.limit:.4f}{noise} (`{asked.text}`)"


def parse_constraint(text: str) -> Constraint:
    """A constraint from its text.

    Three forms: a metric against a number (``air >= 0.8``), against a reference with or without a shift or a factor
    (``auc >= best - 0.01``, ``eo_gap <= unconstrained``, ``reasoning_gap <= unconstrained * 0.5``), or near one
    (``positive_rate within 0.05 of unconstrained``). ``best`` is the best value of any candidate, ``unconstrained`` the
    value of the model that nothing but accuracy was asked of, ``start`` that of the model that a search starts from.

    Raises
    ------
    InvalidInputError
        If the text has none of these forms, or names no metric or no reference.

    Examples
    --------
    >>> constraint = parse_constraint("auc >= best - 0.01")
    >>> best, tried = np.array([0.80, 0.82]), np.array([[0.79, 0.81], [0.76, 0.78]])
    >>> constraint.judge(tried, {"best": {"auc": best}}, test_share=1.0).is_met.tolist()
    [True, False]
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
