"""A messy export on the command line: checked, configured, audited; nothing wrong goes in quietly."""

import json

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

from evenhand.cli.terminal import with_options

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def loans(tmp_path_factory):
    """A table saved with its index, with a numeric id, a date as text, spaces in a name, and gaps in the group."""
    rng = np.random.default_rng(0)
    n = 300
    income, debt = rng.lognormal(10, 0.5, n).round(-2), rng.normal(30, 8, n).round(1)
    table = pd.DataFrame(
        {
            "loan_id": rng.permutation(10**6)[:n],
            "opened": pd.date_range("2021-03-01", periods=n).strftime("%d/%m/%Y"),
            " income ": income,
            "debt": debt,
            "sex": rng.choice(["f", "m"], n),
            "approved": (np.log(income) - debt / 20 + rng.normal(0, 0.4, n) > 8.5).astype(int),
        }
    )
    table.loc[::50, "sex"] = None
    path = tmp_path_factory.mktemp("loans") / "loans.csv"
    table.to_csv(path, index_label="Unnamed: 0")
    return path


@pytest.fixture(scope="module")
def models(loans, tmp_path_factory):
    """A model of two columns, and one that somebody fitted with the id and the index."""
    folder = tmp_path_factory.mktemp("models")
    table = pd.read_csv(loans)
    for name, columns in (("plain", [" income ", "debt"]), ("careless", ["Unnamed: 0", "loan_id", " income ", "debt"])):
        joblib.dump(LogisticRegression(max_iter=5000).fit(table[columns], table["approved"]), folder / f"{name}.joblib")
    return folder


BASICS = ["--label", "approved", "--group", "sex", "--financial", "income,debt", "--drop-missing", "--no-evidence"]
UNFIT = ["'Unnamed: 0' (saved index", "'loan_id' (id", "'opened' (date"]


def told(text, sentences):
    return all(sentence in text for sentence in sentences)


@pytest.mark.filterwarnings("default::evenhand.EvenhandWarning")
def test_a_check_writes_a_page_and_a_configuration_that_an_audit_takes(evenhand, loans, models, tmp_path):
    code, out, err = evenhand("check", loans, "--out", tmp_path)
    assert code == 0, err
    assert "Label: approved" in out
    assert (tmp_path / "check.html").is_file()
    config = tmp_path / "audit.toml"
    assert told(config.read_text(), ['"Unnamed: 0",', '"loan_id",', '"opened",', "drop_missing = true"])
    model = ("--model", models / "plain.joblib", "--trust-pickle", "--no-evidence")
    code, out, err = evenhand("audit", loans, "--config", config, *model, "--out", tmp_path / "report")
    assert code == 0, err
    assert "Left out 6 rows: no value in 'sex'." in out
    assert "Run time: " in out


def test_options_of_a_check_go_before_its_proposals(evenhand, loans, tmp_path):
    code, out, err = evenhand(
        "check", loans, "--out", tmp_path, "--financial", "debt", "--drop", "opened", "--group", "sex"
    )
    assert code == 0, err
    assert "Financial features: debt" in out
    assert "opened" not in out
    assert '"opened",      # you named it' in (tmp_path / "audit.toml").read_text()
    assert evenhand("check", loans, "--label", "aproved")[0] == 2


@pytest.mark.filterwarnings("default::evenhand.EvenhandWarning")
def test_what_is_no_input_stays_out_of_an_audit_without_a_model(evenhand, loans, tmp_path):
    code, _, err = evenhand("audit", loans, *BASICS, "--out", tmp_path)
    assert code == 0, err
    found = json.loads((tmp_path / "audit.json").read_text())
    assert {row["feature"] for row in found["features"]} == {" income ", "debt"}
    assert told(err, UNFIT)
    assert told(" ".join(found["warnings"]), UNFIT)


@pytest.mark.filterwarnings("default::evenhand.EvenhandWarning")
def test_what_is_no_input_stays_out_of_training(evenhand, loans, tmp_path):
    arguments = [option for option in BASICS if option != "--no-evidence"]
    code, _, err = evenhand("train", loans, *arguments, "--epochs", 20, "--out", tmp_path / "model")
    assert code == 0, err
    assert told(err, UNFIT)
    code, _, err = evenhand("audit", loans, *BASICS, "--model", tmp_path / "model", "--out", tmp_path)
    assert code == 0, err


@pytest.mark.parametrize("how", [(), ("--stream",)])
@pytest.mark.filterwarnings("default::evenhand.EvenhandWarning")
def test_a_model_that_needs_an_id_is_refused_until_it_is_named(evenhand, loans, models, tmp_path, how):
    arguments = [
        "audit",
        loans,
        *BASICS,
        "--model",
        models / "careless.joblib",
        "--trust-pickle",
        *how,
        "--out",
        tmp_path,
    ]
    code, _, err = evenhand(*arguments)
    assert code == 2
    assert told(err, UNFIT[:2])
    assert "--keep-inputs" in err
    code, _, err = evenhand(*arguments, "--keep-inputs", "Unnamed: 0,loan_id")
    assert code == 0, err
    found = json.loads((tmp_path / "audit.json").read_text())
    assert any("'loan_id' has a different number" in warning for warning in found["warnings"])


@pytest.mark.filterwarnings("default::evenhand.EvenhandWarning")
def test_in_batches_what_is_no_input_stays_out_too(evenhand, loans, models, tmp_path):
    """A model that names no columns takes all that are left."""
    unnamed = tmp_path / "unnamed.joblib"
    table = pd.read_csv(loans)
    joblib.dump(LogisticRegression().fit(table[[" income ", "debt"]].to_numpy(), table["approved"]), unnamed)
    arguments = ["audit", loans, *BASICS, "--model", unnamed, "--trust-pickle", "--columns", "as-is"]
    for how in ((), ("--stream",)):
        code, _, err = evenhand(*arguments, *how, "--out", tmp_path / "-".join(how))
        assert code == 0, err
        assert told(err, UNFIT)
        warnings = json.loads((tmp_path / "-".join(how) / "audit.json").read_text())["warnings"]
        assert told(" ".join(warnings), UNFIT)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (["--financial", "income,sex"], "The financial feature 'sex' is the group"),
        (["--financial", "income,approved"], "The financial feature 'approved' is the label"),
        (["--drop", "debt"], "The financial feature 'debt' is removed by `drop` (--drop)"),
        (["--financial", "incom"], "`financial_features` (--financial) names columns absent from the data: ['incom']"),
        (["--model", "nowhere.onnx"], "nowhere.onnx"),
    ],
)
def test_refusals_say_what_is_wrong_and_name_the_option(evenhand, loans, tmp_path, change, message):
    code, _, err = evenhand("audit", loans, *BASICS, *change, "--out", tmp_path / "report")
    assert code == 2
    assert message in err


def test_people_without_a_group_are_refused_with_the_way_out(evenhand, loans, tmp_path):
    arguments = [option for option in BASICS if option != "--drop-missing"]
    code, _, err = evenhand("audit", loans, *arguments, "--drop", "opened,loan_id,Unnamed: 0", "--out", tmp_path)
    assert code == 2
    assert "6 missing values" in err
    assert "--drop-missing" in err


def test_options_are_named_once():
    assert with_options("`label` (--label) and `y`") == "`label` (--label) and `y` (--label)"
    assert with_options("`sensitive_features`") == "`sensitive_features` (--group)"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A table with words for a label, and a configuration that drops two columns."""
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    income = rng.lognormal(10, 0.5, 300).round(-2)
    deny = (np.log(income) + rng.normal(0, 0.4, 300) < 9.8).astype(int)
    table = {"income": income, "debt": rng.normal(30, 8, 300).round(1), "sex": rng.choice(["f", "m"], 300)}
    table |= {
        "repaid": np.where(deny, "No", "Yes"),
        "reason": rng.integers(0, 5, 300),
        "channel": rng.integers(0, 3, 300),
    }
    pd.DataFrame({**table, "deny": deny}).to_csv(folder / "loans.csv", index=False)
    (folder / "audit.toml").write_text(
        'label = "repaid"\npositive_label = "Yes"\ngroup = ["sex"]\nfinancial_features = ["income"]\n'
        'drop = ["reason", "deny"]\nevidence = false\n'
    )
    return folder


def inputs_of(folder):
    return {row["feature"] for row in json.loads((folder / "audit.json").read_text())["features"]}


@pytest.mark.filterwarnings("default::evenhand.EvenhandWarning")
@pytest.mark.parametrize(
    ("given", "inputs"),
    [
        (["--drop", "channel"], {"income", "debt"}),
        (["--drop", "channel", "--only", "drop"], {"income", "debt", "reason", "deny"}),
        (["--drop", "debt,channel"], {"income"}),
    ],
)
def test_lists_are_added_to_those_of_the_file(files, tmp_path, given, inputs, evenhand):
    code, _, err = evenhand("audit", files / "loans.csv", "--config", files / "audit.toml", *given, "--out", tmp_path)
    assert code == 0, err
    assert inputs_of(tmp_path) == inputs


def test_only_an_option_can_be_named(files, tmp_path, evenhand):
    code, _, err = evenhand("audit", files / "loans.csv", "--config", files / "audit.toml", "--only", "dropp")
    assert code == 2
    assert "Did you mean 'drop'" in err


@pytest.mark.filterwarnings("default::evenhand.EvenhandWarning")
def test_an_audit_asks_for_the_favorable_value_of_a_bad_outcome(files, tmp_path, evenhand):
    arguments = ["audit", files / "loans.csv", "--label", "deny", "--group", "sex", "--financial", "income"]
    arguments += ["--drop", "repaid,reason,channel", "--no-evidence", "--out", tmp_path]
    code, _, err = evenhand(*arguments)
    assert code == 2
    assert "By its name, the label 'deny' may be an unfavorable outcome" in err
    code, _, err = evenhand(*arguments, "--positive-label", "0")
    assert code == 0, err
    warnings = json.loads((tmp_path / "audit.json").read_text())["warnings"]
    assert any("the lender's decision" in warning for warning in warnings)


@pytest.mark.filterwarnings("default::evenhand.EvenhandWarning")
@pytest.mark.parametrize("how", ["select * from '{}'", "select l.* from '{}' as l where income > 0"])
def test_a_query_reads_yes_and_no_as_a_file_does(files, tmp_path, how, evenhand):
    pytest.importorskip("duckdb")
    query = how.format(files / "loans.csv")
    code, _, err = evenhand("audit", "--sql", query, "--config", files / "audit.toml", "--out", tmp_path)
    assert code == 0, err
