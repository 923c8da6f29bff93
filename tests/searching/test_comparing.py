from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from evenhand.searching.choice import front, mean_interval, paired_difference, worse_beyond_noise


def test_without_overlap_the_interval_is_students():
    values = np.array([0.1, 0.4, 0.2, 0.35, 0.3])
    found = mean_interval(values, test_share=0.0)
    expected = stats.ttest_1samp(values, 0.0).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_the_correction_widens_the_interval_by_nadeau_and_bengios_factor():
    values = np.array([0.1, 0.4, 0.2, 0.35, 0.3])
    plain, corrected = (mean_interval(values, share) for share in (0.0, 0.25))
    ratio = (corrected.high - corrected.low) / (plain.high - plain.low)
    assert ratio == pytest.approx(np.sqrt((1 / 5 + 1 / 4) / (1 / 5)))


def test_a_figure_missing_in_a_fold_has_no_mean_and_one_fold_has_no_interval():
    assert np.isnan(mean_interval(np.array([0.1, np.nan]), 0.5).value)
    one = mean_interval(np.array([0.4]), 0.5)
    assert one.value == 0.4
    assert np.isnan(one.low)
    assert not one.is_beyond_noise


def slow_front(figures, test_share):
    """Pair by pair, from the definition."""
    n = len(next(iter(figures.values()))[0])
    kept = []
    for i in range(n):
        dominated = False
        for j in range(n):
            differences = {k: paired_difference(d * v[j], d * v[i], test_share) for k, (v, d) in figures.items()}
            no_worse = all(found.value >= 0 for found in differences.values())
            beyond = any(found.low > 1e-12 for found in differences.values())
            dominated |= i != j and no_worse and beyond
        kept.append(not dominated)
    return kept


@pytest.mark.parametrize("seed", range(5))
def test_the_front_equals_the_definition_pair_by_pair(seed):
    rng = np.random.default_rng(seed)
    fold = rng.normal(size=(1, 5))
    figures = {
        "auc": (rng.normal(size=(12, 1)) + fold + 0.3 * rng.normal(size=(12, 5)), 1),
        "gap": (rng.normal(size=(12, 1)) + 0.3 * rng.normal(size=(12, 5)), -1),
    }
    found = front(figures, 0.25)
    assert found.tolist() == slow_front(figures, 0.25)
    assert 0 < found.sum() <= 12


def test_a_difference_within_noise_dominates_no_one():
    rng = np.random.default_rng(0)
    auc = 0.8 + 0.05 * rng.normal(size=(2, 5))
    gap = np.tile([[0.2]], (2, 5))
    assert front({"auc": (auc, 1), "gap": (gap, -1)}, 0.25).all()
    auc[1] = auc[0] - 0.01  # as much worse in every fold
    assert front({"auc": (auc, 1), "gap": (gap, -1)}, 0.25).tolist() == [True, False]


def test_a_candidate_without_figures_is_not_on_the_front_and_dominates_no_one():
    auc = np.array([[0.8, 0.8], [np.nan, np.nan]])
    assert front({"auc": (auc, 1)}, 1.0).tolist() == [True, False]
    assert not worse_beyond_noise(auc, 1, 1.0).any()
