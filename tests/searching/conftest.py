from __future__ import annotations

from dataclasses import fields

import pytest
import torch

import evenhand as eh


def search(**given):
    """`eh.search`, with the fields of its options among the keywords."""
    named = {option.name for option in fields(eh.SearchOptions)} & set(given)
    options = eh.SearchOptions(**{name: given.pop(name) for name in named})
    return eh.search(**given, options=options)


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


QUICK = {"cec_weight": [1.0], "learning_rate": [3e-3], "epochs": [1], "hidden": [(8,)], "batch_size": [64]}


@pytest.fixture(scope="session")
def quick(given):
    """The least search of networks: one candidate beside the unconstrained one."""
    return search(**given, space=QUICK, keep=[])


@pytest.fixture(scope="session")
def result(given):
    asked = {**given, "confirmation": 0.25}
    return search(**asked, space=SPACE, keep=["auc >= best - 0.1"], minimize="reasoning_gap")
