import json

import numpy as np
import pytest

from evenhand.metrics.disparity import FOUR_FIFTHS, approval_disparity, segmented_approvals


def test_shortfall_is_what_lifts_the_group_to_the_reference_rate_and_never_negative(compared):
    assert compared(20, 80, 30, 60).shortfall == pytest.approx(20)
    assert compared(70, 80, 30, 60).shortfall == 0


def test_flags_follow_their_stated_thresholds(compared):
    row = compared(300, 1000, 500, 1000)
    assert row.is_statistically_significant
    assert row.is_below_practical_threshold
    assert compared(490, 1000, 500, 1000).is_statistically_significant is False
    assert compared(410, 1000, 500, 1000).is_below_practical_threshold is False
    assert FOUR_FIFTHS == 0.8


def test_small_groups_are_flagged_and_still_shown(compared):
    assert compared(3, 5, 50, 100).is_small_group
    assert not compared(3, 30, 50, 100).is_small_group


def test_p_values_are_holm_adjusted_over_groups(people_of):
    decision, group = people_of((500, 1000), (40, 100), (45, 100), (30, 100))
    rows = approval_disparity(decision, group).groups
    raw = np.array([row.p_value for row in rows[1:]])
    first, second, third = np.sort(raw)
    expected = dict(zip(np.argsort(raw), np.maximum.accumulate([3 * first, 2 * second, third]), strict=True))
    assert [row.p_value_holm for row in rows[1:]] == pytest.approx([expected[i] for i in range(3)])
    assert np.isnan(rows[0].p_value_holm)


def test_reference_is_the_largest_group_unless_named(people_of):
    decision, group = people_of((5, 10), (40, 100))
    table = approval_disparity(decision, group, names=["a", "b"])
    assert table.reference == "b"
    assert table.groups[1].is_reference
    assert "reference" in table.groups[1].approval_ratio_group_over_reference.note
    assert approval_disparity(decision, group, names=["a", "b"], reference="a").reference == "a"


def test_what_cannot_be_estimated_is_nan_with_the_reason(compared):
    nobody = approval_disparity([1, 0, 1], [0, 0, 0], names=["a", "b"]).groups[1]
    assert np.isnan([nobody.approval_rate.value, nobody.shortfall, nobody.p_value]).all()
    assert "no one in group 'b'" in nobody.approval_rate.note
    assert "no one in group 'b'" in nobody.approval_ratio_group_over_reference.note
    assert nobody.is_statistically_significant is None
    assert nobody.is_below_practical_threshold is None

    none_approved = compared(3, 10, 0, 10)
    assert "reference group is approved" in none_approved.approval_ratio_group_over_reference.note
    assert "infinite in the sample" in none_approved.odds_ratio_group_over_reference.note
    assert none_approved.odds_ratio_group_over_reference.low > 0

    all_approved = compared(10, 10, 20, 20)
    assert "only one decision" in all_approved.odds_ratio_group_over_reference.note
    assert np.isnan(all_approved.n_standard_deviations)
    assert all_approved.approval_ratio_group_over_reference.value == 1
    assert all_approved.p_value == 1
    assert np.isnan(compared(10, 10, 20, 20, test="z").p_value)


def test_table_is_plain_data(people_of):
    decision, group = people_of((5, 10), (4, 10))
    plain = approval_disparity(decision, group).to_dict()
    assert json.loads(json.dumps(plain))["groups"][1]["approval_rate"]["value"] == 0.4
    assert plain["four_fifths_threshold"] == 0.8
    row = approval_disparity(decision, group).groups[0]
    assert row.to_dict()["approval_rate"] == row.approval_rate.to_dict()
    segment = segmented_approvals(decision, group, np.zeros(20))[0].segments[0]
    assert segment.to_dict()["n_people_group"] == 10
