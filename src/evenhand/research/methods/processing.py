"""Methods around the plain network: rows changed before training, or thresholds changed after it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin

from evenhand.arrays import Floats, Ints
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.validation import as_table, is_number_column
from evenhand.models.gradient import DifferentiableModel
from evenhand.models.protocol import AuditedModel
from evenhand.research.methods.method import (
    NetworkMethod,
    NetworkSettings,
    drawn_decisions,
    logits_of,
    sigmoid,
    train_network,
    two_columns,
)
from evenhand.system.libraries import optional_module
from evenhand.training.repairs import Repaired, repaired


class FairSHAP(NetworkMethod):
    """The plain network on rows that `evenhand.training.repairs.repaired` has repaired.

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


@dataclass(frozen=True, eq=False)
class QuantileRepair:
    r"""Repair of one number, fitted on some people and applied to any.

    A person at quantile q of their group moves toward the median, over groups, of the groups' values at q:

    .. math:: x' = (1 - \lambda) x + \lambda \operatorname{median}_h F_h^{-1}(F_g(x))

    Quantile functions are linear between the values seen, with a tied value at the middle of its ranks. A value
    outside the range of its group at fit keeps its distance from the end of the range. So the repair is
    increasing within every group.

    Attributes
    ----------
    values, ranks
        For each group, its distinct values, ascending, and their quantiles; empty for a group without values.
    level
        The share of the way to go, lambda in [0, 1].

    Examples
    --------
    >>> repair = QuantileRepair.fit(np.array([0.0, 1.0, 2.0, 10.0, 11.0, 12.0]), np.array([0, 0, 0, 1, 1, 1]))
    >>> repair(np.array([1.0, 11.0, 1.5, 13.0]), np.array([0, 1, 0, 1]))
    array([6. , 6. , 6.5, 8. ])
    """

    values: tuple[Floats, ...]
    ranks: tuple[Floats, ...]
    level: float

    @classmethod
    def fit(cls, numbers: Floats, group: Ints, level: float = 1.0) -> QuantileRepair:
        """Learn each group's quantile function; missing values are left out."""
        if not 0 <= level <= 1:
            raise InvalidInputError(f"`level` must be between 0 (no repair) and 1 (full repair), got {level!r}.")
        values, ranks = [], []
        for code in range(int(group.max()) + 1):
            known = numbers[(group == code) & ~np.isnan(numbers)]
            distinct, counts = np.unique(known, return_counts=True)
            values.append(distinct)
            ranks.append((np.cumsum(counts) - counts / 2) / max(1, len(known)))
        return cls(tuple(values), tuple(ranks), level)

    def __call__(self, numbers: Floats, group: Ints) -> Floats:
        """Repaired numbers, of shape (n,); missing ones, and those of a group without values at fit, are unchanged."""
        repaired = np.array(numbers, dtype=np.float64)
        for code, (values, ranks) in enumerate(zip(self.values, self.ranks, strict=True)):
            if len(values) == 0:
                continue
            members = (group == code) & ~np.isnan(repaired)
            own = repaired[members]
            beyond = own - own.clip(values[0], values[-1])
            quantile = np.interp(own, values, ranks)
            by_group = [np.interp(quantile, r, v) for v, r in zip(self.values, self.ranks, strict=True) if len(v)]
            aim = np.median(by_group, axis=0) + beyond
            repaired[members] = (1 - self.level) * own + self.level * aim
        return repaired


class DisparateImpactRemover(NetworkMethod):
    """The plain network on repaired numbers; categories are unchanged.

    The attributed score is a function of the *repaired* table, which `audited_table` returns. Predicting needs
    groups, because the repair does.

    Parameters
    ----------
    settings
        Network and training; None for the paper's.
    repair_level
        0 changes nothing, 1 makes the groups' distributions of every number alike.

    Attributes
    ----------
    repairs_
        By column, its `QuantileRepair`.
    """

    repairs_: dict[str, QuantileRepair]

    def __init__(self, settings: NetworkSettings | None = None, repair_level: float = 1.0) -> None:
        super().__init__(settings)
        self.repair_level = repair_level

    def audited_table(self, X: Any, sensitive_features: Any = None) -> pd.DataFrame:
        """The repaired table."""
        table = as_table(X)
        return self._repaired(table, self._group_codes(sensitive_features, X, len(table)), is_fit=False)

    def _repaired(self, table: pd.DataFrame, group: Ints, *, is_fit: bool) -> pd.DataFrame:
        numbers = {
            str(column): table[column].to_numpy(dtype=np.float64, na_value=np.nan)
            for column in table.columns
            if is_number_column(table[column])
        }
        if is_fit:
            self.repairs_ = {
                column: QuantileRepair.fit(values, group, self.repair_level) for column, values in numbers.items()
            }
        return table.assign(**{column: self.repairs_[column](values, group) for column, values in numbers.items()})


class HardtPostProcessing(NetworkMethod):
    """Group thresholds that equalize odds (Hardt et al., 2016), on the plain network's scores of its training people.

    The rule, fairlearn's `ThresholdOptimizer`, mixes two thresholds per group at random. `predict_proba` returns the
    expected decision; `predict` draws, row by row, from the seed. The logit of the underlying network is attributed.
    Predicting needs groups.
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


class _GivenScore(ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """Takes the place of the fitted network: its only input column is the score."""

    def fit(self) -> Self:
        self.classes_ = np.array([0, 1])
        return self

    def predict_proba(self, X: Any) -> Floats:
        return two_columns(np.asarray(X, dtype=np.float64)[:, 0])
