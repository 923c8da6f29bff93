"""Trees that split on categories: audited by their own scores, from the most common categories."""

import json
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder
from typer.testing import CliRunner

import evenhand as eh
from evenhand.cli import app
from evenhand.exceptions import EvenhandWarning, InvalidInputError
from evenhand.models.dispatch import as_audited_model
from evenhand.models.files.load import load_model

pytestmark = pytest.mark.integration  # most tests are of whole audits

FINANCIAL = ["income now", "debt"]
WORDS = ["home", "area"]


def fitted(library, table, y):
    """A model of a library on a table with pandas categories, and the model's own log-odds of a table."""
    if library == "sklearn":
        model = HistGradientBoostingClassifier(max_iter=40, max_leaf_nodes=8).fit(table, y)
        return model, model.decision_function
    if library == "xgboost":
        xgboost = pytest.importorskip("xgboost")
        model = xgboost.XGBClassifier(n_estimators=40, max_depth=3, n_jobs=1, enable_categorical=True).fit(table, y)
        return model, lambda people: model.predict(people, output_margin=True)
    lightgbm = pytest.importorskip("lightgbm")
    model = lightgbm.LGBMClassifier(n_estimators=40, num_leaves=8, n_jobs=1, verbose=-1)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # the space in a name becomes an underscore
        model.fit(table, y)
    return model, lambda people: model.predict(people, raw_score=True)


def audited(model, X, y, group, **settings):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvenhandWarning)
        return eh.audit(model, X, y, sensitive_features=group, **{"financial_features": FINANCIAL, **settings})


@pytest.fixture(scope="module", params=["sklearn", "xgboost", "lightgbm"])
def planted(request, with_categories):
    """A model whose weight of the income depends on a category, its margin, its audit and the people."""
    X, y, group = with_categories(0.9)
    X = X.astype(dict.fromkeys(WORDS, "category"))
    model, margin = fitted(request.param, X, y)
    return model, margin, audited(model, X, y, group), (X, y, group)


def test_contributions_are_those_of_all_coalitions_of_the_librarys_own_scores(planted, all_coalitions, baselines_of):
    _, margin, result, (X, y, group) = planted
    rows = list(range(40))
    people = X.iloc[rows].reset_index(drop=True)
    expected = all_coalitions(margin, people, baselines_of(X, y, group, rows))
    assert np.abs(expected[:, [1, 3]]).max() > 0.5  # categories matter to these people
    np.testing.assert_allclose(result.attributions[rows], expected, atol=2e-5)


def test_the_audits_scores_are_the_models(planted):
    model, _, result, (X, _, _) = planted
    assert result.settings["attribution"] == "tree_shap"
    assert result.provenance.completeness_gap < 1e-9
    scores = result.pairs.groupby("person")["score"].first()
    np.testing.assert_allclose(scores, model.predict_proba(X)[:, 1], atol=1e-6)


def test_a_weight_that_depends_on_a_category_is_found(planted):
    _, _, result, _ = planted
    assert result.evidence.cec.p_value < 1e-6
    assert result.evidence.cec.value > 0.05
    assert result.evidence.reasoning_gap.value > 0.03
    parts = {part.feature: part.estimate.value for part in result.evidence.features}
    assert max(parts, key=parts.get) == "area"


SLOWLY = [pytest.param(name, marks=pytest.mark.slow) for name in ("xgboost", "lightgbm")]


@pytest.mark.parametrize("library", ["sklearn", *SLOWLY])
def test_categories_that_tell_nothing_of_the_group_show_nothing(library, with_categories):
    p_values = []
    for seed in range(3):
        X, y, group = with_categories(0.9, n=600, seed=seed)
        X = X.astype(dict.fromkeys(WORDS, "category"))
        shuffled = np.random.default_rng(seed).permutation(group)
        model, _ = fitted(library, X, y)
        p_values.append(audited(model, X, y, shuffled).evidence.cec.p_value)
    assert min(p_values) > 0.05 / 9


def test_categories_have_no_weight_and_keep_their_names_in_the_report(planted, tmp_path):
    model, _, result, _ = planted
    assert {weight.feature for weight in result.evidence.weights} == set(FINANCIAL)
    assert set(result.features["feature"]) == {*FINANCIAL, *WORDS}
    if not isinstance(model, HistGradientBoostingClassifier):  # one page shows it
        return
    result.to_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text("utf-8")
    assert "Without a weight, because the model treats them as categories: " in page
    assert "north" in page
    assert "rent" in page


def test_sampled_contributions_of_categories_are_the_exact_ones(planted):
    model, _, result, (X, y, group) = planted
    sampled = audited(model, X, y, group, attribution="sampled_shapley", evidence=False)
    np.testing.assert_allclose(sampled.attributions, result.attributions, atol=1e-5)


@pytest.mark.parametrize("library", ["sklearn", "xgboost", "lightgbm"])
def test_missing_categories_are_missing_to_the_model(library, with_categories):
    X, y, group = with_categories(0.5, n=300)
    holes = X.mask(np.random.default_rng(0).random(X.shape) < 0.1).astype(dict.fromkeys(WORDS, "category"))
    model, margin = fitted(library, holes, y)
    seen = as_audited_model(model, table=holes)
    np.testing.assert_allclose(seen.margin(seen.encode(holes)), margin(holes), atol=1e-5)
    result = audited(model, holes, y, group, financial_features=["income now", "home"])
    assert result.provenance.completeness_gap < 1e-9
    assert result.evidence.cec.is_estimated


@pytest.mark.parametrize("library", ["sklearn", "lightgbm"])
def test_unknown_categories_are_what_they_are_to_the_library(library, with_categories):
    X, y, _ = with_categories(0.5, n=300)
    X = X.astype(dict.fromkeys(WORDS, "category"))
    model, margin = fitted(library, X, y)
    elsewhere = X.assign(area=X["area"].cat.rename_categories({"north": "west"}))
    seen = as_audited_model(model, table=X)
    np.testing.assert_allclose(seen.margin(seen.encode(elsewhere)), margin(elsewhere), atol=1e-5)
    # Text is taken as well, which the libraries themselves refuse.
    np.testing.assert_array_equal(seen.encode(elsewhere.astype({"area": str})), seen.encode(elsewhere))


def test_unknown_categories_are_refused_where_the_library_refuses_them(with_categories):
    X, y, _ = with_categories(0.5, n=300)
    X = X.astype(dict.fromkeys(WORDS, "category"))
    model, margin = fitted("xgboost", X, y)
    elsewhere = X.assign(area=X["area"].cat.rename_categories({"south": "zone"}))
    with pytest.raises(Exception, match="Found a category not in the training set"):
        margin(elsewhere)
    n = int((X["area"] == "south").sum())
    message = rf"column 'area' has {n} values, such as 'zone', that the XGBoost .*\['east', 'north', 'south'\]"
    with pytest.raises(InvalidInputError, match=message):
        as_audited_model(model, table=X).encode(elsewhere)


def numbered(X):
    """The same people with categories as numbers that are no order."""
    return X.assign(
        home=X["home"].map({"own": 30, "rent": 10, "free": 20}), area=X["area"].map({"north": 2, "south": 0, "east": 1})
    )


def test_numbers_that_a_model_takes_as_categories_are_categories_to_the_audit(with_categories, all_coalitions):
    X, y, group = with_categories(0.9, n=400)
    coded = numbered(X)
    model = HistGradientBoostingClassifier(max_iter=20, categorical_features=WORDS).fit(coded, y)
    seen = as_audited_model(model, table=coded)
    assert seen.categorical_inputs == (1, 3)
    result = audited(model, coded, y, group, financial_features=["debt", "home"])
    by_words = audited(
        HistGradientBoostingClassifier(max_iter=20).fit(X.astype(dict.fromkeys(WORDS, "category")), y),
        X.astype(dict.fromkeys(WORDS, "category")),
        y,
        group,
        financial_features=["debt", "home"],
    )
    # Matched on the category, not on its number: the distances are those of words.
    np.testing.assert_allclose(result.pairs["distance"], by_words.pairs["distance"], atol=1e-12)
    cells = [(y == y[i]) & (group == group[i]) for i in range(20)]
    baseline = pd.DataFrame(
        {c: [coded.loc[m, c].mode()[0] if c in WORDS else coded.loc[m, c].mean() for m in cells] for c in coded}
    )
    expected = all_coalitions(model.decision_function, coded.iloc[:20].reset_index(drop=True), baseline)
    np.testing.assert_allclose(result.attributions[:20], expected, atol=1e-5)


def test_codes_without_values_are_categories_too(with_categories):
    lightgbm = pytest.importorskip("lightgbm")
    X, y, group = with_categories(0.9, n=400)
    coded = numbered(X)
    data = lightgbm.Dataset(coded.to_numpy(), y, categorical_feature=[1, 3], params={"verbose": -1})
    model = lightgbm.train({"objective": "binary", "num_leaves": 8, "verbose": -1}, data, 20)
    seen = as_audited_model(model, table=coded)
    assert seen.categorical_inputs == (1, 3)
    np.testing.assert_allclose(seen.margin(seen.encode(coded)), model.predict(coded.to_numpy(), raw_score=True))
    result = audited(model, coded, y, group)
    assert {weight.feature for weight in result.evidence.weights} == set(FINANCIAL)
    assert result.provenance.completeness_gap < 1e-9


def test_words_that_a_model_keeps_no_codes_for_are_refused(with_categories):
    lightgbm = pytest.importorskip("lightgbm")
    X, y, _ = with_categories(0.9, n=400)
    coded = numbered(X).rename(columns={"income now": "income"})
    model = lightgbm.LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1).fit(coded, y, categorical_feature=WORDS)
    words = X.rename(columns={"income now": "income"})
    with pytest.raises(InvalidInputError, match=r"column 'home' is not numeric .* pass it as it was coded in training"):
        as_audited_model(model, table=words).encode(words)


def test_codes_made_by_a_pipelines_steps_are_categories(with_categories, all_coalitions, baselines_of):
    X, y, group = with_categories(0.9, n=400)
    codes = OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)
    steps = ColumnTransformer([("words", codes, WORDS)], remainder="passthrough")
    # "free" never occurs in training, so that the codes of the steps are not those of the trees.
    trained = X["home"] != "free"
    model = make_pipeline(steps, HistGradientBoostingClassifier(max_iter=20, categorical_features=[0, 1]))
    steps.fit(X)
    model.fit(X[trained], y[trained])
    seen = as_audited_model(model, table=X)
    assert (seen.attribution, seen.category_columns(list(X.columns))) == ("tree_shap", WORDS)
    np.testing.assert_allclose(seen.margin(seen.encode(X)), model.decision_function(X), atol=1e-12)
    people, labels, groups = X[trained].reset_index(drop=True), y[trained], group[trained]
    result = audited(model, people, labels, groups)
    rows = list(range(20))
    expected = all_coalitions(model.decision_function, people.iloc[rows], baselines_of(people, labels, groups, rows))
    np.testing.assert_allclose(result.attributions[rows], expected, atol=1e-5)


def test_a_model_of_categories_alone_has_no_weights(with_categories, tmp_path):
    X, y, group = with_categories(0.9, n=400)
    words = X[WORDS].astype("category")
    model = HistGradientBoostingClassifier(max_iter=10).fit(words, y)
    result = audited(model, words, y, group, financial_features=["home"])
    assert result.evidence.weights == ()
    result.to_html(tmp_path / "report.html")
    result.to_excel(tmp_path / "report.xlsx")


@pytest.mark.integration
@pytest.mark.parametrize(
    ("library", "ending"), [pytest.param("xgboost", ".json", marks=pytest.mark.slow), ("lightgbm", ".txt")]
)
def test_a_native_file_and_a_csv_give_the_figures_of_the_model_and_its_table(
    library, ending, with_categories, tmp_path
):
    X, y, group = with_categories(0.9, n=400)
    numbers = X.assign(area=X["area"].map({"north": 2, "south": 0, "east": 1}))  # a category of numbers
    table = numbers.rename(columns={"income now": "income"}).astype(dict.fromkeys(WORDS, "category"))
    model, _ = fitted(library, table, y)
    path = tmp_path / f"model{ending}"
    (model if library == "xgboost" else model.booster_).save_model(str(path))
    table.assign(paid=y, sex=group).to_csv(tmp_path / "people.csv", index=False)
    expected = audited(model, table, y, group, financial_features=["income", "debt"])
    loaded = audited(load_model(path), table, y, group, financial_features=["income", "debt"])
    np.testing.assert_array_equal(loaded.attributions, expected.attributions)
    arguments = ["audit", tmp_path / "people.csv", "--label", "paid", "--group", "sex", "--model", path]
    arguments += ["--financial", "income,debt", "--out", tmp_path / "audit"]
    answer = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert answer.exit_code == 0, answer.output
    found = json.loads((tmp_path / "audit" / "audit.json").read_text())
    assert found["cec"]["mean"] == pytest.approx(expected.to_dict()["cec"]["mean"], abs=1e-9)
    assert found["cec"]["excess"] == pytest.approx(expected.to_dict()["cec"]["excess"], abs=1e-9)


def test_a_streamed_audit_of_categories_has_the_figures_of_the_whole(with_categories, tmp_path):
    X, y, group = with_categories(0.9, n=600)
    table = X.astype(dict.fromkeys(WORDS, "category"))
    model = HistGradientBoostingClassifier(max_iter=20).fit(table, y)
    X.assign(paid=y, sex=group).to_parquet(tmp_path / "people.parquet")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", EvenhandWarning)
        streamed = eh.audit_stream(
            model,
            tmp_path / "people.parquet",
            label="paid",
            group="sex",
            financial_features=FINANCIAL,
            out=tmp_path / "audit",
            batch_rows=250,
        )
    whole = audited(model, table, y, group).to_dict()
    figures = streamed.to_dict()
    for name in ("mean", "excess", "reasoning_gap", "p_value"):
        assert figures["cec"][name] == pytest.approx(whole["cec"][name], abs=1e-9)


def test_a_model_of_categories_can_be_sent_to_another_process(planted):
    model, _, _, (X, _, _) = planted
    seen = as_audited_model(model, table=X)
    sent = pickle.loads(pickle.dumps(seen))
    np.testing.assert_array_equal(sent.margin(sent.encode(X)), seen.margin(seen.encode(X)))
    assert sent.categorical_inputs == seen.categorical_inputs
