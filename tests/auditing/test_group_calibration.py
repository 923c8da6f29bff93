"""Calibration by group in an audit: of the model's own scores, and only where they are probabilities."""

import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import calibration_curve
from sklearn.linear_model import LogisticRegression
from sklearn.svm import LinearSVC

import evenhand as eh

pytestmark = pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(800, 3)), columns=["income", "debt", "age"])
    y = (rng.random(800) < 1 / (1 + np.exp(-X["income"] - 0.5 * X["debt"]))).astype(int).to_numpy()
    return X, y, rng.choice(["a", "b"], 800)


def audited(model, people, turned=False, **options):
    X, y, group = people
    return eh.audit(
        model,
        X,
        1 - y if turned else y,
        sensitive_features=group,
        financial_features=["income"],
        evidence=False,
        **options,
    )


@pytest.mark.parametrize("turned", [False, True])
def test_the_curve_is_that_of_the_model_s_own_probability(people, turned):
    X, y, group = people
    labels = 1 - y if turned else y
    model = LogisticRegression().fit(X, labels)
    result = audited(model, people, turned, favorable="low" if turned else "high")
    found = result.outcome.calibration
    assert found.outcome == ("unfavorable outcome" if turned else "favorable outcome")
    score = model.predict_proba(X)[:, 1]
    for one in found.groups:
        chosen = group == one.group
        observed, promised = calibration_curve(labels[chosen], score[chosen], n_bins=10, strategy="quantile")
        assert [part.mean_score for part in one.bins] == pytest.approx(promised.tolist(), abs=1e-6)
        assert [part.observed_rate.value for part in one.bins] == pytest.approx(observed.tolist())


@pytest.mark.parametrize("favorable", ["high", "low"])
def test_a_margin_is_not_compared_with_labels(people, favorable):
    X, y, _ = people
    turned = favorable == "low"
    model = LinearSVC(random_state=0).fit(X, 1 - y if turned else y)
    settings = eh.AuditOptions(output="log-odds")
    result = audited(model, people, turned, favorable=favorable, options=settings)
    found = result.outcome.calibration
    assert found.groups == ()
    assert "LinearSVC returns a margin, not a probability" in found.note
    with pytest.raises(eh.EvenhandError, match="returns a margin"):
        result.plot.reliability()


def test_a_margin_behind_a_black_box_is_one_too(people):
    X, y, group = people

    class Ranker:
        classes_ = np.array([0, 1])

        def decision_function(self, x):
            return np.asarray(x)[:, 0]

    result = eh.audit(
        Ranker(),
        X[:100],
        y[:100],
        sensitive_features=group[:100],
        financial_features=["income"],
        evidence=False,
        options=eh.AuditOptions(output="log-odds", n_permutations=4),
    )
    assert "margin" in result.outcome.calibration.note
