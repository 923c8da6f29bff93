"""The workbook of a search, read back."""

from __future__ import annotations

import pytest

openpyxl = pytest.importorskip("openpyxl")


@pytest.fixture(scope="module")
def workbook(result, tmp_path_factory):
    return openpyxl.load_workbook(result.to_excel(tmp_path_factory.mktemp("search") / "search.xlsx"))


def rows_of(sheet):
    head, *rows = sheet.iter_rows(values_only=True)
    return [dict(zip(head, row, strict=True)) for row in rows]


def test_every_part_of_the_record_has_a_sheet(workbook):
    assert workbook.sheetnames == ["Candidates", "Cost and gain", "Folds", "Settings", "Limits"]


def test_a_candidate_stands_beside_its_reason(workbook, result):
    rows = rows_of(workbook["Candidates"])
    assert list(rows[0])[:4] == ["candidate", "status", "is_on_front", "reason"]
    assert [row["reason"] for row in rows] == list(result.reasons)
    assert [row["candidate"] for row in rows if row["is_on_front"]] == list(result.front)
    assert rows[1]["auc"] == pytest.approx(result.figures["auc"][1].mean())


def test_cost_and_gain_are_numbers(workbook, result):
    rows = rows_of(workbook["Cost and gain"])
    wanted = result.cost_and_gain
    assert [row["figure"] for row in rows] == wanted["figure"].tolist()
    for column in ("difference", "honest_difference", "confirmed_chosen"):
        assert [row[column] for row in rows] == pytest.approx(wanted[column].tolist())


def test_every_fold_of_every_figure_is_there(workbook, result):
    rows = rows_of(workbook["Folds"])
    assert len(rows) == len(result.tried) * len(result.figures) * result.settings.folds
    last = rows[-1]
    assert last["value"] == pytest.approx(result.figures[last["figure"]][last["candidate"], last["fold"]])
