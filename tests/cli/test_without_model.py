"""`evenhand audit` on files that hold scores, decisions, attributions and prices in place of a model."""

import json

import numpy as np
import pandas as pd
import pytest

import evenhand as eh

pytestmark = pytest.mark.integration

ROLES = ["--group", "race", "--financial", "income,debt"]
INPUTS = ["income", "debt", "job"]


@pytest.fixture
def evenhand(evenhand):
    """Runs a command; returns exit code and errors."""
    return lambda *arguments: evenhand(*arguments)[::2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A lender's files: applicants with SHAP values in columns, the same without, and SHAP values in further files."""
    rng = np.random.default_rng(3)
    n = 300
    table = pd.DataFrame({"loan": [f"L{k:04d}" for k in rng.permutation(n)], "income": rng.lognormal(10, 0.4, n)})
    table["debt"] = rng.uniform(0, 60, n).round(1)
    table["job"] = rng.choice(["cook", "clerk", "smith"], n)
    table["officer"] = rng.choice(["ann", "bob"], n)
    table["race"] = rng.choice(["x", "y"], n)
    shap = pd.DataFrame({"income": np.log(table["income"]) - 10, "debt": (30 - table["debt"]) / 20})
    shap["job"] = table["job"].map({"cook": -0.3, "clerk": 0.2, "smith": 0.1})
    logit = 0.25 + shap.sum(axis=1)
    table["score"] = 1 / (1 + np.exp(-logit))
    table["approved"] = (rng.uniform(size=n) < table["score"]).astype(int)
    table["decided"] = (table["score"] > 0.5).astype(int)
    table["apr"] = 9 - logit + 0.4 * (table["race"] == "y")
    table["reason"] = np.where(table["decided"] == 1, "", "R2")
    path = tmp_path_factory.mktemp("lender")
    table.to_csv(path / "plain.csv", index=False)
    table.join(shap.add_prefix("shap_")).to_parquet(path / "loans.parquet")
    shap.assign(loan=table["loan"], base=0.25).sample(frac=1, random_state=0).to_csv(path / "by_id.csv", index=False)
    shap.to_parquet(path / "in_order.parquet")
    return path


def summary(folder, name="out"):
    return json.loads((folder / name / "audit.json").read_text("utf-8"))


def audit(evenhand, tmp_path, file, *options):
    code, said = evenhand("audit", file, *ROLES, *options, "--out", tmp_path / "out")
    assert code == 0, said
    return summary(tmp_path)


SCORED = ["--label", "approved", "--scores", "score"]


def test_attributions_in_columns_or_in_a_file_of_any_order_are_the_same(evenhand, folder, tmp_path):
    found = audit(evenhand, tmp_path, folder / "loans.parquet", *SCORED, "--attributions", "shap_*")
    assert found["scope"]["given"] == ["scores", "attributions", "decisions", "labels"]
    assert sorted(row["feature"] for row in found["features"]) == sorted(INPUTS)
    assert any(
        "Not used as inputs, because they have no attributions: 'loan', 'officer'" in w for w in found["warnings"]
    )
    table = pd.read_parquet(folder / "loans.parquet")
    own = eh.audit_given(
        table[INPUTS],
        table["approved"],
        sensitive_features=table["race"],
        financial_features=["income", "debt"],
        scores=table["score"],
        attributions=table.filter(like="shap_").rename(columns=lambda name: name.removeprefix("shap_")),
    )
    assert found["cec"]["excess"] == own.to_dict()["cec"]["excess"]
    beside = [*SCORED, "--attributions-file"]
    by_id = [*beside, folder / "by_id.csv", "--id", "loan", "--base-values", "base"]
    in_order = [*beside, folder / "in_order.parquet"]
    named = [*in_order, "--attributions", "income=income, debt , *"]
    for options in (by_id, in_order, named, [*in_order, "--base-values", "0.25"]):
        again = audit(evenhand, tmp_path, folder / "plain.csv", *options)
        assert again["score_gap"]["logit"]["value"] == pytest.approx(found["score_gap"]["logit"]["value"], abs=1e-6)
        assert again["cec"]["excess"] == pytest.approx(found["cec"]["excess"], abs=1e-6)
    assert set(again["data"]["hashes"]) == {"scores", "data file", "attributions file"}


def test_decisions_reasons_and_prices_need_no_label(evenhand, folder, tmp_path):
    drop = ["--drop", "loan,officer,score,approved"]
    decided = audit(
        evenhand, tmp_path, folder / "plain.csv", "--decision", "decided", "--reason-codes", "reason", *drop,
        "--drop", "loan,score,approved,apr",
    )  # fmt: skip
    assert decided["scope"]["outcome"] == "decision"
    assert decided["data"]["n_features"] == 4  # income, debt, job, officer
    assert decided["scope"]["n_reason_codes"] == 1
    assert decided["reasons"]["source"].startswith("the given codes")
    price = ["--scores", "apr", "--unit", "percentage points", "--favorable", "low", *drop]
    unknown = "loan,officer,score,approved,decided,reason"
    priced = audit(evenhand, tmp_path, folder / "plain.csv", *price, "--drop", unknown)
    assert "percentage points" in priced["verdict"]["headline"]
    (tmp_path / "a.toml").write_text(
        'group = "race"\nfinancial = ["income", "debt"]\nscores = "apr"\n'
        'unit = "percentage points"\nfavorable = "low"\n'
        'drop = ["loan", "officer", "score", "approved", "decided", "reason"]\n'
    )
    code, said = evenhand("audit", folder / "plain.csv", "--config", tmp_path / "a.toml", "--out", tmp_path / "toml")
    assert code == 0, said
    assert summary(tmp_path, "toml")["score_gaps"] == priced["score_gaps"]


def test_a_quick_look_and_rows_left_out_keep_their_attributions(evenhand, folder, tmp_path, monkeypatch):
    table = pd.read_parquet(folder / "loans.parquet")
    table.loc[::7, "race"] = None
    table.to_parquet(tmp_path / "gaps.parquet")
    monkeypatch.setattr("evenhand.cli.jobs._QUICK_PEOPLE", 120)
    options = [*SCORED, "--drop-missing", "--quick", "--attributions"]
    found = audit(evenhand, tmp_path, tmp_path / "gaps.parquet", *options, "shap_*")
    assert found["data"]["n_people"] == 120
    assert found["warnings"][0].startswith("This is a quick look at 120 of 257 people")


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ([*SCORED, "--model", "m.onnx"], "--scores take the place of a model, but --model names one too"),
        ([*SCORED, "--stream"], "An audit without a model runs in memory: drop --stream"),
        ([*SCORED, "--reference", "x.csv"], "--reference needs --model"),
        ([*SCORED, "--no-evidence"], "--no-evidence needs --model"),
        (
            ["--base-values", "0.1", "--drop", "loan"],
            "needs `scores` (--scores) or `decisions` (--decision), but neither",
        ),
        (["--reason-codes", "race", "--drop", "loan"], "is 0 for everyone, so there is nothing to compare"),
        (["--scores", "scor"], "Did you mean 'score'?"),
        ([*SCORED, "--attributions", "phi_*"], "matches no column: 'phi_*' is none of"),
        ([*SCORED, "--attributions", "*_*_x"], "may have one * in a pattern"),
        ([*SCORED, "--attributions", "income=score,income=apr"], "gives 'income' two columns, 'score' and 'apr'"),
        ([*SCORED, "--attributions", "incme=score"], "attributions for ['incme'], which are not columns"),
        ([*SCORED, "--attributions", "income=score"], "missing for the financial features ['debt']"),
        ([*SCORED, "--base-values", "bse"], "`base_values` (--base-values)"),
        ([*SCORED, "--attributions-file", "short.csv"], "has 3 rows for 300 rows of the applicants' file"),
        ([*SCORED, "--attributions-file", "short.csv", "--id", "loan"], "names columns absent"),
        ([*SCORED, "--attributions-file", "some.csv", "--id", "loan"], "has no row for 297 of 300 applicants"),
        ([*SCORED, "--attributions-file", "twice.csv", "--id", "loan"], "`loan` must be unique"),
    ],
)
def test_bad_options_get_one_sentence(evenhand, folder, tmp_path, monkeypatch, options, says):
    monkeypatch.chdir(tmp_path)
    some = pd.read_csv(folder / "by_id.csv").drop(columns="base").head(3)
    some.drop(columns="loan").to_csv("short.csv", index=False)
    some.to_csv("some.csv", index=False)
    pd.concat([some, some]).to_csv("twice.csv", index=False)
    code, said = evenhand("audit", folder / "plain.csv", *ROLES, *options, "--out", tmp_path / "out")
    assert code == 2
    assert says in said
    assert not (tmp_path / "out").exists()
