"""How far an outcome of a group differs from that of a reference group with controls held equal: one regression.

A decision is regressed with a logit, reported as the average marginal effect of the group; any other outcome with
ordinary least squares. Both use statsmodels.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import special
from statsmodels.discrete.discrete_model import Logit
from statsmodels.regression.linear_model import OLS

from evenhand.arrays import Bools, Floats
from evenhand.metrics.estimate import Estimate, not_estimable

Method: TypeAlias = Literal["logit", "ols"]

FEWEST_PEOPLE = 30
"""Smallest number of people in each group for an estimate."""

PEOPLE_PER_COLUMN = 10
"""Smallest number of people, with the rarer decision in a logit, per column of the regression."""

_ROUNDING = 1e-10  # standard deviation of a constant, as a share of it
_REDUNDANT = 1e-6  # what remains of a standardized column next to the others, as a share of it
_EXACT = 1e-6  # what remains of an outcome, as a share of its standard deviation
_MOST_STEPS = 50
_NAMED = 8  # columns named in a note
_INFINITE = 15.0  # log-odds of a group that a logit does not bound


@dataclass(frozen=True, eq=False)
class Controls:
    """Columns that are held equal, of shape (n, p), and their names; an input may have several."""

    names: tuple[str, ...]
    values: Floats

    @classmethod
    def none(cls, n: int) -> Controls:
        """No controls of `n` people."""
        return cls((), np.zeros((n, 0)))

    def rows(self, chosen: Bools) -> Controls:
        """Select some of the people."""
        return Controls(self.names, self.values[chosen])

    def columns(self, chosen: Sequence[int] | NDArray[np.int64]) -> Controls:
        """Select some of the columns."""
        return Controls(tuple(self.names[j] for j in chosen), self.values[:, list(chosen)])


@dataclass(frozen=True)
class GroupEffect(Estimate):
    """Outcome of a group minus that of the reference group, with controls held equal.

    For a logit, it is the average marginal effect, in shares of people. The p-value is two-sided.

    Attributes
    ----------
    n_group
        People of the group among the `n` in the regression; None if unknown.
    n_controls
        Columns that are held equal; None if it is not a regression.
    odds_ratio
        Odds of a favorable outcome in the group divided by those in the reference group, with controls held equal;
        None unless a logit was estimated.
    """

    n_group: int | None = None
    n_controls: int | None = None
    odds_ratio: Estimate | None = None

    def to_dict(self) -> dict[str, Any]:
        """Plain fields, with `n` also as `n_people`."""
        return {**super().to_dict(), "n_people": self.n}


@dataclass(frozen=True, eq=False)
class _Sample:
    """People of two groups: outcome, who is in the group, controls, and which rows are the same person."""

    outcome: Floats
    is_group: Bools
    controls: Controls
    clusters: NDArray[np.int64] | None

    def rows(self, chosen: Bools) -> _Sample:
        clusters = None if self.clusters is None else self.clusters[chosen]
        return _Sample(self.outcome[chosen], self.is_group[chosen], self.controls.rows(chosen), clusters)

    @property
    def design(self) -> Floats:
        """A constant, the group and the controls."""
        return np.column_stack([np.ones(len(self.outcome)), self.is_group, self.controls.values])

    @property
    def errors(self) -> dict[str, Any]:
        """Name of the standard errors in statsmodels; for a logit, HC1 is White's without a factor."""
        if self.clusters is None:
            return {"cov_type": "HC1"}
        return {"cov_type": "cluster", "cov_kwds": {"groups": np.unique(self.clusters, return_inverse=True)[1]}}


def is_binary(outcome: Floats) -> bool:
    """Whether an outcome is a decision: zeros and ones where it is known."""
    return bool(np.isin(outcome[np.isfinite(outcome)], (0.0, 1.0)).all())


def group_effect(
    outcome: Floats,
    is_group: Bools,
    controls: Controls,
    *,
    method: Method,
    group: str = "the group",
    reference: str = "the reference",
    clusters: NDArray[np.int64] | None = None,
    confidence: float = 0.95,
) -> GroupEffect:
    """How far the outcome of a group differs from that of the reference group with controls held equal.

    Errors are robust to unequal variances: HC1 for ordinary least squares, White's for the logit, and clustered for
    both if people repeat. Intervals are Student's for ordinary least squares and normal for the logit, whose average
    marginal effect has the error of the delta method.

    Controls that are linear combinations of preceding ones are left out and named. In a logit, so are yes-or-no
    controls whose "yes" always comes with the same decision, together with those people.

    Parameters
    ----------
    outcome
        Of shape (n,); people without an outcome are left out.
    is_group
        True for people of the group, False for those of the reference group.
    controls
        What is held equal.
    method
        ``"logit"`` for an outcome of zeros and ones, or ``"ols"``.
    group, reference
        Names of the two groups, for notes.
    clusters
        A number for each person, equal for rows of the same person; None if no one repeats.
    confidence
        Level of the interval.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> is_group = np.arange(400) % 2 == 0
    >>> decision = (rng.random(400) < np.where(is_group, 0.4, 0.6)).astype(float)
    >>> found = group_effect(decision, is_group, Controls.none(400), method="logit")
    >>> bool(np.isclose(found.value, decision[is_group].mean() - decision[~is_group].mean()))
    True
    """
    sample = _Sample(outcome, is_group, controls, clusters).rows(np.isfinite(outcome))
    certain = ""
    if method == "logit":
        sample, certain = _without_certain(sample)
    sample, is_told_apart, redundant = _independent(sample)
    reason = _unfit(sample, method, group, reference)
    if not reason and not is_told_apart:
        reason = f"not estimable: the controls determine who is in {group!r}"
    regress = _logit if method == "logit" else _least_squares
    estimate = not_estimable(reason) if reason else regress(sample, confidence)
    note = "; ".join(text for text in (estimate.note, certain, redundant) if text)
    counts = {
        "n": len(sample.outcome),
        "n_group": int(sample.is_group.sum()),
        "n_controls": len(sample.controls.names),
    }
    return GroupEffect(**{**vars(estimate), **counts, "note": note})


def _unfit(sample: _Sample, method: Method, group: str, reference: str) -> str:
    """Why there are too few people for a regression; empty if there are enough."""
    for name, chosen in ((group, sample.is_group), (reference, ~sample.is_group)):
        n = int(chosen.sum()) if sample.clusters is None else len(np.unique(sample.clusters[chosen]))
        if n < FEWEST_PEOPLE:
            return f"not estimable: {n} people in {name!r}, but at least {FEWEST_PEOPLE} are needed"
        values = sample.outcome[chosen]
        if (values == values[0]).all():
            return f"not estimable: the outcome of everyone in {name!r} is {values[0]:g}"
    n_columns = len(sample.controls.names) + 2
    n_people = len(sample.outcome)
    if method == "logit":
        n_people = int(min(sample.outcome.sum(), (1 - sample.outcome).sum()))
    if n_people < PEOPLE_PER_COLUMN * n_columns:
        who = "people with the rarer decision" if method == "logit" else "people"
        return (
            f"not estimable: {n_people:,} {who} for {n_columns} columns, but at least {PEOPLE_PER_COLUMN} for each "
            "are needed"
        )
    return ""


# --- what is left out ---


def _without_certain(sample: _Sample) -> tuple[_Sample, str]:
    """Remove yes-or-no controls whose rarer answer always comes with the same decision, and those people.

    Their coefficient would be infinite, and they carry no information about the group.
    """
    left: list[str] = []
    n_before = len(sample.outcome)
    while True:
        controls, rare = sample.controls, _rarer_answer(sample.controls.values)
        n, favorable = rare.sum(axis=0), sample.outcome @ rare
        certain = np.flatnonzero((n > 0) & ((favorable == 0) | (favorable == n)))
        if not len(certain) or not len(sample.outcome):
            break
        left += [controls.names[j] for j in certain]
        kept = np.setdiff1d(np.arange(len(controls.names)), certain)
        stay = np.asarray(~rare[:, certain].any(axis=1), dtype=bool)
        sample = replace(sample, controls=controls.columns(kept)).rows(stay)
    if not left:
        return sample, ""
    n_left = n_before - len(sample.outcome)
    return sample, f"{n_left:,} people left out, whose decision follows from {_listed(left)}"


def _rarer_answer(values: Floats) -> Bools:
    """Who has the rarer of the two values of each column; no one if a column does not have two values."""
    if not values.size:
        return np.zeros(values.shape, dtype=bool)
    low, high = values.min(axis=0), values.max(axis=0)
    is_high = values == high
    is_two = ((values == low) | is_high).all(axis=0) & (low < high)
    few_are_high = is_high.mean(axis=0) <= 0.5
    return np.asarray(np.where(few_are_high, is_high, ~is_high) & is_two, dtype=bool)


def _independent(sample: _Sample) -> tuple[_Sample, bool, str]:
    """Standardized controls without those determined by others; whether they leave the group undetermined."""
    values = sample.controls.values
    if not len(values):
        return sample, True, ""
    spread = values.std(axis=0)
    moves = np.flatnonzero(spread > _ROUNDING * np.abs(values).max(axis=0, initial=0.0))
    standard = (values[:, moves] - values[:, moves].mean(axis=0)) / spread[moves]
    membership = sample.is_group - sample.is_group.mean()
    norm = float(np.sqrt((membership**2).mean())) or 1.0
    columns = np.column_stack([standard, membership / norm])
    triangle: Floats = np.asarray(np.linalg.qr(columns, mode="r")) / math.sqrt(len(columns))
    basis = np.zeros((len(triangle), 0))
    kept = []
    for place, column in enumerate(triangle.T):
        rest = column - basis @ (basis.T @ column)
        rest -= basis @ (basis.T @ rest)  # again, to remove rounding errors
        size = float(np.linalg.norm(rest))
        if size > _REDUNDANT:
            basis = np.column_stack([basis, rest / size])
            kept.append(place)
    is_told_apart = len(moves) in kept
    chosen = [j for j in kept if j < len(moves)]
    redundant = [sample.controls.names[j] for j in np.delete(moves, chosen)]
    controls = Controls(sample.controls.columns(moves[chosen]).names, standard[:, chosen])
    note = f"left out, because other controls determine them: {_listed(redundant)}" if redundant else ""
    return replace(sample, controls=controls), is_told_apart, note


def _listed(names: Sequence[str]) -> str:
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return ", ".join(names[:_NAMED]) + more


# --- the two regressions ---


def _least_squares(sample: _Sample, confidence: float) -> Estimate:
    """The group's coefficient."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a warning that there are fewer clusters than columns
        fitted = OLS(sample.outcome, sample.design).fit(use_t=True, **sample.errors)
    value, spread = float(fitted.params[1]), float(sample.outcome.std())
    if float(np.abs(fitted.resid).max()) <= _EXACT * spread:
        value = value if abs(value) > _EXACT * spread else 0.0
        note = "exact: group and controls determine the outcome"
        return replace(Estimate.from_error(value, 0.0), note=note)
    low, high = fitted.conf_int(alpha=1 - confidence)[1]
    return Estimate(value, float(low), float(high), float(fitted.bse[1]), float(fitted.pvalues[1]))


def _logit(sample: _Sample, confidence: float) -> Estimate:
    """The average marginal effect of the group, and its odds ratio."""
    design, is_solved = sample.design, True
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # the causes of their warnings are checked below
        try:
            fitted = Logit(sample.outcome, design).fit(maxiter=_MOST_STEPS, disp=False, **sample.errors)
        except np.linalg.LinAlgError:  # statsmodels before 0.15, also on the way to infinite coefficients
            fitted, is_solved = Logit(sample.outcome, design).fit(method="bfgs", maxiter=_MOST_STEPS, disp=False), False
    parameters = np.asarray(fitted.params)
    # Separated: every decision is on its side of one half.
    if np.abs(sample.outcome - special.expit(design @ parameters)).max() < 0.5:
        return not_estimable(
            "not estimable: group and controls separate the decisions perfectly, as inputs do those of a linear score"
        )
    if not is_solved or not np.isfinite(parameters).all():
        return not_estimable("not estimable: the logit has no unique solution")
    if abs(parameters[1]) > _INFINITE:
        return not_estimable("not estimable: with controls held equal, the decision follows from the group alone")
    if not fitted.mle_retvals["converged"]:
        return not_estimable(
            f"not estimable: the logit did not converge in {_MOST_STEPS} steps; some controls together predict some "
            "decisions perfectly"
        )
    # Not `get_margeff`: it does the same for every column, by numerical derivatives, in 6 s where this takes 20 ms
    # (30,000 people, 60 columns).
    rest = design @ parameters - design[:, 1] * parameters[1]
    inside, outside = special.expit(rest + parameters[1]), special.expit(rest)
    slope_inside, slope_outside = inside * (1 - inside), outside * (1 - outside)
    gradient = design.T @ (slope_inside - slope_outside) / len(design)
    gradient[1] = slope_inside.mean()
    error = math.sqrt(float(gradient @ np.asarray(fitted.cov_params()) @ gradient))
    effect = Estimate.from_error(float((inside - outside).mean()), error, confidence=confidence)
    low, high = np.exp(fitted.conf_int(alpha=1 - confidence)[1]).tolist()
    return GroupEffect(**vars(effect), odds_ratio=Estimate(math.exp(parameters[1]), low, high))
