import numpy as np
import pytest
from fairlearn.metrics import (
    demographic_parity_difference,
    equalized_odds_difference,
    false_positive_rate_difference,
    true_positive_rate_difference,
)

from evenhand.metrics.disparity import outcome_gaps


@pytest.mark.parametrize("n_groups", [2, 3, 5])
def test_gaps_equal_fairlearn(draw, n_groups):
    y, decision, _, group = draw(6, n_groups=n_groups)
    gaps = outcome_gaps(y, decision, group, n_draws=100)
    for name, reference in (
        ("sp_gap", demographic_parity_difference),
        ("eo_gap", equalized_odds_difference),
        ("tpr_gap", true_positive_rate_difference),
        ("fpr_gap", false_positive_rate_difference),
    ):
        assert gaps[name].value == pytest.approx(reference(y, decision, sensitive_features=group))
        assert gaps[name].low <= gaps[name].value <= gaps[name].high


def test_gap_names_the_rate_and_the_groups_it_is_between(people_of):
    decision, group = people_of((50, 100), (20, 100), (80, 100))
    gap = outcome_gaps(np.tile([0, 1], 150), decision, group, names=["a", "b", "c"])["sp_gap"]
    assert (gap.rate, gap.group_low, gap.group_high) == ("approval rate", "b", "c")
    assert gap.to_dict()["value"] == pytest.approx(0.6)


@pytest.mark.parametrize(
    ("rates", "sizes", "n_data_sets"),
    [
        ((0.5, 0.5), (150, 60), 400),
        ((0.5, 0.8), (150, 60), 400),
        ((0.5, 0.5, 0.5, 0.5), (200, 80, 50, 40), 400),
        ((0.98, 0.98), (500, 40), 100),  # covers nearly always: the draws barely vary here
    ],
)
def test_gap_intervals_cover_the_truth_also_when_there_is_no_gap(rates, sizes, n_data_sets):
    rng = np.random.default_rng(7)
    group = np.repeat(np.arange(len(sizes)), sizes)
    y = np.concatenate([np.arange(size) % 2 for size in sizes])
    truth, covered = max(rates) - min(rates), []
    for seed in range(n_data_sets):
        decision = (rng.random(len(group)) < np.asarray(rates)[group]).astype(np.int64)
        gaps = outcome_gaps(y, decision, group, n_draws=200, random_state=seed)
        covered.append([gaps[name].low <= truth <= gaps[name].high for name in ("sp_gap", "eo_gap")])
    three_errors = 3 * np.sqrt(0.95 * 0.05 / n_data_sets)
    assert (np.mean(covered, axis=0) >= 0.95 - three_errors).all()


def test_gaps_of_an_empty_cell_are_nan_with_the_reason():
    gaps = outcome_gaps([0, 1, 1, 1], [0, 1, 1, 0], [0, 0, 1, 1], names=["a", "b"])
    assert np.isnan(gaps["eo_gap"].value)
    assert gaps["eo_gap"].note == "not estimable: no one with the unfavorable label in b"
    assert gaps["tpr_gap"].value == 0.5
    empty = outcome_gaps([0, 1], [0, 1], [0, 0], names=["a", "b"])
    assert "no one in b" in empty["sp_gap"].note


def test_gaps_depend_on_the_seed_alone(draw):
    y, decision, _, group = draw(8)
    assert outcome_gaps(y, decision, group) == outcome_gaps(y, decision, group)
    assert outcome_gaps(y, decision, group) != outcome_gaps(y, decision, group, random_state=1)
