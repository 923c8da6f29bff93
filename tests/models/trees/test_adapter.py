"""Tree models, told from others, behind the audit's interface."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.ensemble import (
    BaggingClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
)
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.attribution.shapley import Game
from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.models.dispatch import as_audited_model
from evenhand.models.trees import read_trees, tree_library
from evenhand.models.trees.adapter import TreeGame


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


@pytest.fixture(scope="module")
def boosted(numbers):
    return GradientBoostingClassifier(n_estimators=15, random_state=0).fit(numbers[0], numbers[1])


def test_trees_are_a_game_whose_contributions_are_complete(boosted, numbers):
    audited = as_audited_model(boosted)
    assert isinstance(audited.game, TreeGame)
    assert isinstance(audited.game, Game)
    x = audited.encode(numbers[0])
    found = audited.attribute(x, np.broadcast_to(x.mean(0), x.shape), 8, "segments")
    assert found.completeness_gap.max() < 1e-12
    assert found.standard_error is None
    np.testing.assert_allclose(audited.probability(found.logit), boosted.predict_proba(numbers[0])[:, 1], atol=1e-12)


def test_a_forest_is_explained_in_probabilities(numbers):
    X, y, _ = numbers
    forest = RandomForestClassifier(10, random_state=0).fit(X, y)
    audited = as_audited_model(forest)
    assert audited.output == "probability"
    np.testing.assert_allclose(audited.margin(audited.encode(X)), forest.predict_proba(X)[:, 1], atol=1e-12)


@pytest.mark.filterwarnings("ignore:.*too short to have a direction")
def test_missing_values_are_the_trees_own_business(numbers):
    X, y, group = numbers
    holes = X.mask(np.random.default_rng(1).random(X.shape) < 0.1)
    model = HistGradientBoostingClassifier(max_iter=10).fit(holes, y)
    audited = as_audited_model(model)
    assert audited.takes_missing
    np.testing.assert_allclose(
        audited.probability(audited.margin(audited.encode(holes))), model.predict_proba(holes)[:, 1], atol=1e-12
    )
    result = eh.audit(model, holes, y, sensitive_features=group, financial_features=["income", "debt"])
    assert result.provenance.completeness_gap < 1e-9
    infinite = holes.copy()
    infinite.iloc[0, 0] = np.inf
    with pytest.raises(InvalidInputError, match=r"holds infinite values \(column: count\): {'income': 1}"):
        audited.encode(infinite)


@pytest.mark.parametrize(
    "damage",
    [
        lambda e: {"left": np.where(e.feature >= 0, 0, e.left).astype(np.int32)},
        lambda e: {"right": np.where(e.feature >= 0, 10**6, e.right).astype(np.int32)},
        lambda e: {"left": np.where(e.feature >= 0, -3, e.left).astype(np.int32)},
        lambda e: {"feature": np.where(e.feature >= 0, 99, -1).astype(np.int32)},
        lambda e: {"roots": e.roots + 10**6},
        lambda e: {"value": np.full_like(e.value, np.nan)},
        lambda e: {"base_margin": float("inf")},
        lambda e: {"set_size": e.set_size + 5},
        lambda e: {"categories": {99: ("own", "rent")}},
    ],
    ids=["cycle", "beyond the end", "before the start", "feature", "roots", "values", "base", "sets", "categories"],
)
def test_trees_that_a_walk_would_not_come_out_of_are_refused(damage, boosted):
    ensemble = read_trees(boosted)
    assert as_audited_model(ensemble).attribution == "tree_shap"
    with pytest.raises(InvalidInputError, match="are damaged: their nodes do not form trees"):
        as_audited_model(replace(ensemble, **damage(ensemble)))
