"""Thresholds and columns that models know."""

import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from sklearn.ensemble import RandomForestClassifier
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import fbeta_score, make_scorer
from sklearn.model_selection import FixedThresholdClassifier, GridSearchCV, TunedThresholdClassifierCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

import evenhand as eh
from evenhand.exceptions import InvalidInputError
from evenhand.models.dispatch import input_columns


def decisions(model, numbers, **options):
    X, y, group = numbers
    result = eh.audit(model, X, y, sensitive_features=group, financial_features=["income"], evidence=False, **options)
    return result, result.pairs.groupby("person")["decision"].first().to_numpy()


FIXED = {
    "probability": FixedThresholdClassifier(LogisticRegression(), threshold=0.3),
    "forest": FixedThresholdClassifier(RandomForestClassifier(10, random_state=0), threshold=0.7),
    "margin": FixedThresholdClassifier(LogisticRegression(), threshold=-0.8, response_method="decision_function"),
    "other class": FixedThresholdClassifier(LogisticRegression(), threshold=0.3, pos_label=0),
    "other class, margin": FixedThresholdClassifier(
        LogisticRegression(), threshold=0.8, pos_label=0, response_method="decision_function"
    ),
    "auto": FixedThresholdClassifier(LogisticRegression()),
    "after steps": make_pipeline(StandardScaler(), FixedThresholdClassifier(LogisticRegression(), threshold=0.3)),
    "around steps": FixedThresholdClassifier(make_pipeline(StandardScaler(), LogisticRegression()), threshold=0.3),
    "in a search": GridSearchCV(
        FixedThresholdClassifier(LogisticRegression(), threshold=0.3), {"estimator__C": [0.1, 1]}, cv=3
    ),
    "tuned": TunedThresholdClassifierCV(LogisticRegression(), scoring="balanced_accuracy", cv=3),
    "tuned for the other class": TunedThresholdClassifierCV(
        LogisticRegression(), scoring=make_scorer(fbeta_score, beta=3, pos_label=0), cv=3
    ),
}


@pytest.mark.parametrize("name", FIXED)
def test_the_audit_decides_as_the_model_does(name, numbers):
    X, y, _ = numbers
    model = FIXED[name].fit(X, y)
    result, decided = decisions(model, numbers)
    np.testing.assert_array_equal(decided, model.predict(X))
    assert any("use the model's threshold" in warning for warning in result.warnings) == (name != "auto")
    assert name == "auto" or result.settings["decision_threshold"] != 0.5


def test_a_model_fitted_before_is_audited_at_the_fixed_threshold(numbers):
    X, y, _ = numbers
    model = FixedThresholdClassifier(FrozenEstimator(LogisticRegression().fit(X, y)), threshold=0.3)
    assert decisions(model, numbers)[0].settings["decision_threshold"] == 0.3


def test_the_users_threshold_wins_with_a_warning_where_it_differs(numbers):
    X, y, _ = numbers
    model = FixedThresholdClassifier(LogisticRegression(), threshold=0.3).fit(X, y)
    with pytest.warns(eh.EvenhandWarning, match=r"is 0\.5, but the FixedThresholdClassifier decides .* of 0\.3"):
        result, decided = decisions(model, numbers, decision_threshold=0.5)
    np.testing.assert_array_equal(decided, model.estimator_.predict(X))
    assert result.settings["decision_threshold"] == 0.5
    assert any("is 0.5, but the FixedThresholdClassifier decides" in warning for warning in result.warnings)
    decisions(model, numbers, decision_threshold=0.3)  # no warning


def test_a_model_without_a_threshold_of_its_own_decides_at_one_half(numbers):
    X, y, _ = numbers
    result, decided = decisions(LogisticRegression().fit(X, y), numbers)
    assert result.settings["decision_threshold"] == 0.5
    np.testing.assert_array_equal(decided, LogisticRegression().fit(X, y).predict(X))


def test_a_threshold_of_a_margin_that_is_not_explained_is_refused(numbers):
    X, y, _ = numbers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", FutureWarning)  # scikit-learn 1.8 began to deprecate `probability`
        inner = SVC(probability=True, random_state=0).fit(X, y)
    model = FixedThresholdClassifier(FrozenEstimator(inner), threshold=0.2, response_method="decision_function")
    with pytest.raises(InvalidInputError, match=r"decides by a margin, at 0\.2, but is explained by its probability"):
        decisions(model.fit(X, y), numbers)


USED = ["income", "debt", "years"]


def scorecard(X, y):
    optbinning = pytest.importorskip("optbinning")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        process = optbinning.BinningProcess(list(X.columns))
        return optbinning.Scorecard(binning_process=process, estimator=LogisticRegression()).fit(X, y)


def binned(X, y):
    optbinning = pytest.importorskip("optbinning")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make_pipeline(optbinning.BinningProcess(list(X.columns)), LogisticRegression()).fit(X.to_numpy(), y)


FITTED = {
    "scorecard": scorecard,
    "binning in a pipeline": binned,
    "logit": lambda X, y: sm.Logit(y, sm.add_constant(X)).fit(disp=0),
    "binomial": lambda X, y: sm.GLM(y, X, family=sm.families.Binomial()).fit(),
    "formula": lambda X, y: smf.logit(
        "y ~ np.tanh(income) + I(debt ** 2) + years", X.assign(other=1.0, y=y)
    ).fit(disp=0),
    "search": lambda X, y: GridSearchCV(LogisticRegression(), {"C": [0.1, 1]}, cv=2).fit(X, y),
}  # fmt: skip


@pytest.mark.parametrize("name", FITTED)
def test_columns_are_those_that_the_model_was_fitted_on(name, numbers):
    X, y, _ = numbers
    assert input_columns(FITTED[name](X[USED], y)) == USED


@pytest.mark.usefixtures("formula_engine")
def test_a_formula_takes_its_variables_and_no_function(numbers):
    X, y, _ = numbers
    fitted = smf.logit("y ~ income + C(np.sign(debt))", X.assign(y=y)).fit(disp=0)
    assert input_columns(fitted) == ["income", "debt"]


def test_arrays_have_no_names(numbers):
    X, y, _ = numbers
    assert input_columns(sm.Logit(y, sm.add_constant(X.to_numpy())).fit(disp=0)) is None
    assert input_columns(LogisticRegression().fit(X.to_numpy(), y)) is None
    assert input_columns(lambda rows: rows[:, 0]) is None


@pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")
@pytest.mark.parametrize("name", ["scorecard", "logit", "formula"])
def test_a_file_in_a_different_order_with_further_columns_is_aligned(name, numbers, tmp_path):
    X, y, group = numbers
    model = FITTED[name](X[USED], y)
    people = X[USED].assign(loan_id=np.arange(len(X)) + 5_000, y=y, sex=group)
    people[people.columns[::-1]].to_parquet(tmp_path / "people.parquet")
    streamed = eh.audit_stream(
        model,
        tmp_path / "people.parquet",
        label="y",
        group="sex",
        financial_features=["income"],
        out=tmp_path / "audit",
        evidence=False,
        n_jobs=1,
    )
    expected = eh.audit(model, X[USED], y, sensitive_features=group, financial_features=["income"], evidence=False)
    assert streamed.provenance.n_features == 3
    pd.testing.assert_series_equal(streamed.pairs["score"], expected.pairs["score"], check_exact=False)
