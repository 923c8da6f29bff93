"""Audits of what was given in place of the model: the same numbers where both are possible, and no number elsewhere."""

import json
import math
import warnings

import jsonschema
import numpy as np
import openpyxl
import pandas as pd
import pytest
import statsmodels.formula.api as smf
from sklearn.ensemble import GradientBoostingClassifier, RandomForestClassifier, RandomForestRegressor
from sklearn.linear_model import LinearRegression, LogisticRegression

import evenhand as eh
from evenhand.auditing.sections import load_schema
from evenhand.exceptions import InvalidInputError
from evenhand.report.drawing import png_of

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # shap's import meets a deprecation of matplotlib
    import shap

F = ["income", "debt"]
UNIT = "percentage points"


@pytest.fixture(scope="module")
def loans():
    """People with a category in numbers, a stand-in for the group, and a model of each kind of outcome."""
    rng = np.random.default_rng(7)
    n = 400
    group = rng.choice(["a", "b"], n)
    X = pd.DataFrame(rng.normal(size=(n, 4)), columns=["income", "debt", "tenure", "street"])
    X["income"] += 0.4 * (group == "a")
    X["street"] += 0.8 * (group == "b")
    y = (X["income"] - X["debt"] - 0.6 * X["street"] + rng.logistic(size=n) > 0).to_numpy().astype(int)
    rate = 6 - 0.5 * X["income"] + 0.2 * X["debt"] ** 2 + 0.3 * (group == "b") + rng.normal(0, 0.2, n)
    return X, y, group, rate.to_numpy()


@pytest.fixture(scope="module")
def classifier(loans):
    X, y, *_ = loans
    return LogisticRegression().fit(X, y)


@pytest.fixture(scope="module")
def explanation(loans, classifier):
    """What shap says of the classifier, in log-odds, from everyone as the background."""
    X = loans[0]
    return shap.LinearExplainer(classifier, shap.maskers.Independent(X, max_samples=len(X)))(X)


def given(loans, y="y", **options):
    X, labels, group, _ = loans
    labels = labels if isinstance(y, str) else y
    return eh.audit_given(X, labels, sensitive_features=group, financial_features=F, **options)


def scores_of(loans, classifier):
    return classifier.predict_proba(loans[0])[:, 1]


@pytest.fixture(scope="module")
def kinds(loans, classifier, explanation):
    """An audit of every kind of input."""
    *_, rate = loans
    score = scores_of(loans, classifier)
    price = {"scores": rate, "unit": UNIT, "favorable": "low"}
    sums = {"attributions": -explanation.values, "scores": 5 - explanation.values.sum(axis=1)}
    return {
        "attributions": given(loans, scores=score, attributions=explanation),
        "attributions without labels": given(loans, None, scores=score, attributions=explanation),
        "scores": given(loans, scores=score),
        "decisions": given(loans, decisions=score > 0.5),
        "decisions without labels": given(loans, None, decisions=score > 0.5),
        "price": given(loans, None, **price),
        "price with decisions": given(loans, decisions=score > 0.3, **price),
        "explained price": given(loans, None, **{**price, **sums}),
        "explained price with decisions": given(loans, decisions=score > 0.3, **{**price, **sums}),
    }


# --- the same numbers as with the model ---

_NOT_THE_SAME = (
    "weighing",
    "reasoning_gap",
    "input_gap",
    "input gap",
    "weights",
    "findings",
    "verdict",
    "scope",
    "hashes",
    "model",
)


def differences(with_model, without, path=""):
    """Paths of numbers and words that are not the same, but for weighing and for who made them."""
    if isinstance(with_model, dict):
        for key in with_model:
            if not any(word in key for word in _NOT_THE_SAME) and f"{path}/{key}" not in (
                "/settings/attribution",
                "/data/attribution_method",
            ):
                yield from differences(with_model[key], without[key], f"{path}/{key}")
    elif isinstance(with_model, (list, tuple)):
        assert len(with_model) == len(without), path
        for k, (own, other) in enumerate(zip(with_model, without, strict=True)):
            yield from differences(own, other, f"{path}/{k}")
    elif isinstance(with_model, float):
        if not (math.isnan(with_model) and math.isnan(without)) and with_model != pytest.approx(without, abs=1e-9):
            yield path, with_model, without
    elif with_model != without:
        yield path, with_model, without


@pytest.mark.parametrize("favorable", ["high", "low"])
def test_a_linear_model_and_its_shap_values_give_the_same_numbers(loans, classifier, explanation, favorable):
    X, y, group, _ = loans
    options = {"sensitive_features": group, "financial_features": F, "favorable": favorable, "by": X["tenure"] > 0}
    options |= {"max_distance": 2.0}
    with_model = eh.audit(classifier, X, y, **options)
    without = eh.audit_given(X, y, scores=scores_of(loans, classifier), attributions=explanation, **options)
    assert list(differences(with_model.to_dict(), without.to_dict())) == []
    shown = [c for c in with_model.pairs if c not in ("input_gap", "reasoning_gap")]
    pd.testing.assert_frame_equal(with_model.pairs[shown], without.pairs[shown], rtol=0, atol=1e-9)
    np.testing.assert_allclose(with_model.attributions, without.attributions, atol=1e-6)
    answers, same = ({f["key"]: f for f in found.to_dict()["findings"]} for found in (with_model, without))
    for key in ("score_gap", "inputs", "excess"):
        for name in ("estimate", "p_value"):
            assert same[key][name] == pytest.approx(answers[key][name], abs=1e-9)


def test_a_linear_regression_and_its_shap_values_give_the_same_numbers(loans):
    X, _, group, rate = loans
    model = LinearRegression().fit(X, rate)
    explained = shap.LinearExplainer(model, shap.maskers.Independent(X, max_samples=len(X)))(X)
    options = {"sensitive_features": group, "financial_features": F, "favorable": "low"}
    with_model = eh.audit(model, X, None, options=eh.AuditOptions(unit=UNIT), **options)
    without = eh.audit_given(X, scores=model.predict(X), attributions=explained, unit=UNIT, **options)
    assert list(differences(with_model.to_dict(), without.to_dict())) == []
    assert with_model.to_dict()["scope"]["given"] == ["model"]
    assert "weighing" not in with_model.to_dict()["scope"]["not_possible"]


def test_scores_alone_of_a_linear_model_give_its_gap(loans, classifier):
    X, y, group, _ = loans
    score = scores_of(loans, classifier)
    alone = given(loans, scores=score).to_dict()
    whole = eh.audit(classifier, X, y, sensitive_features=group, financial_features=F).to_dict()
    # What finances add to a linear score is linear in them, so that the regression takes it out.
    for name in ("value", "low", "high"):
        assert alone["score_gap"]["logit"][name] == pytest.approx(whole["score_gap"]["logit"][name], abs=1e-5)
    assert list(differences(whole["outcome"], alone["outcome"])) == []


def test_decisions_alone_give_the_gap_in_decisions(loans, classifier):
    X, y, group, _ = loans
    decisions = scores_of(loans, classifier) > np.where(X["tenure"] > 0, 0.3, 0.7)
    alone = given(loans, decisions=decisions).to_dict()
    beside = {"sensitive_features": group, "financial_features": F, "decisions": decisions}
    whole = eh.audit(classifier, X, y, **beside).to_dict()
    for name, value in whole["score_gap"]["decision"].items():
        assert alone["score_gap"]["value"][name] == pytest.approx(value, abs=1e-9, nan_ok=True)
    assert alone["outcome"]["gaps"]["sp_gap"]["value"] == whole["outcome"]["gaps"]["sp_gap"]["value"]
    assert alone["findings"][0]["question"] == "Do comparable people of different groups get different decisions?"


def test_a_price_gap_is_that_of_a_regression_on_the_same_finances(loans):
    X, _, group, rate = loans
    found = given(loans, None, scores=rate, unit=UNIT, favorable="low").to_dict()
    table = X.assign(rate=rate, is_b=(group == "b").astype(float))
    fitted = smf.ols("rate ~ is_b + income + debt + I(income**2) + I(debt**2) + income:debt", table).fit(cov_type="HC1")
    gap = found["score_gaps"][0]
    sign = 1 if gap["group"] == "b" else -1  # in the unit as given
    assert sign * gap["total"]["value"] == pytest.approx(fitted.params["is_b"], abs=1.5 * fitted.bse["is_b"])
    assert gap["total"]["standard_error"] < 3 * fitted.bse["is_b"]
    assert found["findings"][0]["answer"] == "yes"
    assert found["verdict"]["headline"].startswith("b is ")
    assert found["verdict"]["headline"].endswith(f"{UNIT} worse off than a at equal finances")


# --- what cannot be found ---


def test_weighing_is_named_and_has_no_number(kinds):
    for found in kinds.values():
        summary = found.to_dict()
        assert "cannot be found without the model" in summary["scope"]["not_possible"]["weighing"]
        finding = next(one for one in summary["findings"] if one["key"] == "weighing")
        assert finding["answer"] == "not possible"
        assert math.isnan(finding["estimate"])
        assert all(math.isnan(summary["cec"][name]) for name in ("reasoning_gap", "weighing_excess", "input_gap"))
        assert found.pairs["reasoning_gap"].isna().all()
        assert summary["evidence"]["weights"] == []
        assert dict(summary["verdict"]["sentences"])["Weighing"] == summary["scope"]["not_possible"]["weighing"]


NOT_POSSIBLE = {
    "attributions": set(),
    "attributions without labels": {"errors"},
    "scores": {"inputs", "excess", "regimes"},
    "decisions": {"inputs", "excess", "regimes", "errors"},
    "decisions without labels": {"inputs", "excess", "regimes", "errors"},
    "price": {"inputs", "excess", "regimes", "decisions", "errors"},
    "price with decisions": {"inputs", "excess", "regimes", "errors"},
    "explained price": {"regimes", "decisions", "errors"},
    "explained price with decisions": {"errors"},
}


@pytest.mark.parametrize("kind", NOT_POSSIBLE)
def test_what_is_not_possible_is_named_and_has_no_number(kinds, kind):
    summary, lost = kinds[kind].to_dict(), NOT_POSSIBLE[kind]
    assert set(summary["scope"]["not_possible"]) == lost | {"weighing"}
    assert math.isnan(summary["cec"]["mean"]) == ("excess" in lost)
    assert math.isnan(summary["regimes"]["B"]) == ("regimes" in lost)
    assert math.isnan(summary["outcome"]["positive_rate"]) == ("decisions" in lost)
    assert math.isnan(summary["outcome"]["auc"]) == ("errors" in lost)
    assert math.isnan(summary["outcome"]["pfr"]) == ("decisions" in lost)
    assert kinds[kind].pairs["decision"].isna().all() == ("decisions" in lost)
    assert kinds[kind].pairs["label"].isna().all() == ("labels" not in summary["scope"]["given"])
    assert np.isnan(kinds[kind].attributions).all() == ("inputs" in lost)
    assert math.isfinite(summary["score_gaps"][0]["total"]["value"])
    assert bool(summary["score_gaps"][0]["features"]) == ("inputs" not in lost)


@pytest.mark.parametrize("kind", NOT_POSSIBLE)
def test_json_page_and_workbook_say_the_same(kinds, kind, tmp_path):
    found = kinds[kind]
    found.to_json(tmp_path / "audit.json")
    written = json.loads((tmp_path / "audit.json").read_text("utf-8"))
    jsonschema.Draft202012Validator(load_schema()).validate(written)
    found.to_html(tmp_path / "report.html")
    page = (tmp_path / "report.html").read_text("utf-8")
    found.to_excel(tmp_path / "audit.xlsx")
    book = openpyxl.load_workbook(tmp_path / "audit.xlsx")
    for why in written["scope"]["not_possible"].values():
        assert why.replace("'", "&#39;") in page
        assert why in {row[1].value for row in book["Not possible"].iter_rows(min_row=2)}
    lost = written["scope"]["not_possible"]
    assert ("Regimes" in book.sheetnames) == ("regimes" not in lost)
    assert ("Excess" in book.sheetnames) == ("excess" not in lost)
    assert ("Approvals" in book.sheetnames) == ("decisions" not in lost)
    assert "Weights" not in book.sheetnames
    assert ('<section id="regimes"' in page) == ("regimes" not in lost)
    assert ('<details class="fold" id="sensitivity"' in page) == ("excess" not in lost)
    assert " ".join(str(found).split()).startswith(written["verdict"]["headline"])
    assert "n/a" not in str(found)


def test_charts_that_need_attributions_say_so(kinds):
    with pytest.raises(Exception, match="there is no explanation without attributions"):
        kinds["scores"].plot.excess()
    assert len(kinds["scores"].cases()) == 0


def test_audits_without_the_model_can_be_compared(loans, classifier):
    score = scores_of(loans, classifier)
    before, after = (given(loans, None, scores=s) for s in (score, np.where(loans[2] == "b", 0.9 * score, score)))
    found = eh.compare_audits({"before": before, "after": after})
    assert {one.key: one.answer for one in found.findings}["score_gap"] == "yes"


def test_a_price_is_shown_as_it_is_and_its_bins_hold_everyone(kinds, loans):
    found = kinds["price"]
    np.testing.assert_allclose(found.pairs["score"], loans[3][found.pairs["person"]])
    shown = found.to_dict()["distributions"]["score"]
    assert sum(map(sum, shown["counts"].values())) == len(loans[3])
    assert found.to_dict()["outcome"]["scores"][0]["mean_score"]["value"] > 4
    assert found.to_dict()["settings"]["decision_threshold"] is None


def test_labels_of_a_price_are_not_turned(loans):
    _, y, _, rate = loans
    found = given(loans, scores=rate, unit=UNIT, favorable="low")
    np.testing.assert_array_equal(found.pairs["label"], y[found.pairs["person"]])
    assert (y[found.pairs["match"]] == found.pairs["label"]).all()


def test_rows_alike_in_score_are_not_taken_for_the_same_person(loans, classifier):
    rounded = np.round(scores_of(loans, classifier), 1)
    found = given(loans, scores=np.clip(rounded, 0.05, 0.95))
    assert not any("have the same inputs" in warning for warning in found.warnings)


def test_reason_codes_are_checked_and_carried(loans, classifier):
    score = scores_of(loans, classifier)
    codes = pd.DataFrame({"first": np.where(score < 0.5, "R1", ""), "second": np.where(score < 0.4, 7, None)})
    found = given(loans, scores=score, reason_codes=codes)
    declined = found.reasons()
    assert len(declined) == (score < 0.5).sum()
    assert declined["reason_2"].dropna().unique().tolist() == ["7"]
    rates = found.to_dict()["reasons"]["rates"]
    assert sum(row["n"] for row in rates if row["place"] == "first") == len(declined)
    with pytest.raises(InvalidInputError, match="has no entry for 1 codes that occur"):
        given(loans, scores=score, reason_codes=codes, reason_map={"R1": "debt"})
    assert found.to_dict()["scope"]["n_reason_codes"] == 2
    with pytest.raises(InvalidInputError, match="has no reason for anyone"):
        given(loans, scores=score, reason_codes=[None] * len(score))


# --- scales ---


def test_the_scale_is_that_in_which_attributions_sum_to_the_score(loans):
    X, y, *_ = loans
    forest = RandomForestClassifier(20, max_depth=4, random_state=0).fit(X, y)
    boosted = GradientBoostingClassifier(n_estimators=20, random_state=0).fit(X, y)
    for model, unit in ((forest, "probability"), (boosted, "log-odds")):
        explained = shap.TreeExplainer(model, X.iloc[:50])(X)
        if explained.values.ndim == 3:
            with pytest.raises(InvalidInputError, match=r"has 2 outputs for each feature; pass those of one"):
                given(loans, scores=model.predict_proba(X)[:, 1], attributions=explained)
            explained = explained[..., 1]
        found = given(loans, scores=model.predict_proba(X)[:, 1], attributions=explained).to_dict()
        assert found["score_gaps"][0]["unit"] == unit
        parts = [row["value"] for row in found["score_gaps"][0]["features"]]
        assert sum(parts) == pytest.approx(found["score_gaps"][0]["total"]["value"], abs=1e-6)


def test_attributions_with_a_base_value_tell_the_score(loans, classifier, explanation):
    named = pd.DataFrame(explanation.values, columns=loans[0].columns)[["street", "debt", "income", "tenure"]]
    base = float(explanation.base_values[0])
    own = given(loans, attributions=named, base_values=base)
    np.testing.assert_allclose(own.pairs["score"], scores_of(loans, classifier)[own.pairs["person"]], atol=1e-9)
    shifted = named.sample(frac=1, random_state=0)  # in another order, known by its index
    again = given(loans, attributions=shifted, scores=scores_of(loans, classifier))
    assert again.to_dict()["cec"]["mean"] == pytest.approx(own.to_dict()["cec"]["mean"], abs=1e-9)


def test_log_odds_are_taken_for_what_they_are(loans, classifier):
    score = scores_of(loans, classifier)
    as_probability = given(loans, scores=score).to_dict()
    as_log_odds = given(loans, scores=np.log(score / (1 - score)), output="log-odds").to_dict()
    assert as_log_odds["score_gap"]["logit"]["value"] == pytest.approx(as_probability["score_gap"]["logit"]["value"])
    assert as_log_odds["outcome"]["auc"] == as_probability["outcome"]["auc"]


def test_rounded_attributions_are_taken_and_a_few_that_are_off_are_named(loans, classifier, explanation):
    score = np.round(scores_of(loans, classifier), 4)
    found = given(loans, scores=score, attributions=np.round(explanation.values, 4))
    assert not any("do not quite sum" in warning for warning in found.warnings)
    score[3] = 0.999 - score[3]
    found = given(loans, scores=score, attributions=np.round(explanation.values, 4))
    assert any("attributions of 1 of 400 people do not quite sum to the score" in w for w in found.warnings)


# --- bad input ---


BAD = {
    "attributions of something else": r"Attributions do not sum to the score: a base value .*, for \d+ of 400 people",
    "a wrong base value": "Attributions do not sum to the score: the base value plus",
    "many base values": "`base_values` ranges from 0 to 399, but attributions must all start from one background",
    "no score": "Attributions without `scores` .* need `base_values`",
    "a column too few": r"Attributions are missing for 1 of the 4 columns of `X`: \['street'\]",
    "a column too many": r"1 columns that are not columns of `X`: \['shoe'\]",
    "missing attributions": r"`attributions` is missing or infinite for \d+ of 400 people",
    "too few rows": "`attributions` has 399 values for 400 rows",
    "an array too narrow": "has 3 columns for the 4 columns of `X`",
    "attributions as text": r"must be numbers, got text in \['debt'\]",
    "scores as text": "`scores` must be numbers, got text, such as",
    "a constant score": "`scores` is 0.5 for everyone, so there is nothing to compare",
    "constant decisions": "`decisions` is 1 for everyone",
    "missing scores": r"`scores` is missing or infinite for \d+ of 400 people",
    "too few scores": "`scores` has 10 values for 400 rows",
    "two scores": "`scores` must be one column, got 2",
    "nothing": "needs `scores` .* or `decisions` .*, but neither was given",
    "reasons of everyone": "`decisions` is 0 for everyone",
    "points": "ranges from .* which are not probabilities",
    "scores of 0 and 1": r"\d+ of 400 scores are exactly 0 or 1, whose log-odds are infinite",
    "no good side": "'percentage points', needs `favorable` .*'low' for a price",
    "an empty unit": "`unit` .* must be a string such as",
    "a value without a unit": "is 'value', so a unit is needed",
    "a unit of log-odds": "drop one of them",
    "a threshold of a price": "applies to probabilities",
    "decisions that are a risk": "only decisions were given, 1 for a favorable one",
    "the wrong way round": "ranks people against `y`",
}


def bad(kind, s, a):
    price = {"scores": s, "unit": UNIT, "favorable": "low"}
    return {
        "attributions of something else": {"scores": s, "attributions": 2 * a},
        "a wrong base value": {"scores": s, "attributions": a, "base_values": 3.0},
        "many base values": {"scores": s, "attributions": a, "base_values": np.arange(400)},
        "no score": {"attributions": a},
        "a column too few": {"scores": s, "attributions": a[["income", "debt", "tenure"]]},
        "a column too many": {"scores": s, "attributions": a.assign(shoe=0.0)},
        "missing attributions": {"scores": s, "attributions": a.mask(a > 1.5)},
        "too few rows": {"scores": s, "attributions": a.head(399).to_numpy()},
        "an array too narrow": {"scores": s, "attributions": a.to_numpy()[:, :3]},
        "attributions as text": {"scores": s, "attributions": a.astype({"debt": str})},
        "scores as text": {"scores": s.astype(str)},
        "a constant score": {"scores": np.full(400, 0.5)},
        "constant decisions": {"decisions": np.ones(400)},
        "missing scores": {"scores": np.where(s > 0.9, np.nan, s)},
        "too few scores": {"scores": s[:10]},
        "two scores": {"scores": np.column_stack([s, s])},
        "nothing": {},
        "reasons of everyone": {"reason_codes": ["R1"] * 400},
        "points": {"scores": 600 * s},
        "scores of 0 and 1": {"scores": np.round(s)},
        "no good side": {"scores": s, "unit": UNIT},
        "an empty unit": {**price, "unit": " "},
        "a value without a unit": {"scores": s, "output": "value"},
        "a unit of log-odds": {**price, "output": "log-odds"},
        "a threshold of a price": {**price, "decision_threshold": 0.4},
        "decisions that are a risk": {"decisions": s > 0.5, "favorable": "low"},
        "the wrong way round": {"scores": 1 - s},
    }[kind]


def test_a_memo_says_only_what_was_done(kinds, tmp_path, monkeypatch):
    import docx

    dot = png_of({"mark": "point", "data": {"values": []}})
    monkeypatch.setattr("evenhand.report.memo.png_of", lambda *_: dot)

    def method_of(kind):
        kinds[kind].to_word(tmp_path / "memo.docx")
        texts = [paragraph.text for paragraph in docx.Document(str(tmp_path / "memo.docx")).paragraphs]
        return next(text for text in texts if text.startswith("Each person is paired"))

    scores = method_of("scores")
    assert "who has the same label" in scores
    assert "explained" not in scores
    assert "explained" in method_of("attributions")
    assert "label," not in method_of("attributions without labels")


def test_reasons_alone_say_who_was_declined(loans, classifier):
    score = scores_of(loans, classifier)
    codes = np.where(score < 0.5, "R1", None)
    alone, decided = given(loans, reason_codes=codes), given(loans, reason_codes=codes, decisions=score >= 0.5)
    assert any("Decisions are taken from the reason codes" in warning for warning in alone.warnings)
    for part in ("score_gap", "reasons", "findings"):
        assert json.dumps(alone.to_dict()[part]) == json.dumps(decided.to_dict()[part])


@pytest.mark.parametrize("outcome", ["decision", "score", "price"])
def test_regressions_without_the_model_are_those_of_the_columns(loans, classifier, outcome):
    X, _, group, rate = loans
    score = scores_of(loans, classifier)
    made = {
        "decision": {"decisions": score >= 0.5},
        "score": {"scores": score},
        "price": {"scores": rate, "unit": UNIT, "favorable": "low"},
    }[outcome]
    found = given(loans, regressions=True, outcomes={"rate": rate}, **made).regressions.table
    name, values = {
        "decision": ("decision", (score >= 0.5).astype(int)),
        "score": ("score, probability", score),
        "price": ("outcome", rate),
    }[outcome]
    reference = next(name for name in ("a", "b") if name not in set(found["group"]))
    expected = eh.regressions(
        {name: values, "rate": rate}, sensitive_features=group, X=X, financial_features=F, reference_group=reference
    ).table
    columns = ["outcome", "controls", "group", "value", "low", "high"]
    regressed = found[found["controls"] != "leaves"].merge(expected[columns], on=columns[:3], how="right")
    np.testing.assert_allclose(regressed["value_x"], regressed["value_y"], rtol=1e-6)
    np.testing.assert_allclose(regressed["low_x"], regressed["low_y"], rtol=1e-6)
    assert set(found["outcome"]) >= {name, "rate"}
    assert ("decision" in set(found["outcome"])) == (outcome != "price")
    pairs = found[(found["controls"] == "leaves") & (found["outcome"] == name)]
    assert np.sign(pairs["value"].iloc[0]) == np.sign(expected.loc[expected["outcome"] == name, "value"].iloc[0])


@pytest.mark.parametrize("kind", BAD)
def test_bad_input_gets_one_sentence(loans, classifier, explanation, kind):
    attributions = pd.DataFrame(explanation.values, columns=loans[0].columns)
    with pytest.raises(InvalidInputError, match=BAD[kind]) as refused:
        given(loans, **bad(kind, scores_of(loans, classifier), attributions))
    assert str(refused.value).endswith(".")


def test_a_background_for_each_group_shows_in_the_sums(loans, classifier, explanation):
    shifted = explanation.values + np.where(loans[2] == "b", 0.2, 0.0)[:, None]
    with pytest.raises(InvalidInputError, match="all from one background"):
        given(loans, scores=scores_of(loans, classifier), attributions=shifted)


# --- regressors ---


def test_a_regressor_is_audited_on_its_value(loans):
    X, _, group, rate = loans
    model = RandomForestRegressor(10, random_state=0).fit(X, rate)
    options = {"sensitive_features": group, "financial_features": F, "favorable": "low"}
    settings = eh.AuditOptions(unit=UNIT, n_permutations=8)
    found = eh.audit(model, X, None, options=settings, **options)
    summary = found.to_dict()
    np.testing.assert_allclose(found.pairs["score"], model.predict(X)[found.pairs["person"]], rtol=1e-6)
    assert summary["score_gaps"][0]["unit"] == UNIT
    assert set(summary["scope"]["not_possible"]) == {"regimes", "decisions", "errors"}
    jsonschema.Draft202012Validator(load_schema()).validate(
        json.loads(json.dumps(summary, default=str).replace("NaN", "null"))
    )
    for bad, says in (
        (LogisticRegression().fit(X, rate > 6), "returns classes or probabilities"),
        (3, "Cannot audit a int"),
    ):
        with pytest.raises(eh.EvenhandError, match=says):
            eh.audit(bad, X, None, options=settings, **options)
