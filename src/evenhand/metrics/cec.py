"""The CEC score, its two parts, and each feature's share in it.

Every formula is written once, for arrays and tensors: training averages the square, the audit takes its root.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.arrays import Array, is_torch_array, namespace
from evenhand.exceptions import InvalidInputError

A = TypeVar("A")

_EPSILON = 1e-8  # from the paper, added to the norm

# An attribution shorter than this has no meaningful direction: logits differ from the baseline's by less
# than a hundred-thousandth. Such pairs are scored by the formula like any other, and counted.
NEGLIGIBLE_NORM = 1e-5


def unit_vectors(attributions: Array) -> Array:
    """Attributions over their length plus 1e-8, of the same shape; a zero vector stays zero."""
    # The floor keeps the gradient of the norm finite at zero and is far below the 1e-8 next to it.
    squares = (attributions**2).sum(-1)[..., None]
    return attributions / (namespace(squares).sqrt(squares.clip(min=1e-30)) + _EPSILON)


def squared_cec(attributions: A, match_attributions: A) -> A:
    """Square of the CEC score of each pair, of shape (...,); smooth at zero, so this is what training averages."""
    difference = unit_vectors(attributions) - unit_vectors(match_attributions)
    squares: A = (difference**2).sum(-1) / 4
    return squares


def cec_scores(ig: Array, ig_match: Array) -> Array:
    r"""CEC score of each pair: half the distance between the two unit attribution vectors (Definition 3).

    .. math:: \Delta = \tfrac12 \left\lVert \frac{g}{\lVert g \rVert + \epsilon}
              - \frac{\tilde g}{\lVert \tilde g \rVert + \epsilon} \right\rVert_2, \quad \epsilon = 10^{-8}

    Parameters
    ----------
    ig, ig_match
        Attributions of the people and of their matches, of shape (n, d), both from the *person's* baseline.

    Returns
    -------
    Scores of shape (n,) in [0, 1]: 0 for parallel vectors, 1 for opposed ones. A zero vector and a nonzero one score
    0.5, two zero vectors 0. A tensor if the inputs are tensors; otherwise a float64 array.

    Raises
    ------
    InvalidInputError
        If the shapes differ.

    Examples
    --------
    >>> cec_scores([[1.0, 0.0], [1.0, 0.0], [1.0, 0.0]], [[2.0, 0.0], [0.0, 1.0], [-1.0, 0.0]]).round(3)
    array([0.   , 0.707, 1.   ])
    """
    first, second = (
        values if is_torch_array(values) else np.asarray(values, dtype=np.float64) for values in (ig, ig_match)
    )
    if tuple(first.shape) != tuple(second.shape) or first.ndim < 1:
        raise InvalidInputError(
            f"`ig` and `ig_match` must have the same shape, got {tuple(first.shape)} and {tuple(second.shape)}."
        )
    squared = squared_cec(first, second)
    return namespace(squared).sqrt(squared.clip(min=0, max=1))


def feature_contributions(attributions: Array, match_attributions: Array) -> Array:
    """Each feature's part of each pair's CEC score, of shape (n, d); rows sum to the score.

    A pair's squared score is a sum over features of squared differences; its score is divided in the same
    proportions.
    """
    squares = (unit_vectors(attributions) - unit_vectors(match_attributions)) ** 2 / 4
    return squares / namespace(squares).sqrt(squares.sum(-1)[..., None].clip(min=1e-30))


@dataclass(frozen=True, eq=False)
class PairScores:
    """The metrics of each pair, computed on demand; all have shape (..., n) except `contributions`.

    Attributes
    ----------
    own, other
        Attributions of the person and of the match, of shape (..., n, n_features), both from the person's baseline.
    moved
        Contributions of the match's inputs in the person's context.
    swapped
        Contributions of the person's inputs in the match's context; None if the reasoning gap is not wanted.

    Examples
    --------
    >>> x, other, g = np.array([[1.0, 2.0]]), np.array([[2.0, 1.0]]), np.array([[0.5, 0.5]])
    >>> scores = PairScores(own=x * g, other=other * g, moved=other * g, swapped=x * g)
    >>> scores.reasoning_gap.item(), bool(scores.input_gap == scores.cec)
    (0.0, True)
    """

    own: Array
    other: Array
    moved: Array
    swapped: Array | None = None

    @property
    def cec(self) -> Array:
        """The CEC score."""
        return cec_scores(self.own, self.other)

    @property
    def input_gap(self) -> Array:
        """Half the distance between the unit vectors of (x - b) * g(x) and (x' - b) * g(x).

        Different inputs, the same weights.
        """
        return cec_scores(self.own, self.moved)

    @property
    def reasoning_gap(self) -> Array:
        """Half the distance between (z - b) * g(x) and (z - b) * g(x'), averaged over z = x and z = x'.

        The same inputs, different weights: exactly 0 for a linear model.
        """
        assert self.swapped is not None
        return (cec_scores(self.moved, self.other) + cec_scores(self.own, self.swapped)) / 2

    @property
    def contributions(self) -> Array:
        """Each feature's part of the score, of shape (..., n, n_features)."""
        return feature_contributions(self.own, self.other)

    @property
    def is_negligible(self) -> Array:
        """Whether either attribution is too short to have a direction."""
        xp = namespace(self.own)
        shorter = xp.minimum(*((vectors**2).sum(-1) for vectors in (self.own, self.other)))
        return xp.sqrt(shorter) < NEGLIGIBLE_NORM


REGIMES: tuple[str, ...] = ("A", "B", "C", "D")


def assign_regimes(
    decision: ArrayLike, decision_match: ArrayLike, delta: ArrayLike, consistency_threshold: float = 0.3
) -> NDArray[np.str_]:
    """Regime of each pair (the paper's Table 1).

    A: same decision, same reasoning. B: same decision, different reasoning. C: different decision, same reasoning.
    D: both differ. Reasoning counts as different when the CEC score is above `consistency_threshold`.

    Raises
    ------
    InvalidInputError
        If lengths differ, a score is outside [0, 1] or missing, or the threshold is outside [0, 1].

    Examples
    --------
    >>> assign_regimes([1, 1, 1, 0], [1, 1, 0, 1], [0.1, 0.5, 0.1, 0.5])
    array(['A', 'B', 'C', 'D'], dtype='<U1')
    """
    own, other, scores = np.asarray(decision), np.asarray(decision_match), np.asarray(delta, dtype=np.float64)
    if not own.shape == other.shape == scores.shape:
        raise InvalidInputError(
            "`decision`, `decision_match` and `delta` must have the same length, "
            f"got {own.shape}, {other.shape} and {scores.shape}."
        )
    if not 0 <= consistency_threshold <= 1:
        raise InvalidInputError(f"`consistency_threshold` must be in [0, 1], got {consistency_threshold}.")
    if not ((scores >= 0) & (scores <= 1)).all():
        raise InvalidInputError("`delta` must hold CEC scores in [0, 1]; got missing or other values.")
    differs = (own != other).astype(np.int64) * 2 + (scores > consistency_threshold)
    regimes: NDArray[np.str_] = np.asarray(REGIMES)[differs]
    return regimes


def regime_shares(regimes: ArrayLike) -> dict[str, float]:
    """Share of pairs in each regime; NaN for every regime if there are no pairs.

    Examples
    --------
    >>> regime_shares(["A", "A", "B", "D"])
    {'A': 0.5, 'B': 0.25, 'C': 0.0, 'D': 0.25}
    """
    values = np.asarray(regimes)
    if values.size == 0:
        return dict.fromkeys(REGIMES, float("nan"))
    return {regime: float(np.mean(values == regime)) for regime in REGIMES}
