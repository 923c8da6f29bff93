"""Scorecards: every column in a few bins, and a logistic regression with one weight for each bin."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from sklearn.impute import MissingIndicator, SimpleImputer
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import KBinsDiscretizer

from evenhand.models.sklearn import is_kind
from evenhand.searching.families.family import EstimatorFamily, Parameters
from evenhand.searching.families.libraries import save_skops
from evenhand.searching.families.logistic import LogisticModels, bins_of, regression_on, regression_reading
from evenhand.searching.families.repairs import Training
from evenhand.searching.families.starting import Reading

__all__ = ["ScorecardModels"]


class ScorecardModels(EstimatorFamily):
    """Quantile bins and a logistic regression, of scikit-learn."""

    name = "scorecard"
    words = "scorecards: a logistic regression on bins"
    fixed = LogisticModels.fixed
    usual: ClassVar[dict[str, Any]] = {"n_bins": 5, "C": 1.0}
    space: ClassVar[dict[str, Sequence[Any]]] = {"n_bins": (2, 3, 5, 8, 12), "C": (0.01, 0.1, 1.0)}

    def class_parameters(self) -> frozenset[str]:
        """The parameters of `LogisticRegression`."""
        return LogisticModels().class_parameters()

    def read(self, model: Any, text: str = "") -> Reading | None:  # noqa: ANN401
        """Read a regression after a `KBinsDiscretizer`, or a scorecard of optbinning."""
        bins = bins_of(model)
        reading = regression_reading(model, self.fixed) if bins else None
        if reading is None:
            return None
        told = "The bins of your scorecard are replaced by quantile bins."
        if is_kind(bins[0], "KBinsDiscretizer"):
            n_bins = int(np.max(bins[0].n_bins))
            notes = () if bins[0].strategy == "quantile" else (told,)
            return Reading({**reading.parameters, "n_bins": n_bins}, {}, (*reading.notes, *notes))
        return Reading(reading.parameters, {}, (*reading.notes, told))

    def around(self, parameters: Parameters) -> dict[str, list[Any]]:
        """Coarser bins, and more shrinkage."""
        bins = parameters["n_bins"]
        return {
            "n_bins": sorted({bins, max(2, bins // 2), max(2, bins - 1)}),
            "C": [parameters["C"], parameters["C"] * 0.1, parameters["C"] * 0.01],
        }

    def fit(self, parameters: Parameters, training: Training, random_state: int) -> Any:  # noqa: ANN401
        """A Pipeline that bins numbers at quantiles, with a bin for missing ones, and fits the regression."""
        bins = KBinsDiscretizer(
            n_bins=parameters["n_bins"],
            encode="onehot-dense",
            strategy="quantile",
            quantile_method="averaged_inverted_cdf",
            subsample=None,
        )
        binned = make_pipeline(SimpleImputer(strategy="median"), bins)
        step = FeatureUnion([("bins", binned), ("missing", MissingIndicator(error_on_new=False))])
        return regression_on(step, parameters, training, random_state)

    def save(self, model: Any, path: Path) -> Path:  # noqa: ANN401
        """Write a skops file."""
        return save_skops(model, path)
