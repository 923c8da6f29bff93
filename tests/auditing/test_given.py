"""Decisions and ids that the user has: they take the place of scores at a threshold, and of row numbers."""

import json

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score

import evenhand as eh
from evenhand.exceptions import InvalidInputError
from evenhand.metrics.cec import assign_regimes

F = ["income", "debt"]


@pytest.fixture(scope="module")
def loans():
    """People of two segments whose cut-offs differ, with ids that are no row numbers."""
    rng = np.random.default_rng(5)
    n = 300
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=["income", "debt", "tenure"])
    y = (X["income"] - X["debt"] + rng.logistic(size=n) > 0).to_numpy().astype(int)
    model = LogisticRegression().fit(X, y)
    score = model.predict_proba(X)[:, 1]
    decisions = (score >= np.where(np.arange(n) % 2, 0.7, 0.3)).astype(int)
    return model, X, y, rng.choice(["a", "b"], n), decisions, np.array([f"L-{7 * k + 1:05d}" for k in range(n)])


def audited(loans, **options):
    model, X, y, group, decisions, ids = loans
    given = {"sensitive_features": group, "decisions": decisions, "ids": ids, "financial_features": F} | options
    return eh.audit(model, X, y, **given)


def test_decisions_are_the_given_ones_of_people_and_matches(loans):
    _, _, y, _, decisions, _ = loans
    found = audited(loans, evidence=False)
    pairs = found.pairs
    np.testing.assert_array_equal(pairs["decision"], decisions[pairs["person"]])
    np.testing.assert_array_equal(pairs["match_decision"], decisions[pairs["match"]])
    regimes = assign_regimes(decisions[pairs["person"]], decisions[pairs["match"]], pairs["cec"].to_numpy())
    np.testing.assert_array_equal(pairs["regime"], regimes)
    outcome = found.to_dict()["outcome"]
    assert outcome["positive_rate"] == pytest.approx(decisions.mean())
    assert outcome["accuracy"] == pytest.approx(accuracy_score(y, decisions))
    assert any("The decisions are the actual ones" in warning for warning in found.warnings)


def test_decisions_of_the_scores_given_change_nothing(loans):
    model, X = loans[:2]
    given = audited(loans, decisions=(model.predict_proba(X)[:, 1] >= 0.5).astype(int))
    own = audited(loans, decisions=None)
    pd.testing.assert_frame_equal(given.pairs, own.pairs)
    for section in ("cec", "outcome", "evidence"):
        assert repr(given.to_dict()[section]) == repr(own.to_dict()[section])  # NaN is NaN


def test_matches_in_a_reference_have_its_decisions_and_ids(loans):
    model, X, y, group, decisions, ids = loans
    pool = {"X": X[:200], "y": y[:200], "sensitive_features": group[:200]}
    extra = {"decisions": decisions[:200], "ids": ids[:200]}
    people = {"sensitive_features": group[200:], "financial_features": F, "evidence": False}
    found = eh.audit(
        model, X[200:], y[200:], reference=pool | extra, decisions=decisions[200:], ids=ids[200:], **people
    ).pairs
    np.testing.assert_array_equal(found["match_decision"], decisions[:200][found["match"]])
    np.testing.assert_array_equal(found["match_id"], ids[:200][found["match"]])
    np.testing.assert_array_equal(found["person_id"], ids[200:][found["person"]])
    with pytest.raises(InvalidInputError, match="needed for both the audited people and the reference"):
        eh.audit(model, X[200:], y[200:], reference=pool, decisions=decisions[200:], **people)
    with pytest.raises(InvalidInputError, match=r"by name must have 'X', 'y' and .*got \['X', 'z'\]"):
        eh.audit(model, X[200:], y[200:], reference={"X": X, "z": y}, **people)


def test_ids_are_in_pairs_cases_explorer_and_workbook(loans, tmp_path):
    from openpyxl import load_workbook

    ids = loans[-1]
    found = audited(loans)
    np.testing.assert_array_equal(found.pairs["person_id"], ids[found.pairs["person"]])
    cases = found.cases(3)
    np.testing.assert_array_equal(cases["match_id"], ids[cases["match"]])
    found.to_html(tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert json.dumps(cases["person_id"][0]) in text
    found.to_excel(tmp_path / "audit.xlsx")
    sheet = load_workbook(tmp_path / "audit.xlsx", read_only=True)["Pairs"]
    assert any(ids[0] in row for row in sheet.iter_rows(values_only=True))
    assert "person_id" not in audited(loans, ids=None, evidence=False).pairs


@pytest.mark.filterwarnings("ignore:Only .* of people have a match")
def test_an_unmatched_person_has_a_match_without_an_id(loans):
    pairs = audited(loans, max_distance=0.2, evidence=False).pairs
    unmatched = pairs["match"] < 0
    assert unmatched.any()
    assert pairs["match_id"][unmatched].isna().all()
    assert pairs["match_id"][~unmatched].notna().all()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"decisions": [1] * 299}, r"`decisions` has 299 values for 300 rows"),
        ({"decisions": ["yes"] * 300}, r"`decisions` must be 1 for a favorable decision .*got the values \['yes'\]"),
        ({"decisions": [None] + [1] * 299}, r"`decisions` must be .*got 1 missing values"),
        ({"ids": [7] * 300}, r"`ids` must be unique, but 1 values occur more than once, such as '7'"),
        ({"ids": [None, *range(299)]}, r"`ids` has 1 missing values"),
        ({"ids": [1]}, r"`ids` has 1 values for 300 rows"),
    ],
)
def test_bad_decisions_and_ids_are_refused(loans, options, message):
    with pytest.raises(InvalidInputError, match=message):
        audited(loans, **options)


def test_a_stream_finds_the_same(loans, tmp_path):
    model, X, y, group, decisions, ids = loans
    X.assign(y=y, group=group, decided=decisions, number=ids).to_parquet(tmp_path / "loans.parquet")
    found = eh.audit_stream(
        model,
        tmp_path / "loans.parquet",
        label="y",
        group="group",
        decisions="decided",
        ids="number",
        financial_features=F,
        out=tmp_path / "audit",
        batch_rows=120,
        n_jobs=1,
    )
    same = ["person", "match", "decision", "match_decision", "regime", "person_id", "match_id"]
    pd.testing.assert_frame_equal(found.pairs[same], audited(loans).pairs[same], check_dtype=False)
    assert set(found.cases(2)["person_id"]) <= set(ids)


def test_the_gap_in_decisions_is_that_of_the_decisions_made(loans):
    """Decisions that favor one group and have nothing to do with the score are found in decisions, not in scores."""
    _, X, _, group = loans[:4]
    rng = np.random.default_rng(0)
    favored = np.asarray(group) == np.unique(group)[0]
    decisions = (rng.random(len(X)) < np.where(favored, 0.8, 0.4)).astype(int)
    found = audited(loans, decisions=decisions).to_dict()["score_gap"]
    assert abs(found["decision"]["value"]) == pytest.approx(0.4, abs=0.15)
    assert found["decision"]["p_value"] < 0.001
    own = audited(loans, decisions=None).to_dict()["score_gap"]
    assert found["logit"] == own["logit"]
