"""Ids, dates and saved indexes: left out when nobody asked for them, refused when a model needs them."""

import numpy as np
import pandas as pd
import pytest

from evenhand.exceptions import EvenhandWarning, InvalidInputError
from evenhand.inputs.checking.columns import without_unfit
from evenhand.inputs.people import Columns

TABLE = pd.DataFrame(
    {
        "Unnamed: 0": np.arange(60),
        "loan_id": np.arange(60) * 7 % 61 + 1000,
        "opened": pd.date_range("2020-01-01", periods=60).strftime("%Y-%m-%d"),
        " income ": np.arange(60) % 13 + 0.5,
    }
)
COLUMNS = Columns("paid", ("sex",), tuple(TABLE.columns))


def test_they_are_left_out_with_a_sentence():
    with pytest.warns(EvenhandWarning, match="Left out of the inputs: 'Unnamed: 0' .*'loan_id' .*'opened'") as caught:
        columns, sentences = without_unfit(COLUMNS, TABLE, asked=(), is_named=False)
    assert columns.features == (" income ",)
    assert sentences == (str(caught[0].message),)


def test_what_is_asked_for_by_name_stays():
    columns, sentences = without_unfit(COLUMNS, TABLE, asked=("Unnamed: 0", "loan_id", "opened"), is_named=True)
    assert columns == COLUMNS
    assert sentences == ()


def test_a_model_that_needs_one_is_refused():
    with pytest.raises(InvalidInputError, match=r"The model uses .*'opened' \(date: .*`keep_inputs` \(--keep-inputs\)"):
        without_unfit(COLUMNS, TABLE, asked=("Unnamed: 0",), is_named=True)
