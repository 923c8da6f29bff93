"""The page and the workbook of a search, read back."""

from __future__ import annotations

import html
import json
import re

import numpy as np
import pytest

from evenhand.metrics.names import metric_of
from evenhand.report.formatting import decimal
from evenhand.searching.choice import mean_interval
from evenhand.searching.page import search_page
from evenhand.searching.space import shown

from .conftest import QUICK, search

pytestmark = pytest.mark.integration  # whole searches are trained

SECTIONS = ["verdict", "question", "confirmed", "cost", "candidates", "reasons", "left", "limits"]


def sections_of(page):
    return re.findall(r'<section id="(\w+)"', page)


def charts_of(page):
    return json.loads(re.search(r'id="chart-data">(.*?)</script>', page, re.DOTALL)[1])["charts"]


@pytest.fixture(scope="module")
def page(result):
    return search_page(result.to_dict())


def test_the_sections_come_in_the_order_of_the_contents(page):
    assert sections_of(page) == re.findall(r'<li><a href="#(\w+)">', page) == SECTIONS


def test_the_verdict_has_the_means_of_both_candidates_and_the_honest_difference(result, page):
    verdict = page[page.index('<section id="verdict"') : page.index('<section id="question"')]
    gap = result.metrics["reasoning_gap"]
    assert f"a reasoning gap of {decimal(gap[result.chosen].mean())}" in verdict
    assert f"it is {decimal(gap[result.unconstrained].mean())}." in verdict
    row = result.cost_and_gain.set_index("metric").loc["reasoning_gap"]
    ends = f"from {decimal(row['honest_unconstrained'])} to {decimal(row['honest_chosen'])}"
    assert f"Reasoning gap: {ends}; difference {decimal(row['honest_difference'])}," in verdict


@pytest.mark.parametrize("prefix", ["", "honest_", "confirmed_"])
def test_a_difference_is_that_of_the_two_metrics_beside_it(result, prefix):
    table = result.cost_and_gain
    apart = table[f"{prefix}chosen"] - table[f"{prefix}unconstrained"]
    np.testing.assert_allclose(apart, table[f"{prefix}difference"], atol=1e-12)


def test_the_printed_start_end_and_difference_add_up(result, page):
    text = html.unescape(page).replace("\N{MINUS SIGN}", "-")
    printed = re.findall(r"from (-?[\d.]+) to (-?[\d.]+); difference (-?[\d.]+),", text)
    assert len(printed) == 5
    for before, after, difference in printed:
        assert float(after) - float(before) == pytest.approx(float(difference), abs=0.00151)


def test_every_candidate_and_reason_is_in_the_page(result, page):
    reasons = page[page.index('<section id="reasons"') : page.index('<section id="left"')]
    assert reasons.count('<th scope="row"') == len(result.tried)
    first = re.search(r'<th scope="row" class="n">(\d+)</th>', reasons)[1]
    assert int(first) == result.chosen
    points = [row for rows in charts_of(page)["frontier"]["datasets"].values() for row in rows]
    assert {row["candidate"] for row in points} == set(range(len(result.tried)))  # those with intervals come twice
    on_front = {row["candidate"] for row in points if row["is_on_front"]}
    assert on_front == set(result.front)


def test_a_gain_is_to_the_right_whichever_way_a_metric_is_better(result, page):
    table = result.cost_and_gain.set_index("metric")
    for axis, name, sign in (("utility", "auc", 1), ("procedure", "reasoning_gap", -1)):
        sets = charts_of(page)[f"gains-{axis}"]["datasets"].values()
        rows = [row for rows in sets for row in rows if "label" in row]
        row = next(row for row in rows if row["label"].lower() == metric_of(name).words.lower())
        assert row["value"] == pytest.approx(sign * table.loc[name, "honest_difference"])
        assert row["low"] <= row["value"] <= row["high"]


def test_what_people_held_out_say_is_in_the_verdict_and_in_a_table(result, page):
    verdict = page[page.index('<section id="verdict"') : page.index('<section id="question"')]
    assert all(sentence in html.unescape(verdict) for sentence in result.sentences)
    confirmed = page[page.index('<section id="confirmed"') : page.index('<section id="cost"')]
    assert confirmed.count('<th scope="row"') == 1 + len(result.rule.constraints)
    assert "held out: difference" in page


def test_a_constraint_that_is_missed_on_people_held_out_is_in_the_headline(result):
    data = result.to_dict()
    verdict = search_page(data).split('<section id="question"')[0]
    assert f"On people held out: {result.confirmation.candidates[0].objective.answer}." in verdict
    (limit,) = data["confirmation"]["candidates"][0]["limits"]
    limit["answer"] = "not confirmed"
    verdict = html.unescape(search_page(data).split('<section id="question"')[0])
    assert ", and misses auc >= best - 0.1." in verdict


def test_the_frontier_is_drawn_with_intervals(result, page):
    points = {row["candidate"]: row for rows in charts_of(page)["frontier"]["datasets"].values() for row in rows}
    on_line = sorted((row for row in points.values() if "place" in row), key=lambda row: row["place"])
    assert tuple(row["candidate"] for row in on_line) == result.frontier.candidates
    for k in {*result.frontier.candidates, result.chosen, result.unconstrained}:
        found = mean_interval(result.metrics["auc"][k], result.rule.test_share)
        assert (points[k]["utility_low"], points[k]["utility_high"]) == pytest.approx((found.low, found.high))


def test_warnings_of_approvals_are_in_the_verdict(result):
    data = {**result.to_dict(), "warnings": ["Candidate 3 approves nearly everyone."]}
    page = search_page(data)
    verdict = page[page.index('<section id="verdict"') : page.index('<section id="question"')]
    assert "Candidate 3 approves nearly everyone." in verdict


def test_a_search_without_a_choice_says_so_and_has_no_costs(given):
    page = search_page(search(**given, space=QUICK, keep=["auc >= 0.9999"]).to_dict())
    assert "None of the 2 candidates meets the constraints." in page
    assert sections_of(page) == [name for name in SECTIONS if name not in ("confirmed", "cost", "left")]


def test_a_search_that_finds_nothing_better_says_so(given):
    found = search(**given, space={**QUICK, "cec_weight": [0.0], "epochs": [1, 2]}, keep=[], minimize="auc")
    assert found.chosen == found.unconstrained
    page = search_page(found.to_dict())
    assert "The unconstrained candidate is chosen: none of 2 meets the constraints" in page
    assert sections_of(page) == [name for name in SECTIONS if name not in ("confirmed", "cost", "left")]


def test_two_folds_have_no_honest_differences_to_draw(given):
    page = search_page(search(**{**given, "folds": 2}, space=QUICK, keep=[]).to_dict())
    assert "there are too few folds for honest ones" in page
    assert page.count("There are too few folds for honest differences.") == 4
    assert list(charts_of(page)) == ["frontier"]


def test_every_reading_of_the_honest_difference_follows_its_interval(result):
    for row in result.cost_and_gain.itertuples():
        is_beyond = row.honest_low > 0 or row.honest_high < 0
        assert (row.honest_reading == "within noise") == (not is_beyond)


@pytest.mark.parametrize(
    ("value", "words"),
    [([64], "64"), (["a b", "c"], "a b and c"), ({"x": -1, "y": 1}, "x -1 and y +1"), (np.float64(0.5), "0.5")],
)
def test_a_parameter_is_shown_in_words(value, words):
    assert shown(value) == words


def test_what_is_left_to_gain_is_told_with_its_assumptions(result, page):
    left = page[page.index('<section id="left"') : page.index('<section id="limits"')]
    assert "constrained candidates of the space were tried" in left
    for assumption in result.stopping.assumptions:
        assert html.escape(assumption, quote=False) in left
    bounds = result.stopping.bounds
    assert left.count('<th scope="row"') == len(bounds)


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
    rows = [row for row in rows_of(workbook["Score gaps"]) if row["metric"] == "Score gap in log-odds"]
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
    assert [row["metric"].lower() for row in rows] == [metric_of(name).words.lower() for name in wanted["metric"]]
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
    assert len(rows) == len(result.tried) * len(result.shown) * result.settings.folds
    last = rows[-1]
    name = next(name for name in result.shown if metric_of(name).words == last["metric"])
    assert last["value"] == pytest.approx(result.metrics[name][last["candidate"], last["fold"]])
