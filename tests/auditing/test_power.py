"""What "nothing found" says could have been found is found, in four audits of five."""

import re

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.linear_model import LogisticRegression
from torch import nn

import evenhand as eh

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")]

LEAST, MOST = 0.7, 0.9  # of audits; 75 to 85%, and twice the standard error of a hundred audits to spare


def findings_of(model, X, label, group):
    found = eh.audit(
        model, X, label, sensitive_features=np.array(["a", "b"])[group], financial_features=list(X.columns[:2])
    )
    return {one["key"]: one for one in found.to_dict()["findings"]}


@pytest.mark.parametrize(("n", "share"), [(600, 0.5), (800, 0.2)])
def test_a_score_gap_of_the_stated_size_is_found_in_four_audits_of_five(n, share):
    """The gap is planted in the very people of whom the audit says what it would have found."""
    found = []
    for seed in range(100):
        rng = np.random.default_rng(seed)
        group = (rng.random(n) < share).astype(int)
        X = pd.DataFrame(rng.normal(size=(n, 5)), columns=["income", "debt", "tenure", "region", "other"])
        label = (X["income"] - X["debt"] + X["tenure"] + 0.5 * X["region"] + rng.normal(size=n) > 0).astype(int)
        model = LogisticRegression().fit(X, label)
        stated = re.search(r"A gap of ([\d.]+) would", findings_of(model, X, label, group)["score_gap"]["sentence"])
        if stated is None:  # a false alarm
            continue
        X["region"] += group * float(stated[1]) / model.coef_[0, 3]
        found.append(findings_of(model, X, label, group)["score_gap"]["answer"] == "yes")
    assert len(found) >= 90
    assert LEAST <= np.mean(found) <= MOST


class Swapped(nn.Module):
    """A network that takes a part of each of four inputs for another, in one group."""

    def __init__(self, part):
        super().__init__()
        torch.manual_seed(3)
        first, second = nn.Linear(6, 8), nn.Linear(8, 1)
        first.weight.data *= 1.5
        first.bias.data *= 1.5
        second.weight.data *= 3
        second.bias.data.zero_()
        self.network, self.part = nn.Sequential(first, nn.Tanh(), second), part

    def forward(self, x):
        inputs, part = x[:, :6], self.part * x[:, 6:]
        return self.network(inputs * (1 - part) + inputs[:, [0, 1, 3, 2, 5, 4]] * part)


def weighing_of(seed, part, n=600):
    rng = np.random.default_rng(seed)
    group = rng.integers(0, 2, n)
    X = pd.DataFrame(np.column_stack([rng.normal(size=(n, 6)), group]), columns=[f"x{k}" for k in range(7)])
    with torch.no_grad():
        chance = torch.sigmoid(Swapped(0.0)(torch.tensor(X.to_numpy(), dtype=torch.float32))).numpy().ravel()
    return findings_of(Swapped(part), X, (rng.random(n) < chance).astype(int), group)["weighing"]


def test_a_difference_in_weights_of_the_stated_size_is_found_in_four_audits_of_five():
    """A part is swapped of which weighing is, on average, the size that audits of the blind model state."""
    stated = [re.search(r"A difference of ([\d.]+) would", weighing_of(seed, 0.0)["sentence"]) for seed in range(50)]
    planted = [weighing_of(seed, 0.0665) for seed in range(100, 200)]
    size = np.mean([float(one[1]) for one in stated if one is not None])
    assert np.mean([one["estimate"] for one in planted]) == pytest.approx(size, rel=0.1)
    assert LEAST <= np.mean([one["answer"] == "yes" for one in planted]) <= MOST
