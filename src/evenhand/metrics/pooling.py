r"""Pool estimates over several draws of the groups, and use group probabilities without draws.

Each draw gives an estimate :math:`\hat\theta_m` with the variance :math:`U_m` that it would have if its groups were
known. The pooled estimate is their mean. By Rubin's rules (1987), its variance is :math:`T = \bar U + (1 + 1/M) B`,
with B the variance between draws, and the degrees of freedom are those of Barnard and Rubin (1999).

T is meant for values imputed by a model fitted to the same data. Here the probabilities are given, and do not depend
on the people whose groups are drawn. Then an estimate with drawn groups has the variance U, of which B is due to the
draw, so that the mean over all draws has

.. math:: \mathrm{Var}\, E[\hat\theta_m \mid \text{data}] = U - B,

and T is too large by 2 B (Meng 1994 and Robins and Wang 2000 discuss when that happens). The difference of two
estimated variances can be negative. So the variance of the mean is estimated without a difference: with :math:`s_m`
the influences of people on the estimate of a draw, scaled to the squared length :math:`U_m`, it is the squared length
of their mean over draws. That is U if all draws are equal, and tends to U - B + B / M in general.

Without draws, three estimators of a group's mean have different biases. With :math:`p_g` the probability of group g and
y an outcome, such as a decision or a score:

- *weighting* takes :math:`\sum p_g y / \sum p_g` as the mean of the group. Its error is
  :math:`-E[\mathrm{Cov}(1_g, y \mid \text{proxies})] / P(g)` (Chen, Kallus, Mao, Svacha and Udell 2019): zero if the
  outcome depends on the group only through the proxies, and toward no difference if, among people with the same
  proxies, the group fares worse as it does overall. Draws from the probabilities share that error.
- *thresholding* takes the most likely group of people for whom it is likely enough, and leaves the others out. In
  addition to the error of weighting, people who are surely in a group may differ from the rest of it.
- *the group alone* fits :math:`E[y \mid p] = \sum_g p_g \mu_g` by least squares: it has no error if the outcome
  depends on the group and, given the group, not on the proxies, which McCartan, Fisher, Goldin, Ho and Imai (2025)
  assume for surnames.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from evenhand.arrays import Floats, Ints
from evenhand.metrics.estimate import Estimate, p_two_sided, student_quantile


@dataclass(frozen=True, eq=False)
class DrawnEstimate:
    """An estimate of one draw.

    Attributes
    ----------
    estimate
        With its 95% interval, as if the groups of the draw were known; for ratios, on the logarithmic scale.
    influence
        Influences of people, or of buckets of people, the same in all draws, up to a factor; None if unknown.
    """

    estimate: Estimate
    influence: NDArray[np.floating] | None = None


@dataclass(frozen=True)
class Pooled(Estimate):
    """An estimate pooled over draws.

    The standard error and the degrees of freedom are those of the interval: see the module. If influences are unknown,
    those of Rubin's rules. The p-value is two-sided, and NaN if the estimate is not tested in most draws.

    Attributes
    ----------
    within_sd, between_sd
        Standard error as if groups were known, and standard deviation over draws.
    missing_information
        The share of the total variance of Rubin's rules that is due to the draws, (1 + 1/M) B / T.
    rubin_low, rubin_high
        The 95% interval of Rubin's rules, which is wider.
    """

    within_sd: float = math.nan
    between_sd: float = math.nan
    missing_information: float = math.nan
    rubin_low: float = math.nan
    rubin_high: float = math.nan


def rubin(values: Sequence[float], variances: Sequence[float], df: float = math.inf) -> Pooled:
    """Combine estimates of draws and their variances; `df` are the degrees of freedom if nothing were missing.

    Examples
    --------
    >>> pooled = rubin([1.0, 2.0, 3.0], [1.0, 1.0, 1.0])
    >>> pooled.value, pooled.within_sd, pooled.between_sd, round(pooled.standard_error**2, 3)
    (2.0, 1.0, 1.0, 2.333)
    """
    estimates, n = np.asarray(values, dtype=np.float64), len(values)
    value = float(estimates[0] + (estimates - estimates[0]).mean())  # exact if all are the same
    within, between = float(np.mean(variances)), float(np.square(estimates - value).sum() / (n - 1))
    added = (1 + 1 / n) * between
    error, share = math.sqrt(within + added), added / (within + added) if added else 0.0
    if share:
        of_draws = (n - 1) / share**2
        observed = math.inf if math.isinf(df) else (df + 1) / (df + 3) * df * (1 - share)
        df = 1 / (1 / of_draws + 1 / observed) if observed else of_draws  # none is observed if only the draws vary
    half = student_quantile(0.95, df) * error if error else 0.0
    low, high = value - half, value + half
    spread = (math.sqrt(within), math.sqrt(between), share)
    return Pooled(value, low, high, error, math.nan, None, "", df, math.nan, *spread, low, high)


def pooled_influence(draws: Sequence[DrawnEstimate]) -> Floats | None:
    """Influences on the mean of the draws, whose squared length is its variance; None if any are unknown."""
    total: Floats | None = None
    for draw in draws:
        error = draw.estimate.standard_error
        if draw.influence is None or math.isnan(error):
            return None
        influence = draw.influence.astype(np.float64)
        size = float(np.linalg.norm(influence))
        if math.isnan(size) or (size == 0 and error > 0):
            return None
        scaled = influence * (error / size if size else 0.0)
        total = scaled if total is None else total + scaled
    return None if total is None else total / len(draws)


def pool(draws: Sequence[DrawnEstimate]) -> Pooled:
    """Pool the estimates of at least two draws.

    Each end of the interval is as far from the estimate as the root mean square over the draws, scaled by the ratio of
    the standard errors: an interval that is not symmetric stays so. It is tested if most draws have a p-value.

    Examples
    --------
    >>> one = DrawnEstimate(Estimate(0.5, 0.3, 0.8, 0.1, df=math.inf), np.array([0.6, -0.8]))
    >>> pooled = pool([one, one])
    >>> round(pooled.low, 9), round(pooled.high, 9), pooled.between_sd, pooled.missing_information
    (0.3, 0.8, 0.0, 0.0)
    """
    values, low, high, errors, p_values, df = np.array(
        [(e.value, e.low, e.high, e.standard_error, e.p_value, e.df) for e in (draw.estimate for draw in draws)]
    ).T
    counts = [draw.estimate.n for draw in draws if draw.estimate.n is not None]
    n = round(float(np.mean(counts))) if counts else None
    n_absent = int((~np.isfinite(values)).sum())
    if n_absent:
        return Pooled(math.nan, n=n, note=f"not estimable in {n_absent} of {len(draws)} draws")
    complete = float(df.mean())
    pooled = rubin(values.tolist(), np.square(errors).tolist(), complete)
    influence = pooled_influence(draws)
    if influence is None:
        error, pooled_df = pooled.standard_error, pooled.df
        quantiles = student_quantile(0.95, pooled_df) / student_quantile(0.95, complete)
    else:
        error, pooled_df, quantiles = float(np.linalg.norm(influence)), complete, 1.0
    wider = error * quantiles / pooled.within_sd if pooled.within_sd else 1.0
    below, above = (math.sqrt(float(np.mean(np.square(values - ends)))) for ends in (low, high))
    is_tested = 2 * int(np.isfinite(p_values).sum()) > len(draws)
    return replace(
        pooled,
        low=pooled.value - wider * below,
        high=pooled.value + wider * above,
        standard_error=error,
        p_value=p_two_sided(pooled.value, error, pooled_df if error > 0 else math.inf) if is_tested else math.nan,
        n=n,
        df=pooled_df,
        n_effective=float(np.mean([draw.estimate.n_effective for draw in draws])),
    )


def group_means(values: NDArray[np.floating] | Ints, probabilities: Floats, thresholded: Ints) -> dict[str, Floats]:
    """Mean of each group by each estimator, of shape (G,); NaN if no one is left.

    Parameters
    ----------
    values
        The outcome of each person, of shape (n,).
    probabilities
        Probability of each group, of shape (n, G); rows sum to 1.
    thresholded
        The group assigned to each person, -1 for those left out.

    Examples
    --------
    >>> p = np.array([[0.9, 0.1], [0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    >>> means = group_means(np.array([1.0, 1.0, 0.0, 1.0]), p, np.array([0, 0, 1, -1]))
    >>> {name: round(float(mean[1] - mean[0]), 3) for name, mean in means.items()}
    {'thresholding': -1.0, 'weighting': -0.495, 'group_alone': -1.364}
    """
    n_groups = probabilities.shape[1]
    known = np.eye(n_groups)[thresholded] * (thresholded >= 0)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        by_threshold = (values @ known) / known.sum(axis=0)
        weighted = (values @ probabilities) / probabilities.sum(axis=0)
    fitted, _, rank, _ = np.linalg.lstsq(probabilities, np.asarray(values, dtype=np.float64), rcond=None)
    alone = fitted if rank == n_groups else np.full(n_groups, np.nan)
    return {"thresholding": by_threshold, "weighting": weighted, "group_alone": alone}
