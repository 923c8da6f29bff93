"""Keras models on torch: their scores are Keras's own, and probabilities are asked about."""

import numpy as np
import pytest
import torch
from captum.attr import IntegratedGradients

import evenhand as eh
from evenhand.exceptions import InvalidInputError
from evenhand.models.dispatch import as_audited_model

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def keras(monkeypatch):
    monkeypatch.setenv("KERAS_BACKEND", "torch")
    keras = pytest.importorskip("keras")
    if keras.backend.backend() != "torch":
        pytest.skip("Keras runs on another backend")
    return keras


def fitted(keras, numbers, n_outputs, activation):
    keras.utils.set_random_seed(1)
    layers = [keras.layers.Dense(8, activation="tanh"), keras.layers.Dense(n_outputs, activation=activation)]
    model = keras.Sequential([keras.Input((4,)), *layers])
    losses = {
        1: keras.losses.BinaryCrossentropy(from_logits=activation is None),
        2: keras.losses.SparseCategoricalCrossentropy(from_logits=activation is None),
    }
    model.compile("adam", losses[n_outputs])
    model.fit(numbers[0].to_numpy(), numbers[1], epochs=20, verbose=0)
    return model


@pytest.mark.parametrize(("n_outputs", "activation"), [(1, "sigmoid"), (2, "softmax")])
def test_a_probability_is_asked_about_and_then_audited_as_one(n_outputs, activation, keras, numbers):
    X, y, group = numbers
    model = fitted(keras, numbers, n_outputs, activation)
    people = {"sensitive_features": group, "financial_features": ["income"], "evidence": False}
    with pytest.raises(
        InvalidInputError, match=r"The Keras model Sequential returns only numbers between 0 and 1.*say"
    ):
        eh.audit(model, X, y, **people)
    result = eh.audit(model, X, y, options=eh.AuditOptions(output="probability"), **people)
    expected = model.predict(X.to_numpy(), verbose=0)[:, -1]
    np.testing.assert_allclose(result.pairs.groupby("person")["score"].first(), expected, atol=1e-6)
    assert result.to_dict()["outcome"]["positive_rate"] == pytest.approx(np.mean(expected >= 0.5))


@pytest.mark.parametrize("n_outputs", [1, 2])
def test_logits_are_explained_as_they_are(n_outputs, keras, numbers):
    X = numbers[0]
    model = fitted(keras, numbers, n_outputs, None)
    audited = as_audited_model(model, table=X)
    logits = model.predict(X.to_numpy(), verbose=0)
    expected = logits[:, 0] if n_outputs == 1 else logits[:, 1] - logits[:, 0]
    x = audited.encode(X)
    np.testing.assert_allclose(audited.margin(x), expected, atol=1e-5)
    found = audited.attribute(x, np.broadcast_to(x.mean(0), x.shape), 256, "midpoint")
    theirs = IntegratedGradients(lambda rows: model(rows) @ torch.tensor([[-1.0], [1.0]][-n_outputs:])).attribute(
        torch.from_numpy(x), torch.from_numpy(x.mean(0, keepdims=True)), n_steps=256, method="riemann_middle"
    )
    np.testing.assert_allclose(found.values, theirs.detach(), atol=1e-4, rtol=1e-4)
