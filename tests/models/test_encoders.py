"""Encodings: the steps of pipelines, columns by name, and tables of categories as codes."""

import pickle
from inspect import signature

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.ensemble import GradientBoostingClassifier, HistGradientBoostingClassifier
from sklearn.feature_selection import SelectKBest, VarianceThreshold
from sklearn.impute import KNNImputer, MissingIndicator, SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline, make_union
from sklearn.preprocessing import (
    FunctionTransformer,
    KBinsDiscretizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    QuantileTransformer,
    SplineTransformer,
    StandardScaler,
    TargetEncoder,
)

import evenhand as eh
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.validation import text_columns
from evenhand.models.dispatch import as_audited_model
from evenhand.models.encoders import (
    CodedTable,
    NamedColumns,
    PipelineEncoder,
    column_sources,
    dense,
    part_that_mixes,
    pipeline_encoder,
)

# scikit-learn 1.7 asks for a choice that earlier versions do not know.
QUIET = (
    {"quantile_method": "averaged_inverted_cdf"} if "quantile_method" in signature(KBinsDiscretizer).parameters else {}
)


def preprocessing():
    numbers = make_pipeline(SimpleImputer(add_indicator=True), StandardScaler())
    return make_column_transformer((OneHotEncoder(), ["home", "job"]), (numbers, ["debt", "income"]))


TRANSFORMERS = {
    "scaler": StandardScaler(),
    "imputer": SimpleImputer(),
    "indicator": SimpleImputer(add_indicator=True),
    "missing": make_union(SimpleImputer(), MissingIndicator()),
    "bins": make_pipeline(SimpleImputer(), KBinsDiscretizer(4, **QUIET)),
    "codes": make_pipeline(SimpleImputer(), KBinsDiscretizer(3, encode="ordinal", strategy="uniform")),
    "splines": make_pipeline(SimpleImputer(), SplineTransformer(4)),
    "ufunc": FunctionTransformer(np.exp),
    "one to one": FunctionTransformer(lambda x: x**2, feature_names_out="one-to-one"),
    "same": FunctionTransformer(),
    "quantiles": make_pipeline(SimpleImputer(), QuantileTransformer(n_quantiles=50)),
    "selection": make_pipeline(SimpleImputer(), VarianceThreshold(0.1)),
    "by slice": ColumnTransformer([("a", StandardScaler(), slice(1, 3)), ("b", "passthrough", [-1])]),
    "by mask": ColumnTransformer([("a", StandardScaler(), [True, False, True, False])], remainder="passthrough"),
    "by selector": ColumnTransformer([("a", SimpleImputer(), make_column_selector(dtype_include=float))]),
    "one by one": ColumnTransformer([("a", "drop", [0]), ("b", SimpleImputer(), [2]), ("c", "passthrough", [1])]),
    "by names": ColumnTransformer([("a", StandardScaler(), slice("b", "c")), ("b", "passthrough", ["a"])]),
}


@pytest.mark.parametrize("transformer", TRANSFORMERS.values(), ids=TRANSFORMERS)
def test_sources_are_those_that_move_the_outputs(transformer, rng):
    table = pd.DataFrame(rng.normal(size=(80, 4)), columns=list("abcd"))
    table.iloc[::7, 3] = np.nan
    transformer.fit(table)
    sources = column_sources(transformer, 4)
    before = dense(transformer.transform(table))
    assert len(sources) == before.shape[1]
    for j, name in enumerate(table.columns):
        moved = table.assign(**{name: rng.permutation(table[name])})
        changed = ~np.isclose(before, dense(transformer.transform(moved)), equal_nan=True).all(axis=0)
        assert set(np.flatnonzero(changed)) == {k for k, source in enumerate(sources) if source == j}


def test_categories_are_told_apart(mixed):
    X, y, _ = mixed
    categories = X[["home", "job"]]
    assert column_sources(OneHotEncoder(drop="if_binary").fit(categories), 2) == [0, 0, 0, 1]
    assert column_sources(OneHotEncoder(min_frequency=110).fit(categories), 2) == [0, 1, 1]
    assert column_sources(OrdinalEncoder().fit(categories), 2) == [0, 1]
    assert column_sources(TargetEncoder(random_state=0).fit(categories, y), 2) == [0, 1]
    assert column_sources(SelectKBest(k=1).fit(X[["income"]].assign(noise=np.tile([0.5, 1.0], 120)), y), 2) == [0]


def test_an_imputer_leaves_out_columns_without_a_value(rng):
    table = np.column_stack([rng.normal(size=20), np.full(20, np.nan), rng.normal(size=20)])
    imputer = SimpleImputer(keep_empty_features=False)
    with pytest.warns(UserWarning, match="Skipping features"):
        imputer.fit_transform(table)
    assert column_sources(imputer, 3) == [0, 2]


@pytest.mark.parametrize(
    ("transformer", "step"),
    [
        (PCA(2), "PCA"),
        (make_pipeline(StandardScaler(), PolynomialFeatures(2)), "PolynomialFeatures"),
        (make_column_transformer((KNNImputer(), [0, 1]), ("passthrough", [2])), "KNNImputer"),
        (FeatureUnion([("a", StandardScaler()), ("b", PCA(1))]), "PCA"),
        (make_column_transformer((make_pipeline(StandardScaler(), PCA(1)), [0, 1])), "PCA"),
    ],
)
def test_steps_that_mix_columns_are_named(transformer, step, rng):
    X = rng.normal(size=(30, 3))
    transformer.fit(X)
    assert column_sources(transformer, 3) is None
    assert type(part_that_mixes(transformer, 3)).__name__ == step
    assert pipeline_encoder(transformer, pd.DataFrame(X, columns=list("abc"))) is None


def test_a_function_of_unknown_kind_is_tried_out_on_the_people(rng):
    table = pd.DataFrame(rng.normal(size=(50, 3)), columns=list("abc"))
    apart = FunctionTransformer(lambda x: np.column_stack([x["c"], x["a"] ** 2, x["b"], -x["b"]])).fit(table)
    together = FunctionTransformer(lambda x: x.to_numpy() - x.to_numpy().mean(axis=1, keepdims=True)).fit(table)
    assert pipeline_encoder(apart) is None
    assert pipeline_encoder(apart, table).sources == (2, 0, 1, 1)
    assert pipeline_encoder(together, table) is None


def test_a_function_that_is_not_what_it_says_is_found_out(rng):
    table = pd.DataFrame(rng.normal(size=(50, 2)), columns=list("ab"))
    swapped = FunctionTransformer(lambda x: x[["b", "a"]].to_numpy(), feature_names_out="one-to-one").fit(table)
    assert pipeline_encoder(swapped).sources == (0, 1)
    assert pipeline_encoder(swapped, table) is None


def test_encoded_columns_join_back_to_the_tables(mixed):
    X, _, _ = mixed
    encoder = pipeline_encoder(preprocessing().fit(X), X)
    assert isinstance(encoder, PipelineEncoder)
    assert encoder.names == ["income", "home", "debt", "job"]
    assert encoder.sources == (1, 1, 1, 3, 3, 2, 0, 2)
    assert encoder.join_matrix.sum(axis=0).tolist() == [1, 3, 2, 2]
    assert encoder.transform(X).shape == (240, 8)


@pytest.mark.parametrize(
    ("classifier", "attribution"),
    [
        (LogisticRegression(), "linear"),
        (MLPClassifier((6,), max_iter=2000, random_state=0), "integrated_gradients"),
        (GradientBoostingClassifier(n_estimators=10, random_state=0), "tree_shap"),
        (GaussianNB(), "sampled_shapley"),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else value,
)
@pytest.mark.filterwarnings("ignore:.*too short to have a direction")
def test_a_pipeline_is_audited_by_the_tables_columns(classifier, attribution, mixed):
    X, y, group = mixed
    steps = [preprocessing()] if not isinstance(classifier, GaussianNB) else [preprocessing(), StandardScaler()]
    model = make_pipeline(*steps, classifier).fit(X, y)
    result = eh.audit(model, X, y, sensitive_features=group, financial_features=["income", "home"])
    assert result.settings["attribution"] == attribution
    assert sorted(result.features["feature"]) == ["debt", "home", "income", "job"]
    assert result.provenance.completeness_gap < 1e-9
    first = result.pairs.drop_duplicates("person").set_index("person")["score"]
    np.testing.assert_allclose(first.sort_index(), model.predict_proba(X)[:, 1], atol=1e-9)
    assert result.attributions.shape == (240, 4)
    turned = eh.audit(
        model,
        X[["job", "debt", "home", "income"]],
        y,
        sensitive_features=group,
        financial_features=["income", "home"],
        evidence=False,
    )
    np.testing.assert_allclose(turned.attributions, result.attributions, atol=1e-6)


def test_a_scorecard_of_bins_is_exact_and_additive(numbers):
    X, y, group = numbers
    bins = KBinsDiscretizer(5, **QUIET)
    model = make_pipeline(bins, LogisticRegression()).fit(X, y)
    result = eh.audit(model, X, y, sensitive_features=group, financial_features=["income"])
    assert result.settings["attribution"] == "linear"
    assert result.to_dict()["cec"]["reasoning_gap"] < 1e-12
    scores = result.pairs.groupby("person")["score"].first()
    np.testing.assert_allclose(scores, model.predict_proba(X)[:, 1], atol=1e-9)


def test_a_pipeline_that_mixes_number_columns_is_a_black_box_on_them(numbers):
    X, y, _ = numbers
    model = make_pipeline(PCA(2), LogisticRegression()).fit(X, y)
    audited = as_audited_model(model, table=X)
    assert audited.attribution == "sampled_shapley"
    assert audited.encoder.names == list(X.columns)
    x = audited.encode(X)
    np.testing.assert_allclose(audited.margin(x), model.predict_proba(X)[:, 1], atol=1e-12)
    with pytest.raises(InvalidInputError, match="the pipeline's step PCA mixes columns"):
        as_audited_model(model, table=X, attribution="linear")


def test_a_pipeline_that_mixes_columns_of_text_is_a_black_box_on_them(mixed):
    X, y, _ = mixed
    model = make_pipeline(preprocessing(), PCA(2), LogisticRegression()).fit(X, y)
    audited = as_audited_model(model, table=X)
    assert (audited.attribution, audited.categorical_inputs) == ("sampled_shapley", (1, 3))
    np.testing.assert_allclose(audited.margin(audited.encode(X)), model.predict_proba(X)[:, 1], atol=1e-12)


def test_a_pipeline_whose_steps_end_in_text_is_a_black_box_on_the_table(mixed):
    X, y, _ = mixed
    as_categories = FunctionTransformer(lambda table: table.astype({"home": "category", "job": "category"}))
    model = make_pipeline(as_categories, HistGradientBoostingClassifier(max_iter=5)).fit(X, y)
    audited = as_audited_model(model, table=X)
    assert audited.attribution == "sampled_shapley"
    np.testing.assert_allclose(audited.margin(audited.encode(X)), model.predict_proba(X)[:, 1], atol=1e-12)
    with pytest.raises(InvalidInputError, match="step FunctionTransformer mixes columns, or does not return numbers"):
        as_audited_model(model, table=X, attribution="tree_shap")


def test_pipelines_in_pipelines_and_of_one_step_are_opened(numbers):
    X, y, _ = numbers
    inner = make_pipeline(StandardScaler(), LogisticRegression())
    model = make_pipeline(StandardScaler(), inner).fit(X, y)
    audited = as_audited_model(model, table=X)
    assert audited.attribution == "linear"
    np.testing.assert_allclose(
        audited.probability(audited.margin(audited.encode(X))), model.predict_proba(X)[:, 1], atol=1e-12
    )
    assert as_audited_model(Pipeline([("only", LogisticRegression())]).fit(X, y)).attribution == "linear"


def test_a_pipeline_fitted_on_an_array_takes_the_tables_names(numbers):
    X, y, group = numbers
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(X.to_numpy(), y)
    assert as_audited_model(model).encoder.names == ["x0", "x1", "x2", "x3"]
    with pytest.warns(eh.EvenhandWarning, match="in the order of the columns: 'income', 'debt', 'years', 'assets'"):
        result = eh.audit(model, X, y, sensitive_features=group, financial_features=["income"], evidence=False)
    assert sorted(result.features["feature"]) == sorted(X.columns)
    assert any("has no names for its inputs" in warning for warning in result.to_dict()["warnings"])


def test_what_a_pipeline_cannot_encode_is_said(mixed):
    X, y, _ = mixed
    model = make_pipeline(preprocessing(), LogisticRegression()).fit(X, y)
    audited = as_audited_model(model, table=X)
    with pytest.raises(InvalidInputError, match="The pipeline cannot encode the table: Found unknown categories"):
        audited.encode(X.assign(home="boat"))
    with pytest.raises(InvalidInputError, match=r"infinity.* Columns with infinite values: \['income'\]"):
        audited.encode(X.assign(income=np.inf))
    with pytest.raises(InvalidInputError, match=r"Columns of text, with a value of each: .*'income': '€ 1'"):
        audited.encode(X.assign(income="€ 1"))
    scaled = make_pipeline(StandardScaler(), LogisticRegression()).fit(X[["income"]], y)
    holes = X[["income"]].copy()
    holes.iloc[2] = np.nan
    with pytest.raises(InvalidInputError, match="missing or infinite once encoded, which the scikit-learn Logistic"):
        as_audited_model(scaled).encode(holes)


def test_sparse_matrices_are_filled_in_where_they_fit(monkeypatch):
    sparse = scipy.sparse.csr_array(np.eye(5))
    np.testing.assert_array_equal(dense(sparse), np.eye(5))
    monkeypatch.setattr("evenhand.models.encoders._MAX_DENSE_VALUES", 24)
    with pytest.raises(InvalidInputError, match="a sparse matrix of 5 rows and 5 columns, too large for memory"):
        dense(sparse)
    with pytest.raises(InvalidInputError, match="The pipeline's steps must end in numbers"):
        dense(np.array([["a"]]))


@pytest.fixture
def table():
    return pd.DataFrame(
        {
            "income": [1.5, np.nan, 2.0],
            "text": pd.Series(["b", None, "a"], dtype="str"),
            "object": pd.Series(["x", np.nan, "y"], dtype=object),
            "mixed": pd.Series(["x", 3, "y"], dtype=object),
            "yes": [True, False, True],
            "maybe": pd.array([True, None, False], dtype="boolean"),
            "grade": pd.Categorical(["B", None, "A"], categories=["C", "B", "A"], ordered=True),
            "code": pd.Categorical([30, 10, None]),
            "number": pd.Series([1, 2.5, None], dtype=object),
        }
    )


def test_a_table_comes_back_as_it_was(table):
    coded = CodedTable.of(table)
    back = coded.decoded(coded.transform(table))
    pd.testing.assert_frame_equal(back, table.astype({"number": float}))
    assert coded.categorical == (1, 2, 3, 4, 5, 6, 7)


def test_codes_are_in_the_order_of_categories_and_of_text(table):
    matrix = CodedTable.of(table).transform(table)
    np.testing.assert_array_equal(matrix[:, 1], [1, np.nan, 0])
    np.testing.assert_array_equal(matrix[:, 6], [1, np.nan, 2])
    np.testing.assert_array_equal(matrix[:, 7], [1, 0, np.nan])


def test_values_met_later_come_back_too_in_another_process_as_well(table):
    coded = CodedTable.of(table)
    first = coded.transform(table)
    later = table.assign(
        text=pd.Series(["d", "c", "a"], dtype="str"), grade=pd.Categorical(["A", "E", "D"]), yes=[True, True, False]
    )
    for encoder in (coded, pickle.loads(pickle.dumps(coded))):
        matrix = encoder.transform(later)
        np.testing.assert_array_equal(matrix[:, 1], [3, 2, 0])
        back = encoder.decoded(matrix)
        assert back["text"].tolist() == ["d", "c", "a"]
        assert back["grade"].tolist() == ["A", "E", "D"]
        np.testing.assert_array_equal(encoder.transform(table), first)


@pytest.mark.parametrize("kind", ["str", object, "category"])
def test_a_column_without_any_value_stays_without(kind):
    table = pd.DataFrame({"income": [1.0, 2.0], "text": pd.Series([np.nan, np.nan], dtype=kind)})
    coded = CodedTable.of(table)
    assert coded.decoded(np.zeros((3, 2)))["text"].isna().all()
    pd.testing.assert_frame_equal(coded.decoded(coded.transform(table)), table)


def test_numbers_may_be_categories(table):
    numbers = pd.DataFrame({"term": [36, 60, 36], "income": [1.0, 2.0, 3.0]})
    coded = CodedTable.of(numbers, categorical=["term"])
    matrix = coded.transform(numbers)
    np.testing.assert_array_equal(matrix[:, 0], [0, 1, 0])
    pd.testing.assert_frame_equal(coded.decoded(matrix), numbers)
    matrix[0, 0] = np.nan  # whole numbers of numpy cannot be missing
    assert coded.decoded(matrix)["term"].isna().tolist() == [True, False, False]


@pytest.mark.parametrize(
    "values",
    [
        pd.to_datetime(["2020-01-01", "2021-01-01"]),
        pd.Series([[1], [2]]),
        pd.Series([{"a": 1}, "b"]),
        pd.Series([1 + 2j, 3j]),
    ],
    ids=["dates", "lists", "a dictionary", "complex"],
)
def test_what_is_neither_number_nor_category_is_refused(values):
    table = pd.DataFrame({"income": [1.0, 2.0], "strange": values})
    with pytest.raises(InvalidInputError, match=r"neither numbers nor categories \(column: type\): {'strange'"):
        CodedTable.of(table)


def test_numbers_that_become_text_are_refused(table):
    coded = CodedTable.of(table)
    with pytest.raises(InvalidInputError, match="column 'income' holds numbers for the audited people, but values"):
        coded.transform(table.assign(income="much"))


def test_yes_and_no_are_numbers_where_nothing_is_text(table):
    assert text_columns(table[["income", "yes"]]) == []
    assert text_columns(table[["income", "text"]]) == ["text"]


def test_columns_come_in_the_models_order():
    columns = NamedColumns(["b", "a"])
    table = pd.DataFrame({"a": [1, 2], "b": [True, False], "c": ["x", "y"]})
    np.testing.assert_array_equal(columns.transform(table), [[1.0, 1.0], [0.0, 2.0]])
    np.testing.assert_array_equal(columns.join_matrix, np.eye(2))


def test_missing_values_are_for_models_that_take_them():
    table = pd.DataFrame({"a": [1.0, np.nan]})
    assert np.isnan(NamedColumns(["a"], takes_missing=True).transform(table)[1, 0])
    with pytest.raises(InvalidInputError, match="holds missing or infinite values"):
        NamedColumns(["a"]).transform(table)
