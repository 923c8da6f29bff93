"""Tables as numbers and back."""

import pickle

import numpy as np
import pandas as pd
import pytest

from evenhand.exceptions import InvalidInputError
from evenhand.models.encoders import CodedTable, has_categories
from evenhand.models.protocol import EncodesTables


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
    assert isinstance(coded, EncodesTables)
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
    assert not has_categories(table[["income", "yes"]])
    assert has_categories(table[["income", "text"]])
