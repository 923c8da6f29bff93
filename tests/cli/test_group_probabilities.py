"""Probabilities of groups on the command line and in TOML files."""

import json

import joblib
import numpy as np
import pandas as pd
import pytest
from pyarrow import csv as arrow_csv
from sklearn.linear_model import LogisticRegression

import evenhand as eh

pytestmark = pytest.mark.integration

GIVEN = ("--label", "approved", "--financial", "income,debt")
PROBABLE = ("--group-probabilities", "pr_white,pr_black", "--draws", "3")


@pytest.fixture(scope="module")
def loans(tmp_path_factory):
    """A table with probabilities of groups, and a model that does not see them."""
    rng = np.random.default_rng(2)
    n = 220
    proxy = rng.normal(size=n)
    share = (1 / (1 + np.exp(-3 * proxy))).round(4)
    table = pd.DataFrame(rng.normal(size=(n, 2)), columns=["income", "debt"])
    table["street"] = (proxy + rng.normal(size=n)).round(3)
    table["approved"] = (table["income"] - table["debt"] + rng.logistic(size=n) > 0).astype(int)
    table = table.assign(pr_white=(1 - share).round(4), pr_black=share)
    folder = tmp_path_factory.mktemp("loans")
    table.to_csv(folder / "loans.csv", index=False)
    inputs = ["income", "debt", "street"]
    joblib.dump(LogisticRegression().fit(table[inputs], table["approved"]), folder / "model.joblib")
    return folder


def test_command_line_toml_and_python_agree(evenhand, loans, tmp_path):
    model = ("--model", loans / "model.joblib", "--trust-pickle")
    code, out, err = evenhand("audit", loans / "loans.csv", *GIVEN, *PROBABLE, *model, "--out", tmp_path / "a")
    assert code == 0, err
    assert "comes from the first draw" in " ".join(out.split())
    config = tmp_path / "audit.toml"
    config.write_text(
        'label = "approved"\nfinancial = ["income", "debt"]\ngroup_probabilities = ["pr_white", "pr_black"]\n'
        "draws = 3\ngroup_threshold = 0.8\n"
    )
    assert evenhand("audit", loans / "loans.csv", "--config", config, *model, "--out", tmp_path / "b")[0] == 0
    table = arrow_csv.read_csv(loans / "loans.csv").to_pandas()  # exact, unlike that of pandas 2
    probable = eh.GroupProbabilities(table[["pr_white", "pr_black"]], n_draws=3)
    expected = eh.audit(
        joblib.load(loans / "model.joblib"),
        table[["income", "debt", "street"]],
        table["approved"],
        sensitive_features=probable,
        financial_features=["income", "debt"],
    ).to_dict()["drawn_groups"]["metrics"]
    for name in ("a", "b"):
        found = json.loads((tmp_path / name / "audit.json").read_text("utf-8"))["drawn_groups"]["metrics"]
        assert [row["value"] for row in found] == pytest.approx([row["value"] for row in expected], abs=1e-12)


def test_without_a_model_one_is_fitted_that_does_not_see_the_probabilities(evenhand, loans, tmp_path):
    code, _, err = evenhand("audit", loans / "loans.csv", *GIVEN, *PROBABLE, "--no-evidence", "--out", tmp_path)
    assert code == 0, err
    found = json.loads((tmp_path / "audit.json").read_text("utf-8"))
    assert found["drawn_groups"]["n_draws"] == 3
    assert found["data"]["n_features"] == 3


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--group", "street"), "--group and --group-probabilities both"),
        (("--stream",), "needs everyone in memory"),
        (("--draws", "1"), "--draws"),
        (("--group-threshold", "0.3"), "--group-threshold"),
        (("--group-probabilities", "pr_white,pr_blac"), "Did you mean 'pr_black'?"),
        (("--group-probabilities", "pr_white,street"), "at least 0"),
        (("--group-probabilities", "pr_white"), "a column for every group"),
        (("--financial", "income,pr_black"), "is the group"),
    ],
)
def test_what_cannot_be_used_is_refused_in_a_sentence(evenhand, loans, tmp_path, options, words):
    model = ("--model", loans / "model.joblib", "--trust-pickle")
    code, _, err = evenhand(
        "audit", loans / "loans.csv", *GIVEN, *PROBABLE, *model, *options, "--out", tmp_path / "out"
    )
    assert code == 2
    assert words in " ".join(err.split())
    assert not (tmp_path / "out").exists()
