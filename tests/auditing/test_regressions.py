"""Regressions of an audit: every number is that of statsmodels called on the people, and hard cases have a sentence."""

import json
import sys

import jsonschema
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.tree import DecisionTreeClassifier

import evenhand as eh
from evenhand import cli
from evenhand.auditing.sections import load_schema
from evenhand.auditing.sections.regressions import regression_table
from evenhand.exceptions import InvalidInputError
from evenhand.metrics.adjustment import holm

pytestmark = pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")
N = 700


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(4)
    group = rng.choice(["a", "b", "c"], N, p=[0.5, 0.35, 0.15])
    table = pd.DataFrame(
        {
            "income": rng.normal(50, 10, N) - 5 * (group == "b"),
            "debt": rng.normal(size=N),
            "job": rng.choice(["cook", "clerk", "smith"], N),
            "told": np.where(group == "a", "x", "y"),
        }
    )
    table.loc[::11, "debt"] = np.nan
    score = 0.08 * (table["income"] - 48) + 0.4 * table["debt"].fillna(0) + 0.5 * (table["job"] == "cook")
    score = score.to_numpy()
    y = (rng.random(N) < 1 / (1 + np.exp(-score))).astype(int)
    decision = (rng.random(N) < 1 / (1 + np.exp(-score + 0.6 * (group == "b")))).astype(int)
    price = 3 - 0.2 * score + 0.3 * (group == "c") + rng.normal(size=N)
    price[::7] = np.nan
    return table, y, group, decision, price, rng.integers(0, 300, N)


@pytest.fixture(scope="module")
def model(people):
    table, y, *_ = people
    filled = table.drop(columns="told").assign(debt=table["debt"].fillna(0))
    encode = make_column_transformer((OneHotEncoder(), ["job"]), (StandardScaler(), ["income", "debt"]))
    return make_pipeline(encode, DecisionTreeClassifier(max_depth=5, random_state=0)).fit(filled, y)


def controls(table, *, is_all):
    """Controls by pandas alone: numbers, whether one is missing, all but the most frequent category."""
    found = table[["income"]].astype(float)
    if is_all:
        missing = table["debt"].isna()
        found = found.assign(debt=table["debt"].fillna(table["debt"].mean()))
        if missing.any():
            found["debt is missing"] = missing.astype(float)
        base = table["job"].mode()[0]
        found = found.join(pd.get_dummies(table["job"]).drop(columns=base).astype(float))
    return (found - found.mean()) / found.std()


def fitted(outcome, is_group, held, clusters=None):
    design = sm.add_constant(np.column_stack([is_group.astype(float), held]))
    how = {"cov_type": "HC1"} if clusters is None else {"cov_type": "cluster", "cov_kwds": {"groups": clusters}}
    if set(np.unique(outcome)) == {0, 1}:
        effects = sm.Logit(outcome, design).fit(disp=0, **how).get_margeff(dummy=True)
        return effects.margeff[0], effects.margeff_se[0], effects.pvalues[0]
    found = sm.OLS(outcome, design).fit(use_t=True, **how)
    return found.params[1], found.bse[1], found.pvalues[1]


@pytest.mark.parametrize("is_clustered", [False, True])
def test_without_a_model_every_number_is_that_of_statsmodels(people, is_clustered):
    table, _, group, decision, price, same = people
    found = eh.regressions(
        {"decision": decision, "price": price},
        sensitive_features=group,
        X=table,
        financial_features=["income"],
        clusters=same if is_clustered else None,
    )
    assert found.reference == "a"
    assert found.errors == ("clustered" if is_clustered else "robust")
    assert found.left_out == {"told": "it is the group or a part of it"}  # x for one group, y for two others
    checked = 0
    for row in found.rows:
        if row.controls == "all inputs":
            continue
        outcome = decision.astype(float) if row.outcome == "decision" else price
        rows = np.isin(group, ["a", row.group]) & np.isfinite(outcome)
        held = (
            controls(table[rows], is_all=False) if row.controls == "financial features" else np.zeros((rows.sum(), 0))
        )
        theirs = fitted(outcome[rows], group[rows] == row.group, held, same[rows] if is_clustered else None)
        found_here = (row.effect.value, row.effect.standard_error, row.effect.p_value)
        assert found_here == pytest.approx(theirs, rel=1e-6, abs=1e-9)
        checked += 1
    assert checked == 8


def test_all_inputs_are_held_equal_as_pandas_would(people):
    table, _, group, decision, price, _ = people
    without = table.drop(columns="told")
    found = eh.regressions(
        {"decision": decision, "price": price}, sensitive_features=group, X=without, financial_features=["income"]
    )
    for row in (row for row in found.rows if row.controls == "all inputs"):
        outcome = decision.astype(float) if row.outcome == "decision" else price
        rows = np.isin(group, ["a", row.group]) & np.isfinite(outcome)
        # Means of missing numbers are those of everyone; beside a column that says who lacks one, they do not matter.
        theirs = fitted(outcome[rows], group[rows] == row.group, controls(without[rows], is_all=True))
        assert (row.effect.value, row.effect.standard_error) == pytest.approx(theirs[:2], rel=1e-6)
    assert found.controls["all inputs"][:3] == ("income", "debt", "debt=(missing)")


def test_p_values_are_adjusted_within_the_same_controls_and_column(people):
    table, _, group, decision, price, _ = people
    found = eh.regressions(
        {"decision": decision, "price": price},
        sensitive_features=group,
        X=table[["income"]],
        financial_features=["income"],
        by={"job": table["job"]},
    ).table
    for _, family in found.groupby(["controls", "column"]):
        assert family["p_adjusted"].tolist() == pytest.approx(holm(family["p_value"]).tolist(), nan_ok=True)
    assert len(found) == 3 * 2 * 2 * 4  # sets of controls, outcomes, groups; everyone and three jobs
    clerks = found[(found["segment"] == "clerk") & (found["controls"] == "none") & (found["outcome"] == "price")]
    chosen = (table["job"] == "clerk") & np.isfinite(price)
    for _, row in clerks.iterrows():
        means = [price[chosen & (group == name)].mean() for name in (row["group"], "a")]
        assert row["value"] == pytest.approx(means[0] - means[1])


def test_an_audit_has_decisions_scores_prices_and_its_pairs_in_one_table(people, model, tmp_path):
    table, y, group, decision, price, _ = people
    rows = group != "c"
    inputs = table.drop(columns="told").assign(debt=table["debt"].fillna(0))[rows]
    result = eh.audit(
        model,
        inputs,
        y[rows],
        sensitive_features=group[rows],
        financial_features=["income"],
        decisions=decision[rows],
        regressions=True,
        outcomes={"price": price[rows]},
        clusters=np.arange(rows.sum()),
    )
    found = result.regressions.table.set_index(["outcome", "controls"])
    raw = found.loc[("decision", "none")]
    made = decision[rows]
    assert raw["value"] == pytest.approx(made[group[rows] == "b"].mean() - made[group[rows] == "a"].mean())
    summary = result.to_dict()
    gap = summary["score_gap"]
    assert (gap["group"], gap["reference"]) == ("b", result.regressions.reference)
    assert found.loc[("decision", "leaves"), "value"] == gap["decision"]["value"]
    assert found.loc[("score, probability", "leaves"), "low"] == gap["probability"]["low"]
    score = result.pairs.drop_duplicates("person").sort_values("person")["score"].to_numpy()
    is_group = group[rows] == "b"
    theirs = fitted(score, is_group, controls(inputs, is_all=True))
    mine = found.loc[("score, probability", "all inputs")]
    assert (mine["value"], mine["standard_error"]) == pytest.approx(theirs[:2], rel=1e-6)
    assert ("price", "leaves") not in found.index
    assert found.loc[("price", "none"), "n_people"] == np.isfinite(price[rows]).sum()
    assert summary["regressions"]["rows"][0]["outcome"] == "decision"
    (approvals,) = (row for row in summary["outcome"]["approvals"]["groups"] if not row["is_reference"])
    odds = summary["regressions"]["rows"][0]["effect"]["odds_ratio"]
    assert odds["value"] == pytest.approx(approvals["odds_ratio_group_over_reference"]["value"], rel=1e-6)
    assert (raw["odds_ratio"], raw["odds_ratio_high"]) == (odds["value"], odds["high"])
    assert np.isnan(mine["odds_ratio"])
    shown = regression_table(summary).records[0]["effect"]["odds_ratio"]
    assert shown == odds
    result.to_json(tmp_path / "audit.json")
    document = json.loads((tmp_path / "audit.json").read_text("utf-8"))
    jsonschema.Draft202012Validator(load_schema()).validate(document)
    order = [row["controls"] for row in summary["regressions"]["rows"][:4]]
    assert order == ["none", "financial features", "all inputs", "leaves"]


def test_a_linear_model_leaves_nothing_of_its_score_and_separates_its_decisions(people):
    table, y, group, *_ = people
    inputs = table[["income", "debt"]].fillna(0)
    fitted_model = LogisticRegression().fit(inputs, y)
    result = eh.audit(
        fitted_model,
        inputs,
        y,
        sensitive_features=group,
        financial_features=["income"],
        evidence=False,
        regressions=True,
    )
    found = result.regressions.table.set_index(["outcome", "controls", "group"]).sort_index()
    exact = found.loc[("score, log-odds", "all inputs", "b")]
    assert (exact["value"], exact["p_value"]) == (0.0, 1.0)
    assert "exact" in exact["note"]
    assert "separate the decisions perfectly" in found.loc[("decision", "all inputs", "b"), "note"]
    assert "leaves" not in found.index.get_level_values("controls")


def test_a_model_of_risk_has_differences_in_the_favorable_outcome(people):
    table, y, group, *_ = people
    inputs = table[["income", "debt"]].fillna(0)
    settings = {
        "sensitive_features": group,
        "financial_features": ["income"],
        "evidence": False,
        "regressions": True,
    }
    good = eh.audit(LogisticRegression().fit(inputs, y), inputs, y, **settings)
    bad = eh.audit(LogisticRegression().fit(inputs, 1 - y), inputs, 1 - y, favorable="low", **settings)
    assert bad.regressions.table["value"].tolist() == pytest.approx(
        good.regressions.table["value"].tolist(), rel=1e-3, abs=1e-4, nan_ok=True
    )


def test_people_who_repeat_have_clustered_errors(people):
    table, y, group, *_ = people
    twice = pd.concat([table[["income", "debt"]].fillna(0)] * 2, ignore_index=True)
    labels, groups = np.tile(y, 2), np.tile(group, 2)
    tree = DecisionTreeClassifier(max_depth=4, random_state=0).fit(twice, labels)
    settings = {"sensitive_features": groups, "financial_features": ["income"], "evidence": False, "regressions": True}
    found = eh.audit(tree, twice, labels, **settings).regressions
    assert found.errors == "clustered"
    row = next(r for r in found.rows if (r.outcome, r.controls, r.group) == ("score, probability", "none", "b"))
    score = tree.predict_proba(twice)[:, 1]
    rows = groups != "c"
    same = np.tile(np.arange(N), 2)[rows]
    theirs = fitted(score[rows], groups[rows] == "b", np.zeros((rows.sum(), 0)), same)
    assert row.effect.standard_error == pytest.approx(theirs[1], rel=1e-6)


def test_inputs_that_are_the_group_or_have_too_many_values_are_left_out_and_named(people):
    table, _, group, decision, *_ = people
    more = table[["income"]].assign(
        told=np.where(group == "a", "x", "y"),
        tract=[f"tract {k % 60}" for k in range(N)],
        letter=pd.Series(group).str.upper(),
        empty=np.nan,
    )
    two = group != "c"
    found = eh.regressions(
        {"decision": decision[two]}, sensitive_features=group[two], X=more[two].reset_index(drop=True)
    )
    assert found.left_out["told"] == found.left_out["letter"] == "it is the group or a part of it"
    assert found.left_out["tract"] == "a category of 60 values, more than the 50 that are encoded"
    assert found.left_out["empty"] == "it has no values"
    assert found.controls == {"none": (), "all inputs": ("income",)}


def test_parts_of_an_intersection_are_left_out(people):
    table, _, group, decision, *_ = people
    sex = np.where(np.arange(N) % 2, "f", "m")
    groups = pd.DataFrame({"sex": sex, "race": group})
    found = eh.regressions({"decision": decision}, sensitive_features=groups, X=table[["income"]].assign(sex=sex))
    assert list(found.left_out) == ["sex"]
    assert all(np.isfinite(row.effect.value) for row in found.rows)


def test_many_segments_are_cut_to_those_with_most_people(people):
    _, _, group, decision, *_ = people
    branch = np.where(np.arange(N) < 600, np.arange(N) % 20, 20 + np.arange(N) % 9)
    found = eh.regressions({"decision": decision}, sensitive_features=group, by={"branch": branch})
    assert found.notes == ("branch: regressions cover the 20 of 29 values with the most people",)
    assert {row.segment for row in found.rows if row.column} == {str(k) for k in range(20)}
    assert all("but at least" in row.effect.note for row in found.rows if row.column and row.group == "c")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            {"outcomes": {"price": ["much"] * N}},
            "The outcome 'price' must be numbers, got string values, such as 'much'",
        ),
        ({"outcomes": {"price": [1.0]}}, "The outcome 'price' has 1 values for 700 people"),
        ({"outcomes": {"price": [np.inf] * N}}, "The outcome 'price' holds 700 infinite values"),
        ({"outcomes": {"price": [np.nan] * N}}, "The outcome 'price' has no values"),
        ({"outcomes": {"income": [1.0] * N}}, "The outcome 'income' is also an input"),
        ({"outcomes": {}}, "`outcomes` must name at least one outcome"),
        ({"X": None, "financial_features": ["income"]}, "`X` was not given"),
        ({"reference_group": "z"}, "`reference_group` must be one of the groups"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(people, change, words):
    table, _, group, decision, *_ = people
    given = {"outcomes": {"decision": decision}, "X": table, "sensitive_features": group, **change}
    with pytest.raises(InvalidInputError, match=words.replace("(", r"\(")):
        eh.regressions(given.pop("outcomes"), **given)


def test_an_audit_refuses_outcomes_without_regressions_and_inputs_as_outcomes(people):
    table, y, group, *_ = people
    inputs = table[["income", "debt"]].fillna(0)
    tree = DecisionTreeClassifier(max_depth=3).fit(inputs, y)
    settings = {"sensitive_features": group, "financial_features": ["income"]}
    with pytest.raises(InvalidInputError, match="add `regressions=True`"):
        eh.audit(tree, inputs, y, outcomes={"price": np.ones(N)}, **settings)
    with pytest.raises(InvalidInputError, match="'debt' is also an input"):
        eh.audit(tree, inputs, y, regressions=True, outcomes=inputs[["debt"]], **settings)
    with pytest.raises(InvalidInputError, match="names that the audit uses for its outcomes"):
        eh.audit(tree, inputs, y, regressions=True, outcomes={"decision": np.ones(N)}, **settings)


@pytest.mark.integration
def test_the_command_line_and_toml_regress_columns_that_are_not_inputs(people, tmp_path, monkeypatch, capsys):
    table, y, group, _, price, _ = people
    file = table.drop(columns="told").assign(debt=table["debt"].fillna(0), paid=y, sex=group, rate_spread=price)
    file[file["sex"] != "c"].to_csv(tmp_path / "people.csv", index=False)

    def run(*words):
        basics = ["--label", "paid", "--group", "sex", "--financial", "income", "--no-evidence"]
        argv = ["evenhand", "audit", tmp_path / "people.csv", *basics, "--out", tmp_path / "out", *words]
        monkeypatch.setattr(sys, "argv", [str(word) for word in argv])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        return ended.value.code, capsys.readouterr().err

    assert run("--regressions", "--outcomes", "rate_spread")[0] == 0
    document = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert [one["outcome"] for one in document["regressions"]["outcomes"]][-1] == "rate_spread"
    assert "rate_spread" not in [row["feature"] for row in document["features"]]
    (tmp_path / "audit.toml").write_text('regressions = true\noutcomes = ["rate_spread"]\n')
    assert run("--config", tmp_path / "audit.toml")[0] == 0
    again = json.loads((tmp_path / "out" / "audit.json").read_text())
    assert again["regressions"] == document["regressions"]
    code, error = run("--outcomes", "rate_spread")
    assert code == 2
    assert "--regressions" in error
    code, error = run("--stream", "--model", tmp_path, "--regressions")
    assert code == 2
    assert "--regressions needs the people in memory" in error


def test_captions_say_which_sign_is_worse_if_a_low_value_is_good(people):
    table, _, group, *_ = people
    inputs = table[["income", "debt"]].fillna(0)
    rows = {"sensitive_features": group, "financial_features": ["income"], "scores": 5 - inputs["income"] / 50}
    found = {
        favorable: eh.audit_given(inputs, unit="percent", favorable=favorable, regressions=True, **rows).to_dict()
        for favorable in ("low", "high")
    }
    assert "percent as given, so above 0 is worse off" in regression_table(found["low"]).caption
    assert "worse off" not in regression_table(found["high"]).caption
