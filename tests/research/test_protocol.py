"""Folds, stacks, the comparison and its file of results."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

import evenhand as eh
from evenhand.attribution.gradients import integrated_gradients
from evenhand.exceptions import DataFileError, InvalidInputError
from evenhand.research import methods
from evenhand.research.methods import (
    CEC,
    DisparateImpactRemover,
    NetworkMethod,
    make_method,
    method_names,
    register_method,
    train_network,
)
from evenhand.research.reproduction import protocol
from evenhand.research.reproduction import protocol as stacks
from evenhand.research.reproduction.protocol import (
    ProtocolSettings,
    ResultRow,
    ResultStore,
    ablation_weights,
    evaluate_network,
    grid_weights,
    method_parameters,
    prepare_folds,
    results_of,
    run_method,
    run_protocol,
    run_stacks,
    train_members,
)
from evenhand.research.reproduction.tables import METRIC_NAMES
from evenhand.training import Trainer
from evenhand.training.data import stack_tables

pytestmark = pytest.mark.integration

TINY = ProtocolSettings.quick(n_folds=2, epochs=1, hidden=(8, 4), n_steps=2)


@pytest.fixture(scope="module")
def data():
    return eh.load_dataset("synthetic", n=160)


@pytest.fixture(scope="module")
def prepared(data):
    return prepare_folds(data, TINY)


@pytest.fixture
def store(tmp_path):
    return ResultStore(tmp_path / "results.jsonl")


# Settings -------------------------------------------------------------------------------------------------------------


def test_the_defaults_are_the_papers():
    settings = ProtocolSettings()
    assert (settings.n_folds, settings.encoding, settings.consistency_threshold) == (5, "ordinal", 0.3)
    assert (settings.hidden, settings.dropout, settings.epochs) == ((128, 64), 0.2, 30)
    assert (settings.learning_rate, settings.batch_size) == (3e-4, 64)
    assert (settings.cec_weight, settings.equalized_odds_weight) == (1, 1)
    assert (settings.training_integration, settings.training_steps, settings.cec_every) == ("midpoint", 32, 1)


def test_our_own_training_can_be_chosen():
    ours = ProtocolSettings().with_segments()
    assert (ours.training_integration, ours.training_steps) == ("segments", 1)
    assert (ours.integration, ours.n_steps) == ("segments", 8)


@pytest.mark.parametrize(
    "change",
    [
        {"epochs": 2},
        {"consistency_threshold": 0.2},
        {"random_state": 1},
        {"cec_every": 2},
        {"match_pool": "test"},
        {"ties": "random"},
        {"encoding": "unscaled"},
    ],
)
def test_any_setting_changes_the_fingerprint(prepared, change):
    assert prepared.run != replace(prepared, settings=replace(TINY, **change)).run


def test_any_change_of_the_data_changes_the_fingerprint(data, prepared):
    first = data.X.copy()
    first.iloc[0, 0] += 1e-9
    labels = data.y.copy()
    labels[0] = 1 - labels[0]
    for changed in (
        replace(data, X=first),
        replace(data, y=labels),
        replace(data, financial_features=("financial_0",)),
    ):
        other = prepare_folds(changed, TINY)
        assert other.run != prepared.run


# Folds ----------------------------------------------------------------------------------------------------------------


def test_everything_is_learned_on_the_training_fold(data, prepared):
    for fold in prepared.folds:
        assert not set(fold.train) & set(fold.test)
        np.testing.assert_allclose(fold.x_train.mean(axis=0), 0, atol=1e-5)
        same_label = fold.y_train[fold.match_test[:, 0]] == fold.y_test
        other_group = fold.group_train[fold.match_test[:, 0]] != fold.group_test
        assert same_label.all()
        assert other_group.all()
        cell = (fold.y_train == 1) & (fold.group_train == 0)
        np.testing.assert_allclose(fold.baselines[1, 0], fold.x_train[cell].mean(axis=0), atol=1e-5)
    assert sorted(np.concatenate([fold.test for fold in prepared.folds])) == list(range(len(data)))


# Evaluation -----------------------------------------------------------------------------------------------------------


def test_figures_are_those_of_a_slow_loop(prepared):
    fold = prepared.folds[0]
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(20, 6), nn.ReLU(), nn.Linear(6, 1))
    found = evaluate_network(fold, network, TINY)
    scores, flips, in_b = [], 0, 0
    with torch.no_grad():
        for i, match in enumerate(fold.match_test[:, 0]):
            b = torch.from_numpy(fold.baselines[fold.y_test[i], fold.group_test[i]]).float()
            pair = torch.from_numpy(np.stack([fold.x_test[i], fold.x_train[match]]))
            ig = integrated_gradients(network, pair, b, TINY.n_steps, TINY.integration)
            score = eh.cec_scores(ig[:1], ig[1:]).item()
            first, second = (network(pair).squeeze(-1) >= 0).tolist()
            scores.append(score)
            flips += first != second
            in_b += first == second and score > 0.3
    n = len(scores)
    np.testing.assert_allclose(found["cec"], np.mean(scores), atol=1e-5)
    np.testing.assert_allclose([found["pfr"], found["regime_b"]], [flips / n, in_b / n])
    np.testing.assert_allclose(sum(found[f"regime_{r}"] for r in "abcd"), 1)
    assert set(METRIC_NAMES) <= set(found)


def test_a_linear_model_has_no_reasoning_gap(prepared):
    found = evaluate_network(prepared.folds[0], nn.Linear(20, 1), TINY)
    assert found["reasoning_gap"] < 1e-5 < found["input_gap"]


def test_figures_are_missing_where_no_one_has_a_match(prepared):
    fold = replace(prepared.folds[0], match_test=np.full_like(prepared.folds[0].match_test, -1))
    found = evaluate_network(fold, nn.Linear(20, 1), TINY)
    assert np.isnan(found["cec"])
    assert found["n_unmatched"] == len(fold.y_test)


# Stacks ---------------------------------------------------------------------------------------------------------------


def test_a_fold_trained_in_a_stack_is_the_method_trained_alone(data, prepared):
    network = train_members(prepared, [(0, 1.0, 1.0), (1, 1.0, 1.0), (1, 0.5, 2.0)])[1]
    options = {"n_steps": 1, "integration": "segments"}
    alone = CEC(TINY.network(1), data.financial_features, **options)
    in_stack = evaluate_network(prepared.folds[1], network, TINY)
    by_method = run_method(alone, prepared, 1)
    for name in METRIC_NAMES:
        assert in_stack[name] == pytest.approx(by_method[name], abs=1e-4)


def test_folds_of_different_lengths_are_padded(data):
    uneven = prepare_folds(replace(data, X=data.X[:-3], y=data.y[:-3], group=data.group[:-3]), replace(TINY, n_folds=3))
    tables = stack_tables(uneven.folds)
    assert tables.n_rows.tolist() == [len(fold.y_train) for fold in uneven.folds]
    assert len(set(tables.n_rows.tolist())) > 1


def test_folds_with_different_columns_cannot_train_together(prepared):
    first, second = prepared.folds
    for join in (second.join[:-1], second.join[::-1]):
        with pytest.raises(InvalidInputError, match="differ in their encoded columns"):
            stack_tables((first, replace(second, join=join)))


def test_a_category_absent_from_a_training_fold_does_not_stop_onehot_networks(data, store):
    settings = replace(TINY, encoding="onehot")
    X = data.X.assign(rare=np.where(np.arange(len(data)) == 3, "once", "often"))
    rare = replace(data, X=X)
    folds = prepare_folds(rare, settings).folds
    assert folds[0].join.shape != folds[1].join.shape
    run = run_protocol(rare, ["unconstrained", "cec"], settings, store)
    assert {(row.method, row.fold) for row in store.of_run(run)} == {
        (m, k) for m in ("unconstrained", "cec") for k in (0, 1)
    }
    alone = run_method(
        CEC(settings.network(1), rare.financial_features, n_steps=1, integration="segments"),
        prepare_folds(rare, settings),
        1,
    )
    (row,) = [row for row in store.of_run(run) if (row.method, row.fold) == ("cec", 1)]
    assert row.versions["device"] == "cpu"
    for name in METRIC_NAMES:
        assert row.metrics[name] == pytest.approx(alone[name], abs=1e-4)


def test_onehot_folds_compare_by_the_tables_columns():
    german = eh.load_dataset("german")
    settings = replace(TINY, encoding="onehot")
    folds = prepare_folds(german, settings)
    assert folds.folds[0].join.shape[0] > folds.folds[0].join.shape[1] == 20
    assert stack_tables(folds.folds).join is not None
    network = train_members(folds, [(0, 1.0, 0.0)])[0]
    assert 0 < evaluate_network(folds.folds[0], network, settings)["cec"] < 1


def test_a_stopped_stack_goes_on_from_its_checkpoint(prepared, tmp_path, monkeypatch):
    prepared, members = replace(prepared, settings=replace(TINY, epochs=3)), [(0, 1.0, 1.0)]
    whole = train_members(prepared, members)
    monkeypatch.setattr("evenhand.training.engine.loop._SECONDS_BETWEEN_CHECKPOINTS", 0)
    checkpoint, epochs, run = tmp_path / "stack.safetensors", [], Trainer._next_state

    def stop_in_the_third(self):
        epochs.append(self.state.epoch)
        if len(epochs) == 3:
            raise KeyboardInterrupt
        return run(self)

    monkeypatch.setattr(Trainer, "_next_state", stop_in_the_third)
    with pytest.raises(KeyboardInterrupt):
        train_members(prepared, members, checkpoint=checkpoint)
    again = train_members(prepared, members, checkpoint=checkpoint)
    assert epochs == [0, 1, 2, 2]
    assert not checkpoint.exists()
    for one, other in zip(whole[0].parameters(), again[0].parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_the_grid_and_the_ablation_name_their_settings():
    assert len(grid_weights()) == 36
    assert ablation_weights(TINY)["pred+eo"] == (0.0, 1.0)


# The comparison -------------------------------------------------------------------------------------------------------


def test_every_method_and_fold_is_stored_with_its_run_and_versions(data, store):
    run = run_protocol(data, method_names(), TINY, store)
    rows = ResultStore(store.path).of_run(run)
    assert {(row.method, row.fold) for row in rows} == {(name, fold) for name in method_names() for fold in (0, 1)}
    assert all(row.versions["torch"] and np.isfinite(row.metrics["cec"]) for row in rows)
    assert ResultStore(store.path).runs[run]["settings"]["n_folds"] == 2


def test_a_stopped_run_goes_on_where_it_was(data, store, monkeypatch):
    calls = []
    original = protocol.run_method

    def counted(method, *arguments):
        calls.append(type(method).__name__)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return original(method, *arguments)

    monkeypatch.setattr(protocol, "run_method", counted)
    with pytest.raises(KeyboardInterrupt):
        run_protocol(data, ["unconstrained", "disparate_impact_remover"], TINY, store)
    before = store.path.read_text()
    assert len(ResultStore(store.path).rows) == 3  # two of the stack, one of the other method
    again = ResultStore(store.path)
    run_protocol(data, ["unconstrained", "disparate_impact_remover"], TINY, again)
    assert calls == ["DisparateImpactRemover"] * 3
    assert store.path.read_text().startswith(before)
    assert len(again.rows) == 4


def test_a_changed_setting_is_another_run(data, store):
    first = run_protocol(data, ["unconstrained"], TINY, store)
    second = run_protocol(data, ["unconstrained"], replace(TINY, epochs=2), store)
    assert first != second
    assert len(store.of_run(first)) == len(store.of_run(second)) == 2
    run_protocol(data, ["unconstrained"], TINY, store)
    assert len(store.rows) == 4  # nothing was trained again


def test_ablation_and_grid_are_stored_by_their_weights(data, store, monkeypatch):
    monkeypatch.setattr(protocol, "grid_weights", lambda: [(0.1, 0.1), (1.0, 1.0)])
    run_protocol(data, ["cec"], TINY, store, has_ablation=True, has_grid=True)
    weights = {(row.cec_weight, row.equalized_odds_weight) for row in store.rows}
    assert weights == {*ablation_weights(TINY).values(), (0.1, 0.1)}
    assert {row.method for row in store.rows if row.cec_weight == row.equalized_odds_weight == 0} == {"unconstrained"}


def test_a_methods_own_parameters_tell_its_results_apart(data, store, monkeypatch):
    monkeypatch.setattr(methods, "_METHODS", dict(methods._METHODS))
    for level in (1.0, 0.5):
        factory = lambda settings, financial, level=level: DisparateImpactRemover(settings, level)  # noqa: E731
        methods._METHODS["disparate_impact_remover"] = factory
        run = run_protocol(data, ["unconstrained", "disparate_impact_remover"], TINY, store)
    assert len(store.of_run(run)) == 6
    rows = results_of(store, run, ["disparate_impact_remover"], TINY, data.financial_features)
    assert [row.parameters for row in rows] == [{"repair_level": 0.5}] * 2
    assert len(results_of(store, run, ["unconstrained"], TINY, data.financial_features)) == 2
    method = make_method("disparate_impact_remover", TINY.network(0), data.financial_features)
    assert method_parameters(method) == {"repair_level": 0.5}


def test_a_researcher_adds_a_method_in_a_few_lines(data, store, monkeypatch):
    monkeypatch.setattr(methods, "_METHODS", dict(methods._METHODS))

    class Reweighing(NetworkMethod):
        """Every (label, group) cell counts as if label and group were independent (Kamiran and Calders, 2012)."""

        def _learn(self, x, y, group):
            weight = np.empty(len(y), dtype=np.float32)
            for label in (0, 1):
                for code in np.unique(group):
                    cell = (y == label) & (group == code)
                    weight[cell] = (y == label).mean() * (group == code).mean() / cell.mean()
            self.network_ = train_network(x, y, self.settings, weight)

    register_method("reweighing", lambda settings, financial_features: Reweighing(settings))

    assert method_names()[-1] == "reweighing"
    run_protocol(data, ["reweighing"], TINY, store)
    assert [(row.method, row.fold) for row in store.rows] == [("reweighing", 0), ("reweighing", 1)]
    with pytest.raises(InvalidInputError, match="There is already a method 'reweighing'"):
        register_method("reweighing", lambda settings, financial_features: Reweighing(settings))


# The file -------------------------------------------------------------------------------------------------------------


def test_a_torn_last_line_is_ignored_and_then_removed(store):
    row = ResultRow("german", "cec", 0, "r", {"auc": 0.8, "eo": float("nan")})
    store.append(row)
    with store.path.open("a") as file:
        file.write('{"kind": "result", "dataset": "ger')
    again = ResultStore(store.path)
    assert [r.key for r in again.rows] == [row.key]
    assert np.isnan(again.rows[0].metrics["eo"])
    again.append(replace(row, fold=1))
    assert [r.fold for r in ResultStore(store.path).rows] == [0, 1]


def test_a_first_line_that_was_torn_leaves_an_empty_store(tmp_path):
    path = tmp_path / "results.jsonl"
    path.write_text('{"kind": "res')
    store = ResultStore(path)
    assert store.rows == []
    store.append(ResultRow("german", "cec", 0, "r", {}))
    assert len(ResultStore(path).rows) == 1


def test_a_spoiled_line_in_the_middle_is_named(store):
    store.append(ResultRow("german", "cec", 0, "r", {}))
    store.path.write_text("nonsense\n" + store.path.read_text())
    with pytest.raises(DataFileError, match=r"Line 1 of .* is not a result"):
        ResultStore(store.path)


def test_runs_are_described_once(store):
    store.describe_run("r", {"settings": {"epochs": 1}})
    store.describe_run("r", {"settings": {"epochs": 1}})
    assert len(store.path.read_text().splitlines()) == 1
    assert ResultStore(store.path).runs == {"r": {"settings": {"epochs": 1}}}


def test_nothing_is_prepared_for_training_when_all_is_there(prepared, store, monkeypatch):
    run_stacks(prepared, [(0.0, 0.0)], store)
    monkeypatch.setattr(stacks, "stack_tables", None)
    run_stacks(prepared, [(0.0, 0.0)], store)
