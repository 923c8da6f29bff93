from __future__ import annotations

import numpy as np
import pytest

from evenhand.searching.scoring import gap_name, is_signed_gap, oriented_gaps

FEATURES = ["age", "a|b [c]"]


def signed(rng, n_models=5, groups=(1, 2), n=4):
    names = [gap_name(kind, g) for kind in ("score_gap", "probability_gap", "decision_gap") for g in groups]
    names += [gap_name("score_gap", g, feature) for g in groups for feature in FEATURES]
    return {name: rng.normal(size=(n_models, n)) for name in names}


def test_sizes_of_gaps_are_the_largest_size_of_a_mean_over_groups():
    found = signed(np.random.default_rng(0))
    assert all(is_signed_gap(name) for name in found)
    means = {name: values.mean(1) for name, values in found.items()}
    sizes = oriented_gaps(found, means, FEATURES)
    for kind in ("score_gap", "probability_gap", "decision_gap"):
        expected = np.maximum(*(np.abs(means[gap_name(kind, g)]) for g in (1, 2)))
        assert sizes[kind].mean(1) == pytest.approx(expected)
    for feature in FEATURES:
        expected = np.maximum(*(np.abs(means[gap_name("score_gap", g, feature)]) for g in (1, 2)))
        assert sizes[f"score_gap[{feature}]"].mean(1) == pytest.approx(expected)
    parts = [sum(np.abs(means[gap_name("score_gap", g, feature)]) for feature in FEATURES) for g in (1, 2)]
    assert sizes["score_gap_parts"].mean(1) == pytest.approx(np.maximum(*parts))


def test_parts_that_cancel_both_count():
    found = {
        gap_name("score_gap", 1): np.zeros((1, 2)),
        gap_name("score_gap", 1, "age"): np.full((1, 2), 0.3),
        gap_name("score_gap", 1, "income"): np.full((1, 2), -0.3),
    }
    sizes = oriented_gaps(found, {name: values.mean(1) for name, values in found.items()}, ["age", "income"])
    assert sizes["score_gap"].tolist() == [[0, 0]]
    assert sizes["score_gap_parts"].tolist() == [[0.6, 0.6]]


def test_a_candidate_without_gaps_has_none():
    found = {gap_name("score_gap", g): np.full((2, 2), np.nan) for g in (1, 2)}
    found[gap_name("score_gap", 1)][0] = 0.1
    sizes = oriented_gaps(found, {name: values.mean(1) for name, values in found.items()}, [])
    assert sizes["score_gap"][0].tolist() == [0.1, 0.1]
    assert np.isnan(sizes["score_gap"][1]).all()
