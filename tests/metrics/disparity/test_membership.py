import numpy as np
import pytest

from evenhand.exceptions import InvalidInputError
from evenhand.metrics.disparity import (
    approval_disparity,
    error_rates,
    outcome_gaps,
    score_disparity,
    segmented_approvals,
)

OK = ([0, 1, 0, 1], [0, 0, 1, 1])


def test_certain_probabilities_give_the_same_metrics_as_codes(draw, numbers):
    y, decision, score, group = draw(9, n=3000)
    certain = np.eye(3)[group]
    hard, soft = approval_disparity(decision, group), approval_disparity(decision, certain)
    for one, other in zip(hard.groups, soft.groups, strict=True):
        assert one.n_people == pytest.approx(other.n_people)
        assert one.n_effective == pytest.approx(other.n_effective)
        assert one.shortfall == pytest.approx(other.shortfall)
        for field in ("approval_rate", "approval_ratio_group_over_reference", "odds_ratio_group_over_reference"):
            assert numbers(getattr(one, field)) == pytest.approx(numbers(getattr(other, field)), abs=0.01, nan_ok=True)
    scores = zip(score_disparity(score, group), score_disparity(score, certain), strict=True)
    for one, other in scores:
        assert one.ks_distance == pytest.approx(other.ks_distance, nan_ok=True)
        assert numbers(one.standardized_mean_difference_group_minus_reference) == pytest.approx(
            numbers(other.standardized_mean_difference_group_minus_reference), nan_ok=True
        )
    errors = error_rates(y, decision, score, certain)
    for one, other in zip(error_rates(y, decision, score, group), errors, strict=True):
        assert numbers(one.brier_score) == pytest.approx(numbers(other.brier_score))
        assert numbers(one.false_discovery_rate) == pytest.approx(numbers(other.false_discovery_rate), abs=0.01)
    gaps = outcome_gaps(y, decision, certain)
    for name, gap in outcome_gaps(y, decision, group).items():
        assert [gaps[name].value, gaps[name].low, gaps[name].high] == pytest.approx(
            [gap.value, gap.low, gap.high], abs=0.015
        )
    assert soft.is_probabilistic
    assert "probabilities" in soft.note
    assert "probabilities" in gaps["sp_gap"].note


def test_probabilities_are_refused_or_left_open_where_not_defined(draw):
    y, decision, score, group = draw(11)
    soft = np.full((len(y), 3), 1 / 3)
    with pytest.raises(InvalidInputError, match="an exact test counts whole, independent people"):
        approval_disparity(decision, soft, test="fisher")
    with pytest.raises(InvalidInputError, match="Approvals within segments need known group membership"):
        segmented_approvals(decision, soft, group)
    assert "needs known membership" in error_rates(y, decision, score, soft)[0].auc.note
    assert "needs known membership" in score_disparity(score, soft)[1].note
    assert "no spread" in approval_disparity(decision, soft).groups[1].note
    nobody = np.column_stack([np.ones(len(y)), np.zeros(len(y))])
    assert "no one in group '1'" in approval_disparity(decision, nobody).groups[1].note
    sure = np.tile([0.3, 0.7], (4, 1)) + np.array([0, 0.1, 0.2, -0.1])[:, None] * [1, -1]
    constant = approval_disparity([1, 1, 1, 1], sure).groups[0]
    assert "no spread" in constant.note
    one_sided = approval_disparity([1, 1, 0], [[1, 0], [1, 0], [0, 1]]).groups[1]
    assert np.isnan(one_sided.odds_ratio_group_over_reference.value)


@pytest.mark.parametrize("frequency", [[1, 2], [1, 2, 0], [1.0, 2.0, 3.0]])
def test_frequencies_are_whole_numbers_of_people(frequency):
    with pytest.raises(InvalidInputError, match="`frequency` must be a whole number of at least 1 for each of 3 rows"):
        approval_disparity([1, 0, 1], [0, 1, 1], frequency=frequency)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: approval_disparity([0, 1], [0, 1, 1]), "`group` has 3 values for 2 people"),
        (
            lambda: approval_disparity([0, 1], ["a", "b"]),
            "`group` must hold integer codes from 0, got <U1 values; convert",
        ),
        (lambda: approval_disparity([0, 1], [-1, 1]), "got int64 values from -1; convert"),
        (lambda: approval_disparity([0, 1], np.zeros((2, 1, 1))), r"got shape \(2, 1, 1\)"),
        (lambda: approval_disparity([0, 1], [0, 0]), "At least two groups are needed"),
        (lambda: approval_disparity(*OK, names=["a"]), "`names` has 1 names for 2 group codes"),
        (lambda: approval_disparity(*OK, names=["a", "a"]), r"`names` must be unique, got \['a'\]"),
        (lambda: approval_disparity([0, 1], np.eye(2), names=["a"]), "1 names for 2 columns of probabilities"),
        (lambda: approval_disparity([0, 1], [[0.5, 0.4], [0.5, 0.5]]), "got 1 rows that do not, the first at 0"),
        (lambda: approval_disparity([0, 1], [[0.5, 0.5], [np.nan, 1]]), "the first at 1"),
        (lambda: approval_disparity(*OK, reference="x"), r"one of the groups \['0', '1'\], got 'x'"),
        (lambda: approval_disparity(*OK, names=["a", "b", "c"], reference="c"), "'c' has no one in it"),
    ],
)
def test_groups_that_cannot_be_used_are_named(call, message):
    with pytest.raises(InvalidInputError, match=message):
        call()
