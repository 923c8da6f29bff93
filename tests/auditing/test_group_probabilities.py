"""Audits of people whose groups are known as probabilities."""

import json
import math
from dataclasses import replace
from pathlib import Path

import jsonschema
import numpy as np
import openpyxl
import pandas as pd
import pytest
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.auditing.draws import of_draw
from evenhand.auditing.fitted import as_seen_by
from evenhand.auditing.identity import is_same_people
from evenhand.auditing.options import AuditOptions
from evenhand.auditing.sections import load_schema
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.people import People
from evenhand.models.dispatch import as_audited_model
from studies.probabilities import CELLS, ProbabilityCell, probability_rows, probability_table
from studies.run import run_audits

F = ["income", "debt"]


def world(n=240, seed=0):
    """A model, people, and the probability of their group."""
    rng = np.random.default_rng(seed)
    proxy = rng.normal(size=n)
    probability = 1 / (1 + np.exp(-3 * proxy))
    X = pd.DataFrame(
        {"income": rng.normal(size=n), "debt": rng.normal(size=n), "street": proxy + rng.normal(size=n)},
        index=[f"P{k}" for k in range(n)],
    )
    y = (X["income"] - X["debt"] + 0.5 * X["street"] + rng.logistic(size=n) > 0).astype(int)
    P = pd.DataFrame({"white": 1 - probability, "black": probability}, index=X.index)
    return LogisticRegression().fit(X, y), X, y, P


@pytest.fixture(scope="module")
def people():
    return world()


@pytest.fixture(scope="module")
def pooled(people):
    model, X, y, P = people
    return eh.audit(model, X, y, sensitive_features=eh.GroupProbabilities(P, n_draws=3), financial_features=F)


def drawn_names(people, number):
    """The groups of a draw, as an audit with the seed 0 draws them."""
    model, X, y, P = people
    found = seen(model, People.of(X, y, eh.GroupProbabilities(P, n_draws=3)))
    return of_draw(found, found, number, 0)[0].group_of_each


def seen(model, checked):
    return as_seen_by(as_audited_model(model, table=checked.table), checked, AuditOptions())


def metrics_of(summary):
    return {
        (row["metric"], row["group"], row["reference"], row["feature"]): row
        for row in summary["drawn_groups"]["metrics"]
    }


def test_pooled_numbers_are_means_of_audits_of_the_draws(people, pooled):
    model, X, y, _ = people
    audits = [
        eh.audit(model, X, y, sensitive_features=drawn_names(people, m), financial_features=F).to_dict()
        for m in range(3)
    ]
    found, rows = pooled.to_dict(), metrics_of(pooled.to_dict())
    sides = [(a["score_gaps"][0]["group"], a["score_gaps"][0]["reference"]) for a in audits]
    sign = [1 if side == sides[0] else -1 for side in sides]

    def held(name, values, errors):
        assert rows[name]["value"] == pytest.approx(np.mean(values))
        assert rows[name]["within_sd"] == pytest.approx(np.sqrt(np.mean(np.square(errors))))
        assert rows[name]["between_sd"] == pytest.approx(np.std(values, ddof=1))

    totals = [a["score_gaps"][0]["total"] for a in audits]
    values = [s * t["value"] for s, t in zip(sign, totals, strict=True)]
    held(("score_gap", *sides[0], ""), values, [t["standard_error"] for t in totals])
    excess = [a["evidence"]["cec"] for a in audits]
    held(("excess", "", "", ""), [e["value"] for e in excess], [e["standard_error"] for e in excess])
    assert found["regimes"]["B"] == pytest.approx(np.mean([a["regimes"]["B"] for a in audits]))
    assert found["cec"]["mean"] == pytest.approx(np.mean([a["cec"]["mean"] for a in audits]))
    assert found["evidence"]["placebo_mean"] == pytest.approx(np.mean([a["evidence"]["placebo_mean"] for a in audits]))
    street = [
        s * next(f["value"] for f in a["score_gaps"][0]["features"] if f["feature"] == "street")
        for s, a in zip(sign, audits, strict=True)
    ]
    assert rows["input", *sides[0], "street"]["value"] == pytest.approx(np.mean(street))


def test_findings_and_tables_state_the_pooled_numbers(pooled):
    found, rows = pooled.to_dict(), metrics_of(pooled.to_dict())
    gap = found["score_gaps"][0]
    sides = (gap["group"], gap["reference"])
    row = rows["score_gap", *sides, ""]
    finding = next(one for one in found["findings"] if one["key"] == "score_gap")
    assert (finding["estimate"], *finding["ci"]) == (row["value"], row["low"], row["high"])
    assert sum(f["value"] for f in gap["features"]) == pytest.approx(row["value"], abs=1e-6)
    approval = next(r for r in found["outcome"]["approvals"]["groups"] if not r["is_reference"])
    ratio = rows["approval_ratio", approval["group"], found["outcome"]["approvals"]["reference"], ""]
    shown = approval["approval_ratio_group_over_reference"]
    assert (shown["value"], shown["low"], shown["high"]) == (ratio["value"], ratio["low"], ratio["high"])
    assert found["outcome"]["sp_gap"] == rows["sp_gap", "", "", ""]["value"]
    assert "comes from the first draw" in found["warnings"][0]


def test_parts_of_finances_are_not_tested_in_draws_either(people):
    _, X, y, P = people
    model = GradientBoostingClassifier(n_estimators=30, random_state=0).fit(X, y)  # finances interact with the street
    drawn = eh.GroupProbabilities(P, n_draws=2)
    found = eh.audit(model, X, y, sensitive_features=drawn, financial_features=F).to_dict()["score_gaps"][0]
    parts = {row["feature"]: row for row in found["features"]}
    assert any(parts[name]["value"] for name in F)
    assert {name for name, row in parts.items() if np.isnan(row["p_adjusted"])} == set(F)


def test_probabilities_of_0_and_1_give_the_audit_of_known_groups(people):
    model, X, y, P = people
    group = np.where(P["black"] > 0.5, "black", "white")
    sure = pd.DataFrame({name: (group == name).astype(float) for name in ("white", "black")}, index=X.index)
    known = eh.audit(model, X, y, sensitive_features=group, financial_features=F).to_dict()
    found = eh.audit(
        model, X, y, sensitive_features=eh.GroupProbabilities(sure, n_draws=3), financial_features=F
    ).to_dict()
    rows = found["drawn_groups"]["metrics"]
    assert all(row["between_sd"] == 0 and row["missing_information"] == 0 for row in rows)
    for part in ("cec", "regimes", "reasons", "matching", "evidence", "score_gap", "score_gaps", "proxies", "findings"):
        _assert_same(found[part], known[part], part)
    approvals = [[{**row, "test": ""} for row in one["outcome"]["approvals"]["groups"]] for one in (found, known)]
    _assert_same(*approvals, "approvals")
    _assert_same(found["outcome"]["gaps"], known["outcome"]["gaps"], "gaps")


def _assert_same(found, known, path):
    if isinstance(known, dict):
        for name in known:
            _assert_same(found[name], known[name], f"{path}/{name}")
    elif isinstance(known, (list, tuple)):
        assert len(found) == len(known), path
        for k, value in enumerate(known):
            _assert_same(found[k], value, f"{path}/{k}")
    elif isinstance(known, (int, float)) and not isinstance(known, bool):
        assert found == pytest.approx(known, rel=1e-9, abs=1e-12, nan_ok=True), path
    else:
        assert found == known, path


def test_thresholding_is_the_audit_of_those_who_are_likely_enough(people, pooled):
    model, X, y, P = people
    sure = (P.max(axis=1) >= 0.8).to_numpy()
    group = P.idxmax(axis=1).to_numpy()
    known = eh.audit(model, X[sure], y[sure], sensitive_features=group[sure], financial_features=F).to_dict()
    found, rows = pooled.to_dict(), metrics_of(pooled.to_dict())
    gap, other = known["score_gaps"][0], found["score_gaps"][0]
    sign = 1 if gap["group"] == other["group"] else -1
    key = ("score_gap", other["group"], other["reference"], "")
    assert rows[key]["thresholding"] == pytest.approx(sign * gap["total"]["value"])
    assert rows["excess", "", "", ""]["thresholding"] == pytest.approx(known["evidence"]["cec"]["value"])
    assert found["drawn_groups"]["n_left_out"] == (~sure).sum()


def test_the_order_of_the_people_plays_no_part(people, pooled):
    model, X, y, P = people
    order = np.random.default_rng(3).permutation(len(X))
    moved = eh.audit(
        model,
        X.iloc[order],
        y.iloc[order],
        sensitive_features=eh.GroupProbabilities(P, n_draws=3),  # put in order by the index
        financial_features=F,
    )
    for name, row in metrics_of(pooled.to_dict()).items():
        assert metrics_of(moved.to_dict())[name]["value"] == pytest.approx(row["value"], abs=1e-6, nan_ok=True), name
    assert moved.to_dict()["data"]["fingerprint"] == pooled.to_dict()["data"]["fingerprint"]


def test_rows_of_one_cluster_are_drawn_alike(people):
    model, X, y, P = people
    clusters = np.repeat(np.arange(1, len(X) // 2 + 1), 2)
    found = seen(model, People.of(X, y, eh.GroupProbabilities(P * 0 + 0.5), clusters=clusters))
    codes = of_draw(found, found, 1, 0)[0].groups.codes
    assert (codes[::2] == codes[1::2]).all()
    assert 0 < codes.mean() < 1


def test_a_reference_needs_probabilities_of_the_same_groups(people):
    model, X, y, P = people
    probable = eh.GroupProbabilities(P, n_draws=2)
    options = {"financial_features": F, "evidence": False}
    with pytest.raises(InvalidInputError, match=r"both have groups.*probabilities of \['black', 'white'\] and groups"):
        eh.audit(model, X, y, sensitive_features=probable, reference=(X, y, drawn_names(people, 0)), **options)
    found = eh.audit(model, X, y, sensitive_features=probable, reference=(X, y, probable), **options)
    assert found.drawn_groups["n_draws"] == 2
    assert found.to_dict()["data"]["n_reference"] == len(X)


def test_too_few_rows_are_refused(people):
    model, X, y, P = people
    with pytest.raises(InvalidInputError, match="probabilities of 200 people for 240 rows"):
        eh.audit(model, X, y, sensitive_features=eh.GroupProbabilities(P.iloc[:200]), financial_features=F)


def test_page_workbook_and_json_show_the_draws(pooled, tmp_path):
    pooled.to_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text("utf-8")
    for words in ("Groups known as probabilities", "missing information", "thresholding"):
        assert words in page
    assert page.count("whatever is not in the table of pooled metrics comes from the first draw") >= 6
    pooled.to_excel(tmp_path / "audit.xlsx")
    sheet = openpyxl.load_workbook(tmp_path / "audit.xlsx")["Drawn groups"]
    rows = list(sheet.values)
    place = next(k for k, row in enumerate(rows) if "pooled" in row)
    values = [row[rows[place].index("pooled")] for row in rows[place + 1 :]]
    expected = [row["value"] for row in pooled.to_dict()["drawn_groups"]["metrics"]]
    assert values == pytest.approx(expected, abs=1e-9)
    pooled.to_json(tmp_path / "audit.json")
    document = json.loads((tmp_path / "audit.json").read_text("utf-8"))
    jsonschema.Draft202012Validator(load_schema()).validate(document)
    assert document["drawn_groups"]["n_draws"] == 3


def test_three_groups_without_evidence():
    model, X, y, P = world(300, seed=4)
    three = pd.DataFrame({"a": P["white"] * 0.7, "b": P["white"] * 0.3, "c": P["black"]})
    found = eh.audit(
        model,
        X,
        y,
        sensitive_features=eh.GroupProbabilities(three, n_draws=4),
        financial_features=F,
        evidence=False,
    ).to_dict()
    assert found["evidence"] is None
    assert sum(found["regimes"].values()) == pytest.approx(1.0)
    differences = [row for row in found["drawn_groups"]["metrics"] if row["metric"] == "approval_difference"]
    assert len(differences) == 2
    assert all(math.isfinite(row["value"]) and row["low"] < row["value"] < row["high"] for row in differences)
    assert sum(found["drawn_groups"]["expected"].values()) == pytest.approx(300)


@pytest.mark.integration
def test_comparisons_know_the_people_whatever_was_drawn(people, pooled):
    model, X, y, P = people
    other = eh.audit(
        model, X, y, sensitive_features=eh.GroupProbabilities(P, n_draws=3), financial_features=F, random_state=9
    )
    assert is_same_people(pooled.to_dict()["data"], other.to_dict()["data"])
    gap = next(
        change
        for change in eh.compare_audits({"one": pooled, "other": other}).changes
        if change.key.startswith("score_gap:")
    )
    apart = [found.to_dict()["score_gaps"][0]["total"]["standard_error"] for found in (pooled, other)]
    assert gap.standard_error < 0.8 * np.hypot(*apart)  # what both have in common is known by the influences


OUTCOMES = ("approval_difference", "mean_score_difference")


@pytest.mark.slow
def test_intervals_of_outcomes_hold_the_truth_and_rubins_are_wider():
    # Forty small audits: at a coverage of 95%, fewer than 33 hold the truth in 1 of 1,000 cases.
    cell = replace(CELLS[1], n_people=200, n_draws=5)
    found = {name: [] for name in OUTCOMES}
    for replicate in range(40):
        X, probability, y, _ = cell.people(replicate)
        model = LogisticRegression().fit(X, y)
        model.coef_, model.intercept_ = np.array([[1.0, -0.8, 1.0]]), np.zeros(1)
        probable = eh.GroupProbabilities(pd.DataFrame({"a": 1 - probability, "b": probability}), n_draws=5)
        result = eh.audit(
            model, X, y, sensitive_features=probable, financial_features=F, favorable="high", evidence=False
        )
        for row in result.drawn_groups["metrics"]:
            if (name := row["metric"]) in OUTCOMES:
                turned = 1 if row["group"] == "b" else -1
                found[name].append((turned * cell.truth[name], row))
    for name, rows in found.items():
        assert sum(row["low"] <= truth <= row["high"] for truth, row in rows) >= 33, name
        assert all(row["rubin_high"] - row["rubin_low"] > row["high"] - row["low"] for _, row in rows)


def test_the_page_shows_the_coverage_that_was_measured():
    docs = Path(__file__).parents[2] / "docs"
    measured = pd.read_csv(docs / "results" / "group-probabilities" / "coverage.csv")
    assert probability_table(measured.to_dict("records")) in (docs / "group-probabilities.md").read_text("utf-8")
    holds = measured[measured["world"].isin(["through the proxies", "nothing"])]
    for metric in ("score_gap", *OUTCOMES):
        rows = holds[holds["metric"] == metric]
        assert 0.93 <= np.average(rows["coverage"], weights=rows["audits"]) <= 0.97


@pytest.mark.slow
def test_coverage_is_93_to_97_percent_where_the_assumption_holds(tmp_path):
    cells = [cell for cell in CELLS if cell.world in ("through the proxies", "nothing")]
    rows = pd.DataFrame(probability_rows(cells, run_audits(cells, 140, tmp_path / "audits.jsonl", n_jobs=2)))
    for metric in ("score_gap", "approval_difference", "mean_score_difference"):
        assert 0.93 <= rows.loc[rows["metric"] == metric, "coverage"].mean() <= 0.97
    assert (rows["coverage_rubin"] >= rows["coverage"]).all()


@pytest.mark.slow
def test_where_the_assumption_fails_pooling_is_too_small(tmp_path):
    cells = [cell for cell in CELLS if cell.world in ("beyond the proxies", "the group alone")]
    rows = pd.DataFrame(probability_rows(cells, run_audits(cells, 40, tmp_path / "audits.jsonl", n_jobs=2)))
    assert (rows["value"] < 0.9 * rows["truth"]).all()
    alone = rows[(rows["world"] == "the group alone") & (rows["metric"] == "approval_difference")]
    np.testing.assert_allclose(alone["group_alone"], alone["truth"], rtol=0.1)


def test_the_truth_of_a_world_is_that_of_a_large_sample():
    for cell in (CELLS[1], ProbabilityCell("beyond the proxies", 4.0)):
        X, _, _, group = replace(cell, n_people=400_000).people(0)
        score = X.to_numpy() @ [1.0, -0.8, 1.0]
        is_in = group == "b"
        for name, values in (
            ("score_gap", X["third"].to_numpy()),
            ("approval_difference", score >= 0),
            ("mean_score_difference", 1 / (1 + np.exp(-score))),
        ):
            assert values[is_in].mean() - values[~is_in].mean() == pytest.approx(cell.truth[name], abs=0.01)
