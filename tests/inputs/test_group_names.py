"""Groups that cannot be meant are refused with a sentence."""

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
import torch

import evenhand as eh
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.validation import MOST_GROUPS, as_groups, as_table


@pytest.mark.parametrize("values", [["Black", "Black ", "White"], ["black", "BLACK"], ["a b", "a  b"], ["ß", "SS"]])
def test_one_group_in_several_spellings(values):
    with pytest.raises(InvalidInputError, match=r"`race` has groups that differ only in typing: '.*' \(1\), '"):
        as_groups(values, len(values), "race")


def test_a_number_for_everyone_is_no_group():
    ages = np.linspace(18, 80, 500)
    with pytest.raises(
        InvalidInputError, match=r"`age` has 500 groups, such as .* Put a number such as age into ranges"
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
