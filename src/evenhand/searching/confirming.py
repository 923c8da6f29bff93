"""Chosen candidates evaluated once on people whom neither training nor the choice has seen.

The models are given: each candidate is refitted on everyone searched on, and the question is what *these* models do to
new applicants, who are compared with the people searched on. People held out get random weights many times (the
Bayesian bootstrap: independent exponential weights, one for all rows of a person), and every metric of every model is
computed with each set of weights. The spread of a difference over these sets is its standard error. The interval is
Student's t; its degrees of freedom are the people of the smallest group less one. Each of k reported candidates has an
interval of level :math:`1 - 0.05 / k`, so all hold at once with at least 95% confidence.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal, get_args

import numpy as np

from evenhand.arrays import Floats
from evenhand.metrics.estimate import Estimate, Plain
from evenhand.metrics.names import metric_of
from evenhand.report.formatting import capital, count, decimal, interval, listed, percent
from evenhand.searching.choice import CONFIDENCE, ChoiceRule, Constraint, mean_interval
from evenhand.searching.options import SearchSettings
from evenhand.searching.people import SearchPeople
from evenhand.searching.scoring import Metrics, is_signed_gap, score_weighted, unweighted, with_sizes
from evenhand.system.threads import one_thread_each

Answer = Literal["confirmed", "not confirmed", "too few people to say"]

_WEIGHTINGS = 300  # the standard error is off by about 4%
_FEW_PEOPLE = 10  # of a group; with fewer, there is no answer
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Verdict:
    """Whether the people held out show what the search saw.

    Attributes
    ----------
    about
        The metric that is minimized, or a constraint as the user wrote it.
    answer
        ``"confirmed"`` if the whole interval says so, ``"not confirmed"`` if it excludes what the search saw, and
        ``"too few people to say"`` if it includes both.
    difference
        The metric minus the unconstrained model's, or minus the limit. Interval and p-value allow for the number of
        candidates reported.
    """

    about: str
    answer: Answer
    difference: Estimate


@dataclass(frozen=True)
class Confirmed:
    """A candidate on the people held out.

    Attributes
    ----------
    candidate
        Its number.
    metrics, differences
        Every metric, and its difference from the unconstrained model's.
    promised
        How much better it was during the search, in the metric that is minimized.
    objective, limits
        Whether that is confirmed, and each constraint.
    """

    candidate: int
    metrics: Mapping[str, float]
    differences: Mapping[str, Estimate]
    promised: float
    objective: Verdict
    limits: tuple[Verdict, ...]


@dataclass(frozen=True)
class Confirmation(Plain):
    """What the people held out say about the candidates that are reported.

    Attributes
    ----------
    n_people, smallest_group
        People held out, and those of the smallest group among them.
    confidence
        Level of each interval.
    unconstrained
        Metrics of the unconstrained model.
    candidates
        Those reported, best first.
    """

    n_people: int
    smallest_group: int
    confidence: float
    unconstrained: Mapping[str, float]
    candidates: tuple[Confirmed, ...]


@one_thread_each()
def confirm(
    models: Mapping[int, Any],
    people: SearchPeople,
    settings: SearchSettings,
    *,
    unconstrained: int,
    promised: Mapping[int, float],
    best: Mapping[str, int],
    rule: ChoiceRule,
) -> Confirmation:
    """Judge models on the people held out.

    Parameters
    ----------
    models
        Fitted on the people searched on, by the number of their candidate.
    people, settings
        Everyone, some of them held out, and how models are evaluated.
    unconstrained
        Number of the model with which others are compared.
    promised
        Candidates to report, with how much better each was during the search, in what is minimized.
    best
        For each metric of a constraint that names ``best``, the number of the model with the best value.
    rule
        The rule by which the candidates were chosen.
    """
    fold, rows = people.confirming_fold(settings), people.confirming
    # All rows of one person count as one, in the size of the groups and in the random weights.
    _, first, code = np.unique(people.units[rows], return_index=True, return_inverse=True)
    smallest = int(np.bincount(people.groups.codes[rows][first], minlength=len(people.groups.names)).min())
    drawn = np.random.default_rng(settings.random_state).exponential(size=(_WEIGHTINGS, len(first)))
    weights = np.vstack([np.ones(len(rows)), drawn[:, code]])
    scored = [score_weighted(model, fold, weights) for model in models.values()]
    by_name = {name: np.stack([own[name] for own in scored]) for name in scored[0]}
    equal = {name: values[:, 0] for name, values in by_name.items() if is_signed_gap(name)}
    sizes = with_sizes(by_name, equal, people.columns)
    metrics = {number: {name: values[k] for name, values in sizes.items()} for k, number in enumerate(models)}
    start, n_reported = metrics[unconstrained], max(1, len(promised))
    confidence = 1 - (1 - CONFIDENCE) / n_reported

    def difference(values: Floats) -> Estimate:
        """From the value with equal weights and those with random weights."""
        value, error = float(values[0]), float(np.std(values[1:], ddof=1))
        if smallest < _FEW_PEOPLE or not np.isfinite(value) or not np.isfinite(error):
            return Estimate(value)
        estimate = Estimate.from_error(value, error, max(1, smallest - 1), confidence=confidence)
        return replace(estimate, p_value=min(1.0, n_reported * estimate.p_value))

    def objective(own: Mapping[str, Floats], gain: float) -> Verdict:
        """Whether what is minimized is better than the unconstrained model's."""
        change = difference(own[rule.minimize] - start[rule.minimize])
        better = change.scaled(metric_of(rule.minimize).direction)
        return Verdict(rule.minimize, _answer(better.low > _ROUNDING, better.high < max(gain, _ROUNDING)), change)

    def limit(constraint: Constraint, own: Mapping[str, Floats]) -> Verdict:
        """Whether a constraint is met."""
        base = np.zeros(len(weights))
        if constraint.reference is not None:
            whose = best[constraint.metric] if constraint.reference == "best" else unconstrained
            base = metrics[whose][constraint.metric]
        distance = difference(own[constraint.metric] - constraint.limits(base))
        best_case, worst = constraint.missed(distance.low, distance.high, constraint.allowed(base[:1]))
        is_met, is_missed = worst <= _ROUNDING, best_case > _ROUNDING
        return Verdict(constraint.text, _answer(bool(is_met), bool(is_missed)), distance)

    candidates = tuple(
        Confirmed(
            candidate=number,
            metrics=unweighted(metrics[number]),
            differences={name: difference(values - start[name]) for name, values in metrics[number].items()},
            promised=gain,
            objective=objective(metrics[number], gain),
            limits=tuple(limit(constraint, metrics[number]) for constraint in rule.constraints),
        )
        for number, gain in promised.items()
    )
    return Confirmation(len(rows), smallest, confidence, unweighted(start), candidates)


def _answer(is_met: bool, is_missed: bool) -> Answer:
    return "confirmed" if is_met else "not confirmed" if is_missed else "too few people to say"


def confirmation_sentences(confirmation: Confirmation, minimize: str) -> tuple[str, ...]:
    """A sentence on what is minimized and one on the constraints, for each reported candidate."""
    sentences = []
    n = len(confirmation.candidates)
    for of in confirmation.candidates:
        sentence = (
            f"{capital(of.objective.answer)} for candidate {of.candidate}, on {count(confirmation.n_people)} people "
            f"held out: {metric_of(minimize).words} {decimal(of.metrics[minimize])} instead of "
            f"{decimal(confirmation.unconstrained[minimize])}"
        )
        change = of.objective.difference
        if math.isfinite(change.low):
            level = percent(confirmation.confidence, 0 if n == 1 else 1)
            allowing = f", which allows for {n} candidates" if n > 1 else ""
            why = ""
            if of.objective.answer == "not confirmed" and of.promised > 0:
                why = f" The interval excludes the gain that the search saw, {decimal(of.promised)}."
            elif of.objective.answer == "too few people to say":
                why = f" The interval includes both no gain and the gain that the search saw, {decimal(of.promised)}."
            sentence += (
                f", a difference of {decimal(change.value)} ({level} interval {interval(change.low, change.high)}"
                f"{allowing}).{why}"
            )
        else:
            sentence += f"; the smallest group has {count(confirmation.smallest_group)} of them."
        sentences.append(sentence)
        texts = {
            answer: [f"`{verdict.about}`" for verdict in of.limits if verdict.answer == answer]
            for answer in get_args(Answer)
        }
        parts = "; ".join(f"{answer}: {listed(about)}" for answer, about in texts.items() if about)
        if parts:
            sentences.append(f"Constraints of candidate {of.candidate} on the people held out: {parts}.")
    return tuple(sentences)


_FEW = 0.01  # share of approvals or of declines below which nearly all decisions are the same
_FEWER = 0.2  # the same, as a share of the unconstrained model's
_POINTS = 0.0005  # below half a tenth of a point, approvals are the same


def least_approved(metrics: Metrics, unconstrained: int) -> str:
    """The group that the unconstrained candidate approves least."""
    rates = {metric_of(name).of: values for name, values in metrics.items() if name.startswith("approval_rate[")}
    return min(rates, key=lambda group: float(np.nan_to_num(rates[group][unconstrained].mean(), nan=np.inf)))


def approval_warnings(metrics: Metrics, k: int, unconstrained: int, test_share: float) -> tuple[str, ...]:
    """Sentences on the approvals of candidate `k` compared with the unconstrained one."""
    if k == unconstrained or not np.isfinite(metrics["positive_rate"][k]).all():
        return ()
    sentences = []
    rate, start = (float(metrics["positive_rate"][who].mean()) for who in (k, unconstrained))
    for share, whole, words in ((1 - rate, 1 - start, "everyone"), (rate, start, "no one")):
        if share < min(whole, max(_FEW, _FEWER * whole)):
            sentences.append(
                f"Candidate {k} approves {words if share == 0 else f'nearly {words}'} ({percent(rate)} of the people; "
                f"the unconstrained one {percent(start)}): its gaps between groups are small for that reason alone."
            )
            break
    group = least_approved(metrics, unconstrained)
    rates = metrics[f"approval_rate[{group}]"]
    change = mean_interval(rates[k] - rates[unconstrained], test_share)
    if change.value < -_POINTS:
        noise = "" if change.excludes_zero else "; this is within noise"
        ends = f", 95% interval {interval(100 * change.low, 100 * change.high, 1)}{noise}"
        sentences.append(
            f"Candidate {k} approves fewer people of {group}, the group with the fewest approvals: "
            f"{percent(float(rates[k].mean()))} instead of {percent(float(rates[unconstrained].mean()))} "
            f"({decimal(100 * change.value, 1)} points{ends if math.isfinite(change.low) else ''})."
        )
    return tuple(sentences)
