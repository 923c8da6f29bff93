"""scikit-learn's classifiers: their own scores, and shap's values of them."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import (
    AdaBoostClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.models.trees import read_trees

AVERAGED = [
    DecisionTreeClassifier(max_depth=5, random_state=0),
    RandomForestClassifier(n_estimators=20, random_state=0, class_weight="balanced"),
    ExtraTreesClassifier(n_estimators=20, max_depth=6, random_state=0),
]
BOOSTED = [
    GradientBoostingClassifier(n_estimators=30, subsample=0.5, random_state=0),
    GradientBoostingClassifier(n_estimators=30, init="zero", random_state=0),
    GradientBoostingClassifier(n_estimators=200, n_iter_no_change=2, random_state=0),
    HistGradientBoostingClassifier(max_iter=30, random_state=0),
    HistGradientBoostingClassifier(max_iter=200, early_stopping=True, n_iter_no_change=2, random_state=0),
]


def kind(model):
    return type(model).__name__


@pytest.mark.parametrize("model", AVERAGED, ids=kind)
def test_a_forest_gives_the_probability_of_the_second_class(model, applicants_with_gaps):
    X, y = applicants_with_gaps
    model.fit(X, np.array(["no", "yes"])[y])
    ensemble = read_trees(model)
    assert ensemble.output == "probability"
    assert ensemble.source.startswith(f"scikit-learn {kind(model)}")
    np.testing.assert_allclose(ensemble.margin(X), model.predict_proba(X)[:, 1], atol=1e-12)


@pytest.mark.parametrize("model", BOOSTED, ids=kind)
def test_boosted_trees_give_their_decision_function(model, applicants):
    X, y = applicants
    ensemble = read_trees(model.fit(X, y))
    assert ensemble.output == "log-odds"
    np.testing.assert_allclose(ensemble.margin(X), model.decision_function(X), atol=1e-12)


def test_exponential_loss_gives_log_odds_which_are_twice_its_decision_function(applicants):
    X, y = applicants
    model = GradientBoostingClassifier(n_estimators=20, loss="exponential", random_state=0).fit(X, y)
    margin = read_trees(model).margin(X)
    np.testing.assert_allclose(margin, 2 * model.decision_function(X), atol=1e-12)
    np.testing.assert_allclose(1 / (1 + np.exp(-margin)), model.predict_proba(X)[:, 1], atol=1e-12)


def test_histogram_boosting_sends_missing_values_where_it_learned_to(applicants_with_gaps):
    X, y = applicants_with_gaps
    model = HistGradientBoostingClassifier(max_iter=30, random_state=0).fit(X, y)
    np.testing.assert_allclose(read_trees(model).margin(X), model.decision_function(X), atol=1e-12)


def test_values_between_two_float32_numbers_go_where_scikit_learn_sends_them(applicants):
    X, y = applicants
    model = GradientBoostingClassifier(n_estimators=30, random_state=0).fit(X, y)
    ensemble = read_trees(model)
    at = ensemble.feature >= 0
    rows = np.repeat(X[:1], 2 * at.sum(), axis=0)
    on_threshold = ensemble.threshold[at]
    rows[np.arange(len(rows)), np.tile(ensemble.feature[at], 2)] = [*on_threshold, *(on_threshold * (1 + 1e-9))]
    np.testing.assert_allclose(ensemble.margin(rows), model.decision_function(rows), atol=1e-12)


def test_categories_of_histogram_boosting_are_codes_in_the_order_of_their_values(coded):
    X, y = coded
    X = np.where(np.arange(4) == 1, 2 * X + 3, X)  # 3, 5, 7, ...: values that are not the codes 0, 1, 2, ...
    X[:60, 1] = np.nan
    model = HistGradientBoostingClassifier(max_iter=20, categorical_features=[1, 3], random_state=0).fit(X, y)
    ensemble = read_trees(model)
    assert ensemble.categories[1] == tuple(range(3, 26, 2))
    assert set(ensemble.missing_left[ensemble.rule == 2]) == {False, True}
    seen = np.where(np.arange(4) == 1, (X - 3) / 2, X)
    np.testing.assert_allclose(ensemble.margin(seen), model.decision_function(X), atol=1e-12)
    unknown, unknown_code = X.copy(), seen.copy()
    unknown[:, 1], unknown_code[:, 1] = 1000.0, 500.0
    np.testing.assert_allclose(ensemble.margin(unknown_code), model.decision_function(unknown), atol=1e-12)


def test_text_categories_of_a_table_are_kept_with_their_codes(coded):
    X, y = coded
    table = pd.DataFrame(X, columns=["a", "b", "c", "d"])
    table["b"] = pd.Categorical(np.array(list("lkjihgfedcba"))[X[:, 1].astype(int)])
    model = HistGradientBoostingClassifier(max_iter=20, random_state=0).fit(table, y)
    ensemble = read_trees(model)
    assert ensemble.feature_names == ("a", "b", "c", "d")
    assert ensemble.categories == {1: tuple("abcdefghijkl")}
    rows = table.assign(b=table["b"].cat.codes).to_numpy(float)
    np.testing.assert_allclose(ensemble.margin(rows), model.decision_function(table), atol=1e-12)


@pytest.mark.parametrize("model", [*AVERAGED, *BOOSTED[:1], BOOSTED[3]], ids=kind)
def test_contributions_equal_shap(model, applicants, assert_equal_to_shap):
    X, y = applicants
    # shap keeps leaf values of scikit-learn trees in double precision, and inputs too.
    X = X.astype(np.float32).astype(float)
    assert_equal_to_shap(model.fit(X, y), X[:60], atol=1e-6)


@pytest.mark.parametrize("model", [AVERAGED[1], BOOSTED[3]], ids=kind)
def test_contributions_with_missing_values_equal_all_coalitions(
    model, applicants_with_gaps, assert_equal_to_all_coalitions
):
    X, y = applicants_with_gaps
    model.fit(X, y)
    margin = model.decision_function if hasattr(model, "decision_function") else lambda x: model.predict_proba(x)[:, 1]
    assert_equal_to_all_coalitions(model, margin, X[:30], atol=1e-9)


@pytest.mark.parametrize("model", [AdaBoostClassifier(), RandomForestRegressor()], ids=kind)
def test_other_estimators_are_refused(model, applicants):
    with pytest.raises(InvalidTypeError, match=r"not among the tree classifiers|is expected, got"):
        read_trees(model.fit(*applicants))


@pytest.mark.parametrize("model", [AVERAGED[0], BOOSTED[0], BOOSTED[3]], ids=kind)
def test_models_that_are_not_fitted_are_refused(model):
    from sklearn.base import clone

    with pytest.raises(InvalidInputError, match=f"This {kind(model)} is not fitted: call its `fit` first"):
        read_trees(clone(model))


def test_more_than_two_classes_are_refused(applicants):
    X, _ = applicants
    with pytest.raises(InvalidInputError, match="This DecisionTreeClassifier has 4 classes"):
        read_trees(DecisionTreeClassifier().fit(X, X[:, 3].astype(int)))


def test_several_outputs_are_refused(applicants):
    X, y = applicants
    with pytest.raises(InvalidInputError, match="predicts 2 outputs at once"):
        read_trees(DecisionTreeClassifier().fit(X, np.column_stack([y, y])))


def test_boosting_from_another_model_is_refused(applicants):
    model = GradientBoostingClassifier(n_estimators=2, init=LogisticRegression())
    with pytest.raises(InvalidInputError, match="starts from a LogisticRegression"):
        read_trees(model.fit(*applicants))
