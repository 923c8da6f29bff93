import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import evenhand as eh
from evenhand.exceptions import InvalidInputError


@pytest.fixture
def loans(rng, tmp_path):
    """A file of people with a default, 1 for yes, and a model of it."""
    X = pd.DataFrame(rng.normal(size=(600, 3)), columns=["income", "debt", "tenure"])
    default = (X["debt"] - X["income"] + rng.logistic(size=600) > 0).astype(int)
    group = rng.choice(["a", "b"], 600)
    X.assign(default=default, group=group).to_parquet(tmp_path / "loans.parquet")
    return LogisticRegression().fit(X, default), X, default, group, tmp_path / "loans.parquet"


def test_a_risk_is_audited_in_batches_as_in_memory(loans, tmp_path):
    model, X, default, group, path = loans
    financial = ["income", "debt"]
    whole = eh.audit(model, X, default, sensitive_features=group, financial_features=financial, favorable="low")
    parts = eh.audit_stream(
        model,
        path,
        label="default",
        group="group",
        financial_features=financial,
        out=tmp_path / "audit",
        batch_rows=250,
        n_jobs=1,
        favorable="low",
    )
    for section in ("cec", "outcome"):
        ours, theirs = whole.to_dict()[section], parts.to_dict()[section]
        numbers = [name for name, value in ours.items() if isinstance(value, float)]
        np.testing.assert_allclose([theirs[name] for name in numbers], [ours[name] for name in numbers], rtol=1e-6)
    np.testing.assert_allclose(parts.pairs["score"], whole.pairs["score"])
    np.testing.assert_allclose(parts.pairs.drop_duplicates("person")["score"], model.predict_proba(X)[:, 1])


def test_scores_against_the_label_are_refused_before_the_first_batch(loans, tmp_path):
    model, _, default, _, path = loans
    table = pd.read_parquet(path).assign(good=1 - default).drop(columns="default")
    table.to_parquet(path)
    with pytest.raises(InvalidInputError, match="ranks people against `y`"):
        eh.audit_stream(
            model, path, label="good", group="group", financial_features=["income"], out=tmp_path / "a", n_jobs=1
        )
    assert not (tmp_path / "a" / "pairs").exists()
