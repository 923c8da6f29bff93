r"""Candidates compared on the same folds, beyond the noise of a cross-validation.

Metrics of two candidates on the same fold share its people, so differences are taken fold by fold. Training sets of
different folds overlap, which makes the differences look steadier than they are. Nadeau and Bengio's correction
(Machine Learning 52, 2003) widens the variance of the mean of k differences of variance :math:`s^2`:

.. math:: \left(\frac1k + \frac{n_\text{test}}{n_\text{train}}\right) s^2,

with :math:`k - 1` degrees of freedom.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats

__all__ = ["Difference", "front", "mean_interval", "paired_difference", "standard_error", "worse_beyond_noise"]

Floats: TypeAlias = NDArray[np.float64]

CONFIDENCE = 0.95


@dataclass(frozen=True)
class Difference:
    """A mean over folds, or a mean difference, with its interval; NaN if it cannot be estimated."""

    value: float
    ci_low: float
    ci_high: float

    @property
    def is_beyond_noise(self) -> bool:
        """Whether the interval excludes 0."""
        return bool(self.ci_low > 0 or self.ci_high < 0)


def mean_interval(values: Floats, test_share: float) -> Difference:
    """Mean over folds of a metric, with the corrected interval.

    Parameters
    ----------
    values
        One per fold; NaN for a fold in which the metric could not be estimated.
    test_share
        Test people over training people.

    Examples
    --------
    >>> found = mean_interval(np.array([0.8, 0.7, 0.75, 0.85, 0.9]), test_share=0.25)
    >>> round(found.value, 3), round(found.ci_low, 3), round(found.ci_high, 3)
    (0.8, 0.653, 0.947)
    """
    known = values[np.isfinite(values)]
    if len(known) < len(values) or len(known) < 2:
        value = float(known.mean()) if len(known) == len(values) and len(known) else float("nan")
        return Difference(value, float("nan"), float("nan"))
    half = float(_half_width(known[None, :], test_share)[0])
    mean = float(known.mean())
    return Difference(mean, mean - half, mean + half)


def paired_difference(first: Floats, second: Floats, test_share: float) -> Difference:
    """Mean over folds of `first` minus `second`, with the corrected interval."""
    return mean_interval(first - second, test_share)


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
    half = _half_width(difference.reshape(-1, values.shape[1]), test_share).reshape(mean.shape)
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


def _half_width(differences: Floats, test_share: float) -> Floats:
    """Half the corrected interval of each row's mean."""
    k = differences.shape[1]
    return np.asarray(stats.t.ppf((1 + CONFIDENCE) / 2, max(1, k - 1)) * standard_error(differences, test_share))
