from itertools import product

import numpy as np
import pytest
from scipy import stats

from evenhand.metrics.intervals import cornfield, koopman, newcombe


@pytest.mark.parametrize(("x", "n"), [(0, 12), (3, 12), (12, 12), (560, 900)])
def test_rate_has_the_wilson_interval_of_scipy(compared, numbers, x, n):
    row = compared(x, n, 5, 10)
    expected = stats.binomtest(x, n).proportion_ci(method="wilson")
    assert numbers(row.approval_rate) == pytest.approx([x / n, expected.low, expected.high], abs=1e-12)
    assert (row.n_people, row.n_approved, row.n_effective) == (n, x, n)


@pytest.mark.parametrize(
    ("counts", "low", "high"),
    [((56, 70, 48, 80), 5.24, 33.39), ((9, 10, 3, 10), 17.05, 80.90), ((10, 10, 0, 10), 60.75, 100.0)],
)
def test_difference_has_the_published_intervals_of_newcombe_1998(compared, counts, low, high):
    difference = compared(*counts).rate_difference_group_minus_reference_pp
    assert [difference.low, difference.high] == pytest.approx([low, high], abs=0.006)


def test_ratio_has_the_published_interval_of_koopman_1984(compared, numbers):
    ratio = compared(36, 40, 16, 80).approval_ratio_group_over_reference
    assert numbers(ratio) == pytest.approx([4.5, 2.94, 7.15], abs=0.005)


def test_ratio_and_odds_ratio_agree_with_the_log_methods_of_scipy_in_a_large_sample(compared, numbers):
    x1, n1, x0, n0 = 21_000, 50_000, 30_000, 60_000
    row = compared(x1, n1, x0, n0)
    risk = stats.contingency.relative_risk(x1, n1, x0, n0)
    odds = stats.contingency.odds_ratio([[x1, n1 - x1], [x0, n0 - x0]], kind="sample")
    for found, expected, value in (
        (row.approval_ratio_group_over_reference, risk.confidence_interval(), risk.relative_risk),
        (row.odds_ratio_group_over_reference, odds.confidence_interval(), odds.statistic),
    ):
        assert numbers(found) == pytest.approx([value, expected.low, expected.high], rel=1e-4)


def test_swapping_group_and_reference_inverts_the_ratios(compared, numbers):
    one, other = compared(30, 60, 45, 70), compared(45, 70, 30, 60)
    for field in ("approval_ratio_group_over_reference", "odds_ratio_group_over_reference"):
        forward, backward = getattr(one, field), getattr(other, field)
        assert numbers(forward) == pytest.approx([1 / backward.value, 1 / backward.high, 1 / backward.low])
    assert one.p_value == pytest.approx(other.p_value)


def test_zero_approvals_in_the_group_is_a_ratio_of_zero_with_an_upper_end(compared):
    row = compared(0, 10, 5, 10)
    for estimate in (row.approval_ratio_group_over_reference, row.odds_ratio_group_over_reference):
        assert estimate.value == estimate.low == 0
        assert 0 < estimate.high < 1


@pytest.mark.parametrize("rates", [(0.5, 0.5), (0.1, 0.3), (0.9, 0.95)])
def test_intervals_cover_the_truth_at_about_their_confidence(compared, rates):
    rng = np.random.default_rng(1)
    p1, p0 = rates
    truth = [100 * (p1 - p0), p1 / p0, p1 / (1 - p1) / (p0 / (1 - p0))]
    covered = []
    for x1, x0 in zip(rng.binomial(60, p1, 300), rng.binomial(140, p0, 300), strict=True):
        row = compared(int(x1), 60, int(x0), 140)
        found = (
            row.rate_difference_group_minus_reference_pp,
            row.approval_ratio_group_over_reference,
            row.odds_ratio_group_over_reference,
        )
        covered.append([not (e.low > t or e.high < t) for e, t in zip(found, truth, strict=True)])
    assert (np.mean(covered, axis=0) > 0.92).all()
    assert (np.mean(covered, axis=0) < 0.985).all()


@pytest.mark.parametrize("interval", [newcombe, koopman, cornfield])
def test_intervals_hold_the_value_whatever_the_counts(interval):
    counts = [(x, n) for n in (1, 2, 5, 1000, 10**6, 10**8) for x in {0, 1, n // 2, n - 1, n}]
    for (x1, n1), (x0, n0) in product(counts, counts):
        found = interval(x1, n1, x0, n0, 0.95)
        slack = 1e-12 * max(abs(found.value), 1e-3)
        assert np.isnan(found.value) or found.low - slack <= found.value <= found.high + slack
