"""The findings and the verdict: strongest first, never blind, and in plain words."""

import copy
import json
import math

import jsonschema
import numpy as np
import openpyxl
import pandas as pd
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.auditing.findings import beyond_limit, findings_of, headline_of, verdict
from evenhand.auditing.sections import load_schema

FORBIDDEN = ("fair", "discriminat", "biased")


@pytest.fixture
def data(result):
    return copy.deepcopy(result.to_dict())


def quiet(data):
    """Nothing to find: every p-value is large, and no input predicts the group."""
    for gap in data["score_gaps"]:
        gap["p_adjusted"] = gap["smallest_p"] = 0.6
        for row in gap["features"]:
            row["p_adjusted"] = 0.7
    for name in ("cec", "reasoning_gap"):
        data["evidence"][name] |= {"value": 0.001, "low": -0.01, "high": 0.012, "p_value": 0.4}
    for row in data["proxies"]["features"]:
        row["auc"] = 0.55
    data["data"]["group_columns"] = []
    return data


def test_all_four_questions_are_answered_strongest_first(data):
    findings = findings_of(data)
    assert {one.key for one in findings} == {"score_gap", "inputs", "weighing", "excess"}
    assert findings[0].key == "inputs"  # the model uses the group directly
    found = [one.p_adjusted for one in findings[1:] if one.answer == "yes" and one.key != "score_gap"]
    assert found == sorted(found)
    assert [one.answer for one in findings] == sorted((one.answer for one in findings), key=["yes", "no", "open"].index)


def test_the_inputs_of_the_score_gap_sum_to_it(data):
    (inputs,) = [one for one in findings_of(data) if one.key == "inputs"]
    assert sum(part.estimate for part in inputs.features) == pytest.approx(
        data["score_gap"]["logit"]["value"], abs=1e-6
    )


def test_p_values_are_adjusted_over_the_four(data):
    for one in findings_of(data):
        assert one.p_value <= one.p_adjusted <= 1


def test_nothing_found_says_what_could_have_been_found(data):
    quiet(data)["score_gaps"][0]["decision"] |= {"value": -0.007, "low": -0.016, "high": 0.003}
    findings = findings_of(data)
    assert {one.answer for one in findings} == {"no"}
    assert headline_of(findings) == (
        "Of 1,000 applicants in group 1, about 7 fewer would be approved than of comparable applicants in group 0 (16 "
        "fewer to 3 more): not more than chance"
    )
    data["score_gaps"][0]["decision"] |= {"high": -0.001}
    assert headline_of(findings_of(data)).endswith("(16 to 1 fewer); their scores differ by no more than chance")
    data["score_gaps"][0]["decision"] |= {"value": 0.0, "high": 0.016}
    assert "about as many would be approved as of comparable" in headline_of(findings_of(data))
    words = {one.key: one.sentence for one in findings}
    assert "would have been found in 80% of audits" in words["score_gap"]
    assert "would have been found in 80% of audits" in words["weighing"]
    assert "too small to matter" not in " ".join(words.values())


def test_an_input_that_predicts_the_group_and_moves_scores_is_found_whatever_the_rest_says(data):
    quiet(data)
    row = data["score_gaps"][0]["features"][0]
    row |= {"value": 0.2, "low": 0.1, "high": 0.3}
    next(p for p in data["proxies"]["features"] if p["feature"] == row["feature"])["auc"] = 0.97
    first = findings_of(data)[0]
    assert (first.key, first.answer) == ("inputs", "yes")
    assert f"{row['feature']} moves scores by about {first.sizes[0].value:.1f} points of probability" in first.headline
    assert 0 < first.sizes[0].value < 25 * 0.2  # points of probability: p (1 - p) is at most 1/4
    assert "predicts the group with AUC 0.97" in first.sentence


def test_a_negative_excess_is_a_difference_in_spread(data):
    quiet(data)["evidence"]["cec"] |= {"value": -0.03, "low": -0.05, "high": -0.01, "p_value": 0.999}
    (excess,) = [one for one in findings_of(data) if one.key == "excess"]
    assert "differ in spread" in excess.sentence


def test_what_was_not_estimated_is_open_and_says_why(data):
    nan = math.nan
    data["evidence"]["cec"] |= {"value": nan, "low": nan, "high": nan, "p_value": nan, "note": "only 4 people"}
    (excess,) = [one for one in findings_of(data) if one.key == "excess"]
    assert (excess.answer, excess.sentence) == ("open", "Whether explanations differ is not known: only 4 people.")


def test_without_evidence_nothing_is_concluded(without_evidence):
    summary = without_evidence.to_dict()
    assert summary["findings"] == []
    fact = "The model uses the group directly, through group"
    assert summary["verdict"]["headline"] == f"{fact}; not compared with noise"
    assert "not known" in summary["verdict"]["sentences"][1][1]
    assert "supports no conclusion" in summary["verdict"]["limits"]


def test_constant_decisions_come_before_praise(data):
    data["outcome"]["notes"]["positive_rate"] = "decisions are constant"
    found = verdict(data, findings_of(quiet(data)))
    assert found.headline.endswith("decisions hardly vary")
    assert "does not speak for the model" in found.limits


def test_no_sentence_says_what_only_a_court_can(data):
    for summary in (data, quiet(copy.deepcopy(data))):
        found = verdict(summary, findings_of(summary))
        text = " ".join([found.headline, found.limits, *(sentence for _, sentence in found.sentences)]).lower()
        assert not any(word in text for word in FORBIDDEN)


def people(rng, n=1500):
    group = rng.integers(0, 2, n)
    X = pd.DataFrame(rng.normal(size=(n, 4)), columns=["income", "debt", "tenure", "region"])
    y = (X["income"] - X["debt"] + X["tenure"] + rng.normal(size=n) > 0).astype(int)
    return X, y, group


def test_a_stand_in_for_the_group_leads_the_report(rng):
    X, y, group = people(rng)
    X["region"] = group + 0.05 * rng.normal(size=len(X))
    model = LogisticRegression().fit(X, y)
    model.coef_[0, 3] = -0.4
    summary = eh.audit(model, X, y, sensitive_features=np.array(["a", "b"])[group],
                       financial_features=["income", "debt"]).to_dict()  # fmt: skip
    first = summary["findings"][0]
    assert first["key"] == "inputs"
    assert summary["verdict"]["headline"].startswith("The model uses the group directly, through region: of 1,000")
    row = next(row for row in first["features"] if row["feature"] == "region")
    sign = 1 if summary["score_gap"]["group"] == "a" else -1
    assert row["estimate"] == pytest.approx(0.4 * sign, abs=0.03)  # the stand-in is 1 apart and weighs 0.4
    weighing = next(one for one in summary["findings"] if one["key"] == "weighing")
    assert weighing["sentence"] == "The model weighs the same inputs the same way for everyone."


def test_every_pair_of_groups_has_its_gap(rng):
    X, y, _ = people(rng, 900)
    group = rng.choice(["a", "b", "c"], 900)
    result = eh.audit(LogisticRegression().fit(X, y), X, y, sensitive_features=group, financial_features=["income"])
    gaps = result.to_dict()["score_gaps"]
    assert len({frozenset((gap["group"], gap["reference"])) for gap in gaps}) == 3
    assert all(gap["p_adjusted"] >= gap["total"]["p_value"] for gap in gaps)


# --- limits: the size, beside the evidence ---


def with_gap(data, low, high):
    """The score gap of every pair of groups with such an interval."""
    for gap in data["score_gaps"]:
        value, error = (low + high) / 2, (high - low) / 2 / stats.t.ppf(0.975, 200)
        gap["total"] |= {"value": value, "low": low, "high": high, "standard_error": error, "df": 200.0,
                         "p_value": 2 * stats.t.sf(abs(value / error), 200)}  # fmt: skip
    return data


def score_gap_of(data, limit):
    data["settings"]["limits"] = {"score_gap": limit}
    return next(one for one in findings_of(data) if one.key == "score_gap")


@pytest.mark.parametrize(
    ("low", "high", "limit", "within", "says"),
    [
        (-0.08, -0.02, 0.1, "yes", "The gap is below 0.1, the limit you set."),
        (0.02, 0.08, 0.1, "yes", "The gap is below 0.1, the limit you set."),
        (-0.3, -0.2, 0.1, "no", "The gap is above 0.1, the limit you set."),
        (0.2, 0.3, 0.1, "no", "The gap is above 0.1, the limit you set."),
        (-0.12, -0.02, 0.1, "open", "Whether the gap is below 0.1, the limit you set, is open."),
        (0.05, 0.15, 0.1, "open", "Whether the gap is below 0.1, the limit you set, is open."),
    ],
)
def test_a_limit_is_held_against_the_whole_interval(data, low, high, limit, within, says):
    found = score_gap_of(with_gap(data, low, high), limit)
    assert (found.limit, found.within_limit) == (limit, within)
    assert found.sentence.endswith(says)


def test_without_limits_nothing_is_said_of_them(data):
    for one in findings_of(data):
        assert (one.limit, one.within_limit) == (None, None)
        assert "limit" not in one.sentence


def test_the_answer_is_about_evidence_and_the_limit_about_size(data):
    before = findings_of(data)
    data["settings"]["limits"] = dict.fromkeys(("score_gap", "inputs", "weighing", "excess"), 100.0)
    after = findings_of(data)
    assert [(one.key, one.answer, one.headline) for one in after] == [
        (one.key, one.answer, one.headline) for one in before
    ]
    assert {one.within_limit for one in after} == {"yes"}
    assert {"yes"} <= {one.answer for one in after}
    words = {one.key: one.sentence for one in after}
    assert "The effect through every input is below 100, the limit you set." in words["inputs"]
    assert "The difference in weights is below 100, the limit you set." in words["weighing"]
    assert "The excess is below 100, the limit you set." in words["excess"]


def test_an_excess_below_0_is_below_any_limit_and_a_gap_below_0_is_not(data):
    data["evidence"]["cec"] |= {"value": -0.5, "low": -0.6, "high": -0.4, "p_value": 1.0}
    data["settings"]["limits"] = {"excess": 0.01}
    (excess,) = [one for one in findings_of(data) if one.key == "excess"]
    assert excess.within_limit == "yes"
    assert score_gap_of(with_gap(data, -0.6, -0.4), 0.01).within_limit == "no"


def test_inputs_beyond_a_limit_are_named(data):
    for row in data["score_gaps"][0]["features"]:
        row |= {"value": 0.01, "low": 0.0, "high": 0.02, "p_value": 0.05, "standard_error": 0.005, "df": 200.0}
    first, second = data["score_gaps"][0]["features"][:2]
    data["settings"]["limits"] = {"inputs": 0.1}
    said = []
    for row in (first, second):
        row |= {"value": -0.5, "low": -0.52, "high": -0.48, "p_value": 0.0}
        (inputs,) = [one for one in findings_of(data) if one.key == "inputs"]
        assert inputs.within_limit == "no"
        said.append(inputs.sentence)
    assert said[0].endswith(f"The effect through {first['feature']} is above 0.1, the limit you set.")
    assert said[1].endswith(f"each of {first['feature']} and {second['feature']} is above 0.1, the limit you set.")


def test_what_was_not_estimated_is_within_no_limit(data):
    nan = math.nan
    data["evidence"]["cec"] |= {"value": nan, "low": nan, "high": nan, "p_value": nan, "standard_error": nan}
    data["settings"]["limits"] = {"excess": 0.1}
    (excess,) = [one for one in findings_of(data) if one.key == "excess"]
    assert (excess.answer, excess.within_limit) == ("open", "open")


def test_of_many_estimates_one_is_beyond_a_limit_seldom_by_chance():
    """Bonferroni: of 40 inputs whose true size is the limit itself, one is called larger in at most 5% of audits."""
    rng, n, alarms = np.random.default_rng(0), 40, 0
    for _ in range(400):
        estimates = [{"value": 0.1 + 0.01 * z, "low": 0, "high": 1, "p_value": 0.0, "standard_error": 0.01,
                      "df": 1e6} for z in rng.standard_normal(n)]  # fmt: skip
        alarms += bool(beyond_limit(0.1, estimates, has_side=True))
    assert 0 < alarms <= 400 * 0.05


def test_limits_reach_every_output(tmp_path, rng):
    X, y, group = people(rng, 400)
    limits = {"score_gap": 2.5, "excess": 0.001}
    result = eh.audit(LogisticRegression().fit(X, y), X, y, sensitive_features=np.array(["a", "b"])[group],
                      financial_features=["income", "debt"], limits=limits)  # fmt: skip
    result.to_json(tmp_path / "audit.json")
    result.to_html(tmp_path / "audit.html")
    result.to_excel(tmp_path / "audit.xlsx")
    document = json.loads((tmp_path / "audit.json").read_text())
    jsonschema.validate(document, load_schema())
    found = {one["key"]: (one["limit"], one["within_limit"]) for one in document["findings"]}
    assert document["settings"]["limits"] == limits
    assert found["score_gap"] == (2.5, "yes")
    assert found["weighing"] == (None, None)
    sentence = "The gap is below 2.5, the limit you set."
    assert sentence in (tmp_path / "audit.html").read_text()
    assert "Below 2.5, the limit you set" in " ".join(str(result).split())
    rows = [
        list(row) for row in openpyxl.load_workbook(tmp_path / "audit.xlsx")["Findings"].iter_rows(values_only=True)
    ]
    (head,) = (row for row in rows if "within the limit" in row)
    for one in document["findings"]:
        (row,) = (row for row in rows if one["question"] in row)
        cells = dict(zip(head, row, strict=True))
        assert (cells["limit"] or None, cells["within the limit"] or None) == (one["limit"], one["within_limit"])
        assert cells["sentence"] == one["sentence"]


def texts_of(value):
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [text for item in value for text in texts_of(item)]
    return [value] if isinstance(value, str) else []


@pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")
def test_no_text_of_an_audit_is_a_python_list(rng):
    """Of groups so small that some of them are left out, with a label that one of them lacks."""
    X, y, _ = people(rng, 300)
    group = np.where(np.arange(300) < 4, "tiny", np.where(np.arange(300) < 10, "small", rng.choice(["a", "b"], 300)))
    y = y.where(group != "tiny", 1)
    X["constant"] = 1.0
    result = eh.audit(LogisticRegression().fit(X, y), X, y, sensitive_features=group,
                      financial_features=["income", "constant"])  # fmt: skip
    texts = texts_of(result.to_dict())
    assert any("tiny" in text and "people: " in text for text in texts)
    assert not [text for text in texts if "['" in text or '["' in text]


def test_a_streamed_audit_may_be_resumed_with_other_limits(rng, tmp_path):
    X, y, group = people(rng, 300)
    X.assign(paid=y, sex=np.array(["a", "b"])[group]).to_csv(tmp_path / "people.csv", index=False)
    model = LogisticRegression().fit(X, y)

    def streamed(**options):
        return eh.audit_stream(model, tmp_path / "people.csv", label="paid", group="sex",
                               financial_features=["income", "debt"], out=tmp_path / "out", **options)  # fmt: skip

    first = streamed(limits={"score_gap": 50}).to_dict()
    again = streamed(limits={"score_gap": 1e-9}, resume=True).to_dict()
    found, other = ({one["key"]: one for one in data["findings"]}["score_gap"] for data in (first, again))
    assert (found["limit"], found["within_limit"]) == (50, "yes")
    assert (other["limit"], other["within_limit"]) == (1e-9, "open" if other["answer"] == "no" else "no")
    assert found["estimate"] == other["estimate"]
