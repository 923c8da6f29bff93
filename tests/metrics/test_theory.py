"""The paper's theory: what holds, and what is sometimes read into it."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import evenhand as eh


@pytest.fixture(scope="module")
def network():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 16), nn.ReLU(), nn.Linear(16, 1)).double()


def attributions(network, x, baseline):
    with torch.no_grad():
        return eh.integrated_gradients(network, x, baseline, method="exact")


def gradient(network, x):
    x = torch.tensor(x, requires_grad=True)
    return torch.autograd.grad(network(x).sum(), x)[0].numpy()


@pytest.mark.parametrize("reach", [1e-4, 1.0])
def test_theorem_1_holds_in_one_linear_piece_of_a_network_and_not_beyond(network, reach):
    rng = np.random.default_rng(1)
    start = rng.standard_normal(6)
    x, match, b, b_other = (start + reach * rng.standard_normal((50, 6)) for _ in range(4))
    slope = gradient(network, x)
    patterns = [gradient(network, points) for points in (match, b, b_other)]
    is_one_piece = np.all([np.allclose(slope, other) for other in patterns])
    assert is_one_piece == (reach < 1)

    consistent = attributions(network, x, b) - attributions(network, match, b)
    assert np.allclose(consistent, (x - match) * slope, rtol=0, atol=1e-12) == is_one_piece
    specific = attributions(network, x, b) - attributions(network, match, b_other)
    spurious = (b_other - b) * slope
    assert np.allclose(specific, (x - match) * slope + spurious, rtol=0, atol=1e-12) == is_one_piece
    assert not np.allclose(specific, (x - match) * slope, rtol=0, atol=1e-6)


@given(st.floats(0.0, math.pi))
def test_the_score_is_the_sine_of_half_the_angle(angle):
    found = eh.cec_scores([[1.0, 0.0]], [[math.cos(angle), math.sin(angle)]])
    assert found[0] == pytest.approx(math.sin(angle / 2), abs=1e-7)
    assert found[0] == pytest.approx(math.sqrt(2 - 2 * math.cos(angle)) / 2, abs=1e-7)


@pytest.mark.parametrize("share", [0.92, 0.5, 0.28, 0.0])
def test_explanations_that_share_a_part_of_their_squared_length_have_the_score_of_that_part(share):
    shared, own, other = np.eye(3)
    person, match = (math.sqrt(share) * shared + math.sqrt(1 - share) * rest for rest in (own, other))
    assert eh.cec_scores([person], [match])[0] == pytest.approx(math.sqrt((1 - share) / 2), abs=1e-7)


def test_one_set_of_weights_has_a_positive_score_and_no_reasoning_gap():
    data = eh.load_dataset("synthetic", n=400)
    torch.manual_seed(0)
    result = eh.audit(
        nn.Linear(20, 1).double(),
        data.X,
        data.y,
        sensitive_features=data.group,
        financial_features=data.financial_features,
        favorable="high",
        evidence=False,
    ).to_dict()
    assert result["cec"]["mean"] > 0.2
    assert result["cec"]["reasoning_gap"] == pytest.approx(0, abs=1e-9)


def test_financial_twins_can_have_opposed_explanations():
    weights, baseline = np.array([1.0, 1.0]), np.array([2.0, 0.0])
    person, twin = np.array([[2.0, 1.0]]), np.array([[2.0, -1.0]])  # the first input is the financial feature
    pairs = eh.match_pairs(np.vstack([person, twin])[:, :1], [1, 1], [0, 1])
    assert pairs.distance.tolist() == [0.0, 0.0]
    assert eh.cec_scores((person - baseline) * weights, (twin - baseline) * weights)[0] == pytest.approx(1.0)


def test_the_score_depends_on_the_baseline_although_it_cancels_from_differences():
    weights, person, match = np.ones(2), np.array([1.0, 0.0]), np.array([0.0, 1.0])
    scores = []
    for baseline in (np.zeros(2), np.full(2, -1.0), np.full(2, -10.0)):
        own, other = (person - baseline) * weights, (match - baseline) * weights
        assert (own - other).tolist() == [1.0, -1.0]
        scores.append(eh.cec_scores([own], [other])[0])
    # Half the distance of unit vectors: 1 / sqrt(2) over their length, sqrt((1 + c)^2 + c^2) for a baseline of -c.
    assert scores == pytest.approx([math.sqrt(0.5 / ((1 + c) ** 2 + c**2)) for c in (0, 1, 10)], abs=1e-6)
