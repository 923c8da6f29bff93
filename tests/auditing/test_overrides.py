"""Overrides by group and direction: counted by hand, at equal score as a logit has them, in memory and streamed."""

import json

import jsonschema
import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.auditing.sections import SECTIONS, load_schema
from evenhand.report.page import audit_sections

pytestmark = pytest.mark.filterwarnings("ignore::evenhand.EvenhandWarning")
ROLES = {"financial_features": ["income", "debt"]}


@pytest.fixture(scope="module")
def people():
    """Decisions follow the score, but people above the cut-off are declined more often in group b."""
    rng = np.random.default_rng(7)
    n = 1500
    X = pd.DataFrame(rng.normal(size=(n, 3)), columns=["income", "debt", "tenure"])
    group = np.where(rng.random(n) < 0.4, "b", "a")
    X["income"] -= 0.6 * (group == "b")
    y = (X["income"] - X["debt"] + rng.logistic(size=n) > 0).astype(int)
    model = LogisticRegression().fit(X, y)
    score = model.predict_proba(X)[:, 1]
    flipped = np.where(score >= 0.5, rng.random(n) < np.where(group == "b", 0.3, 0.1), rng.random(n) < 0.15)
    return model, X, y, group, score, np.where(flipped, score < 0.5, score >= 0.5).astype(int)


@pytest.fixture(scope="module")
def found(people):
    model, X, y, group, _, decision = people
    return eh.audit(model, X, y, sensitive_features=group, decisions=decision, **ROLES)


def test_rates_are_counts_and_odds_ratios_are_at_equal_score(people, found):
    *_, group, score, decision = people
    overrides = found.to_dict()["overrides"]
    assert (overrides["cut_off"], overrides["reference"]) == (0.5, "a")
    rows = {(row["among"], row["group"]): row for row in overrides["groups"]}
    assert len(rows) == 6
    for (among, name), row in rows.items():
        if among == "near":
            continue
        chosen = ((score >= 0.5) == (among == "above")) & (group == name)
        counted = decision[chosen] == (0 if among == "above" else 1)
        assert (row["n_people"], row["n"]) == (chosen.sum(), counted.sum())
        assert row["rate"]["value"] == pytest.approx(counted.mean())
    above = score >= 0.5
    design = sm.add_constant(np.column_stack([group == "b", score, score**2]).astype(float)[above])
    theirs = np.exp(sm.Logit(1 - decision[above], design).fit(disp=0).params[1])
    assert rows["above", "b"]["odds_ratio"]["value"] == pytest.approx(theirs, rel=0.05)
    assert rows["above", "b"]["p_value_holm"] < 1e-4
    assert rows["below", "b"]["p_value_holm"] > 0.05
    assert rows["near", "a"]["n_people"] + rows["near", "b"]["n_people"] == pytest.approx(300, abs=2)


def test_they_are_streamed_shown_and_in_the_schema(people, found, tmp_path):
    model, X, y, group, _, decision = people
    X.assign(repaid=y, sex=group, decided=decision).to_parquet(tmp_path / "people.parquet")
    columns = {"label": "repaid", "group": "sex", "decisions": "decided"}
    streamed = eh.audit_stream(
        model, tmp_path / "people.parquet", out=tmp_path / "audit", batch_rows=400, **columns, **ROLES
    )
    for own, other in zip(*(one.to_dict()["overrides"]["groups"] for one in (found, streamed)), strict=True):
        assert other["odds_ratio"]["low"] == pytest.approx(own["odds_ratio"]["low"], rel=1e-6, nan_ok=True)
    found.to_json(tmp_path / "audit.json")
    document = json.loads((tmp_path / "audit.json").read_text("utf-8"))
    jsonschema.Draft202012Validator(load_schema()).validate(document)
    (section,) = [part for part in audit_sections(document, SECTIONS) if part.id == "overrides"]
    assert len(section.tables) == 1
    assert found.tables["overrides"]["with_the_decision"].sum() > 0


def test_they_are_compared_with_the_reference_group_of_the_user(people, found):
    model, X, y, group, _, decision = people
    turned = eh.audit(model, X, y, sensitive_features=group, decisions=decision, reference_group="b", **ROLES)
    rows, own = ({(r["among"], r["group"]): r for r in one.to_dict()["overrides"]["groups"]} for one in (turned, found))
    assert turned.to_dict()["overrides"]["reference"] == "b"
    ratio = rows["above", "a"]["odds_ratio"]["value"]
    assert ratio == pytest.approx(1 / own["above", "b"]["odds_ratio"]["value"])


def test_without_actual_decisions_there_are_no_overrides(people):
    model, X, y, group, *_ = people
    result = eh.audit(model, X[:300], y[:300], sensitive_features=group[:300], **ROLES)
    assert "overrides" not in result.to_dict()
    assert "overrides" not in result.tables
