"""Which column plays which part."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from evenhand.exceptions import InvalidInputError
from evenhand.inputs.people import Columns

TABLE = pd.DataFrame(
    {
        "id": [1, 2, 3, 4],
        "income": [1.0, 2.0, 3.0, 4.0],
        "sex": ["m", "f", None, "m"],
        "paid": ["Yes ", "No", "Yes", None],
    }
)


def columns(label="paid", group=("sex",), **roles):
    return Columns(label=label, group=group, **roles).among(list(TABLE.columns))


def people(**options):
    return columns(**options).people_of(pa.Table.from_pandas(TABLE), "'people.csv'")


def test_columns_are_sorted_into_their_parts():
    found = people(drop=["id"], positive_label="Yes", drop_missing=True, by=["income"])
    assert list(found.table.columns) == ["income"]
    assert found.labels.tolist() == [1, 0]
    assert [found.groups.names[code] for code in found.groups.codes] == ["m", "f"]
    assert found.exclusions == {"no value in 'paid'": 1, "no value in 'sex'": 1}
    assert found.by["income"].tolist() == ["1.0", "2.0"]
    assert found.kept.tolist() == [0, 1]


def test_the_group_may_be_a_feature():
    assert columns(keep_group=True).features == ("id", "income", "sex")


@pytest.mark.parametrize("options", [{}, {"positive_label": "Yes"}])
def test_a_missing_group_or_label_is_refused_unless_dropped(options):
    with pytest.raises(InvalidInputError, match=r"'people.csv': "):
        people(**options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"label": "payd"}, r"`label` \(--label\) names columns absent .* Did you mean 'paid'"),
        ({"group": ["sx"]}, r"`group` \(--group\) names columns absent"),
        ({"drop": ["no"]}, r"`drop` \(--drop\) names columns absent"),
        ({"by": ["no"]}, r"`by` \(--by\) names columns absent"),
        ({"features": ["age"]}, "The model names columns absent"),
    ],
)
def test_wrong_names_are_refused(options, message):
    with pytest.raises(InvalidInputError, match=message):
        columns(**options)


def test_whole_numbers_beside_gaps_are_still_the_favorable_value():
    """Gaps make a column of 0 and 1 one of 0.0 and 1.0; the favorable value is still 0."""
    table = pa.table({"default": [0.0, 1.0, None, 0.0], "sex": ["f", "m", "f", "m"], "income": [1.0, 2.0, 3.0, 4.0]})
    columns = Columns(label="default", group=("sex",), features=("income",), positive_label="0", drop_missing=True)
    assert columns.people_of(table, "here").labels.tolist() == [1, 0, 1]


def test_financial_features_are_apart_from_label_group_and_what_is_left_out():
    for financial, drop, message in (
        ("y", (), "is the label"),
        ("sex", (), "is the group"),
        ("a", ("a",), "is removed"),
    ):
        with pytest.raises(InvalidInputError, match=f"The financial feature '{financial}' .*{message}"):
            Columns(label="y", group=("sex",), keep_group=True, drop=drop, financial_features=(financial,)).among(
                ["y", "sex", "a", "b"]
            )


def test_spaces_around_names_need_not_be_given():
    available = [" y", "sex ", " a ", "b"]
    found = Columns(label="y", group=("sex",), by=("b ",), drop=("a",)).among(available)
    assert (found.label, found.group, found.features, found.by) == (" y", ("sex ",), ("b",), ("b",))


def test_outcomes_are_not_inputs_and_keep_what_is_missing():
    table = TABLE.assign(rate=[0.1, None, 0.3, 0.4])
    named = Columns(label="paid", group=("sex",), positive_label="Yes", drop_missing=True, outcomes=("rate",))
    found = named.among(list(table.columns))
    assert "rate" not in found.features
    read = found.people_of(pa.Table.from_pandas(table), "'people.csv'")
    assert read.outcomes["rate"].isna().tolist() == [False, True]
    drawn = read.rows(np.array([1]))
    assert drawn.outcomes["rate"].isna().tolist() == [True]
    with pytest.raises(InvalidInputError, match=r"`outcomes` \(--outcomes\)"):
        replace(named, outcomes=("price",)).among(list(table.columns))
