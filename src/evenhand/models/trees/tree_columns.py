"""Columns as input of trees that split on categories: categories as codes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from evenhand.models.encoders.named_columns import OneToOne
from evenhand.models.protocol import EncodesTables
from evenhand.models.trees import TreeEnsemble, coded_matrix, coded_values

__all__ = ["RecodedColumns", "TreeColumns", "column_names"]


@dataclass(frozen=True, eq=False)
class TreeColumns(OneToOne):
    """A table for an ensemble that knows categories by value.

    Attributes
    ----------
    ensemble
        The trees, with the categories of each feature in the order of their codes.
    names
        Columns of the table, in the order of the features.

    Examples
    --------
    >>> import pandas as pd
    >>> from sklearn.ensemble import HistGradientBoostingClassifier
    >>> from evenhand.models.trees import read_trees
    >>> table = pd.DataFrame({"age": [30, 50, 40], "home": pd.Categorical(["rent", "own", "rent"])})
    >>> ensemble = read_trees(HistGradientBoostingClassifier().fit(table, [0, 1, 1]))
    >>> TreeColumns(ensemble, ["age", "home"]).transform(pd.DataFrame({"home": ["own"], "age": [20]}))
    array([[20.,  0.]])
    """

    ensemble: TreeEnsemble
    names: list[str]

    def transform(self, table: pd.DataFrame) -> NDArray[np.float64]:
        """Numbers unchanged, and categories as codes."""
        return coded_matrix(self.ensemble, table[self.names])


@dataclass(frozen=True, eq=False)
class RecodedColumns:
    """The outputs of a pipeline's steps for an ensemble that treats some of them as categories.

    Attributes
    ----------
    encoder
        The steps.
    ensemble
        The trees, which take the output of the steps.
    """

    encoder: EncodesTables
    ensemble: TreeEnsemble

    @property
    def names(self) -> list[str]:
        """The table's columns."""
        return self.encoder.names

    @property
    def encoded_names(self) -> list[str]:
        """Outputs of the steps."""
        return self.encoder.encoded_names

    @property
    def join_matrix(self) -> NDArray[np.floating]:
        """1 if an output (row) comes from a column of the table (column), else 0."""
        return self.encoder.join_matrix

    def transform(self, table: pd.DataFrame) -> NDArray[np.float64]:
        """Outputs of the steps, with categories as the trees' codes."""
        return coded_values(self.ensemble, self.encoder.transform(table))


def column_names(ensemble: TreeEnsemble, columns: Sequence[str] | None) -> list[str] | None:
    """A table's names of the features of an ensemble; None if neither has names for them.

    LightGBM stores a space in a name as an underscore.
    """
    if ensemble.feature_names is None:
        return None if columns is None or len(columns) != ensemble.n_features else list(columns)
    spelled = {column.replace(" ", "_"): column for column in columns or ()}
    return [
        name if name in (columns or ()) else spelled.get(name.replace(" ", "_"), name)
        for name in ensemble.feature_names
    ]
