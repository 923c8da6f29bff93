r"""Which candidate is chosen, why the others are not, and an honest estimate of what the choice gains.

Metrics of two candidates on the same fold share its people, so differences are taken fold by fold. Training sets of
different folds overlap, which makes the differences look steadier than they are. Nadeau and Bengio's correction
(Machine Learning 52, 2003) widens the variance of the mean of k differences of variance :math:`s^2`:

.. math:: \left(\frac1k + \frac{n_\text{test}}{n_\text{train}}\right) s^2,

with :math:`k - 1` degrees of freedom.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from evenhand.arrays import Floats, Ints
from evenhand.exceptions import InvalidInputError, did_you_mean
from evenhand.inputs.validation import is_number_column
from evenhand.metrics.estimate import Estimate, student_quantile
from evenhand.metrics.names import metric_of
from evenhand.report.formatting import listed
from evenhand.searching.people import SearchPeople
from evenhand.searching.scoring import EFFECTS, Metrics

CONFIDENCE = 0.95


def mean_interval(values: Floats, test_share: float) -> Estimate:
    """Mean over folds of a metric, with the corrected interval.

    Parameters
    ----------
    values
        One per fold; NaN for a fold in which the metric could not be estimated.
    test_share
        Test people over training people.

    Examples
    --------
    >>> auc = mean_interval(np.array([0.8, 0.7, 0.75, 0.85, 0.9]), test_share=0.25)
    >>> round(auc.value, 3), round(auc.low, 3), round(auc.high, 3)
    (0.8, 0.653, 0.947)
    """
    if not len(values) or not np.isfinite(values).all():
        return Estimate(math.nan)
    mean, error = float(values.mean()), float(standard_error(values[None, :], test_share)[0])
    return Estimate(mean) if len(values) < 2 else Estimate.from_error(mean, error, len(values) - 1)


def worse_beyond_noise(values: Floats, direction: int, test_share: float) -> NDArray[np.bool_]:
    """Whether candidate i is worse than candidate j beyond noise, of shape (n, n), from metrics of shape (n, folds).

    Examples
    --------
    >>> values = np.array([[0.8, 0.7, 0.9], [0.81, 0.71, 0.91], [0.9, 0.6, 0.9]])
    >>> worse_beyond_noise(values, 1, test_share=0.5)[0].tolist()
    [False, True, False]
    """
    difference = direction * (values[None, :, :] - values[:, None, :])  # how much better j is than i
    mean = difference.mean(-1)
    k = values.shape[1]
    error = standard_error(difference.reshape(-1, k), test_share).reshape(mean.shape)
    half = student_quantile(CONFIDENCE, max(1, k - 1)) * error
    # Equal differences in every fold have no noise at all, up to rounding.
    return np.asarray((mean - half > 1e-12) & np.isfinite(mean))


def front(metrics: dict[str, tuple[Floats, int]], test_share: float) -> NDArray[np.bool_]:
    """Which candidates are not dominated by another, of shape (n,).

    One dominates another if its mean is at least as good on every axis, and better beyond noise on one. A candidate
    with a metric that could not be estimated is not on the front.

    Parameters
    ----------
    metrics
        For each axis, values of shape (n, folds) and 1 where more is better, -1 where less is.
    test_share
        As in `mean_interval`.

    Examples
    --------
    >>> auc = np.array([[0.8, 0.8, 0.8], [0.7, 0.7, 0.7], [0.79, 0.81, 0.79]])
    >>> gap = np.array([[0.2, 0.2, 0.2], [0.1, 0.1, 0.1], [0.2, 0.2, 0.2]])
    >>> front({"auc": (auc, 1), "gap": (gap, -1)}, test_share=0.5).tolist()
    [True, True, True]
    """
    n = len(next(iter(metrics.values()))[0])
    no_worse, worse = np.ones((n, n), dtype=bool), np.zeros((n, n), dtype=bool)
    is_known = np.ones(n, dtype=bool)
    for values, direction in metrics.values():
        mean = direction * values.mean(-1)
        is_known &= np.isfinite(mean)
        no_worse &= mean[None, :] >= mean[:, None]
        worse |= worse_beyond_noise(values, direction, test_share)
    is_dominated = (no_worse & worse & is_known[None, :]).any(1)
    return np.asarray(is_known & ~is_dominated)


def standard_error(differences: Floats, test_share: float) -> Floats:
    """Corrected standard error of each row's mean over folds, of shape (n,) from (n, folds); infinite for one fold.

    Examples
    --------
    >>> standard_error(np.array([[0.1, 0.2, 0.3], [0.2, 0.2, 0.2]]), test_share=0.5).round(4).tolist()
    [0.0913, 0.0]
    """
    k = differences.shape[1]
    if k < 2:
        return np.full(len(differences), np.inf)
    return np.asarray(np.sqrt((1 / k + test_share) * differences.var(axis=1, ddof=1)))


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
        sign = -1.0 if float(base.mean()) < 0 else 1.0
        return base * (self.factor + self.relative * sign) + self.shift

    def allowed(self, base: Floats) -> float:
        """How far from the middle a metric may be."""
        return self.margin + self.relative * abs(float(base.mean()))

    def missed(self, low: Floats | float, high: Floats | float, allowed: float) -> tuple[Any, Any]:
        """By how much values from `low` to `high` of the limit miss it, at best and at worst; not if below 0."""
        if self.comparison == "within":
            ends = np.abs(low), np.abs(high)
            nearest = np.where((low <= 0) & (high >= 0), 0.0, np.minimum(*ends))
            return nearest - allowed, np.maximum(*ends) - allowed
        return (-high, -low) if self.comparison.startswith(">") else (low, high)

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
        limits, allowed = self.limits(base), self.allowed(base)
        distance = values - limits
        off = distance.mean(1)
        # The effect of a column on a score is a fact about a model, not an estimate.
        is_exact = values.shape[1] < 2 or self.metric.partition("[")[0] in EFFECTS
        error = np.zeros(len(values)) if is_exact else standard_error(distance, test_share)
        _, missed = self.missed(off, off, allowed)
        is_strict = self.comparison in ("<", ">")
        is_met = missed < -_ROUNDING if is_strict else missed <= _ROUNDING
        is_near = ~is_met & (missed < error - _ROUNDING)
        side = f"{'below' if self.comparison.startswith('>') else 'above'} the limit of"
        side = f"more than {allowed:.4g} from" if self.comparison == "within" else side

        def complaint(value: float, error: float) -> str:
            if math.isnan(value):
                return f"{self.metric} could not be estimated, which `{self.text}` needs"
            noise = f", by more than a standard error of {error:.4f}" if error > 0 else ""
            return f"{self.metric} is {value:.4f}, {side} {limits.mean():.4f}{noise} (`{self.text}`)"

        complaints = [
            "" if holds else complaint(value, noise)
            for holds, value, noise in zip(is_met | is_near, values.mean(1), error, strict=True)
        ]
        return Judgement(complaints, is_near)


class Judgement(NamedTuple):
    """What candidates have against a constraint: why each does not meet it, or "", and who does only within noise."""

    complaints: list[str]
    is_near: NDArray[np.bool_]

    @property
    def is_met(self) -> NDArray[np.bool_]:
        """Which candidates meet it."""
        return np.array([not complaint for complaint in self.complaints])


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
    whole, whose = text.strip(), f"The constraint {text!r}"
    near, form, sign = (pattern.fullmatch(text) for pattern in (_WITHIN, _COMPARES, _SIGN))
    if near is not None:
        named, margin, percent, number, reference = near.groups()
        metric = metric_of(named, whose).name
        if float(margin) < 0:
            raise InvalidInputError(f"{whose} must allow a distance of 0 or more, got {margin}.")
        is_share = bool(percent and number is None)
        allowed = float(margin) / (100 if percent else 1)
        against, middle = _reference(reference, metric, text), 0.0 if number is None else float(number)
        away = (0.0, allowed) if is_share else (allowed, 0.0)
        return Constraint(whole, metric, "within", against, 1.0, middle, *away)
    if form is not None:
        named, comparison, number, reference, operator, amount, percent = form.groups()
        metric = metric_of(named, whose).name
        by = float(number or amount or 0.0) / (100 if percent else 1) * (-1 if operator == "-" else 1)
        factor, shift, relative = (by, 0.0, 0.0) if operator == "*" else (1.0, 0.0, by) if percent else (1.0, by, 0.0)
        against = _reference(reference, metric, text)
        return Constraint(whole, metric, comparison, against, factor, shift, relative=relative)
    if sign is not None and not set("<>=") & set(text):
        column, word, share = sign.groups()
        kind, comparison = _SIGNS[word]
        if share is not None and (kind == "effect" or not 0 <= float(share) < 1):
            raise InvalidInputError(
                f"The constraint {whole!r} may allow a share of at least 0 and below 1 of the steps of an increasing "
                f"or decreasing column, got {share}."
            )
        return Constraint(whole, f"{kind}[{column}]", comparison, None, 1.0, float(share or 0.0))
    raise InvalidInputError(
        "A constraint reads like 'auc >= best - 0.01', 'profit >= unconstrained - 1%', 'air >= 0.8', "
        f"'positive_rate within 0.05 of unconstrained' or 'income increasing', got {text!r}."
    )


def effects_in(names: Iterable[str], people: SearchPeople, *, has_payoff: bool) -> tuple[str, ...]:
    """Columns whose effect on the score is asked for, by the names of metrics, all of which are checked.

    Raises
    ------
    InvalidInputError
        If a metric is of an unknown input, group or column, of the effect of a column that does not contain numbers,
        or is a profit without payoffs.
    """
    effects: dict[str, None] = {}
    for name in names:
        kind, of = name.partition("[")[0], metric_of(name).of
        what, known = ("group", list(people.groups.names)) if kind == "approval_rate" else ("column", people.columns)
        if of and of not in known:
            raise InvalidInputError(f"{name!r} names an unknown {what}: {of!r}.{did_you_mean(of, known)}")
        if name == "profit" and not has_payoff:
            raise InvalidInputError(
                "'profit' needs `payoff`, what each decision is worth, such as {'approve_good': 1, 'approve_bad': -5}."
            )
        if of and kind in EFFECTS:
            if not is_number_column(people.table[of]):
                raise InvalidInputError(
                    f"`keep` asks which way {of!r} moves the score, but it does not contain numbers."
                )
            effects[of] = None
    return tuple(effects)


def _reference(name: str | None, metric: str, text: str) -> str | None:
    if name is None:
        return None
    if name not in _REFERENCES:
        raise InvalidInputError(
            f"The constraint {text!r} compares with {name!r}, which is neither a number nor one of {list(_REFERENCES)}."
            f"{did_you_mean(name, _REFERENCES)}"
        )
    if name == "best" and metric_of(metric).direction == 0:
        raise InvalidInputError(
            f"The constraint {text!r} asks for the best {metric}, but neither more nor less of it is better; "
            "compare with 'unconstrained' or a number."
        )
    return name


@dataclass(frozen=True)
class Choice:
    """The choice that a rule makes on some folds.

    Attributes
    ----------
    unconstrained
        Number of the most accurate unconstrained candidate.
    complaints
        For each candidate, the constraints it does not meet, in words.
    near
        For each candidate, the metrics that meet their constraint only within noise.
    ranked
        Candidates that meet all constraints, the chosen one first.
    """

    unconstrained: int
    complaints: tuple[tuple[str, ...], ...]
    near: tuple[tuple[str, ...], ...]
    ranked: tuple[int, ...]

    @property
    def chosen(self) -> int | None:
        """Number of the candidate; None if no candidate meets the constraints."""
        return self.ranked[0] if self.ranked else None

    def alternatives(self, n: int) -> tuple[int, ...]:
        """Up to n candidates that are better than the unconstrained one, which is not among them, best first."""
        place = self.ranked.index(self.unconstrained) if self.unconstrained in self.ranked else len(self.ranked)
        return self.ranked[: min(n, place)]


@dataclass(frozen=True)
class ChoiceRule:
    """Of the candidates that meet all constraints, the one with the least of a metric.

    Attributes
    ----------
    constraints
        What must hold for the means over folds, within their noise.
    minimize
        The metric. A gap or excess below 0 counts as 0, since an estimate below 0 is noise. Ties go to the candidate
        with the highest AUC, and then to the first.
    is_unconstrained
        Which candidates were trained for accuracy alone.
    test_share
        Test people over training people in a fold.
    """

    constraints: tuple[Constraint, ...]
    minimize: str
    is_unconstrained: NDArray[np.bool_]
    test_share: float

    def choose(self, metrics: Metrics, folds: Ints | slice = slice(None)) -> Choice:
        """Choose by the means over some folds, or all."""
        metrics = {name: values[:, folds] for name, values in metrics.items()}
        judged = self._judged(metrics, np.ones_like(self.is_unconstrained))
        numbers = range(len(self.is_unconstrained))
        complaints = tuple(tuple(of.complaints[k] for of in judged if of.complaints[k]) for k in numbers)
        near = tuple(
            tuple(asked.metric for asked, of in zip(self.constraints, judged, strict=True) if of.is_near[k])
            for k in numbers
        )
        means = metrics[self.minimize].mean(1)
        is_kept = np.array([not of_one for of_one in complaints]) & np.isfinite(means)
        accuracy = np.nan_to_num(metrics["auc"].mean(1))
        order = np.lexsort((-accuracy, np.where(is_kept, self.goal(means), np.inf)))  # the first of a tie
        return Choice(self.unconstrained(metrics), complaints, near, tuple(order[is_kept[order]].tolist()))

    def unconstrained(self, metrics: Metrics) -> int:
        """Number of the most accurate unconstrained candidate."""
        return _best(np.where(self.is_unconstrained, metrics["auc"].mean(1), np.nan), 1)

    def draws(self, metrics: Metrics) -> Floats:
        """What is minimized, for each candidate; infinite for one that does not meet the constraints.

        Here ``best`` is the best unconstrained candidate, so that no candidate's value depends on the other draws.
        """
        means = metrics[self.minimize].mean(1)
        is_kept = np.isfinite(means)
        for of in self._judged(metrics, self.is_unconstrained):
            is_kept &= of.is_met
        return np.where(is_kept, self.goal(means), np.inf)

    def best(self, metrics: Metrics, name: str) -> int:
        """Number of the candidate with the best mean of a metric."""
        return _best(metrics[name].mean(1), metric_of(name).direction)

    def _judged(self, metrics: Metrics, is_among: NDArray[np.bool_]) -> list[Judgement]:
        """Each constraint applied to the candidates, with ``best`` the best of some of them."""
        unconstrained = self.unconstrained(metrics)
        compared = {name: values[unconstrained] for name, values in metrics.items()}
        references = {
            "unconstrained": compared,
            "start": compared,  # the starting model, if there is one, is the unconstrained candidate
            "best": {
                name: values[_best(np.where(is_among, values.mean(1), np.nan), metric_of(name).direction)]
                for name, values in metrics.items()
                if metric_of(name).direction
            },
        }
        return [c.judge(metrics[c.metric], references, self.test_share) for c in self.constraints]

    def goal(self, means: Floats) -> Floats:
        """What is minimized, from the means of the metric."""
        direction = metric_of(self.minimize).direction
        return np.maximum(means, 0.0) if direction < 0 else -means


def reasons_of(choice: Choice, metrics: Metrics, rule: ChoiceRule) -> tuple[str, ...]:
    """Why each candidate was chosen or passed over, in words."""
    metric, chosen = rule.minimize, choice.chosen
    values, accuracy = metrics[metric], metrics["auc"].mean(1)
    reasons = []
    for k, complaints in enumerate(choice.complaints):
        near = f", {listed(list(choice.near[k]))} within noise of the limit" if choice.near[k] else ""
        if not math.isfinite(accuracy[k]):
            reason = "could not be trained or scored"
        elif complaints:
            reason = "; ".join(complaints)
        elif k == chosen:
            reason = f"chosen: meets every constraint{near}, with the lowest {metric}, {values[k].mean():.4f}"
        else:
            more = mean_interval(values[k] - values[chosen], rule.test_share)
            reason = f"meets every constraint{near}; its {metric} differs from the chosen one's by {more.value:+.4f}"
            if math.isfinite(more.low):
                reason += f" (95% interval {more.low:+.4f} to {more.high:+.4f})"
                if not more.excludes_zero:
                    which = "a lower" if accuracy[k] < accuracy[chosen] else "a higher"
                    reason += f", which is within noise; it has {which} AUC, {accuracy[k]:.4f}"
        reasons.append(reason)
    return tuple(reasons)


def honest_metrics(metrics: Metrics, rule: ChoiceRule) -> dict[str, tuple[float, float, Estimate]]:
    """Every metric of the unconstrained and the chosen candidate and their difference, in folds that did not choose.

    The best of many looks better than it is. So each fold's people judge a choice that was made on the other folds
    only. If no candidate meets the constraints there, the unconstrained one takes its place. NaN for fewer than three
    folds.
    """
    n_folds = metrics["auc"].shape[1]
    folds = np.arange(n_folds)
    if n_folds < 3:
        return dict.fromkeys(metrics, (math.nan, math.nan, Estimate(math.nan)))
    choices = [rule.choose(metrics, folds[folds != fold]) for fold in folds]
    start = [choice.unconstrained for choice in choices]
    chosen = [choice.unconstrained if choice.chosen is None else choice.chosen for choice in choices]
    honest = {}
    for name, values in metrics.items():
        before, after = values[start, folds], values[chosen, folds]
        difference = mean_interval(after - before, rule.test_share)
        honest[name] = float(before.mean()), float(after.mean()), difference
    return honest


def _best(values: Floats, direction: int) -> int:
    """Position of the best value that is not missing: the first of a tie, 0 if all are missing."""
    return int(np.argmax(np.where(np.isfinite(values), direction * values, -np.inf)))


@dataclass(frozen=True)
class Frontier:
    """Candidates such that no other is at least as good in two metrics and better in one, by means over folds.

    Unlike the front, it ignores noise; the chart of it shows intervals.

    Attributes
    ----------
    utility, objective
        The two metrics.
    candidates
        Their numbers, from the least utility to the most.
    """

    utility: str
    objective: str
    candidates: tuple[int, ...]

    @classmethod
    def of(cls, metrics: Metrics, minimize: str, limited: Sequence[str]) -> Frontier:
        """The frontier of all candidates; the utility is the first that a constraint names, or AUC.

        Examples
        --------
        >>> metrics = {"auc": np.array([[0.8], [0.7], [0.7]]), "cec": np.array([[0.3], [0.1], [0.2]])}
        >>> Frontier.of(metrics, "cec", []).candidates
        (1, 0)
        """
        utility = next((name for name in limited if metric_of(name).axis == "utility" and name != minimize), "auc")
        objective = "reasoning_gap" if minimize == utility else minimize
        first, second = (metric_of(name).direction * metrics[name].mean(1) for name in (utility, objective))
        kept: list[int] = []
        best = -np.inf
        for k in np.lexsort((-second, -first)).tolist():  # from the most utility to the least
            if np.isfinite(first[k]) and second[k] > best:
                kept.append(k)
                best = float(second[k])
        return cls(utility, objective, tuple(reversed(kept)))
