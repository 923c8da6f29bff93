import numpy as np
import pytest

from evenhand.metrics.disparity import approval_disparity, approval_disparity_by_cutoff


def test_cutoffs_are_the_deciles_and_each_equals_the_table_of_its_decisions(draw):
    _, _, _, group = draw(0)
    score = np.random.default_rng(0).permutation(len(group)) / len(group)
    rows = approval_disparity_by_cutoff(score, group)
    assert [row.overall_approval_rate for row in rows] == pytest.approx(np.arange(0.9, 0.05, -0.1))
    # repr: the reference's NaN is not equal to itself
    assert repr(rows[3].table) == repr(approval_disparity(score >= rows[3].cutoff, group))
    assert rows[0].to_dict()["table"]["reference"] == rows[0].table.reference


def test_tied_scores_give_the_share_that_is_really_approved():
    rows = approval_disparity_by_cutoff([0.1, 0.5, 0.5, 0.5], [0, 0, 1, 1], quantiles=[0.5])
    assert (rows[0].cutoff, rows[0].overall_approval_rate) == (0.5, 0.75)
