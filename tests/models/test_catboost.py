"""CatBoost models of categories: black boxes in log-odds."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

import evenhand as eh
from evenhand.exceptions import InvalidInputError
from evenhand.models.dispatch import as_audited_model

catboost = pytest.importorskip("catboost")

FINANCIAL = ["income now", "debt"]
WORDS = ["home", "area"]
SETTINGS = {"iterations": 40, "depth": 4, "verbose": 0, "thread_count": 1, "allow_writing_files": False}


def raw(model):
    return lambda table: model.predict(table, prediction_type="RawFormulaVal")


@pytest.fixture(scope="module")
def planted(with_categories):
    X, y, group = with_categories(0.9, n=600)
    X["home"] = X["home"].map({"own": 3, "rent": 1, "free": 2})  # whole numbers are categories if the model says so
    model = catboost.CatBoostClassifier(**SETTINGS, cat_features=WORDS).fit(X, y)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", eh.EvenhandWarning)
        result = eh.audit(model, X, y, sensitive_features=group, financial_features=FINANCIAL)
    return model, result, (X, y, group)


def test_contributions_are_those_of_all_coalitions_of_its_own_log_odds(planted, all_coalitions):
    model, result, (X, y, group) = planted
    assert result.settings["attribution"] == "sampled_shapley"
    assert result.provenance.model == "CatBoost CatBoostClassifier of categories (black box)"
    cells = [(y == y[i]) & (group == group[i]) for i in range(30)]
    baseline = pd.DataFrame(
        {c: [X.loc[m, c].mode()[0] if c in WORDS else X.loc[m, c].mean() for m in cells] for c in X}
    )
    expected = all_coalitions(raw(model), X.iloc[:30], baseline)
    assert np.abs(expected[:, [1, 3]]).max() > 0.5
    np.testing.assert_allclose(result.attributions[:30], expected, atol=1e-5)
    np.testing.assert_allclose(
        result.pairs.groupby("person")["score"].first(), model.predict_proba(X)[:, 1], atol=1e-12
    )


def test_a_weight_that_depends_on_a_category_is_found(planted):
    _, result, _ = planted
    assert result.evidence.cec.p_value < 1e-6
    parts = {part.feature: part.estimate.value for part in result.evidence.features}
    assert max(parts, key=parts.get) == "area"
    assert {weight.feature for weight in result.evidence.weights} == set(FINANCIAL)


def test_its_probability_is_explained_where_asked_and_its_trees_never_are(planted):
    model, _, (X, _, _) = planted
    probability = as_audited_model(model, table=X, output="probability")
    assert probability.output == "probability"
    np.testing.assert_allclose(probability.margin(probability.encode(X)), model.predict_proba(X)[:, 1])
    with pytest.raises(InvalidInputError, match="has 2 categorical features, which CatBoost turns into statistics"):
        as_audited_model(model, table=X, attribution="tree_shap")
    with pytest.raises(InvalidInputError, match="has 2 categorical features, which CatBoost turns into statistics"):
        as_audited_model(model)


def test_columns_without_names_are_those_of_the_table(planted):
    _, _, (X, y, _) = planted
    turned = X[["area", "debt", "home", "income now"]]
    model = catboost.CatBoostClassifier(**SETTINGS, cat_features=[0, 2]).fit(turned.to_numpy(dtype=object), y)
    audited = as_audited_model(model, table=turned)
    assert (audited.encoder.names, audited.categorical_inputs) == (list(turned.columns), (0, 2))
    np.testing.assert_allclose(audited.margin(audited.encode(turned)), raw(model)(turned))
    named = as_audited_model(
        catboost.CatBoostClassifier(**SETTINGS, cat_features=WORDS).fit(X, y), table=X.drop(columns="debt")
    )
    with pytest.raises(InvalidInputError, match=r"missing \['debt'\]"):
        named.aligned(X.drop(columns="debt"))


def test_the_end_of_a_pipeline_is_a_black_box_with_it(planted):
    _, _, (X, y, _) = planted
    people = X.astype({"home": str})
    model = make_pipeline(FunctionTransformer(), catboost.CatBoostClassifier(**SETTINGS, cat_features=WORDS))
    audited = as_audited_model(model.fit(people, y), table=people)
    assert audited.attribution == "sampled_shapley"
    np.testing.assert_allclose(audited.margin(audited.encode(people)), model.predict_proba(people)[:, 1])


def test_a_loss_without_log_odds_is_refused(planted):
    _, _, (X, y, _) = planted
    model = catboost.CatBoostRegressor(**SETTINGS, cat_features=WORDS).fit(X, y)
    with pytest.raises(InvalidInputError, match="fitted with the loss 'RMSE', whose raw value is not the log-odds"):
        as_audited_model(model, table=X)
