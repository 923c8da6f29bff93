"""Given scores and attributions, without the model that produced them."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from evenhand.inputs.validation import is_number_column
from evenhand.models.linear import LinearModel
from evenhand.models.protocol import AttributionName, Output

__all__ = ["GivenModel"]

Floats = NDArray[np.float64]


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
    given: Tensor = field(default_factory=lambda: torch.empty(0, 0))
    n_features: int = 0
    takes_missing: bool = True

    @classmethod
    def of(cls, given: Floats, base: float, n_features: int, output: Output, kind: str) -> GivenModel:
        """Attributions or scores, and the base value that is added to them."""
        values = torch.tensor(given, dtype=torch.float64)
        return cls(
            torch.ones(values.shape[1], dtype=torch.float64),
            base,
            kind,
            output=output,
            given=values,
            n_features=n_features,
        )

    @property
    def needs_labels(self) -> bool:
        """False: decisions and scores are known without an outcome."""
        return False

    @property
    def is_score_alone(self) -> bool:
        """Whether only the score is known."""
        return self.given.shape[1] != self.n_features

    def encode(self, table: pd.DataFrame, name: str = "X") -> Tensor:
        """What was given for the people of the table."""
        assert len(table) == len(self.given), f"{name} holds different people than those whose scores were given"
        return self.given

    def identifying(self, table: pd.DataFrame) -> Floats:
        """The table in numbers; a category is its place in order of appearance."""
        columns = [
            table[name].to_numpy(dtype=np.float64, na_value=np.nan)
            if is_number_column(table[name])
            else pd.factorize(table[name])[0].astype(np.float64)
            for name in table.columns
        ]
        return np.column_stack(columns)

    def join_matrix(self) -> Tensor | None:
        """None for attributions; a score alone is assigned to the first column, which the audit then leaves out."""
        if not self.is_score_alone:
            return None
        return torch.eye(1, self.n_features, dtype=torch.float64)

    def is_financial(self, columns: list[str], financial_features: list[str]) -> NDArray[np.bool_]:
        """Which attributions belong to financial features; a score alone belongs to none."""
        if self.is_score_alone:
            return np.zeros(1, dtype=np.bool_)
        return np.isin(columns, financial_features)
