"""Cut-offs by segment: each person is held to the cut-off of their own segment, and so is their match."""

import jsonschema
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score
from sklearn.model_selection import FixedThresholdClassifier

import evenhand as eh
from evenhand.auditing.sections import load_schema
from evenhand.cli.options import AuditPlan, plan_from_toml
from evenhand.exceptions import InvalidInputError

F = ["income", "debt"]
CUT_OFFS = {"card": 0.3, "loan": 0.7}


@pytest.fixture(scope="module")
def loans():
    """People of two products; the model sees the number of the branch but not the product."""
    rng = np.random.default_rng(5)
    n = 300
    X = pd.DataFrame(rng.normal(size=(n, 2)), columns=F).assign(branch=rng.choice([1, 2], n))
    y = (X["income"] - X["debt"] + rng.logistic(size=n) > 0).to_numpy().astype(int)
    product = pd.Series(rng.choice(list(CUT_OFFS), n), name="product")
    return LogisticRegression().fit(X, y), X, y, rng.choice(["a", "b"], n), product


def audited(loans, **options):
    model, X, y, group, product = loans
    people = {"sensitive_features": group, "financial_features": F, "by": product}
    return eh.audit(model, X, y, **(people | options))


def by_hand(loans, values, cut_offs):
    score = loans[0].predict_proba(loans[1])[:, 1]
    return score, np.array([cut_offs[value] for value in values])


def test_people_and_matches_are_held_to_the_cut_offs_of_their_segments(loans):
    found = audited(loans, decision_threshold=eh.SegmentThresholds("product", CUT_OFFS))
    score, cut_off = by_hand(loans, loans[-1], CUT_OFFS)
    decided = (score >= cut_off).astype(int)
    assert 0.2 < np.mean(decided != (score >= 0.5)) < 0.8
    given = audited(loans, decisions=decided)
    same = ["decision", "match_decision", "regime"]
    pd.testing.assert_frame_equal(found.pairs[same], given.pairs[same])
    outcome = found.to_dict()["outcome"]
    assert outcome["accuracy"] == pytest.approx(accuracy_score(loans[2], decided))
    assert repr(outcome) == repr(given.to_dict()["outcome"])
    # Regime B of the excess rests on decisions of pairs and placebo pairs.
    assert found.to_dict()["cec"]["regime_b_excess"] == given.to_dict()["cec"]["regime_b_excess"]


def test_the_same_cut_off_in_every_segment_is_one_threshold(loans):
    one = audited(loans, decision_threshold=0.6).to_dict()
    each = audited(loans, decision_threshold=eh.SegmentThresholds("product", dict.fromkeys(CUT_OFFS, 0.6))).to_dict()
    for section in ("cec", "outcome", "evidence", "score_gap"):
        assert repr(each[section]) == repr(one[section])  # NaN is NaN


def test_an_input_can_be_the_column_and_low_scores_be_good(loans):
    _, X, y, group, _ = loans
    risk = LogisticRegression().fit(X, 1 - y)
    found = eh.audit(
        risk,
        X,
        1 - y,
        sensitive_features=group,
        financial_features=F,
        favorable="low",
        decision_threshold=eh.SegmentThresholds("branch", {1: 0.3, 2: 0.6}),
        evidence=False,
    )
    decided = risk.predict_proba(X)[:, 1] <= X["branch"].map({1: 0.3, 2: 0.6})
    np.testing.assert_array_equal(found.pairs["decision"], decided.astype(int)[found.pairs["person"]])
    np.testing.assert_array_equal(found.pairs["match_decision"], decided.astype(int)[found.pairs["match"]])


def test_a_reference_has_segments_too(loans):
    model, X, y, group, product = loans
    score, cut_off = by_hand(loans, product, CUT_OFFS)
    pool = {"X": X[:200], "y": y[:200], "sensitive_features": group[:200]}
    people = {"sensitive_features": group[200:], "financial_features": F, "evidence": False, "by": product[200:]}
    segments = eh.SegmentThresholds("product", CUT_OFFS)
    found = eh.audit(
        model, X[200:], y[200:], reference=pool | {"by": product[:200]}, decision_threshold=segments, **people
    ).pairs
    np.testing.assert_array_equal(found["match_decision"], (score >= cut_off)[:200][found["match"]].astype(int))
    with pytest.raises(InvalidInputError, match=r"'product' .* neither an input .* in the reference; add it to `by`"):
        eh.audit(model, X[200:], y[200:], reference=pool, decision_threshold=segments, **people)


def test_a_stream_finds_the_same_and_the_report_shows_it(loans, tmp_path):
    model, X, y, group, product = loans
    X.assign(y=y, group=group, product=product).to_parquet(tmp_path / "loans.parquet")
    segments = eh.SegmentThresholds("product", CUT_OFFS)
    streamed = eh.audit_stream(
        model,
        tmp_path / "loans.parquet",
        label="y",
        group="group",
        by=["product"],
        financial_features=F,
        out=tmp_path / "audit",
        decision_threshold=segments,
        batch_rows=120,
        n_jobs=1,
    )
    own = audited(loans, decision_threshold=segments)
    same = ["person", "match", "decision", "match_decision", "regime"]
    pd.testing.assert_frame_equal(streamed.pairs[same], own.pairs[same], check_dtype=False)
    summary = own.to_dict()
    assert summary["settings"]["decision_threshold"] == {"column": "product", "cut_offs": CUT_OFFS}
    own.to_json(tmp_path / "audit.json")
    jsonschema.validate(pd.io.json.ujson_loads((tmp_path / "audit.json").read_text()), load_schema())
    own.to_html(tmp_path / "report.html")
    assert "column: product, cut_offs: card: 0.3, loan: 0.7" in (tmp_path / "report.html").read_text(encoding="utf-8")
    own.to_excel(tmp_path / "audit.xlsx")
    rows = (
        pd.read_excel(tmp_path / "audit.xlsx", "Audited", header=None, engine="openpyxl")
        .astype(str)
        .to_numpy()
        .tolist()
    )
    assert any("decision_threshold: loan" in row and "0.7" in row for row in rows)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"decision_threshold": eh.SegmentThresholds("product", {"card": 0.5})},
            r"no cutoff for 1 of 2 values of 'product' in `X`: 'loan' \(\d+ people\); it has cutoffs for 'card'\.",
        ),
        ({"decision_threshold": eh.SegmentThresholds("state", CUT_OFFS)}, "'state' .* neither an input .* add it to"),
        (
            {"decision_threshold": eh.SegmentThresholds("product", CUT_OFFS), "decisions": [1] * 300},
            "both say who is approved; use only one of them",
        ),
        ({"decision_threshold": {"product": "card"}}, "must have the keys 'column' and 'cut_offs', got 'product'"),
        ({"decision_threshold": {"column": "product", "cut_offs": {}}}, "must name a column and map its values"),
        (
            {"decision_threshold": {"column": "product", "cut_offs": {"card": 2}}},
            r"'card' must be between 0 and 1",
        ),
    ],
)
def test_cut_offs_that_cannot_be_used_are_refused(loans, options, message):
    with pytest.raises(InvalidInputError, match=message):
        audited(loans, **options)


def test_a_toml_file_has_a_table_of_cut_offs(tmp_path):
    (tmp_path / "audit.toml").write_text(
        '[decision_threshold]\ncolumn = "product"\ncut_offs = { card = 0.3, loan = 0.7 }\n'
    )
    plan = plan_from_toml(tmp_path / "audit.toml", AuditPlan)
    assert plan.decision_threshold == eh.SegmentThresholds("product", CUT_OFFS)


def test_a_model_with_a_threshold_is_not_audited_at_cut_offs_without_a_word(loans):
    _, X, y, _, _ = loans
    model = FixedThresholdClassifier(LogisticRegression(), threshold=0.3).fit(X, y)
    with pytest.warns(
        eh.EvenhandWarning, match=r"depends on 'product', but the FixedThresholdClassifier decides"
    ) as said:
        found = audited((model, *loans[1:]), decision_threshold=eh.SegmentThresholds("product", CUT_OFFS))
    assert str(said[0].message) in found.warnings
