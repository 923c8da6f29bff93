"""Whether scores are calibrated, group by group: reliability curves, calibration error, intercept and slope."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import special, stats
from statsmodels.genmod.families import Binomial
from statsmodels.genmod.generalized_linear_model import GLM

from evenhand.arrays import Floats, Ints
from evenhand.exceptions import InvalidInputError
from evenhand.metrics.disparity.intervals import effective_counts, membership_of, nobody_in, rate_estimate
from evenhand.metrics.estimate import (
    Estimate,
    Plain,
    RowWeights,
    binary_values,
    check_at_least,
    check_open_fraction,
    check_same_length,
    finite_scores,
    normal_quantile,
    not_estimable,
)

_PEOPLE_PER_BIN = 30
_DRAWS = 2_000
_STEEPEST = 100.0  # a larger slope means that the scores separate the labels


@dataclass(frozen=True)
class CalibrationBin(Plain):
    """People of one group with scores in one range.

    Attributes
    ----------
    lowest, highest
        Scores of the people in it.
    observed_rate
        Share with label 1; Wilson interval.
    """

    lowest: float
    highest: float
    n_people: int
    mean_score: float
    observed_rate: Estimate


@dataclass(frozen=True)
class GroupCalibration(Plain):
    """Predicted and observed rates of one group.

    Attributes
    ----------
    expected_calibration_error
        Mean distance between mean score and observed rate over bins, weighted by their people; the interval is
        conservative.
    error_by_chance
        Its average, for the same number of people, if the scores of every bin were right.
    intercept
        Calibration in the large: log-odds to add to everyone's score so that predicted and observed rates agree; below
        0, the scores predict more than was observed.
    slope
        Factor of the log-odds that fits the labels best, with a constant: 1 is right, below 1 scores are too extreme.
    bins
        Bins with equal numbers of people, as far as ties allow; empty ones are left out.
    """

    group: str
    n_people: int
    n_positive_label: int
    mean_score: float
    observed_rate: Estimate
    expected_calibration_error: Estimate
    error_by_chance: float
    intercept: Estimate
    slope: Estimate
    bins: tuple[CalibrationBin, ...]
    is_small_group: bool


@dataclass(frozen=True)
class CalibrationTable(Plain):
    """Calibration of every group.

    Attributes
    ----------
    outcome
        The outcome that the scores predict, which label 1 means here: the favorable outcome, or the unfavorable one for
        a risk model.
    groups
        Empty if scores are not probabilities.
    note
        Why it is empty.
    """

    outcome: str
    groups: tuple[GroupCalibration, ...]
    note: str = ""


def group_calibration(
    y: ArrayLike,
    score: ArrayLike,
    group: ArrayLike,
    *,
    names: Sequence[str] | None = None,
    frequency: ArrayLike | RowWeights | None = None,
    n_bins: int = 10,
    confidence: float = 0.95,
    small_group: int = 30,
    random_state: int = 0,
) -> list[GroupCalibration]:
    """Calibration of each group: its scores next to what was observed.

    Bins hold equal numbers of people of the group, at least 30 if the group has that many: ten bins, or fewer for a
    small group. The reliability curve is scikit-learn's `calibration_curve` with quantile bins.

    Parameters
    ----------
    y, score
        Labels, and probabilities of label 1, of shape (n,).
    group
        Integer codes of shape (n,).
    names, frequency
        A name for each code, and how many people each row stands for, or `RowWeights` of equal weights with clusters:
        rates then have effective counts, and intercept and slope errors by cluster.
    n_bins
        Largest number of bins of a group.
    confidence
        Level of the intervals.
    small_group
        Groups with fewer people are flagged, but still shown.
    random_state
        Seed of the draws behind the interval of the calibration error.

    Raises
    ------
    InvalidInputError
        If scores are not within [0, 1], or people have different weights.

    Examples
    --------
    >>> found = group_calibration([0, 1, 1, 0, 1, 0], [0.2, 0.8, 0.6, 0.1, 0.4, 0.3], [0, 0, 0, 1, 1, 1])
    >>> [round(one.mean_score, 3) for one in found], found[0].observed_rate.value
    ([0.533, 0.267], 0.6666666666666666)
    """
    labels, scores = binary_values(y, "y"), finite_scores(score)
    check_same_length({"y": labels, "score": scores})
    members = membership_of(group, len(labels), names, frequency)
    check_open_fraction(confidence, "confidence")
    check_at_least(n_bins, 1, "n_bins")
    if not members.weights.is_equal:
        raise InvalidInputError("Calibration by group needs equal weights, got sampling weights; leave them out.")
    n_outside = int(((scores < 0) | (scores > 1)).sum())
    if n_outside:
        raise InvalidInputError(f"`score` must hold probabilities, got {n_outside} values outside [0, 1].")

    def row(code: int) -> GroupCalibration:
        chosen = np.flatnonzero(members.codes == code)
        chosen = chosen[np.argsort(scores[chosen], kind="stable")]
        if not len(chosen):
            nothing = not_estimable(nobody_in(members, code))
            return GroupCalibration(
                members.names[code], 0, 0, math.nan, nothing, nothing, math.nan, nothing, nothing, (), True
            )
        of_group = y_of, score_of, weights = labels[chosen], scores[chosen], members.weights.rows(chosen)
        n, n_positive = int(weights.count.sum()), int(weights.count @ y_of)
        ones, people = effective_counts(np.zeros(len(chosen), dtype=np.int64), 1, y_of, weights)
        bins, worth = _bins(*of_group, max(1, min(n_bins, n // _PEOPLE_PER_BIN)), confidence)
        error, by_chance = _calibration_error(bins, worth, confidence, random_state)
        intercept, slope = _recalibration(*of_group, confidence)
        return GroupCalibration(
            group=members.names[code],
            n_people=n,
            n_positive_label=n_positive,
            mean_score=float(weights.count @ score_of) / n,
            observed_rate=rate_estimate(float(ones[0]), float(people[0]), confidence),
            expected_calibration_error=error,
            error_by_chance=by_chance,
            intercept=intercept,
            slope=slope,
            bins=bins,
            is_small_group=n < small_group,
        )

    return [row(code) for code in range(len(members.names))]


def _bins(
    labels: Ints, scores: Floats, weights: RowWeights, n_bins: int, confidence: float
) -> tuple[tuple[CalibrationBin, ...], Ints]:
    """The bins, and the effective number of people of each."""
    edges = _quantiles(scores, weights.count, np.arange(1, n_bins) / n_bins)
    place = np.searchsorted(edges, scores)
    n_people = np.bincount(place, weights.count, minlength=n_bins).round().astype(np.int64)
    promised = np.bincount(place, weights.count * scores, minlength=n_bins)
    observed, people = effective_counts(place, n_bins, labels, weights)

    bins = []
    for number in np.flatnonzero(n_people):
        n, inside = int(n_people[number]), scores[place == number]
        rate = rate_estimate(float(observed[number]), float(people[number]), confidence)
        bins.append(CalibrationBin(float(inside[0]), float(inside[-1]), n, float(promised[number]) / n, rate))
    return tuple(bins), np.maximum(np.rint(people[n_people > 0]), 1).astype(np.int64)


def _quantiles(ordered: Floats, times: Ints, shares: Floats) -> Floats:
    """Quantiles of people, as in `np.quantile`, from ordered values and how many people have each."""
    upto = np.cumsum(times)
    position = shares * (upto[-1] - 1)
    below = np.floor(position)
    low, high = (
        ordered[np.searchsorted(upto, np.minimum(at, upto[-1] - 1), side="right")] for at in (below, below + 1)
    )
    part, gap = position - below, high - low
    # Interpolate like numpy: from the nearer end, so that a tie gives the value itself.
    return np.asarray(np.where(part < 0.5, low + gap * part, high - gap * (1 - part)), dtype=np.float64)


def _calibration_error(
    bins: Sequence[CalibrationBin], worth: Ints, confidence: float, random_state: int
) -> tuple[Estimate, float]:
    """The calibration error with its interval, and its mean if the scores were right; `worth` are effective people.

    Chance increases the error, so that bootstrap intervals miss the true one: for calibrated scores, in half of all
    cases. By the triangle inequality, chance changes it by no more than the mean distance between observed and true
    rates. The quantile of that distance among draws from the observed rates is the length of this interval on each
    side, which makes it conservative.
    """
    n = np.array([one.n_people for one in bins])
    promised = np.array([one.mean_score for one in bins])
    observed = np.array([one.observed_rate.value for one in bins])
    weights = n / n.sum()
    value = float(weights @ np.abs(promised - observed))
    drawn = np.random.default_rng(random_state).binomial(worth, observed, size=(_DRAWS, len(n))) / worth
    reach = float(np.quantile(np.abs(drawn - observed) @ weights, confidence))
    low, high = max(value - reach, 0.0), min(value + reach, 1.0)
    # The mean absolute deviation of a binomial (De Moivre 1730), exactly.
    above = np.floor(worth * promised) + 1
    deviation = 2 * above * (1 - promised) * stats.binom.pmf(above, worth, promised) / worth
    return Estimate(value, low, high), float(weights @ deviation)


def _recalibration(labels: Ints, scores: Floats, weights: RowWeights, confidence: float) -> tuple[Estimate, Estimate]:
    """Intercept at a slope of 1, and slope with an intercept, of log-odds: binomial regressions of statsmodels."""
    n_sure = int(weights.count[(scores <= 0) | (scores >= 1)].sum())
    reason = ""
    if n_sure:
        reason = f"{n_sure:,} people have a score of 0 or 1, whose log-odds are infinite"
    elif (labels == labels[0]).all():
        reason = "everyone has the same label"
    if reason:
        return not_estimable(f"not estimable: {reason}"), not_estimable(f"not estimable: {reason}")
    log_odds = special.logit(scores)
    constant = np.ones((len(labels), 1))
    intercept = _coefficient(labels, constant, weights, confidence, offset=log_odds)
    if np.ptp(log_odds) == 0:
        return intercept, not_estimable("not estimable: everyone has the same score")
    return intercept, _coefficient(labels, np.column_stack([constant, log_odds]), weights, confidence)


def _coefficient(
    labels: Ints, design: Floats, weights: RowWeights, confidence: float, offset: Floats | None = None
) -> Estimate:
    """The last coefficient of a binomial regression; with clusters, its error is that of the sandwich formula."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")  # separation is checked below
        fitted = GLM(labels, design, family=Binomial(), offset=offset, freq_weights=weights.count).fit()
        value = float(fitted.params[-1])
        low, high = fitted.conf_int(alpha=1 - confidence)[-1]
    if not math.isfinite(value) or abs(value) > _STEEPEST or not fitted.converged:
        return not_estimable("not estimable: the scores separate the labels perfectly")
    if weights.clusters is not None:
        influence = (fitted.resid_response[:, None] * design) @ fitted.normalized_cov_params[-1]
        half = normal_quantile(confidence) * math.sqrt(weights.variance(influence))
        low, high = value - half, value + half
    return Estimate(value, float(low), float(high))
