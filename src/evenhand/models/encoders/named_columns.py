"""Columns of a table by name, in the order in which a model was fitted on them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.inputs.validation import as_matrix

__all__ = ["NamedColumns"]


@dataclass(frozen=True)
class NamedColumns:
    """Number columns as they are: an encoding that changes nothing but makes sure of the order.

    Attributes
    ----------
    names
        Columns of the table, in the order of the model's inputs.
    takes_missing
        Whether a value may be missing.
    """

    names: list[str]
    takes_missing: bool = False

    @property
    def encoded_names(self) -> list[str]:
        """The same names."""
        return self.names

    @property
    def join_matrix(self) -> NDArray[np.float64]:
        """The identity."""
        return np.eye(len(self.names))

    def transform(self, table: pd.DataFrame) -> NDArray[np.floating]:
        """The columns as a float64 matrix."""
        return as_matrix(table[self.names], dtype=np.float64, allow_missing=self.takes_missing)
