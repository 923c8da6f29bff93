"""Scorecards of optbinning: a linear model on the weight of evidence of each column's bin."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pandas as pd

from evenhand.exceptions import InvalidInputError

__all__ = ["ScorecardBins", "binned_columns", "is_scorecard"]


def is_scorecard(model: Any) -> bool:  # noqa: ANN401 - any object
    """Whether `model` is an optbinning Scorecard; nothing is imported to check.

    Examples
    --------
    >>> is_scorecard("text")
    False
    """
    kind = type(model)
    return kind.__name__ == "Scorecard" and kind.__module__.startswith("optbinning.")


def binned_columns(model: Any) -> list[str] | None:  # noqa: ANN401 - any object
    """Columns that a Scorecard or a BinningProcess was fitted on; None for any other model.

    Examples
    --------
    >>> binned_columns("text") is None
    True
    """
    process: Any = getattr(model, "binning_process_", None) if is_scorecard(model) else model
    if type(process).__name__ != "BinningProcess" or not type(process).__module__.startswith("optbinning."):
        return None
    return list(process.variable_names)


@dataclass(frozen=True, eq=False)
class ScorecardBins:
    """A scorecard's first half as a transformer: converts columns to the inputs of its estimator.

    Attributes
    ----------
    scorecard
        The fitted scorecard.

    Raises
    ------
    InvalidInputError
        If it is not fitted.
    """

    scorecard: Any

    def __post_init__(self) -> None:
        if getattr(self.scorecard, "binning_process_", None) is None:
            raise InvalidInputError("This Scorecard is not fitted: call its `fit` first.")

    @property
    def feature_names_in_(self) -> list[str]:
        """Columns that the scorecard was fitted on."""
        return list(self.scorecard.binning_process_.variable_names)

    @property
    def sources(self) -> list[int]:
        """Position of the column behind each number."""
        return [int(j) for j in self.scorecard.binning_process_.get_support(indices=True)]

    def transform(self, table: pd.DataFrame) -> Any:  # noqa: ANN401 - a table
        """Weights of evidence, or whatever else the scorecard passes to its estimator."""
        return self.scorecard.binning_process_.transform(
            table[self.feature_names_in_],
            metric_special=self.scorecard._metric_special,
            metric_missing=self.scorecard._metric_missing,
        )
