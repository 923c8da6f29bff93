import json
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.matching.space import MatchingSpace


@pytest.fixture
def table():
    return pd.DataFrame(
        {
            "income": [10.0, 20.0, 30.0, 40.0],
            "purpose": ["car", "home", "car", "study"],
            "is_owner": [True, False, False, True],
            "term": [360, 360, 360, 360],
        }
    )


def mean_squared_distance(points):
    return ((points[:, None] - points[None]) ** 2).sum(axis=2).mean()


def test_numbers_are_z_scores_of_the_reference():
    F = np.random.default_rng(0).gamma(2.0, 50.0, (500, 3))
    points = MatchingSpace.fit(F).transform(F)
    np.testing.assert_allclose(points.mean(axis=0), 0, atol=1e-12)
    np.testing.assert_allclose(points.std(axis=0), 1)


@given(st.lists(st.integers(0, 5), min_size=2, max_size=40).filter(lambda v: len(set(v)) > 1))
def test_a_category_counts_like_one_standardized_number(levels):
    as_text = pd.DataFrame({"c": [f"level {v}" for v in levels]})
    as_number = pd.DataFrame({"c": [float(v) for v in levels]})
    for F in (as_text, as_number):
        assert mean_squared_distance(MatchingSpace.fit(F).transform(F)) == pytest.approx(2)


def test_a_boolean_column_is_as_far_apart_as_its_z_score(table):
    one_hot = MatchingSpace.fit(table[["is_owner"]]).transform(table[["is_owner"]])
    number = table[["is_owner"]].astype(float)
    z = MatchingSpace.fit(number).transform(number)
    assert np.linalg.norm(one_hot[0] - one_hot[1]) == pytest.approx(abs(z[0] - z[1])[0])


def test_an_unknown_category_is_the_zero_vector(table):
    space = MatchingSpace.fit(table[["purpose"]])
    assert not space.transform(pd.DataFrame({"purpose": ["yacht"]})).any()
    assert space.coordinate_names == ("purpose=car", "purpose=home", "purpose=study")


def test_constant_columns_are_zero_and_named(table):
    table["country"] = "US"
    table["rate"] = 0.1  # whose mean is not exactly 0.1 in floating point
    space = MatchingSpace.fit(table)
    assert space.constant == ("term", "country", "rate")
    other = table.assign(term=180, country="FR", rate=9.0)
    np.testing.assert_array_equal(space.transform(table), space.transform(other))


def test_missing_values_become_features_when_asked(table):
    table.loc[0, "income"] = np.nan
    table.loc[2, "purpose"] = None
    space = MatchingSpace.fit(table[["income", "purpose"]], missing="indicator")
    assert space.coordinate_names == (
        "income",
        "income is missing",
        "purpose=car",
        "purpose=home",
        "purpose=study",
        "purpose=missing",
    )
    points = space.transform(table[["income", "purpose"]])
    assert points[0, 0] == 0
    assert points[0, 1] == pytest.approx(1 / np.sqrt(0.25 * 0.75))
    assert (points[2, 2:] > 0).tolist() == [False, False, False, True]
    assert mean_squared_distance(points[:, 1:2]) == pytest.approx(2)
    assert mean_squared_distance(points[:, 2:]) == pytest.approx(2)


def test_a_value_missing_only_outside_the_reference_is_average(table):
    space = MatchingSpace.fit(table[["income", "purpose"]], missing="indicator")
    someone = pd.DataFrame({"income": [np.nan], "purpose": pd.Series([None], dtype="string")})
    assert not space.transform(someone).any()


def test_tables_of_any_library_give_the_same_coordinates(table):
    expected = MatchingSpace.fit(table).transform(table)
    for other in (
        pl.from_pandas(table),
        pl.from_pandas(table).to_arrow(),
        table.convert_dtypes(),
        table.astype({"purpose": "category", "income": object}),
        table.assign(income=[Decimal(int(v)) for v in table["income"]]),
        table.astype({"purpose": object, "is_owner": object}),
    ):
        np.testing.assert_array_equal(MatchingSpace.fit(other).transform(other), expected)
        np.testing.assert_array_equal(MatchingSpace.fit(table).transform(other), expected)


def test_categories_that_json_does_not_know_go_by_their_text():
    F = pd.DataFrame({"since": pd.Categorical(pd.to_datetime(["2020-01-01", "2021-01-01"]))})
    assert MatchingSpace.fit(F).columns[0].levels == ("2020-01-01 00:00:00", "2021-01-01 00:00:00")
    F = pd.DataFrame({"grade": pd.Categorical(np.array([2, 1]))})
    assert json.dumps(MatchingSpace.fit(F).columns[0].levels) == "[1, 2]"


def test_very_small_and_large_units_are_standardized():
    F = np.array([[1e-300, 1e150], [3e-300, 3e150]])
    np.testing.assert_allclose(MatchingSpace.fit(F).transform(F), [[-1, -1], [1, 1]])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="term"), r"absent: \['term'\], unexpected: \[\]"),
        (lambda t: t.rename(columns={"term": "months"}), r"absent: \['term'\], unexpected: \['months'\]"),
        (lambda t: t[["term", "income", "purpose", "is_owner"]], r"different order .* got \['term', 'income'"),
        (lambda t: t.assign(income=[1.0, np.nan, np.nan, 2.0]), r"missing values: 'income' \(2\). Fill them"),
        (lambda t: t.assign(purpose=["car", None, "car", "car"]), r"missing values: 'purpose' \(1\)"),
        (lambda t: t.assign(income=[1.0, np.inf, 2.0, -np.inf]), r"infinite values: 'income' \(2\)"),
        (lambda t: t.assign(income=1e200), "'income' has 4 values too far from the reference"),
    ],
)
def test_unusable_tables_are_refused(table, change, message):
    with pytest.raises(InvalidInputError, match=message):
        MatchingSpace.fit(table).transform(change(table))


def test_columns_of_another_kind_are_refused(table):
    space = MatchingSpace.fit(table)
    with pytest.raises(InvalidTypeError, match="'income' held numbers in the reference, but holds categories here"):
        space.transform(table.assign(income="high"))
    with pytest.raises(InvalidTypeError, match="'purpose' held categories in the reference, but holds numbers here"):
        space.transform(table.assign(purpose=1))


def test_arrays_with_other_columns_are_refused():
    with pytest.raises(InvalidInputError, match="reference has 2 financial features, but this table has 3"):
        MatchingSpace.fit(np.eye(2)).transform(np.ones((1, 3)))


@pytest.mark.parametrize(
    ("F", "message"),
    [
        (np.ones(3), r"must be of shape \(n, k\); got shape \(3,\)"),
        (np.ones((0, 2)), "got 0 rows and 2 columns"),
        (np.ones((2, 0)), "got 0 rows and 0 columns"),
        (np.array([[1.0], [np.nan]]), r"missing values: 'column 0' \(1\)"),
        (np.array([[1.7e308], [-1.7e308], [1.7e308]]), "'column 0' is too large to standardize: values reach 1.7e"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), r"are repeated: \['a'\]"),
    ],
)
def test_unusable_references_are_refused(F, message):
    with pytest.raises(InvalidInputError, match=message):
        MatchingSpace.fit(F)


@pytest.mark.parametrize(
    ("F", "message"),
    [
        (np.array([["a"]]), "must hold numbers, but this one has dtype <U1"),
        (np.array([[1.0, "a"]], dtype=object), "has dtype object. Pass a DataFrame"),
        (pd.DataFrame({"when": pd.to_datetime(["2020-01-01"])}), "'when' holds neither numbers nor categories"),
        (pd.DataFrame({"mix": [1, "a"]}, dtype=object), r"'mix' holds neither .*\(dtype object, mixed-integer\)"),
        (pd.DataFrame({"z": [1j]}), "'z' holds neither numbers nor categories"),
    ],
)
def test_values_that_are_neither_numbers_nor_categories_are_refused(F, message):
    with pytest.raises(InvalidTypeError, match=message):
        MatchingSpace.fit(F)


def test_a_column_without_any_value_is_refused():
    F = pd.DataFrame({"a": [1.0, 2.0], "b": [np.nan, np.nan]})
    with pytest.raises(InvalidInputError, match="'b' has no value in the reference: all 2 are missing"):
        MatchingSpace.fit(F, missing="indicator")


def test_an_unknown_way_with_missing_values_is_refused():
    with pytest.raises(InvalidInputError, match="`missing` must be 'error' or 'indicator'; got 'drop'"):
        MatchingSpace.fit(np.eye(2), missing="drop")
