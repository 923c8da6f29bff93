"""The CEC score, its two parts, and each feature's share in it.

Every formula is written once, in torch: training averages the square, the audit takes its root.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import overload

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from evenhand.exceptions import InvalidInputError

_EPSILON = 1e-8  # from the paper, added to the norm

# An attribution shorter than this has no meaningful direction: logits differ from the baseline's by less
# than a hundred-thousandth. Such pairs are scored by the formula like any other, and counted.
NEGLIGIBLE_NORM = 1e-5


def unit_vectors(attributions: Tensor) -> Tensor:
    """Attributions over their length plus 1e-8, of the same shape; a zero vector stays zero."""
    # The floor keeps the gradient of the norm finite at zero and is far below the 1e-8 next to it.
    norm = attributions.square().sum(-1, keepdim=True).clamp_min(1e-30).sqrt()
    return attributions / (norm + _EPSILON)


def squared_cec(attributions: Tensor, match_attributions: Tensor) -> Tensor:
    """Square of the CEC score of each pair, of shape (...,); smooth at zero, so this is what training averages."""
    difference = unit_vectors(attributions) - unit_vectors(match_attributions)
    return difference.square().sum(-1) / 4


@overload
def cec_scores(ig: Tensor, ig_match: Tensor) -> Tensor: ...
@overload
def cec_scores(ig: ArrayLike, ig_match: ArrayLike) -> NDArray[np.float64]: ...
def cec_scores(ig: ArrayLike | Tensor, ig_match: ArrayLike | Tensor) -> NDArray[np.float64] | Tensor:
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
    if isinstance(ig, Tensor) and isinstance(ig_match, Tensor):
        _check_shapes(ig.shape, ig_match.shape)
        return squared_cec(ig, ig_match).clamp(0, 1).sqrt()
    first, second = np.asarray(ig, dtype=np.float64), np.asarray(ig_match, dtype=np.float64)
    _check_shapes(first.shape, second.shape)
    scores: NDArray[np.float64] = cec_scores(torch.from_numpy(first), torch.from_numpy(second)).numpy()
    return scores


def feature_contributions(attributions: Tensor, match_attributions: Tensor) -> Tensor:
    """Each feature's part of each pair's CEC score, of shape (n, d); rows sum to the score.

    A pair's squared score is a sum over features of squared differences; its score is divided in the same
    proportions.
    """
    squares = (unit_vectors(attributions) - unit_vectors(match_attributions)).square() / 4
    return squares / squares.sum(-1, keepdim=True).clamp_min(1e-30).sqrt()


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
    >>> x, other, g = torch.tensor([[1.0, 2.0]]), torch.tensor([[2.0, 1.0]]), torch.tensor([[0.5, 0.5]])
    >>> scores = PairScores(own=x * g, other=other * g, moved=other * g, swapped=x * g)
    >>> scores.reasoning_gap.item(), bool(scores.input_gap == scores.cec)
    (0.0, True)
    """

    own: Tensor
    other: Tensor
    moved: Tensor
    swapped: Tensor | None = None

    @property
    def cec(self) -> Tensor:
        """The CEC score."""
        return cec_scores(self.own, self.other)

    @property
    def input_gap(self) -> Tensor:
        """Half the distance between the unit vectors of (x - b) * g(x) and (x' - b) * g(x).

        Different inputs, the same weights.
        """
        return cec_scores(self.own, self.moved)

    @property
    def reasoning_gap(self) -> Tensor:
        """Half the distance between (z - b) * g(x) and (z - b) * g(x'), averaged over z = x and z = x'.

        The same inputs, different weights: exactly 0 for a linear model.
        """
        assert self.swapped is not None
        return (cec_scores(self.moved, self.other) + cec_scores(self.own, self.swapped)) / 2

    @property
    def contributions(self) -> Tensor:
        """Each feature's part of the score, of shape (..., n, n_features)."""
        return feature_contributions(self.own, self.other)

    @property
    def is_negligible(self) -> Tensor:
        """Whether either attribution is too short to have a direction."""
        return torch.minimum(self.own.norm(dim=-1), self.other.norm(dim=-1)) < NEGLIGIBLE_NORM


def _check_shapes(first: tuple[int, ...], second: tuple[int, ...]) -> None:
    if tuple(first) != tuple(second) or len(first) < 1:
        raise InvalidInputError(
            f"`ig` and `ig_match` must have the same shape, got {tuple(first)} and {tuple(second)}."
        )


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
