"""Columns by name."""

import numpy as np
import pandas as pd
import pytest

from evenhand.exceptions import InvalidInputError
from evenhand.models.encoders import NamedColumns
from evenhand.models.protocol import EncodesTables


def test_columns_come_in_the_models_order():
    columns = NamedColumns(["b", "a"])
    assert isinstance(columns, EncodesTables)
    table = pd.DataFrame({"a": [1, 2], "b": [True, False], "c": ["x", "y"]})
    np.testing.assert_array_equal(columns.transform(table), [[1.0, 1.0], [0.0, 2.0]])
    np.testing.assert_array_equal(columns.join_matrix, np.eye(2))
    assert columns.encoded_names == columns.names


def test_missing_values_are_for_models_that_take_them():
    table = pd.DataFrame({"a": [1.0, np.nan]})
    assert np.isnan(NamedColumns(["a"], takes_missing=True).transform(table)[1, 0])
    with pytest.raises(InvalidInputError, match="holds missing or infinite values"):
        NamedColumns(["a"]).transform(table)
