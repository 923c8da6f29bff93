from __future__ import annotations

import dataclasses

import numpy as np
import pytest
import torch
from sklearn.metrics import roc_auc_score
from torch.nn import functional

from evenhand.attribution.gradients import integrate_paths
from evenhand.exceptions import InvalidInputError, ModelFileError
from evenhand.training import (
    StackedNetwork,
    Trainer,
    TrainerState,
    TrainingDivergedError,
    TrainingSettings,
    bce_loss,
    cec_loss,
    cec_term,
    equalized_odds_loss,
    train,
)
from evenhand.training.engine import loop as loop_module

from .conftest import make_data

FAST = {"hidden": (9, 6), "batch_size": 8, "epochs": 3, "learning_rate": 1e-2, "device": "cpu"}
STACK = {
    "table": (0, 1, 1, 0, 1),
    "seed": (5, 6, 7, 8, 6),
    "cec_weight": (1.0, 0.0, 2.0, 0.5, 1.0),
    "equalized_odds_weight": (0.0, 0.0, 1.0, 2.0, 1.0),
}


def settings(**changes):
    return TrainingSettings(**{**FAST, **changes})


def alone(member, **changes):
    own = {name: values[member] for name, values in STACK.items()}
    return settings(**{**own, **changes})


@pytest.mark.parametrize("per_part", [1, 2, 5])
@pytest.mark.parametrize(
    "case",
    [
        {},
        {"method": "midpoint", "n_steps": 3},
        {"dropout": 0.0, "cec_every": 1},
    ],
    ids=str,
)
def test_a_member_of_a_stack_gets_the_result_of_that_model_alone(monkeypatch, per_part, case):
    monkeypatch.setattr(loop_module, "_MEMBERS_PER_PART", per_part)
    data = make_data(sizes=(50, 21))
    together = train(data, settings(**STACK, **case)).parameters
    for member in range(5):
        by_itself = train(data, alone(member, **case)).parameters[0]
        torch.testing.assert_close(together[member], by_itself, rtol=1e-4, atol=1e-5)


def test_several_blocks_an_epoch_and_three_groups_train_the_same_alone_and_together(monkeypatch):
    from evenhand.training.engine import minibatches

    monkeypatch.setattr(minibatches, "_ROWS_PER_BLOCK", 24)
    data = make_data(sizes=(50, 21), n_groups=3, weighted=True)
    together = train(data, settings(**STACK)).parameters
    for member in (0, 2):
        torch.testing.assert_close(together[member], train(data, alone(member)).parameters[0], rtol=1e-4, atol=1e-5)


def test_training_follows_algorithm_2_step_by_step():
    """No dropout, all pairs: compare with automatic differentiation and torch's Adam on the same batches."""
    data = make_data(sizes=(29,), seed=3, join=torch.tensor([[1.0, 0], [1, 0], [0, 1], [0, 1], [0, 1]]), weighted=True)
    how = settings(dropout=0.0, cec_every=1, cec_weight=0.7, equalized_odds_weight=0.3, n_steps=2, seed=4)
    state = train(data, how)
    stack = StackedNetwork(5, how.hidden, 0.0, seeds=(4,))
    optimizer = torch.optim.Adam(stack.parameters(), lr=1e-2)
    X, y, group, match = data.X[0], data.y[0], data.group[0], data.match[0, :, 0]
    terms = []
    for epoch in range(3):
        order = torch.from_numpy(np.random.Generator(np.random.SFC64([4, epoch])).permutation(29))
        for rows in order.split(8):
            weight = data.weights[0][rows]
            net = stack.feed_forward()
            logits = stack(X[rows].unsqueeze(0))[0]
            b = data.baselines[0][y[rows], group[rows]].unsqueeze(0)
            ends = X[rows].unsqueeze(0), X[match[rows].clamp_min(0)].unsqueeze(0)
            ig, ig_match = ((z - b) * integrate_paths(net, z, b, 2, "segments").gradients @ data.join for z in ends)
            cec = cec_term(ig[0], ig_match[0], weight * (match[rows] >= 0))[0]
            odds = equalized_odds_loss(logits, y[rows], group[rows], 2, weight)[0]
            bce = bce_loss(logits, y[rows], weight)
            optimizer.zero_grad()
            (bce + 0.3 * odds + 0.7 * cec).backward()
            optimizer.step()
            terms.append((epoch, float(odds.detach())))
    torch.testing.assert_close(state.parameters, stack.flat.detach(), rtol=1e-3, atol=1e-4)
    last = [odds for epoch, odds in terms if epoch == 2]
    assert float(state.history["equalized_odds"][2]) == pytest.approx(np.mean(last), rel=1e-3)


def test_runs_repeat_bit_for_bit_and_seeds_differ():
    data = make_data()
    first, second = (train(data, settings(**STACK)).parameters for _ in range(2))
    assert torch.equal(first, second)
    assert not torch.equal(train(data, settings(seed=1)).parameters, train(data, settings(seed=2)).parameters)


def test_training_on_the_objective_lowers_every_term():
    data = make_data(sizes=(120,), unmatched=0)
    history = train(data, settings(epochs=25, cec_weight=1.0, dropout=0.0)).history
    for name in ("bce", "cec"):
        assert history[name][-1] < history[name][0]


def test_the_first_epoch_of_terms_that_wait_is_one_of_labels_alone():
    data, waiting = make_data(), settings(**STACK, epochs=1, least_explained=0.2)
    none = {"cec_weight": 0.0, "equalized_odds_weight": 0.0}
    plain = train(data, settings(**{**STACK, **none}, epochs=1))
    torch.testing.assert_close(train(data, waiting).parameters, plain.parameters, rtol=1e-5, atol=1e-6)


def test_terms_that_wait_count_by_what_the_epoch_before_explained():
    data = make_data()
    trainer = Trainer(data, settings(**STACK, least_explained=0.9))
    trainer.run()
    y, weight = data.y.numpy(), data.weights.numpy()
    losses = trainer.state.history["bce"][-1].numpy()
    gains = trainer._gains(3)
    for member, table in enumerate(STACK["table"]):
        rate = np.average(y[table], weights=weight[table])
        share = 1 - losses[member] / -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
        assert 0 < share < 0.9
        assert float(gains[0, member]) == float(gains[1, member]) == pytest.approx(share / 0.9)
    assert Trainer(data, settings(**STACK))._gains(0) is None


@pytest.mark.parametrize("objective", ["cec", "reasoning_gap"])
def test_terms_that_wait_train_the_same_alone_and_together_and_after_a_pause(tmp_path, objective):
    data, how = make_data(), {"objective": objective, "least_explained": 0.5}
    together = train(data, settings(**STACK, **how)).parameters
    for member in range(5):
        torch.testing.assert_close(
            together[member], train(data, alone(member, **how)).parameters[0], rtol=1e-4, atol=1e-5
        )
    assert torch.equal(together, resumed(data, settings(**STACK, **how), tmp_path, at=2).parameters)


def test_a_stopped_member_does_not_spoil_terms_that_wait():
    data = make_data(validation=20)
    how = settings(**STACK, epochs=12, least_explained=0.5, patience=1, monitor="bce")
    state = train(data, how)
    assert int(state.is_stopped.sum()) > 0
    assert state.parameters.isfinite().all()


def test_members_of_one_seed_draw_as_they_would_alone_whatever_the_length_of_their_tables():
    data = make_data(sizes=(50, 37, 50))
    how = {"table": (0, 1, 2, 0), "seed": (5, 5, 5, 5), "cec_weight": (1.0, 1.0, 1.0, 0.0)}
    together = train(data, settings(**how)).parameters
    for member in range(4):
        own = train(data, settings(**{name: values[member] for name, values in how.items()})).parameters[0]
        torch.testing.assert_close(together[member], own, rtol=1e-4, atol=1e-5)


def test_terms_without_weight_are_not_computed():
    history = train(make_data(), settings(cec_weight=0.0, equalized_odds_weight=0.0)).history
    assert history["bce"].isfinite().all()
    assert history["cec"].isnan().all()
    assert history["equalized_odds"].isnan().all()


def test_history_counts_the_unmatched_and_the_differences_left_out():
    data = make_data(sizes=(50,), unmatched=0.4)
    history = train(data, settings(cec_every=1)).history
    assert history["unmatched"].flatten().tolist() == [float((data.match < 0).sum())] * 3
    one_label = dataclasses.replace(data, y=torch.zeros_like(data.y), baselines=torch.zeros(1, 2, 2, 5))
    left_out = train(one_label, settings()).history["equalized_odds_left_out"]
    assert (left_out >= 7).all()  # of 7 batches, each lacks label 1


def test_a_weight_of_two_is_the_row_twice():
    data = make_data(sizes=(30,))
    doubled = dataclasses.replace(data, weight=data.weight * 2)
    same = (train(d, settings()).parameters for d in (data, doubled))
    torch.testing.assert_close(*same, rtol=1e-4, atol=1e-5)


def test_the_callback_sees_every_epoch():
    seen = []
    train(make_data(), settings(seed=(1, 2)), on_epoch=lambda epoch, row: seen.append((epoch, row["bce"].shape)))
    assert seen == [(0, (2,)), (1, (2,)), (2, (2,))]


def resumed(data, how, tmp_path, at):
    part = train(data, dataclasses.replace(how, epochs=at))
    part.save(tmp_path / "state.safetensors")
    return train(data, how, state=TrainerState.load(tmp_path / "state.safetensors"))


@pytest.mark.parametrize("extra", [{}, {"patience": 2}], ids=str)
def test_going_on_from_a_saved_state_gives_the_uninterrupted_model(tmp_path, extra):
    data = make_data(validation=20)
    how = settings(**STACK, **extra, epochs=6)
    whole, parts = train(data, how), resumed(data, how, tmp_path, at=2)
    assert torch.equal(whole.final_parameters, parts.final_parameters)
    assert torch.equal(whole.square, parts.square)
    for name, values in whole.history.items():
        assert torch.equal(values.nan_to_num(-1), parts.history[name].nan_to_num(-1))


def test_an_interrupt_leaves_the_last_whole_epoch():
    data, how = make_data(), settings()

    def stop(epoch, row):
        if epoch == 1:
            raise KeyboardInterrupt

    trainer = Trainer(data, how)
    with pytest.raises(KeyboardInterrupt):
        trainer.run(stop)
    assert trainer.state.epoch == 2
    assert torch.equal(train(data, how, state=trainer.state).parameters, train(data, how).parameters)


def test_an_interrupt_inside_an_epoch_does_not_touch_the_state(monkeypatch):
    trainer = Trainer(make_data(), settings())
    before = trainer.state.parameters.clone()
    step = trainer._engines[0]._stepper.step

    def once_then_interrupt(batch, has_pairs):
        step(batch, has_pairs)
        raise KeyboardInterrupt

    monkeypatch.setattr(trainer._engines[0]._stepper, "step", once_then_interrupt)
    with pytest.raises(KeyboardInterrupt):
        trainer.run()
    assert trainer.state.epoch == 0
    assert torch.equal(trainer.state.parameters, before)


def test_a_loss_that_is_no_number_names_member_and_epoch():
    data, how = make_data(), settings(seed=(0, 1), learning_rate=(1e-3, 1e30))
    with pytest.raises(TrainingDivergedError, match=r"member 1 diverged in epoch 0 .* 1 of 2 members"):
        train(data, how)


@pytest.mark.parametrize("monitor", ["objective", "bce", "auc"])
def test_early_stopping_freezes_members_one_by_one_and_restores_the_best_epoch(monitor):
    data = make_data(sizes=(40, 40), validation=30)
    how = settings(**STACK, epochs=30, learning_rate=0.05, patience=2, monitor=monitor)
    state = train(data, how)
    figure = state.history[f"validation_{monitor}"] * (-1 if monitor == "auc" else 1)
    assert state.is_stopped.any()
    lengths = figure.isfinite().sum(0)
    assert len(lengths.unique()) > 1
    for k in range(5):
        best = int(state.best_epoch[k])
        assert best == int(figure[: lengths[k], k].argmin())
        if state.is_stopped[k]:
            assert lengths[k] == best + 1 + 2
    fewer = train(data, dataclasses.replace(how, epochs=int(state.best_epoch[0]) + 1))
    assert torch.equal(fewer.parameters[0], state.final_parameters[0])
    assert torch.equal(state.network().flat.detach(), state.final_parameters)


def test_validation_figures_equal_the_plain_formulas():
    data = make_data(sizes=(40, 30), validation=25)
    state = train(data, settings(table=(0, 1), seed=(0, 1), n_steps=2, epochs=1))
    held_out, stack = data.validation, state.network()
    for k in range(2):
        net, x, y, group = stack.member(k), held_out.X[k], held_out.y[k], held_out.group[k]
        logits = net(x).squeeze(-1).detach()
        match = held_out.match[k, :, 0]
        expected = {
            "bce": functional.binary_cross_entropy_with_logits(logits, y.float()),
            "equalized_odds": equalized_odds_loss(logits, y, group, 2)[0],
            "cec": cec_loss(
                net,
                x,
                data.X[k][match.clamp_min(0)],
                data.baselines[k][y, group],
                n_steps=2,
                weight=(match >= 0).float(),
            ).detach(),
            "auc": roc_auc_score(y, logits),
            "positive_rate": (logits >= 0).float().mean(),
        }
        expected["objective"] = sum(expected[name] for name in ("bce", "equalized_odds", "cec"))
        for name, value in expected.items():
            assert float(state.history[f"validation_{name}"][0, k]) == pytest.approx(float(value), rel=1e-4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"table": 2}, "`table` must be below 2, the number of tables, got 2"),
        ({"patience": 1}, "`patience` needs validation data"),
        ({"device": "abacus"}, '`device` must be "auto"'),
    ],
)
def test_settings_that_do_not_fit_the_data_are_refused(changes, message):
    with pytest.raises(InvalidInputError, match=message):
        Trainer(make_data(), settings(**changes))


def test_terms_the_data_cannot_give_are_refused():
    data = make_data(n_groups=1, sizes=(20,))
    with pytest.raises(InvalidInputError, match="needs at least two groups, got 1"):
        Trainer(data, settings())
    with pytest.raises(InvalidInputError, match="`cec_weight` needs matches"):
        Trainer(data, settings(equalized_odds_weight=0.0))
    assert train(data, settings(equalized_odds_weight=0.0, cec_weight=0.0)).epoch == 3


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a CUDA device")
def test_cuda_without_a_device_is_refused():
    with pytest.raises(InvalidInputError, match="no CUDA device"):
        Trainer(make_data(), settings(device="cuda"))


def test_a_state_of_other_settings_or_shape_is_refused():
    state = train(make_data(), settings())
    with pytest.raises(InvalidInputError, match=r"different settings: \['cec_weight'\]"):
        Trainer(make_data(), settings(cec_weight=3.0), state)
    with pytest.raises(InvalidInputError, match=r"number of inputs or hidden widths \(\[5, 9, 6, 1\], now \[4,"):
        Trainer(make_data(n_columns=4), settings(), state)


def test_altered_and_foreign_state_files_are_refused(tmp_path):
    state = train(make_data(), settings(epochs=1))
    tensors, metadata = state.to_dict()
    with pytest.raises(ModelFileError, match="Expected a trainer state of version 1, got format 'other'"):
        TrainerState.from_dict(tensors, {**metadata, "format": "other"})
    with pytest.raises(ModelFileError, match=r"lacks \['mean'\]"):
        TrainerState.from_dict({k: v for k, v in tensors.items() if k != "mean"}, metadata)
    with pytest.raises(ModelFileError, match=r"'mean' must have shape \(1, 121\), got \(1, 7\)"):
        TrainerState.from_dict({**tensors, "mean": torch.zeros(1, 7)}, metadata)
    path = tmp_path / "state.safetensors"
    state.save(path)
    assert [p.name for p in tmp_path.iterdir()] == ["state.safetensors"]
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(ModelFileError, match="not a readable trainer state"):
        TrainerState.load(path)


def test_threads_are_put_back():
    before = torch.get_num_threads()
    train(make_data(), settings(n_threads=2))
    assert torch.get_num_threads() == before


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
class TestOnCuda:
    def test_replayed_steps_are_captured_and_equal_steps_run_one_by_one(self, monkeypatch):
        data = make_data(sizes=(50, 21))
        how = settings(**STACK, device="cuda")
        captured = Trainer(data, how)
        captured.run()
        assert captured._engines[0]._replay is not None
        eager = Trainer(data, how)
        for engine in eager._engines:
            monkeypatch.setattr(engine, "_may_capture", False)
        eager.run()
        assert eager._engines[0]._replay is None
        torch.testing.assert_close(captured.state.parameters, eager.state.parameters, rtol=1e-4, atol=1e-5)

    def test_a_member_of_a_stack_gets_the_result_of_that_model_alone(self):
        data = make_data(sizes=(50, 21))
        together = train(data, settings(**STACK, device="cuda")).parameters
        for member in range(5):
            by_itself = train(data, alone(member, device="cuda")).parameters[0]
            torch.testing.assert_close(together[member], by_itself, rtol=1e-3, atol=1e-4)

    def test_without_dropout_it_gives_the_model_of_the_cpu(self):
        data = make_data(validation=20)
        on_cpu, on_cuda = (train(data, settings(**STACK, dropout=0.0, device=d)) for d in ("cpu", "cuda"))
        torch.testing.assert_close(on_cpu.parameters, on_cuda.parameters, rtol=1e-3, atol=1e-4)

    def test_a_failed_capture_falls_back_to_steps_run_one_by_one(self, monkeypatch):
        def refuse(*_):
            raise RuntimeError("capture is not possible")

        monkeypatch.setattr("evenhand.training.engine.loop._Replay", refuse)
        trainer = Trainer(make_data(), settings(device="cuda"))
        assert trainer.run().epoch == 3
        assert trainer._engines[0]._replay is None

    def test_going_on_from_a_saved_state_gives_the_uninterrupted_model(self, tmp_path):
        data, how = make_data(), settings(**STACK, device="cuda")
        assert torch.equal(train(data, how).parameters, resumed(data, how, tmp_path, at=2).parameters)
