"""The check of a whole table: what it finds, what it proposes, and what can be done with it."""

import os
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

import evenhand as eh
from evenhand.cli.options import AuditPlan, plan_from_toml
from evenhand.datasets.hmda import HMDA_FINANCIAL, HMDA_POST_DECISION
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.tables import read_table


def applications(n=600, seed=0):
    """A messy export of applications."""
    rng = np.random.default_rng(seed)
    income = rng.lognormal(10, 0.5, n).round(-2)
    paid = (np.log(income) + rng.normal(0, 0.5, n) > 10).astype(int)
    sex = rng.choice(["f", "m"], n)
    table = pd.DataFrame(
        {
            "Unnamed: 0": np.arange(n),
            "application_id": rng.permutation(10**6)[:n],
            "opened": pd.date_range("2019-01-01", periods=n).strftime("%m/%d/%Y"),
            "income": income,
            "debt_ratio": rng.normal(30, 8, n).round(1),
            "title": np.where(sex == "f", "Mrs", "Mr"),
            "collected": np.where(paid == 1, 0.0, rng.lognormal(5, 1, n)),
            "sex": sex,
            "default": 1 - paid,
        }
    )
    table.loc[::40, "debt_ratio"] = -999
    table.loc[table.index[table["sex"] == "f"][::50], "sex"] = "F "
    table.loc[3::150, "sex"] = None
    return table


@pytest.fixture(scope="module")
def found():
    return eh.check(applications(), source="loans.csv")


def test_every_fault_of_a_messy_table_is_found(found):
    assert {(p.column, p.kind, p.severity) for p in found.problems} == {
        ("Unnamed: 0", "saved index", "refuse"),
        ("application_id", "id", "refuse"),
        ("opened", "date", "refuse"),
        ("debt_ratio", "sentinel", "warn"),
        ("collected", "leaks the label", "warn"),
        ("title", "predicts the group", "warn"),
        ("sex", "alike groups", "refuse"),
        ("sex", "small groups", "note"),
        ("sex", "missing group", "warn"),
    }
    assert found.problems[0].severity == "refuse"
    assert found.problems[-1].severity == "note"


def test_parts_are_proposed_with_reasons(found):
    assert found.label.columns == ("default",)
    assert found.positive_label == ("0", "by the name of the column, 1 is the unfavorable outcome")
    assert found.group.columns == ("sex",)
    assert found.financial.columns == ("income", "debt_ratio")
    assert all(part.reason for part in (found.label, found.group, found.financial))


def test_the_table_has_a_row_for_every_column(found):
    columns = found.columns.set_index("column")
    assert list(columns.index) == list(applications().columns)
    assert columns.loc["Unnamed: 0", "part"] == "left out"
    assert columns.loc["debt_ratio", ["part", "type", "suspicious"]].tolist() == ["financial", "number", "sentinel"]
    assert columns.loc["sex", "missing"] == 4


def test_the_configuration_is_one_that_an_audit_accepts(found, tmp_path):
    path = found.write_config(tmp_path / "audit.toml")
    plan = plan_from_toml(path, AuditPlan)
    assert (plan.label, plan.positive_label, plan.group) == ("default", "0", ("sex",))
    assert plan.financial_features == ("income", "debt_ratio")
    assert plan.drop == ("Unnamed: 0", "application_id", "opened", "collected")
    assert plan.drop_missing
    text = path.read_text()
    assert "# has a different number in every row" in text
    assert "# - 'debt_ratio' has -999 in 15 rows" in text


def test_hostile_names_stay_in_their_strings_and_comments(tmp_path):
    name = 'in"come\n]\\ \x7f\x00é'
    table = applications()[["income", "sex", "default"]].rename(columns={"income": name})
    result = eh.check(table, financial_features=[name], source="a\nb")
    assert tomllib.loads(result.config())["financial_features"] == [name]
    result.to_html(tmp_path / "check.html")


def test_given_parts_are_not_proposed():
    table = applications()
    y, group = 1 - table.pop("default"), table.pop("sex").fillna("m").str.strip().str.lower()
    result = eh.check(table, y, group, financial_features=["income"])
    assert result.financial.columns == ("income",)
    assert "leaks the label" in {p.kind for p in result.problems}
    assert result.groups.counts == {"m": int((group == "m").sum()), "f": int((group == "f").sum())}
    by_name = eh.check(applications(), "default", ["sex"], positive_label="0")
    assert by_name.label.columns == ("default",)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"y": "defaut"}, "Did you mean 'default'"),
        ({"y": [0, 1]}, "`y` has 2 values for 600 rows"),
        ({"sensitive_features": ["a", "b"]}, "`sensitive_features` has 2 values"),
        ({"positive_label": "good"}, "`positive_label` 'good' is not a value of the label 'default'"),
        ({"financial_features": ["incme"]}, "Did you mean 'income'"),
    ],
)
def test_what_cannot_be_checked_is_refused(arguments, message):
    with pytest.raises(InvalidInputError, match=message):
        eh.check(applications(), **arguments)


def test_the_area_of_a_leak_is_that_of_scikit_learn(found):
    table = applications()
    area = roc_auc_score(1 - table["default"], -table["collected"])
    (leak,) = (p for p in found.problems if p.kind == "leaks the label")
    assert f"AUC {area:.2f}" in leak.sentence


def test_a_number_is_no_group():
    table = applications().assign(age=np.random.default_rng(1).integers(18, 80, 600))
    (problem,) = (p for p in eh.check(table, sensitive_features="age").problems if p.kind == "many groups")
    assert "cut a number such as an age into bands" in problem.sentence


def test_it_is_read_as_text_and_as_a_page(found, tmp_path):
    text = str(found)
    assert text.startswith("600 rows, 9 columns: 4 left out or rejected, 4 with a warning, 1 worth knowing.")
    assert "Financial features: income, debt_ratio" in text
    page = found.to_html(tmp_path / "check.html").read_text()
    assert "Before an audit of loans.csv" in page
    assert "prefers-color-scheme:dark" in page
    assert "financial_features = [&#34;income&#34;, &#34;debt_ratio&#34;]" in page
    assert repr(found) == "CheckResult(loans.csv: 9 columns, 9 problems)"


@pytest.mark.parametrize("name", ["german", "adult", "synthetic"])
def test_well_kept_tables_raise_no_alarm(name):
    data = eh.load_dataset(name, **({"n": 2_000} if name == "synthetic" else {}))
    result = eh.check(data.X, data.y, data.group, financial_features=data.financial_features)
    # No false alarms: Adult's top code of 99,999, its sex among the inputs, German Credit's column that states the sex.
    known = {
        "german": {("personal_status", "predicts the group")},
        "adult": {("capital-gain", "sentinel"), ("sex", "predicts the group")},
    }
    problems = {(p.column, p.kind) for p in result.problems if p.kind != "protected characteristic"}
    assert problems == known.get(name, set())
    protected = {
        "german": {"age", "personal_status", "foreign_worker"},
        "adult": {"age", "marital-status", "race", "sex", "native-country"},
    }
    assert {p.column for p in result.problems if p.kind == "protected characteristic"} == protected.get(name, set())


def raw(name):
    root = os.environ.get("EVENHAND_DATA")
    if root is None or not (Path(root) / name).is_file():
        pytest.skip("EVENHAND_DATA is not set: the raw files are not at hand")
    return read_table(Path(root) / name)


def test_taiwan_as_published_has_an_id_two_characteristics_and_a_few_huge_payments():
    result = eh.check(raw("taiwan/default_of_credit_card_clients.csv.gz"))
    assert [(p.column, p.kind) for p in result.problems] == [
        ("ID", "id"),
        ("MARRIAGE", "protected characteristic"),
        ("AGE", "protected characteristic"),
        *((f"PAY_AMT{month}", "extreme value") for month in (1, 2, 3)),
    ]
    assert result.label.columns == ("default payment next month",)
    assert result.positive_label[0] == "0"
    assert result.group.columns == ("SEX",)
    assert "LIMIT_BAL" in result.financial.columns


@pytest.mark.filterwarnings("ignore:.*were read as text:evenhand.exceptions.EvenhandWarning")
def test_hmda_as_published_has_what_the_loader_knows():
    result = eh.check(raw("hmda/dutchess_home_purchase.csv.gz"))
    after = {p.column for p in result.problems if p.kind == "known after the decision"}
    assert after <= set(HMDA_POST_DECISION)
    assert {"rate_spread", "denial_reason-1", "purchaser_type", "interest_rate"} <= after
    assert (result.label.columns, result.group.columns) == (("action_taken",), ("derived_race",))
    assert {"loan_amount", "income"} <= set(result.financial.columns) <= set(HMDA_FINANCIAL)
    assert not any(p.kind in ("id", "date", "saved index", "free text") for p in result.problems)
    codes = {p.column: p.sentence for p in result.problems if p.kind == "sentinel"}
    assert all("1111 in" in sentence for sentence in codes.values())  # HMDA's code for exempt
