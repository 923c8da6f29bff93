"""CatBoost's own raw values, and shap's values of its models."""

import numpy as np
import pandas as pd
import pytest

from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.models.trees import read_trees

catboost = pytest.importorskip("catboost")

TOLERANCE = 1e-9


def fitted(X, y, **settings):
    defaults = {"iterations": 30, "depth": 4, "verbose": 0, "allow_writing_files": False, "thread_count": 1}
    return catboost.CatBoostClassifier(**{**defaults, **settings}).fit(X, y)


def raw_value(model):
    return lambda rows: model.predict(rows, prediction_type="RawFormulaVal")


def assert_margin_is_its_own(model, X):
    ensemble = read_trees(model)
    np.testing.assert_allclose(ensemble.margin(X), raw_value(model)(X), atol=TOLERANCE)
    return ensemble


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"nan_mode": "Max"},
        {"boost_from_average": True},
        {"loss_function": "CrossEntropy"},
        {"grow_policy": "Depthwise"},
        {"grow_policy": "Lossguide", "max_leaves": 12},
        {"depth": 1, "auto_class_weights": "Balanced"},
        {"depth": 8, "iterations": 5},
        {"iterations": 60, "model_shrink_rate": 0.1},
    ],
    ids=str,
)
def test_margin_is_catboosts_own(settings, applicants_with_gaps):
    X, y = applicants_with_gaps
    ensemble = assert_margin_is_its_own(fitted(X, y, **settings), X)
    assert (ensemble.output, ensemble.input_dtype, ensemble.feature_names) == ("log-odds", "float32", None)


def test_scale_and_bias_count(applicants):
    X, y = applicants
    model = fitted(X, y)
    model.set_scale_and_bias(0.5, 1.25)
    assert assert_margin_is_its_own(model, X).base_margin == 1.25


def test_missing_values_that_training_had_not_seen_go_where_catboost_sends_them(applicants, applicants_with_gaps):
    assert_margin_is_its_own(fitted(*applicants), applicants_with_gaps[0])


def test_values_on_a_border_go_where_catboost_sends_them(applicants):
    X, y = applicants
    model = fitted(X, y)
    ensemble = read_trees(model)
    at = ensemble.feature >= 0
    rows = np.repeat(X[:1], at.sum(), axis=0)
    for border in (ensemble.threshold[at], np.nextafter(ensemble.threshold[at], np.inf)):
        rows[np.arange(len(rows)), ensemble.feature[at]] = border
        assert_margin_is_its_own(model, rows)


def test_a_feature_without_information_keeps_its_place(applicants):
    X, y = applicants
    X = np.where(np.arange(6) == 1, 7.0, X)
    assert assert_margin_is_its_own(fitted(X, y), X).n_features == 6


def test_a_model_without_splits_is_a_constant(applicants):
    X, y = applicants
    model = fitted(X, y, depth=0, iterations=3)
    assert assert_margin_is_its_own(model, X).max_depth == 0


def test_names_of_columns_are_kept(applicants):
    X, y = applicants
    model = fitted(pd.DataFrame(X, columns=list("abcdef")), y)
    ensemble = assert_margin_is_its_own(model, X)
    assert ensemble.feature_names == tuple("abcdef")
    assert ensemble.source == "CatBoost CatBoostClassifier (30 trees)"


def test_trees_after_the_best_iteration_are_left_out(applicants):
    X, y = applicants
    model = catboost.CatBoostClassifier(
        iterations=300, early_stopping_rounds=5, verbose=0, allow_writing_files=False, thread_count=1
    )
    model.fit(X[:200], y[:200], eval_set=(X[200:], y[200:]))
    assert assert_margin_is_its_own(model, X).n_trees == model.tree_count_ < 300


@pytest.mark.parametrize("settings", [{}, {"grow_policy": "Lossguide", "max_leaves": 12}], ids=str)
def test_contributions_equal_all_coalitions(settings, applicants_with_gaps, assert_equal_to_all_coalitions):
    X, y = applicants_with_gaps
    model = fitted(X, y, **settings)
    assert_equal_to_all_coalitions(model, raw_value(model), X[:30], TOLERANCE)


def test_contributions_equal_shap(applicants, assert_equal_to_shap):
    X, y = applicants
    X = X.astype(np.float32).astype(float)
    assert_equal_to_shap(fitted(X, y), X[:60], atol=1e-6)


def test_categorical_features_are_refused(applicants):
    X, y = applicants
    table = pd.DataFrame(X).assign(town=np.where(y == 1, "a", "b"))
    with pytest.raises(
        InvalidInputError, match="This CatBoostClassifier has 1 categorical feature, which CatBoost turns"
    ):
        read_trees(fitted(table, y, cat_features=["town"]))


def test_text_features_are_refused(applicants):
    X, y = applicants
    table = pd.DataFrame(X).assign(note=np.where(y == 1, "good payer", "late payer"))
    with pytest.raises(InvalidInputError, match="has 1 text feature"):
        read_trees(fitted(table, y, text_features=["note"]))


def test_more_than_two_classes_are_refused(applicants):
    X, _ = applicants
    with pytest.raises(InvalidInputError, match="fitted with the loss 'MultiClass'"):
        read_trees(fitted(X, X[:, 3].astype(int), iterations=2))


def test_a_loss_that_is_not_logistic_is_refused(applicants):
    model = catboost.CatBoostRegressor(iterations=2, verbose=0, allow_writing_files=False).fit(*applicants)
    with pytest.raises(InvalidInputError, match="This CatBoostRegressor was fitted with the loss 'RMSE'"):
        read_trees(model)


def test_a_model_that_is_not_fitted_is_refused():
    with pytest.raises(InvalidInputError, match="This CatBoostClassifier is not fitted: call its `fit` first"):
        read_trees(catboost.CatBoostClassifier())


def test_other_objects_of_catboost_are_refused(applicants):
    with pytest.raises(InvalidTypeError, match=r"For CatBoost, a fitted model .* is expected, got Pool"):
        read_trees(catboost.Pool(*applicants))
