"""Maps from features, or codes, to reasons."""

import numpy as np
import pandas as pd
import polars as pl
import pytest

from evenhand.exceptions import EvenhandError, InvalidInputError
from evenhand.inputs.reason_maps import ReasonMap, given_reasons, read_reason_map

FEATURES = ["income", "debt", "limit", "age"]
LINES = {"debt": "Amount owed", "limit": "Amount owed", "income": "Income", "age": "Age"}


@pytest.fixture
def written(tmp_path):
    (tmp_path / "r.toml").write_text(
        '[reasons]\n"Amount owed" = ["debt", "limit"]\nincome = "Income"\nage = "Age"\n', encoding="utf-8"
    )
    table = pd.DataFrame(LINES.items(), columns=["feature", "reason"])
    table.to_csv(tmp_path / "r.csv", index=False)
    table.to_parquet(tmp_path / "r.parquet")
    return tmp_path


def test_every_form_says_the_same(written):
    table = pd.DataFrame(LINES.items())
    forms = [
        LINES,
        {"Amount owed": ["debt", "limit"], "Income": ["income"], "age": "Age"},
        table,
        pl.from_pandas(table.set_axis(["a", "b"], axis=1)),
        written / "r.toml",
        str(written / "r.csv"),
        written / "r.parquet",
    ]
    for form in forms:
        assert read_reason_map(form) == LINES
        found = ReasonMap.of(form, FEATURES)
        assert found.names == ("Amount owed", "Income", "Age")
        assert found.to_dict() == {name: LINES[name] for name in FEATURES}


def test_without_a_map_each_feature_is_its_own_reason():
    found = ReasonMap.of(None, FEATURES)
    assert found.names == tuple(FEATURES)
    assert found.of_feature == (0, 1, 2, 3)


def test_features_of_one_reason_are_added_up():
    found = ReasonMap.of(LINES, FEATURES)
    values = np.random.default_rng(0).normal(size=(50, 4))
    expected = np.column_stack([values[:, 1] + values[:, 2], values[:, 0], values[:, 3]])
    np.testing.assert_allclose(found.summed(values), expected)
    assert found.members("Amount owed") == ["debt", "limit"]


def test_the_rest_can_have_a_reason():
    found = ReasonMap.of({"debt": "Debt", "*": "Other"}, FEATURES)
    assert found.names == ("Debt", "Other")
    assert found.to_dict() == {"income": "Other", "debt": "Debt", "limit": "Other", "age": "Other"}
    assert ReasonMap.of({**LINES, "*": "Other"}, FEATURES).names == ("Amount owed", "Income", "Age")


BAD = {
    "left out": ({"debt": "Debt", "limit": "Debt"}, "no reason for 2 of 4 features: 'income', 'age'"),
    "unknown": ({**LINES, "dept": "Debt"}, r"absent from the data: \['dept'\]. Did you mean 'debt'"),
    "twice": ({"debt": "Debt", "Amount": ["debt"]}, "more than one reason to 'debt'"),
    "no text": ({"debt": 3}, "got 3 for 'debt'"),
    "empty": ({}, "got none"),
    "blank": ({"debt": " "}, "an empty name"),
    "three columns": (pd.DataFrame([["debt", "Debt", 1]]), "must have two columns"),
    "missing cell": (pd.DataFrame([["debt", None]]), "1 rows without a feature or a reason"),
    "a number": (4, "must be a path, a mapping or a table"),
    "no file": ("nowhere.toml", "there is no file 'nowhere.toml'"),
    "no table file": ("nowhere.csv", "There is no file 'nowhere.csv'"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_maps_are_refused_in_a_sentence(name):
    given, sentence = BAD[name]
    with pytest.raises(EvenhandError, match=sentence):
        ReasonMap.of(given, FEATURES)


def test_toml_without_reasons_is_refused(tmp_path):
    (tmp_path / "r.toml").write_text('debt = "Debt"\n', encoding="utf-8")
    with pytest.raises(InvalidInputError, match=r"must have a table \[reasons\].*got the keys \['debt'\]"):
        read_reason_map(tmp_path / "r.toml")
    (tmp_path / "r.toml").write_text("debt = \n", encoding="utf-8")
    with pytest.raises(InvalidInputError, match="not valid TOML"):
        read_reason_map(tmp_path / "r.toml")


def test_codes_of_a_file_are_the_reasons_without_a_map():
    table = pd.DataFrame({"r1": ["AA02", "AA01", None], "r2": ["AA01", "", "AA03"]})
    names, codes = given_reasons(table)
    assert names == ("AA01", "AA02", "AA03")
    assert codes.tolist() == [[1, 0], [0, -1], [-1, 2]]


def test_codes_read_as_numbers_are_found_in_the_map():
    table = pd.DataFrame({"r1": [7.0, 12.0], "r2": [np.nan, 7.0]})  # as a column with missing values is read
    names, codes = given_reasons(table, {"12": "Income", "7": "Debt", "9": "Debt"})
    assert names == ("Income", "Debt")
    assert codes.tolist() == [[1, -1], [0, 1]]


def test_codes_without_an_entry_are_named_with_counts():
    table = pd.DataFrame({"r1": ["A", "X", "X"], "r2": ["Y", None, "A"]})
    with pytest.raises(InvalidInputError, match=r"no entry for 2 codes that occur .*'X' \(2\), 'Y' \(1\)"):
        given_reasons(table, {"A": "Income"})
    assert given_reasons(table, {"A": "Income", "*": "Other"})[0] == ("Income", "Other")
