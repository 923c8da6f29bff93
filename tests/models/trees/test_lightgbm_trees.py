"""LightGBM's own raw scores, and shap's values of its models."""

import numpy as np
import pandas as pd
import pytest

from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.models.trees import read_trees

lightgbm = pytest.importorskip("lightgbm")

TOLERANCE = 1e-9


def fitted(X, y, fit_settings=None, **settings):
    settings = {"n_estimators": 30, "n_jobs": 1, "verbose": -1, "min_child_samples": 5, **settings}
    return lightgbm.LGBMClassifier(**settings).fit(X, y, **(fit_settings or {}))


def raw_score(model):
    """The model's raw score of numeric rows, by its booster so that names of columns play no part."""
    booster = getattr(model, "booster_", model)
    return lambda rows: booster.predict(rows, raw_score=True, num_threads=1)


def assert_margin_is_its_own(model, X):
    ensemble = read_trees(model)
    np.testing.assert_allclose(ensemble.margin(X), raw_score(model)(X), atol=TOLERANCE)
    return ensemble


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"zero_as_missing": True},
        {"use_missing": False},
        {"boosting_type": "dart", "drop_rate": 0.3},
        {"boost_from_average": False},
        {"objective": "cross_entropy"},
        {"is_unbalance": True},
        {"extra_trees": True, "num_leaves": 60},
        {"min_child_samples": 500},
    ],
    ids=str,
)
def test_margin_is_lightgbms_own(settings, applicants_with_gaps):
    X, y = applicants_with_gaps
    ensemble = assert_margin_is_its_own(fitted(X, y, **settings), X)
    assert (ensemble.output, ensemble.input_dtype, ensemble.feature_names) == ("log-odds", "float64", None)


def test_a_random_forest_of_lightgbm_gives_the_log_odds_of_its_probability(applicants_with_gaps):
    """Its `raw_score` is the sum over trees, its probability the logistic function of their mean."""
    X, y = applicants_with_gaps
    model = fitted(X, y, boosting_type="rf", bagging_freq=1, bagging_fraction=0.6)
    margin = read_trees(model).margin(X)
    np.testing.assert_allclose(1 / (1 + np.exp(-margin)), model.predict_proba(X)[:, 1], atol=TOLERANCE)


def test_missing_values_that_training_had_not_seen_count_as_zero(applicants, applicants_with_gaps):
    assert_margin_is_its_own(fitted(*applicants), applicants_with_gaps[0])


def test_zeros_that_count_as_missing_reach_a_little_around_zero(applicants_with_gaps):
    X, y = applicants_with_gaps
    model = fitted(X, y, zero_as_missing=True)
    for almost in (1e-36, -1e-36, 1e-35, -1e-35, np.float32(1e-35), -np.float32(1e-35), 1e-34, -1e-34, -0.0):
        assert_margin_is_its_own(model, np.where(X == 0, almost, X))


def test_values_on_a_threshold_go_where_lightgbm_sends_them(applicants):
    X, y = applicants
    model = fitted(X, y)
    ensemble = read_trees(model)
    at = ensemble.feature >= 0
    rows = np.repeat(X[:1], at.sum(), axis=0)
    rows[np.arange(len(rows)), ensemble.feature[at]] = ensemble.threshold[at]
    assert_margin_is_its_own(model, rows)
    rows[np.arange(len(rows)), ensemble.feature[at]] = np.nextafter(ensemble.threshold[at], np.inf)
    assert_margin_is_its_own(model, rows)


def test_a_steeper_sigmoid_gives_log_odds_which_are_the_scaled_raw_score(applicants):
    X, y = applicants
    model = fitted(X, y, sigmoid=2.5)
    margin = read_trees(model).margin(X)
    np.testing.assert_allclose(margin, 2.5 * raw_score(model)(X), atol=TOLERANCE)
    np.testing.assert_allclose(1 / (1 + np.exp(-margin)), model.predict_proba(X)[:, 1], atol=TOLERANCE)


@pytest.mark.filterwarnings("ignore:The argument 'eval_set' is deprecated")
def test_trees_after_the_best_iteration_are_left_out(applicants):
    X, y = applicants
    model = fitted(
        X[:200],
        y[:200],
        {"eval_set": [(X[200:], y[200:])], "callbacks": [lightgbm.early_stopping(3, verbose=False)]},
        n_estimators=300,
    )
    assert assert_margin_is_its_own(model, X).n_trees == model.best_iteration_ < 300
    data = lightgbm.Dataset(X[:200], y[:200], params={"verbose": -1})
    booster = lightgbm.train(
        {"objective": "binary", "verbose": -1, "num_threads": 1},
        data,
        300,
        valid_sets=[lightgbm.Dataset(X[200:], y[200:], reference=data)],
        callbacks=[lightgbm.early_stopping(3, verbose=False)],
        keep_training_booster=True,
    )
    assert booster.best_iteration < booster.current_iteration()
    assert assert_margin_is_its_own(booster, X).source == f"LightGBM Booster ({booster.best_iteration} trees)"


def test_a_booster_loaded_from_text_is_read(applicants):
    X, y = applicants
    table = pd.DataFrame(X, columns=list("abcdef"))
    booster = lightgbm.Booster(model_str=fitted(table, y).booster_.model_to_string())
    assert assert_margin_is_its_own(booster, X).feature_names == tuple("abcdef")


@pytest.mark.parametrize("settings", [{}, {"max_cat_to_onehot": 1, "cat_smooth": 0, "min_data_per_group": 1}], ids=str)
def test_category_codes_are_read(settings, coded):
    X, y = coded
    X = X.copy()
    X[:9, 1] = np.nan
    model = fitted(X, y, {"categorical_feature": [1, 3]}, **settings)
    ensemble = assert_margin_is_its_own(model, X)
    assert (ensemble.rule == 2).sum() > 10
    for other in (40.0, -1.0, -7.0):
        changed = X.copy()
        changed[:, 1] = other
        assert_margin_is_its_own(model, changed)


def test_text_categories_of_a_table_are_kept_with_their_codes(coded):
    X, y = coded
    table = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    table["b"] = pd.Categorical(np.array(list("lkjihgfedcba"))[X[:, 1].astype(int)])
    model = fitted(table, y)
    ensemble = read_trees(model)
    assert ensemble.categories == {1: tuple("abcdefghijkl")}
    rows = table.assign(b=table["b"].cat.codes).to_numpy(float)
    own = model.predict(table, raw_score=True)
    np.testing.assert_allclose(ensemble.margin(rows), own, atol=TOLERANCE)


def test_contributions_equal_shap(applicants, assert_equal_to_shap):
    X, y = applicants
    assert_equal_to_shap(fitted(X, y), X[:60], atol=1e-6)


@pytest.mark.parametrize("settings", [{}, {"zero_as_missing": True}, {"use_missing": False}], ids=str)
def test_contributions_equal_all_coalitions(settings, applicants_with_gaps, assert_equal_to_all_coalitions):
    X, y = applicants_with_gaps
    model = fitted(X, y, **settings)
    assert_equal_to_all_coalitions(model, raw_score(model), X[:30], TOLERANCE)


def test_contributions_equal_all_coalitions_with_categories(coded, assert_equal_to_all_coalitions):
    X, y = coded
    model = fitted(X, y, {"categorical_feature": [1, 3]}, max_cat_to_onehot=1)
    assert_equal_to_all_coalitions(model, raw_score(model), X[:30], TOLERANCE)


def test_more_than_two_classes_are_refused(applicants):
    X, _ = applicants
    with pytest.raises(InvalidInputError, match="This LGBMClassifier has 4 classes"):
        read_trees(fitted(X, X[:, 3].astype(int), n_estimators=2))


def test_an_objective_that_is_not_logistic_is_refused(applicants):
    model = lightgbm.LGBMRegressor(n_estimators=2, verbose=-1).fit(*applicants)
    with pytest.raises(InvalidInputError, match="This LGBMRegressor was fitted with the objective 'regression'"):
        read_trees(model)


def test_an_objective_of_the_users_own_is_refused(applicants):
    def squared(label, score):
        return score - label, np.ones_like(label, dtype=float)

    with pytest.raises(InvalidInputError, match="fitted with the objective 'none'"):
        read_trees(fitted(*applicants, objective=squared))


def test_linear_models_in_leaves_are_refused(applicants):
    with pytest.raises(InvalidInputError, match=r"has linear models in its leaves \(`linear_tree`\)"):
        read_trees(fitted(*applicants, linear_tree=True))


def test_a_model_that_is_not_fitted_is_refused():
    with pytest.raises(InvalidInputError, match="This LGBMClassifier is not fitted: call its `fit` first"):
        read_trees(lightgbm.LGBMClassifier())


def test_other_objects_of_lightgbm_are_refused(applicants):
    with pytest.raises(InvalidTypeError, match=r"For LightGBM, an estimator .* is expected, got Dataset"):
        read_trees(lightgbm.Dataset(*applicants))
