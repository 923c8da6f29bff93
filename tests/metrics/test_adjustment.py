"""p-values against scipy and worked examples."""

import numpy as np
import pytest
from scipy import stats

from evenhand.exceptions import InvalidInputError
from evenhand.metrics.adjustment import NullScores, benjamini_hochberg, holm, stepwise_p_values


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def test_holm_equals_a_worked_example():
    np.testing.assert_allclose(holm([0.01, 0.04, 0.03, 0.005]), [0.03, 0.06, 0.06, 0.02])


def test_benjamini_hochberg_agrees_with_scipy(rng):
    p = rng.random(50) ** 2
    np.testing.assert_allclose(benjamini_hochberg(p), stats.false_discovery_control(p))


@pytest.mark.parametrize("adjust", [holm, benjamini_hochberg])
def test_adjustment_leaves_missing_values_missing_and_uncounted(adjust):
    with_nan = adjust([0.01, np.nan, 0.2])
    np.testing.assert_allclose(with_nan[[0, 2]], adjust([0.01, 0.2]))
    assert np.isnan(with_nan[1])
    assert adjust([]).shape == (0,)


def p_values(score, null_score, stratum, null_stratum):
    score, null_score, stratum, null_stratum = map(np.asarray, (score, null_score, stratum, null_stratum))
    pooled = NullScores.of(null_score, null_stratum, np.arange(len(null_score)), 3, most=len(null_score))
    return pooled.p_values(pooled.n_at_least(score, stratum), stratum)


def test_p_values_are_ranks_within_the_stratum():
    p = p_values([0.5, 0.5, np.nan, 0.1], [0.1, 0.9, 0.2, np.nan, 0.3], [0, 1, 0, 2], [0, 0, 1, 1, 1])
    np.testing.assert_allclose(p, [2 / 3, 1 / 3, np.nan, np.nan])


def test_p_values_do_not_see_rounding():
    p = p_values(np.full(3, 1e-9), np.zeros(99), np.zeros(3, dtype=int), np.zeros(99, dtype=int))
    np.testing.assert_array_equal(p, 1.0)


def test_null_scores_of_parts_are_those_of_the_whole_and_a_full_stratum_keeps_a_sample(rng):
    score, stratum, keys = rng.random(900), rng.integers(0, 3, 900), np.arange(900)
    score[::50] = np.nan
    whole = NullScores.of(score, stratum, keys, 4, most=100)
    parts = [NullScores.of(score[s], stratum[s], keys[s], 4, most=100) for s in (slice(0, 100), slice(100, 900))]
    for joined in (parts[0] + parts[1], parts[1] + parts[0]):
        for mine, theirs in zip(joined.values, whole.values, strict=True):
            np.testing.assert_array_equal(mine, theirs)
    assert whole.sizes.tolist() == [100, 100, 100, 0]
    everyone = NullScores.of(score, stratum, keys, 3, most=900)
    for sample, values in zip(whole.values, everyone.values, strict=False):
        assert np.isin(sample, values).all()
        assert stats.ks_2samp(sample, values).pvalue > 0.01


def test_q_values_from_counts_equal_those_from_every_p_value(rng):
    score, null = rng.random(500) + 0.2, rng.random(400)
    stratum, null_stratum = rng.integers(0, 3, 500), rng.integers(0, 2, 400)
    score[:9] = np.nan
    pooled = NullScores.of(null, null_stratum, np.arange(400), 3, most=400)
    n_at_least = pooled.n_at_least(score, stratum)
    table = pooled.q_values(pooled.counts(n_at_least, stratum))
    known = n_at_least >= 0
    q = np.full(500, np.nan)
    q[known] = [table[s][k] for s, k in zip(stratum[known], n_at_least[known], strict=True)]
    p = p_values(score, null, stratum, null_stratum)
    expected = np.full(500, np.nan)
    expected[np.isfinite(p)] = stats.false_discovery_control(p[np.isfinite(p)])
    np.testing.assert_allclose(q, expected, rtol=1e-12)


def test_what_is_no_probability_is_refused():
    with pytest.raises(InvalidInputError, match="between 0 and 1"):
        holm([1.5])


def test_pairs_of_groups_hold_their_level_and_are_never_less_clear_than_by_holm():
    """Three groups: each of the three differences has a group in common with each of the others."""
    rng = np.random.default_rng(5)
    pairs = np.array([[-1, 1, 0], [-1, 0, 1], [0, -1, 1]]).T
    correlation = pairs.T @ pairs / 2
    alarms, found, by_holm = [], [], []
    for shift in (0.0, 2.6):
        for _ in range(300):
            z = (rng.normal(size=3) + np.array([0, 0, shift])) @ pairs / np.sqrt(2)
            p = 2 * stats.norm.sf(np.abs(z))
            adjusted, simple = stepwise_p_values(p, correlation, np.random.default_rng(0)), holm(p)
            assert (adjusted <= simple).all()
            assert (adjusted >= p).all()
            (found if shift else alarms).append(adjusted.min() <= 0.05)
            if shift:
                by_holm.append(simple.min() <= 0.05)
    assert np.mean(alarms) == pytest.approx(0.05, abs=0.025)
    assert sum(found) > sum(by_holm)
