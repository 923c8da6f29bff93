"""Torch modules that return probabilities, or two numbers: never taken for one logit."""

import numpy as np
import pandas as pd
import pytest
import torch
from captum.attr import IntegratedGradients
from torch import nn

import evenhand as eh
from evenhand.exceptions import InvalidInputError
from evenhand.models.dispatch import as_audited_model


def layers(n_outputs, *last):
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, n_outputs), *last).double()


class Opaque(nn.Module):
    """A module that is not a plain chain, in the way of a Keras model on torch."""

    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x) * 1.0


def numbers_of(people):
    return torch.tensor(people.to_numpy(dtype=np.float64))


@pytest.mark.parametrize("wrap", [lambda module: module, Opaque], ids=["chain", "opaque"])
@pytest.mark.parametrize(("n_outputs", "last"), [(1, nn.Sigmoid()), (2, nn.Softmax(dim=1))], ids=["sigmoid", "softmax"])
def test_outputs_between_0_and_1_are_asked_about(wrap, n_outputs, last, numbers):
    module = wrap(layers(n_outputs, last))
    with pytest.raises(InvalidInputError, match=r"returns only numbers between 0 and 1 .* for 240 people.*say which"):
        as_audited_model(module, table=numbers[0])
    with pytest.raises(InvalidInputError, match=r'output="probability".*\(--output\)'):
        eh.audit(module, *numbers[:2], sensitive_features=numbers[2], financial_features=["income"])


@pytest.mark.filterwarnings("ignore:The score ranks people against their labels")
@pytest.mark.parametrize("wrap", [lambda module: module, Opaque], ids=["chain", "opaque"])
@pytest.mark.parametrize(("n_outputs", "last"), [(1, nn.Sigmoid()), (2, nn.Softmax(dim=1))], ids=["sigmoid", "softmax"])
def test_a_probability_is_audited_as_one(wrap, n_outputs, last, numbers):
    X, y, group = numbers
    module = wrap(layers(n_outputs, last))
    expected = module(numbers_of(X)).detach().numpy()[:, -1]
    result = eh.audit(
        module,
        X,
        y,
        sensitive_features=group,
        financial_features=["income"],
        options=eh.AuditOptions(output="probability", n_steps=64),
        decision_threshold=float(np.median(expected)),
        favorable="high",
        evidence=False,
    )
    np.testing.assert_allclose(result.pairs.groupby("person")["score"].first(), expected, atol=1e-12)
    assert result.to_dict()["outcome"]["positive_rate"] == 0.5
    audited = as_audited_model(module, output="probability", table=X)
    x = audited.encode(X)
    found = audited.attribute(x, np.broadcast_to(x.mean(0), x.shape), 256, "midpoint")
    rows = torch.from_numpy(x)
    theirs = IntegratedGradients(lambda rows: module(rows)[:, -1]).attribute(
        rows, rows.mean(0, keepdim=True), n_steps=256, method="riemann_middle"
    )
    np.testing.assert_allclose(found.values, theirs, atol=1e-8, rtol=1e-6)


def test_a_chain_that_ends_in_a_sigmoid_is_complete_for_any_number_of_steps(numbers):
    audited = as_audited_model(layers(1, nn.Sigmoid()), output="probability", table=numbers[0])
    x = audited.encode(numbers[0])
    assert audited.attribute(x, np.broadcast_to(x.mean(0), x.shape), 2, "segments").completeness_gap.max() < 1e-8


def test_logits_that_happen_to_lie_between_0_and_1_are_taken_where_the_user_says_so(numbers):
    module = layers(1, nn.Sigmoid())
    audited = as_audited_model(module, output="log-odds", table=numbers[0])
    x = audited.encode(numbers[0])
    np.testing.assert_allclose(audited.margin(x), module(numbers_of(numbers[0])).detach().numpy()[:, 0])
    assert audited.output == "log-odds"


@pytest.mark.parametrize("wrap", [lambda module: module, Opaque], ids=["chain", "opaque"])
def test_of_two_logits_the_second_less_the_first_is_explained(wrap, numbers):
    X = numbers[0]
    module = wrap(layers(2))
    audited = as_audited_model(module, table=X)
    assert audited.kind.endswith("(second output minus the first)")
    x = audited.encode(X)
    expected = torch.softmax(module(numbers_of(X)), dim=1).detach().numpy()[:, 1]
    np.testing.assert_allclose(audited.probability(audited.margin(x)), expected, atol=1e-12)
    found = audited.attribute(x, np.broadcast_to(x.mean(0), x.shape), 64, "segments")
    assert found.completeness_gap.max() < (1e-7 if wrap is not Opaque else 1e-3)


def test_three_outputs_are_still_refused(numbers):
    X, y, group = numbers
    with pytest.raises(InvalidInputError, match=r"must return one logit per row.*got \(\d+, 3\)"):
        eh.audit(layers(3), X, y, sensitive_features=group, financial_features=["income"])


def test_dropout_is_off_while_the_module_is_asked_and_on_again_afterwards(numbers):
    module = nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 1)).double()
    module.train()
    as_audited_model(module, table=numbers[0])
    assert module.training
    assert module[0].training


def test_a_module_without_people_to_ask_about_is_taken_for_logits():
    assert as_audited_model(nn.Sequential(nn.Linear(3, 1), nn.Sigmoid())).output == "log-odds"
    assert as_audited_model(nn.Linear(3, 1), table=pd.DataFrame({"a": []})).output == "log-odds"
