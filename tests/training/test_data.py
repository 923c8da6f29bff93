from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch

from evenhand.exceptions import InvalidInputError
from evenhand.training import TrainingData, TrainingSettings, train

from .conftest import make_data


def test_arrays_are_taken_and_rows_counted_up_to_the_last_of_positive_weight():
    data = make_data(sizes=(12, 7))
    assert data.n_rows.tolist() == [12, 7]
    copy = TrainingData(
        **{
            f.name: None if getattr(data, f.name) is None else np.asarray(getattr(data, f.name))
            for f in dataclasses.fields(data)
        }
    )
    assert copy.X.dtype == torch.float32
    assert torch.equal(copy.X, data.X)


BAD_DATA = {
    "X 2-d": ({"X": torch.zeros(3, 4)}, r"`X` must have shape \(n_tables, n_rows, n_columns\), got \(3, 4\)"),
    "y": ({"y": torch.zeros(2, 3)}, r"`y` must have shape \(2, 12\), got \(2, 3\)"),
    "match": ({"match": torch.zeros(2, 12)}, r"`match` must have shape \(2, 12, n_groups - 1\), got \(2, 12\)"),
    "X nan": ({"X": torch.full((2, 12, 5), float("nan"))}, "`X` must be finite"),
    "y 2": ({"y": torch.full((2, 12), 2)}, r"`y` must be 0 or 1, got \[2\]"),
    "group": ({"group": torch.full((2, 12), -1)}, "`group` must contain codes 0..G-1, got -1"),
    "group high": ({"group": torch.full((2, 12), 2)}, "`group` must contain codes below 2, .* got 2"),
    "weight": ({"weight": torch.full((2, 12), -1.0)}, "`weight` must be finite and not negative"),
    "no one": ({"weight": torch.zeros(2, 12)}, r"tables \[0, 1\] have none"),
    "baselines": (
        {"baselines": torch.zeros(2, 2, 5)},
        r"`baselines` must have shape \(2, 2, n_groups, 5\), got \(2, 2, 5\)",
    ),
    "empty cell": (
        {"baselines": torch.full((2, 2, 2, 5), torch.nan)},
        r"`baselines` is not finite for label \d, group \d of table 0",
    ),
    "match high": ({"match": torch.full((2, 12, 1), 12)}, "`match` must contain rows below 12, got 12"),
    "join": ({"join": torch.zeros(4, 2)}, r"`join` must have shape \(5, n_features\), got \(4, 2\)"),
}


@pytest.mark.parametrize("case", BAD_DATA)
def test_data_that_does_not_fit_together_is_refused(case):
    changes, message = BAD_DATA[case]
    with pytest.raises(InvalidInputError, match=message):
        dataclasses.replace(make_data(sizes=(12, 12)), **changes)


def test_validation_of_other_tables_is_refused():
    data, other = make_data(sizes=(12, 12)), make_data(sizes=(12,), validation=4)
    with pytest.raises(InvalidInputError, match="`validation` must have the tables, columns and groups"):
        dataclasses.replace(data, validation=other.validation)


def test_one_value_serves_all_members():
    how = TrainingSettings(table=(0, 1, 0), cec_weight=2)
    assert how.n_members == 3
    assert how.seed == (0, 0, 0)
    assert how.cec_weight == (2.0, 2.0, 2.0)
    assert TrainingSettings(**how.to_dict()) == how


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"seed": (1, 2), "table": (0, 1, 1)}, "same positive length, got {'table': 3, 'seed': 2}"),
        ({"seed": ()}, "same positive length"),
        ({"seed": -1}, "`seed` must be finite and at least 0, got -1"),
        ({"table": -1}, "`table` must be"),
        ({"cec_weight": float("nan")}, "`cec_weight` must be finite"),
        ({"equalized_odds_weight": -0.5}, "`equalized_odds_weight` must be"),
        ({"learning_rate": 0.0}, "`learning_rate` must be finite and positive, got 0.0"),
        ({"hidden": ()}, "`hidden` must be positive layer widths"),
        ({"dropout": 1.0}, r"`dropout` must be in \[0, 1\), got 1.0"),
        ({"epochs": -1}, "`epochs` must be"),
        ({"batch_size": 0}, "`batch_size` must be at least 1, got 0"),
        ({"n_steps": 0}, "`n_steps` must be"),
        ({"cec_every": 0}, "`cec_every` must be"),
        ({"patience": 0}, "`patience` must be None or at least 1"),
        ({"n_threads": 0}, "`n_threads` must be"),
        ({"min_improvement": -1.0}, "`min_improvement` must be"),
        ({"method": "exact"}, r"`method` must be one of \['segments', 'midpoint'\], got 'exact'"),
        ({"monitor": "f1"}, "`monitor` must be one of"),
    ],
    ids=str,
)
def test_settings_out_of_range_are_refused(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        TrainingSettings(**changes)


@pytest.mark.parametrize("n_steps", [1, 3])
def test_someone_alone_in_their_cell_is_their_own_baseline_and_training_stays_finite(n_steps):
    data = make_data(sizes=(29,))  # label 0, group 1 has one person
    assert int(((data.y == 0) & (data.group == 1)).sum()) == 1
    how = TrainingSettings(hidden=(6, 5), batch_size=8, epochs=2, n_steps=n_steps, cec_every=1, device="cpu")
    assert train(data, how).parameters.isfinite().all()
