"""Models without names for their inputs, and names that are spelled differently."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import GradientBoostingClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import RobustScaler, StandardScaler

import evenhand as eh
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.validation import as_spelled
from evenhand.models.dispatch import as_audited_model, unsettled_columns


@pytest.fixture(scope="module")
def applicants():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"income": rng.normal(5e4, 15e3, 400), "age": rng.normal(40, 10, 400), "debt": rng.random(400)})
    y = ((X["income"] - 5e4) / 15e3 - 3 * (X["debt"] - 0.5) + rng.normal(size=400) > 0).to_numpy().astype(int)
    return X, y, rng.integers(0, 2, 400)


def audit(model, X, y, group):
    return eh.audit(model, X, y, sensitive_features=group, financial_features=["income"], evidence=False)


MODELS = {
    "scaler": make_pipeline(StandardScaler(), LogisticRegression()),
    "quartiles": make_pipeline(RobustScaler(), LogisticRegression()),
    "splits": GradientBoostingClassifier(random_state=0),
}


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("order", [["debt", "income", "age"], ["age", "income", "debt"]])
def test_columns_that_contradict_what_a_model_was_fitted_on_are_refused(name, order, applicants):
    X, y, group = applicants
    model = MODELS[name].fit(X.to_numpy(), y)
    audit(model, X, y, group)  # the order is settled, and needs no warning
    with pytest.raises(InvalidInputError, match=r"In the order \['income', 'age', 'debt'\] all fit"):
        audit(model, X[order], y, group)


def test_what_statistics_do_not_tell_apart_is_said(applicants):
    X, y, group = applicants
    alike = X.assign(savings=X["income"] + 100)
    model = make_pipeline(StandardScaler(), LogisticRegression()).fit(alike.to_numpy(), y)
    assert unsettled_columns(model, as_audited_model(model, table=alike), alike) == ["income", "savings"]
    with pytest.warns(eh.EvenhandWarning, match="nothing in the model tells 'income', 'savings' apart"):
        result = audit(model, alike, y, group)
    assert "'income', 'age', 'debt', 'savings'" in " ".join(result.to_dict()["warnings"])


def test_names_settle_the_order_and_arrays_have_none(applicants):
    X, y, group = applicants
    named = LogisticRegression().fit(X / X.std(), y)
    assert unsettled_columns(named, as_audited_model(named, table=X), X) == []
    array = (X / X.std()).to_numpy()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = LogisticRegression().fit(array, y)
        eh.audit(model, array, y, sensitive_features=group, financial_features=["x0"], evidence=False)


@pytest.mark.parametrize("model", [LogisticRegression(max_iter=1000), *MODELS.values()], ids=lambda m: type(m).__name__)
@pytest.mark.parametrize("columns", [["income", "age"], ["income", "age", "debt", "more"]])
def test_a_table_of_another_width_is_one_sentence(model, columns, applicants):
    X, y, group = applicants
    model.fit(X.to_numpy(), y)
    given = X.assign(more=X["age"])[columns]
    with pytest.raises(InvalidInputError, match=f"takes 3 inputs and has no names for them.* {len(columns)} columns"):
        audit(model, given, y, group)


@pytest.mark.parametrize(
    ("names", "columns", "expected"),
    [
        (["Loan_amount", "age"], ["age", "Loan amount"], ["Loan amount", "age"]),
        (["late_payments_ever"], ["late payments ever", "late"], ["late payments ever"]),
        (["a_b"], ["a_b", "a b"], ["a_b"]),  # as it stands
        (["a_b_c"], ["a b_c", "a_b c"], ["a_b_c"]),  # two columns
        (["a_b", "a b"], ["a b"], ["a_b", "a b"]),  # a column twice
    ],
)
def test_underscores_stand_for_spaces_where_one_column_is_meant(names, columns, expected):
    assert as_spelled(names, columns) == expected
