"""What users pass in: checked, aligned by the index of pandas, and named in messages."""

from dataclasses import dataclass
from typing import Any

import duckdb
import narwhals as nw
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

import evenhand as eh
from evenhand.exceptions import InvalidInputError, InvalidTypeError
from evenhand.inputs.validation import (
    MOST_GROUPS,
    alike_names,
    as_groups,
    as_labels,
    as_matrix,
    as_table,
    check_columns,
    in_row_order,
    moved_keywords,
)

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
    with pytest.raises(InvalidInputError, match="`minutes` is 5, but `options` has 3"):
        moved_keywords("eh.cook", {"minutes": 5}, Cooking(minutes=3), Cooking)
    with pytest.raises(TypeError, match=r"`options` of eh.cook must be Cooking\(...\), got dict"):
        moved_keywords("eh.cook", {}, {"minutes": 5}, Cooking)


@pytest.fixture(scope="module")
def people():
    data = eh.load_dataset("synthetic", n=200)
    X = data.X.set_axis([f"p{k}" for k in range(200)])
    return (
        X,
        pd.Series(np.asarray(data.y), X.index),
        pd.Series(np.asarray(data.group), X.index),
        data.financial_features,
    )


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return torch.nn.Linear(20, 1)


def audit(model, X, y, group, financial, **options):
    found = eh.audit(model, X, y, sensitive_features=group, financial_features=financial, evidence=False, **options)
    return found.to_dict()


@pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")
def test_every_column_of_an_audit_is_put_in_the_order_of_the_table(people, model):
    X, y, group, financial = people
    by = pd.DataFrame({"product": np.resize(["a", "b"], 200)}, X.index)
    order = np.random.default_rng(0).permutation(200)
    reference = (X, y, group)
    expected = audit(model, X, y, group, financial, reference=reference, by=by)
    shuffled = audit(
        model,
        X,
        y.iloc[order],
        group.iloc[order],
        financial,
        reference=(X, y.iloc[order], group.iloc[order]),
        by=by.iloc[order],
    )
    for part in ("cec", "regimes", "outcome", "by", "score_gap"):
        assert repr(shuffled.get(part)) == repr(expected.get(part))


@pytest.mark.parametrize("name", ["y", "group"])
def test_other_people_are_refused(people, model, name):
    X, y, group, financial = people
    given = {"y": y, "group": group}
    given[name] = given[name].reset_index(drop=True)
    with pytest.raises(
        InvalidInputError, match=r"and `X` have different indexes: 200 of 200 rows of `X` are not in it, such as"
    ):
        audit(model, X, given["y"], given["group"], financial)


def test_labels_that_come_twice_tell_no_order():
    X = pd.DataFrame({"a": [1, 2, 3]}, index=[0, 0, 1])
    assert in_row_order(pd.Series([1, 2, 3], [0, 0, 1]), X, "y").tolist() == [1, 2, 3]
    with pytest.raises(InvalidInputError, match=r"are repeated, .* pass `y\.to_numpy\(\)`"):
        in_row_order(pd.Series([1, 2, 3], [1, 0, 0]), X, "y")


@pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")
def test_what_has_no_index_is_taken_by_place(people, model):
    X, y, group, financial = people
    expected = audit(model, X, y, group, financial)
    arrow, polars = pa.Table.from_pandas(X, preserve_index=False), pl.DataFrame(X.to_dict("list"))
    for table, convert in ((arrow, pa.array), (polars, pl.Series), (arrow.to_batches()[0], list), (X, np.asarray)):
        found = audit(model, table, convert(y.to_list()), convert(group.to_list()), financial)
        assert found["cec"] == expected["cec"]
    found = audit(model, polars, pa.chunked_array([y.to_list()]), {"sex": pa.array(group.to_list())}, financial)
    assert found["cec"] == expected["cec"]


@pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")
def test_training_and_matching_align_too(people):
    X, y, group, financial = people
    order = np.random.default_rng(1).permutation(200)
    settings = {"financial_features": financial, "epochs": 2, "random_state": 0}
    weight = pd.Series(np.resize([1.0, 2.0], 200), X.index)
    first = eh.CECClassifier(**settings).fit(X, y, sensitive_features=group, sample_weight=weight)
    second = eh.CECClassifier(**settings).fit(
        X, y.iloc[order], sensitive_features=group.iloc[order], sample_weight=weight.iloc[order]
    )
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))
    F = X[list(financial)]
    pairs = eh.match_pairs(F, y.iloc[order], group.iloc[order])
    np.testing.assert_array_equal(pairs.match, eh.match_pairs(F, y, group).match)
    codes = (group == group.iloc[0]).astype(int)
    np.testing.assert_array_equal(
        eh.label_group_baselines(X, y.iloc[order], codes.iloc[order]), eh.label_group_baselines(X, y, codes)
    )


@pytest.mark.parametrize(
    "names",
    [
        ("Black", "Black ", "BLACK"),
        ("Non-Hispanic", "non hispanic"),
        ("ｆ", "f"),
        ("straße", "STRASSE"),
        ("a  b", "a_b"),
    ],
)
def test_typing_makes_no_name_of_its_own(names):
    assert alike_names([*names, "other"]) == [names]


@pytest.mark.parametrize("names", [("1", "-1"), ("1.2", "12"), ("25-34", "2534"), ("a", "b"), ("Asian", "Asians")])
def test_other_names_stay_apart(names):
    assert alike_names(names) == []


@pytest.mark.parametrize("values", [["Black", "Black ", "White"], ["black", "BLACK"], ["a b", "a  b"], ["ß", "SS"]])
def test_one_group_in_several_spellings(values):
    with pytest.raises(InvalidInputError, match=r"`race` has groups that differ only in typing: '.*' \(1\), '"):
        as_groups(values, len(values), "race")


def test_a_number_for_everyone_is_no_group():
    ages = np.linspace(18, 80, 500)
    with pytest.raises(
        InvalidInputError, match=r"`age` has 500 groups, such as .* Cut a number such as age into bands"
    ):
        as_groups(ages, 500, "age")
    assert len(as_groups(np.arange(MOST_GROUPS), MOST_GROUPS).names) == MOST_GROUPS


@pytest.mark.parametrize("values", [["a", "b\0"], ["a", "b\ud800"]])
def test_names_that_cannot_be_written(values):
    with pytest.raises(InvalidInputError, match="group names with invalid characters"):
        as_groups(values, 2)


@pytest.mark.parametrize("groups", [["White", "Black", "BLACK"], [f"{k:.3f}" for k in np.linspace(0, 1, 60)]])
def test_groups_of_different_batches_are_compared(tmp_path, groups):
    data = eh.load_dataset("synthetic", n=240)
    table = data.X.assign(y=data.y, g=np.repeat(groups, 240 // len(groups)))
    table.to_parquet(tmp_path / "people.parquet")
    assert pq.ParquetFile(tmp_path / "people.parquet").metadata.num_rows == 240
    with pytest.raises(InvalidInputError, match=r"differ only in typing|has (5[1-9]|60) groups"):
        eh.audit_stream(
            torch.nn.Linear(20, 1),
            tmp_path / "people.parquet",
            label="y",
            group="g",
            financial_features=data.financial_features,
            out=tmp_path / "audit",
            batch_rows=40,
        )


def test_a_table_with_columns_that_are_no_values():
    X = pd.DataFrame({"a": [1, 2], "b": [[1], [2]], "c": [1j, 2j], "d": [b"x", b"y"]})
    with pytest.raises(InvalidInputError, match=r"nor booleans: 'b' \(list\), 'c' \(complex\), 'd' \(bytes\); leave"):
        as_table(X)
    with pytest.raises(InvalidInputError, match="column names with invalid characters"):
        as_table(pd.DataFrame([[1]], columns=pd.Index(["\ud800"], dtype=object)))
    with pytest.raises(InvalidInputError, match="Column 'a' has values with invalid characters"):
        as_table(pd.DataFrame({"a": pd.Series(["\ud800"], dtype=object)}))


TABLE = pd.DataFrame({"a": [1.0, 2.0, 3.0], "b": ["x", "y", "z"]})


@pytest.mark.parametrize(
    "made",
    [
        pl.from_pandas,
        lambda table: pl.from_pandas(table).lazy(),
        nw.from_native,
        lambda table: nw.from_native(pl.from_pandas(table)).lazy(),
        duckdb.from_df,
        pa.RecordBatch.from_pandas,
        lambda table: pa.Table.from_pandas(table).to_reader(),
    ],
)
def test_a_table_of_any_library_is_read_also_lazily(made):
    assert as_table(made(TABLE)).to_dict("list") == TABLE.to_dict("list")


def test_a_relation_of_duckdb_gives_the_audit_of_its_rows():
    planted = eh.make_planted_bias(200, random_state=0)
    people = planted.dataset
    given = {"sensitive_features": people.group, "financial_features": people.financial_features, "evidence": False}
    relation = eh.audit(planted.model, duckdb.from_df(people.X), people.y, **given)
    assert relation.to_dict()["cec"] == eh.audit(planted.model, people.X, people.y, **given).to_dict()["cec"]


@pytest.mark.parametrize("allow_missing", [False, True])
def test_numbers_whose_squares_overflow_are_refused(allow_missing):
    table = pd.DataFrame({"income": [1.0, 1e308, -1e200], "debt": [1.0, 2.0, 1e150]})
    with pytest.raises(InvalidInputError, match=r"numbers beyond 1e\+150 \(column: count\): \{'income': 2\}"):
        as_matrix(table, dtype=np.float64, allow_missing=allow_missing)
