import pytest
from scipy import stats


@pytest.mark.parametrize("counts", [(30, 60, 45, 70), (12, 90, 80, 300), (200, 210, 700, 900)])
def test_intervals_end_at_one_exactly_when_the_z_test_is_at_its_level(compared, counts):
    p_value = compared(*counts, test="z").p_value
    row = compared(*counts, test="z", confidence=1 - p_value)
    for estimate in (row.approval_ratio_group_over_reference, row.odds_ratio_group_over_reference):
        assert min(abs(estimate.low - 1), abs(estimate.high - 1)) < 1e-6


@pytest.mark.parametrize("counts", [(30, 60, 45, 70), (120, 900, 80, 300)])
def test_z_squared_is_the_chi_square_of_scipy(compared, counts):
    row = compared(*counts)
    x1, n1, x0, n0 = counts
    expected = stats.chi2_contingency([[x1, n1 - x1], [x0, n0 - x0]], correction=False)
    assert row.test == "two-proportion z"
    assert row.n_standard_deviations**2 == pytest.approx(expected.statistic)
    assert row.n_standard_deviations * (x1 / n1 - x0 / n0) > 0
    assert row.p_value == pytest.approx(expected.pvalue)


def test_small_cells_get_the_exact_test(compared):
    row = compared(1, 8, 9, 11)
    assert row.test == "Fisher exact"
    assert row.p_value == pytest.approx(stats.fisher_exact([[1, 7], [9, 2]]).pvalue)
    assert compared(30, 60, 45, 70, test="fisher").test == "Fisher exact"
    assert compared(1, 8, 9, 11, test="z").test == "two-proportion z"
