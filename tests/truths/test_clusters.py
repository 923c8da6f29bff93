"""Copies of applicants say no more than the applicants: through every front, with clusters."""

import json

import joblib
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

import evenhand as eh
from evenhand.cli.app import app

pytestmark = [pytest.mark.integration, pytest.mark.filterwarnings("ignore::evenhand.EvenhandWarning")]
F = ["income", "debt"]
FEATURES = [*F, "tenure"]


@pytest.fixture(scope="module")
def applicants():
    rng = np.random.default_rng(3)
    table = pd.DataFrame(rng.normal(size=(240, 3)), columns=FEATURES)
    table["sex"] = rng.choice(["f", "m"], 240)
    table["good"] = (table["income"] - table["debt"] + (table["sex"] == "m") + rng.logistic(size=240) > 0).astype(int)
    table["applicant"] = np.arange(240) + 700
    table["decided"] = (rng.random(240) < 0.45 + 0.02 * (table["sex"] == "m")).astype(int)
    return table, LogisticRegression().fit(table[FEATURES], table["good"])


def audited(table, model, front, folder):
    """The summary that a front makes of people of whom some rows are the same applicant's."""
    table.to_parquet(folder / "people.parquet", row_group_size=400)
    if front == "memory":
        roles = {"sensitive_features": table["sex"], "decisions": table["decided"], "clusters": table["applicant"]}
        result = eh.audit(model, table[FEATURES], table["good"], financial_features=F, **roles)
        result.to_json(folder / "audit.json")
    elif front == "stream":
        roles = {"label": "good", "group": "sex", "decisions": "decided", "clusters": "applicant", "features": FEATURES}
        eh.audit_stream(
            model, folder / "people.parquet", out=folder, batch_rows=400, n_jobs=1, financial_features=F, **roles
        )
    else:
        joblib.dump(model, folder / "model.joblib")
        words = ["--label", "good", "--group", "sex", "--decision", "decided", "--clusters", "applicant"]
        words += ["--financial", "income,debt", "--model", str(folder / "model.joblib"), "--trust-pickle"]
        done = CliRunner().invoke(app, ["audit", str(folder / "people.parquet"), "--out", str(folder), *words])
        assert done.exit_code == 0, done.output
    return json.loads((folder / "audit.json").read_text("utf-8"))


def uncertain(value, path=""):
    """All p-values and ends of intervals by their place."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    found = {
        f"{path}/{key}": item
        for key, item in items
        if key in ("p_value", "p_value_holm", "low", "high", "ks_p_value") and item is not None
    }
    return found | {k: v for key, item in items for k, v in uncertain(item, f"{path}/{key}").items()}


@pytest.mark.parametrize("front", ["memory", "stream", "command"])
def test_ten_copies_of_everyone_change_no_interval_of_outcomes(applicants, front, tmp_path):
    table, model = applicants
    once = audited(table, model, "memory", tmp_path)
    copies = table.sample(frac=1, random_state=0).loc[lambda t: np.repeat(t.index, 10)]
    copied = audited(copies.sample(frac=1, random_state=1).reset_index(drop=True), model, front, tmp_path)
    for key in ("approvals", "error_rates", "gaps", "scores", "cutoffs"):
        own, other = (uncertain(one["outcome"][key]) for one in (once, copied))
        assert own.keys() == other.keys()
        for place, value in own.items():
            slack = 0.02 if "p_value" in place or key == "gaps" else 1e-6  # drawn, exact, or a factor of n / (n - 1)
            slack = 0.5 if place.endswith("ks_p_value") else slack  # exact for few people
            assert other[place] == pytest.approx(value, abs=slack, rel=slack), f"{key}{place}"
    for key in ("roc", "proxies"):
        own, other = (uncertain(one[key]) for one in (once, copied))
        assert other == pytest.approx(own, abs=1e-6), key
    rates = [{k: v for k, v in uncertain(one["reasons"]["rates"]).items() if "holm" in k} for one in (once, copied)]
    assert rates[1] == pytest.approx(rates[0], abs=0.02)
    assert "in every standard error." in " ".join(copied["warnings"])
    (difference,) = (row for row in copied["outcome"]["approvals"]["groups"] if not row["is_reference"])
    naive = eh.audit(model, copies[FEATURES], copies["good"], sensitive_features=copies["sex"],
                     decisions=copies["decided"], financial_features=F, evidence=False)  # fmt: skip
    (strangers,) = (row for row in naive.outcome.approvals.groups if not row.is_reference)
    assert strangers.p_value < 1e-4 < 0.03 < difference["p_value"]
