"""Inputs in a different unit than the model was fitted in are pointed out, with the factor; others are not."""

import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, RobustScaler, StandardScaler

import evenhand as eh
from evenhand.auditing.fitted import unit_factor
from evenhand.models.dispatch import FittedScale


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(1)
    n = 400
    X = pd.DataFrame({"income": rng.lognormal(10.5, 0.5, n), "rate": rng.beta(2, 3, n), "debt": rng.normal(size=n)})
    y = (X["debt"] - 4 * X["rate"] + rng.logistic(size=n) > -1.5).astype(int)
    return X, y.to_numpy(), rng.choice(["a", "b"], n)


MODELS = {
    "scaler": make_pipeline(StandardScaler(), LogisticRegression()),
    "quartiles": make_pipeline(SimpleImputer(), RobustScaler(), LogisticRegression()),
    "range": make_pipeline(MinMaxScaler(), LogisticRegression()),
    "by column": make_pipeline(
        make_column_transformer(
            (make_pipeline(SimpleImputer(), StandardScaler()), ["rate", "debt"]), (StandardScaler(), [0])
        ),
        LogisticRegression(),
    ),
    "trees": GradientBoostingClassifier(n_estimators=30, random_state=0),
    "network": eh.CECClassifier(financial_features=["income"], epochs=2, random_state=0),
}


def audited(model, people, X, **options):
    _, y, group = people
    given = {"favorable": "high", "evidence": False, "sensitive_features": group, "financial_features": ["income"]}
    return eh.audit(model, X, y, **given | options)


def fit(name, people):
    X, y, group = people
    return MODELS[name].fit(X, y, **({"sensitive_features": group} if name == "network" else {}))


@pytest.mark.filterwarnings(
    "ignore:The score ranks",
    "ignore:The model's decisions",
    "ignore:Attributions miss",
    "ignore:The probability of .* is 0 or 1 to the last digit",
)
@pytest.mark.parametrize("name", MODELS)
def test_percent_for_shares_is_pointed_out_with_its_factor(name, people):
    X = people[0]
    model = fit(name, people)
    said = r"'rate' is about 100 times as large as what the model was fitted on \(mean .*divide it by 100"
    with pytest.warns(eh.EvenhandWarning, match=said):
        found = audited(model, people, X.assign(rate=100 * X["rate"]))
    assert sum("times as" in warning for warning in found.warnings) == 1
    with pytest.warns(eh.EvenhandWarning, match="'income' is about 1000 times as small as what.*multiply it by 1000"):
        audited(model, people, X.assign(income=X["income"] / 1000))
    assert not any("times as" in warning for warning in audited(model, people, X).warnings)


@pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")
def test_the_reference_tells_where_the_model_does_not(people, tmp_path):
    X, y, group = people
    model = LogisticRegression(max_iter=5_000).fit(X, y)
    other = X.assign(rate=100 * X["rate"])
    found = audited(model, people, other, reference=(X, y, group))
    assert any("'rate' is about 100 times as large as what the reference has" in w for w in found.warnings)
    assert not any("times as" in warning for warning in audited(model, people, other).warnings)


@pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")
def test_a_stream_says_the_same(people, tmp_path):
    X, y, group = people
    model = fit("scaler", people)
    X.assign(rate=100 * X["rate"], y=y, sex=group).to_parquet(tmp_path / "people.parquet")
    found = eh.audit_stream(
        model,
        tmp_path / "people.parquet",
        label="y",
        group="sex",
        financial_features=["income"],
        favorable="high",
        evidence=False,
        out=tmp_path / "audit",
        n_jobs=1,
    )
    assert any("'rate' is about 100 times as large as what the model" in warning for warning in found.warnings)


@pytest.mark.parametrize(
    "values",
    [
        np.linspace(5, 6, 100),  # moved, in the same unit
        np.linspace(0, 10, 100),  # ten times as large: a different population
        np.linspace(900, 1000, 100),  # a hundred times as wide, but centered elsewhere
        np.full(100, 40.0),
        np.full(100, np.nan),
    ],
)
def test_other_populations_are_no_other_units(values):
    assert unit_factor(pd.Series(values), FittedScale(0.4, 0.25)) is None
