"""Ids and dates are recognized by more rows than the first batch has."""

import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression

import evenhand as eh


@pytest.mark.filterwarnings("ignore:.*has no names for its inputs")
def test_an_id_that_the_first_batch_does_not_show_is_left_out(tmp_path):
    rng = np.random.default_rng(2)
    n = 300
    people = pd.DataFrame({"income": rng.normal(size=n), "debt": rng.normal(size=n)})
    y = (people["income"] + rng.logistic(size=n) > 0).astype(int)
    number = rng.permutation(10**6)[:n]
    people.assign(reference=number, paid=y, sex=np.resize(["f", "m"], n)).to_parquet(tmp_path / "people.parquet")
    with pytest.warns(eh.EvenhandWarning, match=r"Left out of the inputs: 'reference' \(id"):
        found = eh.audit_stream(
            LogisticRegression().fit(people.to_numpy(), y),
            tmp_path / "people.parquet",
            label="paid",
            group="sex",
            financial_features=["income"],
            out=tmp_path / "audit",
            batch_rows=20,
            n_jobs=1,
            evidence=False,
        )
    assert found.provenance.n_features == 2
