"""Columns of a table by name, in the order in which a model was fitted on them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.inputs.validation import as_matrix

__all__ = ["NamedColumns", "OneToOne", "fitted_names"]


def fitted_names(model: Any) -> list[str] | None:  # noqa: ANN401 - any estimator
    """Names of the columns that a scikit-learn or optbinning model was fitted on; None if they had none."""
    names = getattr(model, "feature_names_in_", None)
    if names is None and type(model).__module__.startswith("optbinning."):
        names = getattr(model, "variable_names", None)
    return None if names is None else [str(name) for name in names]


class OneToOne:
    """An encoding whose inputs are the table's columns, one to one."""

    names: list[str]

    @property
    def encoded_names(self) -> list[str]:
        """The same names."""
        return self.names

    @property
    def join_matrix(self) -> NDArray[np.float64]:
        """The identity."""
        return np.eye(len(self.names))


@dataclass(frozen=True)
class NamedColumns(OneToOne):
    """Numeric columns, unchanged: an encoding that only ensures the order.

    Attributes
    ----------
    names
        Columns of the table, in the order of the model's inputs.
    takes_missing
        Whether a value may be missing.
    """

    names: list[str]
    takes_missing: bool = False

    def transform(self, table: pd.DataFrame) -> NDArray[np.floating]:
        """The columns as a float64 matrix."""
        return as_matrix(table[self.names], dtype=np.float64, allow_missing=self.takes_missing)
