import numpy as np
import pytest
from scipy import optimize, stats

from evenhand.metrics.disparity import approval_disparity, segmented_approvals

# Admissions to six departments (Bickel, Hammel and O'Connell, Science 1975): men admitted, rejected, women likewise.
ADMISSIONS = {
    "A": (512, 313, 89, 19),
    "B": (353, 207, 17, 8),
    "C": (120, 205, 202, 391),
    "D": (138, 279, 131, 244),
    "E": (53, 138, 94, 299),
    "F": (22, 351, 24, 317),
}


def admissions():
    counts = np.array(list(ADMISSIONS.values()))
    decision = np.repeat(np.tile([1, 0, 1, 0], 6), counts.ravel())
    group = np.repeat(np.tile([1, 1, 0, 0], 6), counts.ravel())
    return decision, group, np.repeat(list(ADMISSIONS), counts.sum(axis=1))


def test_berkeley_admissions_give_the_published_common_odds_ratio(numbers):
    row = segmented_approvals(*admissions(), names=["women", "men"], reference="women")[0]
    assert (row.group, row.reference, row.n_segments_used, row.n_people_used) == ("men", "women", 6, 4526)
    common = row.common_odds_ratio_group_over_reference
    assert numbers(common) == pytest.approx([0.9046968, 0.7719074, 1.0603298], abs=1e-7)
    assert row.chi_square == pytest.approx(1.5246, abs=1e-4)
    assert row.p_value == row.p_value_holm == pytest.approx(0.2169, abs=1e-4)
    assert stats.chi2.isf(row.homogeneity_p_value, 5) == pytest.approx(18.826, abs=1e-3)
    whole = approval_disparity(*admissions()[:2], reference="0").groups[1]
    assert whole.odds_ratio_group_over_reference.value == pytest.approx(1.84108, abs=1e-5)


def test_one_segment_is_the_chi_square_of_scipy_but_for_its_degree_of_freedom(people_of):
    decision, group = people_of((45, 70), (30, 60))
    row = segmented_approvals(decision, group, np.zeros(130), reference="0")[0]
    expected = stats.chi2_contingency([[30, 30], [45, 25]], correction=False).statistic
    assert row.chi_square == pytest.approx(expected * 129 / 130)
    assert row.common_odds_ratio_group_over_reference.value == pytest.approx(30 * 25 / (30 * 45))
    assert np.isnan(row.homogeneity_p_value)
    segment = row.segments[0]
    assert segment.odds_ratio_group_over_reference.value == pytest.approx(30 * 25 / (30 * 45))
    assert segment.approval_rate_group.value == 0.5
    assert segment.note == ""


def test_one_segment_has_the_interval_of_woolf(people_of):
    decision, group = people_of((45, 70), (30, 60))
    found = segmented_approvals(decision, group, np.zeros(130), reference="0")[0]
    expected = stats.contingency.odds_ratio([[30, 30], [45, 25]], kind="sample").confidence_interval()
    estimate = found.common_odds_ratio_group_over_reference
    assert [estimate.low, estimate.high] == pytest.approx([expected.low, expected.high])


def test_homogeneity_in_sparse_segments_equals_a_plain_transcription_with_tarones_term():
    # Approved and people, of the group and of the reference, in each segment.
    counts = [(1, 6, 3, 5), (4, 5, 2, 9), (2, 4, 3, 3), (1, 7, 1, 8)]
    decision = np.concatenate([np.repeat([1, 0, 1, 0], [x1, n1 - x1, x0, n0 - x0]) for x1, n1, x0, n0 in counts])
    group = np.concatenate([np.repeat([1, 0], [n1, n0]) for _, n1, _, n0 in counts])
    segment = np.repeat(np.arange(4), [n1 + n0 for _, n1, _, n0 in counts])
    row = segmented_approvals(decision, group, segment, reference="0")[0]
    common = row.common_odds_ratio_group_over_reference.value
    apart, variance = [], []
    for x1, n1, x0, n0 in counts:
        m = x1 + x0

        def excess(a, m=m, n1=n1, n0=n0):
            return a * (n0 - m + a) - common * (m - a) * (n1 - a)

        fitted = optimize.brentq(excess, max(0, m - n0), min(m, n1), xtol=1e-14)
        cells = np.array([fitted, m - fitted, n1 - fitted, n0 - m + fitted])
        apart.append(x1 - fitted)
        variance.append(1 / (1 / cells).sum())
    apart, variance = np.array(apart), np.array(variance)
    breslow_day = (apart**2 / variance).sum()
    tarone = breslow_day - apart.sum() ** 2 / variance.sum()
    assert breslow_day > tarone + 1e-4  # small, and far above the tolerance below
    assert row.homogeneity_p_value == pytest.approx(stats.chi2.sf(tarone, 3), rel=1e-9)


def test_common_odds_ratio_at_its_borders():
    never = segmented_approvals([0, 0, 1, 1], [1, 1, 0, 0], ["x"] * 4, reference="0")[0]
    assert never.common_odds_ratio_group_over_reference.value == 0
    assert "no upper end" in never.common_odds_ratio_group_over_reference.note
    always = segmented_approvals([1, 1, 0, 0], [1, 1, 0, 0], ["x"] * 4, reference="0")[0]
    assert "infinite in the sample" in always.common_odds_ratio_group_over_reference.note
