"""Tables of applicants, and a model of every kind fitted on them."""

import numpy as np
import pandas as pd
import pytest


@pytest.fixture(scope="session")
def numbers():
    """Number columns only: 240 people of two groups, a label with an interaction in it."""
    rng = np.random.default_rng(5)
    X = pd.DataFrame(rng.normal(size=(240, 4)), columns=["income", "debt", "years", "assets"])
    logit = X["income"] - X["debt"] + 0.8 * X["years"] * X["assets"]
    y = (rng.random(240) < 1 / (1 + np.exp(-2 * logit))).astype(int)
    return X, y.to_numpy(), rng.choice(["a", "b"], 240)


@pytest.fixture(scope="session")
def mixed():
    """Numbers with holes and categories."""
    rng = np.random.default_rng(6)
    X = pd.DataFrame(
        {
            "income": rng.normal(size=240),
            "home": rng.choice(["own", "rent", "free"], 240),
            "debt": np.where(rng.random(240) < 0.1, np.nan, rng.normal(size=240)),
            "job": rng.choice(["clerk", "cook"], 240),
        }
    )
    logit = X["income"] + (X["home"] == "own") - X["debt"].fillna(1.0)
    y = (rng.random(240) < 1 / (1 + np.exp(-logit))).astype(int)
    return X, y.to_numpy(), rng.choice(["a", "b"], 240)
