"""Keeping the fairness terms from preventing a network from learning, and a warning during training if they do."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

__all__ = ["explained_share", "is_about_to_collapse", "label_entropy", "term_gain"]

# On German Credit, a network with the paper's weights explains less than 4% of the labels' entropy halfway; with a
# third of these weights it explains 8%, and without them 22%.
_LEAST_EXPLAINED = 0.05

# If the rarer decision is less frequent than this share of the rarer label, it is likely to vanish. On HMDA, where 88%
# of labels are favorable, the share is below 8% halfway with the paper's weights, and 46% without them.
_LEAST_OF_RARER = 0.1

# Adam moves a weight by about the learning rate in a step. Networks whose weights cannot have moved this far have not
# had time to learn, whatever the objective.
_LEAST_DISTANCE = 0.05


def label_entropy(labels: NDArray[np.int64], weight: NDArray[np.float32]) -> float:
    """Cross-entropy of a model that knows only the share of favorable labels."""
    favorable = np.average(labels, weights=weight)
    return float(entr(favorable) + entr(1 - favorable))


def explained_share(cross_entropy: float, labels: NDArray[np.int64], weight: NDArray[np.float32]) -> float:
    """Share of the labels' entropy that a model explains: 0 for one that knows only the share of favorable labels.

    Examples
    --------
    >>> import numpy as np
    >>> round(explained_share(0.6931, np.array([0, 1]), np.ones(2)), 3)
    0.0
    """
    return 1 - cross_entropy / label_entropy(labels, weight)


def term_gain(
    cross_entropy: NDArray[np.float64], entropy: NDArray[np.float64], least_explained: float
) -> NDArray[np.float64]:
    """Share of their weights with which the fairness terms count, of the arrays' shape.

    It grows in proportion to the share of the labels' entropy that a model explains, up to `least_explained`: a model
    that has learned nothing, or forgets what it learned, is trained on the labels alone.

    Examples
    --------
    >>> import numpy as np
    >>> term_gain(np.array([0.9, 0.57, 0.3]), np.full(3, 0.6), 0.1).round(3).tolist()
    [0.0, 0.5, 1.0]
    """
    return np.clip((1 - cross_entropy / entropy) / least_explained, 0, 1)


def is_about_to_collapse(
    share: float, favorable_decisions: float, favorable_labels: float, n_steps: int, learning_rate: float
) -> bool:
    """Whether a model is likely to end with the same decision for everyone.

    Parameters
    ----------
    share
        Share of the labels' entropy that it explains.
    favorable_decisions, favorable_labels
        Shares of its decisions, and of the labels, that are favorable.
    n_steps, learning_rate
        Steps it was trained for, and their size.

    Examples
    --------
    >>> is_about_to_collapse(0.18, 0.995, 0.88, n_steps=1_600, learning_rate=3e-4)
    True
    >>> is_about_to_collapse(0.35, 0.94, 0.88, n_steps=1_600, learning_rate=3e-4)
    False
    """
    rarer_decisions, rarer_labels = (min(rate, 1 - rate) for rate in (favorable_decisions, favorable_labels))
    learned_little = share < _LEAST_EXPLAINED or rarer_decisions < _LEAST_OF_RARER * rarer_labels
    return learned_little and n_steps * learning_rate >= _LEAST_DISTANCE
