"""From a file as it is to a report, without Python: what `check` proposes under [clean] is used as the file is read."""

import json
import re
import shlex

import numpy as np
import pandas as pd
import pytest
import skops.io
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

import evenhand as eh
from evenhand.inputs.people import Columns
from evenhand.inputs.read_options import ReadOptions
from evenhand.inputs.tables import open_table

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("default::evenhand.EvenhandWarning")]

INPUTS = ["income", "debt_ratio", "credit_score", "age"]


@pytest.fixture(scope="module")
def tidy():
    """What somebody who knows Python would make of the file."""
    rng = np.random.default_rng(0)
    n = 200
    table = pd.DataFrame(
        {
            "income": rng.lognormal(10.5, 0.4, n).round(),
            "debt_ratio": rng.uniform(5, 60, n).round(1),
            "credit_score": np.clip(rng.normal(680, 60, n), 300, 850).round(),
            "age": rng.integers(19, 80, n),
            "sex": rng.choice(["Female", "Male"], n),
        }
    )
    table.loc[rng.choice(n, 10, replace=False), "credit_score"] = np.nan
    logit = np.log(table["income"]) - 10.5 - table["debt_ratio"] / 30 + (table["credit_score"].fillna(680) - 650) / 60
    table["repaid"] = np.where(rng.random(n) < 1 / (1 + np.exp(-logit)), "yes", "no")
    return table


@pytest.fixture(scope="module")
def files(tidy, tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    messy = tidy.assign(
        income=[f"${value:,.0f}" for value in tidy["income"]],
        debt_ratio=[f"{value}%" for value in tidy["debt_ratio"]],
        credit_score=tidy["credit_score"].fillna(-999).astype(int),
        sex=tidy["sex"].mask((tidy["sex"] == "Female") & (tidy.index % 3 == 0), "female "),
    )
    tidy.to_csv(folder / "tidy.csv", index=False)
    messy.to_csv(folder / "messy.csv", index=False)
    messy.assign(income=tidy["income"], debt_ratio=tidy["debt_ratio"]).to_parquet(folder / "messy.parquet")
    model = make_pipeline(SimpleImputer(), LogisticRegression(max_iter=5000)).fit(tidy[INPUTS], tidy["repaid"] == "yes")
    skops.io.dump(model, folder / "model.skops")
    scored = messy.assign(score=model.predict_proba(tidy[INPUTS])[:, 1])
    scored.to_csv(folder / "scored.csv", index=False)
    tidy.assign(score=scored["score"]).to_csv(folder / "tidy_scored.csv", index=False)
    return folder


def uncommented(config):
    """The file after somebody removed the # before every line of [clean]."""
    head, clean = config.read_text().split("\n[clean]\n")
    config.write_text(f"{head}\n[clean]\n" + re.sub(r"^# (?=\w+ = )", "", clean, flags=re.MULTILINE))
    return config


def told(folder):
    return json.loads((folder / "audit.json").read_text())


def numbers(folder):
    found = told(folder)
    return json.dumps([found[key] for key in ("cec", "outcome", "features", "regimes", "matching")])


def test_from_a_messy_file_to_a_page_without_python(evenhand, files, tmp_path, real_pages):
    code, out, err = evenhand("check", files / "messy.csv", "--out", tmp_path / "check")
    assert code == 0, err
    config = tmp_path / "check" / "audit.toml"
    assert "- Remove the # before groups =, in [clean]." in out
    assert '# groups = {"female " = "Female"}' in config.read_text()
    assert '# missing = ["credit_score=-999"]' in config.read_text()
    audit = ["audit", files / "messy.csv", "--config", config, "--model", files / "model.skops"]
    code, _, err = evenhand(*audit, "--out", tmp_path / "refused")
    assert code == 2
    assert "[clean] groups = {'female ' = 'Female'}" in err  # what the check said would be refused
    uncommented(config)
    code, out, err = evenhand(*audit, "--pack", "--out", tmp_path / "report")
    assert code == 0, err
    found = told(tmp_path / "report")
    assert set(found["data"]["groups"]) == {"Female", "Male"}
    assert found["data"]["columns"]["merged groups"] == ["'female ' as 'Female'"]
    assert "credit_score: 10 values were read as missing, as you set: '-999'." in found["warnings"]
    page = (tmp_path / "report" / "report.html").read_text()
    assert "Merged groups" in page
    assert "10 values were read as missing" in page
    code, out, err = evenhand(
        "verify", tmp_path / "report" / "pack.zip", "--data", files / "messy.csv", "--model", files / "model.skops"
    )
    assert code == 0, out + err
    assert "numbers are the same" in out


@pytest.mark.parametrize(
    ("name", "group", "way"),
    [
        ("messy.csv", "sex", ()),
        ("messy.parquet", "age", ()),
        ("messy.csv", "age", ("--stream", "--batch-rows", 90)),
        ("messy.parquet", "sex", ("--stream", "--batch-rows", 90)),
    ],
)
def test_cleaning_gives_the_numbers_of_a_clean_file(evenhand, files, tmp_path, way, name, group):
    tidy = pd.read_csv(files / "tidy.csv")
    if group == "age":
        names = ["under 25", "25 to under 62", "62 and over"]
        tidy["band"] = pd.cut(tidy["age"], [-np.inf, 25, 62, np.inf], right=False, labels=names)
    tidy.to_csv(tmp_path / "tidy.csv", index=False)
    same = ["--label", "repaid", "--positive-label", "yes", "--model", files / "model.skops", "--no-evidence", *way]
    same += ["--financial", "income,debt_ratio,credit_score"]
    config = tmp_path / "clean.toml"
    config.write_text('[clean]\nmissing = [-999]\ngroups = {"female " = "Female"}\n')
    if group == "age":
        config.write_text("[clean]\nmissing = [-999]\nbands = {age = [25, 62]}\n")
    code, _, err = evenhand("audit", files / name, "--group", group, *same, "--config", config, "--out", tmp_path / "a")
    assert code == 0, err
    own = "sex" if group == "sex" else "band"
    code, _, err = evenhand("audit", tmp_path / "tidy.csv", "--group", own, *same, "--out", tmp_path / "b")
    assert code == 0, err
    assert numbers(tmp_path / "a") == numbers(tmp_path / "b")
    assert told(tmp_path / "a")["data"]["groups"] == told(tmp_path / "b")["data"]["groups"]


def test_given_scores_are_read_with_the_same_cleaning(evenhand, files, tmp_path):
    same = ["--label", "repaid", "--positive-label", "yes", "--group", "sex", "--scores", "score"]
    same += ["--financial", "income,debt_ratio,credit_score"]
    config = tmp_path / "clean.toml"
    config.write_text('[clean]\ngroups = {"female " = "Female"}\n')
    code, _, err = evenhand(
        "audit", files / "scored.csv", *same, "--config", config, "--missing=-999", "--out", tmp_path / "a"
    )
    assert code == 0, err
    code, _, err = evenhand("audit", files / "tidy_scored.csv", *same, "--out", tmp_path / "b")
    assert code == 0, err
    assert told(tmp_path / "a")["findings"] == told(tmp_path / "b")["findings"]


def test_a_column_keeps_its_numbers_as_an_input_and_is_cut_as_a_group(files):
    table = pd.read_csv(files / "tidy.csv")
    roles = {"positive_label": "yes", "bands": {"age": (25, 62)}, "by": ("age",)}
    columns = Columns(label="repaid", group=("age",), features=tuple(INPUTS), **roles).among(list(table.columns))
    people = columns.people_of(next(open_table(files / "messy.parquet").pieces(columns.needed)), "file")
    assert people.table["age"].tolist() == table["age"].tolist()
    assert people.groups.names == ("25 to under 62", "62 and over", "under 25")
    assert sorted(set(people.by["age"])) == ["25 to under 62", "62 and over", "under 25"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[clean]\ngroup = {}", "unknown key 'group' in [clean], which has groups, missing, bands"),
        ('[clean]\nmodel = "m.skops"', "write all other keys above the line [clean]"),
        ("clean = 3", "clean must be a table"),
        ("[clean]\nmissing = 3", "missing of [clean] must be a list of words and numbers, got 3"),
        ('[clean]\nbands = {age = "25"}', "ascending numbers, such as {'age': [25, 62]}, got '25' for 'age'"),
        ("[clean]\nbands = {age = [62, 25]}", "got [62, 25] for 'age'"),
        ("[clean]\nbands = {age = [25]}", "neither `group` (--group) nor among `by` (--by)"),
        ('by = ["sex"]\n[clean]\nbands = {sex = [25]}', "'sex', which does not hold numbers"),
        ("[clean]\nbands = {agee = [25]}", "Did you mean 'age'?"),
        ("[clean]\ngroups = {f = 1}", "must give each spelling the name to read it as"),
    ],
)
def test_what_cannot_be_cleaned_is_one_sentence(evenhand, files, tmp_path, text, message):
    (tmp_path / "clean.toml").write_text(text)
    basics = ["--label", "repaid", "--positive-label", "yes", "--group", "sex", "--financial", "income"]
    code, _, err = evenhand("audit", files / "tidy.csv", *basics, "--config", tmp_path / "clean.toml")
    assert code == 2
    assert message in err


def test_words_for_missing_belong_to_any_column_or_to_one():
    reading = ReadOptions(missing=(-999, "a=b", "x=y=-1"))
    assert reading.missing_in("a", ["a", "x=y"]) == ("-999", "b")
    assert reading.missing_in("x=y", ["a", "x=y"]) == ("-999", "-1")
    assert reading.missing_in("z", ["z"]) == ("-999", "a=b", "x=y=-1")


@pytest.mark.parametrize("ending", ["csv", "parquet", "feather", "xlsx"])
def test_a_number_that_means_missing_is_missing_in_every_kind_of_file(tmp_path, ending):
    table = pd.DataFrame({"a": [1, -999, 3], "b": [1.5, -999.0, -999.5], "c": ["x", "-999", "y"], "d": [-999, 5, 6]})
    table["e"] = pd.Categorical(["low", "unknown", "high"], categories=["high", "low", "unknown"], ordered=True)
    path = tmp_path / f"table.{ending}"
    {"csv": table.to_csv, "parquet": table.to_parquet, "feather": table.to_feather, "xlsx": table.to_excel}[ending](
        path, **({"index": False} if ending in ("csv", "xlsx") else {})
    )
    read = eh.read_table(path, ReadOptions(missing=("a=-999", "b=-999", "c=-999", "unknown")))
    expected = table.isin([-999, "-999", "unknown"])
    expected["d"] = False
    pd.testing.assert_frame_equal(read.isna(), expected)
    if ending == "parquet":
        assert read["e"].cat.categories.tolist() == ["high", "low", "unknown"]


def recommended(out):
    """The words of the command that a check recommends."""
    (line,) = [line for line in out.splitlines() if line.startswith("Then run: evenhand ")]
    return shlex.split(line.removeprefix("Then run: evenhand "))


def test_the_command_that_a_check_recommends_runs_as_it_is_printed(evenhand, tidy, tmp_path):
    path = tmp_path / "my loans.csv"
    tidy.assign(home=[("loué", "prêt", "unknown")[k % 3] for k in tidy.index]).to_csv(
        path, index=False, encoding="cp1252"
    )
    options = ["--encoding", "cp1252", "--missing=unknown"]
    code, out, err = evenhand("check", path, *options, "--out", tmp_path / "a check")
    assert code == 0, err
    assert "Before the audit, read" in out
    code, _, err = evenhand(*recommended(out), "--no-evidence", "--out", tmp_path / "audit")
    assert code == 0, err
    assert any("66 values were read as missing" in warning for warning in told(tmp_path / "audit")["warnings"])


def test_ages_are_proposed_as_a_group_in_bands(evenhand, tidy, tmp_path):
    tidy.drop(columns="sex").to_csv(tmp_path / "ages.csv", index=False)
    code, out, err = evenhand("check", tmp_path / "ages.csv", "--out", tmp_path)
    assert code == 0, err
    assert "- Remove the # before bands =, in [clean]." in out
    uncommented(tmp_path / "audit.toml")
    code, _, err = evenhand(*recommended(out), "--no-evidence", "--out", tmp_path / "audit")
    assert code == 0, err
    assert set(told(tmp_path / "audit")["data"]["groups"]) == {"under 25", "25 to under 62", "62 and over"}


@pytest.mark.parametrize(
    ("change", "step"),
    [
        ({"sex": "Female"}, "'sex' has fewer than two groups"),
        ({"repaid": [str(k % 3) for k in range(200)]}, "Remove the # before label =, and write a column."),
    ],
)
def test_what_an_audit_would_refuse_is_a_step_before_it(evenhand, tidy, tmp_path, change, step):
    tidy.assign(**change).to_csv(tmp_path / "loans.csv", index=False)
    code, out, err = evenhand("check", tmp_path / "loans.csv", "--group", "sex", "--out", tmp_path)
    assert code == 0, err
    assert step in out
    assert evenhand(*recommended(out), "--no-evidence", "--out", tmp_path / "audit")[0] == 2
