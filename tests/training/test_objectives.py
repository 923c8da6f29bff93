"""Every objective, as plain functions on a module and in the trainer."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from torch import nn

import evenhand as eh
from evenhand.attribution.feed_forward import RELU, FeedForward
from evenhand.attribution.gradients import attribute
from evenhand.exceptions import InvalidInputError
from evenhand.training import (
    StackedNetwork,
    Trainer,
    TrainingData,
    TrainingSettings,
    ValidationData,
    balanced_weights,
    bce_loss,
    cec_loss,
    cec_term,
    excess_gain,
    train,
    training_triples,
)

from .conftest import make_data

OBJECTIVES = ["cec", "reasoning_gap", "excess", "reasoning_excess"]
FAST = {"hidden": (9, 6), "batch_size": 8, "epochs": 3, "learning_rate": 1e-2, "device": "cpu"}
STACK = {
    "table": (0, 1, 1, 0, 1),
    "seed": (5, 6, 7, 8, 6),
    "cec_weight": (1.0, 0.0, 2.0, 0.5, 1.0),
    "equalized_odds_weight": (0.0, 0.0, 1.0, 2.0, 1.0),
}


def network():
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Dropout(0.5), nn.Linear(6, 1)).double()


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_every_objective_has_the_right_gradient_in_all_weights_and_biases(objective):
    torch.manual_seed(0)
    x, match, placebo, baseline = (torch.randn(6, 3, dtype=torch.float64) for _ in range(4))
    weight = torch.rand(6, dtype=torch.float64)
    shapes = [(3, 5), (5,), (5, 4), (4,), (4, 1), (1,)]
    parameters = tuple(torch.randn(shape, dtype=torch.float64, requires_grad=True) for shape in shapes)

    def loss(w1, b1, w2, b2, w3, b3):
        net = FeedForward((w1, w2, w3), (b1, b2, b3), (RELU, RELU))
        own = placebo if objective.endswith("excess") else None
        return cec_loss(net, x, match, baseline, weight=weight, objective=objective, x_placebo=own)

    assert torch.autograd.gradcheck(loss, parameters)
    gradients = torch.autograd.grad(loss(*parameters), parameters[:5])  # the last bias moves no attribution
    assert all(g.abs().max() > 1e-6 for g in gradients)


def slow_squared_reasoning_gap(offset, g, match_offset, match_g):
    """Transcribed from the definition, one person and one feature at a time."""

    def unit(vector):
        norm = sum(v * v for v in vector) ** 0.5
        return [v / (norm + 1e-8) for v in vector]

    total = 0.0
    for inputs in (offset, match_offset):
        own, other = (unit([z * w for z, w in zip(inputs, weights, strict=True)]) for weights in (g, match_g))
        total += sum((a - b) ** 2 for a, b in zip(own, other, strict=True)) / 4
    return total / 2


def test_the_other_objectives_equal_the_loop_over_people():
    model = network()
    x, match, placebo, baseline = (torch.randn(7, 3, dtype=torch.float64) for _ in range(4))
    weight = torch.tensor([1.0, 1, 0, 1, 1, 2, 1], dtype=torch.float64)
    parts = [attribute(model, z, baseline, 4) for z in (x, match, placebo)]
    offset, g = ([getattr(p, name).tolist() for p in parts] for name in ("offset", "gradients"))
    pairs = [slow_squared_reasoning_gap(offset[0][i], g[0][i], offset[1][i], g[1][i]) for i in range(7)]
    # The placebo's weights meet the inputs of the match.
    null = [slow_squared_reasoning_gap(offset[0][i], g[0][i], offset[1][i], g[2][i]) for i in range(7)]
    values = [p.values.detach() for p in parts]
    expected = {
        "reasoning_gap": np.average(pairs, weights=weight),
        "reasoning_excess": np.average(np.subtract(pairs, null), weights=weight),
        "excess": cec_term(values[0], values[1], weight)[0] - cec_term(values[0], values[2], weight)[0],
    }
    for objective, value in expected.items():
        own = placebo if objective.endswith("excess") else None
        loss = cec_loss(model, x, match, baseline, weight=weight, objective=objective, x_placebo=own)
        assert float(loss.detach()) == pytest.approx(float(value), abs=1e-12)


def test_a_linear_model_has_no_reasoning_gap_to_lower():
    model = nn.Linear(3, 1).double()
    x, match, placebo = (torch.randn(5, 3, dtype=torch.float64) for _ in range(3))
    start = torch.zeros(3, dtype=torch.float64)
    assert float(cec_loss(model, x, match, start, objective="reasoning_gap").detach()) < 1e-20
    own = cec_loss(model, x, match, start, objective="reasoning_excess", x_placebo=placebo)
    assert abs(float(own.detach())) < 1e-20
    assert float(cec_loss(model, x, match, start).detach()) > 0.01


def test_objectives_and_placebos_that_do_not_go_together_are_refused():
    x = torch.zeros(4, 3)
    with pytest.raises(InvalidInputError, match=r"`objective` must be one of .*, got 'gap'"):
        cec_loss(network(), x, x, x, objective="gap")
    with pytest.raises(InvalidInputError, match="objective='excess' needs `x_placebo`"):
        cec_loss(network(), x, x, x, objective="excess")
    with pytest.raises(InvalidInputError, match="objective='cec' takes no `x_placebo`"):
        cec_loss(network(), x, x, x, x_placebo=x)
    with pytest.raises(InvalidInputError, match=r"`x` and `x_placebo` must have the same shape, got \(4, 3\) and \(2"):
        cec_loss(network(), x, x, x, objective="excess", x_placebo=x[:2])


def with_triples(data, n_triples=3, n_financial=None):
    """The same people with placebo triples found in their inputs."""
    n_groups = data.n_groups

    def tables(people):
        found = []
        for table in range(data.n_tables):
            n = int(data.n_rows[table])
            pool = (data.X[table, :n, :n_financial], data.y[table, :n], data.group[table, :n])
            rows = np.full((people.X.shape[1], n_groups - 1, n_triples, 2), -1)
            if people is data:
                rows[:n] = training_triples(*pool, n_groups, n_triples=n_triples)
            else:
                asking = (people.X[table, :, :n_financial], people.y[table], people.group[table])
                rows[:] = training_triples(*asking, n_groups, pool, n_triples=n_triples)
            found.append(rows)
        return torch.from_numpy(np.stack(found))

    held_out = data.validation
    if held_out is not None:
        held_out = dataclasses.replace(held_out, triples=tables(held_out))
    return dataclasses.replace(data, triples=tables(data), validation=held_out)


@pytest.mark.parametrize("objective", OBJECTIVES[1:])
@pytest.mark.parametrize("n_groups", [2, 3])
def test_a_member_of_a_stack_gets_the_result_of_that_model_alone(objective, n_groups):
    data = with_triples(make_data(sizes=(80, 51), n_groups=n_groups, weighted=True))
    how = {**FAST, "epochs": 1}  # rounding grows with every step
    together = train(data, TrainingSettings(**how, **STACK, objective=objective)).parameters
    assert not torch.allclose(together, train(data, TrainingSettings(**how, **STACK)).parameters, atol=1e-3)
    for member in range(5):
        own = {name: values[member] for name, values in STACK.items()}
        by_itself = train(data, TrainingSettings(**how, **own, objective=objective)).parameters[0]
        torch.testing.assert_close(together[member], by_itself, rtol=1e-3, atol=1e-4)


def by_group(n, n_held_out=0, seed=0):
    """People of two groups whose labels go by another feature in each; the group is an input."""
    generator = torch.Generator().manual_seed(seed)

    def people(size):
        X = torch.randn(1, size, 4, generator=generator)
        group = torch.randint(0, 2, (1, size), generator=generator)
        X[..., 3] = group
        return X, (torch.where(group == 1, X[..., 0], X[..., 1]) > 0).long(), group

    X, y, group = people(n)
    cells = [[X[0][(y[0] == label) & (group[0] == g)].mean(0) for g in range(2)] for label in range(2)]
    match = torch.full((1, n, 1), -1)
    held_out = None
    if n_held_out:
        held_out = ValidationData(*people(n_held_out), torch.full((1, n_held_out, 1), -1))
    data = TrainingData(X, y, group, match, torch.stack([torch.stack(row) for row in cells])[None], validation=held_out)
    return with_triples(data, n_financial=3)


@pytest.mark.parametrize("objective", ["excess", "reasoning_excess"])
def test_training_against_placebos_follows_the_plain_loss_step_by_step(objective):
    """No dropout: compare with automatic differentiation and torch's Adam on the same batches and triples."""
    data = by_group(70)
    how = TrainingSettings(
        **{**FAST, "epochs": 5},
        dropout=0.0,
        cec_weight=0.7,
        equalized_odds_weight=0,
        n_steps=2,
        seed=4,
        objective=objective,
    )
    state = train(data, how)
    stack = StackedNetwork(4, how.hidden, 0.0, seeds=(4,))
    optimizer = torch.optim.Adam(stack.parameters(), lr=1e-2)
    X, y, group, rows_of = data.X[0], data.y[0], data.group[0], data.triples[0, :, 0]
    n_of = (rows_of[:, :, 0] >= 0).sum(1)
    share = balanced_weights(data.y, data.group, data.weights, data.triples[..., 0, 0] >= 0)[0, :, 0]

    def excess(rows, turn):
        """The plain loss, as a mean over people, each with one of their triples."""
        other, own = rows_of[rows, turn].clamp_min(0).unbind(1)
        squares = cec_loss(
            stack.feed_forward(),
            X[rows].unsqueeze(0),
            X[other].unsqueeze(0),
            data.baselines[0][y[rows], group[rows]].unsqueeze(0),
            n_steps=2,
            weight=share[rows].unsqueeze(0),
            objective=objective,
            x_placebo=X[own].unsqueeze(0),
        )
        return squares.sum() * share[rows].sum() / len(rows)

    def of_table():
        """Everyone's mean over their triples."""
        total = 0.0
        for row in range(70):
            turns = range(int(n_of[row]))
            total += sum(float(excess(torch.tensor([row]), torch.tensor([k])).detach()) for k in turns) / max(
                1, len(turns)
            )
        return total / 70

    gains = []
    for epoch in range(5):
        gains.append(0.0 if epoch < 2 else float(excess_gain(torch.tensor(of_table()))))
        order = torch.from_numpy(np.random.Generator(np.random.SFC64([4, epoch])).permutation(70))
        for rows in order.split(8):
            bce = bce_loss(stack(X[rows].unsqueeze(0))[0], y[rows])
            optimizer.zero_grad()
            turn = (epoch + rows) % n_of[rows].clamp_min(1)
            (bce + 0.7 * gains[-1] * excess(rows, turn)).backward()
            optimizer.step()
    assert max(gains) > 0
    torch.testing.assert_close(state.parameters, stack.flat.detach(), rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("objective", OBJECTIVES[1:])
def test_training_on_an_objective_lowers_it_and_validation_follows_the_plain_loss(objective):
    data = by_group(300, 200)
    if not objective.endswith("excess"):
        data = make_data(sizes=(300,), unmatched=0, validation=200)
    how = {**FAST, "epochs": 12, "dropout": 0.0, "equalized_odds_weight": 0.0, "objective": objective}
    state = train(data, TrainingSettings(**how, cec_weight=3.0))
    plain = train(data, TrainingSettings(**how, cec_weight=1e-9))
    assert float(state.history["cec"][-1]) < float(plain.history["cec"][-1])
    held_out, model = data.validation, state.network().member(0)
    x, y, group = held_out.X[0], held_out.y[0], held_out.group[0]
    has_placebo = objective.endswith("excess")
    rows = held_out.triples[0, :, 0, 0] if has_placebo else torch.zeros(200, 2).long()
    partner = rows[:, 0] if has_placebo else held_out.match[0, :, 0]
    weight = (partner >= 0).float()
    if has_placebo:
        weight = balanced_weights(held_out.y, held_out.group, held_out.weights, held_out.triples[..., 0, 0] >= 0)
        weight = weight[0, :, 0]
    expected = cec_loss(
        model,
        x,
        data.X[0][partner.clamp_min(0)],
        data.baselines[0][y, group],
        n_steps=1,
        weight=weight,
        objective=objective,
        x_placebo=data.X[0][rows[:, 1].clamp_min(0)] if has_placebo else None,
    )
    found = float(state.history["validation_cec"][-1])
    assert found == pytest.approx(float(expected.detach()), rel=1e-3, abs=1e-6)


def test_an_objective_that_the_data_cannot_serve_is_refused():
    with pytest.raises(InvalidInputError, match="objective='excess' needs placebo triples, which the training data"):
        Trainer(make_data(), TrainingSettings(**FAST, objective="excess"))
    with pytest.raises(InvalidInputError, match="which the training data and `validation` lack"):
        Trainer(make_data(validation=9), TrainingSettings(**FAST, objective="reasoning_excess"))
    with pytest.raises(InvalidInputError, match=r"`objective` must be one of .*'reasoning_excess'.*, got 'gap'"):
        TrainingSettings(objective="gap")


def test_triples_of_the_wrong_shape_or_of_rows_that_are_not_there_are_refused():
    data = with_triples(make_data(sizes=(40,)))
    with pytest.raises(InvalidInputError, match=r"`triples` must have shape \(1, 40, 1, n_triples, 2\), got"):
        dataclasses.replace(data, triples=data.triples[..., 0])
    with pytest.raises(InvalidInputError, match="`triples` must contain rows below 40, or -1 for both"):
        dataclasses.replace(data, triples=torch.full_like(data.triples, 40))


def test_a_classifier_with_each_objective_saves_loads_and_goes_on(tmp_path):
    planted = eh.make_planted_bias(400, strength=0.5)
    people, y = planted.dataset, planted.dataset.y
    for objective in OBJECTIVES:
        model = eh.CECClassifier(
            financial_features=people.financial_features,
            objective=objective,
            epochs=2,
            validation_fraction=0.25,
            patience=2,
            device="cpu",
        )
        model.fit(people.X, y, sensitive_features=people.group)
        again = eh.CECClassifier.load(model.save(tmp_path / objective))
        assert again.objective == objective
        np.testing.assert_array_equal(again.predict_proba(people.X), model.predict_proba(people.X))
        assert np.isfinite(model.history_["validation_cec"]).all()


def recovered_weights(model, people):
    """Share of each feature in the mean gradient of each group, from the group's own mean."""
    audited = model.audited_model()
    x = audited.encode(people.X)
    shares = []
    for name in np.unique(people.group):
        members = x[torch.as_tensor(people.group == name)]
        with torch.no_grad():
            gradients = attribute(audited.network, members, members.mean(0), 8).gradients.double().mean(0)[:5].abs()
        shares.append((gradients / gradients.sum()).numpy())
    return np.stack(shares)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("objective", "weight"), [("excess", 300.0), ("reasoning_gap", 20.0), ("reasoning_excess", 300.0)]
)
def test_of_a_planted_bias_of_a_half_at_most_a_fifth_is_left(objective, weight):
    planted = eh.make_planted_bias(10_000, strength=0.5)
    people = planted.dataset
    with torch.no_grad():
        probability = torch.sigmoid(planted.model(torch.tensor(people.X.to_numpy()))).numpy()
    decided = (np.random.default_rng(1).random(len(probability)) < probability).astype(int)

    def spread(cec_weight):
        model = eh.CECClassifier(
            financial_features=people.financial_features,
            objective=objective,
            cec_weight=cec_weight,
            equalized_odds_weight=0,
            epochs=20,
            batch_size=256,
            learning_rate=1e-3,
            device="cpu",
        )
        model.fit(people.X, decided, sensitive_features=people.group)
        weights = recovered_weights(model, people)
        return np.abs(weights[0] - weights[1]).sum(), weights

    unconstrained, weights = spread(0.0)
    np.testing.assert_allclose(weights, planted.weights, atol=0.08)  # the plain network finds the planted weights
    assert spread(weight)[0] <= unconstrained / 5
