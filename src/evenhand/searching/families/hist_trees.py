"""Boosted trees of scikit-learn: `HistGradientBoostingClassifier` behind integer codes of categories."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import Pipeline
from sklearn.preprocessing import OrdinalEncoder

from evenhand.models.sklearn import is_kind
from evenhand.searching.families.columns import kept_columns, monotone_signs, numbers_and_words
from evenhand.searching.families.family import EstimatorFamily, Parameters, class_options
from evenhand.searching.families.libraries import fitted, save_skops
from evenhand.searching.families.repairs import Training
from evenhand.searching.families.starting import Reading, given_parameters, last_step, signs_by_input

__all__ = ["HistTrees"]


_EARLY = frozenset({"early_stopping", "validation_fraction", "n_iter_no_change", "tol"})


class HistTrees(EstimatorFamily):
    """Boosted trees of scikit-learn."""

    name = "trees"
    words = "gradient-boosted trees of scikit-learn"
    takes_monotone = True
    fixed = EstimatorFamily.fixed | {"monotonic_cst", "categorical_features", "warm_start", "scoring", "loss"}
    usual: ClassVar[dict[str, Any]] = {
        "learning_rate": 0.1,
        "max_iter": 100,
        "max_leaf_nodes": 31,
        "max_depth": None,
        "min_samples_leaf": 20,
        "l2_regularization": 0.0,
        "max_bins": 255,
    }
    space: ClassVar[dict[str, Sequence[Any]]] = {
        "learning_rate": (0.03, 0.1),
        "max_iter": (50, 100, 200),
        "max_leaf_nodes": (4, 8, 16, 31),
        "min_samples_leaf": (20, 100),
        "max_bins": (16, 255),
    }

    def class_parameters(self) -> frozenset[str]:
        """The parameters of `HistGradientBoostingClassifier`."""
        return frozenset(HistGradientBoostingClassifier().get_params())

    def read(self, model: Any, text: str = "") -> Reading | None:  # noqa: ANN401
        """Read a `HistGradientBoostingClassifier`."""
        model = last_step(model)
        if not is_kind(model, "HistGradientBoostingClassifier"):
            return None
        parameters, notes = given_parameters(model, self.fixed | _EARLY)
        if model.n_iter_ < model.max_iter:
            notes += (f"Your model stopped early: its {model.n_iter_} rounds are kept.",)
        if model.is_categorical_ is not None:
            notes += ("Your model splits on categories; candidates split on their integer codes.",)
        return Reading({**parameters, "max_iter": int(model.n_iter_)}, signs_by_input(model.monotonic_cst), notes)

    def around(self, parameters: Parameters) -> dict[str, list[Any]]:
        """Half the learning rate, half the trees or leaves, larger leaves, coarser bins."""
        leaves = parameters["max_leaf_nodes"] or 31
        return {
            "learning_rate": [parameters["learning_rate"], parameters["learning_rate"] / 2],
            "max_iter": [parameters["max_iter"], max(1, parameters["max_iter"] // 2)],
            "max_leaf_nodes": [parameters["max_leaf_nodes"], max(2, leaves // 2)],
            "min_samples_leaf": [parameters["min_samples_leaf"], 5 * parameters["min_samples_leaf"]],
            "max_bins": [parameters["max_bins"], min(16, parameters["max_bins"])],
        }

    def fit(self, parameters: Parameters, training: Training, random_state: int) -> Any:  # noqa: ANN401
        """A Pipeline that codes categories and then fits trees."""
        columns = [str(column) for column in training.X.columns]
        numbers, words = numbers_and_words(training.X[kept_columns(parameters, columns)])
        codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-1)
        encode = ColumnTransformer([("numbers", "passthrough", numbers), ("words", codes, words)])
        signs = monotone_signs(parameters, training.X[[*numbers, *words]])
        options = class_options(parameters)
        trees = HistGradientBoostingClassifier(
            **{"early_stopping": False, **options}, monotonic_cst=signs or None, random_state=random_state
        )
        model = Pipeline([("encode", encode), ("trees", trees)])
        return fitted(model, training.X, training, "trees__sample_weight")

    def save(self, model: Any, path: Path) -> Path:  # noqa: ANN401
        """Write a skops file."""
        return save_skops(model, path)
