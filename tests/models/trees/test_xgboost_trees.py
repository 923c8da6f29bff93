"""XGBoost's own margins, and shap's values of its models."""

import numpy as np
import pandas as pd
import pytest

from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.models.trees import contributions, read_trees

xgboost = pytest.importorskip("xgboost")

# XGBoost adds leaves up in float32.
TOLERANCE = 2e-5


def fitted(X, y, **settings):
    return xgboost.XGBClassifier(**{"n_estimators": 40, "max_depth": 4, "n_jobs": 1, **settings}).fit(X, y)


def assert_margin_is_its_own(model, X):
    ensemble = read_trees(model)
    np.testing.assert_allclose(ensemble.margin(X), model.predict(X, output_margin=True), atol=TOLERANCE)
    return ensemble


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"base_score": 0.2},
        {"base_score": 1e-7},
        {"base_score": 0.999999},
        {"objective": "binary:logitraw"},
        {"objective": "binary:logitraw", "base_score": 0.2},
        {"objective": "reg:logistic"},
        {"booster": "dart", "rate_drop": 0.3},
        {"num_parallel_tree": 3, "subsample": 0.5},
        {"tree_method": "exact", "gamma": 2.0},
        {"grow_policy": "lossguide", "max_leaves": 12, "max_depth": 0},
        {"scale_pos_weight": 3.0, "max_delta_step": 1},
        {"missing": 0.0},
    ],
    ids=str,
)
def test_margin_is_xgboosts_own(settings, applicants_with_gaps):
    X, y = applicants_with_gaps
    ensemble = assert_margin_is_its_own(fitted(X, y, **settings), X)
    assert (ensemble.output, ensemble.input_dtype, ensemble.feature_names) == ("log-odds", "float32", None)


def test_a_random_forest_of_xgboost_is_read(applicants_with_gaps):
    X, y = applicants_with_gaps
    assert_margin_is_its_own(xgboost.XGBRFClassifier(n_estimators=30, n_jobs=1).fit(X, y), X)


def test_values_on_a_threshold_go_where_xgboost_sends_them(applicants):
    X, y = applicants
    model = fitted(X, y)
    trees = model.get_booster().trees_to_dataframe().query("Feature != 'Leaf'")
    rows = np.repeat(X[:1], len(trees), axis=0)
    rows[np.arange(len(rows)), trees["Feature"].str[1:].astype(int)] = trees["Split"].astype(np.float32)
    assert_margin_is_its_own(model, rows)


def test_an_estimator_stopped_early_counts_its_trees_up_to_the_best(applicants):
    X, y = applicants
    model = xgboost.XGBClassifier(n_estimators=300, early_stopping_rounds=5, n_jobs=1)
    model.fit(X[:200], y[:200], eval_set=[(X[200:], y[200:])], verbose=False)
    n_grown = model.get_booster().num_boosted_rounds()
    assert model.best_iteration + 1 < n_grown
    assert assert_margin_is_its_own(model, X).n_trees == model.best_iteration + 1
    booster = model.get_booster()
    ensemble = read_trees(booster)
    assert ensemble.n_trees == n_grown
    own = booster.predict(xgboost.DMatrix(X), output_margin=True)
    np.testing.assert_allclose(ensemble.margin(X), own, atol=TOLERANCE)


def test_a_booster_loaded_from_a_file_is_read(applicants, tmp_path):
    X, y = applicants
    table = pd.DataFrame(X, columns=list("abcdef"))
    fitted(table, y).save_model(tmp_path / "model.ubj")
    booster = xgboost.Booster(model_file=tmp_path / "model.ubj")
    ensemble = read_trees(booster)
    assert ensemble.feature_names == tuple("abcdef")
    assert ensemble.source == "XGBoost Booster (40 trees)"
    own = booster.predict(xgboost.DMatrix(table), output_margin=True)
    np.testing.assert_allclose(ensemble.margin(X), own, atol=TOLERANCE)


@pytest.mark.parametrize("max_cat_to_onehot", [1, 20])
def test_category_codes_are_read(coded, max_cat_to_onehot):
    X, y = coded
    X = X.copy()
    X[:9, 1] = np.nan
    model = fitted(
        X, y, feature_types=["q", "c", "q", "c"], enable_categorical=True, max_cat_to_onehot=max_cat_to_onehot
    )
    ensemble = assert_margin_is_its_own(model, X)
    assert (ensemble.rule == 2).sum() > 10
    other = X.copy()
    other[:, 1] = 40.0
    assert_margin_is_its_own(model, other)


@pytest.mark.parametrize("values", [list("lkjihgfedcba"), list(range(30, 18, -1))], ids=["text", "numbers"])
def test_categories_of_a_table_are_kept_with_their_codes(coded, values):
    X, y = coded
    table = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    table["b"] = pd.Categorical(np.array(values)[X[:, 1].astype(int)])
    model = fitted(table, y, enable_categorical=True)
    ensemble = read_trees(model)
    assert ensemble.categories == {1: tuple(sorted(values))}
    rows = table.assign(b=table["b"].cat.codes).to_numpy(float)
    np.testing.assert_allclose(ensemble.margin(rows), model.predict(table, output_margin=True), atol=TOLERANCE)


@pytest.mark.skipif(
    np.lib.NumpyVersion(np.__version__) < "2.0.0", reason="the last shap for NumPy 1 cannot read models of XGBoost 3"
)
def test_contributions_equal_shap(applicants_with_gaps, assert_equal_to_shap):
    X, y = applicants_with_gaps
    X = X.astype(np.float32).astype(float)
    assert_equal_to_shap(fitted(X, y), X[:60], atol=TOLERANCE)


@pytest.mark.parametrize("settings", [{}, {"booster": "dart", "rate_drop": 0.3}], ids=str)
def test_contributions_equal_all_coalitions(settings, applicants_with_gaps, assert_equal_to_all_coalitions):
    X, y = applicants_with_gaps
    model = fitted(X, y, **settings)
    assert_equal_to_all_coalitions(model, lambda x: model.predict(x, output_margin=True), X[:30], TOLERANCE)


def test_contributions_equal_all_coalitions_with_categories(coded, assert_equal_to_all_coalitions):
    X, y = coded
    model = fitted(X, y, feature_types=["q", "c", "q", "c"], enable_categorical=True)
    assert_equal_to_all_coalitions(model, lambda x: model.predict(x, output_margin=True), X[:30], TOLERANCE)


def test_contributions_are_complete_to_nine_digits(applicants_with_gaps):
    X, y = applicants_with_gaps
    ensemble = read_trees(fitted(X, y, n_estimators=100, max_depth=6))
    b = np.roll(X, 1, axis=0)
    gap = ensemble.margin(X) - ensemble.margin(b)
    np.testing.assert_allclose(contributions(ensemble, X, X, b).sum(axis=1), gap, atol=1e-9)


def test_a_linear_booster_is_refused(applicants):
    settings = {"booster": "gblinear", "updater": "coord_descent", "objective": "binary:logistic"}
    booster = xgboost.train(settings, xgboost.DMatrix(*applicants), 2)
    with pytest.raises(InvalidInputError, match="booster='gblinear', which has no trees"):
        read_trees(booster)


def test_one_class_in_training_leaves_a_finite_base_margin(applicants):
    X, _ = applicants
    booster = xgboost.train({"objective": "binary:logistic"}, xgboost.DMatrix(X, np.zeros(len(X))), 3)
    own = booster.predict(xgboost.DMatrix(X), output_margin=True)
    np.testing.assert_allclose(read_trees(booster).margin(X), own, atol=TOLERANCE)


def test_a_booster_without_trees_is_refused(applicants):
    booster = xgboost.train({"objective": "binary:logistic"}, xgboost.DMatrix(*applicants), 0)
    with pytest.raises(InvalidInputError, match="This Booster has no trees: train it for at least one round"):
        read_trees(booster)


@pytest.mark.parametrize("settings", [{}, {"multi_strategy": "multi_output_tree", "tree_method": "hist"}], ids=str)
def test_more_than_two_classes_are_refused(settings, applicants):
    X, _ = applicants
    with pytest.raises(InvalidInputError, match="This XGBClassifier has 4 classes or outputs"):
        read_trees(fitted(X, X[:, 3].astype(int), n_estimators=2, **settings))


def test_an_objective_that_is_not_logistic_is_refused(applicants):
    model = xgboost.XGBRegressor(n_estimators=2).fit(*applicants)
    with pytest.raises(InvalidInputError, match="This XGBRegressor was fitted with the objective 'reg:squarederror'"):
        read_trees(model)


def test_a_model_that_is_not_fitted_is_refused():
    with pytest.raises(InvalidInputError, match="This XGBClassifier is not fitted: call its `fit` first"):
        read_trees(xgboost.XGBClassifier())


def test_other_objects_of_xgboost_are_refused(applicants):
    with pytest.raises(InvalidTypeError, match=r"For XGBoost, an estimator .* is expected, got DMatrix"):
        read_trees(xgboost.DMatrix(*applicants))
