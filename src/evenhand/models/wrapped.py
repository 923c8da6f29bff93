"""Models in another form: a risk, reversed so that high is favorable, and attributions given without their model."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.arrays import Array, Floats
from evenhand.attribution.explanation import Explanation, Method
from evenhand.inputs.validation import is_number_column
from evenhand.models.protocol import AttributionName, AuditedModel, LinearModel, Output

# What a risk and its reverse have in common, attributes and methods.
_SHARED = (
    *("kind", "encoder", "attribution", "takes_missing", "output", "categorical_inputs", "has_probabilities"),
    *("identifying", "encode", "join_matrix", "is_financial"),
)


class RiskModel(AuditedModel):
    """A model of the unfavorable outcome, converted to one of the favorable outcome.

    Parameters
    ----------
    risk
        The original model: its class 1, and so 1 in the labels it was fitted on, is the unfavorable outcome.

    Examples
    --------
    >>> risk = LinearModel(np.array([2.0]), 0.5, "scorecard")
    >>> x = np.ones((1, 1))
    >>> bool(RiskModel(risk).margin(x) == -risk.margin(x))
    True
    >>> RiskModel(risk).favorable_labels(np.array([0, 1]))
    array([1, 0])
    """

    def __init__(self, risk: AuditedModel) -> None:
        self.risk = risk
        for name in _SHARED:
            setattr(self, name, getattr(risk, name))

    @property
    def dtype(self) -> type[np.floating]:
        """Type of the model's input matrix."""
        return self.risk.dtype

    @property
    def device(self) -> str | None:
        """The device of the model."""
        return self.risk.device

    def attribute(self, x: Array, baseline: Array, n_steps: int, method: Method) -> Explanation:
        """Attributions of the favorable outcome: those of the risk with the opposite sign."""
        return self.risk.attribute(x, baseline, n_steps, method).reversed(self._reversed)

    def margin(self, x: Array) -> Array:
        """The explained score of the favorable outcome."""
        return self._reversed(self.risk.margin(x))

    def _reversed(self, risk: Array) -> Array:
        return 1 - risk if self.output == "probability" else -risk

    def favorable_labels(self, labels: NDArray[np.int64]) -> NDArray[np.int64]:
        """1 for the favorable outcome, from labels that are 1 for the unfavorable one; labels of a value stay."""
        return labels if self.output == "value" else 1 - labels


@dataclass(frozen=True, eq=False)
class GivenModel(LinearModel):
    """Attributions from one common background, which are a linear model of themselves.

    A base value and the attributions of a person sum to the person's score. If the attributions replace the inputs,
    every weight is 1: the mean of a cell is its mean attribution, a person is explained by the difference from it, and
    a person with someone else's finances has the attributions of someone else's finances. For a linear model, this is
    what the model itself would give.

    A score without attributions is a single input that is neither a column of the table nor part of the finances.

    Attributes
    ----------
    given
        Attributions by feature, of shape (n, d), or scores alone, of shape (n, 1), in the order of the people.
    n_features
        Columns of the table.

    Examples
    --------
    >>> model = GivenModel.of(np.array([[0.5, -0.25]]), 1.0, 2, "log-odds", "attributions")
    >>> model.margin(model.encode(pd.DataFrame({"income": [1], "home": ["rent"]}))).tolist()
    [1.25]
    """

    attribution: AttributionName = "given"
    given: Floats = field(default_factory=lambda: np.empty((0, 0)))
    n_features: int = 0
    takes_missing: bool = True

    @classmethod
    def of(cls, given: Floats, base: float, n_features: int, output: Output, kind: str) -> GivenModel:
        """Attributions or scores, and the base value that is added to them."""
        values = np.array(given, dtype=np.float64)
        weights = np.ones(values.shape[1])
        return cls(weights, base, kind, output=output, given=values, n_features=n_features)

    @property
    def is_score_alone(self) -> bool:
        """Whether only the score is known."""
        return bool(self.given.shape[1] != self.n_features)

    def encode(self, table: pd.DataFrame, name: str = "X") -> Floats:
        """What was given for the people of the table."""
        assert len(table) == len(self.given), f"{name} holds different people than those whose scores were given"
        return self.given

    def identifying(self, table: pd.DataFrame) -> Floats:
        """The table in numbers; a category is its place in order of appearance."""
        text = [name for name in table.columns if not is_number_column(table[name])]
        coded = table.assign(**{name: pd.factorize(table[name])[0] for name in text})
        return coded.to_numpy(dtype=np.float64, na_value=np.nan)

    def join_matrix(self) -> Floats | None:
        """None for attributions; a score alone is assigned to the first column, which the audit then leaves out."""
        if not self.is_score_alone:
            return None
        return np.eye(1, self.n_features)

    def is_financial(self, columns: list[str], financial_features: list[str]) -> NDArray[np.bool_]:
        """Which attributions belong to financial features; a score alone belongs to none."""
        if self.is_score_alone:
            return np.zeros(1, dtype=np.bool_)
        return np.isin(columns, financial_features)
