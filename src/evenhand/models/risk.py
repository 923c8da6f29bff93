"""A model whose score is a risk: the audit reverses it, so that high is favorable in all that follows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.attribution.explanation import Explanation, SharesContexts
from evenhand.attribution.gradients import Method
from evenhand.models.protocol import AuditedModel

__all__ = ["RiskModel"]


@dataclass(frozen=True, eq=False)
class _Turned:
    """An explanation of a risk as one of the favorable outcome: every contribution with the opposite sign."""

    risk: Explanation
    is_probability: bool

    def _score(self, risk: Tensor) -> Tensor:
        return 1 - risk if self.is_probability else -risk

    @property
    def values(self) -> Tensor:
        return -self.risk.values

    @property
    def logit(self) -> Tensor:
        return self._score(self.risk.logit)

    @property
    def baseline_logit(self) -> Tensor:
        return self._score(self.risk.baseline_logit)

    @property
    def completeness_gap(self) -> Tensor:
        return self.risk.completeness_gap

    @property
    def standard_error(self) -> Tensor | None:
        return self.risk.standard_error

    @property
    def method(self) -> str:
        return self.risk.method

    def rows(self, index: Tensor) -> Self:
        return type(self)(self.risk.rows(index), self.is_probability)

    def with_inputs_of(self, other: Self) -> Tensor:
        return -self.risk.with_inputs_of(other.risk)

    def per_deviation(self, deviation: Tensor) -> Tensor:
        return -self.risk.per_deviation(deviation)

    @property
    def shares_contexts(self) -> bool:
        return isinstance(self.risk, SharesContexts) and self.risk.shares_contexts

    def crossed(self, contexts: Tensor, other: Explanation, inputs: Tensor) -> Tensor:
        assert isinstance(self.risk, SharesContexts)
        assert isinstance(other, _Turned)
        return -self.risk.crossed(contexts, other.risk, inputs)


class RiskModel(AuditedModel):
    """A model of the unfavorable outcome, converted to one of the favorable outcome.

    Parameters
    ----------
    risk
        The original model: its class 1, and so 1 in the labels it was fitted on, is the unfavorable outcome.

    Examples
    --------
    >>> from evenhand.models.dispatch import as_audited_model
    >>> risk = as_audited_model(torch.nn.Linear(1, 1))
    >>> x = torch.ones(1, 1)
    >>> bool(RiskModel(risk).margin(x) == -risk.margin(x))
    True
    >>> RiskModel(risk).favorable_labels(np.array([0, 1]))
    array([1, 0])
    """

    def __init__(self, risk: AuditedModel) -> None:
        self.risk = risk
        self.kind, self.encoder, self.attribution = risk.kind, risk.encoder, risk.attribution
        self.takes_missing, self.output = risk.takes_missing, risk.output
        self.categorical_inputs, self.has_probabilities = risk.categorical_inputs, risk.has_probabilities

    @property
    def needs_labels(self) -> bool:
        """Whether people are compared within a label."""
        return self.risk.needs_labels

    @property
    def dtype(self) -> torch.dtype:
        """Type of the model's input matrix."""
        return self.risk.dtype

    @property
    def device(self) -> torch.device:
        """The device of the model."""
        return self.risk.device

    def attribute(self, x: Tensor, baseline: Tensor, n_steps: int, method: Method) -> Explanation:
        """Attributions of the favorable outcome: those of the risk with the opposite sign."""
        return self._turned(self.risk.attribute(x, baseline, n_steps, method))

    def margin(self, x: Tensor) -> Tensor:
        """The explained score of the favorable outcome."""
        risk = self.risk.margin(x)
        return 1 - risk if self.output == "probability" else -risk

    def favorable_labels(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """1 for the favorable outcome, from labels that are 1 for the unfavorable one; labels of a value stay."""
        return labels if self.output == "value" else 1 - labels

    def identifying(self, table: pd.DataFrame) -> NDArray[np.float64] | None:
        """Numbers that identify equal rows."""
        return self.risk.identifying(table)

    def encode(self, table: pd.DataFrame, name: str = "X") -> Tensor:
        """The table as the model's input."""
        return self.risk.encode(table, name)

    def join_matrix(self) -> Tensor | None:
        """Matrix that sums inputs into the table's columns."""
        return self.risk.join_matrix()

    def is_financial(self, columns: list[str], financial_features: list[str]) -> NDArray[np.bool_]:
        """Which inputs of the model belong to financial features."""
        return self.risk.is_financial(columns, financial_features)

    def _turned(self, risk: Explanation) -> Explanation:
        return _Turned(risk, self.output == "probability")
