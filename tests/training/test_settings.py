from __future__ import annotations

import numpy as np
import pytest
from sklearn.metrics import d2_log_loss_score, log_loss

from evenhand.training.settings import explained_share, is_about_to_collapse, label_entropy, term_gain


def test_the_explained_share_is_that_of_scikit_learn(rng):
    labels, weight = rng.integers(0, 2, 300), rng.uniform(0.5, 2, 300)
    scores = np.clip(rng.uniform(0, 1, 300) * 0.4 + 0.6 * labels, 0.01, 0.99)
    loss = log_loss(labels, scores, sample_weight=weight)
    expected = d2_log_loss_score(labels, scores, sample_weight=weight)
    assert explained_share(loss, labels, weight) == pytest.approx(expected)


@pytest.mark.parametrize(
    ("share", "rate", "n_steps", "expected"),
    [
        (0.01, 0.8, 240, True),
        (-0.2, 0.8, 240, True),
        (0.1, 0.8, 240, False),
        (0.01, 0.8, 30, False),
        (0.1, 0.99, 240, True),
        (0.1, 0.01, 240, True),
        (0.1, 0.96, 240, False),
        (0.1, 0.99, 30, False),
    ],
)
def test_only_networks_that_had_time_to_learn_are_about_to_collapse(share, rate, n_steps, expected):
    assert is_about_to_collapse(share, rate, 0.7, n_steps, 3e-4) == expected


def test_terms_gain_their_weights_with_the_share_that_scikit_learn_calls_explained(rng):
    labels, weight = rng.integers(0, 2, 300), rng.uniform(0.5, 2, 300)
    entropy = label_entropy(labels, weight)
    for strength in (0.0, 0.1, 0.2, 0.6):
        scores = 0.5 + strength * (labels - 0.5)
        loss = log_loss(labels, scores, sample_weight=weight)
        share = d2_log_loss_score(labels, scores, sample_weight=weight)
        assert float(term_gain(np.array(loss), np.array(entropy), 0.1)) == pytest.approx(min(max(share / 0.1, 0), 1))
