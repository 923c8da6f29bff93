"""The findings and the verdict: strongest first, never blind, and in plain words."""

import copy
import math

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.auditing.findings import findings_of, headline_of
from evenhand.auditing.verdict import verdict

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
        data["evidence"][name] |= {"value": 0.001, "ci_low": -0.01, "ci_high": 0.012, "p_value": 0.4}
    for row in data["proxies"]["features"]:
        row["auc"] = 0.55
    return data


def test_all_four_questions_are_answered_strongest_first(data):
    findings = findings_of(data)
    assert {one.key for one in findings} == {"score_gap", "inputs", "weighing", "excess"}
    found = [one.p_adjusted for one in findings if one.answer == "yes"]
    assert found == sorted(found)
    assert [one.answer for one in findings] == sorted((one.answer for one in findings), key=["yes", "no", "open"].index)


def test_the_inputs_of_the_score_gap_sum_to_it(data):
    (inputs,) = [one for one in findings_of(data) if one.key == "inputs"]
    assert sum(row["estimate"] for row in inputs.features) == pytest.approx(
        data["score_gap"]["logit"]["value"], abs=1e-6
    )


def test_p_values_are_adjusted_over_the_four(data):
    for one in findings_of(data):
        assert one.p_value <= one.p_adjusted <= 1


def test_nothing_found_says_what_could_have_been_found(data):
    findings = findings_of(quiet(data))
    assert {one.answer for one in findings} == {"no"}
    assert headline_of(findings) == "None of the four questions was answered with yes"
    words = {one.key: one.sentence for one in findings}
    assert "would have been found in 80 % of cases" in words["score_gap"]
    assert "would have been found in 80 % of cases" in words["weighing"]
    assert "too small to matter" not in " ".join(words.values())


def test_an_input_that_predicts_the_group_and_moves_scores_is_found_whatever_the_rest_says(data):
    quiet(data)
    row = data["score_gaps"][0]["features"][0]
    row |= {"value": 0.2, "ci_low": 0.1, "ci_high": 0.3}
    next(p for p in data["proxies"]["features"] if p["feature"] == row["feature"])["auc"] = 0.97
    first = findings_of(data)[0]
    assert (first.key, first.answer) == ("inputs", "yes")
    assert f"{row['feature']} moves scores by 0.200 log-odds" in first.headline
    assert "predicts the group with AUC 0.97" in first.sentence


def test_a_negative_excess_is_a_difference_in_spread(data):
    quiet(data)["evidence"]["cec"] |= {"value": -0.03, "ci_low": -0.05, "ci_high": -0.01, "p_value": 0.999}
    (excess,) = [one for one in findings_of(data) if one.key == "excess"]
    assert "differ in spread" in excess.sentence


def test_what_was_not_estimated_is_open_and_says_why(data):
    nan = math.nan
    data["evidence"]["cec"] |= {"value": nan, "ci_low": nan, "ci_high": nan, "p_value": nan, "note": "only 4 people"}
    (excess,) = [one for one in findings_of(data) if one.key == "excess"]
    assert (excess.answer, excess.sentence) == ("open", "Whether explanations differ cannot be said: only 4 people.")


def test_without_evidence_nothing_is_concluded(without_evidence):
    summary = without_evidence.to_dict()
    assert summary["findings"] == []
    assert summary["verdict"]["headline"] == "Not compared with noise"
    assert "not known" in summary["verdict"]["sentences"][1][1]
    assert "supports no conclusion" in summary["verdict"]["limits"]


def test_constant_decisions_come_before_praise(data):
    data["outcome"]["notes"]["positive_rate"] = "decisions are constant"
    found = verdict(data, findings_of(quiet(data)))
    assert found.headline.endswith("decisions hardly vary")
    assert "says nothing good of the model" in found.limits


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
    assert "region moves scores by" in summary["verdict"]["headline"]
    row = next(row for row in first["features"] if row["feature"] == "region")
    sign = 1 if summary["score_gap"]["group"] == "a" else -1
    assert row["estimate"] == pytest.approx(0.4 * sign, abs=0.03)  # the stand-in is 1 apart and weighs 0.4
    weighing = next(one for one in summary["findings"] if one["key"] == "weighing")
    assert weighing["sentence"] == "The model weighs the same inputs alike for everyone."


def test_every_pair_of_groups_has_its_gap(rng):
    X, y, _ = people(rng, 900)
    group = rng.choice(["a", "b", "c"], 900)
    result = eh.audit(LogisticRegression().fit(X, y), X, y, sensitive_features=group, financial_features=["income"])
    gaps = result.to_dict()["score_gaps"]
    assert len({frozenset((gap["group"], gap["reference"])) for gap in gaps}) == 3
    assert all(gap["p_adjusted"] >= gap["total"]["p_value"] for gap in gaps)
