from __future__ import annotations

import pytest
import torch
from torch.nn import functional

from evenhand.attribution.feed_forward import RELU, FeedForward
from evenhand.attribution.gradients import integrate_paths
from evenhand.training.engine.step import Stepper
from evenhand.training.losses import (
    bce_loss,
    cec_term,
    cell_shares,
    equalized_odds_form,
    equalized_odds_loss,
    squared_reasoning_gap,
)
from evenhand.training.network import Layout
from evenhand.training.settings import TrainingSettings

K, M_PEOPLE, D_IN = 3, 12, 4
ODDS_WEIGHT = torch.tensor([0.0, 1.0, 0.5], dtype=torch.float64)
CEC_WEIGHT = torch.tensor([1.0, 0.0, 3.0], dtype=torch.float64)


def problem(hidden=(7, 5), n_groups=2, n_pairs=12, dropout=True, joined=False, seed=0, n_placebos=0):
    """A random batch of a stack in float64, and all that the plain formulas need."""
    torch.manual_seed(seed)
    torch.set_default_dtype(torch.float64)
    n_matches, n_cells = n_groups - 1 + n_placebos, 2 * n_groups
    x = torch.randn(K, M_PEOPLE, D_IN)
    match = torch.randn(K, n_matches * n_pairs, D_IN)
    baselines = torch.randn(K, n_cells, D_IN)
    y = torch.randint(0, 2, (K, M_PEOPLE))
    group = torch.randint(0, n_groups, (K, M_PEOPLE))
    weight = torch.rand(K, M_PEOPLE)
    weight[0, :3] = 0
    cell = functional.one_hot(y * n_groups + group, n_cells)[:, -n_pairs:].double()
    pair_weight = weight[:, None, -n_pairs:] * (torch.rand(K, n_matches, n_pairs) > 0.2)
    pair_weight[:, n_groups - 1 :] *= -1
    ends = torch.cat((x[:, -n_pairs:], match), 1)
    own = (cell @ baselines).repeat(1, 1 + n_matches, 1)
    shares, present = cell_shares(y, group, n_groups, weight, torch.float64)
    keep = tuple((torch.rand(K, M_PEOPLE, h) > 0.2) / 0.8 for h in hidden) if dropout else ()
    batch = {
        "x": x,
        "y": y.double().unsqueeze(-1),
        "weight": (weight / weight.sum(1, keepdim=True)).unsqueeze(-1),
        "ones": torch.ones(K, 1, M_PEOPLE),
        **{f"keep{layer}": kept.double() for layer, kept in enumerate(keep)},
        "rates": torch.zeros(4, K, 1),
        "cell_shares": shares,
        "odds_form": 2 * ODDS_WEIGHT.view(-1, 1, 1) * shares @ equalized_odds_form(present, torch.float64)[0],
        "rows": torch.cat((ends, baselines), 1),
        "offset": ends - own,
        "cell": cell.repeat(1, 1 + n_matches, 1),
        "pair_weight": CEC_WEIGHT.view(-1, 1, 1) / 2 * pair_weight / pair_weight.clamp_min(0).sum((1, 2), keepdim=True),
    }
    join = torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 1, 0], [0, 0, 1]]) if joined else None
    parts = {"y": y, "group": group, "weight": weight, "pair_weight": pair_weight}
    return batch, {**parts, "ends": ends, "own": own, "join": join}


@pytest.fixture(autouse=True)
def restore_dtype():
    yield
    torch.set_default_dtype(torch.float32)


def plain_objective(flat, layout, batch, parts, n_groups, n_steps, method, uses_reasoning=False):
    weights, biases = layout.views(flat)
    net = FeedForward(weights, biases, (RELU,) * (len(weights) - 1))
    values = batch["x"]
    for layer in range(len(weights) - 1):
        values = torch.relu(net.affine(layer, values))
        values = values * batch.get(f"keep{layer}", 1)
    logits = net.affine(len(weights) - 1, values).squeeze(-1)
    total = bce_loss(logits, parts["y"].double(), parts["weight"])
    total = total + ODDS_WEIGHT * equalized_odds_loss(logits, parts["y"], parts["group"], n_groups, parts["weight"])[0]
    signed = parts["pair_weight"].flatten(1)
    shape = (1 + parts["pair_weight"].shape[1], -1)
    offset = (parts["ends"] - parts["own"]).unflatten(1, shape)
    gradients = integrate_paths(net, parts["ends"], parts["own"], n_steps, method).gradients.unflatten(1, shape)
    if uses_reasoning:
        theirs = offset[:, 1:]
        if (signed < 0).any():
            theirs = torch.cat((offset[:, 1:n_groups],) * 2, 1)
        squares = squared_reasoning_gap(offset[:, :1], gradients[:, :1], theirs, gradients[:, 1:], parts["join"])
        return total + CEC_WEIGHT * (squares.flatten(1) * signed).sum(1) / signed.clamp_min(0).sum(1)
    by_person = offset * gradients if parts["join"] is None else (offset * gradients) @ parts["join"]
    people = by_person[:, :1].expand_as(by_person[:, 1:]).flatten(1, 2)
    partners = by_person[:, 1:].flatten(1, 2)
    pairs, _ = cec_term(people, partners, signed.clamp_min(0))
    placebos, _ = cec_term(people, partners, (-signed).clamp_min(0))
    ratio = (-signed).clamp_min(0).sum(1) / signed.clamp_min(0).sum(1)
    return total + CEC_WEIGHT * (pairs - ratio * placebos)


@pytest.mark.parametrize("method", ["segments", "midpoint"])
@pytest.mark.parametrize("n_steps", [1, 2, 5])
@pytest.mark.parametrize(
    "case",
    [
        {},
        {"hidden": (6,)},
        {"hidden": (6, 5, 4)},
        {"n_groups": 3},
        {"n_pairs": 5},
        {"dropout": False},
        {"joined": True},
        {"n_groups": 3, "n_pairs": 4, "joined": True},
        {"n_placebos": 1},
        {"n_groups": 3, "n_placebos": 2, "n_pairs": 5, "joined": True},
    ],
    ids=str,
)
@pytest.mark.parametrize("uses_reasoning", [False, True], ids=["attributions", "reasoning"])
def test_written_out_gradient_equals_automatic_differentiation_of_the_plain_formulas(
    method, n_steps, case, uses_reasoning
):
    batch, parts = problem(**case)
    layout = Layout((D_IN, *case.get("hidden", (7, 5)), 1))
    flat = torch.randn(K, layout.n_parameters)
    names = {(False, False): "cec", (True, False): "reasoning_gap", (False, True): "excess"}
    objective = names.get((uses_reasoning, "n_placebos" in case), "reasoning_excess")
    settings = TrainingSettings(n_steps=n_steps, method=method, objective=objective)
    stepper = Stepper((flat, torch.zeros_like(flat), torch.zeros_like(flat)), layout, settings, parts["join"])
    stepper.compute_gradient(batch, has_pairs=True)
    leaf = flat.clone().requires_grad_()
    loss = plain_objective(leaf, layout, batch, parts, case.get("n_groups", 2), n_steps, method, uses_reasoning)
    loss.sum().backward()
    torch.testing.assert_close(stepper.gradient, leaf.grad, rtol=1e-9, atol=1e-11)
