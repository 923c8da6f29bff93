"""Models name their columns, whatever library they are from, and tables are aligned by these names."""

import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline

import evenhand as eh
from evenhand.models.introspection import input_columns

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
