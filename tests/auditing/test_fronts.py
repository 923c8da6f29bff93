"""One audit behind every front: in memory, in batches of a file and as a command, whatever is asked for."""

import math

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from evenhand.exceptions import InvalidInputError

FEATURES = ["income", "debt", "tenure", "street"]
N = 240


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(N, 4)), columns=FEATURES)
    table["sex"] = rng.choice(["f", "m"], N)
    table["good"] = (table["income"] - table["debt"] + table["tenure"] + rng.logistic(size=N) > 0).astype(int)
    table["default"] = 1 - table["good"]
    table["weight"] = rng.uniform(0.2, 5.0, N).round(2)
    table["decided"] = rng.integers(0, 2, N)
    table["household"] = np.arange(N) // 2
    table["product"] = rng.choice(["card", "loan"], N)
    return table


OPTIONS = {
    "nothing else": {},
    "a risk": {"label": "default", "favorable": "low"},
    "weights": {"sample_weight": "weight"},
    "decisions": {"decisions": "decided"},
    "clusters": {"clusters": "household"},
    "segments": {"by": ["product"]},
    "reasons": {"reason_map": {"Money": ["income", "debt"], "*": "Other"}},
    "limits": {"limits": {"score_gap": 0.1, "excess": 0.5}},
    "a limit on distance": {"max_distance": 0.8},
}
UNLIKE = {"created", "stream", "influences", "hashes", "versions"}  # when and how it was made


def leaves(value, path=""):
    if isinstance(value, dict):
        return {p: v for k, item in value.items() if k not in UNLIKE for p, v in leaves(item, f"{path}/{k}").items()}
    if isinstance(value, list):
        return {p: v for k, item in enumerate(value) for p, v in leaves(item, f"{path}/{k}").items()}
    return {path: value}


@pytest.fixture(scope="module")
def known():
    """What was found in memory, by what was asked for."""
    return {}


@pytest.mark.filterwarnings("ignore::evenhand.EvenhandWarning")
@pytest.mark.parametrize("asked", OPTIONS)
@pytest.mark.parametrize("entry", ["stream", "command"], indirect=True)
def test_every_front_writes_the_same_numbers_and_words(entry, table, known, asked):
    options = {"label": "good", **OPTIONS[asked]}
    model = LogisticRegression().fit(table[FEATURES], table[options["label"]])
    options |= {"features": FEATURES, "group": "sex", "financial_features": ["income", "debt"]}
    if asked not in known:
        known[asked] = leaves(entry(model, table, front="memory", **options))
    own, other = leaves(entry(model, table, **options)), known[asked]
    assert own.keys() == other.keys()
    unlike = {
        path: (value, other[path])
        for path, value in own.items()
        if not (
            math.isclose(value, other[path], rel_tol=1e-9, abs_tol=1e-11)
            if isinstance(value, float) and isinstance(other[path], (int, float))
            else value == other[path]
        )
    }
    assert unlike == {}


def test_scores_against_the_label_are_refused_by_every_front(entry, table):
    model = LogisticRegression().fit(table[FEATURES], table["default"])
    with pytest.raises(InvalidInputError, match="ranks people against `y`"):
        entry(model, table, features=FEATURES, label="good", group="sex", financial_features=["income", "debt"])
