"""Reason maps on the command line and in TOML files."""

import json

import numpy as np
import openpyxl
import pandas as pd
import pytest

from evenhand.cli.options import AuditPlan, plan_from_toml
from evenhand.exceptions import InvalidInputError

BASICS = ["--label", "good", "--group", "sex", "--financial", "income,debt"]


@pytest.fixture
def evenhand(evenhand):
    """Runs a command; returns exit code and errors."""
    return lambda *arguments: evenhand(*arguments)[::2]


@pytest.fixture
def loans(tmp_path):
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.normal(size=(400, 4)), columns=["income", "debt", "late", "years"])
    table["good"] = (rng.logistic(size=400) < 2 * (table["income"] - table["debt"] - table["late"])).astype(int)
    table["sex"] = rng.choice(["f", "m"], 400)
    table.to_csv(tmp_path / "loans.csv", index=False)
    return tmp_path / "loans.csv"


@pytest.mark.integration
@pytest.mark.usefixtures("real_pages")
def test_a_map_in_a_file_gives_the_reasons_of_every_output(evenhand, loans, tmp_path):
    map_file = tmp_path / "reasons.toml"
    map_file.write_text('[reasons]\n"Ability to pay" = ["income", "debt"]\n"*" = "History"\n', encoding="utf-8")
    out = tmp_path / "out"
    code, errors = evenhand("audit", loans, *BASICS, "--reason-map", map_file, "--n-reasons", "2", "--out", out)
    assert code == 0, errors
    found = json.loads((out / "audit.json").read_text("utf-8"))
    assert found["reasons"]["names"] == ["Ability to pay", "History"]
    assert found["settings"]["reason_map"] == {
        "income": "Ability to pay",
        "debt": "Ability to pay",
        "late": "History",
        "years": "History",
    }
    heads, *rows = openpyxl.load_workbook(out / "audit.xlsx")["Reasons"].iter_rows(values_only=True)
    assert list(heads) == ["person", "group", "decision", "reason 1", "reason 2", "share 1", "share 2"]
    assert {row[3] for row in rows} <= {"Ability to pay", "History"}
    assert "Reason codes" in (out / "report.html").read_text("utf-8")


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ('[reasons]\nincome = "Income"\n', "has no reason for 3 of 4 features: 'debt', 'late', 'years'"),
        ('[reasons]\nincom = "Income"\n"*" = "Other"\n', "Did you mean 'income'?"),
    ],
)
def test_a_map_that_does_not_fit_exits_with_two_before_anything_is_fitted(evenhand, loans, tmp_path, text, sentence):
    (tmp_path / "reasons.toml").write_text(text, encoding="utf-8")
    out = tmp_path / "out"
    code, errors = evenhand("audit", loans, *BASICS, "--reason-map", tmp_path / "reasons.toml", "--out", out)
    assert code == 2
    assert sentence in " ".join(errors.split())
    assert not out.exists()


def test_the_map_may_stand_in_the_toml_file_of_the_audit(tmp_path):
    file = tmp_path / "audit.toml"
    file.write_text('label = "good"\n[reasons]\nDebt = ["owed"]\n"*" = "Other"\n', encoding="utf-8")
    assert plan_from_toml(file, AuditPlan).reason_map == {"Debt": ["owed"], "*": "Other"}
    file.write_text('reason_map = "reasons.toml"\n', encoding="utf-8")
    assert plan_from_toml(file, AuditPlan).reason_map == "reasons.toml"
    file.write_text("reason_map = 4\n", encoding="utf-8")
    with pytest.raises(InvalidInputError, match="reason_map must be a string, got 4"):
        plan_from_toml(file, AuditPlan)
