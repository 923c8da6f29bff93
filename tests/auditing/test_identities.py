"""Who the audited people are: known again whatever the order, the batches and the further columns."""

import numpy as np
import pandas as pd
import pytest
import torch

import evenhand as eh
from evenhand.auditing.evidence import Influences, gap_key
from evenhand.auditing.identity import fingerprint_of, is_same_people, people_prints, person_buckets, shown_prints
from evenhand.inputs.identity import hash_rows
from evenhand.inputs.people import People
from evenhand.inputs.validation import as_groups
from evenhand.metrics.triples import N_BUCKETS


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    n = 300
    return pd.DataFrame(
        {
            "income": rng.normal(size=n),
            "age": rng.integers(20, 70, n),
            "purpose": rng.choice(["car", "home", None], n),
            "owner": rng.random(n) < 0.5,
            "y": rng.integers(0, 2, n),
            "sex": rng.choice(["f", "m"], n),
        }
    )


def people(table, drop=()):
    X = table.drop(columns=["y", "sex", *drop])
    return People(X, table["y"].to_numpy(), as_groups(table["sex"], len(X)), x=torch.zeros(len(X), 1))


def data(found):
    prints = shown_prints(people_prints(found), list(found.table.columns))
    return {"n_people": len(found), "column_prints": prints}


def test_the_order_of_people_columns_and_batches_plays_no_part(table):
    whole = people(table)
    shuffled = people(table.sample(frac=1, random_state=1)[list(table.columns[::-1])])
    names = list(whole.table.columns)
    assert fingerprint_of(**_arguments(whole)) == fingerprint_of(**_arguments(shuffled))
    parts = people_prints(people(table.iloc[:100])) + people_prints(people(table.iloc[100:]))
    assert shown_prints(parts, names) == data(whole)["column_prints"]


def _arguments(found):
    return {"prints": data(found)["column_prints"], "n_people": len(found)}


def test_types_that_hold_the_same_values_play_no_part(table):
    other = table.assign(
        age=table["age"].astype("float32"),
        purpose=pd.Categorical(table["purpose"]),
        owner=table["owner"].astype(float),
        income=table["income"].astype(object).astype(float),
    )
    assert data(people(other)) == data(people(table))


def test_people_are_the_same_with_a_column_more_or_less(table):
    whole, without = data(people(table)), data(people(table, drop=["purpose"]))
    assert is_same_people(whole, without)
    assert fingerprint_of(whole["column_prints"], 300) != fingerprint_of(without["column_prints"], 300)
    assert not is_same_people(whole, data(people(table.assign(age=table["age"] + (table.index == 7)), ["purpose"])))
    nothing_shared = people(table, drop=["income", "age", "owner"]), people(table, drop=["purpose"])
    assert not is_same_people(*map(data, nothing_shared))
    assert is_same_people(whole, {"n_people": 300}) is None


def test_a_value_that_moves_to_another_group_makes_other_people(table):
    f, m = np.flatnonzero(table["sex"] == "f")[0], np.flatnonzero(table["sex"] == "m")[0]
    swapped = table.copy()
    swapped.loc[[f, m], "income"] = table.loc[[m, f], "income"].to_numpy()
    assert not is_same_people(data(people(table)), data(people(swapped)))


def test_a_bucket_depends_on_label_group_and_finances_alone(table):
    found = person_buckets(people(table), ["income", "age"])
    order = np.random.default_rng(2).permutation(len(table))
    again = person_buckets(people(table.iloc[order], drop=["purpose"]), ["age", "income"])
    assert (found[order] == again).all()
    assert (found >= 0).all()
    assert (found < N_BUCKETS).all()
    assert len(np.unique(found)) > 230  # of 300 people in 1,024 buckets
    assert (person_buckets(people(table.assign(y=1 - table["y"])), ["income", "age"]) != found).mean() > 0.95


def test_zero_has_no_sign_and_missing_values_are_alike():
    first = pd.DataFrame({"a": [0.0, np.nan], "b": ["x", None]})
    second = pd.DataFrame({"a": [-0.0, -np.nan], "b": pd.array(["x", pd.NA], dtype="string")})
    assert (hash_rows(first) == hash_rows(second)).all()
    assert hash_rows(first)[0] != hash_rows(first)[1]


def test_influences_take_bounded_room_and_are_read_back():
    rng = np.random.default_rng(5)
    columns = {f"c{k}": rng.normal(size=N_BUCKETS) for k in range(300)}
    found = Influences.of(columns)
    assert {len(values) for values in found.columns.values()} == {128}
    assert sum(len(text) for text in found.to_dict().values()) < 180_000
    again = Influences.from_dict(found.to_dict())
    assert all((again.columns[name] == values).all() for name, values in found.columns.items())
    assert (again.on("c1", -1.0) == -again.on("c1")).all()
    assert again.on("none") is None
    assert again.on(None) is None


def test_in_memory_and_streamed_audits_of_the_same_people_are_the_same(tmp_path):
    planted = eh.make_planted_bias(200, strength=0.3, random_state=0)
    made = planted.dataset
    whole = eh.audit(
        planted.model, made.X, made.y, sensitive_features=made.group, financial_features=made.financial_features
    )
    file = made.X.assign(y=made.y, sex=made.group).sample(frac=1, random_state=3)
    file.to_parquet(tmp_path / "people.parquet", index=False)
    streamed = eh.audit_stream(
        planted.model,
        tmp_path / "people.parquet",
        label="y",
        group="sex",
        financial_features=made.financial_features,
        out=tmp_path / "audit",
        batch_rows=70,
        n_jobs=1,
    )
    assert streamed.provenance.fingerprint == whole.provenance.fingerprint
    assert streamed.provenance.column_prints == whole.provenance.column_prints
    assert streamed.settings == whole.settings
    found = eh.compare_audits({"whole": whole, "streamed": streamed})
    assert not found.differences
    assert not found.warnings
    assert all(f.is_paired and f.p_value > 0.999 for f in found.findings)
    key = gap_key("group 1", "group 0")
    (gap,) = [c for c in found.metrics if c.key == key]
    assert abs(gap.change) < 1e-6
    assert gap.standard_error < 1e-3 * whole.evidence.score_gaps[0].total.standard_error
