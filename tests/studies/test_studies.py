"""The studies of calibration and power: known truth, lines that can be added to, tables, and their quick versions."""

import json
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from scipy.stats import binom, binomtest

import evenhand as eh
from evenhand.exceptions import InvalidInputError
from studies import calibration, power
from studies import worlds as models
from studies.power import ALTERNATIVES
from studies.run import (
    CALIBRATION,
    POWER,
    calibration_rows,
    calibration_tables,
    is_too_often,
    power_rows,
    read_audits,
    run_audits,
    run_study,
)
from studies.study import FINDINGS, TESTS, _holding_zero_at_once, chosen_cells, read_audit
from studies.worlds import (
    BIASES,
    Groups,
    People,
    audited_people,
    biased_inputs,
    biased_model,
    blind_model,
    draw_groups,
    fitting_rows,
    population,
)

# --- people ---


@pytest.mark.parametrize("groups", [Groups(draw, 0.3) for draw in ("random", "logistic", "non-linear")], ids=str)
def test_groups_depend_on_label_and_finances_only(groups):
    people = population("own").rows(np.arange(2000))
    shuffled = people.X.copy()
    shuffled[people.others] = people.X[people.others].to_numpy()[::-1]
    members = draw_groups(groups, people, np.random.default_rng(0))
    again = draw_groups(groups, People(shuffled, people.y, people.finances), np.random.default_rng(0))
    np.testing.assert_array_equal(members, again)
    assert members.mean() == pytest.approx(0.3, abs=0.03)


@pytest.mark.parametrize("draw", ["logistic", "non-linear"])
def test_groups_that_are_not_drawn_by_lot_can_be_told_from_finances_and_label(draw):
    from sklearn.ensemble import RandomForestClassifier
    from sklearn.model_selection import cross_val_score

    people = population("own").rows(np.arange(2000))
    members = draw_groups(Groups(draw), people, np.random.default_rng(0))
    known = people.X[list(people.finances)].assign(label=people.y)
    forest = RandomForestClassifier(50, min_samples_leaf=20, random_state=0)
    assert cross_val_score(forest, known, members, scoring="roc_auc", cv=3).mean() > 0.6


def test_five_groups_have_their_sizes():
    people = population("own").rows(np.arange(1000))
    assert np.bincount(draw_groups(Groups(n=5), people, np.random.default_rng(0))).tolist() == [350, 250, 200, 120, 80]
    bent = draw_groups(Groups("non-linear", n=5), people, np.random.default_rng(0))
    assert (np.bincount(bent, minlength=5) > 30).all()


def test_real_features_leave_out_what_tells_the_group():
    assert not [column for column in population("german").X if column.startswith("personal_status")]
    X = population("german").X
    np.testing.assert_allclose(X.mean(), 0, atol=1e-5)
    np.testing.assert_allclose(X.std(ddof=0), 1, atol=1e-4)


# --- models ---


@pytest.fixture
def planted():
    """A function: weights of the first group, and what the second's have over them, by input."""

    def weights(bias):
        model = biased_model("german", bias, 0)
        return model.weight.numpy().astype(float), model.weight_difference.numpy().astype(float)

    return weights


def test_a_half_swap_moves_the_two_heaviest_and_the_two_lightest_inputs_halfway(planted):
    people = population("german")
    fair, change = planted("half swap")
    changed = np.flatnonzero(np.abs(change) > 1e-6)
    names = people.X.columns[changed]
    assert len(changed) == 4
    assert set(names) <= set(people.others)
    other = [people.X.columns.get_loc(name) for name in people.others]
    by_size = sorted(other, key=lambda k: abs(fair[k]))
    assert set(changed) == {*by_size[:2], *by_size[-2:]}
    np.testing.assert_allclose(np.sort(fair + 2 * change), np.sort(fair), atol=1e-6)


@pytest.mark.parametrize(("bias", "kept"), [("halved", 0.5), ("none", 1.0), ("stand-in 65", 1.0), ("direct", 1.0)])
def test_other_inputs_keep_a_part_of_their_weight(bias, kept, planted):
    people = population("german")
    fair, change = planted(bias)
    is_financial = people.X.columns.isin(people.finances)
    np.testing.assert_allclose((fair + change)[is_financial], fair[is_financial], atol=1e-6)
    np.testing.assert_allclose((fair + change)[~is_financial], kept * fair[~is_financial], atol=1e-6)


def test_a_canceling_bias_doubles_one_weight(planted):
    fair, change = planted("canceling")
    (changed,) = np.flatnonzero(np.abs(change) > 1e-6)
    assert population("german").X.columns[changed] in population("german").others
    assert change[changed] == pytest.approx(fair[changed])


@pytest.mark.parametrize(("bias", "right"), [("stand-in 80", 0.8), ("stand-in 65", 0.65)])
def test_a_stand_in_agrees_with_the_group_and_makes_the_gap_of_direct_use(bias, right):
    X = population("own").X[:10_000]
    group = np.arange(10_000) % 2
    inputs = biased_inputs(bias, X, group, np.random.default_rng(0))
    assert "group" not in inputs
    assert (inputs["stand_in"] == group).mean() == pytest.approx(right, abs=0.02)
    model = biased_model("own", bias, 0)
    with_it, without = (torch.tensor(inputs.assign(stand_in=np.float32(k)).to_numpy()) for k in (1, 0))
    np.testing.assert_allclose((2 * right - 1) * (model(with_it) - model(without)), -0.3, atol=1e-4)


def test_a_segment_is_treated_differently_and_the_others_are_not():
    people = population("german")
    model = biased_model("german", "one segment", 0)
    sides = [torch.tensor(people.X.assign(group=np.float32(k)).to_numpy()) for k in (1, 0)]
    apart = (model(sides[0]) - model(sides[1])).numpy().ravel()
    in_segment = people.X[people.finances[0]].to_numpy() > 0
    np.testing.assert_allclose(apart[in_segment], -0.6, atol=1e-5)
    np.testing.assert_allclose(apart[~in_segment], 0, atol=1e-5)


def test_trees_learn_the_bias_of_their_labels_through_a_stand_in():
    X = population("german").X
    learned = biased_model("german", "learned", 0)
    with_it, without = (learned.predict_proba(X.assign(stand_in=np.float32(k)))[:, 1] for k in (1, 0))
    assert (with_it - without).mean() < -0.02


def test_models_that_are_blind_have_no_input_for_the_group():
    assert blind_model("german", "logistic", 0).coef_.shape == (1, population("german").X.shape[1])
    assert blind_model("german", "network", 0)[0].in_features == population("german").X.shape[1]


def test_models_are_audited_on_people_they_were_not_fitted_to_where_there_are_enough():
    def keys(people):
        return set(people.X["finance_1"].tolist())  # continuous: one value each

    fitted = population("own").rows(fitting_rows("own", 3))
    audited = audited_people("own", 3, 1000, np.random.default_rng(0))
    assert len(fitted) == 2000
    assert len(keys(audited)) == 1000
    assert not keys(audited) & keys(fitted)
    assert len(audited_people("german", 3, 1000, np.random.default_rng(0))) == 1000
    assert not np.array_equal(fitting_rows("own", 3), fitting_rows("own", 4))


# --- what is read of an audit ---


@pytest.fixture(scope="module")
def result():
    planted = eh.make_planted_bias(300, 0.6, group_share=0.4)
    data = planted.dataset
    return eh.audit(
        planted.model, data.X, data.y, sensitive_features=data.group, financial_features=data.financial_features[:3]
    )


def test_readings_are_what_the_audit_says(result):
    line, found = read_audit(result), result.to_dict()
    assert set(line["p"]) == set(TESTS)
    assert line["p"]["excess"] == pytest.approx(found["cec"]["p_value"], rel=1e-4)
    assert line["p"]["weighing"] == pytest.approx(found["cec"]["weighing_p_value"], rel=1e-4)
    assert line["p"]["score_gap_decision"] == pytest.approx(found["score_gap"]["decision"]["p_value"], rel=1e-4)
    assert line["p"]["worst_pair"] is None  # two groups have one pair
    assert line["found"] == {f["key"]: f["answer"] == "yes" for f in found["findings"]}
    assert line["p"]["any"] == pytest.approx(min(f["p_adjusted"] for f in found["findings"]), rel=1e-4)
    assert line["regime_b_share"] == pytest.approx(found["regimes"]["B"], rel=1e-4)
    assert json.loads(json.dumps(line)) == line


def test_intervals_are_counted_by_whether_they_hold_0(result):
    counts = read_audit(result)["intervals"]
    low, high = result.to_dict()["cec"]["weighing_ci"]
    assert counts["weighing"] == [int(low <= 0 <= high), 1]
    features = [f.estimate for f in result.evidence.score_gaps[0].features if f.estimate.low < f.estimate.high]
    assert counts["inputs"] == [int(all(f.low <= 0 <= f.high for f in features)), 1]


def test_intervals_of_inputs_hold_0_at_once_in_each_gap():
    holds, misses, exact = {"low": -1, "high": 1}, {"low": 1, "high": 2}, {"low": 0, "high": 0}
    assert _holding_zero_at_once([[holds, exact], [holds, misses], [misses], [exact]]) == [1, 3]


def test_what_is_0_by_construction_is_not_tested():
    people = population("own").rows(np.arange(300))
    group = draw_groups(Groups(), people, np.random.default_rng(0))
    model = blind_model("own", "logistic", 0)
    line = read_audit(
        eh.audit(model, people.X, people.y, sensitive_features=group, financial_features=list(people.finances))
    )
    assert line["p"]["weighing"] is None  # a linear model weighs alike
    assert line["intervals"]["weighing"] == [0, 0]
    assert line["intervals"]["inputs"][1] == 1


# --- running ---


@dataclass(frozen=True)
class Coin:
    """A cell that costs nothing: a number that depends on the cell and the data set alone."""

    name: str
    left_out: str = ""

    def audit(self, replicate):
        return {"draw": len(self.name) * 1000 + replicate}


COINS = [Coin("penny"), Coin("quarter")]


def test_a_run_that_was_killed_in_the_middle_of_a_line_goes_on(tmp_path):
    whole = run_audits(COINS, 45, tmp_path / "whole.jsonl")
    assert [line["draw"] for line in whole["penny"]] == list(range(5000, 5045))
    text = (tmp_path / "whole.jsonl").read_text()
    cut = tmp_path / "cut.jsonl"
    cut.write_text(text[: len(text) // 2 + 3])
    assert run_audits(COINS, 45, cut) == whole
    lines = cut.read_text().splitlines()
    assert len(lines) == 2 * 45 + 1  # each data set once, and the line that was cut


def test_cells_take_turns(tmp_path):
    run_audits(COINS, 45, tmp_path / "audits.jsonl")
    order = [json.loads(line)["cell"] for line in (tmp_path / "audits.jsonl").read_text().splitlines()]
    assert order == (["penny"] * 20 + ["quarter"] * 20) * 2 + ["penny"] * 5 + ["quarter"] * 5


def test_no_audit_is_begun_when_time_is_up(tmp_path):
    assert run_audits(COINS, 5, tmp_path / "audits.jsonl", minutes=0) == {"penny": [], "quarter": []}


def test_fewer_data_sets_than_the_file_holds_are_read_from_it(tmp_path):
    path = tmp_path / "audits.jsonl"
    run_audits(COINS, 5, path)
    assert len(run_audits(COINS, 2, path)["penny"]) == 2
    assert len(read_audits(path)["penny"]) == 5


@pytest.mark.integration
@pytest.mark.slow
def test_the_number_of_processes_changes_nothing(tmp_path):
    cells = [calibration.CalibrationCell("own", kind, Groups(), 100) for kind in ("logistic", "network")]
    alone, together = (run_audits(cells, 2, tmp_path / f"{n}.jsonl", n_jobs=n) for n in (1, 2))
    for lines in (*alone.values(), *together.values()):
        for line in lines:
            assert line.pop("seconds") > 0
    assert alone == together


@pytest.mark.parametrize(
    ("given", "named"),
    [({"n_jobs": 0}, "n_jobs"), ({"replicates": 0}, "replicates"), ({"minutes": -1}, "minutes")],
)
def test_numbers_out_of_range_are_refused(given, named, tmp_path):
    with pytest.raises(InvalidInputError, match=named):
        run_audits(COINS, **{"replicates": 1, "path": tmp_path / "audits.jsonl", **given})


def test_cells_are_chosen_by_parts_of_their_names():
    assert [cell.name for cell in chosen_cells(COINS, ["art"])] == ["quarter"]
    assert chosen_cells(COINS, []) == tuple(COINS)
    with pytest.raises(InvalidInputError, match="no name contains 'dime'"):
        chosen_cells(COINS, ["penny", "dime"])


# --- cells ---


def test_the_study_of_errors_holds_every_kind_of_cell():
    cells = calibration.CELLS
    assert len({cell.name for cell in cells}) == len(cells)
    kinds = {(cell.source, cell.model, cell.groups.draw) for cell in cells}
    for source in ("own", "german", "adult", "hmda", "taiwan"):
        for model in ("logistic", "network", "boosted"):
            assert {(source, model, draw) for draw in ("random", "logistic", "non-linear")} <= kinds
    assert {cell.groups.sizes for cell in cells if cell.groups.n == 2} == {"50/50", "80/20", "95/5", "98/2", "70/30"}
    assert any(cell.model == "black box" for cell in cells)
    assert {cell.has_reference for cell in cells} == {True, False}
    assert {cell.groups.n for cell in cells} == {2, 5}


def test_every_bias_is_looked_for_in_every_source_and_share():
    assert len({cell.name for cell in power.CELLS}) == len(power.CELLS) == 4 * len(BIASES) * 4


def test_audits_with_a_reference_are_made():
    cell = calibration.CalibrationCell("own", "logistic", Groups(share=0.4), 100, has_reference=True)
    assert cell.audit(0)["p"]["excess"] is not None


# --- tables ---


@pytest.mark.parametrize("count", [20, 28, 36, 37, 38, 60])
def test_an_ordinary_cell_misses_when_chance_does_not_explain_what_is_above_7_percent(count):
    share = {"share": count / 400, "n": 400, "error": 0.0}
    expected = bool(binomtest(count, 400, 0.07, alternative="greater").pvalue < 0.05)
    assert is_too_often(share, is_hard=False) is expected
    assert is_too_often(share, is_hard=True) is (count > 40)


@dataclass(frozen=True)
class Made(Coin):
    is_hard: bool = False


def _lines(p_values):
    return [
        {
            "p": dict.fromkeys(TESTS, p),
            "intervals": dict.fromkeys(TESTS, [0, 0] if p is None else [3 + (p > 0.05), 4]),
            "seconds": 1.0,
        }
        for p in p_values
    ]


def test_rows_hold_shares_with_their_monte_carlo_errors():
    p = (np.arange(200) + 0.5) / 200
    (row,) = calibration_rows([Made("a/b")], {"a/b": _lines(p.tolist())})
    assert row["alarms"]["excess"] == {"share": 0.05, "n": 200, "error": pytest.approx(np.sqrt(0.05 * 0.95 / 200))}
    held = np.where(p > 0.05, 1, 0.75)
    assert row["coverage"]["excess"]["share"] == pytest.approx(held.mean())
    assert row["coverage"]["excess"]["error"] == pytest.approx(held.std(ddof=1) / np.sqrt(200))


def test_tables_are_bold_where_a_target_is_missed():
    fine = ((np.arange(200) + 0.5) / 200).tolist()
    squared = [value**2 for value in fine]
    rows = calibration_rows([Made("a/b"), Made("c/d")], {"a/b": _lines(fine), "c/d": _lines(squared)})
    summary, cells, _ = calibration_tables(rows).split("\n\n")
    assert summary.count("| **13.8 ± 1.7** |") == len(TESTS)  # the mean of 5 and 22.5%
    first, second = cells.splitlines()[2:]
    assert "**" not in first
    assert second.count("**22.5 ± 3.0**") == len(TESTS)


def test_a_test_that_was_never_made_has_no_share():
    (row,) = calibration_rows([Made("a/b")], {"a/b": _lines([None])})
    assert row["alarms"]["excess"]["n"] == 0
    assert not is_too_often(row["alarms"]["excess"], is_hard=True)


def test_a_page_gets_its_tables_between_its_marks(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- tables: begin -->\nyesterday\n<!-- tables: end -->\nafter\n")
    for _ in range(2):
        run_study(
            CALIBRATION, tmp_path, quick=True, cells=["own/logistic"], replicates=2, page=page, say=lambda text: None
        )
    text = page.read_text()
    assert text.startswith("before\n<!-- tables: begin -->\n\n1 cells, 2 datasets each")
    assert text.endswith("<!-- tables: end -->\nafter\n")
    assert "yesterday" not in text
    assert len(json.loads((tmp_path / "calibration.json").read_text())["rows"]) == 1


def test_a_page_without_marks_is_refused_before_anything_is_run(tmp_path):
    page = tmp_path / "page.md"
    page.write_text("no marks")
    with pytest.raises(InvalidInputError, match="tables: begin"):
        run_study(CALIBRATION, tmp_path, quick=True, page=page, say=lambda text: None)
    assert not (tmp_path / "calibration.jsonl").exists()


def test_a_cell_that_cannot_be_run_is_left_out_with_a_sentence(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "find_spec", lambda name: None)
    said = []
    with pytest.raises(InvalidInputError, match=r"No cell of 7 can be run here: explaining boosted trees"):
        run_study(CALIBRATION, tmp_path, cells=["german/boosted"], say=said.append)
    assert said == ["7 cells are left out: explaining boosted trees needs numba: install evenhand[trees]"]


# --- the quick studies ---


@pytest.fixture(scope="module")
def errors(tmp_path_factory):
    return run_study(CALIBRATION, tmp_path_factory.mktemp("calibration"), quick=True, say=lambda text: None)


@pytest.mark.integration
@pytest.mark.parametrize("test", [test for test in TESTS if test != "worst_pair"])
@pytest.mark.slow
def test_false_alarms_are_as_rare_as_they_should_be(test, errors):
    """No more alarms than one run in a thousand has at 7%; seeds are fixed."""
    alarms = [row["alarms"][test] for row in errors if row["alarms"][test]["n"]]
    n = sum(share["n"] for share in alarms)
    assert n >= 20
    assert sum(share["share"] * share["n"] for share in alarms) <= binom.isf(1e-3, n, 0.07)


@pytest.mark.integration
@pytest.mark.parametrize("test", ["score_gap", "inputs", "weighing", "excess", "balanced"])
@pytest.mark.slow
def test_intervals_hold_the_truth(test, errors):
    covered = [row["coverage"][test] for row in errors if row["coverage"][test]["n"]]
    n = sum(share["n"] for share in covered)
    held = sum(share["share"] * share["n"] for share in covered)
    assert n >= 20
    assert held >= binom.ppf(1e-3, n, 0.93)


@pytest.mark.integration
@pytest.mark.slow
def test_a_planted_bias_is_found_and_even_handed_models_are_not_accused(tmp_path):
    rows = {row["bias"]: row for row in run_study(POWER, tmp_path, quick=True, say=lambda text: None)}
    assert rows["half swap"]["found"]["weighing"]["share"] == 1
    assert rows["half swap"]["found"]["any"]["share"] == 1
    assert rows["none"]["found"]["any"]["share"] <= 3 / 8
    assert rows["none"]["found"]["weighing"]["share"] == 0
    assert "former_excess" in rows["none"]["alternatives"]
    assert set(FINDINGS) < set(rows["none"]["found"])


def test_power_rows_take_any_of_the_four():
    cell = power.PowerCell("german", "halved", 0.2)
    said = dict.fromkeys(FINDINGS, False)
    line = {"found": {**said, "weighing": True}, "alternatives": dict.fromkeys(ALTERNATIVES, 0.5)}
    lines = [{**line, "regime_b_share": 0.5, "seconds": 1.0}] * 3
    (row,) = power_rows([cell], {cell.name: [*lines, {**lines[0], "found": said}]})
    assert row["found"]["any"]["share"] == row["found"]["weighing"]["share"] == 0.75
