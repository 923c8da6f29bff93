from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from torch import nn

from evenhand.attribution.feed_forward import RELU, FeedForward
from evenhand.attribution.gradients import integrated_gradients
from evenhand.exceptions import InvalidInputError
from evenhand.matching.placebos import placebo_pairs
from evenhand.training import bce_loss, cec_loss, cec_term, equalized_odds_loss
from evenhand.training.losses import balanced_weights, training_triples


def sigmoid(z):
    return 1 / (1 + math.exp(-z))


def slow_bce(logits, y, weight):
    total = 0.0
    for z, label, w in zip(logits, y, weight, strict=True):
        total -= w * (label * math.log(sigmoid(z)) + (1 - label) * math.log(1 - sigmoid(z)))
    return total / sum(weight)


def slow_equalized_odds(logits, y, group, n_groups, weight):
    """The paper's formula, rate by rate and pair by pair."""
    loss, n_left_out = 0.0, 0
    for label in (1, 0):
        rates = {}
        for g in range(n_groups):
            rows = [i for i in range(len(y)) if y[i] == label and group[i] == g and weight[i] > 0]
            if rows:
                rates[g] = sum(weight[i] * sigmoid(logits[i]) for i in rows) / sum(weight[i] for i in rows)
        squares = []
        for g, h in itertools.combinations(range(n_groups), 2):
            if g in rates and h in rates:
                squares.append((rates[g] - rates[h]) ** 2)
            else:
                n_left_out += 1
        if squares:
            loss += sum(squares) / len(squares)
    return loss, n_left_out


def slow_cec(ig, ig_match, weight):
    total = 0.0
    for g, h, w in zip(ig, ig_match, weight, strict=True):
        if w == 0:
            continue
        g_norm = [v / (math.sqrt(sum(u * u for u in g)) + 1e-8) for v in g]
        h_norm = [v / (math.sqrt(sum(u * u for u in h)) + 1e-8) for v in h]
        total += w * (math.sqrt(sum((a - b) ** 2 for a, b in zip(g_norm, h_norm, strict=True))) / 2) ** 2
    return total / sum(weight)


def batch(seed, n=17, n_groups=2, stack=(3,)):
    generator = torch.Generator().manual_seed(seed)
    logits = torch.randn(*stack, n, generator=generator, dtype=torch.float64) * 2
    y = torch.randint(0, 2, (*stack, n), generator=generator)
    group = torch.randint(0, n_groups, (*stack, n), generator=generator)
    weight = torch.rand(*stack, n, generator=generator, dtype=torch.float64)
    weight = weight * (torch.rand(*stack, n, generator=generator) > 0.2)
    return logits, y, group, weight


def test_cross_entropy_equals_the_loop_over_people():
    logits, y, _, weight = batch(0)
    expected = [slow_bce(*(t[k].tolist() for t in (logits, y, weight))) for k in range(3)]
    torch.testing.assert_close(bce_loss(logits, y, weight), torch.tensor(expected, dtype=torch.float64))
    unweighted = slow_bce(logits[0].tolist(), y[0].tolist(), [1.0] * 17)
    assert float(bce_loss(logits[0], y[0])) == pytest.approx(unweighted)


def test_cross_entropy_of_no_one_is_zero():
    assert float(bce_loss(torch.ones(3), torch.ones(3), torch.zeros(3))) == 0


@pytest.mark.parametrize("n_groups", [2, 3, 5])
@pytest.mark.parametrize("n", [5, 40])
def test_equalized_odds_equals_the_loop_over_rates_and_pairs_of_groups(n_groups, n):
    logits, y, group, weight = batch(n_groups, n=n, n_groups=n_groups)
    loss, left_out = equalized_odds_loss(logits, y, group, n_groups, weight)
    for k in range(3):
        slow, slow_left_out = slow_equalized_odds(
            logits[k].tolist(), y[k].tolist(), group[k].tolist(), n_groups, weight[k].tolist()
        )
        assert float(loss[k]) == pytest.approx(slow, abs=1e-12)
        assert int(left_out[k]) == slow_left_out


def test_equalized_odds_leaves_out_the_term_of_an_empty_cell():
    y, group = torch.tensor([1, 1, 0, 0]), torch.tensor([0, 1, 0, 0])
    loss, left_out = equalized_odds_loss(torch.tensor([1.0, 1.0, 3.0, -3.0]), y, group, 2)
    assert float(loss) == pytest.approx(0, abs=1e-7)
    assert int(left_out) == 1


def test_equalized_odds_of_one_group_is_refused():
    with pytest.raises(InvalidInputError, match="`n_groups` must be at least 2, got 1"):
        equalized_odds_loss(torch.zeros(2), torch.zeros(2), torch.zeros(2), 1)


def test_cec_term_equals_the_loop_over_people():
    generator = torch.Generator().manual_seed(0)
    ig, ig_match = (torch.randn(3, 9, 4, generator=generator, dtype=torch.float64) for _ in range(2))
    weight = torch.tensor([0.0, 1, 2, 0, 1, 1, 0.5, 1, 0], dtype=torch.float64).expand(3, -1)
    loss, left_out = cec_term(ig, ig_match, weight)
    expected = [slow_cec(ig[k].tolist(), ig_match[k].tolist(), weight[k].tolist()) for k in range(3)]
    torch.testing.assert_close(loss, torch.tensor(expected, dtype=torch.float64))
    assert left_out.tolist() == [3, 3, 3]
    assert float(cec_term(ig[0], ig_match[0])[0]) == pytest.approx(
        slow_cec(ig[0].tolist(), ig_match[0].tolist(), [1.0] * 9)
    )


def test_gradients_of_the_three_terms_are_right():
    logits, y, group, weight = batch(1, n=8)
    logits.requires_grad_()
    assert torch.autograd.gradcheck(lambda z: bce_loss(z, y, weight), logits)
    assert torch.autograd.gradcheck(lambda z: equalized_odds_loss(z, y, group, 2, weight)[0], logits)
    ig, ig_match = (torch.randn(8, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    assert torch.autograd.gradcheck(lambda a, b: cec_term(a, b, weight[0])[0], (ig, ig_match))


def network(dtype=torch.float64):
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 1)).to(dtype)


@pytest.mark.parametrize("method", ["segments", "midpoint"])
def test_cec_loss_of_a_module_is_the_term_on_its_attributions_with_dropout_off(method):
    model = network().train()
    x, match, baseline = (torch.randn(7, 3, dtype=torch.float64) for _ in range(3))
    weight = torch.tensor([1.0, 1, 0, 1, 1, 2, 1], dtype=torch.float64)
    loss = cec_loss(model, x, match, baseline, n_steps=3, method=method, weight=weight)
    ig, ig_match = (integrated_gradients(model, z, baseline, 3, method) for z in (x, match))
    torch.testing.assert_close(loss, cec_term(ig, ig_match, weight)[0])
    assert model.training


def test_cec_loss_is_differentiable_in_weights_and_biases():
    model = network()
    x, match = torch.randn(5, 3, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)

    def loss(w1, b1, w2, b2):
        net = FeedForward((w1.t(), w2.t()), (b1, b2), (RELU,))
        return cec_loss(net, x, match, torch.zeros(3, dtype=torch.float64))

    assert torch.autograd.gradcheck(loss, tuple(p.detach().requires_grad_() for p in model.parameters()))


def test_cec_loss_refuses_people_and_matches_of_different_shapes():
    with pytest.raises(InvalidInputError, match=r"same shape, got \(4, 3\) and \(5, 3\)"):
        cec_loss(network(), torch.zeros(4, 3), torch.zeros(5, 3), torch.zeros(3))


# --- placebo triples ---


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
