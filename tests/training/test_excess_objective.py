from __future__ import annotations

import numpy as np
import torch

from evenhand.matching.placebos import placebo_pairs
from evenhand.training.losses import balanced_weights, training_triples


def people(n=120, n_groups=3, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, 2)), rng.integers(0, 2, n), rng.integers(0, n_groups, n)


def test_triples_are_those_of_the_audit_laid_out_by_person_and_other_group():
    points, labels, groups = people()
    rows = training_triples(points, labels, groups, 3, n_triples=2)
    pairs = placebo_pairs(points, labels, groups, n_pairs=2)
    assert rows.shape == (120, 2, 2, 2)
    assert (rows[..., 0] >= 0).sum() == len(pairs)
    for person in range(120):
        others = [g for g in range(3) if g != groups[person]]
        for column, other in enumerate(others):
            mine = (pairs.person == person) & (pairs.other_group == other)
            expected = np.column_stack([pairs.other[mine], pairs.own[mine]])
            found = rows[person, column]
            np.testing.assert_array_equal(found[found[:, 0] >= 0], expected)
            assert (groups[expected[:, 0]] == other).all()
            assert (groups[expected[:, 1]] == groups[person]).all()


def test_no_one_to_compare_with_leaves_all_rows_empty():
    assert (training_triples(np.zeros((3, 1)), [0, 0, 1], [0, 0, 1], 2) == -1).all()


def test_both_directions_between_two_groups_count_alike_within_a_label():
    torch.manual_seed(0)
    y, group = torch.randint(0, 2, (2, 90)), (torch.rand(2, 90) * 3).long().clamp_max(2)
    weight = torch.rand(2, 90)
    is_compared = torch.rand(2, 90, 2) > 0.3
    share = balanced_weights(y, group, weight, is_compared) * weight.unsqueeze(-1)
    column = torch.arange(2).expand(2, 90, 2)
    other = column + (column >= group.unsqueeze(-1)).long()
    for table in range(2):
        for label in range(2):
            for g, h in ((0, 1), (0, 2), (1, 2)):
                is_label = (y[table] == label)[:, None]
                totals = [
                    share[table][is_label & (group[table] == a)[:, None] & (other[table] == b)].sum()
                    for a, b in ((g, h), (h, g))
                ]
                torch.testing.assert_close(*totals)
                assert totals[0] > 0
    torch.testing.assert_close(share.sum((1, 2)), weight.sum(1))
    assert (share[~is_compared] == 0).all()


def test_a_direction_that_no_one_goes_leaves_out_the_opposite_one():
    y, group = torch.tensor([[1, 1, 0, 0]]), torch.tensor([[0, 1, 0, 1]])
    is_compared = torch.tensor([[[True], [False], [True], [True]]])
    found = balanced_weights(y, group, torch.ones(1, 4), is_compared)
    assert found.flatten().tolist() == [0.0, 0.0, 2.0, 2.0]
    assert balanced_weights(y, group, torch.ones(1, 4), torch.zeros(1, 4, 1).bool()).sum() == 0


def test_balanced_squared_excess_is_twice_the_squared_distance_of_the_group_means():
    """The closed form of the module, on all pairs of two finite groups of unequal size and spread."""
    torch.manual_seed(1)
    first, second = torch.randn(40, 3, dtype=torch.float64), 2 * torch.randn(9, 3, dtype=torch.float64) + 1

    def mean_square(a, b):  # over independent draws, which may be of the same person
        return torch.cdist(a, b).square().mean()

    one_way = mean_square(first, second) - mean_square(first, first)
    other_way = mean_square(second, first) - mean_square(second, second)
    distance = (first.mean(0) - second.mean(0)).square().sum()
    torch.testing.assert_close(one_way + other_way, 2 * distance)
    # One direction alone is lowered by spreading the own group out; the balanced sum is not.
    spread = first.mean(0) + 3 * (first - first.mean(0))
    one_way_spread = mean_square(spread, second) - mean_square(spread, spread)
    other_way_spread = mean_square(second, spread) - mean_square(second, second)
    assert one_way_spread < one_way
    torch.testing.assert_close(one_way_spread + other_way_spread, 2 * distance)
