"""Audits of every method: score gap and weighing beside what an audit of the same model says."""

import csv
import io
from dataclasses import replace

import numpy as np
import pytest
from scipy import stats

import evenhand as eh
from evenhand.exceptions import InvalidInputError
from evenhand.research.methods import NetworkSettings, make_method
from evenhand.research.reproduction.protocol import ProtocolSettings, ResultRow, ResultStore, prepare_folds
from studies.__main__ import main
from studies.gaps import GAP_NAMES, audited_metrics, compare_gaps, run_gaps, table_gaps

pytestmark = pytest.mark.integration

SETTINGS = ProtocolSettings.quick(n_folds=2, epochs=10, hidden=(8, 4), learning_rate=1e-2)


@pytest.fixture(scope="module")
def data():
    return eh.load_dataset("synthetic", n=400)


def gap_rows(method, values, run="r", **weights):
    """A result of each fold: the score gap as given, everything else 0.1."""
    metrics = {**dict.fromkeys(GAP_NAMES, 0.1), "n_train": 80.0, "n_test": 20.0}
    return [
        ResultRow("german", method, fold, run, {**metrics, "score_gap": value}, **weights)
        for fold, value in enumerate(values)
    ]


def test_metrics_are_those_of_an_audit_of_the_model_on_the_test_fold(data):
    fold = prepare_folds(data, SETTINGS).folds[0]
    found = audited_metrics(make_method("unconstrained", SETTINGS.network(0), data.financial_features), data, fold)
    method = make_method("unconstrained", SETTINGS.network(0), data.financial_features)
    train, test = ((data.X.iloc[r].reset_index(drop=True), data.y[r], data.group[r]) for r in (fold.train, fold.test))
    method.fit(train[0], train[1], sensitive_features=train[2])
    audited = eh.audit(
        method.audited_model(),
        test[0],
        test[1],
        sensitive_features=test[2],
        financial_features=list(data.financial_features),
        reference=train,
        favorable="high",
    ).to_dict()
    sign = 1 if audited["score_gap"]["group"] == min(data.group.astype(str)) else -1
    assert found["score_gap"] == pytest.approx(sign * audited["score_gap"]["logit"]["value"])
    assert found["probability_gap"] == pytest.approx(sign * audited["score_gap"]["probability"]["value"])
    assert found["weighing"] == pytest.approx(audited["cec"]["weighing_excess"])
    assert (found["n_train"], found["n_test"]) == (len(fold.train), len(fold.test))


def test_decisions_are_the_methods_and_not_those_of_the_score(data):
    fold = prepare_folds(data, SETTINGS).folds[0]
    settings = NetworkSettings(hidden=(8, 4), epochs=10, learning_rate=1e-2)
    plain, hardt = (
        audited_metrics(make_method(name, settings, data.financial_features), data, fold)
        for name in ("unconstrained", "hardt")
    )
    assert hardt["score_gap"] == pytest.approx(plain["score_gap"])
    assert hardt["decision_gap"] != pytest.approx(plain["decision_gap"])


def test_a_second_run_trains_nothing_again(data, tmp_path, monkeypatch):
    store = ResultStore(tmp_path / "gaps.jsonl")
    first = run_gaps(data, ["unconstrained", "cec"], SETTINGS, store)
    monkeypatch.setattr("studies.gaps.audited_metrics", None)
    again = run_gaps(data, ["unconstrained", "cec"], SETTINGS, ResultStore(store.path))
    assert [row.metrics for row in again] == [row.metrics for row in first]
    assert {(row.method, row.fold) for row in first} == {(m, f) for m in ("unconstrained", "cec") for f in (0, 1)}


def test_the_table_has_means_and_paired_differences_with_intervals():
    plain, other = np.array([0.5, 0.4, 0.6, 0.5]), np.array([0.2, 0.1, 0.35, 0.2])
    rows = [
        *gap_rows("unconstrained", plain[:2], "r0", cec_weight=0.0, equalized_odds_weight=0.0),
        *gap_rows("unconstrained", plain[2:], "r1", cec_weight=0.0, equalized_odds_weight=0.0),
        *gap_rows("fairshap", other[2:], "r1"),
        *gap_rows("fairshap", other[:2], "r0"),
    ]
    found = {(r["method"], r["metric"]): r for r in csv.DictReader(io.StringIO(table_gaps(rows, SETTINGS).to_csv()))}
    mine = found["fairshap", "score_gap"]
    error = np.sqrt((1 / 4 + 0.25) * (other - plain).var(ddof=1))  # Nadeau and Bengio, 4 folds, a test share of 1/4
    half = stats.t.ppf(0.975, 3) * error
    assert float(mine["mean"]) == pytest.approx(other.mean())
    assert float(mine["less_unconstrained"]) == pytest.approx((other - plain).mean())
    assert float(mine["less_unconstrained_low"]) == pytest.approx((other - plain).mean() - half, abs=1e-5)
    assert found["unconstrained", "score_gap"]["less_unconstrained"] == ""
    assert "-0.288 [" in table_gaps(rows, SETTINGS).to_markdown()


def test_a_method_that_lacks_a_fold_is_not_held_against_the_network():
    rows = gap_rows("unconstrained", [0.5], cec_weight=0.0, equalized_odds_weight=0.0) + gap_rows("hardt", [0.2, 0.3])
    assert table_gaps(rows, SETTINGS).body[1][-2:] == ("", "")


def test_what_cannot_be_compared_is_named(data, tmp_path):
    three = replace(data, group=np.array(["a", "b", "c", "d"])[np.arange(len(data.y)) % 4])
    with pytest.raises(InvalidInputError, match=r"between two groups; synthetic has 4"):
        run_gaps(three, ["unconstrained"], SETTINGS, ResultStore(tmp_path / "gaps.jsonl"))
    with pytest.raises(InvalidInputError, match=r"`repeats` \(--repeats\) must be at least 1, got 0"):
        compare_gaps("german", repeats=0)


def test_the_command_writes_the_table(tmp_path, monkeypatch, capsys):
    words = ["gaps", "--methods", "unconstrained", "--folds", "2", "--quick", "--out", str(tmp_path)]
    monkeypatch.setattr("sys.argv", ["studies", *words])
    main()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "gaps.jsonl",
        "table_gaps.csv",
        "table_gaps.md",
        "table_gaps.tex",
    ]
    assert "do not quote it" in (tmp_path / "table_gaps.md").read_text("utf-8")
    assert "Score gap" in capsys.readouterr().out
