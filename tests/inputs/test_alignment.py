"""Values belong to rows by their index, not by their place."""

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
import torch

import evenhand as eh
from evenhand.exceptions import InvalidInputError
from evenhand.inputs.validation import in_row_order

pytestmark = pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning")


@pytest.fixture(scope="module")
def people():
    data = eh.load_dataset("synthetic", n=200)
    X = data.X.set_axis([f"p{k}" for k in range(200)])
    return (
        X,
        pd.Series(np.asarray(data.y), X.index),
        pd.Series(np.asarray(data.group), X.index),
        data.financial_features,
    )


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    return torch.nn.Linear(20, 1)


def audit(model, X, y, group, financial, **options):
    found = eh.audit(model, X, y, sensitive_features=group, financial_features=financial, evidence=False, **options)
    return found.to_dict()


def test_every_column_of_an_audit_is_put_in_the_order_of_the_table(people, model):
    X, y, group, financial = people
    by = pd.DataFrame({"product": np.resize(["a", "b"], 200)}, X.index)
    order = np.random.default_rng(0).permutation(200)
    reference = (X, y, group)
    expected = audit(model, X, y, group, financial, reference=reference, by=by)
    shuffled = audit(
        model,
        X,
        y.iloc[order],
        group.iloc[order],
        financial,
        reference=(X, y.iloc[order], group.iloc[order]),
        by=by.iloc[order],
    )
    for part in ("cec", "regimes", "outcome", "by", "score_gap"):
        assert repr(shuffled.get(part)) == repr(expected.get(part))


@pytest.mark.parametrize("name", ["y", "group"])
def test_other_people_are_refused(people, model, name):
    X, y, group, financial = people
    given = {"y": y, "group": group}
    given[name] = given[name].reset_index(drop=True)
    with pytest.raises(
        InvalidInputError, match=r"and `X` have different indexes: 200 of 200 rows of `X` are not in it, such as"
    ):
        audit(model, X, given["y"], given["group"], financial)


def test_labels_that_come_twice_tell_no_order():
    X = pd.DataFrame({"a": [1, 2, 3]}, index=[0, 0, 1])
    assert in_row_order(pd.Series([1, 2, 3], [0, 0, 1]), X, "y").tolist() == [1, 2, 3]
    with pytest.raises(InvalidInputError, match=r"are repeated, .* pass `y\.to_numpy\(\)`"):
        in_row_order(pd.Series([1, 2, 3], [1, 0, 0]), X, "y")


def test_what_has_no_index_is_taken_by_place(people, model):
    X, y, group, financial = people
    expected = audit(model, X, y, group, financial)
    arrow, polars = pa.Table.from_pandas(X, preserve_index=False), pl.DataFrame(X.to_dict("list"))
    for table, convert in ((arrow, pa.array), (polars, pl.Series), (arrow.to_batches()[0], list), (X, np.asarray)):
        found = audit(model, table, convert(y.to_list()), convert(group.to_list()), financial)
        assert found["cec"] == expected["cec"]
    found = audit(model, polars, pa.chunked_array([y.to_list()]), {"sex": pa.array(group.to_list())}, financial)
    assert found["cec"] == expected["cec"]


def test_training_and_matching_align_too(people):
    X, y, group, financial = people
    order = np.random.default_rng(1).permutation(200)
    settings = {"financial_features": financial, "epochs": 2, "random_state": 0}
    weight = pd.Series(np.resize([1.0, 2.0], 200), X.index)
    first = eh.CECClassifier(**settings).fit(X, y, sensitive_features=group, sample_weight=weight)
    second = eh.CECClassifier(**settings).fit(
        X, y.iloc[order], sensitive_features=group.iloc[order], sample_weight=weight.iloc[order]
    )
    np.testing.assert_array_equal(first.predict_proba(X), second.predict_proba(X))
    F = X[list(financial)]
    pairs = eh.match_pairs(F, y.iloc[order], group.iloc[order])
    np.testing.assert_array_equal(pairs.match, eh.match_pairs(F, y, group).match)
    codes = (group == group.iloc[0]).astype(int)
    np.testing.assert_array_equal(
        eh.label_group_baselines(X, y.iloc[order], codes.iloc[order]), eh.label_group_baselines(X, y, codes)
    )
