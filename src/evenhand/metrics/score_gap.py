r"""The score gap at equal finances: who is worse off, by how much, and through which inputs.

For a person i and a match j of the other group, let z be i with j's finances. The average is taken of
:math:`D = \phi(z) - \phi(j)`, both explained from i's baseline: one value per feature, with the sum
:math:`f(z) - f(j)`. The financial features of z and j are the same, but what correlates with finances is not. So D is
regressed on the sign s (+1 if i is in the group, -1 if i is in the reference group) and on differences
:math:`h(i) - h(j)` of functions of the finances, without an intercept, because exchanging i and j changes the sign of
all of them. The coefficient of s is the gap of the group minus the reference group at equal finances. Both groups
have the same weight; within a group, so do people, unless they have sampling weights.

A person may be in many pairs. With :math:`S_v` the sum of the influences of all rows that contain person v, divided
by :math:`\sqrt{1 - 2 c_v}`, where :math:`c_v` is the person's share of the weight, the variance is
:math:`\sum_v S_v S_v^\top`. If a small group happens to have few people with a rare input, that is far too small. If
there is no gap, what remains of D after the finances has the same variance in both groups, so the estimate, a sum of
:math:`A_v u_v` over people, also has the variance :math:`\sum_v A_v^2` times half the mean squared residual. The larger
of the two is used. Few people may have an input: the degrees of freedom are the smaller of
:math:`(\sum S^2)^2 / \sum S^4 - 1` and the value that :math:`A_v` and the kurtosis of the residuals give, and a feature
with fewer than 12 is not tested.

Decisions are different: D is 0 for most pairs, and 1 or -1 for pairs near the threshold. The kurtosis of such
residuals is one over the share of pairs that differ, which means that few pairs count, not that few people do. So
their degrees of freedom are those of S, and decisions are tested from 5 on; the variance is the same, and too large
rather than too small if few pairs differ.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from evenhand.metrics.estimate import p_two_sided, size_found
from evenhand.metrics.gap_sums import FinanceControls, GapMoments, GapPart, InfluenceSums
from evenhand.system.parallel import ONE_THREAD, Crew

__all__ = [
    "FEW_DEGREES",
    "FEW_DEGREES_OF_DECISIONS",
    "GapColumn",
    "GroupGap",
    "group_gap",
    "smallest_p_values",
]

Floats: TypeAlias = NDArray[np.float64]
Ints: TypeAlias = NDArray[np.int64]

FEW_DEGREES = 12.0
"""A column with fewer degrees of freedom is estimated but not tested."""

FEW_DEGREES_OF_DECISIONS = 5.0
"""The same for a column of decisions."""

_MIN_PEOPLE = 10
_DRAWS = 4_000
_ROUNDING = 1e-6  # attributions are computed in single precision
_LEVEL = 0.05


@dataclass(frozen=True)
class GapColumn:
    """A score gap at equal finances; every number is NaN if it cannot be estimated.

    Attributes
    ----------
    value
        Group minus reference group: negative if the group is worse off.
    ci_low, ci_high
        95% confidence interval.
    p_value
        Two-sided, for no gap; NaN if there are too few people to test.
    standard_error, df
        Standard error that accounts for repeated use of people, and its degrees of freedom.
    detectable
        The smallest gap that a single test at the 5% level would have found in 80% of cases.
    note
        Why a number is missing; empty if none is.
    """

    value: float
    ci_low: float
    ci_high: float
    p_value: float
    standard_error: float
    df: float
    detectable: float
    note: str = ""


@dataclass(frozen=True, eq=False)
class GroupGap:
    """Gaps between two groups.

    Attributes
    ----------
    columns
        An estimate for each column.
    correlation
        Correlation of the columns' estimates, of shape (n_columns, n_columns).
    n_people, n_pairs
        Compared people of each group, and their pairs.
    influence
        Influences of people on each column by bucket, of shape (n_buckets, n_columns); no rows without buckets.
    """

    columns: tuple[GapColumn, ...]
    correlation: Floats
    n_people: int
    n_pairs: int
    influence: Floats


def group_gap(
    parts: Callable[[], Iterable[GapPart]],
    controls: FinanceControls,
    group: int,
    reference_group: int,
    reference_buckets: Ints | None = None,
    *,
    decisions: Sequence[int] = (),
    crew: Crew = ONE_THREAD,
) -> GroupGap:
    """Score gaps between a group and a reference group, one for each column.

    Parameters
    ----------
    parts
        Iterates over the pairs anew at each call.
    controls
        The finances to hold equal; sums are taken on their device.
    group, reference_group
        Codes of the two groups.
    reference_buckets
        Bucket of each person of the reference, if influences are wanted.
    decisions
        Columns of differences between decisions, 0 for most pairs: see the module.
    crew
        Who works on parts at the same time; the gaps are the same to the last bit for any.

    Returns
    -------
    Estimates in the order of the columns. All come from one regression, so if columns add up to another column, so do
    their estimates.
    """
    moments = GapMoments.of(parts(), controls, group, reference_group, crew)
    if moments is None or min(moments.n_people) < _MIN_PEOPLE:
        n = (0, 0) if moments is None else moments.n_people
        n_columns = 0 if moments is None else moments.product.shape[2]
        note = f"only {min(n)} people of a group are compared, but at least {_MIN_PEOPLE} are needed"
        return GroupGap(
            tuple(_nothing(note) for _ in range(n_columns)), np.eye(n_columns), sum(n), 0, np.zeros((0, n_columns))
        )
    fit = moments.fit()
    sums = InfluenceSums.of(parts(), controls, fit, reference_buckets, crew)
    own_error = np.sqrt(np.diag(sums.products))
    is_decision = np.isin(np.arange(len(own_error)), decisions)
    error = np.sqrt(np.maximum(sums.squares, sums.pooled_variance))
    with np.errstate(divide="ignore", invalid="ignore"):
        own_degrees = sums.squares**2 / sums.fourth_powers
        df = np.where(is_decision, own_degrees, np.minimum(own_degrees, sums.pooled_degrees)) - 1
        correlation = sums.products / np.outer(own_error, own_error)
    correlation[~np.isfinite(correlation)] = 0.0
    np.fill_diagonal(correlation, 1.0)
    least = np.where(is_decision, FEW_DEGREES_OF_DECISIONS, FEW_DEGREES)
    columns = tuple(
        _column(*of_column)
        for of_column in zip(fit.values.tolist(), error.tolist(), df.tolist(), least.tolist(), strict=True)
    )
    return GroupGap(columns, correlation, sum(moments.n_people), moments.n_pairs, sums.by_bucket)


def smallest_p_values(
    p_values: Sequence[float], correlation: Floats, random_state: int = 0, n_draws: int = _DRAWS
) -> tuple[Floats, float]:
    """p-values adjusted for their number and the correlation of the estimates, and the smallest of them.

    Each is compared with the smallest of as many p-values of correlated normal draws, which controls the chance of any
    false alarm. NaN stays NaN and is not counted.

    Examples
    --------
    >>> adjusted, smallest = smallest_p_values([0.01, 0.5, float("nan")], np.eye(3))
    >>> bool(0.015 < smallest < 0.025), bool(np.isnan(adjusted[2]))
    (True, True)
    """
    p = np.asarray(p_values, dtype=np.float64)
    known = np.isfinite(p)
    adjusted = np.full(len(p), np.nan)
    if not known.any():
        return adjusted, float("nan")
    values, vectors = np.linalg.eigh(correlation[np.ix_(known, known)])
    root = vectors * np.sqrt(np.maximum(values, 0.0))
    draws = np.random.default_rng(random_state).standard_normal((n_draws, len(values))) @ root.T
    smallest = np.sort(2 * stats.norm.sf(np.abs(draws).max(axis=1)))
    below = np.searchsorted(smallest, p[known], side="right")
    # Beyond the resolution of the draws, Bonferroni's bound; a p-value is never adjusted downward.
    bound = np.minimum(p[known] * known.sum(), 1.0)
    found = np.where(below > 0, np.minimum((below + 1) / (n_draws + 1), 1.0), np.minimum(bound, 1 / n_draws))
    adjusted[known] = np.maximum(np.minimum(found, np.maximum(bound, p[known])), p[known])
    return adjusted, float(np.nanmin(adjusted))


def _nothing(note: str) -> GapColumn:
    nan = float("nan")
    return GapColumn(nan, nan, nan, nan, nan, nan, nan, note)


def _column(value: float, error: float, df: float, least: float) -> GapColumn:
    if error <= _ROUNDING and abs(value) <= _ROUNDING:
        return GapColumn(0.0, 0.0, 0.0, 1.0, 0.0, df, 0.0, "the model does not use it differently at equal finances")
    if not np.isfinite(df) or df < least:
        note = (
            f"effectively {max(df + 1, 1):.0f} independent people: too few to test"
            if np.isfinite(df)
            else "not estimated"
        )
        half = float(stats.t.ppf(0.975, max(df, 1.0))) * error if np.isfinite(df) else float("nan")
        return GapColumn(value, value - half, value + half, float("nan"), error, df, float("nan"), note)
    half = float(stats.t.ppf(0.975, df)) * error
    p_value = p_two_sided(value, error, df)
    return GapColumn(value, value - half, value + half, p_value, error, df, size_found(error, df, _LEVEL, sides=2))
