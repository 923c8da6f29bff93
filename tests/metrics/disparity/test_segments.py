import numpy as np
import pytest

from evenhand.exceptions import InvalidInputError
from evenhand.metrics.disparity import segmented_approvals

OK = ([0, 1, 0, 1], [0, 0, 1, 1])


def test_segments_that_say_nothing_are_listed_and_counted():
    decision = [1, 0, 1, 0, 1, 1, 0, 1]
    group = [0, 0, 1, 1, 0, 1, 0, 1]
    rows = segmented_approvals(decision, group, [*"wwww", *"xx", "y", "z"], names=["a", "b"], reference="a")
    found = rows[0]
    assert found.n_segments_used == 1
    assert (found.n_people_used, found.n_people_left_out) == (4, 4)
    notes = [segment.note for segment in found.segments]
    assert "fewer than 30" in notes[0]
    assert "same decision" in notes[1]
    assert "no one in the group" in notes[2]
    assert "no one in the reference" in notes[3]
    assert np.isnan(found.segments[2].approval_rate_group.value)
    assert "3 of 4 segments" in found.note


def test_no_informative_segment_is_nan_with_the_reason():
    row = segmented_approvals([1, 0, 1, 0], [0, 1, 0, 1], ["x", "y", "x", "y"])[0]
    assert np.isnan(row.p_value)
    assert "no segment has both groups" in row.note
    assert "no segment has both groups" in row.to_dict()["common_odds_ratio_group_over_reference"]["note"]


def test_a_measurement_is_refused_as_a_segment():
    with pytest.raises(InvalidInputError, match="at most 200 distinct values, got 402; bin it first"):
        segmented_approvals(np.tile([0, 1], 201), np.tile([0, 1], 201), np.arange(402))
