"""Trees as arrays, and tables of categories as their codes."""

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier, RandomForestClassifier

from evenhand.exceptions import InvalidInputError
from evenhand.models.trees import Tree, TreeEnsemble, coded_matrix, read_trees

STUMP = {
    "feature": np.array([0, -1, -1]),
    "threshold": np.zeros(3),
    "left": np.array([1, -1, -1]),
    "right": np.array([2, -1, -1]),
    "missing_left": np.zeros(3, bool),
    "value": np.array([0.0, -1.0, 1.0]),
}


def ensemble_with(**changes):
    trees = [Tree(**STUMP), Tree(**{**STUMP, **changes})]
    return TreeEnsemble.from_trees(
        trees, base_margin=0.0, n_features=2, input_dtype="float64", output="log-odds", source="test ensemble"
    )


def test_trees_stand_one_after_the_other():
    ensemble = ensemble_with(feature=np.array([1, -1, -1]))
    assert ensemble.n_trees == 2
    assert ensemble.max_depth == 1
    np.testing.assert_array_equal(ensemble.roots, [0, 3])
    np.testing.assert_array_equal(ensemble.feature, [0, -1, -1, 1, -1, -1])
    np.testing.assert_array_equal(ensemble.left[[0, 3]], [1, 4])
    np.testing.assert_array_equal(ensemble.margin([[0.0, 0.0], [1.0, 0.0], [1.0, 1.0]]), [-2.0, 0.0, 2.0])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"threshold": np.zeros(2)}, "must have a root and as many entries in each array, got 3 features"),
        ({name: values[:0] for name, values in STUMP.items()}, "must have a root .* got 0 features"),
        ({"feature": np.array([2, -1, -1])}, "tests feature 2; there are 2, numbered from 0"),
        (
            {"left": np.array([0, -1, -1])},
            "leads from a node out of its 3 nodes, back to its root, or to a node with two",
        ),
        ({"left": np.array([3, -1, -1])}, "leads from a node out of its 3 nodes"),
        ({"left": np.array([2, -1, -1])}, "leads from a node out of its 3 nodes"),
        ({"threshold": np.array([np.nan, 0.0, 0.0])}, "compares a feature with a threshold that is not a number"),
        ({"left_categories": {1: np.ones(1, bool)}}, "has categories at a node that tests nothing"),
        ({"left_categories": {7: np.ones(1, bool)}}, "has categories at a node that tests nothing"),
    ],
)
def test_nodes_that_form_no_tree_are_refused(changes, message):
    with pytest.raises(InvalidInputError, match=f"^Tree 1 of the test ensemble {message}"):
        ensemble_with(**changes)


@pytest.fixture
def table(coded):
    X, y = coded
    table = pd.DataFrame(X, columns=["income now", "town", "debt", "home"])
    table["town"] = pd.Categorical(np.array(list("lkjihgfedcba"))[X[:, 1].astype(int)])
    table["home"] = pd.Categorical(X[:, 3].astype(int) * 10)
    table.loc[:8, "town"] = np.nan
    return table, y


def margins(library, table, y):
    """A model's own margin of a table, and the model."""
    if library == "sklearn":
        model = HistGradientBoostingClassifier(max_iter=20, random_state=0).fit(table, y)
        return model, model.decision_function
    if library == "xgboost":
        model = pytest.importorskip("xgboost").XGBClassifier(n_estimators=20, n_jobs=1, enable_categorical=True)
        return model.fit(table, y), lambda people: model.predict(people, output_margin=True)
    model = pytest.importorskip("lightgbm").LGBMClassifier(n_estimators=20, n_jobs=1, verbose=-1).fit(table, y)
    return model, lambda people: model.predict(people, raw_score=True)


@pytest.mark.parametrize("library", ["sklearn", "xgboost", "lightgbm"])
@pytest.mark.filterwarnings("ignore:Found whitespace in feature_names")
def test_a_coded_table_has_the_margin_of_the_table(library, table):
    table, y = table
    model, own_margin = margins(library, table, y)
    ensemble = read_trees(model)
    assert ensemble.categorical_features == (1, 3)
    matrix = coded_matrix(ensemble, table)
    np.testing.assert_allclose(ensemble.margin(matrix), own_margin(table), atol=1e-5)
    np.testing.assert_array_equal(matrix[:9, 1], np.nan)
    few = table.iloc[50:60].assign(town=table["town"].iloc[50:60].cat.remove_unused_categories())
    np.testing.assert_array_equal(coded_matrix(ensemble, few), matrix[50:60])


@pytest.mark.parametrize("library", ["sklearn", "lightgbm"])
@pytest.mark.filterwarnings("ignore:Found whitespace in feature_names")
def test_a_category_that_the_model_does_not_know_counts_as_missing(library, table):
    table, y = table
    model, own_margin = margins(library, table, y)
    ensemble = read_trees(model)
    elsewhere = table.assign(town=pd.Categorical(["elsewhere"] * len(table)))
    np.testing.assert_allclose(ensemble.margin(coded_matrix(ensemble, elsewhere)), own_margin(elsewhere), atol=1e-5)


def test_numbers_of_any_type_are_taken(applicants):
    X, y = applicants
    ensemble = read_trees(RandomForestClassifier(n_estimators=5, random_state=0).fit(X[:, :3], y))
    table = pd.DataFrame({"a": pd.array([1, None], dtype="Int64"), "b": [True, False], "c": [0.5, np.nan]})
    np.testing.assert_array_equal(coded_matrix(ensemble, table), [[1, 1, 0.5], [np.nan, 0, np.nan]])


def test_text_without_codes_is_refused(applicants):
    X, y = applicants
    ensemble = read_trees(RandomForestClassifier(n_estimators=5, random_state=0).fit(X[:, :2], y))
    with pytest.raises(InvalidInputError, match=r"The column 'home' is not numeric .* pass it as it was coded"):
        coded_matrix(ensemble, pd.DataFrame({"a": [1.0], "home": ["rent"]}))


def test_another_number_of_columns_is_refused(applicants):
    X, y = applicants
    ensemble = read_trees(RandomForestClassifier(n_estimators=5, random_state=0).fit(X, y))
    message = r"RandomForestClassifier \(5 trees\) takes 6 columns, but the table has 1: \['a'\]"
    with pytest.raises(InvalidInputError, match=message):
        coded_matrix(ensemble, pd.DataFrame({"a": [1.0]}))


def test_columns_in_another_order_are_refused(applicants):
    X, y = applicants
    table = pd.DataFrame(X[:, :2], columns=["debt", "income"])
    ensemble = read_trees(RandomForestClassifier(n_estimators=5, random_state=0).fit(table, y))
    message = r"was fitted with the column 'debt' where the table has 'income'; .*\['debt', 'income'\]"
    with pytest.raises(InvalidInputError, match=message):
        coded_matrix(ensemble, table[["income", "debt"]])


def test_columns_that_lightgbm_found_useless_leave_the_others_their_categories(table):
    lightgbm = pytest.importorskip("lightgbm")
    table, y = table
    n = len(table)
    useless = {
        "one": pd.Categorical(["only"] * n),
        "zero": np.zeros(n),
        "rare": pd.Categorical(np.where(np.arange(n) < 3, "few", "many")),
    }
    people = pd.DataFrame({"one": useless["one"], **table, **useless}).rename(columns={"income now": "income"})
    model = lightgbm.LGBMClassifier(n_estimators=20, n_jobs=1, verbose=-1).fit(people, y)
    ensemble = read_trees(model)
    assert {"town", "home"} <= {people.columns[j] for j in ensemble.categories}
    margin = ensemble.margin(coded_matrix(ensemble, people))
    np.testing.assert_allclose(margin, model.predict(people, raw_score=True), atol=1e-12)
    # Two columns of the same size: which of the useless ones came before cannot be told from their codes.
    twice = pd.DataFrame({"one": [0.0] * n, "two": useless["rare"], "home": table["home"], "town": table["home"]})
    twice["two"] = pd.Categorical(["only"] * n, categories=[*table["home"].cat.categories.astype(str)[:4], "only"])
    unclear = lightgbm.LGBMClassifier(n_estimators=5, n_jobs=1, verbose=-1).fit(twice.assign(last=0.0), y)
    assert read_trees(unclear).categories == {}


def test_text_of_a_file_meets_categories_of_numbers_and_the_reverse(table):
    table, y = table
    model = HistGradientBoostingClassifier(max_iter=5, categorical_features=["home"]).fit(table[["debt", "home"]], y)
    ensemble = read_trees(model)
    expected = coded_matrix(ensemble, table[["debt", "home"]])
    as_text = table[["debt", "home"]].astype({"home": int}).astype({"home": str})
    np.testing.assert_array_equal(coded_matrix(ensemble, as_text), expected)
    words = table[["debt"]].assign(home=table["home"].astype(int).astype(str).astype("category"))
    by_words = read_trees(HistGradientBoostingClassifier(max_iter=5).fit(words, y))
    as_numbers = words.astype({"home": float})
    np.testing.assert_array_equal(coded_matrix(by_words, as_numbers), coded_matrix(by_words, words))
    # A pandas category of another type is what the library makes of it: unknown.
    other_type = words.assign(home=table["home"])
    np.testing.assert_array_equal(coded_matrix(by_words, other_type)[:, 1], np.nan)
