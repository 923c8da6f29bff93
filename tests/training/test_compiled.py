from __future__ import annotations

import sys

import pytest
import torch

from evenhand.training import TrainerState, TrainingDivergedError, TrainingSettings, train
from evenhand.training.engine import epochs as compiled_module
from evenhand.training.engine import loop as loop_module
from evenhand.training.excess_objective import training_triples

from .conftest import make_data

pytest.importorskip("numba")

SETTINGS = {"hidden": (9, 6), "batch_size": 8, "epochs": 2, "learning_rate": 1e-3, "device": "cpu"}
JOIN = torch.tensor([[1.0, 0], [1, 0], [0, 1], [0, 1], [0, 1]])
CASES = [
    {},
    {"hidden": (9,)},
    {"hidden": (9, 7, 6)},
    {"dropout": 0.0},
    {"cec_every": 2},
    {"cec_weight": 0.0},
    {"equalized_odds_weight": 0.0},
    {"cec_weight": 0.0, "equalized_odds_weight": 0.0},
    {"method": "midpoint", "n_steps": 3, "cec_weight": 0.0},
    {"objective": "excess", "epochs": 4, "cec_weight": 30.0},
]


@pytest.fixture(autouse=True)
def compile_small_trainings(monkeypatch):
    monkeypatch.setattr(compiled_module, "_FEWEST_STEPS", 1)


def in_torch(monkeypatch, *arguments):
    with monkeypatch.context() as patch:
        patch.setattr(loop_module, "is_compiled", lambda *_: False)
        return train(*arguments)


def with_triples(data):
    people = [(data.X[d].numpy(), data.y[d].numpy(), data.group[d].numpy()) for d in range(data.n_tables)]
    triples = [torch.as_tensor(training_triples(*own, data.n_groups)) for own in people]
    object.__setattr__(data, "triples", torch.stack(triples))
    return data


@pytest.mark.parametrize("case", CASES, ids=str)
@pytest.mark.parametrize("shape", [{}, {"n_groups": 3, "weighted": True, "join": JOIN}], ids=["plain", "joined"])
def test_compiled_steps_train_what_torch_trains(monkeypatch, case, shape):
    data = make_data(sizes=(50, 37), **shape)
    if "objective" in case:
        data = with_triples(data)
    settings = TrainingSettings(seed=(0, 1), table=(0, 1), **{**SETTINGS, **case})
    ours, theirs = train(data, settings), in_torch(monkeypatch, data, settings)
    torch.testing.assert_close(ours.parameters, theirs.parameters, rtol=1e-4, atol=1e-5)
    for name, values in theirs.history.items():
        torch.testing.assert_close(ours.history[name], values, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_gradients_of_one_step_are_equal_to_two_millionths(monkeypatch):
    data = make_data(sizes=(64,), n_columns=20)
    settings = TrainingSettings(epochs=1, batch_size=64, device="cpu")
    ours, theirs = train(data, settings), in_torch(monkeypatch, data, settings)
    scale = float(theirs.mean.abs().max())  # after the first step Adam's mean is a tenth of the gradient
    torch.testing.assert_close(ours.mean, theirs.mean, rtol=0, atol=2e-6 * scale)
    assert int(theirs.n_steps[0]) == 1


def test_a_member_is_the_same_in_any_stack_and_on_any_number_of_threads(monkeypatch):
    data = make_data(sizes=(50, 37))
    own = {"seed": (3, 4, 5), "table": (0, 1, 1), "cec_weight": (1.0, 0.0, 2.0)}
    together = train(data, TrainingSettings(**own, **SETTINGS)).parameters
    monkeypatch.setattr(loop_module, "_MEMBERS_PER_PART", 1)
    for n_threads in (1, 3):
        apart = train(data, TrainingSettings(**own, **SETTINGS, n_threads=n_threads)).parameters
        assert torch.equal(together, apart)
    alone = train(data, TrainingSettings(seed=5, table=1, cec_weight=2.0, **SETTINGS)).parameters[0]
    assert torch.equal(together[2], alone)


def test_going_on_from_a_saved_state_gives_the_uninterrupted_model(tmp_path):
    data = make_data(sizes=(50,))
    train(data, TrainingSettings(**SETTINGS)).save(tmp_path / "state")
    longer = TrainingSettings(**{**SETTINGS, "epochs": 5})
    resumed = train(data, longer, state=TrainerState.load(tmp_path / "state"))
    assert torch.equal(resumed.parameters, train(data, longer).parameters)


def test_members_that_have_stopped_stay_as_they_are():
    data = make_data(sizes=(50, 37), validation=20)
    settings = TrainingSettings(
        seed=(0, 1), table=(0, 1), **{**SETTINGS, "epochs": 30, "learning_rate": 0.1}, patience=1, monitor="bce"
    )
    state = train(data, settings)
    stopped = state.history["bce"].isnan().sum(0)
    assert state.is_stopped.all()
    assert len(set(stopped.tolist())) == 2  # one of the two stopped before the other


def test_a_loss_that_is_no_number_is_an_error():
    settings = TrainingSettings(**{**SETTINGS, "learning_rate": 1e30, "epochs": 20})
    with pytest.raises(TrainingDivergedError, match="member 0 diverged"):
        train(make_data(sizes=(50,)), settings)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, True),
        ({"n_steps": 2}, False),
        ({"method": "midpoint"}, False),
        ({"objective": "reasoning_gap"}, False),
        ({"objective": "reasoning_gap", "cec_weight": 0.0}, True),
        ({"batch_size": 64}, False),
    ],
    ids=str,
)
def test_what_is_compiled(monkeypatch, changes, expected):
    monkeypatch.setattr(compiled_module, "_FEWEST_STEPS", 7)  # 50 rows in batches of 8
    settings = TrainingSettings(**{**SETTINGS, **changes})
    assert compiled_module.is_compiled(make_data(sizes=(50,)), settings, torch.device("cpu")) == expected


def test_without_numba_torch_takes_the_steps(monkeypatch):
    data, settings = make_data(sizes=(50,)), TrainingSettings(**SETTINGS)
    expected = in_torch(monkeypatch, data, settings)
    compiled_module._kernel.cache_clear()
    monkeypatch.setitem(sys.modules, "evenhand.training.engine.kernel", None)
    try:
        ours = train(data, settings)
    finally:
        compiled_module._kernel.cache_clear()
    assert torch.equal(ours.parameters, expected.parameters)
