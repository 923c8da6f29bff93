"""A streamed audit finds what the audit in memory finds, whatever the batches."""

import json

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from evenhand.auditing.streaming import audit_stream

FINANCIAL = ["f0", "f1", "f2"]
FEATURES = [*FINANCIAL, "z0", "z1", "z2"]

pytestmark = [
    pytest.mark.integration,
    pytest.mark.filterwarnings("ignore::evenhand.exceptions.EvenhandWarning"),
]


@pytest.mark.parametrize(("groups", "reference_people"), [(("a", "b"), None), (("a", "b", "c"), 10_000)])
def test_figures_and_pairs_are_those_of_the_audit_in_memory(
    tmp_path, model, groups, reference_people, applicants, in_memory, streamed, assert_same
):
    table = applicants(groups=groups)
    if reference_people is None:
        reference = applicants(400, groups=groups, seed=1)
        found = streamed(model, table, tmp_path, reference=reference, by=["state", "branch"])
    else:
        reference = None
        found = streamed(model, table, tmp_path, reference_people=reference_people, by=["state", "branch"])
    memory = in_memory(model, table, reference, by=["state", "branch"])
    assert_same(found, memory)
    pd.testing.assert_frame_equal(found.summary(), memory.summary())
    assert len(found.evidence.splits) > 8


@pytest.mark.parametrize("ending", ["parquet", "csv", "csv.gz"])
@pytest.mark.slow
def test_a_reference_in_a_file_is_the_same_table_in_memory(
    tmp_path, model, ending, applicants, in_memory, streamed, assert_same, differences
):
    table, reference = applicants(500), applicants(400, seed=1)
    file = tmp_path / f"reference.{ending}"
    reference.to_parquet(file) if ending == "parquet" else reference.to_csv(file, index=False)
    (tmp_path / "path").mkdir()
    (tmp_path / "table").mkdir()
    by_path = streamed(model, table, tmp_path / "path", reference=file if ending == "csv" else str(file))
    by_table = streamed(model, table, tmp_path / "table", reference=reference)
    assert_same(by_path, in_memory(model, table, reference))
    assert differences(by_path.to_dict()["cec"], by_table.to_dict()["cec"], rel=0) == []
    assert by_path.stream["reference"] == by_table.stream["reference"] == "400 people given as the reference"


def test_limits_on_distance_and_people_without_a_match_or_baseline(
    tmp_path, model, applicants, in_memory, streamed, assert_same
):
    table = applicants(700, groups=("a", "b", "c"), shares=[0.6, 0.38, 0.02])
    reference = applicants(300, groups=("a", "b", "c"), shares=[0.6, 0.38, 0.02], seed=3)
    reference = reference[~((reference["sex"] == "c") & (reference["y"] == 1))]
    found = streamed(model, table, tmp_path, reference=reference, max_distance=0.6)
    memory = in_memory(model, table, reference, max_distance=0.6)
    assert memory.provenance.n_without_baseline > 0
    assert 0 < memory.matching.coverage < 0.9
    assert_same(found, memory)


def test_a_linear_model_and_a_network_in_single_precision(
    tmp_path, applicants, network, in_memory, streamed, assert_same
):
    table = applicants(300)
    (tmp_path / "linear").mkdir()
    (tmp_path / "network").mkdir()
    torch.manual_seed(1)
    linear = nn.Linear(len(FEATURES), 1)
    assert_same(streamed(linear, table, tmp_path / "linear"), in_memory(linear, table), rel=1e-5)
    single = network().float()
    assert_same(streamed(single, table, tmp_path / "network"), in_memory(single, table), rel=1e-5)


def test_trees_and_a_fitted_classifier(tmp_path, applicants, in_memory, streamed, assert_same):
    sklearn = pytest.importorskip("sklearn.ensemble")
    table = applicants(300)
    trees = sklearn.GradientBoostingClassifier(n_estimators=10, random_state=0).fit(table[FEATURES], table["y"])
    assert_same(streamed(trees, table, tmp_path), in_memory(trees, table))


def test_without_evidence(tmp_path, model, people, in_memory, streamed, assert_same):
    found = streamed(model, people, tmp_path, evidence=False)
    assert found.evidence is None
    assert_same(found, in_memory(model, people, evidence=False))


@pytest.mark.slow
def test_people_of_the_reference_are_never_their_own_placebo_and_the_sample_is_stated(
    tmp_path, model, applicants, differences, in_memory, streamed
):
    table = applicants(3000)
    found = streamed(model, table, tmp_path, reference_people=1200, batch_rows=700)
    assert found.provenance.n_reference >= 1200
    assert "of 3,000 people of the source, at random" in found.stream["reference"]
    whole = in_memory(model, table)
    data, all_data = found.to_dict(), whole.to_dict()
    assert data["cec"]["excess"] == pytest.approx(all_data["cec"]["excess"], abs=0.02)
    assert data["outcome"]["auc"] == pytest.approx(all_data["outcome"]["auc"], abs=1e-12)
    (tmp_path / "again").mkdir()
    small = streamed(model, table, tmp_path / "again", reference_people=1200, batch_rows=250)
    mine, theirs = small.to_dict(), data
    for either in (mine, theirs):
        either.pop("stream")
    assert differences(mine, theirs) == []


def test_evidence_on_a_random_part_of_the_people(tmp_path, model, applicants, in_memory, streamed):
    table = applicants(1000)
    found = streamed(model, table, tmp_path, evidence_people=400, batch_rows=250)
    pairs = pd.read_parquet(found.pairs_path)
    assert 350 < pairs["placebo_cec"].notna().sum() <= 400
    assert found.evidence.cec.n == pairs.loc[pairs["placebo_cec"].notna(), "person"].nunique()
    assert found.stream["evidence_people"] == 400
    everyone = in_memory(model, table)
    assert found.to_dict()["cec"]["mean"] == pytest.approx(everyone.to_dict()["cec"]["mean"], rel=1e-12)
    assert found.evidence.cec.value == pytest.approx(
        everyone.evidence.cec.value, abs=3 * found.evidence.cec.standard_error
    )


@pytest.mark.slow
def test_folders_csv_and_parquet_are_read_alike(tmp_path, model, people, differences, streamed):
    table = people.drop(columns=["state"])
    whole = streamed(model, table, tmp_path).to_dict()
    folder = tmp_path / "folder"
    folder.mkdir()
    for k, part in enumerate(np.array_split(np.arange(len(table)), 4)):
        table.iloc[part].to_parquet(folder / f"part-{k}.parquet")
    table.to_csv(tmp_path / "people.csv", index=False)
    table.to_csv(tmp_path / "zipped.csv.gz", index=False)
    arguments = {"label": "y", "group": "sex", "financial_features": FINANCIAL, "features": FEATURES, "batch_rows": 130}
    for k, source in enumerate((folder, tmp_path / "people.csv", tmp_path / "zipped.csv.gz")):
        found = audit_stream(model, source, out=tmp_path / f"audit-{k}", **arguments).to_dict()
        found.pop("stream")
        found["data"] |= {key: whole["data"][key] for key in ("hashes", "files")}  # of other files
        assert differences(found, {k: v for k, v in whole.items() if k != "stream"}) == []


def test_rows_without_a_label_or_group_are_left_out_and_counted(
    tmp_path, model, people, differences, in_memory, streamed
):
    table = people.copy()
    table["sex"] = table["sex"].where(np.arange(len(table)) % 10 != 0, None)
    found = streamed(model, table, tmp_path, drop_missing=True)
    assert found.provenance.exclusions == {"no value in 'sex'": 90}
    assert found.provenance.n_people == 810
    memory = in_memory(model, table[table["sex"].notna()].reset_index(drop=True))
    assert differences(found.to_dict()["evidence"], memory.to_dict()["evidence"]) == []


def test_a_favorable_label_by_name(tmp_path, model, people, differences, streamed):
    named = people.assign(y=people["y"].map({1: "good", 0: "bad"}))
    (tmp_path / "named").mkdir()
    found = streamed(model, named, tmp_path / "named", positive_label="good", evidence=False).to_dict()
    plain = streamed(model, people, tmp_path, evidence=False).to_dict()
    assert differences(found["cec"], plain["cec"], 0) == []


def test_a_batch_of_one_group_and_one_label_only(tmp_path, model, people, in_memory, streamed, assert_same):
    table = people.sort_values(["sex", "y"], ignore_index=True)
    assert_same(streamed(model, table, tmp_path, batch_rows=100), in_memory(model, table))


def test_the_sample_of_pairs_has_the_strongest_and_both_peoples_values(
    tmp_path, model, applicants, in_memory, streamed
):
    table = applicants(2600)
    found = streamed(model, table, tmp_path, batch_rows=700)
    memory = in_memory(model, table).pair_sample()
    sample = found.pair_sample()
    assert (sample.n_pairs, sample.n_scored, len(sample)) == (memory.n_pairs, memory.n_scored, len(memory))
    n = sample.n_strongest
    assert sample.how == memory.how
    assert sample.pairs["person"].tolist()[:n] == memory.pairs["person"].tolist()[:n]
    np.testing.assert_allclose(sample.attributions[:n], memory.attributions[:n], rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(sample.match_attributions[:n], memory.match_attributions[:n], rtol=1e-5, atol=1e-7)
    own = table.loc[sample.pairs["person"], FEATURES].to_numpy()
    np.testing.assert_array_equal(sample.values.to_numpy(), own)
    np.testing.assert_array_equal(sample.match_values.to_numpy(), table.loc[sample.pairs["match"], FEATURES].to_numpy())
    few = found.pair_sample(50)
    assert len(few) == 50
    assert few.pairs["person"].tolist()[:10] == sample.pairs["person"].tolist()[:10]


def test_outputs_are_written_by_the_same_code(tmp_path, model, people, streamed):
    found = streamed(model, people, tmp_path)
    found.to_json(tmp_path / "audit.json")
    data = json.loads((tmp_path / "audit.json").read_text())
    assert data["cec"]["mean"] == pytest.approx(found.to_dict()["cec"]["mean"])
    kept = json.loads((tmp_path / "audit" / "audit.json").read_text())
    assert {**kept, "created": data["created"]} == data
    found.to_html(tmp_path / "audit.html")
    assert "<html" in (tmp_path / "audit.html").read_text()
    found.to_excel(tmp_path / "audit.xlsx")
    assert (tmp_path / "audit.xlsx").stat().st_size > 5000
    assert "AuditResult(900 people" in repr(found)
    assert "regime B" in str(found)
    assert found.cases(2)["person"].nunique() <= 2
