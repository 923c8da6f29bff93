from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.inputs.validation import as_groups, as_labels, as_matrix, as_table, check_columns, moved_keywords

FRAME = {"income": [1.0, 2.5, 3.0], "job": ["a", "b", "a"]}


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table])
def test_every_dataframe_gives_the_same_table(make):
    table = as_table(make(FRAME))
    assert list(table.columns) == ["income", "job"]
    assert table["income"].tolist() == FRAME["income"]
    assert table["job"].tolist() == FRAME["job"]


def test_an_array_gets_names():
    assert list(as_table(np.zeros((2, 3))).columns) == ["x0", "x1", "x2"]


def test_the_index_of_a_table_is_forgotten():
    assert as_table(pd.DataFrame({"a": [1, 2]}, index=[7, 7])).index.tolist() == [0, 1]


@pytest.mark.parametrize(
    ("X", "error", "message"),
    [
        (np.zeros(3), InvalidInputError, "`X` must have two dimensions, got shape"),
        (pd.DataFrame({"a": []}), InvalidInputError, "must have rows and columns"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), InvalidInputError, r"same name: \['a'\]"),
        (42, InvalidTypeError, "got int"),
    ],
)
def test_other_tables_are_refused(X, error, message):
    with pytest.raises(error, match=message):
        as_table(X)


def test_text_is_refused_with_a_way_out():
    with pytest.raises(InvalidInputError, match=r"not numbers: \['job'\] \(such as 'a' in 'job'\). Encode them first"):
        as_matrix(as_table(pd.DataFrame(FRAME)))


def test_missing_and_infinite_values_are_counted_by_column():
    table = pd.DataFrame({"a": [1.0, np.nan, np.inf], "b": [1, 2, 3]})
    with pytest.raises(InvalidInputError, match=r"\{'a': 2\}"):
        as_matrix(table)


def test_booleans_and_integers_are_numbers():
    matrix = as_matrix(pd.DataFrame({"a": [True, False], "b": [1, 2]}))
    assert matrix.tolist() == [[1, 1], [0, 2]]


@pytest.mark.parametrize("y", [[0, 1, 1], [False, True, True], np.array([0.0, 1.0, 1.0]), pl.Series([0, 1, 1])])
def test_labels_of_every_kind(y):
    assert as_labels(y, 3).tolist() == [0, 1, 1]


@pytest.mark.parametrize(
    ("y", "message"),
    [
        ([0, 1], "`y` has 2 values for 3 rows"),
        ([0, 1, None], "1 missing labels"),
        (["good", "bad", "good"], r"0 or 1 \(1 for the favorable outcome\), got the values \['bad', 'good'\]"),
        ([0, 1, 2], r"got the values \[0, 1, 2\]"),
        ([1, 1, 1], "only the label 1"),
    ],
)
def test_other_labels_are_refused(y, message):
    with pytest.raises(InvalidInputError, match=message):
        as_labels(y, 3)


def test_labels_of_two_columns_are_refused():
    with pytest.raises(InvalidInputError, match="`y` must be one column, got 2"):
        as_labels(pd.DataFrame({"a": [0, 1], "b": [0, 1]}), 2)
    with pytest.raises(InvalidTypeError, match="a list, an array or a column"):
        as_labels(object(), 2)


@pytest.mark.parametrize(
    "values",
    [["m", "f", "m"], np.array(["m", "f", "m"]), pd.Series(["m", "f", "m"], index=[5, 6, 7]),
     pl.Series(["m", "f", "m"]), pd.DataFrame({"sex": ["m", "f", "m"]})],
)  # fmt: skip
def test_groups_of_every_kind(values):
    groups = as_groups(values, 3)
    assert groups.codes.tolist() == [1, 0, 1]
    assert groups.names == ("f", "m")
    assert groups.counts == {"f": 1, "m": 2}


@pytest.mark.parametrize("make", [pd.DataFrame, pl.DataFrame, pa.table, dict])
def test_several_columns_are_intersected(make):
    groups = as_groups(make({"sex": ["m", "f", "m"], "race": ["w", "w", "b"]}), 3)
    assert groups.names == ("f & w", "m & b", "m & w")


def test_columns_of_pandas_categories_are_intersected_too():
    table = pd.DataFrame({"sex": ["m", "f"], "race": ["w", "b"]}).astype("category")
    assert as_groups(table, 2).names == ("f & b", "m & w")


def test_whole_floats_are_named_as_integers():
    assert as_groups([1.0, 0.0], 2).names == ("0", "1")


def test_recoding_keeps_the_people():
    groups = as_groups(["b", "c"], 2).recoded(("a", "b", "c"))
    assert groups.codes.tolist() == [1, 2]


@pytest.mark.parametrize(
    ("values", "message"),
    [
        (None, "groups are needed"),
        (["m", "f"], "2 values for 3 rows"),
        (["m", "f", None], "1 missing values; drop those people"),
        (pd.DataFrame({"sex": ["m", "f", None], "race": ["w"] * 3}), "1 missing values in 'sex'"),
        (["m", "m", "m"], "only the group 'm'"),
    ],
)
def test_other_groups_are_refused(values, message):
    with pytest.raises(InvalidInputError, match=message):
        as_groups(values, 3)


def test_probabilities_of_groups_are_refused_with_a_way_out():
    with pytest.raises(InvalidInputError, match=r"probabilities of 2 groups.*evenhand\.GroupProbabilities"):
        as_groups(np.array([[0.3, 0.7], [1.0, 0.0], [0.5, 0.5]]), 3)
    assert as_groups(np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]]), 3).names == ("0 & 1", "1 & 0", "1 & 1")


@pytest.mark.parametrize(
    ("wanted", "message"),
    [
        (["incme"], r"absent from the data: \['incme'\]. Did you mean 'income'\?"),
        (["zzz"], "Available: 'income', 'job'"),
        ([], "names no column"),
        (["job", "job"], r"twice: \['job'\]"),
    ],
)
def test_wrong_column_names_are_refused(wanted, message):
    with pytest.raises(InvalidInputError, match=message):
        check_columns(wanted, ["income", "job"], "financial_features")


@dataclass(frozen=True, kw_only=True)
class Cooking:
    minutes: int = 10
    salt: Any = None


def test_keywords_that_moved_still_work_and_say_where_they_went():
    with pytest.warns(FutureWarning) as warned:
        options = moved_keywords("eh.cook", {"minutes": 5, "salt": [1, 2]}, Cooking(salt=[1, 2]), Cooking)
    assert options == Cooking(minutes=5, salt=[1, 2])
    (warning,) = warned
    assert str(warning.message) == (
        "`eh.cook(minutes=..., salt=...)` is now `options=Cooking(minutes=..., salt=...)`; "
        "the old keywords go in the next release."
    )
    assert warning.filename == __file__


def test_options_without_old_keywords_say_nothing(recwarn):
    assert moved_keywords("eh.cook", {}, None, Cooking) == Cooking()
    given = Cooking(minutes=3)
    assert moved_keywords("eh.cook", {}, given, Cooking) is given
    assert not recwarn


def test_keywords_that_moved_are_checked():
    with pytest.raises(InvalidTypeError, match=r"eh\.cook has no parameter 'minuts'. Did you mean 'minutes'"):
        moved_keywords("eh.cook", {"minuts": 5}, None, Cooking)
    with pytest.raises(InvalidTypeError, match="Did you mean 'stove'"):
        moved_keywords("eh.cook", {"stov": 5}, None, Cooking, own=["stove"])
    with pytest.raises(InvalidInputError, match="`minutes` is 5, but `how` has 3"):
        moved_keywords("eh.cook", {"minutes": 5}, Cooking(minutes=3), Cooking, "how")
    with pytest.raises(TypeError, match=r"`options` of eh.cook must be Cooking\(...\), got dict"):
        moved_keywords("eh.cook", {}, {"minutes": 5}, Cooking)
