"""p-values from null scores, and adjustment for multiple tests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special

from evenhand.arrays import Floats, Ints, person_hash
from evenhand.exceptions import InvalidInputError
from evenhand.metrics.estimate import vector
from evenhand.metrics.excess import ROUNDING

_LEVEL = 0.05
_DRAWS = 20_000
_SINGULAR = 1e-10  # of an eigenvalue, as a share of the largest


def holm(p_values: ArrayLike) -> Floats:
    """p-values adjusted for their number (Holm 1979); the chance of any false alarm is controlled.

    NaN, for a triple that could not be formed, stays NaN and is not counted.

    Examples
    --------
    >>> holm([0.01, 0.04, 0.03, np.nan])
    array([0.03, 0.06, 0.06,  nan])
    """
    return _step_adjusted(p_values, lambda ranks, n: n - ranks + 1, is_step_down=True)


def smallest_p_values(
    p_values: Floats, correlation: Floats, tested: Ints, rng: np.random.Generator
) -> tuple[Floats, float]:
    """p-values adjusted for their number and the correlation of their estimates, which are normal.

    Each is compared with the smallest of as many p-values of correlated draws, which controls the chance of any false
    alarm. Those that are not `tested`, by place, become NaN.

    Returns
    -------
    The adjusted p-values, and the p-value that a single one must reach for 5% after adjustment.

    Examples
    --------
    >>> adjusted, level = smallest_p_values(
    ...     np.array([0.01, 0.5]), np.eye(2), np.arange(2), np.random.default_rng(0)
    ... )
    >>> adjusted.round(2).tolist(), round(level, 2)
    ([0.02, 0.75], 0.02)
    """
    adjusted = np.full(len(p_values), np.nan)
    if not len(tested):
        return adjusted, _LEVEL
    draws = correlated_draws(correlation[np.ix_(tested, tested)], rng)
    smallest = np.sort(2 * special.ndtr(-draws.max(axis=1)))
    p = p_values[tested]
    below = np.searchsorted(smallest, p, side="right")
    # Beyond the resolution of the draws, Bonferroni's bound; a p-value is never adjusted downward.
    bound = np.minimum(p * len(tested), 1.0)
    share = np.where(below > 0, np.minimum((below + 1) / (_DRAWS + 1), 1.0), 1 / _DRAWS)
    adjusted[tested] = np.maximum(np.minimum(share, bound), p)
    return adjusted, float(smallest[int(_LEVEL * (_DRAWS + 1)) - 2])


def stepwise_p_values(p_values: Floats, correlation: Floats, rng: np.random.Generator) -> Floats:
    """p-values adjusted for their number and the correlation of their estimates, which are normal; never above Holm's.

    Each is compared with the smallest of correlated draws of itself and of those that are less clear (Westfall and
    Young 1993), which controls the chance of any false alarm. NaN stays NaN and is not counted.

    Examples
    --------
    >>> p_values, rng = np.array([0.02, 0.03, np.nan]), np.random.default_rng(0)
    >>> stepwise_p_values(p_values, np.ones((3, 3)), rng).round(2)
    array([0.02, 0.03,  nan])
    """
    order = np.argsort(p_values, kind="stable")[: np.isfinite(p_values).sum()]
    draws = 2 * special.ndtr(-correlated_draws(correlation[np.ix_(order, order)], rng))
    smallest = np.minimum.accumulate(draws[:, ::-1], axis=1)[:, ::-1]
    adjusted, share = holm(p_values), (1 + (smallest <= p_values[order]).sum(axis=0)) / (1 + _DRAWS)
    adjusted[order] = np.clip(np.maximum.accumulate(share), p_values[order], adjusted[order])
    return adjusted


def correlation_of(influences: Sequence[Floats | None]) -> Floats:
    """Correlation of estimates with these influences; those without influences count as uncorrelated."""
    n = next((len(values) for values in influences if values is not None), 1)
    columns = np.column_stack([np.zeros(n) if values is None else values for values in influences])
    sizes = np.linalg.norm(columns, axis=0)
    scaled = columns / np.where(sizes > 0, sizes, 1.0)
    correlation: Floats = scaled.T @ scaled
    np.fill_diagonal(correlation, 1.0)
    return correlation


def correlated_draws(correlation: Floats, rng: np.random.Generator) -> Floats:
    """Distances from 0 of normal draws, in standard deviations, of shape (20,000, n)."""
    eigenvalues, vectors = np.linalg.eigh(correlation)
    # The symmetric root: unlike the vectors, it does not turn around with the last digits of the correlation. An
    # eigenvalue that is 0 but for rounding would have a root of 1e-8, in a direction that rounding chose.
    kept = np.where(eigenvalues > _SINGULAR * eigenvalues[-1:], eigenvalues, 0.0)
    root = vectors * np.sqrt(kept) @ vectors.T
    drawn: Floats = np.abs(rng.standard_normal((_DRAWS, len(correlation))) @ root)
    return drawn


def benjamini_hochberg(p_values: ArrayLike, counts: ArrayLike | None = None) -> Floats:
    """p-values adjusted for their number (Benjamini and Hochberg 1995); the false discovery rate is controlled.

    Those of at most q have an expected share of false discoveries of at most q. NaN stays NaN and is not counted.

    Parameters
    ----------
    p_values
        Of shape (n,).
    counts
        How often each occurs, of shape (n,); by default once.

    Examples
    --------
    >>> benjamini_hochberg([0.01, 0.02, 0.03, 0.5])
    array([0.04, 0.04, 0.04, 0.5 ])
    >>> benjamini_hochberg([0.01, 0.5], counts=[3, 1])
    array([0.01333333, 0.5       ])
    """
    return _step_adjusted(p_values, lambda ranks, n: n / ranks, counts, is_step_down=False)


def _step_adjusted(
    p_values: ArrayLike,
    factor: Callable[[Floats, float], Floats],
    counts: ArrayLike | None = None,
    *,
    is_step_down: bool,
) -> Floats:
    # Not statsmodels' `multipletests`: it supports neither counts nor missing values, and its Holm takes 50 ms a call.
    p = vector(p_values, "p_values")
    known = np.isfinite(p)
    if ((p[known] < 0) | (p[known] > 1)).any():
        raise InvalidInputError("`p_values` must be between 0 and 1.")
    order = np.argsort(p[known], kind="stable")
    times = np.ones(len(order)) if counts is None else np.asarray(counts, dtype=np.float64)[known][order]
    ranks = np.cumsum(times)
    scaled = p[known][order] * factor(ranks, float(times.sum()))
    running = np.maximum.accumulate(scaled) if is_step_down else np.minimum.accumulate(scaled[::-1])[::-1]
    adjusted = np.full(p.shape, np.nan)
    adjusted[np.flatnonzero(known)[order]] = np.minimum(running, 1)
    return adjusted


@dataclass(frozen=True, eq=False)
class NullScores:
    """Scores under the null hypothesis, by stratum; those of parts of the people can be joined.

    If a stratum has more than `most`, those of the people with the lowest hashes are kept: a random sample that does
    not depend on the parts.

    Attributes
    ----------
    values, hashes
        For each stratum, the scores in ascending order and the hashes of their people.

    Examples
    --------
    >>> none = np.zeros(4, dtype=np.int64)
    >>> pooled = NullScores.of(np.array([0.0, 0.1, 0.2, 0.3]), none, np.arange(4), n_strata=1, most=100)
    >>> pooled.p_values(pooled.n_at_least(np.array([0.9, 0.1]), none[:2]), none[:2])
    array([0.2, 0.8])
    """

    values: tuple[Floats, ...]
    hashes: tuple[NDArray[np.uint64], ...]
    most: int

    @classmethod
    def of(
        cls, score: Floats, stratum: Ints, keys: Ints, n_strata: int, most: int, random_state: int = 0
    ) -> NullScores:
        """Known scores of strata 0, ..., n_strata - 1; a key is a person's, as in `person_hash`."""
        known = np.flatnonzero(np.isfinite(score))
        order = known[np.argsort(stratum[known], kind="stable")]
        hashes = person_hash(keys[order], random_state)
        cuts = np.cumsum(np.bincount(stratum[known], minlength=n_strata))[:-1]
        parts = zip(np.split(score[order], cuts), np.split(hashes, cuts), strict=True)
        values, kept = zip(*(_lowest_hashes(*part, most) for part in parts), strict=True)
        return cls(values, kept, most)

    def __add__(self, other: NullScores) -> NullScores:
        strata = zip(self.values, other.values, self.hashes, other.hashes, strict=True)
        joined = (_lowest_hashes(np.r_[a, b], np.r_[h, g], self.most) for a, b, h, g in strata)
        values, hashes = zip(*joined, strict=True)
        return NullScores(values, hashes, self.most)

    @property
    def sizes(self) -> Ints:
        """Number of scores kept in each stratum."""
        return np.array([len(values) for values in self.values], dtype=np.int64)

    def n_at_least(self, score: Floats, stratum: Ints) -> Ints:
        """How many null scores of its stratum are at least as large as each score; -1 if unknown."""
        found = np.full(score.shape, -1, dtype=np.int64)
        for code in np.unique(stratum):
            null = self.values[code]
            asked = (stratum == code) & np.isfinite(score)
            if len(null):
                found[asked] = len(null) - np.searchsorted(null, score[asked] - ROUNDING, side="left")
        return found

    def p_values(self, n_at_least: Ints, stratum: Ints) -> Floats:
        """Share of null scores, including the score itself, that are at least as large; NaN if there are none."""
        p = (1 + n_at_least) / (1 + self.sizes[stratum])
        return np.where(n_at_least >= 0, p, np.nan)

    def counts(self, n_at_least: Ints, stratum: Ints) -> tuple[Ints, ...]:
        """How many scores of each stratum have 0, 1, ... null scores at least as large; counts of parts add up."""
        known = n_at_least >= 0
        return tuple(
            np.bincount(n_at_least[known & (stratum == code)], minlength=size + 1)
            for code, size in enumerate(self.sizes.tolist())
        )

    def q_values(self, counts: tuple[Ints, ...]) -> tuple[Floats, ...]:
        """Adjusted p-values of scores with 0, 1, ... null scores at least as large, by stratum, from all `counts`."""
        none = np.zeros(0, dtype=np.int64)
        place = np.repeat(np.arange(len(counts)), [np.count_nonzero(c) for c in counts])
        n_at_least = np.concatenate([none, *map(np.flatnonzero, counts)])
        times = np.concatenate([none, *(c[c > 0] for c in counts)])
        adjusted = benjamini_hochberg(self.p_values(n_at_least, place), times)
        by_stratum = tuple(np.full(len(c), np.nan) for c in counts)
        for code, values in enumerate(by_stratum):
            values[n_at_least[place == code]] = adjusted[place == code]
        return by_stratum


def _lowest_hashes(values: Floats, hashes: NDArray[np.uint64], most: int) -> tuple[Floats, NDArray[np.uint64]]:
    """At most this many scores, in ascending order."""
    if len(values) > most:
        chosen = np.sort(np.lexsort((values, hashes))[:most])
        values, hashes = values[chosen], hashes[chosen]
    order = np.lexsort((hashes, values))
    return values[order], hashes[order]
