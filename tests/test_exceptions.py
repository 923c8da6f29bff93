"""Warnings name the line of the user's program that led to them."""

import numpy as np
import pandas as pd
import pytest
import torch

import evenhand as eh
from evenhand.exceptions import EvenhandWarning
from evenhand.inputs.tables.open import read_table


@pytest.fixture
def people(rng):
    """Forty people in two groups."""
    X = pd.DataFrame(rng.normal(size=(40, 3)), columns=["income", "debt", "tenure"])
    return X, np.tile([0, 1], 20), np.repeat(["a", "b"], 20)


@pytest.fixture
def constant():
    """A model that decides the same for everyone, which every audit warns of."""
    model = torch.nn.Linear(3, 1)
    torch.nn.init.zeros_(model.weight)
    torch.nn.init.ones_(model.bias)
    return model


def test_of_an_audit(people, constant):
    X, y, group = people
    with pytest.warns(EvenhandWarning) as caught:
        eh.audit(constant, X, y, sensitive_features=group, financial_features=["income"])
    assert {warning.filename for warning in caught} == {__file__}


def test_of_a_streamed_audit(people, constant, tmp_path):
    X, y, group = people
    X.assign(y=y, group=group).to_parquet(tmp_path / "people.parquet")
    with pytest.warns(EvenhandWarning) as caught:
        eh.audit_stream(
            constant,
            tmp_path / "people.parquet",
            label="y",
            group="group",
            financial_features=["income"],
            out=tmp_path / "audit",
            n_jobs=1,
        )
    assert {warning.filename for warning in caught} == {__file__}


def test_of_a_table(tmp_path):
    (tmp_path / "people.csv").write_text("income;sex\n1.234,5;f\n.;m\n")
    with pytest.warns(EvenhandWarning, match="were read as numbers") as caught:
        read_table(tmp_path / "people.csv")
    assert {warning.filename for warning in caught} == {__file__}
