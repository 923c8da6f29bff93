"""Combinations of classifiers: scores are scikit-learn's own, values those of the same model asked as a black box."""

import warnings

import numpy as np
import pandas as pd
import pytest
from scipy.special import logit
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import make_column_transformer
from sklearn.ensemble import (
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    StackingClassifier,
    VotingClassifier,
)
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, PolynomialFeatures, StandardScaler
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import evenhand as eh
from evenhand.attribution.sampled import SampledShapley
from evenhand.models.combined import OpenedScore
from evenhand.models.dispatch import as_audited_model
from evenhand.models.protocol import LinearModel

pytestmark = pytest.mark.integration  # most tests are of whole audits

NUMBERS = list("abcdefgh")


@pytest.fixture(scope="module")
def people():
    """Eight numbers, so that orders are sampled, and a category."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(240, 8)), columns=NUMBERS)
    X["home"] = rng.choice(["rent", "own", "other"], len(X))
    score = X["a"] + X["b"] * X["c"] - (X["home"] == "rent") * X["d"]
    y = (rng.random(len(X)) < 1 / (1 + np.exp(-2 * score))).astype(int)
    return X, y, np.where(rng.random(len(X)) < 0.5, "f", "m")


def encoded(model):
    return make_pipeline(make_column_transformer((StandardScaler(), NUMBERS), (OneHotEncoder(), ["home"])), model)


def forest(n=5, seed=0):
    return RandomForestClassifier(n, max_depth=4, random_state=seed)


def network():
    return MLPClassifier((4,), max_iter=20, random_state=0)


SAMPLED = {
    "calibrated forests": lambda: CalibratedClassifierCV(forest(), cv=3),
    "isotonic": lambda: CalibratedClassifierCV(forest(), cv=3, method="isotonic"),
    "calibrated margins": lambda: CalibratedClassifierCV(LinearSVC(), cv=3),
    "calibrated boosting": lambda: CalibratedClassifierCV(GradientBoostingClassifier(n_estimators=4), cv=3),
    "calibrated networks": lambda: CalibratedClassifierCV(network(), cv=2),
    "calibrated black boxes": lambda: CalibratedClassifierCV(GaussianNB(), cv=2),
    "steps that mix": lambda: CalibratedClassifierCV(
        make_pipeline(PolynomialFeatures(), LogisticRegression(C=0.1)), cv=2
    ),
    "voting": lambda: VotingClassifier(
        [("a", LogisticRegression()), ("b", GaussianNB()), ("c", forest())], voting="soft", weights=[1, 2, 3]
    ),
    "stacking": lambda: StackingClassifier([("a", LogisticRegression()), ("b", forest())], cv=2),
    "stacking on inputs": lambda: StackingClassifier([("a", LinearSVC()), ("b", forest())], passthrough=True, cv=2),
    "bagging": lambda: BaggingClassifier(LogisticRegression(), 3, max_features=0.6, random_state=0),
    "bagged steps": lambda: BaggingClassifier(make_pipeline(StandardScaler(), LogisticRegression()), 3, random_state=0),
    "combinations inside": lambda: VotingClassifier(
        [("a", LogisticRegression()), ("b", CalibratedClassifierCV(forest(), cv=2, method="isotonic"))], voting="soft"
    ),
}
WITH_CATEGORIES = {
    "steps inside": lambda: CalibratedClassifierCV(encoded(HistGradientBoostingClassifier(max_iter=4)), cv=2),
    "steps before": lambda: encoded(CalibratedClassifierCV(forest(), cv=2)),
    "steps in a stack": lambda: StackingClassifier(
        [("a", encoded(LogisticRegression())), ("b", encoded(forest()))], cv=2
    ),
}


def fitted(model, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return model.fit(X, y)


def from_first(audited, X):
    x = audited.encode(X)
    return audited.attribute(x[1:13], np.broadcast_to(x[:1], x[1:13].shape), 8, "segments")


@pytest.mark.parametrize("name", [*SAMPLED, *WITH_CATEGORIES])
def test_members_say_what_the_whole_says(name, people):
    X, y, _ = people
    X = X if name in WITH_CATEGORIES else X[NUMBERS]
    model = fitted({**SAMPLED, **WITH_CATEGORIES}[name](), X, y)
    audited = as_audited_model(model, table=X, n_permutations=8)
    assert isinstance(audited.game.score, OpenedScore)
    np.testing.assert_allclose(audited.margin(audited.encode(X)), model.predict_proba(X)[:, 1], atol=1e-12)
    if name == "steps before":
        return  # explained in the space of the steps' outputs
    closed = as_audited_model(
        lambda table: model.predict_proba(table)[:, 1], output="probability", table=X, n_permutations=8
    )
    if name not in WITH_CATEGORIES:
        closed = as_audited_model(
            lambda rows: model.predict_proba(pd.DataFrame(rows, columns=NUMBERS))[:, 1],
            output="probability",
            table=X,
            n_permutations=8,
        )
    assert not isinstance(closed.game.score, OpenedScore)
    ours, theirs = from_first(audited, X), from_first(closed, X)
    np.testing.assert_allclose(ours.values, theirs.values, atol=1e-9)
    np.testing.assert_allclose(ours.with_inputs_of(ours), theirs.with_inputs_of(theirs), atol=1e-9)
    turned = np.arange(len(ours.x))[::-1].copy()
    np.testing.assert_allclose(
        ours.with_inputs_of(ours.rows(turned)), theirs.with_inputs_of(theirs.rows(turned)), atol=1e-9
    )


@pytest.mark.parametrize(
    "model",
    [
        VotingClassifier(
            [("a", forest()), ("b", ExtraTreesClassifier(4, random_state=1))], voting="soft", weights=[1, 3]
        ),
        BaggingClassifier(DecisionTreeClassifier(max_depth=4), 5, max_features=0.6, random_state=0),
        BaggingClassifier(forest(3), 3, random_state=0),
    ],
    ids=["voting", "bagged trees", "bagged forests"],
)
def test_an_average_of_trees_is_a_forest_explained_exactly(model, people):
    X, y, _ = people
    X = X[NUMBERS]
    fitted(model, X, y)
    audited = as_audited_model(model, table=X)
    assert (audited.attribution, audited.output) == ("tree_shap", "probability")
    np.testing.assert_allclose(audited.margin(audited.encode(X)), model.predict_proba(X)[:, 1], atol=1e-12)
    exact = SampledShapley(lambda rows: model.predict_proba(pd.DataFrame(rows, columns=NUMBERS))[:, 1], 128)
    x = audited.encode(X)[1:5]
    theirs = exact.contributions(x, x, np.broadcast_to(audited.encode(X)[:1], x.shape)).values
    assert exact.is_exact(len(NUMBERS))
    np.testing.assert_allclose(from_first(audited, X).values[:4], theirs, atol=1e-12)


@pytest.mark.parametrize(
    "inner", [forest(), GradientBoostingClassifier(n_estimators=8)], ids=lambda m: type(m).__name__
)
def test_one_calibrated_tree_model_has_exact_log_odds(inner, people):
    X, y, _ = people
    X = X[NUMBERS]
    model = CalibratedClassifierCV(FrozenEstimator(inner.fit(X, y))).fit(X, y)
    audited = as_audited_model(model, table=X)
    assert (audited.attribution, audited.output) == ("tree_shap", "log-odds")
    np.testing.assert_allclose(audited.margin(audited.encode(X)), logit(model.predict_proba(X)[:, 1]), atol=1e-9)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import shap
    explainer = shap.TreeExplainer(inner, X.iloc[:1], feature_perturbation="interventional")
    theirs = np.asarray(explainer.shap_values(X.iloc[1:13]))
    theirs = theirs[:, :, 1] if theirs.ndim == 3 else theirs
    slope = -model.calibrated_classifiers_[0].calibrators[0].a_
    np.testing.assert_allclose(from_first(audited, X).values, slope * theirs, atol=1e-6)


def test_one_calibrated_linear_model_stays_linear(people):
    X, y, _ = people
    model = fitted(CalibratedClassifierCV(encoded(LogisticRegression()), cv=3, ensemble=False), X, y)
    audited = as_audited_model(model, table=X)
    assert isinstance(audited, LinearModel)
    np.testing.assert_allclose(audited.margin(audited.encode(X)), logit(model.predict_proba(X)[:, 1]), atol=1e-9)


def test_a_member_whose_margin_is_not_its_log_odds_is_found_out(people):
    X, y, _ = people
    X = X[NUMBERS]
    inner = GradientBoostingClassifier(loss="exponential", n_estimators=8)
    for ensemble in (True, False):
        model = CalibratedClassifierCV(inner, cv=2, ensemble=ensemble).fit(X, y)
        audited = as_audited_model(model, table=X)
        assert not isinstance(audited.game.score, OpenedScore)
        np.testing.assert_allclose(audited.margin(audited.encode(X)), model.predict_proba(X)[:, 1], atol=1e-12)


def test_a_combination_is_audited_like_its_black_box(people):
    X, y, group = (part[:100] for part in people)
    model = fitted(CalibratedClassifierCV(encoded(forest()), cv=2), X, y)
    settings = {
        "sensitive_features": group,
        "financial_features": ["a", "b"],
        "options": eh.AuditOptions(n_permutations=4, output="probability"),
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", eh.EvenhandWarning)
        ours = eh.audit(model, X, y, **settings)
        theirs = eh.audit(lambda table: model.predict_proba(table)[:, 1], X, y, **settings)
    for key in ("mean", "excess", "reasoning_gap", "weighing_excess"):
        assert ours.to_dict()["cec"][key] == pytest.approx(theirs.to_dict()["cec"][key], abs=1e-9)
