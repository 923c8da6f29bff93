"""Whole searches of networks."""

from __future__ import annotations

import json

import numpy as np
import pytest

import evenhand as eh
from evenhand.auditing.history.records import audit_metrics
from evenhand.exceptions import InvalidInputError
from evenhand.metrics.names import METRICS, SEARCHED
from evenhand.searching import run as networks
from evenhand.training import TrainingDivergedError

from .conftest import QUICK, search

pytestmark = pytest.mark.integration  # whole searches are trained


def test_every_candidate_is_judged_in_every_fold(result):
    # 2 unconstrained; of weight 0 with odds, 2 objectives; of weight 3, 2 objectives x 2 weights x 2 epochs.
    assert len(result.tried) == 2 + 4 + 8
    for name in set(SEARCHED) - {"profit"}:
        assert result.metrics[name].shape == (14, 3)
        assert np.isfinite(result.metrics[name]).all()
    assert not result.notes


def test_the_table_has_a_row_and_a_reason_for_each(result):
    table = result.candidates
    assert table["candidate"].tolist() == list(range(14))
    assert table["status"].tolist().count("chosen") == 1
    assert table.loc[result.chosen, "status"] == "chosen"
    assert all(reason for reason in table["reason"])
    assert (table["auc_low"] <= table["auc"]).all()
    assert set(result.front) <= set(range(14))


def test_cost_and_gain_are_differences_on_the_same_folds(result):
    table = result.cost_and_gain.set_index("metric")
    mine, theirs = (result.metrics["reasoning_gap"][k] for k in (result.chosen, result.unconstrained))
    assert table.loc["reasoning_gap", "difference"] == pytest.approx((mine - theirs).mean())
    assert table.loc["reasoning_gap", "difference"] < 0
    approvals = {f"approval_rate[{name}]" for name in result.people.groups.names}
    assert set(table.index) == set(SEARCHED) - {"profit"} | approvals
    assert np.isfinite(table["confirmed_chosen"]).all()


def test_the_best_model_is_fitted_on_those_searched_on_and_audited_on_those_held_out(result):
    model = result.best_model
    assert isinstance(model, eh.CECClassifier)
    assert model.cec_weight == result.tried[result.chosen].parameters["cec_weight"]
    audit = result.audit(evidence=False)
    assert audit.provenance.n_people == len(result.people.confirming)
    assert audit.provenance.n_reference == len(result.people.searched)
    found = audit.to_dict()
    assert found["outcome"]["auc"] == pytest.approx(result.confirmation.candidates[0].metrics["auc"], abs=1e-6)
    assert found["cec"]["reasoning_gap"] == pytest.approx(
        result.confirmation.candidates[0].metrics["reasoning_gap"], abs=5e-3
    )


def test_a_grid_has_the_numbers_of_a_heatmap(result):
    table = result.grid("cec_weight", "epochs", "auc")
    assert table.index.tolist() == [0.0, 3.0]
    assert table.columns.tolist() == [6, 10]
    own = [k for k, c in enumerate(result.tried) if (c.parameters["cec_weight"], c.parameters["epochs"]) == (3.0, 10)]
    assert table.loc[3.0, 10] == pytest.approx(result.metrics["auc"][own].mean())
    with pytest.raises(InvalidInputError, match="names an unknown metric: 'acu'"):
        result.grid("cec_weight", "epochs", "acu")
    with pytest.raises(InvalidInputError, match=r"names columns absent from the data: \['epoch'\]"):
        result.grid("cec_weight", "epoch", "auc")


def test_a_stopped_search_goes_on_and_ends_the_same(given, tmp_path, monkeypatch):
    monkeypatch.setitem(networks._MEMBERS_PER_BLOCK, "cpu", 3)  # one candidate's folds a block
    space = {**QUICK, "cec_weight": [0.3, 1.0, 3.0]}
    whole = search(**given, space=space, keep=[])
    run, done = networks.Evaluator.score_networks, []

    def stop_in_the_third(self, block):
        done.append(block)
        if len(done) == 3:
            raise KeyboardInterrupt
        return run(self, block)

    monkeypatch.setattr(networks.Evaluator, "score_networks", stop_in_the_third)
    with pytest.raises(KeyboardInterrupt):
        search(**given, space=space, keep=[], checkpoint=tmp_path)
    assert len(list(tmp_path.iterdir())) == 2
    again = search(**given, space=space, keep=[], checkpoint=tmp_path)
    n_blocks = len(list(tmp_path.iterdir()))
    assert len(done) == 1 + n_blocks  # the interrupted block was run twice, those kept were not run again
    for name, values in whole.metrics.items():
        np.testing.assert_array_equal(again.metrics[name], values)
    assert again.chosen == whole.chosen


def test_blocks_of_other_people_or_settings_are_not_taken(given, tmp_path):
    search(**given, space=QUICK, keep=[], checkpoint=tmp_path)
    n_files = len(list(tmp_path.iterdir()))
    search(**{**given, "y": 1 - given["y"]}, space=QUICK, keep=[], checkpoint=tmp_path)
    search(**given, space=QUICK, keep=[], checkpoint=tmp_path, consistency_threshold=0.2)
    assert len(list(tmp_path.iterdir())) == 3 * n_files
    search(**given, space=QUICK, keep=[], checkpoint=tmp_path, alternatives=2, n_jobs=1)  # the same models
    assert len(list(tmp_path.iterdir())) == 3 * n_files


def test_epochs_of_one_training_are_the_models_trained_so_long(given, quick):
    both = search(**given, space={**QUICK, "epochs": [1, 2]}, keep=[])
    short = [c.number for c in both.tried if c.parameters["epochs"] == 1]
    np.testing.assert_allclose(both.metrics["auc"][short], quick.metrics["auc"], atol=1e-6)


def test_seeds_are_averaged(given, quick):
    two = search(**given, space=QUICK, keep=[], seeds=2)
    assert not np.allclose(quick.metrics["auc"], two.metrics["auc"])
    assert two.metrics["auc"].shape == quick.metrics["auc"].shape


def test_seeds_of_the_space_are_draws(given, quick):
    found = search(**given, space={**QUICK, "seed": [0, 1, 2]}, keep=[])
    assert [c.seed for c in found.tried if c.is_unconstrained] == [0, 1, 2]
    assert sorted(c.seed for c in found.tried if not c.is_unconstrained) == [0, 1, 2]
    assert found.stopping.n_draws == 3
    for alone in quick.tried:
        (same,) = [c.number for c in found.tried if c.key == alone.key]
        np.testing.assert_allclose(found.metrics["auc"][same], quick.metrics["auc"][alone.number], atol=1e-6)
    assert len(np.unique(found.metrics["reasoning_gap"].mean(1).round(8))) == 6
    assert found.best_model.random_state == found.tried[found.chosen].seed
    with pytest.raises(InvalidInputError, match=r"`seeds` averages over 2 seeds and `space\['seed'\]` searches"):
        search(**given, space={**QUICK, "seed": [0, 1]}, keep=[], seeds=2)


@pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")
def test_every_objective_can_be_minimized_with_three_groups(given, tmp_path):
    groups = np.array(["a", "b", "c"])[np.arange(len(given["y"])) % 3]
    asked = {**given, "sensitive_features": groups, "folds": 2, "family": "trees", "checkpoint": tmp_path}
    asked["space"] = {"max_leaf_nodes": [4], "max_iter": [8], "drop": [(), ("group",), ("other",)]}
    columns = [*given["X"].columns]
    for minimize in (
        "score_gap",
        "score_gap_parts",
        "score_gap[income]",
        "weighing",
        "excess_balanced",
        "eo_gap",
        "air",
    ):
        found = search(**asked, keep=["approval_rate[b] >= unconstrained * 0.5"], minimize=minimize)
        values = found.metrics[found.rule.minimize].mean(1)
        merit = values if minimize == "air" else -np.maximum(values, 0)
        assert merit[found.chosen] == merit.max()
    gaps = found.score_gaps
    assert gaps["group"].unique().tolist() == ["b", "c"]
    parts = gaps[gaps["through"].isin(columns)].groupby("group")["chosen"].sum()
    whole = gaps[(gaps["through"] == "in all") & (gaps["metric"] == "score_gap")].set_index("group")["chosen"]
    assert parts.to_numpy() == pytest.approx(whole.to_numpy())
    assert {"approval_rate[a]", "approval_rate[c]"} <= set(found.candidates.columns)


def test_a_candidate_that_diverges_is_noted_and_the_others_are_judged(given, monkeypatch):
    train = networks.train_stack

    def diverging(data, settings, *rest, **more):
        if any(rate > 1 for rate in settings.learning_rate):
            raise TrainingDivergedError("Training of member 0 diverged")
        return train(data, settings, *rest, **more)

    monkeypatch.setattr(networks, "train_stack", diverging)
    result = search(**given, space={**QUICK, "learning_rate": [3e-3, 5.0], "epochs": [1, 2]}, keep=[])
    failed = [c.number for c in result.tried if c.parameters["learning_rate"] == 5.0]
    assert sorted(result.notes) == failed
    assert result.candidates.loc[failed, "status"].tolist() == ["failed"] * len(failed)
    assert all("training diverged" in result.reasons[k] for k in failed)
    assert result.chosen not in failed
    assert not set(failed) & set(result.front)
    with pytest.raises(InvalidInputError, match="No candidate could be trained: training diverged"):
        search(**given, space={**QUICK, "learning_rate": [5.0]}, keep=[])


def test_where_no_candidate_meets_the_constraints_the_best_model_is_refused(given):
    result = search(**given, space=QUICK, keep=["auc >= 0.9999"])
    assert result.chosen is None
    with pytest.raises(InvalidInputError, match=r"None of the 2 candidates meets the constraints \['auc >= 0.9999'\]"):
        result.best_model  # noqa: B018 - a property
    assert result.to_dict()["cost_and_gain"] == []


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"minimize": "excesss"}, r"`minimize` names an unknown metric: 'excesss'. Did you mean 'excess'\?"),
        ({"minimize": "positive_rate"}, "`minimize` must be a metric for which less or more is better"),
        ({"keep": ["acu >= 1"]}, "names an unknown metric: 'acu'"),
        ({"seeds": 0}, "`seeds` must be a whole number of at least 1, got 0"),
        ({"alternatives": 0}, "`alternatives` must be a whole number of at least 1, got 0"),
        ({"keep": ["profit >= 0"]}, "'profit' needs `payoff`"),
        ({"minimize": "score_gap[incme]"}, r"names an unknown column: 'incme'. Did you mean 'income'\?"),
        ({"decision_threshold": 1.0}, "`decision_threshold` must be between 0 and 1, got 1.0"),
        ({"confirmation": 1.0}, "`confirmation` must be a share of at least 0 and below 1, got 1.0"),
        ({"folds": 1}, "`folds` must be a whole number of at least 2, got 1"),
        ({"device": "abacus"}, '`device` must be "auto", "cpu" or "cuda", got \'abacus\''),
        (
            {"financial_features": ["incme"]},
            r"names columns absent from the data: \['incme'\]. Did you mean 'income'\?",
        ),
    ],
)
def test_what_cannot_be_searched_is_refused(given, changes, message):
    with pytest.raises(InvalidInputError, match=message):
        search(**{**given, **changes}, space=QUICK)


def test_outputs_hold_the_same_numbers_and_escape_hostile_names(result, given, tmp_path):
    openpyxl = pytest.importorskip("openpyxl")
    X = given["X"].rename(columns={"other": "=1+1<script>alert(1)</script>"})
    changes = {"X": X, "financial_features": list(X.columns[:5])}
    found = search(**{**given, **changes}, space=QUICK, keep=[])
    page = found.to_html(tmp_path / "search.html").read_text(encoding="utf-8")
    assert "<script>alert" not in page
    assert "Why each was passed over" in page
    data = json.loads(found.to_json(tmp_path / "search.json").read_text())
    assert data["chosen"] == found.chosen
    assert data["candidates"][0]["metrics"]["auc"]["value"] == pytest.approx(found.metrics["auc"][0].mean())
    book = openpyxl.load_workbook(found.to_excel(tmp_path / "search.xlsx"))
    assert {"Candidates", "Cost and gain", "Score gaps", "Folds", "Settings", "Limits"} <= set(book.sheetnames)
    head, *rows = book["Candidates"].values
    assert [row[head.index("AUC")] for row in rows] == pytest.approx(found.metrics["auc"].mean(1).tolist())
    assert all(cell.data_type != "f" for sheet in book for row in sheet.iter_rows() for cell in row)
    assert "chosen" in repr(result)


@pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")
def test_a_metric_has_the_words_that_an_audit_has_for_it(quick):
    audit = quick.audit()
    words = {key: metric.words for key, metric in audit_metrics(audit.to_dict(), pairs=audit.pairs).items()}
    same = {"auc": "auc", "positive_rate": "positive rate", "excess": "excess", "reasoning_excess": "weighing",
            "excess_balanced": "excess_balanced", "excess_regime_b": "excess: regime B", "cec": "cec"}  # fmt: skip
    assert {name: METRICS[name].words for name in same} == {name: words[key] for name, key in same.items()}
    gaps = {text.partition(",")[0] for text in words.values() if text.startswith("score gap in")}
    assert {METRICS[name].words for name in ("score_gap", "probability_gap", "decision_gap")} == gaps
