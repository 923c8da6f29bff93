"""Models of statsmodels, InterpretML, optbinning and imbalanced-learn: scores are the library's, explanations exact."""

import itertools
import warnings

import numpy as np
import pandas as pd
import pytest
import statsmodels.api as sm
import statsmodels.formula.api as smf
from scipy.special import expit, logit
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import evenhand as eh
from evenhand.exceptions import InvalidInputError
from evenhand.models.dispatch import as_audited_model
from evenhand.models.protocol import LinearModel


@pytest.fixture(scope="module")
def homes():
    """People with two numbers, one of them with holes, text, and a number that is a code."""
    rng = np.random.default_rng(0)
    n = 300
    X = pd.DataFrame(
        {
            "income": rng.normal(size=n),
            "debt": rng.normal(size=n).round(1),
            "home": rng.choice(["rent", "own", "other"], n, p=[0.5, 0.45, 0.05]),
            "branch": rng.choice([1, 2, 7], n),
        }
    )
    score = X["income"] - X["debt"] * (X["home"] == "rent") + 0.5 * (X["branch"] == 7)
    y = (rng.random(n) < expit(score)).astype(int)
    return X, y, np.where(rng.random(n) < 0.5, "f", "m")


def explained(audited, X, baseline=None):
    x = audited.encode(X)
    start = x[:1] if baseline is None else audited.encode(baseline)
    return audited.attribute(x, np.broadcast_to(start, x.shape), 8, "segments")


def by_column(audited, found):
    join = audited.join_matrix()
    return found.values if join is None else found.values @ join


def probabilities(audited, X):
    return audited.probability(audited.margin(audited.encode(X)))


def shapley_by_all_orders(score, person, baseline):
    """Shapley values of one row of a table against another, over all orders of the columns."""
    columns = list(person.columns)
    gained = dict.fromkeys(columns, 0.0)
    orders = list(itertools.permutations(columns))
    for order in orders:
        row, before = baseline.copy(), score(baseline)
        for column in order:
            row[column] = person[column].to_numpy()
            after = score(row)
            gained[column] += (after - before) / len(orders)
            before = after
    return np.array([gained[column] for column in columns])


# statsmodels


@pytest.mark.parametrize("constant", ["added by us", "in the table", "none"])
@pytest.mark.parametrize("kind", ["Logit", "GLM"])
def test_a_logistic_regression_is_explained_by_its_coefficients(kind, constant, numbers):
    X, y, _ = numbers
    exog = X if constant == "none" else sm.add_constant(X)
    model = sm.Logit(y, exog) if kind == "Logit" else sm.GLM(y, exog, family=sm.families.Binomial())
    fitted = model.fit(disp=0) if kind == "Logit" else model.fit()
    table = exog if constant == "in the table" else X
    audited = as_audited_model(fitted, table=X)
    assert isinstance(audited, LinearModel)
    np.testing.assert_allclose(probabilities(audited, X), fitted.predict(exog), atol=1e-12)
    expected = (X - X.iloc[0]).to_numpy() * fitted.params[list(X.columns)].to_numpy()
    np.testing.assert_allclose(explained(audited, X).values, expected, atol=1e-12)
    assert set(table.columns) >= set(X.columns)


def test_columns_without_names_go_by_their_order(numbers):
    X, y, group = numbers
    fitted = sm.Logit(y, sm.add_constant(X.to_numpy())).fit(disp=0)
    with pytest.warns(eh.EvenhandWarning, match="The statsmodels Logit has no names for its inputs"):
        result = eh.audit(fitted, X, y, sensitive_features=group, financial_features=["income"], evidence=False)
    scores = result.pairs.groupby("person")["score"].first()
    np.testing.assert_allclose(scores, fitted.predict(sm.add_constant(X.to_numpy())), atol=1e-12)


@pytest.mark.usefixtures("formula_engine")
def test_the_terms_of_a_formula_are_summed_by_column(homes):
    X, y, group = homes
    fitted = smf.logit("y ~ income + np.square(income) + debt + C(home)", X.assign(y=y)).fit(disp=0)
    result = eh.audit(fitted, X, y, sensitive_features=group, financial_features=["income"], evidence=False)
    assert result.settings["attribution"] == "linear"
    scores = result.pairs.groupby("person")["score"].first()
    np.testing.assert_allclose(scores, fitted.predict(X), atol=1e-12)
    audited = as_audited_model(fitted, table=X)
    values = by_column(audited, explained(audited, X))
    square = next(name for name in fitted.params.index if "square" in name)
    income = X["income"].to_numpy()
    expected = (income - income[0]) * fitted.params["income"] + (income**2 - income[0] ** 2) * fitted.params[square]
    np.testing.assert_allclose(values[:, 0], expected, atol=1e-10)
    np.testing.assert_allclose(values[:, 3], 0)  # not in the formula
    np.testing.assert_allclose(values.sum(axis=1), logit(fitted.predict(X)) - logit(fitted.predict(X))[0], atol=1e-10)


@pytest.mark.parametrize("name", ["a term of two columns", "probit", "probit link", "probit without formula"])
def test_other_regressions_are_explained_by_their_probability(name, homes):
    X, y, group = homes
    data = X.assign(y=y)
    numeric = X[["income", "debt"]]
    fitted = {
        "a term of two columns": lambda: smf.logit("y ~ income * debt + C(home)", data).fit(disp=0),
        "probit": lambda: smf.probit("y ~ income + debt", data).fit(disp=0),
        "probit link": lambda: smf.glm(
            "y ~ income + debt", data, family=sm.families.Binomial(sm.families.links.Probit())
        ).fit(),
        "probit without formula": lambda: sm.Probit(y, sm.add_constant(numeric)).fit(disp=0),
    }[name]()
    X = numeric if name == "probit without formula" else X
    expected = fitted.predict(sm.add_constant(X) if name == "probit without formula" else X)
    result = eh.audit(fitted, X, y, sensitive_features=group, financial_features=["income"], evidence=False)
    assert (result.settings["attribution"], result.provenance.completeness_gap < 1e-9) == ("sampled_shapley", True)
    np.testing.assert_allclose(result.pairs.groupby("person")["score"].first(), expected, atol=1e-12)


def test_regressions_that_are_not_of_one_outcome_or_need_more_than_the_table_are_refused(numbers):
    X, y, _ = numbers
    with pytest.raises(InvalidInputError, match="a GLM of the binomial family from statsmodels, got a OLS"):
        as_audited_model(sm.OLS(y, X).fit(), table=X)
    with pytest.raises(InvalidInputError, match="has an offset or an exposure, which is not a column"):
        as_audited_model(sm.GLM(y, X, family=sm.families.Binomial(), offset=np.ones(len(X))).fit(), table=X)


# InterpretML


@pytest.fixture(scope="module")
def machine(homes):
    from interpret.glassbox import ExplainableBoostingClassifier

    X, y, _ = homes
    X = X.mask(pd.DataFrame({"income": np.arange(len(X)) % 17 == 0}).reindex(columns=X.columns, fill_value=False))
    kinds = ["continuous", "continuous", "nominal", "nominal"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ExplainableBoostingClassifier(
            max_rounds=60, interactions=3, outer_bags=2, feature_types=kinds, n_jobs=1, random_state=0
        ).fit(X, y)
    assert any(len(term) == 2 for term in model.term_features_)
    return model, X


def test_a_boosting_machine_has_the_librarys_scores_with_missing_and_unknown_values(machine):
    model, X = machine
    strange = X.assign(home=X["home"].where(X.index % 5 > 0, "tent"))
    for table in (X, strange):
        audited = as_audited_model(model, table=table)
        assert (audited.attribution, audited.output) == ("additive", "log-odds")
        np.testing.assert_allclose(probabilities(audited, table), model.predict_proba(table)[:, 1], atol=1e-12)


def test_a_boosting_machine_is_explained_as_all_orders_of_its_columns_do(machine):
    model, X = machine
    audited = as_audited_model(model, table=X)
    people, baseline = X.iloc[1:6], X.iloc[[40]].reset_index(drop=True)
    found = explained(audited, people, baseline)
    assert found.completeness_gap.max() < 1e-12
    for values, k in zip(found.values, range(len(people)), strict=True):
        person = people.iloc[[k]].reset_index(drop=True)
        theirs = shapley_by_all_orders(lambda row: float(model.decision_function(row)[0]), person, baseline)
        np.testing.assert_allclose(values, theirs, atol=1e-9)


def test_a_boosting_machine_is_audited_like_its_black_box(machine, homes):
    model, X = machine
    _, y, group = homes
    people = {"sensitive_features": group, "financial_features": ["debt"]}
    exact = eh.audit(model, X, y, **people)
    sampled = eh.audit(model.decision_function, X, y, **people, options=eh.AuditOptions(output="log-odds"))
    assert sampled.settings["attribution"] == "sampled_shapley"
    for name in ("mean", "reasoning_gap", "excess"):
        # The branch is a category to the machine, and a number to the function.
        assert exact.to_dict()["cec"][name] == pytest.approx(sampled.to_dict()["cec"][name], abs=0.05)


def test_a_boosting_machine_of_main_effects_reasons_alike_about_everyone(numbers):
    from interpret.glassbox import ExplainableBoostingClassifier

    X, y, group = numbers
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = ExplainableBoostingClassifier(max_rounds=30, interactions=0, outer_bags=2, n_jobs=1).fit(X, y)
    result = eh.audit(model, X, y, sensitive_features=group, financial_features=["income"], evidence=False)
    assert result.to_dict()["cec"]["reasoning_gap"] < 1e-12
    with pytest.raises(InvalidInputError, match="is not fitted"):
        as_audited_model(ExplainableBoostingClassifier())


# optbinning


@pytest.fixture(scope="module")
def optbinning():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return pytest.importorskip("optbinning", reason="optbinning needs NumPy 2")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("kind", ["scorecard", "pipeline"])
def test_bins_of_optbinning_are_additive_by_column(kind, homes, optbinning):
    X, y, group = homes
    X = X.assign(income=X["income"].where(X.index % 11 > 0))
    process = optbinning.BinningProcess(list(X.columns), categorical_variables=["home"])
    model = (
        optbinning.Scorecard(binning_process=process, estimator=LogisticRegression()).fit(
            X, y, metric_missing="empirical"
        )
        if kind == "scorecard"
        else make_pipeline(process, LogisticRegression()).fit(X, y)
    )
    result = eh.audit(model, X, y, sensitive_features=group, financial_features=["debt"], evidence=False)
    assert result.settings["attribution"] == "linear"
    np.testing.assert_allclose(
        result.pairs.groupby("person")["score"].first(), model.predict_proba(X)[:, 1], atol=1e-12
    )
    assert result.to_dict()["cec"]["reasoning_gap"] < 1e-12
    audited = as_audited_model(model, table=X)
    process, estimator = (
        (model.binning_process_, model.estimator_) if kind == "scorecard" else (model.steps[0][1], model.steps[-1][1])
    )
    woe = process.transform(X, metric_missing="empirical" if kind == "scorecard" else 0)
    expected = (woe - woe.iloc[0]).to_numpy() * estimator.coef_
    np.testing.assert_allclose(by_column(audited, explained(audited, X)), expected, atol=1e-12)


@pytest.mark.filterwarnings("ignore")
def test_a_scorecard_must_be_fitted(optbinning):
    card = optbinning.Scorecard(binning_process=optbinning.BinningProcess(["a"]), estimator=LogisticRegression())
    with pytest.raises(InvalidInputError, match="This Scorecard is not fitted"):
        as_audited_model(card)


# pipelines of other libraries


@pytest.mark.parametrize("first", [True, False], ids=["sampler first", "sampler after a scaler"])
def test_samplers_are_passed_over(first, numbers):
    from imblearn.over_sampling import RandomOverSampler
    from imblearn.pipeline import make_pipeline as imblearn_pipeline

    X, y, group = numbers
    steps = [RandomOverSampler(random_state=0)] if first else [StandardScaler(), RandomOverSampler(random_state=0)]
    model = imblearn_pipeline(*steps, LogisticRegression()).fit(X, y)
    result = eh.audit(model, X, y, sensitive_features=group, financial_features=["income"], evidence=False)
    assert result.settings["attribution"] == "linear"
    np.testing.assert_allclose(
        result.pairs.groupby("person")["score"].first(), model.predict_proba(X)[:, 1], atol=1e-12
    )


class Centered(TransformerMixin, BaseEstimator):
    """Keeps what it learned without an underscore, as nobody told its author."""

    def fit(self, X, y=None):
        self.center = np.asarray(X).mean(axis=0)
        return self

    def transform(self, X):
        return np.asarray(X) - self.center


class Ratio(Centered):
    """Takes a table, and makes one column of two."""

    def transform(self, X):
        return pd.DataFrame({"sum": X["income"] + X["debt"], "years": X["years"]})


@pytest.mark.parametrize(
    ("steps", "attribution"),
    [([Centered()], "linear"), ([StandardScaler(), Centered()], "linear"), ([Ratio()], "sampled_shapley")],
    ids=["first", "second", "mixing"],
)
def test_steps_that_do_not_say_that_they_are_fitted_are_used(steps, attribution, numbers):
    X, y, group = numbers
    model = make_pipeline(*steps, LogisticRegression()).fit(X, y)
    result = eh.audit(model, X, y, sensitive_features=group, financial_features=["income"], evidence=False)
    assert result.settings["attribution"] == attribution
    np.testing.assert_allclose(
        result.pairs.groupby("person")["score"].first(), model.predict_proba(X)[:, 1], atol=1e-12
    )
