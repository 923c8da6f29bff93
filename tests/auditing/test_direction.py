"""Scores that are risks: everything is that of the favorable outcome, and nothing passes the wrong way round unseen."""

import copy

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.stats import mannwhitneyu
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from torch import nn

import evenhand as eh
from evenhand.auditing.sections.outcome import Outcome
from evenhand.exceptions import EvenhandWarning, InvalidInputError

F = ["income", "debt"]


@pytest.fixture(scope="module")
def loans():
    """People with a default (1 = yes) that high debt and a stand-in for the group bring about."""
    rng = np.random.default_rng(3)
    n = 400
    group = rng.choice(["a", "b"], n)
    X = pd.DataFrame(
        {
            "income": rng.normal(size=n),
            "debt": rng.normal(size=n),
            "branch": (group == "b") + rng.normal(0, 0.5, n),
            "tenure": rng.normal(size=n),
        }
    )
    risk = 1.2 * X["debt"] - X["income"] + 0.8 * X["branch"] - 0.5 * X["tenure"]
    return X, (risk + rng.logistic(size=n) > 0.4).to_numpy().astype(int), group


def audited(model, loans, **options):
    X, default, group = loans
    y = options.pop("y", default)
    return eh.audit(model, X, y, sensitive_features=group, financial_features=F, **options)


def torch_models():
    torch.manual_seed(0)
    risk = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    negated = nn.Sequential(*(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)))
    negated.load_state_dict({k: -v if k.startswith("2") else v for k, v in risk.state_dict().items()})
    return risk, negated


class Negated:
    """A scikit-learn classifier with its classes swapped."""

    classes_ = np.array([0, 1])

    def __init__(self, risk):
        self.risk = risk

    def predict_proba(self, X):
        return self.risk.predict_proba(X)[:, ::-1]


MIRRORED = {"scores", "cutoffs"}  # of the outcome: shown as the model's own scores


def numbers(found, path=()):
    """Every number of a summary with its place, but for those of hashes and versions."""
    if isinstance(found, dict):
        for name, value in found.items():
            yield from numbers(value, (*path, name))
    elif isinstance(found, (list, tuple)):
        for place, value in enumerate(found):
            yield from numbers(value, (*path, place))
    elif isinstance(found, (int, float)) and not isinstance(found, bool):
        yield path, float(found)


def comparable(result):
    found = result.to_dict()
    for name in ("versions", "settings", "warnings"):
        del found[name]
    for name in MIRRORED:
        del found["outcome"][name]
    del found["distributions"]["score"], found["distributions"]["plane"]
    del found["outcome"]["calibration"]  # of the model's own probability
    for group in found["roc"]["groups"]:
        del group["score"], group["ks_score"]  # cutoffs of the model's own score
    return dict(numbers(found))


@pytest.mark.filterwarnings("ignore:Attributions are sampled", "ignore:.*too short to have a direction")
@pytest.mark.parametrize("kind", ["torch", "logistic", "trees", "black box"])
def test_a_risk_is_audited_like_its_negation(loans, kind):
    X, default, _ = loans
    options = {"decision_threshold": 0.4}
    if kind == "torch":
        risk, negated = torch_models()
    elif kind == "logistic":
        risk = LogisticRegression().fit(X, default)
        negated = LogisticRegression().fit(X, 1 - default)
        negated.coef_, negated.intercept_ = -risk.coef_, -risk.intercept_
    elif kind == "trees":
        risk = GradientBoostingClassifier(n_estimators=20, random_state=0).fit(X, default)
        negated = copy.deepcopy(risk)
        negated.init_.class_prior_ = negated.init_.class_prior_[::-1]
        for tree in negated.estimators_.ravel():
            tree.tree_.value[:] *= -1
    else:
        trees = GradientBoostingClassifier(n_estimators=20, random_state=0).fit(X.to_numpy(), default)
        risk, negated = (lambda Z: trees.predict_proba(Z)[:, 1]), Negated(trees)
        options |= {
            "attribution": "sampled_shapley",
            "options": eh.AuditOptions(output="probability", n_permutations=4),
        }
    low = audited(risk, loans, favorable="low", **options)
    options["decision_threshold"] = 0.6
    high = audited(negated, loans, favorable="high", y=1 - default, **options)
    expected, found = comparable(high), comparable(low)
    assert expected.keys() == found.keys()
    assert len(found) > 500
    np.testing.assert_allclose([*found.values()], [*expected.values()], rtol=1e-6, atol=1e-9)
    same = ["label", "decision", "match_decision", "cec", "placebo_cec", "regime", "shared_reasons"]
    pd.testing.assert_frame_equal(low.pairs[same], high.pairs[same], atol=1e-9)
    np.testing.assert_allclose(low.pairs["score"], 1 - high.pairs["score"], atol=1e-9)
    np.testing.assert_allclose(low.attributions, high.attributions, atol=1e-6)


def test_scores_are_shown_as_the_model_gives_them(loans):
    X, default, _ = loans
    model = LogisticRegression().fit(X, default)
    risk = model.predict_proba(X)[:, 1]
    found = audited(model, loans, favorable="low", decision_threshold=0.3)
    pairs = found.pairs.drop_duplicates("person")
    np.testing.assert_allclose(pairs["score"], risk[pairs["person"]])
    np.testing.assert_array_equal(pairs["decision"], risk[pairs["person"]] <= 0.3)
    np.testing.assert_array_equal(pairs["label"], 1 - default[pairs["person"]])
    summary = found.to_dict()
    assert summary["settings"]["favorable"] == "low"
    scores = next(chart for chart in Outcome.charts if chart.name == "score_distribution")
    assert "to the left of the threshold are approved" in scores.draw(summary)[1]
    assert summary["settings"]["decision_threshold"] == 0.3
    assert summary["outcome"]["positive_rate"] == pytest.approx((risk <= 0.3).mean())
    of_group = {row["group"]: row["mean_score"]["value"] for row in summary["outcome"]["scores"]}
    assert of_group["b"] == pytest.approx(risk[loans[2] == "b"].mean())
    area = mannwhitneyu(risk[default == 1], risk[default == 0]).statistic / default.sum() / (1 - default).sum()
    assert summary["outcome"]["auc"] == pytest.approx(area)
    (gap,) = summary["score_gaps"]
    assert {gap["group"], gap["reference"]} == {"a", "b"}
    is_b = gap["group"] == "b"
    assert (summary["score_gap"]["logit"]["value"] < 0) == is_b  # b, whose branch raises the risk, is worse off


def test_principal_reasons_are_what_raised_the_risk(loans):
    X, default, _ = loans
    model = LogisticRegression().fit(X, default)
    cases = audited(model, loans, favorable="low").cases(5)
    first = cases[cases["reason"] == 1]
    raised = model.coef_[0] * (X - X.mean())
    for _, row in first.iterrows():
        assert raised.loc[row["person"], row["feature"]] > -0.5  # never what lowered it most
        assert row["attribution"] == cases.loc[cases["person"] == row["person"], "attribution"].min()


def test_a_default_model_with_good_labels_is_refused(loans):
    X, default, _ = loans
    model = LogisticRegression().fit(X, default)
    with pytest.raises(InvalidInputError, match=r"ranks people against `y`, with an AUC of 0\.1\d\d .*--favorable low"):
        audited(model, loans, y=1 - default)


def test_one_who_says_high_is_warned_first(loans):
    X, default, _ = loans
    model = LogisticRegression().fit(X, default)
    with pytest.warns(EvenhandWarning, match="ranks people against their labels"):
        found = audited(model, loans, y=1 - default, favorable="high", evidence=False)
    assert "ranks people against their labels" in found.warnings[0]


def test_a_useless_score_passes(loans):
    rng = np.random.default_rng(0)
    people = pd.DataFrame(rng.normal(size=(400, 4)), columns=loans[0].columns)
    noise = LogisticRegression().fit(people, rng.integers(0, 2, 400))
    noise.intercept_[:] = 0
    noise.coef_[:] = [[0, 0, 0, 1e-3]]
    assert audited(noise, loans, y=rng.permutation(loans[1]), evidence=False).warnings is not None


def test_a_word_for_neither_end_is_refused(loans):
    with pytest.raises(InvalidInputError, match=r"`favorable` \(--favorable\) must be 'high' or 'low', got 'up'"):
        audited(torch_models()[0], loans, favorable="up")
