r"""Differences in means between groups known as probabilities, by three estimators with different biases.

With :math:`p_g` the probability of group g and y an outcome, such as a decision or a score:

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

from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from evenhand.metrics.estimate import Plain

__all__ = ["GroupContrast", "group_contrasts"]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]


@dataclass(frozen=True)
class GroupContrast(Plain):
    """A mean of a group, and of the reference group, by each estimator; NaN if no one is left."""

    thresholding: tuple[float, float]
    weighting: tuple[float, float]
    group_alone: tuple[float, float]

    @property
    def differences(self) -> dict[str, float]:
        """Group minus reference, by estimator."""
        return {name: means[0] - means[1] for name, means in vars(self).items()}

    @property
    def ratios(self) -> dict[str, float]:
        """Group over reference, by estimator; NaN if the mean of the reference is not above 0."""
        return {name: means[0] / means[1] if means[1] > 0 else float("nan") for name, means in vars(self).items()}


def group_contrasts(
    values: NDArray[np.floating] | Ints, probabilities: Floats, thresholded: Ints, reference: int
) -> dict[int, GroupContrast]:
    """Means of each group next to those of the reference group.

    Parameters
    ----------
    values
        The outcome of each person, of shape (n,).
    probabilities
        Probability of each group, of shape (n, G); rows sum to 1.
    thresholded
        The group assigned to each person, -1 for those left out.
    reference
        The group that the others are compared with.

    Examples
    --------
    >>> p = np.array([[0.9, 0.1], [0.9, 0.1], [0.2, 0.8], [0.6, 0.4]])
    >>> found = group_contrasts(np.array([1.0, 1.0, 0.0, 1.0]), p, np.array([0, 0, 1, -1]), 0)[1]
    >>> {name: round(value, 3) for name, value in found.differences.items()}
    {'thresholding': -1.0, 'weighting': -0.495, 'group_alone': -1.364}
    """
    n_groups = probabilities.shape[1]
    known = np.eye(n_groups)[thresholded] * (thresholded >= 0)[:, None]
    with np.errstate(invalid="ignore", divide="ignore"):
        means = {
            "thresholding": (values @ known) / known.sum(axis=0),
            "weighting": (values @ probabilities) / probabilities.sum(axis=0),
        }
    fitted, _, rank, _ = np.linalg.lstsq(probabilities, np.asarray(values, dtype=np.float64), rcond=None)
    means["group_alone"] = fitted if rank == n_groups else np.full(n_groups, np.nan)
    return {
        code: GroupContrast(**{name: (float(of[code]), float(of[reference])) for name, of in means.items()})
        for code in range(n_groups)
        if code != reference
    }
