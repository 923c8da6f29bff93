"""Whether the fairness terms keep a network from learning: said while it trains, not when it is done."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.special import entr

__all__ = ["explained_share", "is_about_to_collapse"]

# On German Credit the paper's weights leave less than 4 % of the labels' entropy explained at half-time; a third of
# them leaves 8 %, and none 22 %.
_LEAST_EXPLAINED = 0.05

# Adam moves a weight by about the learning rate in a step. Networks whose weights could not have come this far have not
# had the time to learn, whatever the objective.
_LEAST_DISTANCE = 0.05


def explained_share(cross_entropy: float, labels: NDArray[np.int64], weight: NDArray[np.float32]) -> float:
    """Share of the labels' entropy that a model explains: 0 for one that knows only how many are favorable.

    Examples
    --------
    >>> import numpy as np
    >>> round(explained_share(0.6931, np.array([0, 1]), np.ones(2)), 3)
    0.0
    """
    favorable = np.average(labels, weights=weight)
    return float(1 - cross_entropy / (entr(favorable) + entr(1 - favorable)))


def is_about_to_collapse(share: float, n_steps: int, learning_rate: float) -> bool:
    """Whether a model that explains this `share` after so many steps is on its way to decide the same for everyone."""
    return share < _LEAST_EXPLAINED and n_steps * learning_rate >= _LEAST_DISTANCE
