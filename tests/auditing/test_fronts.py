"""One audit behind every front: in memory, in batches of a file and as a command, whatever is asked for."""

import json
import math

import joblib
import jsonschema
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from typer.testing import CliRunner

import evenhand as eh
from evenhand import cli
from evenhand.auditing.sections import load_schema
from evenhand.exceptions import InvalidInputError

FEATURES = ["income", "debt", "tenure", "street"]
N = 240


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(N, 4)), columns=FEATURES)
    table["sex"] = rng.choice(["f", "m"], N)
    table["good"] = (table["income"] - table["debt"] + table["tenure"] + rng.logistic(size=N) > 0).astype(int)
    table["default"] = 1 - table["good"]
    table["weight"] = rng.uniform(0.2, 5.0, N).round(2)
    table["decided"] = rng.integers(0, 2, N)
    table["household"] = np.arange(N) // 2
    table["product"] = rng.choice(["card", "loan"], N)
    return table


OPTIONS = {
    "a risk": {"label": "default", "favorable": "low"},
    "no label": {"label": None},
    "weights": {"sample_weight": "weight"},
    "decisions": {"decisions": "decided"},
    "clusters and segments": {"clusters": "household", "by": ["product"]},
    "reasons": {"reason_map": {"Money": ["income", "debt"], "*": "Other"}},
    "a reference group": {"reference_group": "f"},
    "limits": {"limits": {"score_gap": 0.1, "excess": 0.5}, "max_distance": 0.8},
}
UNLIKE = {"created", "stream", "influences", "hashes", "files", "dropped", "versions"}  # when, how and from what


def leaves(value, path=""):
    if isinstance(value, dict):
        return {p: v for k, item in value.items() if k not in UNLIKE for p, v in leaves(item, f"{path}/{k}").items()}
    if isinstance(value, list):
        return {p: v for k, item in enumerate(value) for p, v in leaves(item, f"{path}/{k}").items()}
    return {path: value}


@pytest.fixture(scope="module")
def known():
    """What was found in memory, by what was asked for."""
    return {}


@pytest.mark.filterwarnings("ignore::evenhand.EvenhandWarning")
@pytest.mark.parametrize("asked", OPTIONS)
@pytest.mark.parametrize("entry", ["stream", "command"], indirect=True)
def test_every_front_writes_the_same_numbers_and_words(entry, table, known, asked):
    options = {"label": "good", **OPTIONS[asked]}
    model = LogisticRegression().fit(table[FEATURES], table[options["label"] or "good"])
    options |= {"features": FEATURES, "group": "sex", "financial_features": ["income", "debt"]}
    if asked not in known:
        known[asked] = leaves(entry(model, table, front="memory", **options))
    own, other = leaves(entry(model, table, **options)), known[asked]
    assert own.keys() == other.keys()
    unlike = {
        path: (value, other[path])
        for path, value in own.items()
        if not (
            math.isclose(value, other[path], rel_tol=1e-9, abs_tol=1e-11)
            if isinstance(value, float) and isinstance(other[path], (int, float))
            else value == other[path]
        )
    }
    assert unlike == {}


@pytest.mark.filterwarnings("ignore::evenhand.EvenhandWarning")
def test_copies_of_everyone_are_no_evidence_on_decisions(entry, table):
    """Each applicant three times, as one cluster: nothing about decisions, scores and reasons is known better."""
    model = LogisticRegression().fit(table[FEATURES], table["good"])
    options = {"features": FEATURES, "label": "good", "group": "sex", "financial_features": ["income", "debt"]}
    options |= {"by": ["product"]}
    table = table.assign(applicant=np.arange(N))
    copies = pd.concat([table] * 3, ignore_index=True)
    once = entry(model, table, front="memory", **options)
    found = entry(model, copies, clusters="applicant", **options)
    (row,), (copied,) = (
        [g for g in one["outcome"]["approvals"]["groups"] if not g["is_reference"]] for one in (once, found)
    )
    assert copied["n_people"] == 3 * row["n_people"]
    assert copied["test"] == "two-proportion z, robust to clusters"
    for name in ("p_value", "n_effective"):
        assert copied[name] == pytest.approx(row[name], rel=1e-6)
    places = {
        "approval": lambda one: one["outcome"]["approvals"]["groups"][0]["approval_rate"],
        "ratio": lambda one: next(
            g["approval_ratio_group_over_reference"]
            for g in one["outcome"]["approvals"]["groups"]
            if not g["is_reference"]
        ),
        "cutoff": lambda one: one["outcome"]["cutoffs"][4]["table"]["groups"][0]["approval_rate"],
        "errors": lambda one: one["outcome"]["error_rates"][0]["false_positive_rate"],
        "auc": lambda one: one["outcome"]["error_rates"][1]["auc"],
        "gap": lambda one: one["outcome"]["gaps"]["eo_gap"],
        "brier": lambda one: one["outcome"]["error_rates"][1]["brier_score"],
        "score": lambda one: one["outcome"]["scores"][1]["mean_score"],
        "calibration": lambda one: one["outcome"]["calibration"]["groups"][0]["observed_rate"],
        "segment": lambda one: one["outcome"]["segments"]["product"][0]["segments"][0]["approval_rate_group"],
        "common": lambda one: one["outcome"]["segments"]["product"][0]["common_odds_ratio_group_over_reference"],
        "ks": lambda one: one["roc"]["groups"][0]["ks"],
        "reason": lambda one: one["reasons"]["rates"][0]["rate"],
        "difference": lambda one: next(r for r in one["reasons"]["rates"] if not r["is_reference"])["difference"],
    }
    for name, place in places.items():
        ends = [[one["value"], one["low"], one["high"]] for one in map(place, (found, once))]
        assert ends[0] == pytest.approx(ends[1], rel=1e-6), name
    assert "people of the same cluster count as one" in found["outcome"]["approvals"]["note"]
    assert any("count as one applicant in every standard error." in text for text in found["warnings"])


def test_scores_against_the_label_are_refused_by_every_front(entry, table):
    model = LogisticRegression().fit(table[FEATURES], table["default"])
    with pytest.raises(InvalidInputError, match="ranks people against `y`"):
        entry(model, table, features=FEATURES, label="good", group="sex", financial_features=["income", "debt"])


@pytest.mark.filterwarnings("ignore::evenhand.EvenhandWarning")
def test_without_an_outcome_people_are_matched_on_finances_alone(table):
    X, sex = table[FEATURES], table["sex"]
    model = LogisticRegression().fit(X, table["good"])
    roles = {"sensitive_features": sex, "financial_features": ["income", "debt"]}
    result = eh.audit(model, X, None, **roles)
    found = result.to_dict()
    jsonschema.validate(json.loads(json.dumps(found, default=str).replace("NaN", "null")), load_schema())
    assert found["scope"]["given"] == ["model", "decisions"]
    assert list(found["scope"]["not_possible"]) == ["errors"]
    assert math.isnan(found["outcome"]["auc"])
    assert found["outcome"]["error_rates"] == []
    assert len(found["findings"]) == 4
    assert sum("Declined applicants have no repayment" in warning for warning in found["warnings"]) == 1
    with_labels = eh.audit(model, X, table["good"], **roles)
    assert (result.pairs["distance"] <= with_labels.pairs["distance"] + 1e-9).all()
    assert "label" not in result.pairs or result.pairs["label"].isna().all()
    with pytest.raises(InvalidInputError, match="or for neither: people are matched within a label"):
        eh.audit(model, X, None, reference=(X, table["good"], sex), **roles)
    unsure = eh.GroupProbabilities(pd.DataFrame({"f": [0.4] * N, "m": [0.6] * N}))
    with pytest.raises(InvalidInputError, match="An audit without labels needs known groups"):
        eh.audit(model, X, None, **{**roles, "sensitive_features": unsure})


@pytest.mark.filterwarnings("ignore::evenhand.EvenhandWarning")
def test_the_review_lists_declined_people_of_the_worse_off_group_beside_approved_ones(table, tmp_path):
    people = table[FEATURES].assign(home=np.where(table["sex"] == "f", "rent", "own"))
    people["sex"], people["good"], people["id"] = table["sex"], table["good"], [f"=A{k}" for k in range(N)]
    inputs, roles = [*FEATURES, "home"], {"financial_features": ["income", "debt"], "reference_group": "m"}
    encoder = ColumnTransformer([("home", OneHotEncoder(), ["home"])], remainder="passthrough")
    model = make_pipeline(encoder, LogisticRegression())
    model.fit(people[inputs], people["good"] * (people["sex"] == "m"))  # women are worse off
    result = eh.audit(
        model,
        people[inputs],
        people["good"],
        sensitive_features=people["sex"],
        ids=people["id"],
        favorable="high",
        **roles,
    )
    review = result.review()
    pairs = result.pairs
    expected = pairs[(pairs["group"] == "f") & (pairs["decision"] == 0) & (pairs["match_decision"] == 1)]
    expected = expected.sort_values("distance").head(25)
    assert len(review) > 5
    assert review["person_id"].tolist() == expected["person_id"].tolist()
    assert review["match_id"].tolist() == expected["match_id"].tolist()
    first = review.iloc[0]
    assert "home: rent | own" in first["inputs_that_differ"]
    assert first["person: income"] == people["income"][first["person"]]
    assert first["match: home"] == "own"
    one = result.review(ids=["=A7"])
    assert one["person"].tolist() == [7]
    assert one["match"].tolist() == pairs.loc[pairs["person"] == 7, "match"].tolist()
    with pytest.raises(InvalidInputError, match="There is no applicant 'nobody' among the audited people"):
        result.review(ids=["=A7", "nobody"])

    result.to_html(tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert "Applicants to review" in page
    assert "home: rent | own" in page
    result.to_excel(tmp_path / "book.xlsx")
    sheet = pd.read_excel(tmp_path / "book.xlsx", sheet_name="Review", engine="openpyxl")
    assert sheet["applicant"].tolist() == review["person_id"].tolist()
    assert sheet["match: home"].tolist() == ["own"] * len(review)

    file = tmp_path / "people.parquet"
    people.to_parquet(file, row_group_size=60)
    streamed = eh.audit_stream(
        model,
        file,
        label="good",
        group="sex",
        ids="id",
        favorable="high",
        out=tmp_path / "s",
        batch_rows=60,
        n_jobs=1,
        **roles,
    )
    pd.testing.assert_frame_equal(streamed.review(), review, check_dtype=False)
    pd.testing.assert_frame_equal(streamed.review(ids=["=A7"]), one, check_dtype=False)

    joblib.dump(model, tmp_path / "model.joblib")
    words = ["--label", "good", "--group", "sex", "--id", "id", "--financial", "income,debt", "--favorable", "high"]
    words += ["--reference-group", "m", "--model", str(tmp_path / "model.joblib"), "--trust-pickle"]
    done = CliRunner().invoke(cli.app, ["audit", str(file), "--out", str(tmp_path / "out"), *words, "--review", "=A7"])
    assert done.exit_code == 0, done.output
    asked = pd.read_csv(tmp_path / "out" / "applicants.csv")
    assert asked["person_id"].tolist() == ["'=A7"]
    assert asked["match"].tolist() == one["match"].tolist()
    written = pd.read_csv(tmp_path / "out" / "review.csv")
    assert written["person_id"].tolist() == ["'" + one for one in review["person_id"]]  # not a formula
    assert written["match"].tolist() == review["match"].tolist()


@pytest.mark.filterwarnings("ignore::evenhand.EvenhandWarning")
def test_an_id_that_no_one_has_does_not_lose_the_audit(table, tmp_path):
    table.to_csv(tmp_path / "people.csv", index=False)
    words = ["--group", "sex", "--financial", "income,debt", "--decision", "good", "--review", "7,nobody"]
    done = CliRunner().invoke(cli.app, ["audit", str(tmp_path / "people.csv"), "--out", str(tmp_path / "out"), *words])
    assert done.exit_code == 0, done.output
    assert "There is no applicant 'nobody' among the audited people" in done.output
    assert (tmp_path / "out" / "report.html").is_file()
    assert not (tmp_path / "out" / "applicants.csv").exists()


def test_without_decisions_there_is_nothing_to_review(table):
    price = 5 - table["income"] + (table["sex"] == "f")
    result = eh.audit_given(
        table[FEATURES],
        sensitive_features=table["sex"],
        financial_features=["income", "debt"],
        scores=price,
        unit="percent",
        favorable="low",
    )
    assert result.review().empty
    assert result.review(ids=[3])["person"].tolist() == [3]


@pytest.mark.filterwarnings("ignore::evenhand.EvenhandWarning")
def test_sensitivity_is_a_command(table, tmp_path):
    model = LogisticRegression().fit(table[FEATURES], table["good"])
    joblib.dump(model, tmp_path / "model.joblib")
    table[[*FEATURES, "sex", "good"]].to_csv(tmp_path / "people.csv", index=False)
    out, model_file = tmp_path / "new" / "table.csv", ["--model", str(tmp_path / "model.joblib"), "--trust-pickle"]
    words = ["sensitivity", str(tmp_path / "people.csv"), *model_file, "--label", "good", "--group", "sex"]
    done = CliRunner().invoke(cli.app, [*words, "--financial", "income,debt", "--out", str(out)])
    assert done.exit_code == 0, done.output
    assert "The score gap is m minus f" in done.output or "The score gap is f minus m" in done.output
    expected = eh.sensitivity(
        model, table[FEATURES], table["good"], sensitive_features=table["sex"], financial_features=["income", "debt"]
    )
    pd.testing.assert_frame_equal(pd.read_csv(out, keep_default_na=False), expected, rtol=1e-6, check_dtype=False)
    refused = CliRunner().invoke(cli.app, [*words, "--financial", "income,debt", "--stream"])
    assert "runs in memory: drop --stream" in str(refused.exception)
