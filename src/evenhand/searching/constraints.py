"""Constraints on candidates in the user's words, such as ``auc >= best - 0.01``."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from evenhand.exceptions import InvalidInputError
from evenhand.inputs.validation import did_you_mean
from evenhand.searching.comparing import standard_error
from evenhand.searching.effects import EFFECTS, check_effect_columns
from evenhand.searching.metrics import ALIASES, DIRECTIONS, OF_SOMETHING, asked_of, direction_of
from evenhand.searching.people import SearchPeople

__all__ = ["Constraint", "Judgement", "asked_effects", "check_asked", "check_metric", "parse_constraint"]

Floats: TypeAlias = NDArray[np.float64]
References: TypeAlias = Mapping[str, Mapping[str, Floats]]
"""For each reference, every metric by name, of shape (n_folds,)."""

_ROUNDING = 1e-12
_REFERENCES = ("best", "unconstrained", "start")
_NUMBER = r"[-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?"
_METRIC = r"\w+(?:\[[^\[\]]+\])?"
_COMPARES = re.compile(rf"\s*({_METRIC})\s*(>=|<=|>|<)\s*(?:({_NUMBER})|(\w+)\s*(?:([-+*])\s*({_NUMBER})\s*(%?))?)\s*")
_WITHIN = re.compile(rf"\s*({_METRIC})\s+within\s+({_NUMBER})\s*(%?)\s+of\s+(?:({_NUMBER})|(\w+))\s*")
_SIGN = re.compile(rf"\s*(.+?)\s+(increasing|decreasing|positive|negative)(?:\s+within\s+({_NUMBER}))?\s*")
# Which metric of a column must be on which side of 0.
_SIGNS = {
    "increasing": ("falls", "<="),
    "decreasing": ("rises", "<="),
    "positive": ("effect", ">="),
    "negative": ("effect", "<="),
}


@dataclass(frozen=True)
class Constraint:
    """A metric and its limit.

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
        The limit is factor times the reference plus shift, or the shift alone if there is no reference. For
        ``"within"`` this is the middle, and `margin` is how far from it a metric may be.
    relative
        What is added to the limit, or for ``"within"`` to the margin, as a share of the size of the reference.
    """

    text: str
    metric: str
    comparison: str
    reference: str | None
    factor: float
    shift: float
    margin: float = 0.0
    relative: float = 0.0

    def limits(self, base: Floats) -> Floats:
        """The limit, or the middle, given the reference's metric in each fold; of the same shape."""
        if self.reference is None:
            return np.full(base.shape, self.shift)
        if self.comparison == "within":
            return base
        # A share of the size of the mean keeps the limit linear in the reference.
        return base * (self.factor + self.relative * _sign(base)) + self.shift

    def allowed(self, base: Floats) -> float:
        """How far from the middle a metric may be."""
        return self.margin + self.relative * abs(float(base.mean()))

    def judge(self, values: Floats, references: References, test_share: float) -> Judgement:
        """Which candidates meet it, given their metric and those of the references in each fold.

        A candidate misses a limit if its mean over folds is beyond it by more than one standard error of the
        difference, with Nadeau and Bengio's correction: noise between folds alone should not rule out a candidate.
        The effect of a column on the score has no such noise.

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
        limits = self.limits(base)
        distance = values - limits
        off = distance.mean(1)
        # The effect of a column on a score is a fact about a model, not an estimate.
        is_exact = values.shape[1] < 2 or asked_of(self.metric)[0] in EFFECTS
        error = np.zeros(len(values)) if is_exact else standard_error(distance, test_share)
        if self.comparison == "within":
            missed = np.abs(off) - self.allowed(base)
        else:
            missed = -off if self.comparison.startswith(">") else off
        is_strict = self.comparison in ("<", ">")
        is_met = missed < -_ROUNDING if is_strict else missed <= _ROUNDING
        is_near = ~is_met & (missed < error - _ROUNDING)
        return Judgement(
            self, values.mean(1), float(limits.mean()), self.allowed(base), error, is_met | is_near, is_near
        )


@dataclass(frozen=True, eq=False)
class Judgement:
    """Which candidates meet a constraint.

    Attributes
    ----------
    constraint
        The constraint.
    value, error
        Mean of each candidate's metric, and the standard error of its distance from the limit.
    limit, allowed
        The limit, or the middle of what is allowed and how far from it a metric may be.
    is_met, is_near
        Whether each candidate meets it; whether it does only within noise.
    """

    constraint: Constraint
    value: Floats
    limit: float
    allowed: float
    error: Floats
    is_met: NDArray[np.bool_]
    is_near: NDArray[np.bool_]

    def complaint(self, k: int) -> str:
        """Why candidate `k` does not meet it, in words."""
        asked, value = self.constraint, float(self.value[k])
        if math.isnan(value):
            return f"{asked.metric} could not be estimated, which `{asked.text}` needs"
        noise = f", by more than a standard error of {self.error[k]:.4f}" if self.error[k] > 0 else ""
        side = f"{'below' if asked.comparison.startswith('>') else 'above'} the limit of"
        side = f"more than {self.allowed:.4g} from" if asked.comparison == "within" else side
        return f"{asked.metric} is {value:.4f}, {side} {self.limit:.4f}{noise} (`{asked.text}`)"


def parse_constraint(text: str) -> Constraint:
    """A constraint from its text.

    A constraint compares a metric with a number (``air >= 0.8``) or with a reference, optionally with a shift, a share
    or a factor (``auc >= best - 0.01``, ``profit >= unconstrained - 1%``, ``reasoning_gap <= unconstrained * 0.5``), or
    keeps it near one (``positive_rate within 0.05 of unconstrained``). ``best`` is the best value of any candidate,
    ``unconstrained`` that of the model trained for accuracy alone, and ``start`` that of the model that a search starts
    from. A constraint can also say how a column must move the score: ``income increasing``, ``debt decreasing`` (at
    every step, or at all but a share of them: ``income increasing within 0.02``), ``income positive`` and ``debt
    negative`` (on average).

    Raises
    ------
    InvalidInputError
        If the text has none of these forms, or names an unknown metric or reference.

    Examples
    --------
    >>> constraint = parse_constraint("auc >= best - 0.01")
    >>> best, tried = np.array([0.80, 0.82]), np.array([[0.79, 0.81], [0.76, 0.78]])
    >>> constraint.judge(tried, {"best": {"auc": best}}, test_share=1.0).is_met.tolist()
    [True, False]
    >>> parse_constraint("positive_rate within 0.05 of unconstrained").margin
    0.05
    >>> parse_constraint("income increasing").metric
    'falls[income]'
    """
    if not isinstance(text, str):
        raise InvalidInputError(f"A constraint must be a text such as 'auc >= best - 0.01', got {text!r}.")
    whole = text.strip()
    near, form, sign = (pattern.fullmatch(text) for pattern in (_WITHIN, _COMPARES, _SIGN))
    if near is not None:
        named, margin, percent, number, reference = near.groups()
        metric = check_metric(named, f"The constraint {text!r}")
        if float(margin) < 0:
            raise InvalidInputError(f"The constraint {text!r} must allow a distance of 0 or more, got {margin}.")
        shift = 0.0 if number is None else float(number)
        away = (0.0, float(margin) / 100) if percent and number is None else (_amount(margin, percent), 0.0)
        return Constraint(whole, metric, "within", _reference(reference, metric, text), 1.0, shift, *away)
    if form is not None:
        named, comparison, number, reference, operator, amount, percent = form.groups()
        metric = check_metric(named, f"The constraint {text!r}")
        if number is not None:
            return Constraint(whole, metric, comparison, None, 1.0, float(number))
        by = 0.0 if amount is None else _amount(amount, percent) * (-1 if operator == "-" else 1)
        against = _reference(reference, metric, text)
        if operator == "*":
            return Constraint(whole, metric, comparison, against, by, 0.0)
        if percent:
            return Constraint(whole, metric, comparison, against, 1.0, 0.0, relative=by)
        return Constraint(whole, metric, comparison, against, 1.0, by)
    if sign is not None and not _looks_like_a_limit(text):
        return _sign_constraint(whole, *sign.groups())
    raise InvalidInputError(
        "A constraint reads like 'auc >= best - 0.01', 'profit >= unconstrained - 1%', 'air >= 0.8', "
        f"'positive_rate within 0.05 of unconstrained' or 'income increasing', got {text!r}."
    )


def _sign_constraint(text: str, column: str, word: str, share: str | None) -> Constraint:
    """How a column must move the score."""
    kind, comparison = _SIGNS[word]
    if share is not None and (kind == "effect" or not 0 <= float(share) < 1):
        raise InvalidInputError(
            f"The constraint {text!r} may allow a share of at least 0 and below 1 of the steps of an increasing or "
            f"decreasing column, got {share}."
        )
    return Constraint(text, f"{kind}[{column}]", comparison, None, 1.0, float(share or 0.0))


def _looks_like_a_limit(text: str) -> bool:
    return any(sign in text for sign in ("<", ">", "="))


def _amount(number: str, percent: str) -> float:
    return float(number) / 100 if percent else float(number)


def _sign(base: Floats) -> float:
    return -1.0 if float(base.mean()) < 0 else 1.0


def check_metric(name: str, whose: str) -> str:
    """The metric that a name stands for, if the search knows it."""
    found = ALIASES.get(name, name) if isinstance(name, str) else name
    kind, of = asked_of(str(found))
    if found in DIRECTIONS or (of and kind in OF_SOMETHING):
        return str(found)
    known = [*DIRECTIONS, *ALIASES, *OF_SOMETHING]
    raise InvalidInputError(f"{whose} names an unknown metric: {name!r}.{did_you_mean(kind, known)}")


def asked_effects(names: Iterable[str]) -> tuple[str, ...]:
    """Columns whose effect on the score is asked for, by the names of metrics.

    Examples
    --------
    >>> asked_effects(["falls[income]", "auc", "effect[income]", "score_gap[age]"])
    ('income',)
    """
    asked = (asked_of(name) for name in names)
    return tuple(dict.fromkeys(of for kind, of in asked if of and kind in EFFECTS))


def check_asked(names: Iterable[str], people: SearchPeople, *, has_payoff: bool) -> None:
    """Refuse metrics of unknown inputs, groups and columns, and a profit without payoffs.

    Raises
    ------
    InvalidInputError
        With the names that exist.
    """
    asked = list(names)
    columns = [str(column) for column in people.table.columns]
    for name in asked:
        kind, of = asked_of(name)
        known = list(people.groups.names) if kind == "approval_rate" else columns
        if of and of not in known:
            what = "group" if kind == "approval_rate" else "column"
            raise InvalidInputError(f"{name!r} names an unknown {what}: {of!r}.{did_you_mean(of, known)}")
    check_effect_columns(asked_effects(asked), people.table)
    if "profit" in asked and not has_payoff:
        raise InvalidInputError(
            "'profit' needs `payoff`, what each decision is worth, such as {'approve_good': 1, 'approve_bad': -5}."
        )


def _reference(name: str | None, metric: str, text: str) -> str | None:
    if name is None:
        return None
    if name not in _REFERENCES:
        raise InvalidInputError(
            f"The constraint {text!r} compares with {name!r}, which is neither a number nor one of {list(_REFERENCES)}."
            f"{did_you_mean(name, _REFERENCES)}"
        )
    if name == "best" and direction_of(metric) == 0:
        raise InvalidInputError(
            f"The constraint {text!r} asks for the best {metric}, but neither more nor less of it is better; "
            "compare with 'unconstrained' or a number."
        )
    return name
