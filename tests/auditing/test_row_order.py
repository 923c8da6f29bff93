"""The order of the rows plays no part, also where many people have the same finances."""

import math

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.tree import DecisionTreeClassifier

import evenhand as eh


def loans(n):
    rng = np.random.default_rng(0)
    group = np.where(rng.random(n) < 0.3, "b", "a")
    stand_in = np.where(rng.random(n) < 0.8, group == "b", group != "b").astype(float)
    X = pd.DataFrame(
        {"income": rng.integers(0, 5, n), "debt": rng.integers(0, 3, n), "area": stand_in, "tenure": rng.normal(size=n)}
    )
    score = 0.5 * X["income"] - 0.5 * X["debt"] - 0.5 * X["area"] + 0.3 * X["tenure"]
    return X, (rng.random(n) < 1 / (1 + np.exp(-score))).to_numpy().astype(int), group


def differences(first, second, path=""):
    if isinstance(first, dict):
        assert list(first) == list(second), path
        for name, value in first.items():
            yield from differences(value, second[name], f"{path}/{name}")
    elif isinstance(first, (list, tuple)):
        assert len(first) == len(second), path
        for k, (one, other) in enumerate(zip(first, second, strict=True)):
            yield from differences(one, other, f"{path}[{k}]")
    elif isinstance(first, float):
        is_same = first == second or abs(first - second) <= 1e-9 * max(1.0, abs(first))
        if not (is_same or (math.isnan(first) and math.isnan(second))):
            yield path, first, second
    elif first != second and not path.startswith("/influences"):
        yield path, first, second


@pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")  # few people, short attributions
@pytest.mark.parametrize("n", [20, 400])
@pytest.mark.parametrize("kind", [LogisticRegression, lambda: DecisionTreeClassifier(max_depth=4, random_state=0)])
def test_a_shuffled_table_has_the_same_summary(n, kind):
    X, y, group = loans(n)
    model = kind().fit(*loans(500)[:2])

    def summary(order):
        some = X.iloc[order].reset_index(drop=True)
        return eh.audit(
            model,
            some,
            y[order],
            sensitive_features=group[order],
            financial_features=["income", "debt"],
            by={"area": some["area"].astype(str).to_numpy()},
        ).to_dict()

    first = summary(np.arange(n))
    for seed in range(2):
        assert list(differences(first, summary(np.random.default_rng(seed).permutation(n)))) == []
