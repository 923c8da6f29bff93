"""Post-processing: group thresholds that equalize odds (Hardt et al., 2016), over the plain network."""

from __future__ import annotations

from typing import Any, Self

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from evenhand.arrays import Floats, Ints
from evenhand.research.methods.method import NetworkMethod, logits_of, sigmoid, train_network, two_columns
from evenhand.system.libraries import optional_module


class HardtPostProcessing(NetworkMethod):
    """fairlearn's `ThresholdOptimizer` with equalized odds, on the plain network's scores of its training people.

    The rule mixes two thresholds per group at random. `predict_proba` returns the expected decision; `predict` draws,
    row by row, from the seed. The logit of the underlying network is attributed. Predicting needs groups.
    """

    rule_: Any

    def _learn(self, x: NDArray[np.float32], y: Ints, group: Ints) -> None:
        postprocessing = optional_module("fairlearn.postprocessing", "This method", "fairlearn", "methods")
        self.network_ = train_network(x, y, self.settings)
        score = sigmoid(logits_of(self.network_, x))
        rule = postprocessing.ThresholdOptimizer(
            estimator=_GivenScore().fit(),
            constraints="equalized_odds",
            objective="accuracy_score",
            prefit=True,
            predict_method="predict_proba",
        )
        self.rule_ = rule.fit(score[:, None], y, sensitive_features=group)

    def predict_proba(self, X: Any, sensitive_features: Any = None) -> Floats:
        """Expected decisions, of shape (n, 2)."""
        score = sigmoid(self._logits(X, sensitive_features))
        group = self._group_codes(sensitive_features, X, len(score))
        expected: Floats = self.rule_._pmf_predict(score[:, None], sensitive_features=group)
        return two_columns(expected[:, 1])

    def predict(self, X: Any, sensitive_features: Any = None) -> Ints:
        """Decisions 0 or 1, of shape (n,), drawn with the method's seed."""
        return drawn_decisions(self.predict_proba(X, sensitive_features)[:, 1], self.settings.random_state)


def drawn_decisions(probability: Floats, random_state: int) -> Ints:
    """A decision per row, favorable with the given probability.

    Examples
    --------
    >>> drawn_decisions(np.array([0.0, 1.0, 0.0]), random_state=0)
    array([0, 1, 0])
    """
    return (np.random.default_rng(random_state).random(len(probability)) < probability).astype(np.int64)


class _GivenScore(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Takes the place of the fitted network: its only input column is the score."""

    def fit(self) -> Self:
        self.classes_ = np.array([0, 1])
        return self

    def predict_proba(self, X: Any) -> Floats:
        return two_columns(np.asarray(X, dtype=np.float64)[:, 0])
