from __future__ import annotations

import pytest
import torch

import evenhand as eh
from evenhand.searching import search


@pytest.fixture(scope="session")
def planted():
    """People and labels that a model with planted bias decided."""
    bias = eh.make_planted_bias(400, strength=0.8)
    people = bias.dataset
    with torch.no_grad():
        decided = (bias.model(torch.tensor(people.X.to_numpy())) > 0).long().numpy()
    return people, decided


@pytest.fixture(scope="session")
def given(planted):
    people, decided = planted
    return {
        "X": people.X,
        "y": decided,
        "sensitive_features": people.group,
        "financial_features": people.financial_features,
        "folds": 3,
        "device": "cpu",
        "confirmation": 0.0,
    }


SPACE = {
    "objective": ["reasoning_gap", "excess"],
    "cec_weight": [0.0, 3.0],
    "equalized_odds_weight": [0.0, 0.5],
    "learning_rate": [1e-2],
    "epochs": [6, 10],
    "hidden": [(16, 8)],
    "batch_size": [32],
}


@pytest.fixture(scope="session")
def result(given):
    asked = {**given, "confirmation": 0.25}
    return search(**asked, space=SPACE, keep=["auc >= best - 0.1"], minimize="reasoning_gap")
