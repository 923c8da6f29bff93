from __future__ import annotations

import pytest
import torch
from torch import nn

from evenhand.attribution.feed_forward import feed_forward
from evenhand.attribution.gradients import integrated_gradients
from evenhand.exceptions import InvalidInputError
from evenhand.training import StackedNetwork
from evenhand.training.engine.step import adam_rates, adam_step
from evenhand.training.network import Layout


def test_a_member_starts_the_same_in_any_stack():
    stack = StackedNetwork(4, hidden=(6, 5), seeds=(3, 8, 1))
    alone = StackedNetwork(4, hidden=(6, 5), seeds=(8,))
    assert torch.equal(stack.flat[1], alone.flat[0])


def test_a_member_starts_as_linear_layers_of_torch_do():
    torch.manual_seed(8)
    plain = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Dropout(0.2), nn.Linear(6, 1))
    member = StackedNetwork(4, hidden=(6,), seeds=(8,)).member(0)
    for ours, theirs in zip(member.parameters(), plain.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_members_and_the_stack_give_the_same_logits_and_attributions():
    stack = StackedNetwork(4, hidden=(6, 5), seeds=(0, 1)).eval()
    x, baseline = torch.randn(2, 7, 4), torch.randn(2, 7, 4)
    ig = integrated_gradients(stack.feed_forward(), x, baseline, 4)
    for k in range(2):
        member = stack.member(k)
        torch.testing.assert_close(stack(x)[k], member(x[k]).squeeze(-1))
        torch.testing.assert_close(ig[k], integrated_gradients(member, x[k], baseline[k], 4))


def test_a_member_is_a_plain_chain_in_evaluation_mode_and_a_copy():
    stack = StackedNetwork(4, hidden=(6,), seeds=(0,))
    member = stack.member(0)
    assert not member.training
    assert feed_forward(member) is not None
    member[0].weight.data.zero_()
    assert not (stack.layout.views(stack.flat)[0][0] == 0).any()


def test_making_a_member_leaves_the_global_random_state_alone():
    stack = StackedNetwork(4)
    before = torch.get_rng_state()
    stack.member(0)
    assert torch.equal(before, torch.get_rng_state())


def test_dropout_acts_in_training_mode_only():
    stack = StackedNetwork(4, dropout=0.5)
    x = torch.randn(1, 9, 4)
    assert not torch.equal(stack.train()(x), stack(x))
    assert torch.equal(stack.eval()(x), stack(x))


def test_parameters_of_another_layout_are_refused():
    with pytest.raises(InvalidInputError, match=r"must have 11 columns for widths \[3, 2, 1\], got shape \(1, 5\)"):
        StackedNetwork.from_parameters(torch.zeros(1, 5), Layout((3, 2, 1)))


def test_adam_takes_the_steps_of_torch_and_leaves_idle_members_untouched():
    torch.manual_seed(0)
    start, gradients = torch.randn(3, 20), torch.randn(9, 3, 20)
    learning_rate = torch.tensor([1e-3, 3e-2, 1e-1])
    active = torch.tensor([[True, s % 3 != 1, s < 4] for s in range(9)])
    parameters = start.clone()
    mean, square = torch.zeros(3, 20), torch.zeros(3, 20)
    rates = torch.cat(
        (
            adam_rates(torch.zeros(3, dtype=torch.int64), active[:5], learning_rate),
            adam_rates(active[:5].sum(0), active[5:], learning_rate),
        )
    )
    for step in range(9):
        adam_step(parameters, mean, square, gradients[step].clone(), rates[step])
    for k in range(3):
        expected = start[k].clone().requires_grad_()
        optimizer = torch.optim.Adam([expected], lr=float(learning_rate[k]))
        for step in range(9):
            if active[step, k]:
                expected.grad = gradients[step, k].clone()
                optimizer.step()
        torch.testing.assert_close(parameters[k], expected.detach(), rtol=2e-6, atol=2e-6)
