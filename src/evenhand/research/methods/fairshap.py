"""Pre-processing: training rows get influential values of their matches (FairSHAP), then the plain network."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from evenhand.models.gradient import DifferentiableModel
from evenhand.models.protocol import AuditedModel
from evenhand.research.methods.network import NetworkMethod, NetworkSettings, train_network
from evenhand.training.fairshap import Repaired, repaired

__all__ = ["FairSHAP"]

Ints = NDArray[np.int64]


class FairSHAP(NetworkMethod):
    """The plain network on rows that `evenhand.training.fairshap.repaired` has repaired.

    The network decides on the unchanged table, without groups; only the rows it learns from are changed.

    Parameters
    ----------
    settings
        Network and training, also of the network whose score is explained; None for the paper's.
    financial_features
        Columns on which people are matched, and which do not change; None to match on all and let all change.
    max_auc_loss
        AUC that the repair may cost on folds of the training rows.

    Attributes
    ----------
    repaired_
        The encoded training rows after the repair, and the effect of each number of replaced values on folds.
    """

    repaired_: Repaired

    def __init__(
        self,
        settings: NetworkSettings | None = None,
        financial_features: Sequence[str] | None = None,
        max_auc_loss: float = 0.01,
    ) -> None:
        super().__init__(settings)
        self.financial_features, self.max_auc_loss = financial_features, max_auc_loss

    def _learn(self, x: NDArray[np.float32], y: Ints, group: Ints) -> None:
        def fit(rows: NDArray[np.floating], labels: Ints) -> AuditedModel:
            return DifferentiableModel(train_network(rows.astype(np.float32), labels, self.settings), "network")

        is_stated = np.isin(self.encoder_.names, [] if self.financial_features is None else self.financial_features)
        join = self.encoder_.join_matrix
        is_financial = is_stated[join.argmax(axis=1)]
        finances = x if self.financial_features is None else x[:, is_financial]
        self.repaired_ = repaired(
            x,
            y,
            group,
            fit=fit,
            finances=finances.astype(np.float64),
            is_financial=is_financial,
            join=join,
            max_auc_loss=self.max_auc_loss,
            random_state=self.settings.random_state,
        )
        self.network_ = train_network(self.repaired_.features.astype(np.float32), y, self.settings)
