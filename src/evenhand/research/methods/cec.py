"""The paper's method: cross-entropy, equalized odds and explanation consistency."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from evenhand.exceptions import EvenhandWarning
from evenhand.models.protocol import AuditedModel
from evenhand.research.methods.method import NetworkSettings
from evenhand.training.classifier import CECClassifier
from evenhand.training.settings import TrainingMethod


class CEC:
    """`CECClassifier` behind the methods' protocol, with the paper's integration by default.

    There is no warning about a constant model here: the comparison reports every method's positive rate.

    Parameters
    ----------
    settings
        Network and training; None for the paper's.
    financial_features
        Columns on which people are matched; None for all.
    cec_weight, equalized_odds_weight
        The paper's lambdas.
    n_steps, integration
        How attributions are integrated in training.
    """

    def __init__(
        self,
        settings: NetworkSettings | None = None,
        financial_features: Sequence[str] | None = None,
        *,
        cec_weight: float = 1.0,
        equalized_odds_weight: float = 1.0,
        n_steps: int = 32,
        integration: TrainingMethod = "midpoint",
    ) -> None:
        settings = NetworkSettings() if settings is None else settings
        self.classifier = CECClassifier(
            financial_features=financial_features,
            objective="cec",
            least_explained=0.0,
            cec_weight=cec_weight,
            equalized_odds_weight=equalized_odds_weight,
            n_steps=n_steps,
            method=integration,
            **vars(settings),
        )

    def fit(self, X: Any, y: ArrayLike, *, sensitive_features: Any) -> Self:
        """Match, and train the network on the three terms."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", EvenhandWarning)
            self.classifier.fit(X, y, sensitive_features=sensitive_features)
        return self

    def predict(self, X: Any, sensitive_features: Any = None) -> NDArray[np.int64]:
        """Decisions 0 or 1, of shape (n,)."""
        return (self.classifier.decision_function(X) >= 0).astype(np.int64)

    def predict_proba(self, X: Any, sensitive_features: Any = None) -> NDArray[np.float64]:
        """Probabilities of the labels 0 and 1, of shape (n, 2)."""
        return self.classifier.predict_proba(X)

    def audited_model(self) -> AuditedModel:
        """The network's logit over the encoded table."""
        return self.classifier.audited_model()
