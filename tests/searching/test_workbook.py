"""The workbook of a search, read back."""

from __future__ import annotations

import pytest

from evenhand.searching.metrics import metric_words

pytestmark = pytest.mark.integration  # whole searches are trained

openpyxl = pytest.importorskip("openpyxl")


@pytest.fixture(scope="module")
def workbook(result, tmp_path_factory):
    return openpyxl.load_workbook(result.to_excel(tmp_path_factory.mktemp("search") / "search.xlsx"))


def rows_of(sheet):
    head, *rows = sheet.iter_rows(values_only=True)
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_every_part_of_the_record_has_a_sheet(workbook):
    assert workbook.sheetnames == [
        "Findings", "Candidates", "Cost and gain", "Confirmation", "Score gaps", "Left to gain", "Folds", "Settings",
        "Limits",
    ]  # fmt: skip


def test_findings_are_the_sentences_of_the_result(workbook, result):
    assert [row["finding"] for row in rows_of(workbook["Findings"])] == [*result.sentences, *result.warnings]


def test_the_confirmation_has_a_row_for_the_objective_and_each_constraint(workbook, result):
    (of,) = result.confirmation.candidates
    rows = rows_of(workbook["Confirmation"])
    assert [row["answer"] for row in rows] == [of.objective.answer, *(limit.answer for limit in of.limits)]
    assert rows[0]["difference, or distance from the limit"] == pytest.approx(of.objective.difference.value)


def test_parts_of_the_score_gap_add_up_to_it(workbook):
    rows = [row for row in rows_of(workbook["Score gaps"]) if row["metric"] == "Score gap"]
    whole, *parts = (row["chosen"] for row in rows)
    assert sum(parts) == pytest.approx(whole)


def test_a_candidate_stands_beside_its_reason(workbook, result):
    rows = rows_of(workbook["Candidates"])
    assert list(rows[0])[:4] == ["candidate", "status", "on the front", "why"]
    assert [row["why"] for row in rows] == list(result.reasons)
    assert [row["candidate"] for row in rows if row["on the front"]] == list(result.front)
    assert rows[1]["AUC"] == pytest.approx(result.metrics["auc"][1].mean())


def test_cost_and_gain_are_numbers(workbook, result):
    rows = rows_of(workbook["Cost and gain"])
    wanted = result.cost_and_gain
    assert [row["metric"].lower() for row in rows] == [metric_words(name).lower() for name in wanted["metric"]]
    columns = {
        "difference": "difference",
        "honest difference": "honest_difference",
        "held out: chosen": "confirmed_chosen",
        "held out: difference": "confirmed_difference",
    }
    columns["honest difference, upper"] = "honest_high"
    for heading, column in columns.items():
        assert [row[heading] for row in rows] == pytest.approx(wanted[column].tolist())


def test_every_fold_of_every_metric_is_there(workbook, result):
    rows = rows_of(workbook["Folds"])
    assert len(rows) == len(result.tried) * len(result.told) * result.settings.folds
    last = rows[-1]
    name = next(name for name in result.told if metric_words(name) == last["metric"])
    assert last["value"] == pytest.approx(result.metrics[name][last["candidate"], last["fold"]])
