"""What a report says in words: one direction, one p-value for a statement, facts as facts, and what was audited."""

import json
import re
import zipfile
from functools import partial

import jsonschema
import numpy as np
import openpyxl
import pandas as pd
import pytest
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

import evenhand as eh
from evenhand.auditing.findings import findings_of
from evenhand.auditing.sections import load_schema
from evenhand.auditing.summary import upgraded
from evenhand.cli.app import app

pytestmark = pytest.mark.filterwarnings("ignore::evenhand.EvenhandWarning")
F = ["income", "debt"]


def people(n=600, seed=0):
    rng = np.random.default_rng(seed)
    group = rng.choice(["a", "b"], n)
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=["income", "debt", "tenure"])
    X["street"] = (group == "b") + rng.normal(0, 0.6, n)
    return X, group, rng


def finding(result, key):
    return next(one for one in result.to_dict()["findings"] if one["key"] == key)


def said(result, folder):
    """The text of the page, the memo, the workbook and the terminal."""
    result.to_html(folder / "a.html")
    result.to_word(folder / "a.docx")
    result.to_excel(folder / "a.xlsx")
    with zipfile.ZipFile(folder / "a.docx") as word:
        memo = re.sub("<[^>]+>", "", word.read("word/document.xml").decode())
    book = openpyxl.load_workbook(folder / "a.xlsx")
    cells = [str(cell) for sheet in book for row in sheet.iter_rows(values_only=True) for cell in row if cell]
    page = re.sub("<[^>]+>", "", (folder / "a.html").read_text())
    return {"page": page, "memo": memo, "workbook": " ".join(cells), "terminal": " ".join(str(result).split())}


# --- one direction ---


def risk(sign=1.0, seed=0):
    """A risk model that rates b riskier, or less risky."""
    X, group, rng = people(seed=seed)
    y = (X["debt"] - X["income"] + sign * X["street"] + rng.logistic(size=len(X)) > 0.4).astype(int)
    return eh.audit(LogisticRegression().fit(X, y), X, y, sensitive_features=group, financial_features=F,
                    favorable="low")  # fmt: skip


@pytest.mark.parametrize(("sign", "seed"), [(1.0, 0), (-1.5, 3)])
def test_a_risk_model_rates_people_riskier(sign, seed, tmp_path):
    result = risk(sign, seed)
    data = result.to_dict()
    scores = {row["group"]: row["mean_score"]["value"] for row in data["outcome"]["scores"]}
    worse, better = ("b", "a") if sign > 0 else ("a", "b")
    assert scores[worse] > scores[better]
    gap, inputs = finding(result, "score_gap"), finding(result, "inputs")
    assert "rated" in gap["sentence"]
    assert "riskier" in gap["headline"]
    assert gap["headline"].index(worse) < gap["headline"].rindex(better)
    assert f"against {worse}" in inputs["sentence"]
    assert f"makes applicants in group {worse} riskier" in inputs["headline"]
    assert data["verdict"]["direction"].startswith("The score is a risk")
    favorable = {row["group"]: row["n_positive_label"] for row in data["roc"]["groups"]}
    assert favorable == {row["group"]: row["n_positive_label"] for row in data["outcome"]["groups"]}
    assert {part["value"] for part in data["evidence"]["splits"] if part["split"] == "label"} == {
        "favorable",
        "unfavorable",
    }
    for output, words in said(result, tmp_path).items():
        assert data["verdict"]["direction"] in words, output
        assert not re.search(r"(?<!favorable )label [01]\b", words), output
        assert not re.search(r"scores? [\d.]+ (points|log-odds) (lower|higher)", words), output
        assert "lowers the score" not in words, output


def priced(favorable, seed=0, effect=0.35):
    X, group, rng = people(seed=seed)
    value = 5 + 0.3 * X["debt"] + effect * (group == "b") + rng.normal(0, 0.2, len(X))
    return eh.audit_given(X, None, sensitive_features=group, financial_features=F, scores=value,
                          unit="percentage points", favorable=favorable, regressions=True)  # fmt: skip


@pytest.mark.parametrize(("favorable", "is_worse"), [("low", True), ("high", False)])
def test_values_have_one_sign_in_a_report(favorable, is_worse, tmp_path):
    result = priced(favorable)
    data = result.to_dict()
    gap = data["score_gap"]
    value = gap["value"]["value"]
    assert value * (1 if gap["group"] == "b" else -1) == pytest.approx(0.35, abs=0.1)
    assert finding(result, "score_gap")["estimate"] == value
    rows = [row for row in data["regressions"]["rows"] if row["group"] == gap["group"] and row["outcome"] == "outcome"]
    assert len(rows) > 1
    assert all(row["effect"]["value"] * value > 0 for row in rows)
    worse, better = ("b", "a") if is_worse else ("a", "b")
    signed = f"({gap['group']} minus {gap['reference']}: {value:.3f},".replace("-", "−")
    told = f"{worse} is {abs(value):.3f} percentage points worse off than {better} {signed}"
    assert told in finding(result, "score_gap")["sentence"]
    assert finding(result, "score_gap")["headline"].startswith(f"{worse} is ")
    side = "above" if favorable == "low" else "below"
    assert f"{side} 0, the group is worse off" in said(result, tmp_path)["page"]


def test_audits_of_risks_are_compared_with_their_direction():
    found = eh.compare_audits({"old": risk(1.0), "new": risk(-1.5)})
    assert found.sentences[0].startswith("The score is a risk")
    assert found.to_dict()["directions"] == [found.sentences[0]]


# --- one p-value, one interval ---


@pytest.fixture(scope="module")
def plain():
    X, group, rng = people(400)
    y = (X["income"] - X["debt"] + rng.logistic(size=len(X)) > 0).astype(int)
    X["street"] = rng.normal(size=len(X))
    model = LogisticRegression().fit(X, y)
    return eh.audit(model, X, y, sensitive_features=group, financial_features=F)


@pytest.mark.parametrize(("smallest", "shown"), [(0.0175, "p = 0.070"), (0.2, "p = 0.800")])
def test_no_shows_the_p_value_that_decided(plain, smallest, shown):
    data = plain.to_dict()
    for row in data["evidence"]["cec"], data["evidence"]["reasoning_gap"]:
        row |= {"value": 0.0, "low": -0.1, "high": 0.1, "p_value": 0.9, "standard_error": 0.05}
    for gap in data["score_gaps"]:
        gap |= {"p_adjusted": 0.9, "smallest_p": smallest}
        gap["features"] = [{**row, "p_adjusted": max(smallest, 0.05)} for row in gap["features"]]
    inputs = next(one for one in findings_of(data) if one.key == "inputs")
    assert inputs.answer == "no"
    assert f"(adjusted {shown}, for 4 inputs" in inputs.sentence
    assert len(re.findall(r"p [=<>]", inputs.sentence)) == 1


@pytest.mark.parametrize("seed", [0, 5])
def test_an_approval_gap_of_two_groups_has_one_interval(seed):
    data = risk(1.0, seed).to_dict()["outcome"]
    row = next(row for row in data["approvals"]["groups"] if not row["is_reference"])
    apart, gap = row["rate_difference_group_minus_reference_pp"], data["gaps"]["sp_gap"]
    ends = sorted(abs(apart[end]) / 100 for end in ("low", "high"))
    assert (gap["low"], gap["high"]) == pytest.approx(ends)


# --- headlines ---


def test_the_headline_says_who_is_worse_off_in_approvals_and_points():
    X, group, rng = people(2_000)
    y = (X["income"] - X["debt"] - X["street"] + rng.logistic(size=len(X)) > -0.5).astype(int)
    result = eh.audit(LogisticRegression().fit(X, y), X, y, sensitive_features=group, financial_features=F)
    gap = result.to_dict()["score_gap"]
    n, points = abs(round(1000 * gap["decision"]["value"])), abs(100 * gap["probability"]["value"])
    assert result.to_dict()["verdict"]["headline"] == (
        f"Of 1,000 applicants in group b, about {n} fewer are approved than of comparable applicants in group a; "
        f"scores {points:.1f} points lower"
    )
    value, low, high = (100 * gap["decision"][end] for end in ("value", "low", "high"))
    told = f"{value:.1f} points in approvals ({low:.1f} to {high:.1f})".replace("-", "−")
    assert told in finding(result, "score_gap")["sentence"]
    assert f"({gap['group']} minus {gap['reference']}: " in finding(result, "score_gap")["sentence"]


def test_of_several_groups_the_headline_names_the_largest_clear_harm():
    rng = np.random.default_rng(1)
    n = 3_000
    group = rng.choice(["a", "b", "c"], n, p=[0.55, 0.4, 0.05])
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=["income", "debt", "tenure"])
    X["street"] = np.select([group == "b", group == "c"], [0.5, 1.6], 0.0) + rng.normal(0, 0.3, n)
    model = LogisticRegression().fit(X, (X["income"] - X["debt"] + rng.logistic(size=n) > 0).astype(int))
    model.coef_[0, 3] = -1.0
    y = (rng.random(n) < model.predict_proba(X)[:, 1]).astype(int)
    data = eh.audit(model, X, y, sensitive_features=group, financial_features=F).to_dict()
    gaps = {(gap["group"], gap["reference"]): gap for gap in data["score_gaps"]}
    assert min(gaps, key=lambda pair: abs(gaps[pair]["total"]["value"])) == ("b", "a")
    inputs = next(one for one in data["findings"] if one["key"] == "inputs")
    named = data["score_gap"]["group"], data["score_gap"]["reference"]
    assert inputs["estimate"] == next(row for row in gaps[named]["features"] if row["feature"] == "street")["value"]
    assert {data["score_gap"]["group"], data["score_gap"]["reference"]} == {"c", "a"}
    assert "of 1,000 applicants in group c" in data["verdict"]["headline"]


def test_nothing_found_says_what_may_still_be_there(plain):
    decided = plain.to_dict()["score_gap"]["decision"]
    low, high = (round(1000 * decided[end]) for end in ("low", "high"))
    assert low < 0 < high
    assert f"({-low} fewer to {high} more): not more than chance" in plain.to_dict()["verdict"]["headline"]
    prices = priced("low", effect=0.0)
    gap = prices.to_dict()["score_gap"]
    ends = " to ".join(f"{gap['value'][end]:.3f}".replace("-", "−") for end in ("low", "high"))
    assert (
        f"({gap['group']} minus {gap['reference']}: {ends}): not more than chance"
        in finding(prices, "score_gap")["headline"]
    )


# --- a direct use is a fact ---


@pytest.mark.parametrize("kind", ["number", "category"])
def test_a_direct_use_is_named_whatever_the_tests_say(kind):
    X, group, rng = people(240)
    X["sex"] = group == "b"
    y = (X["income"] - X["debt"] + rng.logistic(size=len(X)) > 0).astype(int)
    model = LogisticRegression().fit(X[[*F, "tenure", "street", "sex"]].astype(float), y)
    model.coef_[0, 3:] = 0.0, 0.01
    X["sex"] = X["sex"].astype(float)
    given = pd.Series(group, name="sex" if kind == "number" else None)
    result = eh.audit(model, X, y, sensitive_features=given, financial_features=F)
    start = "The model uses sex directly" if kind == "number" else "The model uses the group directly, through sex"
    assert result.to_dict()["verdict"]["headline"].startswith(f"{start}: it moves scores by about 0.2 points")
    assert finding(result, "score_gap")["answer"] == "no"
    assert finding(result, "inputs")["answer"] == "yes"
    model.coef_[0, 4] = 0.0
    unused = eh.audit(model, X, y, sensitive_features=given, financial_features=F)
    assert "directly" not in unused.to_dict()["verdict"]["headline"]
    assert finding(unused, "inputs")["answer"] == "no"
    described = eh.audit(model, X, y, sensitive_features=given, financial_features=F, evidence=False)
    assert "directly" not in described.to_dict()["verdict"]["headline"]
    model.coef_[0, 4] = 0.3
    described = eh.audit(model, X, y, sensitive_features=given, financial_features=F, evidence=False)
    assert described.to_dict()["verdict"]["headline"] == f"{start}; not compared with noise"


# --- what says nothing is not shown ---


@pytest.mark.parametrize("kind", [LogisticRegression, partial(GradientBoostingClassifier, n_estimators=8)])
def test_means_that_are_0_by_construction_are_not_shown(kind):
    X, group, rng = people(300)
    y = (X["income"] - X["debt"] - X["street"] + rng.logistic(size=len(X)) > 0).astype(int)
    result = eh.audit(kind().fit(X, y), X, y, sensitive_features=group, financial_features=F, evidence=False)
    means = [name for name in result.features if name.startswith("mean attribution")]
    assert means == ([] if kind is LogisticRegression else ["mean attribution: a", "mean attribution: b"])
    assert ("mean_attribution_a" in result.tables["features"]) == bool(means)


# --- the review ---


@pytest.mark.parametrize("evidence", [True, False])
def test_who_is_worse_off_at_equal_finances_is_reviewed_first(evidence, tmp_path):
    """b has higher incomes, and is approved more often; at equal finances, it is approved less often."""
    X, group, rng = people(1_500)
    X["income"] += 1.5 * (group == "b")
    y = (X["income"] - X["debt"] + rng.logistic(size=len(X)) > 0).astype(int)
    model = LogisticRegression().fit(X, y)
    model.coef_, model.intercept_ = np.array([[1.0, -1.0, 0.0, -0.6]]), np.zeros(1)
    result = eh.audit(model, X, y, sensitive_features=group, financial_features=F, evidence=evidence)
    rates = {row.group: row.approval_rate.value for row in result.outcome.approvals.groups}
    assert rates["b"] > rates["a"]
    review = result.review()
    assert set(review["group"]) == {"b" if evidence else "a"}
    assert set(review["decision"]) == {0}
    number = next(number for number in review["person"] if number >= 1_000)
    result.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert f">{number}<" in page
    assert f">{number:,}<" not in page


# --- what was audited ---


def test_every_output_names_what_was_audited(tmp_path):
    X, group, rng = people(300)
    table = X.assign(sex=group, region=rng.choice(["n", "s"], len(X)), family=np.arange(len(X)) // 2, remark=1.0)
    table["paid"] = np.where(X["income"] - X["debt"] + rng.logistic(size=len(X)) > 0, "yes", "no")
    table.to_csv(tmp_path / "loans.csv", index=False)
    out = tmp_path / "out"
    arguments = ["audit", str(tmp_path / "loans.csv"), "--label", "paid", "--positive-label", "yes", "--group", "sex",
                 "--financial", "income,debt", "--by", "region", "--clusters", "family", "--drop", "remark,region",
                 "--decision-threshold", "0.6", "--memo", "--out", str(out)]  # fmt: skip
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    document = json.loads((out / "audit.json").read_text())
    jsonschema.validate(document, load_schema())
    assert document["data"]["files"] == {"data file": "loans.csv"}
    assert document["data"]["columns"] == {
        "label": ["paid"], "favorable label": ["yes"], "group": ["sex"], "by": ["region"], "clusters": ["family"],
        "dropped": ["remark", "region"],
    }  # fmt: skip
    with zipfile.ZipFile(out / "memo.docx") as word:
        memo = re.sub("<[^>]+>", " ", word.read("word/document.xml").decode())
    book = openpyxl.load_workbook(out / "audit.xlsx")
    cells = " ".join(str(cell) for row in book["Audited"].iter_rows(values_only=True) for cell in row if cell)
    page = re.sub("<[^>]+>", " ", (out / "report.html").read_text())
    named = ("loans.csv", "paid", "yes", "sex", "region", "family", "remark", "0.6", "income")
    for output in (memo, cells, page, done.output):
        assert [name for name in named if name not in output] == []


def test_a_column_of_scores_is_named_and_not_said_to_be_dropped(tmp_path):
    X, group, rng = people(200)
    X.assign(sex=group, rate=5 + rng.normal(size=len(X)), note=1.0).to_csv(tmp_path / "prices.csv", index=False)
    arguments = ["audit", str(tmp_path / "prices.csv"), "--group", "sex", "--financial", "income,debt", "--scores",
                 "rate", "--unit", "%", "--favorable", "low", "--drop", "note", "--out", str(tmp_path)]  # fmt: skip
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 0, done.output
    named = json.loads((tmp_path / "audit.json").read_text())["data"]["columns"]
    assert named == {"group": ["sex"], "dropped": ["note"], "scores": ["rate"]}


def test_in_python_the_names_of_series_are_known_and_arrays_have_none():
    X, group, rng = people(200)
    y = pd.Series((X["income"] + rng.logistic(size=len(X)) > 0).astype(int), name="repaid")
    model = LogisticRegression().fit(X, y)
    options = {"financial_features": F, "evidence": False}
    named = eh.audit(model, X, y, sensitive_features=pd.DataFrame({"sex": group}), **options).provenance.columns
    assert named == {"favorable label": ["1"], "label": ["repaid"], "group": ["sex"]}
    arrays = eh.audit(model, X, y.to_numpy(), sensitive_features=group, **options).provenance.columns
    assert arrays == {"favorable label": ["1"]}


# --- yes or no ---


@pytest.mark.parametrize("n_small", [2, 5])
def test_where_anyone_can_be_compared_the_answer_is_yes_or_no(n_small):
    X, *_ = people(300)
    group = np.where(np.arange(300) < n_small, "few", "many")
    y = np.arange(300) % 2
    result = eh.audit(LogisticRegression().fit(X, y), X, y, sensitive_features=group, financial_features=F,
                      favorable="high")  # fmt: skip
    assert result.to_dict()["score_gap"]["group"] in ("few", "many")
    assert finding(result, "score_gap")["answer"] in ("yes", "no")
    assert finding(result, "inputs")["answer"] in ("yes", "no")


def test_where_no_one_can_be_compared_neither_is_answered():
    X, _, rng = people(300)
    y = (X["income"] + rng.logistic(size=300) > 0).astype(int)
    group = np.where(y == 1, "good", "bad")
    result = eh.audit(LogisticRegression().fit(X, y), X, y, sensitive_features=group, financial_features=F)
    assert finding(result, "score_gap")["answer"] == "open"
    assert finding(result, "inputs")["answer"] == "open"


def test_a_price_audit_of_the_previous_version_is_read_with_the_sign_of_this_one():
    new = json.loads(json.dumps(priced("low").to_dict(), default=str))
    old = json.loads(json.dumps(new))
    old["schema"] = "evenhand.audit/2"
    for gap in old["score_gaps"]:
        gap["total"] |= {
            end: -gap["total"][other] for end, other in (("value", "value"), ("low", "high"), ("high", "low"))
        }
    read = upgraded(old)["score_gaps"][0]["total"]
    assert {k: read[k] for k in ("value", "low", "high")} == {
        k: new["score_gaps"][0]["total"][k] for k in ("value", "low", "high")
    }
