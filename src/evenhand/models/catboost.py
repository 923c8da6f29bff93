"""CatBoost models with categories and text: black boxes whose log-odds are known."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from evenhand.models.black_box import black_box_model
from evenhand.models.protocol import Output
from evenhand.models.shapley import ShapleyModel
from evenhand.models.trees import tree_library
from evenhand.models.trees.libraries import check_loss, takes_words, word_features


@dataclass(frozen=True, eq=False)
class CatBoostScore:
    """The raw value of a CatBoost model with a logistic loss, which is log-odds."""

    model: Any

    def __call__(self, table: pd.DataFrame) -> np.ndarray[Any, Any]:
        """Log-odds of each row."""
        return np.asarray(self.model.predict(table, prediction_type="RawFormulaVal"))


def takes_categories(model: Any) -> bool:
    """Whether `model` is a fitted CatBoost model with categories or text among its features."""
    return tree_library(model) == "catboost" and getattr(model, "is_fitted", bool)() and takes_words(model)


def catboost_black_box(
    model: Any,
    table: pd.DataFrame,
    *,
    output: Output | None = None,
    n_permutations: int = 32,
    random_state: int = 0,
) -> ShapleyModel:
    """A CatBoost model with categories in the form of the audit.

    Raises
    ------
    InvalidInputError
        If its loss is not logistic.
    """
    name = type(model).__name__
    check_loss(str(model.get_all_params().get("loss_function", "unknown")).split(":")[0], name)
    names = [str(feature) for feature in model.feature_names_]
    if names == [str(j) for j in range(len(names))] and len(names) == table.shape[1]:
        names = [str(column) for column in table.columns]  # fitted without names
    wants_probability = output == "probability"
    return black_box_model(
        model if wants_probability else CatBoostScore(model),
        output=output if wants_probability else "log-odds",
        n_permutations=n_permutations,
        random_state=random_state,
        kind=f"CatBoost {name} of categories (black box)",
        table=table,
        names=names,
        categorical=[names[j] for j in word_features(model)],
    )
