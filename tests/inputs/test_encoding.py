import json

import numpy as np
import pandas as pd
import pytest
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder, StandardScaler

from evenhand.exceptions import InvalidInputError
from evenhand.inputs.encoding import TableEncoder


@pytest.fixture
def table(rng):
    return pd.DataFrame(
        {
            "income": rng.normal(50, 10, 60),
            "job": rng.choice(["cook", "clerk", "pilot"], 60),
            "owner": rng.choice([True, False], 60),
            "rooms": rng.integers(1, 6, 60),
        }
    )


def test_onehot_equals_scikit_learn(table):
    encoded = TableEncoder.fit(table).transform(table)
    numbers = StandardScaler().fit_transform(table[["income", "rooms"]])
    categories = OneHotEncoder(sparse_output=False).fit_transform(table[["job", "owner"]])
    expected = np.column_stack([numbers[:, :1], categories, numbers[:, 1:]])
    np.testing.assert_allclose(encoded, expected, atol=1e-6)


def test_ordinal_equals_scikit_learn(table):
    encoded = TableEncoder.fit(table, "ordinal").transform(table)
    codes = table.assign(
        **dict(zip(["job", "owner"], OrdinalEncoder().fit_transform(table[["job", "owner"]]).T, strict=True))
    )
    np.testing.assert_allclose(encoded, StandardScaler().fit_transform(codes), atol=1e-6)


def test_the_order_of_a_pandas_category_is_kept():
    values = pd.DataFrame({"size": pd.Categorical(["big", "small", "big"], categories=["small", "big", "huge"])})
    encoder = TableEncoder.fit(values)
    assert encoder.encoded_names == ["size=small", "size=big"]


def test_missing_numbers_are_the_mean_and_flagged_where_fit_saw_some():
    train = pd.DataFrame({"a": [1.0, 3.0, np.nan], "b": [1.0, 2.0, 3.0]})
    encoder = TableEncoder.fit(train)
    assert encoder.encoded_names == ["a", "a=(missing)", "b"]
    new = encoder.transform(pd.DataFrame({"a": [np.nan], "b": [np.nan]}))
    assert new.tolist() == [[0.0, 1.0, 0.0]]


def test_missing_categories_are_a_category_where_fit_saw_some_and_unknown_ones_are_none():
    train = pd.DataFrame({"a": ["x", None, "y"], "b": ["x", "x", "y"]})
    for encoding, width in (("onehot", 5), ("ordinal", 2)):
        encoder = TableEncoder.fit(train, encoding)
        new = encoder.transform(pd.DataFrame({"a": ["zebra"], "b": [None]}))
        assert new.tolist() == [[0.0] * width]
    assert TableEncoder.fit(train).encoded_names == ["a=x", "a=y", "a=(missing)", "b=x", "b=y"]


def test_a_constant_column_is_zero():
    assert TableEncoder.fit(pd.DataFrame({"a": [2.0, 2.0]})).transform(pd.DataFrame({"a": [2.0]})).tolist() == [[0.0]]


def test_columns_are_found_by_name(table):
    encoder = TableEncoder.fit(table)
    np.testing.assert_array_equal(encoder.transform(table[table.columns[::-1]]), encoder.transform(table))


@pytest.mark.parametrize("encoding", ["onehot", "ordinal"])
def test_it_survives_json(table, encoding):
    encoder = TableEncoder.fit(table.assign(job=table["job"].where(table["income"] > 40, None)), encoding)
    again = TableEncoder.from_dict(json.loads(json.dumps(encoder.to_dict())))
    assert again == encoder
    np.testing.assert_array_equal(again.transform(table), encoder.transform(table))


def test_attributions_are_summed_by_column(table):
    encoder = TableEncoder.fit(table)
    values = np.arange(len(encoder.encoded_names), dtype=float)[None]
    assert encoder.join(values).tolist() == [[0, 1 + 2 + 3, 4 + 5, 6]]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: t.drop(columns="job"), r"missing \['job'\], unexpected \[\]"),
        (lambda t: t.assign(extra=1), r"unexpected \['extra'\]"),
        (lambda t: t.assign(income="rich"), "'income' held numbers at fit and now holds"),
        (lambda t: t.assign(income=np.inf), "'income' holds 60 infinite values"),
    ],
)
def test_a_table_unlike_the_one_learned_is_refused(table, change, message):
    encoder = TableEncoder.fit(table)
    with pytest.raises(InvalidInputError, match=message):
        encoder.transform(change(table))


@pytest.mark.parametrize(
    ("X", "encoding", "message"),
    [
        (pd.DataFrame({"a": [1.0]}), "hash", "`encoding` must be one of"),
        (pd.DataFrame({"a": []}), "onehot", "Cannot learn an encoding"),
        (pd.DataFrame({"a": [np.nan, np.nan]}), "onehot", "'a' has no values"),
        (pd.DataFrame({"a": [np.inf, 1.0]}), "onehot", "'a' holds 1 infinite values"),
    ],
)
def test_a_table_that_cannot_be_learned_is_refused(X, encoding, message):
    with pytest.raises(InvalidInputError, match=message):
        TableEncoder.fit(X, encoding)
