"""No constraint: the network and cross-entropy."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from evenhand.research.methods.network import NetworkMethod, train_network

__all__ = ["Unconstrained"]


class Unconstrained(NetworkMethod):
    """The plain network, what every other method is measured against.

    Examples
    --------
    >>> import evenhand as eh
    >>> from evenhand.research.methods import NetworkSettings
    >>> data = eh.load_dataset("synthetic", n=200)
    >>> method = Unconstrained(NetworkSettings(epochs=1)).fit(data.X, data.y, sensitive_features=data.group)
    >>> method.predict(data.X).shape
    (200,)
    """

    def _learn(self, x: NDArray[np.float32], y: NDArray[np.int64], group: NDArray[np.int64]) -> None:
        self.network_ = train_network(x, y, self.settings)
