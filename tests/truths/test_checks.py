"""What a check and an audit must say about tables like those on which they were once wrong or silent."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.auditing.checking import favorable_value
from evenhand.inputs.names import protected_characteristic
from evenhand.metrics.proxies import proxy_screen

pytestmark = pytest.mark.filterwarnings("default::evenhand.EvenhandWarning")


def kinds(result, column):
    return {problem.kind for problem in result.problems if problem.column == column}


def loans(n=1_200, seed=0):
    rng = np.random.default_rng(seed)
    income = rng.lognormal(10, 0.5, n).round(-2)
    return pd.DataFrame(
        {
            "income": income,
            "debt": rng.normal(30, 8, n).round(1),
            "sex": rng.choice(["f", "m"], n),
            "repaid": (np.log(income) + rng.normal(0, 0.5, n) > 9.5).astype(int),
        }
    )


# --- rare values ---


@pytest.mark.parametrize(("of_one", "of_other"), [(0.18, 0.05), (0.05, 0.004)])
def test_a_rare_mark_is_not_constant(of_one, of_other):
    rng = np.random.default_rng(0)
    group = rng.integers(0, 2, 1_000)
    mark = (rng.random(1_000) < np.where(group == 1, of_one, of_other)).astype(int)
    (row,) = proxy_screen(pd.DataFrame({"Public record": mark}), group, n_trees=1).features
    assert row.note == ""
    share = [mark[group == code].mean() for code in (0, 1)]
    assert row.auc == pytest.approx(0.5 + abs(share[1] - share[0]) / 2)


def test_rare_values_on_both_sides_of_a_common_one_are_kept_apart():
    rng = np.random.default_rng(1)
    group = rng.integers(0, 2, 2_000)
    is_rare = rng.random(2_000) < np.where(group == 1, 0.08, 0.0)
    change = np.where(is_rare, rng.choice([-1, 1], 2_000) * rng.uniform(1, 9, 2_000), 0.0)
    (row,) = proxy_screen(pd.DataFrame({"change": change}), group, n_trees=1).features
    assert row.auc == pytest.approx(0.54, abs=0.01)


@pytest.mark.parametrize("seed", [0, 1])
def test_a_leak_of_a_rare_default_is_not_a_financial_feature(seed):
    rng = np.random.default_rng(seed)
    table = loans(2_000, seed).drop(columns="repaid")
    table["default"] = (rng.random(2_000) < 0.04).astype(int)
    table["unpaid_balance"] = np.where(table["default"] == 1, rng.lognormal(8, 1, 2_000).round(), 0.0)
    result = eh.check(table)
    assert "leaks the label" in kinds(result, "unpaid_balance")
    assert "unpaid_balance" not in result.financial.columns


# --- the label ---


@pytest.mark.parametrize(
    "name",
    ["deny", "reject", "charged_off", "chargeoff", "denied", "declined", "default", "delinquent", "bad", "isRejected"],
)
@pytest.mark.parametrize(("yes", "no"), [("yes", "no"), ("Y", "N"), (1, 0), (True, False)])
def test_the_name_of_a_bad_outcome_decides(name, yes, no):
    assert favorable_value(pd.Series([yes, no, no]), name)[0] == str(no)
    assert favorable_value(pd.Series([yes, no, no]), f"not_{name}")[0] == str(yes)


@pytest.mark.parametrize(
    ("name", "values", "favorable"),
    [
        ("deny", ["approved", "denied"], "approved"),
        ("loan_status", ["Fully Paid", "Charged Off"], "Fully Paid"),
        ("repaid", ["no", "yes"], "yes"),
        ("good_bad", [0, 1], None),
        ("risk", [0, 1], None),
        ("class", [1, 2], None),
        ("action_taken", [1, 3, 4], "1"),
    ],
)
def test_a_value_says_it_itself_or_it_is_asked(name, values, favorable):
    value, words = favorable_value(pd.Series(values), name)
    assert value == favorable
    assert words.startswith("Which value") == (favorable is None)


def test_a_name_that_says_both_is_asked_and_not_proposed():
    result = eh.check(loans().rename(columns={"repaid": "good_bad"}))
    assert result.label.columns == ("good_bad",)
    assert result.positive_label is None
    assert "Which value of 'good_bad' is good for the applicant" in result.question
    assert "(favorable: to be asked)" in str(result)
    assert "\n# positive_label =\n" in result.config()
    assert "favorable value" in kinds(result, "good_bad")


@pytest.mark.parametrize("name", ["deny", "application_rejected"])
def test_a_decision_is_found_before_the_last_column_and_named_as_one(name):
    table = loans().rename(columns={"repaid": name})
    table = table[[name, "income", "debt", "sex"]].assign(phone=np.arange(len(table)) % 2)
    result = eh.check(table)
    assert result.label.columns == (name,)
    assert result.positive_label[0] == "0"
    (problem,) = (p for p in result.problems if p.kind == "label is a decision")
    assert "looks smaller than it is" in problem.sentence
    assert "looks smaller than it is" in " ".join(str(result).split())


def test_what_happened_is_proposed_before_what_was_decided():
    table = loans().assign(approved=lambda t: 1 - t["repaid"])
    assert eh.check(table).label.columns == ("repaid",)
    assert "label is a decision" not in {p.kind for p in eh.check(table).problems}


def test_an_audit_says_that_its_label_is_a_decision():
    table = loans(400)
    model = LogisticRegression().fit(table[["income", "debt"]], table["repaid"])
    arguments = {"sensitive_features": table["sex"], "financial_features": ["income"], "evidence": False}
    for name, is_decision in (("approved", True), ("repaid", False)):
        result = eh.audit(model, table[["income", "debt"]], table["repaid"].rename(name), **arguments)
        assert any("the lender's decision" in warning for warning in result.warnings) == is_decision


# --- proxies of one of several groups ---


@pytest.mark.parametrize("names", [["a", "b", "c"], ["white", "black", "asian", "other"]])
def test_a_stand_in_for_one_of_several_groups_is_reported_with_its_name(names):
    rng = np.random.default_rng(0)
    table = loans(3_000).drop(columns="sex")
    group = np.asarray(names)[rng.integers(0, len(names), len(table))]
    table["branch"] = rng.normal(0, 1, len(table)) + 2.7 * (group == names[2])
    result = eh.check(table, "repaid", group)
    (problem,) = (p for p in result.problems if p.kind == "predicts the group")
    assert f"'branch' alone predicts {names[2]} with AUC 0.9" in problem.sentence
    columns = ["income", "debt", "branch"]
    target = table["repaid"] * (rng.random(len(table)) < 0.9) * (table["branch"] < 5)
    model = LogisticRegression(max_iter=2_000).fit(table[columns] / [1e4, 10, 1], target)
    model.coef_ = model.coef_ / [1e4, 10, 1]
    audit = eh.audit(model, table[columns], table["repaid"], sensitive_features=group, financial_features=["income"])
    (inputs,) = (one for one in audit.to_dict()["findings"] if one["key"] == "inputs")
    assert inputs["answer"] == "yes"
    assert f"predicts {names[2]} (AUC 0.9" in inputs["headline"]


# --- protected characteristics ---


@pytest.mark.parametrize(
    ("name", "characteristic"),
    [
        ("Married", "marital status"), ("MARRIAGE", "marital status"), ("NAME_FAMILY_STATUS", "marital status"),
        ("AGE", "age"), ("birth_year", "age"), ("DAYS_BIRTH", "age"), ("applicantAge", "age"), ("dob", "age"),
        ("foreign_worker", "national origin"), ("native-country", "national origin"), ("BirthPlace", "national origin"),
        ("derived_race", "race"), ("applicant_ethnicity", "ethnicity"), ("Gender", "sex"), ("is_female", "sex"),
        ("religion", "religion"), ("public_assistance", "public assistance"), ("disabled", "disability"),
        ("usage", None), ("mortgage_age", None), ("AgeOfOldestAccount", None), ("trace", None), ("mileage", None),
        ("OWN_CAR_AGE", None), ("percentage", None), ("essex", None), ("tract_median_age_of_housing_units", None),
        ("embrace", None), ("stage", None), ("single_family_home", None),
    ],
)  # fmt: skip
def test_names_of_protected_characteristics(name, characteristic):
    assert protected_characteristic(name) == characteristic


@pytest.mark.parametrize("name", ["Married", "birth_year"])
def test_a_model_that_uses_one_says_so_whichever_group_is_audited(name):
    table = loans(400).assign(**{name: np.arange(400) % 7})
    columns = ["income", "debt", name]
    model = LogisticRegression(max_iter=2_000).fit(table[columns], table["repaid"])
    result = eh.audit(
        model,
        table[columns],
        table["repaid"],
        sensitive_features=table["sex"],
        financial_features=["income"],
        evidence=False,
    )
    assert any(f"The model uses {name!r}, which states the" in warning for warning in result.warnings)
    model.coef_[0, 2] = 0.0
    unused = eh.audit(model, table[columns], table["repaid"], sensitive_features=table["sex"],
                      financial_features=["income"], evidence=False)  # fmt: skip
    assert not any(f"{name!r}, which states" in warning for warning in unused.warnings)
    assert "protected characteristic" in kinds(eh.check(table), name)


# --- rows and values ---


@pytest.mark.parametrize(("name", "is_text"), [("applicant_id", False), ("CustomerNo", True)])
def test_an_id_that_repeats_is_proposed_as_clusters(name, is_text):
    rng = np.random.default_rng(0)
    ids = 5_000 + rng.integers(0, 1_500, 1_989)
    table = loans(1_989).assign(**{name: [f"C{k}" for k in ids] if is_text else ids})
    result = eh.check(table)
    n = len(np.unique(ids))
    assert result.clusters.columns == (name,)
    assert result.clusters.reason == f"it identifies {n:,} applicants in 1,989 rows"
    assert f'\nclusters = "{name}"\n' in result.config()
    assert f"Clusters: {name}" in str(result)


@pytest.mark.parametrize("name", ["loan", "branch_id", "dependents_number", "account_balance"])
def test_amounts_and_places_of_work_are_no_applicants(name):
    rng = np.random.default_rng(0)
    assert eh.check(loans().assign(**{name: rng.integers(0, 400, 1_200) * 100})).clusters is None


@pytest.mark.parametrize(
    ("name", "is_place"), [("zip_code", True), ("ZIP", True), ("zipcode5", True), ("income2", False)]
)
def test_postal_codes_are_not_amounts(name, is_place):
    table = loans().assign(**{name: np.random.default_rng(0).integers(10_001, 99_999, 1_200)})
    assert ("place" in kinds(eh.check(table), name)) == is_place


@pytest.mark.parametrize("closing", [["TOTAL", "Source: loan system"], ["Grand total"], ["Note: of 2024"]])
def test_totals_and_sources_are_not_people(closing):
    table = loans().astype(object)
    table.insert(0, "branch", np.random.default_rng(0).choice(["North", "South"], len(table)))
    rows = pd.DataFrame({"branch": closing, "income": [table["income"].sum(), *[None] * (len(closing) - 1)]})
    assert eh.check(table).closing == ()
    result = eh.check(pd.concat([table, rows], ignore_index=True))
    assert result.closing == tuple(closing)
    assert f"not applicants: {closing[0]!r}" in " ".join(str(result).split())


@pytest.mark.parametrize("codes", [{999_999: 25}, {-999: 12, 99_999: 8}, {-999: 1}, {99_999: 2}])
def test_codes_in_a_ratio_are_found_however_few(codes):
    ratio = np.random.default_rng(0).normal(0.35, 0.1, 1_000).round(3)
    start = 0
    for code, n in codes.items():
        ratio[start : start + n] = code
        start += n
    (problem,) = (p for p in eh.check(loans(1_000).assign(dti=ratio)).problems if p.column == "dti")
    assert problem.kind == "sentinel"
    assert all(f"{code} in {n} row" in problem.sentence for code, n in codes.items())


def test_codes_below_a_few_larger_amounts_are_found():
    income = np.random.default_rng(0).lognormal(10.8, 0.7, 2_000).round(-2)
    income[:25], income[30:33] = 999_999, [1.2e6, 2.5e6, 1.05e6]
    (problem,) = (p for p in eh.check(loans(2_000).assign(wage=income)).problems if p.column == "wage")
    assert "999999 in 25 rows" in problem.sentence


@pytest.mark.parametrize(("name", "value"), [("debt", 5_000.0), ("income", 1.1e9)])
def test_values_far_from_all_others_are_named_in_a_check_and_an_audit(name, value):
    table = loans(600)
    model = LogisticRegression().fit(table[["income", "debt"]], table["repaid"])
    table.loc[3, name] = value
    assert "extreme value" in kinds(eh.check(table), name)
    arguments = {"sensitive_features": table["sex"], "financial_features": ["income"], "evidence": False}
    result = eh.audit(model, table[["income", "debt"]], table["repaid"], **arguments)
    assert any(f"The input {name!r} has 1 value more than 50 standard deviations" in text for text in result.warnings)
    usual = loans(600, seed=1)
    usual = usual[["income", "debt"]], usual["repaid"], usual["sex"]
    apart = eh.audit(model, table[["income", "debt"]], table["repaid"], reference=usual, **arguments)
    assert any(f"The input {name!r} reaches {value:,.6g} among the audited people" in text for text in apart.warnings)
    table.loc[3, name] = table[name].median()
    alike = eh.audit(model, table[["income", "debt"]], table["repaid"], reference=usual, **arguments)
    assert not any("50 standard deviations" in text for text in alike.warnings)
