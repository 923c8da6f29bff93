"""ROC and KS curves by group, against scikit-learn and SciPy, in memory and streamed."""

import json

import jsonschema
import numpy as np
import openpyxl
import pandas as pd
import pytest
from scipy import stats
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score, roc_curve

import evenhand as eh
from evenhand.auditing.history.records import audit_metrics
from evenhand.auditing.pack import run_metrics
from evenhand.auditing.sections import SECTIONS, load_schema
from evenhand.auditing.sections.roc import group_curve
from evenhand.exceptions import InvalidInputError
from evenhand.metrics.estimate import RowWeights
from evenhand.report.page import audit_sections


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(4)
    X = pd.DataFrame(rng.normal(size=(400, 3)), columns=["income", "debt", "street"])
    group = np.where(rng.random(400) < 0.4, "a", "b")
    noise = rng.logistic(size=400) * np.where(group == "a", 2.0, 0.5)  # labels of a are harder to tell
    y = (X["income"] - X["debt"] + noise > 0).astype(int).to_numpy()
    return LogisticRegression().fit(X, y), X, y, group


@pytest.fixture(scope="module")
def found(people):
    model, X, y, group = people
    return eh.audit(model, X, y, sensitive_features=group, financial_features=["income", "debt"])


def curves(result):
    return {row["group"]: row for row in result.to_dict()["roc"]["groups"]}


def once(n):
    """Everyone counts once."""
    return RowWeights(np.ones(n, dtype=np.int64), np.ones(n), np.ones(n))


def test_areas_distances_and_points_are_those_of_other_libraries(people, found):
    model, X, y, group = people
    score = model.predict_proba(X)[:, 1]
    assert list(curves(found)) == ["a", "b"]
    for name, row in curves(found).items():
        part = group == name
        assert row["auc"]["value"] == pytest.approx(roc_auc_score(y[part], score[part]), abs=1e-12)
        ks = stats.ks_2samp(score[part & (y == 1)], score[part & (y == 0)])
        assert row["ks"]["value"] == pytest.approx(ks.statistic, abs=1e-12)
        assert row["ks_score"] == pytest.approx(ks.statistic_location, abs=0.05)
        assert row["ks"]["low"] < row["ks"]["value"] < row["ks"]["high"]
        false, true, _ = roc_curve(y[part], score[part], drop_intermediate=False)
        exact = set(zip(false.round(12), true.round(12), strict=True))
        points = list(zip(row["false_positive_rate"], row["true_positive_rate"], strict=True))
        assert set(zip(*np.round(np.transpose(points), 12), strict=True)) <= exact
        assert (points[0], points[-1]) == ((0.0, 0.0), (1.0, 1.0))
        assert 50 < len(points) <= 100
        area = np.trapezoid(row["true_positive_rate"], row["false_positive_rate"])
        assert area == pytest.approx(row["auc"]["value"], abs=0.01)  # though thinned
        assert (row["n_people"], row["n_positive_label"]) == (part.sum(), y[part].sum())


def test_the_interval_of_the_distance_covers_it():
    rng, inside = np.random.default_rng(0), 0
    truth = 2 * stats.norm.cdf(0.5) - 1  # of two normal distributions one standard deviation apart
    for _ in range(200):
        y = (rng.random(500) < 0.4).astype(int)
        row = group_curve("a", y, rng.normal(size=500) + y, once(500))
        inside += row.ks.low <= truth <= row.ks.high
    assert 0.88 <= inside / 200 <= 0.99


def test_a_score_that_ranks_the_wrong_way_has_a_distance_too():
    y, score = np.repeat([0, 1], 50), np.repeat([0.9, 0.1], 50) + np.tile(np.arange(50) / 1000, 2)
    row = group_curve("a", y, score, once(100))
    assert (row.auc.value, row.ks.value) == (0.0, 1.0)
    assert 0.8 < row.ks.low <= row.ks.high <= 1.0


def test_weights_count_people_more_than_once(people):
    _, X, y, _ = people
    score, times = X["income"].to_numpy(), np.random.default_rng(1).integers(1, 4, size=len(y))
    weighted = group_curve("a", y, score, RowWeights(times, times.astype(float), times.astype(float)))
    repeated = np.repeat(np.arange(len(y)), times)
    each = group_curve("a", y[repeated], score[repeated], once(len(repeated)))
    assert weighted.ks.value == pytest.approx(each.ks.value)
    assert weighted.auc.value == pytest.approx(each.auc.value)
    assert weighted.true_positive_rate == pytest.approx(each.true_positive_rate)


def test_a_group_with_one_label_has_no_curve_and_says_why():
    row = group_curve("a", np.ones(4, dtype=int), np.arange(4.0), once(4))
    assert row.ks.note == row.auc.note == "not estimable: no one with the unfavorable label"
    assert row.score == ()


def test_a_streamed_audit_has_the_same_curves(people, found, tmp_path):
    model, X, y, group = people
    X.assign(repaid=y, sex=group).to_parquet(tmp_path / "people.parquet")
    streamed = eh.audit_stream(
        model,
        tmp_path / "people.parquet",
        label="repaid",
        group="sex",
        financial_features=["income", "debt"],
        out=tmp_path / "audit",
        batch_rows=150,
    )
    for name, row in curves(streamed).items():
        own = curves(found)[name]
        assert row["ks"]["value"] == pytest.approx(own["ks"]["value"], abs=1e-12)
        assert row["true_positive_rate"] == pytest.approx(own["true_positive_rate"], abs=1e-12)


def test_it_is_shown_compared_and_logged(found, tmp_path):
    summary = found.to_dict()
    (section,) = [p for top in audit_sections(summary, SECTIONS) for p in top.unfolded if p.id == "roc"]
    assert [panel.name for panel in section.panels] == ["roc", "ks"]
    assert all(panel.specification for panel in section.panels)
    found.to_excel(tmp_path / "audit.xlsx")
    assert {"ROC", "ROC curves"} <= set(openpyxl.load_workbook(tmp_path / "audit.xlsx", read_only=True).sheetnames)
    lows = [row["ks"]["low"] for row in curves(found).values()]
    assert found.tables["roc"]["ks_distance_of_the_labels_low"].tolist() == lows
    metrics = audit_metrics(summary)
    assert {"auc: a", "auc: b", "ks: a", "ks: b"} <= set(metrics)
    assert metrics["ks: a"].has_error
    assert run_metrics(summary)["evenhand.roc.ks_ a"] == curves(found)["a"]["ks"]["value"]
    changes = eh.compare_audits({"before": found, "after": summary}).metrics
    assert {"ks: a", "ks: b"} <= {change.key for change in changes}


def test_the_schema_of_the_json_has_it(found, tmp_path):
    found.to_json(tmp_path / "audit.json")
    document = json.loads((tmp_path / "audit.json").read_text("utf-8"))
    validator = jsonschema.Draft202012Validator(load_schema())
    validator.validate(document)
    document["roc"]["groups"][0]["ks"] = "large"
    assert not validator.is_valid(document)


@pytest.mark.parametrize("given", ["scores", "price"])
def test_without_labels_or_probabilities_it_is_absent(people, given):
    model, X, y, group = people
    score = model.predict_proba(X)[:, 1]
    more = {"scores": score} if given == "scores" else {"scores": 5 - score, "unit": "percent", "favorable": "low"}
    labels = None if given == "scores" else y
    result = eh.audit_given(X, labels, sensitive_features=group, financial_features=["income", "debt"], **more)
    assert "roc" not in result.to_dict()
    assert "roc" not in result.tables
    assert "roc" not in {part.id for top in audit_sections(result.to_dict(), SECTIONS) for part in top.unfolded}
    with pytest.raises(InvalidInputError, match=r"no labels|not a probability"):
        result.plot.roc()
