"""Telling tree models from others."""

import pytest
from sklearn.ensemble import BaggingClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.linear_model import LogisticRegression

from evenhand.exceptions import InvalidTypeError
from evenhand.models.trees import read_trees, tree_library


class OwnForest(RandomForestClassifier):
    """A user's subclass."""


@pytest.mark.parametrize(
    ("model", "library"),
    [
        (HistGradientBoostingClassifier(), "sklearn"),
        (OwnForest(), "sklearn"),
        (LogisticRegression(), None),
        (BaggingClassifier(), None),
        ("a file name", None),
    ],
    ids=lambda value: type(value).__name__,
)
def test_the_library_of_a_model_is_told_by_its_class(model, library):
    assert tree_library(model) == library


@pytest.mark.parametrize(
    ("library", "name"),
    [("xgboost", "XGBClassifier"), ("lightgbm", "LGBMClassifier"), ("catboost", "CatBoostClassifier")],
)
def test_a_subclass_of_a_librarys_estimator_is_its(library, name):
    kind = getattr(pytest.importorskip(library), name)
    assert tree_library(type("Own", (kind,), {})()) == library


def test_models_without_trees_are_refused():
    message = "A tree model of XGBoost, LightGBM, CatBoost or scikit-learn is expected, got LogisticRegression"
    with pytest.raises(InvalidTypeError, match=message):
        read_trees(LogisticRegression())
