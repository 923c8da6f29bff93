import dataclasses

import numpy as np
import pandas as pd
import pytest

from evenhand.datasets import dataset_descriptions, dataset_names, load_dataset
from evenhand.datasets.dataset import reservations_on
from evenhand.exceptions import InvalidInputError


def test_every_name_has_a_description():
    assert dataset_names() == ("taiwan", "german", "adult", "hmda", "synthetic") == tuple(dataset_descriptions())


@pytest.mark.parametrize("name", ["taiwan", "german", "adult", "synthetic"])
def test_columns_labels_and_groups_agree(name):
    data = load_dataset(name)
    assert data.name == name
    assert len(data) == len(data.X) == len(data.y) == len(data.group) == data.n_read
    assert data.y.dtype == np.int64
    assert set(data.y) == {0, 1}
    assert all(isinstance(member, str) for member in data.group)
    assert set(data.financial_features) <= set(data.X.columns)
    kinds = {"category" if str(dtype) == "category" else dtype.kind for dtype in data.X.dtypes}
    assert kinds <= {"category", "i", "f"}


def test_unknown_name_gets_the_nearest():
    with pytest.raises(InvalidInputError, match=r"got 'germany'\. Did you mean 'german'\?"):
        load_dataset("germany")


def test_name_like_no_other_gets_the_list():
    with pytest.raises(
        InvalidInputError, match="one of 'taiwan', 'german', 'adult', 'hmda', 'synthetic', got 'compas'"
    ):
        load_dataset("compas")


def test_unknown_option_is_named():
    with pytest.raises(InvalidInputError, match="'german' has no option 'seed'; it has group"):
        load_dataset("german", seed=1)
    with pytest.raises(InvalidInputError, match="'taiwan' has no option 'group'; it has none"):
        load_dataset("taiwan", group="age")


def test_reservations_travel_with_rows_and_columns():
    X = load_dataset("german").X
    assert reservations_on(X) == reservations_on(X.iloc[:5].drop(columns="age").reset_index(drop=True)) != []
    assert reservations_on(X.to_numpy()) == reservations_on(pd.DataFrame({"a": [1]})) == []


def test_options_reach_the_loader():
    assert load_dataset("synthetic", n=50, n_noise=0).X.shape == (50, 15)


def test_dataset_is_frozen():
    data = load_dataset("synthetic", n=10)
    with pytest.raises(dataclasses.FrozenInstanceError):
        data.name = "other"


def test_repr_tells_counts_exclusions_and_notes():
    data = dataclasses.replace(load_dataset("german"), exclusions={"too late": 5, "lost": 1})
    text = repr(data)
    assert "1,000 people, 20 columns, 7 of them financial" in text
    assert "male 690, female 310" in text
    assert "left out of 1,006 rows: too late 5; lost 1" in text
    assert "CC BY 4.0" in text
    assert "protected basis" in text
